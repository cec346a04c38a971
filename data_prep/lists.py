"""tables beside a corpus -> what they say of each file: its split, and where it comes from."""

from __future__ import annotations

import csv
import io
import itertools
import posixpath
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from data_prep.collect import Collection
from music_gpt.checking import short
from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError
from music_gpt.files import opened
from music_gpt.printable import printable_name, printable_text, shown
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


Told = TypeVar("Told", str, Provenance)
"""What a list tells of a file."""


@dataclass
class Lists:
    """What lists say of the files, by name: the split that is fixed, and where they come from."""

    splits: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, Provenance] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)
    """Of each list of a person's own, how many rows name no file here: sentences."""

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
        splits, origins = _in_maestro(table, table.parent.relative_to(midi).as_posix())
        lists.splits |= splits
        lists.provenance |= origins
    names = _names_of(found) if config.split_by or config.sources else frozenset()
    if config.split_by:
        splits = _splits_in(Path(config.split_by))
        lists.splits |= splits
        lists.strays += _strays(config.split_by, splits, names)
    if config.sources:
        origins = _origins_in(Path(config.sources))
        lists.provenance |= origins
        lists.strays += _strays(config.sources, origins, names)
    return lists


def _in_maestro(table: Path, below: str) -> tuple[dict[str, str], dict[str, Provenance]]:
    """Split and origin of each file that a table of MAESTRO's names, whose folder is `below`."""
    splits, origins, source = dict[str, str](), dict[str, Provenance](), printable_name(table.stem)
    for row in _rows(table, ",", ("midi_filename", "split")):
        # a name that leads out of the folder is that of no file in it
        path = posixpath.normpath(posixpath.join(below, row["midi_filename"]))
        name = _same_name(printable_name(path))
        _keep(splits, name, _split_name(row["split"], table, row["midi_filename"]), table)
        composer = row.get("canonical_composer") or ""
        _keep(origins, name, Provenance(source, MAESTRO_LICENCE, MAESTRO_KIND, composer), table)
    return splits, origins


def _splits_in(table: Path) -> dict[str, str]:
    """The split of each file that a person's own list names."""
    splits: dict[str, str] = {}
    for row in _rows(table, ",", ("path", "split")):
        _keep(splits, _named(row["path"]), _split_name(row["split"], table, row["path"]), table)
    return splits


def _origins_in(table: Path) -> dict[str, Provenance]:
    """Where each file comes from that a person's own list names."""
    origins: dict[str, Provenance] = {}
    for row in _rows(table, "\t", ("path",)):
        origin = Provenance(*(row.get(name) or "" for name in Provenance._fields))
        _keep(origins, _named(row["path"]), origin, table)
    return origins


def _keep(told: dict[str, Told], name: str, its: Told, table: Path) -> None:
    """Take what a row tells of a file; `InputError` if a row before it told something else."""
    before = told.setdefault(name, its)
    if before != its:
        pair = zip(before, its, strict=True) if isinstance(before, tuple) else [(before, its)]
        one, other = next((short(a), short(b)) for a, b in pair if a != b)
        raise InputError(
            f"The list {shown(table)} tells two things of {short(name)}, {one} and {other}; leave "
            "one of the rows."
        )


def _names_of(found: Collection) -> frozenset[str]:
    """What a row can name: every MIDI file of the folder, also one that is left out."""
    left_out = (left.name for left in found.left_out)
    return frozenset(map(_same_name, itertools.chain(found.files.names(), left_out)))


def _named(path: str) -> str:
    """The name that a row gives, as the report has it: `./a.mid` is `a.mid`."""
    return _same_name(printable_text(posixpath.normpath(path))) if path else ""


def _strays(table: str, rows: Mapping[str, object], names: frozenset[str]) -> list[str]:
    """A sentence on the rows that name no file; `InputError` if none of them does."""
    strays = [name for name in rows if name not in names]
    if not strays:
        return []
    example = f"{short(strays[0])}; names are those below the folder, as {short(min(names))}"
    if len(strays) == len(rows):
        raise InputError(
            f"No row of the list {shown(table)} names a MIDI file of the folder: {example}."
        )
    return [
        f"{len(strays):,} of {len(rows):,} rows of {shown(table)} name no file here: {example}."
    ]


def _rows(path: Path, delimiter: str, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a table whose first line names its columns, perhaps after a `#`."""
    with opened(path, MAX_BYTES, "a UTF-8 text") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            head = next(lines, "").removeprefix("#")
            rows = itertools.chain([head], lines)
            reader = csv.DictReader(rows, delimiter=delimiter, restval="", strict=True)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
            named = reader.fieldnames.count
            if doubled := [name for name in columns if named(name) > 1]:
                raise InputError(
                    f"The list {shown(path)} has two columns {doubled[0]!r}; leave one."
                )
            if missing := [name for name in columns if not named(name)]:
                raise InputError(
                    f"The list {shown(path)} has no column {missing[0]!r}; its first line has to "
                    "name the columns."
                )
            yield from reader
        except UnicodeDecodeError:
            raise InputError(
                f"The list {shown(path)} is no text in UTF-8; give one that is."
            ) from None
        except csv.Error as error:
            line = reader.reader.line_num  # that of the DictReader is the last row that was good
            raise InputError(
                f"The list {shown(path)} is no table ({error} in line {line}); mend that line."
            ) from None


def _split_name(name: str, table: Path, of: str) -> str:
    name = _SPLIT_NAMES.get(name.strip().lower(), name.strip().lower())
    if name not in SPLITS:
        raise InputError(
            f"The list {shown(table)} says split {short(name)} of {short(of)}; use "
            f"{', '.join(SPLITS)}."
        )
    return name


def _same_name(name: str) -> str:
    """One form of a name: systems disagree on how to write an accent."""
    return unicodedata.normalize("NFC", name)
