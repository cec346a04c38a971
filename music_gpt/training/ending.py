"""What steps and measurements took -> the seconds that a run by the clock keeps for its end.

After its last step a run is measured, heard and saved once more. For this to lie within its
minutes, too, the steps have to end so much earlier.
"""

from __future__ import annotations

VALIDATION_COST = 1 / 3
"""What it takes to score a token, as a share of learning from it: there is no way back."""
MARGIN = 1.2
"""So many times what the longest measurement took is kept: speeds vary, and weights are written
once more after it."""
MOST_UNMEASURED = 0.5
"""Before anything was measured, at most this share of the time is kept."""


class Ending:
    """How long it will take one process from its last step to its end.

    time_seconds: what there is for all of it. steps_to_score: what a measurement scores, in steps
    of this process. samples_seconds: how long the last samples may take. kept_seconds: of a run
    that goes on, what it kept before; that counts until it is measured again.
    """

    def __init__(
        self,
        time_seconds: float,
        *,
        steps_to_score: float = 0.0,
        samples_seconds: float = 0.0,
        kept_seconds: float = 0.0,
    ) -> None:
        self._most, self._kept = MOST_UNMEASURED * max(time_seconds, 0.0), kept_seconds
        self._steps_to_score, self._samples = steps_to_score, samples_seconds
        self._n_steps, self._steps_took, self._longest = -1, 0.0, 0.0

    def stepped(self, seconds: float) -> None:
        """A step took so long; the first one is left out, for it may have compiled."""
        self._steps_took += seconds if self._n_steps >= 0 else 0.0
        self._n_steps += 1

    def measured(self, seconds: float) -> None:
        """It was measured and saved in so many seconds, samples left out."""
        self._longest = max(self._longest, seconds)

    @property
    def kept_seconds(self) -> float:
        """What to keep for it, as far as is known.

        >>> ending = Ending(600.0, steps_to_score=30.0, samples_seconds=4.0)
        >>> for seconds in (40.0, 0.5, 0.5):
        ...     ending.stepped(seconds)
        >>> ending.kept_seconds
        10.5
        >>> ending.measured(10.0)
        >>> ending.kept_seconds
        16.5
        """
        # the run ends with the first step that ends too late: there may be one more
        step = self._steps_took / max(self._n_steps, 1)
        if self._longest:
            return MARGIN * self._longest + self._samples + step
        if self._kept or self._n_steps < 1:
            return self._kept
        scoring = VALIDATION_COST * self._steps_to_score * step
        return min(MARGIN * scoring + self._samples + step, self._most)
