"""A piece -> what the network hears of it, and where the new music joins on.

The module knows events and notes, but neither the network nor files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError, argument
from music_gpt.generation.grammar import Start
from music_gpt.midi.piece import Piece, cut_notes
from music_gpt.notes import Notes, end_at_next_strike
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    canonical_notes,
    encode_notes,
    velocity_in_force,
)

PROMPT_SHARE = 0.75
"""Longest prompt, as a share of the context: the rest is for music before the window slides."""


@dataclass(frozen=True)
class Prompt:
    """The part of a piece that is continued."""

    notes: Notes
    """Sounding notes, in seconds from the head of this part."""
    start: Start
    """What the network hears of it, and where the new music begins."""
    ringing: dict[int, int] = field(default_factory=dict)
    """Pitches that sound up to the seam -> place in `notes`; the new music releases them."""
    warnings: list[str] = field(default_factory=list)
    """What a person should know: sentences."""
    n_after: int = 0
    """Notes that stand after the new music, where that is a part of a piece."""

    def n_given(self, *, kept: bool) -> int:
        """Notes of a take that were there before it was composed, with the prompt if it is kept."""
        return self.n_after + (len(self.notes) if kept else 0)


def hear(
    piece: Piece,
    context: int,
    prompt_seconds: float | None,
    longest_wait: float,
    prompt_end_seconds: float | None = None,
) -> Prompt:
    """Prepare the end of `piece`, or of its first seconds, for a network that hears `context` ids.

    All notes that sound up to the very end are left open, for it may be there only because the
    music was cut: the new music says how long they ring on. The wait before the seam is left open
    too, so that the next onset falls where it belongs and not on the seam. Of a prompt that takes
    more than `PROMPT_SHARE` of the context only the tail is heard, cut between two frames; its
    notes are all kept, and the velocity in force at the cut is carried over.

    Args:
        piece: its sounding notes count.
        context: longest window of the network, in ids.
        prompt_seconds: hear only so much of the end, or all of it.
        longest_wait: in seconds; a longer final note counts as if it was struck later.
        prompt_end_seconds: hear nothing from there on; None for the end of the piece.

    Raises:
        InputError: the piece has no notes, none in this part, or ends before it.
    """
    if not piece.n_notes:
        raise InputError("The prompt holds no notes; give one with piano music, or none at all.")
    notes = _from_zero(_part(piece, prompt_seconds, prompt_end_seconds))
    notes["end"] = end_at_next_strike(notes["start"], notes["pitch"], notes["end"])
    ids, wait = open_end(encode_heard(notes))
    room = prompt_room(context)
    if len(ids) < room:
        return _prompt(notes, [EOS, *ids], wait, longest_wait, [])
    ids = last_ids(ids, room)
    heard = canonical_notes(notes)[-max(1, sum(i < NOTE_OFF for i in ids)) :]
    seconds = float(notes["end"].max() - heard["start"][0])
    told = (
        "The prompt is longer than what the network can hear at once, so the new music knows only "
        f"its last {seconds:.0f} seconds."
    )
    return _prompt(notes, ids, wait, longest_wait, [told])


def prompt_room(context: int) -> int:
    """How many ids of a prompt a network that hears `context` ids is given."""
    return max(int(context * PROMPT_SHARE), 2)


def _part(piece: Piece, seconds: float | None, end: float | None) -> Notes:
    """The last `seconds` before `end`; what reaches less than half a frame into them is outside."""
    end = piece.seconds if end is None else end
    if end > piece.seconds:
        raise InputError(
            f"{argument('prompt_end_seconds')} is {end:g}, but the prompt lasts "
            f"{piece.seconds:.2f} seconds; choose a point within it."
        )
    start = 0.0 if seconds is None else max(0.0, end - seconds)
    notes, half = piece.sounding_notes, 0.5 / FRAMES_PER_SECOND
    if start > 0:
        notes = notes[(notes["end"] > start + half) | (notes["start"] >= start)]
    if end < piece.seconds:
        notes = notes[notes["start"] < end - half]
    if start > 0 or end < piece.seconds:
        notes = cut_notes(notes, start, end)
    if not len(notes):
        raise InputError(
            f"Nothing sounds between {start:g} and {end:g} seconds of the prompt; choose a part "
            "with music."
        )
    return notes


def _prompt(
    notes: Notes, context: list[int], wait: int, longest_wait: float, warnings: list[str]
) -> Prompt:
    canonical = canonical_notes(notes)
    ends = np.rint(canonical["end"] * FRAMES_PER_SECOND).astype(np.int64)
    seam = int(ends.max())
    onsets = {
        int(note["pitch"]): round(float(note["start"]) * FRAMES_PER_SECOND)
        for note in canonical[ends == seam]
    }
    # of the notes of a pitch the last one rings; of several that begin at once, the longest
    place = {int(notes["pitch"][i]): int(i) for i in np.lexsort((notes["end"], notes["start"]))}
    wait = min(wait, round(longest_wait * FRAMES_PER_SECOND))
    start = Start(context, seam - wait, seam, velocity_in_force(context), onsets)
    return Prompt(notes, start, {pitch: place[pitch] for pitch in onsets}, warnings)


def encode_heard(notes: Notes) -> list[int]:
    """As in the training corpus: a longer silence than there would be new to the network."""
    ids: list[int] = encode_notes(notes, max_gap_seconds=PrepareConfig.max_gap_seconds).tolist()
    return ids


def _from_zero(notes: Notes) -> Notes:
    """The notes with their first onset at 0."""
    moved = notes.copy()
    moved["start"] -= notes["start"].min()
    moved["end"] -= notes["start"].min()
    return moved


def open_end(ids: list[int]) -> tuple[list[int], int]:
    """The ids without the last releases and the wait before them, and this wait in frames."""
    end, wait = len(ids), 0
    while NOTE_OFF <= ids[end - 1] < TIME_SHIFT:
        end -= 1
    while TIME_SHIFT <= ids[end - 1] < VELOCITY:
        end -= 1
        wait += ids[end] - (TIME_SHIFT - 1)
    return ids[:end], wait


def last_ids(ids: list[int], room: int) -> list[int]:
    """The last `room` ids, from the head of a frame on, headed by the velocity in force there."""
    first = len(ids) - room + 1
    heads = (i for i in range(first, len(ids)) if TIME_SHIFT <= ids[i - 1] < VELOCITY)
    cut = next(heads, first)
    return [VELOCITY + velocity_in_force(ids[:cut]), *ids[cut:]]
