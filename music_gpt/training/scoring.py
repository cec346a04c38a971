"""The validation split -> how well the network predicts it: all of it, or what the time allows.

The processes of a run score together, each its own part, and all of them equally many batches.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import pytorch_lightning as pl
import torch
from torch import Tensor

from music_gpt.network.model import GPT
from music_gpt.tokens.data import Windows
from music_gpt.tokens.events import NOTE_OFF
from music_gpt.training.clock import RunningClock
from music_gpt.training.module import batch_nats
from music_gpt.training.stopping import StopSignals


class ValidationScore(NamedTuple):
    """How well music is predicted, in nats: lower is better."""

    per_token: float
    per_note: float
    tokens: int = 0
    """Tokens that were scored, by all processes together."""
    of_tokens: int = 0
    """Tokens that there were to score."""
    is_stopped: bool = False
    """Whether a wish to stop kept the rest from being scored."""


class ScoringDeadline:
    """How long this process may score, from now on: so many seconds, and until it is stopped."""

    def __init__(self, seconds: float, clock: RunningClock, signals: StopSignals) -> None:
        self._seconds, self._clock, self._signals = seconds, clock, signals
        self._began = self._looked = clock.seconds()

    def is_late(self) -> bool:
        """Whether another batch would end too late, if it took as long as the one before."""
        now = self._clock.seconds()
        batch_seconds, self._looked = now - self._looked, now
        return now + batch_seconds > self._began + self._seconds

    def is_stopped(self) -> bool:
        """Whether there is a wish to stop."""
        return bool(self._signals.received)


def mean_nats(
    model: GPT, windows: Windows, trainer: pl.Trainer, deadline: ScoringDeadline
) -> ValidationScore:
    """The means of `model` on the windows of all processes together: one batch each at least.

    Where the deadline comes before the end, those of the batches that were scored until then, in an
    order that spreads them. Collective: every process has to call it, and all get the same.
    """
    device = next(model.parameters()).device
    total, targets, notes, late, stopped = 0.0, 0.0, 0.0, False, False
    # another process may have a batch more, and all have to meet equally often
    [rounds] = over_ranks(trainer, [float(len(windows))], "max")
    with torch.no_grad(), trainer.precision_plugin.forward_context():
        for number in bit_reversed(int(rounds)):
            if number:
                late, stopped = _all_agree(trainer, deadline)
            if late or stopped:
                break
            if number >= len(windows):
                continue
            batch = windows.batch(number)
            nats, count = batch_nats(model, batch.to(device))
            total, targets = total + float(nats), targets + float(count)
            notes += float((batch[:, 1:] < NOTE_OFF).sum())
    sums = [total, targets, notes, float(windows.n_targets)]
    total, targets, notes, there_are = over_ranks(trainer, sums, "sum")
    per_token, per_note = total / max(targets, 1.0), total / max(notes, 1.0)
    return ValidationScore(per_token, per_note, int(targets), int(there_are), stopped)


def bit_reversed(n: int) -> list[int]:
    """The numbers below n in bit-reversal order, of which every beginning is spread evenly.

    >>> bit_reversed(8)
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    return sorted(range(n), key=lambda number: f"{number:064b}"[::-1])


def over_ranks(trainer: pl.Trainer, values: list[float], how: str) -> list[float]:
    """The values of all processes as one: their "sum", "mean" or "max"."""
    if trainer.world_size == 1:
        return values
    device = trainer.strategy.root_device
    together = torch.tensor(values, dtype=torch.float64, device=device)
    reduced = trainer.strategy.reduce(together, reduce_op=how)
    return cast(list[float], cast(Tensor, reduced).tolist())


def _all_agree(trainer: pl.Trainer, deadline: ScoringDeadline) -> tuple[bool, bool]:
    """Whether it is late for one of the processes, and whether one has to stop."""
    signs = [float(deadline.is_late()), float(deadline.is_stopped())]
    late, stopped = over_ranks(trainer, signs, "max")
    return bool(late), bool(stopped)
