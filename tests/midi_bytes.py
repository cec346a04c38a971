"""MIDI files for the tests, byte by byte: also such as no library would write.

Unless a test says otherwise there are 500 ticks in a quarter note at 120 BPM: one tick is 1 ms.
"""

from collections.abc import Iterable

Event = tuple[int, bytes]
"""Absolute tick and message."""

END_OF_TRACK = b"\xff\x2f\x00"
SCALE = [(250 * i, 250 * i + 200, 60 + step, 50 + 5 * i) for i, step in enumerate((0, 2, 4, 5, 7))]
"""Five notes as (start, end, pitch, velocity) in ticks."""


def number(value: int) -> bytes:
    out = [value & 0x7F]
    while value := value >> 7:
        out.append(0x80 | value & 0x7F)
    return bytes(reversed(out))


def press(pitch: int, velocity: int = 64, channel: int = 0) -> bytes:
    return bytes((0x90 | channel, pitch, velocity))


def release(pitch: int, channel: int = 0) -> bytes:
    return bytes((0x80 | channel, pitch, 0))


def control(number: int, value: int = 0, channel: int = 0) -> bytes:
    return bytes((0xB0 | channel, number, value))


def pedal(value: int, channel: int = 0) -> bytes:
    return control(64, value, channel)


def program(value: int, channel: int = 0) -> bytes:
    return bytes((0xC0 | channel, value))


def meta(kind: int, data: bytes = b"") -> bytes:
    return bytes((0xFF, kind)) + number(len(data)) + data


def tempo(microseconds: int) -> bytes:
    return meta(0x51, microseconds.to_bytes(3))


def events_of(notes: Iterable[tuple[int, int, int, int]], channel: int = 0) -> list[Event]:
    """Presses and releases of (start, end, pitch, velocity) rows; releases first at one tick."""
    events = []
    for start, end, pitch, velocity in notes:
        events += [(start, 1, press(pitch, velocity, channel)), (end, 0, release(pitch, channel))]
    return [(tick, message) for tick, _, message in sorted(events, key=lambda e: e[:2])]


def body(events: Iterable[Event], end: int | None = None, *, ended: bool = True) -> bytes:
    """The inside of a track; `end` is the tick of its end mark."""
    out, now = b"", 0
    for tick, message in sorted(events, key=lambda event: event[0]):
        out, now = out + number(tick - now) + message, tick
    return out + (number((end or now) - now) + END_OF_TRACK if ended else b"")


def chunk(tag: bytes, data: bytes, length: int | None = None) -> bytes:
    """A chunk; `length` is what it claims instead of the truth."""
    return tag + (len(data) if length is None else length).to_bytes(4) + data


def header(kind: int = 0, n_tracks: int = 1, division: int = 500) -> bytes:
    return chunk(b"MThd", kind.to_bytes(2) + n_tracks.to_bytes(2) + division.to_bytes(2))


def track(events: Iterable[Event], end: int | None = None) -> bytes:
    return chunk(b"MTrk", body(events, end))


def file(*tracks: Iterable[Event], end: int | None = None, division: int = 500) -> bytes:
    """A whole and correct file of type 1; `end` is where its tracks end."""
    chunks = b"".join(track(events, end) for events in tracks)
    return header(1, len(tracks), division) + chunks
