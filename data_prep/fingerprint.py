"""the notes of a piece -> some hundred hashes of what is played, to compare pieces by.

Three kinds of hash, each blind to what deceives the others. A turn is a row of intervals of the
melody or the bass: notes within 50 ms are one chord, of which the highest and the lowest are kept,
so a score and a performance of it agree. A figure is a row of intervals of all notes, one after the
other: it needs no chords, which a roll spreads and a fast score crowds. A timed turn has the times
too, which only the same recording shares. Key, tempo, file name and length change no turn and no
figure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Ints
from music_gpt.hashing import Hashes, hashes_of_all_windows
from music_gpt.midi.mending import follow
from music_gpt.notes import Notes

CHORD_SECONDS = 0.05
TURN_INTERVALS = 8
"""Intervals in a turn: long enough to be rare, short enough to survive between two slips."""
DIFFERENT_IN_TURN = 4
"""Turns with fewer different intervals (scales, trills, broken chords) are everybody's."""
TIMED_INTERVALS = 6
"""Intervals in a timed turn: no hand plays so many twice within the same 10 ms."""

FIGURE_INTERVALS = 12
FIGURE_CHORD_FRAMES = 2
"""Notes that begin within 20 ms of the one before stand in a figure from low to high."""
DIFFERENT_IN_FIGURE = 8
"""Figures with fewer different intervals are broken chords, or a roll's test of its valves."""


class Sample(NamedTuple):
    """Which hashes of a piece are kept: so many of the smallest, and all below a number.

    Equal hashes are kept or left in every piece, so two samples tell how much two pieces share.
    """

    smallest: int
    below: int
    min_common: int
    """Fewer in common are chance."""

    def of(self, hashes: Hashes) -> Hashes:
        """What is kept of the hashes, ascending, each once."""
        below = _ascending(hashes[hashes < self.below])
        return below if len(below) >= self.smallest else _ascending(hashes)[: self.smallest]

    def end(self, kept: Hashes) -> int:
        """Up to this number no hash is missing in what was kept of a piece."""
        if len(kept) < self.smallest:
            return int(np.iinfo(np.uint64).max)
        return max(int(kept[-1]) if len(kept) else 0, self.below - 1)


# Of a long piece an eighth or a quarter of all is kept, so that a movement in it stays known.
TURNS = Sample(1024, 1 << 61, min_common=8)
TIMED_TURNS = Sample(512, 0, min_common=8)
FIGURES = Sample(0, 1 << 62, min_common=4)


class Fingerprints(NamedTuple):
    """What is kept of a piece's hashes of each kind."""

    turns: Hashes
    timed_turns: Hashes
    figures: Hashes


def fingerprints(notes: Notes) -> Fingerprints:
    """The fingerprints of `notes`, which are sorted by start."""
    if not len(notes):
        return Fingerprints(*np.zeros((3, 0), np.uint64))
    start = notes["start"].copy()  # numpy takes places out of a column of its own much faster
    pitch = notes["pitch"].astype(np.int64)
    heads = _chord_heads(start)
    frames = np.rint(start * 100).astype(np.int64)  # of 10 ms
    melody = np.diff(np.maximum.reduceat(pitch, heads))  # (chords - 1,) intervals
    bass = np.diff(np.minimum.reduceat(pitch, heads))
    timed = melody * 1024 + np.minimum(np.diff(frames[heads]), 1023)
    of_melody = _turns(melody, melody, TURN_INTERVALS, salt=1)
    of_bass = _turns(bass, bass, TURN_INTERVALS, salt=2)
    return Fingerprints(
        TURNS.of(np.concatenate([of_melody, of_bass])),
        TIMED_TURNS.of(_turns(timed, melody, TIMED_INTERVALS, salt=3)),
        FIGURES.of(_figures(pitch, frames)),
    )


def _ascending(hashes: Hashes) -> Hashes:
    """Each hash once (sorting is ten times as fast as `np.unique` here)."""
    ordered = np.sort(hashes)
    first_of_equals = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    once: Hashes = ordered[first_of_equals]
    return once


def _chord_heads(starts: npt.NDArray[np.float64]) -> Ints:
    """Index of the first note of each chord: a chord is what begins within 50 ms of its head."""
    times = np.rint(starts * 1e6).astype(np.int64)  # whole microseconds: no ties by rounding
    following = np.searchsorted(times, times + round(CHORD_SECONDS * 1e6), side="right")
    return follow(np.append(following, len(times)))[:-1]


def _turns(values: Ints, intervals: Ints, n: int, *, salt: int) -> Hashes:
    """Hashes of `n` values in a row whose intervals are no scale, trill or broken chord."""
    hashes = hashes_of_all_windows(values, n, salt=salt)
    telling = _different(intervals, n) >= DIFFERENT_IN_TURN
    for period in (2, 3, 4):
        # a window repeats itself if all of its intervals equal those one period before
        equal = np.cumsum(np.append(False, intervals[period:] == intervals[:-period]))
        span = n - period
        telling &= equal[span : span + len(hashes)] - equal[: len(hashes)] < span
    return hashes[telling]


def _figures(pitch: Ints, frames: Ints) -> Hashes:
    """Hashes of twelve intervals in a row, of all notes in the order in which they begin."""
    chord = np.cumsum(np.diff(frames, prepend=frames[0]) > FIGURE_CHORD_FRAMES)
    intervals = np.diff(np.sort(chord * 128 + pitch) & 127)
    hashes = hashes_of_all_windows(intervals, FIGURE_INTERVALS, salt=4)
    return hashes[_different(intervals, FIGURE_INTERVALS) >= DIFFERENT_IN_FIGURE]


def _different(intervals: Ints, n: int) -> npt.NDArray[np.uint8]:
    """How many different intervals are in each `n` in a row (two 64 apart count as one)."""
    if len(intervals) < n:
        return np.zeros(0, np.uint8)
    seen = np.uint64(1) << (intervals & 63).astype(np.uint64)  # a bit for each
    width = 1
    while width < n:
        step = min(width, n - width)
        seen, width = seen[:-step] | seen[step:], width + step
    different: npt.NDArray[np.uint8] = np.bitwise_count(seen)
    return different
