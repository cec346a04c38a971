"""A whole run: what it learns, counts and leaves in its folder."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import assert_same_run, at_step, interrupt, log_of, refused, weights_of
from small import random_network, run_config, tokens_folder

from music_gpt import files
from music_gpt.network.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.network.model import GPT
from music_gpt.training import callback, clock, progress
from music_gpt.training import run as training
from music_gpt.training.callback import RunCallback, ValidationScore
from music_gpt.training.module import Training, batch_nats
from music_gpt.training.progress import Moment
from music_gpt.training.run import train
from music_gpt.training.run_folder import LOG_COLUMNS, read_log, read_resume_point

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

    class Listener:
        def __call__(self, model: GPT, moment: Moment) -> None:
            assert not model.training
            heard.append((moment, model.head.weight.detach().clone()))

        def last_seconds(self, limit_seconds: float) -> float:
            return 0.0

    config = run_config(model={"dropout": 0.1}, optim={"ema": 0.5}, max_steps=12)
    config = replace(config, train=replace(config.train, validate_every_steps=5))
    train(tokens, tmp_path / "alone", config)
    train(tokens, tmp_path / "heard", config, listener=Listener())
    assert_same_run(tmp_path / "alone", tmp_path / "heard")
    assert [(moment.step, moment.is_last) for moment, _ in heard] == [
        (5, False),
        (10, False),
        (12, True),
    ]
    assert torch.equal(heard[-1][1], weights_of(tmp_path / "heard")["head.weight"])


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
    figures = iter(ValidationScore(nats, 4 * nats) for nats in (3.0, 2.0, 2.5))
    monkeypatch.setattr(callback, "mean_nats", lambda *_: next(figures))
    train(tokens, tmp_path / "run", run_config(max_steps=15, validate_every_steps=5))
    _, card = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert (card["steps"], card["quick_validation_nats_per_token"]) == (10, 2.0)


def test_a_run_bound_by_minutes_ends_cooled_down(tokens: Path, tmp_path: Path) -> None:
    config = run_config(max_minutes=0.04, optim={"warmup_steps": 1})
    result = train(tokens, tmp_path / "run", config)
    assert result["finished"]
    assert float(log_of(tmp_path / "run")[-1]["learning_rate_factor"]) < 0.2


class Machine:
    """A machine on which all takes a time of its own, by a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, score_seconds: float) -> None:
        self.now, self.heard = 1000.0, list[Moment]()
        self.progress, self.kept = list[float](), list[float]()
        step, after_step = Training.training_step, RunCallback._after_step

        def stepped(module: Training, *words: Any) -> torch.Tensor:
            self.now += 0.5 if module.step else 9.0  # the first one compiles
            return step(module, *words)

        def scored(*_: Any) -> ValidationScore:
            self.now += score_seconds
            return ValidationScore(3.0, 12.0)

        def seen(run_callback: RunCallback, trainer: Any, module: Training) -> None:
            after_step(run_callback, trainer, module)
            self.progress.append(module.progress)
            self.kept.append(module.reserved_seconds)

        monkeypatch.setattr(Training, "training_step", stepped)
        monkeypatch.setattr(RunCallback, "_after_step", seen)
        monkeypatch.setattr(callback, "mean_nats", scored)
        monkeypatch.setattr(clock.time, "monotonic", lambda: self.now)

    def __call__(self, model: GPT, moment: Moment) -> None:
        """Hear it for three seconds, and at the end as long as there is."""
        self.heard.append(moment)
        self.now += min(moment.seconds_left, 9.0) if moment.is_last else 3.0

    def last_seconds(self, limit_seconds: float) -> float:
        return 4.0


