"""A click of one visitor -> what the page shows next: the handlers behind the page.

Everything that belongs to a visitor is in the `Visit` that is handed in; a `Desk` holds only what
all of them share and nobody changes: the pianist, the shipped examples, a folder for files.
"""

from __future__ import annotations

import html
import json
import math
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from music_gpt import audio
from music_gpt.composing.pianist import MAX_GIVEN_SEED, Pianist
from music_gpt.composing.provenance import settings_text
from music_gpt.config.page import PageConfig
from music_gpt.config.preparing import MidiLimits
from music_gpt.config.sampling import SAMPLING_PRESETS, SamplingConfig
from music_gpt.errors import InputError
from music_gpt.midi import piece as midi
from music_gpt.notes import Notes
from music_gpt.ui import visit as visits
from music_gpt.ui.door import sentence, short
from music_gpt.ui.pianoroll import read_selection
from music_gpt.ui.shelf import Shelf
from music_gpt.ui.tracks import track_choices
from music_gpt.ui.visit import RollValue, Visit, Wish

PROMPTS = Path(__file__).parent.parent / "prompts"
NOTHING = "nothing"
MAX_DIGITS = 100
"""Beyond it a number is not even read."""
PAGE = PageConfig()
LIMITS = MidiLimits(max_bytes=PAGE.max_file_bytes, max_notes=PAGE.max_notes, max_seconds=7200.0)
SOUND_BYTES = int((PAGE.max_sound_seconds + 60) * audio.SAMPLE_RATE * 4)
"""The largest sound file: two channels of 16 bits, and some seconds for the last tone."""

KINDS = {"MIDI": ".mid", "WAV": ".wav", "FLAC": ".flac", "MP3": ".mp3", "All takes": ".zip"}
"""What can be taken away: words on the buttons, and the endings of the files."""
ONLY_MIDI = (
    "The takes last {minutes:.1f} minutes together, and the page makes sound of up to {most:g}, so "
    "the archive holds them as MIDI only."
)


@dataclass(frozen=True)
class Example:
    """A shipped opening that can be continued."""

    path: Path
    title: str
    composer: str

    @property
    def label(self) -> str:
        """`Satie – Gymnopédie No. 1`: one line of a narrow list."""
        return f"{self.composer.split()[-1]} – {self.title.split(',')[0]}"


def shipped_examples() -> dict[str, Example]:
    """The shipped openings by file name, in the order of prompts.json."""
    cards = json.loads((PROMPTS / "prompts.json").read_text(encoding="utf-8"))
    return {c["file"]: Example(PROMPTS / c["file"], c["title"], c["composer"]) for c in cards}


