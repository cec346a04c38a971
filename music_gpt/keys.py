"""The name of a key -> the pitch classes of its scale: what a musician may ask for."""

from __future__ import annotations

import re

MAJOR = (0, 2, 4, 5, 7, 9, 11)
MINOR = (0, 2, 3, 5, 7, 8, 10, 11)
"""Natural minor, and the leading tone with which it cadences."""
_TONICS = {"c": 0, "d": 2, "e": 4, "f": 5, "g": 7, "a": 9, "b": 11}
_ACCIDENTALS = {"": 0, "#": 1, "♯": 1, "b": -1, "♭": -1}
_NAME = re.compile(r"\s*([A-Ga-g])([#b♯♭]?)\s*(major|maj|minor|min|m)?\s*", re.IGNORECASE)
PITCH_CLASSES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")
"""As sequencers write them, which know of no key: always with sharps."""


def pitch_name(pitch: int) -> str:
    """A key of the piano by its MIDI pitch, with middle C as C4.

    >>> pitch_name(60), pitch_name(61), pitch_name(21)
    ('C4', 'C♯4', 'A0')
    """
    return f"{PITCH_CLASSES[pitch % 12]}{pitch // 12 - 1}"


def scale(key: str) -> frozenset[int] | None:
    """Pitch classes (0 is C) of the scale of `key`, or None if that is no name of a key.

    A capital alone is major and a small letter minor; `major` and `minor` may say it in words.

    >>> sorted(scale("C")) == sorted(MAJOR), scale("a") == scale("A minor") == scale("Am")
    (True, True)
    >>> scale("F# minor") == scale("gb"), scale("H") is None
    (True, True)
    """
    found = _NAME.fullmatch(key)
    if found is None:
        return None
    letter, accidental, mode = found[1], found[2], found[3] or ""
    minor = mode == "m" or mode.lower().startswith("min") if mode else letter.islower()
    tonic = _TONICS[letter.lower()] + _ACCIDENTALS[accidental.lower()]
    return frozenset((tonic + step) % 12 for step in (MINOR if minor else MAJOR))
