"""MIDI files -> a chunk: their ids, fingerprints and facts in one file of the cache.

This is what the reading processes do. A chunk holds sixteen files, so that few files lie in the
cache of a large corpus and little is read again after a kill; it is written whole or not at all.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_prep.collect import MidiFile
from data_prep.fingerprint import Fingerprints, fingerprints
from music_gpt.arrays import Ids, read_arrays
from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.files import opened, whole_file
from music_gpt.midi.files import read_file
from music_gpt.midi.piece import DEFAULT_LIMITS, read_piece
from music_gpt.notes import HIGHEST_KEY, LOWEST_KEY, Notes
from music_gpt.printable import shown
from music_gpt.tokens import events
from music_gpt.tokens.corpus import IDS
from music_gpt.tokens.events import (
    EOS,
    N_PITCHES,
    N_VELOCITIES,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    encode_notes,
    velocity_value,
)

FILES_IN_CHUNK = 16
ARRAYS = ("facts", "said", "ids", "pitches", "velocities", *Fingerprints._fields)
"""What a chunk holds."""
CHUNK_NAME = re.compile(r"[0-9a-f]{24}\.npz")
MAX_CHUNK_BYTES = 1 << 30
CHUNK_FORMAT = 3
CRASHED = "Reading it ended the process, perhaps for want of memory; look at this file."

COMMON_DISTANCES = 12
"""So many lengths between onsets (in ms) hold nearly all of a machine's, and few of a hand's."""
TOGETHER_MS = 5
"""Notes that begin within this are one onset."""

FACTS = np.dtype(
    [
        ("digest", "S32"),  # SHA-256 of the file
        ("events", "S16"),  # equal for files that play the same events
        ("tokens", "<u4"),  # number of ids, EOS at both ends included; 0 if it cannot be read
        ("notes", "<u4"),
        ("seconds", "<f8"),
        ("pitches", "u1"),  # different ones
        ("outside", "<u4"),  # notes beyond the 88 keys
        ("velocity_spread", "<f4"),  # standard deviation of the velocities, of 127
        ("regularity", "<f4"),  # share of the commonest distances between onsets, 0 to 1
        ("turns", "<u4"),  # hashes of each kind in the fingerprints
        ("timed_turns", "<u4"),
        ("figures", "<u4"),
        ("unreadable", "?"),
        ("remarks", "?"),  # whether the chunk has warnings about it
    ]
)
"""What is known of one file. All but the first count the events that would be written."""

Counts = npt.NDArray[np.uint32]
Facts = npt.NDArray[np.void]


class Encoded(NamedTuple):
    """One file as it was read."""

    facts: Facts  # ()
    ids: Ids
    prints: Fingerprints
    pitches: Counts  # (128,) notes on each pitch
    velocities: Counts  # (32,) notes in each velocity bin
    problem: str = ""
    """Why it could not be read, or empty; all else is then empty too."""
    warnings: tuple[str, ...] = ()


def encode_chunk(files: list[MidiFile], *, folder: Path, max_gap_seconds: float) -> Path:
    """Read and encode the files, and store them as one chunk in `folder`."""
    return store_chunk([encode_file(file, max_gap_seconds) for file in files], folder)


def encode_file(file: MidiFile, max_gap_seconds: float) -> Encoded:
    """The file as events, or with the sentence that says why it cannot be read."""
    try:
        data = read_file(file.path, DEFAULT_LIMITS)
        if hashlib.sha256(data).digest() != file.digest:
            raise InputError("It changed while it was being read; run the same command again.")
        piece = read_piece(data)
        notes = piece.sounding_notes
        ids = encode_notes(notes, max_gap_seconds=max_gap_seconds, eos=True)
    except (InputError, OSError) as error:
        return unreadable(file.digest, str(error))
    counts = np.bincount(ids, minlength=EOS)
    pitches, velocities = counts[:NOTE_OFF].astype(np.uint32), _velocities(ids)
    prints = fingerprints(notes)
    facts = np.zeros((), FACTS)
    facts["digest"] = file.digest
    facts["events"] = hashlib.sha256(ids.astype(IDS, copy=False).data).digest()[:16]
    facts["tokens"] = len(ids)
    facts["notes"] = pitches.sum()
    frames = int(counts[TIME_SHIFT:VELOCITY] @ np.arange(1, events.N_SHIFTS + 1))
    facts["seconds"] = frames / events.FRAMES_PER_SECOND
    facts["pitches"] = np.count_nonzero(pitches)
    facts["outside"] = pitches[:LOWEST_KEY].sum() + pitches[HIGHEST_KEY + 1 :].sum()
    facts["velocity_spread"] = _spread(velocities)
    facts["regularity"] = regularity(notes)
    for kind, hashes in prints._asdict().items():
        facts[kind] = len(hashes)
    facts["remarks"] = bool(piece.warnings)
    return Encoded(facts, ids, prints, pitches, velocities, "", tuple(piece.warnings))


def unreadable(digest: bytes, problem: str) -> Encoded:
    """A file that gives no music, and why."""
    facts = np.zeros((), FACTS)
    facts["digest"], facts["unreadable"] = digest, True
    no_prints = Fingerprints(*np.zeros((3, 0), np.uint64))
    pitches, velocities = (np.zeros(n, np.uint32) for n in (N_PITCHES, N_VELOCITIES))
    return Encoded(facts, np.zeros(0, IDS), no_prints, pitches, velocities, problem=problem)


def _velocities(ids: Ids) -> Counts:
    """(32,) notes in each velocity bin: a NoteOn has the velocity that was told last."""
    says = ids[(ids < NOTE_OFF) | ((ids >= VELOCITY) & (ids < EOS))]
    told = np.flatnonzero(says >= VELOCITY)
    n_notes = np.diff(told, append=len(says)) - 1  # up to the next one
    counts = np.bincount(says[told] - VELOCITY, weights=n_notes, minlength=N_VELOCITIES)
    return counts.astype(np.uint32)


def _spread(velocities: Counts) -> float:
    """Standard deviation of the velocities, in MIDI's units."""
    n, values = max(int(velocities.sum()), 1), velocity_value(np.arange(N_VELOCITIES))
    mean = float(velocities @ values) / n
    return float(np.sqrt(float(velocities @ (values - mean) ** 2) / n))


