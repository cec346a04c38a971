"""A prompt in another key and tempo."""

import numpy as np
import pytest
from midi_bytes import SCALE, events_of, file, pedal

from music_gpt.config.prompt import PromptChange
from music_gpt.errors import InputError
from music_gpt.midi.changing import change_piece, fitting_transpositions
from music_gpt.midi.piece import make_notes, piece_from_notes, read_piece
from music_gpt.notes import Notes

TUNE = make_notes([(0.1, 0.7, 60, 64), (0.7, 1.9, 64, 80), (0.7, 2.3, 48, 50)])


def keys(*pitches: int) -> Notes:
    return make_notes((float(i), i + 0.5, pitch, 64) for i, pitch in enumerate(pitches))


def test_every_note_moves_by_the_same_semitones_and_keeps_its_touch() -> None:
    piece = piece_from_notes(TUNE)
    changed = change_piece(piece, PromptChange(transpose=-3))
    assert changed.notes["pitch"].tolist() == [57, 45, 61]
    for name in ("start", "end", "velocity"):
        assert changed.notes[name].tolist() == TUNE[name].tolist()
    assert piece.notes["pitch"].tolist() == [60, 48, 64]


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.2, 3.0, 4.0])
def test_times_are_divided_by_the_speed_and_not_rounded(speed: float) -> None:
    changed = change_piece(piece_from_notes(TUNE), PromptChange(speed=speed))
    for kind in (changed.notes, changed.sounding_notes):
        assert np.array_equal(kind["start"], TUNE["start"] / speed)
        assert np.array_equal(kind["end"], TUNE["end"] / speed)
        assert kind["pitch"].tolist() == TUNE["pitch"].tolist()
    assert changed.seconds == 2.3 / speed


def test_the_pedal_holds_the_same_notes_at_every_speed() -> None:
    held = [(0, pedal(127)), *events_of(SCALE), (9000, pedal(0))]
    piece = read_piece(file(held))
    changed = change_piece(piece, PromptChange(transpose=5, speed=2.0))
    assert np.array_equal(changed.sounding_notes["end"], piece.sounding_notes["end"] / 2)
    assert np.array_equal(changed.notes["end"], piece.notes["end"] / 2)
    assert (changed.sounding_notes["end"] > changed.notes["end"]).any()
    assert (changed.tracks, changed.warnings) == (piece.tracks, piece.warnings)


def test_a_prompt_that_is_not_changed_is_the_same() -> None:
    outside = piece_from_notes(keys(5, 120))  # beyond a piano's keys by itself
    assert change_piece(outside, PromptChange()) is outside
    assert change_piece(outside, PromptChange(speed=2)).notes["pitch"].tolist() == [5, 120]


@pytest.mark.parametrize(
    ("notes", "semitones", "way_out"),
    [
        (keys(30, 101), 8, "transpose is 8, but then .* 88 keys of a piano; choose from -9 to 7."),
        (keys(30, 101), -10, "choose from -9 to 7."),
        (keys(21, 60), -1, "choose from 0 to 24."),
        (keys(21, 108), 1, "leave it at 0, since no other number fits."),
        (keys(5, 120), 1, "leave it at 0, since no other number fits."),
        (keys(18, 60), 1, "choose from 3 to 24, or 0."),
        (keys(20, 107), 2, "choose 1, or 0."),
    ],
)
def test_a_transposition_beyond_the_keys_tells_those_that_fit(
    notes: Notes, semitones: int, way_out: str
) -> None:
    with pytest.raises(InputError, match=f"{way_out}$"):
        change_piece(piece_from_notes(notes), PromptChange(transpose=semitones))


def test_each_transposition_that_is_told_to_fit_does() -> None:
    piece = piece_from_notes(keys(30, 101))
    for semitones in fitting_transpositions(piece):
        pitches = change_piece(piece, PromptChange(transpose=semitones)).notes["pitch"]
        assert 21 <= pitches.min() <= pitches.max() <= 108
    assert fitting_transpositions(piece_from_notes(keys(30, 101)[:0])) == range(-24, 25)


def test_a_speed_at_which_the_prompt_becomes_too_long_is_told() -> None:
    recital = piece_from_notes(make_notes((100.0 * i, 100.0 * i + 1, 60, 64) for i in range(181)))
    told = "^speed is 0.4, at which the prompt lasts 45,002 seconds, and at most 36,000 are allowed"
    with pytest.raises(InputError, match=told):
        change_piece(recital, PromptChange(speed=0.4))
    assert change_piece(recital, PromptChange(speed=0.6)).n_notes == 181


def test_a_silence_that_becomes_endless_is_shortened_with_a_word() -> None:
    piece = piece_from_notes(make_notes([(0.0, 1.0, 60, 64), (500.0, 501.0, 62, 64)]))
    changed = change_piece(piece, PromptChange(speed=0.5))
    assert changed.notes["start"].tolist() == [0.0, 602.0]
    assert "more than 10 minutes were shortened" in changed.warnings[0]
    assert piece.warnings == []
