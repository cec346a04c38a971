"""Events so far -> what becomes likelier: what a person wishes, and the end of a figure gone stale.

A key to keep to and a density to aim at are wishes; that no figure of pitches goes round for ever
is wished always. All of them only lean: what the network is sure of still comes.

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
LONGEST_FIGURE = 16
"""Pitches of the longest figure, as a trill or a broken chord, that grows stale."""
STALE_RUN = 32
"""Repeated pitches from which it does."""
PITCHES_PER_NAT = 8
"""More of them that make its next pitch less likely by one nat. In 199 hours of 4,072 real pieces a
figure goes on for 64 pitches or more in 64, for 128 in 10."""
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
        shift = (ids >= TIME_SHIFT) & (ids < VELOCITY)
        seconds = np.where(shift, ids - (TIME_SHIFT - 1), 0) / FRAMES_PER_SECOND
        self._rate = self._rate * np.exp(-seconds / MEMORY_SECONDS)
        self._rate = self._rate + (ids < NOTE_OFF) / MEMORY_SECONDS


class Figures(Rows):
    """For how many notes each of B takes has repeated the pitches of a figure, whatever the time.

    A network that has fallen into a trill is sure that it goes on, ever more so.
    """

    def __init__(self, n_takes: int) -> None:
        self._recent = np.full((n_takes, LONGEST_FIGURE), -1)
        self._runs = np.zeros((n_takes, LONGEST_FIGURE), np.int64)

    def lean(self, bias: Floats) -> None:
        """Make the next pitch of a stale figure less likely: takes it from `bias` (B, V)."""
        longest = self._runs.max(1)
        for take in np.flatnonzero(longest > STALE_RUN):
            pitch = self._recent[take, self._runs[take].argmax()]
            bias[take, NOTE_ON + pitch] -= (longest[take] - STALE_RUN) / PITCHES_PER_NAT

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        on = (ids < NOTE_OFF)[:, None]
        if not on.any():
            return
        runs = np.where(self._recent == ids[:, None], self._runs + 1, 0)
        recent = np.concatenate((ids[:, None], self._recent[:, :-1]), axis=1)
        self._runs, self._recent = (
            np.where(on, runs, self._runs),
            np.where(on, recent, self._recent),
        )
