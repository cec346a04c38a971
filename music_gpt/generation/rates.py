"""Events so far -> notes per second lately, in a memory that fades.

B takes lie side by side in the shape comments.
"""

from __future__ import annotations

import numpy as np

from music_gpt.arrays import Ints
from music_gpt.generation.takes import Rows
from music_gpt.tokens.events import FRAMES_PER_SECOND, N_SHIFTS, NOTE_OFF, frames_of


def faded(memory_seconds: float) -> tuple[float, ...]:
    """What a wait of 0, 1, ... 100 frames leaves of a rate, in a memory that fades.

    After a second it leaves exp(-1 / memory_seconds).
    """
    ages = np.arange(N_SHIFTS + 1) / (FRAMES_PER_SECOND * memory_seconds)
    return tuple(np.exp(-ages).tolist())


class Rate(Rows):
    """Notes per second of B takes lately: a note counts by exp(-age / memory_seconds)."""

    def __init__(self, n_takes: int, memory_seconds: float, at_first: float = 0.0) -> None:
        self.per_second = [at_first] * n_takes
        self._memory_seconds, self._faded = memory_seconds, faded(memory_seconds)

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        for take, id_ in enumerate(ids.tolist()):
            if id_ < NOTE_OFF:
                self.per_second[take] += 1 / self._memory_seconds
            else:
                self.per_second[take] *= self._faded[frames_of(id_)]
