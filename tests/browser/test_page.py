"""A person at the page, in a real browser: each test is something that a visitor does."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import soundfile
from midi_bytes import events_of, file, meta, program
from playwright.sync_api import FloatRect, Locator, expect
from visitor import Visitor

from music_gpt.audio import SAMPLE_RATE, render
from music_gpt.midi.piece import make_notes, read_piece, write_midi
from music_gpt.ui.pianoroll import bank_address, file_text

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]

FIELD = "#midi-file input[type=file]"
PLAY_OFFLINE = """async ([script, bank_url, rows, rate]) => {
  const [Bank, Player] = new Function(script + "; return [PianoBank, PianoPlayer]")();
  const bank = new Bank(new URL(bank_url, location.href).href);
  await bank.load();
  const context = new OfflineAudioContext(2, 3 * rate, rate);
  context.resume = () => {};
  window.AudioContext = function () { return context; };
  const closed = rows.map(([start, end, pitch, velocity]) =>
    ({ start, end, pitch, velocity, key: start + ":" + pitch }));
  const player = new Player(bank, () => ({ closed, open: [], end: 3, growing: false }));
  player.play();
  clearInterval(player.timer);
  const sound = await context.startRendering();
  const begin = Math.round(player.startedAt * rate);
  return [0, 1].map((side) => Array.from(sound.getChannelData(side).slice(begin)));
}"""
"""What the page's player makes of some notes, faster than they sound."""


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


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    """A scale of 24 notes in 12 seconds."""
    path = tmp_path / "my own scale.mid"
    write_midi(make_notes([(0.5 * i, 0.5 * i + 0.5, 60 + i, 40 + 3 * i) for i in range(24)]), path)
    return path


def test_the_first_example_is_shown_before_anything_is_clicked(visit: Visit) -> None:
    visitor = visit().open()
    assert visitor.state["state"] == "prompt"
    assert visitor.state["bank"] == "ready"
    visitor.photograph("light")


def test_another_example_replaces_the_first(visit: Visit) -> None:
    visitor = visit().open()
    before = visitor.state
    visitor.page.get_by_label("Träumerei").check()
    after = visitor.wait("state.name.startsWith('Träumerei')")
    assert after["version"] != before["version"]
    assert after["notes"] != before["notes"]


def test_a_dropped_file_is_shown_at_once(visit: Visit, own_file: Path) -> None:
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, own_file)
    state = visitor.wait("state.name == 'my own scale'")
    assert state["notes"] == 24
    assert state["selection"] == {"start": 0, "end": pytest.approx(12.0, abs=0.01)}
    assert visitor.page.locator("#examples input:checked").count() == 0


@pytest.fixture
def trio_file(tmp_path: Path) -> Path:
    """A violin, both hands of a piano, and drums: 10 seconds."""
    path = tmp_path / "trio.mid"
    rows = [(500 * i, 500 * i + 400, 60) for i in range(20)]
    violin, right, left = (
        events_of([(start, end, pitch + shift, 64) for start, end, pitch in rows], channel)
        for shift, channel in ((20, 1), (0, 0), (-12, 0))
    )
    path.write_bytes(
        file(
            [(0, meta(3, b"Violin")), (0, program(40, 1)), *violin],
            [(0, meta(3, b"Right hand")), (0, program(0)), *right],
            [(0, meta(3, b"Left hand")), (0, program(0)), *left],
            [(0, meta(3, b"Kit")), *events_of([(0, 100, 36, 64)], 9)],
        )
    )
    return path


