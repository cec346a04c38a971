"""The end of each step -> rows, checkpoints, the end of the run: what Lightning calls meanwhile."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor

from music_gpt.errors import InputError
from music_gpt.network.checkpoint import FORMAT_VERSION, save_checkpoint
from music_gpt.network.model import all_finite
from music_gpt.printable import shown
from music_gpt.tokens.data import Windows
from music_gpt.training.clock import RunningClock
from music_gpt.training.ending import EndReserve
from music_gpt.training.module import Training
from music_gpt.training.peak_flops import peak_flops
from music_gpt.training.progress import Listener, Moment, Watch, tell
from music_gpt.training.run_folder import (
    BEST_WEIGHTS,
    LAST,
    LAST_WEIGHTS,
    Measurement,
    going_on_later,
    write_resume_point,
)
from music_gpt.training.scoring import ScoringDeadline, ValidationScore, mean_nats, over_ranks
from music_gpt.training.stopping import StopSignals

LOG_EVERY_STEPS = 20
NO_SCORE = ValidationScore(math.nan, math.nan)
LEAST_SECONDS = 6.0
"""A run has at least this much, even where its start took all of its minutes."""


class RunCallback(pl.Callback):
    """Counts, measures, logs, saves and ends the run."""

    def __init__(
        self,
        run: Path,
        validation: Windows | None,
        card: Mapping[str, Any],
        resume: Mapping[str, Any],
        listener: Listener | None = None,
        about: Mapping[str, Any] | None = None,
        began: float | None = None,
    ) -> None:
        self.run, self.validation, self.card, self.resume = run, validation, card, resume
        self.listener, self.about, self.began = listener, dict(about or {}), began
        self.best = float(resume.get("best", math.inf))
        self.measured = float(resume.get("measured", math.nan))
        self.measured_at = resume.get("measured_at", 0)
        self.measured_tokens: int | None = resume.get("measured_tokens")
        self.owes = bool(resume.get("owes", False))
        """Whether the step that the run reached has still to be measured."""
        self.finished, self.stop_reason, self._scored = False, "", ""
        self.signals = StopSignals()
        self.clock = RunningClock()
        self._counted = self._last_save = self.clock.seconds()
        self._save_seconds = 0.0
        self._speed_mark = (self._counted, 0)
        self._step_began, self._end = self._counted, EndReserve(0.0)
        self._peak, self._sound_step = math.nan, 0
        self._watch: Watch | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hold the signals meanwhile, watch the clock, and leave the terminal as it was."""
        with self.signals.held(), self.clock.ticking():
            try:
                yield
            finally:
                if self._watch is not None:
                    self._watch.close()

    # Lightning calls these

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give the optimiser, which Lightning has just made, and a GPU's generator their state."""
        if not self.resume:
            return
        trainer.optimizers[0].load_state_dict(self.resume["optimizer"])
        device = trainer.strategy.root_device
        state = self.resume.get(f"{device.type}_rng")
        # the other processes draw from seeds of their own, so that each drops other activations
        if state is not None and trainer.is_global_zero:
            _set_device_draws(device, state)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to count; Lightning's own handler of SIGTERM would end without saving."""
        module = cast(Training, pl_module)
        self.signals.take(signal.SIGTERM)
        # each process took some time of its own to start
        [module.seconds] = over_ranks(trainer, [self._start_seconds(module)], "max")
        self._counted = self._last_save = self._step_began = self.clock.seconds()
        self._speed_mark, self._sound_step = (self._counted, module.tokens), module.step
        self._end = self._end_reserve(module)
        device = _device_name(trainer.strategy.root_device)
        self._peak = peak_flops(device) * trainer.world_size
        if trainer.is_global_zero:
            self.about |= {
                "device": device,
                "devices": trainer.world_size,
                "parameters": module.model.n_parameters,
            }
            tensorboard = module.config.train.tensorboard
            self._watch = Watch(
                self.run, self.about, first_step=module.step + 1, tensorboard=tensorboard
            )
        if self.owes:
            self._after_step(trainer, module)
            self._step_began = self.clock.seconds()

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
        if (batch_idx + 1) % module.config.train.accumulate:
            return
        module.step += 1
        # only here: from one step to the next all processes have the time that they agree on
        self._count_time(module)
        self._end.stepped(self._counted - self._step_began)
        if module.ema is not None:
            module.ema.update(module.model)
        self._after_step(trainer, module)
        self._step_began = self.clock.seconds()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count what the last measurement took."""
        self._count_time(cast(Training, pl_module))

    # the parts of a step's end

    def _count_time(self, module: Training) -> None:
        now = self.clock.seconds()
        module.seconds += now - self._counted
        self._counted = now

    def _seconds_now(self, module: Training) -> float:
        """What of the run is over, up to this moment and not only to the end of the last step."""
        return module.seconds + self.clock.seconds() - self._counted

    def _start_seconds(self, module: Training) -> float:
        """Time of the run that is over when training begins."""
        if self.began is None or self.resume:
            return module.seconds
        return min(time.monotonic() - self.began, max(module.limit_seconds - LEAST_SECONDS, 0.0))

    def _end_reserve(self, module: Training) -> EndReserve:
        config, limit = module.config, module.limit_seconds
        tokens = config.data.batch_size * config.model.context * config.train.accumulate
        return EndReserve(
            limit - module.seconds,
            steps_to_score=self.validation.n_targets / tokens if self.validation else 0.0,
            samples_seconds=self.listener.last_seconds(limit) if self.listener else 0.0,
            reserved_seconds=module.reserved_seconds,
        )

    def _after_step(self, trainer: pl.Trainer, module: Training) -> None:
        stopped, due = self._agree(trainer, module)
        done, regular = module.progress >= 1.0, not module.near_end
        at_its_turn = module.step % module.config.train.validate_every_steps == 0
        measuring = self.owes = done or (at_its_turn and regular)
        if measuring and not stopped:
            stopped = self._measure(trainer, module, done=done)
        elif not measuring and module.step % LOG_EVERY_STEPS == 0:
            self._log(module, *self._training_figures(trainer, module))
        if stopped or (due and regular and not measuring):
            self.save(trainer, module)
        if stopped:
            self.stop_reason = self.signals.received or "another process"
            self._report(module)
        trainer.should_stop = trainer.should_stop or done or stopped

    def _agree(self, trainer: pl.Trainer, module: Training) -> tuple[bool, bool]:
        """Set the time of all processes; whether one has to stop, and whether one should save.

        By one clock they set their learning rates, and end together.
        """
        due = self.clock.seconds() - self._last_save > 60.0 * module.config.train.save_every_minutes
        kept = self._end.seconds if module.limit_seconds else 0.0
        signs = [module.seconds, kept, float(bool(self.signals.received)), float(due)]
        module.seconds, module.reserved_seconds, stopped, due_somewhere = over_ranks(
            trainer, signs, "max"
        )
        return bool(stopped), bool(due_somewhere)

    def _measure(self, trainer: pl.Trainer, module: Training, *, done: bool) -> bool:
        """Validate, log, keep the best weights, save, and let the network be heard.

        Returns whether a wish to stop ended the validation; then nothing is taken over of it.
        """
        began = self.clock.seconds()
        figures, score = self._training_figures(trainer, module), NO_SCORE
        if done:  # what comes now may take long; a run that is killed meanwhile goes on from here
            self.save(trainer, module)
        if self.validation is not None:
            score = self._validate(self.validation, trainer, module, done=done)
            if score.is_stopped:
                return True
        self._require_finite_weights(module)
        self._log(module, *figures, score)
        figure = figures[0] if self.validation is None else score.per_token
        if self._is_best(figure, score.tokens, module) and trainer.is_global_zero:
            self._keep(BEST_WEIGHTS, module)
        heard_seconds = 0.0
        if done:
            self.finished = True
            heard_seconds = self._hear(trainer, module)
            if trainer.is_global_zero:
                self._keep(LAST_WEIGHTS, module)
        self.owes = False
        self.save(trainer, module)
        seconds = self.clock.seconds() - began - heard_seconds
        self._end.measured(seconds + self._save_seconds)  # at the end it is saved once more
        if not done:
            self._hear(trainer, module)
        self._speed_mark = (self.clock.seconds(), module.tokens)
        return False

    def _training_figures(self, trainer: pl.Trainer, module: Training) -> tuple[float, float]:
        """The loss of the steps since these were asked for the last time, and tokens a second."""
        [loss] = over_ranks(trainer, [module.mean_loss], "mean")
        self._require_finite_loss(loss, module)
        # now: the loss has waited for the steps, and nothing else yet
        return loss, self._speed(module)

    def _log(
        self, module: Training, loss: float, speed: float, score: ValidationScore = NO_SCORE
    ) -> None:
        """Write a row."""
        module.forget_losses()
        if self._watch is not None:
            self._watch.show(self._row(module, loss, score, speed), module.progress)
        self._speed_mark = (self.clock.seconds(), module.tokens)

    def _validate(
        self, windows: Windows, trainer: pl.Trainer, module: Training, *, done: bool
    ) -> ValidationScore:
        """Score the weights to keep, as long as the clock and the signals let it."""
        seconds = math.inf
        if module.limit_seconds:
            left = module.limit_seconds - self._seconds_now(module)
            seconds = self._end.scoring_seconds(left, is_last=done)
        deadline = ScoringDeadline(seconds, self.clock, self.signals)
        with module.kept_weights() as model:
            nats = mean_nats(model, windows, trainer, deadline)
        self._require_finite_loss(nats.per_token, module)
        self._scored = "" if nats.is_stopped else _part_told(nats, module.step)
        if self._scored and trainer.is_global_zero:
            tell(self._scored)
        return nats

    def _is_best(self, figure: float, tokens: int, module: Training) -> bool:
        """Take over what was measured on so many tokens, and whether it is the best so far.

        Figures of one part of the split and of another do not compare: there, the newer is best.
        """
        if self.measured_tokens not in (None, tokens):
            self.best = math.inf
        self.measured, self.measured_at, self.measured_tokens = figure, module.step, tokens
        is_best = figure < self.best
        self.best = min(self.best, figure)
        return is_best

    def _speed(self, module: Training) -> float:
        """Tokens a second since the last measurement, without what was done at that one.

        NaN for a step before this process began.
        """
        since, tokens = self._speed_mark
        if module.tokens == tokens:
            return math.nan
        return (module.tokens - tokens) / max(self.clock.seconds() - since, 1e-9)

    def _row(
        self, module: Training, loss: float, nats: ValidationScore, speed: float
    ) -> Measurement:
        return Measurement(
            step=module.step,
            minutes=module.seconds / 60,
            tokens=module.tokens,
            train_nats_per_token=loss,
            validation_nats_per_token=nats.per_token,
            validation_nats_per_note=nats.per_note,
            learning_rate_factor=module.lr_factor,
            gradient_norm=float(module.gradient_norm),
            tokens_per_second=speed,
            mfu=speed * module.model.flops_per_token(module.context) / self._peak,
            validation_tokens=float(nats.tokens) if nats.of_tokens else math.nan,
        )

    def _hear(self, trainer: pl.Trainer, module: Training) -> float:
        """Let the listener hear the network, and write the report; the seconds of hearing."""
        began = self.clock.seconds()
        if self.listener is not None and trainer.is_global_zero:
            now = self._seconds_now(module)
            left = module.limit_seconds - now if module.limit_seconds else math.inf
            with module.kept_weights() as model:
                self.listener(model, Moment(module.step, module.seconds, self.finished, left))
        took = self.clock.seconds() - began
        self._report(module)
        return took

    def _report(self, module: Training) -> None:
        if self._watch is not None:
            self._watch.report(" ".join([self._state(module), self._scored]).strip())

    def _state(self, module: Training) -> str:
        """Where the run is, for the head of its report."""
        reached = f"after {module.step:,} steps and {module.seconds / 60:,.1f} minutes"
        share = f"{min(module.progress, 1.0):.0%} of the run"
        if self.finished:
            return f"Finished {reached}."
        if self.stop_reason:
            return f"Stopped by {self.stop_reason} {reached}, {share}; --resume goes on."
        return f"Going on: measured {reached}, {share}."

    def save(self, trainer: pl.Trainer, module: Training) -> None:
        """Write last.ckpt; the one before becomes previous.ckpt."""
        began = self._last_save = self.clock.seconds()
        self._require_finite_weights(module)
        if not trainer.is_global_zero:
            return
        state = {
            **module.state(),
            "optimizer": trainer.optimizers[0].state_dict(),
            "best": self.best,
            "measured": self.measured,
            "measured_at": self.measured_at,
            "measured_tokens": self.measured_tokens,
            "owes": self.owes,
            "config": module.config.to_dict(),
            "version": FORMAT_VERSION,
            "tokens_sha256": self.card["tokens_sha256"],
            "rng": torch.get_rng_state(),
        }
        device = trainer.strategy.root_device
        write_resume_point(self.run, state | _device_draws(device))
        self._save_seconds = self.clock.seconds() - began

    def _keep(self, name: str, module: Training) -> None:
        is_of_these = self.validation is not None and self.measured_at == module.step
        card = {
            **self.card,
            "steps": module.step,
            "tokens_seen": module.tokens,
            "minutes": round(module.seconds / 60, 1),
            "quick_validation_nats_per_token": round(self.measured, 4) if is_of_these else None,
            "quick_validation_tokens": self.measured_tokens if is_of_these else None,
        }
        with going_on_later():
            save_checkpoint(self.run / name, module.model, card, weights=module.weights())

    def finish(self, module: Training) -> None:
        """Write the weights at the end."""
        self._keep(LAST_WEIGHTS, module)

    def _require_finite_weights(self, module: Training) -> None:
        if not all_finite(module.model.state_dict().values()):
            raise self._diverged("the weights are no longer numbers", module)
        self._sound_step = module.step

    def _require_finite_loss(self, loss: float, module: Training) -> None:
        if not math.isfinite(loss):
            raise self._diverged(f"the loss is {loss}", module)
        self._sound_step = module.step

    def _diverged(self, seen: str, module: Training) -> InputError:
        way_out = "start again with"
        if (self.run / LAST).exists():
            way_out = f"the last good checkpoint in {shown(self.run)} was kept, so --resume it with"
        return InputError(
            f"The training diverged {_when(self._sound_step, module.step)} ({seen}); "
            f"{way_out} a lower --optim.muon_lr and --optim.adamw_lr, or a lower --optim.clip."
        )


def _part_told(nats: ValidationScore, step: int) -> str:
    """A sentence, where not all of what there is was scored."""
    if nats.tokens >= nats.of_tokens:
        return ""
    return (
        f"The validation at step {step:,} scored {nats.tokens:,} of {nats.of_tokens:,} tokens: "
        "the time was too short for the rest."
    )


def _when(sound_step: int, step: int) -> str:
    """When it was, if all was well when it was looked at last, and is not now."""
    first = max(sound_step, 1)
    return f"at step {step:,}" if first == step else f"between steps {first:,} and {step:,}"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _device_draws(device: torch.device) -> dict[str, Tensor]:
    """Where the random numbers of a GPU are; those of a CPU are the program's own."""
    if device.type == "cuda":
        return {"cuda_rng": torch.cuda.get_rng_state(device)}
    return {"mps_rng": torch.mps.get_rng_state()} if device.type == "mps" else {}


def _set_device_draws(device: torch.device, state: Tensor) -> None:
    """Let the random numbers of a GPU go on from there."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
