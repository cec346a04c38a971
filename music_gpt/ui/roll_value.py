"""A prompt, or what is composed from it -> its takes, and what the piano roll is given of them."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from music_gpt.config.prompt import AS_GIVEN, PromptChange
from music_gpt.midi.changing import fitting_transpositions
from music_gpt.notes import A_MOMENT, NOTE_DTYPE, Notes, struck_within
from music_gpt.ui import bounds

if TYPE_CHECKING:
    from music_gpt.composing.composition import ComposedNote, Composition
    from music_gpt.composing.redoing import Redone
    from music_gpt.midi.piece import Piece

Flags = npt.NDArray[np.bool_]
RollValue = dict[str, Any]
"""Numbers and strings only, because numpy floats reach the browser as strings. Notes are text that
only grows, so each update sends nothing but what is new, and the few notes that still sound."""

SHOWN_SECONDS = 0.01
"""Times are shown to the hundredth."""
BEFORE = "before"
"""Name of the take that is as the music was before a part of it was redone."""
NO_TAKES: RollValue = {
    "seam": 0.0,
    "until": 0.0,
    "front": 0.0,
    "asked": 0.0,
    "takes": [],
    "tab": 0,
    "status": "",
}


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
    def title(self) -> str:
        """What it is called where it is a prompt: `Take 1, seed 7`."""
        seed = self.settings.get("seed")
        words = (
            "Before the redo" if self.name == BEFORE else self.name.replace("-", " ").capitalize()
        )
        return words if seed is None else f"{words}, seed {seed}"

    @property
    def is_new(self) -> Flags:
        """Which of its notes are new."""
        return struck_within(self.notes, (self.first, self.last))


def composed_takes(composition: Composition) -> tuple[Take, ...]:
    """What there is of a composition, as takes."""
    seam = composition.seam_seconds
    return tuple(
        Take(f"take-{take + 1}", composition.notes(take), composition.settings(take), seam)
        for take in range(composition.n_takes)
    )


def redone_takes(before: Take, redone: Redone) -> tuple[Take, ...]:
    """The piece as it was, and with each candidate in it, the one that fits best first."""
    told = [redone.settings(number) for number in range(redone.n_candidates)]
    part = told[0]["redo"]
    return (
        Take(BEFORE, before.notes, before.settings, *part),
        *[
            Take(f"redo-{number + 1}", redone.notes(number), settings, *part)
            for number, settings in enumerate(told)
        ],
    )


# --- what the roll shows -------------------------------------------------------------------------


def prompt_value(
    prompt: Piece | None, name: str, detail: str, reach: float = bounds.DEFAULT_PROMPT_SECONDS
) -> RollValue:
    """A prompt (None for none), before anything is composed from it.

    reach: how many seconds before the point where it is continued belong to the music.
    """
    seconds = 0.0 if prompt is None else prompt.seconds
    notes = silence() if prompt is None else prompt.sounding_notes
    return {
        "version": fresh_version(),
        "given": fresh_version(),
        "state": "prompt" if len(notes) else "empty",
        "name": name,
        "detail": detail,
        "prompt": notes_text(notes),
        "promptSeconds": round(seconds, 3),
        "start": round(max(0.0, seconds - reach), 3),
        "end": round(seconds, 3),
        "reach": reach,
        **change_told(prompt, AS_GIVEN),
        **NO_TAKES,
    }


def change_told(given: Piece | None, change: PromptChange) -> RollValue:
    """How a prompt was changed (the speed in percent), and how it can be transposed."""
    fits = [] if given is None else fitting_transpositions(given)
    return {
        "transpose": change.transpose,
        "speed": round(100 * change.speed, 6),
        "transpositions": sorted({0, change.transpose, *fits}),
    }


def moved_prompt(before: RollValue, prompt: Piece | None, faster: float) -> RollValue:
    """The prompt of a value once it was changed, `faster` than it was: handles at the same notes.

    What it was changed by is not told.
    """
    value = prompt_value(prompt, before["name"], before["detail"], before["reach"] / faster)
    at_end = abs(before["end"] - before["promptSeconds"]) <= SHOWN_SECONDS
    end = value["end"] if at_end else round(before["end"] / faster, 3)
    start = round(before["start"] / faster, 3)
    return value | {"given": before["given"], "start": start, "end": end}


def without_takes(roll: RollValue) -> RollValue:
    """The prompt in a value of the roll, before anything is composed from it."""
    state = "prompt" if roll["prompt"] else "empty"
    return roll | {"version": fresh_version(), "state": state, **NO_TAKES}


def redone_value(takes: Sequence[Take]) -> RollValue:
    """What changes when these `redone_takes` are shown."""
    first, last, n = takes[0].first, takes[0].last, len(takes) - 1
    labels = ["Before", *[str(number + 1) for number in range(n)]]
    ranks = ["", "fits best", *[""] * (n - 1)]
    return {
        "version": fresh_version(),
        "state": "done",
        "seam": first,
        "until": last,
        "front": round(max(length(take.notes) for take in takes), 3),
        "asked": last - first,
        "tab": 2,
        "takes": [
            take_value(take, label) | {"rank": rank}
            for take, label, rank in zip(takes, labels, ranks, strict=True)
        ],
        "status": f"{first:g} to {last:g} s composed anew, the best of {n} first",
    }


def take_value(take: Take, label: str) -> RollValue:
    """A finished take as the roll shows it: `label` stands on its tab."""
    new = take.is_new
    texts = {"kept": notes_text(take.notes[~new]), "notes": notes_text(take.notes[new])}
    seed = take.settings.get("seed")
    return {**texts, "ringing": "", "open": "", "label": label, "seed": seed}


class Growth:
    """A composition under way, as the roll shows it: closed notes as text that only grows."""

    def __init__(self, composition: Composition, seed: int, before: RollValue) -> None:
        """`seed` is that of the first take, `before` what the roll showed until now."""
        self._composition, self._seed = composition, seed
        self._closed = [""] * composition.n_takes
        self._keys: list[set[tuple[int, int]]] = [set() for _ in range(composition.n_takes)]
        prompt = composition.prompt_notes
        rings = prompt["end"] >= composition.seam_seconds - A_MOMENT  # and may ring on
        self._kept = notes_text(prompt[~rings])
        self._ringing = {_name(note["start"], note["pitch"]) for note in prompt[rings]}
        self._head = before | {
            "version": fresh_version(),
            "seam": round(float(composition.seam_seconds), 3),
            "until": 0.0,
            "asked": float(composition.seconds),
            "tab": 1,
        }

    def add(self, note: ComposedNote) -> None:
        """One more note that has ended."""
        self._closed[note.take] += note_text(note.start, note.end, note.pitch, note.velocity)
        self._keys[note.take].add(_name(note.start, note.pitch))

    def value(self, state: str, *, is_cut: bool = False) -> RollValue:
        """What the roll is given now: `state` is composing or done.

        is_cut: whether the music was ended before its time.
        """
        composed = float(self._composition.seconds_composed)
        done, takes = state == "done", range(len(self._closed))
        ranks = rank_words(self._composition.ranking()) if done else [""] * len(takes)
        return self._head | {
            "state": state,
            "front": round(self._head["seam"] + composed, 3),
            "takes": [self._take(take, done) | {"rank": ranks[take]} for take in takes],
            "status": status_line(self._composition, done=done, is_cut=is_cut),
        }

    def _take(self, take: int, done: bool) -> RollValue:
        """The prompt, and its last notes, which ring on; closed notes, and those still held."""
        held = self._held(take)
        notes = self._closed[take] + (held if done else "")
        texts = {"kept": self._kept, "ringing": self._rings_on(take)}
        about = {"label": str(take + 1), "seed": self._seed + take}
        return {**texts, "notes": notes, "open": "" if done else held, **about}

    def _rings_on(self, take: int) -> str:
        if not self._ringing:
            return ""
        notes = self._composition.notes(take)
        late = notes[notes["end"] >= self._composition.seam_seconds - A_MOMENT].tolist()
        return "".join(note_text(*row) for row in late if _name(row[0], row[2]) in self._ringing)

    def _held(self, take: int) -> str:
        """Notes whose keys are still down: they are struck already, so they are shown and heard."""
        notes = self._composition.new_notes(take)
        latest = notes[notes["end"] >= length(notes) - 0.001]  # what still sounds ends now
        keys = self._keys[take]
        rows = latest.tolist()
        return "".join(note_text(*row) for row in rows if _name(row[0], row[2]) not in keys)


def status_line(composition: Composition, *, done: bool = False, is_cut: bool = False) -> str:
    """How far it is, or how long it became, and how fast.

    As `12.4 / 30 s · 180 tokens/s · 4.4× real time`, or `29.6 s` and so on; of music that was cut,
    `12.4 s of 30, stopped` and so on.
    """
    composed = float(composition.seconds_composed)
    line = f"{composed:.1f} s" if done else f"{composed:.1f} / {composition.seconds:g} s"
    if is_cut:
        line += f" of {composition.seconds:g}, stopped"
    if composition.elapsed <= 0 or not composition.n_tokens:
        return line
    speed = f"{composition.tokens_per_second:.0f} tokens/s"
    return f"{line} · {speed} · {composition.times_real_time:.1f}× real time"


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


def silence() -> Notes:
    """No notes."""
    return np.zeros(0, NOTE_DTYPE)


def length(notes: Notes) -> float:
    """Seconds until the last note has ended."""
    return float(notes["end"].max()) if len(notes) else 0.0


def _name(start: float, pitch: int) -> tuple[int, int]:
    """What tells a note from all others: when it is struck, in milliseconds, and its pitch."""
    return _ms(start), int(pitch)


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
