"""Which sampling settings sound most like the real continuations, by statistics.

    python benchmarks/sampling.py TOKENS [--split test] [--takes 24] [--seconds 20]

Each of the chosen pieces is cut in its middle: the 15 seconds before are the prompt, what follows
is the real continuation. For every setting the same prompts are continued, and the distributions of
six properties are compared with the real ones: overlap 1 is the same histogram, 0 is nothing in
common. The first row compares real continuations with those of other pieces: the ceiling.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import music_gpt
from music_gpt.corpus import Corpus, Split
from music_gpt.events import decode_ids
from music_gpt.midi import cut_notes
from music_gpt.notes import Notes

PROMPT_SECONDS = 15.0
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 1.0, "min_p": 0.0},
    {"temperature": 1.0, "min_p": 0.02},
    {"temperature": 0.98, "min_p": 0.03},
    {"temperature": 0.95, "min_p": 0.0, "top_p": 0.98},
    {"temperature": 0.95, "min_p": 0.02},
    {"temperature": 0.95, "min_p": 0.05},
    {"temperature": 0.9, "min_p": 0.02},
    {"temperature": 0.9, "min_p": 0.05},
]
Floats = npt.NDArray[np.float64]


def places(split: Split, n_takes: int, seconds: float) -> Iterator[tuple[Notes, Notes]]:
    """Prompt and real continuation of pieces spread over the split, both from time 0."""
    needed = PROMPT_SECONDS + seconds
    long_enough = np.flatnonzero(split.seconds > needed + 2)
    for i in long_enough[:: max(1, len(long_enough) // n_takes)][:n_takes].tolist():
        notes = decode_ids(split.piece(i))
        middle = max(float(split.seconds[i]) / 2, PROMPT_SECONDS)
        yield (
            cut_notes(notes, middle - PROMPT_SECONDS, middle),
            cut_notes(notes, middle, middle + seconds),
        )


def properties(pieces: list[Notes]) -> dict[str, Floats]:
    """A histogram of each property over all pieces, summing to 1."""
    values: dict[str, list[Floats]] = {}
    for notes in pieces:
        start, end = notes["start"], notes["end"]
        windows = np.arange(0.0, max(float(start.max(initial=0.0)), 5.0), 5.0)
        sounding = [
            np.count_nonzero((start <= t) & (end > t)) for t in np.arange(0, end.max(), 0.5)
        ]
        each = {
            "pitch": notes["pitch"],
            "length": np.log2(np.maximum(end - start, 0.01)),
            "onsets": np.log2(np.maximum(np.diff(start), 0.005)),
            "velocity": notes["velocity"],
            "notes/s": np.histogram(start, [*windows, windows[-1] + 5])[0] / 5,
            "polyphony": np.array(sounding),
        }
        for name, value in each.items():
            values.setdefault(name, []).append(np.asarray(value, np.float64))
    edges = {
        "pitch": np.arange(0, 129, 3),
        "length": np.linspace(-7, 5, 37),
        "onsets": np.linspace(-8, 3, 34),
        "velocity": np.arange(0, 129, 8),
        "notes/s": np.arange(0, 62, 2),
        "polyphony": np.arange(0, 50, 1),
    }
    counts = {k: np.histogram(np.concatenate(v), edges[k])[0] for k, v in values.items()}
    return {k: c / max(c.sum(), 1) for k, c in counts.items()}


def overlaps(one: dict[str, Floats], other: dict[str, Floats]) -> dict[str, float]:
    """Common area of the two histograms of each property."""
    return {name: float(np.minimum(one[name], other[name]).sum()) for name in one}


def show(label: str, values: dict[str, float], notes_per_second: float) -> None:
    """One row: the mean first."""
    figures = "  ".join(f"{name} {value:.2f}" for name, value in values.items())
    mean = np.mean(list(values.values()))
    print(f"{label:44s} mean {mean:.3f}  {figures}  {notes_per_second:.1f} notes/s", flush=True)


def main() -> None:
    """Read the command line, compose, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--checkpoint", default=None)
    parser.add_argument("--takes", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()

    found = list(places(Corpus.open(args.tokens).split(args.split), args.takes, args.seconds))
    real = [continuation for _, continuation in found]
    wanted = properties(real)
    odd, even = properties(real[::2]), properties(real[1::2])
    per_second = sum(map(len, real)) / len(real) / args.seconds
    show(f"real against real ({len(real)} pieces, halves)", overlaps(odd, even), per_second)
    pianist = music_gpt.load(args.checkpoint)
    for setting in SETTINGS:
        composed = []
        for seed, (prompt, _) in enumerate(found):
            composition = pianist.compose(prompt, seconds=args.seconds, seed=seed, **setting)
            for _ in composition:
                pass
            notes = composition.new_notes()
            notes["start"] -= composition.seam_seconds
            notes["end"] -= composition.seam_seconds
            composed.append(notes)
        per_second = sum(map(len, composed)) / len(composed) / args.seconds
        show(str(setting), overlaps(wanted, properties(composed)), per_second)


if __name__ == "__main__":
    main()
