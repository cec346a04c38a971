"""A run: what ends it, it goes on exactly; what cannot work is said before the first step."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from small import random_network, run_config, tokens_folder

from music_gpt import files
from music_gpt.errors import InputError
from music_gpt.network.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.network.model import GPT
from music_gpt.training import callback, clock, progress, run_folder
from music_gpt.training import run as training
from music_gpt.training.callback import Nats, RunCallback
from music_gpt.training.module import Training, batch_nats
from music_gpt.training.optimizer import MuonAdamW, lr_factor
from music_gpt.training.progress import Moment
from music_gpt.training.run import train
from music_gpt.training.run_folder import LOG_COLUMNS, read_log

ROOT = Path(__file__).parent.parent
STEADY = (
    *("step", "tokens", "train_nats_per_token", "validation_nats_per_token"),
    *("validation_nats_per_note", "gradient_norm"),
)
"""Columns of the log that do not depend on how fast the machine is."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An epoch of 10 batches of 4 crops of 32 tokens."""
    folder = tmp_path_factory.mktemp("training") / "tokens"
    return tokens_folder(folder, {"train": [120, 90, 100, 8], "validation": [60, 20]})


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


class Killed(BaseException):
    """Ends the run without a chance to save."""


def kill(_: RunCallback) -> None:
    raise Killed


# --- a whole run ------------------------------------------------------------------------------


def test_a_run_learns_and_leaves_its_files(tokens: Path, tmp_path: Path) -> None:
    config = run_config(max_steps=60, validate_every_steps=20)
    result = train(tokens, tmp_path / "run", config)
    assert result["finished"]
    assert result["steps"] == 60
    assert result["tokens"] == 60 * 4 * 32
    assert result["nats_per_token"] < 5.6 < math.log(390)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        files.LOCK,
        *("best.safetensors", "config.yaml", "last.ckpt", "last.safetensors", "log.csv"),
        *("previous.ckpt", "report.html"),
    ]
    model, card = load_checkpoint(result["checkpoint"])
    assert model.config == config.model
    assert card["licences"] == {"made": "CC0"}
    assert card["steps"] == 60
    assert card["quick_validation_nats_per_token"] == result["nats_per_token"]


def test_the_log_has_a_row_for_every_measurement(tokens: Path, tmp_path: Path) -> None:
    train(tokens, tmp_path / "run", run_config(max_steps=50, validate_every_steps=25))
    rows = log_of(tmp_path / "run")
    assert tuple(rows[0]) == LOG_COLUMNS
    assert [row["step"] for row in rows] == ["20", "25", "40", "50"]
    assert [bool(row["validation_nats_per_token"]) for row in rows] == [False, True, False, True]
    assert [int(row["tokens"]) for row in rows] == [n * 4 * 32 for n in (20, 25, 40, 50)]
    assert all(float(row["train_nats_per_token"]) > 3 for row in rows)
    assert all(float(row["gradient_norm"]) > 0 for row in rows)
    assert all(float(row["tokens_per_second"]) > 0 for row in rows)
    assert all(row["mfu"] == "" for row in rows)  # a CPU has no agreed peak


def test_nats_per_note_are_those_of_all_events_by_the_notes_they_make(
    tokens: Path, tmp_path: Path
) -> None:
    train(tokens, tmp_path / "run", run_config(max_steps=2))
    [row] = log_of(tmp_path / "run")
    split = training.Corpus.open(tokens).split("validation")
    nats = float(row["validation_nats_per_token"]) * (split.n_tokens - split.n_pieces)
    assert float(row["validation_nats_per_note"]) == pytest.approx(nats / split.n_notes, rel=1e-5)


def test_utilisation_is_what_the_network_needs_by_what_the_devices_can_do(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "peak_flops", lambda name: {"cpu": 1e9}[name])
    config = run_config(max_steps=2)
    train(tokens, tmp_path / "run", config)
    [row] = log_of(tmp_path / "run")
    expected = GPT(config.model).flops_per_token() * float(row["tokens_per_second"]) / 1e9
    assert float(row["mfu"]) == pytest.approx(expected, rel=1e-3)
    assert "MFU" in progress._line(read_log(tmp_path / "run")[0], "", 0.5)


