"""What a visitor has and what Compose does, without a browser."""

import inspect
import re
from itertools import pairwise
from typing import Any

import pytest
from fake_pianist import FakePianist
from small import random_network
from visiting import FIRST, PIANIST, SCALE, count, plain, steps, values_of, visitor

from music_gpt.cli.composing import add_redo
from music_gpt.composing.pianist import MAX_GIVEN_SEED, Pianist
from music_gpt.config.sampling import SAMPLING_PRESETS
from music_gpt.errors import InputError
from music_gpt.midi.piece import make_notes, piece_from_notes
from music_gpt.ui import visit as visits
from music_gpt.ui.desk import Desk
from music_gpt.ui.form import FORM, PRESET_MOVES, preset_values, read_wish
from music_gpt.ui.pianoroll import read_selection
from music_gpt.ui.roll_value import notes_text
from music_gpt.ui.visit import Visit, Wish


def test_what_the_browser_gets_is_plain() -> None:
    visit = visitor()
    assert plain(visit.shown.roll)
    assert all(plain(value) for value in steps(visit, Wish(5.0, 2)))


def test_the_text_of_a_take_only_grows() -> None:
    values = steps(visitor(), Wish(10.0, 2, seed=1))
    texts = [value["takes"][1]["notes"] for value in values]
    assert len(set(texts)) > 10
    assert all(after.startswith(before) for before, after in pairwise(texts))


def test_a_finished_take_is_what_was_shown() -> None:
    visit = visitor()
    last = steps(visit, Wish(5.0, 2, seed=3))[-1]
    assert last["state"] == "done"
    assert [take.settings["seed"] for take in visit.shown.takes] == [3, 4]
    for shown, take in zip(last["takes"], visit.shown.takes, strict=True):
        assert shown["open"] == ""
        kept = shown["kept"] + shown["ringing"]
        assert count(kept) == len(SCALE)
        assert kept + shown["notes"] == notes_text(take.notes)


def test_the_prompt_is_sent_once_and_the_notes_that_ring_on_as_they_are() -> None:
    visit, pianist = Visit(), Pianist(random_network(context=128))
    held = make_notes([*SCALE.tolist(), (7.0, 8.0, 40, 90), (6.0, 8.0, 47, 90)])
    visit.show_prompt(piece_from_notes(held), "Held")
    wish = Wish(5.0, 2, seed=3)
    values = list(visits.compose(visit, pianist, wish, 0.0, 8.0, every_seconds=0.0))
    for number, take in enumerate(visit.shown.takes):
        shown = [value["takes"][number] for value in values]
        assert {texts["kept"] for texts in shown} == {notes_text(SCALE[:-1])}
        assert {count(texts["ringing"]) for texts in shown} == {3}
        assert len({texts["ringing"] for texts in shown}) > 1
        last = shown[-1]
        found = last["kept"] + last["ringing"] + last["notes"]
        assert sorted(found.split(";")) == sorted(notes_text(take.notes).split(";"))


def test_only_the_part_between_the_handles_is_continued() -> None:
    visit = visitor()
    values = list(visits.compose(visit, PIANIST, Wish(5.0), 2.0, 4.0))
    assert values[-1]["seam"] == 2.0
    assert list(visit.shown.takes[0].notes["pitch"][:4]) == [64, 65, 66, 67]


def test_what_was_composed_stays_when_the_visitor_leaves() -> None:
    visit = visitor()
    composing = visits.compose(visit, PIANIST, Wish(60.0, seed=1), 0.0, 8.0, every_seconds=0.0)
    for _ in range(9):
        next(composing)
    composing.close()
    assert len(SCALE) < len(visit.shown.takes[0].notes) < 60
    assert visit.shown.roll["state"] == "done"


def test_stop_ends_at_the_next_note_and_keeps_the_music() -> None:
    visit = visitor()
    values = []
    for value in visits.compose(visit, PIANIST, Wish(60.0), 0.0, 8.0, every_seconds=0.0):
        values.append(value)
        visit.stop_asked = len(values) >= 5
    assert len(values) < 10
    assert values[-1]["state"] == "done"
    assert re.match(r"[\d.]+ s of 60, stopped\b", values[-1]["status"])
    assert len(visit.shown.takes) == 1


