"""Folders of made-up MIDI files, and the tokens folders that are made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data_prep.prepare import prepare
from music_gpt.config.preparing import PrepareConfig
from music_gpt.midi.piece import write_midi
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.corpus import Corpus

HERE = PrepareConfig(workers=1)
"""No further processes: they would cost a second for each test."""


def music(seed: int, n_notes: int = 120) -> Notes:
    rng = np.random.default_rng(seed)
    notes = np.zeros(n_notes, dtype=NOTE_DTYPE)
    notes["start"] = np.cumsum(rng.uniform(0.1, 0.4, n_notes))
    notes["end"] = notes["start"] + 0.2
    notes["pitch"] = 60 + rng.integers(-12, 13, n_notes)
    notes["velocity"] = rng.integers(30, 100, n_notes)
    return notes


def changed(notes: Notes, *, semitones: int = 0, stretch: float = 1.0) -> Notes:
    copy = notes.copy()
    copy["pitch"] = copy["pitch"].astype(int) + semitones
    copy["start"] *= stretch
    copy["end"] *= stretch
    return copy


def write_folder(folder: Path, seeds: range) -> Path:
    for seed in seeds:
        path = folder / f"{'ab'[seed % 2]}" / f"piece {seed:02d}.mid"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_midi(music(seed), path)
    return folder


def run(midi: Path, out: Path, config: PrepareConfig = HERE) -> dict[str, Any]:
    return prepare(midi, out, config, progress=False)


def split_of(out: Path) -> dict[str, str]:
    corpus = Corpus.open(out)
    return {name: split for split in corpus.splits for name in corpus.split(split).names}
