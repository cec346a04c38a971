"""fingerprints of pieces -> the pairs of pieces that share hashes, and how many.

Knows nothing of files or splits: pieces are numbers from 0. However many there are, memory stays
bounded: what is more than a few million hashes goes through files in a scratch folder.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.fingerprint import TURNS, Sample
from music_gpt.arrays import Ints
from music_gpt.hashing import Hashes

COMMON_HASH = 24
"""A hash of more pieces is compared between neighbours only: it tells little, and costs much."""
HELD = 1 << 18
"""Hashes, or pairs, that are held and sorted at once."""
MOST_PARTS = 1 << 10
"""Files of hashes, or pairs, at most."""

_OWNED = np.dtype("<u8")
"""A hash whose lowest bits are the number of its piece: such are sorted by both, and fast."""
_COUNTED = np.dtype([("key", "<i8"), ("count", "<u4")])


@dataclass(frozen=True)
class Pairs:
    """Pairs of pieces that share hashes: arrays of one length, `first` < `second`, sorted."""

    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]
    common: npt.NDArray[np.int32]
    """Number of hashes that were compared and found equal."""
    similarity: npt.NDArray[np.float32]
    """Estimated share of the hashes of the shorter piece that the other has too, 0 to 1."""


def similar_pairs(
    sizes: Ints,
    hashes_of: Callable[[int], Hashes],
    scratch: Path | None = None,
    *,
    sample: Sample = TURNS,
) -> Pairs:
    """All pairs of pieces with at least `sample.min_common` equal hashes.

    `sizes` (N,) says how many hashes of each piece `sample` has kept, and `hashes_of` gives them;
    it is asked for the pieces in order, twice at most. `scratch` is a folder to make, and to remove
    at the end; without one all is held in memory.
    """
    n, n_hashes = len(sizes), int(sizes.sum(dtype=np.int64))
    n_parts = 1 if scratch is None else min(1 + n_hashes // HELD, MOST_PARTS)
    ends, n_bits = np.zeros(n, np.uint64), _bits(n)
    with (
        _Parts(scratch, n_parts, "hashes", _OWNED) as hashes,
        _Parts(scratch, n_parts, "counts", _COUNTED) as counts,
    ):
        for piece in range(n):
            kept = hashes_of(piece)
            ends[piece] = sample.end(kept)
            hashes.add(kept >> n_bits << n_bits | np.uint64(piece), by=kept)
        for part in hashes:
            for keys in _pair_keys(np.sort(part), n):
                counted = _counted(np.sort(keys))
                counts.add(counted, by=counted["key"].astype(np.uint64) // np.uint64(n))
        sums = [_summed(part) for part in counts]
        found = np.concatenate([part[part["count"] >= sample.min_common] for part in sums])
    found.sort(order="key")
    first, second = (column.astype(np.int32) for column in np.divmod(found["key"], n))
    compared = _hashes_compared(first, second, sizes, ends, hashes_of)
    similarity = (found["count"] / np.maximum(compared, 1)).astype(np.float32)
    return Pairs(first, second, found["count"].astype(np.int32), similarity)


def _bits(n: int) -> np.uint64:
    """Bits that tell `n` pieces apart."""
    return np.uint64(max(n - 1, 0).bit_length())


def _pair_keys(owned: Hashes, n: int) -> Iterator[Ints]:
    """For each hash that several pieces have: first * n + second of each pair of them."""
    hashes = owned >> _bits(n)
    owner = (owned - (hashes << _bits(n))).astype(np.int64)  # ascending within a hash
    heads = _heads(hashes)
    sizes = np.diff(np.append(heads, len(hashes)))
    heads, sizes = heads[sizes > 1], sizes[sizes > 1]  # the others make no pair
    for size in range(2, COMMON_HASH + 1):
        heads_of_size = heads[sizes == size]
        a, b = np.triu_indices(size, 1)
        step = HELD // len(a)
        for i in range(0, len(heads_of_size), step):
            owners = owner[heads_of_size[i : i + step, None] + np.arange(size)]  # (hashes, size)
            yield (owners[:, a] * n + owners[:, b]).ravel()
    for head, size in zip(heads[sizes > COMMON_HASH], sizes[sizes > COMMON_HASH], strict=True):
        owners = owner[head : head + size]
        yield owners[:-1] * n + owners[1:]


def _heads(ordered: npt.NDArray[Any]) -> Ints:
    """Where each value comes first."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])


