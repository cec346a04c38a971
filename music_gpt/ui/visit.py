"""One visitor's wishes -> what the piano roll shows: the prompt, the takes, their growth.

A `Visit` belongs to one open page and nothing here is shared between two of them. This module
knows the pianist and notes, but neither Gradio nor the browser.
"""

from __future__ import annotations

import math
import re
import secrets
import time
import unicodedata
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from music_gpt.composing.pianist import DEFAULT_SEED_LIMIT
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.midi.piece import piece_from_notes
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.ui import bounds

if TYPE_CHECKING:
    from music_gpt.composing.composition import Composition
    from music_gpt.composing.pianist import Pianist
    from music_gpt.composing.redoing import Redone
    from music_gpt.midi.piece import Piece

SHOWN_SECONDS = 0.01
"""Times are shown to the hundredth."""
UNTOUCHED = "Stopped; the part is as it was"
Flags = npt.NDArray[np.bool_]
RollValue = dict[str, Any]
"""What the roll is given: plain numbers and strings only, because numpy floats reach the browser
as strings. Notes are text that only grows, so each update sends nothing but what is new."""


@dataclass(frozen=True)
class Wish:
    """What a person asks for when Compose is pressed; `music_gpt.ui.form` makes and checks it."""

    seconds: float = 30.0
    """Length of the new music."""
    variations: int = 1
    """How many takes are composed at once."""
    seed: int | None = None
    """The same seed gives the same music; None draws one."""
    end: bool = False
    """Whether the music looks for an ending of its own."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """How the next event is drawn."""


@dataclass(frozen=True)
class Take:
    """One finished piece that can be heard and saved, and how it came about."""

    name: str
    """As it stands in the name of a file: take-1, or before and redo-1 around a redo."""
    notes: Notes
    settings: dict[str, Any]
    """Empty for music that nobody composed here."""
    first: float
    """Second from which on it is new."""
    last: float = math.inf
    """Second up to which it is new."""

    @property
    def is_new(self) -> Flags:
        """Which of its notes are new."""
        struck = np.round(self.notes["start"], 3)
        flags: Flags = (struck >= round(self.first, 3)) & (struck < round(self.last, 3))
        return flags


@dataclass(frozen=True)
class Source:
    """Where a prompt comes from: what the page shows as chosen."""

    example: str | None = None
    """The key of a shipped opening."""
    file: bytes = b""
    """A MIDI file that has several tracks to choose from."""
    tracks: tuple[tuple[str, int], ...] = ()
    """A line and the number of each of them."""
    used: tuple[int, ...] = ()
    """The numbers of those that are used."""


@dataclass(frozen=True)
class Scene:
    """A prompt and what was composed from it, as the roll showed it."""

    prompt: Piece | None = None
    """What is continued, or None for a start from nothing."""
    source: Source = Source()
    name: str = "Untitled"
    takes: tuple[Take, ...] = ()
    roll: RollValue = field(default_factory=dict)


@dataclass
class Visit:
    """The music of one open page: the fields of the `Scene` that is shown, and those around it."""

    prompt: Piece | None = None
    source: Source = Source()
    name: str = "Untitled"
    takes: list[Take] = field(default_factory=list)
    roll: RollValue = field(default_factory=dict)
    earlier: list[Scene] = field(default_factory=list)
    """What was composed before it, the last one last."""
    later: list[Scene] = field(default_factory=list)
    """What was shown after it, the next one first, where the visitor has gone back."""
    warnings: list[str] = field(default_factory=list)
    """What the pianist has to say about the prompt, besides what its file said: sentences."""
    stop_asked: bool = False
    turn: int = 0
    """Grows with each new prompt and composition; one that is no longer the last one gives up."""

    @property
    def scene(self) -> Scene:
        """What is shown now."""
        return Scene(self.prompt, self.source, self.name, tuple(self.takes), self.roll)

    @property
    def surroundings(self) -> RollValue:
        """How many scenes there are before and after what is shown."""
        return {"earlier": len(self.earlier), "later": len(self.later)}

    def leave(self) -> None:
        """Keep the music that is shown, before other music is: it and all there is are earlier."""
        scenes = [*self.earlier, self.scene, *self.later]
        self.earlier = [scene for scene in scenes if scene.takes][-bounds.MAX_KEPT :]
        self.later = []

    def leaf(self, step: int) -> RollValue:
        """Show the scene before (-1) or after (1) what is shown, if there is one."""
        is_whole = bool(self.takes) or not self.roll["takes"]  # music under way is given up
        here = [self.scene] if is_whole else []
        if step < 0 and self.earlier:
            self.later[:0] = here
            scene = self.earlier.pop()
        elif step > 0 and self.later:
            self.earlier += here
            scene = self.later.pop(0)
        else:
            return self.roll
        self.prompt, self.source, self.name = scene.prompt, scene.source, scene.name
        self.takes, self.turn = list(scene.takes), self.turn + 1
        self.roll = scene.roll | {"version": fresh_version(), **self.surroundings}
        return self.roll

    def show_prompt(
        self, prompt: Piece | None, name: str, detail: str = "", source: Source | None = None
    ) -> RollValue:
        """Take `prompt` (None for none) as what is to be continued."""
        self.leave()
        self.prompt, self.name, self.takes = prompt, name, []
        self.source = source or Source()
        self.turn += 1
        seconds = 0.0 if prompt is None else prompt.seconds
        notes = silence() if prompt is None else prompt.sounding_notes
        reach = bounds.DEFAULT_PROMPT_SECONDS
        self.roll = {
            "version": fresh_version(),
            "state": "prompt" if len(notes) else "empty",
            "name": name,
            "detail": detail,
            "prompt": notes_text(notes),
            "promptSeconds": round(seconds, 3),
            "start": round(max(0.0, seconds - reach), 3),
            "end": round(seconds, 3),
            "reach": reach,
            "seam": 0.0,
            "until": 0.0,
            "front": 0.0,
            "asked": 0.0,
            "takes": [],
            "tab": 0,
            "status": "",
            **self.surroundings,
        }
        return self.roll

    def show_redone(self, before: Take, redone: Redone) -> RollValue:
        """The piece as it was, and with each candidate in it, the one that fits best first."""
        told = [redone.settings(number) for number in range(redone.n_candidates)]
        first, last = told[0]["redo"]
        pieces = [("before", "Before", before.notes, before.settings)]
        pieces += [
            (f"redo-{number + 1}", str(number + 1), redone.notes(number), settings)
            for number, settings in enumerate(told)
        ]
        self.leave()
        self.takes = [Take(name, notes, how, first, last) for name, _, notes, how in pieces]
        seconds = max(length(take.notes) for take in self.takes)
        ranks = ["", "fits best", *[""] * (len(told) - 1)]
        self.roll = self.roll | {
            "version": fresh_version(),
            "state": "done",
            "seam": first,
            "until": last,
            "front": round(seconds, 3),
            "asked": last - first,
            "tab": 2,
            "takes": [
                take_value(take, label) | {"rank": rank}
                for take, (_, label, *_), rank in zip(self.takes, pieces, ranks, strict=True)
            ],
            "status": f"{first:g} to {last:g} s composed anew, the best of {len(told)} first",
            **self.surroundings,
        }
        return self.roll

    def part(self, start: float, end: float) -> tuple[float | None, float | None]:
        """The stretch that is continued: its seconds and its end, None for all there is.

        Raises `InputError` for one that is not in the prompt.
        """
        if self.prompt is None:
            return None, None
        whole = self.prompt.seconds
        if not 0 <= start < end <= whole + SHOWN_SECONDS:
            raise InputError(
                f"The music cannot go on from {end:g} seconds, since the prompt lasts "
                f"{whole:.2f}; choose a point within it."
            )
        return (
            until(end, whole) - start if start > 0 else None,
            end if end < whole - 0.001 else None,
        )


def compose(
    visit: Visit,
    pianist: Pianist,
    wish: Wish,
    start: float,
    end: float,
    *,
    every_seconds: float = 0.15,
) -> Generator[RollValue, None, None]:
    """Continue the part from `start` to `end` (seconds): the roll's value as the music grows.

    When the iterator is closed, or `visit.stop_asked` is set from another thread, what has been
    composed stays in `visit.takes`. Raises `InputError` for a part that cannot be continued.
    """
    prompt_seconds, prompt_end_seconds = visit.part(start, end)
    seed = wish.seed if wish.seed is not None else secrets.randbelow(DEFAULT_SEED_LIMIT)
    composition = pianist.compose(
        visit.prompt,
        prompt_seconds=prompt_seconds,
        prompt_end_seconds=prompt_end_seconds,
        seconds=wish.seconds,
        variations=wish.variations,
        seed=seed,
        end=wish.end,
        **asdict(wish.sampling),
    )
    visit.leave()
    visit.stop_asked, visit.takes = False, []
    visit.turn += 1
    turn = visit.turn
    told = [] if visit.prompt is None else visit.prompt.warnings
    visit.warnings = [line for line in composition.warnings if line not in told]
    growth = _Growth(visit, composition, seed)
    try:
        yield growth.value("composing")
        shown = time.monotonic()
        for note in composition:
            growth.add(note)
            if visit.stop_asked or visit.turn != turn:
                break
            if time.monotonic() - shown >= every_seconds:
                yield growth.value("composing")
                shown = time.monotonic()
    finally:
        composition.close()
        if visit.turn == turn:
            seam = composition.seam_seconds
            visit.takes = [
                Take(f"take-{take + 1}", composition.notes(take), composition.settings(take), seam)
                for take in range(composition.n_takes)
            ]
            visit.roll = growth.value("done")
    yield visit.roll


def redo(
    visit: Visit,
    pianist: Pianist,
    wish: Wish,
    take: int | None,
    part: tuple[float, float],
    *,
    every_seconds: float = 0.15,
) -> Generator[RollValue, None, None]:
    """Compose a part (seconds) of a take, or of the prompt (None), anew: the roll meanwhile.

    What was there before is the first of the takes then, and the candidates follow, the one that
    fits best first. When the iterator is closed or `visit.stop_asked` is set, all stays as it was.
    Raises `InputError` for a part that cannot be redone.
    """
    before = _to_be_redone(visit, take)
    redoing = pianist.begin_redo(
        piece_from_notes(before.notes),
        part[0],
        until(part[1], length(before.notes)),
        candidates=wish.variations,
        seed=wish.seed,
        **asdict(wish.sampling),
    )
    visit.stop_asked, visit.warnings = False, []
    visit.turn += 1
    turn, composition, shown = visit.turn, redoing.composition, 0.0

    def given_up() -> bool:
        return visit.stop_asked or visit.turn != turn

    with closing(composition):
        for _ in composition:
            if given_up():
                break
            if time.monotonic() - shown >= every_seconds:
                shown = time.monotonic()
                status = status_line(composition)
                yield visit.roll | {"state": "redoing", "status": status}
        else:
            status = "Composed; finding out which candidate fits best"
            yield visit.roll | {"state": "redoing", "status": status}
            redone = None if given_up() else redoing.redone()
            if redone is not None and not given_up():  # comparing takes seconds, too
                visit.show_redone(before, redone)
    if visit.stop_asked and visit.turn == turn:
        visit.roll = visit.roll | {"status": UNTOUCHED}
    yield visit.roll


def _to_be_redone(visit: Visit, take: int | None) -> Take:
    """The chosen take, or the whole prompt."""
    if take is not None and take < len(visit.takes):
        return visit.takes[take]
    return Take("prompt", silence() if visit.prompt is None else visit.prompt.sounding_notes, {}, 0)


class _Growth:
    """A composition under way, as the roll shows it: closed notes as text that only grows."""

    def __init__(self, visit: Visit, composition: Composition, seed: int) -> None:
        self._composition, self._seed = composition, seed
        self._closed = [""] * composition.n_takes
        self._keys: list[set[tuple[int, int]]] = [set() for _ in range(composition.n_takes)]
        self._kept = [(silence(), "")] * composition.n_takes
        self._head = visit.roll | {
            "version": fresh_version(),
            "seam": round(float(composition.seam_seconds), 3),
            "until": 0.0,
            "asked": float(composition.seconds),
            "tab": 1,
            **visit.surroundings,
        }

    def add(self, note: Any) -> None:
        self._closed[note.take] += note_text(note.start, note.end, note.pitch, note.velocity)
        self._keys[note.take].add((_ms(note.start), int(note.pitch)))

    def value(self, state: str) -> RollValue:
        composed = float(self._composition.seconds_composed)
        done, takes = state == "done", range(len(self._closed))
        ranks = rank_words(self._composition.ranking()) if done else [""] * len(takes)
        return self._head | {
            "state": state,
            "front": round(self._head["seam"] + composed, 3),
            "takes": [self._take(take, done) | {"rank": ranks[take]} for take in takes],
            "status": status_line(self._composition, done=done),
        }

    def _take(self, take: int, done: bool) -> RollValue:
        """The prompt, whose last notes may ring on; the closed notes; those still held down."""
        held = self._held(take)
        notes = self._closed[take] + (held if done else "")
        open_ = "" if done else held
        about = {"label": str(take + 1), "seed": self._seed + take}
        return {"kept": self._prompt(take), "notes": notes, "open": open_, **about}

    def _prompt(self, take: int) -> str:
        notes = self._composition.notes(take)
        kept = notes[notes["start"] < self._composition.seam_seconds]
        if not np.array_equal(kept, self._kept[take][0]):
            self._kept[take] = kept, notes_text(kept)
        return self._kept[take][1]

    def _held(self, take: int) -> str:
        """Notes whose keys are still down: they are struck already, so they are shown and heard."""
        notes = self._composition.new_notes(take)
        latest = notes[notes["end"] >= length(notes) - 0.001]  # what still sounds ends now
        keys = self._keys[take]
        rows = latest.tolist()
        return "".join(note_text(*row) for row in rows if (_ms(row[0]), row[2]) not in keys)


def status_line(composition: Composition, *, done: bool = False) -> str:
    """How far it is, or how long it became, and how fast.

    As `12.4 / 30 s · 180 tokens/s · 4.4× real time`, or `29.6 s` and so on.
    """
    composed = float(composition.seconds_composed)
    line = f"{composed:.1f} s" if done else f"{composed:.1f} / {composition.seconds:g} s"
    if composition.elapsed <= 0 or not composition.n_tokens:
        return line
    tokens = composition.n_tokens / composition.elapsed
    return f"{line} · {tokens:.0f} tokens/s · {composed / composition.elapsed:.1f}× real time"


def rank_words(ranking: list[int]) -> list[str]:
    """What each take is told to be, from their numbers with the likeliest first.

    >>> rank_words([1, 0, 2]), rank_words([0])
    (['2nd likeliest', 'likeliest', '3rd likeliest'], [''])
    """
    if len(ranking) < 2:
        return [""]
    ordinals = {1: "likeliest", 2: "2nd likeliest", 3: "3rd likeliest"}
    places = [ranking.index(take) + 1 for take in range(len(ranking))]
    return [ordinals.get(place, f"{place}th likeliest") for place in places]


def file_stem(name: str, take: str, seed: int | None) -> str:
    """A name that tells the prompt, the take and the seed, safe on every file system.

    >>> file_stem("Prélude / Op. 28", "take-1", 7)
    'prelude-op-28-take-1-seed-7'
    """
    return f"{plain_name(name)}-{take}" + ("" if seed is None else f"-seed-{seed}")


def plain_name(name: str) -> str:
    """The small letters and digits of a name, at most 60, joined by hyphens."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-") or "music"


