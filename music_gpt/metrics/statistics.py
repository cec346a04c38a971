"""Notes -> statistics of a passage, and two sets of passages -> how far their statistics agree.

Names and formulas are MusPy's where MusPy has them (Dong et al. 2020); what needs bars or beats is
left out, for there are none. Sets are compared as mgeval does (Yang and Lerch 2020): the distances
from passage to passage inside the one set against those from it to the other set, as smooth
densities, of which the common area (1 is equal, 0 is nothing in common) and the Kullback-Leibler
divergence (0 is equal) are told. The module knows neither networks nor files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Floats
from music_gpt.keys import MAJOR
from music_gpt.notes import Notes
from music_gpt.tokens.events import FRAMES_PER_SECOND, N_PITCHES

POLYPHONY_THRESHOLD = 2
"""More pitches than this at a time count as polyphony: MusPy's default."""
REPEATED_NOTES = 8
"""Pitches in a row that make a figure, whose return counts as repetition."""
GRID = 1024
"""Points on which densities are computed."""
_SMALLEST_DENSITY = 1e-12

Statistics = dict[str, Floats]
"""Name -> one number (1) or a histogram that sums to 1; NaN where a passage has too few notes."""

_C_MAJOR = np.isin(np.arange(12), MAJOR)
_SCALES = np.array([np.roll(_C_MAJOR, root) for root in range(12)], np.float64)
"""The twelve major scales; the natural minor ones have the same notes."""
_TIME_EDGES = np.append(0.0, 2.0 ** np.arange(-5, 4.5, 0.5))
"""Bins of lengths and waits in seconds: half an octave each."""


# --- one passage ------------------------------------------------------------------------------


def statistics(notes: Notes, seconds: float) -> Statistics:
    """The statistics of a passage of `seconds` whose notes are `notes`, times from 0.

    Times are in seconds, velocities MIDI's, entropies in bits. `inter_onset_interval` is the mean
    time between moments at which something is struck, `repetition` the share of figures of eight
    pitches in a row that have stood in the passage before.

    >>> from music_gpt.midi.piece import make_notes
    >>> octave = make_notes([(0.0, 1.0, 60, 64), (0.5, 1.0, 72, 64)])
    >>> found = statistics(octave, 1.0)
    >>> [float(found[name][0]) for name in ("pitch_range", "polyphony", "pitch_entropy")]
    [12.0, 1.5, 1.0]
    """
    pitch, length = notes["pitch"].astype(np.int64), notes["end"] - notes["start"]
    used = np.bincount(pitch, minlength=N_PITCHES)
    classes = np.bincount(pitch % 12, minlength=12)
    sounding = _sounding(notes)
    waits = np.diff(np.unique(np.rint(notes["start"] * FRAMES_PER_SECOND))) / FRAMES_PER_SECOND
    numbers = {
        "pitch_range": float(np.ptp(pitch)) if len(pitch) else math.nan,
        "n_pitches_used": np.count_nonzero(used),
        "n_pitch_classes_used": np.count_nonzero(classes),
        "polyphony": _ratio(sounding.sum(), int(np.count_nonzero(sounding))),
        "polyphony_rate": _ratio(np.count_nonzero(sounding > POLYPHONY_THRESHOLD), len(sounding)),
        "pitch_entropy": _entropy(used),
        "pitch_class_entropy": _entropy(classes),
        "scale_consistency": _ratio((_SCALES @ classes).max(), len(notes)),
        "notes_per_second": len(notes) / seconds,
        "inter_onset_interval": _ratio(waits.sum(), len(waits)),
        "note_length": _ratio(length.sum(), len(notes)),
        "velocity": _ratio(notes["velocity"].sum(), len(notes)),
        "repetition": _repetition(pitch),
    }
    histograms = {
        "pitch_class_histogram": classes,
        "inter_onset_histogram": np.histogram(waits, _TIME_EDGES)[0],
        "note_length_histogram": np.histogram(length, _TIME_EDGES)[0],
        "velocity_histogram": np.histogram(notes["velocity"], np.arange(0, 129, 8))[0],
    }
    return {
        **{name: np.array([number], np.float64) for name, number in numbers.items()},
        **{name: _shares(counts) for name, counts in histograms.items()},
    }


def _ratio(part: SupportsFloat, whole: float) -> float:
    return float(part) / float(whole) if whole else math.nan


def _shares(counts: npt.NDArray[np.integer]) -> Floats:
    total = counts.sum()
    return counts / total if total else np.full(len(counts), math.nan)


