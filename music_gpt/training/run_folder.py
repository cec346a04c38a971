"""The state of a run -> a folder from which it goes on, whatever ended it.

    config.yaml          what was asked for; `music-gpt train --config` reads it again
    log.csv              one row for every measurement
    last.ckpt            everything needed to go on (`--resume`); previous.ckpt is the one before
    best.safetensors     the weights with the lowest validation loss so far
    last.safetensors     the weights at the end
    originality.npz      figures of the training pieces, to find what a take has of them
    report.html          all of this for a person: curves, settings, the last samples
    samples/step-N/      what the network plays after N steps: MIDI, picture and sound
    events.out.tfevents* the log for TensorBoard, where that is asked for

Every file but the logs is written beside its place and moved there whole.
"""

from __future__ import annotations

import csv
import errno
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch
import yaml  # type: ignore[import-untyped] # a part of Lightning's and jsonargparse's own needs

from music_gpt.config import RunConfig
from music_gpt.errors import InputError
from music_gpt.files import plain_errors, whole_file

CONFIG, LOG, LAST, PREVIOUS = "config.yaml", "log.csv", "last.ckpt", "previous.ckpt"
BEST_WEIGHTS, LAST_WEIGHTS = "best.safetensors", "last.safetensors"
REPORT, SAMPLES, EVENTS = "report.html", "samples", "events.out.tfevents"


@dataclass(frozen=True)
class Measurement:
    """A row of the log. NaN, an empty field on disk, is what was not measured or is not known."""

    step: int
    minutes: float
    tokens: int
    train_nats_per_token: float = math.nan
    validation_nats_per_token: float = math.nan
    validation_nats_per_note: float = math.nan
    learning_rate_factor: float = math.nan
    gradient_norm: float = math.nan
    tokens_per_second: float = math.nan
    mfu: float = math.nan


LOG_COLUMNS = tuple(column.name for column in fields(Measurement))
_DECIMALS = {"minutes": 3, "learning_rate_factor": 4, "gradient_norm": 4, "tokens_per_second": 0}
_MOST_DECIMALS = 6
STATE_KEYS = {
    *("model", "ema", "ema_updates", "optimizer", "step", "batches_done", "tokens", "seconds"),
    *("best", "measured", "config", "tokens_sha256", "rng"),
}
"""What a resume point holds at least."""


def open_run(run: Path, config: RunConfig, *, step: int | None) -> None:
    """Make the folder ready to go on after `step`, or for a new run (None).

    Raises `InputError` if it cannot be written, or holds a run that a new one would overwrite.
    """
    results = (LAST, PREVIOUS, BEST_WEIGHTS, LAST_WEIGHTS)
    if step is None and any((run / name).exists() for name in results):
        raise InputError(
            f"{run} already holds a run; go on with it with --resume, or choose another --out."
        )
    with plain_errors(run):
        run.mkdir(parents=True, exist_ok=True)
        _write_whole(run / CONFIG, yaml.safe_dump(config.to_dict(), sort_keys=False))
        _cut_log(run / LOG, step)
        if step is None:
            for events in run.glob(f"{EVENTS}*"):
                events.unlink()


def _write_whole(path: Path, text: str) -> None:
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _cut_log(path: Path, step: int | None) -> None:
    """Leave out what a run that was cut off had logged after its resume point."""
    if step is None:
        path.unlink(missing_ok=True)
    elif path.exists():
        kept = [row for row in read_log(path.parent) if row.step <= step]
        _write_whole(path, "".join(map(_line, (LOG_COLUMNS, *map(_texts, kept)))))


def read_log(run: Path) -> list[Measurement]:
    """The rows of the log, in order; a last line that was cut off is left out."""
    path = run / LOG
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    return [_measurement(row) for row in csv.DictReader(whole)]


def _measurement(row: Mapping[str, str]) -> Measurement:
    """A row by the names of its columns: an older log may lack some."""
    numbers = {name: float(row.get(name) or math.nan) for name in LOG_COLUMNS}
    step, tokens = (int(numbers.pop(name)) for name in ("step", "tokens"))
    return Measurement(step=step, tokens=tokens, **numbers)


def _texts(row: Measurement) -> tuple[str, ...]:
    numbers = ((name, getattr(row, name)) for name in LOG_COLUMNS)
    return tuple(
        str(value) if isinstance(value, int) else _figure(value, _DECIMALS.get(name))
        for name, value in numbers
    )


def _figure(value: float, decimals: int | None) -> str:
    places = _MOST_DECIMALS if decimals is None else decimals
    return "" if math.isnan(value) else f"{value:.{places}f}"


def _line(texts: Iterable[str]) -> str:
    return ",".join(texts) + "\n"  # names and numbers: nothing to quote


def append_row(run: Path, row: Measurement) -> None:
    """Add a row to the log, with the head if it is new."""
    path = run / LOG
    with _going_on_later(), plain_errors(path):
        head = "" if path.exists() else _line(LOG_COLUMNS)
        with path.open("a", newline="", encoding="utf-8") as file:
            file.write(head + _line(_texts(row)))


def write_resume_point(run: Path, state: Mapping[str, Any]) -> None:
    """Write last.ckpt whole or not at all, keeping the one before as previous.ckpt."""
    with (
        _going_on_later(),
        whole_file(run / LAST, sync=True, previous=run / PREVIOUS) as beside,
        beside.open("wb") as file,
    ):
        try:
            torch.save(dict(state), file)
        except RuntimeError as error:  # what torch makes of a disk that takes no more
            raise OSError(errno.ENOSPC, str(error).splitlines()[0]) from error


@contextmanager
def _going_on_later() -> Iterator[None]:
    """What is said of a file that cannot be written also tells how the run goes on."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}, then go on with --resume.") from error


def read_resume_point(run: Path) -> dict[str, Any]:
    """The newest readable checkpoint of a run; `InputError` if there is none."""
    for name in (LAST, PREVIOUS):
        try:
            # weights_only: tensors and plain values, no code from the file is run
            state = torch.load(run / name, map_location="cpu", weights_only=True)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except Exception as error:
            # what a damaged archive raises is not documented; the other file may still be whole
            _tell_unreadable(run / name, type(error).__name__)
            continue
        if isinstance(state, dict) and state.keys() >= STATE_KEYS:
            return cast(dict[str, Any], state)
        _tell_unreadable(run / name, "it is no resume point of music_gpt")
    raise InputError(
        f"There is nothing to resume in {run}: it has no readable {LAST}; start a new run without "
        "--resume in another --out."
    )


def _tell_unreadable(path: Path, why: str) -> None:
    sys.stderr.write(f"{path} is not readable ({why}).\n")
