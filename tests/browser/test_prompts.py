"""What is to be continued, in a real browser: each test is something that a visitor does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from midi_bytes import events_of, file, meta, program
from visitor import FIELD, Visitor, box_of

from music_gpt.midi.piece import make_notes, write_midi

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]


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
    box = box_of(surface)
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


def test_a_wrong_file_disturbs_no_composition(visit: Visit, tmp_path: Path) -> None:
    visitor = visit().open()
    wrong = tmp_path / "letter.mid"
    wrong.write_bytes(b"Dear pianist, this is no music.")
    visitor.wish(**{"Length in seconds": 300})
    visitor.compose()
    visitor.wait("state.state == 'composing' && state.playing")
    visitor.page.set_input_files(FIELD, wrong)
    visitor.page.locator(".toast-body", has_text="not a MIDI file").wait_for()
    before = visitor.state
    after = visitor.wait(f"state.newNotes[0] > {before['newNotes'][0]}")
    assert (after["version"], after["playing"]) == (before["version"], True)
    visitor.page.click("#stop")
    visitor.wait("state.state == 'done'")


def test_the_handles_choose_the_part_that_is_continued(visit: Visit, own_file: Path) -> None:
    visitor = visit().open()
    visitor.page.set_input_files(FIELD, own_file)
    visitor.wait("state.name == 'my own scale'")
    handle = visitor.page.get_by_label("End of the part to continue")
    box = box_of(handle)
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
