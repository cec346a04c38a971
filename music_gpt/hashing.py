"""Whole numbers in a row -> a hash of each window of them: the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]


def window_hashes(
    values: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], n: int, *, salt: int = 0
) -> Hashes:
    """A 64-bit hash of the `n` values from each of `begins` on, as many as there are beginnings.

    Source: splitmix64 (Steele, Lea and Flood 2014), one round a value.

    >>> one, other, again = window_hashes(np.array([2, 2, 1, 2, 2]), np.array([0, 1, 3]), 2)
    >>> bool(one == again), bool(one == other)
    (True, False)
    """
    state = np.full(len(begins), salt, dtype=np.uint64)
    numbers = values.astype(np.uint64)  # negative ones wrap, which is well defined
    for i in range(n):
        state += numbers[begins + i] + np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(30)
        state *= np.uint64(0xBF58476D1CE4E5B9)
        state ^= state >> np.uint64(27)
        state *= np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def hashes_of_all_windows(values: npt.NDArray[np.int64], n: int, *, salt: int = 0) -> Hashes:
    """A 64-bit hash of every `n` values in a row: (len(values) - n + 1,), or none at all.

    A window's hash is made of those of its two halves, so long windows cost little more than short
    ones, and many much less than with `window_hashes`, whose hashes are others.

    >>> one, _, _, again = hashes_of_all_windows(np.array([2, 1, 3, 2, 1]), 2)
    >>> bool(one == again)
    True
    """
    if len(values) < n:
        return np.zeros(0, np.uint64)
    hashes = _stirred(values.astype(np.uint64) + np.uint64(salt << 32))
    width = 1
    while width < n:
        step = min(width, n - width)  # the halves overlap where `n` is no power of two
        hashes = _stirred(hashes[:-step] * np.uint64(0x94D049BB133111EB) + hashes[step:])
        width += step
    return hashes


def _stirred(numbers: Hashes) -> Hashes:
    """The numbers, changed in place so that each bit depends on most others."""
    numbers ^= numbers >> np.uint64(32)
    numbers *= np.uint64(0x9E3779B97F4A7C15)
    numbers ^= numbers >> np.uint64(29)
    return numbers
