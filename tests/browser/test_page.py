"""A person at the page, in a real browser: each test is something that a visitor does."""

import re
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import soundfile
from playwright.sync_api import expect
from visitor import FIELD, Visitor, box_of

from music_gpt.audio import SAMPLE_RATE, render
from music_gpt.config.sampling import SAMPLING_PRESETS
from music_gpt.midi.piece import make_notes, read_piece
from music_gpt.ui.pianoroll import bank_address, file_text

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]

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
    box = box_of(surface)
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
    for kind in ("MIDI", "WAV", "FLAC", "MP3", "Picture", "All takes"):
        with visitor.page.expect_download() as download:
            visitor.page.get_by_role("button", name=kind, exact=True).click()
        files.append(tmp_path / download.value.suggested_filename)
        download.value.save_as(files[-1])
    midi, wav, flac, mp3, picture, takes = files
    assert midi.name == "gymnopedie-no-1-take-2-seed-8.mid"
    piece = read_piece(midi)
    assert piece.n_notes == shown
    assert b'"seed": 8' in midi.read_bytes()
    for sound, suffix in ((wav, ".wav"), (flac, ".flac"), (mp3, ".mp3")):
        assert sound.name == f"gymnopedie-no-1-take-2-seed-8{suffix}"
        assert piece.seconds <= soundfile.info(sound).duration < piece.seconds + 2
    assert picture.name == "gymnopedie-no-1-take-2-seed-8.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert takes.name == "gymnopedie-no-1-2-takes.zip"
    with ZipFile(takes) as archive:
        for file in (midi, picture):
            assert archive.read(file.name) == file.read_bytes()
        assert len(archive.namelist()) == 6


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
    assert field.input_value() == f"{SAMPLING_PRESETS['balanced'].temperature:g}"
    visitor.page.get_by_label("Character").click()
    visitor.page.get_by_role("option", name="Adventurous").click()
    expect(field).to_have_value(f"{SAMPLING_PRESETS['adventurous'].temperature:g}")


def test_a_seed_that_is_no_number_is_answered_with_a_sentence(visit: Visit) -> None:
    visitor = visit().open()
    visitor.seed("minus one")
    visitor.compose()
    visitor.page.locator(".mg-status", has_text="whole number").wait_for()
    assert visitor.page.locator("#compose").is_visible()
