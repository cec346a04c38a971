"""what is known of a piece -> a reason to leave it out, or none: one small function each.

Two of them do nothing unless they are asked to: `flat_velocity` and `quantised` leave out scores,
which teach notes and forms though not touch. Their thresholds in the config say how to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from music_gpt.config.preparing import PrepareConfig


@dataclass(frozen=True)
class PieceFacts:
    """What the filters may look at: counted on the events that would be written."""

    notes: int
    seconds: float
    pitches: int
    """Number of different pitches."""
    outside: int = 0
    """Notes beyond the 88 keys of a piano."""
    velocity_spread: float = 64.0
    """Standard deviation of the velocities."""
    regularity: float = 0.0
    """Share of machine-exact distances between onsets."""


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


def out_of_range(facts: PieceFacts, config: PrepareConfig) -> str | None:
    """Music for no piano: effects on the lowest pitches, or key switches of a sampler."""
    share = facts.outside / max(facts.notes, 1)
    if share > config.max_outside_keys:
        return (
            f"Of its notes {share:.0%} lie beyond a piano's keys (pitches 21 to 108), more than "
            f"{config.max_outside_keys:.0%} (max_outside_keys)."
        )
    return None


def flat_velocity(facts: PieceFacts, config: PrepareConfig) -> str | None:
    """A score that tells no loudness."""
    if facts.velocity_spread < config.min_velocity_spread:
        return (
            f"Its velocities vary by {facts.velocity_spread:.1f}, less than "
            f"{config.min_velocity_spread:g} (min_velocity_spread)."
        )
    return None


def quantised(facts: PieceFacts, config: PrepareConfig) -> str | None:
    """A score that a machine plays in strict time."""
    if facts.regularity > config.max_regularity:
        return (
            f"Of its onsets {facts.regularity:.0%} follow at machine-exact distances, more than "
            f"{config.max_regularity:.0%} (max_regularity)."
        )
    return None


FILTERS: dict[str, Filter] = {
    "too few notes": too_few_notes,
    "too short": too_short,
    "too few pitches": too_few_pitches,
    "too dense": too_dense,
    "out of range": out_of_range,
    "flat velocity": flat_velocity,
    "quantised": quantised,
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
