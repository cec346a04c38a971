"""Ids of the training pieces -> an index, and a piece -> the longest run that it shares with them.

A run is a row of notes whose pitches lie the same intervals apart, whatever key, tempo and
loudness; notes that begin together are taken from low to high. Of every training piece each
twelfth figure of thirteen notes is kept, as 40 bits: a run of 24 notes holds at least one of them,
so none that long is missed, unless it is made of figures that are everybody's. With the training
pieces at hand the run is then counted note by note; with the index alone its length is told by the
figures, which leave out up to 22 notes at its ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Ids, Ints, read_arrays
from music_gpt.errors import InputError
from music_gpt.files import is_file, is_folder, opened, whole_file
from music_gpt.hashing import Hashes, window_hashes
from music_gpt.midi.piece import PieceLike, as_piece
from music_gpt.notes import Notes, in_words
from music_gpt.printable import shown
from music_gpt.tokens.card import CARD
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.events import (
    FRAMES_PER_SECOND,
    N_PITCHES,
    NOTE_OFF,
    encode_notes,
    shift_frames,
)

INDEX_FILE = "originality.npz"

FIGURE_INTERVALS = 12
"""Intervals in a figure: fewer are often met by chance."""
FIGURE_STEP = 12
"""Every so manieth figure of a training piece is kept."""
CERTAIN_NOTES = FIGURE_INTERVALS + FIGURE_STEP
"""No shared run of so many notes is missed."""
TELLING_NOTES = 36
"""So many different notes in a row as in the training music tell that they may come from there."""
UNHEARD_SHARES = {CERTAIN_NOTES: 0.022, TELLING_NOTES: 0.0}
"""Notes in a row -> which share of music outside the training split has as many that are in it: of
1,000 real passages of 30 seconds from the test split (docs/sampling.md). On an earlier split it was
3 % and 0.1 % of 1,600, nearly all from versions of a training piece."""
_UNHEARD = "of 30-second passages of other music, " + " and ".join(
    f"{f'{share * 100:.1f} %' if share else 'none'} share {notes} or more"
    for notes, share in UNHEARD_SHARES.items()
)
UNTOLD_NOTES = 2 * (FIGURE_STEP - 1)
"""Notes at the ends of a shared run that figures alone do not tell, at most."""
CHORD_FRAMES = 2
"""Notes that begin within 20 ms of the one before begin together."""
COMMON_FIGURE = 256
"""A figure that is kept more often is everybody's, as repeated notes and scales are."""
MOST_BYTES = 1 << 30
"""Of an index: that of two billion notes."""
_ARRAYS = ("form", "hashes", "steps", "counts", "names")
_HASH_BYTES = 5
_MOST_WAITING = 1 << 14
_LONGEST_STEP = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class SharedRun:
    """The longest run of notes that a piece shares with the training pieces."""

    notes: int
    """Notes in a row."""
    different_notes: int
    """The same, where a figure that repeats itself (a trill, a scale) counts once."""
    seconds: float
    """From the first onset of the run to the last."""
    at_seconds: float
    """Where the run begins in the piece."""
    source: str
    """The training piece: the name of its file."""
    source_seconds: float
    """Where the run begins in it, in seconds from its first note."""
    exact: bool
    """Whether it was counted note by note; else up to 22 notes at its ends are left out."""

    def __str__(self) -> str:
        """One sentence: how much, of what and where.

        >>> str(SharedRun(30, 30, 4.25, 62.0, "a/Slow__waltz.mid", 9.5, exact=True))[:63]
        '30 notes in a row are as in Slow waltz (a/Slow__waltz.mid): 4.2'
        """
        different = self.different_notes
        of_them = "" if different == self.notes else f" ({different} different)"
        here, there = (
            f"{int(s // 60)}:{int(s % 60):02}" for s in (self.at_seconds, self.source_seconds)
        )
        return (
            f"{self.at_most(self.notes)} notes in a row{of_them} are as in {self.name} "
            f"({self.source}): {self.seconds:.1f} seconds, here from {here} and there from {there} "
            "on."
        )

    @property
    def name(self) -> str:
        """What the training piece is called, as far as the name of its file tells."""
        stem = PurePosixPath(self.source).stem
        return " ".join(stem.replace("_", " ").split()) or stem

    def at_most(self, n_notes: int) -> str:
        """So many of its notes, and how many they may be where figures alone tell of them.

        >>> SharedRun(30, 28, 4.25, 62.0, "waltz.mid", 9.5, exact=False).at_most(28)
        '28 to 50'
        """
        return f"{n_notes}" if self.exact else f"{n_notes} to {n_notes + UNTOLD_NOTES}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, times to 10 ms."""
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(self).items()}


