"""How the page looks on a desk and on a phone, in the light and in the dark."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect
from visitor import Visitor, box_of

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]

PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
}
TIMES = 16
"""Height of the times at the top of the roll."""
PLAYHEAD_ROWS = """async () => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  const live = document.querySelector(".mg-live");
  const { data, width } = live.getContext("2d").getImageData(0, 0, live.width, live.height);
  const first = data.findIndex((byte, i) => i % 4 == 3 && byte);
  return first < 0 ? 0 : Math.floor(first / 4 / width);
}"""
"""How many rows there are above the playhead, once it is drawn; 0 if it is not."""


def test_the_times_of_the_roll_are_not_drawn_over(visit: Visit) -> None:
    visitor = visit().open()
    surface = visitor.page.locator(".mg-surface")
    box = box_of(surface)
    surface.click(position={"x": box["width"] / 2, "y": 60})
    assert visitor.page.evaluate(PLAYHEAD_ROWS) >= TIMES
    handles = visitor.page.locator(".mg-handle").all()
    line = "node => parseFloat(getComputedStyle(node, '::before').top)"
    assert [handle.evaluate(line) for handle in handles] == [TIMES, TIMES]


def test_the_page_is_dark_where_the_system_is_and_can_be_switched(visit: Visit) -> None:
    visitor = visit(color_scheme="dark").open()
    paper = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
    assert max(visitor.page.evaluate(paper)) < 100
    visitor.wish(**{"Length in seconds": 5, "Variations": 4})
    visitor.compose()
    visitor.wait("state.state == 'done'")
    visitor.photograph("dark")
    visitor.page.get_by_label("Light or dark").click()
    assert min(visitor.page.evaluate(paper)) > 200


def test_a_phone_shows_everything_without_scrolling_sideways(visit: Visit) -> None:
    visitor = visit(**PHONE).open()
    width = "document.documentElement.scrollWidth"
    assert visitor.page.evaluate(width) == 390
    for button in visitor.page.locator(".mg-roll button:visible, #actions button:visible").all():
        box = box_of(button)
        assert box["width"] >= 44
        assert box["height"] >= 44
    button = box_of(visitor.page.locator("#compose"))
    assert button["y"] + button["height"] <= 844  # without scrolling down
    redo = box_of(visitor.page.get_by_role("button", name="Redo a part"))
    assert redo["y"] + redo["height"] <= button["y"] - 10  # not below the strip that button is on
    card = box_of(visitor.page.locator("#roll-card"))
    assert (card["x"], card["width"]) == (12, 390 - 24)
    visitor.photograph("phone")
    visitor.wish(**{"Length in seconds": 5, "Variations": 8})
    visitor.page.tap("#compose")
    visitor.wait("state.state == 'done'")
    visitor.photograph("phone-done")
    after = box_of(visitor.page.locator("#roll-card"))
    assert after["height"] == card["height"]  # nothing moved when the music came
    assert visitor.page.evaluate(width) == 390


@pytest.mark.parametrize("width", [1400, 1240, 1239, 1101, 901, 701, 320])
def test_the_buttons_that_save_stand_in_the_card_in_even_rows(visit: Visit, width: int) -> None:
    page = visit(viewport={"width": width, "height": 800}).open().page
    card, rows = box_of(page.locator("#roll-card")), dict[float, int]()
    for button in page.locator("#actions .save").all():
        box = box_of(button)
        assert card["x"] <= box["x"]
        assert box["x"] + box["width"] <= card["x"] + card["width"] - 10
        assert box["height"] == 48  # the words stand beside the arrow
        rows[box["y"]] = rows.get(box["y"], 0) + 1
    assert len(set(rows.values())) == 1


@pytest.mark.parametrize("width", [1100, 1040, 960, 901])
def test_nothing_sticks_out_of_its_card_on_a_small_window(visit: Visit, width: int) -> None:
    visitor = visit(viewport={"width": width, "height": 800}).open()
    visitor.wish(**{"Length in seconds": 5})
    visitor.page.click("#compose")
    visitor.wait("state.state == 'done'")
    card = box_of(visitor.page.locator("#roll-card"))
    for button in visitor.page.locator(".mg-roll button:visible, #actions button:visible").all():
        box = box_of(button)
        assert box["x"] + box["width"] <= card["x"] + card["width"] - 10
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == width
    assert visitor.page.get_by_text("The network is fake <&>.safetensors").is_visible()


def hidden_tabs(visitor: Visitor) -> list[str]:
    """The tabs that are not wholly in sight."""
    strip = box_of(visitor.page.locator(".mg-tabs"))
    names = []
    for tab in visitor.page.get_by_role("tab").all():
        box = box_of(tab)
        if box["x"] < strip["x"] or box["x"] + box["width"] > strip["x"] + strip["width"]:
            names.append(tab.inner_text())
    return names


def test_a_phone_shows_all_tabs_or_that_there_are_more(visit: Visit) -> None:
    visitor = visit(**PHONE).open()
    visitor.page.get_by_role("button", name="Redo a part").click()
    visitor.type("Ways to compose it anew", 4)
    visitor.page.get_by_role("button", name="Compose this part anew").click()
    visitor.wait("state.state == 'done'")
    assert visitor.page.get_by_role("tab").count() == 6
    assert hidden_tabs(visitor) == []
    visitor.wish(**{"Length in seconds": 5, "Variations": 8})
    visitor.page.tap("#compose")
    visitor.wait("state.state == 'done' && state.newNotes.length == 8")
    strip, last = visitor.page.locator(".mg-tabs"), visitor.page.get_by_role("tab").last
    assert "8" in hidden_tabs(visitor)
    expect(strip).to_have_attribute("data-after", "true")
    last.click()
    assert "8" not in hidden_tabs(visitor)
    expect(strip).to_have_attribute("data-after", "false")
    expect(strip).to_have_attribute("data-before", "true")
