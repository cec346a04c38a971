"""a folder of chunks <-> what is known of each file, so that no file is read twice.

The cache lies in the tokens folder. A run that was interrupted goes on where it was, and a run on a
folder that has grown reads only what is new. What was read under other settings, or by other code,
is never used again. In memory each file takes some hundred bytes; music stays on disk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.collect import Digests, Files, MidiFile, Progress
from data_prep.encode import (
    CHUNK_NAME,
    CRASHED,
    FACTS,
    FILES_IN_CHUNK,
    Facts,
    encode_chunk,
    load_chunk,
    require_whole,
    said_in,
    setting_key,
    store_chunk,
    unreadable,
)
from data_prep.workers import Workers
from music_gpt.arrays import Ids
from music_gpt.errors import InputError
from music_gpt.files import UNFINISHED_FILES, is_file, is_folder
from music_gpt.hashing import Hashes
from music_gpt.tokens.events import N_PITCHES, N_VELOCITIES

Rows = npt.NDArray[np.int64]
_SETTING_NAME = re.compile("[0-9a-f]{16}")
"""Of a folder of chunks."""


class Cache:
    """The cache folder for one setting: a table of facts, and music on demand.

    `facts` has one entry a file, in no meaningful order; `rows` finds files in it, and the other
    methods take such rows.
    """

    _chunks: list[str]
    _first_rows: list[int]  # of each chunk, and one more
    _facts: list[Facts]
    _places: list[Rows]

    def __init__(self, root: Path, max_gap_seconds: float) -> None:
        self.root = root
        self.folder = root / setting_key(max_gap_seconds)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._encode = functools.partial(
            encode_chunk, folder=self.folder, max_gap_seconds=max_gap_seconds
        )
        self._cut = functools.lru_cache(maxsize=8)(self._cut_chunk)  # few chunks are held
        self._learn_all()

    @property
    def facts(self) -> Facts:
        """(N,) of dtype `FACTS`."""
        if len(self._facts) != 1:
            self._facts = [np.concatenate([np.zeros(0, FACTS), *self._facts])]
        return self._facts[0]

    def rows(self, digests: Digests) -> Rows:
        """Row of each file in `facts`, by the checksum of the file; -1 where it is not known."""
        known = np.ascontiguousarray(self.facts["digest"])
        if not len(known):
            return np.full(len(digests), -1)
        order = np.argsort(known, kind="stable")
        place = np.searchsorted(known, digests, sorter=order)
        row = order[np.minimum(place, len(order) - 1)]
        return np.where(known[row] == digests, row, -1)

    def encode(self, files: Files, *, workers: int, progress: Progress) -> None:
        """Read every file that is not known yet; `workers` 0 takes a process for each core.

        Ctrl-C raises `KeyboardInterrupt` with a sentence, after what was begun is stored.
        """
        missing = np.flatnonzero(self.rows(files.digests) < 0)
        starts = range(0, len(missing), FILES_IN_CHUNK)
        lists = (list(files.take(missing[i : i + FILES_IN_CHUNK])) for i in starts)
        done = len(files) - len(missing)
        progress("reading", done, len(files))
        crew = Workers(self._encode, self._store_crash, workers or os.cpu_count() or 1)
        try:
            for chunk in crew.run(lists, len(starts)):
                done += self._learn(chunk)
                progress("reading", done, len(files))
        except KeyboardInterrupt:
            self._learn_all()
            known = int((self.rows(files.digests) >= 0).sum())
            raise KeyboardInterrupt(
                f"Stopped after {known} of {len(files)} files were read; they are kept, and the "
                "same command goes on from there."
            ) from None

    def ids(self, row: int) -> Ids:
        """The ids of a file, EOS at both ends."""
        ids: Ids = self._piece(row, "ids", "tokens")
        return ids

    def hashes(self, row: int, kind: str) -> Hashes:
        """The hashes of one kind of a file: one of `Fingerprints`."""
        hashes: Hashes = self._piece(row, kind, kind)
        return hashes

    def said(self, row: int) -> tuple[str, tuple[str, ...]]:
        """Why a file could not be read, or empty, and the warnings about it."""
        return said_in(*self._place(row))

    def notes_on(self, what: str, rows: Rows) -> npt.NDArray[np.int64]:
        """Notes of these files on each pitch (`what` is "pitches") or velocity ("velocities")."""
        width = {"pitches": N_PITCHES, "velocities": N_VELOCITIES}[what]
        total = np.zeros(width, np.int64)
        places = self._all_places()[np.sort(rows)]
        for of_chunk in np.split(places, np.flatnonzero(np.diff(places[:, 0])) + 1):
            if len(of_chunk):
                chunk = self._path(int(of_chunk[0, 0]))
                total += load_chunk(chunk, what)[of_chunk[:, 1]].sum(axis=0, dtype=np.int64)
        return total

    def forget_all_but(self, rows: Rows) -> None:
        """Remove the chunks of which no file is used, and those of other settings.

        What else someone has put there stays.
        """
        used = np.unique(self._all_places()[rows, 0]).tolist()
        _remove_chunks(self.folder, kept={self._chunks[number] for number in used})
        for folder in self.root.iterdir():
            if folder != self.folder and _SETTING_NAME.fullmatch(folder.name):
                _remove_chunks(folder)

    def _place(self, row: int) -> tuple[Path, int]:
        """The chunk of a file, and its place there."""
        chunk, place = self._all_places()[row].tolist()
        return self._path(chunk), place

    def _all_places(self) -> Rows:
        """(N, 2) number of the chunk of each file, and its place there."""
        if len(self._places) != 1:
            self._places = [np.concatenate([np.zeros((0, 2), np.int64), *self._places])]
        return self._places[0]

    def _piece(self, row: int, what: str, lengths: str) -> npt.NDArray[Any]:
        """What a chunk holds of one file, of an array that has as many entries as a fact tells."""
        chunk = int(self._all_places()[row, 0])
        return self._cut(chunk, what, lengths)[row - self._first_rows[chunk]]

    def _cut_chunk(self, chunk: int, what: str, lengths: str) -> list[npt.NDArray[Any]]:
        """An array of a chunk, cut into those of its files; what is unreadable has no length."""
        first, behind = self._first_rows[chunk : chunk + 2]
        ends = np.cumsum(self.facts[lengths][first:behind], dtype=np.int64)
        return np.split(load_chunk(self._path(chunk), what), ends[:-1])

    def _path(self, chunk: int) -> Path:
        return self.folder / self._chunks[chunk]

    def _learn(self, chunk: Path, *, unreadable_too: bool = True) -> int:
        """Add the files of a chunk to the table; returns how many it holds."""
        facts = load_chunk(chunk, "facts")
        places = np.flatnonzero(unreadable_too | ~facts["unreadable"])
        self._facts.append(facts[places])
        number = np.full(len(places), len(self._chunks))
        self._places.append(np.stack([number, places], axis=1))
        self._chunks.append(chunk.name)
        self._first_rows.append(self._first_rows[-1] + len(places))
        return len(facts)

    def _learn_all(self) -> None:
        """Learn what earlier runs have read; what they could not read is tried again."""
        self._chunks, self._first_rows, self._facts, self._places = [], [0], [], []
        self._cut.cache_clear()
        for chunk in _chunks_in(self.folder):
            try:
                require_whole(chunk)
            except InputError:
                chunk.unlink()  # damaged: its files are read again
            else:
                self._learn(chunk, unreadable_too=False)

    def _store_crash(self, file: MidiFile) -> Path:
        return store_chunk([unreadable(file.digest, CRASHED)], self.folder)


def _chunks_in(folder: Path) -> list[Path]:
    """The chunks in a folder; whatever else lies there is not ours."""
    found = (path for path in folder.iterdir() if CHUNK_NAME.fullmatch(path.name))
    return sorted(path for path in found if is_file(path))


def _remove_chunks(folder: Path, kept: Collection[str] = ()) -> None:
    """Remove chunks, what killed runs left of others, and the folder if nothing else is in it."""
    if folder.is_symlink() or not is_folder(folder):
        return
    for path in [*_chunks_in(folder), *filter(is_file, folder.glob(UNFINISHED_FILES))]:
        if path.name not in kept:
            path.unlink()
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()
