"""The state of a run -> a folder from which it goes on, whatever ended it.

    config.yaml          what was asked for; `music-gpt train --config` reads it again
    log.csv              one row for every measurement
    last.ckpt            everything needed to go on (`--resume`); previous.ckpt is the one before
    best.safetensors     the weights with the lowest validation loss so far
    last.safetensors     the weights at the end

Every file but the log is written beside its place and moved there whole.
"""

from __future__ import annotations

import csv
import errno
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import yaml  # type: ignore[import-untyped] # a part of Lightning's and jsonargparse's own needs

from music_gpt.config import RunConfig
from music_gpt.errors import InputError
from music_gpt.files import plain_errors, whole_file

CONFIG, LOG, LAST, PREVIOUS = "config.yaml", "log.csv", "last.ckpt", "previous.ckpt"
BEST_WEIGHTS, LAST_WEIGHTS = "best.safetensors", "last.safetensors"
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


def _write_whole(path: Path, text: str) -> None:
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _cut_log(path: Path, step: int | None) -> None:
    """Leave out what a run that was cut off had logged after its resume point."""
    if step is None:
        path.unlink(missing_ok=True)
    elif path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines[1:] if _logged_step(line) <= step]
        _write_whole(path, "".join(lines[:1] + kept))


def _logged_step(line: str) -> float:
    first = line.split(",")[0]
    return int(first) if first.isdigit() and line.endswith("\n") else math.inf


def append_row(run: Path, row: tuple[object, ...]) -> None:
    """Add a row to the log, with the head if it is new."""
    path = run / LOG
    with _going_on_later(), plain_errors(path):
        is_new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(LOG_COLUMNS)
            writer.writerow(row)


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
