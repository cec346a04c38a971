"""Bytes of a MIDI file, damaged or not, come in -> a table of its events in ticks goes out.

Long stretches of notes and pedal movements are passed in numpy, the rest event by event, and all
else is numpy over all tracks at once: a file of 25,000 notes and 70,000 pedal movements takes some
10 ms. What a strict reader refuses is mended on the way, and each mend leaves a sentence: stray
bytes between chunks, wrong tags and lengths, tracks without an end, files that were cut, data bytes
above 127. Knows nothing of notes, seconds or pedals (`music_gpt.midi.timing` does).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Ints
from music_gpt.errors import InputError
from music_gpt.midi.files import HEADER_BYTES, undo_line_ends, unwrap

DEFAULT_TEMPO = 500_000
"""Microseconds per quarter note until the first tempo event: 120 BPM."""
META, SYSEX, SYSEX_GOES_ON = 0xFF, 0xF0, 0xF7
TRACK_NAME, END_OF_TRACK, TEMPO = 0x03, 0x2F, 0x51
MOST_CHUNKS = 0xFFFF
"""The header counts tracks in 16 bits."""
BLOCK_BYTES = 1 << 16
"""The number of events is checked after so many bytes: before a hostile file costs much."""
LONG_BYTES, SHORT_BYTES = 1 << 11, 1 << 6
"""Stretches of which all events are found at once, and between these one by one."""
PLAIN_BYTES = 5
"""A note or a controller has so many at most, its time included."""
STRIDE = 32
"""Steps in one jump over a long stretch."""
FRAMES_PER_SECOND = {24: 24.0, 25: 25.0, 29: 30_000 / 1001, 30: 30.0}
"""SMPTE frame rates that a header can name; 29 is drop-frame."""

# data bytes after a status byte: of 0x80-0xEF, and of the system messages 0xF1-0xFE
_DATA_BYTES = bytes(1 if 0xC0 <= status < 0xE0 else 2 for status in range(0xF0)) + bytes(
    {0xF1: 1, 0xF2: 2, 0xF3: 1}.get(status, 0) for status in range(0xF0, 0x100)
)
_PADDING = bytes(16)  # the walk may look a few bytes past the end

Bytes = npt.NDArray[np.uint8]


class TrackChunk(NamedTuple):
    """Where a track stands in the file."""

    begin: int
    end: int  # at the latest
    declared_end: int
    tagged: bool  # whether its tag is whole


class Header(NamedTuple):
    """What the header chunk says; one of the two time bases is 0."""

    kind: int  # 0 one track, 1 tracks that play together, 2 patterns that stand for themselves
    n_tracks: int
    ticks_per_quarter: int
    ticks_per_second: float  # SMPTE time, in which tempo events do not count


@dataclass(frozen=True, eq=False)
class EventTable:
    """All events of a MIDI file in the order of the file, one entry an event, E in all."""

    header: Header
    track: Ints  # (E,) number of the track, never falling
    tick: Ints  # (E,) absolute time
    status: Bytes  # (E,) 0x80-0xEF with the channel in the low half; 0 for all else
    data1: Bytes  # (E,) 0-127
    data2: Bytes  # (E,) 0-127
    tempo_track: Ints  # (M,) of the tempo events
    tempo_tick: Ints  # (M,)
    tempo: Ints  # (M,) microseconds per quarter note, above 0
    track_end: Ints  # (T,) tick at which each track ends
    names: dict[int, str]  # of the tracks that have one
    damaged: bool = False  # whether something was lost
    notices: tuple[str, ...] = ()  # what was mended, in sentences

    @cached_property
    def place(self) -> Ints:
        """(E,) place of each event when all tracks play at once; at a tick track 0 goes first."""
        place = np.empty(len(self.tick), np.int64)
        place[np.argsort(self.tick, kind="stable")] = np.arange(len(self.tick))
        return place

    def of_track(self, number: int) -> EventTable:
        """One track as a table of its own."""
        mine = slice(*np.searchsorted(self.track, [number, number + 1]))
        tempos = slice(*np.searchsorted(self.tempo_track, [number, number + 1]))
        return replace(
            self,
            track=self.track[mine] * 0,
            tick=self.tick[mine],
            status=self.status[mine],
            data1=self.data1[mine],
            data2=self.data2[mine],
            tempo_track=self.tempo_track[tempos] * 0,
            tempo_tick=self.tempo_tick[tempos],
            tempo=self.tempo[tempos],
            track_end=self.track_end[number : number + 1],
        )


def read_events(data: bytes, max_events: int) -> EventTable:
    """The events of the MIDI file `data`.

    Raises:
        InputError: it is not a MIDI file, its header gives no time base, or it holds more than
            `max_events` events.
    """
    data, notices = unwrap(data)
    table = _read_chunks(data, max_events)
    before = undo_line_ends(data) if table.damaged or table.notices else None
    if before is not None:
        with suppress(InputError):
            table = _less_damaged(table, _read_chunks(before, max_events))
    return replace(table, notices=(*notices, *table.notices))


def _less_damaged(table: EventTable, before: EventTable) -> EventTable:
    """One of two readings: of the file as it is, and as it was before its line ends changed."""
    if (table.damaged, len(table.notices)) <= (before.damaged, len(before.notices)):
        return table
    told = "A transfer as text had changed bytes into line ends; they were changed back."
    return replace(before, notices=(told, *before.notices))


def _read_chunks(data: bytes, max_events: int) -> EventTable:
    """The events of all tracks of the file, whose header comes first."""
    header, notices = _read_header(data), list[str]()
    padded = data + _PADDING
    starts, bounds, damaged = array("I"), [0], False
    for chunk in _find_tracks(data):
        stop, ended, broken = _walk(padded, chunk.begin, chunk.end, starts, max_events)
        if len(starts) > max_events:
            raise InputError(
                f"The MIDI file holds more than the {max_events:,} events that are allowed; cut "
                "it into shorter files."
            )
        bounds.append(len(starts))
        damaged |= broken or (not ended and chunk.end != chunk.declared_end)
        notices += _mends(chunk, stop, ended, len(data))
    table = _tabulate(padded, starts, bounds, header)
    damaged |= table.damaged or len(table.track_end) < header.n_tracks
    return replace(table, damaged=damaged, notices=tuple(dict.fromkeys(notices)))


def _mends(chunk: TrackChunk, stop: int, ended: bool, n_bytes: int) -> Iterator[str]:
    """What was mended at a track that was read up to `stop`, in sentences."""
    if not chunk.tagged:
        yield "The tag of a track was wrong; it was read all the same."
    if not ended and chunk.end == chunk.declared_end:
        yield "A track has no end mark; it ends with its last event."
    elif ended and chunk.end != chunk.declared_end != stop:
        yield "The length of a track was wrong; it was read up to its end mark."
    elif ended and chunk.end not in (chunk.declared_end, n_bytes):
        yield "Stray bytes between two tracks were skipped."


def _read_header(data: bytes) -> Header:
    if len(data) < HEADER_BYTES:
        raise InputError("The MIDI file ends inside its header; get it again from its source.")
    kind, n_tracks, division = (int.from_bytes(data[at : at + 2], "big") for at in (8, 10, 12))
    if 0 < division < 0x8000:
        return Header(kind, n_tracks, division, 0.0)
    rate, ticks_per_frame = FRAMES_PER_SECOND.get(256 - (division >> 8), 0.0), division & 0xFF
    if division == 0 or not rate or not ticks_per_frame:
        raise InputError(
            "The header of the MIDI file gives no time base (ticks per quarter note), so its notes "
            "have no times; export it again from the program that made it."
        )
    return Header(kind, n_tracks, 0, rate * ticks_per_frame)


def _is_track(tag: bytes) -> bool:
    """Whether it reads `MTrk`, or did so before one byte was damaged."""
    return sum(a == b for a, b in zip(tag, b"MTrk", strict=False)) >= 3


def _chunk_at(data: bytes, at: int) -> bool:
    """Whether the file ends at `at` or a chunk with a readable tag begins there."""
    tag = data[at : at + 4]
    readable = len(tag) == 4 and tag.isascii() and tag.decode("ascii").isprintable()
    return at == len(data) or readable or _is_track(tag)


def _event_at(data: bytes, at: int) -> bool:
    """Whether an event begins where a track's length belongs: as a length it were above 8 MB."""
    delta, status, kind = data[at], data[at + 1], data[at + 2]
    return delta < 0x80 <= status and (status < SYSEX or (status == META and kind < 0x80))


