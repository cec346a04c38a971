"""How a prompt is changed before it is continued -> `PromptChange`."""

from __future__ import annotations

from dataclasses import dataclass

from music_gpt.checking import check_fields, number, whole

MOST_SEMITONES = 24
"""By which a prompt is moved, up or down."""
SLOWEST, FASTEST = 0.25, 4
"""Least and greatest speed."""


@dataclass(frozen=True)
class PromptChange:
    """The prompt in another key and tempo."""

    transpose: int = 0
    """Moves the prompt by so many semitones before it is continued; below 0 is down."""
    speed: float = 1.0
    """Plays the prompt so many times as fast (1.2 is 120 %); all seconds of it are counted at that
    speed."""

    def __post_init__(self) -> None:
        check_fields(self, ("transpose",), whole, -MOST_SEMITONES, MOST_SEMITONES)
        check_fields(self, ("speed",), number, SLOWEST, FASTEST)


AS_GIVEN = PromptChange()
"""No change at all."""
