"""A piece -> its continuation: here ids meet music.

The prompt becomes ids (`music_gpt.composing.prompt`), ids follow ids
(`music_gpt.generation.decoding`), and they become notes again (`music_gpt.composing.composition`).
The module knows neither files of tokens nor training.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from music_gpt import __version__
from music_gpt.checking import MAX_JSON_INTEGER, number, whole
from music_gpt.composing.composition import MOST_NOTES, MOST_SECONDS, ComposedNote, Composition
from music_gpt.composing.insight import HeardPiece, Insight, insight
from music_gpt.composing.prompt import Prompt, hear
from music_gpt.composing.provenance import (
    check_prompt,
    other_prompt,
    prompt_from_file,
    prompt_settings,
    read_recipe,
)
from music_gpt.composing.redoing import (
    Redoing,
    Redone,
    Stretch,
    candidate_seeds,
    hear_stretch,
    stretch_settings,
)
from music_gpt.config.model import N_EVENTS
from music_gpt.config.prompt import AS_GIVEN, PromptChange
from music_gpt.config.sampling import CANDIDATES, SamplingConfig
from music_gpt.errors import InputError, argument
from music_gpt.generation.bias import CROWDED
from music_gpt.generation.decoding import Engine, TorchEngine, generate, surprise_after
from music_gpt.generation.engines import choose_engine, require_engine
from music_gpt.generation.grammar import Ending, Start
from music_gpt.midi.changing import change_piece
from music_gpt.midi.piece import Piece, PieceLike, as_piece, read_piece
from music_gpt.network.checkpoint import bundled_checkpoint, load_checkpoint
from music_gpt.network.model import GPT
from music_gpt.notes import NO_PART, NOTE_DTYPE
from music_gpt.printable import shown
from music_gpt.tokens.events import FRAMES_PER_SECOND

if TYPE_CHECKING:
    from pretty_midi import PrettyMIDI

MIN_SECONDS, MAX_SECONDS = 0.1, 3600.0
MAX_VARIATIONS = 16
MAX_GIVEN_SEED = MAX_JSON_INTEGER - MAX_VARIATIONS
"""Each take has a seed of its own, from the given one up, and it is written into the file."""
DEFAULT_SEED_LIMIT = 2**31
"""Seeds that are drawn, rather than given, stay below it: short enough to copy by hand."""
MAX_THREADS = 1024
_KNOBS = tuple(field.name for field in fields(SamplingConfig))
_CHANGES = tuple(field.name for field in fields(PromptChange))


def load(
    path: str | Path | None = None, *, engine: str = "auto", threads: int | None = None
) -> Pianist:
    """The pianist of the checkpoint at `path`, or of the bundled one.

    Args:
        path: a checkpoint.
        engine: what runs the network: torch, cuda, onnx, onnx-int8, or auto for the quickest on the
            CPU that is installed and predicts music as well as torch does
            (`music_gpt.generation.engines`).
        threads: what the engine shall use; None tries for half a second what is fastest.

    Raises:
        InputError: there is no such file, it is no checkpoint of this vocabulary, or there is no
            such engine for it.
    """
    require_engine(engine)  # before a file is read
    threads = None if threads is None else whole("threads", threads, 1, MAX_THREADS)
    model, card = load_checkpoint(path)
    folder = (bundled_checkpoint() if path is None else Path(path)).parent
    chosen = choose_engine(model, card["sha256"], engine, threads)
    return Pianist(model, card, engine=chosen, folder=folder)


# --- the pianist ---------------------------------------------------------------------------------


class Pianist:
    """A network that continues pieces."""

    def __init__(
        self,
        model: GPT,
        card: Mapping[str, Any] | None = None,
        *,
        engine: Engine | None = None,
        folder: Path | None = None,
    ) -> None:
        """`engine` runs the network in place of torch; its checkpoint lies in `folder`.

        Raises:
            InputError: the network is not one for music.
        """
        self.config, self.card, self.folder = model.config, dict(card or {}), folder
        if self.config.vocab_size != N_EVENTS:
            raise InputError(
                f"The network knows {self.config.vocab_size:,} tokens, but music has {N_EVENTS}; "
                "use a checkpoint that was trained on music."
            )
        self._model = model
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
        transpose: int = 0,
        speed: float = 1.0,
        include_prompt: bool = True,
        end: bool = False,
        **knobs: Any,
    ) -> Composition:
        """Continue `prompt`, or begin a new piece; nothing is computed before it is iterated.

        Args:
            prompt: a path, bytes, a PrettyMIDI, notes, a piece, or None for music from nothing.
            seconds: of new music, `MIN_SECONDS` to `MAX_SECONDS`, met within one second.
            seed: take i is drawn with seed + i, so each variation can be made again alone; None
                draws a seed, which `Composition.settings` tells.
            variations: takes side by side, up to `MAX_VARIATIONS`.
            prompt_seconds: use only so much of the prompt before the point where it is continued;
                of more than fits into its context, the network hears the last part.
            prompt_end_seconds: continue the prompt from this point rather than from its end; notes
                that sound across it are held over into the new music.
            tracks: numbers or names of the tracks of a MIDI file to use, as for `read_piece`.
            transpose: semitones by which the prompt is moved before it is continued.
            speed: so many times as fast the prompt is played; `prompt_seconds` and
                `prompt_end_seconds` are counted at that speed.
            include_prompt: whether `Composition.midi` has the kept prompt before the new music.
            end: let the piece end by itself, some way before or after `seconds`, as `Ending.after`
                has it.
            knobs: how the next event is drawn: fields of `SamplingConfig`, where each is explained.

        Raises:
            InputError: the prompt cannot be read, lacks a track, has nothing to continue there or
                leaves the keys of a piano, or a number is out of range.
        """
        sampling = SamplingConfig(**knobs)
        seconds = number("seconds", seconds, MIN_SECONDS, MAX_SECONDS)
        variations = whole("variations", variations, 1, MAX_VARIATIONS)
        prompt_seconds = _part_seconds("prompt_seconds", prompt_seconds)
        prompt_end_seconds = _part_seconds("prompt_end_seconds", prompt_end_seconds)
        change = PromptChange(transpose, speed)
        seed = _given_seed(seed)
        if prompt is None:
            _require_no_part(
                prompt_seconds=prompt_seconds, prompt_end_seconds=prompt_end_seconds, tracks=tracks
            )
            _require_no_change(change)
        piece = None if prompt is None else change_piece(_as_prompt(prompt, tracks), change)
        heard = self._hear(piece, prompt_seconds, sampling.max_wait_seconds, prompt_end_seconds)
        settings = {
            **self._maker(),
            "seconds": seconds,
            "seed": seed,
            "variations": variations,
            "end": bool(end),
            "prompt_seconds": prompt_seconds,
            "prompt_end_seconds": prompt_end_seconds,
            "tracks": None if piece is None else _some_tracks(piece),
            **asdict(change),
            "include_prompt": bool(include_prompt),
            **prompt_settings(heard.start, include_prompt=bool(include_prompt)),
            **asdict(sampling),
        }
        return self._begin(heard, settings)

    def again(self, file: str | Path, prompt: PieceLike | None = None) -> Composition:
        """The take in a MIDI file that music-gpt wrote, composed again: the same notes.

        file: holds the settings and, unless it was written without it, the prompt.
        prompt: what the take goes on from, for a file that does not hold it; as it was given then,
            for the file tells how it was changed.

        Raises:
            InputError: the file does not tell how it was made, another checkpoint or engine made
                it, or its prompt is needed, or this is not its prompt.
        """
        settings = read_recipe(file)
        self._check_made_here(file, settings)
        try:
            settings = {**_checked(settings), "music_gpt": __version__}
        except InputError as error:
            raise InputError(
                f"The settings in {shown(file)} were changed: {str(error).rstrip('.')}; give the "
                "file as music-gpt wrote it."
            ) from error
        if prompt is None:
            heard = prompt_from_file(file, settings)
        else:
            heard = self._hear_again(settings, prompt)
        return self._begin(heard, settings)

    def _hear_again(self, settings: Mapping[str, Any], prompt: PieceLike) -> Prompt:
        """What the network hears of the prompt that these settings are for."""
        as_piece(prompt)  # what cannot be read is told as such
        change = PromptChange(settings["transpose"], settings["speed"])
        part = (settings["prompt_seconds"], settings["max_wait_seconds"])
        try:
            piece = change_piece(_as_prompt(prompt, settings["tracks"]), change)
            heard = self._hear(piece, *part, settings["prompt_end_seconds"])
        except InputError as error:  # it has not the tracks, the keys or the length
            raise other_prompt("The prompt") from error
        check_prompt(heard.start, settings, "The prompt")
        return heard

    def redo(
        self,
        piece: PieceLike,
        start_seconds: float,
        end_seconds: float,
        **options: Any,
    ) -> Redone:
        """Compose a part of a piece anew: arguments and errors are those of `begin_redo`."""
        redoing = self.begin_redo(piece, start_seconds, end_seconds, **options)
        for _ in redoing.composition:
            pass
        return redoing.redone()

    def begin_redo(
        self,
        piece: PieceLike,
        start_seconds: float,
        end_seconds: float,
        *,
        candidates: int = CANDIDATES,
        seed: int | None = None,
        tracks: Sequence[int | str] | None = None,
        **knobs: Any,
    ) -> Redoing:
        """Compose a part of a piece anew, as it is iterated; what is around it stays as it is.

        Several candidates are composed side by side, after what stands before the part. That one
        fits best after which the `FOLLOWING_SECONDS` that follow are likeliest; where nothing
        follows, the likeliest one.

        Args:
            piece: a path, bytes, a PrettyMIDI, notes or a piece.
            start_seconds: where the part begins; taken to whole frames, as its end is.
            end_seconds: where it ends, `SHORTEST_SECONDS` to `LONGEST_SECONDS` later.
            candidates: how many, up to `MAX_VARIATIONS`.
            seed: one candidate is drawn with it, the others with `candidate_seeds` of it; None
                draws a seed. `Redone.settings` tells each.
            tracks: numbers or names of the tracks of a MIDI file to use, as for `read_piece`.
            knobs: how the next event is drawn: fields of `SamplingConfig`.

        Raises:
            InputError: the piece cannot be read, the part is not in it, or a number is out of
                range.
        """
        sampling = SamplingConfig(**knobs)
        edges = [
            number(name, value, 0, math.inf)
            for name, value in (("start_seconds", start_seconds), ("end_seconds", end_seconds))
        ]
        candidates = whole("candidates", candidates, 1, MAX_VARIATIONS)
        context = self._engine.context
        given = _as_prompt(piece, tracks)
        stretch = hear_stretch(given, edges[0], edges[1], context, sampling.max_wait_seconds)
        settings = stretch_settings(
            stretch,
            {
                **self._maker(),
                "seed": _given_seed(seed),
                "variations": candidates,
                "tracks": _some_tracks(given),
                **asdict(sampling),
            },
        )
        seeds = candidate_seeds(settings["seed"], candidates)
        composition = self._begin(stretch.prompt, settings, seeds, Ending.at(stretch.end))
        return Redoing(stretch, composition, self._misfits)

    def look_inside(
        self,
        piece: HeardPiece,
        place: int,
        settings: Mapping[str, Any],
        new: tuple[float, float] = NO_PART,
    ) -> Insight:
        """What the network expects before an event of a piece, and what it looks at: `insight`."""
        return insight(self._model, piece, place, settings, new)

    def _misfits(self, stretch: Stretch, composition: Composition) -> list[float]:
        """How badly what follows goes on from each candidate, in nats per token."""
        takes = range(composition.n_takes)
        if not len(stretch.after):
            return [composition.nats_per_token(take) or 0.0 for take in takes]
        parts = [stretch.split(stretch.joined(composition.notes(take))) for take in takes]
        contexts, followings = zip(*parts, strict=True)
        return surprise_after(self._engine, contexts, followings)

    def _begin(
        self,
        heard: Prompt,
        settings: Mapping[str, Any],
        seeds: Sequence[int] | None = None,
        ending: Ending | None = None,
    ) -> Composition:
        """The takes that these settings describe; seeds that are not told go up from the first."""
        if ending is None:
            ending = Ending.after(heard.start.seam, settings["seconds"], own=settings["end"])
        if seeds is None:
            seeds = [settings["seed"] + take for take in range(settings["variations"])]
        _require_room(heard, ending, settings)
        sampling = SamplingConfig(**{name: settings[name] for name in _KNOBS})
        events = generate(self._engine, heard.start, ending, sampling, seeds)
        return Composition(events, heard, settings, seeds)

    def _check_made_here(self, file: str | Path, settings: Mapping[str, Any]) -> None:
        """Raise `InputError` unless this network made the file, in this engine."""
        theirs, mine = settings.get("checkpoint_sha256"), self.card.get("sha256")
        if theirs != mine:
            raise InputError(
                f"{shown(file)} was composed by the checkpoint {settings.get('checkpoint')} "
                f"(sha256 {str(theirs)[:12]}), but this is {self.card.get('file')} "
                f"({str(mine)[:12]}); give that checkpoint."
            )
        if settings.get("engine") != self._engine.name:
            raise InputError(
                f"{shown(file)} was composed in the engine {settings.get('engine')}, whose notes "
                f"may differ from those of {self._engine.name}; choose that one with "
                f"{argument('engine')}."
            )

    def _hear(
        self, piece: Piece | None, seconds: float | None, longest_wait: float, end: float | None
    ) -> Prompt:
        """What the network hears of a piece, as `hear` takes it; None is silence."""
        if piece is None:
            return Prompt(np.zeros(0, NOTE_DTYPE), Start())
        heard = hear(piece, self._engine.context, seconds, longest_wait, end)
        heard.warnings[:0] = piece.warnings
        return heard

    def _maker(self) -> dict[str, str]:
        """What composes: the checkpoint's file and hash, where the card tells them, and so on."""
        names = {"file": "checkpoint", "sha256": "checkpoint_sha256"}
        card = {names[key]: str(self.card[key]) for key in names if key in self.card}
        return {"music_gpt": __version__, **card, "engine": self._engine.name}

    def stream(self, prompt: PieceLike | None = None, **options: Any) -> Iterator[ComposedNote]:
        """Continue `prompt`, note by note as they end; options are those of `compose`."""
        return self.compose(prompt, **options)

    def continue_piece(self, prompt: PieceLike | None = None, **options: Any) -> PrettyMIDI:
        """The kept prompt and its continuation; options are those of `compose`."""
        return self.variations(prompt, n=1, **options)[0]

    def variations(
        self, prompt: PieceLike | None = None, *, n: int = 4, **options: Any
    ) -> list[PrettyMIDI]:
        """`n` continuations of one prompt; options are those of `compose`."""
        composition = self.compose(prompt, variations=n, **options)
        for _ in composition:
            pass
        return [composition.midi(take) for take in range(composition.n_takes)]


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were read from a file, each of its kind and within its bounds."""
    sampling = SamplingConfig(**{name: settings[name] for name in _KNOBS if name in settings})
    change = PromptChange(**{name: settings[name] for name in _CHANGES if name in settings})
    return {
        **settings,
        "seconds": number("seconds", settings.get("seconds"), MIN_SECONDS, MAX_SECONDS),
        "seed": whole("seed", settings["seed"], 0, MAX_JSON_INTEGER),
        "variations": 1,
        "prompt_seconds": _part_seconds("prompt_seconds", settings.get("prompt_seconds")),
        "prompt_end_seconds": _part_seconds(
            "prompt_end_seconds", settings.get("prompt_end_seconds")
        ),
        "tracks": settings.get("tracks"),
        **asdict(change),
        "include_prompt": settings.get("include_prompt") is not False,
        "end": settings.get("end") is True,
        **asdict(sampling),
    }


def _require_room(heard: Prompt, ending: Ending, settings: Mapping[str, Any]) -> None:
    """Raise `InputError` where the take would become a file that is too large to be read again."""
    kept = settings["include_prompt"]
    most_notes = MOST_NOTES - math.ceil(CROWDED * settings["seconds"])
    if (n_notes := heard.n_given(kept=kept)) > most_notes:
        raise InputError(
            f"There are {n_notes:,} notes before anything is composed, and at most {most_notes:,} "
            f"leave room for {settings['seconds']:g} seconds of music in a MIDI file; give a "
            "shorter piece."
        )
    frames = ending.latest - (0 if kept else heard.start.seam)
    if frames > MOST_SECONDS * FRAMES_PER_SECOND:
        raise InputError(
            f"With what is composed the piece may last {frames / FRAMES_PER_SECOND:,.0f} seconds, "
            f"and at most {MOST_SECONDS:,.0f} are read from a MIDI file; give a shorter one."
        )


def _given_seed(seed: int | None) -> int:
    """The seed that was given, or a new one."""
    seed = secrets.randbelow(DEFAULT_SEED_LIMIT) if seed is None else seed
    return whole("seed", seed, 0, MAX_GIVEN_SEED)


def _require_no_part(**part: object) -> None:
    """Raise `InputError` where a part of a prompt is chosen: there is no prompt."""
    given = [name for name, choice in part.items() if choice is not None]
    if given:
        raise InputError(
            f"{argument(given[0])} chooses a part of the prompt; give a prompt, or leave it out."
        )


def _require_no_change(change: PromptChange) -> None:
    """Raise `InputError` where a prompt is to be changed: there is none."""
    usual = asdict(AS_GIVEN)
    for name, value in asdict(change).items():
        if value != usual[name]:
            raise InputError(
                f"{argument(name)} changes the prompt; give a prompt, or leave it out."
            )


def _as_prompt(prompt: PieceLike, tracks: Sequence[int | str] | None) -> Piece:
    """The prompt as a piece, of these tracks only."""
    if tracks is None:
        return as_piece(prompt)
    if isinstance(prompt, (str, Path, bytes, bytearray)):
        return read_piece(bytes(prompt) if isinstance(prompt, bytearray) else prompt, tracks=tracks)
    raise InputError(
        f"{argument('tracks')} chooses among those of a MIDI file, but the prompt is a "
        f"{type(prompt).__name__}; give the path or the bytes of a file."
    )


def _some_tracks(piece: Piece) -> list[int] | None:
    """Numbers of the tracks that are used, or None where there are no others."""
    used = [track.number for track in piece.tracks if track.used]
    return used if len(used) < len(piece.tracks) else None


def _part_seconds(name: str, value: object) -> float | None:
    """Seconds of a prompt, or None for all of them."""
    return None if value is None else number(name, value, MIN_SECONDS, math.inf)