def originality(piece: PieceLike, index: OriginalityIndex | str | Path) -> SharedRun | None:
    """The longest run of notes that `piece` shares with the training pieces, or None.

    Args:
        piece: a path, bytes, a PrettyMIDI, notes or a piece.
        index: an open one, or what `OriginalityIndex.open` opens.

    Raises:
        InputError: the piece or the index cannot be read.
    """
    index = index if isinstance(index, OriginalityIndex) else OriginalityIndex.open(index)
    return index.longest_run(as_piece(piece).sounding_notes)


def what_a_run_means(different_notes: int) -> str:
    """How much a run of so many notes tells, as the end of a sentence.

    >>> what_a_run_means(13)
    'that may be chance, for fewer than 24 mean little'
    """
    if different_notes < CERTAIN_NOTES:
        return f"that may be chance, for fewer than {CERTAIN_NOTES} mean little"
    return _UNHEARD


def nothing_shared(n_notes: int) -> str:
    """What is true of a piece of so many notes in which no run was found.

    >>> nothing_shared(60)
    'No run of 24 notes is in the training music: it counts as new.'
    >>> nothing_shared(9)
    'Too short to tell whether it is new: 9 notes, where 24 in a row are looked for.'
    """
    if n_notes >= CERTAIN_NOTES:
        return f"No run of {CERTAIN_NOTES} notes is in the training music: it counts as new."
    looked_for = f"where {CERTAIN_NOTES} in a row are looked for"
    return f"Too short to tell whether it is new: {in_words(n_notes)}, {looked_for}."


def shared_run(ids: Ids, other: Ids, source: str) -> SharedRun | None:
    """The longest run that a piece shares with another, by its name `source`, note by note.

    None if there is none; a run of fewer than `CERTAIN_NOTES` may be missed.
    """
    figures, steps = _kept_figures(other)
    counts = np.array([len(figures)])
    index = OriginalityIndex(_hashes(figures), steps, counts, [source], lambda _: other)
    return index.longest_run_of(ids)


# --- notes in a row -----------------------------------------------------------------------------


def _row_of_notes(ids: Ids) -> tuple[Ints, Ints]:
    """Pitch and onset frame of each note, in the order of the onsets; chords from low to high.

    A note belongs to the chord of the one before it if it begins soon after that, so where a chord
    ends depends on its neighbours only: equal passages have equal rows.
    """
    ids = np.asarray(ids)  # a mapped file is slow in small steps
    on = np.flatnonzero(ids < NOTE_OFF)
    pitch, frame = ids[on].astype(np.int64), np.cumsum(shift_frames(ids))[on]
    chord = np.zeros(len(on), np.int64)
    np.cumsum(np.diff(frame) > CHORD_FRAMES, out=chord[1:])
    order = np.argsort(chord * N_PITCHES + pitch, kind="stable")  # fast on what is nearly sorted
    return pitch[order], frame[order]


def _figures(intervals: Ints) -> Ints:
    """The intervals (F, 12) of every figure."""
    if len(intervals) < FIGURE_INTERVALS:
        return np.zeros((0, FIGURE_INTERVALS), np.int64)
    return np.lib.stride_tricks.sliding_window_view(intervals, FIGURE_INTERVALS)