def _find_tracks(data: bytes) -> Iterator[TrackChunk]:
    """The tracks of the file.

    A declared length that does not lead to a next chunk is not believed: such a track may reach
    to the next `MTrk` or to the end of the file.
    """
    at = 8 + int.from_bytes(data[4:8], "big")
    at, n_chunks = at if _chunk_at(data, at) else HEADER_BYTES, 0
    while at + 8 <= len(data) and n_chunks < MOST_CHUNKS:
        tag, n_chunks = data[at : at + 4], n_chunks + 1
        declared_end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        believed = _chunk_at(data, declared_end)
        if _is_track(tag):
            begin = at + 4 if not believed and _event_at(data, at + 4) else at + 8
            at = declared_end if believed else _next_track(data, begin)
            yield TrackChunk(begin, at, declared_end, tag == b"MTrk")
        elif tag == b"MThd":
            return  # a second file behind the first
        else:  # a chunk of another kind is skipped, as the standard asks
            known = believed and _chunk_at(data, at)
            at = declared_end if known else _next_track(data, at + 1)


def _next_track(data: bytes, at: int) -> int:
    """Where the next track chunk starts, or the end of the file."""
    found = data.find(b"MTrk", at)
    return len(data) if found < 0 else found


def _walk(
    data: bytes, at: int, end: int, starts: array[int], max_events: int
) -> tuple[int, bool, bool]:
    """Append where each event between `at` and `end` starts, until there are too many starts.

    Returns where the walk stopped, whether an end-of-track event stood there, and whether an
    event was cut or had no status. A meta event does not end running status: files rely on it.
    """
    running, broken, reach = -1, False, BLOCK_BYTES
    append, data_bytes, octets = starts.append, _DATA_BYTES, np.frombuffer(data, np.uint8)
    while at < end:
        begin = at
        if running == 2 and end - at >= LONG_BYTES:
            at = _pass_plain_events(octets, at, min(end, at + reach), starts)
            reach = min(BLOCK_BYTES, 2 * max(at - begin, LONG_BYTES))  # as much may come again
        soon = running < 0 or at - begin >= LONG_BYTES  # there may be many plain ones again
        block_end = min(end, at + (SHORT_BYTES if soon else BLOCK_BYTES))
        while at < block_end:
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
        if len(starts) > max_events:
            break
    return at, False, broken


