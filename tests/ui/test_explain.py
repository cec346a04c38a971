"""A note that is pressed and what the page tells of it, without a browser."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from visiting import PIANIST, plain, steps, values_of, visitor

from music_gpt.midi.piece import piece_from_notes
from music_gpt.notes import NOTE_DTYPE
from music_gpt.ui.desk import Desk
from music_gpt.ui.visit import Visit, Wish

DESK = Desk(PIANIST)


def look(visit: Visit, **asked: Any) -> dict[str, Any]:
    """What the page is told; -1 is the prompt."""
    version = visit.shown.roll["version"]
    return DESK.look(visit, {"take": -1, "version": version, **asked})


def test_a_note_of_the_prompt_tells_what_was_expected_and_looked_at() -> None:
    found = look(visitor(), seconds=2.0, pitch=64)
    assert plain(found)
    assert (found["said"], found["seconds"]) == ("E4", 2.0)
    assert found["chosen"] == "n,2000,2500,64,E4"
    came = [row for row in found["expected"] if row["came"]]
    assert [row["name"] for row in came] == ["E4"]
    assert came[0]["before"] == found["chance"]
    assert 8 <= len(found["expected"]) <= 9
    shares = [row["before"] for row in found["expected"]]
    assert shares == sorted(shares, reverse=True)
    assert [len(found["heads"]), len(found["depths"])] == [2, 5]
    assert found["depths"][-1]["chance"] == found["chance"]
    events = found["events"].split(";")
    assert len(events) == found["place"]
    assert events[0] == "s,0,0,0,the start"
    assert events[1].startswith("v,0,0,0,velocity")
    assert events[-1] == "r,1500,2000,63,E♭4 let go"
    for text in (head for block in found["heads"] for head in block):
        rows = [tuple(map(int, item.split(","))) for item in text.split(";")]
        assert all(0 <= event < len(events) for event, _ in rows)
        assert 900 < sum(share for _, share in rows) <= 1010


def test_one_goes_on_from_event_to_event_to_the_end_and_not_beyond() -> None:
    visit = visitor()
    first = look(visit, seconds=0.0)
    assert first["said"] == "C4"
    said = [look(visit, place=place)["said"] for place in range(1, 6)]
    assert said == ["velocity 63", "C4", "wait 0.50 s", "C4 let go", "D♭4"]
    last = look(visit, place=first["places"])
    assert last["said"] == "E♭5 let go"
    assert (first["noteBefore"], first["noteAfter"]) == (0, 5)
    assert (last["noteBefore"], last["noteAfter"]) == (last["place"] - 2, last["places"] + 1)
    assert "1 to" in look(visit, place=first["places"] + 1)["fault"]


def test_of_a_take_its_first_new_note_is_told_and_how_it_was_drawn() -> None:
    visit = visitor()
    steps(visit, Wish(5.0, 2, seed=7))
    seam = visit.shown.roll["seam"]
    for take, name in enumerate(["G3", "A♭3"]):
        found = look(visit, take=take, seconds=seam)
        assert (found["take"], found["said"], found["seconds"]) == (take, name, seam)
        assert 0 < sum(row["after"] for row in found["expected"]) <= 1.0001


def test_how_music_was_drawn_that_nobody_composed_here_is_not_told() -> None:
    visit = visitor()
    steps(visit, Wish(5.0, seed=7))
    seam = visit.shown.roll["seam"]
    redo = {"start": seam + 1, "end": seam + 2, "take": 0, "tab": 1, "candidates": 1}
    list(DESK.redo(visit, redo, *values_of()))
    for take, seconds in ((-1, 2.0), (0, seam + 1), (1, seam + 3)):
        found = look(visit, take=take, seconds=seconds)
        assert {row["after"] for row in found["expected"]} == {None}
    inside = look(visit, take=1, seconds=seam + 1)["expected"]
    assert None not in {row["after"] for row in inside}


def test_long_music_begins_with_all_that_came_before() -> None:
    found = look(visitor(), seconds=7.5, pitch=75)
    assert found["events"].startswith("s,")
    visit = visitor()
    steps(visit, Wish(60.0, seed=7))
    found = look(visit, take=0, seconds=60.0)
    assert found["events"].split(";")[0].endswith("all that came before")
    assert len(found["events"].split(";")) <= 128


def test_what_cannot_be_looked_at_is_a_sentence() -> None:
    visit = visitor()
    assert "no such note" in look(visit, seconds=2.0, pitch=65)["fault"]
    assert "press Compose first" in look(visit, take=0)["fault"]
    assert "no longer kept" in look(visit, version=7)["fault"]
    assert "no such note" in look(visit, seconds=2.0, pitch=10**30)["fault"]
    DESK.choose(visit, "nothing")
    assert "no notes" in look(visit)["fault"]


@pytest.mark.parametrize(
    "payload",
    [
        *(None, [], "x", {}, {"take": "0"}, {"take": -2}, {"take": True}),
        *({"take": 0, "seconds": "soon"}, {"take": 0, "place": 1.5}, {"take": 0, "pitch": "C4"}),
        *({"take": 0, "version": []}, {"take": 0, "seconds": float("nan")}),
    ],
    ids=str,
)
def test_what_no_page_sends_is_a_sentence(payload: Any) -> None:
    assert "did not arrive" in DESK.look(visitor(), payload)["fault"]


def test_notes_are_called_as_in_the_key_of_the_music() -> None:
    visit = visitor()
    scale = [63, 65, 67, 68, 70, 72, 74, 75]  # E flat major
    notes = np.array(
        [(0.5 * i, 0.5 * i + 0.5, pitch, 80) for i, pitch in enumerate(scale)], NOTE_DTYPE
    )
    visit.show_prompt(piece_from_notes(notes), "A scale")
    said = [look(visit, seconds=i / 2, pitch=pitch)["said"] for i, pitch in enumerate(scale)]
    assert said == ["E♭4", "F4", "G4", "A♭4", "B♭4", "C5", "D5", "E♭5"]


@pytest.mark.parametrize(("engine", "rounded"), [("onnx-int8", True), ("onnx", False)])
def test_it_is_told_where_music_was_drawn_with_rounded_weights(engine: str, rounded: bool) -> None:
    visit = visitor()
    steps(visit, Wish(5.0, seed=7))
    takes = [
        replace(take, settings=take.settings | {"engine": engine}) for take in visit.shown.takes
    ]
    visit.change(takes=tuple(takes))
    told = look(visit, take=0, seconds=visit.shown.roll["seam"])["drawn"]
    assert ("rounded weights" in told) is rounded
    assert look(visit, take=0, seconds=0.0)["drawn"] == ""  # the prompt was not drawn
