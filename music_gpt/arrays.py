"""Nothing comes in -> names for the kinds of numpy arrays that modules hand to one another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint16]
"""Ids of events, one axis."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
