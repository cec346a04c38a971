"""The validation of a run ends in time, and where it is to stop, and tells how much was scored."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runs import assert_same_run, log_of
from small import random_network, run_config

from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.network.model import GPT
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.data import Windows
from music_gpt.training import callback, clock, scoring
from music_gpt.training.callback import RunCallback, ValidationScore
from music_gpt.training.module import Training, batch_nats
from music_gpt.training.run import train
from music_gpt.training.run_folder import read_resume_point
from music_gpt.training.scoring import ScoringDeadline, bit_reversed, mean_nats


@pytest.fixture
def windows(tokens: Path) -> Windows:
    """13 windows in 4 batches."""
    return Windows(Corpus.open(tokens).split("validation"), 32, 4)


class Machine:
    """A machine on which a step takes a second and a batch of the validation as long as is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, batch_seconds: float) -> None:
        self.now, self.scored = 1000.0, 0
        step = Training.training_step

        def stepped(module: Training, *words: Any) -> torch.Tensor:
            self.now += 1.0
            return step(module, *words)

        def scored(*words: Any) -> tuple[torch.Tensor, torch.Tensor]:
            self.now, self.scored = self.now + batch_seconds, self.scored + 1
            return batch_nats(*words)

        monkeypatch.setattr(Training, "training_step", stepped)
        monkeypatch.setattr(scoring, "batch_nats", scored)
        monkeypatch.setattr(clock.time, "monotonic", lambda: self.now)


def nats_of(model: GPT, windows: Windows, numbers: list[int]) -> tuple[float, int]:
    """Per token on these batches, and how many tokens that are."""
    with torch.no_grad():
        sums = [batch_nats(model, windows.batch(number)) for number in numbers]
    n_tokens = sum(int(count) for _, count in sums)
    return sum(float(nats) for nats, _ in sums) / n_tokens, n_tokens


