"""Words on the command line -> work done: the verbs of `music-gpt`, and the parser that knows them.

What a verb needs is imported inside it: Lightning and Gradio take seconds, and most verbs need
neither. The verbs that compose are in `music_gpt.cli.composing`, those that measure in
`music_gpt.cli.judging`.
"""

from __future__ import annotations

import dataclasses
import errno
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace, set_parsing_settings

from music_gpt import __version__
from music_gpt.checking import whole
from music_gpt.cli.composing import add_generate, add_redo
from music_gpt.cli.judging import add_evaluate, add_originality
from music_gpt.cli.parsing import Parser
from music_gpt.cli.words import (
    Verb,
    add_engine,
    add_flags,
    add_tracks,
    from_flags,
    midi_data,
    part_words,
    print_json,
    read_chosen,
    whole_or_nothing,
)
from music_gpt.config.preparing import PrepareConfig
from music_gpt.config.sampling import ONNX_ENGINES
from music_gpt.config.training import RunConfig
from music_gpt.errors import InputError, library_faults
from music_gpt.files import require_other, require_writable
from music_gpt.printable import printable_name, shown
from music_gpt.process import interrupted, say
from music_gpt.settings import SECTIONS

if TYPE_CHECKING:
    from music_gpt.soundfont import SoundFont

MAX_PORT = 65_535


def run(argv: Sequence[str] | None) -> None:
    """Do what the words say (None: those of the process); without a verb, show the help."""
    parser, verbs = _parser()
    words = sys.argv[1:] if argv is None else list(argv)
    parser.verb = next((word for word in words[:1] if word in verbs), "")
    if not parser.verb:
        parser.parse_args(words)
        parser.print_help()
        return
    flags, verb = verbs[parser.verb]
    parser.flags = flags.flags = flags.own_flags()  # either of them may complain
    try:
        chosen = parser.instantiate(parser.parse_args(words))[parser.verb]
        flags.refuse_empty(chosen)
        with library_faults(ImportError):
            verb(chosen)
    except InputError as error:
        raise InputError(error.with_flags(parser.flags)) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        name = shown(Path(str(error.filename)))
        raise InputError(f"The name {name} is too long; give a shorter one.") from error


def _parser() -> tuple[Parser, dict[str, tuple[Parser, Callable[[Namespace], None]]]]:
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = Parser(
        prog="music-gpt",
        description="Train a GPT on piano MIDI, compose with it, and take the music away.",
        version=__version__,
    )
    verbs = parser.add_subcommands(dest="verb", required=False)
    functions: dict[str, tuple[Parser, Callable[[Namespace], None]]] = {}
    adds = (_add_prepare, _add_train, add_evaluate, add_generate, add_redo, add_originality)
    for add in (*adds, _add_render, _add_export, _add_import, _add_app, _add_doctor):
        name, verb, function = add()
        summary = str(function.__doc__).splitlines()[0]
        verb.description = summary
        verbs.add_subcommand(name, verb, help=summary)
        functions[name] = verb, function
    return parser, functions


def _add_prepare() -> Verb:
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
    add_flags(verb, PrepareConfig)
    return "prepare", verb, prepare


def _add_train() -> Verb:
    verb = Parser()
    verb.add_argument("--config", action="config", help="YAML file; see configs/.")
    verb.add_argument("--tokens", type=str, required=True, help="Tokens folder.")
    verb.add_argument("--out", type=str, required=True, help="Folder of this run, as runs/NAME.")
    verb.add_argument("--resume", action="store_true", help="Go on with the run in --out.")
    verb.add_argument(
        "--max-minutes",
        type=float,
        default=None,
        help="End, cooled down, within so many minutes; the same as --train.max_minutes.",
    )
    verb.add_argument("--init-from", type=str, default=None, help="Checkpoint to start from.")
    verb.add_argument("--json", action="store_true", help="Print the result as one JSON object.")
    for name, config in SECTIONS.items():
        verb.add_argument(f"--{name}", type=config, default=config())
    return "train", verb, train


def _add_render() -> Verb:
    verb = Parser()
    verb.add_argument("midi", type=str, help="MIDI file.")
    verb.add_argument(
        "--out",
        type=str,
        required=True,
        help="Sound, .wav, .flac or .mp3; or a picture of the piano roll, .png or .svg.",
    )
    add_tracks(verb)
    verb.add_argument(
        "--soundfont",
        type=str,
        default=None,
        help="SoundFont (.sf2, .sf3) to play it on; default: the bundled piano.",
    )
    return "render", verb, render


