"""Token ids -> a tokens folder on disk -> token ids: writer and reader side by side.

A tokens folder is all that a training needs; it knows nothing of MIDI files, MidiTok or torch:

    corpus.json           the card: format, vocabulary hash, splits, checksums, sources, settings
    tokenizer.json        MidiTok's own parameters, carried along into checkpoints
    {split}-{nnnnn}.bin   the ids, little-endian uint16, one piece after the other
    index-{split}.npy     where each piece lies: shard, start, length, notes, seconds
    originality.npz       figures of the training pieces, to find what a new piece has of them
    pieces.jsonl          one line a piece: split, number, file, composition, source, licence ...

Each piece on disk is EOS, its events, EOS; no piece lies across two shards.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Ids, read_array
from music_gpt.errors import InputError
from music_gpt.files import is_file, opened, read_bytes
from music_gpt.folders import TOKENS_UNFINISHED
from music_gpt.printable import shown
from music_gpt.tokens.card import (
    CARD,
    FORMAT,
    SPLITS,
    VERSION,
    card_sha256,
    damaged,
    read_card,
    shard_name,
)
from music_gpt.tokens.events import VOCAB_SIZE, vocabulary_hash

SHARD_TOKENS = 100_000_000

IDS = np.dtype("<u2")
INDEX = np.dtype(
    [("shard", "<u4"), ("start", "<u8"), ("length", "<u4"), ("notes", "<u4"), ("seconds", "<f8")]
)
TOKENIZER = "tokenizer.json"
PIECES = "pieces.jsonl"

MOST_FILE_BYTES = 1 << 42
"""Of any file in the folder."""
MOST_LINE_BYTES = 1 << 20
"""Of what is told of one piece."""
MOST_HEAD_BYTES = 1 << 12
"""In front of the numbers of an index."""


class Split:
    """The pieces of one split: five arrays with one entry a piece, and the memory-mapped ids.

    `shard`, `start` and `length` say where piece i lies (in tokens), `notes` and `seconds` what it
    holds. It can be sent to another process: there it maps the same files again.
    """

    def __init__(self, path: Path, name: str, card: Mapping[str, Any]) -> None:
        self.path = path
        self.name = name
        self.card = card
        index = _read_index(path, name, card)
        self.shard: npt.NDArray[np.uint32] = np.ascontiguousarray(index["shard"])  # (N,)
        self.start: npt.NDArray[np.uint64] = np.ascontiguousarray(index["start"])  # (N,)
        self.length: npt.NDArray[np.uint32] = np.ascontiguousarray(index["length"])  # (N,)
        self.notes: npt.NDArray[np.uint32] = np.ascontiguousarray(index["notes"])  # (N,)
        self.seconds: npt.NDArray[np.float64] = np.ascontiguousarray(index["seconds"])  # (N,)
        self.shards = [_map_shard(path, shard) for shard in card["shards"]]
        self._records: list[dict[str, Any]] | None = None
        self._check()

    def __len__(self) -> int:
        return len(self.length)

    def __reduce__(self) -> tuple[Any, ...]:
        # a pickled memmap would carry all of its tokens
        return Split, (self.path, self.name, dict(self.card))

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        return len(self.length)

    @property
    def n_tokens(self) -> int:
        """Number of tokens, the two EOS of each piece included."""
        return int(self.length.sum())

    @property
    def n_targets(self) -> int:
        """Number of tokens that can be predicted: all but the first of each piece."""
        return self.n_tokens - self.n_pieces

    @property
    def n_notes(self) -> int:
        """Number of notes."""
        return int(self.notes.sum())

    @property
    def n_seconds(self) -> float:
        """Seconds of music."""
        return float(self.seconds.sum())

    def piece(self, i: int) -> Ids:
        """The ids of piece `i`, EOS at both ends; a view into the mapped file, not a copy."""
        start = int(self.start[i])
        return self.shards[int(self.shard[i])][start : start + int(self.length[i])]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The line of each piece in pieces.jsonl (read once): file, composition, source, ..."""
        if self._records is None:
            self._records = _read_records(self.path, self.name, len(self))
        return self._records

    @property
    def names(self) -> list[str]:
        """The file from which each piece was made."""
        return [str(record.get("file", "")) for record in self.records]

    def _check(self) -> None:
        """Raise `InputError` unless every piece lies inside its shard, and the sums are right."""
        sizes = np.array([len(shard) for shard in self.shards], dtype=np.uint64)
        right = bool(
            (self.shard < len(sizes)).all()
            and (self.length > 0).all()
            and np.isfinite(self.seconds).all()
            and (self.seconds >= 0).all()
            and (self.n_tokens, self.n_notes) == (self.card["tokens"], self.card["notes"])
        )
        if right:
            behind = sizes[self.shard] - self.start  # `start + length` could go round at 2**64
            right = bool(((self.start < sizes[self.shard]) & (self.length <= behind)).all())
        if not right:
            raise InputError(damaged(self.path, f"index-{self.name}.npy"))


