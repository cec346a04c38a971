"""One visitor's wishes -> what the piano roll shows: the prompt, the takes, their growth.

A `Visit` belongs to one open page and nothing here is shared between two of them. This module
knows the pianist and notes, but neither Gradio nor the browser.
"""

from __future__ import annotations

import re
import secrets
import time
import unicodedata
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from music_gpt.composing.pianist import DEFAULT_SEED_LIMIT, MAX_GIVEN_SEED
from music_gpt.config.page import PageConfig
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.notes import NOTE_DTYPE, Notes

if TYPE_CHECKING:
    from music_gpt.composing.composition import Composition
    from music_gpt.composing.pianist import Pianist
    from music_gpt.midi.piece import Piece

RollValue = dict[str, Any]
"""What the roll is given: plain numbers and strings only, because numpy floats reach the browser
as strings. Notes are text that only grows, so each update sends nothing but what is new."""


@dataclass(frozen=True)
class Wish:
    """What a person asks for when Compose is pressed."""

    seconds: float = 30.0
    """Length of the new music."""
    variations: int = 1
    """How many takes are composed at once."""
    seed: int | None = None
    """The same seed gives the same music; None draws one."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """How the next event is drawn."""

    def check(self, page: PageConfig) -> None:
        """Raise `InputError` when a wish lies outside what the page offers."""
        if not page.min_seconds <= self.seconds <= page.max_seconds:
            raise InputError(
                f"The length is {self.seconds:g} s, but it has to be between "
                f"{page.min_seconds:g} and {page.max_seconds:g} s."
            )
        if not 1 <= self.variations <= page.max_variations:
            raise InputError(
                f"{self.variations} variations were asked for, but 1 to {page.max_variations} "
                "can be composed at once."
            )
        if self.seed is not None and not 0 <= self.seed <= MAX_GIVEN_SEED:
            raise InputError(
                f"The seed is {self.seed}, but it has to be between 0 and {MAX_GIVEN_SEED}; "
                "leave it empty for a new one."
            )


@dataclass(frozen=True)
class Take:
    """One finished variation: prompt and new notes, and how it came about."""

    notes: Notes
    settings: dict[str, Any]


@dataclass
class Visit:
    """The music of one open page."""

    prompt: Piece | None = None
    """What is continued, or None for a start from nothing."""
    file: bytes = b""
    """The MIDI file of a prompt that has several tracks to choose from."""
    name: str = "Untitled"
    detail: str = ""
    takes: list[Take] = field(default_factory=list)
    roll: RollValue = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    """What the pianist has to say about the prompt, besides what its file said: sentences."""
    stop_asked: bool = False
    turn: int = 0
    """Grows with each new prompt and composition; one that is no longer the last one gives up."""

    def show_prompt(self, prompt: Piece | None, name: str, detail: str = "") -> RollValue:
        """Take `prompt` (None for none) as what is to be continued."""
        self.prompt, self.name, self.detail, self.takes = prompt, name, detail, []
        self.turn += 1
        seconds = 0.0 if prompt is None else prompt.seconds
        notes = silence() if prompt is None else prompt.sounding_notes
        reach = PageConfig().default_prompt_seconds
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
            "front": 0.0,
            "asked": 0.0,
            "takes": [],
            "status": "",
            "seed": None,
        }
        return self.roll

    def part(self, start: float, end: float) -> tuple[float | None, float | None]:
        """The stretch that is continued: its seconds and its end, None for all there is."""
        if self.prompt is None:
            return None, None
        whole = self.prompt.seconds
        return (
            min(end, whole) - start if start > 0 else None,
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
    composed stays in `visit.takes`. Raises `InputError` for a wish that cannot be met.
    """
    wish.check(PageConfig())
    prompt_seconds, prompt_end_seconds = visit.part(start, end)
    seed = wish.seed if wish.seed is not None else secrets.randbelow(DEFAULT_SEED_LIMIT)
    composition = pianist.compose(
        visit.prompt,
        prompt_seconds=prompt_seconds,
        prompt_end_seconds=prompt_end_seconds,
        seconds=wish.seconds,
        variations=wish.variations,
        seed=seed,
        **asdict(wish.sampling),
    )
    visit.stop_asked, visit.takes = False, []
    visit.turn += 1
    turn = visit.turn
    told = [] if visit.prompt is None else visit.prompt.warnings
    visit.warnings = [line for line in composition.warnings if line not in told]
    growth = _Growth(visit, composition, wish, seed)
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
            visit.takes = [
                Take(composition.notes(take), composition.settings(take))
                for take in range(composition.n_takes)
            ]
            visit.roll = growth.value("done")
    yield visit.roll


class _Growth:
    """A composition under way, as the roll shows it: closed notes as text that only grows."""

    def __init__(self, visit: Visit, composition: Composition, wish: Wish, seed: int) -> None:
        self._composition = composition
        self._wish = wish
        self._closed = [""] * composition.n_takes
        self._keys: list[set[tuple[int, int]]] = [set() for _ in range(composition.n_takes)]
        self._kept = [(silence(), "")] * composition.n_takes
        self._head = visit.roll | {
            "version": fresh_version(),
            "seam": round(float(composition.seam_seconds), 3),
            "asked": float(wish.seconds),
            "seed": seed,
        }

    def add(self, note: Any) -> None:
        self._closed[note.take] += note_text(note.start, note.end, note.pitch, note.velocity)
        self._keys[note.take].add((_ms(note.start), int(note.pitch)))

    def value(self, state: str) -> RollValue:
        composed = float(self._composition.seconds_composed)
        return self._head | {
            "state": state,
            "front": round(self._head["seam"] + composed, 3),
            "takes": [self._take(take, state == "done") for take in range(len(self._closed))],
            "status": status_line(self._composition, self._wish.seconds),
        }

    def _take(self, take: int, done: bool) -> dict[str, str]:
        """The prompt, whose last notes may ring on; the closed notes; those still held down."""
        held = self._held(take)
        if done:
            return {"kept": self._prompt(take), "notes": self._closed[take] + held, "open": ""}
        return {"kept": self._prompt(take), "notes": self._closed[take], "open": held}

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


def status_line(composition: Composition, asked: float) -> str:
    """How far it is and how fast: `12.4 / 30 s · 180 tokens/s · 4.4× real time`."""
    composed = float(composition.seconds_composed)
    line = f"{composed:.1f} / {asked:g} s"
    if composition.elapsed <= 0 or not composition.n_tokens:
        return line
    tokens = composition.n_tokens / composition.elapsed
    return f"{line} · {tokens:.0f} tokens/s · {composed / composition.elapsed:.1f}× real time"


def file_stem(name: str, take: Take, number: int) -> str:
    """A name that tells the prompt, the take and the seed, safe on every file system.

    >>> file_stem("Prélude / Op. 28", Take(silence(), {"seed": 7}), 0)
    'prelude-op-28-take-1-seed-7'
    """
    return f"{plain_name(name)}-take-{number + 1}-seed-{take.settings['seed']}"


def plain_name(name: str) -> str:
    """The small letters and digits of a name, at most 60, joined by hyphens."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-") or "music"


def silence() -> Notes:
    """No notes."""
    return np.zeros(0, NOTE_DTYPE)


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
