"""A prompt that one plays, in a real browser: letters, fingers and a MIDI keyboard."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect
from seated import key, sit_down, told, use
from visitor import Visitor, box_of

from music_gpt.midi.piece import read_piece
from music_gpt.ui.pianoroll import file_text

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]

RECORD = """([script, moves, end]) => {
  const recording = new Function(script + "; return new Recording();")();
  for (const [what, ...told] of moves) recording[what](...told);
  const shown = [...recording.closed, ...recording.open(end)];
  const rows = shown.map((note) => [note.start, note.end, note.pitch, note.velocity]);
  return [Array.from(recording.midi(end)), rows];
}"""
"""What becomes of moves of the keys: the bytes of a file, and the notes as they are shown."""

STAGE_PIANO = """
window.stagePiano = { id: "1", name: "Stage Piano", onmidimessage: null };
const access = { inputs: new Map([["1", window.stagePiano]]), onstatechange: null };
Object.defineProperty(navigator, "requestMIDIAccess", { value: async () => access });
"""
SEND = "(data) => window.stagePiano.onmidimessage({ data, timeStamp: performance.now() })"


def test_letters_are_heard_and_seen_and_become_the_prompt(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    expect(told(visitor)).to_contain_text("Play with these letters")
    assert not visitor.page.locator("#compose").is_visible()
    place = box_of(key(visitor, 60))
    visitor.page.keyboard.down("a")
    visitor.wait("state.loudness > 1e-3 && state.notes == 1 && state.position > 0.3")
    assert box_of(key(visitor, 60)) == place  # nothing moves under the fingers
    expect(key(visitor, 60)).to_have_class("mg-key mg-down")
    visitor.photograph("playing")
    visitor.page.keyboard.up("a")
    expect(key(visitor, 60)).to_have_class("mg-key")
    for letter in "dg":
        visitor.page.keyboard.press(letter, delay=120)
    expect(told(visitor)).to_contain_text("3 notes")
    state = use(visitor)
    assert (state["played"], state["notes"]) == (None, 3)
    assert state["selection"] == {"start": 0, "end": state["end"]}
    assert 0.5 < state["end"] < 5
    visitor.page.click("#compose")
    visitor.wait("state.state == 'done' && state.newNotes[0] > 3")


def test_a_midi_keyboard_is_named_and_heard_with_its_pedal(visit: Visit) -> None:
    visitor = visit()
    visitor.page.add_init_script(STAGE_PIANO)
    sit_down(visitor.open())
    expect(visitor.page.locator(".mg-played-source")).to_have_text("Stage Piano")

    began = visitor.page.evaluate("performance.now()") - 4600

    def send(at: float, *data: int) -> None:
        message = "([timeStamp, ...data]) => window.stagePiano.onmidimessage({ data, timeStamp })"
        visitor.page.evaluate(message, [began + at, *data])

    send(1000, 0xB0, 64, 127)
    send(1500, 0x90, 60, 100)
    send(1700, 0x90, 60, 0)
    send(2000, 0x91, 67, 90)
    send(2100, 0x81, 67, 0)
    expect(told(visitor)).to_contain_text("0:00 · 2 notes · pedal")
    assert visitor.wait("state.loudness > 1e-3")["notes"] == 2
    send(4500, 0xB0, 64, 0)
    expect(told(visitor)).to_have_text("Recording · 0:03 · 2 notes")
    visitor.wait("state.loudness < 1e-4")
    state = use(visitor)
    assert state["notes"] == 2
    assert state["end"] == pytest.approx(3.0, abs=0.02)
    assert visitor.page.evaluate("window.stagePiano.onmidimessage") is None


def test_the_file_is_what_was_played_and_shown(visit: Visit) -> None:
    visitor = visit().open()
    moves: list[list[Any]] = [
        ["press", True, 100.0],  # the pedal, before the first key
        ["down", 60, 100, 250.4],
        ["up", 60, 400.0],
        ["down", 60, 90, 700.0],  # struck again while the pedal holds it
        ["up", 60, 800.0],
        ["press", False, 1250.0],
        ["down", 64, 1, 1300.0],
        ["down", 67, 127, 1290.0],  # a device that tells of it late
        ["up", 64, 1500.0],
        ["up", 64, 1600.0],  # it is up already
        ["down", 72, 64, 25_000.0],
        ["down", 72, 70, 25_300.0],  # by a finger and a letter
    ]
    data, shown = visitor.page.evaluate(RECORD, [file_text("recording.js"), moves, 26_250.4])
    piece = read_piece(bytes(data))
    assert piece.warnings == []
    expected = [
        (0.0, 0.45, 60, 100),
        (0.45, 1.0, 60, 90),
        (1.05, 1.25, 64, 1),
        (1.05, 26.0, 67, 127),
        (24.75, 25.05, 72, 64),
        (25.05, 26.0, 72, 70),
    ]
    for notes in (piece.sounding_notes.tolist(), sorted(map(tuple, shown))):
        np.testing.assert_allclose(notes, expected, atol=0.0011)


def test_fingers_play_the_keys_and_are_drawn_across_them(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    boxes = [box_of(key(visitor, pitch)) for pitch in (60, 62, 64)]
    places = [(box["x"] + box["width"] / 2, box["y"] + 0.9 * box["height"]) for box in boxes]
    mouse = visitor.page.mouse
    mouse.move(*places[0])
    mouse.down()
    mouse.move(*places[1], steps=4)
    mouse.move(*places[2], steps=4)
    expect(key(visitor, 64)).to_have_class("mg-key mg-down")
    mouse.up()
    expect(visitor.page.locator(".mg-down")).to_have_count(0)
    assert visitor.state["played"] == 3
    assert visitor.page.evaluate("document.activeElement.className") == "mg-played-keys"


def test_on_a_phone_the_keys_fit_and_are_touched(visit: Visit) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    visitor = sit_down(visit(**phone).open())
    expect(told(visitor)).to_have_text("Play on these keys, or on a MIDI keyboard.")
    keys = box_of(visitor.page.locator(".mg-played-keys"))
    last = box_of(visitor.page.locator(".mg-key:not(.mg-black)").last)
    assert last["x"] + last["width"] <= keys["x"] + keys["width"] + 1
    assert last["width"] >= 34
    key(visitor, 62).tap()
    visitor.wait("state.played == 1")
    visitor.photograph("playing-phone")


def test_one_may_start_over_or_leave_it(visit: Visit) -> None:
    visitor = visit().open()
    before = visitor.state
    sit_down(visitor)
    visitor.page.keyboard.press("a", delay=50)
    visitor.page.get_by_role("button", name="Start over").click()
    visitor.wait("state.played === 0 && state.notes == 0")
    assert visitor.page.get_by_role("button", name="Use as prompt").is_disabled()
    visitor.page.keyboard.press("a", delay=50)  # also while a button has the focus
    visitor.wait("state.played == 1")
    visitor.page.get_by_role("button", name="Cancel").click()
    expect(visitor.page.locator(".mg-status")).to_contain_text("What you played is kept")
    after = visitor.wait("state.played === null")
    assert after == before | {name: after[name] for name in ("clock", "loudness")}
    visitor.page.keyboard.press("a", delay=50)
    assert visitor.state["played"] is None
    visitor.page.wait_for_selector("#compose:visible")


def test_what_was_played_before_a_new_start_can_be_brought_back(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    visitor.page.keyboard.press("a", delay=50)
    visitor.page.keyboard.press("d", delay=50)
    visitor.wait("state.played == 2")
    again = visitor.page.locator(".mg-played-again")
    again.click()
    visitor.wait("state.played === 0")
    expect(again).to_have_text("Bring back")
    again.click()
    visitor.wait("state.played == 2 && state.notes == 2")
    expect(again).to_have_text("Start over")
    visitor.page.keyboard.press("g", delay=50)  # and one goes on
    visitor.wait("state.played == 3")
    again.click()
    visitor.page.keyboard.press("a", delay=50)  # something new: what was before is gone
    expect(again).to_have_text("Start over")
    assert visitor.state["played"] == 1


def test_keys_beyond_those_of_a_piano_are_left_out_and_it_is_said(visit: Visit) -> None:
    visitor = visit()
    visitor.page.add_init_script(STAGE_PIANO)
    sit_down(visitor.open())
    for pitch in (20, 109, 20):
        visitor.page.evaluate(SEND, [0x90, pitch, 100])
        visitor.page.evaluate(SEND, [0x80, pitch, 0])
    expect(visitor.page.locator(".mg-played-source")).to_have_text(
        "Stage Piano · keys beyond the 88 of a piano are left out"
    )
    assert visitor.state["played"] == 0
    visitor.page.evaluate(SEND, [0x90, 108, 100])
    visitor.wait("state.played == 1")


def test_octaves_can_be_changed_and_a_letter_that_is_down_comes_up(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    visitor.page.keyboard.down("a")
    expect(key(visitor, 60)).to_have_class("mg-key mg-down")
    visitor.page.keyboard.press("x")
    expect(visitor.page.locator(".mg-down")).to_have_count(0)
    visitor.page.keyboard.up("a")
    visitor.page.keyboard.down("a")
    expect(key(visitor, 72)).to_have_class("mg-key mg-down")
    visitor.page.evaluate("window.dispatchEvent(new Event('blur'))")
    expect(visitor.page.locator(".mg-down")).to_have_count(0)
    visitor.page.get_by_role("button", name="An octave lower").click()
    expect(key(visitor, 60).locator("span")).to_have_text("A")


def test_who_types_plays_nothing_and_space_is_the_pedal(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    visitor.page.keyboard.down("a")
    visitor.page.keyboard.down(" ")
    expect(told(visitor)).to_contain_text("pedal")
    visitor.page.keyboard.up("a")
    visitor.page.wait_for_timeout(300)
    assert visitor.wait("state.notes == 1 && state.loudness > 1e-3")["playing"] is False
    visitor.page.keyboard.up(" ")
    visitor.wait("state.loudness < 1e-3")
    visitor.seed("123")
    visitor.page.keyboard.press("d")
    assert visitor.state["played"] == 1


@pytest.mark.parametrize(
    ("access", "said"),
    [
        ("undefined", "This browser does not reach MIDI keyboards"),
        ("async () => { throw new DOMException('', 'NotAllowedError'); }", "are not allowed in"),
        ("async () => { throw new DOMException('', 'InvalidStateError'); }", "offers no MIDI"),
        ("async () => ({ inputs: new Map() })", "No MIDI keyboard is connected"),
    ],
)
def test_where_there_is_no_midi_keyboard_it_is_said(visit: Visit, access: str, said: str) -> None:
    visitor = visit()
    script = f"Object.defineProperty(navigator, 'requestMIDIAccess', {{ value: {access} }})"
    visitor.page.add_init_script(script)
    sit_down(visitor.open())
    expect(visitor.page.locator(".mg-played-source")).to_contain_text(said)


def test_nobody_plays_while_music_is_composed(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    visitor.wait("state.state == 'composing'")
    visitor.page.get_by_role("button", name="Play it yourself").click()
    expect(visitor.page.locator(".mg-spoken")).to_contain_text("stop it before you play")
    assert visitor.state["played"] is None
    visitor.page.click("#stop")
    visitor.wait("state.state == 'done'")
    sit_down(visitor)


def test_a_new_start_clears_the_sheet_and_keeps_the_foot_on_the_pedal(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    blank = "(() => { const c = document.querySelector('.mg-notes'); return c.toDataURL(); })()"
    empty = visitor.page.evaluate(blank)
    visitor.page.keyboard.down(" ")
    visitor.page.keyboard.press("g", delay=60)
    visitor.wait("state.notes == 1")
    visitor.page.wait_for_function(f"(empty) => {blank} !== empty", arg=empty)
    visitor.page.get_by_role("button", name="Start over").click()
    visitor.page.wait_for_function(f"(empty) => {blank} === empty", arg=empty)
    assert visitor.page.evaluate("document.activeElement.className") == "mg-played-keys"
    visitor.page.keyboard.press("d", delay=60)
    expect(told(visitor)).to_contain_text("1 note · pedal")
    visitor.page.wait_for_timeout(150)
    assert visitor.page.locator(".mg-down").count() == 0
    assert visitor.state["end"] > 0.2  # the string sounds on
    visitor.page.keyboard.up(" ")
    expect(told(visitor)).not_to_contain_text("pedal")


def test_a_key_that_is_held_from_two_sides_is_one(visit: Visit) -> None:
    visitor = visit()
    visitor.page.add_init_script(STAGE_PIANO)
    sit_down(visitor.open())
    visitor.page.keyboard.down("a")
    visitor.page.evaluate(SEND, [0x90, 60, 100])
    visitor.page.keyboard.up("a")
    expect(key(visitor, 60)).to_have_class("mg-key mg-down")
    assert visitor.state["played"] == 1
    visitor.page.evaluate(SEND, [0x80, 60, 0])
    expect(key(visitor, 60)).to_have_class("mg-key")


def test_a_keyboard_that_is_unplugged_holds_no_key(visit: Visit) -> None:
    visitor = visit()
    visitor.page.add_init_script(STAGE_PIANO + "window.access = access;")
    sit_down(visitor.open())
    visitor.page.evaluate(SEND, [0xB0, 64, 127])
    visitor.page.evaluate(SEND, [0x90, 60, 100])
    visitor.page.evaluate("window.access.inputs.clear(); window.access.onstatechange()")
    expect(visitor.page.locator(".mg-played-source")).to_have_text("No MIDI keyboard is connected")
    expect(visitor.page.locator(".mg-down")).to_have_count(0)
    expect(told(visitor)).not_to_contain_text("pedal")


def test_the_button_that_was_clicked_last_leaves_space_to_the_pedal(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    visitor.page.get_by_role("button", name="An octave higher").click()
    visitor.page.keyboard.press("a", delay=30)
    visitor.page.keyboard.down(" ")
    expect(told(visitor)).to_contain_text("1 note · pedal")
    visitor.page.keyboard.up(" ")
    expect(key(visitor, 72).locator("span")).to_have_text("A")


def test_a_midi_keyboard_is_asked_for_once(visit: Visit) -> None:
    visitor = visit()
    asked = """
    window.asked = [];
    Object.defineProperty(navigator, "requestMIDIAccess", { value: async () => {
      const input = { id: "1", name: "Stage Piano", onmidimessage: null, close() {} };
      const access = { inputs: new Map([["1", input]]), onstatechange: null };
      window.asked.push(access);
      return access;
    } });"""
    visitor.page.add_init_script(asked)
    sit_down(visitor.open())
    visitor.page.get_by_role("button", name="Cancel").click()
    assert visitor.page.evaluate("window.asked[0].onstatechange") is None
    sit_down(visitor)
    expect(visitor.page.locator(".mg-played-source")).to_have_text("Stage Piano")
    assert visitor.page.evaluate("window.asked.length") == 1
    visitor.page.evaluate("window.asked[0].onstatechange()")
    send = "(message) => window.asked[0].inputs.get('1').onmidimessage(message)"
    for at in (None, 0, 1e9):  # clocks that are not the page's
        visitor.page.evaluate(send, {"data": [0x90, 60, 100], "timeStamp": at})
        visitor.page.evaluate(send, {"data": [0x80, 60, 0], "timeStamp": at})
    assert visitor.wait("state.played == 3")["end"] < 5


def test_strings_of_before_a_new_start_end_with_the_pedal(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    visitor.page.keyboard.down(" ")
    visitor.page.keyboard.press("a", delay=50)
    visitor.wait("state.loudness > 1e-3")
    visitor.page.get_by_role("button", name="Start over").click()
    visitor.page.keyboard.up(" ")
    visitor.wait("state.loudness < 1e-4")


@pytest.mark.parametrize(("width", "height"), [(844, 390), (390, 664), (320, 568), (1280, 600)])
def test_keys_and_buttons_are_seen_at_once_on_every_screen(
    visit: Visit, width: int, height: int
) -> None:
    touch = {"has_touch": True, "is_mobile": True} if width < 900 else {}
    visitor = sit_down(visit(viewport={"width": width, "height": height}, **touch).open())
    visitor.page.wait_for_timeout(300)
    keys = box_of(visitor.page.locator(".mg-played-keys"))
    button = box_of(visitor.page.get_by_role("button", name="Use as prompt"))
    assert keys["y"] >= 0
    assert button["y"] + button["height"] <= height
    assert button["x"] + button["width"] <= width


@pytest.mark.parametrize("width", [901, 1000, 1100])
def test_on_a_small_window_one_reads_how_to_play(visit: Visit, width: int) -> None:
    visitor = visit(viewport={"width": width, "height": 800})
    visitor.page.add_init_script(
        "Object.defineProperty(navigator, 'requestMIDIAccess', { value: undefined })"
    )
    sit_down(visitor.open())
    expect(visitor.page.locator(".mg-played-source")).to_contain_text("does not reach")
    assert box_of(told(visitor))["width"] >= 200
    card = box_of(visitor.page.locator("#roll-card"))
    higher = box_of(visitor.page.get_by_role("button", name="An octave higher"))
    assert higher["x"] + higher["width"] <= card["x"] + card["width"]
