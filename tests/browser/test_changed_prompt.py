"""A prompt in another key and tempo, in a real browser."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect
from seated import sit_down, use
from visitor import FIELD, Visitor, box_of

from music_gpt.midi.piece import make_notes, read_piece, write_midi

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]
SPEED = "Speed of the prompt, in percent"


def transpose(visitor: Visitor) -> Locator:
    return visitor.page.get_by_label("Transpose the prompt, in semitones")


def change(visitor: Visitor, semitones: int, percent: float) -> dict[str, Any]:
    transpose(visitor).select_option(str(semitones))
    visitor.wait(f"state.transpose == {semitones}")
    visitor.type(SPEED, percent)
    return visitor.wait(f"state.speed == {percent}")


def fields(visitor: Visitor) -> tuple[str, str]:
    return transpose(visitor).input_value(), visitor.page.get_by_label(SPEED).input_value()


def open_file(visit: Visit, path: Path) -> Visitor:
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, path)
    visitor.wait(f"state.name == '{path.stem}'")
    return visitor


def test_the_roll_shows_the_prompt_in_another_key_and_tempo_at_once_and_it_is_continued(
    visit: Visit, own_file: Path
) -> None:
    visitor = open_file(visit, own_file)
    before = visitor.state
    assert fields(visitor) == ("0", "100")
    state = change(visitor, -3, 80)
    assert (state["notes"], state["end"]) == (24, 15)
    assert state["version"] != before["version"]
    assert state["selection"] == {"start": 0, "end": 15}
    assert fields(visitor) == ("-3", "80")
    told = "transposed by \u22123, at 80 % of the speed"
    expect(visitor.page.locator(".mg-spoken")).to_contain_text(told)
    expect(visitor.page.locator(".mg-detail")).to_contain_text(told.replace(", ", " · "))
    visitor.photograph("changed")
    visitor.wish(**{"Length in seconds": 5})
    visitor.compose()
    state = visitor.wait("state.state == 'done'")
    assert state["seam"] == 15
    assert transpose(visitor).is_hidden()
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="MIDI", exact=True).click()
    notes = read_piece(download.value.path()).notes
    assert notes["pitch"][:24].tolist() == list(range(57, 81))
    assert notes["start"][1] == 0.625
    visitor.page.get_by_role("tab", name="Prompt").click()
    assert fields(visitor) == ("-3", "80")


def test_the_handles_and_the_playhead_stay_at_their_notes(visit: Visit, own_file: Path) -> None:
    visitor = open_file(visit, own_file)
    visitor.type("Continue from, in seconds", 8)
    visitor.page.get_by_label("Start of the part to continue").press("ArrowRight")
    surface = visitor.page.locator(".mg-surface")
    surface.click(position={"x": box_of(surface)["width"] / 2, "y": 60})
    before = visitor.state
    assert before["selection"] == {"start": 0.5, "end": 8}
    state = change(visitor, 2, 200)
    assert state["selection"] == {"start": 0.25, "end": 4}
    assert state["position"] == pytest.approx(before["position"] / 2)
    assert not state["playing"]
    state = change(visitor, 0, 100)
    assert state["selection"] == before["selection"]
    assert state["position"] == pytest.approx(before["position"])


def test_one_hears_the_change_without_a_break(visit: Visit, own_file: Path) -> None:
    visitor = open_file(visit, own_file)
    visitor.page.get_by_label("Play", exact=True).click()
    visitor.wait("state.playing && state.position > 1")
    state = change(visitor, 5, 50)
    assert (state["playing"], state["position"] > 2) == (True, True)
    visitor.wait("state.loudness > 0.001")


@pytest.mark.parametrize("width", [360, 390, 721, 901, 1040, 1280])
def test_the_fields_have_room_on_every_window(visit: Visit, width: int, own_file: Path) -> None:
    visitor = visit(viewport={"width": width, "height": 844}).open()
    visitor.page.set_input_files(FIELD, own_file)
    visitor.wait("state.name == 'my own scale'")
    change(visitor, -3, 112.5)
    card = box_of(visitor.page.locator("#roll-card"))
    line = visitor.page.locator(".mg-legend :is(input, select, button):visible").all()
    assert len(line) == 5
    boxes = [box_of(field) for field in line]
    for box in boxes:
        assert box["x"] + box["width"] <= card["x"] + card["width"] - 10
    fits = "node => node.scrollWidth <= node.clientWidth"
    assert visitor.page.get_by_label(SPEED).evaluate(fits)
    for one, other in pairwise(boxes):
        side_by_side = one["x"] + one["width"] <= other["x"]
        assert side_by_side or one["y"] != other["y"]
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == width


def test_only_what_the_keys_of_a_piano_have_is_offered(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "wide.mid"
    write_midi(make_notes([(0, 1, 30, 64), (1, 2, 101, 64)]), path)
    visitor = open_file(visit, path)
    offered = transpose(visitor).locator("option").all_inner_texts()
    assert (offered[0], offered[6:9], offered[-1]) == ("+7", ["+1", "0", "\u22121"], "\u22129")
    assert len(offered) == 17
    visitor.type(SPEED, 500)
    told = "speed in percent is 500, but it has to be a number from 25 to 400"
    visitor.page.locator(".mg-status", has_text=told).wait_for()
    assert fields(visitor) == ("0", "100")
    field = visitor.page.get_by_label(SPEED)
    field.fill("")
    field.press("Tab")
    expect(field).to_have_value("100")


def test_of_many_quick_changes_the_last_one_counts(visit: Visit, own_file: Path) -> None:
    visitor = open_file(visit, own_file)
    held: list[Route] = []
    sent: list[Route] = []

    def hold(route: Route) -> None:
        sent.append(route)
        if len(sent) > 1:
            route.continue_()
        else:
            held.append(route)

    visitor.page.route("**/gradio_api/run/**", hold)
    for _ in range(7):
        visitor.page.get_by_label(SPEED).press("ArrowUp")
    transpose(visitor).select_option("4")
    visitor.page.wait_for_timeout(300)
    assert len(sent) == 1
    held[0].continue_()
    visitor.wait("state.speed == 135 && state.transpose == 4")
    assert fields(visitor) == ("4", "135")
    assert len(sent) < 8  # not each step was sent


def test_another_prompt_comes_as_it_is_and_earlier_music_as_it_was(
    visit: Visit, own_file: Path
) -> None:
    visitor = open_file(visit, own_file)
    change(visitor, 3, 125)
    visitor.wish(**{"Length in seconds": 5})
    visitor.compose()
    visitor.wait("state.state == 'done'")
    visitor.page.get_by_role("tab", name="Prompt").click()
    state = change(visitor, -4, 125)
    assert (state["state"], state["place"]) == ("prompt", "2 / 2")
    expect(visitor.page.get_by_role("button", name="MIDI", exact=True)).to_be_disabled()
    visitor.page.get_by_label("Träumerei").check()
    state = visitor.wait("state.name.startsWith('Träumerei')")
    assert (state["transpose"], state["speed"], fields(visitor)) == (0, 100, ("0", "100"))
    visitor.page.get_by_role("button", name="Earlier music").click()
    visitor.wait("state.state == 'done' && state.transpose == 3 && state.speed == 125")
    visitor.page.get_by_role("tab", name="Prompt").click()
    assert fields(visitor) == ("3", "125")
    visitor.page.get_by_role("tab", name="Continuation").click()
    visitor.page.get_by_role("button", name="Continue this take").click()
    state = visitor.wait("state.state == 'prompt'")
    assert fields(visitor) == ("0", "100")
    assert change(visitor, 1, 50)["end"] == pytest.approx(2 * state["end"], abs=0.01)


def test_a_page_that_is_loaded_again_has_the_key_and_tempo_of_its_prompt(
    visit: Visit, own_file: Path
) -> None:
    visitor = open_file(visit, own_file)
    change(visitor, 7, 90)
    visitor.reload()
    visitor.wait("state.transpose == 7 && state.speed == 90 && state.bank != 'waiting'")
    assert fields(visitor) == ("7", "90")
    assert change(visitor, 0, 100)["end"] == 12


def test_a_change_while_music_is_composed_ends_it_and_keeps_it(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    composing = visitor.wait("state.state == 'composing' && state.newNotes[0] > 3")
    visitor.page.get_by_role("tab", name="Prompt").click()
    transpose(visitor).select_option("2")
    visitor.wait("state.state == 'prompt' && state.transpose == 2 && state.place == '2 / 2'")
    expect(visitor.page.locator("#compose")).to_be_visible()
    visitor.page.get_by_role("button", name="Earlier music").click()
    state = visitor.wait("state.state == 'done' && state.transpose == 0")
    assert state["newNotes"][0] >= composing["newNotes"][0]


def test_what_one_played_can_be_changed(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    for letter in "ad":
        visitor.page.keyboard.press(letter, delay=80)
    before = use(visitor)
    state = change(visitor, -12, 50)
    assert state["end"] == pytest.approx(2 * before["end"], abs=0.01)


def test_where_there_is_no_prompt_there_is_nothing_to_change(visit: Visit) -> None:
    visitor = visit().open()
    assert transpose(visitor).is_visible()
    visitor.page.get_by_label("Start from nothing").check()
    visitor.wait("state.state == 'empty'")
    assert transpose(visitor).is_hidden()
    visitor.page.get_by_label("Gymnopédie").check()
    visitor.wait("state.state == 'prompt'")
    visitor.page.get_by_role("button", name="Redo a part").click()
    assert transpose(visitor).is_hidden()
