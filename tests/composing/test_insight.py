"""What the network expected at an event, against how the event was drawn."""

import math

import numpy as np
import pytest
from small import compose, melody, small_pianist

from music_gpt.arrays import Floats
from music_gpt.composing.composition import Composition
from music_gpt.composing.insight import HeardPiece, Insight, insight
from music_gpt.composing.pianist import Pianist
from music_gpt.errors import InputError
from music_gpt.midi.piece import make_notes, piece_from_notes
from music_gpt.tokens.events import (
    EOS,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    canonical_notes,
    shift_frames,
)

PIANIST = small_pianist(context=512)
OPENING = make_notes([(0.5 * i, 0.5 * i + 0.4, 60 + 2 * i, 50 + 10 * i) for i in range(6)])
KNOBS = [
    {},
    {"temperature": 0.8, "min_p": 0.02, "top_k": 40, "top_p": 0.9},
    {"pitch_temperature": 0.5, "time_temperature": 1.5},
    {"key": "C", "density": 8.0},
    {"end": True},
]


def drawn_from(one: Insight) -> Floats:
    """What an event that was composed was drawn from."""
    assert one.drawn_from is not None
    return one.drawn_from


def insights(composition: Composition, pianist: Pianist = PIANIST) -> list[tuple[int, Insight]]:
    """The events of a take from its first new one on, and what was expected there."""
    piece = HeardPiece.of(composition.notes())
    settings, new = composition.settings(), (composition.seam_seconds, math.inf)
    n_new = composition.n_tokens - 1  # the end is none of the piece
    places = range(len(piece.ids) - n_new, len(piece.ids))
    found = [pianist.look_inside(piece, place, settings, new) for place in places]
    return [(int(piece.ids[one.place]), one) for one in found]


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_the_events_of_a_take_surprise_as_much_as_its_settings_tell(
    knobs: dict[str, object],
) -> None:
    composition = compose(PIANIST, OPENING, **knobs)
    nats = [-math.log(one.expected[id_]) for id_, one in insights(composition)]
    assert np.mean(nats) == pytest.approx(composition.nats_per_token(), abs=2e-3)


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_every_event_of_a_take_is_among_what_it_was_drawn_from(knobs: dict[str, object]) -> None:
    found = insights(compose(PIANIST, OPENING, **knobs))
    assert min(drawn_from(one)[id_] for id_, one in found) > 0
    assert [drawn_from(one).sum() for _, one in found] == pytest.approx([1.0] * len(found))


@pytest.mark.parametrize("late", [0.0, 0.003, 0.005, 0.007])
@pytest.mark.parametrize("seed", range(4))
def test_every_event_of_a_redone_part_is_among_what_it_was_drawn_from(
    seed: int, late: float
) -> None:
    notes = canonical_notes(melody(3, 60)) if not late else melody(3, 60)
    notes["start"], notes["end"] = notes["start"] + late, notes["end"] + late
    piece = piece_from_notes(notes)
    redone = PIANIST.redo(piece, 6.333, 9.0, candidates=1, seed=seed, max_wait_seconds=0.4)
    first, last = redone.settings(0)["redo"]
    heard = HeardPiece.of(redone.notes(0))
    waits = shift_frames(heard.ids) / 100
    inside = (heard.seconds >= first) & (heard.seconds + waits < last - 1e-6)
    found = [
        (
            int(heard.ids[place]),
            PIANIST.look_inside(heard, place, redone.settings(0), (first, last)),
        )
        for place in np.flatnonzero(inside).tolist()
    ]
    assert len(found) > 20
    assert min(drawn_from(one)[id_] for id_, one in found) > 0


def test_beyond_the_context_it_hears_what_the_take_heard_there() -> None:
    pianist = small_pianist(context=64)
    composition = compose(pianist, OPENING, seconds=20.0)
    assert composition.n_tokens > 4 * 64
    nats = [-math.log(one.expected[id_]) for id_, one in insights(composition, pianist)]
    assert np.mean(nats) == pytest.approx(composition.nats_per_token(), abs=2e-3)


