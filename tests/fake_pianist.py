"""Seconds asked for -> a plain waltz, composed slowly: a pianist without a network."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from small import small_pianist

from music_gpt.composing.composition import Composition
from music_gpt.composing.insight import Insight
from music_gpt.composing.pianist import Pianist
from music_gpt.composing.prompt import Prompt, hear
from music_gpt.composing.provenance import settings_text
from music_gpt.composing.redoing import Redoing, hear_stretch
from music_gpt.config.prompt import PromptChange
from music_gpt.midi.changing import change_piece
from music_gpt.midi.piece import Piece, write_midi
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.events import FRAMES_PER_SECOND


class FakeNote(NamedTuple):
    """A note of a take that has just ended."""

    take: int
    start: float
    end: float
    pitch: int
    velocity: int


class FakeComposition:
    """Bass and two chords to each bar of 1.2 s; the seed chooses the key."""

    def __init__(self, prompt: Prompt | None, seconds: float, seed: int, takes: int, pace: float):
        nothing = np.zeros(0, NOTE_DTYPE)
        self.prompt_notes: Notes = nothing if prompt is None else prompt.notes
        self.seam_seconds = 0.0 if prompt is None else prompt.start.seam / FRAMES_PER_SECOND
        self.warnings: list[str] = []
        self.seconds = seconds
        self.n_takes = takes
        self.seconds_composed = 0.0
        self.n_tokens = 0
        self.closed = False
        self.redo: list[float] = []
        self._seed = seed
        self._pace = pace
        self._new: list[list[tuple[float, float, int, int]]] = [[] for _ in range(takes)]
        self._began = time.monotonic()
        self._ended: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since composing began."""
        return (self._ended or time.monotonic()) - self._began

    tokens_per_second = Composition.tokens_per_second
    times_real_time = Composition.times_real_time

    def __iter__(self) -> Iterator[FakeNote]:
        beat = 0.4
        for step in range(round(self.seconds / beat)):
            if self.closed:
                return
            time.sleep(beat / self._pace)
            start = self.seam_seconds + step * beat
            for take in range(self.n_takes):
                root = 48 + (self._seed + take + 5 * (step // 12)) % 12
                pitches = [root] if step % 3 == 0 else [root + 16, root + 19, root + 24]
                for i, pitch in enumerate(pitches):
                    row = (start + 0.01 * i, start + beat * 0.9, pitch, 40 + 5 * (step % 9))
                    self._new[take].append(row)
                    self.n_tokens += 4
                    yield FakeNote(take, *row)
            self.seconds_composed = (step + 1) * beat
        self.close()

    def new_notes(self, take: int) -> Notes:
        """What has been composed so far."""
        return np.sort(np.array(self._new[take], NOTE_DTYPE), order=["start", "pitch"])

    def notes(self, take: int) -> Notes:
        """Prompt and new notes."""
        return np.concatenate([self.prompt_notes, self.new_notes(take)])

    def settings(self, take: int) -> dict[str, Any]:
        """How the take came about."""
        redo = {"redo": self.redo} if self.redo else {}
        return {"seed": self._seed + take, "seconds": self.seconds, **redo}

    def ranking(self) -> list[int]:
        """The last take is the likeliest."""
        return list(range(self.n_takes))[::-1]

    def write(self, path: Path, take: int) -> None:
        """A MIDI file."""
        write_midi(self.notes(take), path, text=settings_text(self.settings(take)))

    def close(self) -> None:
        """Stop; the music stays."""
        self.closed = True
        self._ended = self._ended or time.monotonic()


class FakePianist:
    """Composes `pace` seconds of music in a second."""

    def __init__(self, pace: float = 4.0) -> None:
        self.pace = pace
        self.folder: Path | None = None
        self.card = {"file": "fake <&>.safetensors"}
        self._network: Pianist | None = None

    def look_inside(self, *place: Any) -> Insight:
        """What a small network expects there."""
        self._network = self._network or small_pianist()
        return self._network.look_inside(*place)

    def compose(
        self,
        prompt: Piece | None = None,
        *,
        seconds: float = 30,
        seed: int | None = None,
        variations: int = 1,
        prompt_seconds: float | None = None,
        prompt_end_seconds: float | None = None,
        tracks: None = None,
        transpose: int = 0,
        speed: float = 1.0,
        end: bool = False,
        include_prompt: bool = True,
        **sampling: Any,
    ) -> FakeComposition:
        """A composition that has not begun."""
        heard = None
        if prompt is not None:
            prompt = change_piece(prompt, PromptChange(transpose, speed))
            heard = hear(prompt, 1_000_000, prompt_seconds, 4.0, prompt_end_seconds)
        return FakeComposition(heard, seconds, seed or 0, variations, self.pace)

    def begin_redo(
        self,
        piece: Piece,
        start: float,
        end: float,
        *,
        candidates: int = 8,
        seed: int | None = None,
        **_sampling: Any,
    ) -> Redoing:
        """Candidates that have not begun; the last one fits best."""
        stretch = hear_stretch(piece, start, end, 1_000_000, 4.0)
        seconds = (stretch.end - stretch.first) / FRAMES_PER_SECOND
        composition: Any = FakeComposition(
            stretch.prompt, seconds, seed or 0, candidates, self.pace
        )
        composition.redo = [stretch.first / FRAMES_PER_SECOND, stretch.end / FRAMES_PER_SECOND]
        misfits = [float(candidates - take) for take in range(candidates)]
        return Redoing(stretch, composition, lambda *_: misfits)
