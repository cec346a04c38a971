"""Bytes of a MIDI file, damaged or not, come in -> a table of its events in ticks goes out.

Only the walk from event to event is a Python loop; everything else is numpy over all tracks at
once, so a file of 25,000 notes and 70,000 pedal movements takes some 20 ms. What a strict reader
refuses is mended on the way, and each mend leaves a sentence: wrappers around the file, stray
bytes between chunks, wrong lengths, tracks without an end, files that were cut, data bytes above
127. Knows nothing of notes, seconds or pedals (`music_gpt.midi` does).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from music_gpt.errors import InputError

DEFAULT_TEMPO = 500_000
"""Microseconds per quarter note until the first tempo event: 120 BPM."""
META, SYSEX, SYSEX_GOES_ON = 0xFF, 0xF0, 0xF7
TRACK_NAME, END_OF_TRACK, TEMPO = 0x03, 0x2F, 0x51
HEADER_BYTES = 14
MACBINARY_BYTES = 128
FRAMES_PER_SECOND = {24: 24.0, 25: 25.0, 29: 30_000 / 1001, 30: 30.0}
"""SMPTE frame rates that a header can name; 29 is drop-frame."""

# data bytes after a status byte: of 0x80-0xEF, and of the system messages 0xF1-0xFE
_DATA_BYTES = bytes(1 if 0xC0 <= status < 0xE0 else 2 for status in range(0xF0)) + bytes(
    {0xF1: 1, 0xF2: 2, 0xF3: 1}.get(status, 0) for status in range(0xF0, 0x100)
)
_PADDING = bytes(16)  # the walk may look a few bytes past the end

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class EventTable:
    """All events of a MIDI file in the order of the file, one entry an event, E in all."""

    track: Ints  # (E,) number of the track
    tick: Ints  # (E,) absolute time
    status: Bytes  # (E,) 0x80-0xEF with the channel in the low half; 0 for all else
    data1: Bytes  # (E,) 0-127
    data2: Bytes  # (E,) 0-127
    tempo_track: Ints  # (M,) of the tempo events
    tempo_tick: Ints  # (M,)
    tempo: Ints  # (M,) microseconds per quarter note, above 0
    track_end: Ints  # (T,) tick at which each track ends
    ticks_per_quarter: int  # 0 where seconds_per_tick counts
    seconds_per_tick: float  # of SMPTE time; 0 where ticks_per_quarter counts
    separate: bool  # type 2: each track is a piece of its own
    name: str  # of the first track that has one, or ""
    damaged: bool  # whether something was lost
    notices: list[str]  # what was mended, in sentences


def read_events(data: bytes) -> EventTable:
    """The events of the MIDI file `data`.

    Raises:
        InputError: it is not a MIDI file, or its header gives no time base.
    """
    data, notices = _unwrap(data)
    kind, n_announced, ticks_per_quarter, seconds_per_tick = _read_header(data)
    padded = data + _PADDING
    starts, bounds = array("I"), [0]
    damaged = False
    for begin, end, declared_end, mended in _find_tracks(data):
        stop, ended, cut = _walk(padded, begin, end, starts)
        bounds.append(len(starts))
        damaged |= cut or (not ended and declared_end != end)
        if ended and stop != declared_end and declared_end != end:
            notices.append("The length of a track was wrong; it was read up to its end mark.")
        if not ended and not damaged:
            notices.append("A track has no end mark; it ends with its last event.")
        notices += mended
    damaged |= len(bounds) - 1 < n_announced
    return _tabulate(
        padded, starts, bounds, kind == 2, ticks_per_quarter, seconds_per_tick, damaged, notices
    )


def _unwrap(data: bytes) -> tuple[bytes, list[str]]:
    """The bytes from `MThd` on, without the file that they are wrapped in."""
    if not data:
        raise InputError("The file is empty (0 bytes); give a MIDI file (.mid or .midi).")
    at = data.find(b"MThd")
    if at < 0:
        raise InputError("This is not a MIDI file; give a Standard MIDI File (.mid or .midi).")
    if data[:4] == b"RIFF" and data[at - 8 : at - 4] == b"data":
        length = int.from_bytes(data[at - 4 : at], "little")
        return data[at : at + length], []
    if at == MACBINARY_BYTES and data[0] == 0:
        length = int.from_bytes(data[83:87], "big")
        return data[at : at + length] if length >= HEADER_BYTES else data[at:], []
    return data[at:], ["Bytes in front of the MIDI header were skipped."] if at else []


def _read_header(data: bytes) -> tuple[int, int, int, float]:
    """Type of the file, announced tracks, ticks per quarter, seconds per tick (one of them 0)."""
    if len(data) < HEADER_BYTES:
        raise InputError("The MIDI file ends inside its header; get it again from its source.")
    kind, n_tracks, division = (int.from_bytes(data[at : at + 2], "big") for at in (8, 10, 12))
    if 0 < division < 0x8000:
        return kind, n_tracks, division, 0.0
    rate, ticks_per_frame = FRAMES_PER_SECOND.get(256 - (division >> 8), 0.0), division & 0xFF
    if division == 0 or not rate or not ticks_per_frame:
        raise InputError(
            "The header of the MIDI file gives no time base (ticks per quarter note), so its notes "
            "have no times; export it again from the program that made it."
        )
    return kind, n_tracks, 0, 1 / (rate * ticks_per_frame)


def _chunk_at(data: bytes, at: int) -> bool:
    """Whether the file ends at `at` or a chunk with a readable tag begins there."""
    tag = data[at : at + 4]
    return at == len(data) or (len(tag) == 4 and all(0x20 <= byte < 0x7F for byte in tag))


def _find_tracks(data: bytes) -> Iterator[tuple[int, int, int, list[str]]]:
    """(begin, end, declared end, notices) of each track, in the order of the file.

    Where the declared length does not lead to a next chunk, the track may reach to the next
    `MTrk` or the end of the file.
    """
    at = 8 + int.from_bytes(data[4:8], "big")
    if not _chunk_at(data, at):
        at = HEADER_BYTES
    while at + 8 <= len(data):
        declared_end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        trusted = _chunk_at(data, declared_end)
        if data[at : at + 4] == b"MTrk":
            begin, at = at + 8, declared_end if trusted else data.find(b"MTrk", at + 8)
            at = len(data) if at < 0 else at
            yield begin, at, declared_end, []
        elif _chunk_at(data, at) and trusted:
            at = declared_end  # a chunk of another kind: skipped, as the standard asks
        else:
            at = data.find(b"MTrk", at + 1)
            if at < 0:
                return


def _walk(data: bytes, at: int, end: int, starts: array[int]) -> tuple[int, bool, bool]:
    """Append where each event between `at` and `end` starts.

    Returns where the walk stopped, whether an end-of-track event stood there, and whether an
    event was cut or had no status. A meta event does not end running status: files rely on it.
    """
    running, broken = -1, False
    append, data_bytes = starts.append, _DATA_BYTES
    while at < end:
        start = at
        while data[at] > 127:  # the delta time
            at += 1
        if at - start > 3:
            start = at - 3  # a time has at most 4 bytes
        status = data[at + 1]
        if status < 0x80:
            if running < 0:
                broken, at = True, at + 1
                continue
            at += 1 + running
        elif status < 0xF0:
            running = data_bytes[status]
            at += 2 + running
        elif status in (META, SYSEX, SYSEX_GOES_ON):
            kind = data[at + 2]
            length, at = _variable_length(data, at + (3 if status == META else 2))
            at += length
            if status == META and kind == END_OF_TRACK and at <= end:
                append(start)
                return at, True, broken
        else:
            at += 2 + data_bytes[status]
        if at > end:
            return end, False, True
        append(start)
    return at, False, broken


def _variable_length(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 4 bytes at `at`, and where it ends."""
    value = 0
    for byte in data[at : at + 4]:
        value, at = value << 7 | byte & 0x7F, at + 1
        if byte < 0x80:
            break
    return value, at


