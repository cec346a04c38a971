"""Each measurement of a run -> what a person sees meanwhile: a line, the log, TensorBoard, a page.

What cannot be written here never ends a run, but for the log, whose loss would be a gap for good.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tqdm import tqdm

from music_gpt.errors import InputError, install, words_of
from music_gpt.network.model import GPT
from music_gpt.printable import printable_text
from music_gpt.training.run_folder import Measurement, append_row
from music_gpt.training.run_report import write_report

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

BAR_FORMAT = "{percentage:5.1f} % |{bar:20}| {desc}"
TENSORBOARD_TAGS = {
    "nats_per_token/train": "train_nats_per_token",
    "nats_per_token/validation": "validation_nats_per_token",
    "nats_per_note/validation": "validation_nats_per_note",
    "optimizer/learning_rate_factor": "learning_rate_factor",
    "optimizer/gradient_norm": "gradient_norm",
    "speed/tokens_per_second": "tokens_per_second",
    "speed/mfu": "mfu",
}
"""Name of a curve in TensorBoard -> column of the log."""


class Moment(NamedTuple):
    """When a run was measured."""

    step: int
    seconds: float
    """Of training so far."""
    is_last: bool
    seconds_left: float = math.inf
    """Up to the end of a run that the clock bounds."""


class Listener(Protocol):
    """What hears the network when it was measured."""

    def __call__(self, model: GPT, moment: Moment) -> None:
        """Hear it: with the weights to keep, and ready to play."""

    def last_seconds(self, limit_seconds: float) -> float:
        """How long the last time may take, of a run that has so many seconds in all."""


class Watch:
    """What one run tells while it goes on; `about` is what its report says of it besides."""

    def __init__(
        self, run: Path, about: Mapping[str, Any], *, first_step: int, tensorboard: bool
    ) -> None:
        self.run, self.about = run, about
        self._validation = ""
        self._missed: set[str] = set()
        self._bar = tqdm(total=100, unit="%", file=sys.stderr, bar_format=BAR_FORMAT)
        self._events: SummaryWriter | None = None
        if tensorboard:
            self._open_events(first_step)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._bar.close()
        self._with_events(lambda events: events.close())

    def show(self, row: Measurement, progress: float) -> None:
        """Tell a new measurement at `progress` (0 to 1) of the run."""
        append_row(self.run, row)
        self._with_events(lambda events: _add_points(events, row))
        if not math.isnan(row.validation_nats_per_token):
            nats = row.validation_nats_per_token
            self._validation = f"validation {nats:.3f} at step {row.step:,}"
        self._bar.n = min(100.0, 100.0 * progress)
        self._bar.set_description_str(_line(row, self._validation, progress), refresh=True)

    def report(self, state: str) -> None:
        """Write the report anew, headed by the sentence `state`."""
        self._with_events(lambda events: events.flush())
        try:
            write_report(self.run, {**self.about, "state": state})
        except Exception as error:  # no page is worth the end of a run
            self._miss("report", error)

    def _open_events(self, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        try:
            # of what a run that was cut off had told, TensorBoard forgets all from this step on
            self._events = SummaryWriter(str(self.run), purge_step=first_step)
        except Exception as error:
            self._miss("log for TensorBoard", error)

    def _with_events(self, act: Callable[[SummaryWriter], None]) -> None:
        """Let TensorBoard's writer act; one that cannot write any more is given up."""
        if self._events is None:
            return
        try:
            act(self._events)
        except Exception as error:  # its thread tells of a full disk in ways of its own
            self._events = None
            self._miss("log for TensorBoard", error)

    def _miss(self, what: str, error: Exception) -> None:
        """Say once that this is missing."""
        if what not in self._missed:
            tell(f"The {what} is missing: {words_of(error)}")
        self._missed.add(what)


def tell(text: str) -> None:
    """Say something above the progress bar."""
    tqdm.write(printable_text(text), file=sys.stderr)


def require_tensorboard() -> None:
    """Raise `InputError` unless TensorBoard's files can be written."""
    if importlib.util.find_spec("tensorboard") is None:
        raise InputError(
            f"TensorBoard is asked for, but it is not installed; run `{install('tensorboard')}`, "
            "or leave --train.tensorboard out."
        )


def _add_points(events: SummaryWriter, row: Measurement) -> None:
    for tag, column in TENSORBOARD_TAGS.items():
        value = getattr(row, column)
        if not math.isnan(value):
            events.add_scalar(tag, value, row.step)


def _line(row: Measurement, validation: str, progress: float) -> str:
    """What stands behind the bar: the time so far, the newest figures, the minutes left."""
    # not tqdm's own clock: a sleep of the machine is no training
    clock = tqdm.format_interval(60 * row.minutes)
    parts = [clock, f"step {row.step:,}", f"loss {row.train_nats_per_token:.3f}"]
    parts += [validation] if validation else []  # it may be of an earlier step, which it tells
    parts.append(f"{row.tokens_per_second:,.0f} tokens/s")
    if not math.isnan(row.mfu):
        parts.append(f"{row.mfu:.0%} MFU")
    left = row.minutes * max(1 - progress, 0.0) / max(progress, 1e-9)
    return " · ".join([*parts, f"{left:.0f} min left" if left >= 1 else f"{60 * left:.0f} s left"])
