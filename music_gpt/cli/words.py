"""What the modules of the verbs share: flags -> values, and what was done -> lines for a reader.

With --json one JSON object goes to standard output; everything else goes to standard error.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from docstring_parser import parse_from_object
from jsonargparse import Namespace

from music_gpt.cli.parsing import Parser
from music_gpt.config.preparing import PrepareConfig
from music_gpt.config.prompt import PromptChange
from music_gpt.config.sampling import ENGINES, SamplingConfig
from music_gpt.errors import InputError
from music_gpt.process import print_out, say

if TYPE_CHECKING:
    from music_gpt.midi.piece import Piece

Verb = tuple[str, Parser, Callable[[Namespace], None]]
"""Its name, its flags, and what it does."""
_Config = TypeVar("_Config", PrepareConfig, PromptChange, SamplingConfig)


def add_engine(verb: Parser) -> None:
    """The flag that chooses what runs the network."""
    verb.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="What runs the network; auto is the quickest on the CPU that does it well.",
    )


def add_tracks(verb: Parser) -> None:
    """The flag that chooses tracks of a MIDI file."""
    verb.add_argument(
        "--tracks",
        type=str,
        default=None,
        help="Numbers or names of the tracks of the MIDI file to use, as 0,2; default: its pianos.",
    )


def add_flags(
    verb: Parser, config: type[PrepareConfig] | type[PromptChange] | type[SamplingConfig]
) -> None:
    """A flag for each field of `config`, with the sentence under the field as its help."""
    told = {param.arg_name: param.description for param in parse_from_object(config).params}
    for knob in dataclasses.fields(config):
        verb.add_argument(
            f"--{knob.name.replace('_', '-')}",
            type=type(knob.default),
            default=knob.default,
            help=told[knob.name],
        )


def from_flags(config: type[_Config], args: Namespace) -> _Config:
    """The dataclass made of the flags that `add_flags` added."""
    return config(**{knob.name: args[knob.name] for knob in dataclasses.fields(config)})


def midi_path(out: str) -> Path:
    """The path of the MIDI file, if its name is one."""
    path = Path(out)
    if path.suffix.lower() not in (".mid", ".midi"):
        raise InputError(f"--out is {out!r}, but it has to end in .mid.")
    return path


def midi_data(path: str) -> bytes:
    """The bytes of a MIDI file of which more than the notes is wanted."""
    from music_gpt.midi.files import read_file
    from music_gpt.midi.piece import DEFAULT_LIMITS

    return read_file(path, DEFAULT_LIMITS)


def read_chosen(midi: str | bytes, tracks: str | None) -> Piece:
    """The piece in a MIDI file; says which of its tracks it is, if it is not all of them."""
    from music_gpt.midi.piece import read_piece, track_keys

    piece = read_piece(midi, tracks=track_keys(tracks))
    if not all(track.used for track in piece.tracks):
        used, others = (
            ", ".join(str(track) for track in piece.tracks if track.used == its)
            for its in (True, False)
        )
        say(f"Tracks used: {used}; not used: {others}.")
    return piece


def part_words(part: tuple[float, float]) -> str:
    """Where a part begins and, if it is before the end of the music, where it ends.

    >>> part_words((36.0, math.inf)), part_words((4.0, 6.5))
    ('from 36.0 s on', 'from 4.0 to 6.5 s')
    """
    first, last = part
    return f"from {first:.1f} s on" if last == math.inf else f"from {first:.1f} to {last:.1f} s"


@contextmanager
def whole_or_nothing() -> Iterator[None]:
    """Tell of an interruption what it leaves, in a block that writes at its end: nothing."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        told = str(interrupt) or "Interrupted; nothing was written."
        raise KeyboardInterrupt(told) from None


def print_json(value: Any) -> None:
    """The one line for programs, to standard output."""
    print_out(json.dumps(value) + "\n")  # plain letters only: every encoding has them