def _tabulate(
    padded: bytes,
    starts: array[int],
    bounds: list[int],
    separate: bool,
    ticks_per_quarter: int,
    seconds_per_tick: float,
    damaged: bool,
    notices: list[str],
) -> EventTable:
    """Read times, status bytes and data bytes at all starts at once."""
    octets = np.frombuffer(padded, np.uint8)
    at = np.frombuffer(starts, np.uint32).astype(np.int64) if starts else np.zeros(0, np.int64)
    delta, at = _deltas(octets, at)
    counts = np.diff(bounds)
    track = np.repeat(np.arange(len(counts)), counts)
    first = np.asarray(bounds[:-1], np.int64)
    total = np.concatenate([[0], np.cumsum(delta)])
    tick = total[1:] - total[first][track]
    track_end = total[np.asarray(bounds[1:], np.int64)] - total[first]

    own = octets[at]
    status, data_at = _running_status(own, at, first[track])
    data1, data2 = octets[data_at], octets[data_at + 1]
    n_data = np.frombuffer(_DATA_BYTES, np.uint8)[status]
    wrong = (status > 0) & ((data1 > 127) | ((data2 > 127) & (n_data > 1)))
    damaged |= bool(wrong.any())

    meta = np.flatnonzero(own == META)
    tempo_at = meta[octets[at[meta] + 1] == TEMPO]
    tempo = _big_endian(octets, at[tempo_at] + 3)
    usable = (octets[at[tempo_at] + 2] == 3) & (tempo > 0)
    tempo_at = tempo_at[usable]
    names = meta[octets[at[meta] + 1] == TRACK_NAME]
    return EventTable(
        track=track,
        tick=tick,
        status=status,
        data1=np.minimum(data1, 127),
        data2=np.minimum(data2, 127),
        tempo_track=track[tempo_at],
        tempo_tick=tick[tempo_at],
        tempo=tempo[usable],
        track_end=track_end,
        ticks_per_quarter=ticks_per_quarter,
        seconds_per_tick=seconds_per_tick,
        separate=separate,
        name=_text(padded, int(at[names[0]]) + 2) if len(names) else "",
        damaged=damaged,
        notices=list(dict.fromkeys(notices)),
    )


