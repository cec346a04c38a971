"""The documents name what there is: rows of the script that measures, and tests."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    spec = importlib.util.spec_from_file_location("ablations", ROOT / "benchmarks" / "ablations.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ablations", script)  # dataclasses look for it there
    spec.loader.exec_module(script)
    for row in script.ROWS:
        script.config_of(row, steps=1)
    return [row.name for row in script.ROWS]


def test_every_row_of_the_document_is_one_of_the_script(names: list[str]) -> None:
    text = (ROOT / "docs" / "ablations.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| ([a-z0-9, -]+) \| .* \| \**([\d., ]+)\** \|", text, re.MULTILINE)
    rows = list[str]()
    for cell, figures in told:
        assert len(cell.split(", ")) == len(figures.split(", ")), cell
        rows += [] if cell.startswith("ours") else cell.split(", ")  # those of another script
    assert len(rows) >= 24
    assert set(rows) <= set(names)
    assert len(set(names)) == len(names)


def test_every_test_that_a_document_names_is_there() -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    told = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(told) == text.count("::") >= 20
    for file, test in told:
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test
