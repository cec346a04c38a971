"""a folder of MIDI files -> a tokens folder and a report: collect, read, filter, split, write.

The same files and settings give the same bytes, whether they were read just now or earlier. No
file is left out silently: each one has its sentence in report.json.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.cache import Cache
from data_prep.collect import Collection, Files, LeftOut, Progress, collect
from data_prep.encode import Facts
from data_prep.filters import PieceFacts, why_left_out
from data_prep.fingerprint import FIGURES, TIMED_TURNS, TURNS, Sample
from data_prep.lists import Lists, read_lists
from data_prep.report import Outcome, build_report, sample_places
from data_prep.report_page import report_page
from data_prep.similar import Pairs, similar_pairs
from data_prep.split import alike, assign_splits, composition_names, compositions
from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError
from music_gpt.files import locked
from music_gpt.folders import TOKENS, TOKENS_UNFINISHED, require_room
from music_gpt.folders import TOKENS_CACHE as CACHE
from music_gpt.printable import printable_name, shown
from music_gpt.tokens.card import CARD, SPLITS
from music_gpt.tokens.corpus import (
    PIECES,
    TOKENIZER,
    CorpusWriter,
    json_text,
    tokenizer_text,
)
from music_gpt.tokens.events import decode_ids
from music_gpt.tokens.originality import INDEX_FILE, IndexWriter

REPORT = "report.json"
REPORT_PAGE = "report.html"
_OURS = re.compile(
    "|".join(
        [
            *map(re.escape, (CARD, CACHE, TOKENS_UNFINISHED, TOKENIZER, PIECES)),
            *map(re.escape, (REPORT, REPORT_PAGE, INDEX_FILE)),
            *(rf"{split}-[0-9]+\.bin|index-{split}\.npy" for split in SPLITS),
        ]
    )
)
"""The names in a tokens folder."""


def prepare(
    midi: str | Path, out: str | Path, config: PrepareConfig | None = None, *, progress: bool = True
) -> dict[str, Any]:
    """Turn the MIDI files below the folder `midi` into a tokens folder at `out`.

    Returns the report that is also written to `out`/report.json, with `seconds_taken` added.
    Raises `InputError` for a folder without MIDI files, an `out` that cannot be written or one
    that another run is writing to, and `KeyboardInterrupt` with a sentence on Ctrl-C; the next run
    goes on from there.
    """
    midi, out, config = Path(midi), Path(out), config or PrepareConfig()
    began = time.monotonic()
    show: Progress = _Bar() if progress else _nothing
    require_room(out, TOKENS, _OURS)
    found = collect(midi, skip=out, progress=show)
    lists = read_lists(midi, found, config)
    with _writing_to(out), locked(out, "prepare"):
        cache = Cache(out / CACHE, config.max_gap_seconds)
        cache.encode(found.files, workers=config.workers, progress=show)
        kept, left_out = _filter(found, cache, config)
        if not len(kept):
            raise InputError(_nothing_left(midi, left_out))
        outcome = _divide(found, kept, left_out, lists, cache, config)
        report = build_report(outcome, cache, seed=config.seed)
        _write(out, outcome, cache, config, report, show)
        cache.forget_all_but(cache.rows(found.files.digests))
    return {**report, "seconds_taken": round(time.monotonic() - began, 2)}


def _filter(found: Collection, cache: Cache, config: PrepareConfig) -> tuple[Files, list[LeftOut]]:
    """The pieces that go into the corpus, and the others; of equal ones the first is kept."""
    files, left_out = found.files, list(found.left_out)
    rows = cache.rows(files.digests)
    facts = cache.facts[rows]
    kept = np.ones(len(files), bool)
    for i, fact in enumerate(facts):
        if fact["unreadable"]:
            why: tuple[str, str] | None = ("unreadable", cache.said(int(rows[i]))[0])
        else:
            why = why_left_out(_piece_facts(fact), config)
        if why:
            kept[i] = False
            left_out.append(LeftOut(files.name(i), *why))
    places = np.flatnonzero(kept)
    _, first, same = np.unique(facts["events"][places], return_index=True, return_inverse=True)
    for i in np.setdiff1d(np.arange(len(places)), first).tolist():
        original = files.name(int(places[first[same[i]]]))
        reason = f"It plays what {original} plays, event for event."
        left_out.append(LeftOut(files.name(int(places[i])), "double", reason))
    return files.take(places[np.sort(first)]), sorted(left_out, key=lambda left: left.name)


def _piece_facts(fact: Facts) -> PieceFacts:
    return PieceFacts(
        notes=int(fact["notes"]),
        seconds=float(fact["seconds"]),
        pitches=int(fact["pitches"]),
        outside=int(fact["outside"]),
        velocity_spread=float(fact["velocity_spread"]),
        regularity=float(fact["regularity"]),
    )


def _divide(
    found: Collection,
    kept: Files,
    left_out: Sequence[LeftOut],
    lists: Lists,
    cache: Cache,
    config: PrepareConfig,
) -> Outcome:
    """Find the pieces that are alike, and give each composition its split."""
    rows = cache.rows(kept.digests)

    def pairs(kind: str, sample: Sample) -> Pairs:
        return similar_pairs(
            cache.facts[kind][rows],
            lambda i: cache.hashes(int(rows[i]), kind),
            cache.root / "pairs",
            sample=sample,
        )

    turns, timed_turns = pairs("turns", TURNS), pairs("timed_turns", TIMED_TURNS)
    figures = pairs("figures", FIGURES)
    checksums = (file.digest.hex() for file in kept)
    links = alike(turns, timed_turns, figures)
    names = composition_names(compositions(len(kept), links), checksums)
    told = ((i, lists.split_of(name)) for i, name in enumerate(kept.names()))
    splits = assign_splits(
        names,
        {i: split for i, split in told if split},
        validation=config.validation,
        test=config.test,
        seed=config.seed,
    )
    return Outcome(
        found=found,
        left_out=left_out,
        kept=kept,
        facts=cache.facts[rows],
        rows=rows,
        compositions=names,
        splits=splits,
        lists=lists,
        turns=turns,
        timed_turns=timed_turns,
        figures=figures,
    )


def _write(
    out: Path,
    outcome: Outcome,
    cache: Cache,
    config: PrepareConfig,
    report: dict[str, Any],
    show: Progress,
) -> None:
    codes = np.array([SPLITS.index(split) for split in outcome.splits])
    done = 0
    with (
        CorpusWriter(out) as writer,
        IndexWriter(writer.another_file(INDEX_FILE)) as index,
    ):
        for i in np.argsort(codes, kind="stable").tolist():  # one split after the other
            split, record = outcome.splits[i], _record(outcome, i)
            ids = cache.ids(int(outcome.rows[i]))
            writer.add(split, ids, record)
            if split == "train":
                index.add(ids, record["file"])
            done += 1
            show("writing", done, len(codes))
        samples = sample_places(outcome.kept, config.seed)
        rolls = [decode_ids(cache.ids(int(outcome.rows[i]))) for i in samples]
        texts = {REPORT: json_text(report), REPORT_PAGE: report_page(report, rolls)}
        index.finish()
        writer.finish(_card(outcome, config, report), tokenizer=tokenizer_text(), texts=texts)


def _record(outcome: Outcome, i: int) -> dict[str, Any]:
    """The line of a piece in pieces.jsonl."""
    file, facts = outcome.kept[i], outcome.facts[i]
    return {
        "file": file.name,
        "composition": outcome.compositions[i],
        "notes": int(facts["notes"]),
        "seconds": float(facts["seconds"]),
        "tokens": int(facts["tokens"]),
        **outcome.lists.origin_of(file.name)._asdict(),
        "sha256": file.digest.hex(),
    }


def _card(outcome: Outcome, config: PrepareConfig, report: dict[str, Any]) -> dict[str, Any]:
    """What prepare adds to corpus.json: where the music comes from, and how it was made."""
    settings = dataclasses.asdict(config)
    del settings["workers"]  # it decides how long it takes, not what comes out
    for name in ("split_by", "sources"):
        settings[name] = printable_name(Path(settings[name]).name)
    summary = ("midi_files", "pieces", "compositions", "left_out_counts")
    return {
        "sources": _totals(outcome, "source", "licence"),
        "licences": _totals(outcome, "licence", "source"),
        "settings": settings,
        "report": {name: report[name] for name in summary},
    }


def _totals(outcome: Outcome, by: str, other: str) -> dict[str, Any]:
    """For each source its pieces, tokens and licences; or for each licence its sources."""
    totals: dict[str, Any] = {}
    for name, tokens in zip(outcome.kept.names(), outcome.facts["tokens"].tolist(), strict=True):
        origin = outcome.lists.origin_of(name)
        if key := getattr(origin, by):
            entry = totals.setdefault(key, {"pieces": 0, "tokens": 0, f"{other}s": set()})
            entry["pieces"] += 1
            entry["tokens"] += tokens
            entry[f"{other}s"].add(getattr(origin, other))
    return {
        key: {**entry, f"{other}s": sorted(entry[f"{other}s"])}
        for key, entry in sorted(totals.items())
    }


def _nothing_left(midi: Path, left_out: Sequence[LeftOut]) -> str:
    counts = Counter(left.kind for left in left_out)
    reasons = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    return (
        f"No piece of {shown(midi)} is left ({reasons}), for example {left_out[0].name}: "
        f"{left_out[0].reason}"
    )


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
            f"The tokens folder {shown(out)} cannot be written ({error.strerror}); choose a folder "
            "on a disk with room, where you may write."
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
