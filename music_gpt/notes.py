"""Nothing comes in -> the one form of notes goes out: a numpy array of notes in seconds.

Every module that handles music shares this array, and it knows neither MIDI nor token ids.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

NOTE_DTYPE = np.dtype([("start", "f8"), ("end", "f8"), ("pitch", "u1"), ("velocity", "u1")])
"""One note: key down and end of sound in seconds, MIDI pitch 0-127, MIDI velocity 1-127."""

Notes = npt.NDArray[np.void]
"""An array of `NOTE_DTYPE`, sorted by (start, pitch)."""

_Times = TypeVar("_Times", np.int64, np.float64)
"""Ticks or frames, or seconds."""

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


def end_at_next_strike(
    start: npt.NDArray[_Times], pitch: npt.NDArray[np.integer], end: npt.NDArray[_Times]
) -> npt.NDArray[_Times]:
    """The end of each note, or when its pitch is struck again if that is sooner.

    All are (N,), sorted by start; a note that starts at the same time strikes nothing again.
    """
    order = np.argsort(pitch.astype(np.uint8), kind="stable")
    s, p = start[order], pitch[order]
    later = np.append(False, (s[1:] != s[:-1]) | (p[1:] != p[:-1]))[: len(s)]
    heads = np.flatnonzero(later)  # a later strike, or another pitch
    following = np.cumsum(later)  # the first of them behind each note
    follower = np.append(heads, 0)[following]
    again = (following < len(heads)) & (p[follower] == p)
    until = np.empty_like(end)
    until[order] = np.where(again, np.minimum(end[order], s[follower]), end[order])
    return until


def in_words(n_notes: int) -> str:
    """So many notes.

    >>> in_words(1), in_words(1234)
    ('1 note', '1,234 notes')
    """
    return "1 note" if n_notes == 1 else f"{n_notes:,} notes"
