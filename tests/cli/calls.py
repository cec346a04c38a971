"""Calls of the command line in this process, and what each left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LONG = "a" * 5000


class Said:
    """What one call of the command line left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


def refused(said: Said, sentence: str) -> None:
    """One sentence on standard error, nothing on standard output, code 2."""
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("music-gpt: ")
    assert said.err.count("\n") == 1, said.err
    assert said.err.rstrip().endswith(".")
    assert sentence in said.err


def compose(checkpoint: Path, out: Path, *words: object) -> list[object]:
    return ["generate", "--checkpoint", checkpoint, "--out", out, "--seconds=2", *words]
