"""A click of one visitor -> what the page shows next: the handlers behind the page.

Everything that belongs to a visitor is in the `Visit` that is handed in; a `Desk` holds what all of
them share: the pianist, the shipped examples, a folder for files and the visits that were left.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from music_gpt.checking import whole
from music_gpt.composing.pianist import Pianist
from music_gpt.config.preparing import MidiLimits
from music_gpt.config.prompt import AS_GIVEN, PromptChange
from music_gpt.errors import InputError
from music_gpt.midi import piece as midi
from music_gpt.notes import in_words
from music_gpt.soundfont import SoundFont
from music_gpt.ui import bounds
from music_gpt.ui import visit as visits
from music_gpt.ui.cloakroom import Cloakroom
from music_gpt.ui.door import sentence
from music_gpt.ui.explain import explain, read_asked
from music_gpt.ui.form import CALL, FORM, as_whole, filled, read_call, read_change, read_wish
from music_gpt.ui.history import Source
from music_gpt.ui.newness import Newness
from music_gpt.ui.pianoroll import Selection, read_selection
from music_gpt.ui.roll_value import RollValue, fresh_version
from music_gpt.ui.saving import KINDS, file_stem, write_all, write_sound, write_take
from music_gpt.ui.shelf import Shelf
from music_gpt.ui.tracks import track_choices
from music_gpt.ui.visit import Visit, Wish

PROMPTS = Path(__file__).parent.parent / "prompts"
NOTHING = "nothing"
DIRECTIONS = {"earlier": -1, "later": 1, "": 0}
LIMITS = MidiLimits(max_bytes=bounds.MAX_FILE_BYTES, max_notes=bounds.MAX_NOTES, max_seconds=7200.0)
Steps = Generator[RollValue, None, None]
"""What the roll shows while music is composed."""


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

    def __init__(self, pianist: Pianist, soundfont: SoundFont | None = None) -> None:
        self._pianist = pianist
        self._soundfont = soundfont
        self._shelf = Shelf()
        self._cloakroom = Cloakroom()
        self.newness = Newness(pianist.folder)
        self.examples = shipped_examples()

    def arrive(self) -> Visit:
        """What a new visitor finds: the first example. Gradio copies it for each of them."""
        visit = Visit()
        self.choose(visit, next(iter(self.examples), NOTHING))
        return visit

    def come_in(self, visit: Visit, known: Any) -> tuple[Any, ...]:
        """A page was loaded: the visit and a key to it; where one is `known`, all that it showed.

        The roll, the example, the tracks, the buttons, and the form with its character.

        The visit is set, because Gradio forgets, some time after somebody left, only what was set.
        """
        key = known.get("key") if isinstance(known, dict) else None
        left, shown, form = self._cloakroom.hand_out(key), (gr.skip(),) * 3, filled(())
        visit.was_loaded = True
        if left is not None and left is not visit:
            value = visit.take_over(left)
            if not visit.n_under_way:  # else music that was begun meanwhile has the roll
                shown = value, *self.source(visit)
                form = filled(visit.form)
        known = {"key": self._cloakroom.hand_in(visit)}
        return visit, known, *shown, *idle(visit), *form

    def choose(self, visit: Visit, key: str | None) -> tuple[RollValue, Any]:
        """Show an example, or an empty sheet: the roll, and no tracks to choose from."""
        if key not in self.examples:
            source = Source(example=NOTHING)
            return visit.show_prompt(None, "From nothing", source=source), tracks_of(source)
        example, source = self.examples[key], Source(example=key)
        piece = midi.read_piece(example.path)
        roll = visit.show_prompt(piece, example.title, example.composer, source)
        return roll, tracks_of(source)

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
            return answer(visit, str(error)), gr.skip(), None, gr.skip()
        choices = tuple(track_choices(piece.tracks))
        source = Source(
            file=Path(path).read_bytes() if choices else b"",
            tracks=choices,
            used=tuple(track.number for track in piece.tracks if track.used),
        )
        value = show_file(visit, piece, Path(path).stem, source)
        self._cloakroom.hand_in(visit)
        return value, None, None, tracks_of(source)

    def take_tracks(self, visit: Visit, numbers: list[int]) -> Any:
        """Show other tracks of the dropped file, changed as those before them.

        Where there is a fault, the roll stays.
        """
        shown = visit.shown
        try:
            piece = midi.read_piece(shown.source.file, tracks=numbers, limits=LIMITS)
            visit.check(shown.roll["version"])
            source = replace(shown.source, used=tuple(numbers))
            value = show_file(visit, piece, shown.name, source, shown.change)
        except InputError as error:
            notice(error)
            return answer(visit, str(error))
        self._cloakroom.hand_in(visit)
        return value

    def compose(self, visit: Visit, selection: Any, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The growing roll, and the state of the buttons when it changes; `values` are `FORM`'s."""

        def steps(wish: Wish, part: Selection) -> Steps:
            return visits.compose(visit, self._pianist, wish, part.start, part.end)

        yield from self._show(visit, selection, values, steps, STOP_COMPOSING)

    def redo(self, visit: Visit, selection: Any, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The same for a marked part of what is shown, which is composed anew."""

        def steps(wish: Wish, part: Selection) -> Steps:
            ways = whole("ways", as_whole(part.candidates), 1, bounds.MAX_VARIATIONS)
            wish = replace(wish, variations=ways)
            take, stretch = None if part.of_prompt else part.take, (part.start, part.end)
            return visits.redo(visit, self._pianist, wish, take, stretch)

        yield from self._show(visit, selection, values, steps, STOP_REDOING)

    def _show(self, visit: Visit, *rest: Any) -> Iterator[tuple[Any, ...]]:
        """What a composition shows; its visit is used, and kept for longer."""
        try:
            yield from show(visit, *rest)
        finally:
            self._cloakroom.hand_in(visit)

    def browse(self, visit: Visit, selection: Any) -> tuple[Any, ...]:
        """Show the music before or after, a take as a prompt, or the prompt as it shall be changed.

        The roll, the example, the tracks, the buttons. A fault is told above the roll alone: what
        does not wait in the line has no notices.
        """
        source = visit.shown.source
        try:
            asked = read_selection(selection)
            if asked.wants == "continue":
                visit.check(asked.version)
                value = visit.show_take(asked.take)
            elif asked.wants == "change":
                visit.check(asked.given, "given")
                value = visit.change_prompt(read_change(asked), asked.start, asked.end)
            else:
                value = visit.browse(DIRECTIONS[asked.wants])
        except InputError as error:
            value = answer(visit, str(error))
        self._cloakroom.hand_in(visit)
        chosen = (gr.skip(), gr.skip()) if visit.shown.source is source else self.source(visit)
        return value, *chosen, *idle(visit)

    def compare(self, visit: Visit) -> dict[str, Any]:
        """What each take shares with the training music, and of which music that is told."""
        shown = visit.shown
        lines = [self.newness.line(take) for take in shown.takes]
        return {"version": shown.roll["version"], "lines": lines}

    def look(self, visit: Visit, payload: Any) -> dict[str, Any]:
        """What the network expected at an event of what is shown, or why that is not known."""
        try:
            asked = read_asked(payload)
            return explain(self._pianist, visit.seen(asked.version), asked)
        except InputError as error:
            return {"fault": str(error), "answer": fresh_version()}

    def recover(self, visit: Visit) -> tuple[Any, ...]:
        """After a fault of the program, or when the line was full: all as before Compose."""
        return answer(visit, "No music came; please try again."), *idle(visit)

    def source(self, visit: Visit) -> tuple[Any, Any]:
        """The example and the tracks of what is shown, which may be other music than was asked."""
        return gr.update(value=visit.shown.source.example), tracks_of(visit.shown.source)

    def stop(self, visit: Visit) -> None:
        """End the composition under way at its next note; what there is stays."""
        visit.stop_asked = True

    def save(self, suffix: str, visit: Visit, selection: Any) -> str | None:
        """The take that is shown as a file of this kind, or all takes as `.zip`."""
        try:
            chosen = read_selection(selection)
            music = visit.seen(chosen.version)  # it may wait its turn
            take = music.take(chosen.take)
            if suffix != ".zip":
                return str(write_take(self._shelf, music, take, suffix, self._soundfont))
            path, told = write_all(self._shelf, music, self._soundfont)
            tell(told)
            return str(path)
        except InputError as error:
            notice(error)
            return None

    def generate(self, prompt: str | None, *values: Any) -> list[str]:
        """Continue a MIDI file (or nothing) by some seconds: one MIDI file for each variation.

        The words are those of `music-gpt generate`; knobs that are left out are the preset's.
        """
        try:
            words = read_call(dict(zip(CALL, values, strict=True)))
            wish = read_wish(words)
            composition = self._pianist.compose(
                None if prompt is None else read_prompt(prompt, words["tracks"]),
                seconds=wish.seconds,
                seed=wish.seed,
                variations=wish.variations,
                prompt_seconds=words["prompt_seconds"],
                prompt_end_seconds=words["prompt_end_seconds"],
                tracks=midi.track_keys(words["tracks"]) if prompt is None else None,
                transpose=as_whole(words["transpose"]),
                speed=words["speed"],
                include_prompt=not words["continuation_only"],
                end=wish.end,
                **asdict(wish.sampling),
            )
            for _ in composition:
                pass
        except InputError as error:
            raise sentence(error) from None
        takes = composition.ranking() if words["rank"] else range(composition.n_takes)
        name, files = "music" if prompt is None else Path(prompt).stem, []
        change = PromptChange(as_whole(words["transpose"]), words["speed"])
        for number, take in enumerate(takes, 1):
            stem = file_stem(name, f"take-{number}", composition.settings(take)["seed"], change)
            files.append(self._shelf.path(f"{stem}.mid"))
            composition.write(files[-1], take)
        return [str(file) for file in files]

    def render(self, midi_file: str | None) -> str:
        """Play a MIDI file, as what is saved: a WAV file."""
        try:
            if midi_file is None:
                raise InputError("There is no MIDI file to play; send one.")
            piece = midi.read_piece(midi_file, limits=LIMITS)
            name = f"{Path(midi_file).stem}.wav"
            return str(write_sound(self._shelf, piece.sounding_notes, name, self._soundfont))
        except InputError as error:
            raise sentence(error) from None


def show_file(
    visit: Visit,
    piece: midi.Piece,
    name: str,
    source: Source,
    change: PromptChange = AS_GIVEN,
) -> RollValue:
    """The roll with a dropped file, and what was mended or left out."""
    detail = f"Your music, {in_words(piece.n_notes)}"
    value = visit.show_prompt(piece, name, detail, source, change=change)
    return value | {"status": " ".join(piece.warnings)}


def show(
    visit: Visit,
    selection: Any,
    values: Sequence[Any],
    begin: Callable[[Wish, Selection], Steps],
    stop: str,
) -> Iterator[tuple[Any, ...]]:
    """What a composition shows, step by step; where there is a fault, its sentence.

    stop: what stands on the button that ends it.
    """
    try:
        wish, part = read_wish(dict(zip(FORM, values, strict=True))), read_selection(selection)
        visit.form = tuple(values)
        visit.check(part.version)
        with under_way(visit), closing(begin(wish, part)) as steps:
            buttons = first = busy(stop)
            for value in steps:
                yield value, *buttons
                if buttons is first:
                    tell(visit.warnings)
                buttons = UNCHANGED
        yield visit.shown.roll, *idle(visit)
    except InputError as error:
        notice(error)
        yield answer(visit, str(error)), *idle(visit)


@contextmanager
def under_way(visit: Visit) -> Iterator[None]:
    """Meanwhile music is composed, which has the roll and the buttons."""
    visit.n_under_way += 1
    try:
        yield
    finally:
        visit.n_under_way -= 1


def answer(visit: Visit, sentence: str) -> Any:
    """The roll as it is, above a sentence: told anew, too, where it is the same once more."""
    if visit.n_under_way:
        return gr.skip()
    return visit.shown.roll | {"status": sentence, "answer": fresh_version()}


def read_prompt(path: str, tracks: str | None) -> midi.Piece:
    """The piece in a file that was sent, of these tracks."""
    return midi.read_piece(path, tracks=midi.track_keys(tracks), limits=LIMITS)


def notice(error: InputError) -> None:
    """Show the sentence of an error as a notice."""
    gr.Warning(html.escape(str(error)))


def tell(sentences: list[str]) -> None:
    """Show remarks that ask for nothing."""
    for line in sentences:
        gr.Info(html.escape(line))


def tracks_of(source: Source) -> Any:
    """The list of the tracks of a prompt; hidden where there is no choice."""
    used = list(source.used) if source.tracks else []
    return gr.update(choices=list(source.tracks), value=used, visible=bool(source.tracks))


UNCHANGED = (gr.skip(),) * (3 + len(KINDS))
"""Compose, Redo, Stop and what saves from the second step on."""
STOP_COMPOSING, STOP_REDOING = "Stop, keep the music", "Stop, keep the part as it was"
"""What stands on Stop: music that has been composed stays, but a part that is half full is none."""


def busy(stop: str) -> tuple[Any, ...]:
    """Compose, Redo, Stop and what saves while music is composed."""
    hidden = gr.update(visible=False)
    saves = [gr.update(interactive=False)] * len(KINDS)
    return hidden, hidden, gr.update(visible=True, value=stop), *saves


def idle(visit: Visit) -> tuple[Any, ...]:
    """Compose, Redo, Stop and what saves while nothing is composed, else as they are."""
    if visit.n_under_way:
        return UNCHANGED
    ready, shown = gr.update(interactive=bool(visit.shown.takes)), gr.update(visible=True)
    return shown, shown, gr.update(visible=False), *[ready] * len(KINDS)