class Corpus:
    """A tokens folder that is open for reading: `path`, and `card`, the content of corpus.json."""

    def __init__(self, path: Path, card: dict[str, Any]) -> None:
        self.path = path
        self.card = card

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """Open the folder at `path`.

        Raises `InputError` if it is no tokens folder, was written by another version or with
        another vocabulary, or if a file of it is missing or has the wrong size.
        """
        path = Path(path)
        corpus = cls(path, read_card(path))
        for name in corpus.splits:
            corpus.split(name)
        return corpus

    @property
    def splits(self) -> list[str]:
        """Names of the splits that hold at least one piece."""
        return list(self.card["splits"])

    @property
    def tokens_sha256(self) -> str:
        """Checksum of the tokens of all splits: the same corpus, whatever its card tells of it."""
        splits = json.dumps(self.card["splits"], sort_keys=True)
        return hashlib.sha256(splits.encode("utf-8")).hexdigest()

    def split(self, name: str) -> Split:
        """The split called `name`; raises `InputError` if the folder has none of that name."""
        if name not in self.card["splits"]:
            raise InputError(
                f"The tokens folder {shown(self.path)} has no split {name!r}, only "
                f"{', '.join(self.splits)}; choose one of these, or run `music-gpt prepare` again "
                "with a share for it."
            )
        return Split(self.path, name, self.card["splits"][name])

    def verify(self) -> dict[str, int]:
        """Compare every file with its checksum; returns the number of `files` and `bytes`.

        Raises `InputError` naming the first that differs. Reads the whole folder: about a second
        for each gigabyte.
        """
        checksums = _checksums(self.card)
        for name, expected in checksums.items():
            if name == CARD:
                continue  # compared when it was opened
            if not is_file(self.path / name) or sha256_of(self.path / name) != expected:
                raise InputError(damaged(self.path, name))
        n_bytes = sum((self.path / name).stat().st_size for name in checksums)
        return {"files": len(checksums), "bytes": n_bytes}