def test_the_need_of_a_network_that_sees_short_passages_is_that_of_short_passages(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "peak_flops", lambda _: 1e9)
    data = {"first_context": 8, "context_warmup": 1.0}
    train(tokens, tmp_path / "run", run_config(data=data, max_steps=8, validate_every_steps=2))
    model, needs = GPT(run_config().model), []
    for row in log_of(tmp_path / "run"):
        needs.append(1e9 * float(row["mfu"]) / float(row["tokens_per_second"]))
    lengths = (8, 8, 16, 16)  # of the second step, the fourth, the sixth and the eighth
    expected = [model.flops_per_token(length) for length in lengths]
    assert needs == pytest.approx(expected, rel=5e-3)


def test_a_listener_hears_the_kept_weights_and_changes_nothing(
    tokens: Path, tmp_path: Path
) -> None:
    heard: list[tuple[Moment, torch.Tensor]] = []

    def listener(model: GPT, moment: Moment) -> None:
        assert not model.training
        heard.append((moment, model.head.weight.detach().clone()))

    config = run_config(model={"dropout": 0.1}, optim={"ema": 0.5}, max_steps=12)
    config = replace(config, train=replace(config.train, validate_every_steps=5))
    train(tokens, tmp_path / "alone", config)
    train(tokens, tmp_path / "heard", config, listener=listener)
    assert_same_run(tmp_path / "alone", tmp_path / "heard")
    assert [(moment.step, moment.is_last) for moment, _ in heard] == [
        (5, False),
        (10, False),
        (12, True),
    ]
    assert torch.equal(heard[-1][1], weights_of(tmp_path / "heard")["head.weight"])


def test_a_log_of_fewer_columns_is_gone_on_with(stopped: Path, tokens: Path) -> None:
    log = stopped / "log.csv"
    old = [line.split(",")[:5] for line in log.read_text().splitlines()]
    log.write_text("".join(",".join(row) + "\n" for row in old))
    train(tokens, stopped, run_config(max_steps=8), resume=True)
    rows = log_of(stopped)
    assert tuple(rows[0]) == LOG_COLUMNS
    assert [row["step"] for row in rows] == ["3", "8"]
    assert (rows[0]["mfu"], rows[0]["train_nats_per_token"]) == ("", old[1][3])


