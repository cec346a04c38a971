"""Many continuations of real music: whether each is well formed, loops, lasts, and how it differs.

    python benchmarks/continuations.py TOKENS [--n 1000] [--seconds 30] [--out FOLDER]
    python benchmarks/continuations.py --midi FOLDER ...

Prompts are random places of a split, four takes each, on one thread. Each take is written as MIDI
and read again by mido, which shares nothing with the writer: every note-on has to have its note-off
before the pitch is struck again. Events are held against the tokenizer's rules. A loop is a stretch
that says again, exactly, what stands right before it: at least 128 events, or 32 pitches whatever
their times; the same is looked for in real music of equal length. Last, four takes of ten minutes
are composed, and their last minute compared with their first, beside real pieces that are as long.

With --out the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics as numbers
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
from music_gpt.composing.composition import Composition
from music_gpt.composing.pianist import Pianist
from music_gpt.config.preparing import PrepareConfig
from music_gpt.config.sampling import ENGINES
from music_gpt.errors import InputError
from music_gpt.generation.decoding import Drawn
from music_gpt.metrics.continuations import (
    CLOSE_SECONDS,
    TAKES,
    Passage,
    new_music,
    passages,
    report,
)
from music_gpt.metrics.statistics import drift, means, statistics
from music_gpt.midi.piece import cut_notes, read_piece
from music_gpt.notes import Notes
from music_gpt.tokens.corpus import Corpus, Split
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, decode_ids, encode_notes
from music_gpt.tokens.originality import OriginalityIndex
from music_gpt.tokens.tokenizer import count_errors

LOOP_EVENTS, LOOP_PITCHES, LONGEST_PERIOD = 128, 32, 512
MINUTE = 60.0
GOAL = 0.05
"""Share by which the last minute of a long piece may differ from its first."""
Ids = npt.NDArray[np.integer]


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


def loops(row: Ids, shortest: int) -> bool:
    """Whether a stretch of `shortest` or more says again what stands right before it."""
    for period in range(1, min(LONGEST_PERIOD, len(row) - 1) + 1):
        equal = row[period:] == row[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]])))
        longest = int((edges[1::2] - edges[::2]).max(initial=0))
        if longest >= max(shortest, period):
            return True
    return False


def facts(
    composition: Composition, take: int, events: list[int], seconds: float, file: Path
) -> dict[str, Any]:
    """What is kept of one take; loops are those of its first `seconds`."""
    composition.write(file, take)
    given = float(composition.notes(take)["end"].max()) - composition.seam_seconds
    return {
        "file": file.name,
        "seam": composition.seam_seconds,
        "seconds": round(given, 3),
        "grammar_errors": grammar_errors(composition, events),
        "hanging_notes": hanging_notes(file),
        "events": len(events),
        "looping": looping(new_music(composition, take, seconds)),
    }


def looping(notes: Notes) -> list[bool]:
    """Whether there is a loop of events, and one of pitches."""
    return [loops(encode_notes(notes), LOOP_EVENTS), loops(notes["pitch"], LOOP_PITCHES)]


# --- all takes ------------------------------------------------------------------------------------


def all_takes(
    pianist: Pianist, places: list[Passage], args: argparse.Namespace, out: Path
) -> list[dict[str, Any]]:
    """The facts of all takes; those that lie in `out` are not composed again."""
    log = out / "continuations.jsonl"
    names = ("checkpoint_sha256", "engine", "temperature", "min_p")
    settings = pianist.compose().settings()  # nothing is composed yet
    asked = {name: settings[name] for name in names}
    asked |= {"seconds": args.seconds, "split": args.split}
    lines = log.read_text().splitlines() if log.exists() else []
    if lines and json.loads(lines[0]) != asked:
        sys.exit(f"{out} holds continuations of other settings; choose another --out.")
    if not lines:
        log.write_text(json.dumps(asked) + "\n")
    done = [json.loads(line) for line in lines[1:]]
    began, todo = time.monotonic(), places[len(done) :]
    for number, place in enumerate(todo, start=1):
        first = len(done) * TAKES
        composition = pianist.compose(
            place.prompt, seconds=args.seconds + CLOSE_SECONDS, seed=first, variations=TAKES
        )
        events = compose(composition)
        files = [out / f"{first + take:05d}.mid" for take in range(TAKES)]
        done.append(
            [facts(composition, t, events[t], args.seconds, files[t]) for t in range(TAKES)]
        )
        with log.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        left = (time.monotonic() - began) / number * (len(todo) - number)
        print(f"{len(done) * TAKES} takes, {left / 60:.1f} minutes left", file=sys.stderr)
    return [take for takes in done for take in takes][: args.n]


def show_form(takes: list[dict[str, Any]], real: list[Passage], asked: float) -> None:
    """Grammar, hanging notes, lengths and loops."""
    off = max(abs(take["seconds"] - asked) for take in takes)
    n_events = sum(take["events"] for take in takes)
    print(
        f"grammar errors           {sum(t['grammar_errors'] for t in takes)} in {n_events:,} events"
    )
    print(
        f"hanging or doubled notes {sum(t['hanging_notes'] for t in takes)} in {len(takes)} files"
    )
    print(f"seconds given            {asked:g} asked, at most {off:.2f} s more or less")
    of_real = [looping(place.real) for place in real]
    for i, what in enumerate(("loops of events", "loops of pitches")):
        mine = numbers.mean(take["looping"][i] for take in takes)
        theirs = numbers.mean(found[i] for found in of_real)
        print(f"{what:24} {mine:.1%} of the continuations, {theirs:.1%} of real passages")


def show_drift(
    pianist: Pianist, prompt: Passage, corpus: Corpus, seconds: float, out: Path
) -> None:
    """The last minute of long pieces against their first, composed and real."""
    composition = pianist.compose(prompt.prompt, seconds=seconds, seed=0, variations=TAKES)
    events = compose(composition)
    errors = sum(grammar_errors(composition, take) for take in events)
    for take in range(TAKES):
        composition.write(out / f"long-{take}.mid", take)
    composed = [new_music(composition, take, seconds) for take in range(TAKES)]
    mine = [changes(notes, seconds) for notes in composed]
    theirs = [
        changes(cut_notes(decode_ids(split.piece(i)), 0, seconds), seconds)
        for split in map(corpus.split, corpus.splits)
        for i in np.flatnonzero(split.seconds >= seconds).tolist()
    ]
    print(
        f"\n{TAKES} takes of {seconds / MINUTE:g} minutes, {sum(map(len, events)):,} events, "
        f"{errors} grammar errors: change from the first minute to the last, beside {len(theirs)} "
        f"real pieces that long\n{'':24}{'mean':>8}{'  |median|':10}{'real mean':>11}  |median|"
    )
    for name in mine[0]:
        changed, usual = (np.array([found[name] for found in of]) for of in (mine, theirs))
        cells = [np.nanmean(changed), np.nanmedian(abs(changed))]
        cells += [np.nanmean(usual), np.nanmedian(abs(usual))] if len(usual) else [np.nan] * 2
        mean, size, real_mean, real_size = cells
        far = "" if abs(mean) <= GOAL else f"  beyond {GOAL:.0%}"
        print(f"{name:24}{mean:+8.1%}{size:10.1%}{real_mean:+11.1%}{real_size:10.1%}{far}")
    edges = np.arange(0.0, seconds + 1.0, MINUTE)
    a_second = np.mean([np.histogram(n["start"], edges)[0] for n in composed], axis=0) / MINUTE
    print(f"notes/s by the minute    {' '.join(f'{n:.1f}' for n in a_second)}")


def changes(notes: Notes, seconds: float) -> dict[str, float]:
    """By how much each statistic changes from the first minute to the last."""
    # the close is no part of the last minute: a composed piece thins out there
    end = seconds - CLOSE_SECONDS
    first, last = cut_notes(notes, 0, MINUTE), cut_notes(notes, end - MINUTE, end)
    return drift(*(means([statistics(part, MINUTE)]) for part in (first, last)))


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
    parser.add_argument("--minutes", type=float, default=10.0, help="of the long piece; 0 for none")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    if (args.tokens is None) == (args.midi is None):
        parser.error("give TOKENS or --midi FOLDER")
    out = args.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    corpus, split = chosen_split(args, out)
    pianist = music_gpt.load(args.checkpoint, engine=args.engine, threads=1)
    real = passages(split, args.n, args.seconds)
    takes = all_takes(pianist, real[::TAKES], args, out)
    show_form(takes, real, args.seconds + CLOSE_SECONDS)
    composed = [
        cut_notes(_struck_after(out / take["file"], take["seam"]), 0, args.seconds)
        for take in takes
    ]
    try:
        index = OriginalityIndex.open(corpus.path)
    except InputError as error:
        print(error, file=sys.stderr)
        index = None
    print(report(real, composed, args.seconds, index=index).table())
    if args.minutes:
        show_drift(pianist, real[0], corpus, args.minutes * MINUTE, out)


def _struck_after(file: Path, seam: float) -> Notes:
    """The new notes in a file, from the seam on."""
    notes = read_piece(file).sounding_notes
    return cut_notes(notes[notes["start"] > seam - 1e-6], seam, np.inf)


if __name__ == "__main__":
    main()
