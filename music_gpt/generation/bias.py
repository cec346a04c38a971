"""Events so far -> what becomes likelier: what a person wishes, a steady pace, an end of figures.

A key to keep to and a density to aim at are wishes. Where no density is wished, a take keeps to the
pace of its first minute; and that no figure of pitches goes round for ever is wished always. All of
them only lean: what the network is sure of still comes.

The letters in the shape comments: B takes side by side, V events in the vocabulary.
"""

from __future__ import annotations

import numpy as np

from music_gpt.arrays import Floats, Ints, Mask
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
USUAL_WAITS = 32.0
"""So many waits back are usual."""
LONGEST_FIGURE = 16
"""Pitches of the longest figure, as a trill or a broken chord, that grows stale."""
STALE_RUN, PITCHES_PER_NAT = 32, 8
"""Repeated pitches from which it does, and more of them that make its next pitch less likely by one
nat."""
STALE_SECONDS, SECONDS_PER_NAT = 5.0, 1.0
"""The same in time, for a figure that has come three times and repeated `FEWEST_REPEATED` pitches:
one bass note a second."""
FEWEST_REPEATED = 5
KEPT = 0.75
"""How much of its age a figure keeps after a note that does not belong to it."""
_REPEATED = np.maximum(2 * np.arange(1, LONGEST_FIGURE + 1), FEWEST_REPEATED)
_LOG_WAITS = np.log(np.arange(1, N_SHIFTS + 1))
_WAIT_SHARE = np.minimum(np.arange(1, N_SHIFTS + 1) / (LONG_WAIT_SECONDS * FRAMES_PER_SECOND), 1.0)


class Leaning(Rows):
    """What is added to the logits of B takes for the sake of a key and a density."""

    def __init__(self, sampling: SamplingConfig, n_takes: int) -> None:
        self._target, self._strength = sampling.density, sampling.density_strength
        kept = scale(sampling.key) if sampling.key else None
        self._for_key = np.zeros((n_takes, N_PITCHES))
        if kept is not None:
            outside = [pitch for pitch in range(N_PITCHES) if pitch % 12 not in kept]
            self._for_key[:, outside] -= sampling.key_strength
        self._rate = np.full(n_takes, self._target)  # notes per second lately

    def bias(self, going: Mask) -> Floats:
        """What is added to the logits, (B, V); the density counts for the takes in `going` (B)."""
        bias = np.zeros((len(self._rate), VOCAB_SIZE))
        bias[:, NOTE_ON:NOTE_OFF] = self._for_key
        if self._target:
            lack = np.clip(GAIN * (1 - self._rate / self._target), -1, 1)
            lean = (np.where(going, lack, 0.0) * self._strength)[:, None]  # (B, 1)
            bias[:, NOTE_ON:NOTE_OFF] += lean
            bias[:, VELOCITY:EOS] += lean
            bias[:, TIME_SHIFT:VELOCITY] -= lean * _WAIT_SHARE
        return bias

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        self._rate = _rate_after(self._rate, ids, _frames(ids), MEMORY_SECONDS)


class Pace(Rows):
    """The notes per second of B takes lately, beside those of their own first minute.

    A network that hears only its own music drifts, most often into ever sparser music: in time,
    what is sparse lasts. So from the second minute on waits become less or more likely, the long
    ones above all, as the take has fewer or more notes a second than it had. Onsets and releases
    stay as likely beside each other: more onsets alone would pile up.
    """

    def __init__(self, n_takes: int) -> None:
        self._opening = np.full(n_takes, OPENING_SECONDS)  # what is left of it
        self._own, self._rate = np.zeros(n_takes), np.zeros(n_takes)  # notes per second
        self._usual = np.full(n_takes, _LOG_WAITS[9])  # of the frames of its waits lately

    def lean(self, bias: Floats, going: Mask) -> None:
        """Adds to the logits, `bias` (B, V), of the takes in `going` (B)."""
        lack = (self._own - self._rate) / np.maximum(self._own, 1 / OPENING_SECONDS)
        lean = PACE_NATS * np.where(going, np.clip(PACE_GAIN * lack, -1, 1), 0.0)[:, None]  # (B, 1)
        length = 1 + np.clip(_LOG_WAITS - self._usual[:, None], -1, 1)  # (B, 100): usual is 1
        bias[:, TIME_SHIFT:VELOCITY] -= lean * length

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        frames, opening = _frames(ids), self._opening > 0
        self._own = self._own + np.where(opening & (ids < NOTE_OFF), 1 / OPENING_SECONDS, 0.0)
        rate = _rate_after(self._rate, ids, frames, PACE_MEMORY_SECONDS)
        self._rate = np.where(opening, self._own, rate)
        self._opening = self._opening - frames / FRAMES_PER_SECOND
        other = _LOG_WAITS[np.maximum(frames, 1) - 1] - self._usual
        self._usual = self._usual + np.where(frames > 0, other, 0.0) / USUAL_WAITS


def _frames(ids: Ints) -> Ints:
    """Length of each event in frames, (B): none but a wait has one."""
    frames: Ints = np.where((ids >= TIME_SHIFT) & (ids < VELOCITY), ids - (TIME_SHIFT - 1), 0)
    return frames


def _rate_after(rate: Floats, ids: Ints, frames: Ints, memory_seconds: float) -> Floats:
    """Notes per second (B) in a memory that fades, after one more event."""
    faded: Floats = rate * np.exp(-frames / (FRAMES_PER_SECOND * memory_seconds))
    return faded + (ids < NOTE_OFF) / memory_seconds


class Figures(Rows):
    """For how long each of B takes has repeated the pitches of a figure, in notes and in time.

    A network that has fallen into a trill, or into one bass note, is sure that it goes on, ever
    more so.
    """

    def __init__(self, n_takes: int) -> None:
        self._recent = np.full((n_takes, LONGEST_FIGURE), -1)
        self._runs = np.zeros((n_takes, LONGEST_FIGURE))  # pitches repeated
        self._seconds = np.zeros((n_takes, LONGEST_FIGURE))  # the time that they took
        self._waited = np.zeros(n_takes)  # seconds since the last note

    def stale(self) -> Floats:
        """Nats by which the next pitch of a figure of 1, 2, ... pitches is less likely, (B, 16)."""
        seconds = self._seconds + self._waited[:, None]
        in_time = np.where(self._runs < _REPEATED, 0.0, seconds - STALE_SECONDS) / SECONDS_PER_NAT
        return np.maximum(np.maximum(in_time, (self._runs - STALE_RUN) / PITCHES_PER_NAT), 0.0)

    def lean(self, bias: Floats) -> None:
        """Make the next pitch of a stale figure less likely: takes it from `bias` (B, V)."""
        stale = self.stale()
        for take in np.flatnonzero(stale.any(1)):
            figure = stale[take].argmax()
            bias[take, NOTE_ON + self._recent[take, figure]] -= stale[take, figure]

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        self._waited = self._waited + _frames(ids) / FRAMES_PER_SECOND
        on = (ids < NOTE_OFF)[:, None]
        if not on.any():
            return
        again = self._recent == ids[:, None]
        runs = np.where(again, self._runs + 1, self._runs * KEPT)
        seconds = np.where(again, self._seconds + self._waited[:, None], self._seconds * KEPT)
        recent = np.concatenate((ids[:, None], self._recent[:, :-1]), axis=1)
        self._runs = np.where(on, runs, self._runs)
        self._seconds = np.where(on, seconds, self._seconds)
        self._recent = np.where(on, recent, self._recent)
        self._waited = np.where(on[:, 0], 0.0, self._waited)
