"""Batches -> a trained model: the LightningModule, its optimiser, and a Trainer in plain code.

A run lives in one folder and survives whatever ends it:

    config.yaml          what was asked for
    log.csv              one row for every measurement
    last.ckpt            everything needed to go on (`--resume`); previous.ckpt is the one before
    best.safetensors     the weights with the lowest validation loss so far
    last.safetensors     the weights at the end

The module knows token batches, not music: neither MidiTok nor symusic is imported, so a bare
machine with torch, Lightning, numpy and safetensors can train.
"""

from __future__ import annotations

import csv
import logging
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from tqdm import tqdm

from music_gpt.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.config import OptimConfig, RunConfig
from music_gpt.corpus import Corpus, sha256_of
from music_gpt.data import CropBatches, Windows, loader
from music_gpt.errors import InputError
from music_gpt.events import PAD
from music_gpt.model import GPT, token_nats, use_bf16

LONGEST_STEP_SECONDS = 60.0
"""A step that seems to take longer was a paused process; it counts as this long."""
LOG_EVERY_STEPS = 20
LOG_COLUMNS = (
    "step",
    "minutes",
    "tokens",
    "train_nats_per_token",
    "validation_nats_per_token",
    "learning_rate_factor",
    "gradient_norm",
    "tokens_per_second",
)


# --- the optimiser ----------------------------------------------------------------------------


