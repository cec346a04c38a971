"""Which sampling settings sound most like the real continuations, by statistics.

    python benchmarks/sampling.py TOKENS [--split validation] [--n 120] [--seconds 30]

For every setting the same prompts are continued with the same seeds, and the statistics of the new
music are compared with those of real passages, as `music-gpt evaluate --samples` does: overlap 1 is
the same distribution of distances, 0 is nothing in common. The first row compares real
passages with others, from other pieces: the ceiling.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import music_gpt
from music_gpt.config.sampling import SamplingConfig
from music_gpt.metrics.continuations import sample
from music_gpt.metrics.statistics import Agreement
from music_gpt.tokens.corpus import Corpus

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.9, "min_p": 0.001},
    {"temperature": 0.92, "min_p": 0.001},
    {"temperature": 0.95, "min_p": 0.001},
    {"temperature": 1.0, "min_p": 0.001},
    {"temperature": 1.0, "min_p": 0.0},
    {"temperature": 1.05, "min_p": 0.001},
]
TOLD = ("notes_per_second", "note_length", "polyphony", "repetition")

REAL = "real passages and others, from other pieces"


def show(
    label: str,
    found: dict[str, Agreement],
    values: dict[str, float],
    loops: dict[str, float],
) -> None:
    """One row: the mean overlap first."""
    mean = np.nanmean([agreement.overlap for agreement in found.values()])
    told = "  ".join(f"{name} {values[name]:.2f} ({found[name].overlap:.2f})" for name in TOLD)
    told += f"  loops {loops['pitches']:.1%}  stuck {loops['stuck']:.1%}"
    print(f"{label:54s} mean {mean:.3f}  {told}", flush=True)


def main() -> None:
    """Read the command line, compose, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--checkpoint", default=None)
    parser.add_argument("--n", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()

    split = Corpus.open(args.tokens).split(args.split)
    pianist = music_gpt.load(args.checkpoint, threads=1)
    for number, setting in enumerate(SETTINGS):
        found = sample(pianist, split, args.n, args.seconds, sampling=SamplingConfig(**setting))
        if number == 0:
            show(REAL, found.ceiling, found.real, found.loops["real"])
        show(str(setting), found.agreement, found.composed, found.loops["composed"])


if __name__ == "__main__":
    main()
