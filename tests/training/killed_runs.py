"""Runs that are killed while they save or are heard: `killed_runs.py TOKENS FOLDER` makes each.

Each is a process that sends itself SIGKILL, which nothing can catch: no `finally` runs, no lock is
given back. They are forks of one, because the libraries take seconds to load.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from small import run_config

from music_gpt.config.training import RunConfig
from music_gpt.training import callback
from music_gpt.training.progress import Moment
from music_gpt.training.run import train

HALF_WRITTEN, FIRST_MOVE = "half of it was written", "before the first move"
BETWEEN_MOVES, LAST_MOVE = "between the two moves", "after the second move"
HEARD, HALF_WRITTEN_AGAIN = "while it is heard", "half of it was written again"
MOMENTS = (
    *((HALF_WRITTEN, 6), (FIRST_MOVE, 6), (BETWEEN_MOVES, 6), (LAST_MOVE, 6)),
    *((HALF_WRITTEN, 3), (HALF_WRITTEN, 10), (HEARD, 10), (HALF_WRITTEN_AGAIN, 10)),
)
"""When a run is killed: the moment, and the step that is saved then (3, 6, 9, and 10 twice)."""


def config() -> RunConfig:
    """A run whose steps differ with every random number."""
    return run_config(
        model={"dropout": 0.1}, optim={"ema": 0.9}, max_steps=10, validate_every_steps=3
    )


def folder_name(moment: str, step: int) -> str:
    return f"{moment} {step}".replace(" ", "-")


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_when(moment: str, step: int) -> None:
    """Let this process be killed at that moment of the save of that step."""
    save, move, saved = torch.save, os.replace, []

    def saving(state: Any, file: Any) -> None:
        saved.append(state["step"])
        times = {HALF_WRITTEN: 1, HALF_WRITTEN_AGAIN: 2}.get(moment)
        if saved[-1] == step and saved.count(step) == times:
            whole = io.BytesIO()
            save(state, whole)
            file.write(whole.getvalue()[: whole.tell() // 2])
            file.flush()
            kill_myself()
        save(state, file)

    def moving(source: Any, place: Any) -> None:
        name = Path(place).name if saved[-1:] == [step] else ""
        if (moment, name) == (FIRST_MOVE, "previous.ckpt"):
            kill_myself()
        move(source, place)
        if (moment, name) in ((BETWEEN_MOVES, "previous.ckpt"), (LAST_MOVE, "last.ckpt")):
            kill_myself()

    torch.save, os.replace = saving, moving


class Listener:
    """Is killed while it hears the network at that step, if that is the moment."""

    def __init__(self, moment: str, step: int) -> None:
        self.fatal_step = step if moment == HEARD else None

    def __call__(self, _: Any, now: Moment) -> None:
        if now.step == self.fatal_step:
            kill_myself()

    def last_seconds(self, limit_seconds: float) -> float:
        return 0.0


def main(tokens: str, folder: str) -> None:
    callback.LOG_EVERY_STEPS = 1
    for moment, step in MOMENTS:
        child = os.fork()
        if child == 0:
            kill_when(moment, step)
            run, listener = Path(folder) / folder_name(moment, step), Listener(moment, step)
            train(tokens, run, config(), listener=listener)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"{moment}, {step}: ended by itself"
        assert os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main(*sys.argv[1:])
