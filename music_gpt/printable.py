"""A name or a text from outside -> what a terminal shows as it stands, on one line.

A file may have any name: one that ends the line, moves the cursor, turns the direction of writing,
or is no text at all. Whatever is printed or put into a sentence has gone through here.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import PurePath

LONGEST_NAME = 200
"""Characters of a path that a sentence tells."""

# C0 and C1, the separators of lines and paragraphs, marks of direction, bytes that are no UTF-8
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LIKE_ESCAPED = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4})")


def printable_name(name: str | os.PathLike[str]) -> str:
    r"""The name, with what is no letter to read written as in Python; two names never look alike.

    So a backslash is written twice in a name that has anything of that kind, or looks as if.

    >>> printable_name("Für Elise.mid"), printable_name("a\x1b[2J.mid"), printable_name("\udcff")
    ('Für Elise.mid', 'a\\x1b[2J.mid', '\\xff')
    >>> printable_name(r"\xff")
    '\\\\xff'
    """
    text = str(name)
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text
    with contextlib.suppress(UnicodeEncodeError):  # no name that a file can have
        # in UTF-8, whatever the system takes names for
        text = os.fsencode(text).decode("utf-8", "surrogateescape")
    if _ACTING.search(text) or _LIKE_ESCAPED.search(text):
        text = text.replace("\\", r"\\")
    return printable_text(text)


def printable_text(text: str) -> str:
    r"""The text on one line, whatever it holds; a sentence on a printable name stays as it is.

    >>> printable_text("from right\u202eto left\n"), printable_text(r"a\xff.mid")
    ('from right\\u202eto left\\x0a', 'a\\xff.mid')
    """
    return text if text.isprintable() else _ACTING.sub(_escaped, text)


def shown(path: str | os.PathLike[str]) -> str:
    """A path in a sentence: printable, and only its ends where it is too long to be read."""
    text = printable_name(PurePath(path))
    return text if len(text) <= LONGEST_NAME else f"{text[:80]}...{text[-40:]}"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte, as Python holds it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"  # not \x80: that is the byte
