"""A note that was pressed -> what the network expected there and what it looked at, for the page.

Numbers and strings only, as in `music_gpt.ui.roll_value`, because numpy's reach the browser as
strings. The module knows the pianist, but not the browser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from music_gpt.arrays import Floats
from music_gpt.composing.insight import HeardPiece, Insight
from music_gpt.errors import InputError
from music_gpt.keys import PITCH_CLASSES, pitch_name, spelling
from music_gpt.notes import NO_PART, Notes
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    frames_of,
    velocity_value,
)
from music_gpt.ui.history import Snapshot
from music_gpt.ui.roll_value import BEFORE, Take, silence

if TYPE_CHECKING:
    from music_gpt.composing.pianist import Pianist

TOLD = 8
"""Events that are told of all that were expected, the likeliest first."""
LEAST_WEIGHT = 0.003
"""Attention below this is not told: less than can be seen."""
Names = Sequence[str]
"""What the twelve pitch classes are called in a piece."""
DRAWN_WITH = {
    "onnx-int8": "It was drawn with rounded weights (engine onnx-int8), whose chances differ from "
    "these by a hundredth or two."
}
"""Engine -> what is told of music that it drew, where one looks at it in full precision."""
LOST = "The note that you pressed did not arrive; load the page again."


@dataclass(frozen=True)
class Asked:
    """What the visitor would like to look at."""

    take: int
    """Number of a take, -1 for the prompt."""
    version: int | None
    place: int | None
    """An event by its place, or else the one that strikes a note:"""
    seconds: float
    pitch: int | None
    """None for the first note at or after this time."""


def read_asked(payload: Any) -> Asked:
    """What was asked for, from what the browser sends; raises `InputError` for anything else.

    >>> read_asked({"take": 0, "version": 7, "seconds": 1.5, "pitch": 60})
    Asked(take=0, version=7, place=None, seconds=1.5, pitch=60)
    """
    try:
        take, version, place = payload["take"], payload.get("version"), payload.get("place")
        seconds, pitch = float(payload.get("seconds", 0.0)), payload.get("pitch")
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
        raise InputError(LOST) from None
    numbers = [number for number in (take, version, place, pitch) if number is not None]
    is_whole = all(type(number) is int for number in numbers)
    if take is None or not is_whole or take < -1 or not math.isfinite(seconds):
        raise InputError(LOST)
    return Asked(take, version, place, seconds, pitch)


def explain(pianist: Pianist, music: Snapshot, asked: Asked) -> dict[str, Any]:
    """What the page shows of one event of what is shown.

    Raises `InputError` where there is no such music or event.
    """
    take = _take(music, asked.take)
    piece = HeardPiece.of(take.notes)
    if asked.place is not None:
        place = asked.place
    elif asked.pitch is not None:
        place = piece.place_of(asked.seconds, asked.pitch)
    else:
        place = piece.first_place(asked.seconds)
    new = (take.first, take.last) if take.settings and take.name != BEFORE else NO_PART
    found = pianist.look_inside(piece, place, take.settings, new)
    names = names_in(take.notes)
    return {
        "version": music.roll["version"],
        "take": asked.take,
        "drawn": _drawn_with(take) if found.drawn_from is not None else "",
        **event_value(piece, place, names),
        **expected_value(found, int(piece.ids[place]), names),
        **attention_value(piece, found, names),
    }


def _take(music: Snapshot, number: int) -> Take:
    """The take of this number, or the prompt."""
    if number >= 0:
        return music.take(number)
    notes = silence() if music.prompt is None else music.prompt.sounding_notes
    return Take("prompt", notes, {}, *NO_PART)


# --- parts of the answer --------------------------------------------------------------------------


def event_value(piece: HeardPiece, place: int, names: Names) -> dict[str, Any]:
    """Which event it is, where it is in the music, and where the notes before and after it are.

    Where there is none, a place before the first event, or after the last one.
    """
    struck = np.flatnonzero(piece.ids < NOTE_OFF)
    return {
        "place": place,
        "places": len(piece.ids) - 1,
        "noteBefore": int(struck[struck < place].max(initial=0)),
        "noteAfter": int(struck[struck > place].min(initial=len(piece.ids))),
        "said": event_words(int(piece.ids[place]), names),
        "chosen": _drawn_event(piece, place, names),
        "seconds": round(float(piece.seconds[place]), 2),
    }


def expected_value(found: Insight, id_: int, names: Names) -> dict[str, Any]:
    """The likeliest events and the one that came: before and after grammar, leans and filters.

    With it, how the chance of the one that came changes from layer to layer, and what is likeliest
    there of all that the grammar allows.
    """
    order = np.argsort(-found.expected, kind="stable")
    rank = int(np.flatnonzero(order == id_)[0]) + 1
    rows = sorted({*order[:TOLD].tolist(), id_}, key=lambda row: -found.expected[row])
    return {
        "chance": _share(found.expected[id_]),
        "rank": rank,
        "of": len(found.expected),
        "expected": [
            {
                "name": event_words(row, names),
                "before": _share(found.expected[row]),
                "after": None if found.drawn_from is None else _share(found.drawn_from[row]),
                "came": row == id_,
            }
            for row in rows
        ],
        "depths": [
            {
                "chance": _share(row[id_]),
                "guess": event_words(int(np.where(found.allowed, row, 0.0).argmax()), names),
            }
            for row in found.depths
        ],
    }


def attention_value(piece: HeardPiece, found: Insight, names: Names) -> dict[str, Any]:
    """The events that were heard, as the roll draws them, and how much each head attends to them.

    Events are `kind,start,end,pitch,words;` in milliseconds; heads are texts `event,thousandths;`.
    """
    first, *others = found.places.tolist()
    head = f"s,{_ms(piece.seconds[first])},{_ms(piece.seconds[first])},0,"
    head += "all that came before" if first else "the start"
    return {
        "events": ";".join([head, *[_drawn_event(piece, place, names) for place in others]]),
        "heads": [[_weights_text(head) for head in block] for block in found.attention],
    }


def _weights_text(weights: Floats) -> str:
    told = np.flatnonzero(weights >= LEAST_WEIGHT).tolist()
    return ";".join(f"{number},{round(float(weights[number]) * 1000)}" for number in told)


def _drawn_event(piece: HeardPiece, place: int, names: Names) -> str:
    """An event as `kind,start,end,pitch,words`: of a note the whole, of a wait what passes.

    The kinds are n for a note that is struck, r for one that is released, w for a wait, v for a
    velocity and s for the start.
    """
    id_, start = int(piece.ids[place]), float(piece.seconds[place])
    kind, end, pitch = "v", start, 0
    if id_ < TIME_SHIFT:
        note = piece.notes[piece.note[place]]
        kind, pitch = "n" if id_ < NOTE_OFF else "r", int(note["pitch"])
        start, end = note["start"], note["end"]
    elif id_ < VELOCITY:
        kind, end = "w", start + frames_of(id_) / FRAMES_PER_SECOND
    return f"{kind},{_ms(start)},{_ms(end)},{pitch},{event_words(id_, names)}"


def _ms(seconds: float) -> int:
    return round(float(seconds) * 1000)


def _drawn_with(take: Take) -> str:
    """What is told of the engine that drew a take."""
    return DRAWN_WITH.get(str(take.settings.get("engine")), "")


def _share(probability: float) -> float:
    """A probability that the browser can use; thousandths of a percent are enough."""
    return round(float(probability), 5)


# --- words ----------------------------------------------------------------------------------------


def names_in(notes: Notes) -> Names:
    """What the pitch classes are called in the key that these notes are in."""
    seconds = notes["end"] - notes["start"]
    return spelling(np.bincount(notes["pitch"] % 12, seconds, minlength=12).tolist())


def event_words(id_: int, names: Names = PITCH_CLASSES) -> str:
    """An event as people say it.

    >>> [event_words(id_) for id_ in (60, 188, 305, 372, 388)]
    ['C4', 'C4 let go', 'wait 0.50 s', 'velocity 67', 'the end']
    """
    if id_ < NOTE_OFF:
        return pitch_name(id_, names)
    if id_ < TIME_SHIFT:
        return f"{pitch_name(id_ - NOTE_OFF, names)} let go"
    if id_ < VELOCITY:
        return f"wait {frames_of(id_) / FRAMES_PER_SECOND:.2f} s"
    return f"velocity {velocity_value(id_ - VELOCITY)}" if id_ < EOS else "the end"
