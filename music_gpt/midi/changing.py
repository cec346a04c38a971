"""A piece comes in -> the same piece goes out in another key and tempo, every note of it.

It knows the piece, and neither token ids nor what is composed from it.
"""

from __future__ import annotations

from dataclasses import replace

from music_gpt.config.prompt import AS_GIVEN, MOST_SEMITONES, PromptChange
from music_gpt.errors import InputError, argument
from music_gpt.midi.piece import DEFAULT_LIMITS, Piece, finish_piece
from music_gpt.notes import HIGHEST_KEY, LOWEST_KEY, Notes


def change_piece(piece: Piece, change: PromptChange) -> Piece:
    """The piece moved by whole semitones and played so many times as fast.

    Times are divided by the speed and not rounded. Silences that become too long are shortened, as
    those of a file are, with a warning.

    Raises:
        InputError: notes would leave the 88 keys of a piano, or the piece would become too long.

    >>> from music_gpt.midi.piece import make_notes, piece_from_notes
    >>> piece = piece_from_notes(make_notes([(0.0, 1.5, 60, 64), (2.0, 3.0, 64, 64)]))
    >>> change_piece(piece, PromptChange(transpose=-3, speed=0.5)).notes["end"]
    array([3., 6.])
    """
    if change == AS_GIVEN:
        return piece
    _require_keys(piece, change.transpose)
    seconds = piece.seconds / change.speed
    if seconds > DEFAULT_LIMITS.max_seconds:
        raise InputError(
            f"{argument('speed')} is {change.speed:g}, at which the prompt lasts {seconds:,.0f} "
            f"seconds, and at most {DEFAULT_LIMITS.max_seconds:,.0f} are allowed; choose a higher "
            "one."
        )
    notes, sounding = (_changed(kind, change) for kind in (piece.notes, piece.sounding_notes))
    changed = finish_piece(notes, sounding, list(piece.warnings), piece.name, DEFAULT_LIMITS)
    return replace(changed, tracks=piece.tracks)


def fitting_transpositions(piece: Piece) -> range:
    """The semitones by which a piece can be moved on the 88 keys of a piano.

    >>> from music_gpt.midi.piece import make_notes, piece_from_notes
    >>> fitting_transpositions(piece_from_notes(make_notes([(0.0, 1.0, 30, 64)])))
    range(-9, 25)
    """
    if not piece.n_notes:
        return range(-MOST_SEMITONES, MOST_SEMITONES + 1)
    lowest, highest = int(piece.notes["pitch"].min()), int(piece.notes["pitch"].max())
    down = max(LOWEST_KEY - lowest, -MOST_SEMITONES)
    return range(down, min(HIGHEST_KEY - highest, MOST_SEMITONES) + 1)


def _require_keys(piece: Piece, semitones: int) -> None:
    fits = fitting_transpositions(piece)
    if semitones and semitones not in fits:
        raise InputError(
            f"{argument('transpose')} is {semitones}, but then notes of the prompt leave the 88 "
            f"keys of a piano; {_what_fits(fits)}."
        )


def _what_fits(fits: range) -> str:
    """The way out for somebody whose transposition does not fit.

    >>> _what_fits(range(-9, 8)), _what_fits(range(3, 4)), _what_fits(range(0))
    ('choose from -9 to 7', 'choose 3, or 0', 'leave it at 0, since no other number fits')
    """
    if not any(fits):  # none, or 0 alone
        return "leave it at 0, since no other number fits"
    words = f"{fits[0]}" if len(fits) == 1 else f"from {fits[0]} to {fits[-1]}"
    return f"choose {words}" + ("" if 0 in fits else ", or 0")


def _changed(notes: Notes, change: PromptChange) -> Notes:
    changed = notes.copy()
    changed["start"] /= change.speed
    changed["end"] /= change.speed
    changed["pitch"] = changed["pitch"].astype(int) + change.transpose
    return changed