def test_a_last_validation_that_would_take_too_long_scores_what_its_time_allows(
    tokens: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    windows: Windows,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Machine(monkeypatch, batch_seconds=9.0)  # of which only two end within what is left of a minute
    monkeypatch.setattr(callback.EndReserve, "seconds", 28.0)
    result = train(tokens, tmp_path / "run", run_config(max_minutes=1.0))
    assert result["finished"]
    assert 0.8 < result["minutes"] <= 1.0
    monkeypatch.undo()
    model, card = load_checkpoint(result["checkpoint"])
    figure, n_tokens = nats_of(model, windows, [0, 2])
    assert n_tokens < windows.n_targets
    assert result["nats_per_token"] == pytest.approx(figure, abs=1e-4)
    assert result["validation_tokens"] == card["quick_validation_tokens"] == n_tokens
    assert log_of(tmp_path / "run")[-1]["validation_tokens"] == str(n_tokens)
    sentence = f"scored {n_tokens} of {windows.n_targets} tokens: the time was too short"
    assert sentence in capsys.readouterr().err
    assert sentence in (tmp_path / "run" / "report.html").read_text()


def test_whatever_a_batch_takes_one_is_scored(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "PAUSE_SECONDS", 1e9)
    machine = Machine(monkeypatch, batch_seconds=500.0)
    result = train(tokens, tmp_path / "run", run_config(max_minutes=1.0))
    assert (machine.scored, result["validation_tokens"]) == (1, 4 * 32)


def test_where_the_time_suffices_a_bound_changes_no_figure(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: Windows
) -> None:
    Machine(monkeypatch, batch_seconds=2.0)
    config = run_config(max_minutes=1.0, validate_every_steps=10, optim={"cooldown": 0.0})
    free = run_config(max_steps=10, optim={"cooldown": 0.0})
    train(tokens, tmp_path / "bound", config)
    train(tokens, tmp_path / "free", free)
    bound, free_row = log_of(tmp_path / "bound")[0], log_of(tmp_path / "free")[0]
    for column in ("step", "validation_nats_per_token", "validation_nats_per_note"):
        assert bound[column] == free_row[column]
    told = {row["validation_tokens"] for row in log_of(tmp_path / "bound")}
    assert told - {""} == {str(windows.n_targets)}


def test_a_validation_that_is_not_the_last_leaves_time_for_that_one(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(monkeypatch, batch_seconds=9.0)
    config = run_config(max_minutes=1.0, validate_every_steps=2)
    result = train(tokens, tmp_path / "run", config)
    assert result["minutes"] <= 1.0
    assert [row["validation_tokens"] for row in log_of(tmp_path / "run")] == ["256", "256"]


@pytest.mark.parametrize(("validation", "step"), [(2, 6), (4, 12)])
def test_a_stop_wish_ends_a_validation_which_is_made_up_for_when_the_run_goes_on(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: int, step: int
) -> None:
    held, scored = list[RunCallback](), list[int]()
    start = RunCallback.on_train_start

    def started(self: RunCallback, *words: Any) -> None:
        held.append(self)
        start(self, *words)

    def stopped_at_its_second_batch(*words: Any) -> tuple[torch.Tensor, torch.Tensor]:
        scored.append(1)
        if len(scored) == 4 * (validation - 1) + 2:
            held[-1].signals.on_signal(signal.SIGTERM, None)
        return batch_nats(*words)

    config = run_config(max_steps=12, validate_every_steps=3)
    train(tokens, tmp_path / "unbroken", config)
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_start", started)
        patch.setattr(scoring, "batch_nats", stopped_at_its_second_batch)
        result = train(tokens, run, config)
    assert len(scored) == 4 * (validation - 1) + 2
    assert (result["finished"], result["stopped_by"], result["steps"]) == (False, "SIGTERM", step)
    assert read_resume_point(run)["step"] == step
    assert load_checkpoint(run / "best.safetensors")[1]["steps"] == step - 3
    assert [row["step"] for row in log_of(run)][-1] == str(step - 3)
    assert train(tokens, run, config, resume=True)["finished"]
    assert_same_run(tmp_path / "unbroken", run)


def test_a_run_is_finished_when_its_end_was_measured_whatever_the_clock_says(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop in a slow validation: with what that took, all minutes of the run are over."""
    machine = Machine(monkeypatch, batch_seconds=0.0)
    held, start = list[RunCallback](), RunCallback.on_train_start

    def started(self: RunCallback, *words: Any) -> None:
        held.append(self)
        start(self, *words)

    def slow_and_stopped(*words: Any) -> tuple[torch.Tensor, torch.Tensor]:
        machine.now += 9.0  # longer, and the process is taken to have been paused
        held[-1].signals.on_signal(signal.SIGTERM, None)
        return batch_nats(*words)

    config = run_config(max_minutes=1.0, validate_every_steps=52)
    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_start", started)
        patch.setattr(scoring, "batch_nats", slow_and_stopped)
        patch.setattr(callback.EndReserve, "seconds", 1.0)
        result = train(tokens, tmp_path / "run", config)
    assert (result["finished"], result["steps"]) == (False, 52)
    assert result["minutes"] > 1.0
    assert "Stopped by SIGTERM" in (tmp_path / "run" / "report.html").read_text()
    assert train(tokens, tmp_path / "run", config, resume=True)["finished"]


def test_figures_of_different_parts_of_the_split_are_not_compared(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter(
        ValidationScore(nats, 4 * nats, scored, 900)
        for nats, scored in ((2.0, 900), (3.0, 100), (3.5, 100))
    )
    monkeypatch.setattr(callback, "mean_nats", lambda *_: next(figures))
    train(tokens, tmp_path / "run", run_config(max_steps=15, validate_every_steps=5))
    _, card = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert (card["steps"], card["quick_validation_tokens"]) == (10, 100)


@pytest.mark.parametrize(("what", "rounds"), [("late", 2), ("stopped", 2), ("neither", 5)])
def test_all_processes_score_equally_many_batches(
    monkeypatch: pytest.MonkeyPatch, windows: Windows, what: str, rounds: int
) -> None:
    """Another process has five batches, and does not go on after its second one."""
    asked = list[list[float]]()

    def with_another(_: Any, values: list[float], how: str) -> list[float]:
        if len(values) == 1:
            return [5.0]
        if how == "max":
            asked.append(values)
            signs = {"late": [1.0, 0.0], "stopped": [0.0, 1.0]}
            return signs.get(what, values) if len(asked) == 2 else values
        return values

    trainer: Any = SimpleNamespace(precision_plugin=SimpleNamespace(forward_context=torch.no_grad))
    monkeypatch.setattr(scoring, "over_ranks", with_another)
    signals: Any = SimpleNamespace(received="")
    deadline = ScoringDeadline(1e9, clock.RunningClock(), signals)
    model = random_network()
    nats = mean_nats(model, windows, trainer, deadline)
    scored = [number for number in bit_reversed(5)[:rounds] if number < len(windows)]
    figure, n_tokens = nats_of(model, windows, scored)
    assert len(asked) == (2 if rounds == 2 else 4)
    assert nats.per_token == pytest.approx(figure)
    assert (nats.tokens, nats.of_tokens) == (n_tokens, windows.n_targets)
    assert nats.is_stopped == (what == "stopped")


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 100])
def test_an_order_that_spreads_holds_each_number_once(n: int) -> None:
    assert sorted(bit_reversed(n)) == list(range(n))
    if n > 8:
        steps = torch.tensor(sorted(bit_reversed(n)[:8])).diff()
        assert steps.min() >= n // 16
        assert steps.max() <= n // 4
