"""Events so far -> what is likelier for a person's wish: a key to keep to, a density to aim at.

Both only lean: whatever the network is sure of still comes. The letters in the shape comments: B
takes side by side, V events in the vocabulary.
"""

from __future__ import annotations

import numpy as np

from music_gpt.config import SamplingConfig
from music_gpt.events import (
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
from music_gpt.keys import scale
from music_gpt.takes import Floats, Ints, Mask, Rows

MEMORY_SECONDS = 2.0
"""A note counts for the density by exp(-age / MEMORY_SECONDS)."""
GAIN = 2.0
"""The lean is at its full strength where the density is off by one part in `GAIN`."""
LONG_WAIT_SECONDS = 0.5
"""A wait leans in proportion to its length, up to this."""
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
