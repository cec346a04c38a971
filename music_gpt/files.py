"""A path -> bytes that are read within bounds, or a file that is written whole or not at all.

Every file that the package reads is opened here, if it is a regular one of a bounded size. Every
file that it writes comes into being here: beside its place, under a short name of its own, and it
takes its place only when it is complete. What goes wrong becomes one sentence.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from music_gpt.errors import InputError
from music_gpt.printable import shown

LOCK = ".lock"
_PART = ".part-"
UNFINISHED_FILES = f"{_PART}*"
"""What a writer that was killed may leave beside the place of its file."""
UNFINISHED_FILE = re.compile(rf"{re.escape(_PART)}\d+-[0-9a-f]{{8}}")
"""The same, to the letter."""

_FULL = ("the disk is full", "free some space")
_WAYS_OUT = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: ("this place is read-only", "choose another folder"),
    errno.EACCES: ("you may not write there", "choose another folder"),
    errno.EPERM: ("you may not write there", "choose another folder"),
    errno.ENAMETOOLONG: ("the name is too long", "give a shorter one"),
    errno.ENOENT: ("its folder does not exist", "make it, or choose another folder"),
    errno.ENOTDIR: ("a file stands where a folder should be", "choose another folder"),
    errno.EEXIST: ("a file stands where a folder should be", "choose another folder"),
    errno.EISDIR: ("it is a folder", "give the name of a file in it"),
    errno.EFBIG: ("such a large file is not allowed there", "choose another folder"),
}
"""Number of the error -> what happened, and what to do next."""


# --- reading ----------------------------------------------------------------------------------


def is_file(path: str | Path) -> bool:
    """Whether a regular file is there, as far as one may look; `Path.is_file` can raise."""
    return os.path.isfile(path)


def is_folder(path: str | Path) -> bool:
    """Whether a folder is there, as far as one may look; `Path.is_dir` can raise."""
    return os.path.isdir(path)


def open_regular(path: str | Path, max_bytes: int) -> BufferedReader:
    """The file at `path`, open for reading; `OSError` unless it is a regular one of that size.

    Nothing else is opened: a pipe keeps its reader waiting, and a device may never end.
    """
    try:
        status = os.stat(path)
    except ValueError:  # a zero byte, or what the system's encoding lacks
        raise OSError(errno.EINVAL, "it is no name that a file can have") from None
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if status.st_size > max_bytes:
        raise _too_large(max_bytes)
    return open(path, "rb", opener=_open_at_once)


def _open_at_once(path: str, flags: int) -> int:
    """Not even a pipe that has just taken the file's place is waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _too_large(max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than the {max_bytes:,} bytes that are allowed")


@contextmanager
def opened(
    path: str | Path, max_bytes: int, give: str = "another file"
) -> Iterator[BufferedReader]:
    """The regular file at `path`, open for reading, of `max_bytes` at most.

    give: what to give instead, in the sentence of the `InputError` for a file that cannot be read.
    """
    path = as_path(path)
    try:
        with open_regular(path, max_bytes) as file:
            yield file
    except OSError as error:
        said = (error.strerror or str(error)).rstrip(".").lower()
        raise InputError(f"{shown(path)} cannot be read: {said}; give {give}.") from error


def require_file(path: str | Path, max_bytes: int, give: str = "another file") -> None:
    """Raise `InputError` unless `opened` can open it: for libraries that take only a path."""
    with opened(path, max_bytes, give):
        pass


def read_bytes(path: str | Path, max_bytes: int, give: str = "another file") -> bytes:
    """All bytes of a file; `InputError` if it cannot be read or has more than `max_bytes`."""
    with opened(path, max_bytes, give) as file:
        data = file.read(max_bytes + 1)
        if len(data) > max_bytes:  # it grew meanwhile, or lies in /proc and tells no size
            raise _too_large(max_bytes)
    return data


def read_text(path: str | Path, max_bytes: int, give: str = "a text in UTF-8") -> str:
    """The text of a file, without the mark that some programs put in front."""
    try:
        return read_bytes(path, max_bytes, give).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            f"{shown(as_path(path))} cannot be read: it is no text in UTF-8; give {give}."
        ) from None


# --- writing ----------------------------------------------------------------------------------


