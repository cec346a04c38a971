"""Back to what was composed before, without a browser."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
from visiting import BAND, FIRST, PIANIST, SCALE, names_in, plain, steps, values_of, visitor

from music_gpt.ui import bounds
from music_gpt.ui import visit as visits
from music_gpt.ui.desk import NOTHING, Desk
from music_gpt.ui.roll_value import Take, length, notes_text
from music_gpt.ui.visit import CHANGED, FORGOTTEN, Visit, Wish

BACK, ON = FIRST | {"wants": "earlier"}, FIRST | {"wants": "later"}
"""What the browser sends from the two arrows."""
CONTINUE = FIRST | {"wants": "continue"}


def seeds(visit: Visit) -> list[int]:
    return [take.settings["seed"] for take in visit.shown.takes]


def composed(*numbers: int) -> Visit:
    """A visitor who has composed with these seeds, one after the other."""
    visit = visitor()
    for seed in numbers:
        steps(visit, Wish(5.0, seed=seed))
    return visit


def test_earlier_music_can_be_seen_again_and_nothing_is_lost_on_the_way() -> None:
    visit = composed(1, 2, 3)
    third = visit.shown.roll
    assert (third["earlier"], third["later"]) == (2, 0)
    assert visit.browse(-1)["takes"][0]["seed"] == seeds(visit)[0] == 2
    first = visit.browse(-1)
    assert (first["takes"][0]["seed"], first["earlier"], first["later"]) == (1, 0, 2)
    assert plain(first)
    assert visit.browse(-1) is first
    visit.browse(1)
    again = visit.browse(1)
    assert again == third
    assert visit.browse(1) is again


def test_what_is_composed_after_going_back_comes_last() -> None:
    visit = composed(1, 2)
    visit.browse(-1)
    steps(visit, Wish(5.0, seed=9))
    assert (visit.shown.roll["earlier"], visit.shown.roll["later"]) == (2, 0)
    assert [visit.browse(-1)["takes"][0]["seed"] for _ in range(2)] == [2, 1]


def test_candidates_of_a_redo_are_kept_when_music_is_composed() -> None:
    desk, visit = Desk(PIANIST), composed(1)
    marked = {"start": 9.0, "end": 11.0, "take": 0, "tab": 1, "candidates": 2}
    list(desk.redo(visit, marked, *values_of(seed="1")))
    redone = visit.shown.roll
    assert redone["earlier"] == 1
    steps(visit, Wish(5.0, seed=2))
    assert [take["label"] for take in visit.browse(-1)["takes"]] == ["Before", "1", "2"]
    assert len(visit.shown.takes) == 3
    assert visit.browse(-1)["takes"][0]["seed"] == 1


def test_the_prompt_comes_back_with_what_was_composed_from_it(tmp_path: Path) -> None:
    desk, visit, path = Desk(PIANIST), Visit(), tmp_path / "band.mid"
    path.write_bytes(BAND)
    desk.drop(visit, str(path))
    desk.take_tracks(visit, [0])
    prompt = visit.shown.prompt
    steps(visit, Wish(5.0, seed=1), 2.0)
    other = next(iter(desk.examples))
    desk.choose(visit, other)
    roll, example, tracks, *_ = desk.browse(visit, BACK)
    assert (visit.shown.prompt, visit.shown.name, roll["name"]) == (prompt, "band", "band")
    assert example["value"] is None
    assert (tracks["value"], tracks["visible"], len(tracks["choices"])) == ([0], True, 2)
    assert desk.take_tracks(visit, [1])["prompt"] == "0,2000,40,64;"
    # without music, it is not kept
    assert (visit.shown.roll["earlier"], visit.shown.roll["later"]) == (1, 0)
    desk.choose(visit, NOTHING)
    roll, example, tracks, *saves = desk.browse(visit, BACK)
    assert saves[-1]["interactive"] is True
    roll, example, tracks, *saves = desk.browse(visit, ON)
    assert (roll["state"], example["value"], tracks["visible"]) == ("empty", NOTHING, False)
    assert saves[-1]["interactive"] is False


def test_the_same_prompt_leaves_the_fields_beside_it_alone() -> None:
    desk, visit = Desk(PIANIST), composed(1, 2)
    _, example, tracks, *_ = desk.browse(visit, BACK)
    assert example == tracks == gr.skip()


def test_a_take_becomes_the_prompt_of_what_is_composed_next() -> None:
    desk, visit = Desk(PIANIST), Visit()
    desk.choose(visit, next(iter(desk.examples)))
    name = visit.shown.name
    list(
        desk.compose(visit, {"start": 0, "end": 10, "take": 0}, *values_of(seed="1", variations=2))
    )
    take, source = visit.shown.takes[1], visit.shown.source
    roll, example, tracks, *buttons = desk.browse(visit, CONTINUE | {"take": 1})
    assert plain(roll)
    assert (roll["state"], roll["detail"]) == ("prompt", "Take 2, seed 2")
    assert roll["name"] == f"{name}, continued"
    assert roll["prompt"] == notes_text(take.notes)
    assert (roll["start"], roll["end"]) == (0, roll["promptSeconds"])
    assert (example["value"], tracks["visible"]) == (None, False)
    assert buttons[-1]["interactive"] is False
    list(desk.compose(visit, {"start": 0, "end": roll["end"], "take": 0}, *values_of(seed="3")))
    assert visit.shown.takes[0].first == pytest.approx(length(take.notes), abs=0.02)
    before = take.notes[take.notes["start"] < 10]
    assert np.array_equal(visit.shown.takes[0].notes["pitch"][: len(before)], before["pitch"])
    desk.browse(visit, BACK)
    assert (seeds(visit), visit.shown.source) == ([1, 2], source)


def test_a_piece_grows_from_take_to_take_and_its_files_have_names_of_their_own() -> None:
    desk, visit, files, music = Desk(PIANIST), Visit(), [], []
    desk.choose(visit, NOTHING)
    for _ in range(12):
        end = visit.shown.roll["end"]
        list(desk.compose(visit, {"start": 0, "end": end, "take": 0}, *values_of(seed="7")))
        music.append(visit.shown.takes[0].notes)
        files.append(Path(str(desk.save(".mid", visit, FIRST))).name)
        desk.browse(visit, CONTINUE)
    assert len(set(files)) == 12
    assert files[::11] == [
        "from-nothing-take-1-seed-7.mid",
        "from-nothing-continued-11-take-1-seed-7.mid",
    ]
    for before, after in pairwise(music):
        assert after[: len(before)]["pitch"].tolist() == before["pitch"].tolist()
        assert length(after) > length(before) + 20


def test_from_a_take_without_notes_music_is_begun() -> None:
    visit = visitor()
    visit.change(takes=(Take("take-1", SCALE[:0], {}, 0.0),))
    assert visit.show_take(0)["state"] == "empty"
    assert steps(visit, Wish(5.0, seed=1), 0.0)[-1]["state"] == "done"


def test_a_redone_piece_and_what_stood_before_can_be_continued() -> None:
    desk, visit = Desk(PIANIST), composed(1)
    marked = {"start": 9.0, "end": 11.0, "take": 0, "tab": 1, "candidates": 2}
    list(desk.redo(visit, marked, *values_of(seed="1")))
    details = []
    for number in (0, 2):
        details.append(desk.browse(visit, CONTINUE | {"take": number})[0]["detail"])
        visit.browse(-1)
    assert details[0] == "Before the redo, seed 1"
    assert details[1].startswith("Redo 2, seed ")
    assert Take("before", SCALE, {}, 0).title == "Before the redo"


def test_a_take_that_cannot_be_continued_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, visit = Desk(PIANIST), composed(1)
    shown = visit.shown.roll["version"]
    told = [desk.browse(visit, CONTINUE | {"take": 1})[0]["status"]]
    told.append(desk.browse(visit, CONTINUE | {"version": shown + 1})[0]["status"])
    monkeypatch.setattr(bounds, "MAX_NOTES", 20)
    told.append(desk.browse(visit, CONTINUE)[0]["status"])
    assert told[0] == "There is no such take yet; press Compose first."
    assert told[1] == CHANGED
    assert re.fullmatch(
        r"This take has \d+ notes, and the page continues .* up to 20; save .*", told[2]
    )
    assert visit.shown.roll["version"] == shown


def test_no_more_is_kept_than_there_is_room_for() -> None:
    visit = composed(*range(bounds.MAX_EARLIER + 3))
    assert visit.shown.roll["earlier"] == bounds.MAX_EARLIER
    for _ in range(bounds.MAX_EARLIER):
        visit.browse(-1)
    assert seeds(visit) == [2]


def test_music_that_is_gone_on_from_is_kept_however_old_it_is() -> None:
    visit = composed(*range(bounds.MAX_EARLIER + 1))
    for _ in range(bounds.MAX_EARLIER):
        visit.browse(-1)
    steps(visit, Wish(5.0, seed=99))
    kept = [visit.browse(-1)["takes"][0]["seed"] for _ in range(bounds.MAX_EARLIER)]
    assert kept[::-1] == [0, *range(2, bounds.MAX_EARLIER + 1)]


def test_of_long_music_less_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    visit = composed(1)
    monkeypatch.setattr(bounds, "MAX_EARLIER_NOTES", 2 * len(visit.shown.takes[0].notes))
    for seed in (2, 3, 4):
        steps(visit, Wish(5.0, seed=seed))
    assert visit.shown.roll["earlier"] == 2
    assert [visit.browse(-1)["takes"][0]["seed"] for _ in range(2)] == [3, 2]


def test_going_back_ends_the_composition_under_way() -> None:
    visit = composed(1)
    composing = Desk(PIANIST).compose(visit, FIRST, *values_of(seconds=60.0))
    next(composing)
    shown = visit.browse(-1)
    assert (seeds(visit), shown["earlier"], shown["later"]) == ([1], 0, 0)
    *_, (last, *_) = composing
    assert last is shown
    assert seeds(visit) == [1]


def test_a_page_that_sends_nonsense_is_told() -> None:
    visit = composed(1, 2)
    payload: Any = FIRST | {"wants": "x"}
    roll = Desk(PIANIST).browse(visit, payload)[0]
    assert roll["version"] == visit.shown.roll["version"]
    assert roll["status"] == "The part to continue did not arrive; load the page again."


def test_music_that_gave_way_to_another_prompt_is_kept_as_far_as_it_came() -> None:
    visit = visitor()
    composing = visits.compose(visit, PIANIST, Wish(60.0, seed=4), 0.0, 8.0, every_seconds=0.0)
    for _ in range(20):
        last = next(composing)
    visit.show_prompt(None, "From nothing")
    *_, shown = composing
    assert (shown["name"], shown["earlier"], visit.shown.takes) == ("From nothing", 1, ())
    back = visit.browse(-1)
    assert (back["name"], back["state"], seeds(visit)) == ("Scale", "done", [4])
    assert back["takes"][0]["notes"].startswith(last["takes"][0]["notes"])


def test_the_handles_are_where_they_were_when_the_music_was_composed() -> None:
    visit = visitor()
    list(visits.compose(visit, PIANIST, Wish(5.0), 1.5, 6.0))
    steps(visit, Wish(5.0))
    back = visit.browse(-1)
    assert (back["start"], back["end"]) == (1.5, 6.0)


def test_what_is_saved_is_what_was_shown_when_the_button_was_pressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, visit = Desk(PIANIST), composed(1)
    pressed = FIRST | {"version": visit.shown.roll["version"]}
    visit.show_prompt(visit.shown.prompt, "Other")
    steps(visit, Wish(5.0, seed=2))
    saved = desk.save(".mid", visit, pressed)
    assert saved is not None
    assert Path(saved).name == "scale-take-1-seed-1.mid"

    def browsing(notes: Any, path: Path, **_: Any) -> None:
        visit.browse(1)
        path.touch()

    visit.browse(-1)
    monkeypatch.setattr("music_gpt.audio.write_audio", browsing)
    names = names_in(desk.save(".zip", visit, pressed))
    assert names == [f"scale-take-1-seed-1{end}" for end in (".mid", ".png", ".flac")]
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    assert desk.save(".mid", visit, FIRST | {"version": -1}) is None
    assert told == ["The music that was shown is no longer kept; choose other music."]


def test_a_page_from_before_a_new_start_is_told_to_load_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    desk = Desk(PIANIST)
    visit = desk.arrive()  # Gradio makes it for a page that it does not know
    pressed = FIRST | {"version": 1, "wants": "continue"}
    [(shown, *_)] = desk.compose(visit, pressed, *values_of())
    assert desk.save(".mid", visit, pressed) is None
    assert told == [shown["status"], desk.browse(visit, pressed)[0]["status"]] == [FORGOTTEN] * 2


@pytest.mark.parametrize("verb", ["compose", "redo"])
def test_what_waited_in_line_is_not_composed_from_other_music(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gr, "Warning", str)
    desk, visit = Desk(PIANIST), composed(1)
    pressed = FIRST | {"version": visit.shown.roll["version"], "start": 2.0, "end": 6.0}
    steps(visit, Wish(5.0, seed=2))
    [(shown, *_)] = getattr(desk, verb)(visit, pressed, *values_of(seconds=5.0))
    assert shown["status"] == CHANGED
    assert seeds(visit) == [2]
    pressed |= {"version": visit.shown.roll["version"]}
    *_, (shown, *_) = getattr(desk, verb)(visit, pressed, *values_of(seconds=5.0))
    assert (shown["state"], shown["earlier"]) == ("done", 2)


def test_the_same_fault_is_told_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gr, "Warning", str)
    desk, visit = Desk(PIANIST), visitor()
    [(one, *_)], [(two, *_)] = (desk.compose(visit, FIRST, *values_of(seed="x")) for _ in "ab")
    assert one["status"] == two["status"]
    assert one != two  # or the browser would still show that it waits
    assert desk.recover(visit)[0] != desk.recover(visit)[0]
