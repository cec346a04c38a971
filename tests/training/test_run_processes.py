"""Runs as processes of their own: signals, several devices, and what they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import yaml
from runs import log_of
from small import run_config, tokens_folder

from music_gpt.process import TERMINATION_SIGNALS
from music_gpt.training import run as training
from music_gpt.training import run_folder
from music_gpt.training.module import Training
from music_gpt.training.run import train

ROOT = Path(__file__).parent.parent.parent


def command(*words: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "music_gpt.cli.main", "train", *map(str, words)]


def knobs(**changes: object) -> list[str]:
    """The small network as flags."""
    values = {
        **{f"model.{k}": v for k, v in run_config().model.to_dict().items() if k != "dropout"},
        "data.batch_size": 4,
        "train.precision": "fp32",
        "train.device": "cpu",
        **changes,
    }
    return [f"--{name}={json.dumps(v) if isinstance(v, bool) else v}" for name, v in values.items()]


def run_command(words: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=environment)


def start_and_wait(words: Sequence[str], log: Path) -> subprocess.Popen[str]:
    """Start a run that has no end, and come back when it has logged."""
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    while not log.exists() or log.read_text().count("\n") < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, *TERMINATION_SIGNALS])
def test_a_signal_ends_the_run_with_a_checkpoint_and_a_sentence(
    tokens: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    words = command("--tokens", tokens, "--out", run, *knobs(), "--json")
    process = start_and_wait([*words, "--train.max_steps=1000000"], run / "log.csv")
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 128 + number
    result = json.loads(out)
    assert result["stopped_by"] == number.name
    assert f"Stopped by {number.name} after" in err
    assert "Go on with the same command and --resume." in err
    assert "Traceback" not in err
    state = run_folder.read_resume_point(run)
    assert state["step"] == result["steps"]
    assert state["batches_done"] == result["steps"]
    words = command("--config", run / "config.yaml", "--tokens", tokens, "--out", run)
    more = result["steps"] + 5
    resumed = run_command([*words, "--resume", f"--train.max_steps={more}"], tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert log_of(run)[-1]["step"] == str(more)


def test_a_run_says_nothing_but_its_result_and_leaves_nothing_elsewhere(
    tokens: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = command("--tokens", tokens, "--out", tmp_path / "run", *knobs(), "--json")
    done = run_command([*words, "--train.max_steps=3"], elsewhere)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 3
    assert done.stdout.count("\n") == 1
    lines = [line for part in done.stderr.splitlines() for line in part.split("\r") if line.strip()]
    assert all("%" in line and "|" in line for line in lines), done.stderr
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_two_processes_train_like_one_with_batches_of_twice_the_size(
    tmp_path: Path, optimizer: str
) -> None:
    long_pieces = tokens_folder(tmp_path / "tokens", {"train": [400], "validation": [150]})
    same = {
        "data.stretch": 0,
        "data.velocity_bins": 0,
        "optim.optimizer": optimizer,
        "train.max_steps": 6,
        "train.validate_every_steps": 2,
    }
    results = []
    for devices, batch_size in ((1, 8), (2, 4)):
        out = tmp_path / f"on-{devices}"
        flags = knobs(**{**same, "data.batch_size": batch_size, "train.devices": devices})
        done = run_command(
            command("--tokens", long_pieces, "--out", out, *flags, "--json"), tmp_path
        )
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    one, two = (log_of(tmp_path / f"on-{devices}") for devices in (1, 2))
    for column in ("step", "tokens"):
        assert [row[column] for row in one] == [row[column] for row in two]
    for column in ("train_nats_per_token", "validation_nats_per_token", "gradient_norm"):
        figures = [[float(row[column]) for row in log] for log in (one, two)]
        assert figures[0] == pytest.approx(figures[1], abs=2e-3)
    assert results[0]["tokens"] == results[1]["tokens"]


def test_all_processes_begin_with_one_network_and_drop_activations_of_their_own(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[torch.Tensor, torch.Tensor]] = []

    def seen(self: Training) -> None:
        begun.append((self.model.embedding.weight.detach().clone(), torch.get_rng_state()))

    monkeypatch.setattr(Training, "on_fit_start", seen)
    for rank in range(3):
        monkeypatch.setattr(training.pl.Trainer, "global_rank", rank)
        monkeypatch.setattr(training.pl.Trainer, "is_global_zero", rank == 0)
        train(tokens, tmp_path / "run", run_config(max_steps=1))
    weights, random = zip(*begun, strict=True)
    assert all(torch.equal(one, weights[0]) for one in weights)
    assert len({state.numpy().tobytes() for state in random}) == 3


def test_the_configuration_of_a_run_can_be_read_again(tokens: Path, tmp_path: Path) -> None:
    config = run_config(
        max_steps=2,
        model={"dropout": 0.25, "bias": False},
        optim={"adamw_lr": 3e-5, "betas": (0.8, 0.99)},
    )
    train(tokens, tmp_path / "run", config)
    told = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert list(told) == ["model", "data", "optim", "train"]
    assert told["optim"]["betas"] == [0.8, 0.99]
    assert told["model"]["dropout"] == 0.25
