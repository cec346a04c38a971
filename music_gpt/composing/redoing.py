"""A stretch of a piece -> the piece with other music there: candidates, the best-fitting first.

Times are on the clock of the piece, where the stretch begins and ends on frames of 10 ms. Notes
struck before or after it stay as they are; one that is struck before and ends within is released by
the new music. What is struck within and sounds at the end of the stretch ends there, unless a note
of its pitch sounded there before: then it lasts as long as that one did. So nothing hangs, doubles
or moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from music_gpt.checking import whole
from music_gpt.composing.composition import Composition
from music_gpt.composing.prompt import Prompt, encode_heard, last_ids, open_end, prompt_room
from music_gpt.composing.provenance import settings_text
from music_gpt.errors import InputError
from music_gpt.generation.grammar import Start
from music_gpt.midi.piece import Piece, to_pretty_midi, write_midi
from music_gpt.notes import Notes, end_at_next_strike
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    TIME_SHIFT,
    VELOCITY,
    encode_notes,
    shift_frames,
    velocity_in_force,
    whole_frames,
)

if TYPE_CHECKING:
    from pretty_midi import PrettyMIDI

SHORTEST_SECONDS, LONGEST_SECONDS = 0.1, 60.0
FOLLOWING_SECONDS = 8.0
"""How much of what follows the stretch says how well a candidate fits."""


@dataclass(frozen=True)
class Stretch:
    """A part of a piece, from frame `first` up to frame `end`, and what is around it."""

    first: int
    end: int
    prompt: Prompt
    """What is struck before, and what the network hears of it."""
    after: Notes
    """What is struck at the end or later."""
    crossing: dict[int, float]
    """Pitches struck within the stretch that sounded beyond it -> seconds where they ended."""

    def joined(self, notes: Notes) -> Notes:
        """The whole piece, where `notes` are what is struck before the end of the stretch."""
        notes = notes.copy()
        # what was struck before the stretch sounds to its end at most
        new = _frames(notes["start"]) >= self.first
        for i in np.flatnonzero(new & (_frames(notes["end"]) == self.end)):
            notes["end"][i] = self.crossing.get(int(notes["pitch"][i]), notes["end"][i])
        piece = np.concatenate([notes, self.after])
        piece = piece[np.lexsort((piece["pitch"], piece["start"]))]
        piece["end"] = end_at_next_strike(piece["start"], piece["pitch"], piece["end"])
        return piece

    def split(self, piece: Notes) -> tuple[list[int], list[int]]:
        """Ids of the `joined` piece: up to the end of the stretch, and some seconds after it."""
        last = self.end + round(FOLLOWING_SECONDS * FRAMES_PER_SECOND)
        notes = whole_frames(piece[_frames(piece["start"]) < last])
        ids = encode_notes(notes)
        time = _frames(notes["start"]).min() + np.cumsum(shift_frames(ids))
        # an event at the end of the stretch follows it, and so does the wait that leads there
        is_wait = (ids >= TIME_SHIFT) & (ids < VELOCITY)
        within = np.flatnonzero((time < self.end) & ~is_wait)
        cut = int(within[-1]) + 1 if len(within) else 0
        following = ids[cut:][time[cut:] <= last]
        return [EOS, *ids[:cut].tolist()], following.tolist()


def hear_stretch(
    piece: Piece, start: float, end: float, context: int, longest_wait: float
) -> Stretch:
    """Prepare a network that hears `context` ids for new music from `start` to `end`, in seconds.

    Raises:
        InputError: it ends before it begins, is not within the piece, too short or too long.
    """
    _check(piece, start, end)
    first, last = (int(frame) for frame in _frames(np.array([start, end])))
    notes = piece.sounding_notes.copy()
    notes["end"] = end_at_next_strike(notes["start"], notes["pitch"], notes["end"])
    on_frames = whole_frames(notes)
    struck, ended = _frames(on_frames["start"]), _frames(on_frames["end"])
    before, inside = struck < first, (struck >= first) & (struck < last)
    crossing = {int(note["pitch"]): float(note["end"]) for note in notes[inside & (ended > last)]}
    # of the notes of a pitch the last one rings; of several that begin at once, the longest
    kept, struck_before, ended_before = notes[before], struck[before], ended[before]
    place = {int(kept["pitch"][i]): int(i) for i in np.lexsort((kept["end"], kept["start"]))}
    rings = {p: i for p, i in place.items() if ended_before[i] >= first}
    held = frozenset(p for p, i in rings.items() if ended_before[i] > last)
    onsets = {pitch: int(struck_before[i]) for pitch, i in rings.items()}
    heard, frame = _heard(kept, first, context, longest_wait)
    velocity = velocity_in_force(heard)
    prompt = Prompt(
        kept,
        Start(heard, frame, first, velocity, onsets, held),
        {pitch: i for pitch, i in rings.items() if pitch not in held},
        list(piece.warnings),
        int((struck >= last).sum()),
    )
    return Stretch(first, last, prompt, notes[struck >= last], crossing)


def _check(piece: Piece, start: float, end: float) -> None:
    if start >= end:
        raise InputError(
            f"The part begins at {start:g} seconds and ends at {end:g}; let it begin before it "
            "ends."
        )
    if start < 0 or end > piece.seconds:
        raise InputError(
            f"The part from {start:g} to {end:g} seconds is not in the piece, which lasts "
            f"{piece.seconds:.2f}; choose a beginning and an end within it."
        )
    seconds = round(end - start, 6)  # 0.3 - 0.2 is a little less than 0.1
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise InputError(
            f"The part lasts {seconds:g} seconds, but {SHORTEST_SECONDS:g} to "
            f"{LONGEST_SECONDS:g} can be redone at once; choose another end."
        )


def _heard(notes: Notes, first: int, context: int, longest_wait: float) -> tuple[list[int], int]:
    """What the network hears of the notes before frame `first`, and the frame where that ends."""
    if not len(notes):
        return [EOS], first
    clipped = whole_frames(notes)
    clipped["end"] = np.minimum(clipped["end"], first / FRAMES_PER_SECOND)
    ids, ends = encode_heard(clipped), int(_frames(clipped["end"]).max())
    wait = first - ends
    if not wait:  # what sounds across stays open, and the network says how long the wait becomes
        ids, wait = open_end(ids)
    room = prompt_room(context)
    heard = [EOS, *ids] if len(ids) < room else last_ids(ids, room)
    return heard, first - min(wait, round(longest_wait * FRAMES_PER_SECOND))


def _frames(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    frames: npt.NDArray[np.int64] = np.rint(seconds * FRAMES_PER_SECOND).astype(np.int64)
    return frames


class Redone:
    """A piece with a stretch composed anew, in several ways: number 0 fits best."""

    def __init__(self, stretch: Stretch, composition: Composition, nats: list[float]) -> None:
        self._stretch, self._composition, self._nats = stretch, composition, nats
        self._order = sorted(range(len(nats)), key=nats.__getitem__)
        self.n_candidates = len(nats)
        """How many ways there are."""
        self.warnings: list[str] = list(composition.warnings)
        """What a person should know: sentences."""

    def notes(self, number: int = 0) -> Notes:
        """The whole piece; `InputError`, as of all that ask for one, where there is none."""
        return self._stretch.joined(self._composition.notes(self._candidate(number)))

    def settings(self, number: int = 0) -> dict[str, Any]:
        """All that made this candidate: with its seed, `candidates=1` makes it again."""
        candidate = self._candidate(number)
        return {
            **self._composition.settings(candidate),
            "following_nats_per_token": round(self._nats[candidate], 3),
        }

    def midi(self, number: int = 0) -> PrettyMIDI:
        """The whole piece as a PrettyMIDI, with the settings in a text event."""
        return to_pretty_midi(self.notes(number), text=settings_text(self.settings(number)))

    def write(self, path: str | Path, number: int = 0) -> None:
        """Write the whole piece to a MIDI file, with the settings in a text event."""
        write_midi(self.notes(number), path, text=settings_text(self.settings(number)))

    def _candidate(self, number: int) -> int:
        return self._order[whole("number", number, 0, self.n_candidates - 1)]


def candidate_seeds(seed: int, n: int) -> list[int]:
    """Seeds of `n` candidates: the given one, and others that are not those of the next seed.

    So each candidate can be made again alone by its own, and another seed gives other ones.

    >>> candidate_seeds(1, 4), candidate_seeds(2, 2)
    ([1, 917752063, 865519474, 660112278], [2, 1417063493])
    """
    others = np.random.SeedSequence(seed).generate_state(n - 1) >> 1  # 31 bits: copied by hand
    return [seed, *others.tolist()]


@dataclass(frozen=True)
class Redoing:
    """Candidates in the making: iterate the composition to compose, then ask for `redone`."""

    stretch: Stretch
    composition: Composition
    misfits: Callable[[Stretch, Composition], list[float]]
    """How badly what follows goes on from each candidate, in nats per token."""

    def redone(self) -> Redone:
        """The piece with each candidate in it, the one that fits best first."""
        misfits = self.misfits(self.stretch, self.composition)
        return Redone(self.stretch, self.composition, misfits)


def stretch_settings(stretch: Stretch, made: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a composition of the stretch."""
    first, end = stretch.first / FRAMES_PER_SECOND, stretch.end / FRAMES_PER_SECOND
    seconds = (stretch.end - stretch.first) / FRAMES_PER_SECOND
    return {**made, "redo": [first, end], "seconds": seconds, "include_prompt": True}