def _pass_plain_events(octets: Bytes, at: int, end: int, starts: array[int]) -> int:
    """Append where the plain events from `at` on start, up to the first that is none or is cut.

    Plain are those with two data bytes, told or by running status, after at most 16,383 ticks.
    Returns where the first other event starts.
    """
    # 1. from each place to the next event, if a plain one starts there; else to itself
    n = end - at
    first, second, third = (octets[at + i : end + i] for i in range(3))
    long = first > 127  # a time of two bytes
    told = np.where(long, third, second)  # the status, or the first data byte
    plain = (told < 0xF0) & ((told < 0xC0) | (told >= 0xE0)) & ~(long & (second > 127))
    size = plain * (np.uint8(3) + long + (told > 127))
    last = np.arange(max(n - PLAIN_BYTES, 0), n)
    size[last] *= last + size[last] <= n
    following = np.arange(n + 1)
    following[:n] += size
    # 2. all that are reached from the first place
    places = follow(following)
    starts.frombytes((places[:-1] + at).astype(np.uint32).tobytes())
    return at + int(places[-1])


def follow(following: Ints) -> Ints:
    """The places that are reached from 0 when each leads on to a later one, or to itself: the last.

    >>> follow(np.array([2, 2, 3, 3])).tolist()
    [0, 2, 3]
    """
    # 1. a stride of many steps from each place, and by strides to the last place
    far = following
    for _ in range(STRIDE.bit_length() - 1):
        far = far[far]
    heads, place, jump = [0], 0, far.data
    while (after := jump[place]) != place:
        heads.append(place := after)
    # 2. the steps of each stride
    steps = np.empty((len(heads), STRIDE), np.int64)
    steps[:, 0] = heads
    for i in range(1, STRIDE):
        steps[:, i] = following[steps[:, i - 1]]
    return np.append(steps[steps != place], place)


