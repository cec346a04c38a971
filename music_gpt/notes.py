"""Nothing comes in -> the one form of notes goes out: a numpy array of notes in seconds.

Every module that handles music shares this array, and it knows neither MIDI nor token ids.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NOTE_DTYPE = np.dtype([("start", "f8"), ("end", "f8"), ("pitch", "u1"), ("velocity", "u1")])
"""One note: key down and end of sound in seconds, MIDI pitch 0-127, MIDI velocity 1-127."""

Notes = npt.NDArray[np.void]
"""An array of `NOTE_DTYPE`, sorted by (start, pitch)."""

LOWEST_KEY, HIGHEST_KEY = 21, 108
"""The 88 keys of a piano, as MIDI pitches."""


def in_words(n_notes: int) -> str:
    """So many notes.

    >>> in_words(1), in_words(1234)
    ('1 note', '1,234 notes')
    """
    return "1 note" if n_notes == 1 else f"{n_notes:,} notes"