@contextmanager
def whole_file(
    path: str | Path, *, sync: bool = False, previous: Path | None = None
) -> Iterator[Path]:
    """The path of a new file beside `path`, which takes its place when the block ends well.

    After a failure, whichever it is, `path` is as it was and nothing lies beside it.

    Args:
        path: where the file shall be; its folder has to exist.
        sync: wait until the disk has the bytes, so that not even a power cut leaves half a file.
        previous: where the file that was at `path` goes; it is replaced where there is none.

    Raises:
        InputError: the file cannot be written, there or at all; the sentence says why.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "a.txt") as beside:
    ...         _ = beside.write_text("music")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    path = as_path(path)
    with plain_errors(path):
        _require_place(path)
        with _new_file(path) as beside:
            try:
                yield beside
                if sync:
                    _sync(beside)
                if previous is not None and path.exists():
                    os.replace(path, previous)
                os.replace(beside, path)
            except BaseException:
                _remove(beside)
                raise


def require_writable(path: str | Path) -> None:
    """Raise `InputError` unless a file can be written at `path`; its folder is made if need be.

    For those who compute for minutes before they write. A byte is written and removed again, so
    that a full disk is noticed, too; and so is what a run that was killed has left there.
    """
    path = as_path(path)
    with plain_errors(path):
        _require_place(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path.parent)
        with _new_file(path) as beside:
            try:
                beside.write_bytes(b"\0")
            finally:
                _remove(beside)


def require_other(path: str | Path, *read: str | Path | None) -> None:
    """Raise `InputError` where the file to be written is one that is read: that would be lost.

    None stands for a file that there is not.
    """
    path = as_path(path)
    for other in map(as_path, filter(None, read)):
        if path.exists() and other.exists() and path.samefile(other):
            raise InputError(
                f"--out is {shown(path)}, which is read here and would be lost; choose another "
                "name."
            )


def remove_unfinished(folder: Path) -> None:
    """Remove the files in a folder that writers were killed over; those that are written stay.

    A writer holds its file by a lock that ends with it. Where the system knows none, all stay.
    """
    with contextlib.suppress(OSError):
        for name in filter(UNFINISHED_FILE.fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):
                _remove_if_left(folder / name)


def as_path(path: object) -> Path:
    """What names a file, as a `Path`; `InputError` for anything else, and for an empty name."""
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        given = "an empty name" if path == "" else f"a {type(path).__name__}"
        raise InputError(f"A path is needed, but {given} was given; give the path of a file.")
    return Path(path)


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """What the system says against writing `path` becomes an `InputError` of one sentence."""
    _require_name(path)
    try:
        yield
    except OSError as error:
        said = (error.strerror or str(error)).rstrip(".").lower()
        happened, way_out = _WAYS_OUT.get(error.errno or 0, (said, "choose another folder"))
        raise InputError(f"{shown(path)} cannot be written: {happened}; {way_out}.") from error


def _require_name(path: Path) -> None:
    """Refuse what can be no name of a file: asking the system for it is no `OSError`."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InputError(f"{str(path)!r} is no name that a file can have; give another.") from None
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} has a zero byte, which no name can; give another.")


def _require_place(path: Path) -> None:
    """Refuse a folder, and a name that is too long, before anything is made."""
    with contextlib.suppress(FileNotFoundError):
        path.lstat()  # tells of a name that is too long
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """An empty file in the same folder, which is held; its name is hidden, and short."""
    while True:
        beside = path.with_name(f"{_PART}{os.getpid()}-{secrets.token_hex(4)}")
        with beside.open("xb") as file:
            if _hold(file):
                yield beside
                return


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


# --- one run at a time ------------------------------------------------------------------------


@contextmanager
def locked(folder: Path, verb: str) -> Iterator[None]:
    """Hold the folder, which is made if need be; it is free again when the process ends, however.

    Raises `InputError` if another `music-gpt VERB` holds it, or it cannot be written.
    """
    with plain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab")
    with file:
        if not _lock(file):
            raise InputError(
                f"Another `music-gpt {verb}` is writing to {shown(folder)}; wait until it has "
                "ended, or choose another folder."
            )
        remove_unfinished(folder)
        yield


if sys.platform == "win32":
    import msvcrt

    def _hold(file: BinaryIO) -> bool:
        """Nothing: what is locked, or open, could not be written by name or moved."""
        file.close()
        return True

    def _remove_if_left(path: Path) -> None:
        """Nothing: it is not known whether someone writes it."""

    def _lock(file: BinaryIO) -> bool:
        """Whether the file, as long as it is open, is now held by this process alone."""
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _hold(file: BinaryIO) -> bool:
        """Hold a file as long as it is open; False where it was just taken for one that is left."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system that knows no locks: nothing is removed there
        return os.fstat(file.fileno()).st_nlink > 0

    def _remove_if_left(path: Path) -> None:
        """Remove a file that nobody holds; `OSError` for one that somebody does."""
        number = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISREG(os.fstat(number).st_mode):
                path.unlink()
        finally:
            os.close(number)

    def _lock(file: BinaryIO) -> bool:
        """Whether the file, as long as it is open, is now held by this process alone."""
        # a forked worker would hold it on for a while after a kill of this process
        os.register_at_fork(after_in_child=file.close)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system that knows no locks: nobody else can hold one
        return True
