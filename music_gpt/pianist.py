"""A piece -> its continuation: here ids meet music.

The prompt becomes ids (`music_gpt.hearing`), ids follow ids (`music_gpt.generation`), and here they
become notes again, one by one. The module knows neither files of tokens nor training.
"""

from __future__ import annotations

import json
import math
import operator
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np

from music_gpt import __version__
from music_gpt.checkpoint import load_checkpoint
from music_gpt.config import N_EVENTS, SamplingConfig
from music_gpt.engines import choose_engine
from music_gpt.errors import InputError
from music_gpt.events import (
    EOS,
    FRAMES_PER_SECOND,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    velocity_value,
)
from music_gpt.generation import Engine, TorchEngine, generate
from music_gpt.grammar import Ending, Start
from music_gpt.hearing import Prompt, hear
from music_gpt.midi import (
    Piece,
    PieceLike,
    as_piece,
    make_notes,
    read_piece,
    to_pretty_midi,
    write_midi,
)
from music_gpt.model import GPT
from music_gpt.notes import NOTE_DTYPE, Notes

if TYPE_CHECKING:
    from pretty_midi import PrettyMIDI

MIN_SECONDS, MAX_SECONDS = 0.1, 3600.0
MAX_VARIATIONS = 16
MAX_SEED = 2**53 - 1
"""The largest whole number that JSON keeps everywhere."""
MAX_GIVEN_SEED = MAX_SEED - MAX_VARIATIONS
"""Each take has a seed of its own, from the given one up."""
DEFAULT_SEED_LIMIT = 2**31
"""Seeds that are drawn, rather than given, stay below it: short enough to copy by hand."""

_DEFAULT = SamplingConfig()


def load(
    path: str | Path | None = None, *, engine: str = "auto", threads: int | None = None
) -> Pianist:
    """The pianist of the checkpoint at `path`, or of the bundled one.

    Args:
        path: a checkpoint.
        engine: what runs the network: torch, onnx, onnx-int8, or auto for the quickest of them that
            is installed and foretells music as well as torch does (`music_gpt.engines`).
        threads: what the engine shall use; None tries for half a second what is fastest.

    Raises:
        InputError: there is no such file, it is no checkpoint of this vocabulary, or there is no
            such engine for it.
    """
    model, card = load_checkpoint(path)
    threads = None if threads is None else _whole("threads", threads, 1, 1024)
    return Pianist(model, card, engine=choose_engine(model, card["sha256"], engine, threads))


class ComposedNote(NamedTuple):
    """One note that has ended; times in seconds from the head of the kept prompt."""

    take: int
    start: float
    end: float
    pitch: int
    velocity: int


class ComposeOptions(TypedDict, total=False):
    """What `Pianist.compose` takes besides the prompt."""

    seconds: float
    seed: int | None
    prompt_seconds: float | None
    prompt_end_seconds: float | None
    tracks: Sequence[int | str] | None
    include_prompt: bool
    end: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    max_wait_seconds: float
    max_note_seconds: float
    release_after_seconds: float


# --- events -> notes -----------------------------------------------------------------------------