class CorpusWriter:
    """Writes a tokens folder piece by piece: the same pieces in the same order, the same bytes.

    All files are written beside their places and moved there by `finish`, the card last. So a
    folder with a card is whole, and one that was interrupted says so when it is opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with CorpusWriter(folder) as writer:
    ...         writer.add("train", [388, 60, 355, 188, 388], {"notes": 1, "seconds": 1.0})
    ...         card = writer.finish({}, tokenizer="{}")
    ...     Corpus.open(folder).split("train").piece(0).tolist()
    [388, 60, 355, 188, 388]
    """

    def __init__(self, path: str | Path, *, shard_tokens: int = SHARD_TOKENS) -> None:
        self.path = Path(path)
        self.shard_tokens = shard_tokens
        self._beside = self.path / TOKENS_UNFINISHED
        shutil.rmtree(self._beside, ignore_errors=True)
        self._beside.mkdir(parents=True)
        self._splits = {name: _SplitWriter(self._beside, name, shard_tokens) for name in SPLITS}
        self._others: list[str] = []

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for split in self._splits.values():
            split.close()
        shutil.rmtree(self._beside, ignore_errors=True)

    def add(self, split: str, ids: npt.ArrayLike, record: Mapping[str, Any]) -> None:
        """Append a piece: its ids with EOS at both ends, and its line in pieces.jsonl.

        `record` holds at least `notes` and `seconds`, and `file` for people.
        """
        self._splits[split].add(np.asarray(ids).astype(IDS), record)

    def another_file(self, name: str) -> Path:
        """Where to write a further file of the folder, before `finish` moves it into place."""
        self._others.append(name)
        return self._beside / name

    def finish(
        self, card: Mapping[str, Any], *, tokenizer: str, texts: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Write index, pieces and card, move all into place and return the whole card.

        `card` holds what the caller adds (sources, licences, settings, report), `tokenizer` is the
        text of tokenizer.json, and `texts` are further files to lay beside them.
        """
        texts = {TOKENIZER: tokenizer, **(texts or {})}
        splits = {name: split.finish() for name, split in self._splits.items() if len(split)}
        with (self._beside / PIECES).open("wb") as file:
            for split in self._splits.values():
                split.move_records(file)
        for name, text in texts.items():
            (self._beside / name).write_text(text, encoding="utf-8", newline="\n")
        small = {name: sha256_of(self._beside / name) for name in (PIECES, *texts, *self._others)}
        head = {"format": FORMAT, "version": VERSION, "vocabulary_hash": vocabulary_hash()}
        whole = {**head, "splits": splits, "files": small, **card}
        small[CARD] = card_sha256(whole)
        (self._beside / CARD).write_text(json_text(whole), encoding="utf-8", newline="\n")
        self._move_into_place()
        return whole

    def _move_into_place(self) -> None:
        (self.path / CARD).unlink(missing_ok=True)  # from here to the end the folder is unfinished
        fresh = sorted(p.name for p in self._beside.iterdir() if p.name != CARD)
        for split in SPLITS:
            for old in [*self.path.glob(f"{split}-[0-9]*.bin"), self.path / f"index-{split}.npy"]:
                if old.name not in fresh:
                    old.unlink(missing_ok=True)
        for name in [*fresh, CARD]:
            (self._beside / name).replace(self.path / name)


class _SplitWriter:
    """The files of one split while they grow; in memory a piece is an entry of the index."""

    def __init__(self, folder: Path, name: str, shard_tokens: int) -> None:
        self.folder = folder
        self.name = name
        self.shard_tokens = shard_tokens
        self.shards: list[dict[str, Any]] = []
        self._index = bytearray()
        self._records = folder / f"{name}.jsonl"
        self._lines: BinaryIO | None = None
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()

    def __len__(self) -> int:
        return len(self._index) // INDEX.itemsize

    def add(self, ids: Ids, record: Mapping[str, Any]) -> None:
        if self._file is None or self.shards[-1]["tokens"] + len(ids) > self.shard_tokens:
            self._next_shard()
        if self._lines is None:
            self._lines = self._records.open("wb")
        assert self._file is not None
        line = json_line({"split": self.name, "number": len(self), **record})
        self._lines.write(line.encode() + b"\n")
        shard, notes, seconds = self.shards[-1], int(record["notes"]), float(record["seconds"])
        entry = (len(self.shards) - 1, shard["tokens"], len(ids), notes, seconds)
        self._index += np.array(entry, INDEX).tobytes()
        data = ids.tobytes()
        self._file.write(data)
        self._digest.update(data)
        shard["tokens"] += len(ids)

    def finish(self) -> dict[str, Any]:
        """Close the last shard, write the index, and return this split's part of the card."""
        self.close()
        index = np.frombuffer(self._index, dtype=INDEX)
        index_file = self.folder / f"index-{self.name}.npy"
        np.save(index_file, index)
        return {
            "pieces": len(index),
            "tokens": int(index["length"].sum()),
            "notes": int(index["notes"].sum()),
            "seconds": round(float(index["seconds"].sum()), 2),
            "index_sha256": sha256_of(index_file),
            "shards": self.shards,
        }

    def move_records(self, file: BinaryIO) -> None:
        """Append the line of each piece to `file`."""
        if self._records.exists():
            with self._records.open("rb") as lines:
                shutil.copyfileobj(lines, file)
            self._records.unlink()

    def _next_shard(self) -> None:
        self._close_shard()
        name = shard_name(self.name, len(self.shards))
        self.shards.append({"file": name, "tokens": 0})
        self._file = (self.folder / name).open("wb")
        self._digest = hashlib.sha256()

    def _close_shard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self.shards[-1]["sha256"] = self._digest.hexdigest()

    def close(self) -> None:
        """Close what is open."""
        self._close_shard()
        if self._lines is not None:
            self._lines.close()
            self._lines = None


def tokenizer_text() -> str:
    """What tokenizer.json holds: the parameters that `PerformanceTokenizer().save` writes.

    They are kept as text, because asking MidiTok for them takes seconds.
    """
    return Path(__file__).with_name(TOKENIZER).read_text(encoding="utf-8")


def sha256_of(path: Path) -> str:
    """Checksum of a file, as hexadecimal digits."""
    with opened(path, MOST_FILE_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_line(value: Any) -> str:
    """One line of JSON, for pieces.jsonl."""
    return json.dumps(value, ensure_ascii=False)


def json_text(value: Any) -> str:
    """JSON for people: indented, with a newline at the end."""
    text = io.StringIO()  # `dumps` would hold each name of a large report twice
    json.dump(value, text, ensure_ascii=False, indent=1)
    return text.getvalue() + "\n"


def _read_index(path: Path, name: str, card: Mapping[str, Any]) -> npt.NDArray[np.void]:
    """Where the pieces of a split lie: (N,) of dtype `INDEX`, N as the card says."""
    file = path / f"index-{name}.npy"
    try:
        data = read_bytes(file, card["pieces"] * INDEX.itemsize + MOST_HEAD_BYTES)
        index: npt.NDArray[np.void] = read_array(data)
    except ValueError:
        raise InputError(damaged(path, file.name)) from None
    whole = hashlib.sha256(data).hexdigest() == card["index_sha256"]
    if not whole or index.dtype != INDEX or index.shape != (card["pieces"],):
        raise InputError(damaged(path, file.name))
    return index


def _map_shard(path: Path, shard: Mapping[str, Any]) -> np.memmap[Any, np.dtype[np.uint16]]:
    file = path / shard["file"]
    try:
        if is_file(file) and file.stat().st_size == IDS.itemsize * shard["tokens"]:
            return np.memmap(file, dtype=IDS, mode="r")
    except OSError as error:  # it may not be read, or too many are open
        raise InputError(f"{shown(file)} cannot be read ({error.strerror}).") from error
    raise InputError(damaged(path, file.name))


def _read_records(path: Path, name: str, n: int) -> list[dict[str, Any]]:
    """The lines of the `n` pieces of a split, in order."""
    records = []
    try:
        with opened(path / PIECES, MOST_FILE_BYTES) as file:
            while line := file.readline(MOST_LINE_BYTES):
                record = json.loads(line)
                if record["split"] == name:
                    records.append(record)
        whole = [record["number"] for record in records] == list(range(n))
    except (ValueError, LookupError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise InputError(damaged(path, PIECES))
    return records


def _checksums(card: Mapping[str, Any]) -> dict[str, str]:
    """File name -> checksum, for every file; that of the card is of the rest of it."""
    sums = dict(card["files"])
    for name, split in card["splits"].items():
        sums[f"index-{name}.npy"] = split["index_sha256"]
        sums.update({shard["file"]: shard["sha256"] for shard in split["shards"]})
    return sums


def require_targets(split: Split) -> None:
    """Raise `InputError` if the split has no token that can be predicted."""
    if split.n_pieces == 0:
        raise InputError(
            f"The {split.name} split holds no piece; run `music-gpt prepare` on more files."
        )
    if split.n_targets == 0:
        raise InputError(
            f"No piece of the {split.name} split holds more than one token, so there is nothing to "
            "predict; run `music-gpt prepare` on pieces with notes."
        )


def require_events(ids: npt.NDArray[np.integer], split: Split) -> None:
    """Raise `InputError` if there is an id beyond the vocabulary: bits of a shard have changed."""
    if ids.size and int(ids.max()) >= VOCAB_SIZE:
        raise InputError(damaged(split.path, f"a shard of the {split.name} split"))
