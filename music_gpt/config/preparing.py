"""Which MIDI files are used, and how -> `MidiLimits` and `PrepareConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from music_gpt.checking import MAX_JSON_INTEGER, check_fields, number, require, whole


@dataclass(frozen=True)
class MidiLimits:
    """Bounds on one MIDI file, so that a hostile one costs little."""

    max_bytes: int = 10_000_000
    """Largest file in bytes; an hour of concert takes a tenth of it."""
    max_events: int = 1_000_000
    """Most events of any kind in one file; a note takes two, and its pedal may take as many."""
    max_notes: int = 200_000
    """Most notes in one file."""
    max_seconds: float = 36_000.0
    """Longest piece in seconds, after long gaps were shortened."""

    def __post_init__(self) -> None:
        check_fields(self, ("max_bytes", "max_events", "max_notes"), whole, 1)
        check_fields(self, ("max_seconds",), number, 0, above=True)


@dataclass(frozen=True)
class PrepareConfig:
    """How a folder of MIDI files becomes a tokens folder."""

    workers: int = 0
    """Processes that read and encode; 0 takes one for each core."""
    validation: float = 0.1
    """Share of the compositions that goes to the validation split."""
    test: float = 0.1
    """Share of the compositions that goes to the test split."""
    seed: int = 0
    """Changes which compositions go where."""
    min_notes: int = 32
    """Pieces with fewer notes are left out."""
    min_seconds: float = 5.0
    """Pieces that last less are left out."""
    min_pitches: int = 4
    """Pieces with fewer different pitches are left out."""
    max_notes_per_second: float = 60.0
    """Pieces with more notes a second, on average, are left out."""
    max_outside_keys: float = 0.1
    """Pieces with a greater share of notes beyond a piano's 88 keys (21 to 108) are left out."""
    min_velocity_spread: float = 0.0
    """Pieces whose velocities (0 to 127) have a smaller standard deviation are left out; 0, the
    default, keeps scores in one velocity, and 3 leaves them out."""
    max_regularity: float = 1.0
    """Pieces with a greater share of machine-exact distances between onsets are left out; 1, the
    default, keeps quantised scores, and 0.9 leaves them out."""
    max_gap_seconds: float = 10.0
    """Longer silences inside a piece are shortened to this."""
    split_by: str = ""
    """CSV file with the columns path and split that fixes the split of the pieces named in it;
    their names are as the report writes them."""
    sources: str = ""
    """TSV file with the columns path, source, licence, kind and composer, all but the first
    optional, copied to pieces.jsonl."""

    def __post_init__(self) -> None:
        check_fields(self, ("workers",), whole, 0, 256)
        check_fields(self, ("validation", "test"), number, 0, 0.5)
        left_out = self.validation + self.test
        allowed = "below 1, so that something is left to train on"
        require(left_out < 1, "validation + test", left_out, allowed)
        check_fields(self, ("min_notes", "min_pitches"), whole, 1)
        check_fields(self, ("max_outside_keys", "max_regularity"), number, 0, 1)
        check_fields(self, ("min_velocity_spread",), number, 0, 64)
        check_fields(self, ("max_notes_per_second",), number, 0, above=True)
        check_fields(self, ("min_seconds",), number, 0)
        check_fields(self, ("max_gap_seconds",), number, 1, 3600)
        check_fields(self, ("seed",), whole, 0, MAX_JSON_INTEGER)
        for name in ("split_by", "sources"):
            path = getattr(self, name)
            require(isinstance(path, str), name, path, "the path of a file, or empty")
