"""Files that never end, or are far too long: what reads them without a bound waits for ever."""

from __future__ import annotations

import os
from pathlib import Path

ENDLESS = ["pipe", "device", "sparse"]


def make_endless(path: Path, what: str) -> None:
    """Put one of `ENDLESS` there; the last takes no room on the disk."""
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(6 << 30)
