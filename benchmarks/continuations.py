"""Many continuations of real music: whether each is well formed, loops, lasts, and how it differs.

    python benchmarks/continuations.py TOKENS [--n 1000] [--seconds 30] [--out FOLDER]
    python benchmarks/continuations.py --midi FOLDER ...
    python benchmarks/continuations.py TOKENS --n 8 --minutes 10 --long 24

Prompts are random places of a split, four takes each, on one thread. Each take is written as MIDI
and read again by mido, which shares nothing with the writer: every note-on has to have its note-off
before the pitch is struck again. Events are held against the tokenizer's rules. Then takes are
compared with real passages, as `music-gpt evaluate --samples` does. Last, --long takes of --minutes
are composed, each of another prompt, and their last minute is compared with their first, beside
real pieces that are as long.

With --out the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mido
import numpy as np
import numpy.typing as npt

import music_gpt
from data_prep.prepare import prepare
from music_gpt.arrays import Floats
from music_gpt.composing.composition import Composition
from music_gpt.composing.pianist import Pianist
from music_gpt.config.preparing import PrepareConfig
from music_gpt.config.sampling import ENGINES
from music_gpt.errors import InputError
from music_gpt.generation.decoding import Drawn
from music_gpt.metrics.continuations import (
    CEILING_SEED,
    CLOSE_SECONDS,
    TAKES,
    Passage,
    passages,
    report,
)
from music_gpt.metrics.statistics import statistics
from music_gpt.midi.piece import cut_notes, read_piece
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.corpus import Corpus, Split
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, decode_ids
from music_gpt.tokens.originality import OriginalityIndex
from music_gpt.tokens.tokenizer import count_errors

MINUTE = 60.0
GOAL = 0.05
"""Share by which the last minute of a long piece may differ from its first."""
Ids = npt.NDArray[np.integer]
SPREAD_SECONDS = 0.035
"""A performer's chord is spread over a few such waits; a score's is struck at once."""
_NOTHING = np.zeros(0, NOTE_DTYPE)


# --- one take -------------------------------------------------------------------------------------


def compose(composition: Composition) -> list[list[int]]:
    """Compose all takes, and give the events of each."""
    events: list[list[int]] = [[] for _ in range(composition.n_takes)]
    inner = composition._events
    assert inner is not None

    def tapped() -> Iterator[Drawn]:
        for drawn in inner:
            events[drawn.take].append(drawn.id)
            yield drawn

    composition._events = tapped()
    for _ in composition:
        pass
    return events


def grammar_errors(composition: Composition, events: list[int]) -> int:
    """Errors of the new events after what the network heard.

    Of a prompt that was cut, notes struck before the cut are released without having been struck:
    so many errors have the prompt and the release of all that sounds, and they do not count.
    """
    start = composition._prompt.start
    heard = list(start.context)
    wait = [] if TIME_SHIFT <= heard[-1] < VELOCITY else [VELOCITY - 1]
    released = [*heard, *wait, *(NOTE_OFF + pitch for pitch in sorted(start.onsets)), EOS]
    return max(count_errors([*heard, *events]) - count_errors(released), 0)


def hanging_notes(file: Path) -> int:
    """Note-ons that are never ended, or struck while they sound, and note-offs that end nothing."""
    faults, sounding = 0, set[tuple[int, int]]()
    for message in mido.merge_tracks(mido.MidiFile(file).tracks):
        if message.type not in ("note_on", "note_off"):
            continue
        key = (message.channel, message.note)
        if message.type == "note_on" and message.velocity:
            faults += key in sounding
            sounding.add(key)
        else:
            faults += key not in sounding
            sounding.discard(key)
    return faults + len(sounding)


def facts(composition: Composition, take: int, events: list[int], file: Path) -> dict[str, Any]:
    """What is kept of one take."""
    composition.write(file, take)
    given = float(composition.notes(take)["end"].max()) - composition.seam_seconds
    return {
        "file": file.name,
        "seam": composition.seam_seconds,
        "seconds": round(given, 3),
        "grammar_errors": grammar_errors(composition, events),
        "hanging_notes": hanging_notes(file),
        "events": len(events),
    }


# --- all takes ------------------------------------------------------------------------------------


def all_takes(
    pianist: Pianist,
    places: list[Passage],
    seconds: float,
    split: str,
    out: Path,
    n_takes: int = TAKES,
) -> list[dict[str, Any]]:
    """The facts of `n_takes` of each prompt; those that lie in `out` are not composed again."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / "continuations.jsonl"
    names = ("checkpoint_sha256", "engine", "temperature", "min_p")
    settings = pianist.compose().settings()  # nothing is composed yet
    asked = {name: settings[name] for name in names}
    asked |= {"seconds": seconds, "split": split, "takes": n_takes}
    lines = log.read_text().splitlines() if log.exists() else []
    if lines and json.loads(lines[0]) != asked:
        sys.exit(f"{out} holds continuations of other settings; choose another --out.")
    if not lines:
        log.write_text(json.dumps(asked) + "\n")
    done = [json.loads(line) for line in lines[1:]]
    began, todo = time.monotonic(), places[len(done) :]
    for number, place in enumerate(todo, start=1):
        first = len(done) * n_takes
        composition = pianist.compose(
            place.prompt, seconds=seconds + CLOSE_SECONDS, seed=first, variations=n_takes
        )
        events = compose(composition)
        files = [out / f"{first + take:05d}.mid" for take in range(n_takes)]
        done.append([facts(composition, t, events[t], files[t]) for t in range(n_takes)])
        with log.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        left = (time.monotonic() - began) / number * (len(todo) - number)
        print(f"{len(done) * n_takes} takes, {left / 60:.1f} minutes left", file=sys.stderr)
    return [take for takes in done for take in takes]