class Desk:
    """The handlers of the page: what a click does to one visit."""

    def __init__(self, pianist: Pianist) -> None:
        self._pianist = pianist
        self._shelf = Shelf()
        self.examples = shipped_examples()

    def arrive(self) -> Visit:
        """What a new visitor finds: the first example. Gradio copies it for each of them."""
        visit = Visit()
        self.choose(visit, next(iter(self.examples), NOTHING))
        return visit

    def keep(self, visit: Visit) -> Visit:
        """The visit as it is: Gradio forgets, some time after they left, only what was set."""
        return visit

    def choose(self, visit: Visit, key: str | None) -> tuple[RollValue, Any]:
        """Show an example, or an empty sheet: the roll, and no tracks to choose from."""
        if key not in self.examples:
            return visit.show_prompt(None, "From nothing"), NO_TRACKS
        example = self.examples[key]
        piece = midi.read_piece(example.path)
        return visit.show_prompt(piece, example.title, example.composer), NO_TRACKS

    def drop(self, visit: Visit, path: str | None) -> tuple[Any, Any, None, Any]:
        """Show a dropped file: the roll, no example chosen, the field free for the next one.

        Where it has several tracks, they can be chosen. A wrong file leaves all as it is.
        """
        if path is None:
            return gr.skip(), gr.skip(), None, gr.skip()
        try:
            piece = midi.read_piece(path, limits=LIMITS)
        except InputError as error:
            notice(error)
            return visit.roll | {"status": str(error)}, gr.skip(), None, gr.skip()
        choices, used = track_choices(piece.tracks), [t.number for t in piece.tracks if t.used]
        visit.file = Path(path).read_bytes() if choices else b""
        tracks = gr.update(choices=choices, value=used, visible=bool(choices))
        return show_file(visit, piece, Path(path).stem), None, None, tracks

    def take_tracks(self, visit: Visit, numbers: list[int]) -> RollValue:
        """Show other tracks of the dropped file; where there is a fault, the roll stays."""
        try:
            piece = midi.read_piece(visit.file, tracks=numbers, limits=LIMITS)
        except InputError as error:
            notice(error)
            return visit.roll | {"status": str(error)}
        return show_file(visit, piece, visit.name)

    def compose(
        self,
        visit: Visit,
        selection: Any,
        seconds: float,
        variations: float,
        temperature: float,
        top_k: float,
        top_p: float,
        min_p: float,
        seed: str | None,
    ) -> Iterator[tuple[Any, ...]]:
        """The growing roll, and the state of the buttons when it changes."""
        try:
            wish = make_wish(seconds, variations, temperature, top_k, top_p, min_p, seed)
            part = read_selection(selection)
            steps = visits.compose(visit, self._pianist, wish, part.start, part.end)
            with closing(steps):
                buttons = BUSY
                for value in steps:
                    yield value, *buttons
                    if buttons is BUSY:
                        tell(visit.warnings)
                    buttons = UNCHANGED
            yield visit.roll, *idle(visit)
        except InputError as error:
            notice(error)
            yield visit.roll | {"status": str(error)}, *idle(visit)

    def recover(self, visit: Visit) -> tuple[Any, ...]:
        """After a fault of the program, or when the line was full: all as before Compose."""
        return visit.roll | {"status": "No music came; please try again."}, *idle(visit)

    def stop(self, visit: Visit) -> None:
        """End the composition under way at its next note; what there is stays."""
        visit.stop_asked = True

    def save(self, suffix: str, visit: Visit, selection: Any) -> str | None:
        """The take that is shown as a file of this kind, or all takes as `.zip`."""
        try:
            take = read_selection(selection).take
            if take >= len(visit.takes):
                raise InputError("There is nothing to save yet; press Compose first.")
            if suffix == ".zip":
                return str(self._write_all(visit))
            return str(self._write_take(visit, take, suffix))
        except InputError as error:
            notice(error)
            return None

    def _write_take(self, visit: Visit, take: int, suffix: str) -> Path:
        chosen = visit.takes[take]
        stem = visits.file_stem(visit.name, chosen, take)
        if suffix != ".mid":
            return self._write_sound(chosen.notes, stem + suffix)
        path = self._shelf.path(stem + suffix)
        midi.write_midi(chosen.notes, path, text=settings_text(chosen.settings))
        return path

    def _write_all(self, visit: Visit) -> Path:
        """Each take as MIDI and, unless they are too long together, as FLAC, in one archive."""
        seconds = sum(visits.length(take.notes) for take in visit.takes)
        with_sound = seconds <= PAGE.max_sound_seconds
        if not with_sound:
            tell([ONLY_MIDI.format(minutes=seconds / 60, most=PAGE.max_sound_seconds / 60)])
        name = f"{visits.plain_name(visit.name)}-{len(visit.takes)}-takes.zip"
        path = self._shelf.path(name, room=2 * SOUND_BYTES)
        with zipfile.ZipFile(path, "w") as archive:
            for take, chosen in enumerate(visit.takes):
                stem = visits.file_stem(visit.name, chosen, take)
                text = settings_text(chosen.settings)
                archive.writestr(f"{stem}.mid", midi.midi_bytes(chosen.notes, text=text))
                if with_sound:
                    sound = path.with_name("take.flac")
                    audio.write_audio(chosen.notes, sound)
                    archive.write(sound, f"{stem}.flac")
                    sound.unlink()
        return path

    def _write_sound(self, notes: Notes, name: str) -> Path:
        seconds = visits.length(notes)
        if seconds > PAGE.max_sound_seconds:
            raise InputError(
                f"This music lasts {seconds / 60:.1f} minutes, but the page makes sound of up to "
                f"{PAGE.max_sound_seconds / 60:g}; take a shorter part, or turn the MIDI file into "
                "sound with `music-gpt render`."
            )
        path = self._shelf.path(name, room=SOUND_BYTES)
        audio.write_audio(notes, path)
        return path

    def generate(
        self,
        prompt: str | None,
        seconds: float,
        variations: float,
        temperature: float,
        top_k: float,
        top_p: float,
        min_p: float,
        seed: str | None,
    ) -> list[str]:
        """Continue a MIDI file (or nothing) by some seconds: one MIDI file for each variation."""
        visit = Visit(name="music")
        try:
            if prompt is not None:
                visit.show_prompt(midi.read_piece(prompt, limits=LIMITS), Path(prompt).stem)
            wish = make_wish(seconds, variations, temperature, top_k, top_p, min_p, seed)
            start = visit.roll.get("start", 0.0)
            for _ in visits.compose(visit, self._pianist, wish, start, math.inf):
                pass
            return [str(self._write_take(visit, take, ".mid")) for take in range(len(visit.takes))]
        except InputError as error:
            raise sentence(error) from None

    def render(self, midi_file: str | None) -> str:
        """Play a MIDI file on the sampled piano: a WAV file."""
        try:
            if midi_file is None:
                raise InputError("There is no MIDI file to play; send one.")
            piece = midi.read_piece(midi_file, limits=LIMITS)
            return str(self._write_sound(piece.sounding_notes, f"{Path(midi_file).stem}.wav"))
        except InputError as error:
            raise sentence(error) from None


