"""what is known of a piece -> a reason to leave it out, or none: one small function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from music_gpt.config import PrepareConfig


@dataclass(frozen=True)
class PieceFacts:
    """What the filters may look at: counted on the events that would be written."""

    notes: int
    seconds: float
    pitches: int
    """Number of different pitches."""


Filter = Callable[[PieceFacts, PrepareConfig], str | None]


def too_few_notes(facts: PieceFacts, config: PrepareConfig) -> str | None:
    """A sound effect or an empty take."""
    if facts.notes < config.min_notes:
        return f"It has {facts.notes} notes, fewer than {config.min_notes} (min_notes)."
    return None


def too_short(facts: PieceFacts, config: PrepareConfig) -> str | None:
    """A fragment."""
    if facts.seconds < config.min_seconds:
        return f"It lasts {facts.seconds:.1f} s, less than {config.min_seconds:g} (min_seconds)."
    return None


def too_few_pitches(facts: PieceFacts, config: PrepareConfig) -> str | None:
    """A metronome, a drum on a piano channel, a test of one key."""
    if facts.pitches < config.min_pitches:
        return f"It has {facts.pitches} pitches, fewer than {config.min_pitches} (min_pitches)."
    return None


def too_dense(facts: PieceFacts, config: PrepareConfig) -> str | None:
    """A file that draws a picture with notes, as no pianist plays."""
    density = facts.notes / max(facts.seconds, 0.01)
    if density > config.max_notes_per_second:
        return (
            f"It has {density:.0f} notes a second, more than {config.max_notes_per_second:g} "
            "(max_notes_per_second)."
        )
    return None


FILTERS: dict[str, Filter] = {
    "too few notes": too_few_notes,
    "too short": too_short,
    "too few pitches": too_few_pitches,
    "too dense": too_dense,
}


def why_left_out(facts: PieceFacts, config: PrepareConfig) -> tuple[str, str] | None:
    """Name of the first filter that speaks and its reason, or None for a piece to keep.

    >>> why_left_out(PieceFacts(notes=3, seconds=9.0, pitches=3), PrepareConfig())
    ('too few notes', 'It has 3 notes, fewer than 32 (min_notes).')
    """
    for name, speak in FILTERS.items():
        reason = speak(facts, config)
        if reason:
            return name, reason
    return None