@pytest.mark.parametrize("every", [50, 1000], ids=["measured before", "never measured before"])
def test_a_run_ends_within_its_minutes_with_all_that_comes_after_its_last_step(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    config = run_config(max_minutes=3.0, validate_every_steps=every, optim={"warmup_steps": 1})
    targets = training.Windows(training.Corpus.open(tokens).split("validation"), 32, 4).n_targets
    scoring = 8.0 if every == 50 else 0.5 * targets / (4 * 32) / 3
    machine = Machine(monkeypatch, score_seconds=scoring)
    result = train(tokens, tmp_path / "run", config, listener=machine)
    assert result["finished"]
    assert 2.9 < result["minutes"] <= 3.0
    assert 0 <= machine.heard[-1].seconds_left < 9.0
    assert float(log_of(tmp_path / "run")[-1]["learning_rate_factor"]) < 0.05
    steps = [late - early for early, late in itertools.pairwise(machine.progress)]
    assert 0 < min(steps) <= max(steps) < 0.08  # of which a measurement with samples is 0.06


def test_a_measurement_that_the_last_one_would_come_too_late_after_is_left_to_it(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, score_seconds=8.0)
    config = run_config(max_minutes=2.0, validate_every_steps=50, save_every_minutes=0.01)
    train(tokens, tmp_path / "run", config, listener=machine)
    measured = [moment.step for moment in machine.heard]
    assert measured == [50, 100, len(machine.progress)]
    assert len(machine.progress) > 150
    assert all(moment.is_last for moment in machine.heard[2:])


def test_a_run_without_a_bound_by_the_clock_keeps_no_time_for_its_end(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, score_seconds=8.0)
    config = run_config(max_steps=9, validate_every_steps=3)
    assert train(tokens, tmp_path / "run", config, listener=machine)["steps"] == 9
    assert machine.progress == [step / 9 for step in range(1, 10)]
    assert [(moment.step, moment.seconds_left) for moment in machine.heard] == [
        (3, math.inf),
        (6, math.inf),
        (9, math.inf),
    ]
    assert set(machine.kept) == {0.0}


def test_a_run_that_goes_on_knows_how_long_its_end_will_take(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, score_seconds=8.0)
    config = run_config(max_minutes=2.0, validate_every_steps=50)
    with monkeypatch.context() as patch:
        at_step(60, interrupt, patch)
        train(tokens, tmp_path / "run", config)
    state = read_resume_point(tmp_path / "run")
    assert state["reserved_seconds"] > 9.0
    for version in ("as it is", "of a version that kept nothing"):
        if version != "as it is":
            del state["reserved_seconds"]
            torch.save(state, tmp_path / "run" / "last.ckpt")
        machine.kept.clear()
        result = train(tokens, tmp_path / "run", config, resume=True)
        assert result["minutes"] <= 2.0
        assert (machine.kept[0] > 9.0) == (version == "as it is")


def test_all_processes_take_a_step_at_the_time_that_they_agreed_on(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed, stepped, kept = list[float](), list[float](), list[float]()
    before_step = Training.on_before_optimizer_step

    def with_one_ahead(_: Any, values: list[float], how: str) -> list[float]:
        if how != "max":
            return values
        agreed.append(values[0] + 100.0)
        # another process keeps more for its end
        return [agreed[-1], *(value + 10.0 for value in values[1:2]), *values[2:]]

    def seen(self: Training, optimizer: torch.optim.Optimizer) -> None:
        stepped.append(self.seconds)
        kept.append(self.reserved_seconds)
        before_step(self, optimizer)

    monkeypatch.setattr(callback, "over_ranks", with_one_ahead)
    monkeypatch.setattr(Training, "on_before_optimizer_step", seen)
    config = run_config(max_minutes=8.0, accumulate=2, validate_every_steps=2)
    assert train(tokens, tmp_path / "run", config)["steps"] == 4  # begun at 100 seconds of 480
    assert stepped == agreed[:-1]
    assert kept[0] == 0.0
    assert all(seconds >= 10.0 for seconds in kept[1:])


def test_all_processes_begin_with_the_time_that_the_slowest_to_start_has_used(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_one_of_479_seconds(_: Any, values: list[float], how: str) -> list[float]:
        return [max(*values, 479.0), *values[1:]] if how == "max" else values

    monkeypatch.setattr(callback, "over_ranks", with_one_of_479_seconds)
    result = train(tokens, tmp_path / "run", run_config(max_minutes=8.0))
    assert result["finished"]
    assert result["steps"] > 0
    assert 7.97 < result["minutes"] <= 8.005


@pytest.mark.parametrize(
    ("started", "minutes"), [(None, 0.0), (60.0, 1.0), (9999.0, 7.9)], ids=["no", "yes", "too long"]
)
def test_where_the_start_counts_it_counts_up_to_the_first_step(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Any, minutes: float
) -> None:
    machine = Machine(monkeypatch, score_seconds=1.0)
    open_split = training.Corpus.open

    def slowly(folder: Path) -> Any:
        machine.now += started or 60.0
        return open_split(folder)

    monkeypatch.setattr(training.Corpus, "open", slowly)
    config = run_config(max_minutes=8.0, max_steps=1)
    began = None if started is None else machine.now
    result = train(tokens, tmp_path / "run", config, began=began)
    assert result["minutes"] == pytest.approx(minutes + (9 + 1) / 60, abs=0.01)


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


def test_passages_of_every_length_are_compiled_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, compile_ = list[int](), torch.compile

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        compiled.append(1)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda f, **how: compile_(f, **how, backend=backend))
    long_pieces = tokens_folder(tmp_path / "tokens", {"train": [320], "validation": [60]})
    model = {"context": 512, "n_layers": 1, "dropout": 0.1}
    data = {"batch_size": 1, "first_context": 1, "context_warmup": 0.5}
    config = run_config(model=model, data=data, max_steps=24, compile=True, validate_every_steps=5)
    torch._dynamo.reset()
    train(long_pieces, tmp_path / "run", config)
    assert len(compiled) == 10


def test_a_step_on_another_device_leaves_nothing_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adamw = torch.optim.AdamW  # whose fused form runs on real devices only
    monkeypatch.setattr(torch.optim, "AdamW", lambda *a, **how: adamw(*a, **how | {"fused": False}))
    data, optim = {"first_context": 8, "context_warmup": 0.5}, {"ema": 0.9}
    config = run_config(model={"dropout": 0.1}, data=data, optim=optim, max_steps=4)
    with torch.device("meta"):
        module = Training(GPT(config.model), config, 1.0)
    optimizer = module.configure_optimizers()
    for module.step in range(4):
        module.training_step(torch.zeros(4, 33, dtype=torch.long, device="meta"), 0).backward()
        module.on_before_optimizer_step(optimizer)
        module.configure_gradient_clipping()
        optimizer.step()
        assert module.ema is not None
        module.ema.update(module.model)
    held = [
        v for s in optimizer.state_dict()["parts"] for p in s["state"].values() for v in p.items()
    ]
    assert {tensor.device.type for name, tensor in held if name != "step"} == {"meta"}
    assert module.loss_sum.device.type == module.gradient_norm.device.type == "meta"


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
