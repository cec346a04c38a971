"""The end of each step -> rows, checkpoints and the end of the run: the callback of Lightning."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor
from tqdm import tqdm

from music_gpt.checkpoint import save_checkpoint
from music_gpt.data import Windows
from music_gpt.errors import InputError
from music_gpt.events import PAD
from music_gpt.learning import Training
from music_gpt.model import GPT, token_nats
from music_gpt.run_folder import (
    BEST_WEIGHTS,
    LAST,
    LAST_WEIGHTS,
    append_row,
    write_resume_point,
)

LONGEST_STEP_SECONDS = 60.0
"""A step that seems to take longer was a paused process; it counts as this long."""
LOG_EVERY_STEPS = 20
BAR_FORMAT = "{percentage:5.1f} % |{bar:20}| {elapsed} · {desc}"


class StoppedAtOnce(BaseException):
    """Ctrl-C was pressed twice. Not a KeyboardInterrupt: on one, Lightning ends the program."""


class Keeper(pl.Callback):
    """Counts, measures, logs, saves and ends the run."""

    def __init__(
        self,
        run: Path,
        validation: Windows | None,
        card: Mapping[str, Any],
        resume: Mapping[str, Any],
    ) -> None:
        self.run, self.validation, self.card, self.resume = run, validation, card, resume
        self.best = float(resume.get("best", math.inf))
        self.measured = float(resume.get("measured", math.nan))
        self.stop_reason = ""
        self._first_step = True
        self._clock = self._last_save = time.monotonic()
        self._speed_mark = (time.monotonic(), 0)
        self._bar: tqdm[Any] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hold the signals meanwhile, and leave the terminal as it was."""
        held = (signal.SIGINT, signal.SIGTERM)
        old = {number: signal.getsignal(number) for number in held}
        self._take_signal(signal.SIGINT)
        try:
            yield
        finally:
            if self._bar is not None:
                self._bar.close()
            for number, handler in old.items():
                if _in_main_thread() and handler is not None:
                    signal.signal(number, handler)

    def _take_signal(self, number: int) -> None:
        if _in_main_thread():
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop_reason and number == signal.SIGINT:
            raise StoppedAtOnce
        self.stop_reason = signal.Signals(number).name

    # Lightning calls these

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give the optimiser its state back: Lightning has just made it."""
        if self.resume:
            trainer.optimizers[0].load_state_dict(self.resume["optimizer"])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to count; Lightning's own handler of SIGTERM would end without saving."""
        module = cast(Training, pl_module)
        self._take_signal(signal.SIGTERM)
        self._clock = self._last_save = time.monotonic()
        self._speed_mark = (time.monotonic(), module.tokens)
        if trainer.is_global_zero:
            self._bar = tqdm(total=100, unit="%", file=sys.stderr, bar_format=BAR_FORMAT)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Count the batch; after a whole step measure, log, save and look whether to end."""
        module = cast(Training, pl_module)
        module.batches_done += 1
        module.tokens += (batch.numel() - batch.shape[0]) * trainer.world_size
        # the first step may compile; a later long one was a pause of the process
        self._count_time(module, math.inf if self._first_step else LONGEST_STEP_SECONDS)
        self._first_step = False
        if (batch_idx + 1) % module.config.train.accumulate:
            return
        module.step += 1
        if module.ema is not None:
            module.ema.update(module.model)
        self._after_step(trainer, module)
        self._count_time(module, math.inf)

    # the parts of a step's end

    def _count_time(self, module: Training, longest: float) -> None:
        now = time.monotonic()
        module.seconds += min(now - self._clock, longest)
        self._clock = now

    def _after_step(self, trainer: pl.Trainer, module: Training) -> None:
        settings = module.config.train
        due = time.monotonic() - self._last_save > 60.0 * settings.save_every_minutes
        # all processes have to go by one clock, and to leave the loop together
        signs = [module.seconds, float(bool(self.stop_reason)), float(due)]
        module.seconds, stopped, due_somewhere = _over_ranks(trainer, signs, "max")
        done = module.progress >= 1.0
        measuring = done or module.step % settings.validate_every_steps == 0
        if measuring or module.step % LOG_EVERY_STEPS == 0:
            self._report(trainer, module, measuring=measuring)
        if done or stopped or due_somewhere or measuring:
            self.save(trainer, module)
        if done or stopped:
            self.stop_reason = self.stop_reason or ("" if done else "another process")
            trainer.should_stop = True

    def _report(self, trainer: pl.Trainer, module: Training, *, measuring: bool) -> None:
        """Log the training loss and, when measuring, the validation loss; keep the best weights."""
        [loss] = _over_ranks(trainer, [module.take_mean_loss()], "mean")
        self._require_finite(loss, module)
        validation = math.nan
        if measuring and self.validation is not None:
            with module.kept_weights() as model:
                validation = mean_nats(model, self.validation, trainer)
            self._require_finite(validation, module)
        if trainer.is_global_zero:
            self._write_row(module, loss, validation)
        if measuring:
            self._require_finite_weights(module)
            self.measured = loss if self.validation is None else validation
            if self.measured < self.best and trainer.is_global_zero:
                self._keep(BEST_WEIGHTS, module)
            self.best = min(self.best, self.measured)

    def save(self, trainer: pl.Trainer, module: Training) -> None:
        """Write last.ckpt; the one before becomes previous.ckpt."""
        self._last_save = time.monotonic()
        self._require_finite_weights(module)
        if not trainer.is_global_zero:
            return
        state = {
            **module.state(),
            "optimizer": trainer.optimizers[0].state_dict(),
            "best": self.best,
            "measured": self.measured,
            "config": module.config.to_dict(),
            "tokens_sha256": self.card["tokens_sha256"],
            "rng": torch.get_rng_state(),
        }
        write_resume_point(self.run, state)

    def _keep(self, name: str, module: Training) -> None:
        card = {
            **self.card,
            "steps": module.step,
            "tokens_seen": module.tokens,
            "minutes": round(module.seconds / 60, 1),
            "quick_validation_nats_per_token": (
                None if self.validation is None else round(self.measured, 4)
            ),
        }
        save_checkpoint(self.run / name, module.model, card, weights=module.weights())

    def finish(self, module: Training) -> None:
        """Write the weights at the end."""
        self._keep(LAST_WEIGHTS, module)

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
            f"{module.lr_factor:.4f}",
            f"{float(module.gradient_norm):.4f}",
            f"{speed:.0f}",
        )
        append_row(self.run, row)
        self._show(module, train_value, speed)

    def _show(self, module: Training, loss: float, speed: float) -> None:
        if self._bar is None:
            return
        self._bar.n = min(100.0, 100.0 * module.progress)
        measured = "" if math.isnan(self.measured) else f" · validation {self.measured:.3f}"
        left = module.seconds * max(1 - module.progress, 0.0) / max(module.progress, 1e-9)
        self._bar.set_description_str(
            f"step {module.step:,} · loss {loss:.3f}{measured} · {speed:,.0f} tokens/s · "
            f"{left / 60:.0f} min left",
            refresh=True,
        )

    def _require_finite_weights(self, module: Training) -> None:
        if not all(bool(tensor.isfinite().all()) for tensor in module.model.state_dict().values()):
            self._require_finite(math.nan, module)

    def _require_finite(self, value: float, module: Training) -> None:
        if math.isfinite(value):
            return
        way_out = "start again with"
        if (self.run / LAST).exists():
            way_out = f"the last good checkpoint in {self.run} was kept, so --resume it with"
        raise InputError(
            f"The training diverged at step {module.step} (the loss is {value}); {way_out} a lower "
            "--optim.muon_lr and --optim.adamw_lr, or a lower --optim.clip."
        )


def _in_main_thread() -> bool:
    """Whether signals can be held here: Python lets only its main thread do so."""
    return threading.current_thread() is threading.main_thread()


def _over_ranks(trainer: pl.Trainer, values: list[float], how: str) -> list[float]:
    """The values of all processes as one: their "sum", "mean" or "max"."""
    if trainer.world_size == 1:
        return values
    device = trainer.strategy.root_device
    together = torch.tensor(values, dtype=torch.float64, device=device)
    reduced = trainer.strategy.reduce(together, reduce_op=how)
    return cast(list[float], cast(Tensor, reduced).tolist())


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"


def mean_nats(model: GPT, windows: Windows, trainer: pl.Trainer) -> float:
    """Nats per token of `model` on the windows of all processes together."""
    device = next(model.parameters()).device
    total, targets = 0.0, 0.0
    with torch.no_grad(), trainer.precision_plugin.forward_context():
        for batch in windows:
            ids = batch.to(device)
            nats, count = token_nats(model(ids[:, :-1]), ids[:, 1:], PAD)
            total, targets = total + float(nats), targets + float(count)
    total, targets = _over_ranks(trainer, [total, targets], "sum")
    return total / max(targets, 1.0)
