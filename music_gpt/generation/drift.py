"""Events so far -> what keeps the rest of a take like its own first minute.

A network that hears only its own music drifts: most often into ever sparser music with ever longer
notes. Its pace and how long its notes sound are held at what they were in the first minute. All of
it only leans: what the network is sure of still comes.

The letters in the shape comments: B takes side by side, V events in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from music_gpt.arrays import Floats, Ints
from music_gpt.generation.rates import Rate, faded
from music_gpt.generation.takes import Rows
from music_gpt.tokens.events import (
    FRAMES_PER_SECOND,
    N_SHIFTS,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    frames_of,
)

OPENING_SECONDS = 60.0
"""New music that sets a take's own pace, and how long its notes sound."""
MEMORY_SECONDS = 30.0
"""From then on what was counts by exp(-age / MEMORY_SECONDS)."""
PACE_GAIN, PACE_NATS = 4.0, 1.0
"""The lean is at its full strength where the pace is off by one part in `PACE_GAIN`: that of a wait
as long as usual; for one e times as long it is twice that."""
LENGTH_GAIN, LENGTH_NATS = 2.0, 2.0
"""Nats by which releases become likelier, or less likely, where notes sound longer, or shorter, by
one part in `LENGTH_GAIN`; half of them for half of that."""
FEWEST_ONSETS = 8.0
"""Fewer notes tell nothing of how long notes sound: one that was just struck counts, too."""
USUAL_WAITS = 32.0
"""So many waits back are usual."""
_LOG_WAITS = np.log(np.arange(1, N_SHIFTS + 1))
_FADED = faded(MEMORY_SECONDS)


@dataclass(slots=True)
class _Opening:
    """The first minute of one take."""

    left: float = OPENING_SECONDS
    """Seconds to its end; not above 0 when it is over."""


@dataclass(slots=True)
class _Tempo(_Opening):
    """How fast one take goes by itself."""

    own: float = 0.0
    """Notes per second of its first minute."""
    usual: float = float(_LOG_WAITS[9])
    """Logarithm of the frames of its waits lately."""

    def lean(self, rate: float) -> float:
        """Nats by which a wait of the usual length becomes less likely at this `rate` of lately."""
        lack = (self.own - rate) / max(self.own, 1 / OPENING_SECONDS)
        return PACE_NATS * min(max(PACE_GAIN * lack, -1.0), 1.0)

    def advance(self, id_: int) -> None:
        """One more event."""
        frames = frames_of(id_)
        if id_ < NOTE_OFF and self.left > 0:
            self.own += 1 / OPENING_SECONDS
        elif frames:
            self.left -= frames / FRAMES_PER_SECOND
            self.usual += (float(_LOG_WAITS[frames - 1]) - self.usual) / USUAL_WAITS


class Pace(Rows):
    """The notes per second of B takes lately, beside those of their own first minute.

    Music drifts into what is sparse, because in time it lasts. So from the second minute on waits
    become less or more likely, the long ones above all, as the take has fewer or more notes a
    second than it had. Onsets and releases stay as likely beside each other: more onsets alone
    would pile up.
    """

    def __init__(self, n_takes: int) -> None:
        self._tempos = [_Tempo() for _ in range(n_takes)]
        self._rate = Rate(n_takes, MEMORY_SECONDS)

    def lean(self, bias: Floats, going: Iterable[bool]) -> None:
        """Adds to the logits, `bias` (B, V), of the takes in `going` (B)."""
        paces = zip(self._tempos, self._rate.per_second, going, strict=True)
        leans = [tempo.lean(rate) if goes else 0.0 for tempo, rate, goes in paces]
        if not any(leans):
            return
        usual = np.array([tempo.usual for tempo in self._tempos])[:, None]  # (B, 1)
        length = 1 + np.minimum(np.maximum(_LOG_WAITS - usual, -1), 1)  # (B, 100): usual is 1
        bias[:, TIME_SHIFT:VELOCITY] -= np.array(leans)[:, None] * length

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        self._rate.advance(ids)
        for take, (tempo, id_) in enumerate(zip(self._tempos, ids.tolist(), strict=True)):
            is_opening = tempo.left > 0
            tempo.advance(id_)
            if is_opening:  # the memory begins with what the first minute had
                self._rate.per_second[take] = tempo.own


@dataclass(slots=True)
class _Lengths(_Opening):
    """How long the notes of one take sound."""

    sounding: int = 0
    """Notes that sound now."""
    onsets: float = 0.0
    """Notes that were struck: of the first minute all, from then on in a memory that fades."""
    seconds: float = 0.0
    """That notes sounded, summed over them, in the same memory."""
    own: float = 0.0
    """Seconds of a note in the mean of the first minute; 0 where it had too few notes."""

    def lean(self) -> float:
        """Nats by which releases become likelier; less likely where negative."""
        if not self.own or self.onsets < FEWEST_ONSETS:
            return 0.0
        excess = self.seconds / self.onsets / self.own - 1
        return LENGTH_NATS * min(max(LENGTH_GAIN * excess, -1.0), 1.0)

    def advance(self, id_: int) -> None:
        """One more event."""
        if id_ < NOTE_OFF:
            self.sounding += 1
            self.onsets += 1
        elif id_ < TIME_SHIFT:
            self.sounding -= 1
        elif frames := frames_of(id_):
            self._wait(frames)

    def _wait(self, frames: int) -> None:
        seconds, is_opening = frames / FRAMES_PER_SECOND, self.left > 0
        if not is_opening:
            self.seconds *= _FADED[frames]
            self.onsets *= _FADED[frames]
        self.seconds += self.sounding * seconds
        self.left -= seconds
        if is_opening and self.left <= 0 and self.onsets >= FEWEST_ONSETS:
            self.own = self.seconds / self.onsets


class Articulation(Rows):
    """How long the notes of B takes sound lately, beside those of their own first minute.

    Music drifts into ever longer notes, too, which lie over each other. So from the second minute
    on releases become likelier or less likely.
    """

    def __init__(self, n_takes: int, sounding: int = 0) -> None:
        """sounding: notes of the prompt that are held when new music begins, in each take."""
        self._takes = [_Lengths(sounding=sounding) for _ in range(n_takes)]

    def lean(self, bias: Floats, going: Iterable[bool]) -> None:
        """Adds to the logits, `bias` (B, V), of the takes in `going` (B)."""
        for row, take, goes in zip(bias, self._takes, going, strict=True):
            if goes and (nats := take.lean()):
                row[NOTE_OFF:TIME_SHIFT] += nats

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        for take, id_ in zip(self._takes, ids.tolist(), strict=True):
            take.advance(id_)
