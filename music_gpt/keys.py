"""The name of a key -> its scale; notes -> the key that they are in, and their names in it.

The module knows neither files nor the network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import StatisticsError, correlation

MAJOR = (0, 2, 4, 5, 7, 9, 11)
MINOR = (0, 2, 3, 5, 7, 8, 10, 11)
"""Natural minor, and the leading tone with which it cadences."""
_TONICS = {"c": 0, "d": 2, "e": 4, "f": 5, "g": 7, "a": 9, "b": 11}
_ACCIDENTALS = {"": 0, "#": 1, "♯": 1, "b": -1, "♭": -1}
_NAME = re.compile(r"\s*([A-G])([#b♯♭]?)(?:[-\s]*(major|maj|minor|min|m))?\s*", re.IGNORECASE)
_WHITE = {**_TONICS, "h": 11}
_GERMAN_TONICS = {
    **_WHITE,
    **{f"{name}is": _WHITE[name] + 1 for name in "cdefgah"},
    **{f"{name}es": _WHITE[name] - 1 for name in "cdfg"},
}
_GERMAN_TONICS |= {"es": 3, "as": 8, "b": 10}
_GERMAN_NAME = re.compile(r"\s*([A-H](?:is|es|s)?)([#b♯♭]?)[-\s]*(dur|moll)\s*", re.IGNORECASE)
"""Its mode tells the language: B-Dur is the key that is called Bb major in English."""
PITCH_CLASSES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")
"""As sequencers write them, which know of no key: always with sharps."""
MAJOR_PROFILE = (6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88)
MINOR_PROFILE = (6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17)
"""How well each pitch class above the tonic fits into a key: what listeners said (Krumhansl and
Kessler 1982, "Tracing the dynamic changes in perceived tonal organization")."""
FLATTEST, SHARPEST = -6, 0
"""The first of twelve fifths that a spelling may begin with, G♭ and C: so it needs no double sharps
or flats, and no name of it lies in another octave than its key of the piano (as C♭ does)."""


def pitch_name(pitch: int, names: Sequence[str] = PITCH_CLASSES) -> str:
    """A key of the piano by its MIDI pitch, with middle C as C4.

    >>> pitch_name(60), pitch_name(61), pitch_name(21)
    ('C4', 'C♯4', 'A0')
    """
    return f"{names[pitch % 12]}{pitch // 12 - 1}"


def find_key(shares: Sequence[float]) -> tuple[int, bool] | None:
    """The tonic (a pitch class) and whether it is minor, of music with so much of each pitch class.

    That key whose profile correlates best with the `shares` (12), whatever their unit, as for how
    long each pitch class sounds (Krumhansl 1990). None where all shares are the same.

    >>> find_key([4, 0, 2, 0, 3, 2, 0, 4, 0, 2, 0, 1]), find_key([1] * 12)
    ((0, False), None)
    """
    keys = [(tonic, minor) for tonic in range(12) for minor in (False, True)]
    try:
        return max(keys, key=lambda key: correlation(_fit(*key), list(shares)))
    except StatisticsError:  # nothing varies
        return None


def _fit(tonic: int, minor: bool) -> list[float]:
    """How well each pitch class fits into a key."""
    profile = MINOR_PROFILE if minor else MAJOR_PROFILE
    return [profile[(pitch_class - tonic) % 12] for pitch_class in range(12)]


def spelling(shares: Sequence[float]) -> tuple[str, ...]:
    """The names of the twelve pitch classes in music with so much of each: as `find_key` hears it.

    Around the scale those that are borrowed most: in C major F♯, C♯, G♯, E♭ and B♭. Where no key is
    found all are sharps.

    >>> " ".join(spelling([4, 0, 2, 3, 0, 2, 0, 4, 2, 0, 2, 1]))  # C minor
    'C D♭ D E♭ E F F♯ G A♭ A B♭ B'
    """
    key = find_key(shares)
    if key is None:
        return PITCH_CLASSES
    tonic, minor = key
    # fifths from C to the tonic of the major key with the same signature, from five flats on
    signature = ((tonic + 3 * minor) * 7 + 5) % 12 - 5
    first = min(max(signature - (2 if minor else 3), FLATTEST), SHARPEST)
    named = {7 * fifths % 12: _fifth(fifths) for fifths in range(first, first + 12)}
    return tuple(named[pitch_class] for pitch_class in range(12))


def _fifth(fifths: int) -> str:
    """What lies so many fifths above C (below it where negative)."""
    accidentals, letter = divmod(fifths + 1, 7)
    return "FCGDAEB"[letter] + ("♯" * accidentals if accidentals > 0 else "♭" * -accidentals)


def scale(key: str) -> frozenset[int] | None:
    """Pitch classes (0 is C) of the scale of `key`, or None if that is no name of a key.

    A capital alone is major and a small letter minor; `major` and `minor` may say it in words, as
    `Dur` and `Moll` do after the German name of a note.

    >>> sorted(scale("C")) == sorted(MAJOR), scale("a") == scale("A minor") == scale("Am")
    (True, True)
    >>> scale("F# minor") == scale("gb"), scale("H") is None
    (True, True)
    >>> scale("Fis-Moll") == scale("F♯ minor"), scale("B-Dur") == scale("Bb")
    (True, True)
    """
    if (german := _GERMAN_NAME.fullmatch(key)) is not None:
        return _german_scale(*german.groups())
    found = _NAME.fullmatch(key)
    if found is None:
        return None
    letter, accidental, mode = found[1], found[2], found[3] or ""
    minor = mode == "m" or mode.lower().startswith("min") if mode else letter.islower()
    return _steps(_TONICS[letter.lower()] + _ACCIDENTALS[accidental.lower()], minor)


def _german_scale(name: str, accidental: str, mode: str) -> frozenset[int] | None:
    """That of a German name: `Fis` or, with a sign in place of the syllable, `F♯`."""
    tonics = _WHITE if accidental else _GERMAN_TONICS
    tonic = tonics.get(name.lower())
    if tonic is None:
        return None
    return _steps(tonic + _ACCIDENTALS[accidental.lower()], minor=mode.lower() == "moll")


def _steps(tonic: int, minor: bool) -> frozenset[int]:
    return frozenset((tonic + step) % 12 for step in (MINOR if minor else MAJOR))
