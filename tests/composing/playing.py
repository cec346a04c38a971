"""Notes to continue, and the context of the pianist that continues them."""

from music_gpt.midi.piece import make_notes
from music_gpt.notes import Notes

CONTEXT = 128
CHORD = make_notes([(0.0, 0.5, 72, 70), (0.5, 2.0, 60, 66), (0.5, 2.0, 64, 66), (0.6, 1.5, 67, 90)])


def scale(n_notes: int, seconds: float = 0.2) -> Notes:
    """Notes one after the other, with velocities that change."""
    return make_notes(
        (seconds * i, seconds * (i + 0.8), 40 + i % 40, 1 + (5 * i) % 126) for i in range(n_notes)
    )