def _counted(keys: Ints) -> npt.NDArray[np.void]:
    """Each of the ascending keys once, and how often it comes."""
    heads = _heads(keys)
    counted = np.empty(len(heads), _COUNTED)
    counted["key"] = keys[heads]
    counted["count"] = np.diff(np.append(heads, len(keys)))
    return counted


def _summed(counted: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Each key once, with the sum of its counts."""
    ordered = counted[np.argsort(counted["key"])]
    heads = _heads(ordered["key"])
    summed = ordered[heads]
    summed["count"] = np.add.reduceat(ordered["count"], heads) if len(heads) else 0
    return summed


def _hashes_compared(
    first: npt.NDArray[np.int32],
    second: npt.NDArray[np.int32],
    sizes: Ints,
    ends: Hashes,
    hashes_of: Callable[[int], Hashes],
) -> Ints:
    """Hashes of the shorter piece of each pair, of which both know whether they have them.

    Of a piece that is not kept whole, what lies above the end of its sample is not known.
    """
    reaches_less = ends[first] <= ends[second]
    short, long = np.where(reaches_less, first, second), np.where(reaches_less, second, first)
    inside = np.zeros(len(first), np.int64)
    order = np.argsort(long, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(long[order])) + 1):
        if len(same):
            kept = hashes_of(int(long[same[0]]))
            inside[same] = np.searchsorted(kept, ends[short[same]], side="right")
    return np.minimum(sizes[short], inside)


class _Parts:
    """Rows that are added, and come back in parts: those with equal `by` in the same one.

    One part is held in memory; several lie in files in `folder`, and of new rows so many are held.
    """

    def __init__(self, folder: Path | None, n: int, name: str, dtype: np.dtype[Any]) -> None:
        self.n = n
        self.dtype = dtype
        self.folder = None if folder is None else folder / name
        self._held: list[npt.NDArray[Any]] = []
        self._parts_of_held: list[npt.NDArray[np.uint16]] = []
        self._n_held = 0

    def __enter__(self) -> _Parts:
        self._clear()  # what a run left that was killed
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def _clear(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # the other one still needs it
                self.folder.parent.rmdir()

    def add(self, rows: npt.NDArray[Any], *, by: Hashes) -> None:
        """Keep the rows."""
        self._held.append(rows)
        self._n_held += len(rows)
        if self.n > 1:
            self._parts_of_held.append((by % np.uint64(self.n)).astype(np.uint16))
            if self._n_held > HELD:
                self._write()

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """The parts; each row is in one of them, in the order in which it was added."""
        if self.n == 1:
            yield np.concatenate([np.zeros(0, self.dtype), *self._held])
            return
        self._write()
        for part in range(self.n):
            if self._file(part).exists():
                yield np.fromfile(self._file(part), self.dtype)

    def _write(self) -> None:
        rows = np.concatenate([np.zeros(0, self.dtype), *self._held])
        parts = np.concatenate([np.zeros(0, np.uint16), *self._parts_of_held])
        self._held, self._parts_of_held, self._n_held = [], [], 0
        order = np.argsort(parts, kind="stable")
        heads = np.flatnonzero(np.diff(parts[order], prepend=self.n))
        self._file(0).parent.mkdir(parents=True, exist_ok=True)
        for some in np.split(order, heads[1:]) if len(order) else ():
            with self._file(int(parts[some[0]])).open("ab") as file:
                rows[some].tofile(file)

    def _file(self, part: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{part:05d}"
