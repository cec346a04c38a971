"""Two ways of one work -> how many times as fast the first is: what the benchmarks share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from miditok import MIDILike

from music_gpt.tokens.tokenizer import PerformanceTokenizer


def midi_files(folder: Path, n: int, seed: int) -> list[Path]:
    """`n` random MIDI files of a folder in order, or all for 0."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".mid", ".midi"))
    if n:
        taken = np.random.default_rng(seed).permutation(len(paths))[:n]
        paths = [paths[i] for i in sorted(taken)]
    return paths


def plain_midi_like() -> MIDILike:
    """MidiTok's own tokenizer with the vocabulary of ours."""
    config = PerformanceTokenizer().config
    return MIDILike(type(config)(**{**config.to_dict(), "special_tokens": ["PAD", "EOS"]}))


def compare(
    what: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    n_notes: int,
    repeats: int,
    name: str = "MIDILike",
) -> float:
    """Print notes a second of both, in alternating runs of which the medians count, and the ratio.

    Seconds are those of the processor, so that other programs on the machine count little.
    """
    times = [(seconds(ours), seconds(peer)) for _ in range(repeats)]
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{what:31} {n_notes / mine:,.0f} notes/s, {name} {n_notes / theirs:,.0f}: "
        f"{theirs / mine:.1f} times"
    )
    return theirs / mine


def seconds(call: Callable[[], object]) -> float:
    """Processor seconds of a call, all threads together."""
    begin = time.process_time()
    call()
    return time.process_time() - begin
