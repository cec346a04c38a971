"""A pianist: how new music joins on to a prompt, and the notes as they come."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import CHORD, scale
from small import compose, finished

from music_gpt.composing.composition import ComposedNote
from music_gpt.errors import InputError
from music_gpt.midi.piece import make_notes, midi_bytes, read_piece
from music_gpt.notes import Notes


def overlaps(notes: Notes) -> int:
    by_pitch = notes[np.lexsort((notes["start"], notes["pitch"]))]
    same = by_pitch["pitch"][1:] == by_pitch["pitch"][:-1]
    return int((same & (by_pitch["start"][1:] < by_pitch["end"][:-1] - 1e-9)).sum())


# --- how the music joins on ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_music_joins_on_without_a_cut_chord_or_a_stuck_note(pianist, seed):
    take = compose(pianist, CHORD, seed=seed)
    notes, new = take.notes(), take.new_notes()
    assert take.seam_seconds == 2.0
    assert len(notes) == len(CHORD) + len(new)
    assert len(new)
    assert new["start"].min() >= 2.0
    prompt = notes[notes["start"] < 2.0]
    for name in ("start", "pitch", "velocity"):
        assert (prompt[name] == CHORD[name]).all()
    rings = CHORD["end"] == 2.0
    assert (prompt["end"][~rings] == CHORD["end"][~rings]).all()
    assert (prompt["end"][rings] >= 2.0).all()
    assert overlaps(notes) == 0
    assert abs(notes["end"].max() - 2.0 - 3.0) <= 1.0


def test_the_first_onset_is_not_bound_to_the_seam(pianist):
    firsts = {
        float(compose(pianist, CHORD, seed=seed, max_wait_seconds=2).new_notes()["start"].min())
        for seed in range(8)
    }
    assert len(firsts) > 2


def test_a_double_note_at_the_end_of_the_prompt_rings_as_one(pianist):
    double = make_notes([(0.0, 2.0, 60, 60), (0.0, 2.0, 60, 80), (1.0, 1.5, 64, 64)])
    take = compose(pianist, double)
    assert len(take.notes()) == 3 + len(take.new_notes())
    assert read_piece(midi_bytes(take.notes())).n_notes == 2 + len(take.new_notes())


note_rows = st.tuples(
    st.floats(0, 8), st.floats(0, 4), st.integers(0, 127), st.integers(1, 127)
).map(lambda row: (row[0], row[0] + row[1], row[2], row[3]))


@settings(max_examples=40)
@given(rows=st.lists(note_rows, min_size=1, max_size=60), seed=st.integers(0, 99))
def test_any_notes_are_continued(pianist, rows, seed):
    take = compose(pianist, make_notes(rows), seconds=0.5, seed=seed)
    notes, new = take.notes(), take.new_notes()
    assert len(notes) == len(take.prompt_notes) + len(new)
    assert (notes["end"] >= notes["start"]).all()
    assert notes["start"].min() >= 0
    assert new["start"].min(initial=take.seam_seconds) >= take.seam_seconds
    assert abs(take.prompt_notes["end"].max() - take.seam_seconds) <= 0.0151
    late = notes["start"] >= take.seam_seconds
    assert notes[~late]["end"].max() >= take.seam_seconds - 1e-9
    assert abs(notes["end"].max() - take.seam_seconds - 0.5) <= 1.0
    # nothing that is new begins before the prompt's note of its pitch has ended
    for note in new:
        same = notes[~late & (notes["pitch"] == note["pitch"])]
        assert same["end"].max(initial=0.0) <= note["start"] + 1e-9


def test_notes_that_overlap_on_one_pitch_end_where_it_is_struck_again(pianist):
    notes = make_notes([(0.0, 5.0, 60, 60), (4.0, 4.5, 60, 80)])
    take = compose(pianist, notes)
    assert take.seam_seconds == 4.5
    assert take.prompt_notes["end"].tolist() == [4.0, 4.5]
    assert take.notes()["end"][1] >= 4.5


@pytest.mark.parametrize("seconds", [0.1, 1.0, 7.3])
@pytest.mark.parametrize("prompt", [None, CHORD, scale(200)], ids=["nothing", "short", "long"])
def test_the_asked_seconds_are_met_within_one(pianist, prompt, seconds):
    take = compose(pianist, prompt, seconds=seconds)
    assert abs(take.seconds_composed - seconds) <= 1.0
    assert abs(take.notes()["end"].max() - take.seam_seconds - seconds) <= 1.0


def test_music_from_nothing_begins_at_once(pianist):
    take = compose(pianist)
    assert take.seam_seconds == 0.0
    assert len(take.prompt_notes) == 0
    assert take.notes()["start"].min() == 0.0


def test_an_own_ending_stays_near_the_asked_length(pianist):
    for seed in range(3):
        take = compose(pianist, CHORD, end=True, seconds=5.0, seed=seed)
        assert 3.0 <= take.seconds_composed <= 8.0


def test_a_piece_is_continued_from_a_point_within_it(pianist):
    take = compose(pianist, CHORD, prompt_end_seconds=1.2, prompt_seconds=0.9)
    assert take.seam_seconds == pytest.approx(0.9)
    assert take.prompt_notes["pitch"].tolist() == [72, 60, 64, 67]
    notes = take.notes()
    assert (notes["end"][1:4] >= 0.9).all()  # they sound across the point
    assert take.new_notes()["start"].min() >= 0.9
    wish = take.settings()
    assert (wish["prompt_end_seconds"], wish["prompt_seconds"]) == (1.2, 0.9)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"prompt_end_seconds": 2.5}, "is 2.5, but the prompt lasts 2.00 seconds"),
        ({"prompt_end_seconds": 9.5, "prompt_seconds": 1}, "Nothing sounds between 8.5 and 9.5 s"),
        ({"prompt_end_seconds": 3.0}, "Nothing sounds between 0 and 3 seconds"),
    ],
    ids=str,
)
def test_a_point_without_music_before_it_gets_a_sentence(pianist, wrong, sentence):
    late = make_notes([(5.0, 6.0, 60, 64), (11.0, 12.0, 62, 64)])
    with pytest.raises(InputError, match=sentence):
        pianist.compose(CHORD if wrong["prompt_end_seconds"] == 2.5 else late, **wrong)


# --- the notes as they come ----------------------------------------------------------------------


def test_every_new_note_is_told_once_when_it_has_ended(pianist):
    composition = pianist.compose(CHORD, seconds=4.0, seed=1, variations=2, max_wait_seconds=0.3)
    told: list[ComposedNote] = []
    for note in composition:
        told.append(note)
        so_far = composition.new_notes(note.take)
        assert (note.start, note.end, note.pitch, note.velocity) in so_far.tolist()
        assert composition.notes(note.take)["end"].max() >= note.end
    for take in (0, 1):
        rows = make_notes(note[1:] for note in told if note.take == take)
        assert (rows == composition.new_notes(take)).all()
    assert len(list(composition)) == 0


def test_closing_keeps_the_music_and_ends_what_sounds(pianist):
    composition = pianist.compose(CHORD, seconds=60.0, seed=2, variations=2, max_wait_seconds=0.3)
    told = [next(composition) for _ in range(5)]
    open_and_closed = composition.notes(0)
    composition.close()
    composition.close()
    assert list(composition) == []
    notes = composition.notes(0)
    assert (notes == open_and_closed).all()
    assert (notes["end"] > notes["start"]).all()
    assert overlaps(notes) == 0
    assert {tuple(note[1:]) for note in told if note.take == 0} <= set(notes.tolist())
    assert notes["end"].max() <= max(2.0 + composition.seconds_composed, 2.0) + 1.0
    assert composition.midi(1).get_end_time() > 2.0


def test_closing_before_the_first_note_leaves_the_prompt(pianist):
    composition = pianist.compose(CHORD)
    composition.close()
    assert (composition.notes() == CHORD).all()
    assert composition.seconds_composed == 0.0
    assert len(pianist.compose().notes()) == 0


def test_a_fault_on_the_way_keeps_what_was_composed(pianist):
    composition = pianist.compose(CHORD, seconds=60.0, seed=2, max_wait_seconds=0.3)

    def broken(events: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for number, event in enumerate(events):
            yield event
            if number == 80:
                raise MemoryError

    assert composition._events is not None
    composition._events = broken(composition._events)
    with pytest.raises(MemoryError):
        finished(composition)
    assert len(composition.new_notes()) > 0
    assert overlaps(composition.notes()) == 0
    assert list(composition) == []


def test_progress_is_told_while_composing(pianist):
    composition = pianist.compose(seconds=5.0, variations=2, seed=1, max_wait_seconds=0.3)
    progress = [composition.seconds_composed for _ in composition]
    assert progress == sorted(progress)
    assert 0 < progress[len(progress) // 2] < composition.seconds_composed
    assert composition.n_tokens >= 2 * 2 * len(composition.new_notes(0)) / 2
    assert composition.elapsed > 0
    assert composition.seconds == 5.0
    assert composition.n_takes == 2
