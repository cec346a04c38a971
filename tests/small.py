"""Small tokens folders and networks: what the tests of data, training and figures stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from music_gpt.arrays import Ids
from music_gpt.composing.composition import Composition
from music_gpt.composing.pianist import Pianist
from music_gpt.config.model import ModelConfig
from music_gpt.config.training import DataConfig, OptimConfig, RunConfig, TrainConfig
from music_gpt.network.model import GPT
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.corpus import Corpus, CorpusWriter, Split
from music_gpt.tokens.events import EOS, encode_notes

NETWORK = ModelConfig(n_layers=2, d_model=16, d_ff=32, n_heads=2, n_kv_heads=2, context=32)
PLAIN = DataConfig(batch_size=4, transpose=0, stretch=0.0, velocity_bins=0)
"""Crops as they lie on disk."""
ONE_TOKEN = np.array([EOS], np.uint16)
"""A piece without a target."""


def melody(seed: int, n_notes: int) -> Notes:
    """Notes that overlap, with changing velocities, all inside the piano's keys."""
    rng = np.random.default_rng(seed)
    notes = np.zeros(n_notes, NOTE_DTYPE)
    notes["start"] = np.sort(rng.uniform(0, 0.3 * n_notes, n_notes))
    notes["end"] = notes["start"] + rng.uniform(0.05, 2.0, n_notes)
    notes["pitch"] = rng.integers(30, 100, n_notes)
    notes["velocity"] = rng.integers(1, 128, n_notes)
    return notes


def piece(seed: int, n_notes: int) -> Ids:
    return encode_notes(melody(seed, n_notes), eos=True)


def tokens_folder(folder: Path, splits: Mapping[str, list[int]], *, seed: int = 0) -> Path:
    """A tokens folder with a piece of so many notes for each number."""
    with CorpusWriter(folder) as writer:
        for name, sizes in splits.items():
            for size in sizes:
                seed += 1
                record = {"file": f"{seed}.mid", "notes": size, "seconds": 0.3 * size}
                writer.add(name, piece(seed, size), record)
        writer.finish({"sources": {"made": {}}, "licences": {"made": "CC0"}}, tokenizer="{}")
    return folder


def folder_of_ids(folder: Path, splits: Mapping[str, list[Ids]]) -> Path:
    """A tokens folder with these ids, which need not be music."""
    with CorpusWriter(folder) as writer:
        for name, pieces in splits.items():
            for number, ids in enumerate(pieces):
                writer.add(name, ids, {"file": f"{number}.mid", "notes": 0, "seconds": 1.0})
        writer.finish({"sources": {"made": {}}, "licences": {"made": "CC0"}}, tokenizer="{}")
    return folder


def split_of(folder: Path, sizes: list[int]) -> Split:
    return Corpus.open(tokens_folder(folder, {"train": sizes})).split("train")


def random_network(seed: int = 0, **changes: Any) -> GPT:
    """A network whose answers differ from token to token."""
    torch.manual_seed(seed)
    model = GPT(ModelConfig(**{**NETWORK.to_dict(), "zero_init": False, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def small_pianist(context: int = 128) -> Pianist:
    """A pianist whose music is wild, but whose next note depends on what was heard."""
    torch.manual_seed(5)
    model = GPT(replace(ModelConfig.preset("tiny"), context=context))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.1)
    return Pianist(model, {"file": "tiny.safetensors", "sha256": "5eed"})


def finished(composition: Composition) -> Composition:
    """The composition, composed to its end."""
    for _ in composition:
        pass
    return composition


def compose(pianist: Pianist, prompt: Any = None, **options: Any) -> Composition:
    """A few seconds of music."""
    options = {"seconds": 3.0, "seed": 7, "max_wait_seconds": 0.4, "min_p": 0.0, **options}
    return finished(pianist.compose(prompt, **options))


def run_config(
    *,
    model: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    optim: Mapping[str, Any] | None = None,
    **train: Any,
) -> RunConfig:
    """A run of seconds on one thread; keyword arguments change single knobs."""
    return RunConfig(
        ModelConfig(**{**NETWORK.to_dict(), **(model or {})}),
        DataConfig(**{"batch_size": 4, **(data or {})}),
        OptimConfig(**{"warmup_steps": 3, **(optim or {})}),
        TrainConfig(**{"precision": "fp32", "device": "cpu", **train}),
    )