def test_the_same_run_twice_is_the_same_to_the_last_bit(tokens: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        train(tokens, tmp_path / name, run_config(max_steps=25, validate_every_steps=10))
    assert_same_run(tmp_path / "one", tmp_path / "other")


def test_epochs_count_passes_over_the_training_split(tokens: Path, tmp_path: Path) -> None:
    result = train(tokens, tmp_path / "run", run_config(epochs=2.0, accumulate=2))
    batches = training.CropBatches(
        training.Corpus.open(tokens).split("train"), 32, run_config().data, seed=1
    )
    assert result["steps"] == math.ceil(2 * batches.batches_per_epoch / 2)


def test_the_best_weights_are_those_of_the_lowest_validation_loss(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([Nats(3.0, 12.0), Nats(2.0, 8.0), Nats(2.5, 10.0)])
    monkeypatch.setattr(callback, "mean_nats", lambda *_: next(figures))
    train(tokens, tmp_path / "run", run_config(max_steps=15, validate_every_steps=5))
    _, card = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert (card["steps"], card["quick_validation_nats_per_token"]) == (10, 2.0)


def test_a_run_bound_by_minutes_ends_cooled_down(tokens: Path, tmp_path: Path) -> None:
    config = run_config(max_minutes=0.04, optim={"warmup_steps": 1})
    result = train(tokens, tmp_path / "run", config)
    assert result["finished"]
    assert result["minutes"] >= 0.04
    assert float(log_of(tmp_path / "run")[-1]["learning_rate_factor"]) < 0.2


def test_all_processes_take_a_step_at_the_time_that_they_agreed_on(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed, stepped = [0.0], list[float]()
    before_step = Training.on_before_optimizer_step

    def with_one_ahead(_: Any, values: list[float], how: str) -> list[float]:
        if how != "max":
            return values
        agreed.append(values[0] + 100.0)
        return [agreed[-1], *values[1:]]

    def seen(self: Training, optimizer: torch.optim.Optimizer) -> None:
        stepped.append(self.seconds)
        before_step(self, optimizer)

    monkeypatch.setattr(callback, "_over_ranks", with_one_ahead)
    monkeypatch.setattr(Training, "on_before_optimizer_step", seen)
    config = run_config(max_minutes=8.0, accumulate=2, validate_every_steps=2)
    assert train(tokens, tmp_path / "run", config)["steps"] == 5
    assert stepped == agreed[:-1]


def test_all_processes_end_when_the_least_time_that_one_was_given_is_over(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_one_of_a_second(_: Any, values: list[float], how: str) -> list[float]:
        return [min(*values, 1.0)] if how == "min" else values

    monkeypatch.setattr(callback, "_over_ranks", with_one_of_a_second)
    result = train(tokens, tmp_path / "run", run_config(max_minutes=8.0))
    assert result["finished"]
    assert 1 / 60 <= result["minutes"] + 0.005 < 1


@pytest.mark.parametrize("where", ["in a step", "in a measurement"])
def test_a_paused_process_does_not_count_as_training(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    slept = list[float]()
    monkeypatch.setattr(clock.time, "monotonic", lambda: time.perf_counter() + sum(slept))
    owner, name = (Training, "training_step") if where == "in a step" else (RunCallback, "_measure")
    happens = getattr(owner, name)

    def paused(*args: Any, **how: Any) -> Any:
        slept.append(500.0)
        return happens(*args, **how)

    monkeypatch.setattr(owner, name, paused)
    config = run_config(max_steps=6, max_minutes=8.0, validate_every_steps=2)
    result = train(tokens, tmp_path / "run", config)
    assert slept
    assert result["steps"] == 6
    assert result["minutes"] < 2
    assert all(float(row["minutes"]) < 2 for row in log_of(tmp_path / "run"))
    assert all(float(row["tokens_per_second"]) > 1 for row in log_of(tmp_path / "run"))


def test_accumulated_batches_make_the_step_of_one_large_batch(tokens: Path, tmp_path: Path) -> None:
    long_pieces = tokens_folder(tmp_path / "tokens", {"train": [400]})  # hardly any padding
    plain = {"transpose": 2, "stretch": 0.0, "velocity_bins": 0}
    optim = {"optimizer": "adamw", "clip": 1e9}
    runs = {"large": (8, 1), "parts": (2, 4)}
    for name, (batch_size, accumulate) in runs.items():
        config = run_config(
            data={**plain, "batch_size": batch_size},
            optim=optim,
            max_steps=5,
            accumulate=accumulate,
        )
        train(long_pieces, tmp_path / name, config)
    large, parts = weights_of(tmp_path / "large"), weights_of(tmp_path / "parts")
    for name, tensor in large.items():
        torch.testing.assert_close(parts[name], tensor, atol=2e-4, rtol=0)
    logs = [log_of(tmp_path / name)[-1] for name in runs]
    assert logs[0]["tokens"] == logs[1]["tokens"]
    assert float(logs[0]["train_nats_per_token"]) == pytest.approx(
        float(logs[1]["train_nats_per_token"]), abs=1e-4
    )


def test_a_run_sees_short_passages_first_and_every_target_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_pieces = tokens_folder(tmp_path / "tokens", {"train": [320, 320]})
    shapes: list[tuple[int, ...]] = []

    def seen(model: torch.nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shapes.append(tuple(batch.shape))
        return batch_nats(model, batch)  # type: ignore[arg-type]

    monkeypatch.setattr("music_gpt.training.module.batch_nats", seen)
    data = {"batch_size": 2, "first_context": 8, "context_warmup": 0.5}
    result = train(long_pieces, tmp_path / "run", run_config(data=data, max_steps=8))
    assert shapes == [(8, 9), (8, 9), (4, 17), (4, 17), *4 * [(2, 33)]]
    assert result["tokens"] == 8 * 2 * 32


def test_windows_of_a_batch_are_its_passages_in_order() -> None:
    config = run_config(data={"first_context": 8}, max_steps=8)
    module = Training(random_network(), config, 10.0)
    batch = torch.randint(0, 388, (2, 33), generator=torch.Generator().manual_seed(1))
    passages = [row[start : start + 9] for row in batch for start in (0, 8, 16, 24)]
    alone = torch.stack([module.nats(passage[None])[0] for passage in passages]).sum() / 64
    torch.testing.assert_close(module.training_step(batch, 0), alone)


def test_padding_is_no_target(tokens: Path) -> None:
    module = Training(random_network(), run_config(), 10.0)
    batch = torch.full((2, 33), 389)
    batch[:, :9] = torch.randint(0, 388, (2, 9))
    # a longer row is summed in another order: equal to rounding
    torch.testing.assert_close(
        module.training_step(batch, 0).detach(),
        module.training_step(batch[:, :9], 0).detach(),
        atol=1e-5,
        rtol=0,
    )
    only_padding = module.training_step(torch.full((2, 33), 389), 0)
    assert float(only_padding.detach()) == 0.0


# --- interruptions ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["interrupt", "kill"])
def test_a_run_that_goes_on_is_the_unbroken_run_step_by_step(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(callback, "LOG_EVERY_STEPS", 3)
    config = run_config(
        model={"dropout": 0.1},
        optim={"ema": 0.9},
        max_steps=20,
        validate_every_steps=7,
        accumulate=2,
    )
    train(tokens, tmp_path / "unbroken", config)
    broken = tmp_path / "broken"
    with monkeypatch.context() as patch:
        if how == "interrupt":
            at_step(11, interrupt, patch)  # in the second epoch, and between two rows of the log
            result = train(tokens, broken, config)
            assert (result["finished"], result["stopped_by"]) == (False, "SIGINT")
            assert result["steps"] == 11
        else:
            at_step(13, kill, patch)  # the last saved point is step 7, but step 12 was logged
            with pytest.raises(Killed):
                train(tokens, broken, config)
    assert len(steady_log(broken)) < len(steady_log(tmp_path / "unbroken"))
    assert train(tokens, broken, config, resume=True)["finished"]
    assert_same_run(tmp_path / "unbroken", broken)


def test_a_second_ctrl_c_ends_at_once_and_leaves_the_signals_as_they_were(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def twice(run_callback: RunCallback) -> None:
        interrupt(run_callback)
        interrupt(run_callback)

    config = run_config(max_steps=8, validate_every_steps=3)
    with monkeypatch.context() as patch:
        at_step(5, twice, patch)
        with pytest.raises(KeyboardInterrupt, match="Stopped at once; --resume goes on"):
            train(tokens, tmp_path / "run", config)
    assert run_folder.read_resume_point(tmp_path / "run")["step"] == 3
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert after == before
    assert train(tokens, tmp_path / "run", config, resume=True)["finished"]


def test_a_signal_in_the_last_step_stops_nothing(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_step(4, interrupt, monkeypatch)
    result = train(tokens, tmp_path / "run", run_config(max_steps=4))
    assert (result["finished"], result["stopped_by"]) == (True, None)
    assert "Finished after 4 steps" in (tmp_path / "run" / "report.html").read_text()


def test_a_resumed_run_keeps_the_best_of_before(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([Nats(2.0, 8.0), Nats(3.0, 12.0)])
    monkeypatch.setattr(callback, "mean_nats", lambda *_: next(figures))
    config = run_config(max_steps=10, validate_every_steps=5)
    with monkeypatch.context() as patch:
        at_step(7, interrupt, patch)
        train(tokens, tmp_path / "run", config)
    train(tokens, tmp_path / "run", config, resume=True)
    assert load_checkpoint(tmp_path / "run" / "best.safetensors")[1]["steps"] == 5


@pytest.mark.parametrize(("step", "measured"), [(2, False), (4, False), (3, True)])
def test_the_weights_of_a_stopped_run_tell_a_figure_if_it_is_theirs(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, measured: bool
) -> None:
    at_step(step, interrupt, monkeypatch)
    train(tokens, tmp_path / "run", run_config(max_steps=8, validate_every_steps=3))
    card = load_checkpoint(tmp_path / "run" / "last.safetensors")[1]
    assert card["steps"] == step
    assert (card["quick_validation_nats_per_token"] is not None) == measured


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


def test_a_checkpoint_that_was_cut_off_gives_way_to_the_one_before(
    stopped: Path, tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = stopped / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    result = train(tokens, stopped, run_config(max_steps=8), resume=True)
    assert result["finished"]
    assert [row["step"] for row in log_of(stopped)] == ["3", "8"]
    assert "last.ckpt is not readable" in capsys.readouterr().err


def damaged_state(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def damage(state: dict[str, Any]) -> None:
        *parts, last = name.split("/")
        for part in parts:
            state = state[int(part) if part.isdecimal() else part]  # type: ignore[index]
        if value is None:
            del state[last]
        else:
            state[last] = value

    return damage


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", math.nan),
        ("step", "four"),
        ("tokens", -1),
        ("seconds", math.inf),
        ("best", math.nan),
        ("rng", torch.zeros(3)),
        ("config", []),
        ("config/model/n_layers", "two"),
        ("config/model/d_model", 32),
        ("config/data/batch_size", None),
        ("config/optim/optimizer", "sgd"),
        ("model/head.weight", None),
        ("model/head.weight", torch.zeros(2, 2)),
        ("model/head.weight", torch.full((390, 16), math.nan)),
        ("model/head.weight", "text"),
        ("ema", {}),
        ("optimizer/parts", []),
        ("optimizer/parts/0/state/0/exp_avg", torch.zeros(2)),
        ("optimizer/parts/0/state/0/exp_avg", None),
        ("optimizer/parts/0/state/0/exp_avg", torch.full((390, 16), math.nan)),
    ],
    ids=lambda value: str(value)[:30].replace("\n", ""),
)
def test_a_checkpoint_of_wrong_values_gives_way_to_the_one_before(
    stopped: Path, tokens: Path, capsys: pytest.CaptureFixture[str], name: str, value: Any
) -> None:
    state = torch.load(stopped / "last.ckpt", weights_only=True)
    damaged_state(name, value)(state)
    torch.save(state, stopped / "last.ckpt")
    assert run_folder.read_resume_point(stopped)["step"] == 3
    assert "last.ckpt is not readable" in capsys.readouterr().err
    (stopped / "previous.ckpt").unlink()
    refused("nothing to resume.*--init-from .*best.safetensors", tokens, stopped, resume=True)


def test_being_killed_between_the_two_moves_loses_nothing(stopped: Path, tokens: Path) -> None:
    (stopped / "last.ckpt").replace(stopped / "previous.ckpt")
    assert train(tokens, stopped, run_config(max_steps=8), resume=True)["finished"]


def test_a_resume_point_opens_without_running_code(stopped: Path) -> None:
    state = torch.load(stopped / "last.ckpt", weights_only=True)
    assert state["step"] == 4


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_hostile_checkpoint_is_not_run(stopped: Path, tokens: Path) -> None:
    mark = stopped / "ran"
    torch.save({"model": Bomb(mark)}, stopped / "last.ckpt")
    (stopped / "previous.ckpt").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(InputError, match="nothing to resume"):
        train(tokens, stopped, run_config(max_steps=8), resume=True)
    assert not mark.exists()


def test_a_checkpoint_of_another_program_is_not_resumed(stopped: Path, tokens: Path) -> None:
    for name in ("last.ckpt", "previous.ckpt"):
        torch.save({"state_dict": {}}, stopped / name)
    with pytest.raises(InputError, match="nothing to resume"):
        train(tokens, stopped, run_config(max_steps=8), resume=True)


def test_a_run_can_go_on_with_a_lower_learning_rate(
    stopped: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    scale = MuonAdamW.scale

    def scaled(self: MuonAdamW, **factors: float) -> None:
        scale(self, **factors)
        seen.append(max(group["lr"] for group in self.param_groups))

    monkeypatch.setattr(MuonAdamW, "scale", scaled)
    low = {"muon_lr": 1e-5, "adamw_lr": 1e-5}
    train(tokens, stopped, run_config(optim=low, max_steps=8), resume=True)
    assert 0 < max(seen) <= 1e-5


def test_a_run_can_go_on_with_other_batches_and_sees_the_crops_that_are_left(
    stopped: Path, tokens: Path
) -> None:
    config = run_config(data={"batch_size": 2}, max_steps=8, accumulate=3)
    result = train(tokens, stopped, config, resume=True)
    assert result["tokens"] == (4 * 4 + 4 * 6) * 32
    state = torch.load(stopped / "last.ckpt", weights_only=True)
    assert state["batches_done"] == 4 * 4 // 2 + 4 * 3


# --- what cannot work is said -----------------------------------------------------------------


def refused(match: str, tokens: Path, out: Path, config: Any = None, **options: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        train(tokens, out, config or run_config(max_steps=8), **options)
    assert "\n" not in str(caught.value)


def test_a_folder_that_holds_a_run_is_not_overwritten(stopped: Path, tokens: Path) -> None:
    before = {p.name: p.read_bytes() for p in stopped.iterdir()}
    refused("already holds a run; go on with it with --resume", tokens, stopped)
    assert {p.name: p.read_bytes() for p in stopped.iterdir()} == before
    for name in ("last.ckpt", "previous.ckpt", "last.safetensors"):
        (stopped / name).unlink()
    refused("already holds a run", tokens, stopped)  # its best weights are still there


def test_what_a_start_without_a_result_left_is_written_anew(tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    run_folder.open_run(run, run_config(), step=None)
    (run / "log.csv").write_text("step\n1\n")
    train(tokens, run, run_config(max_steps=2))
    assert [row["step"] for row in log_of(run)] == ["2"]


def test_nothing_to_resume_is_said(tokens: Path, tmp_path: Path) -> None:
    refused("nothing to resume", tokens, tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


def test_a_finished_run_is_not_resumed(stopped: Path, tokens: Path) -> None:
    train(tokens, stopped, run_config(max_steps=8), resume=True)
    refused("is finished; to train longer.*--init-from", tokens, stopped, resume=True)


def test_a_run_is_not_resumed_with_another_network(stopped: Path, tokens: Path) -> None:
    other = run_config(model={"d_ff": 64}, max_steps=8)
    refused("another network or optimizer.*config.yaml", tokens, stopped, other, resume=True)
    other = run_config(optim={"optimizer": "adamw"}, max_steps=8)
    refused("another network or optimizer.*config.yaml", tokens, stopped, other, resume=True)


def test_a_run_is_not_resumed_on_other_tokens(stopped: Path, tmp_path: Path) -> None:
    other = tokens_folder(tmp_path / "other", {"train": [30]}, seed=90)
    refused("not the one that the run was started with", other, stopped, resume=True)


def test_a_folder_that_cannot_be_written_is_said_before_the_first_step(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(Training, "training_step", lambda *_: pytest.fail("a step was made"))
    refused("cannot be written.*choose another folder", tokens, tmp_path / "file")
    refused("cannot be written.*choose another folder", tokens, tmp_path / "file" / "run")


def test_a_second_run_in_the_same_folder_is_refused(
    tokens: Path, stopped: Path, tmp_path: Path
) -> None:
    with files.locked(tmp_path / "new", "train"):
        refused("Another `music-gpt train` is writing to .*new; wait", tokens, tmp_path / "new")
    with files.locked(stopped, "train"):
        refused("Another `music-gpt train`", tokens, stopped, run_config(max_steps=8), resume=True)
    assert [file.name for file in (tmp_path / "new").iterdir()] == [files.LOCK]


def test_a_network_for_text_is_not_trained_on_music(tokens: Path, tmp_path: Path) -> None:
    text = run_config(model={"vocab_size": 65})
    refused("vocab_size is 65, but the tokens are 390 events", tokens, tmp_path / "run", text)


def test_without_training_pieces_there_is_no_run(tmp_path: Path) -> None:
    only = tokens_folder(tmp_path / "tokens", {"validation": [30]})
    refused("no split 'train', only validation", only, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_a_validation_split_the_training_loss_chooses_and_this_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = tokens_folder(tmp_path / "tokens", {"train": [60]})
    result = train(only, tmp_path / "run", run_config(max_steps=6, validate_every_steps=3))
    assert "no validation split: the best checkpoint is chosen" in capsys.readouterr().err
    assert result["checkpoint"].endswith("best.safetensors")
    assert result["nats_per_token"] == pytest.approx(
        float(log_of(tmp_path / "run")[-1]["train_nats_per_token"]), abs=1e-4
    )
    assert load_checkpoint(result["checkpoint"])[1]["quick_validation_nats_per_token"] is None


def test_pieces_shorter_than_the_context_are_learned_too(tmp_path: Path) -> None:
    short = tokens_folder(tmp_path / "tokens", {"train": [2, 3], "validation": [2]})
    result = train(short, tmp_path / "run", run_config(max_steps=40, model={"context": 128}))
    assert result["nats_per_token"] < 5.9


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has cuda")
def test_a_device_that_is_not_there_is_said(tokens: Path, tmp_path: Path) -> None:
    refused("This machine has no cuda", tokens, tmp_path / "run", run_config(device="cuda"))


def test_a_disk_that_is_full_ends_the_run_with_the_checkpoint_before(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, calls = torch.save, []

    def full(state: Any, file: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            file.write(b"part")
            raise RuntimeError("PytorchStreamWriter failed writing file: no space\nat line 3")
        save(state, file)

    monkeypatch.setattr(run_folder.torch, "save", full)
    config = run_config(max_steps=8, validate_every_steps=3)
    refused(
        "last.ckpt cannot be written: the disk is full; free .*go on with --resume",
        tokens,
        tmp_path / "r",
        config,
    )
    assert run_folder.read_resume_point(tmp_path / "r")["step"] == 3
    assert not list((tmp_path / "r").glob(".part*"))


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors", "log.csv"])
def test_whatever_the_disk_does_not_take_the_run_goes_on_from_its_checkpoint(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # the log is read between two of its rows, for the report
    after = {"best.safetensors": 2, "last.safetensors": 1, "log.csv": 3}[name]
    calls: list[Path] = []

    def full(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Path, *args: Any, **how: Any) -> Any:
            calls.extend([path] * (path.name == name))
            if path.name == name and len(calls) == after:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(path, *args, **how)

        return wrapped

    config = run_config(max_steps=6, validate_every_steps=3)
    figures = iter([Nats(3.0, 12.0), Nats(2.0, 8.0), Nats(2.0, 8.0)])
    with monkeypatch.context() as patch:
        patch.setattr(callback, "mean_nats", lambda *_: next(figures))
        patch.setattr(files, "_beside", full(files._beside))
        patch.setattr(Path, "open", full(Path.open))
        sentence = f"{name} cannot be written: the disk is full; free .*go on with --resume"
        refused(sentence, tokens, tmp_path / "r", config)
    saved = run_folder.read_resume_point(tmp_path / "r")["step"]
    assert saved == (6 if name == "last.safetensors" else 3)
    result = train(tokens, tmp_path / "r", config, resume=True)
    assert (result["finished"], result["steps"]) == (True, 6)
    assert load_checkpoint(tmp_path / "r" / "last.safetensors")[1]["steps"] == 6


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff\x89PNG",
        b"\x00\xff\x89\nPNG\n",
        b"step,minutes,tokens\n3,0.1,\n",
        b"step,minutes,tokens\n3,0.1\n",
        b"step,minutes,tokens\n3,0.1,1\x000\n",
        b"step,minutes,tokens\ninf,0.1,100\n",
        b"date;price\n1;2\n",
        b"step,tokens,accuracy\n",
        b"\xff",
    ],
    ids=str,
)
def test_a_log_that_is_none_is_told_before_anything_is_written(
    stopped: Path, tokens: Path, content: bytes
) -> None:
    (stopped / "log.csv").write_bytes(content)
    (stopped / "config.yaml").write_text("mine: 1\n")
    refused("log.csv is damaged, or not .*; move it", tokens, stopped, resume=True)
    assert (stopped / "log.csv").read_bytes() == content
    assert (stopped / "config.yaml").read_text() == "mine: 1\n"
    (stopped / "log.csv").unlink()
    assert train(tokens, stopped, run_config(max_steps=8), resume=True)["finished"]


@pytest.mark.parametrize("rest", ["4,0.0", "\0" * 100, "4,0.1,2\udc85"])
def test_a_last_row_that_was_cut_off_is_left_out(stopped: Path, rest: str) -> None:
    rows = read_log(stopped)
    with (stopped / "log.csv").open("a", encoding="utf-8", errors="replace") as file:
        file.write(rest)
    assert read_log(stopped) == rows
    (stopped / "log.csv").write_text("step,minu")
    assert read_log(stopped) == []


def test_a_damaged_index_of_the_training_music_is_told_before_anything_is_written(
    tmp_path: Path,
) -> None:
    folder = tokens_folder(tmp_path / "tokens", {"train": [60]})
    (folder / "originality.npz").write_bytes(b"PK\x03\x04 cut off")
    refused("originality.npz is no index of this version, or is damaged", folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- divergence -------------------------------------------------------------------------------


def test_a_run_that_diverges_at_once_says_so_and_keeps_no_weights(
    tokens: Path, tmp_path: Path
) -> None:
    wild = run_config(
        max_steps=40, optim={"optimizer": "adamw", "adamw_lr": 1e30, "warmup_steps": 0}
    )
    refused("diverged at step 20.*start again with a lower --optim", tokens, tmp_path / "r", wild)
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [files.LOCK, "config.yaml"]


def test_a_run_that_diverges_later_keeps_the_last_good_checkpoint(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(max_steps=40, validate_every_steps=6)
    training_step = Training.training_step

    def wild(self: Training, batch: torch.Tensor, i: int) -> torch.Tensor:
        loss = training_step(self, batch, i)
        if self.step == 14:
            self.loss_sum += math.nan
            return loss * math.nan
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Training, "training_step", wild)
        refused("diverged at step 18.*good checkpoint .* was kept", tokens, tmp_path / "r", config)
    state = run_folder.read_resume_point(tmp_path / "r")
    assert state["step"] == 12
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
    load_checkpoint(tmp_path / "r" / "best.safetensors")
    assert train(tokens, tmp_path / "r", config, resume=True)["finished"]


def test_weights_that_diverge_in_the_last_step_are_not_kept(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = tokens_folder(tmp_path / "tokens", {"train": [60]})
    step = MuonAdamW.step

    def wild(self: MuonAdamW, closure: Any = None) -> Any:
        loss = step(self, closure)
        if self.param_groups[0]["lr"] == pytest.approx(2e-3 * lr_factor(config.optim, 5, 5 / 6)):
            with torch.no_grad():
                self.param_groups[1]["params"][0].fill_(math.nan)
        return loss

    config = run_config(max_steps=6)
    monkeypatch.setattr(MuonAdamW, "step", wild)
    refused("diverged at step 6", only, tmp_path / "r", config)
    assert not list((tmp_path / "r").glob("*.safetensors"))
    assert not (tmp_path / "r" / "last.ckpt").exists()


# --- starting from other weights --------------------------------------------------------------


def test_init_from_starts_with_the_weights_of_a_checkpoint(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path / "old.safetensors", random_network(5), {})
    begun: list[dict[str, torch.Tensor]] = []
    on_fit_start = Training.on_fit_start

    def seen(self: Training) -> None:
        on_fit_start(self)
        begun.append({k: v.clone() for k, v in self.model.state_dict().items()})

    monkeypatch.setattr(Training, "on_fit_start", seen)
    config = run_config(max_steps=2)
    train(tokens, tmp_path / "run", config, init_from=tmp_path / "old.safetensors")
    expected = random_network(5).state_dict()
    assert all(torch.equal(begun[0][name], tensor) for name, tensor in expected.items())
    card = load_checkpoint(tmp_path / "run" / "last.safetensors")[1]
    assert card["init_from"] == "old.safetensors"


def test_a_larger_network_begins_with_what_a_small_checkpoint_knows(
    tokens: Path, tmp_path: Path
) -> None:
    small = random_network(5)
    save_checkpoint(tmp_path / "small.safetensors", small, {})
    still = {"muon_lr": 1e-9, "adamw_lr": 1e-9}
    config = run_config(model={"n_layers": small.config.n_layers + 1}, optim=still, max_steps=1)
    train(tokens, tmp_path / "run", config, init_from=tmp_path / "small.safetensors")
    large, _ = load_checkpoint(tmp_path / "run" / "last.safetensors")
    assert large.config.n_layers == small.config.n_layers + 1
    ids = torch.arange(8)[None]
    torch.testing.assert_close(large(ids), small(ids), atol=1e-4, rtol=0)


def test_init_from_a_shape_that_cannot_grow_is_refused_with_the_shape_to_use(
    tokens: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.safetensors"
    for changes in ({"d_ff": 64}, {"n_layers": 9}, {"bias": False}):
        save_checkpoint(old, random_network(**changes), {})
        refused("cannot be grown.*d_ff", tokens, tmp_path / "run", init_from=old)
    assert not (tmp_path / "run").exists()


# --- the moving average ----------------------------------------------------------------------


def test_the_average_is_what_is_kept_and_training_goes_on_with_the_weights() -> None:
    module = Training(random_network(1), run_config(optim={"ema": 0.5}), 10.0)
    own = module.model.head.weight.clone()
    assert module.ema is not None
    module.ema.state["head.weight"].zero_()
    with module.kept_weights() as model:
        assert not model.training
        assert not model.head.weight.any()
    assert torch.equal(module.model.head.weight, own)
    assert module.model.training


# --- from outside -----------------------------------------------------------------------------


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
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


def test_two_processes_train_like_one_with_batches_of_twice_the_size(tmp_path: Path) -> None:
    long_pieces = tokens_folder(tmp_path / "tokens", {"train": [400], "validation": [150]})
    same = {
        "data.stretch": 0,
        "data.velocity_bins": 0,
        "optim.optimizer": "adamw",
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
