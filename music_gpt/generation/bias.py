"""Events so far -> what becomes likelier: what a person wishes, fewer notes, an end of figures.

A key to keep to and a density to aim at are wishes. That a take stays below what hands can play,
and that no figure of pitches goes round for ever, is wished always. All of them only lean: what the
network is sure of still comes.

The letters in the shape comments: B takes side by side, V events in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from music_gpt.arrays import Floats, Ints
from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation.rates import Rate
from music_gpt.generation.takes import Rows
from music_gpt.keys import scale
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    N_PITCHES,
    N_SHIFTS,
    NOTE_OFF,
    NOTE_ON,
    TIME_SHIFT,
    VELOCITY,
    VOCAB_SIZE,
    frames_of,
)

MEMORY_SECONDS = 2.0
"""A note counts for the density by exp(-age / MEMORY_SECONDS)."""
GAIN = 2.0
"""The lean is at its full strength where the density is off by one part in `GAIN`."""
LONG_WAIT_SECONDS = 0.5
"""A wait leans in proportion to its length, up to this."""
CROWD_SECONDS, CROWDED, NOTES_PER_NAT, CROWD_NATS = 3.0, 25.0, 3.0, 4.0
"""Memory for how crowded a take is; notes a second beyond which it leans to fewer, more of them for
each nat, and the most nats. Of all 5 seconds of real music 3 % have more than 25 notes a second,
and one in a thousand more than 35 (MAESTRO) or 43 (permissive corpora)."""
LONGEST_FIGURE = 16
"""Pitches of the longest figure, as a trill or a broken chord, that grows stale."""
STALE_RUN, PITCHES_PER_NAT = 20, 4
"""Repeated pitches from which it does, and more of them that make its next pitch less likely by one
nat."""
STALE_SECONDS, SECONDS_PER_NAT = 3.5, 0.5
"""The same in time, for a figure that has come three times and repeated `FEWEST_REPEATED` pitches:
one bass note a second."""
FEWEST_REPEATED = 5
KEPT = 0.75
"""How much of its age a figure keeps after a note that does not belong to it."""
_REPEATED = [max(2 * length, FEWEST_REPEATED) for length in range(1, LONGEST_FIGURE + 1)]
_WAIT_SHARE = np.minimum(np.arange(1, N_SHIFTS + 1) / (LONG_WAIT_SECONDS * FRAMES_PER_SECOND), 1.0)


def _thicken(bias: Floats, nats: float | Floats) -> None:
    """Make music denser: add `nats` to the onsets in `bias` (..., V), and take them from waits."""
    bias[..., NOTE_ON:NOTE_OFF] += nats
    bias[..., VELOCITY:EOS] += nats
    bias[..., TIME_SHIFT:VELOCITY] -= nats * _WAIT_SHARE


class Leaning(Rows):
    """What is added to the logits of B takes for the sake of a key and a density."""

    def __init__(self, sampling: SamplingConfig, n_takes: int) -> None:
        self._target, self._strength = sampling.density, sampling.density_strength
        kept = scale(sampling.key) if sampling.key else None
        self._for_key = np.zeros((n_takes, N_PITCHES))
        if kept is not None:
            outside = [pitch for pitch in range(N_PITCHES) if pitch % 12 not in kept]
            self._for_key[:, outside] -= sampling.key_strength
        self._rate = Rate(n_takes, MEMORY_SECONDS, at_first=self._target)

    def bias(self, going: Iterable[bool]) -> Floats:
        """What is added to the logits, (B, V); the density counts for the takes in `going` (B)."""
        bias = np.zeros((len(self._for_key), VOCAB_SIZE))
        bias[:, NOTE_ON:NOTE_OFF] = self._for_key
        if self._target:
            rates = zip(self._rate.per_second, going, strict=True)
            leans = [self._lean(rate) if goes else 0.0 for rate, goes in rates]
            _thicken(bias, np.array(leans)[:, None])
        return bias

    def _lean(self, rate: float) -> float:
        lack = GAIN * (1 - rate / self._target)
        return min(max(lack, -1.0), 1.0) * self._strength

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        self._rate.advance(ids)


class Crowd(Rows):
    """The notes per second of B takes lately, where they are more than a pianist plays.

    A network that has begun to crowd notes hears only crowded music, and goes on.
    """

    def __init__(self, n_takes: int) -> None:
        self._rate = Rate(n_takes, CROWD_SECONDS)

    def lean(self, bias: Floats) -> None:
        """Make the music of crowded takes thinner: `bias` (B, V)."""
        for row, rate in zip(bias, self._rate.per_second, strict=True):
            if rate > CROWDED:
                _thicken(row, -min((rate - CROWDED) / NOTES_PER_NAT, CROWD_NATS))

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        self._rate.advance(ids)


@dataclass(slots=True)
class _Repeats:
    """What one take has repeated, for figures of 1, 2, ... 16 pitches."""

    recent: list[int] = field(default_factory=lambda: [-1] * LONGEST_FIGURE)
    """Pitches, the latest first: each is the next of a figure."""
    runs: list[float] = field(default_factory=lambda: [0.0] * LONGEST_FIGURE)
    """Pitches repeated."""
    seconds: list[float] = field(default_factory=lambda: [0.0] * LONGEST_FIGURE)
    """The time that they took."""
    waited: float = 0.0
    """Seconds since the last note."""
    many: bool = False
    """Whether any figure may be stale."""

    def strike(self, pitch: int) -> None:
        """One more note."""
        waited, again = self.waited, [past == pitch for past in self.recent]
        self.runs = [n + 1 if a else n * KEPT for n, a in zip(self.runs, again, strict=True)]
        self.seconds = [
            s + waited if a else s * KEPT for s, a in zip(self.seconds, again, strict=True)
        ]
        self.recent = [pitch, *self.recent[:-1]]
        self.waited, self.many = 0.0, max(self.runs) >= FEWEST_REPEATED

    def stalest(self) -> tuple[float, int]:
        """Nats by which the next pitch of the stalest figure is less likely, and that pitch."""
        stale = map(self._stale, self.runs, self.seconds, _REPEATED)
        return max(zip(stale, self.recent, strict=True), key=lambda figure: figure[0])

    def _stale(self, run: float, seconds: float, repeated: int) -> float:
        in_time = seconds + self.waited - STALE_SECONDS if run >= repeated else 0.0
        return max(in_time / SECONDS_PER_NAT, (run - STALE_RUN) / PITCHES_PER_NAT, 0.0)


class Figures(Rows):
    """For how long each of B takes has repeated the pitches of a figure, in notes and in time.

    A network that has fallen into a trill, or into one bass note, is sure that it goes on, ever
    more so.
    """

    def __init__(self, n_takes: int) -> None:
        self._repeats = [_Repeats() for _ in range(n_takes)]

    def lean(self, bias: Floats) -> None:
        """Make the next pitch of a stale figure less likely: takes it from `bias` (B, V)."""
        for row, repeats in zip(bias, self._repeats, strict=True):
            if repeats.many:
                nats, pitch = repeats.stalest()
                row[NOTE_ON + pitch] -= nats

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        for repeats, id_ in zip(self._repeats, ids.tolist(), strict=True):
            if id_ < NOTE_OFF:
                repeats.strike(id_)
            else:
                repeats.waited += frames_of(id_) / FRAMES_PER_SECOND
