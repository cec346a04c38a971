"""Batches -> a trained model: the LightningModule, what happens around its steps, and the run.

A run lives in one folder (`music_gpt.run_folder`) and survives whatever ends it. The module knows
token batches, not music: neither MidiTok nor symusic is imported, so a bare machine with torch,
Lightning, numpy and safetensors can train.
"""

from __future__ import annotations

import logging
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.warnings import PossibleUserWarning
from torch import Tensor, nn
from tqdm import tqdm

from music_gpt.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.config import RunConfig
from music_gpt.corpus import Corpus
from music_gpt.data import CropBatches, Windows, loader
from music_gpt.errors import InputError
from music_gpt.events import PAD, VOCAB_SIZE
from music_gpt.files import locked
from music_gpt.growth import grown
from music_gpt.model import GPT, resolve_device, token_nats, use_bf16
from music_gpt.optimizer import EMA, MuonAdamW, lr_factor, weight_decay_factor
from music_gpt.run_folder import (
    BEST_WEIGHTS,
    LAST,
    LAST_WEIGHTS,
    append_row,
    open_run,
    read_resume_point,
    write_resume_point,
)

LONGEST_STEP_SECONDS = 60.0
"""A step that seems to take longer was a paused process; it counts as this long."""
LOG_EVERY_STEPS = 20
BAR_FORMAT = "{percentage:5.1f} % |{bar:20}| {elapsed} · {desc}"


# --- the module -------------------------------------------------------------------------------


class Training(pl.LightningModule):
    """What Lightning drives: the network, one step, and how far the run is.

    `progress` (0 to 1) follows the steps or the clock, whichever bound is given and nearer its end.
    `tokens` counts targets, padding included.
    """

    def __init__(self, model: GPT, config: RunConfig, batches_per_epoch: float) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.network: Callable[[Tensor], Tensor] = model
        self.n_steps = _planned_steps(config, batches_per_epoch)
        self.step, self.batches_done, self.tokens, self.seconds = 0, 0, 0, 0.0
        self.ema = EMA(model, config.optim.ema) if config.optim.ema else None
        self.lr_factor, self.gradient_norm = 0.0, torch.zeros(())
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

    def on_fit_start(self) -> None:
        """The average follows the network to its device."""
        if self.ema is not None:
            self.ema.to(self.device)

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        """batch (B, T + 1) -> mean nats per token over the targets that are no padding."""
        nats, count = token_nats(self.network(batch[:, :-1]), batch[:, 1:], PAD)
        loss = nats / count.clamp(min=1)
        self.loss_sum = self.loss_sum.to(loss.device) + loss.detach()
        self.loss_count += 1
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rate and the weight decay of this step."""
        self.lr_factor = lr_factor(self.config.optim, self.step, self.progress)
        decay = weight_decay_factor(self.config.optim, self.progress)
        cast(MuonAdamW, optimizer).scale(lr=self.lr_factor, weight_decay=decay)

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

    def state(self) -> dict[str, Any]:
        """Counters and weights as plain values and tensors, to go on from."""
        return {
            "model": self.model.state_dict(),
            "ema": None if self.ema is None else self.ema.state,
            "ema_updates": 0 if self.ema is None else self.ema.updates,
            "loss_sum": float(self.loss_sum),
            "loss_count": self.loss_count,
            **{name: getattr(self, name) for name in _COUNTERS},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        self.model.load_state_dict(state["model"])
        if self.ema is not None and state["ema"] is not None:
            self.ema.state, self.ema.updates = dict(state["ema"]), state["ema_updates"]
        elif self.ema is not None:
            self.ema = EMA(self.model, self.ema.decay)
        self.loss_sum = torch.tensor(state.get("loss_sum", 0.0))
        self.loss_count = state.get("loss_count", 0)
        for name in _COUNTERS:
            setattr(self, name, state[name])


_COUNTERS = ("step", "batches_done", "tokens", "seconds")


def _planned_steps(config: RunConfig, batches_per_epoch: float) -> int:
    """Steps after which the run ends; 0 when only the clock ends it."""
    if config.train.max_steps:
        return config.train.max_steps
    if config.train.max_minutes:
        return 0
    return max(1, math.ceil(config.train.epochs * batches_per_epoch / config.train.accumulate))


# --- what happens around the steps ------------------------------------------------------------


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

    `resume` goes on where the run in `out` was; `init_from` starts from the weights of a
    checkpoint, grown where its network is smaller. Of several processes all but the first return an
    empty dict. Raises `InputError` before the first step for anything that cannot work, and
    `KeyboardInterrupt` when Ctrl-C is pressed twice.
    """
    # 1. what there is: tokens, the run so far, a machine
    run, corpus = Path(out), Corpus.open(tokens)
    split, card = corpus.split("train"), _card(corpus, config, init_from)
    if config.model.vocab_size < VOCAB_SIZE:
        raise InputError(
            f"vocab_size is {config.model.vocab_size:,}, but the tokens are {VOCAB_SIZE} events of "
            "music; leave --model.vocab_size at its default."
        )
    state = read_resume_point(run) if resume else {}
    _check_resume(state, config, card)
    with _quiet_lightning(), ExitStack() as held:
        trainer = make_trainer(config)
        rank, n_ranks = trainer.global_rank, trainer.world_size
        # 2. the network and its batches
        torch.manual_seed(config.train.seed)
        if init_from is None or resume:
            model = GPT(config.model)
        else:
            model = grown(load_checkpoint(init_from)[0], config.model)
        batches = CropBatches(
            split,
            config.model.context,
            config.data,
            seed=config.train.seed,
            rank=rank,
            n_ranks=n_ranks,
            first_batch=_batches_done(state, config, n_ranks),
        )
        module = Training(model, config, batches.batches_per_epoch)
        if state:
            module.restore(state)
            module.batches_done = batches.first_batch
            torch.set_rng_state(state["rng"])
        if module.progress >= 1.0:
            raise InputError(
                f"The run in {run} is finished; to train longer, give a new folder and "
                f"--init-from {run / LAST_WEIGHTS}."
            )
        # 3. the folder, and the run itself
        if trainer.is_global_zero:
            held.enter_context(locked(run, "train"))
            open_run(run, config, step=module.step if resume else None)
        keeper = Keeper(run, _validation(corpus, config, rank, n_ranks), card, state)
        trainer.callbacks.append(keeper)  # type: ignore[attr-defined] # Lightning's own list
        if config.train.compile:
            module.network = torch.compile(model, dynamic=False)
        pin = trainer.strategy.root_device.type == "cuda"
        try:
            with keeper.watching():
                trainer.fit(module, loader(batches, config.data.workers, pin=pin))
        except StoppedAtOnce:
            raise KeyboardInterrupt(
                f"Stopped at once; --resume goes on from the last saved point in {run}."
            ) from None
        if not trainer.is_global_zero:
            return {}
        keeper.finish(module)
        return _result(run, module, keeper)


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Leave the terminal to the progress bar: Lightning's own lines say nothing to a person."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # advice, as on more loader processes: a batch takes a thousandth of a CPU's step
        warnings.simplefilter("ignore", PossibleUserWarning)
        # Lightning 2.6 walks trees in the way that torch 2.13 calls deprecated
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        yield


