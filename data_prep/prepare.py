"""a folder of MIDI files -> a tokens folder and a report: collect, read, filter, split, write.

The same files and settings give the same bytes, whether they were read just now or earlier. No
file is left out silently: each one has its sentence in report.json.
"""

from __future__ import annotations

import csv
import dataclasses
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.collect import Collection, LeftOut, MidiFile, Progress, collect
from data_prep.encode import EncodeCache, Encoded
from data_prep.filters import PieceFacts, why_left_out
from data_prep.split import (
    Pairs,
    assign_splits,
    composition_names,
    compositions,
    highest_across_splits,
    similar_pairs,
)
from music_gpt.config import PrepareConfig
from music_gpt.corpus import CARD, SPLITS, CorpusWriter, json_text
from music_gpt.errors import InputError

CACHE = ".cache"
REPORT = "report.json"
MAESTRO_LICENCE = "CC BY-NC-SA 4.0"
_SPLIT_NAMES = {"valid": "validation", "val": "validation", "dev": "validation"}


@dataclass(frozen=True)
class Provenance:
    """Where a piece comes from, as far as a list says so."""

    source: str = ""
    licence: str = ""
    kind: str = ""


@dataclass
class Lists:
    """What lists say of the files, by name: the split that is fixed, and where they come from."""

    splits: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, Provenance] = field(default_factory=dict)


def prepare(
    midi: str | Path, out: str | Path, config: PrepareConfig | None = None, *, progress: bool = True
) -> dict[str, Any]:
    """Turn the MIDI files below the folder `midi` into a tokens folder at `out`.

    Returns the report that is also written to `out`/report.json, with `seconds_taken` added.
    Raises `InputError` for a folder without MIDI files or an `out` that cannot be written, and
    `KeyboardInterrupt` with a sentence on Ctrl-C; the next run goes on from there.
    """
    midi, out, config = Path(midi), Path(out), config or PrepareConfig()
    began = time.monotonic()
    show: Progress = _Bar() if progress else _nothing
    _check_out(out)
    found = collect(midi, skip=out, progress=show)
    lists = read_lists(midi, found, config)
    with _writing_to(out):
        cache = EncodeCache(out / CACHE, config.max_gap_seconds)
        cache.encode(found.files, workers=config.workers, progress=show)
        kept, left_out = _filter(found.files, cache.known, config)
        left_out = sorted([*found.left_out, *left_out], key=lambda left: left.name)
        if not kept:
            raise InputError(_nothing_left(midi, left_out))
        pairs = similar_pairs([cache.sketch(file.sha256) for file in kept])
        checksums = [file.sha256 for file in kept]
        names = composition_names(compositions(len(kept), pairs), checksums)
        splits = _splits(kept, names, lists, config)
        records = [
            _record(file, cache.known[file.sha256], name, lists)
            for file, name in zip(kept, names, strict=True)
        ]
        report = _report(found, left_out, records, splits, pairs, cache)
        card = _card(records, config, report)
        _write(out, cache, records, splits, card, report, show)
        cache.forget_all_but(file.sha256 for file in found.files)
    return {**report, "seconds_taken": round(time.monotonic() - began, 2)}


def read_lists(midi: Path, found: Collection, config: PrepareConfig) -> Lists:
    """MAESTRO's own tables in the folder, then the lists that the settings name, which win."""
    lists = Lists()
    for table in sorted(found.maestro_tables):
        origin = Provenance(table.stem, MAESTRO_LICENCE, "performance-disklavier")
        for row in _rows(table, ",", ("midi_filename", "split")):
            name = _same_name((table.parent / row["midi_filename"]).relative_to(midi).as_posix())
            lists.splits[name] = _split_name(row["split"], table)
            lists.provenance[name] = origin
    if config.split_by:
        for row in _rows(Path(config.split_by), ",", ("path", "split")):
            name = _same_name(row["path"])
            lists.splits[name] = _split_name(row["split"], Path(config.split_by))
    if config.sources:
        for row in _rows(Path(config.sources), "\t", ("path",)):
            lists.provenance[_same_name(row["path"])] = Provenance(
                row.get("source") or "", row.get("licence") or "", row.get("kind") or ""
            )
    return lists