def _deltas(octets: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Delta time of each event in ticks, and where its status or first data byte stands."""
    delta, at = (octets[at] & 0x7F).astype(np.int64), at.copy()
    longer = np.flatnonzero(octets[at] > 127)
    while len(longer):
        at[longer] += 1
        delta[longer] = delta[longer] << 7 | octets[at[longer]] & 0x7F
        longer = longer[octets[at[longer]] > 127]
    return delta, at + 1


def _running_status(own: Bytes, at: Ints, first: Ints) -> tuple[Bytes, Ints]:
    """Status of each event, 0 for what is no channel event, and where its data stand."""
    states = (own >= 0x80) & (own < 0xF0)
    if states.all():
        return own, at + 1
    number = np.arange(len(own))
    last = np.maximum.accumulate(np.where(states, number, -1))
    runs = (own < 0x80) & (last >= first)
    status = np.where(states, own, 0)
    status[runs] = own[last[runs]]
    return status, at + (own >= 0x80)


def _big_endian(octets: Bytes, at: Ints) -> Ints:
    """Numbers of 3 bytes."""
    wide = octets.astype(np.int64) if len(at) > len(octets) else octets
    high, middle, low = (wide[at + i].astype(np.int64) for i in range(3))
    return high << 16 | middle << 8 | low


def _text(data: bytes, at: int) -> str:
    """The text whose length stands at `at`; what is not UTF-8 is read as Latin-1."""
    length, at = _variable_length(data, at)
    raw = data[at : at + min(length, 200)]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return "".join(c for c in text if c.isprintable()).strip()
