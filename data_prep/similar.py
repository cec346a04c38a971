"""fingerprints of pieces -> the pairs of pieces that share turns of melody or bass, and how many.

Knows nothing of files or splits: pieces are numbers from 0. However many there are, memory stays
bounded: what is more than a few million hashes goes through files in a scratch folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from data_prep.fingerprint import SKETCH_SIZE
from music_gpt.hashing import Hashes

MIN_COMMON = 8
"""Turns that two like pieces have in common at least: fewer are chance between short pieces."""
COMMON_HASH = 24
"""A turn of more pieces is compared between neighbours only: it tells little, and costs much."""
HELD = 1 << 18
"""Hashes, or pairs, that are held and sorted at once."""
MOST_PARTS = 1 << 10
"""Files of hashes, or pairs, at most."""

Ints = npt.NDArray[np.int64]
_OWNED = np.dtype([("hash", "<u8"), ("owner", "<u4")])
_COUNTED = np.dtype([("key", "<i8"), ("count", "<u4")])


@dataclass(frozen=True)
class Pairs:
    """Pairs of pieces that share turns: arrays of one length, `first` < `second`, sorted."""

    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]
    common: npt.NDArray[np.int32]
    """Number of hashes that were compared and found equal."""
    similarity: npt.NDArray[np.float32]
    """Estimated share of the turns of the shorter piece that the other has too, 0 to 1."""


def similar_pairs(
    n: int,
    sketch_of: Callable[[int], Hashes],
    scratch: Path | None = None,
    *,
    sketch_size: int = SKETCH_SIZE,
) -> Pairs:
    """All pairs of the pieces 0 to n-1 with at least `MIN_COMMON` equal hashes in their sketches.

    `sketch_of` is asked for the pieces in order, twice at most; a sketch of `sketch_size` hashes
    is full. `scratch` is a folder to make, and to remove at the end; without one all is held in
    memory.
    """
    n_parts = 1 if scratch is None else min(1 + n * sketch_size // HELD, MOST_PARTS)
    sizes, ends = np.zeros(n, np.int64), np.full(n, np.iinfo(np.uint64).max, np.uint64)
    with _Parts(scratch, n_parts, _OWNED) as hashes, _Parts(scratch, n_parts, _COUNTED) as counts:
        for piece in range(n):
            sketch = sketch_of(piece)
            sizes[piece] = len(sketch)
            if len(sketch) == sketch_size:
                ends[piece] = sketch[-1]
            owned = np.empty(len(sketch), _OWNED)
            owned["hash"], owned["owner"] = sketch, piece
            hashes.add(owned, by=sketch)
        for part in hashes:
            for keys in _pair_keys(part, n):
                counted = _sum_up(keys, np.ones(len(keys), np.uint32))
                counts.add(counted, by=counted["key"].astype(np.uint64) // np.uint64(n))
        sums = [_sum_up(part["key"], part["count"]) for part in counts]
        found = np.concatenate([part[part["count"] >= MIN_COMMON] for part in sums])
    found.sort(order="key")
    first, second = (column.astype(np.int32) for column in np.divmod(found["key"], n))
    compared = _hashes_compared(first, second, sizes, ends, sketch_of)
    similarity = (found["count"] / np.maximum(compared, 1)).astype(np.float32)
    return Pairs(first, second, found["count"].astype(np.int32), similarity)


def _pair_keys(owned: npt.NDArray[np.void], n: int) -> Iterator[Ints]:
    """For each hash that several pieces have: first * n + second of each pair of them."""
    hashes, owner = owned["hash"].copy(), owned["owner"].astype(np.int64)
    order = np.argsort(hashes)
    equal = np.append(False, np.diff(hashes[order]) == 0)[: len(order)]
    shared = np.sort(order[equal | np.append(equal[1:], False)])  # the others make no pair
    hashes, owner = hashes[shared], owner[shared]
    order = np.argsort(hashes, kind="stable")  # owners stay ascending within a hash
    hashes, owner = hashes[order], owner[order]
    heads = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    sizes = np.diff(np.append(heads, len(hashes)))
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


def _sum_up(keys: Ints, counts: npt.NDArray[np.uint32]) -> npt.NDArray[np.void]:
    """Each key once, with the sum of its counts."""
    order = np.argsort(keys)
    keys = keys[order]
    heads = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    summed = np.empty(len(heads), _COUNTED)
    summed["key"] = keys[heads]
    summed["count"] = np.add.reduceat(counts[order], heads) if len(heads) else 0
    return summed


def _hashes_compared(
    first: npt.NDArray[np.int32],
    second: npt.NDArray[np.int32],
    sizes: Ints,
    ends: Hashes,
    sketch_of: Callable[[int], Hashes],
) -> Ints:
    """Hashes of the shorter sketch of each pair, cut where the other one ends.

    A sketch that is full holds only the hashes up to its last one; what lies above is not known.
    """
    reaches_less = ends[first] <= ends[second]
    short, long = np.where(reaches_less, first, second), np.where(reaches_less, second, first)
    inside = np.zeros(len(first), np.int64)
    order = np.argsort(long, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(long[order])) + 1):
        if len(same):
            sketch = sketch_of(int(long[same[0]]))
            inside[same] = np.searchsorted(sketch, ends[short[same]], side="right")
    return np.minimum(sizes[short], inside)


class _Parts:
    """Rows that are added, and come back in parts: those with equal `by` in the same one.

    One part is held in memory; several lie in files in `folder`, and of new rows so many are held.
    """

    def __init__(self, folder: Path | None, n: int, dtype: np.dtype[np.void]) -> None:
        self.n = n
        self.dtype = dtype
        self.folder = None if folder is None else folder / "-".join(dtype.names or ())
        self._held: list[npt.NDArray[np.void]] = []
        self._parts_of_held: list[npt.NDArray[np.uint16]] = []
        self._n_held = 0

    def __enter__(self) -> _Parts:
        self._clear()  # what a run left that was killed
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, rows: npt.NDArray[np.void], *, by: Hashes) -> None:
        """Keep the rows."""
        self._held.append(rows)
        self._n_held += len(rows)
        if self.n > 1:
            self._parts_of_held.append((by % np.uint64(self.n)).astype(np.uint16))
            if self._n_held > HELD:
                self._write()

    def __iter__(self) -> Iterator[npt.NDArray[np.void]]:
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
