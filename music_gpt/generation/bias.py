"""Events so far -> what becomes likelier: what a person wishes, a steady pace, an end of figures.

A key to keep to and a density to aim at are wishes. Where no density is wished, a take keeps to the
pace of its first minute, and below what hands can play; that its notes stay as long, and that no
figure of pitches goes round for ever, is wished always. All of them only lean: what the network is
sure of still comes.

The letters in the shape comments: B takes side by side, V events in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from music_gpt.arrays import Floats, Ints
from music_gpt.config.sampling import SamplingConfig
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
OPENING_SECONDS = 60.0
"""New music that sets a take's own pace."""
PACE_MEMORY_SECONDS, PACE_GAIN, PACE_NATS = 30.0, 4.0, 1.0
"""The same for a take's own pace as for a density, and its full strength for a wait that is as long
as usual; for one e times as long it is twice that."""
LENGTH_GAIN, LENGTH_NATS = 2.0, 2.0
"""Nats by which releases become likelier while notes sound longer than in the first minute: all of
them where they are longer by one part in `LENGTH_GAIN`."""
USUAL_WAITS = 32.0
"""So many waits back are usual."""
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
_LOG_WAITS = np.log(np.arange(1, N_SHIFTS + 1))
_WAIT_SHARE = np.minimum(np.arange(1, N_SHIFTS + 1) / (LONG_WAIT_SECONDS * FRAMES_PER_SECOND), 1.0)


def _faded(memory_seconds: float) -> tuple[float, ...]:
    """What a wait of 0, 1, ... 100 frames leaves of a rate, in a memory that fades."""
    ages = np.arange(N_SHIFTS + 1) / (FRAMES_PER_SECOND * memory_seconds)
    return tuple(np.exp(-ages).tolist())


_PACE_FADED = _faded(PACE_MEMORY_SECONDS)


def _thicken(bias: Floats, nats: float | Floats) -> None:
    """Make music denser: add `nats` to the onsets in `bias` (..., V), and take them from waits."""
    bias[..., NOTE_ON:NOTE_OFF] += nats
    bias[..., VELOCITY:EOS] += nats
    bias[..., TIME_SHIFT:VELOCITY] -= nats * _WAIT_SHARE


class Rate(Rows):
    """Notes per second of B takes lately: a note counts by exp(-age / memory_seconds)."""

    def __init__(self, n_takes: int, memory_seconds: float, at_first: float = 0.0) -> None:
        self.per_second = [at_first] * n_takes
        self._memory_seconds, self._faded = memory_seconds, _faded(memory_seconds)

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        for take, id_ in enumerate(ids.tolist()):
            if id_ < NOTE_OFF:
                self.per_second[take] += 1 / self._memory_seconds
            else:
                self.per_second[take] *= self._faded[frames_of(id_)]


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


@dataclass(slots=True)
class _Tempo:
    """How fast one take goes by itself."""

    opening: float = OPENING_SECONDS
    """Seconds that are left of its first minute."""
    own: float = 0.0
    """Notes per second of that."""
    usual: float = float(_LOG_WAITS[9])
    """Logarithm of the frames of its waits lately."""

    def lean(self, rate: float) -> float:
        """Nats by which a wait of the usual length becomes less likely at this `rate` of lately."""
        lack = (self.own - rate) / max(self.own, 1 / OPENING_SECONDS)
        return PACE_NATS * min(max(PACE_GAIN * lack, -1.0), 1.0)

    def advance(self, id_: int) -> None:
        """One more event."""
        frames = frames_of(id_)
        if id_ < NOTE_OFF and self.opening > 0:
            self.own += 1 / OPENING_SECONDS
        elif frames:
            self.opening -= frames / FRAMES_PER_SECOND
            self.usual += (float(_LOG_WAITS[frames - 1]) - self.usual) / USUAL_WAITS


class Pace(Rows):
    """The notes per second of B takes lately, beside those of their own first minute.

    A network that hears only its own music drifts, most often into ever sparser music: in time,
    what is sparse lasts. So from the second minute on waits become less or more likely, the long
    ones above all, as the take has fewer or more notes a second than it had. Onsets and releases
    stay as likely beside each other: more onsets alone would pile up.
    """

    def __init__(self, n_takes: int) -> None:
        self._tempos = [_Tempo() for _ in range(n_takes)]
        self._rate = Rate(n_takes, PACE_MEMORY_SECONDS)

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
            is_opening = tempo.opening > 0
            tempo.advance(id_)
            if is_opening:  # the memory begins with what the first minute had
                self._rate.per_second[take] = tempo.own


@dataclass(slots=True)
class _Lengths:
    """How long the notes of one take sound."""

    sounding: int
    """Now."""
    opening: float = OPENING_SECONDS
    """Seconds that are left of its first minute."""
    own: float = 0.0
    """Seconds of a note in the mean of that minute."""
    seconds: float = 0.0
    """That all notes sounded lately, and"""
    strikes: float = 0.0
    """how many were struck, in a memory that fades with `PACE_MEMORY_SECONDS` from then on."""

    def lean(self) -> float:
        """Nats by which releases become likelier."""
        if self.opening > 0 or not self.own:
            return 0.0
        excess = self.seconds / max(self.strikes, 1.0) / self.own - 1
        return LENGTH_NATS * min(max(LENGTH_GAIN * excess, -1.0), 1.0)

    def advance(self, id_: int) -> None:
        """One more event."""
        if id_ < NOTE_OFF:
            self.sounding += 1
            self.strikes += 1
        elif id_ < TIME_SHIFT:
            self.sounding -= 1
        elif frames := frames_of(id_):
            if self.opening > 0:
                self.opening -= frames / FRAMES_PER_SECOND
            else:
                self.seconds *= _PACE_FADED[frames]
                self.strikes *= _PACE_FADED[frames]
            self.seconds += self.sounding * frames / FRAMES_PER_SECOND
            if self.opening <= 0 and not self.own:
                self.own = self.seconds / max(self.strikes, 1.0)


class Articulation(Rows):
    """How long the notes of B takes sound lately, beside those of their own first minute.

    A network that hears only its own music drifts into ever longer notes, too, which lie over each
    other. So from the second minute on releases become likelier or less likely.
    """

    def __init__(self, n_takes: int, sounding: int = 0) -> None:
        self._takes = [_Lengths(sounding) for _ in range(n_takes)]

    def lean(self, bias: Floats, going: Iterable[bool]) -> None:
        """Adds to the logits, `bias` (B, V), of the takes in `going` (B)."""
        for row, take, goes in zip(bias, self._takes, going, strict=True):
            if goes and (nats := take.lean()):
                row[NOTE_OFF:TIME_SHIFT] += nats

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        for take, id_ in zip(self._takes, ids.tolist(), strict=True):
            take.advance(id_)


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
