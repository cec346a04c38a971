"""Back to earlier music, in a real browser: each test is something that a visitor does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect
from visitor import FIELD, PATIENCE_MS, Visitor

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]


def arrows(visitor: Visitor) -> tuple[Locator, Locator]:
    """What leads to earlier and to later music."""
    earlier, later = (
        visitor.page.get_by_role("button", name=f"{when} music") for when in ("Earlier", "Later")
    )
    return earlier, later


def compose(visitor: Visitor, seed: int) -> None:
    """Compose five seconds, to the end."""
    visitor.wish(**{"Length in seconds": 5})
    visitor.seed(str(seed))
    visitor.compose()
    visitor.wait(f"state.state == 'done' && state.seed == {seed}")


def test_what_was_composed_before_is_seen_and_saved_again(visit: Visit) -> None:
    visitor = visit().open()
    earlier, later = arrows(visitor)
    assert not earlier.is_visible()
    for seed in (7, 8):
        compose(visitor, seed)
    assert visitor.state["place"] == "2 / 2"
    assert later.is_disabled()
    visitor.photograph("earlier")
    earlier.click()
    state = visitor.wait("state.seed == 7")
    assert (state["place"], state["tab"], state["newNotes"][0] > 0) == ("1 / 2", 1, True)
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="MIDI", exact=True).click()
    assert download.value.suggested_filename.endswith("take-1-seed-7.mid")
    visitor.page.get_by_label("Träumerei").check()
    visitor.wait("state.name.startsWith('Träumerei') && state.place == '3 / 3'")
    earlier.click()
    state = visitor.wait("state.seed == 8")
    assert visitor.page.get_by_label("Gymnopédie").is_checked()
    later.click()
    visitor.wait("state.name.startsWith('Träumerei') && state.state == 'prompt'")
    assert visitor.page.get_by_label("Träumerei").is_checked()


def test_earlier_music_comes_back_silent_and_with_its_handles(visit: Visit, own_file: Path) -> None:
    visitor = visit().open()
    visitor.type("Continue from, in seconds", 10)
    compose(visitor, 7)
    visitor.page.set_input_files(FIELD, own_file)
    visitor.wait("state.name == 'my own scale'")
    compose(visitor, 8)
    visitor.seed("no number")
    visitor.compose()
    visitor.page.locator(".mg-status", has_text="whole number").wait_for()
    arrows(visitor)[0].click()
    state = visitor.wait("state.seed == 7")
    assert (state["selection"], state["playing"]) == ({"start": 0, "end": 10}, False)


def test_an_arrow_that_leads_no_further_keeps_the_focus_and_the_place_is_told(
    visit: Visit,
) -> None:
    visitor = visit().open()
    for seed in (7, 8):
        compose(visitor, seed)
    earlier, later = arrows(visitor)
    spoken = visitor.page.locator(".mg-spoken")
    earlier.focus()
    for _ in range(2):
        visitor.page.keyboard.press("Enter")
        visitor.wait("state.place == '1 / 2'")
        expect(earlier).to_be_disabled()
        expect(earlier).to_be_focused()
    assert spoken.inner_text().startswith("Music 1 of 2. Composed. ")
    expect(later).to_be_enabled()


def test_the_arrows_rest_until_what_was_asked_for_is_there(visit: Visit) -> None:
    visitor = visit().open()
    for seed in (7, 8):
        compose(visitor, seed)
    earlier, _ = arrows(visitor)
    others = [visit().open() for _ in range(2)]
    for other in others:  # the pianist has two hands
        other.wish(**{"Length in seconds": 300})
        other.compose()
        other.wait("state.state == 'composing'")
    visitor.compose()
    visitor.page.locator(".mg-status", has_text="Waiting for the pianist").wait_for()
    expect(earlier).to_be_disabled()
    visitor.page.get_by_label("Träumerei").check()
    visitor.wait("state.name.startsWith('Träumerei')")
    expect(earlier).to_be_enabled()
    others[0].page.click("#stop")
    visitor.page.locator(".mg-status", has_text="Other music is shown by now").wait_for()
    assert visitor.state["state"] == "prompt"
    others[1].page.click("#stop")
    for other in others:
        other.wait("state.state == 'done'")


def test_music_that_another_opening_cut_short_is_found_again(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    composing = visitor.wait("state.state == 'composing' && state.newNotes[0] > 3")
    visitor.page.get_by_label("The Entertainer").check()
    visitor.wait("state.name == 'The Entertainer' && state.place == '2 / 2'")
    arrows(visitor)[0].click()
    state = visitor.wait("state.state == 'done'")
    assert state["name"] == composing["name"]
    assert state["newNotes"][0] >= composing["newNotes"][0]


def test_the_same_fault_is_answered_twice(visit: Visit) -> None:
    visitor = visit().open()
    visitor.seed("minus one")
    for _ in range(2):
        status = visitor.page.locator(".mg-status")
        status.evaluate("node => (node.textContent = '')")
        visitor.compose()
        expect(status).to_contain_text("whole number", timeout=PATIENCE_MS)


def test_a_take_is_continued(visit: Visit) -> None:
    visitor = visit().open()
    compose(visitor, 7)
    first = visitor.state
    on = visitor.page.get_by_role("button", name="Continue this take")
    visitor.photograph("continue")
    on.focus()
    visitor.page.keyboard.press("Enter")
    state = visitor.wait("state.state == 'prompt'")
    assert (state["tab"], state["end"]) == (0, first["end"])
    assert state["name"] == first["name"] + ", continued"
    assert state["selection"] == {"start": 0, "end": first["end"]}
    expect(visitor.page.get_by_role("slider", name="End of the part to continue")).to_be_focused()
    expect(visitor.page.locator(".mg-detail")).to_have_text("Take 1, seed 7")
    assert not on.is_visible()
    assert visitor.page.locator("#examples input:checked").count() == 0
    compose(visitor, 8)
    assert visitor.state["end"] > first["end"] + 3
    assert visitor.state["place"] == "2 / 2"
    arrows(visitor)[0].click()
    visitor.wait("state.seed == 7")
    assert visitor.page.get_by_label("Gymnopédie").is_checked()


def test_a_page_that_is_loaded_again_shows_its_music(visit: Visit, own_file: Path) -> None:
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, own_file)
    visitor.wait("state.name == 'my own scale'")
    for seed in (7, 8):
        compose(visitor, seed)
    before = visitor.state
    visitor.reload()
    state = visitor.wait("state.seed == 8 && state.bank != 'waiting'")
    for same in ("name", "version", "place", "newNotes", "selection", "tab"):
        assert state[same] == before[same]
    assert visitor.page.locator("#examples input:checked").count() == 0
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="MIDI", exact=True).click()
    assert download.value.suggested_filename == "my-own-scale-take-1-seed-8.mid"
    arrows(visitor)[0].click()
    visitor.wait("state.seed == 7")
    assert visit().open().state["name"].startswith("Gymnopédie")


def test_music_that_is_composed_when_its_page_is_loaded_again_is_there(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    composing = visitor.wait("state.state == 'composing' && state.newNotes[0] > 6")
    visitor.reload()
    state = visitor.wait("state.state == 'done'")
    assert state["newNotes"][0] >= composing["newNotes"][0]
    assert visitor.page.locator("#compose").is_visible()
    compose(visitor, 9)