def composed_music(takes: list[dict[str, Any]], seconds: float, out: Path) -> list[Notes]:
    """The first `seconds` of the new music in the files of takes."""
    return [cut_notes(_struck_after(out / t["file"], t["seam"]), 0, seconds) for t in takes]


def show_form(takes: list[dict[str, Any]], seconds: float) -> None:
    """Grammar, hanging notes and lengths."""
    asked = seconds + CLOSE_SECONDS
    off = max(abs(take["seconds"] - asked) for take in takes)
    n_events = sum(take["events"] for take in takes)
    print(
        f"grammar errors           {sum(t['grammar_errors'] for t in takes)} in {n_events:,} events"
    )
    print(
        f"hanging or doubled notes {sum(t['hanging_notes'] for t in takes)} in {len(takes)} files"
    )
    print(f"seconds given            {asked:g} asked, at most {off:.2f} s more or less")


def show_drift(composed: list[Notes], corpus: Corpus, seconds: float) -> None:
    """The last minute of long pieces against their first, composed and real.

    The change is that of the mean over all takes, with its standard error; |median| is the size of
    the change in one.
    """
    real = [
        cut_notes(decode_ids(split.piece(i)), 0, seconds)
        for split in map(corpus.split, corpus.splits)
        for i in np.flatnonzero(split.seconds >= seconds).tolist()
    ]
    mine, theirs = (by_the_minute(of, seconds) for of in (composed, real))
    print(
        f"\n{len(composed)} takes of {seconds / MINUTE:g} minutes, from the first minute to the "
        f"last, beside {len(real)} real pieces that long\n"
        f"{'':22}{'first':>8}{'last':>8}{'change':>9}{'error':>8}  |median|  "
        f"{'real':>9}  |median|"
    )
    for name, values in mine.items():
        first, last = np.nanmean(values[:, 0]), np.nanmean(values[:, -1])
        change = change_of_mean(values)
        cells = f"{name:22}{first:8.2f}{last:8.2f}{change:+9.1%}{error_of_change(values):8.1%}"
        cells += f"  {usual_change(values):8.1%}"
        if real:
            of_real = theirs[name]
            cells += f"{change_of_mean(of_real):+11.1%}  {usual_change(of_real):8.1%}"
        print(cells + (f"  beyond {GOAL:.0%}" if abs(change) > GOAL else ""))
    for name in ("notes_per_second", "note_length", "velocity"):
        row = " ".join(f"{value:.1f}" for value in np.nanmean(mine[name], axis=0))
        print(f"{name} by the minute: {row}")


