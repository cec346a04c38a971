"""MIDI files -> their ids and facts in a cache, read by several processes.

The cache lies in the tokens folder, one small file for sixteen pieces, written whole or not at all.
So a run that was interrupted goes on where it was, and a run on a folder that has grown reads only
what is new. What was read under other settings, or by other code, is never used again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.collect import MidiFile, Progress
from data_prep.fingerprint import Hashes, fingerprint
from music_gpt import events
from music_gpt.config import MidiLimits
from music_gpt.corpus import IDS
from music_gpt.errors import InputError
from music_gpt.events import NOTE_OFF, count_notes, duration_frames, encode_notes
from music_gpt.midi import read_piece

FILES_IN_CHUNK = 16
CHUNK_FORMAT = 1
CRASHED = "Reading it ended the process, perhaps for want of memory; look at this file."
_CANNOT_START = (
    "The processes that read the files cannot start; set workers to 1, or, in a script of your "
    'own, call prepare below `if __name__ == "__main__":`.'
)

Ids = npt.NDArray[np.uint16]
_NO_IDS: Ids = np.zeros(0, dtype=IDS)
_NO_HASHES: Hashes = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True)
class Encoded:
    """What is known of one file, by its checksum; its ids are asked of the cache."""

    sha256: str
    problem: str = ""
    """Why it could not be read, or empty; the rest is then 0."""
    tokens: int = 0
    """Number of ids, EOS at both ends included."""
    notes: int = 0
    seconds: float = 0.0
    pitches: int = 0
    events_hash: str = ""
    """Equal for files that play the same events."""
    warnings: tuple[str, ...] = ()


class EncodeCache:
    """The cache folder for one setting: `known` by checksum, `ids` and `sketch` on demand."""

    def __init__(self, root: Path, max_gap_seconds: float) -> None:
        self.root = root
        self.folder = root / _setting_key(max_gap_seconds)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, Encoded] = {}
        self._place: dict[str, tuple[Path, int]] = {}
        self._encode = functools.partial(
            _encode_chunk, folder=self.folder, max_gap_seconds=max_gap_seconds
        )
        self._learn_all()
        # what could not be read once is tried again by the next run
        self.known = {key: record for key, record in self.known.items() if not record.problem}

    def encode(self, files: Sequence[MidiFile], *, workers: int, progress: Progress) -> None:
        """Read every file that is not known yet; `workers` 0 takes a process for each core.

        Ctrl-C raises `KeyboardInterrupt` with a sentence, after what was begun is stored.
        """
        missing = [file for file in files if file.sha256 not in self.known]
        parts = range(0, len(missing), FILES_IN_CHUNK)
        chunks = [missing[i : i + FILES_IN_CHUNK] for i in parts]
        done = len(files) - len(missing)
        progress("reading", done, len(files))
        try:
            for chunk in self._encode_chunks(chunks, workers or os.cpu_count() or 1):
                done += self._learn(chunk)
                progress("reading", done, len(files))
        except KeyboardInterrupt:
            self._learn_all()
            known = sum(file.sha256 in self.known for file in files)
            raise KeyboardInterrupt(
                f"Stopped after {known} of {len(files)} files were read; they are kept, and the "
                "same command goes on from there."
            ) from None

    def ids(self, sha256: str) -> Ids:
        """The ids of a known file, EOS at both ends."""
        chunk, row = self._place[sha256]
        ids: Ids = _load(chunk, "ids")[row]
        return ids

    def sketch(self, sha256: str) -> Hashes:
        """The fingerprint of a known file."""
        chunk, row = self._place[sha256]
        hashes: Hashes = _load(chunk, "hashes")[row]
        return hashes

    def forget_all_but(self, used: Iterable[str]) -> None:
        """Remove the chunks of which no file is used, and those of other settings."""
        kept = {self._place[sha256][0] for sha256 in used}
        for chunk in self.folder.iterdir():
            if chunk not in kept:
                chunk.unlink()
        for folder in self.root.iterdir():
            if folder != self.folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _encode_chunks(self, chunks: list[list[MidiFile]], n_workers: int) -> Iterator[Path]:
        if n_workers == 1 or len(chunks) <= 2:  # starting processes would take longer
            yield from map(self._encode, chunks)
            return
        waiting = chunks[::-1]
        while waiting:
            running: dict[Future[Path], list[MidiFile]] = {}
            try:
                yield from self._run_pool(waiting, running, min(n_workers, len(waiting)))
            except BrokenProcessPool:  # a file has killed its process: find out which
                yield from self._encode_singly([f for files in running.values() for f in files])

    def _run_pool(
        self,
        waiting: list[list[MidiFile]],
        running: dict[Future[Path], list[MidiFile]],
        n_workers: int,
    ) -> Iterator[Path]:
        """Move chunks from `waiting` through `running`; only few run, so memory stays bounded."""
        with _pool(n_workers) as pool:
            while waiting or running:
                while waiting and len(running) < 2 * n_workers:
                    files = waiting.pop()
                    running[pool.submit(self._encode, files)] = files
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    chunk = future.result()
                    del running[future]
                    yield chunk

    def _encode_singly(self, suspects: list[MidiFile]) -> Iterator[Path]:
        """One file after the other, so that the one at which the process ends is known."""
        waiting = suspects[::-1]
        while waiting:
            with _pool(1) as pool:
                try:
                    pool.submit(os.getpid).result()
                except BrokenProcessPool:
                    raise InputError(_CANNOT_START) from None
                try:
                    while waiting:
                        yield pool.submit(self._encode, [waiting[-1]]).result()
                        waiting.pop()
                except BrokenProcessPool:
                    crash = Encoded(waiting.pop().sha256, CRASHED)
                    yield _store([(crash, _NO_IDS, _NO_HASHES)], self.folder)

    def _learn(self, chunk: Path) -> int:
        records = _load(chunk, "records")
        for row, fields in enumerate(records):
            record = Encoded(**{**fields, "warnings": tuple(fields["warnings"])})
            self.known[record.sha256] = record
            self._place[record.sha256] = chunk, row
        return len(records)

    def _learn_all(self) -> None:
        for chunk in sorted(self.folder.glob("*.npz")):
            try:
                self._learn(chunk)
            except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
                # damaged: its files are read again
                chunk.unlink()


def _setting_key(max_gap_seconds: float) -> str:
    """Name of the cache folder: all that decides what a file's bytes become, the code included."""
    digest = hashlib.sha256(f"{CHUNK_FORMAT} {max_gap_seconds!r} {MidiLimits()}".encode())
    package, here = Path(str(events.__file__)).parent, Path(__file__)
    code = [*sorted(package.glob("midi*.py")), package / "notes.py", package / "events.py"]
    for source in [*code, here.with_name("fingerprint.py"), here]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


