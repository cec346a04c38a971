"""Words on the command line -> figures: the verbs evaluate and originality."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from music_gpt.cli.parsing import Parser
from music_gpt.cli.words import Verb, add_tracks, midi_data, part_words, print_json, read_chosen
from music_gpt.config.sampling import ENGINES
from music_gpt.errors import InputError
from music_gpt.printable import shown
from music_gpt.process import say

if TYPE_CHECKING:
    from music_gpt.metrics.continuations import SampleReport
    from music_gpt.network.model import GPT
    from music_gpt.tokens.corpus import Corpus, Split


def add_evaluate() -> Verb:
    """`music-gpt evaluate`."""
    verb = Parser()
    verb.add_argument("--tokens", type=str, required=True, help="Tokens folder.")
    verb.add_argument("--split", type=str, default="validation", help="Which split to score.")
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    verb.add_argument(
        "--window", type=int, default=None, help="Tokens seen at once; default: the most."
    )
    verb.add_argument("--max-tokens", type=int, default=0, help="Score about so many; 0 for all.")
    verb.add_argument(
        "--sliding", action="store_true", help="Also slide the window by half (twice the time)."
    )
    verb.add_argument(
        "--ngram", action="store_true", help="Also score an order-2 n-gram of the train split."
    )
    verb.add_argument(
        "--precision",
        choices=["auto", "bf16", "fp32"],
        default="auto",
        help="Arithmetic; auto is bf16 where the machine multiplies it.",
    )
    verb.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or mps.")
    verb.add_argument(
        "--samples",
        type=int,
        default=0,
        help="Also compose so many continuations (8 or more), and compare them with the music.",
    )
    verb.add_argument("--sample-seconds", type=float, default=30.0, help="Seconds of each.")
    verb.add_argument(
        "--engine",
        choices=list(ENGINES),
        default="torch",
        help="What composes them; auto takes the quickest that is installed.",
    )
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    return "evaluate", verb, evaluate


def add_originality() -> Verb:
    """`music-gpt originality`."""
    verb = Parser()
    verb.add_argument("midi", type=str, help="MIDI file.")
    verb.add_argument(
        "--tokens",
        type=str,
        default=None,
        help="Tokens folder whose training music to look in. Default: that of the bundled network.",
    )
    verb.add_argument(
        "--index",
        type=str,
        default=None,
        help="Without the tokens: originality.npz, or the folder of a run that has it.",
    )
    add_tracks(verb)
    verb.add_argument(
        "--whole",
        action="store_true",
        help="Look at all of a file that music-gpt wrote, not only at what was composed in it.",
    )
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    return "originality", verb, originality


# --- the verbs --------------------------------------------------------------------------------


def evaluate(args: Namespace) -> None:
    """Measure how well a checkpoint predicts a split."""
    from music_gpt.generation.engines import require_engine
    from music_gpt.metrics.continuations import require_samples
    from music_gpt.metrics.likelihood import require_max_tokens
    from music_gpt.network.checkpoint import load_checkpoint
    from music_gpt.network.model import resolve_device
    from music_gpt.tokens.corpus import Corpus

    # 1. what can be refused, before minutes of scoring
    require_max_tokens(args.max_tokens)
    device = resolve_device(args.device)
    corpus = Corpus.open(args.tokens)
    split = corpus.split(args.split)
    if args.ngram:
        corpus.split("train")  # the one that it counts
    if args.samples:
        require_samples(split, args.samples, args.sample_seconds)
    model, card = load_checkpoint(args.checkpoint)
    if args.samples:
        require_engine(args.engine, model)
    # 2. likelihoods, and continuations where they are asked for
    about = {"checkpoint": card["file"], "sha256": card["sha256"], "split": args.split}
    result = about | _scored(args, model.to(device), corpus)
    told, interrupted = _evaluated(result), ""
    try:
        if args.samples:
            report = _sampled(args, model, card, split)
            result["samples"] = report.to_dict()
            told = f"{told}\n{report.table()}"
            interrupted = "what had been composed was compared" if report.interrupted else ""
    except KeyboardInterrupt:
        interrupted = "too little had been composed to be compared"
    finally:  # the likelihoods are there, whatever became of the continuations
        print_json(result) if args.json else say(told)
    if interrupted:
        raise KeyboardInterrupt(f"Interrupted; {interrupted}.")


def originality(args: Namespace) -> None:
    """Find the longest run of notes that a piece shares with the training music."""
    from music_gpt.composing.provenance import composed_part
    from music_gpt.notes import struck_within
    from music_gpt.tokens.originality import OriginalityIndex, nothing_shared, what_a_run_means

    if args.tokens is not None and args.index is not None:
        raise InputError("Give --tokens or --index, one of them: where the training music is.")
    place = args.tokens or args.index
    if place is None:
        from music_gpt.network.checkpoint import BUNDLED_FOLDER

        place = BUNDLED_FOLDER
        say("Looked for in what the bundled network was trained on; --index RUN is for another.")
    data = midi_data(args.midi)
    notes = read_chosen(data, args.tracks).sounding_notes
    part = None if args.whole else composed_part(data)
    if part is not None:
        notes = notes[struck_within(notes, part)]
    run = OriginalityIndex.open(place).longest_run(notes)
    if args.json:
        first, last = part or (None, None)
        composed = {"from_seconds": first, "to_seconds": None if last == math.inf else last}
        shared = None if run is None else run.to_dict()
        found = {"composed": composed if part else None, "notes": len(notes), "shared": shared}
        print_json({"file": args.midi, **found})
        return
    if part is not None:
        say(f"Only what was composed, {part_words(part)}, is looked at; --whole takes all.")
    if run is None:
        say(f"{shown(args.midi)}: {nothing_shared(len(notes))}")
    else:
        means = what_a_run_means(run.different_notes)
        say(f"{shown(args.midi)}: {run} {means[0].upper()}{means[1:]}.")


# --- their parts ------------------------------------------------------------------------------


def _scored(args: Namespace, model: GPT, corpus: Corpus) -> dict[str, Any]:
    """The likelihoods of a split that the flags ask for."""
    from music_gpt.metrics.likelihood import (
        likelihood,
        ngram_nats_per_token,
        sliding_nats_per_token,
    )
    from music_gpt.network.model import use_bf16
    from music_gpt.network.packed import packed

    split, device = corpus.split(args.split), next(model.parameters()).device.type
    how: dict[str, Any] = {
        "window": args.window,
        "max_tokens": args.max_tokens,
        "bf16": use_bf16(args.precision, device),
        "progress": True,
    }
    model = model if how["bf16"] else packed(model)  # once for all that follows
    scores = likelihood(model, split, **how).to_dict()
    if args.sliding:
        scores["sliding_nats_per_token"] = round(sliding_nats_per_token(model, split, **how), 4)
    if args.ngram:
        plain = ngram_nats_per_token(corpus.split("train"), split)
        scores["ngram_nats_per_token"] = round(plain, 4)
    return scores


def _sampled(args: Namespace, model: GPT, card: dict[str, Any], split: Split) -> SampleReport:
    """Continuations of prompts from `split`, composed and compared."""
    from music_gpt.composing.pianist import Pianist
    from music_gpt.generation.engines import choose_engine
    from music_gpt.metrics.continuations import sample
    from music_gpt.tokens.originality import OriginalityIndex

    try:
        index = OriginalityIndex.open(args.tokens)
    except InputError as error:
        say(f"What is shared with the training music is not told: {error}")
        index = None
    pianist = Pianist(model, card, engine=choose_engine(model, card["sha256"], args.engine))
    return sample(pianist, split, args.samples, args.sample_seconds, index=index, progress=True)


def _evaluated(result: dict[str, Any]) -> str:
    units = {
        "nats_per_token": "nats/token",
        "nats_per_note": "nats/note",
        "nats_per_second": "nats/second",
        "accuracy": "of the tokens predicted",
        "sliding_nats_per_token": "nats/token with the sliding window",
        "ngram_nats_per_token": "nats/token of an order-2 n-gram",
    }
    head = f"{result['checkpoint']} on {result['tokens']:,} tokens of {result['split']}:"
    return "\n".join([head, *(f"{result[k]:8.4f} {u}" for k, u in units.items() if k in result)])
