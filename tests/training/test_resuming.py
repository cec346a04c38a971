"""Runs that were interrupted, stopped or damaged, and what they go on from."""

from __future__ import annotations

import math
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from runs import assert_same_run, at_step, interrupt, log_of, refused, steady_log
from small import run_config

from music_gpt.errors import InputError
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.network.model import GPT
from music_gpt.process import TERMINATION_SIGNALS
from music_gpt.training import callback, run, run_folder
from music_gpt.training.callback import RunCallback, ValidationScore
from music_gpt.training.module import Training
from music_gpt.training.optimizer import MuonAdamW
from music_gpt.training.progress import Moment
from music_gpt.training.run import train
from music_gpt.training.run_folder import LOG_COLUMNS, read_resume_point


class Killed(BaseException):
    """Ends the run without a chance to save."""


def kill(_: RunCallback) -> None:
    raise Killed


# --- a whole run ------------------------------------------------------------------------------


def test_a_log_of_fewer_columns_is_gone_on_with(stopped: Path, tokens: Path) -> None:
    log = stopped / "log.csv"
    old = [line.split(",")[:5] for line in log.read_text().splitlines()]
    log.write_text("".join(",".join(row) + "\n" for row in old))
    train(tokens, stopped, run_config(max_steps=8), resume=True)
    rows = log_of(stopped)
    assert tuple(rows[0]) == LOG_COLUMNS
    assert [row["step"] for row in rows] == ["3", "8"]
    assert (rows[0]["mfu"], rows[0]["train_nats_per_token"]) == ("", old[1][3])


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


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_what_a_gpu_draws_goes_on_where_it_was(
    stopped: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    drawn = torch.arange(16, dtype=torch.uint8)
    its, place = (torch.cuda, [torch.device("cuda", 0)]) if kind == "cuda" else (torch.mps, [])
    monkeypatch.setattr(its, "get_rng_state", lambda *_: drawn)
    strategy = SimpleNamespace(root_device=torch.device(kind, 0))
    config = run_config()
    module = Training(GPT(config.model), config, 1.0)
    optimizer = MuonAdamW(module.model, config.optim)
    trainer: Any = SimpleNamespace(strategy=strategy, optimizers=[optimizer], is_global_zero=True)
    card = {"tokens_sha256": ""}
    RunCallback(stopped, None, card, {}).save(trainer, module)
    state = read_resume_point(stopped)
    set_back: list[tuple[Any, ...]] = []
    monkeypatch.setattr(its, "set_rng_state", lambda *both: set_back.append(both))
    RunCallback(stopped, None, card, state).on_fit_start(trainer, module)
    [(draws, *device)] = set_back
    assert torch.equal(draws, drawn)
    assert device == place
    trainer.is_global_zero = False  # or all processes would drop the same activations
    RunCallback(stopped, None, card, state).on_fit_start(trainer, module)
    trainer.is_global_zero, strategy.root_device = True, torch.device("cpu")  # another machine
    RunCallback(stopped, None, card, state).on_fit_start(trainer, module)
    assert len(set_back) == 1


def test_what_other_processes_draw_is_not_drawn_again_when_the_run_goes_on(
    stopped: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(run, "_fit", lambda *_: seeds.append(torch.initial_seed()))
    for name, value in (("global_rank", 1), ("world_size", 2), ("is_global_zero", False)):
        monkeypatch.setattr(pl.Trainer, name, value)
    config = run_config(max_steps=8)
    assert train(tokens, stopped.parent / "new", config) == {}
    assert train(tokens, stopped, config, resume=True) == {}
    assert seeds == [config.train.seed + 1, config.train.seed + 1 + 2 * 4]


def test_a_second_ctrl_c_ends_at_once_and_leaves_the_signals_as_they_were(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, *TERMINATION_SIGNALS)]

    def twice(run_callback: RunCallback) -> None:
        interrupt(run_callback)
        interrupt(run_callback)

    config = run_config(max_steps=8, validate_every_steps=3)
    with monkeypatch.context() as patch:
        at_step(5, twice, patch)
        with pytest.raises(KeyboardInterrupt, match="Stopped at once; --resume goes on"):
            train(tokens, tmp_path / "run", config)
    assert run_folder.read_resume_point(tmp_path / "run")["step"] == 3
    after = [signal.getsignal(number) for number in (signal.SIGINT, *TERMINATION_SIGNALS)]
    assert after == before
    assert train(tokens, tmp_path / "run", config, resume=True)["finished"]


@pytest.mark.parametrize("step", [3, 8])
def test_what_a_stopped_step_was_to_measure_is_measured_when_the_run_goes_on(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """In the middle of the run, and at its end; heard as well."""

    class Listener:
        def __init__(self) -> None:
            self.heard = list[Moment]()

        def __call__(self, _: object, moment: Moment) -> None:
            self.heard.append(moment)

        def last_seconds(self, limit_seconds: float) -> float:
            return 0.0

    config = run_config(max_steps=8, validate_every_steps=3, optim={"ema": 0.5})
    unbroken, broken, listener = tmp_path / "unbroken", tmp_path / "broken", Listener()
    train(tokens, unbroken, config)
    with monkeypatch.context() as patch:
        at_step(step, interrupt, patch)
        result = train(tokens, broken, config, listener=listener)
    assert (result["finished"], result["stopped_by"]) == (False, "SIGINT")
    assert result["steps"] == step
    assert "Stopped by SIGINT after" in (broken / "report.html").read_text()
    assert step not in [moment.step for moment in listener.heard]
    result = train(tokens, broken, config, resume=True, listener=listener)
    assert (result["finished"], result["stopped_by"]) == (True, None)
    assert [moment.step for moment in listener.heard] == [3, 6, 8]
    assert [moment.is_last for moment in listener.heard] == [False, False, True]
    assert_same_run(unbroken, broken)


def test_a_signal_while_the_end_is_heard_leaves_the_run_finished(
    tokens: Path, tmp_path: Path
) -> None:
    class Listener:
        def __call__(self, *_: object) -> None:
            signal.raise_signal(signal.SIGTERM)

        def last_seconds(self, limit_seconds: float) -> float:
            return 0.0

    result = train(tokens, tmp_path / "run", run_config(max_steps=4), listener=Listener())
    assert (result["finished"], result["stopped_by"]) == (True, "SIGTERM")
    assert result["validation_tokens"] == 392
    assert "Finished after 4 steps" in (tmp_path / "run" / "report.html").read_text()


def test_a_resumed_run_keeps_the_best_of_before(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([ValidationScore(2.0, 8.0), ValidationScore(3.0, 12.0)])
    monkeypatch.setattr(callback, "mean_nats", lambda *_: next(figures))
    config = run_config(max_steps=10, validate_every_steps=5)
    with monkeypatch.context() as patch:
        at_step(7, interrupt, patch)
        train(tokens, tmp_path / "run", config)
    train(tokens, tmp_path / "run", config, resume=True)
    assert load_checkpoint(tmp_path / "run" / "best.safetensors")[1]["steps"] == 5


@pytest.mark.parametrize("step", [2, 3, 4])
def test_the_weights_of_a_stopped_run_tell_no_figure_of_others(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    at_step(step, interrupt, monkeypatch)
    train(tokens, tmp_path / "run", run_config(max_steps=8, validate_every_steps=3))
    card = load_checkpoint(tmp_path / "run" / "last.safetensors")[1]
    assert card["steps"] == step
    assert card["quick_validation_nats_per_token"] is None
    assert card["quick_validation_tokens"] is None


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
        pytest.param(
            *("cuda_rng", torch.zeros(3)),
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
        ),
        pytest.param(
            *("mps_rng", torch.zeros(3)),
            marks=pytest.mark.skipif(
                not torch.backends.mps.is_available(), reason="needs the GPU of a Mac"
            ),
        ),
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