def show_file(visit: Visit, piece: midi.Piece, name: str) -> RollValue:
    """The roll with a dropped file, and what was mended or left out."""
    value = visit.show_prompt(piece, name, f"Your file, {piece.n_notes:,} notes")
    return value | {"status": " ".join(piece.warnings)}


def make_wish(
    seconds: float,
    variations: float,
    temperature: float,
    top_k: float,
    top_p: float,
    min_p: float,
    seed: str | None,
) -> Wish:
    """The numbers of the form as a wish; raises `InputError` for those out of bounds."""
    sampling = SamplingConfig(
        temperature=temperature, top_k=whole("top_k", top_k), top_p=top_p, min_p=min_p
    )
    return Wish(seconds, whole("variations", variations), read_seed(seed), sampling)


def preset_sliders(name: str) -> tuple[float, int, float, float]:
    """Where a preset puts the sliders: temperature, top-k, top-p, min-p.

    >>> preset_sliders("faithful")[0] < preset_sliders("adventurous")[0]
    True
    """
    sampling = SAMPLING_PRESETS[name]
    return sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p


def whole(name: str, number: float) -> int:
    """A slider's number as an int; raises `InputError` for what lies between two of them.

    >>> whole("variations", 2.0)
    2
    """
    if not math.isfinite(number) or number % 1:
        raise InputError(f"{name} is {number}, but it has to be a whole number.")
    return int(number)


def read_seed(text: str | None) -> int | None:
    """The number in the seed field, or None when it is empty.

    >>> read_seed(" 42 "), read_seed("")
    (42, None)
    """
    digits = (text or "").strip()
    if not digits:
        return None
    if not digits.isdecimal() or len(digits) > MAX_DIGITS:
        raise InputError(
            f"The seed is {short(digits)}, but it has to be a whole number from 0 to "
            f"{MAX_GIVEN_SEED}; leave it empty for a new one."
        )
    return int(digits)


def notice(error: InputError) -> None:
    """Show the sentence of an error as a notice."""
    gr.Warning(html.escape(str(error)))


def tell(sentences: list[str]) -> None:
    """Show remarks that ask for nothing."""
    for line in sentences:
        gr.Info(html.escape(line))


NO_TRACKS = gr.update(choices=[], value=[], visible=False)
"""The list of tracks where there is no choice."""
BUSY = (
    gr.update(visible=False),
    gr.update(visible=True),
    *[gr.update(interactive=False)] * len(KINDS),
)
"""Compose, Stop and what saves while music is composed."""
UNCHANGED = (gr.skip(),) * len(BUSY)


def idle(visit: Visit) -> tuple[Any, ...]:
    """Compose, Stop and what saves while nothing is composed."""
    ready = gr.update(interactive=bool(visit.takes))
    return gr.update(visible=True), gr.update(visible=False), *[ready] * len(KINDS)
