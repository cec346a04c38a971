"""Batches -> weights that predict them better: the LightningModule, and how far the run is.

The module knows token batches, not music, and neither files nor what is told meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from music_gpt.config.training import RunConfig
from music_gpt.network.model import GPT, token_nats
from music_gpt.tokens.events import PAD
from music_gpt.training.optimizer import EMA, MuonAdamW, context_at, lr_factor, weight_decay_factor


def batch_nats(model: GPT, batch: Tensor) -> tuple[Tensor, Tensor]:
    """batch (B, T + 1) -> sum of nats over the targets that are no padding, and their number."""
    return token_nats(model(batch[:, :-1]), batch[:, 1:], PAD)


class Training(pl.LightningModule):
    """What Lightning drives: the network, one step, and how far the run is.

    `progress` (0 to 1) follows the steps or the clock, whichever bound is given and nearer its end;
    by the clock the steps end `reserved_seconds` before `limit_seconds`, for what comes after them.
    `tokens` counts targets, padding included; `context` (in tokens), `lr_factor` and
    `gradient_norm` are those of the last step.
    """

    def __init__(self, model: GPT, config: RunConfig, batches_per_epoch: float) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.nats: Callable[[Tensor], tuple[Tensor, Tensor]] = partial(batch_nats, model)
        self.n_steps = _planned_steps(config, batches_per_epoch)
        self.limit_seconds = 60.0 * config.train.max_minutes
        self.step, self.batches_done, self.tokens = 0, 0, 0
        self.seconds, self.reserved_seconds = 0.0, 0.0
        self.ema = EMA(model, config.optim.ema) if config.optim.ema else None
        self.context, self.lr_factor, self.gradient_norm = 0, 0.0, torch.zeros(())
        self.loss_sum, self.loss_count = torch.zeros(()), 0

    @property
    def progress(self) -> float:
        """How much of the run is over, 0 to 1."""
        by_steps = self.step / self.n_steps if self.n_steps else 0.0
        if not self.limit_seconds:
            return by_steps
        return max(by_steps, self.seconds / max(self.limit_seconds - self.reserved_seconds, 1e-9))

    @property
    def near_end(self) -> bool:
        """Whether the clock leaves no time to be measured now and at the end as well."""
        after = self.seconds + 2 * self.reserved_seconds
        return bool(self.limit_seconds) and after > self.limit_seconds

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimiser; its learning rates are set before each step."""
        return MuonAdamW(self.model, self.config.optim)

    def on_fit_start(self) -> None:
        """The average follows the network to its device."""
        if self.ema is not None:
            self.ema.to(self.device)

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        """batch (B, T + 1) -> mean nats per token over the targets that are no padding."""
        size = self.context = context_at(self.config, self.progress)
        if size < self.config.model.context:  # the last token of a window heads the next one
            batch = batch.unfold(1, size + 1, size).flatten(0, 1)  # (B T / size, size + 1)
        nats, count = self.nats(batch)
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

    @property
    def mean_loss(self) -> float:
        """Mean nats per token of the steps since losses were forgotten; NaN if there was none."""
        return float(self.loss_sum) / self.loss_count if self.loss_count else math.nan

    def forget_losses(self) -> None:
        """Begin a new mean."""
        self.loss_sum, self.loss_count = torch.zeros(()), 0

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
            "reserved_seconds": self.reserved_seconds,
            "lr_factor": self.lr_factor,
            "gradient_norm": float(self.gradient_norm),
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
        self.reserved_seconds = state.get("reserved_seconds", 0.0)
        self.lr_factor = state.get("lr_factor", 0.0)
        self.gradient_norm = torch.tensor(state.get("gradient_norm", 0.0))
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