class _Line:
    """One take as music: its events so far, as notes on the clock of the prompt."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt, self._seam = prompt, prompt.start.seam
        self.frame = prompt.start.frame
        self._velocity = prompt.start.velocity
        self._struck: dict[int, tuple[int, int]] = {}  # pitch -> frame, velocity
        self._ringing = dict(prompt.ringing)  # pitch -> place in the prompt
        self._released: dict[int, int] = {}  # place in the prompt -> frame
        self._notes: list[tuple[float, float, int, int]] = []

    def add(self, event: int) -> tuple[float, float, int, int] | None:
        """One more event; gives the new note that it ends."""
        if event < NOTE_OFF:
            self._struck[event] = self.frame, velocity_value(self._velocity)
        elif event < TIME_SHIFT:
            return self._release(event - NOTE_OFF)
        elif event < VELOCITY:
            self.frame += event - (TIME_SHIFT - 1)
        elif event < EOS:
            self._velocity = event - VELOCITY
        return None

    def _release(self, pitch: int) -> tuple[float, float, int, int] | None:
        if pitch in self._ringing:
            self._released[self._ringing.pop(pitch)] = self.now
            return None
        self._notes.append(self._closed(pitch, *self._struck.pop(pitch)))
        return self._notes[-1]

    def _closed(self, pitch: int, frame: int, velocity: int) -> tuple[float, float, int, int]:
        end = max(self.frame, frame + 1)
        return frame / FRAMES_PER_SECOND, end / FRAMES_PER_SECOND, pitch, velocity

    @property
    def now(self) -> int:
        """The time that has been composed, in frames; not before the seam."""
        return max(self.frame, self._seam)

    def close(self) -> list[tuple[float, float, int, int]]:
        """End what still sounds; gives the new notes among it."""
        pitches = sorted([*self._ringing, *self._struck])
        ended = [self._release(pitch) for pitch in pitches]
        return [note for note in ended if note is not None]

    def new_notes(self) -> Notes:
        """Notes struck in the new music; what still sounds ends now."""
        still = [self._closed(pitch, *struck) for pitch, struck in self._struck.items()]
        rows = [*self._notes, *still]
        return make_notes(rows) if rows else np.zeros(0, NOTE_DTYPE)

    def notes(self) -> Notes:
        """The prompt, its last notes as long as they ring, and the new music."""
        heard = self._prompt.notes.copy()
        for place in self._ringing.values():
            heard["end"][place] = self.now / FRAMES_PER_SECOND
        for place, frame in self._released.items():
            heard["end"][place] = frame / FRAMES_PER_SECOND
        both = np.concatenate([heard, self.new_notes()])
        return both[np.lexsort((both["pitch"], both["start"]))]


class Composition:
    """Takes in the making: iterate to compose, and ask for the music at any time.

    Iterating gives each new note when it has ended, take by take as they come. The notes of the
    prompt are not among them; those that ring on into the new music are in `notes`, with their
    full length.
    """

    def __init__(
        self, events: Iterator[tuple[int, int]], prompt: Prompt, settings: Mapping[str, Any]
    ) -> None:
        self._events: Iterator[tuple[int, int]] | None = events
        self._prompt, self._settings = prompt, dict(settings)
        self.n_takes: int = settings["variations"]
        self._lines = [_Line(prompt) for _ in range(self.n_takes)]
        self.prompt_notes: Notes = prompt.notes
        """The kept part of the prompt, times from 0."""
        self.seam_seconds: float = prompt.start.seam / FRAMES_PER_SECOND
        """Where the new music begins."""
        self.warnings: list[str] = list(prompt.warnings)
        """What a person should know: sentences."""
        self.seconds: float = settings["seconds"]
        """Seconds of new music that were asked for."""
        self.n_tokens = 0
        """Events composed so far, all takes together."""
        self.elapsed = 0.0
        """Seconds that composing has taken."""

    def __iter__(self) -> Composition:
        return self

    def __next__(self) -> ComposedNote:
        began = time.perf_counter()
        try:
            while self._events is not None:
                number, event = next(self._events)
                self.n_tokens += 1
                note = self._lines[number].add(event)
                if note is not None:
                    return ComposedNote(number, *note)
        except BaseException:
            # the last note, or something that stops the music: keep what is there
            self.close()
            raise
        finally:
            self.elapsed += time.perf_counter() - began
        raise StopIteration

    @property
    def seconds_composed(self) -> float:
        """Seconds of new music that the slowest take has."""
        slowest = min(line.now for line in self._lines)
        return (slowest - self._prompt.start.seam) / FRAMES_PER_SECOND

    def close(self) -> None:
        """Stop composing: the music stays as it is, and what still sounds ends here."""
        events, self._events = self._events, None
        close = getattr(events, "close", None)
        if close is not None:
            close()
        if events is not None:
            for line in self._lines:
                line.close()

    def notes(self, take: int = 0) -> Notes:
        """The kept prompt and the new music so far; what still sounds ends now.

        Raises `InputError`, as all that ask for a take do, where there is no such take.
        """
        return self._line(take).notes()

    def new_notes(self, take: int = 0) -> Notes:
        """The new music so far, on the same clock as `notes`."""
        return self._line(take).new_notes()

    def settings(self, take: int = 0) -> dict[str, Any]:
        """All that made this take: with its seed, `variations=1` makes it again."""
        self._line(take)
        return {**self._settings, "seed": self._settings["seed"] + take, "variations": 1}

    def midi(self, take: int = 0) -> PrettyMIDI:
        """The take as a PrettyMIDI, with the settings in a text event."""
        return to_pretty_midi(self._file_notes(take), text=settings_text(self.settings(take)))

    def write(self, path: str | Path, take: int = 0) -> None:
        """Write the take to a MIDI file, whole or not at all, with the settings in a text event."""
        write_midi(self._file_notes(take), path, text=settings_text(self.settings(take)))

    def _line(self, take: int) -> _Line:
        return self._lines[_whole("take", take, 0, self.n_takes - 1)]

    def _file_notes(self, take: int) -> Notes:
        """The notes with or without the prompt, as it was asked for."""
        if self._settings["include_prompt"]:
            return self.notes(take)
        notes = self.new_notes(take)
        notes["start"] -= self.seam_seconds
        notes["end"] -= self.seam_seconds
        return notes


def settings_text(settings: Mapping[str, Any]) -> str:
    """What goes into a MIDI file as a text event: all that made the take, as one line of JSON.

    >>> settings_text({"seed": 7})
    'music-gpt {"seed": 7}'
    """
    return f"music-gpt {json.dumps(dict(settings), sort_keys=True, ensure_ascii=False)}"


# --- the pianist ---------------------------------------------------------------------------------


class Pianist:
    """A network that continues pieces."""

    def __init__(
        self, model: GPT, card: Mapping[str, Any] | None = None, *, engine: Engine | None = None
    ) -> None:
        """`engine` runs the network in place of torch.

        Raises:
            InputError: the network is not one for music.
        """
        self.config, self.card = model.config, dict(card or {})
        if self.config.vocab_size != N_EVENTS:
            raise InputError(
                f"The network knows {self.config.vocab_size:,} tokens, but music has {N_EVENTS}; "
                "use a checkpoint that was trained on music."
            )
        self._engine = engine if engine is not None else TorchEngine(model)

    def compose(
        self,
        prompt: PieceLike | None = None,
        *,
        seconds: float = 30.0,
        seed: int | None = None,
        variations: int = 1,
        prompt_seconds: float | None = None,
        prompt_end_seconds: float | None = None,
        tracks: Sequence[int | str] | None = None,
        include_prompt: bool = True,
        end: bool = False,
        temperature: float = _DEFAULT.temperature,
        top_k: int = _DEFAULT.top_k,
        top_p: float = _DEFAULT.top_p,
        min_p: float = _DEFAULT.min_p,
        max_wait_seconds: float = _DEFAULT.max_wait_seconds,
        max_note_seconds: float = _DEFAULT.max_note_seconds,
        release_after_seconds: float = _DEFAULT.release_after_seconds,
    ) -> Composition:
        """Continue `prompt`, or begin a new piece; nothing is computed before it is iterated.

        Args:
            prompt: a path, bytes, a PrettyMIDI, notes, a piece, or None for music from nothing.
            seconds: of new music, 0.1 to 3600, met within one second.
            seed: take i is drawn with seed + i, so each variation can be made again alone; None
                draws a seed, which `Composition.settings` tells.
            variations: takes side by side, 1 to 16.
            prompt_seconds: hear only so much of the prompt before the point where it is continued.
            prompt_end_seconds: continue the prompt from this point rather than from its end; notes
                that sound across it are held over into the new music.
            tracks: numbers or names of the tracks of a MIDI file to use, as for `read_piece`.
            include_prompt: whether `Composition.midi` has the kept prompt before the new music.
            end: let the piece end by itself, between 60 % of `seconds` and some seconds more.
            temperature: divides the logits; 0 takes the likeliest event and ignores the seed.
            top_k: draw from the k likeliest events only; 0 for all.
            top_p: draw from the likeliest events that together hold this probability.
            min_p: leave out events less likely than this share of the likeliest one.
            max_wait_seconds: longest wait in a row.
            max_note_seconds: longest note.
            release_after_seconds: notes that sound longer become ever likelier to be released.

        Raises:
            InputError: the prompt cannot be read, lacks a track or has nothing to continue there,
                or a number is out of range.
        """
        sampling = SamplingConfig(
            temperature,
            top_k,
            top_p,
            min_p,
            max_wait_seconds,
            max_note_seconds,
            release_after_seconds,
        )
        seconds = _number("seconds", seconds, MIN_SECONDS, MAX_SECONDS)
        variations = _whole("variations", variations, 1, MAX_VARIATIONS)
        prompt_seconds = _part_seconds("prompt_seconds", prompt_seconds)
        prompt_end_seconds = _part_seconds("prompt_end_seconds", prompt_end_seconds)
        if seed is None:
            seed = secrets.randbelow(DEFAULT_SEED_LIMIT)
        seed = _whole("seed", seed, 0, MAX_GIVEN_SEED)
        part = (prompt_seconds, prompt_end_seconds, tracks)
        if prompt is None and any(choice is not None for choice in part):
            raise InputError(
                "prompt_seconds, prompt_end_seconds and tracks choose a part of the prompt; give a "
                "prompt, or leave them out."
            )
        piece = None if prompt is None else _as_prompt(prompt, tracks)
        heard = self._hear(piece, prompt_seconds, max_wait_seconds, prompt_end_seconds)
        ending = Ending.after(heard.start.seam, seconds, own=end)
        seeds = [seed + take for take in range(variations)]
        settings = {
            "music_gpt": __version__,
            **self._name(),
            "engine": self._engine.name,
            "seconds": seconds,
            "seed": seed,
            "variations": variations,
            "end": bool(end),
            "prompt_seconds": prompt_seconds,
            "prompt_end_seconds": prompt_end_seconds,
            "tracks": None if piece is None else _some_tracks(piece),
            "include_prompt": bool(include_prompt),
            **asdict(sampling),
        }
        events = generate(self._engine, heard.start, ending, sampling, seeds)
        return Composition(events, heard, settings)

    def _hear(
        self, piece: Piece | None, seconds: float | None, longest_wait: float, end: float | None
    ) -> Prompt:
        if piece is None:
            return Prompt(np.zeros(0, NOTE_DTYPE), Start())
        heard = hear(piece, self._engine.context, seconds, longest_wait, end)
        heard.warnings[:0] = piece.warnings
        return heard

    def _name(self) -> dict[str, str]:
        """The checkpoint's file and hash, where the card tells them."""
        names = {"file": "checkpoint", "sha256": "checkpoint_sha256"}
        return {names[key]: str(self.card[key]) for key in names if key in self.card}

    def stream(
        self, prompt: PieceLike | None = None, **options: Unpack[ComposeOptions]
    ) -> Iterator[ComposedNote]:
        """Continue `prompt`, note by note as they end; options are those of `compose`."""
        return self.compose(prompt, **options)

    def continue_piece(
        self, prompt: PieceLike | None = None, **options: Unpack[ComposeOptions]
    ) -> PrettyMIDI:
        """The kept prompt and its continuation; options are those of `compose`."""
        return self.variations(prompt, n=1, **options)[0]

    def variations(
        self, prompt: PieceLike | None = None, *, n: int = 4, **options: Unpack[ComposeOptions]
    ) -> list[PrettyMIDI]:
        """`n` continuations of one prompt; options are those of `compose`."""
        composition = self.compose(prompt, variations=n, **options)
        for _ in composition:
            pass
        return [composition.midi(take) for take in range(composition.n_takes)]