def _rows(path: Path, delimiter: str, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a table whose first line names its columns, perhaps after a `#`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The list {path} cannot be read ({error}); give a UTF-8 text.") from None
    reader = csv.DictReader(text.removeprefix("#").splitlines(), delimiter=delimiter)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
    missing = [name for name in columns if name not in reader.fieldnames]
    if missing:
        raise InputError(
            f"The list {path} has no column {missing[0]!r}; its first line has to name the columns."
        )
    yield from reader


def _split_name(name: str, table: Path) -> str:
    name = _SPLIT_NAMES.get(name.strip().lower(), name.strip().lower())
    if name not in SPLITS:
        raise InputError(f"The list {table} says split {name!r}; use {', '.join(SPLITS)}.")
    return name


def _same_name(name: str) -> str:
    """One form of a name: systems disagree on how to write an accent."""
    return unicodedata.normalize("NFC", name)


def _filter(
    files: Sequence[MidiFile], known: Mapping[str, Encoded], config: PrepareConfig
) -> tuple[list[MidiFile], list[LeftOut]]:
    """The pieces that go into the corpus, and the others; of equal ones the first is kept."""
    kept: list[MidiFile] = []
    left_out: list[LeftOut] = []
    first: dict[str, str] = {}
    for file in files:
        facts = known[file.sha256]
        if facts.problem:
            left_out.append(LeftOut(file.name, "unreadable", facts.problem))
        elif why := why_left_out(PieceFacts(facts.notes, facts.seconds, facts.pitches), config):
            left_out.append(LeftOut(file.name, *why))
        elif facts.events_hash in first:
            reason = f"It plays what {first[facts.events_hash]} plays, event for event."
            left_out.append(LeftOut(file.name, "double", reason))
        else:
            first[facts.events_hash] = file.name
            kept.append(file)
    return kept, left_out


def _splits(
    kept: Sequence[MidiFile], names: Sequence[str], lists: Lists, config: PrepareConfig
) -> list[str]:
    fixed = {
        i: lists.splits[_same_name(file.name)]
        for i, file in enumerate(kept)
        if _same_name(file.name) in lists.splits
    }
    return assign_splits(
        names, fixed, validation=config.validation, test=config.test, seed=config.seed
    )


def _record(file: MidiFile, facts: Encoded, composition: str, lists: Lists) -> dict[str, Any]:
    """The line of a piece in pieces.jsonl."""
    origin = lists.provenance.get(_same_name(file.name), Provenance())
    return {
        "file": file.name,
        "composition": composition,
        "notes": facts.notes,
        "seconds": facts.seconds,
        "tokens": facts.tokens,
        **dataclasses.asdict(origin),
        "sha256": file.sha256,
    }


def _report(
    found: Collection,
    left_out: Sequence[LeftOut],
    records: Sequence[Mapping[str, Any]],
    splits: Sequence[str],
    pairs: Pairs,
    cache: EncodeCache,
) -> dict[str, Any]:
    members: dict[str, list[str]] = {}
    for record in records:
        members.setdefault(record["composition"], []).append(record["file"])
    mended = {file.name: cache.known[file.sha256].warnings for file in found.files}
    return {
        "midi_files": len(records) + len(left_out),
        "pieces": len(records),
        "compositions": len(members),
        "splits": {name: _sum(records, splits, name) for name in SPLITS if name in splits},
        "left_out_counts": dict(sorted(Counter(left.kind for left in left_out).items())),
        "left_out": [dataclasses.asdict(left) for left in left_out],
        "mended": {name: list(warnings) for name, warnings in mended.items() if warnings},
        "other_files": dict(sorted(found.others.items())),
        "most_similar_across_splits": [
            {
                "similarity": round(float(pairs.similarity[i]), 3),
                "turns_in_common": int(pairs.common[i]),
                **_end("first", int(pairs.first[i]), records, splits),
                **_end("second", int(pairs.second[i]), records, splits),
            }
            for i in highest_across_splits(pairs, splits)
        ],
        "shared_compositions": {
            name: files for name, files in sorted(members.items()) if len(files) > 1
        },
    }


def _sum(
    records: Sequence[Mapping[str, Any]], splits: Sequence[str], wanted: str
) -> dict[str, Any]:
    """What one split holds."""
    chosen = [record for record, split in zip(records, splits, strict=True) if split == wanted]
    return {
        "pieces": len(chosen),
        "compositions": len({record["composition"] for record in chosen}),
        "tokens": sum(record["tokens"] for record in chosen),
        "notes": sum(record["notes"] for record in chosen),
        "hours": round(sum(record["seconds"] for record in chosen) / 3600, 3),
    }


def _end(
    end: str, i: int, records: Sequence[Mapping[str, Any]], splits: Sequence[str]
) -> dict[str, str]:
    return {end: records[i]["file"], f"{end}_split": splits[i]}


def _card(
    records: Sequence[Mapping[str, Any]], config: PrepareConfig, report: Mapping[str, Any]
) -> dict[str, Any]:
    """What prepare adds to corpus.json: where the music comes from, and how it was made."""
    settings = dataclasses.asdict(config)
    del settings["workers"]  # it decides how long it takes, not what comes out
    for name in ("split_by", "sources"):
        settings[name] = Path(settings[name]).name
    summary = ("midi_files", "pieces", "compositions", "left_out_counts")
    return {
        "sources": _totals(records, "source", "licence"),
        "licences": _totals(records, "licence", "source"),
        "settings": settings,
        "report": {name: report[name] for name in summary},
    }


def _totals(records: Sequence[Mapping[str, Any]], by: str, other: str) -> dict[str, Any]:
    """For each source its pieces, tokens and licences; or for each licence its sources."""
    totals: dict[str, Any] = {}
    for record in sorted(records, key=lambda record: str(record[by])):
        if record[by]:
            entry = totals.setdefault(record[by], {"pieces": 0, "tokens": 0, f"{other}s": set()})
            entry["pieces"] += 1
            entry["tokens"] += record["tokens"]
            entry[f"{other}s"].add(record[other])
    return {k: {**entry, f"{other}s": sorted(entry[f"{other}s"])} for k, entry in totals.items()}


def _write(
    out: Path,
    cache: EncodeCache,
    records: Sequence[Mapping[str, Any]],
    splits: Sequence[str],
    card: Mapping[str, Any],
    report: Mapping[str, Any],
    show: Progress,
) -> None:
    from music_gpt.tokenizer import tokenizer_json  # MidiTok costs a second, in each process too

    done = 0
    with CorpusWriter(out) as writer:
        for wanted in SPLITS:
            for record, split in zip(records, splits, strict=True):
                if split == wanted:
                    writer.add(split, cache.ids(record["sha256"]), record)
                    done += 1
                    show("writing", done, len(records))
        writer.finish(card, tokenizer=tokenizer_json(), texts={REPORT: json_text(report)})


def _nothing_left(midi: Path, left_out: Sequence[LeftOut]) -> str:
    counts = Counter(left.kind for left in left_out)
    reasons = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    return (
        f"No piece of {midi} is left ({reasons}), for example {left_out[0].name}: "
        f"{left_out[0].reason}"
    )


def _check_out(out: Path) -> None:
    """Never write into a folder that holds something else."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, but the tokens go into a folder; choose another name.")
    ours = {CARD, CACHE, ".writing"}
    if out.is_dir() and any(out.iterdir()) and not any((out / name).exists() for name in ours):
        raise InputError(f"The folder {out} holds other files; choose a new or empty folder.")


@contextmanager
def _writing_to(out: Path) -> Iterator[None]:
    """Turn what can go wrong while `out` is filled into a sentence."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        kept = "Stopped; what was read is kept, and the same command goes on from there."
        raise KeyboardInterrupt(str(stopped) or kept) from None
    except OSError as error:
        raise InputError(
            f"The tokens folder {out} cannot be written ({error.strerror}); choose a folder on a "
            "disk with room, where you may write."
        ) from error


class _Bar:
    """Progress on stderr: a line that moves in a terminal, else one line for each thing done."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._shown = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        began = self._began.setdefault(what, now)
        if done < total and (not sys.stderr.isatty() or now - self._shown < 0.1):
            return
        self._shown = now
        left = (now - began) * (total - done) / max(done, 1)
        filled = 30 * done // max(total, 1)
        bar = f"{what:8} [{'=' * filled:30}] {done:,}/{total:,} files"
        after = f", {left:.0f} s left" if done < total else f" in {now - began:.1f} s"
        start = "\r" if sys.stderr.isatty() else ""
        end = "" if done < total else "\n"
        sys.stderr.write(f"{start}{bar}{after:16}{end}")
        sys.stderr.flush()


def _nothing(what: str, done: int, total: int) -> None:
    """Show no progress."""
