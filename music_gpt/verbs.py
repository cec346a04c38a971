"""Words on the command line -> work done: the verbs of `music-gpt`, and the parser that knows them.

With --json one JSON object goes to standard output; everything else goes to standard error. What a
verb needs is imported inside it: Lightning and Gradio take seconds, and most verbs need neither.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from docstring_parser import parse_from_object
from jsonargparse import Namespace, set_parsing_settings

from music_gpt.config import (
    ENGINES,
    PrepareConfig,
    RunConfig,
    SamplingConfig,
)
from music_gpt.errors import InputError
from music_gpt.files import require_writable
from music_gpt.parsing import Parser
from music_gpt.settings import SECTIONS

if TYPE_CHECKING:
    from music_gpt.composition import Composition
    from music_gpt.corpus import Split
    from music_gpt.midi import Piece
    from music_gpt.model import GPT
    from music_gpt.samples import SampleReport


_Config = TypeVar("_Config", PrepareConfig, SamplingConfig)


MAX_PORT = 65_535


def run(argv: Sequence[str] | None) -> None:
    """Do what the words say (None: those of the process); without a verb, show the help."""
    parser, verbs = _parser()
    words = sys.argv[1:] if argv is None else list(argv)
    parser.verb = next((word for word in words[:1] if word in verbs), "")
    chosen = parser.parse_args(words)
    verb = verbs.get(str(chosen.verb))
    if verb is None:
        parser.print_help()
        return
    chosen = parser.instantiate(chosen)
    verb(chosen[chosen.verb])


def _parser() -> tuple[Parser, dict[str, Callable[[Namespace], None]]]:
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = Parser(
        prog="music-gpt",
        description="Train a GPT on piano MIDI, compose with it, and take the music away.",
    )
    verbs = parser.add_subcommands(dest="verb", required=False)
    functions: dict[str, Callable[[Namespace], None]] = {}
    adds = (_add_prepare, _add_train, _add_evaluate, _add_generate, _add_originality)
    for add in (*adds, _add_render, _add_export, _add_import, _add_app):
        name, verb, function = add()
        summary = str(function.__doc__).splitlines()[0]
        verb.description = summary
        verbs.add_subcommand(name, verb, help=summary)
        functions[name] = function
    return parser, functions


_Verb = tuple[str, Parser, Callable[[Namespace], None]]


def _add_prepare() -> _Verb:
    verb = Parser()
    verb.add_argument("--midi", type=str, default=None, help="Folder of MIDI files.")
    verb.add_argument("--out", type=str, required=True, help="Tokens folder to write.")
    verb.add_argument(
        "--verify", action="store_true", help="Only compare the files in --out with its checksums."
    )
    verb.add_argument(
        "--litdata", type=str, default=None, help="Also write the pieces of --out for LitData here."
    )
    verb.add_argument("--json", action="store_true", help="Print the report as one JSON object.")
    _add_flags(verb, PrepareConfig)
    return "prepare", verb, prepare


def _add_train() -> _Verb:
    verb = Parser()
    verb.add_argument("--config", action="config", help="YAML file; see configs/.")
    verb.add_argument("--tokens", type=str, required=True, help="Tokens folder.")
    verb.add_argument("--out", type=str, required=True, help="Folder of this run, as runs/NAME.")
    verb.add_argument("--resume", action="store_true", help="Go on with the run in --out.")
    verb.add_argument(
        "--max-minutes",
        type=float,
        default=None,
        help="End, cooled down, after so many minutes; the same as --train.max_minutes.",
    )
    verb.add_argument("--init-from", type=str, default=None, help="Checkpoint to start from.")
    verb.add_argument("--json", action="store_true", help="Print the result as one JSON object.")
    for name, config in SECTIONS.items():
        verb.add_argument(f"--{name}", type=config, default=config())
    return "train", verb, train


def _add_evaluate() -> _Verb:
    verb = Parser()
    verb.add_argument("--tokens", type=str, required=True, help="Tokens folder.")
    verb.add_argument("--split", type=str, default="validation", help="Which split to score.")
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    verb.add_argument("--window", type=int, default=None, help="Tokens seen at once, at most.")
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
        help="Arithmetic.",
    )
    verb.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or mps.")
    verb.add_argument(
        "--samples",
        type=int,
        default=0,
        help="Also compose so many continuations, and compare them with the music of the split.",
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


def _add_generate() -> _Verb:
    verb = Parser()
    verb.add_argument("--prompt", type=str, default=None, help="MIDI file to continue.")
    verb.add_argument("--prompt-seconds", type=float, default=None, help="Use only its last part.")
    verb.add_argument(
        "--prompt-end",
        type=float,
        default=None,
        help="Continue it from this second on; default: its end.",
    )
    _add_tracks(verb)
    verb.add_argument("--seconds", type=float, default=30.0, help="Seconds of new music.")
    verb.add_argument("--out", type=str, required=True, help="MIDI file to write.")
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    _add_engine(verb)
    verb.add_argument(
        "--variations", type=int, default=1, help="Takes; more than one are numbered in --out."
    )
    verb.add_argument("--seed", type=int, default=None, help="Default: a random one, told.")
    verb.add_argument(
        "--continuation-only", action="store_true", help="Leave the prompt out of the file."
    )
    verb.add_argument("--end", action="store_true", help="Let the music find its own ending.")
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    _add_flags(verb, SamplingConfig)
    return "generate", verb, generate


def _add_originality() -> _Verb:
    verb = Parser()
    verb.add_argument("midi", type=str, help="MIDI file.")
    verb.add_argument(
        "--tokens", type=str, default=None, help="Tokens folder whose training music to look in."
    )
    verb.add_argument(
        "--index",
        type=str,
        default=None,
        help="Without the tokens: originality.npz, or the folder of a run that has it.",
    )
    _add_tracks(verb)
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    return "originality", verb, originality


def _add_render() -> _Verb:
    verb = Parser()
    verb.add_argument("midi", type=str, help="MIDI file.")
    verb.add_argument("--out", type=str, required=True, help="Sound file: .wav, .flac or .mp3.")
    _add_tracks(verb)
    return "render", verb, render


def _add_export() -> _Verb:
    verb = Parser()
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    verb.add_argument(
        "--format",
        choices=["hf", *ENGINES[2:]],
        default="hf",
        help="hf for transformers, or onnx or onnx-int8 for ONNX Runtime.",
    )
    verb.add_argument("--out", type=str, required=True, help="Folder (hf) or .onnx file to write.")
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    return "export", verb, export


def _add_import() -> _Verb:
    verb = Parser()
    verb.add_argument("file", type=str, help="File that torch.save wrote.")
    verb.add_argument(
        "--from",
        choices=["chapter14", "music-transformer"],
        required=True,
        help="The program that it comes from.",
    )
    verb.add_argument("--heads", type=int, default=8, help="Attention heads of the network.")
    verb.add_argument("--out", type=str, required=True, help="Checkpoint to write, .safetensors.")
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    return "import", verb, import_


def _add_app() -> _Verb:
    verb = Parser()
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    _add_engine(verb)
    verb.add_argument("--host", type=str, default="127.0.0.1", help="Address to listen on.")
    verb.add_argument("--port", type=int, default=7860, help="Port to listen on.")
    verb.add_argument("--share", action="store_true", help="Also open a public Gradio link.")
    verb.add_argument("--auth", type=str, default=None, help="NAME:PASSWORD asked of visitors.")
    return "app", verb, app


def _add_engine(verb: Parser) -> None:
    verb.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="What runs the network; auto is the quickest that is installed and does it well.",
    )


def _add_tracks(verb: Parser) -> None:
    verb.add_argument(
        "--tracks",
        type=str,
        default=None,
        help="Numbers or names of the tracks of the MIDI file to use, as 0,2; default: its pianos.",
    )


def _add_flags(verb: Parser, config: type[PrepareConfig] | type[SamplingConfig]) -> None:
    """A flag for each field of `config`, with the sentence under the field as its help."""
    told = {param.arg_name: param.description for param in parse_from_object(config).params}
    for knob in dataclasses.fields(config):
        verb.add_argument(
            f"--{knob.name.replace('_', '-')}",
            type=type(knob.default),
            default=knob.default,
            help=told[knob.name],
        )


def _from_flags(config: type[_Config], args: Namespace) -> _Config:
    """The dataclass made of the flags that `_add_flags` added."""
    return config(**{knob.name: args[knob.name] for knob in dataclasses.fields(config)})


# --- the verbs --------------------------------------------------------------------------------


def prepare(args: Namespace) -> None:
    """Turn a folder of MIDI files into a tokens folder."""
    from data_prep.prepare import prepare as run
    from data_prep.streaming import write_for_streaming
    from music_gpt.corpus import Corpus

    result, said = dict[str, Any](), []
    if args.midi is None and not (args.verify or args.litdata):
        raise InputError("--midi is missing; give the folder of MIDI files to prepare.")
    if args.midi is not None:
        result |= run(args.midi, args.out, _from_flags(PrepareConfig, args), progress=True)
        said.append(_prepared(result, args.out))
    if args.verify:
        result |= Corpus.open(args.out).verify()
        said.append(_verified(result, args.out))
    if args.litdata:
        result["litdata"] = write_for_streaming(args.out, args.litdata, workers=args.workers or 1)
        said.append(f"{args.litdata}: {sum(result['litdata'].values()):,} pieces for LitData.")
    _print_json(result) if args.json else _say("\n".join(said))


def train(args: Namespace) -> None:
    """Train a network on a tokens folder."""
    config = RunConfig(args.model, args.data, args.optim, args.train)
    if args.max_minutes is not None:
        settings = dataclasses.replace(config.train, max_minutes=args.max_minutes)
        config = dataclasses.replace(config, train=settings)
    from music_gpt.listening import Listening
    from music_gpt.training import train as run  # takes seconds: after what may be refused

    result = run(
        args.tokens,
        args.out,
        config,
        resume=args.resume,
        init_from=args.init_from,
        listener=Listening(args.tokens, args.out, config.train.samples),
    )
    if not result:
        return  # of several processes the first one speaks
    if args.json:
        _print_json(result)
    if not result["finished"]:
        raise KeyboardInterrupt(_trained(result))
    if not args.json:
        _say(_trained(result))


def evaluate(args: Namespace) -> None:
    """Measure how well a checkpoint foretells a split."""
    from music_gpt.checkpoint import load_checkpoint
    from music_gpt.corpus import Corpus
    from music_gpt.metrics import (
        likelihood,
        ngram_nats_per_token,
        require_max_tokens,
        sliding_nats_per_token,
    )
    from music_gpt.model import resolve_device, use_bf16
    from music_gpt.samples import require_samples

    require_max_tokens(args.max_tokens)
    device = resolve_device(args.device)
    corpus = Corpus.open(args.tokens)
    split = corpus.split(args.split)
    if args.samples:
        require_samples(split, args.samples, args.sample_seconds)  # before minutes of scoring
    model, card = load_checkpoint(args.checkpoint)
    model.to(device)
    how: dict[str, Any] = {
        "window": args.window,
        "max_tokens": args.max_tokens,
        "bf16": use_bf16(args.precision, device),
        "progress": True,
    }
    result = {
        "checkpoint": card["file"],
        "sha256": card["sha256"],
        "split": args.split,
        **likelihood(model, split, **how).to_dict(),
    }
    if args.sliding:
        result["sliding_nats_per_token"] = round(sliding_nats_per_token(model, split, **how), 4)
    if args.ngram:
        plain = ngram_nats_per_token(corpus.split("train"), split)
        result["ngram_nats_per_token"] = round(plain, 4)
    told, interrupted = _evaluated(result), False
    if args.samples:
        report = _sampled(args, model, card, split)
        result["samples"], interrupted = report.to_dict(), report.interrupted
        told = f"{told}\n{report.table()}"
    _print_json(result) if args.json else _say(told)
    if interrupted:
        raise KeyboardInterrupt("Interrupted; what had been composed was compared.")


def generate(args: Namespace) -> None:
    """Compose: continue a piece, or begin one."""
    from music_gpt.pianist import load

    out = _midi_path(args.out)
    if args.prompt == "":
        raise InputError("--prompt is empty; give a MIDI file, or leave it out for music anew.")
    if args.tracks is not None and args.prompt is None:
        raise InputError("--tracks chooses among the tracks of the prompt; give a --prompt.")
    prompt = None if args.prompt is None else _read_piece(args.prompt, args.tracks)
    composition = load(args.checkpoint, engine=args.engine).compose(
        prompt,
        seconds=args.seconds,
        seed=args.seed,
        variations=args.variations,
        prompt_seconds=args.prompt_seconds,
        prompt_end_seconds=args.prompt_end,
        include_prompt=not args.continuation_only,
        end=args.end,
        **dataclasses.asdict(_from_flags(SamplingConfig, args)),
    )
    for warning in composition.warnings:
        _say(warning)
    files = _take_paths(composition.n_takes, out)
    require_writable(files[-1])  # before minutes are spent on composing
    interrupted = _compose(composition)
    for take, file in enumerate(files):
        composition.write(file, take)
    result = {
        "files": [str(file) for file in files],
        "seeds": [composition.settings(take)["seed"] for take in range(composition.n_takes)],
        "seconds": round(composition.seconds_composed, 2),
        "tokens": composition.n_tokens,
        "tokens_per_second": round(composition.n_tokens / max(composition.elapsed, 1e-9), 1),
        "interrupted": interrupted,
        "warnings": list(composition.warnings),
    }
    _print_json(result) if args.json else _say(_generated(result))
    if interrupted:
        raise KeyboardInterrupt("Interrupted; what had been composed was written.")


def originality(args: Namespace) -> None:
    """Find the longest run of notes that a piece shares with the training music."""
    from music_gpt.likeness import CERTAIN_NOTES
    from music_gpt.likeness import originality as find

    if (args.tokens is None) == (args.index is None):
        raise InputError("Give --tokens or --index, one of them: where the training music is.")
    run = find(_read_piece(args.midi, args.tracks), args.tokens or args.index)
    if args.json:
        _print_json({"file": args.midi, "shared": None if run is None else run.to_dict()})
    elif run is None:
        _say(f"{args.midi}: no {CERTAIN_NOTES} notes in a row are as in the training music.")
    else:
        _say(f"{args.midi}: {run}")


def render(args: Namespace) -> None:
    """Turn a MIDI file into sound."""
    from music_gpt.audio import sound_format, write_audio

    sound_format(args.out)
    piece = _read_piece(args.midi, args.tracks)
    for warning in piece.warnings:
        _say(warning)
    require_writable(args.out)  # and its folder is made
    write_audio(piece, args.out)
    _say(f"{args.out}: {piece.seconds:.1f} seconds of music.")


def export(args: Namespace) -> None:
    """Write a checkpoint for other programs: transformers, or ONNX Runtime."""
    from music_gpt.checkpoint import load_checkpoint

    model, card = load_checkpoint(args.checkpoint)
    if args.format == "hf":
        from music_gpt.hugging_face import export_for_transformers

        files = export_for_transformers(model, card, args.out)
        said = f"{args.out}: {', '.join(files)}."
    else:
        from music_gpt.engines import export_onnx

        export_onnx(model, args.format, args.out)
        files, said = [args.out], f"{args.out}: {model.n_parameters / 1e6:.1f} M parameters."
    _print_json({"out": args.out, "files": files}) if args.json else _say(said)


def import_(args: Namespace) -> None:
    """Make a checkpoint of the weights of another program."""
    from music_gpt.checkpoint import save_checkpoint
    from music_gpt.foreign import import_weights

    out = Path(args.out)
    if out.suffix != ".safetensors":
        raise InputError(f"--out is {args.out!r}, but it has to end in .safetensors.")
    model, card = import_weights(args.file, args["from"], args.heads)
    save_checkpoint(out, model, card)
    result = {"out": args.out, "parameters": model.n_parameters, "note": card["note"]}
    said = f"{args.out}: {model.n_parameters / 1e6:.1f} M parameters. {card['note']}"
    _print_json(result) if args.json else _say(said)


def app(args: Namespace) -> None:
    """Open the page on which to compose."""
    if args.auth is not None and ":" not in args.auth:
        raise InputError("--auth has to be NAME:PASSWORD, with a colon between.")
    if not 0 <= args.port <= MAX_PORT:
        raise InputError(
            f"--port is {args.port}, but it has to be a whole number from 0 to {MAX_PORT}."
        )
    auth = None if args.auth is None else tuple(args.auth.split(":", 1))
    from music_gpt.pianist import load
    from music_gpt.ui import launch

    pianist = load(args.checkpoint, engine=args.engine)
    launch(pianist, host=args.host, port=args.port, share=args.share, auth=auth)


# --- their parts ------------------------------------------------------------------------------


def _sampled(args: Namespace, model: GPT, card: dict[str, Any], split: Split) -> SampleReport:
    """Continuations of prompts from `split`, composed and compared."""
    from music_gpt.engines import choose_engine
    from music_gpt.likeness import OriginalityIndex
    from music_gpt.pianist import Pianist
    from music_gpt.samples import sample

    try:
        index = OriginalityIndex.open(args.tokens)
    except InputError as error:
        _say(f"What is shared with the training music is not told: {error}")
        index = None
    pianist = Pianist(model, card, engine=choose_engine(model, card["sha256"], args.engine))
    return sample(pianist, split, args.samples, args.sample_seconds, index=index, progress=True)


def _midi_path(out: str) -> Path:
    """The path of the MIDI file, if its name is one."""
    path = Path(out)
    if path.suffix.lower() not in (".mid", ".midi"):
        raise InputError(f"--out is {out!r}, but it has to end in .mid.")
    return path


def _read_piece(midi: str, tracks: str | None) -> Piece:
    """The piece in the file `midi`; says which of its tracks it is, if it is not all of them."""
    from music_gpt.midi import read_piece

    wanted = None if tracks is None else [key for key in tracks.split(",") if key.strip()]
    piece = read_piece(midi, tracks=wanted)
    if not all(track.used for track in piece.tracks):
        used, others = (
            ", ".join(str(track) for track in piece.tracks if track.used == its)
            for its in (True, False)
        )
        _say(f"Tracks used: {used}; not used: {others}.")
    return piece


def _compose(composition: Composition) -> bool:
    """Run the composition under a progress bar; True if Ctrl-C ended it, with the music kept."""
    from tqdm import tqdm

    shape = "{percentage:3.0f} % |{bar:20}| {n:.1f} / {total:.0f} s{desc}"
    with tqdm(total=composition.seconds, file=sys.stderr, bar_format=shape) as bar:
        try:
            for _ in composition:
                bar.n = min(composition.seconds_composed, composition.seconds)
                speed = composition.n_tokens / max(composition.elapsed, 1e-9)
                bar.set_description_str(f" · {speed:.0f} tokens/s", refresh=False)
                bar.update(0)
        except KeyboardInterrupt:
            composition.close()
            return True
    return False


def _take_paths(n_takes: int, out: Path) -> list[Path]:
    """One file for each take; out.mid, or out-1.mid, out-2.mid and so on."""
    if n_takes == 1:
        return [out]
    return [out.with_stem(f"{out.stem}-{take + 1}") for take in range(n_takes)]


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def _prepared(report: dict[str, Any], out: str) -> str:
    lines = [
        f"{name}: {split['pieces']:,} pieces, {split['notes']:,} notes, "
        f"{split['hours']:.1f} hours, {split['tokens']:,} tokens"
        for name, split in report["splits"].items()
    ]
    n_left_out = len(report["left_out"])
    if n_left_out:
        files = "file was" if n_left_out == 1 else "files were"
        lines.append(f"{n_left_out:,} {files} left out; {out}/report.json says why.")
    return "\n".join([*lines, f"Next: music-gpt train --tokens {out} --out runs/NAME"])


def _verified(checked: dict[str, Any], out: str) -> str:
    return (
        f"{out}: all {checked['files']} files ({checked['bytes'] / 1e6:,.1f} MB) are as they were "
        "written."
    )


def _trained(result: dict[str, Any]) -> str:
    loss = result["nats_per_token"]
    figure = "" if loss is None else f", {loss:.3f} nats/token"
    state = "Finished" if result["finished"] else f"Stopped by {result['stopped_by']}"
    lines = [
        f"{state} after {result['steps']:,} steps, {result['tokens']:,} tokens and "
        f"{result['minutes']} minutes{figure}."
    ]
    if not result["finished"]:
        lines.append("Go on with the same command and --resume.")
    lines += [f"Report: {result['report']}", f"Checkpoint: {result['checkpoint']}"]
    return "\n".join(lines)


def _evaluated(result: dict[str, Any]) -> str:
    units = {
        "nats_per_token": "nats/token",
        "nats_per_note": "nats/note",
        "nats_per_second": "nats/second",
        "accuracy": "of the tokens foretold",
        "sliding_nats_per_token": "nats/token with the sliding window",
        "ngram_nats_per_token": "nats/token of an order-2 n-gram",
    }
    head = f"{result['checkpoint']} on {result['tokens']:,} tokens of {result['split']}:"
    return "\n".join([head, *(f"{result[k]:8.4f} {u}" for k, u in units.items() if k in result)])


def _generated(result: dict[str, Any]) -> str:
    return (
        f"{', '.join(result['files'])}: {result['seconds']:.1f} seconds, "
        f"{result['tokens_per_second']:.0f} tokens/s, seed {', '.join(map(str, result['seeds']))}."
    )