def _as_prompt(prompt: PieceLike, tracks: Sequence[int | str] | None) -> Piece:
    """The prompt as a piece, of these tracks only."""
    if tracks is None:
        return as_piece(prompt)
    if isinstance(prompt, (str, Path, bytes, bytearray)):
        return read_piece(bytes(prompt) if isinstance(prompt, bytearray) else prompt, tracks=tracks)
    raise InputError(
        f"tracks chooses among those of a MIDI file, but the prompt is a {type(prompt).__name__}; "
        "give the path or the bytes of a file."
    )


def _some_tracks(piece: Piece) -> list[int] | None:
    """Numbers of the tracks that are used, or None where there are no others."""
    used = [track.number for track in piece.tracks if track.used]
    return used if len(used) < len(piece.tracks) else None


def _part_seconds(name: str, value: object) -> float | None:
    """Seconds of a prompt, or None for all of them."""
    return None if value is None else _number(name, value, MIN_SECONDS, math.inf)


def _number(name: str, value: object, low: float, high: float) -> float:
    try:
        number = float(value)  # type: ignore[arg-type] # what is no number fails here
    except (TypeError, ValueError):
        number = math.nan
    if not (low <= number <= high and math.isfinite(number)):
        allowed = f"from {low:g} to {high:g}" if high < math.inf else f"of {low:g} or more"
        raise InputError(f"{name} is {value!r}, but it has to be a number {allowed}.")
    return number


def _whole(name: str, value: object, low: int, high: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type] # what is no integer fails here
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise InputError(f"{name} is {value!r}, but it has to be a whole number {low} to {high}.")
    return number
