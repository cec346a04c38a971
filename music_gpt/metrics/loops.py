"""Notes of a passage -> whether it repeats itself: exactly, or stuck in a figure.

Real music does both, on purpose and rarely, so a rate means nothing without that of real passages
beside it. The module knows neither networks nor files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from music_gpt.notes import Notes
from music_gpt.tokens.events import encode_notes

LOOP_EVENTS, LOOP_PITCHES = 128, 32
"""Events, or pitches whatever their times, that say again what stands right before them."""
LONGEST_PERIOD = 512
"""Longest stretch that counts as said again."""
STUCK_SECONDS, STUCK_SHARE = 8.0, 0.9
"""For so long, so many of the pitches are those of a figure that goes round."""
LONGEST_FIGURE, FEWEST_REPEATED = 16, 5
"""Pitches of the longest figure; fewest pitches that repeat one."""
KINDS = ("events", "pitches", "stuck")
"""What `looping` tells, in its order."""


def looping(notes: Notes) -> tuple[bool, bool, bool]:
    """Whether a passage has a loop of events, one of pitches, and whether it is stuck."""
    return (
        has_loop(encode_notes(notes), LOOP_EVENTS),
        has_loop(notes["pitch"], LOOP_PITCHES),
        is_stuck(notes),
    )


def has_loop(row: npt.NDArray[np.integer[Any]], shortest: int) -> bool:
    """Whether a stretch of `shortest` or more of `row` (N) says again what stands right before it.

    >>> has_loop(np.array([60, 62] * 4), 6), has_loop(np.array([60, 62] * 3), 6)
    (True, False)
    """
    for period in range(1, min(LONGEST_PERIOD, len(row) - 1) + 1):
        equal = row[period:] == row[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]])))
        longest = int((edges[1::2] - edges[::2]).max(initial=0))
        if longest >= max(shortest, period):
            return True
    return False


def is_stuck(notes: Notes) -> bool:
    """Whether a figure goes round for `STUCK_SECONDS`, three times, but for a note here and there.

    A trill and one bass note a second are such figures, and so are two chords in turn.
    """
    pitch, start = notes["pitch"], notes["start"]
    for period in range(1, min(LONGEST_FIGURE, len(pitch) - 1) + 1):
        again = np.concatenate([[0], np.cumsum(pitch[period:] == pitch[:-period])])
        at = start[period:]
        first = np.searchsorted(at, at - STUCK_SECONDS, side="right") - 1  # it began before that
        whole = np.flatnonzero(first >= 0)
        n_notes, n_again = whole - first[whole], again[whole + 1] - again[first[whole] + 1]
        enough = n_notes >= max(2 * period, FEWEST_REPEATED)
        if ((n_again >= STUCK_SHARE * n_notes) & enough).any():
            return True
    return False