def test_the_tracks_of_a_file_can_be_chosen(visit: Visit, trio_file: Path, own_file: Path) -> None:
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, trio_file)
    before = visitor.wait("state.name == 'trio'")
    assert before["notes"] == 40
    lines = visitor.page.locator("#tracks label")
    lines.first.wait_for()
    assert [line.split("\xa0")[0] for line in lines.all_inner_texts()] == [
        "Violin",
        "Right hand",
        "Left hand",
    ]
    checked = [line.locator("input").is_checked() for line in lines.all()]
    assert checked == [False, True, True]
    visitor.page.locator(".mg-status", has_text="Only the piano is read").wait_for()
    lines.filter(has_text="Violin").click()
    after = visitor.wait("state.notes == 60")
    assert after["version"] != before["version"]
    visitor.photograph("tracks")
    for name in ("Violin", "Right hand", "Left hand"):
        lines.filter(has_text=name).click()
    visitor.page.locator(".mg-status", has_text="No track is chosen").wait_for()
    assert visitor.state["notes"] == 20  # the last choice that there was
    visitor.page.set_input_files(FIELD, own_file)
    visitor.wait("state.name == 'my own scale'")
    lines.first.wait_for(state="hidden")


def test_the_point_of_the_file_where_the_music_goes_on_can_be_typed(
    visit: Visit, own_file: Path
) -> None:
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, own_file)
    visitor.wait("state.name == 'my own scale'")
    field = visitor.page.get_by_label("Continue from, in seconds")
    assert field.input_value() == "12"
    for typed, taken in (("7.25", 7.25), ("-3", -3), ("99", 99), ("", 99)):
        field.fill(typed)
        field.press("Tab")
        assert visitor.state["selection"]["end"] == taken
        assert float(field.input_value()) == taken
        assert field.get_attribute("aria-invalid") == ("false" if 0 < taken <= 12 else "true")
    visitor.compose()
    told = "cannot go on from 99 seconds, since the prompt lasts 12.00"
    visitor.page.locator(".mg-status", has_text=told).wait_for()
    assert field.input_value() == "99"
    field.fill("6.2")
    field.press("Tab")
    assert visitor.state["selection"] == {"start": 0, "end": 6.2}
    visitor.photograph("point")
    visitor.compose()
    state = visitor.wait("state.state == 'composing'")
    assert state["seam"] == pytest.approx(6.2, abs=0.01)
    assert field.is_hidden()


def test_the_music_can_go_on_from_the_playhead(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "long.mid"
    write_midi(make_notes([(i, i + 1, 60, 64) for i in range(100)]), path)
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, path)
    state = visitor.wait("state.name == 'long'")
    assert state["selection"] == {"start": 60, "end": 100}
    here = visitor.page.get_by_label("Continue from the playhead")
    assert here.is_disabled()
    surface = visitor.page.locator(".mg-surface")
    box = surface.bounding_box()
    assert box is not None
    surface.click(position={"x": box["width"] * 0.3, "y": 40})
    here.click()
    state = visitor.state
    assert 20 < state["position"] < 35
    assert state["selection"] == {"start": 0, "end": pytest.approx(state["position"])}
    field = visitor.page.get_by_label("Continue from, in seconds")
    field.fill("80")
    field.press("Tab")
    assert visitor.state["selection"] == {"start": 40, "end": 80}
    visitor.page.get_by_label("Start of the part to continue").press("ArrowRight")
    field.fill("70")
    field.press("Tab")
    assert visitor.state["selection"] == {"start": 40.5, "end": 70}


def test_a_file_can_be_dropped_on_the_roll_itself(visit: Visit, own_file: Path) -> None:
    visitor = visit().open()
    visitor.page.evaluate(
        """(bytes) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], "on the roll.mid"));
          const drop = new DragEvent("drop", { dataTransfer: data, bubbles: true });
          document.querySelector(".mg-surface").dispatchEvent(drop);
        }""",
        list(own_file.read_bytes()),
    )
    assert visitor.wait("state.name == 'on the roll'")["notes"] == 24


def test_a_wrong_file_is_answered_with_a_sentence(visit: Visit, tmp_path: Path) -> None:
    visitor = visit().open()
    wrong = tmp_path / "letter.mid"
    wrong.write_bytes(b"Dear pianist, this is no music.")
    before = visitor.state
    visitor.page.set_input_files(FIELD, wrong)
    for place in (".mg-status", ".toast-body"):
        visitor.page.locator(place, has_text="not a MIDI file").wait_for()
    assert visitor.state["notes"] == before["notes"]
    assert "Traceback" not in visitor.page.inner_text("body")
    visitor.photograph("wrong-file")


