"""The state of a run -> a folder from which it goes on, whatever ended it.

    config.yaml          what was asked for; `music-gpt train --config` reads it again
    log.csv              one row for every measurement
    last.ckpt            everything needed to go on (`--resume`); previous.ckpt is the one before
    best.safetensors     the weights with the lowest validation loss so far
    last.safetensors     the weights at the end
    originality.npz      figures of the training pieces, to find what a take has of them
    report.html          all of this for a person: curves, settings, the last samples
    evaluation.json      the likelihood of its best weights, where `music_gpt.train_config` ran it
    samples/step-N/      what the network plays after N steps: MIDI, picture and sound
    events.out.tfevents* the log for TensorBoard, where that is asked for

Every file but the logs is written beside its place and moved there whole.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch
import yaml  # type: ignore[import-untyped] # a part of Lightning's and jsonargparse's own needs

from music_gpt.config.model import ModelConfig
from music_gpt.config.training import OptimConfig, RunConfig
from music_gpt.errors import InputError
from music_gpt.files import plain_errors, whole_file
from music_gpt.folders import RUN, RUN_CONFIG, require_room, what_is
from music_gpt.network.model import GPT, all_finite, state_shapes
from music_gpt.printable import printable_name, shown
from music_gpt.process import say
from music_gpt.tokens.originality import INDEX_FILE
from music_gpt.training.optimizer import Muon, MuonAdamW

CONFIG, LOG, LAST, PREVIOUS = RUN_CONFIG, "log.csv", "last.ckpt", "previous.ckpt"
BEST_WEIGHTS, LAST_WEIGHTS = "best.safetensors", "last.safetensors"
REPORT, SAMPLES, EVENTS = "report.html", "samples", "events.out.tfevents"
EVALUATION = "evaluation.json"
_RESULTS = (LAST, PREVIOUS, BEST_WEIGHTS, LAST_WEIGHTS, EVALUATION)
_OURS = re.compile(
    "|".join(map(re.escape, (CONFIG, LOG, *_RESULTS, REPORT, SAMPLES, INDEX_FILE)))
    + rf"|{re.escape(EVENTS)}.*"
)
"""The names in the folder of a run."""


@dataclass(frozen=True)
class Measurement:
    """A row of the log. NaN, an empty field on disk, is what was not measured or is not known."""

    step: int
    minutes: float
    """Of the run up to the end of this step, with all that was measured and told before it; the
    times in which the process was paused are left out."""
    tokens: int
    train_nats_per_token: float = math.nan
    validation_nats_per_token: float = math.nan
    validation_nats_per_note: float = math.nan
    learning_rate_factor: float = math.nan
    gradient_norm: float = math.nan
    tokens_per_second: float = math.nan
    mfu: float = math.nan
    validation_tokens: float = math.nan
    """That were scored for the figures of the validation."""


LOG_COLUMNS = tuple(column.name for column in fields(Measurement))
_COUNTED = ("step", "tokens")
_DECIMALS = {
    "minutes": 3,
    "learning_rate_factor": 4,
    "gradient_norm": 4,
    "tokens_per_second": 0,
    "validation_tokens": 0,
}
_MOST_DECIMALS = 6


def require_new_run(run: Path) -> None:
    """Raise `InputError` if a new run in this folder would write over an older one, or others'."""
    if what_is(run) == RUN and any((run / name).exists() for name in _RESULTS):
        goes_on = any((run / name).exists() for name in (LAST, PREVIOUS))
        how = "go on with it with --resume, or choose" if goes_on else "choose"
        raise InputError(f"{shown(run)} already holds a run; {how} another --out.")
    require_room(run, RUN, _OURS)


def open_run(run: Path, config: RunConfig, *, step: int | None, finished: bool = False) -> None:
    """Make the folder, which is there, ready to go on after `step`, or for a new run (None).

    Raises `InputError` if it cannot be written, or holds a log that cannot be gone on with.
    """
    # of what a run that was cut off had logged, nothing after its resume point is kept
    kept = [] if step is None else [row for row in read_log(run) if row.step <= step]
    # first: by it the folder is known as ours, should the rest not be written
    _write_whole(run / CONFIG, yaml.safe_dump(config.to_dict(), sort_keys=False))
    with plain_errors(run):
        if kept:
            _write_whole(run / LOG, "".join(map(_line, (LOG_COLUMNS, *map(_texts, kept)))))
        else:
            (run / LOG).unlink(missing_ok=True)
        if not finished:
            (run / EVALUATION).unlink(missing_ok=True)  # it tells of weights that give way
        if step is None:
            for events in run.glob(f"{EVENTS}*"):
                events.unlink()


def _write_whole(path: Path, text: str) -> None:
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def read_log(run: Path) -> list[Measurement]:
    """The rows of the log, in order; a last line that was cut off is left out.

    Raises `InputError` for a file that is no such log.
    """
    path = run / LOG
    try:
        *lines, cut_off = path.read_text(encoding="utf-8").split("\n")
        columns, *rows = (line.split(",") for line in lines or [cut_off])
        if lines and not set(_COUNTED) <= set(columns) <= set(LOG_COLUMNS):
            raise ValueError
        if not lines and not ",".join(LOG_COLUMNS).startswith(cut_off):
            raise ValueError
        return [_measurement(dict(zip(columns, row, strict=True))) for row in rows]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, OverflowError):
        raise InputError(
            f"{shown(path)} is damaged, or not the log of a run; move it to another place, and the "
            "run begins a new one."
        ) from None