def _add_export() -> Verb:
    verb = Parser()
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    verb.add_argument(
        "--format",
        choices=["hf", *ONNX_ENGINES],
        default="hf",
        help="hf for transformers, or onnx or onnx-int8 for ONNX Runtime.",
    )
    verb.add_argument("--out", type=str, required=True, help="Folder (hf) or .onnx file to write.")
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    return "export", verb, export


def _add_import() -> Verb:
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


def _add_app() -> Verb:
    verb = Parser()
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    add_engine(verb)
    verb.add_argument(
        "--soundfont",
        type=str,
        default=None,
        help="SoundFont that plays what is saved; the page itself plays the bundled piano.",
    )
    verb.add_argument("--host", type=str, default="127.0.0.1", help="Address to listen on.")
    verb.add_argument("--port", type=int, default=7860, help="Port to listen on.")
    verb.add_argument("--share", action="store_true", help="Also open a public Gradio link.")
    verb.add_argument("--auth", type=str, default=None, help="NAME:PASSWORD asked of visitors.")
    return "app", verb, app


def _add_doctor() -> Verb:
    verb = Parser()
    verb.add_argument("--checkpoint", type=str, default=None, help="Default: the bundled one.")
    add_engine(verb)
    verb.add_argument("--json", action="store_true", help="Print one JSON object.")
    return "doctor", verb, doctor


# --- the verbs --------------------------------------------------------------------------------


def prepare(args: Namespace) -> None:
    """Turn a folder of MIDI files into a tokens folder."""
    from data_prep.prepare import prepare as run
    from data_prep.streaming import require_streaming, write_for_streaming
    from music_gpt.tokens.corpus import Corpus

    result, said = dict[str, Any](), []
    if args.midi is None and not (args.verify or args.litdata):
        raise InputError("--midi is missing; give the folder of MIDI files to prepare.")
    if args.litdata:
        require_streaming(args.litdata)  # before the folder is read
    if args.midi is not None:
        result |= run(args.midi, args.out, from_flags(PrepareConfig, args), progress=True)
        said.append(_prepared(result, args.out))
    if args.verify:
        result |= Corpus.open(args.out).verify()
        said.append(_verified(result, args.out))
    if args.litdata:
        result["litdata"] = write_for_streaming(args.out, args.litdata, workers=args.workers or 1)
        n_pieces = sum(result["litdata"].values())
        said.append(f"{shown(args.litdata)}: {n_pieces:,} pieces for LitData.")
    print_json(result) if args.json else say("\n".join(said))


def train(args: Namespace) -> None:
    """Train a network on a tokens folder."""
    config = RunConfig(args.model, args.data, args.optim, args.train)
    if args.max_minutes is not None:
        settings = dataclasses.replace(config.train, max_minutes=args.max_minutes)
        config = dataclasses.replace(config, train=settings)
    from music_gpt.training_samples import (
        train_and_listen,  # takes seconds: after what may be refused
    )

    result = train_and_listen(
        args.tokens, args.out, config, resume=args.resume, init_from=args.init_from
    )
    if not result:
        return  # of several processes the first one speaks
    if args.json:
        print_json(result)
    if not result["finished"]:
        raise interrupted(result["stopped_by"], _trained(result))
    if not args.json:
        say(_trained(result))


@whole_or_nothing()
def render(args: Namespace) -> None:
    """Turn a MIDI file into sound, or into a picture of its piano roll."""
    from music_gpt.composing.provenance import ALL_NEW, new_part
    from music_gpt.report.picture import is_picture, write_picture

    is_drawn = is_picture(args.out)
    if is_drawn and args.soundfont is not None:
        raise InputError(f"--soundfont plays, but {shown(args.out)} is a picture; leave it out.")
    if not is_drawn:
        _require_sound(args.out)
    soundfont = _soundfont(args.soundfont)
    data = midi_data(args.midi)
    piece = read_chosen(data, args.tracks)
    for warning in piece.warnings:
        say(warning)
    part = new_part(data)
    require_writable(args.out)  # and its folder is made
    if is_drawn:
        write_picture(piece.sounding_notes, args.out, composed=part)
    else:
        from music_gpt.audio import write_audio

        write_audio(piece, args.out, soundfont=soundfont)
    composed = "" if part is None or part == ALL_NEW else f", composed {part_words(part)}"
    played = "" if soundfont is None else f", played by {soundfont}"
    say(f"{shown(args.out)}: {piece.seconds:.1f} seconds of music{composed}{played}.")


