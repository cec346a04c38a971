"""pairs of like pieces -> which pieces are one composition, and the split of each composition.

Knows nothing of files: pieces are numbers from 0. No two performances of a composition come into
two splits. A composition's place depends on its content and the seed only, not on what else lies
in the folder, so a corpus that grows keeps its splits where no new piece joins two compositions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.similar import Pairs
from music_gpt.arrays import Ints
from music_gpt.tokens.card import SPLITS

Links = npt.NDArray[np.int32]

LINKS_AT_ONCE = 1 << 14
SAME_COMPOSITION = 0.08
"""Share of the turns of the shorter piece that two pieces of one composition have in common."""
SAME_RECORDING = 0.1
"""Share of the turns with their times that two files of one recording have in common."""
SAME_FIGURES = 0.25
"""Share of the figures of the shorter piece: a short piece has few, and may lie in a long one."""
MIN_FIGURES = 8
"""Or so many of those that are kept, a quarter: as a passage of fifty notes has, or several shorter
ones. Of some 5,800 files only three of different composers had as many, for their broken chords."""


def alike(turns: Pairs, timed_turns: Pairs, figures: Pairs) -> Links:
    """The pairs that are one composition, by what they share of each kind of hash: (L, 2).

    A roll or a collection is one with each piece that it holds.
    """
    same_figures = figures.similarity >= SAME_FIGURES
    same = [
        (turns, turns.similarity >= SAME_COMPOSITION),
        (timed_turns, timed_turns.similarity >= SAME_RECORDING),
        (figures, same_figures | (figures.common >= MIN_FIGURES)),
    ]
    return np.concatenate([np.stack([p.first[of], p.second[of]], axis=1) for p, of in same])


def compositions(n: int, links: Links) -> Ints:
    """Number of the composition of each of `n` pieces: pieces that are linked, directly or not."""
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for begin in range(0, len(links), LINKS_AT_ONCE):  # as lists they take ten times as much
        for a, b in links[begin : begin + LINKS_AT_ONCE].tolist():
            low, high = sorted((root(a), root(b)))
            parent[high] = low
    return np.array([root(i) for i in range(n)], dtype=np.int64)


def composition_names(groups: Ints, checksums: Iterable[str]) -> list[str]:
    """A name for each piece's composition: made from content, so it outlives new file names."""
    smallest: dict[int, str] = {}
    for group, checksum in zip(groups.tolist(), checksums, strict=True):
        smallest[group] = min(checksum[:16], smallest.get(group, "g"))
    return [smallest[group] for group in groups.tolist()]


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


def highest_across_splits(
    pairs: Pairs, splits: Sequence[str], by: npt.NDArray[Any], limit: int = 20
) -> list[int]:
    """Positions in `pairs` of those that lie in two splits, the highest in `by` first.

    `by` is the similarity of the pairs, or what they have in common.
    """
    codes = np.array([SPLITS.index(split) for split in splits], dtype=np.int64)
    across = np.flatnonzero(codes[pairs.first] != codes[pairs.second])
    order = np.argsort(-by[across], kind="stable")
    return [int(i) for i in across[order][:limit]]
