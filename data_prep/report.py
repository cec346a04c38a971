"""what became of each file of a corpus -> the report: figures, reasons, leaks, and a few pieces.

The report is a dictionary that goes into report.json as it is, and into report.html as pictures.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from data_prep.cache import Cache, Rows
from data_prep.collect import Collection, Files, LeftOut
from data_prep.encode import Facts
from data_prep.lists import Lists
from data_prep.similar import Pairs
from data_prep.split import SAME_RECORDING, highest_across_splits
from music_gpt.tokens.card import SPLITS
from music_gpt.tokens.originality import shared_run

N_SAMPLES = 10
"""Pieces whose piano roll is drawn."""
LENGTH_EDGES = (0, 15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 3600)
"""In seconds; the last bar of a histogram is open."""
DENSITY_EDGES = tuple(range(21))
"""In notes a second."""


@dataclass(frozen=True)
class Outcome:
    """All that is known when the splits are drawn. Arrays and lists have one entry a kept piece."""

    found: Collection
    left_out: Sequence[LeftOut]
    kept: Files
    facts: Facts
    rows: Rows
    """Of the pieces in the cache."""
    compositions: Sequence[str]
    splits: Sequence[str]
    lists: Lists
    turns: Pairs
    """Pieces that share turns; and so for the other kinds of hash."""
    timed_turns: Pairs
    figures: Pairs


def build_report(outcome: Outcome, cache: Cache, *, seed: int) -> dict[str, Any]:
    """The report: the same for the same files and settings."""
    members: dict[str, list[str]] = {}
    for name, composition in zip(outcome.kept.names(), outcome.compositions, strict=True):
        members.setdefault(composition, []).append(name)
    codes = np.array([SPLITS.index(split) for split in outcome.splits])
    return {
        "midi_files": len(outcome.kept) + len(outcome.left_out),
        "pieces": len(outcome.kept),
        "compositions": len(members),
        "splits": {
            name: _sums(outcome, codes == code)
            for code, name in enumerate(SPLITS)
            if (codes == code).any()
        },
        "left_out_counts": _counted(left.kind for left in outcome.left_out),
        "left_out": [asdict(left) for left in outcome.left_out],
        "mended": _mended(outcome.found.files, cache),
        "stray_rows": outcome.lists.strays,
        "other_files": dict(sorted(outcome.found.others.items())),
        "composers": _by_number(
            outcome.lists.origin_of(name).composer for name in outcome.kept.names()
        ),
        "histograms": _histograms(outcome, cache),
        "most_similar_across_splits": [
            _pair(outcome, outcome.turns, i)
            for i in highest_across_splits(outcome.turns, outcome.splits, outcome.turns.similarity)
        ],
        "longest_runs_across_splits": _longest_runs(outcome, cache),
        "same_recordings": [
            _pair(outcome, outcome.timed_turns, i) for i in _same_recordings(outcome.timed_turns)
        ],
        "shared_compositions": {
            name: files for name, files in sorted(members.items()) if len(files) > 1
        },
        "samples": [
            {"file": outcome.kept.name(i), "split": outcome.splits[i]}
            for i in sample_places(outcome.kept, seed)
        ],
    }


def sample_places(kept: Files, seed: int) -> list[int]:
    """Ten random pieces, which stay the same where they can when a corpus grows."""
    drawn = (
        (hashlib.sha256(b"%d %s" % (seed, bytes(digest))).digest(), i)
        for i, digest in enumerate(kept.digests)
    )
    return [i for _, i in heapq.nsmallest(N_SAMPLES, drawn)]


def _sums(outcome: Outcome, chosen: np.typing.NDArray[np.bool_]) -> dict[str, Any]:
    """What one split holds."""
    facts = outcome.facts[chosen]
    names = (outcome.compositions[i] for i in np.flatnonzero(chosen).tolist())
    return {
        "pieces": len(facts),
        "compositions": len(set(names)),
        "tokens": int(facts["tokens"].sum(dtype=np.int64)),
        "notes": int(facts["notes"].sum(dtype=np.int64)),
        "hours": round(float(facts["seconds"].sum()) / 3600, 3),
    }


def _counted(kinds: Any) -> dict[str, int]:
    return dict(sorted(Counter(kinds).items()))


def _by_number(names: Any) -> dict[str, int]:
    """How often each name comes, the most frequent first; nothing if none is known."""
    counts = Counter(name for name in names if name)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _mended(files: Files, cache: Cache) -> dict[str, list[str]]:
    """What was mended or passed over in a file, by its name."""
    rows = cache.rows(files.digests)
    remarked = np.flatnonzero(cache.facts["remarks"][rows]).tolist()
    return {files.name(i): list(cache.said(int(rows[i]))[1]) for i in remarked}


def _histograms(outcome: Outcome, cache: Cache) -> dict[str, Any]:
    """Pieces by length and density, and notes by pitch and velocity."""
    seconds = outcome.facts["seconds"]
    density = outcome.facts["notes"] / np.maximum(seconds, 0.01)
    return {
        "seconds": _histogram(seconds, LENGTH_EDGES),
        "notes_per_second": _histogram(density, DENSITY_EDGES),
        "notes_on_pitch": cache.notes_on("pitches", outcome.rows).tolist(),
        "notes_in_velocity_bin": cache.notes_on("velocities", outcome.rows).tolist(),
    }


def _histogram(values: Any, edges: Sequence[int]) -> dict[str, list[int]]:
    """Pieces from each edge up to the next; the last bar is open."""
    bars = np.searchsorted(edges, values, side="right") - 1
    return {"from": list(edges), "pieces": np.bincount(bars, minlength=len(edges)).tolist()}


def _same_recordings(pairs: Pairs) -> list[int]:
    """Positions in `pairs` of the files that share a recording, likest first."""
    same = np.flatnonzero(pairs.similarity >= SAME_RECORDING)
    order = np.argsort(-pairs.similarity[same], kind="stable")
    return [int(i) for i in same[order]]


def _longest_runs(outcome: Outcome, cache: Cache) -> list[dict[str, Any]]:
    """The longest runs of notes that lie in two splits: the longest of each of some pairs.

    Those are the pairs with the most figures in common.
    """
    pairs, runs = outcome.figures, []
    for i in highest_across_splits(pairs, outcome.splits, pairs.common):
        first, second = (int(pair[i]) for pair in (pairs.first, pairs.second))
        ids = [cache.ids(int(outcome.rows[piece])) for piece in (first, second)]
        run = shared_run(ids[0], ids[1], outcome.kept.name(second))
        if run is not None:
            told = run.to_dict()
            runs.append(
                {
                    **{name: told[name] for name in ("different_notes", "notes", "seconds")},
                    **_ends(outcome, first, second),
                    "first_seconds": told["at_seconds"],
                    "second_seconds": told["source_seconds"],
                }
            )
    return sorted(runs, key=lambda run: (-run["different_notes"], -run["notes"]))


def _pair(outcome: Outcome, pairs: Pairs, i: int) -> dict[str, Any]:
    first, second = int(pairs.first[i]), int(pairs.second[i])
    return {
        "similarity": round(float(pairs.similarity[i]), 3),
        "turns_in_common": int(pairs.common[i]),
        **_ends(outcome, first, second),
    }


def _ends(outcome: Outcome, first: int, second: int) -> dict[str, Any]:
    """The two pieces of a pair."""
    return {
        "first": outcome.kept.name(first),
        "first_split": outcome.splits[first],
        "second": outcome.kept.name(second),
        "second_split": outcome.splits[second],
    }