def _variable_length(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 4 bytes at `at`, and where it ends."""
    value = 0
    for byte in data[at : at + 4]:
        value, at = value << 7 | byte & 0x7F, at + 1
        if byte < 0x80:
            break
    return value, at


def _tabulate(padded: bytes, starts: array[int], bounds: list[int], header: Header) -> EventTable:
    """Read times, status bytes and data bytes at all starts at once."""
    octets = np.frombuffer(padded, np.uint8)
    at = np.array(starts, np.int64)
    delta, at = _deltas(octets, at)
    total = np.concatenate([[0], np.cumsum(delta)])
    first, behind = np.array(bounds[:-1], np.int64), np.array(bounds[1:], np.int64)
    track = np.repeat(np.arange(len(first)), behind - first)
    tick = total[1:] - total[first][track]

    own = octets[at]
    status, data_at = _running_status(own, first), at + (own >= 0x80)
    data1, data2 = octets[data_at], octets[data_at + 1]
    has_data2 = np.frombuffer(_DATA_BYTES, np.uint8)[status] > 1
    damaged = bool(((status > 0) & ((data1 > 127) | ((data2 > 127) & has_data2))).any())

    meta = np.flatnonzero(own == META)
    kind = octets[at[meta] + 1]
    tempo_event, tempo = _tempos(octets, at, meta[kind == TEMPO])
    named, first_name = np.unique(track[meta[kind == TRACK_NAME]], return_index=True)
    name_at = (at[meta[kind == TRACK_NAME]] + 2)[first_name]
    names = [_text(padded, where) for where in name_at.tolist()]
    return EventTable(
        header=header,
        track=track,
        tick=tick,
        status=status,
        data1=np.minimum(data1, 127),
        data2=np.minimum(data2, 127),
        tempo_track=track[tempo_event],
        tempo_tick=tick[tempo_event],
        tempo=tempo,
        track_end=total[behind] - total[first],
        names={of: name for of, name in zip(named.tolist(), names, strict=True) if name},
        damaged=damaged,
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


def _running_status(own: Bytes, first: Ints) -> Bytes:
    """Status of each event, 0 for what is no channel event.

    Args:
        own: (E,) what stands after the time of each event: a status or a data byte.
        first: (T,) the first event of each track, where no status is in force.
    """
    told = (own >= 0x80) & (own < 0xF0)
    begins = told.copy()
    begins[first[first < len(own)]] = True
    heads = np.flatnonzero(begins)
    status = np.repeat(own[heads] * told[heads], np.diff(heads, append=len(own)))
    status[own >= 0xF0] = 0
    return status


def _tempos(octets: Bytes, at: Ints, events: Ints) -> tuple[Ints, Ints]:
    """The usable ones of the tempo events, and their microseconds per quarter note."""
    events = events[octets[at[events] + 2] == 3]  # bytes of a tempo
    high, middle, low = (octets[at[events] + i].astype(np.int64) for i in (3, 4, 5))
    tempo = high << 16 | middle << 8 | low
    return events[tempo > 0], tempo[tempo > 0]


def _text(data: bytes, at: int) -> str:
    """The text whose length stands at `at`; what is not UTF-8 is read as Latin-1."""
    length, at = _variable_length(data, at)
    raw = data[at : at + min(length, 200)]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return "".join(c for c in text if c.isprintable()).strip()
