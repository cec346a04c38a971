"""a folder -> the right to write into it, for one run at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from music_gpt.errors import InputError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, which is made if need be; it is free again when the process ends, however.

    Raises `InputError` if another run holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("ab") as file:
        if not _lock(file):
            raise InputError(
                f"Another `music-gpt prepare` is writing to {folder}; wait until it has ended, or "
                "choose another folder."
            )
        yield


if sys.platform == "win32":
    import msvcrt

    def _lock(file: BinaryIO) -> bool:
        """Whether the file, as long as it is open, is now held by this process alone."""
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(file: BinaryIO) -> bool:
        """Whether the file, as long as it is open, is now held by this process alone."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system that knows no locks: nobody else can hold one
        return True