def make_trainer(config: RunConfig) -> pl.Trainer:
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
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )


def _check_resume(state: Mapping[str, Any], config: RunConfig, card: Mapping[str, Any]) -> None:
    """Raise `InputError` if the run cannot go on with this configuration and these tokens."""
    if not state:
        return
    same_parts = state["config"]["optim"]["optimizer"] == config.optim.optimizer
    if state["config"]["model"] != config.model.to_dict() or not same_parts:
        raise InputError(
            "The run was started with another network or optimizer than the configuration says; "
            "resume it with its own config.yaml, or start a new run with --init-from."
        )
    if state["tokens_sha256"] != card["tokens_sha256"]:
        raise InputError(
            "The tokens folder is not the one that the run was started with; give that folder, or "
            "start a new run with --init-from."
        )


def _batches_done(state: Mapping[str, Any], config: RunConfig, n_ranks: int) -> int:
    """Batches of this size, on so many processes, that hold what the run has seen."""
    if not state:
        return 0
    data, machine = state["config"]["data"], state["config"]["train"]
    old_ranks = machine["devices"] * machine["num_nodes"]
    crops = state["batches_done"] * data["batch_size"] * old_ranks
    return int(crops // (config.data.batch_size * n_ranks))


def _card(corpus: Corpus, config: RunConfig, init_from: str | Path | None) -> dict[str, Any]:
    """What every checkpoint of this run says about where it comes from."""
    return {
        "tokens_sha256": corpus.tokens_sha256,
        "sources": corpus.card.get("sources", {}),
        "licences": corpus.card.get("licences", {}),
        "training_tokens": corpus.card["splits"]["train"]["tokens"],
        "config": config.to_dict(),
        "init_from": None if init_from is None else Path(init_from).name,
    }


def _validation(corpus: Corpus, config: RunConfig, rank: int, n_ranks: int) -> Windows | None:
    if "validation" not in corpus.splits:
        if rank == 0:
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
    best = run / BEST_WEIGHTS
    return {
        "run": str(run),
        "finished": module.progress >= 1.0,
        "stopped_by": keeper.stop_reason or None,
        "steps": module.step,
        "tokens": module.tokens,
        "minutes": round(module.seconds / 60, 2),
        "nats_per_token": None if math.isnan(keeper.measured) else round(keeper.measured, 4),
        "checkpoint": str(best if best.exists() else run / LAST_WEIGHTS),
    }
