"""Notes of a piece as rows, to compare them: what the tests of MIDI files share."""

from midi_bytes import SCALE, events_of, file

from music_gpt.midi.piece import Piece
from music_gpt.notes import Notes

Row = tuple[float, float, int, int]


def rows(notes: Notes) -> list[Row]:
    return [(round(s, 6), round(e, 6), p, v) for s, e, p, v in notes.tolist()]


def seconds(ticks: list[tuple[int, int, int, int]]) -> list[Row]:
    return [(s / 1000, e / 1000, p, v) for s, e, p, v in ticks]


def warned(piece: Piece, words: str) -> bool:
    return any(words in warning for warning in piece.warnings)


WHOLE = file(events_of(SCALE))