def test_at_temperature_0_the_event_that_came_was_certain() -> None:
    found = insights(compose(PIANIST, OPENING, temperature=0.0))
    assert [drawn_from(one)[id_] for id_, one in found] == [1.0] * len(found)


def test_what_a_figure_that_went_stale_has_lost_is_told() -> None:
    trill = make_notes([(0.2 * i, 0.2 * i + 0.15, 60 + 2 * (i % 2), 64) for i in range(60)])
    piece = HeardPiece.of(trill)
    place = piece.place_of(11.6, 60)
    given = PIANIST.look_inside(piece, place, {})
    composed = PIANIST.look_inside(piece, place, {}, (0.0, math.inf))
    assert composed.expected[60] == given.expected[60]
    assert given.drawn_from is None
    assert drawn_from(composed)[60] < 0.1 * given.expected[60]


def test_beyond_the_context_it_hears_the_last_events_and_how_loud_they_are() -> None:
    piece = HeardPiece.of(melody(3, 400))
    place = len(piece.ids) - 1
    found = PIANIST.look_inside(piece, place, {})
    heard = found.places
    assert len(heard) <= 512
    assert (heard[0] > 0, heard[-1]) == (True, place - 1)
    assert found.attention.shape[2] == len(heard)
    assert found.attention.sum(2) == pytest.approx(np.ones(found.attention.shape[:2]))


def test_each_event_has_its_note_and_its_time_also_after_a_silence() -> None:
    notes = make_notes([(3.0, 3.5, 60, 64), (3.0, 4.0, 64, 64), (64.0, 65.5, 67, 90)])
    piece = HeardPiece.of(notes)
    kinds = [
        (int(id_), int(n), round(s, 2))
        for id_, n, s in zip(piece.ids, piece.note, piece.seconds, strict=True)
    ]
    told = [kind for kind in kinds if kind[0] < TIME_SHIFT]
    assert told == [
        *((60, 0, 3.0), (64, 1, 3.0), (NOTE_OFF + 60, 0, 3.5), (NOTE_OFF + 64, 1, 4.0)),
        *((67, 2, 64.0), (NOTE_OFF + 67, 2, 65.5)),
    ]
    assert kinds[0] == (EOS, -1, 3.0)
    waits = [seconds for id_, _, seconds in kinds if TIME_SHIFT <= id_ < VELOCITY]
    assert waits[:3] == [3.0, 3.5, 4.0]
    assert waits == sorted(waits)


@pytest.mark.parametrize("late", [0.0, 0.005, 0.015, 1.235])
@pytest.mark.parametrize("seed", range(5))
def test_every_note_is_struck_and_released_where_it_is(seed: int, late: float) -> None:
    notes = canonical_notes(melody(seed, 120))
    notes["start"], notes["end"] = notes["start"] + late, notes["end"] + late
    piece = HeardPiece.of(notes)
    for number, note in enumerate(piece.notes):
        on, off = np.flatnonzero(piece.note == number)
        assert (piece.ids[on], piece.ids[off]) == (note["pitch"], NOTE_OFF + note["pitch"])
        assert piece.seconds[on] == note["start"]
        assert piece.seconds[off] == note["end"]
        assert piece.place_of(note["start"], note["pitch"]) == on


def test_a_note_that_is_not_there_is_told() -> None:
    piece = HeardPiece.of(OPENING)
    for seconds, pitch in ((0.0, 61), (0.25, 60)):
        with pytest.raises(InputError, match="no such note"):
            piece.place_of(seconds, pitch)
    for place in (0, len(piece.ids)):
        with pytest.raises(InputError, match="events of this music are 1 to"):
            insight(PIANIST._model, piece, place, {})
    with pytest.raises(InputError, match="no notes"):
        HeardPiece.of(OPENING[:0])


def test_the_first_note_at_a_time_is_found_or_else_the_last_one() -> None:
    piece = HeardPiece.of(OPENING)
    assert [int(piece.ids[piece.first_place(at)]) for at in (0.0, 0.7, 1.0, 99.0)] == [
        60,
        64,
        64,
        70,
    ]