def _sounding(notes: Notes) -> npt.NDArray[np.int64]:
    """Pitches that sound in each frame of 10 ms, up to the last end; each pitch counts once."""
    start = np.rint(notes["start"] * FRAMES_PER_SECOND).astype(np.int64)
    end = np.rint(notes["end"] * FRAMES_PER_SECOND).astype(np.int64)
    roll = np.zeros((N_PITCHES, int(end.max(initial=0)) + 1), np.int64)
    np.add.at(roll, (notes["pitch"], start), 1)
    np.add.at(roll, (notes["pitch"], end), -1)
    sounding: npt.NDArray[np.int64] = (np.cumsum(roll, axis=1) > 0).sum(0)[:-1]
    return sounding


def _entropy(counts: npt.NDArray[np.integer]) -> float:
    shares = _shares(counts[counts > 0])
    return float(-(shares * np.log2(shares)).sum()) if len(shares) else math.nan


def _repetition(pitch: npt.NDArray[np.int64]) -> float:
    """Source: seq-rep-n of Welleck et al. 2020, with pitches for words."""
    if len(pitch) < REPEATED_NOTES:
        return math.nan
    figures = np.lib.stride_tricks.sliding_window_view(pitch, REPEATED_NOTES)
    return 1.0 - len(np.unique(figures, axis=0)) / len(figures)


# --- two sets of passages ---------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """How far a statistic of one set of passages agrees with that of a reference."""

    overlap: float
    """Common area of the two densities of distances, 0 to 1."""
    divergence: float
    """Kullback-Leibler divergence of the second density from the first, in nats."""


def compare(reference: Sequence[Statistics], others: Sequence[Statistics]) -> dict[str, Agreement]:
    """For each statistic: distances inside `reference` against those from it to `others`."""
    return {
        name: agreement(_column(reference, name), _column(others, name)) for name in reference[0]
    }


def means(passages: Sequence[Statistics]) -> dict[str, float]:
    """The mean of each statistic that is one number."""
    columns = {
        name: _column(passages, name) for name, value in passages[0].items() if value.size == 1
    }
    return {name: _ratio(column.sum(), len(column)) for name, column in columns.items()}


def _column(passages: Sequence[Statistics], name: str) -> Floats:
    """One statistic of all passages that have it: (passages, 1 or bins)."""
    column: Floats = np.array([passage[name] for passage in passages])
    complete: Floats = column[np.isfinite(column).all(1)]
    return complete


def agreement(reference: Floats, others: Floats) -> Agreement:
    """Compare `others` (M, D) with `reference` (N, D); NaN where there are too few passages."""
    if len(reference) < 2 or not len(others):
        return Agreement(math.nan, math.nan)
    inside = _distances(reference, reference)
    inside = inside[~np.eye(len(reference), dtype=bool)]  # each from all but itself
    across = _distances(reference, others).ravel()
    low = min(inside.min(), across.min())
    high = max(inside.max(), across.max())
    if low == high:
        return Agreement(1.0, 0.0)
    one, other = (density(distances, low, high) for distances in (inside, across))
    return Agreement(overlap_area(one, other, (high - low) / (GRID - 1)), divergence(one, other))


def _distances(one: Floats, other: Floats) -> Floats:
    """Euclidean, from each to each: (N, M)."""
    squares = np.zeros((len(one), len(other)))
    for a, b in zip(one.T, other.T, strict=True):
        squares += (a[:, None] - b) ** 2
    return np.sqrt(squares)


def density(values: Floats, low: float, high: float) -> Floats:
    """Density of `values` on `GRID` points from `low` to `high`, smoothed by a Gaussian kernel.

    The kernel's width is by Scott's rule, as in SciPy's `gaussian_kde`, and no less than four
    points of the grid. The values are first shared out to the grid, which moves the density by less
    than the kernel smooths it, and takes no longer for a million distances than for a thousand.
    """
    step = (high - low) / (GRID - 1)
    width = max(float(values.std(ddof=1)) * len(values) ** -0.2, 4 * step)
    place = (values - low) / step
    left = np.minimum(place.astype(np.int64), GRID - 2)
    right_share = place - left
    mass = np.bincount(left, 1.0 - right_share, GRID)
    mass += np.bincount(left + 1, right_share, GRID)
    offsets = np.arange(1 - GRID, GRID) * step / width
    kernel = np.exp(-0.5 * offsets**2) / (width * math.sqrt(2 * math.pi))
    smooth: Floats = np.convolve(mass / len(values), kernel, mode="valid")
    return smooth


def overlap_area(one: Floats, other: Floats, step: float) -> float:
    """Area under both densities, which stand on points `step` apart."""
    return float(np.trapezoid(np.minimum(one, other), dx=step))


def divergence(one: Floats, other: Floats) -> float:
    """Kullback-Leibler divergence of `other` from `one` in nats; both are made to sum to 1."""
    p, q = (np.maximum(d, _SMALLEST_DENSITY * d.max()) for d in (one, other))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())
