"""A piece and one of its events -> what the network expected there, and what it looked at.

The module knows events, notes and the network, but neither files nor the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from music_gpt.arrays import Floats, Ints, Mask
from music_gpt.composing.prompt import encode_heard, last_ids, prompt_room
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.generation.decoding import last_window
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.generation.sampler import probabilities
from music_gpt.network.inside import observe
from music_gpt.network.model import GPT
from music_gpt.notes import NO_PART, Notes
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    NOTE_OFF,
    TIME_SHIFT,
    canonical_notes,
    shift_frames,
    sounding_after,
    velocity_in_force,
    whole_frames,
)

SAME_SECONDS = 0.004
"""Times so close together are the same: events are at whole frames of 10 milliseconds."""
FOUND_SECONDS = 0.02
"""A note is found so close to where it is struck: in a file that may be between two frames."""
FAR_SECONDS = 3600.0
"""How far away the end is taken to be where none was asked for."""


# --- a piece as the network hears it --------------------------------------------------------------


@dataclass(frozen=True)
class HeardPiece:
    """The N events of a piece, headed by EOS, and where in the music each of them happens."""

    ids: Ints
    seconds: Floats
    """When each event happens; a wait begins there, and a velocity is told there."""
    note: Ints
    """Number of the note that an event strikes or releases, -1 for other events."""
    notes: Notes
    """The notes as the events tell them, in the order in which they are struck."""

    @classmethod
    def of(cls, notes: Notes) -> HeardPiece:
        """Sounding notes, in seconds, at whatever time they begin.

        Raises `InputError` where there are none.
        """
        if not len(notes):
            raise InputError("There are no notes to look at; choose music, or compose some.")
        notes = whole_frames(notes)  # as a part that was redone was heard
        told = canonical_notes(notes)
        released = np.lexsort((told["pitch"], told["end"]))  # in whole frames: equal ones are equal
        first = float(notes["start"].min())
        told["start"], told["end"] = told["start"] + first, told["end"] + first
        ids = np.array([EOS, *encode_heard(notes)], np.int64)
        note = np.full(len(ids), -1)
        note[ids < NOTE_OFF] = np.arange(len(told))
        note[(ids >= NOTE_OFF) & (ids < TIME_SHIFT)] = released
        return cls(ids, _seconds(ids, note, told), note, told)

    def place_of(self, seconds: float, pitch: int) -> int:
        """The event that strikes this note; raises `InputError` where there is none."""
        apart = np.abs(self.notes["start"] - seconds)
        apart[self.notes["pitch"] != pitch] = np.inf
        found = int(apart.argmin())
        if apart[found] > FOUND_SECONDS:
            raise InputError("There is no such note in this music; press another one.")
        return int(np.flatnonzero((self.note == found) & (self.ids < NOTE_OFF))[0])

    def first_place(self, seconds: float) -> int:
        """The first event that strikes a note at or after this time; else the last that does."""
        struck = np.flatnonzero(self.ids < NOTE_OFF)
        later = struck[self.seconds[struck] >= seconds - SAME_SECONDS]
        return int(later[0] if len(later) else struck[-1])


def _seconds(ids: Ints, note: Ints, notes: Notes) -> Floats:
    """When each event happens, also where a silence is told shorter than it is."""
    known = np.where(ids < NOTE_OFF, notes["start"][note], notes["end"][note])
    place = np.maximum.accumulate(np.where(note >= 0, np.arange(len(ids)), 0))
    known[0] = notes["start"][0]
    waits = shift_frames(ids)
    passed = np.cumsum(waits) - waits  # before each event
    found: Floats = known[place] + (passed - passed[place]) / FRAMES_PER_SECOND
    return found


# --- what is expected at one place ----------------------------------------------------------------


@dataclass(frozen=True)
class Insight:
    """What the network makes of the events before one place of a piece."""

    place: int
    """The event that it is about."""
    places: Ints
    """The T events that the network hears before it, by their places in the piece. The first may
    stand for all before the window: then it tells the velocity in force."""
    attention: Floats
    """How much each head attends to each of them, (L, H, T)."""
    expected: Floats
    """What it expects by itself, (V): probabilities."""
    allowed: Mask
    """What the grammar lets follow, (V)."""
    drawn_from: Floats | None
    """What is left of it after grammar, leans, temperature and filters, (V): probabilities. None
    where the event was not composed here."""
    depths: Floats
    """What it would expect if it ended after the embedding, and in each block after attention and
    after the feed-forward layer, (1 + 2 L, V): probabilities."""


def insight(
    model: GPT,
    piece: HeardPiece,
    place: int,
    settings: Mapping[str, Any],
    new: tuple[float, float] = NO_PART,
) -> Insight:
    """What goes on in the network before the event at `place` is there.

    In music that was composed, the network hears what it heard when the event was drawn, and leans
    count from its first event on; elsewhere it hears the last events that fit into its context.

    Args:
        model: the network.
        piece: the music.
        place: an event of it, 1 or later.
        settings: those of the take; of music that nobody composed, empty.
        new: from which second to which the music was composed.

    Raises:
        InputError: there is no such event.
    """
    if not 1 <= place < len(piece.ids):
        raise InputError(f"The events of this music are 1 to {len(piece.ids) - 1}; choose one.")
    begin = _first_new(piece, place, new)
    heard = _heard(piece.ids[:place].tolist(), begin, model.config.context)
    inside = observe(model, heard)
    logits = inside.logits.double().numpy()
    depths = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    grammar, sampling = _grammar(piece, place, begin, settings, new)
    allowed = grammar.allowed()
    drawn_from = None
    if begin is not None:
        limited = np.where(allowed, logits[-1:] + grammar.bias(), -np.inf)
        drawn = probabilities(limited, sampling)[0]
        drawn_from = np.bincount(
            grammar.cut(np.arange(len(drawn))), drawn, minlength=len(drawn)
        ).astype(np.float64)
    return Insight(
        place=place,
        places=np.arange(place - len(heard), place),
        attention=inside.attention.double().numpy(),
        expected=depths[-1],
        allowed=allowed[0],
        drawn_from=drawn_from,
        depths=depths,
    )


def _first_new(piece: HeardPiece, place: int, new: tuple[float, float]) -> int | None:
    """The first event that was composed, where the one at `place` was, too; else None.

    It is what follows the last event before the new music, where a wait is none: one that leads to
    the new music was composed with it. One that leads beyond it was not.
    """
    first, last = new
    waits = shift_frames(piece.ids)
    given = np.flatnonzero((piece.seconds < first - SAME_SECONDS) & (waits == 0))
    begin = int(given[-1]) + 1 if len(given) else 1
    ends = piece.seconds[place] + waits[place] / FRAMES_PER_SECOND
    is_before_last = piece.seconds[place] < last - SAME_SECONDS and ends < last + SAME_SECONDS
    return begin if begin <= place and is_before_last else None


def _heard(before: list[int], begin: int | None, context: int) -> list[int]:
    """What the network hears of the events before a place: as many as it did when it was drawn.

    Music that nobody composed is heard as far back as the context reaches.
    """
    if begin is None:
        return before if len(before) <= context else last_ids(before, context)
    given, room = before[:begin], prompt_room(context)
    start = given if len(given) <= room else last_ids(given[1:], room)
    n_heard, slid_at = len(start), 0
    for place in range(begin + 1, len(before) + 1):
        if n_heard < context:
            n_heard += 1
        else:
            n_heard, slid_at = context // 2, place
    if slid_at:
        return [*last_window(before[:slid_at], context // 2), *before[slid_at:]]
    return [*start, *before[begin:]]


def _grammar(
    piece: HeardPiece,
    place: int,
    begin: int | None,
    settings: Mapping[str, Any],
    new: tuple[float, float],
) -> tuple[Grammar, SamplingConfig]:
    """The grammar of one take before the event at `place`, and how that was drawn.

    Where nothing was composed, it is that of a take which begins there.
    """
    first, last = new
    is_new, begin = begin is not None, place if begin is None else begin
    before, frame = piece.ids[:begin], int(shift_frames(piece.ids[:begin]).sum())
    wait = first - piece.seconds[begin] if is_new else 0.0  # a wait may lead to the seam
    start = Start(
        context=(),
        frame=frame,
        seam=frame + max(round(wait * FRAMES_PER_SECOND), 0),
        velocity=velocity_in_force(before),
        onsets=sounding_after(before),
        held=_held(piece, new) if is_new else frozenset(),
    )
    knobs = {field.name for field in fields(SamplingConfig)} & settings.keys()
    sampling = SamplingConfig(**{name: settings[name] for name in knobs})
    ending = _ending(settings, start.seam, last - first) if is_new else _far(start.seam)
    grammar = Grammar(start, ending, sampling, 1)
    for id_ in piece.ids[begin:place]:
        grammar.advance(np.array([id_]))
    return grammar, sampling


def _held(piece: HeardPiece, new: tuple[float, float]) -> frozenset[int]:
    """Pitches that sound on from before to after a part that was composed anew."""
    first, last = new
    struck, ended = piece.notes["start"], piece.notes["end"]
    rings = (struck < first - SAME_SECONDS) & (ended > last + SAME_SECONDS)
    return frozenset(piece.notes["pitch"][rings].tolist())


def _ending(settings: Mapping[str, Any], seam: int, seconds: float) -> Ending:
    """How the music that was composed from this frame on had to end."""
    if math.isfinite(seconds):  # a part of a piece, which goes on after it
        return Ending.at(seam + round(seconds * FRAMES_PER_SECOND))
    asked = settings.get("seconds")
    if isinstance(asked, int | float):
        return Ending.after(seam, float(asked), own=bool(settings.get("end")))
    return _far(seam)


def _far(seam: int) -> Ending:
    """An ending that is not felt."""
    return Ending.after(seam, FAR_SECONDS)
