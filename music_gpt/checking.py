"""A value that a person gave -> that value within its bounds, or one sentence that names them."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from music_gpt.errors import InputError, argument

MAX_JSON_INTEGER = 2**53 - 1
"""The largest whole number that every reader of JSON keeps: what is written into files, as a seed
is, may not be larger."""
LONGEST = 60
"""Characters of a value that a sentence tells."""


def number(
    name: str,
    value: object,
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
) -> float:
    """The finite number `value`, from `low` to `high`; `InputError`, which calls it `name`, else.

    above, below: whether `low` and `high` themselves are out of bounds.

    >>> number("seconds", 30, 1, 60)
    30.0
    """
    found = _plain(value, numbers.Real)
    high_enough = found > low if above else found >= low
    low_enough = found < high if below else found <= high
    if not (high_enough and low_enough and math.isfinite(found)):
        raise _refusal(name, value, f"a number {_range(low, high, above, below)}")
    return float(found)


def whole(name: str, value: object, low: int, high: float = math.inf) -> int:
    """The whole number `value`, from `low` to `high`; `InputError`, which calls it `name`, else.

    >>> whole("top_k", 5, 0)
    5
    """
    found = _plain(value, numbers.Integral)
    if not low <= found <= high:
        raise _refusal(name, value, f"a whole number {_range(low, high)}")
    return int(found)


def choice(name: str, value: object, choices: Collection[str]) -> str:
    """The word `value`, if it is one of `choices`; `InputError`, which calls it `name`, else.

    >>> choice("format", "hf", ["hf", "onnx"])
    'hf'
    """
    if not isinstance(value, str) or value not in choices:
        *others, last = choices
        raise _refusal(name, value, f"{', '.join(others)} or {last}")
    return value


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise `InputError` with one sentence unless `condition` holds: for what has no bounds."""
    if not condition:
        raise _refusal(name, value, allowed)


def check_fields(
    config: object, names: Iterable[str], check: Callable[..., float], *low_high: float, **how: bool
) -> None:
    """Check fields of a frozen dataclass with `number` or `whole`, and keep what they return.

    So numbers of other kinds, as numpy's, become plain ones, which go into JSON and files.
    """
    for name in names:
        kept = check(name, getattr(config, name), *low_high, **how)
        object.__setattr__(config, name, kept)


def check_choices(config: object) -> None:
    """Check the fields that are a `Literal` or a bool: what they may be stands in their type."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if kind is bool:
            require(isinstance(value, bool), name, value, "true or false")
        elif get_origin(kind) is Literal:
            choice(name, value, get_args(kind))


def short(value: object) -> str:
    """A value as it is told in a sentence, however long it is.

    >>> len(short("9" * 5000)), short([10**5000])
    (60, '[a number of thousands of digits]')
    """
    text = _Brief().repr(value.item() if hasattr(value, "item") else value)  # numpy's numbers
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxlong = self.maxother = LONGEST
        self.maxlevel = 2

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python does not turn as many digits into text
            return "a number of thousands of digits"


def _plain(value: Any, kind: Any) -> Any:
    """The number that `value` is, or not a number where it is of another kind."""
    if not isinstance(value, kind) or isinstance(value, bool):  # to Python, True is an int
        return math.nan
    try:
        return float(value) if kind is numbers.Real else int(value)
    except OverflowError:  # an int larger than every float
        return math.nan


def _range(low: float, high: float, above: bool = False, below: bool = False) -> str:
    """The words for what is allowed.

    >>> _range(1, 1000), _range(0, math.inf), _range(0, 1, above=True), _range(0, 1, below=True)
    ('from 1 to 1,000', 'of 0 or more', 'above 0 and at most 1', 'of at least 0 and below 1')
    """
    least, most = (f"{int(b):,}" if b % 1 == 0 else f"{b:g}" for b in (low, high))
    if math.isinf(high):
        return f"above {least}" if above else f"of {least} or more"
    if not (above or below):
        return f"from {least} to {most}"
    first, last = "above" if above else "of at least", "below" if below else "at most"
    return f"{first} {least} and {last} {most}"


def _refusal(name: str, value: object, allowed: str) -> InputError:
    return InputError(f"{argument(name)} is {short(value)}, but it has to be {allowed}.")
