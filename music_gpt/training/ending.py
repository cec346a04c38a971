"""What steps and measurements took -> the seconds that a run by the clock keeps for its end.

After its last step a run is measured, heard and saved once more. For this to lie within its
minutes, too, the steps have to end so much earlier.
"""

from __future__ import annotations

from collections import deque
from statistics import median

VALIDATION_COST = 1 / 3
"""What it takes to score a token, as a share of learning from it: no backward pass."""
MARGIN = 1.2
"""So many times what the longest measurement took is kept: speeds vary, and weights are written
once more after it."""
RECENT_STEPS, FEWEST_STEPS = 101, 3
"""Of which the median is what a step takes; with fewer, it may have been spent on compiling."""
SCORING_SHARE = 0.9
"""Of the time that is left for the last validation; in the rest the weights are written."""
MOST_UNMEASURED = 0.5
"""Before anything was measured, at most this share of the time is kept."""


class EndReserve:
    """How long it will take one process from its last step to its end.

    time_seconds: what there is for all of it. steps_to_score: what a measurement scores, in steps
    of this process. samples_seconds: how long the last samples may take. reserved_seconds: of a run
    that goes on, what it kept before; that counts until it is measured again.
    """

    def __init__(
        self,
        time_seconds: float,
        *,
        steps_to_score: float = 0.0,
        samples_seconds: float = 0.0,
        reserved_seconds: float = 0.0,
    ) -> None:
        self._most, self._kept = MOST_UNMEASURED * max(time_seconds, 0.0), reserved_seconds
        self._steps_to_score, self._samples = steps_to_score, samples_seconds
        self._steps: deque[float] = deque(maxlen=RECENT_STEPS)
        self._longest = 0.0

    def stepped(self, seconds: float) -> None:
        """A step took so long. The median counts, for some steps compile as well."""
        self._steps.append(seconds)

    def measured(self, seconds: float) -> None:
        """It was measured and saved in so many seconds, samples left out."""
        self._longest = max(self._longest, seconds)

    def scoring_seconds(self, left_seconds: float, *, is_last: bool) -> float:
        """How long a validation may take that begins so long before the end of the run.

        Any but the last has to leave as much time for that one.

        >>> end = EndReserve(600.0, samples_seconds=4.0)
        >>> end.scoring_seconds(44.0, is_last=True), end.scoring_seconds(44.0, is_last=False)
        (36.0, 18.0)
        """
        left = SCORING_SHARE * (left_seconds - self._samples)
        return left if is_last else left / 2

    @property
    def seconds(self) -> float:
        """What to keep for it, as far as is known.

        >>> end = EndReserve(600.0, steps_to_score=30.0, samples_seconds=4.0)
        >>> for seconds in (40.0, 0.5, 0.5):
        ...     end.stepped(seconds)
        >>> end.seconds
        10.5
        >>> end.measured(10.0)
        >>> end.seconds
        16.5
        """
        # the run ends with the first step that ends too late: there may be one more
        step = median(self._steps) if self._steps else 0.0
        if self._longest:
            return MARGIN * self._longest + self._samples + step
        if self._kept or len(self._steps) < FEWEST_STEPS:
            return self._kept
        scoring = VALIDATION_COST * self._steps_to_score * step
        return min(MARGIN * scoring + self._samples + step, self._most)