def test_notes_arrive_while_they_are_composed_and_stop_keeps_them(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    early = visitor.wait("state.state == 'composing' && state.newNotes[0] > 3")
    later = visitor.wait(f"state.newNotes[0] > {early['newNotes'][0] + 10}")
    assert later["state"] == "composing"
    status = visitor.page.locator(".mg-status").inner_text()
    assert re.fullmatch(r"[\d.]+ / 300 s · \d+ tokens/s · [\d.]+× real time", status)
    visitor.page.click("#stop")
    done = visitor.wait("state.state == 'done'")
    assert later["newNotes"][0] <= done["newNotes"][0] < 1750
    visitor.page.wait_for_selector("#compose:visible")
    visitor.photograph("stopped")


def test_music_is_heard_while_it_is_still_being_written(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    state = visitor.wait("state.playing && state.loudness > 1e-3 && state.position > state.seam")
    assert state["state"] == "composing"
    assert state["position"] <= state["front"]


def test_play_pause_seek_and_the_space_bar(visit: Visit) -> None:
    visitor = visit().open()
    visitor.page.get_by_label("Play", exact=True).click()
    first = visitor.wait("state.playing && state.position > 0.3 && state.loudness > 1e-3")
    visitor.wait(f"state.position > {first['position']} + 0.3")
    visitor.page.get_by_label("Pause").click()
    paused = visitor.wait("!state.playing")
    assert visitor.state["position"] == paused["position"]
    surface = visitor.page.locator(".mg-surface")
    box = surface.bounding_box()
    assert box is not None
    surface.click(position={"x": box["width"] / 2, "y": 40})
    sought = visitor.state["position"]
    assert sought == pytest.approx(visitor.state["end"] / 2, rel=0.08)
    surface.press("ArrowRight")
    assert visitor.state["position"] == pytest.approx(sought + 1, abs=0.01)
    surface.press("Space")
    visitor.wait(f"state.playing && state.position > {sought + 1}")
    surface.press("Space")
    assert not visitor.state["playing"]


def test_the_playhead_keeps_the_time_of_the_sound(visit: Visit) -> None:
    visitor = visit().open()
    visitor.page.get_by_label("Play", exact=True).click()
    visitor.wait("state.position > 0.2")
    drift = visitor.page.evaluate(
        """async () => {
          const state = () => document.querySelector(".mg-roll").musicGptRoll.state();
          const begun = [state().position, state().clock];
          await new Promise((done) => setTimeout(done, 1500));
          return state().position - begun[0] - (state().clock - begun[1]);
        }"""
    )
    assert abs(drift) < 0.02


def test_what_is_heard_is_what_the_sound_file_holds(visit: Visit) -> None:
    rows = [(0.0, 1.5, 60, 70), (0.0, 2.0, 64, 90), (0.1, 1.0, 33, 100), (0.2, 0.5, 96, 40)]
    page = visit().open().page
    arguments = [file_text("player.js"), bank_address(), rows, SAMPLE_RATE]
    heard = np.array(page.evaluate(PLAY_OFFLINE, arguments))  # (2, n)
    held = render(make_notes(rows)).T / 32768
    for begin in range(0, 2 * SAMPLE_RATE, SAMPLE_RATE // 2):
        ours, theirs = (sound[:, begin : begin + SAMPLE_RATE // 2] for sound in (heard, held))
        assert np.linalg.norm(ours) == pytest.approx(np.linalg.norm(theirs), rel=0.06)
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.99


def test_without_the_recorded_piano_a_plain_one_is_heard(visit: Visit) -> None:
    visitor = visit()
    visitor.page.route("**/bank.json", lambda route: route.fulfill(status=404, body="gone"))
    visitor.open()
    assert visitor.state["bank"] == "failed"
    visitor.page.get_by_label("Play", exact=True).click()
    visitor.wait("state.playing && state.loudness > 1e-3")
    visitor.complaints = [c for c in visitor.complaints if "404" not in c]  # the one made here


def test_the_handles_choose_the_part_that_is_continued(visit: Visit, own_file: Path) -> None:
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, own_file)
    visitor.wait("state.name == 'my own scale'")
    handle = visitor.page.get_by_label("End of the part to continue")
    box = handle.bounding_box()
    assert box is not None
    visitor.page.mouse.move(box["x"] + 22, box["y"] + 90)
    visitor.page.mouse.down()
    visitor.page.mouse.move(box["x"] - 380, box["y"] + 90, steps=8)
    visitor.page.mouse.up()
    end = visitor.state["selection"]["end"]
    assert 3.0 < end < 9.0
    visitor.page.get_by_label("Start of the part to continue").press("ArrowRight")
    assert visitor.state["selection"]["start"] == 0.5
    visitor.photograph("part")
    visitor.compose()
    state = visitor.wait("state.state == 'composing'")
    assert state["seam"] == pytest.approx(end - 0.5, abs=0.02)


def test_music_can_start_from_nothing(visit: Visit) -> None:
    visitor = visit().open()
    visitor.page.get_by_label("Start from nothing").check()
    visitor.wait("state.state == 'empty'")
    visitor.photograph("empty")
    visitor.wish(**{"Length in seconds": 5})
    visitor.compose()
    state = visitor.wait("state.state == 'done'")
    assert state["seam"] == 0
    assert state["newNotes"][0] > 10


def test_each_variation_has_a_tab_and_a_seed_of_its_own(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 5, "Variations": 3})
    visitor.seed("41")
    visitor.compose()
    visitor.wait("state.state == 'done'")
    tabs = visitor.page.get_by_role("tab")
    assert tabs.all_inner_texts() == ["Prompt", "1", "2", "3"]
    visitor.page.get_by_label("Variation 3").click()
    assert visitor.state["tab"] == 3
    assert visitor.page.locator(".mg-seed").inner_text() == "likeliest · Seed 43"
    tabs.nth(3).press("ArrowRight")
    assert visitor.state["tab"] == 0
    assert visitor.page.get_by_label("End of the part to continue").is_visible()


def test_the_take_that_is_shown_can_be_taken_away(visit: Visit, tmp_path: Path) -> None:
    visitor = visit().open()
    assert visitor.page.get_by_role("button", name="MIDI", exact=True).is_disabled()
    visitor.wish(**{"Length in seconds": 5, "Variations": 2})
    visitor.seed("7")
    visitor.compose()
    visitor.wait("state.state == 'done'")
    visitor.page.get_by_label("Variation 2").click()
    shown = visitor.state["notes"]
    files = []
    for kind in ("MIDI", "WAV", "FLAC", "MP3", "All takes"):
        with visitor.page.expect_download() as download:
            visitor.page.get_by_role("button", name=kind, exact=True).click()
        files.append(tmp_path / download.value.suggested_filename)
        download.value.save_as(files[-1])
    midi, wav, flac, mp3, takes = files
    assert midi.name == "gymnopedie-no-1-take-2-seed-8.mid"
    piece = read_piece(midi)
    assert piece.n_notes == shown
    assert b'"seed": 8' in midi.read_bytes()
    for sound, suffix in ((wav, ".wav"), (flac, ".flac"), (mp3, ".mp3")):
        assert sound.name == f"gymnopedie-no-1-take-2-seed-8{suffix}"
        assert piece.seconds <= soundfile.info(sound).duration < piece.seconds + 2
    assert takes.name == "gymnopedie-no-1-2-takes.zip"
    with ZipFile(takes) as archive:
        assert archive.read(midi.name) == midi.read_bytes()
        assert len(archive.namelist()) == 4


def test_a_marked_part_is_composed_anew_and_the_best_way_is_heard(visit: Visit) -> None:
    visitor = visit().open()
    before = visitor.state["notes"]
    visitor.page.get_by_role("button", name="Redo a part").click()
    assert visitor.page.locator("#compose").is_hidden()
    assert visitor.state["selection"] == {"start": 0, "end": 4}
    surface = visitor.page.locator(".mg-surface")
    box = surface.bounding_box()
    assert box is not None
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


def test_the_times_of_the_roll_are_not_drawn_over(visit: Visit) -> None:
    visitor = visit().open()
    surface = visitor.page.locator(".mg-surface")
    box = surface.bounding_box()
    assert box is not None
    surface.click(position={"x": box["width"] / 2, "y": 60})
    assert visitor.page.evaluate(PLAYHEAD_ROWS) >= TIMES
    handles = visitor.page.locator(".mg-handle").all()
    line = "node => parseFloat(getComputedStyle(node, '::before').top)"
    assert [handle.evaluate(line) for handle in handles] == [TIMES, TIMES]


def test_two_visitors_at_once_get_their_own_music(visit: Visit, own_file: Path) -> None:
    one, two = visit().open(), visit().open()
    two.page.set_input_files(FIELD, own_file)
    two.wait("state.name == 'my own scale'")
    for visitor, seed in ((one, "100"), (two, "205")):
        visitor.wish(**{"Length in seconds": 300})
        visitor.seed(seed)
        visitor.compose()
    two.wait("state.state == 'composing' && state.newNotes[0] > 2")
    assert one.state["state"] == "composing"  # they are at it together
    for visitor in (one, two):
        visitor.page.click("#stop")
        visitor.wait("state.state == 'done'")
    assert (one.state["seed"], two.state["seed"]) == (100, 205)
    assert (one.state["name"], two.state["name"]) == ("Gymnopédie No. 1", "my own scale")
    assert two.state["seam"] == pytest.approx(12, abs=0.01)


def test_another_prompt_ends_the_composition_under_way(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    visitor.wait("state.state == 'composing' && state.newNotes[0] > 3")
    visitor.page.get_by_label("The Entertainer").check()
    visitor.wait("state.name == 'The Entertainer'")
    visitor.page.wait_for_selector("#compose:visible")
    assert visitor.state["state"] == "prompt"


def test_a_character_sets_the_sliders(visit: Visit) -> None:
    visitor = visit().open()
    visitor.page.get_by_role("button", name="Advanced").click()
    field = visitor.page.get_by_label("number input for Temperature", exact=False)
    assert field.input_value() == "1"
    visitor.page.get_by_label("Character").click()
    visitor.page.get_by_role("option", name="Adventurous").click()
    expect(field).to_have_value("1.05")


def test_a_seed_that_is_no_number_is_answered_with_a_sentence(visit: Visit) -> None:
    visitor = visit().open()
    visitor.seed("minus one")
    visitor.compose()
    visitor.page.locator(".mg-status", has_text="whole number").wait_for()
    assert visitor.page.locator("#compose").is_visible()


def test_the_page_is_dark_where_the_system_is_and_can_be_switched(visit: Visit) -> None:
    visitor = visit(color_scheme="dark").open()
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = visitor.page.evaluate(paper)
    visitor.wish(**{"Length in seconds": 5, "Variations": 4})
    visitor.compose()
    visitor.wait("state.state == 'done'")
    visitor.photograph("dark")
    visitor.page.get_by_label("Light or dark").click()
    assert visitor.page.evaluate(paper) != dark


PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
}


def box_of(locator: Locator) -> FloatRect:
    """Where something is on the page."""
    box = locator.bounding_box()
    assert box is not None
    return box


def test_a_phone_shows_everything_without_scrolling_sideways(visit: Visit) -> None:
    visitor = visit(**PHONE).open()
    width = "document.documentElement.scrollWidth"
    assert visitor.page.evaluate(width) == 390
    for button in visitor.page.locator(".mg-roll button:visible, #actions button:visible").all():
        box = button.bounding_box()
        assert box is not None
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


def test_a_page_that_is_loaded_again_starts_afresh(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    visitor.wait("state.state == 'composing' && state.newNotes[0] > 3")
    visitor.page.reload()
    state = visitor.wait("state.notes > 0")
    assert (state["state"], state["newNotes"]) == ("prompt", [])
    # Gradio's own script says that its stream was cut off
    visitor.complaints = [c for c in visitor.complaints if not re.search("Abort|errored out", c)]
