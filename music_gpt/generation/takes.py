"""State of takes side by side -> that of some of them: rows of arrays and lists."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import numpy as np


class Rows:
    """State of several takes: every array and every list has one row a take."""

    def pick(self, rows: Sequence[int]) -> Self:
        """A copy with these takes only."""
        picked = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(picked, name, value[list(rows)])
            elif isinstance(value, list):
                setattr(picked, name, [copy.deepcopy(value[row]) for row in rows])
            elif isinstance(value, Rows):
                setattr(picked, name, value.pick(rows))
        return picked
