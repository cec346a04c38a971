"""the notes of a piece -> some hundred hashes of its melody and bass, to compare pieces by.

Two pieces share hashes if they share turns of melody or bass, whatever their key, tempo, file name
or length. Only intervals between successive chords count; notes within 50 ms are one chord, of
which the highest and the lowest note are kept, so a score and a performance of it agree.

A second, smaller set of hashes has the times too: those only the same recording shares.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from music_gpt.hashing import Hashes, window_hashes
from music_gpt.midi_mending import follow
from music_gpt.notes import Notes

CHORD_SECONDS = 0.05
N_INTERVALS = 8
"""Intervals in one hash: long enough to be rare, short enough to survive between two slips."""
MIN_DIFFERENT = 4
"""Turns with fewer different intervals (scales, trills, broken chords) are everybody's."""
SKETCH_SIZE = 1024
"""Hashes kept of one piece, the smallest: a random sample that is the same for equal turns."""

TIMED_INTERVALS = 6
"""Intervals in one hash with times: no hand plays so many twice within the same 10 ms."""
TIMED_SKETCH_SIZE = 512

Ints = npt.NDArray[np.int64]


def fingerprint(notes: Notes, *, size: int = SKETCH_SIZE) -> Hashes:
    """The `size` smallest hashes of the turns in `notes` (sorted by start), ascending, no doubles.

    Transposition and a change of tempo leave them as they are.
    """
    return fingerprints(notes, size=size)[0]


def fingerprints(
    notes: Notes, *, size: int = SKETCH_SIZE, timed_size: int = TIMED_SKETCH_SIZE
) -> tuple[Hashes, Hashes]:
    """The fingerprint of the composition and that of the recording, which has the times too."""
    if not len(notes):
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64)
    start = notes["start"].copy()  # numpy takes places out of a column of its own much faster
    heads = _chord_heads(start)
    pitch = notes["pitch"].astype(np.int64)
    melody = np.diff(np.maximum.reduceat(pitch, heads))  # (chords - 1,) intervals
    bass = np.diff(np.minimum.reduceat(pitch, heads))
    waits = np.diff(np.rint(start[heads] * 100).astype(np.int64))  # in 10 ms
    timed = melody * 1024 + np.minimum(waits, 1023)
    of_melody, of_bass = _steps_to_equal(melody), _steps_to_equal(bass)
    hashes = np.concatenate(
        [
            window_hashes(melody, _telling(melody, of_melody, N_INTERVALS), N_INTERVALS, salt=1),
            window_hashes(bass, _telling(bass, of_bass, N_INTERVALS), N_INTERVALS, salt=2),
        ]
    )
    telling = _telling(melody, of_melody, TIMED_INTERVALS)
    timed_hashes = window_hashes(timed, telling, TIMED_INTERVALS, salt=3)
    return _smallest(hashes, size), _smallest(timed_hashes, timed_size)


def _smallest(hashes: Hashes, size: int) -> Hashes:
    """The smallest hashes, each once (sorting is ten times as fast as `np.unique` here)."""
    ordered = np.sort(hashes)
    first_of_equals = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    smallest: Hashes = ordered[first_of_equals][:size]
    return smallest


def _chord_heads(starts: npt.NDArray[np.float64]) -> Ints:
    """Index of the first note of each chord: a chord is what begins within 50 ms of its head."""
    times = np.rint(starts * 1e6).astype(np.int64)  # whole microseconds: no ties by rounding
    following = np.searchsorted(times, times + round(CHORD_SECONDS * 1e6), side="right")
    return follow(np.append(following, len(times)))[:-1]


def _steps_to_equal(intervals: Ints) -> Ints:
    """For each interval, how many steps before it the same one came last; many if it never did."""
    order = np.argsort(intervals.astype(np.int16), kind="stable")  # small numbers: a radix sort
    ordered = intervals[order]
    steps = np.full(len(intervals), N_INTERVALS)
    steps[order[1:]] = np.where(ordered[1:] == ordered[:-1], np.diff(order), N_INTERVALS)
    return steps


def _telling(intervals: Ints, steps_to_equal: Ints, n: int) -> Ints:
    """Where a window of `n` intervals begins that is no scale, trill or broken chord."""
    n_windows = max(len(intervals) - n + 1, 0)
    different = np.zeros(n_windows, np.int64)
    for i in range(n):  # the i-th interval of a window is new if its equal lies before the window
        different += steps_to_equal[i : i + n_windows] > i
    telling = different >= MIN_DIFFERENT
    for period in (2, 3, 4):
        # a window repeats itself if all of its intervals equal those one period before
        equal = np.cumsum(np.append(False, intervals[period:] == intervals[:-period]))
        span = n - period
        telling &= equal[span : span + n_windows] - equal[:n_windows] < span
    return np.flatnonzero(telling)
