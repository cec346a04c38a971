"""Events of several takes as they come -> their music: notes, the settings that made them, MIDI.

The module knows notes and the prompt, but neither the network nor how events are drawn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from music_gpt.checking import whole
from music_gpt.composing.prompt import Prompt
from music_gpt.composing.provenance import settings_text
from music_gpt.config.preparing import MidiLimits
from music_gpt.generation.decoding import Drawn
from music_gpt.midi.piece import make_notes, to_pretty_midi, write_midi
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    velocity_value,
)

if TYPE_CHECKING:
    from pretty_midi import PrettyMIDI


MOST_NOTES, MOST_SECONDS = MidiLimits().max_notes, MidiLimits().max_seconds
"""Of a take with its prompt: no more are read from a MIDI file, so no more are written to one."""
FULL = f"There is no room for more than {MOST_NOTES:,} notes, so the music falls silent at its end."


class ComposedNote(NamedTuple):
    """One note that has ended; times in seconds from the head of the kept prompt."""

    take: int
    start: float
    end: float
    pitch: int
    velocity: int


class _Line:
    """One take as music: its events so far, as notes on the clock of the prompt."""

    def __init__(self, prompt: Prompt, room: int) -> None:
        self._prompt, self._seam = prompt, prompt.start.seam
        self._room = room  # notes that it may still take up
        self.is_full = False
        """Whether a note was left out, because there was no room."""
        self.frame = prompt.start.frame
        self._velocity = prompt.start.velocity
        self._struck: dict[int, tuple[int, int]] = {}  # pitch -> frame, velocity
        self._ringing = dict(prompt.ringing)  # pitch -> place in the prompt
        self._released: dict[int, int] = {}  # place in the prompt -> frame
        self._notes: list[tuple[float, float, int, int]] = []

    def add(self, event: int) -> tuple[float, float, int, int] | None:
        """One more event; gives the new note that it ends."""
        if event < NOTE_OFF:
            if self._room > 0:
                self._struck[event] = self.frame, velocity_value(self._velocity)
                self._room -= 1
            else:
                self.is_full = True
        elif event < TIME_SHIFT:
            return self._release(event - NOTE_OFF)
        elif event < VELOCITY:
            self.frame += event - (TIME_SHIFT - 1)
        elif event < EOS:
            self._velocity = event - VELOCITY
        return None

    def _release(self, pitch: int) -> tuple[float, float, int, int] | None:
        if pitch in self._ringing:
            self._released[self._ringing.pop(pitch)] = self.now
            return None
        if pitch not in self._struck:  # there was no room for it
            return None
        self._notes.append(self._closed(pitch, *self._struck.pop(pitch)))
        return self._notes[-1]

    def _closed(self, pitch: int, frame: int, velocity: int) -> tuple[float, float, int, int]:
        end = max(self.frame, frame + 1)
        return frame / FRAMES_PER_SECOND, end / FRAMES_PER_SECOND, pitch, velocity

    @property
    def now(self) -> int:
        """The time that has been composed, in frames; not before the seam."""
        return max(self.frame, self._seam)

    def close(self) -> list[tuple[float, float, int, int]]:
        """End what still sounds; gives the new notes among it."""
        pitches = sorted([*self._ringing, *self._struck])
        ended = [self._release(pitch) for pitch in pitches]
        return [note for note in ended if note is not None]

    def new_notes(self) -> Notes:
        """Notes struck in the new music; what still sounds ends now."""
        still = [self._closed(pitch, *struck) for pitch, struck in self._struck.items()]
        rows = [*self._notes, *still]
        return make_notes(rows) if rows else np.zeros(0, NOTE_DTYPE)

    def notes(self) -> Notes:
        """The prompt, its last notes as long as they ring, and the new music."""
        heard = self._prompt.notes.copy()
        for place in self._ringing.values():
            heard["end"][place] = self.now / FRAMES_PER_SECOND
        for place, frame in self._released.items():
            heard["end"][place] = frame / FRAMES_PER_SECOND
        both = np.concatenate([heard, self.new_notes()])
        return both[np.lexsort((both["pitch"], both["start"]))]


class Composition:
    """Takes in the making: iterate to compose, and ask for the music at any time.

    Iterating gives each new note when it has ended, take by take as they come. The notes of the
    prompt are not among them; those that ring on into the new music are in `notes`, with their
    full length.
    """

    def __init__(
        self,
        events: Iterator[Drawn],
        prompt: Prompt,
        settings: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> None:
        """`seeds` are those of the takes, whose `settings` are the same else."""
        self._events: Iterator[Drawn] | None = events
        self._prompt, self._settings, self._seeds = prompt, dict(settings), seeds
        self.n_takes = len(seeds)
        room = MOST_NOTES - prompt.n_given(kept=settings["include_prompt"])
        self._lines = [_Line(prompt, room) for _ in range(self.n_takes)]
        self.prompt_notes: Notes = prompt.notes
        """The kept part of the prompt, times from 0."""
        self.seam_seconds: float = prompt.start.seam / FRAMES_PER_SECOND
        """Where the new music begins."""
        self.warnings: list[str] = list(prompt.warnings)
        """What a person should know: sentences."""
        self.seconds: float = settings["seconds"]
        """Seconds of new music that were asked for."""
        self._nats = [0.0] * self.n_takes
        self._n_events = [0] * self.n_takes
        self.n_tokens = 0
        """Events composed so far, all takes together."""
        self.elapsed = 0.0
        """Seconds that composing has taken."""

    def __iter__(self) -> Composition:
        return self

    def __next__(self) -> ComposedNote:
        began = time.perf_counter()
        try:
            while self._events is not None:
                number, event, nats = next(self._events)
                self.n_tokens += 1
                if event != EOS:  # the end was asked for: it says nothing of the music
                    self._nats[number] += nats
                    self._n_events[number] += 1
                note = self._lines[number].add(event)
                if self._lines[number].is_full and FULL not in self.warnings:
                    self.warnings.append(FULL)
                if note is not None:
                    return ComposedNote(number, *note)
        except BaseException:
            # the last note, or something that stops the music: keep what is there
            self.close()
            raise
        finally:
            self.elapsed += time.perf_counter() - began
        raise StopIteration

    @property
    def seconds_composed(self) -> float:
        """Seconds of new music that the slowest take has."""
        slowest = min(line.now for line in self._lines)
        return (slowest - self._prompt.start.seam) / FRAMES_PER_SECOND

    @property
    def tokens_per_second(self) -> float:
        """How fast it is composed, all takes together."""
        return self.n_tokens / max(self.elapsed, 1e-9)

    @property
    def times_real_time(self) -> float:
        """How many times as fast it is composed as it is played, of several takes side by side."""
        return self.seconds_composed / max(self.elapsed, 1e-9)

    def close(self) -> None:
        """Stop composing: the music stays as it is, and what still sounds ends here."""
        events, self._events = self._events, None
        close = getattr(events, "close", None)
        if close is not None:
            close()
        if events is not None:
            for line in self._lines:
                line.close()

    def notes(self, take: int = 0) -> Notes:
        """The kept prompt and the new music so far; what still sounds ends now.

        Raises `InputError`, as all that ask for a take do, where there is no such take.
        """
        return self._line(take).notes()

    def new_notes(self, take: int = 0) -> Notes:
        """The new music so far, on the same clock as `notes`."""
        return self._line(take).new_notes()

    def nats_per_token(self, take: int = 0) -> float | None:
        """How unlikely the network itself finds the take so far; None before its first event.

        Mean over its events but for the end, at temperature 1, without grammar and filters. Lower
        is likelier: more as the network expects, which is not the same as better.
        """
        self._line(take)
        n_events = self._n_events[take]
        return round(self._nats[take] / n_events, 3) if n_events else None

    def ranking(self) -> list[int]:
        """Numbers of the takes, the likeliest first."""
        nats = [self.nats_per_token(take) for take in range(self.n_takes)]
        return sorted(range(self.n_takes), key=lambda take: (nats[take] is None, nats[take], take))

    def settings(self, take: int = 0) -> dict[str, Any]:
        """All that made this take, and how likely it came out.

        With its seed, `variations=1` makes it again.
        """
        nats, seed = self.nats_per_token(take), self._seeds[take]
        return {**self._settings, "seed": seed, "variations": 1, "nats_per_token": nats}

    def midi(self, take: int = 0) -> PrettyMIDI:
        """The take as a PrettyMIDI, with the settings in a text event."""
        return to_pretty_midi(self._file_notes(take), text=settings_text(self.settings(take)))

    def write(self, path: str | Path, take: int = 0) -> None:
        """Write the take to a MIDI file, whole or not at all, with the settings in a text event."""
        write_midi(self._file_notes(take), path, text=settings_text(self.settings(take)))

    def _line(self, take: int) -> _Line:
        return self._lines[whole("take", take, 0, self.n_takes - 1)]

    def _file_notes(self, take: int) -> Notes:
        """The notes with or without the prompt, as it was asked for."""
        if self._settings["include_prompt"]:
            return self.notes(take)
        notes = self.new_notes(take)
        notes["start"] -= self.seam_seconds
        notes["end"] -= self.seam_seconds
        return notes
