"""The bytes of corpus.json -> the card of a tokens folder, each part of it checked.

A folder may have been cut off, damaged or made by anyone: what is read of the card is of the form
and the size that the writer gives it, and its checksum tells of any other change.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from music_gpt.errors import InputError
from music_gpt.files import is_file, is_folder, read_text
from music_gpt.folders import TOKENS, TOKENS_CARD, TOKENS_FORMAT, what_is
from music_gpt.printable import shown
from music_gpt.tokens.events import vocabulary_hash

FORMAT = TOKENS_FORMAT
VERSION = 1
SPLITS = ("train", "validation", "test")
CARD = TOKENS_CARD

MOST_PIECES = 20_000_000
"""In a split: more than all piano music that there is as MIDI."""
MOST_TOKENS = 1 << 48
MOST_CARD_BYTES = 1 << 26
_SHA256 = re.compile("[0-9a-f]{64}")


def read_card(path: Path) -> dict[str, Any]:
    """The card of the tokens folder `path`; `InputError` if there is none that can be used."""
    if not is_folder(path):
        raise InputError(
            f"There is no tokens folder at {shown(path)}; make one with `music-gpt prepare` from a "
            "folder of MIDI files."
        )
    if (found := what_is(path)) not in ("", TOKENS):
        raise InputError(
            f"{shown(path)} is {found}, not {TOKENS}; give the folder that `music-gpt prepare` "
            "wrote."
        )
    if not is_file(path / CARD):
        raise InputError(
            f"The folder {shown(path)} holds no finished corpus ({CARD} is missing); make it, or "
            "go on with an interrupted one, with `music-gpt prepare`."
        )
    try:
        card = json.loads(read_text(path / CARD, MOST_CARD_BYTES))
    except (ValueError, RecursionError):
        raise InputError(damaged(path, CARD)) from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise InputError(
            f"{shown(path / CARD)} is not the card of a tokens folder; choose another folder."
        )
    if card.get("version") != VERSION:
        raise InputError(
            f"The tokens folder {shown(path)} has format version {str(card.get('version'))[:12]}, "
            f"but this program reads version {VERSION}; run `music-gpt prepare` again."
        )
    if card.get("vocabulary_hash") != vocabulary_hash():
        raise InputError(
            f"The tokens folder {shown(path)} was written with another vocabulary (hash "
            f"{str(card.get('vocabulary_hash'))[:12]}, here {vocabulary_hash()[:12]}), so its ids "
            "mean other events; run `music-gpt prepare` again with this version."
        )
    if not _is_card(card):
        raise InputError(damaged(path, CARD))
    return card


def damaged(path: Path, name: str) -> str:
    """What is said of a file in the tokens folder `path`."""
    return (
        f"{name} in the tokens folder {shown(path)} is missing or is not what was written there; "
        "run `music-gpt prepare` again, or copy the folder anew."
    )


def card_sha256(card: Mapping[str, Any]) -> str:
    """Checksum of all that a card says, but for this checksum: it stands among those of files."""
    files = {name: sha256 for name, sha256 in card["files"].items() if name != CARD}
    text = json.dumps({**card, "files": files}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _is_card(card: Mapping[str, Any]) -> bool:
    """Whether the parts that are read have their form, and none was changed."""
    try:
        return (
            all(name in SPLITS and _is_split(name, part) for name, part in card["splits"].items())
            # a name is no path: what lies outside the folder is not read
            and all(Path(name).name == name and _is_sha256(s) for name, s in card["files"].items())
            # older folders have no such checksum
            and card["files"].get(CARD) in (None, card_sha256(card))
        )
    except (AttributeError, KeyError, TypeError, RecursionError):
        return False


def _is_split(name: str, split: Mapping[str, Any]) -> bool:
    shards = split["shards"]
    return (
        _is_number(split["pieces"], 1, MOST_PIECES)
        and _is_number(split["notes"], 0, MOST_TOKENS)
        and type(split["seconds"]) in (int, float)
        and 0 <= split["seconds"] < math.inf
        and _is_sha256(split["index_sha256"])
        and isinstance(shards, list)
        and [shard["file"] for shard in shards] == [shard_name(name, i) for i in range(len(shards))]
        and all(_is_number(shard["tokens"], 1, MOST_TOKENS) for shard in shards)
        and all(_is_sha256(shard["sha256"]) for shard in shards)
        and _is_number(split["tokens"], 1, MOST_TOKENS)
        and split["tokens"] == sum(shard["tokens"] for shard in shards)
    )


def shard_name(split: str, number: int) -> str:
    """Name of a file of ids."""
    return f"{split}-{number:05d}.bin"


def _is_number(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None
