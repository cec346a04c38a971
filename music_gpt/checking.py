"""A value that a person gave -> a number within its bounds, or one sentence that names them."""

from __future__ import annotations

import math
import operator

from music_gpt.errors import InputError


def number(name: str, value: object, low: float, high: float) -> float:
    """The finite number `value`, from `low` to `high`; `InputError`, which calls it `name`, else.

    >>> number("seconds", "30", 1, 60)
    30.0
    """
    try:
        found = float(value)  # type: ignore[arg-type] # what is no number fails here
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not (low <= found <= high and math.isfinite(found)):
        allowed = f"from {low:g} to {high:g}" if high < math.inf else f"of {low:g} or more"
        raise InputError(f"{name} is {value!r}, but it has to be a number {allowed}.")
    return found


def whole(name: str, value: object, low: int, high: int) -> int:
    """The whole number `value`, from `low` to `high`; `InputError`, which calls it `name`, else."""
    try:
        found = operator.index(value)  # type: ignore[arg-type] # what is no integer fails here
    except TypeError:
        found = low - 1
    if not low <= found <= high:
        raise InputError(f"{name} is {value!r}, but it has to be a whole number {low} to {high}.")
    return found
