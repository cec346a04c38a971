"""A part composed anew, without a browser."""

from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from visiting import FIRST, PIANIST, SCALE, count, names_in, plain, steps, values_of, visitor

from music_gpt.composing.redoing import Redoing, Redone
from music_gpt.ui import visit as visits
from music_gpt.ui.desk import Desk
from music_gpt.ui.roll_value import RollValue
from music_gpt.ui.visit import Visit, Wish

MARKED = {"start": 2.0, "end": 4.0, "take": 0, "tab": 0, "candidates": 3}
"""What the browser sends when a part of the prompt is marked."""


def redone(visit: Visit, payload: dict[str, Any], **values: Any) -> list[RollValue]:
    """What the roll shows while a part is composed anew."""
    return [value for value, *_ in Desk(PIANIST).redo(visit, payload, *values_of(**values))]


def test_a_part_of_the_prompt_is_composed_anew_in_several_ways() -> None:
    visit = visitor()
    last = redone(visit, MARKED, seed="10")[-1]
    assert [take["label"] for take in last["takes"]] == ["Before", "1", "2", "3"]
    assert (last["state"], last["seam"], last["until"], last["tab"]) == ("done", 2.0, 4.0, 2)
    assert plain(last)
    before, *ways = visit.shown.takes
    assert before.notes.tobytes() == SCALE.tobytes()
    outside = [note for note in SCALE.tolist() if not 2.0 <= note[0] < 4.0]
    for take, shown in zip(ways, last["takes"][1:], strict=True):
        rest = [note for note in take.notes.tolist() if not 2.0 <= note[0] < 4.0]
        assert rest == outside
        assert count(shown["kept"]) == len(outside)
        assert count(shown["notes"]) == take.is_new.sum() > 0
    # the last candidate fits best
    assert [take.settings.get("seed") for take in visit.shown.takes] == [None, 12, 11, 10]


def test_a_part_of_a_take_is_composed_anew_and_both_can_be_taken_away() -> None:
    desk, visit = Desk(PIANIST), visitor()
    steps(visit, Wish(5.0, 2, seed=7))
    second = visit.shown.takes[1]
    part = {"start": 9.0, "end": 11.0, "take": 1, "tab": 2, "candidates": 2}
    redone(visit, part, seed="1")
    assert visit.shown.takes[0].notes is second.notes
    names = [Path(desk.save(".mid", visit, FIRST | {"take": i}) or "").name for i in range(3)]
    assert names == [
        "scale-before-seed-8.mid",
        "scale-redo-1-seed-2.mid",
        "scale-redo-2-seed-1.mid",
    ]
    assert len(names_in(desk.save(".zip", visit, FIRST))) == 9


def test_stop_says_what_stays() -> None:
    desk, visit = Desk(PIANIST), visitor()
    _, _, _, stop, *_ = next(desk.compose(visit, FIRST, *values_of(duration=5)))
    assert (stop["value"], stop["visible"]) == ("Stop, keep the music", True)
    _, _, _, stop, *_ = next(desk.redo(visit, MARKED, *values_of()))
    assert (stop["value"], stop["visible"]) == ("Stop, keep the part as it was", True)


def test_a_redo_that_is_stopped_leaves_all_as_it_was() -> None:
    visit = visitor()
    steps(visit, Wish(5.0, seed=7))
    takes, roll = visit.shown.takes, visit.shown.roll
    watched = visits.redo(visit, PIANIST, Wish(variations=2), 0, (1.0, 9.0), every_seconds=0)
    assert next(watched)["state"] == "redoing"
    visit.stop_asked = True
    assert list(watched)[-1] == roll | {"status": visits.UNTOUCHED}
    assert visit.shown.takes is takes


def test_a_redo_can_be_stopped_before_its_candidates_are_compared() -> None:
    visit = visitor()
    steps(visit, Wish(5.0, seed=7))
    takes, roll, composed = visit.shown.takes, visit.shown.roll, False
    for value in visits.redo(visit, PIANIST, Wish(variations=2), 0, (1.0, 9.0)):
        composed = composed or value["status"].startswith("Composed; finding out")
        visit.stop_asked = composed
    assert composed
    assert value == roll | {"status": visits.UNTOUCHED}
    assert visit.shown.takes is takes


@pytest.mark.parametrize("meanwhile", ["stopped", "another prompt"])
def test_what_happens_while_candidates_are_compared_counts(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    visit, honest = visitor(), Redoing.redone
    steps(visit, Wish(5.0, seed=7))

    def redone(self: Redoing) -> Redone:
        if meanwhile == "stopped":
            visit.stop_asked = True
        else:
            visit.show_prompt(None, "Other")
        return honest(self)

    monkeypatch.setattr(Redoing, "redone", redone)
    takes = visit.shown.takes if meanwhile == "stopped" else ()
    *_, last = visits.redo(visit, PIANIST, Wish(variations=2), 0, (1.0, 9.0))
    assert last is visit.shown.roll
    assert last["state"] == ("done" if meanwhile == "stopped" else "empty")
    assert visit.shown.takes == takes


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"candidates": 9}, "ways is 9, but it has to be a whole number from 1 to 8"),
        ({"candidates": 2.5}, "ways is 2.5"),
        ({"start": 9.0, "end": 99.0}, "is not in the piece"),
        ({"start": 2.0, "end": 99.0}, "is not in the piece, which lasts 8.00"),
        ({"start": 4.0, "end": 2.0}, "The part begins at 4 seconds and ends at 2; let it begin"),
        ({"start": 4.0, "end": 4.0}, "The part begins at 4 seconds and ends at 4; let it begin"),
        ({"start": 3.0, "end": 3.01}, "The part lasts 0.01 seconds"),
    ],
)
def test_a_part_that_cannot_be_redone_is_answered_with_a_sentence(
    change: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    visit = visitor()
    *_, last = redone(visit, MARKED | change)
    assert sentence in last["status"]
    assert told == [last["status"]]
    assert visit.shown.takes == ()


def test_the_likeliest_of_several_takes_is_told() -> None:
    last = steps(visitor(), Wish(5.0, 3, seed=3))[-1]
    ranks = [take["rank"] for take in last["takes"]]
    assert ranks == ["3rd likeliest", "2nd likeliest", "likeliest"]
