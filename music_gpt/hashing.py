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
