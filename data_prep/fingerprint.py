"""the notes of a piece -> a few hundred hashes of its melody and bass, to compare pieces by.

Two pieces share hashes if they share turns of melody or bass, whatever their key, tempo, file name
or length. Only intervals between successive chords count; notes within 50 ms are one chord, of
which the highest and the lowest note are kept, so a score and a performance of it agree.
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

Hashes = npt.NDArray[np.uint64]


def fingerprint(notes: Notes, *, size: int = SKETCH_SIZE) -> Hashes:
    """The `size` smallest hashes of the turns in `notes` (sorted by start), ascending, no doubles.

    Transposition and a change of tempo leave them as they are.
    """
    if not len(notes):
        return np.zeros(0, dtype=np.uint64)
    heads = _chord_heads(notes["start"])
    pitch = notes["pitch"].astype(np.int64)
    melody = np.maximum.reduceat(pitch, heads)  # (chords,)
    bass = np.minimum.reduceat(pitch, heads)
    hashes = np.concatenate([_turns(melody, salt=1), _turns(bass, salt=2)])
    smallest: Hashes = np.unique(hashes)[:size]
    return smallest


def _chord_heads(starts: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Index of the first note of each chord: a chord is what begins within 50 ms of its head."""
    heads: list[int] = []
    head = -np.inf
    for i, start in enumerate(starts.tolist()):
        if start - head > CHORD_SECONDS:
            heads.append(i)
            head = start
    return np.array(heads, dtype=np.int64)


def _turns(voice: npt.NDArray[np.int64], salt: int) -> Hashes:
    """A hash of every window of intervals in the voice that is not everybody's."""
    intervals = np.diff(voice)
    if len(intervals) < N_INTERVALS:
        return np.zeros(0, dtype=np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(intervals, N_INTERVALS)  # (W, n)
    ordered = np.sort(windows, axis=1)
    different = 1 + (np.diff(ordered, axis=1) != 0).sum(axis=1)
    telling = different >= MIN_DIFFERENT
    for period in (2, 3, 4):
        telling &= (windows[:, period:] != windows[:, :-period]).any(axis=1)
    return _mix(windows[telling], salt)


def _mix(windows: npt.NDArray[np.int64], salt: int) -> Hashes:
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