# --- in the reading process ---------------------------------------------------------------------


def _encode_chunk(files: list[MidiFile], *, folder: Path, max_gap_seconds: float) -> Path:
    """Read and encode the files, and store them as one chunk."""
    return _store([_encode_file(file, max_gap_seconds) for file in files], folder)


def _encode_file(file: MidiFile, max_gap_seconds: float) -> tuple[Encoded, Ids, Hashes]:
    try:
        data = file.path.read_bytes()
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise InputError("It changed while it was being read; run the same command again.")
        piece = read_piece(data)
    except (InputError, OSError) as error:
        return Encoded(file.sha256, str(error)), _NO_IDS, _NO_HASHES
    ids = encode_notes(piece.sounding_notes, max_gap_seconds=max_gap_seconds, eos=True)
    facts = Encoded(
        sha256=file.sha256,
        tokens=len(ids),
        notes=count_notes(ids),
        seconds=duration_frames(ids) / events.FRAMES_PER_SECOND,
        pitches=len(np.unique(ids[ids < NOTE_OFF])),
        events_hash=hashlib.sha256(ids.astype(IDS).tobytes()).hexdigest(),
        warnings=tuple(piece.warnings),
    )
    return facts, ids, fingerprint(piece.sounding_notes)


def _store(pieces: list[tuple[Encoded, Ids, Hashes]], folder: Path) -> Path:
    """Write a chunk; it has its name only once it is whole."""
    records, ids, hashes = zip(*pieces, strict=True)
    name = hashlib.sha256(" ".join(record.sha256 for record in records).encode()).hexdigest()[:24]
    text = json.dumps([asdict(record) for record in records])
    unfinished = folder / f"{name}.{os.getpid()}"
    with unfinished.open("wb") as file:
        np.savez(
            file,
            records=np.frombuffer(text.encode(), dtype=np.uint8),
            ids=np.concatenate(ids).astype(IDS),
            ids_lengths=np.array([len(row) for row in ids]),
            hashes=np.concatenate(hashes),
            hashes_lengths=np.array([len(row) for row in hashes]),
        )
    return unfinished.replace(folder / f"{name}.npz")


@functools.lru_cache(maxsize=8)
def _load(chunk: Path, what: str) -> list[Any]:
    """The rows of `records`, `ids` or `hashes` of a chunk; few chunks are held at a time."""
    with np.load(chunk, allow_pickle=False) as arrays:
        if what == "records":
            return list(json.loads(arrays["records"].tobytes()))
        return np.split(arrays[what], np.cumsum(arrays[f"{what}_lengths"])[:-1])


def _pool(n_workers: int) -> ProcessPoolExecutor:
    """Fresh processes, the same on every system, that hold no lock of a thread of this one."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n_workers, mp_context=context, initializer=_begin_process)


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which lets us finish
    parent = multiprocessing.parent_process()
    if parent is not None:
        # a parent that is killed cannot tell its children to stop
        threading.Thread(target=_end_with, args=(parent.join,), daemon=True).start()


def _end_with(join: Callable[[], None]) -> None:
    join()
    os._exit(1)
