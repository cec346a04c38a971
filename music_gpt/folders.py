"""A folder -> what it is of ours, if anything: no file of others is ever written over.

Tokens, a run and an export lie each in a folder of its own, and are known by one file that no other
program writes so. What else may lie in them, their writers know.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from music_gpt.errors import InputError
from music_gpt.files import LOCK, UNFINISHED_FILE, is_folder, open_regular, plain_errors
from music_gpt.printable import shown

TOKENS, RUN, EXPORT = "a tokens folder", "the folder of a run", "an export for transformers"
"""The kinds of folders, as sentences name them."""
TOKENS_CARD, TOKENS_FORMAT = "corpus.json", "music-gpt tokens"
TOKENS_UNFINISHED, TOKENS_CACHE = ".music-gpt-writing", ".music-gpt-cache"
RUN_CONFIG = "config.yaml"
EXPORT_CARD = "music_gpt.json"

_HEAD_BYTES = 1 << 16
"""Enough of a card to know it, and of a run's configuration all."""
_SIGNS = {
    TOKENS: (TOKENS_CARD, rf'\{{\s*"format": "{TOKENS_FORMAT}".*'),
    # nothing that a person has written by hand: a comment would be lost
    RUN: (
        RUN_CONFIG,
        "".join(rf"{section}:\n( [^#\n]*\n)+" for section in ("model", "data", "optim", "train")),
    ),
    EXPORT: (EXPORT_CARD, r'\{\s*"model": \{\s*"n_layers": .*'),
}
"""Kind -> the file by which it is known, and how that begins."""
_IN_ANY = re.compile(
    rf"{re.escape(LOCK)}|{UNFINISHED_FILE.pattern}|\.DS_Store|desktop\.ini|Thumbs\.db"
)
"""What a run that was killed leaves, and what systems lay into every folder that is looked at."""


def what_is(folder: str | Path) -> str:
    """`TOKENS`, `RUN` or `EXPORT`; an empty text for any other folder, or none."""
    folder = Path(folder)
    if any(is_folder(folder / name) for name in (TOKENS_UNFINISHED, TOKENS_CACHE)):
        return TOKENS
    for kind, (name, sign) in _SIGNS.items():
        if re.fullmatch(sign, _head(folder / name), re.DOTALL):
            return kind
    return ""


def _head(path: Path) -> str:
    try:
        with open_regular(path, max_bytes=1 << 32) as file:
            return file.read(_HEAD_BYTES).decode(errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError):  # the second: what can be no name
        return ""


def require_room(folder: Path, kind: str, names: re.Pattern[str]) -> None:
    """Raise `InputError` unless `folder` is new, empty, or of this kind and holds nothing else.

    `names` are those that lie in a folder of the kind, so that they may be written anew.
    """
    with plain_errors(folder):
        try:
            held = sorted(name for name in os.listdir(folder) if not _IN_ANY.fullmatch(name))
        except FileNotFoundError:
            return
    found = what_is(folder)
    if found not in ("", kind):
        raise InputError(
            f"{shown(folder)} is {found}, so {kind} cannot be made of it; choose a new or empty "
            "folder."
        )
    foreign = [name for name in held if not (found and names.fullmatch(name))]
    if foreign:
        raise InputError(
            f"The folder {shown(folder)} holds other files ({shown(foreign[0])}); choose a new or "
            "empty folder."
        )
