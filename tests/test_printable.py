"""Names and texts from outside: whatever they hold, a terminal shows them on one line."""

from __future__ import annotations

import ast
import os
import pickle
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_gpt.errors import InputError
from music_gpt.printable import printable_name, printable_text, shown
from music_gpt.process import exit_code, say

ROOT = Path(__file__).parent.parent
ACTING = [
    "\x1b[2J",
    "\r",
    "\a",
    "\n",
    "\x7f",
    "\x85",
    "\x9b",
    "\u2028",
    "\u202e",
    "\u2066",
    "\udcff",
]
parts = st.sampled_from(["\\", "x", "ff", "1b", "u", "0085", "202e", "é", " ", "/", *ACTING])


def acting(text: str) -> list[str]:
    """What ends a line, moves a cursor, turns the direction of writing, or is no character."""
    turns = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    return [
        c
        for c in text
        if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(c) in turns
    ]


@given(st.lists(parts).map("".join))
def test_whatever_a_name_holds_it_is_shown_on_one_line(name: str) -> None:
    assert acting(printable_name(name)) == []
    assert printable_text(printable_name(name)) == printable_name(name)


@given(st.lists(parts).map("".join), st.lists(parts).map("".join))
def test_two_names_never_look_alike(one: str, other: str) -> None:
    assert (printable_name(one) == printable_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("\udcff.mid", r"\xff.mid"), ("\udc85", "\x85"), ("\x1b", r"\x1b"), ("\\\x1b", r"\\x1b")],
)
def test_a_name_and_one_that_spells_it_do_not_look_alike(one: str, other: str) -> None:
    assert printable_name(one) != printable_name(other)


@pytest.mark.parametrize(
    "name", ["Für Elise.mid", "別れの曲　1.mid", "C:\\Users\\me\\a.mid", "a b\u200d.mid"]
)
def test_a_name_that_harms_nothing_stays_as_it_is(name: str) -> None:
    assert printable_name(name) == name


def test_a_path_that_is_too_long_to_be_read_is_told_by_its_ends() -> None:
    assert len(shown("\x1b" * 9000)) < 200
    assert shown(Path("runs") / "mine") == os.path.join("runs", "mine")


def test_the_sentence_of_an_error_is_one_line_in_every_process() -> None:
    error = pickle.loads(pickle.dumps(InputError("No \x1b[2Jsuch\nfile\u2028.")))
    assert str(error) == r"No \x1b[2Jsuch\x0afile\u2028."


@pytest.mark.parametrize("error", [InputError, KeyboardInterrupt])
def test_what_ends_a_program_is_told_without_moving_the_cursor(
    error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        raise error("\x1b[2Jgone\r")

    exit_code(work)
    assert capsys.readouterr().err == "music-gpt: \\x1b[2Jgone\\x0d\n"


def test_several_lines_stay_several(capsys: pytest.CaptureFixture[str]) -> None:
    say("one\ntwo\x1b[A")
    assert capsys.readouterr().err == "one\ntwo\\x1b[A\n"


# --- every sentence on a name -------------------------------------------------------------------

NAMES = {"path", "folder", "file", "table", "chunk", "out", "midi", "run", "checkpoint"}
"""What the sources call a path."""
SOURCES = sorted([*(ROOT / "music_gpt").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")])


def names_told(path: Path) -> list[str]:
    """Paths that a sentence holds as they are: `f"{path} is no ..."`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        words = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        if not re.search(r"[A-Za-z]+ [a-z]+", words) or "<" in words:  # a name, or HTML
            continue
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and part.conversion == -1:
                told = ast.unparse(part.value)
                if told.split(".")[-1] in NAMES or re.fullmatch(r"\w*path / .*", told):
                    found.append(f"line {node.lineno}: {told}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_path_in_a_sentence_is_shown_not_pasted(path: Path) -> None:
    assert names_told(path) == []
