"""A part composed anew, in a real browser: each test is something that a visitor does."""

from collections.abc import Callable

import pytest
from visitor import Visitor, box_of

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]


def test_a_marked_part_is_composed_anew_and_the_best_way_is_heard(visit: Visit) -> None:
    visitor = visit().open()
    before = visitor.state["notes"]
    visitor.page.get_by_role("button", name="Redo a part").click()
    assert visitor.page.locator("#compose").is_hidden()
    assert visitor.state["selection"] == {"start": 0, "end": 4}
    surface = visitor.page.locator(".mg-surface")
    box = box_of(surface)
    visitor.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    visitor.page.mouse.down()
    visitor.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=6)
    visitor.page.mouse.up()
    marked = visitor.state["selection"]
    assert 5 < marked["end"] - marked["start"] < 9
    visitor.type("Compose anew from, in seconds", 10)
    visitor.type("Compose anew to, in seconds", 13)
    assert visitor.state["selection"] == {"start": 10, "end": 13}
    visitor.type("Ways to compose it anew", 2)
    visitor.photograph("mark")
    visitor.page.get_by_role("button", name="Compose this part anew").click()
    state = visitor.wait("state.state == 'done'")
    assert (state["seam"], state["until"], state["tab"], state["marking"]) == (10, 13, 2, False)
    tabs = visitor.page.get_by_role("tab")
    assert tabs.all_inner_texts() == ["Prompt", "Before", "1", "2"]
    visitor.wait("state.playing && state.position > 7")
    visitor.photograph("redone")
    tabs.nth(1).click()
    assert visitor.state["notes"] == before
    assert visitor.page.locator("#compose").is_visible()


@pytest.mark.parametrize("order", [("from", "to"), ("to", "from")], ids=str)
def test_the_edges_of_a_part_can_be_typed_in_either_order(
    visit: Visit, order: tuple[str, str]
) -> None:
    visitor = visit().open()
    visitor.page.get_by_role("button", name="Redo a part").click()
    wish = {"from": 20, "to": 22.5}  # beyond what is marked at first
    for edge in order:
        visitor.type(f"Compose anew {edge}, in seconds", wish[edge])
    assert visitor.state["selection"] == {"start": 20, "end": 22.5}


def test_a_part_that_ends_before_it_begins_is_told_and_its_numbers_stay(visit: Visit) -> None:
    visitor = visit().open()
    visitor.page.get_by_role("button", name="Redo a part").click()
    visitor.type("Compose anew from, in seconds", 10)
    visitor.page.get_by_role("button", name="Compose this part anew").click()
    told = "The part begins at 10 seconds and ends at 4; let it begin before it ends."
    visitor.page.locator(".mg-status", has_text=told).wait_for()
    assert visitor.state["selection"] == {"start": 10, "end": 4}
    visitor.type("Compose anew to, in seconds", 99)
    visitor.page.get_by_role("button", name="Compose this part anew").click()
    visitor.page.locator(".mg-status", has_text="is not in the piece, which lasts").wait_for()
    visitor.type("Compose anew to, in seconds", 12)
    visitor.type("Ways to compose it anew", 20)
    visitor.page.get_by_role("button", name="Compose this part anew").click()
    visitor.page.locator(".mg-status", has_text="ways is 20, but it has to be").wait_for()
    visitor.type("Ways to compose it anew", 1)
    visitor.page.get_by_role("button", name="Compose this part anew").click()
    state = visitor.wait("state.state == 'done'")
    assert (state["seam"], state["until"]) == (10, 12)
