"""the notes of a piece -> some hundred hashes of its melody and bass, to compare pieces by.

Two pieces share hashes if they share turns of melody or bass, whatever their key, tempo, file name
or length. Only intervals between successive chords count; notes within 50 ms are one chord, of
which the highest and the lowest note are kept, so a score and a performance of it agree.

A second, smaller set of hashes has the times too: those only the same recording shares.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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

Hashes = npt.NDArray[np.uint64]


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
    heads = _chord_heads(notes["start"])
    pitch = notes["pitch"].astype(np.int64)
    melody = np.maximum.reduceat(pitch, heads)  # (chords,)
    bass = np.minimum.reduceat(pitch, heads)
    hashes = np.concatenate([_turns(melody, salt=1), _turns(bass, salt=2)])
    timed = _timed_turns(melody, notes["start"][heads])
    return _smallest(hashes, size), _smallest(timed, timed_size)


def _smallest(hashes: Hashes, size: int) -> Hashes:
    """The smallest hashes, each once (sorting is ten times as fast as `np.unique` here)."""
    ordered = np.sort(hashes)
    first_of_equals = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    smallest: Hashes = ordered[first_of_equals][:size]
    return smallest


def _chord_heads(starts: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Index of the first note of each chord: a chord is what begins within 50 ms of its head."""
    times = np.rint(starts * 1e6).astype(np.int64)  # whole microseconds: no ties by rounding
    following = np.searchsorted(times, times + round(CHORD_SECONDS * 1e6), side="right").tolist()
    heads, head, n = [], 0, len(times)
    while head < n:
        heads.append(head)
        head = following[head]
    return np.array(heads, dtype=np.int64)


def _turns(voice: npt.NDArray[np.int64], salt: int) -> Hashes:
    """A hash of every window of intervals in the voice that is not everybody's."""
    intervals = np.diff(voice).astype(np.int16)  # small numbers are sorted many times as fast
    return _mix(_telling_windows(intervals, intervals, N_INTERVALS), salt)


def _timed_turns(voice: npt.NDArray[np.int64], starts: npt.NDArray[np.float64]) -> Hashes:
    """A hash of every such window with the 10 ms in which each interval lasts."""
    intervals = np.diff(voice)
    waits = np.minimum(np.diff(np.rint(starts * 100).astype(np.int64)), 1023)
    timed = (intervals * 1024 + waits).astype(np.int32)
    return _mix(_telling_windows(timed, intervals.astype(np.int16), TIMED_INTERVALS), salt=3)


def _telling_windows(
    values: npt.NDArray[np.integer], intervals: npt.NDArray[np.int16], n: int
) -> npt.NDArray[np.integer]:
    """(W, n) windows of the values where the intervals are no scale, trill or broken chord."""
    if len(intervals) < n:
        return values[:0].reshape(0, n)
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(intervals, n), axis=1)
    telling = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) >= MIN_DIFFERENT
    for period in (2, 3, 4):
        # a window repeats itself if all of its intervals equal those one period before
        equal = np.cumsum(np.append(False, intervals[period:] == intervals[:-period]))
        span = n - period
        telling &= equal[span:] - equal[:-span] < span
    windows: npt.NDArray[np.integer] = np.lib.stride_tricks.sliding_window_view(values, n)[telling]
    return windows


def _mix(windows: npt.NDArray[np.integer], salt: int) -> Hashes:
    """A 64-bit hash of each row (splitmix64 over its numbers): the same on every machine."""
    state = np.full(len(windows), salt, dtype=np.uint64)
    for column in windows.astype(np.uint64).T:  # negative intervals wrap, which is well defined
        state += column + np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(30)
        state *= np.uint64(0xBF58476D1CE4E5B9)
        state ^= state >> np.uint64(27)
        state *= np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state
