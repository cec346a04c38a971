"""A folder that cannot be written is told before the first step, and left as it is."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from runs import refused
from small import run_config

from music_gpt.training.module import Training

NOBODY = 65534


@pytest.fixture(autouse=True)
def no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Training, "training_step", lambda *_: pytest.fail("a step was made"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- as the system tells it -------------------------------------------------------------------


def take_no_writes(folder: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse to change anything in the folder, with this number of an error."""

    def refusing(call: Any, changes: Any) -> Any:
        def wrapped(path: Any, *args: Any, **how: Any) -> Any:
            is_ours = isinstance(path, (str, os.PathLike)) and folder in Path(path).parents
            if is_ours and changes(path, *args, **how):
                raise OSError(number, os.strerror(number), os.fspath(path))
            return call(path, *args, **how)

        return wrapped

    def for_writing(_: Any, mode: str = "r", *__: Any, **___: Any) -> bool:
        return bool(set(mode) & set("wax+"))

    def with_flags(_: Any, flags: int, *__: Any, **___: Any) -> bool:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    monkeypatch.setattr(io, "open", refusing(io.open, for_writing))
    monkeypatch.setattr("builtins.open", refusing(open, for_writing))
    monkeypatch.setattr(os, "open", refusing(os.open, with_flags))
    # what is there already is told first, on a file system that is read-only, too
    monkeypatch.setattr(
        os, "mkdir", refusing(os.mkdir, lambda path, *_, **__: not Path(path).exists())
    )
    for name in ("unlink", "replace", "rename"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name), lambda *_, **__: True))


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EROFS, "cannot be written: this place is read-only; choose another folder"),
        (errno.EACCES, "cannot be written: you may not write there; choose another folder"),
    ],
)
@pytest.mark.parametrize("which", ["empty", "of a run", "missing"])
def test_a_read_only_folder_is_told_before_the_first_step(
    tokens: Path,
    stopped: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    told: str,
    which: str,
) -> None:
    place = stopped.parent
    (place / "empty").mkdir()
    run = stopped if which == "of a run" else place / which
    before = content(place)
    with monkeypatch.context() as patch:
        take_no_writes(place, number, patch)
        refused(told, tokens, run, run_config(max_steps=8), resume=run == stopped)
    assert content(place) == before
    assert (place / "missing").exists() is False


# --- a real folder without the right to write -------------------------------------------------


@contextmanager
def as_nobody() -> Iterator[None]:
    """Have no more rights than anyone, where this process has those of the administrator."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everyone can look into; those of pytest are their owner's alone."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def forbid(folder: Path, *, files_too: bool) -> None:
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444 if files_too else 0o666)
    folder.chmod(0o555)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="this system has other rights")
@pytest.mark.parametrize("which", ["empty", "of a run", "of a run, not its files", "missing"])
def test_a_folder_without_the_right_to_write_is_told_before_the_first_step(
    tokens: Path, stopped: Path, place: Path, which: str
) -> None:
    (place / "empty").mkdir()
    music = Path(shutil.copytree(tokens, place / "tokens"))
    run = Path(shutil.copytree(stopped, place / "run")) if "run" in which else place / which
    before = content(place)
    forbid(place, files_too="not its files" not in which)
    with as_nobody():
        told = "cannot be written: you may not write there; choose another folder"
        refused(told, music, run, run_config(max_steps=8), resume="run" in which)
    assert content(place) == before
    assert (place / "missing").exists() is False
