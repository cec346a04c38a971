"""A run goes on in another place, with other loader processes or devices, as it would have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import assert_same_run, at_step, interrupt, log_of, weights_of
from small import run_config, tokens_folder
from test_run_processes import command, run_command

from music_gpt.config.training import RunConfig
from music_gpt.training import callback, run
from music_gpt.training.module import Training
from music_gpt.training.run import train


def record(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Every batch that is learned from, from now on."""
    seen: list[torch.Tensor] = []
    training_step = Training.training_step

    def recorded(self: Training, batch: torch.Tensor, i: int) -> torch.Tensor:
        seen.append(batch.clone())
        return training_step(self, batch, i)

    monkeypatch.setattr(Training, "training_step", recorded)
    return seen


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
def test_a_run_goes_on_with_other_loader_processes_as_the_unbroken_one_step_by_step(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    def config(workers: int) -> RunConfig:
        return run_config(
            model={"dropout": 0.1}, data={"workers": workers}, max_steps=16, validate_every_steps=6
        )

    monkeypatch.setattr(callback, "LOG_EVERY_STEPS", 1)
    started: list[int] = []
    loader = run.loader

    def counted(source: Any, n_workers: int, **how: Any) -> Any:
        started.append(n_workers)
        return loader(source, n_workers, **how)

    monkeypatch.setattr(run, "loader", counted)
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    with monkeypatch.context() as patch:
        batches = record(patch)
        train(tokens, unbroken, config(0))
    with monkeypatch.context() as patch:
        batches_of_broken = record(patch)
        at_step(9, interrupt, patch)  # in the middle of the first epoch, of 10 steps
        assert train(tokens, broken, config(before))["steps"] == 9
        assert train(tokens, broken, config(after), resume=True)["finished"]
    assert started == [0, before, after]
    assert len(batches) == 16
    for one, other in zip(batches, batches_of_broken, strict=True):
        assert torch.equal(one, other)
    assert [row["step"] for row in log_of(broken)] == [str(n) for n in range(1, 17)]
    assert_same_run(unbroken, broken)


def test_a_run_goes_on_where_it_and_its_tokens_were_carried(
    stopped: Path, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(max_steps=8, validate_every_steps=3)
    train(tokens, tmp_path / "unbroken", config)
    disk = tmp_path / "disk"
    carried, music = disk / "another name", disk / "music"
    shutil.copytree(tokens, music)
    shutil.move(stopped, carried)  # and nothing is left where it was
    monkeypatch.chdir(disk)
    assert train("music", "another name", config, resume=True)["finished"]
    assert log_of(carried)[-1]["step"] == "8"
    assert weights_of(carried).keys() == weights_of(tmp_path / "unbroken").keys()
    for name, tensor in weights_of(tmp_path / "unbroken").items():
        assert torch.equal(weights_of(carried)[name], tensor)


def test_a_run_goes_on_on_two_devices_as_on_one_with_batches_of_half_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_pieces = tokens_folder(tmp_path / "tokens", {"train": [400], "validation": [150]})
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    data = {"stretch": 0.0, "velocity_bins": 0, "batch_size": 8}
    config = run_config(data=data, max_steps=6, validate_every_steps=2)
    train(long_pieces, unbroken, config)
    with monkeypatch.context() as patch:
        at_step(3, interrupt, patch)
        train(long_pieces, broken, config)
    words = command("--config", broken / "config.yaml", "--tokens", long_pieces, "--out", broken)
    more = ("--resume", "--data.batch_size=4", "--train.devices=2")
    done = run_command([*words, *more], tmp_path)
    assert done.returncode == 0, done.stderr
    one, two = log_of(unbroken), log_of(broken)
    for column in ("step", "tokens"):
        assert [row[column] for row in one] == [row[column] for row in two]
    for column in ("train_nats_per_token", "validation_nats_per_token", "gradient_norm"):
        figures = [[float(row[column]) for row in log] for log in (one, two)]
        assert figures[0] == pytest.approx(figures[1], abs=2e-3)
