"""fingerprints of pieces -> which of them are one composition, and the split of each composition.

Knows nothing of files: pieces are numbers from 0. No two performances of a composition come into
two splits. A composition's place depends on its content and the seed only, not on what else lies
in the folder, so a corpus that grows keeps its splits where no new piece joins two compositions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data_prep.fingerprint import SKETCH_SIZE, Hashes
from music_gpt.corpus import SPLITS

SAME_COMPOSITION = 0.08
"""Share of the turns of the shorter piece that two pieces of one composition have in common."""
MIN_COMMON = 8
"""Turns that they have in common at least: fewer are chance between short pieces."""
COMMON_HASH = 24
"""A turn of more pieces is compared between neighbours only: it tells little, and costs much."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Pairs of pieces that share turns: three arrays of one length, `first` < `second`."""

    first: Ints
    second: Ints
    similarity: npt.NDArray[np.float64]
    """Estimated share of the turns of the shorter piece that the other has too, 0 to 1."""
    common: Ints
    """Number of hashes that were compared and found equal."""


def similar_pairs(sketches: Sequence[Hashes]) -> Pairs:
    """All pairs of pieces with at least `MIN_COMMON` equal hashes in their sketches."""
    n = len(sketches)
    counts: Counter[int] = Counter()
    for keys in _pair_keys(sketches):
        unique, times = np.unique(keys, return_counts=True)
        counts.update(dict(zip(unique.tolist(), times.tolist(), strict=True)))
    keys = np.array(sorted(k for k, c in counts.items() if c >= MIN_COMMON), dtype=np.int64)
    first, second = keys // max(n, 1), keys % max(n, 1)
    found = [_compare(sketches[a], sketches[b]) for a, b in zip(first, second, strict=True)]
    similarity = np.array([share for share, _ in found], dtype=np.float64)
    common = np.array([shared for _, shared in found], dtype=np.int64)
    return Pairs(first, second, similarity, common)


def _pair_keys(sketches: Sequence[Hashes]) -> Iterator[Ints]:
    """For each hash that several pieces have: first * n + second of each pair of them."""
    n = len(sketches)
    owner = np.repeat(np.arange(n), [len(sketch) for sketch in sketches])
    hashes = np.concatenate([*sketches, np.zeros(0, dtype=np.uint64)])
    order = np.argsort(hashes, kind="stable")  # owners stay ascending within a hash
    hashes, owner = hashes[order], owner[order]
    heads = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))[: len(hashes)]
    sizes = np.diff(np.concatenate([heads, [len(hashes)]]))
    for size in range(2, COMMON_HASH + 1):
        owners = owner[heads[sizes == size][:, None] + np.arange(size)]  # (hashes, size)
        a, b = np.triu_indices(size, 1)
        yield (owners[:, a] * n + owners[:, b]).ravel()
    for head, size in zip(heads[sizes > COMMON_HASH], sizes[sizes > COMMON_HASH], strict=True):
        owners = owner[head : head + size]
        yield owners[:-1] * n + owners[1:]


def _compare(a: Hashes, b: Hashes) -> tuple[float, int]:
    """Similarity and number of equal hashes of two sketches.

    A sketch that is full holds all hashes up to its last one only, so both are cut there.
    """
    bounds = [sketch[-1] for sketch in (a, b) if len(sketch) == SKETCH_SIZE]
    if bounds:
        a, b = a[a <= min(bounds)], b[b <= min(bounds)]
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / max(1, min(len(a), len(b))), common


def compositions(n: int, pairs: Pairs) -> Ints:
    """Number of the composition of each of `n` pieces: pieces that are alike, directly or not."""
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    same = (pairs.similarity >= SAME_COMPOSITION) & (pairs.common >= MIN_COMMON)
    for a, b in zip(pairs.first[same].tolist(), pairs.second[same].tolist(), strict=True):
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return np.array([root(i) for i in range(n)], dtype=np.int64)


def composition_names(groups: Ints, checksums: Sequence[str]) -> list[str]:
    """A name for each piece's composition: made from content, so it outlives new file names."""
    smallest: dict[int, str] = {}
    for group, checksum in zip(groups.tolist(), checksums, strict=True):
        smallest[group] = min(checksum, smallest.get(group, checksum))
    return [smallest[group][:16] for group in groups.tolist()]


def assign_splits(
    names: Sequence[str],
    fixed: Mapping[int, str],
    *,
    validation: float,
    test: float,
    seed: int,
) -> list[str]:
    """The split of each piece, given the name of its composition.

    `fixed` says the split of some pieces; the others of their composition follow them. If nothing
    is fixed, each split with a share gets a composition as long as there are enough.

    >>> assign_splits(["a", "b", "a"], {0: "test"}, validation=0, test=0, seed=0)
    ['test', 'train', 'test']
    """
    drawn = _draw(sorted(set(names)), validation, test, seed)
    if not fixed:
        drawn = _fill_empty(drawn, validation, test, seed)
    votes: dict[str, Counter[str]] = {}
    for piece, split in fixed.items():
        votes.setdefault(names[piece], Counter())[split] += 1
    for name, counter in votes.items():
        drawn[name] = max(SPLITS, key=lambda split: counter[split])
    return [fixed.get(piece, drawn[name]) for piece, name in enumerate(names)]


def _draw(names: Sequence[str], validation: float, test: float, seed: int) -> dict[str, str]:
    splits = {}
    for name in names:
        position = _position(name, seed)
        after_test = "validation" if position < test + validation else "train"
        splits[name] = "test" if position < test else after_test
    return splits


def _position(name: str, seed: int) -> float:
    """A number from 0 up to 1 that looks random."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _fill_empty(
    splits: dict[str, str], validation: float, test: float, seed: int
) -> dict[str, str]:
    """Give a split that has a share but drew nothing the composition that came nearest to it."""
    queue = sorted(splits, key=lambda name: _position(name, seed))
    if "train" not in splits.values():
        splits[queue[-1]] = "train"
    for wanted, share in (("validation", validation), ("test", test)):
        counts = Counter(splits.values())
        spare = [name for name in queue if counts[splits[name]] > 1]
        if share and not counts[wanted] and spare:
            splits[spare[0]] = wanted
    return splits


def highest_across_splits(pairs: Pairs, splits: Sequence[str], limit: int = 20) -> list[int]:
    """Positions in `pairs` of the most similar pieces that lie in two splits, likest first."""
    codes = np.array([SPLITS.index(split) for split in splits], dtype=np.int64)
    across = np.flatnonzero(codes[pairs.first] != codes[pairs.second])
    order = np.argsort(-pairs.similarity[across], kind="stable")
    return [int(i) for i in across[order][:limit]]