def _hashes(figures: Ints) -> Hashes:
    """A hash of 40 bits for each of the figures (F, 12)."""
    begins = np.arange(len(figures)) * FIGURE_INTERVALS
    hashes = window_hashes(figures.ravel(), begins, FIGURE_INTERVALS)
    return hashes >> np.uint64(64 - 8 * _HASH_BYTES)


def _kept_figures(ids: Ids) -> tuple[Ints, Ints]:
    """The figures of a piece that an index keeps (F, 12), and the frames since the one before."""
    pitch, frame = _row_of_notes(ids)
    figures = _figures(np.diff(pitch))[::FIGURE_STEP]
    frames = np.maximum.accumulate(frame)[: len(figures) * FIGURE_STEP : FIGURE_STEP]
    return figures, np.minimum(np.diff(frames, prepend=0), _LONGEST_STEP)


# --- the index ----------------------------------------------------------------------------------


class IndexWriter:
    """Writes the index of training pieces: the same pieces in the same order, the same bytes.

    Seven bytes for every twelve notes, and the names. However many there are, memory stays bounded:
    what is known of the notes waits in two files beside `path` until `finish` puts it there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hashes, self._steps = (path.with_suffix(f".{part}") for part in ("hashes", "steps"))
        self._files = [part.open("wb") for part in (self._hashes, self._steps)]
        self._waiting: list[Ints] = []  # figures that have no hash yet: many at once are fast
        self._n_waiting = 0
        self._counts: list[int] = []
        self._names: list[str] = []

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self._remove()

    def _close(self) -> None:
        for file in self._files:
            file.close()

    def _remove(self) -> None:
        for part in (self._hashes, self._steps):
            part.unlink(missing_ok=True)

    def add(self, ids: Ids, name: str) -> None:
        """Append a piece: its ids, and the name by which it will be told."""
        figures, steps = _kept_figures(ids)
        self._files[1].write(steps.astype("<u2").tobytes())
        self._counts.append(len(figures))
        self._names.append(name)
        self._waiting.append(figures)
        self._n_waiting += len(figures)
        if self._n_waiting > _MOST_WAITING:
            self._hash()

    def _hash(self) -> None:
        hashes = _hashes(np.concatenate([_figures(np.zeros(0, np.int64)), *self._waiting]))
        wide = hashes.astype("<u8").view(np.uint8).reshape(-1, 8)
        self._files[0].write(wide[:, :_HASH_BYTES].tobytes())
        self._waiting, self._n_waiting = [], 0

    def finish(self) -> None:
        """Write the index, whole or not at all."""
        self._hash()
        self._close()
        with whole_file(self.path) as beside, beside.open("wb") as file:
            np.savez(
                file,
                form=np.array([FIGURE_INTERVALS, FIGURE_STEP, CHORD_FRAMES], "<u4"),
                hashes=_mapped(self._hashes, np.dtype("u1")).reshape(-1, _HASH_BYTES),
                steps=_mapped(self._steps, np.dtype("<u2")),  # frames since the figure before
                counts=np.array(self._counts, "<u4"),
                names=np.frombuffer("\0".join(self._names).encode(), np.uint8),
            )
        self._remove()


def _mapped(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """What is in a file, read as it is needed; an empty file cannot be mapped."""
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype)


class OriginalityIndex:
    """The figures of all training pieces: `hashes`, `frames` (F), and for each piece its `first`.

    `training` gives the training pieces themselves, by number, where they are at hand.
    """

    def __init__(
        self,
        hashes: Hashes,
        steps: Ints,
        counts: Ints,
        names: list[str],
        training: Callable[[int], Ids] | None,
    ) -> None:
        self.names, self.training = names, training
        self.first = np.cumsum(counts) - counts  # (P,)
        self._piece = np.repeat(np.arange(len(counts)), counts)  # (F,)
        past = np.cumsum(steps)
        before = np.append(0, past)[self.first]  # frames of all pieces before
        self.frames = past - before[self._piece]
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]

    @classmethod
    def open(cls, path: str | Path) -> OriginalityIndex:
        """Open the index of a tokens folder, of a run's folder, or in a file.

        Raises `InputError` if there is none, or it is not what was written.
        """
        path = Path(path)
        file = path / INDEX_FILE if is_folder(path) else path
        if not is_file(file):
            raise InputError(
                f"There is no index of the training music at {shown(file)}; `music-gpt prepare` "
                f"writes {INDEX_FILE} into its tokens folder, so run it again, or give another "
                "place."
            )
        hashes, steps, counts, names = _read(file)
        training = Corpus.open(path).split("train") if is_file(path / CARD) else None
        if training is not None and len(training) != len(names):
            raise InputError(
                f"{shown(file)} is not the index of the pieces beside it; run `music-gpt prepare` "
                "again."
            )
        return cls(hashes, steps, counts, names, training.piece if training else None)

    def longest_run(self, notes: Notes) -> SharedRun | None:
        """The longest run that these notes share with the training pieces, or None.

        Counted note by note if the training pieces are at hand, else told by the figures.
        """
        if not len(notes):
            return None
        return self.longest_run_of(encode_notes(notes), float(notes["start"].min()))

    def longest_run_of(self, ids: Ids, begins_at: float = 0.0) -> SharedRun | None:
        """The same of ids, whose first note begins at `begins_at` seconds."""
        pitch, frame = _row_of_notes(ids)
        query = _Query(np.diff(pitch), _hashes(_figures(np.diff(pitch))))
        found = self._counted(query) if self.training is not None else self._told(query)
        if found is None:
            return None
        begin, n_notes, source_frame, piece = found
        head, last = (float(frame[place]) for place in (begin, begin + n_notes - 1))
        return SharedRun(
            notes=n_notes,
            different_notes=query.length(begin, n_notes)[0],
            seconds=(last - head) / FRAMES_PER_SECOND,
            at_seconds=begins_at + head / FRAMES_PER_SECOND,
            source=self.names[piece],
            source_seconds=source_frame / FRAMES_PER_SECOND,
            exact=self.training is not None,
        )

    def _hits(self, figures: Hashes) -> tuple[Ints, Ints, Ints]:
        """Places of figures that both have: piece, how far its row lies ahead, number in the piece.

        Sorted by all three.
        """
        left, right = (np.searchsorted(self._sorted, figures, side) for side in ("left", "right"))
        n_hits = right - left
        n_hits[n_hits > COMMON_FIGURE] = 0
        of_figure = np.repeat(np.arange(len(figures)), n_hits)
        ends = np.cumsum(n_hits)
        rank = np.arange(len(of_figure)) - (ends - n_hits)[of_figure] + left[of_figure]
        kept = self._order[rank]
        piece = self._piece[kept]
        number = kept - self.first[piece]
        ahead = number * FIGURE_STEP - of_figure
        order = np.lexsort((number, ahead, piece))
        return piece[order], ahead[order], number[order]

    def _told(self, query: _Query) -> tuple[int, int, int, int] | None:
        """The longest run by its figures: beginning, notes, frame in the source, source."""
        piece, ahead, number = self._hits(query.figures)
        best, longest = None, (0, 0)
        follows = (np.diff(piece) == 0) & (np.diff(ahead) == 0) & (np.diff(number) == 1)
        heads = np.flatnonzero(np.append(True, ~follows)[: len(piece)])
        for head, size in zip(heads, np.diff(np.append(heads, len(piece))), strict=True):
            n_notes = int(size - 1) * FIGURE_STEP + FIGURE_INTERVALS + 1
            begin = int(number[head]) * FIGURE_STEP - int(ahead[head])
            if n_notes >= longest[0] and (length := query.length(begin, n_notes)) > longest:
                source_frame = int(self.frames[self.first[piece[head]] + number[head]])
                best, longest = (begin, n_notes, source_frame, int(piece[head])), length
        return best

    def _counted(self, query: _Query) -> tuple[int, int, int, int] | None:
        """The longest run, note by note: beginning, notes, frame in the source, source."""
        assert self.training is not None
        pieces, aheads, _ = self._hits(query.figures)
        best, longest = None, (0, 0)
        for piece in np.unique(pieces).tolist():
            pitch, frame = _row_of_notes(self.training(piece))
            intervals = np.diff(pitch)
            for ahead in np.unique(aheads[pieces == piece]).tolist():
                for begin, n_notes in query.equal_runs(intervals, ahead):
                    if n_notes >= longest[0] and (length := query.length(begin, n_notes)) > longest:
                        best = begin, n_notes, int(frame[begin + ahead]), piece
                        longest = length
        return best


@dataclass(frozen=True)
class _Query:
    """The row of a piece that is looked for."""

    intervals: Ints
    figures: Hashes

    def length(self, begin: int, n_notes: int) -> tuple[int, int]:
        """Notes of a run, where a figure that stood in it before counts once; and all of them."""
        figures = self.figures[begin : begin + n_notes - FIGURE_INTERVALS]
        return len(np.unique(figures)) + FIGURE_INTERVALS, n_notes

    def equal_runs(self, others: Ints, ahead: int) -> Iterator[tuple[int, int]]:
        """Runs of a figure or more that another row has so many notes ahead: beginning, notes."""
        first = max(0, -ahead)
        last = min(len(self.intervals), len(others) - ahead)
        equal = self.intervals[first:last] == others[first + ahead : last + ahead]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]])))
        for begin, end in edges.reshape(-1, 2).tolist():
            if end - begin >= FIGURE_INTERVALS:
                yield first + begin, end - begin + 1


def _read(file: Path) -> tuple[Hashes, Ints, Ints, list[str]]:
    """Hashes, steps, counts and names of an index; `InputError` if it is none."""
    try:
        with opened(file, MOST_BYTES) as arrays:
            return _checked(read_arrays(arrays, _ARRAYS))
    except ValueError:
        raise InputError(
            f"{shown(file)} is no index of this version, or is damaged; run `music-gpt prepare` "
            "again, or copy it anew."
        ) from None


def _checked(held: dict[str, npt.NDArray[Any]]) -> tuple[Hashes, Ints, Ints, list[str]]:
    """Hashes, steps, counts and names in the arrays of a file; `ValueError` if they are none."""
    if held["form"].tolist() != [FIGURE_INTERVALS, FIGURE_STEP, CHORD_FRAMES]:
        raise ValueError
    kept, steps, counts = held["hashes"], held["steps"], held["counts"]
    if counts.dtype != np.uint32 or counts.ndim != 1:
        raise ValueError
    names = held["names"].tobytes().decode().split("\0") if len(counts) else []
    n_figures = int(counts.sum())
    forms = [(kept, np.uint8, (n_figures, _HASH_BYTES)), (steps, np.uint16, (n_figures,))]
    forms += [(counts, np.uint32, (len(names),))]
    if any(array.dtype != dtype or array.shape != shape for array, dtype, shape in forms):
        raise ValueError
    padded = np.zeros((n_figures, 8), np.uint8)
    padded[:, :_HASH_BYTES] = kept
    hashes: Hashes = padded.view("<u8")[:, 0].astype(np.uint64)
    return hashes, steps.astype(np.int64), counts.astype(np.int64), names


def require_whole_index(tokens: str | Path) -> None:
    """Raise `InputError` if a tokens folder has an index that is damaged."""
    source = Path(tokens) / INDEX_FILE
    if is_file(source):
        _read(source)


def copy_index(tokens: str | Path, folder: str | Path) -> None:
    """Lay the index of a tokens folder, if it has one, beside the checkpoints in `folder`."""
    source = Path(tokens) / INDEX_FILE
    if is_file(source):
        with whole_file(Path(folder) / INDEX_FILE) as beside:
            shutil.copyfile(source, beside)
