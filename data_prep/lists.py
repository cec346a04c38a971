"""tables beside a corpus -> what they say of each file: its split, and where it comes from."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from data_prep.collect import Collection
from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError
from music_gpt.tokens.card import SPLITS

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
        for row in _rows(table, ",", ("midi_filename", "split")):
            name = _same_name((table.parent / row["midi_filename"]).relative_to(midi).as_posix())
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
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The list {path} cannot be read ({error}); give a UTF-8 text.") from None
    lines = text.removeprefix("#").splitlines()
    reader = csv.DictReader(lines, delimiter=delimiter, restval="", strict=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
        rows = list(reader)
    except csv.Error as error:
        raise InputError(
            f"The list {path} is no table ({error} in line {reader.line_num}); mend that line."
        ) from None
    missing = [name for name in columns if name not in reader.fieldnames]
    if missing:
        raise InputError(
            f"The list {path} has no column {missing[0]!r}; its first line has to name the columns."
        )
    yield from rows


def _split_name(name: str, table: Path) -> str:
    name = _SPLIT_NAMES.get(name.strip().lower(), name.strip().lower())
    if name not in SPLITS:
        raise InputError(f"The list {table} says split {name!r}; use {', '.join(SPLITS)}.")
    return name


def _same_name(name: str) -> str:
    """One form of a name: systems disagree on how to write an accent."""
    return unicodedata.normalize("NFC", name)
