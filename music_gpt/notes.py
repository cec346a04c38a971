"""Nothing comes in -> the one form of notes goes out: a numpy array of notes in seconds.

Every module that handles music shares this array, and it knows neither MIDI nor token ids.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

NOTE_DTYPE = np.dtype([("start", "f8"), ("end", "f8"), ("pitch", "u1"), ("velocity", "u1")])
"""One note: key down and end of sound in seconds, MIDI pitch 0-127, MIDI velocity 1-127."""

Notes = npt.NDArray[np.void]
"""An array of `NOTE_DTYPE`, sorted by (start, pitch)."""

LOWEST_KEY, HIGHEST_KEY = 21, 108
"""The 88 keys of a piano, as MIDI pitches."""

A_MOMENT = 0.002
"""Seconds by which times in a file, whole milliseconds, may lie beside those that were composed."""

NO_PART = (math.inf, math.inf)
"""From which second to which something was composed, where nothing was."""


def struck_within(notes: Notes, part: tuple[float, float]) -> npt.NDArray[np.bool_]:
    """Which of them are struck from the first second of a part on and before its last one.

    >>> notes = np.array([(0.999, 2.0, 60, 64), (1.5, 2.0, 62, 64), (2.0, 3.0, 64, 64)], NOTE_DTYPE)
    >>> struck_within(notes, (1.0, 2.0))
    array([ True,  True, False])
    """
    first, last = (edge - A_MOMENT for edge in part)
    flags: npt.NDArray[np.bool_] = (notes["start"] >= first) & (notes["start"] < last)
    return flags


def in_words(n_notes: int) -> str:
    """So many notes.

    >>> in_words(1), in_words(1234)
    ('1 note', '1,234 notes')
    """
    return "1 note" if n_notes == 1 else f"{n_notes:,} notes"
