"""What the page offers -> `PageConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from music_gpt.checking import check_fields, number, require, whole


@dataclass(frozen=True)
class PageConfig:
    """What the page offers, and how much one visitor may ask of the machine."""

    min_seconds: float = 5.0
    """Shortest piece of new music that can be asked for."""
    max_seconds: float = 300.0
    """Longest piece of new music that can be asked for."""
    max_variations: int = 8
    """Most takes that are composed at once."""
    default_prompt_seconds: float = 40.0
    """How much of the end of a prompt is continued until the handles are moved."""
    composers: int = 2
    """Visitors whose music is composed at the same time; the others wait in a line."""
    line: int = 16
    """Visitors that may wait; the next one is told to come back."""
    max_file_bytes: int = 4_000_000
    """Largest MIDI file that can be dropped."""
    max_notes: int = 50_000
    """Most notes in a dropped file."""
    max_sound_seconds: float = 1200.0
    """Longest music that is made into sound: 212 MB as a WAV file."""
    max_shelf_bytes: int = 1_000_000_000
    """Most bytes of files that wait to be fetched; beyond it the oldest go."""

    def __post_init__(self) -> None:
        counts = ("max_variations", "composers", "line", "max_file_bytes", "max_notes")
        check_fields(self, (*counts, "max_shelf_bytes"), whole, 1)
        seconds = ("min_seconds", "max_seconds", "default_prompt_seconds", "max_sound_seconds")
        check_fields(self, seconds, number, 0, above=True)
        allowed = f"at most max_seconds ({self.max_seconds:g})"
        require(self.min_seconds <= self.max_seconds, "min_seconds", self.min_seconds, allowed)