@whole_or_nothing()
def export(args: Namespace) -> None:
    """Write a checkpoint for other programs: transformers, or ONNX Runtime."""
    from music_gpt.network.checkpoint import load_checkpoint

    model, card = load_checkpoint(args.checkpoint)
    if args.format == "hf":
        from music_gpt.network.hugging_face import export_for_transformers

        files = export_for_transformers(model, card, args.out)
        said = f"{shown(args.out)}: {', '.join(files)}."
    else:
        from music_gpt.generation.engines import export_onnx

        export_onnx(model, args.format, args.out)
        files, said = [args.out], f"{shown(args.out)}: {model.n_parameters / 1e6:.1f} M parameters."
    print_json({"out": args.out, "files": files}) if args.json else say(said)


@whole_or_nothing()
def import_(args: Namespace) -> None:
    """Make a checkpoint of the weights of another program."""
    from music_gpt.network.checkpoint import save_checkpoint
    from music_gpt.network.foreign import import_weights

    out = Path(args.out)
    if out.suffix != ".safetensors":
        raise InputError(f"--out is {args.out!r}, but it has to end in .safetensors.")
    require_other(out, args.file)
    require_writable(out)
    model, card = import_weights(args.file, args["from"], args.heads)
    save_checkpoint(out, model, card)
    result = {"out": args.out, "parameters": model.n_parameters, "note": card["note"]}
    said = f"{shown(args.out)}: {model.n_parameters / 1e6:.1f} M parameters. {card['note']}"
    print_json(result) if args.json else say(said)


def app(args: Namespace) -> None:
    """Open the page on which to compose."""
    if args.auth is not None and ":" not in args.auth:
        raise InputError("--auth has to be NAME:PASSWORD, with a colon between.")
    whole("port", args.port, 0, MAX_PORT)
    auth = None if args.auth is None else tuple(args.auth.split(":", 1))
    from music_gpt.composing.pianist import load
    from music_gpt.ui import launch

    soundfont = _soundfont(args.soundfont)
    pianist = load(args.checkpoint, engine=args.engine)
    launch(
        pianist,
        soundfont=soundfont,
        host=args.host,
        port=args.port,
        share=args.share,
        auth=auth,
    )


def doctor(args: Namespace) -> None:
    """Find out what works on this machine, and what to do about what does not."""
    from music_gpt.doctor import findings

    found = []
    with redirect_stdout(sys.stderr):  # what libraries say is no part of the result
        for finding in findings(args.checkpoint, args.engine):
            found.append(finding)
            if not args.json:
                say(finding.line())
    faults = [finding.subject for finding in found if finding.is_fault]
    if args.json:
        print_json({"works": not faults, "findings": list(map(dataclasses.asdict, found))})
    if faults:
        raise InputError(f"Not all works: {', '.join(faults)}; what to do stands above.")
    if not args.json:
        say("All that is needed works.")


# --- their parts ------------------------------------------------------------------------------


def _soundfont(path: str | None) -> SoundFont | None:
    from music_gpt.soundfont import open_soundfont

    return None if path is None else open_soundfont(path)


def _require_sound(out: str) -> None:
    """Raise `InputError` unless the name is that of a sound file, where it is none of a picture."""
    from music_gpt.audio import ENDINGS, FORMATS

    path = Path(out)
    if path.suffix.lower() not in FORMATS:
        raise InputError(
            f"Neither sound nor a picture can be written to {path.name!r}; end the name in "
            f"{ENDINGS}, or in .png or .svg for a picture."
        )


def _prepared(report: dict[str, Any], out: str) -> str:
    lines = [
        f"{name}: {split['pieces']:,} pieces, {split['notes']:,} notes, "
        f"{split['hours']:.1f} hours, {split['tokens']:,} tokens"
        for name, split in report["splits"].items()
    ]
    n_left_out = len(report["left_out"])
    if n_left_out:
        files = "file was" if n_left_out == 1 else "files were"
        lines.append(f"{n_left_out:,} {files} left out; {shown(out)}/report.html says why.")
    lines += report["stray_rows"]
    if "train" in report["splits"]:
        lines.append(f"Next: music-gpt train --tokens {printable_name(out)} --out runs/NAME")
    else:
        lines.append("No piece is in the training split, so there is nothing to train on.")
    return "\n".join(lines)


def _verified(checked: dict[str, Any], out: str) -> str:
    return (
        f"{shown(out)}: all {checked['files']} files ({checked['bytes'] / 1e6:,.1f} MB) are as "
        "they were written."
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
    lines += [
        f"{name.title()}: {printable_name(result[name])}" for name in ("report", "checkpoint")
    ]
    return "\n".join(lines)