def test_a_new_prompt_is_not_overwritten_by_the_old_composition() -> None:
    visit = visitor()
    composing = visits.compose(visit, PIANIST, Wish(60.0), 0.0, 8.0, every_seconds=0.0)
    for _ in range(5):
        next(composing)
    shown = visit.show_prompt(piece_from_notes(SCALE[:4]), "Other")
    assert list(composing)[-1] == shown | {"earlier": 1}
    assert visit.shown.takes == ()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        *(({"seconds": value}, "number from 5 to 300") for value in (4.0, 301, float("nan"), "x")),
        *(
            ({"variations": value}, "whole number from 1 to 8")
            for value in (9, 0, 1.5, float("nan"))
        ),
        ({"top_k": 0.5}, "top_k is 0.5, but it has to be a whole number"),
        ({"time_temperature": 0.01}, "time_temperature is 0.01"),
        ({"key": "H"}, "key is 'H'"),
        ({"density": -1}, "density is -1"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_wish(values)


def test_the_form_asks_for_what_the_command_line_asks_for() -> None:
    visit, asked = visitor(), dict[str, Any]()

    class Watched(FakePianist):
        def compose(self, prompt: Any = None, **options: Any) -> Any:
            asked.update(options)
            return super().compose(prompt, **options)

    desk = Desk(Watched(pace=1e6))  # type: ignore[arg-type]
    values = values_of(key="F# minor", density=4, end=True, pitch_temperature=0.8, seed="5")
    *_, (value, *_) = desk.compose(visit, FIRST, *values)
    assert value["state"] == "done"
    assert (asked["key"], asked["density"], asked["end"]) == ("F# minor", 4, True)
    assert (asked["pitch_temperature"], asked["seed"]) == (0.8, 5)


def test_a_character_moves_the_fields_of_the_form_and_leaves_key_and_density() -> None:
    assert set(PRESET_MOVES) < set(FORM) - {"key", "density", "seed"}
    moved = dict(zip(PRESET_MOVES, preset_values("adventurous"), strict=True))
    assert read_wish(moved).sampling == SAMPLING_PRESETS["adventurous"]


def test_the_form_begins_with_the_usual_settings() -> None:
    assert read_wish(dict(zip(FORM, values_of(), strict=True))) == Wish()


def test_a_part_without_notes_is_refused() -> None:
    visit = Visit()
    notes = make_notes([(0.0, 1.0, 60, 64), (9.0, 10.0, 60, 64)])
    visit.show_prompt(piece_from_notes(notes), "Gap")
    with pytest.raises(InputError, match="Nothing sounds between 3 and 8 seconds"):
        list(visits.compose(visit, PIANIST, Wish(5.0), 3.0, 8.0))


@pytest.mark.parametrize(
    "payload",
    [
        *(None, {}, [], "x", {"start": 1, "end": 2}, {"start": "a", "end": 2, "take": 0}),
        {"start": 0, "end": float("inf"), "take": 0},
        {"start": 0, "end": 1, "take": -1},
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(payload: Any) -> None:
    with pytest.raises(InputError):
        read_selection(payload)


def test_a_part_is_redone_in_as_many_ways_on_the_page_as_on_the_command_line() -> None:
    asked = read_selection({"start": 0, "end": 1, "take": 0}).candidates
    assert asked == add_redo()[1].get_defaults().candidates
    assert asked == inspect.signature(Pianist.begin_redo).parameters["candidates"].default


@pytest.mark.parametrize("seed", ["x", "-1", "1.5", "12x", "9" * 5000])
def test_a_seed_that_is_no_whole_number_is_refused(seed: str) -> None:
    with pytest.raises(InputError, match="whole number"):
        read_wish({"seed": seed})


def test_the_page_takes_the_seeds_that_the_pianist_takes() -> None:
    assert read_wish({"seed": str(MAX_GIVEN_SEED)}).seed == MAX_GIVEN_SEED
    with pytest.raises(InputError, match="whole number from 0 to"):
        read_wish({"seed": MAX_GIVEN_SEED + 1})


@pytest.mark.parametrize("end", [99.0, -3.0, 0.0, 8.02])
def test_a_point_outside_of_the_prompt_is_told_and_none_is_put_in_its_place(end: float) -> None:
    lasts = "since the prompt lasts 8.00; choose a point within it"
    with pytest.raises(InputError, match=f"cannot go on from {end:g} seconds, {lasts}"):
        steps(visitor(), Wish(5.0), end)


def test_the_end_of_the_prompt_as_it_is_shown_is_its_end() -> None:
    visit = Visit()
    visit.show_prompt(piece_from_notes(make_notes([(0.0, 7.996, 60, 64)])), "Long tone")
    assert steps(visit, Wish(5.0), 8.0)[-1]["seam"] == 8.0