def take_value(take: Take, label: str) -> RollValue:
    """A finished take as the roll shows it: `label` stands on its tab."""
    new = take.is_new
    texts = {"kept": notes_text(take.notes[~new]), "notes": notes_text(take.notes[new])}
    return {**texts, "open": "", "label": label, "seed": take.settings.get("seed")}


def silence() -> Notes:
    """No notes."""
    return np.zeros(0, NOTE_DTYPE)


def until(end: float, whole: float) -> float:
    """An end (seconds) that was sent, where it is that of the music as shown: the very end.

    >>> until(12.0, 11.996), until(12.5, 11.996)
    (11.996, 12.5)
    """
    return whole if whole < end <= whole + SHOWN_SECONDS else end


def length(notes: Notes) -> float:
    """Seconds until the last note has ended."""
    return float(notes["end"].max()) if len(notes) else 0.0


def _ms(seconds: float) -> int:
    return round(float(seconds) * 1000)


def note_text(start: float, end: float, pitch: int, velocity: int) -> str:
    """A note as `start,duration,pitch,velocity;` in milliseconds.

    >>> note_text(0.5, 1.25, 60, 80)
    '500,750,60,80;'
    """
    return f"{_ms(start)},{max(1, _ms(end) - _ms(start))},{int(pitch)},{int(velocity)};"


def notes_text(notes: Notes) -> str:
    """All notes in the form of `note_text`."""
    return "".join(note_text(*row) for row in notes.tolist())


def fresh_version() -> int:
    """A number that tells the browser that this is other music, not the same grown on."""
    return secrets.randbelow(2**48)
