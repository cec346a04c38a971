"""tables beside a corpus -> what they say of each file: its split, and where it comes from."""

from __future__ import annotations

import csv
import io
import itertools
import posixpath
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from data_prep.collect import Collection
from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError
from music_gpt.files import opened
from music_gpt.tokens.card import SPLITS

MAX_BYTES = 1 << 28
"""Of a list: a million files have about half of it."""
MAESTRO_LICENCE = "CC BY-NC-SA 4.0"
MAESTRO_KIND = "performance-disklavier"
_SPLIT_NAMES = {"valid": "validation", "val": "validation", "dev": "validation"}


class Provenance(NamedTuple):
    """Where a piece comes from, as far as a list says so."""

    source: str = ""
    licence: str = ""
    kind: str = ""
    composer: str = ""


@dataclass
class Lists:
    """What lists say of the files, by name: the split that is fixed, and where they come from."""

    splits: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, Provenance] = field(default_factory=dict)

    def split_of(self, name: str) -> str | None:
        """The split that is fixed for a file, if one is."""
        return self.splits.get(_same_name(name))

    def origin_of(self, name: str) -> Provenance:
        """Where a file comes from; empty where no list says so."""
        return self.provenance.get(_same_name(name), Provenance())


def read_lists(midi: Path, found: Collection, config: PrepareConfig) -> Lists:
    """MAESTRO's own tables in the folder, then the lists that the settings name, which win."""
    lists = Lists()
    for table in sorted(found.maestro_tables):
        below = table.parent.relative_to(midi).as_posix()
        for row in _rows(table, ",", ("midi_filename", "split")):
            # a name that leads out of the folder is that of no file in it
            name = _same_name(posixpath.normpath(posixpath.join(below, row["midi_filename"])))
            lists.splits[name] = _split_name(row["split"], table)
            composer = row.get("canonical_composer") or ""
            lists.provenance[name] = Provenance(table.stem, MAESTRO_LICENCE, MAESTRO_KIND, composer)
    if config.split_by:
        for row in _rows(Path(config.split_by), ",", ("path", "split")):
            name = _same_name(row["path"])
            lists.splits[name] = _split_name(row["split"], Path(config.split_by))
    if config.sources:
        for row in _rows(Path(config.sources), "\t", ("path",)):
            told = (row.get(column) or "" for column in Provenance._fields)
            lists.provenance[_same_name(row["path"])] = Provenance(*told)
    return lists


def _rows(path: Path, delimiter: str, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a table whose first line names its columns, perhaps after a `#`."""
    with opened(path, MAX_BYTES, "a UTF-8 text") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            head = next(lines, "").removeprefix("#")
            rows = itertools.chain([head], lines)
            reader = csv.DictReader(rows, delimiter=delimiter, restval="", strict=True)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
            if missing := [name for name in columns if name not in reader.fieldnames]:
                raise InputError(
                    f"The list {path} has no column {missing[0]!r}; its first line has to name the "
                    "columns."
                )
            yield from reader
        except UnicodeDecodeError:
            raise InputError(f"The list {path} is no text in UTF-8; give one that is.") from None
        except csv.Error as error:
            raise InputError(
                f"The list {path} is no table ({error} in line {reader.line_num}); mend that line."
            ) from None


def _split_name(name: str, table: Path) -> str:
    name = _SPLIT_NAMES.get(name.strip().lower(), name.strip().lower())
    if name not in SPLITS:
        raise InputError(f"The list {table} says split {name!r}; use {', '.join(SPLITS)}.")
    return name


def _same_name(name: str) -> str:
    """One form of a name: systems disagree on how to write an accent."""
    return unicodedata.normalize("NFC", name)
