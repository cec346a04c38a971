"""What is asked of a run: its log, its weights, and something to happen at one of its steps."""

from __future__ import annotations

import csv
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small import run_config

from music_gpt.errors import InputError
from music_gpt.training.callback import RunCallback
from music_gpt.training.module import Training
from music_gpt.training.run import train

STEADY = (
    *("step", "tokens", "train_nats_per_token", "validation_nats_per_token"),
    *("validation_nats_per_note", "gradient_norm"),
)
"""Columns of the log that do not depend on how fast the machine is."""


def log_of(run: Path) -> list[dict[str, str]]:
    with (run / "log.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def steady_log(run: Path) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in STEADY) for row in log_of(run)]


def weights_of(run: Path, name: str = "last.safetensors") -> dict[str, torch.Tensor]:
    return dict(load_file(run / name))


def assert_same_run(one: Path, other: Path) -> None:
    assert steady_log(one) == steady_log(other)
    for name in ("last.safetensors", "best.safetensors"):
        first, second = weights_of(one, name), weights_of(other, name)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[k], second[k]) for k in first)


def at_step(step: int, act: Callable[[RunCallback], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `act` happen at the end of a step, before it is logged and saved."""
    after_step = RunCallback._after_step

    def wrapped(self: RunCallback, trainer: Any, module: Training) -> None:
        if module.step == step:
            act(self)
        after_step(self, trainer, module)

    monkeypatch.setattr(RunCallback, "_after_step", wrapped)


def interrupt(run_callback: RunCallback) -> None:
    run_callback.signals.on_signal(signal.SIGINT, None)


def refused(match: str, tokens: Path, out: Path, config: Any = None, **options: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        train(tokens, out, config or run_config(max_steps=8), **options)
    assert "\n" not in str(caught.value)
