"""Words on the command line -> music composed: the verbs generate and redo."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from music_gpt.checking import choice
from music_gpt.cli.parsing import Parser
from music_gpt.cli.words import (
    Verb,
    add_engine,
    add_flags,
    add_tracks,
    from_flags,
    midi_path,
    print_json,
    read_chosen,
    whole_or_nothing,
)
from music_gpt.config.prompt import PromptChange
from music_gpt.config.sampling import CANDIDATES, SAMPLING_PRESETS, SamplingConfig
from music_gpt.errors import InputError
from music_gpt.files import require_other, require_writable
from music_gpt.printable import shown
from music_gpt.process import say

if TYPE_CHECKING:
    from music_gpt.composing.composition import Composition


def add_generate() -> Verb:
    """`music-gpt generate`."""
    verb = Parser()
    verb.add_argument("--prompt", type=str, default=None, help="MIDI file to continue.")
    verb.add_argument("--prompt-seconds", type=float, default=None, help="Use only its last part.")
    verb.add_argument(
        "--prompt-end",
        dest="prompt_end_seconds",
        metavar="SECONDS",
        type=float,
        default=None,
        help="Continue it from this second on; default: its end.",
    )
    add_tracks(verb)
    add_flags(verb, PromptChange)
    verb.add_argument("--seconds", type=float, default=30.0, help="Seconds of new music.")
    verb.add_argument("--out", type=str, required=True, help="MIDI file to write.")
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    add_engine(verb)
    verb.add_argument(
        "--variations", type=int, default=1, help="Takes; more than one are numbered in --out."
    )
    verb.add_argument(
        "--rank",
        action="store_true",
        help="Number the takes by their likelihood, the likeliest first; it is not their quality.",
    )
    verb.add_argument("--seed", type=int, default=None, help="Default: drawn, and told.")
    verb.add_argument(
        "--continuation-only", action="store_true", help="Leave the prompt out of the file."
    )
    verb.add_argument(
        "--again",
        type=str,
        default=None,
        help="MIDI file that music-gpt wrote: compose its take again, with the settings in it.",
    )
    verb.add_argument("--end", action="store_true", help="Let the music find its own ending.")
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    _add_sampling(verb)
    return "generate", verb, generate


def add_redo() -> Verb:
    """`music-gpt redo`."""
    verb = Parser()
    verb.add_argument("midi", type=str, help="MIDI file.")
    for flag, edge, told in (("--from", "start", "the part begins"), ("--to", "end", "it ends")):
        verb.add_argument(
            flag,
            dest=f"{edge}_seconds",
            metavar="SECONDS",
            type=float,
            required=True,
            help=f"Second where {told}.",
        )
    add_tracks(verb)
    verb.add_argument("--out", type=str, required=True, help="MIDI file to write.")
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    add_engine(verb)
    verb.add_argument(
        "--candidates",
        type=int,
        default=CANDIDATES,
        help="How many to compose; the one after which the rest is likeliest is written.",
    )
    verb.add_argument("--seed", type=int, default=None, help="Default: drawn, and told.")
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    _add_sampling(verb)
    return "redo", verb, redo


class _Preset(argparse.Action):
    """Turns several knobs; flags that come after it turn them again."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        choice("preset", values, SAMPLING_PRESETS)
        setattr(namespace, self.dest, values)
        for name, value in dataclasses.asdict(SAMPLING_PRESETS[values]).items():
            setattr(namespace, name, value)


def _add_sampling(verb: Parser) -> None:
    verb.add_argument(
        "--preset",
        action=_Preset,
        default="balanced",
        metavar=f"{{{','.join(SAMPLING_PRESETS)}}}",
        help="Sets the flags below, which may follow it.",
    )
    add_flags(verb, SamplingConfig)


AGAIN = {"again", "prompt", "checkpoint", "engine", "out", "json"}
"""Flags that say something beside --again; all else is told by the file."""


def generate(args: Namespace) -> None:
    """Compose: continue a piece, or begin one."""
    out = midi_path(args.out)
    if args.rank and args.variations == 1:
        raise InputError("--rank puts several takes in order; ask for them with --variations.")
    with whole_or_nothing():
        composition = _asked(args) if args.again is None else _again(args)
        for warning in composition.warnings:
            say(warning)
        files = _take_paths(composition.n_takes, out)
        for file in files:  # before minutes are spent on composing
            require_other(file, args.prompt, args.again)
            require_writable(file)
        interrupted = _compose(composition)
    order = composition.ranking() if args.rank else range(composition.n_takes)
    for take, file in zip(order, files, strict=True):
        composition.write(file, take)
    made = [composition.settings(take) for take in order]
    result = {
        "files": [str(file) for file in files],
        "ranked": args.rank,
        "seeds": [settings["seed"] for settings in made],
        "nats_per_token": [settings["nats_per_token"] for settings in made],
        "seconds": round(composition.seconds_composed, 2),
        "prompt_seconds": composition.seam_seconds if made[0]["include_prompt"] else 0.0,
        "transpose": made[0]["transpose"],
        "speed": made[0]["speed"],
        "tokens": composition.n_tokens,
        "tokens_per_second": round(composition.tokens_per_second, 1),
        "times_real_time": round(composition.times_real_time, 1),
        "interrupted": interrupted,
        "warnings": list(composition.warnings),
    }
    print_json(result) if args.json else say(_generated(result))
    if interrupted:
        raise KeyboardInterrupt("Interrupted; what had been composed was written.")


