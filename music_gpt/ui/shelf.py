"""The name of a file -> a place for it, from which the page hands it out: bounded, and tidied up.

It knows nothing of music. Gradio serves the files where they lie instead of copying them first.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import time
import weakref
from pathlib import Path

import gradio as gr

from music_gpt.ui import bounds

PREFIX = "music-gpt-"
KEPT_SECONDS = 3600.0
"""Age at which a file goes, fetched or not."""
ROOM_BYTES = 1_000_000
"""Room that a new file needs unless told otherwise: more than any MIDI file of the page."""


class Shelf:
    """A folder for files that are about to be handed out, each in a folder of its own.

    It is removed when the program ends; shelves that killed programs left go when a new one is
    made. All files together stay below `max_bytes`: the oldest go first.
    """

    def __init__(self, max_bytes: int = bounds.MAX_SHELF_BYTES) -> None:
        self._max_bytes = max_bytes
        clear_stale_shelves(Path(tempfile.gettempdir()))
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        gr.set_static_paths([self.folder])

    def path(self, name: str, room: int = ROOM_BYTES) -> Path:
        """A place for a file called `name` of at most `room` bytes, that no other visitor can name.

        Files that are old, or in the way, are removed.
        """
        self._make_room(room)
        place = self.folder / secrets.token_hex(16)
        place.mkdir()
        return place / name

    def _make_room(self, room: int) -> None:
        taken, now = 0, time.time()
        for changed, size, place in sorted(map(_weigh, self.folder.iterdir()), reverse=True):
            taken += size
            if taken + room > self._max_bytes or now - changed > KEPT_SECONDS:
                shutil.rmtree(place, ignore_errors=True)


def _weigh(place: Path) -> tuple[float, int, Path]:
    """When a folder was last changed (seconds), the bytes in it, and itself."""
    try:
        size = sum(file.stat().st_size for file in place.iterdir())
        return place.stat().st_mtime, size, place
    except FileNotFoundError:  # another thread has just removed it
        return 0.0, 0, place


def clear_stale_shelves(folder: Path) -> None:
    """Remove the shelves in `folder` whose program is gone: their names tell its process id."""
    for shelf in folder.glob(f"{PREFIX}*"):
        known = re.fullmatch(rf"{PREFIX}(\d+)-\w+", shelf.name)
        if known and not is_alive(int(known[1])):
            shutil.rmtree(shelf, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Whether there is a process `pid`; where that cannot be asked for, yes.

    >>> is_alive(os.getpid())
    True
    """
    if os.name == "nt":  # signal 0 is Ctrl-C there
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