class MuonAdamW(torch.optim.Optimizer):
    """Muon on the hidden matrices and AdamW on the rest, behind one optimiser.

    Source of Muon: Jordan et al. 2024; here `torch.optim.Muon`. Both parts share their parameter
    groups with this object, so whatever sets a learning rate here sets it there.
    """

    def __init__(self, model: GPT, config: OptimConfig) -> None:
        hidden, decayed, plain = _parameter_groups(model, muon=config.optimizer == "muon")
        adamw = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": config.weight_decay},
                {"params": plain, "weight_decay": 0.0},
            ],
            lr=config.adamw_lr,
            betas=config.betas,
            # the foreach and fused forms differ in the last bits only; fused is the quickest
            fused=True,
        )
        self.parts: list[torch.optim.Optimizer] = [adamw]
        if hidden:
            self.parts.append(
                torch.optim.Muon(
                    hidden,
                    lr=config.muon_lr,
                    momentum=config.muon_momentum,
                    weight_decay=config.weight_decay,
                )
            )
        groups = [group for part in self.parts for group in part.param_groups]
        super().__init__([{"params": list(group["params"])} for group in groups], {})
        self._share_groups()
        for group in self.param_groups:
            group["peak_lr"] = group["lr"]

    def _share_groups(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def scale_lr(self, factor: float) -> None:
        """Set every learning rate to `factor` times its peak."""
        for group in self.param_groups:
            group["lr"] = factor * group["peak_lr"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Evaluate `closure` once (forward and backward), then move all parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of both parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the states of both parts."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()


def _parameter_groups(
    model: GPT, *, muon: bool
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Hidden matrices for Muon, matrices with weight decay for AdamW, and all the rest."""
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "blocks." in name]
    chosen = {id(p) for p in hidden}
    plain = [p for p in model.parameters() if id(p) not in chosen]
    return (hidden, [], plain) if muon else ([], hidden, plain)


def lr_factor(config: OptimConfig, step: int, progress: float) -> float:
    """Share of the peak learning rate after `step` steps, at `progress` (0 to 1) of the run.

    It rises over the warm-up, holds, and falls over the last `cooldown` of the run.

    >>> [lr_factor(OptimConfig(), step, step / 1000) for step in (0, 49, 400, 750, 1000)]
    [0.01, 0.5, 1.0, 0.51, 0.02]
    """
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    left = 1.0 - min(progress, 1.0)
    fall = min(1.0, left / config.cooldown) if config.cooldown else 1.0
    if config.schedule == "cosine":
        fall = (1.0 - math.cos(math.pi * fall)) / 2.0
    return warm * (config.final_lr + (1.0 - config.final_lr) * fall)


# --- the module -------------------------------------------------------------------------------


class Training(pl.LightningModule):
    """What Lightning drives: the network, one step, and how far the run is.

    `progress` (0 to 1) follows the steps or the clock, whichever bound is given and nearer its end.
    """

    def __init__(self, model: GPT, config: RunConfig, batches_per_epoch: float) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.network: Callable[[Tensor], Tensor] = model
        self.n_steps = _planned_steps(config, batches_per_epoch)
        self.step, self.batches_done, self.tokens, self.seconds = 0, 0, 0, 0.0
        self.ema = EMA(model, config.optim.ema) if config.optim.ema else None
        self.gradient_norm = torch.zeros(())
        self.loss_sum, self.loss_count = torch.zeros(()), 0

    @property
    def progress(self) -> float:
        """How much of the run is over, 0 to 1."""
        by_steps = self.step / self.n_steps if self.n_steps else 0.0
        limit = 60.0 * self.config.train.max_minutes
        return max(by_steps, self.seconds / limit if limit else 0.0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimiser; its learning rates are set before each step."""
        return MuonAdamW(self.model, self.config.optim)

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        """batch (B, T + 1) -> mean nats per token over the targets that are no padding."""
        nats, count = token_nats(self.network(batch[:, :-1]), batch[:, 1:], PAD)
        loss = nats / count.clamp(min=1)
        self.loss_sum = self.loss_sum.to(loss.device) + loss.detach()
        self.loss_count += 1
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rate of this step."""
        factor = lr_factor(self.config.optim, self.step, self.progress)
        for group in optimizer.param_groups:
            group["lr"] = factor * group["peak_lr"]

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        """Clip, and keep the norm for the log."""
        self.gradient_norm = nn.utils.clip_grad_norm_(
            self.model.parameters(), self.config.optim.clip
        )

    def take_mean_loss(self) -> float:
        """Mean loss since the last call; NaN if there was no step."""
        mean = float(self.loss_sum) / self.loss_count if self.loss_count else math.nan
        self.loss_sum, self.loss_count = torch.zeros(()), 0
        return mean

    def weights(self) -> Mapping[str, Tensor]:
        """The weights to evaluate and keep: the moving average where there is one."""
        return self.model.state_dict() if self.ema is None else self.ema.state

    @contextmanager
    def kept_weights(self) -> Iterator[GPT]:
        """The network with the weights to evaluate; the training weights come back afterwards."""
        own = None
        if self.ema is not None:
            own = {k: v.clone() for k, v in self.model.state_dict().items()}
            self.model.load_state_dict(self.ema.state)
        self.model.eval()
        try:
            yield self.model
        finally:
            if own is not None:
                self.model.load_state_dict(own)
            self.model.train()


class EMA:
    """Exponential moving average of a model's weights."""

    def __init__(self, model: GPT, decay: float) -> None:
        self.decay = decay
        self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.updates = 0

    @torch.no_grad()
    def update(self, model: GPT) -> None:
        """Move towards the present weights; quicker at first, when the start still weighs."""
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 10))
        now = model.state_dict()
        names = list(self.state)
        torch._foreach_lerp_([self.state[n] for n in names], [now[n] for n in names], 1 - decay)


def _planned_steps(config: RunConfig, batches_per_epoch: float) -> int:
    """Steps after which the run ends; 0 when only the clock ends it."""
    if config.train.max_steps:
        return config.train.max_steps
    if config.train.max_minutes:
        return 0
    return max(1, math.ceil(config.train.epochs * batches_per_epoch / config.train.accumulate))


# --- what happens around the steps ------------------------------------------------------------


class Keeper(pl.Callback):
    """Counts, measures, logs, saves and ends the run."""

    def __init__(
        self, run: Path, validation: Windows | None, card: dict[str, Any], resume: dict[str, Any]
    ) -> None:
        self.run, self.validation, self.card = run, validation, card
        self.best = float(resume.get("best", math.inf))
        self.measured = float(resume.get("measured", math.nan))
        self.stop_reason = ""
        self._clock = time.monotonic()
        self._first_step = True
        self._last_save = time.monotonic()
        self._speed_mark = (time.monotonic(), 0)
        self._bar: tqdm[Any] | None = None

    # Lightning calls these

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the signals over: Lightning ends on them without saving."""
        module = cast(Training, pl_module)
        self._old_handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
        for number in self._old_handlers:
            signal.signal(number, self._on_signal)
        self._clock = self._last_save = time.monotonic()
        self._speed_mark = (time.monotonic(), module.tokens)
        if trainer.is_global_zero:
            self._bar = tqdm(total=100, unit="%", file=sys.stderr, bar_format=BAR_FORMAT)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, _: int
    ) -> None:
        """Count the batch; after a whole step measure, log, save and look whether to end."""
        module = cast(Training, pl_module)
        module.batches_done += 1
        module.tokens += (batch.numel() - batch.shape[0]) * trainer.world_size
        now = time.monotonic()
        # the first step may compile; a later long one was a pause of the process
        longest = math.inf if self._first_step else LONGEST_STEP_SECONDS
        module.seconds += min(now - self._clock, longest)
        self._clock, self._first_step = now, False
        if module.batches_done % module.config.train.accumulate:
            return
        module.step += 1
        if module.ema is not None:
            module.ema.update(module.model)
        self._after_step(trainer, module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give the signals back."""
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        if self._bar is not None:
            self._bar.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave the terminal and the signals as they were."""
        self.on_train_end(trainer, pl_module)

    # the parts of a step's end

    def _after_step(self, trainer: pl.Trainer, module: Training) -> None:
        settings = module.config.train
        done = self._agree(trainer, module.progress >= 1.0)
        stopped = self._agree(trainer, bool(self.stop_reason))
        measuring = done or module.step % settings.validate_every_steps == 0
        if measuring or module.step % LOG_EVERY_STEPS == 0:
            self._report(trainer, module, measuring=measuring)
        due = time.monotonic() - self._last_save > 60.0 * settings.save_every_minutes
        if done or stopped or self._agree(trainer, due):
            self.save(trainer, module)
        if done or stopped:
            trainer.should_stop = True

    def _report(self, trainer: pl.Trainer, module: Training, *, measuring: bool) -> None:
        """Log the training loss and, when measuring, the validation loss; keep the best weights."""
        loss = module.take_mean_loss()
        self._require_finite(loss, module)
        validation = math.nan
        if measuring and self.validation is not None:
            with module.kept_weights() as model:
                validation = mean_nats(model, self.validation, trainer)
            self._require_finite(validation, module)
        if trainer.is_global_zero:
            self._write_row(module, loss, validation)
        if measuring:
            self.measured = loss if self.validation is None else validation
            if self.measured < self.best and trainer.is_global_zero:
                self._keep("best.safetensors", module)
            self.best = min(self.best, self.measured)

    def save(self, trainer: pl.Trainer, module: Training) -> None:
        """Write last.ckpt beside its place and move it there; the one before becomes previous."""
        self._last_save = time.monotonic()
        if not trainer.is_global_zero:
            return
        if not all(bool(p.isfinite().all()) for p in module.model.parameters()):
            self._require_finite(math.nan, module)
        optimizer = trainer.optimizers[0]
        state = {
            "model": module.model.state_dict(),
            "ema": None if module.ema is None else module.ema.state,
            "ema_updates": 0 if module.ema is None else module.ema.updates,
            "optimizer": optimizer.state_dict(),
            "step": module.step,
            "batches_done": module.batches_done,
            "tokens": module.tokens,
            "seconds": module.seconds,
            "best": self.best,
            "measured": self.measured,
            "config": module.config.to_dict(),
            "corpus_sha256": self.card["corpus_sha256"],
            "rng": torch.get_rng_state(),
        }
        write_resume_point(self.run, state)

    def _keep(self, name: str, module: Training) -> None:
        card = {
            **self.card,
            "steps": module.step,
            "tokens_seen": module.tokens,
            "minutes": round(module.seconds / 60, 1),
            "quick_validation_nats_per_token": round(self.measured, 4),
        }
        save_checkpoint(self.run / name, module.model, card, weights=module.weights())

    def finish(self, module: Training) -> None:
        """Write the weights at the end."""
        self._keep("last.safetensors", module)

    def _write_row(self, module: Training, train_value: float, validation: float) -> None:
        now = time.monotonic()
        seconds, tokens = now - self._speed_mark[0], module.tokens - self._speed_mark[1]
        self._speed_mark = (now, module.tokens)
        speed = tokens / max(seconds, 1e-9)
        row = (
            module.step,
            f"{module.seconds / 60:.3f}",
            module.tokens,
            _figure(train_value),
            _figure(validation),
            f"{lr_factor(module.config.optim, module.step, module.progress):.4f}",
            f"{float(module.gradient_norm):.4f}",
            f"{speed:.0f}",
        )
        append_row(self.run / "log.csv", row)
        self._show(module, train_value, speed)

    def _show(self, module: Training, loss: float, speed: float) -> None:
        if self._bar is None:
            return
        self._bar.n = min(100.0, 100.0 * module.progress)
        measured = "" if math.isnan(self.measured) else f" · validation {self.measured:.3f}"
        left = module.seconds * (1 - module.progress) / max(module.progress, 1e-9)
        self._bar.set_description_str(
            f"step {module.step:,} · loss {loss:.3f}{measured} · {speed:,.0f} tokens/s · "
            f"{left / 60:.0f} min left",
            refresh=True,
        )

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop_reason and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once, from the last saved point
        self.stop_reason = signal.Signals(number).name

    def _require_finite(self, value: float, module: Training) -> None:
        if not math.isfinite(value):
            raise InputError(
                f"The training diverged before step {module.step} (the loss is {value}); the last "
                f"good checkpoint in {self.run} was kept, so go on from it with a lower "
                "--optim.muon_lr and --optim.adamw_lr, or a lower --optim.clip."
            )

    @staticmethod
    def _agree(trainer: pl.Trainer, decision: bool) -> bool:
        """True when any process says so: all of them have to leave the loop together."""
        if trainer.world_size == 1:
            return decision
        return trainer.strategy.reduce_boolean_decision(decision, all=False)


BAR_FORMAT = "{percentage:5.1f} % |{bar:20}| {elapsed} · {desc}"


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.5f}"


def append_row(path: Path, row: tuple[object, ...]) -> None:
    """Add a row to a CSV file, with the head if it is new."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(LOG_COLUMNS)
        writer.writerow(row)


def mean_nats(model: GPT, windows: Windows, trainer: pl.Trainer) -> float:
    """Nats per token of `model` on the windows of all processes together."""
    device = next(model.parameters()).device
    total = torch.zeros(2, dtype=torch.float64, device=device)
    with torch.no_grad(), trainer.precision_plugin.forward_context():
        for batch in windows:
            ids = batch.to(device)
            nats, count = token_nats(model(ids[:, :-1]), ids[:, 1:], PAD)
            total += torch.stack((nats.double(), count.double()))
    if trainer.world_size > 1:
        total = cast(Tensor, trainer.strategy.reduce(total, reduce_op="sum"))
    return float(total[0] / total[1].clamp(min=1))


# --- resume -----------------------------------------------------------------------------------


def write_resume_point(run: Path, state: Mapping[str, Any]) -> None:
    """Write last.ckpt whole or not at all, keeping the one before as previous.ckpt."""
    last, previous, beside = run / "last.ckpt", run / "previous.ckpt", run / ".last.ckpt.part"
    try:
        with beside.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        if last.exists():
            last.replace(previous)
        beside.replace(last)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError on a full disk
        beside.unlink(missing_ok=True)
        raise InputError(
            f"The checkpoint in {run} could not be written ({error}); free some space, then go on "
            "with --resume."
        ) from error


def read_resume_point(run: Path) -> dict[str, Any]:
    """The newest readable checkpoint of a run; `InputError` if there is none."""
    for name in ("last.ckpt", "previous.ckpt"):
        try:
            # weights_only: tensors and plain values, no code from the file is run
            state = torch.load(run / name, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            continue
        except Exception as error:
            # what a damaged archive raises is not documented; the other file may still be whole
            print(f"{run / name} is not readable ({type(error).__name__}).", file=sys.stderr)
            continue
        return cast(dict[str, Any], state)
    raise InputError(
        f"There is nothing to resume in {run}: no readable last.ckpt; start it without --resume."
    )


def _restore(module: Training, state: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    """Put the counters and the weights of a resume point into a new module."""
    if state["config"]["model"] != module.config.model.to_dict():
        raise InputError(
            "The run was started with another network than the configuration says; resume it with "
            "its own config.yaml, or start a new run with --init-from."
        )
    if state["corpus_sha256"] != card["corpus_sha256"]:
        raise InputError(
            "The tokens folder is not the one that the run was started with; give that folder, or "
            "start a new run with --init-from."
        )
    module.model.load_state_dict(state["model"])
    if module.ema is not None and state["ema"] is not None:
        module.ema.state, module.ema.updates = dict(state["ema"]), state["ema_updates"]
    for name in ("step", "batches_done", "tokens", "seconds"):
        setattr(module, name, state[name])
    torch.set_rng_state(state["rng"])


class _RestoreOptimizer(pl.Callback):
    """Gives the optimiser its state back as soon as Lightning has made it."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.optimizers[0].load_state_dict(self.state["optimizer"])


# --- the run ----------------------------------------------------------------------------------


def train(
    tokens: str | Path,
    out: str | Path,
    config: RunConfig,
    *,
    resume: bool = False,
    init_from: str | Path | None = None,
) -> dict[str, Any]:
    """Train on the tokens folder and write into `out`; returns what was reached, as plain values.

    `resume` goes on where the run in `out` was; `init_from` starts from the weights of a checkpoint
    of the same shape. Raises `InputError` before the first step for anything that cannot work.
    """
    run, corpus = Path(out), Corpus.open(tokens)
    state = read_resume_point(run) if resume else {}
    _check_folder(run, resume=resume)
    torch.manual_seed(config.train.seed)
    model = GPT(config.model)
    if init_from is not None and not resume:
        _init_from(model, init_from)
    card = _card(corpus, config, init_from)
    rank, n_ranks = _rank(config)
    batches = CropBatches(
        corpus.split("train"),
        config.model.context,
        config.data,
        seed=config.train.seed,
        rank=rank,
        n_ranks=n_ranks,
        first_batch=int(state.get("batches_done", 0)),
    )
    module = Training(model, config, batches.batches_per_epoch)
    if state:
        _restore(module, state, card)
    keeper = Keeper(run, _validation(corpus, config, rank, n_ranks), card, state)
    if module.progress >= 1.0:
        raise InputError(
            f"The run in {run} is finished; to train longer, give a new folder and "
            f"--init-from {run / 'last.safetensors'}."
        )
    quiet_lightning()
    trainer = make_trainer(config, [keeper] + ([_RestoreOptimizer(state)] if state else []))
    if config.train.compile:
        module.network = torch.compile(model, dynamic=False)
    pin = trainer.strategy.root_device.type == "cuda"
    with warnings.catch_warnings():
        # Lightning advises more loader processes; one batch takes a thousandth of a CPU's step
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        # Lightning 2.6 walks trees in the way that torch 2.13 calls deprecated
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        trainer.fit(module, loader(batches, config.data.workers, pin=pin))
    if trainer.is_global_zero:
        keeper.finish(module)
    return _result(run, module, keeper)


def quiet_lightning() -> None:
    """Leave standard error to the progress bar: Lightning's own lines say nothing to a person."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)


def make_trainer(config: RunConfig, callbacks: list[pl.Callback]) -> pl.Trainer:
    """Lightning's Trainer with nothing of its own left on: no bars, loggers or checkpoints."""
    device = resolve_device(config.train.device)
    several = config.train.devices * config.train.num_nodes > 1
    return pl.Trainer(
        accelerator={"cuda": "gpu"}.get(device, device),
        devices=config.train.devices,
        num_nodes=config.train.num_nodes,
        strategy="ddp" if several else "auto",
        precision="bf16-mixed" if use_bf16(config.train.precision, device) else "32-true",
        max_epochs=1,
        max_steps=-1,
        accumulate_grad_batches=config.train.accumulate,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )


def resolve_device(device: str) -> str:
    """'cpu', 'cuda' or 'mps'; `InputError` if the machine has no such thing."""
    has = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if has[name])
    if not has[device]:
        raise InputError(f"This machine has no {device}; use --train.device auto.")
    return device


def _check_folder(run: Path, *, resume: bool) -> None:
    """Raise `InputError` unless `run` can be written and holds no other run."""
    if not resume and (run / "last.ckpt").exists():
        raise InputError(
            f"{run} already holds a run; go on with it with --resume, or choose another --out."
        )
    try:
        run.mkdir(parents=True, exist_ok=True)
        probe = run / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"The folder {run} cannot be written ({error.strerror}); choose another --out."
        ) from error


def _init_from(model: GPT, path: str | Path) -> None:
    source, _ = load_checkpoint(path)
    if source.state_dict().keys() != model.state_dict().keys() or any(
        a.shape != b.shape
        for a, b in zip(source.state_dict().values(), model.state_dict().values(), strict=True)
    ):
        raise InputError(
            f"{path} holds a network of another shape than the configuration; use a configuration "
            f"with model: {source.config.to_dict()}."
        )
    model.load_state_dict(source.state_dict())


def _card(corpus: Corpus, config: RunConfig, init_from: str | Path | None) -> dict[str, Any]:
    """What every checkpoint of this run says about where it comes from."""
    return {
        "corpus_sha256": sha256_of(corpus.path / "corpus.json"),
        "sources": corpus.card.get("sources", {}),
        "licences": corpus.card.get("licences", {}),
        "training_tokens": corpus.card["splits"]["train"]["tokens"],
        "config": config.to_dict(),
        "init_from": None if init_from is None else Path(init_from).name,
    }


def _rank(config: RunConfig) -> tuple[int, int]:
    """Number of this process and of all of them, as torchrun, SLURM or Lightning tell it."""
    local, node = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("NODE_RANK", 0))
    rank = int(os.environ.get("RANK", node * config.train.devices + local))
    return rank, config.train.devices * config.train.num_nodes


def _validation(corpus: Corpus, config: RunConfig, rank: int, n_ranks: int) -> Windows | None:
    if "validation" not in corpus.splits:
        print(
            "The tokens folder has no validation split: the best checkpoint is chosen by the "
            "training loss.",
            file=sys.stderr,
        )
        return None
    return Windows(
        corpus.split("validation"),
        config.model.context,
        config.data.batch_size,
        n_tokens=config.train.validate_tokens,
        rank=rank,
        n_ranks=n_ranks,
    )


def _result(run: Path, module: Training, keeper: Keeper) -> dict[str, Any]:
    best = run / "best.safetensors"
    return {
        "run": str(run),
        "finished": module.progress >= 1.0,
        "stopped_by": keeper.stop_reason or None,
        "steps": module.step,
        "tokens": module.tokens,
        "minutes": round(module.seconds / 60, 2),
        "nats_per_token": None if math.isnan(keeper.measured) else round(keeper.measured, 4),
        "checkpoint": str(best if best.exists() else run / "last.safetensors"),
    }