@whole_or_nothing()
def redo(args: Namespace) -> None:
    """Compose a part of a piece anew, and leave the rest as it is."""
    from music_gpt.composing.pianist import load

    out = midi_path(args.out)
    piece = read_chosen(args.midi, args.tracks)
    require_other(out, args.midi)
    require_writable(out)
    redoing = load(args.checkpoint, engine=args.engine).begin_redo(
        piece,
        args.start_seconds,
        args.end_seconds,
        candidates=args.candidates,
        seed=args.seed,
        **dataclasses.asdict(from_flags(SamplingConfig, args)),
    )
    for warning in redoing.composition.warnings:
        say(warning)
    if _compose(redoing.composition):
        raise KeyboardInterrupt  # a part that is half full is none
    redone = redoing.redone()
    redone.write(out)
    told = [redone.settings(number) for number in range(redone.n_candidates)]
    result = {
        "file": str(out),
        "part": told[0]["redo"],
        "seeds": [settings["seed"] for settings in told],
        "following_nats_per_token": [settings["following_nats_per_token"] for settings in told],
        "nats_per_token": [settings["nats_per_token"] for settings in told],
        "warnings": redone.warnings,
    }
    first, last = result["part"]
    best = (
        f"{shown(out)}: {first:g} to {last:g} s, the best of {len(told)}, seed {told[0]['seed']}."
    )
    print_json(result) if args.json else say(best)


def _asked(args: Namespace) -> Composition:
    """The composition that the flags ask for."""
    from music_gpt.composing.pianist import load

    if args.tracks is not None and args.prompt is None:
        raise InputError("--tracks chooses among the tracks of the prompt; give a --prompt.")
    prompt = None if args.prompt is None else read_chosen(args.prompt, args.tracks)
    return load(args.checkpoint, engine=args.engine).compose(
        prompt,
        seconds=args.seconds,
        seed=args.seed,
        variations=args.variations,
        prompt_seconds=args.prompt_seconds,
        prompt_end_seconds=args.prompt_end_seconds,
        **dataclasses.asdict(from_flags(PromptChange, args)),
        include_prompt=not args.continuation_only,
        end=args.end,
        **dataclasses.asdict(from_flags(SamplingConfig, args)),
    )


def _again(args: Namespace) -> Composition:
    """The take in a MIDI file, in the engine that composed it if no other is asked for."""
    from music_gpt.composing.pianist import load
    from music_gpt.composing.provenance import read_recipe

    verb = add_generate()[1]
    usual = verb.get_defaults()
    more = [name for name in vars(args) if args[name] != usual[name] and name not in AGAIN]
    if more:
        raise InputError(
            f"--again takes all settings from the file; leave out {verb.own_flags()[more[0]]}."
        )
    engine = args.engine
    if engine == "auto":
        engine = str(read_recipe(args.again).get("engine", engine))
    return load(args.checkpoint, engine=engine).again(args.again, args.prompt)


def _compose(composition: Composition) -> bool:
    """Run the composition under a progress bar; True if Ctrl-C ended it, with the music kept.

    What it warns of meanwhile is told at its end.
    """
    from tqdm import tqdm

    told, is_cut = len(composition.warnings), False

    shape = "{percentage:3.0f} % |{bar:20}| {n:.1f} / {total:.0f} s{desc}"
    # it goes when it is full: what was made is told then, and that is seldom as long to the frame
    with tqdm(total=composition.seconds, file=sys.stderr, bar_format=shape, leave=False) as bar:
        try:
            for _ in composition:
                bar.n = min(composition.seconds_composed, composition.seconds)
                speed = f"{composition.tokens_per_second:.0f} tokens/s"
                bar.set_description_str(f" · {speed}", refresh=False)
                bar.update(0)
        except KeyboardInterrupt:
            composition.close()
            is_cut = True
    for warning in composition.warnings[told:]:
        say(warning)
    return is_cut


def _take_paths(n_takes: int, out: Path) -> list[Path]:
    """One file for each take; out.mid, or out-1.mid, out-2.mid and so on."""
    if n_takes == 1:
        return [out]
    return [out.with_stem(f"{out.stem}-{take + 1}") for take in range(n_takes)]


def _generated(result: dict[str, Any]) -> str:
    files, seeds = ", ".join(map(shown, result["files"])), ", ".join(map(str, result["seeds"]))
    if result["ranked"]:
        files += " (the likeliest first)"
    prompt = result["prompt_seconds"]
    changes = [f"transposed by {result['transpose']:+d}"] if result["transpose"] else []
    changes += [f"{result['speed']:g} times as fast"] if result["speed"] != 1 else []
    after = f", after {prompt:.1f} of the prompt" if prompt else ""
    if changes:
        after = f"{after or ', after the prompt'} ({', '.join(changes)})"
    return (
        f"{files}: {result['seconds']:.1f} seconds of new music{after}; "
        f"{result['tokens_per_second']:.0f} tokens/s, {result['times_real_time']}× real time, "
        f"seed {seeds}."
    )
