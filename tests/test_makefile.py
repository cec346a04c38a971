"""What `make` alone tells of the Makefile: all that it can do, and all that can be set."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "Makefile").read_text("utf-8")
TARGETS = re.findall(r"^\.PHONY: (.*)", TEXT, re.M)[0].split()
SETTINGS = re.findall(r"^(\w+) \?= (.*)", TEXT, re.M)


def told(*words: str) -> str:
    """What `make` prints, whatever is set around this test."""
    around = {"MAKEFLAGS", "MAKEOVERRIDES", *(name for name, _ in SETTINGS)}
    env = {name: value for name, value in os.environ.items() if name not in around}
    done = subprocess.run(
        ["make", "-s", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_alone_tells_all_that_can_be_made_and_all_that_can_be_set() -> None:
    lines = told().splitlines()
    assert set(TARGETS) - {"help"} == {line.split()[1] for line in lines if line[:5] == "make "}
    assert len(SETTINGS) >= 3
    for name, usual in SETTINGS:
        assert any(re.match(rf"{name}={re.escape(usual)} +\w", line) for line in lines), name


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_what_was_set_is_told() -> None:
    assert "http://0.0.0.0:8000" in told("HOST=0.0.0.0", "PORT=8000")