def by_the_minute(pieces: list[Notes], seconds: float) -> dict[str, Floats]:
    """Each statistic of each minute of each piece, (pieces, minutes); NaN where nothing is."""
    starts = np.arange(0.0, seconds - MINUTE + 1e-6, MINUTE)
    rows = [[minute(cut_notes(notes, at, at + MINUTE)) for at in starts] for notes in pieces]
    return {
        name: np.array([[part[name] for part in row] for row in rows]) for name in minute(_NOTHING)
    }


def minute(notes: Notes) -> dict[str, float]:
    """Statistics of a minute."""
    found = {k: float(v[0]) for k, v in statistics(notes, MINUTE).items() if v.size == 1}
    pitch = notes["pitch"].astype(np.int64)
    return {
        "mean_pitch": float(pitch.mean()) if len(pitch) else np.nan,
        "strokes_per_second": strokes(notes["start"]) / MINUTE,
        "same_pitch_again": float((pitch[1:] == pitch[:-1]).mean()) if len(pitch) > 1 else np.nan,
        **found,
    }


def strokes(starts: Floats) -> int:
    """How often the hands come down: onsets that are no part of the chord before them."""
    waits = np.diff(np.unique(starts), prepend=-np.inf)
    return int((waits > SPREAD_SECONDS).sum())


def change_of_mean(values: Floats) -> float:
    """Change of the mean from the first column to the last, as a share of the first."""
    first, last = np.nanmean(values[:, 0]), np.nanmean(values[:, -1])
    return float(last / first - 1) if first else np.nan


def error_of_change(values: Floats) -> float:
    """Standard error of the change of the mean, as a share of the first; NaN for one row."""
    whole = values[np.isfinite(values[:, [0, -1]]).all(1)]
    if len(whole) < 2 or not whole[:, 0].mean():
        return np.nan
    ratio = whole[:, -1].mean() / whole[:, 0].mean()
    off = (whole[:, -1] - ratio * whole[:, 0]) / whole[:, 0].mean()
    return float(off.std(ddof=1) / np.sqrt(len(whole)))


def usual_change(values: Floats) -> float:
    """Median size of the change in a row from the first column to the last, as a share."""
    changed = values[values[:, 0] > 0]
    return (
        float(np.nanmedian(np.abs(changed[:, -1] / changed[:, 0] - 1))) if len(changed) else np.nan
    )


def chosen_split(args: argparse.Namespace, out: Path) -> tuple[Corpus, Split]:
    """The split that prompts come from; a folder of MIDI files becomes one first."""
    if args.midi is None:
        corpus = Corpus.open(args.tokens)
    else:
        config = PrepareConfig(workers=1, validation=0.0, test=0.0)
        prepare(args.midi, out / "tokens", config)
        corpus, args.split = Corpus.open(out / "tokens"), "train"
    return corpus, corpus.split(args.split)


def main() -> None:
    """Read the command line, compose, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=Path, nargs="?")
    parser.add_argument("--midi", type=Path, default=None)
    parser.add_argument("--split", default="test")
    parser.add_argument("--checkpoint", default=None)
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each long take")
    parser.add_argument("--long", type=int, default=24, help="takes of --minutes; 0 for none")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    if (args.tokens is None) == (args.midi is None):
        parser.error("give TOKENS or --midi FOLDER")
    out = args.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    corpus, split = chosen_split(args, out)
    pianist = music_gpt.load(args.checkpoint, engine=args.engine, threads=1)
    real = passages(split, args.n, args.seconds)
    takes = all_takes(pianist, real[::TAKES], args.seconds, args.split, out)[: args.n]
    composed = composed_music(takes, args.seconds, out)
    show_form(takes, args.seconds)
    try:
        index = OriginalityIndex.open(corpus.path)
    except InputError as error:
        print(error, file=sys.stderr)
        index = None
    more = passages(split, args.n, args.seconds, seed=CEILING_SEED)
    print(report(real, composed, args.seconds, more=more, index=index).table())
    if args.long:
        seconds, out = args.minutes * MINUTE, out / "long"
        places = passages(split, args.long, args.seconds)
        takes = all_takes(pianist, places, seconds, args.split, out, 1)
        show_drift(composed_music(takes, seconds, out), corpus, seconds)


def _struck_after(file: Path, seam: float) -> Notes:
    """The new notes in a file, from the seam on."""
    notes = read_piece(file).sounding_notes
    return cut_notes(notes[notes["start"] > seam - 1e-6], seam, np.inf)


if __name__ == "__main__":
    main()