def _measurement(row: Mapping[str, str]) -> Measurement:
    """A row by the names of its columns: an older log may lack some."""
    numbers = {name: float(row.get(name) or math.nan) for name in LOG_COLUMNS}
    step, tokens = (int(numbers.pop(name)) for name in _COUNTED)
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
    with going_on_later(), plain_errors(path):
        head = "" if path.exists() else _line(LOG_COLUMNS)
        with path.open("a", newline="", encoding="utf-8") as file:
            file.write(head + _line(_texts(row)))


def write_resume_point(run: Path, state: Mapping[str, Any]) -> None:
    """Write last.ckpt whole or not at all, keeping the one before as previous.ckpt."""
    with (
        going_on_later(),
        whole_file(run / LAST, sync=True, previous=run / PREVIOUS) as beside,
        beside.open("wb") as file,
    ):
        try:
            torch.save(dict(state), file)
        except RuntimeError as error:  # what torch makes of a disk that takes no more
            raise OSError(errno.ENOSPC, str(error).splitlines()[0]) from error


@contextmanager
def going_on_later() -> Iterator[None]:
    """What is said of a file that cannot be written also tells how the run goes on."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}, then go on with --resume.") from error


def read_resume_point(run: Path) -> dict[str, Any]:
    """The newest checkpoint of a run that can be gone on from; `InputError` if there is none."""
    for path in (run / LAST, run / PREVIOUS):
        if not os.path.isfile(path):
            continue
        try:
            # weights_only: tensors and plain values, no code from the file is run
            state = torch.load(path, map_location="cpu", weights_only=True)
            _check_state(state)
        except Exception as error:
            # what a damaged archive raises is not documented; the other file may still be whole
            why = f"wrong {error}" if isinstance(error, _DamagedError) else type(error).__name__
            say(f"{shown(path)} is not readable ({why}).")
        else:
            return cast(dict[str, Any], state)
    weights = (run / name for name in (BEST_WEIGHTS, LAST_WEIGHTS))
    left = next(filter(os.path.isfile, weights), None)
    begin = f", with --init-from {printable_name(left)}" if left else ""
    raise InputError(
        f"There is nothing to resume in {shown(run)}: it has no readable {LAST}; start a new run "
        f"without --resume in another --out{begin}."
    )


class _DamagedError(ValueError):
    """What of a resume point is not as it was written."""


def _check_state(state: Mapping[str, Any]) -> None:
    """Raise whatever comes of it where a run cannot take this state over."""
    told, network = state["config"], ModelConfig.from_dict(state["config"]["model"])
    counts = [state[name] for name in ("step", "batches_done", "tokens", "ema_updates")]
    counts += [state.get("loss_count", 0), state.get("version", 1), told["data"]["batch_size"]]
    counts += [told["train"]["devices"], told["train"]["num_nodes"]]
    figures = [state["seconds"], state.get("reserved_seconds", 0.0), state.get("loss_sum", 0.0)]
    _require(all(type(count) is int and count >= 0 for count in counts), "counts")
    _require(all(type(figure) is float and 0 <= figure < math.inf for figure in figures), "sums")
    shown_only = [state.get(name, 0.0) for name in ("lr_factor", "gradient_norm")]
    _require(all(type(figure) is float for figure in shown_only), "figures of the last step")
    _require(type(state.get("owes", False)) is bool, "word on what is to be measured")
    _require(isinstance(state["measured"], float) and state["best"] <= math.inf, "losses")
    _require(isinstance(state["tokens_sha256"], str), "checksum of the tokens")
    torch.Generator().set_state(state["rng"])
    for device, has in (("cuda", torch.cuda), ("mps", torch.backends.mps)):
        if state.get(f"{device}_rng") is not None and has.is_available():
            torch.Generator(device).set_state(state[f"{device}_rng"])
    for weights in [state["model"]] + [state["ema"]] * (state["ema"] is not None):
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        _require(shapes == state_shapes(network), "shapes of the weights")
        _require(all_finite(weights.values()), "weights")
    _check_momenta(state["optimizer"], network, OptimConfig(optimizer=told["optim"]["optimizer"]))


def _check_momenta(state: dict[str, Any], network: ModelConfig, optim: OptimConfig) -> None:
    """The same for the state of the optimiser."""
    held_by_all = [held for part in state["parts"] for held in part["state"].values()]
    _require(all(all_finite(held.values()) for held in held_by_all), "momenta")
    with torch.device("meta"):  # shapes without memory
        optimizer = MuonAdamW(GPT(network), optim)
    optimizer.load_state_dict(state)
    for part in optimizer.parts:
        names = {"momentum_buffer"} if isinstance(part, Muon) else {"exp_avg", "exp_avg_sq", "step"}
        for parameter, held in part.state.items():
            _require(held.keys() == names, "momenta")
            shapes = {held[name].shape for name in names - {"step"}}
            _require(shapes == {parameter.shape}, "shapes of the momenta")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise _DamagedError(what)
