"""a folder -> the MIDI files in it: each one once, and every other one with the reason.

Knows nothing of what is inside a MIDI file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from music_gpt.corpus import sha256_of
from music_gpt.errors import InputError

SUFFIXES = (".mid", ".midi", ".rmi")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


@dataclass(frozen=True)
class MidiFile:
    """A MIDI file: `name` is its path below the corpus folder, with forward slashes."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the corpus, and why: in a word to count by, and in a sentence."""

    name: str
    kind: str
    reason: str


@dataclass
class Collection:
    """What a folder holds: files to read, files left out, and how many others of each suffix."""

    files: list[MidiFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    maestro_tables: list[Path] = field(default_factory=list)
    """MAESTRO's own lists of its files, which say their splits."""


def collect(
    folder: Path, *, skip: Path | None = None, progress: Progress | None = None
) -> Collection:
    """All MIDI files below `folder`, sorted by name; `skip` is a folder not to look into.

    Links to folders are followed. Hidden files, things that are no files, unreadable files and
    byte-identical doubles go to `left_out`. Raises `InputError` if there is no MIDI file at all.
    """
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; give the folder that holds the MIDI files.")
    found = Collection()
    candidates: list[tuple[str, Path]] = []
    for path in _walk(folder, skip, found):
        if not path.name.lower().endswith(SUFFIXES):
            found.others[path.suffix.lower()] += 1
            if fnmatch(path.name, "maestro-v*.csv"):
                found.maestro_tables.append(path)
            continue
        name = printable(path.relative_to(folder).as_posix())
        reason = _why_not(path, name)
        if reason:
            found.left_out.append(LeftOut(name, *reason))
        else:
            candidates.append((name, path))
    _read_checksums(sorted(candidates), found, progress)
    if not found.files:
        raise InputError(
            f"There is no readable MIDI file ({', '.join(SUFFIXES)}) in {folder}; give the folder "
            "that holds them."
        )
    found.left_out.sort(key=lambda left: left.name)
    return found


def printable(name: str) -> str:
    """The name with bytes that are not UTF-8 written out, so that it fits into a JSON file."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _walk(folder: Path, skip: Path | None, found: Collection) -> Iterator[Path]:
    """Every file, and every folder that is named like a MIDI file."""
    skipped = os.path.realpath(skip) if skip else None
    seen: set[str] = set()

    def unreadable(error: OSError) -> None:
        name = printable(Path(error.filename).relative_to(folder).as_posix())
        reason = f"This folder cannot be opened ({error.strerror})."
        found.left_out.append(LeftOut(name, "unreadable", reason))

    for here, folders, files in os.walk(folder, followlinks=True, onerror=unreadable):
        real = os.path.realpath(here)
        if real in seen or real == skipped:  # a link that leads back would go round for ever
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        midi_named = [name for name in folders if name.lower().endswith(SUFFIXES)]
        yield from (Path(here, name) for name in sorted(files) + midi_named)


def _why_not(path: Path, name: str) -> tuple[str, str] | None:
    if any(part.startswith(".") for part in name.split("/")):
        return "hidden", "It is a hidden file, such as systems put beside the real ones."
    if path.is_dir():
        return "not a file", "It is a folder that is named like a MIDI file."
    if not path.exists():
        return "not a file", "It is a link to something that is not there."
    if not path.is_file():
        return "not a file", "It is not a regular file."
    return None


def _read_checksums(
    candidates: list[tuple[str, Path]], found: Collection, progress: Progress | None
) -> None:
    """Sort the candidates into files and doubles of files by their bytes."""
    first: dict[str, str] = {}
    with ThreadPoolExecutor(4) as threads:  # hashlib lets other threads run
        sums = threads.map(_checksum, (path for _, path in candidates))
        for done, ((name, path), (digest, problem)) in enumerate(
            zip(candidates, sums, strict=True)
        ):
            if problem:
                found.left_out.append(LeftOut(name, "unreadable", problem))
            elif digest in first:
                reason = f"Its bytes are those of {first[digest]}."
                found.left_out.append(LeftOut(name, "double", reason))
            else:
                first[digest] = name
                found.files.append(MidiFile(name, path, digest))
            if progress:
                progress("looking", done + 1, len(candidates))


def _checksum(path: Path) -> tuple[str, str | None]:
    try:
        return sha256_of(path), None
    except OSError as error:
        return "", f"It cannot be opened ({error.strerror})."
