"""The tracks of a file -> the lines of a list in which some of them are ticked.

It knows the tracks that a piece lists, and neither Gradio nor the browser.
"""

from __future__ import annotations

from collections.abc import Iterable

from music_gpt.midi.timing import Track
from music_gpt.notes import in_words

FAMILIES = (
    "piano",
    "chromatic percussion",
    "organ",
    "guitar",
    "bass",
    "strings",
    "ensemble",
    "brass",
    "reed",
    "pipe",
    "synth lead",
    "synth pad",
    "synth effects",
    "ethnic",
    "percussive",
    "sound effects",
)
"""General MIDI names its programs in eights."""

NO_BREAK = "\u00a0"


def track_choices(tracks: Iterable[Track]) -> list[tuple[str, int]]:
    r"""A line and a number for each track that has pitches, or none where there is no choice.

    >>> voice = Track(0, "Voice", 52, False, 80, False)
    >>> drums, left = Track(1, "", 0, True, 9, False), Track(2, "", 0, False, 1, True)
    >>> track_choices([voice, drums, left])
    [('Voice\xa0· ensemble,\xa080\xa0notes', 0), ('Track 2\xa0· piano,\xa01\xa0note', 2)]
    >>> track_choices([drums, left])
    []
    """
    lines = [(track_line(track), track.number) for track in tracks if not track.is_drum]
    return lines if len(lines) > 1 else []


def track_line(track: Track) -> str:
    """Name, kind of instrument and number of notes; a long line breaks after the name."""
    name = track.name.strip() or f"Track {track.number}"
    rest = f"{FAMILIES[track.program // 8]}, {in_words(track.n_notes)}".replace(" ", NO_BREAK)
    return f"{name}{NO_BREAK}· {rest}"
