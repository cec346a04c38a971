"""A path, or bytes in some wrapping, come in -> the bytes of one MIDI file go out, header first.

Unpacks gzip, RIFF and MacBinary, and undoes what a transfer as text did to the bytes. Knows nothing
of tracks and events.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.files import read_bytes

HEADER_BYTES = 14
MACBINARY_BYTES = 128
END_MARK = b"\xff\x2f\x00"
GZIP_TAG = b"\x1f\x8b"
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS


def read_file(path: str | Path, limits: MidiLimits) -> bytes:
    """The bytes of a file; `InputError` unless it is a regular one, and not too large."""
    return read_bytes(path, limits.max_bytes, "a MIDI file (.mid or .midi)")


def unpack(data: bytes, limits: MidiLimits) -> bytes:
    """The bytes without the gzip around them, if there is one.

    Raises:
        InputError: they are too many, packed or unpacked, or the packing is damaged.
    """
    if len(data) > limits.max_bytes:
        raise InputError(
            f"The MIDI file has {len(data):,} bytes, and at most {limits.max_bytes:,} are allowed; "
            "give a smaller one."
        )
    if not data.startswith(GZIP_TAG):
        return data
    try:
        unpacked = zlib.decompressobj(_WITH_GZIP_HEADER).decompress(data, limits.max_bytes + 1)
    except zlib.error:
        raise InputError(
            "The file is packed with gzip, and the packing is damaged; get it again from its "
            "source."
        ) from None
    if len(unpacked) > limits.max_bytes:
        raise InputError(
            f"The MIDI file is packed with gzip, and unpacked it has more than the "
            f"{limits.max_bytes:,} bytes that are allowed; give a smaller one."
        )
    return unpacked


def unwrap(data: bytes) -> tuple[bytes, list[str]]:
    """The bytes from `MThd` on, without the file that they are wrapped in; and what was mended."""
    if not data:
        raise InputError("The file is empty (0 bytes); give a MIDI file (.mid or .midi).")
    text = _undo_utf8(data)
    if text is not None:
        found, mends = unwrap(text)
        return found, ["A transfer as text had changed the bytes; they were changed back.", *mends]
    at = data.find(b"MThd")
    if at < 0:
        return data[_untagged_header(data) :], ["The tag of the header was wrong."]
    if data[:4] == b"RIFF" and data[at - 8 : at - 4] == b"data":
        return _inside(data, at, int.from_bytes(data[at - 4 : at], "little")), []
    if at == MACBINARY_BYTES and data[0] == 0:
        return _inside(data, at, int.from_bytes(data[83:87], "big")), []
    return data[at:], ["Bytes in front of the MIDI header were skipped."] if at else []


def _inside(data: bytes, at: int, length: int) -> bytes:
    """The wrapped file at `at`; a length that does not lead to an end mark is not believed."""
    return data[at : at + length] if data.endswith(END_MARK, at, at + length) else data[at:]


def _untagged_header(data: bytes) -> int:
    """Where the header in front of the first track stands, if only its tag is damaged."""
    track = data.find(b"MTrk")
    if track < 0:
        raise InputError("This is not a MIDI file; give a Standard MIDI File (.mid or .midi).")
    at = track - HEADER_BYTES
    if at < 0 or int.from_bytes(data[at + 4 : at + 8], "big") != HEADER_BYTES - 8:
        raise InputError(
            "The MIDI file has lost its header, so its notes have no times; get it again from "
            "its source."
        )
    return at


# -------------------------------------------------------------------------- a transfer as text


def _undo_utf8(data: bytes) -> bytes | None:
    """The bytes before each above 127 became two: a MIDI file is never valid UTF-8 by itself."""
    if data.isascii():
        return None
    try:
        text = data.decode("utf-8")
        return text.encode("latin-1")
    except UnicodeDecodeError:
        return None
    except UnicodeEncodeError:
        if "MThd" in text and "\N{REPLACEMENT CHARACTER}" in text:
            raise InputError(
                "The MIDI file was saved as text, by which most of its bytes are lost; get it "
                "again from its source."
            ) from None
        return None


def undo_line_ends(data: bytes) -> bytes | None:
    r"""The bytes before each 10 became 13 and 10, or None if that cannot have happened.

    >>> undo_line_ends(b"\r\n\x00\r\n"), undo_line_ends(b"\r\n\x00\n")
    (b'\n\x00\n', None)
    """
    changed = 0 < data.count(b"\r\n") == data.count(b"\n")
    return data.replace(b"\r\n", b"\n") if changed else None
