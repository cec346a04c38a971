"""Tokens to train on, and a run that was stopped half-way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runs import at_step, interrupt
from small import run_config, tokens_folder

from music_gpt.training.run import train


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An epoch of 10 batches of 4 crops of 32 tokens."""
    folder = tmp_path_factory.mktemp("training") / "tokens"
    return tokens_folder(folder, {"train": [120, 90, 100, 8], "validation": [60, 20]})


@pytest.fixture(scope="module")
def stopped_once(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        at_step(4, interrupt, patch)
        train(tokens, run, run_config(max_steps=8, validate_every_steps=3))
    return run


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A run that was interrupted after 4 of 8 steps."""
    return Path(shutil.copytree(stopped_once, tmp_path / "run"))