def regularity(notes: Notes) -> float:
    """Share of the distances between onsets that are among the twelve commonest, in whole ms.

    Near 1 for a score that a machine plays in one tempo, below 0.4 for hands on keys.

    >>> from music_gpt.midi.piece import make_notes
    >>> regularity(make_notes([(0.5 * i, 0.5 * i + 0.4, 60, 64) for i in range(100)]))
    1.0
    """
    onsets = np.sort(np.rint(notes["start"] * 1000).astype(np.int64))
    distances = np.diff(onsets)
    distances = np.minimum(distances[distances > TOGETHER_MS], 4000)
    if not len(distances):
        return 1.0
    counts = np.bincount(distances, minlength=COMMON_DISTANCES)
    commonest = np.partition(counts, -COMMON_DISTANCES)[-COMMON_DISTANCES:]
    return float(commonest.sum() / len(distances))


# --- chunks on disk -----------------------------------------------------------------------------


def store_chunk(pieces: list[Encoded], folder: Path) -> Path:
    """Write a chunk; it has its name only once it is whole."""
    said = {
        str(row): {"problem": piece.problem, "warnings": piece.warnings}
        for row, piece in enumerate(pieces)
        if piece.problem or piece.warnings
    }
    facts = np.array([piece.facts for piece in pieces], FACTS)
    of_each_kind = zip(*(piece.prints for piece in pieces), strict=True)
    turns, timed_turns, figures = (np.concatenate(hashes) for hashes in of_each_kind)
    name = hashlib.sha256(facts["digest"].tobytes()).hexdigest()[:24]
    chunk = folder / f"{name}.npz"
    with whole_file(chunk) as unfinished, unfinished.open("wb") as file:
        np.savez(
            file,
            facts=facts,
            said=np.frombuffer(json.dumps(said).encode(), dtype=np.uint8),
            ids=np.concatenate([piece.ids for piece in pieces]).astype(IDS),
            pitches=np.array([piece.pitches for piece in pieces]),
            velocities=np.array([piece.velocities for piece in pieces]),
            turns=turns,
            timed_turns=timed_turns,
            figures=figures,
        )
    return chunk


@functools.lru_cache(maxsize=8)
def load_chunk(chunk: Path, what: str) -> npt.NDArray[Any]:
    """One of the arrays of a chunk; few are held at a time. `InputError` if it is damaged."""
    return _load(chunk, [what])[what]


def require_whole(chunk: Path) -> None:
    """Raise `InputError` unless every array of a chunk is there as it was written."""
    if _load(chunk, ARRAYS)["facts"].dtype != FACTS:
        raise InputError(f"{shown(chunk)} holds something else; run the same command again.")


def _load(chunk: Path, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    try:
        with opened(chunk, MAX_CHUNK_BYTES) as file:
            return read_arrays(file, names)
    except ValueError as error:
        raise InputError(
            f"{shown(chunk)} is damaged or gone, since this command began; run the same command "
            "again."
        ) from error


def said_in(chunk: Path, row: int) -> tuple[str, tuple[str, ...]]:
    """The problem and the warnings of one file of a chunk."""
    said = json.loads(load_chunk(chunk, "said").tobytes()).get(str(row), {})
    return said.get("problem", ""), tuple(said.get("warnings", ()))


def setting_key(max_gap_seconds: float) -> str:
    """Name of the cache folder: all that decides what a file's bytes become, the code included."""
    digest = hashlib.sha256(f"{CHUNK_FORMAT} {max_gap_seconds!r} {MidiLimits()}".encode())
    package, here = Path(str(events.__file__)).parent.parent, Path(__file__)
    names = ("notes.py", "hashing.py", "tokens/events.py")
    code = [*sorted(package.glob("midi/*.py")), *(package / name for name in names)]
    for source in [*code, here.with_name("fingerprint.py"), here]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
