"""a folder -> the MIDI files in it: each one once, and every other one with the reason.

Knows nothing of what is inside a MIDI file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.files import is_folder, open_regular
from music_gpt.printable import printable_name, shown

MAX_BYTES = MidiLimits().max_bytes
"""A larger file would not be read, so it is not looked into either."""
SUFFIXES = (".mid", ".midi", ".rmi")
FILES_AT_ONCE = 64
"""Files that one thread reads before the next are given to it."""

Digests = npt.NDArray[np.bytes_]
"""SHA-256 of files, (N,) of dtype S32. Zero bytes at the end are cut off where one is taken out."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


class MidiFile(NamedTuple):
    """A MIDI file: `name` is its path below the corpus folder, with forward slashes."""

    name: str
    path: Path
    digest: bytes  # 32 bytes: SHA-256


class Files(Sequence[MidiFile]):
    """The files of a corpus, held as columns: of a million there are a hundred megabytes.

    `paths` are below `folder`, as the system has them; `digests` are their checksums.
    """

    def __init__(self, folder: Path, paths: list[str], digests: Digests) -> None:
        self.folder = folder
        self.paths = paths
        self.digests = digests

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, i: int) -> MidiFile: ...
    @overload
    def __getitem__(self, i: slice) -> Files: ...
    def __getitem__(self, i: int | slice) -> MidiFile | Files:
        if isinstance(i, slice):
            return Files(self.folder, self.paths[i], self.digests[i])
        digest = bytes(self.digests[i]).ljust(32, b"\0")
        return MidiFile(self.name(i), self.folder / self.paths[i], digest)

    def take(self, places: npt.NDArray[np.int64]) -> Files:
        """The files at these places."""
        return Files(self.folder, [self.paths[i] for i in places.tolist()], self.digests[places])

    def name(self, i: int) -> str:
        """Name of one file, for people and for lists."""
        return printable_name(self.paths[i])

    def names(self) -> Iterator[str]:
        """The name of each file."""
        return map(printable_name, self.paths)


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the corpus, and why: in a word to count by, and in a sentence."""

    name: str
    kind: str
    reason: str


@dataclass
class Collection:
    """What a folder holds: files to read, files left out, and how many others of each suffix."""

    files: Files
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
    if not is_folder(folder):
        raise InputError(
            f"There is no folder {shown(folder)}; give the folder that holds the MIDI files."
        )
    found = Collection(Files(folder, [], np.zeros(0, "S32")))
    candidates: list[str] = []
    for path in _walk(folder, skip, found):
        if not path.name.lower().endswith(SUFFIXES):
            found.others[printable_name(path.suffix.lower())] += 1
            if fnmatch(path.name, "maestro-v*.csv"):
                found.maestro_tables.append(path)
            continue
        below = path.relative_to(folder).as_posix()
        reason = _why_not(path, below)
        if reason:
            found.left_out.append(LeftOut(printable_name(below), *reason))
        else:
            candidates.append(below)
    _read_checksums(sorted(candidates, key=printable_name), found, progress)
    if not len(found.files):
        raise InputError(
            f"There is no readable MIDI file ({', '.join(SUFFIXES)}) in {shown(folder)}; give the "
            "folder that holds them."
        )
    found.left_out.sort(key=lambda left: left.name)
    return found


def _walk(folder: Path, skip: Path | None, found: Collection) -> Iterator[Path]:
    """Every file, and every folder that is named like a MIDI file."""
    skipped = os.path.realpath(skip) if skip else None
    seen: set[str] = set()

    def unreadable(error: OSError) -> None:
        name = printable_name(Path(error.filename).relative_to(folder).as_posix())
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
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "not a file", "It is a link to something that is not there."
    except OSError as error:  # its folder may not be entered, or its link leads to itself
        return "unreadable", f"It cannot be opened ({error.strerror})."
    if stat.S_ISDIR(mode):
        return "not a file", "It is a folder that is named like a MIDI file."
    return None if stat.S_ISREG(mode) else ("not a file", "It is not a regular file.")


def _read_checksums(paths: list[str], found: Collection, progress: Progress | None) -> None:
    """Sort the candidates into files and doubles of files by their bytes."""
    digests, readable = np.zeros(len(paths), "S32"), np.ones(len(paths), bool)
    for first, sums in _checksums(found.files.folder, paths):
        for i, (digest, problem) in enumerate(sums, start=first):
            if problem:
                found.left_out.append(LeftOut(printable_name(paths[i]), "unreadable", problem))
            readable[i], digests[i] = not problem, digest
        if progress:
            progress("looking", first + len(sums), len(paths))
    all_files = Files(found.files.folder, paths, digests)
    places = np.flatnonzero(readable)
    _, first_of, same = np.unique(digests[places], return_index=True, return_inverse=True)
    kept = np.zeros(len(places), bool)
    kept[first_of] = True
    for i in np.flatnonzero(~kept).tolist():
        original = all_files.name(int(places[first_of[same[i]]]))
        name, reason = all_files.name(int(places[i])), f"Its bytes are those of {original}."
        found.left_out.append(LeftOut(name, "double", reason))
    found.files = all_files.take(places[kept])


def _checksums(
    folder: Path, paths: list[str]
) -> Iterator[tuple[int, list[tuple[bytes, str | None]]]]:
    """Place of the first of some files, and the checksum of each or why it cannot be read."""
    root = str(folder)

    def of_some(first: int) -> list[tuple[bytes, str | None]]:
        return [_checksum(f"{root}/{path}") for path in paths[first : first + FILES_AT_ONCE]]

    starts = range(0, len(paths), FILES_AT_ONCE)
    n_threads = min(4, len(starts))
    if n_threads <= 1:
        yield from ((first, of_some(first)) for first in starts)
        return
    with ThreadPoolExecutor(n_threads) as threads:  # hashlib lets other threads run
        waiting: deque[tuple[int, Future[list[tuple[bytes, str | None]]]]] = deque()
        for first in starts:
            waiting.append((first, threads.submit(of_some, first)))
            if len(waiting) > 2 * n_threads:
                begun, sums = waiting.popleft()
                yield begun, sums.result()
        yield from ((begun, sums.result()) for begun, sums in waiting)


def _checksum(path: str) -> tuple[bytes, str | None]:
    try:
        with open_regular(path, MAX_BYTES) as file:
            return hashlib.file_digest(file, "sha256").digest(), None
    except OSError as error:
        return b"", f"It cannot be opened ({error.strerror})."
