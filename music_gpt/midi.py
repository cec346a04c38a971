"""MIDI bytes or a PrettyMIDI come in -> a piece goes out: notes in seconds; and notes -> MIDI bytes.

A piece holds its notes twice: as the keys were pressed, and as they sound with the sustain pedal.
Times come from ticks through a float64 tempo map. Knows nothing of token ids or models; damaged
bytes are mended in `music_gpt.midi_mending`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from music_gpt.config import MidiLimits
from music_gpt.errors import InputError
from music_gpt.midi_mending import DEFAULT_TEMPO, EventTable, Ints, read_events
from music_gpt.notes import NOTE_DTYPE, Notes

if TYPE_CHECKING:
    from pretty_midi import PrettyMIDI

PieceLike: TypeAlias = "Piece | PrettyMIDI | str | Path | bytes | Notes"
"""What every function that wants music takes."""

DRUM_CHANNEL = 9
N_PIANO_PROGRAMS = 8
"""General MIDI programs 0-7 are pianos."""
SUSTAIN, SUSTAIN_DOWN = 64, 64
"""Controller of the right pedal, and the value from which it is down."""
NOTE_OFF, NOTE_ON, CONTROL, PROGRAM = 8, 9, 11, 12
STUCK_PEDAL_SECONDS = 30.0
"""A pedal that goes down and never up is believed if the music ends within this time; beyond it
the message is a leftover of some set-up, and obeying it would drown the piece."""
LONGEST_SILENCE_SECONDS = 600.0
"""A longer silence is no music; it is shortened to this, so that no file claims days."""
TICKS_PER_QUARTER = 500
"""Resolution of written files: at 120 BPM one tick is one millisecond."""
TICKS_PER_SECOND = 1000
SHORTEST_NOTE_TICKS = 10
DEFAULT_LIMITS = MidiLimits()

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[Any]  # ticks (int64) or seconds (float64)


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of piano music; both arrays are `NOTE_DTYPE`, sorted by (start, pitch)."""

    notes: Notes
    """Key down to key up."""
    sounding_notes: Notes
    """The same notes, held by the sustain pedal and ended where their key is struck again."""
    warnings: list[str] = field(default_factory=list)
    """What was mended, left out or shortened: sentences for a person."""
    name: str = ""
    """Name of the file, or the name that the file gives itself."""

    @property
    def n_notes(self) -> int:
        """Number of notes."""
        return len(self.notes)

    @property
    def seconds(self) -> float:
        """End of the last sounding note."""
        return float(self.sounding_notes["end"].max()) if self.n_notes else 0.0


# ------------------------------------------------------------------------------- bytes -> piece


def read_piece(source: str | Path | bytes, *, limits: MidiLimits = DEFAULT_LIMITS) -> Piece:
    """The piano music of a MIDI file, damaged or not.

    Programs 0-7 are read if the file has any, else all that have pitches; never drums.

    Args:
        source: path of a MIDI file, or its bytes.
        limits: bounds on bytes, notes and seconds, each checked as early as it is known.

    Raises:
        InputError: it is no MIDI file, holds no notes, has no time base, or is too large.

    >>> piece = read_piece(midi_bytes(make_notes([(0.0, 0.5, 60, 64), (0.5, 1.0, 64, 64)])))
    >>> piece.n_notes, piece.seconds, piece.warnings
    (2, 1.0, [])
    """
    data, name = _load(source, limits)
    table = read_events(data)
    n_pressed = int(_is_on(table).sum())
    if n_pressed > limits.max_notes:
        raise InputError(
            f"The MIDI file holds {n_pressed:,} notes, and at most {limits.max_notes:,} are "
            "allowed; cut it into shorter files."
        )
    warnings = list(table.notices)
    parts = _separate_tracks(table) if table.separate else [table]
    pieces = [notes for part in parts if len((notes := _read_part(part, warnings))[0])]
    if table.separate and len(pieces) > 1:
        warnings.append(f"The {len(pieces)} patterns of the file follow each other (type 2).")
    if not pieces:
        raise InputError(_why_empty(n_pressed))
    keys, sounding = _one_after_the_other(pieces)
    if table.damaged:
        warnings.insert(0, f"The file is damaged; {len(keys)} notes were read.")
    return _finish(keys, sounding, warnings, name or table.name, limits)


def _load(source: str | Path | bytes, limits: MidiLimits) -> tuple[bytes, str]:
    """The bytes of the file and its name."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, name, size = bytes(source), "", len(source)
    else:
        path = Path(source)
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size <= limits.max_bytes else b""
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{path} cannot be read ({reason}); give a MIDI file.") from error
        name = path.stem
    if size > limits.max_bytes:
        raise InputError(
            f"The MIDI file has {size:,} bytes, and at most {limits.max_bytes:,} are allowed; "
            "give a shorter one."
        )
    return data, name


def _why_empty(n_pressed: int) -> str:
    if n_pressed:
        return "The MIDI file holds only drums; give one with piano music."
    return "The MIDI file contains no notes; give one with piano music."


def _separate_tracks(table: EventTable) -> Iterator[EventTable]:
    """Each track of a type 2 file as a table of its own."""
    for number, end in enumerate(table.track_end):
        mine, tempos = table.track == number, table.tempo_track == number
        if not mine.any():
            continue
        columns = {c: getattr(table, c)[mine] for c in ("tick", "status", "data1", "data2")}
        tempo = {c: getattr(table, c)[tempos] for c in ("tempo_tick", "tempo", "tempo_track")}
        yield EventTable(
            **columns,
            **{**tempo, "tempo_track": tempo["tempo_track"] * 0},
            track=np.zeros(int(mine.sum()), np.int64),
            track_end=np.array([end]),
            ticks_per_quarter=table.ticks_per_quarter,
            seconds_per_tick=table.seconds_per_tick,
            separate=False,
            name=table.name,
            damaged=table.damaged,
            notices=[],
        )


@dataclass(frozen=True, eq=False)
class _Pressed:
    """Pressed keys, N of them, times in ticks."""

    start: Ints
    end: Ints
    pitch: Ints
    velocity: Ints
    channel: Ints
    track: Ints
    event: Ints  # number of the note-on event

    def take(self, which: npt.NDArray[Any]) -> _Pressed:
        return _Pressed(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


def _read_part(table: EventTable, warnings: list[str]) -> tuple[Notes, Notes]:
    """Notes as pressed and as sounding, in seconds, of tracks that play at the same time."""
    pressed, n_open = _pair(table)
    pressed = _piano_only(table, pressed, warnings)
    if n_open:
        warnings.append(f"{n_open} notes are never released; they end with their track.")
    pressed = pressed.take(np.argsort(pressed.start << 7 | pressed.pitch, kind="stable"))
    clock = _Clock(table)
    sounding_end = _sounding_end(
        pressed.start,
        pressed.end,
        pressed.pitch,
        pressed.channel,
        table.track_end[pressed.track],
        _pedals(table, pressed, clock, warnings),
    )
    start, end, sounding = clock(pressed.start), clock(pressed.end), clock(sounding_end)
    return (
        _assemble(start, end, pressed.pitch, pressed.velocity),
        _assemble(start, sounding, pressed.pitch, pressed.velocity),
    )


# ---------------------------------------------------------------- which key was pressed how long


def _is_on(table: EventTable) -> npt.NDArray[np.bool_]:
    return ((table.status >> 4) == NOTE_ON) & (table.data2 > 0)


def _pair(table: EventTable) -> tuple[_Pressed, int]:
    """Pressed keys but no drums, and how many are never released.

    A release ends the oldest press of its key on its track and channel (first in, first out);
    one without a press is ignored. What is never released lasts to the end of its track.
    """
    kind, channel = table.status >> 4, table.status & 0x0F
    events = np.flatnonzero(((kind == NOTE_ON) | (kind == NOTE_OFF)) & (channel != DRUM_CHANNEL))
    key = (table.track[events] << 11) | (channel[events].astype(np.int64) << 7)
    key |= table.data1[events]
    if len(key) and key.max() < 1 << 16:
        key = key.astype(np.uint16)  # numpy sorts these by radix, many times as fast
    order = np.argsort(key, kind="stable")
    events, key = events[order], key[order]
    on = _is_on(table)[events]

    heads = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])[: len(key)])
    group = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(key))))
    walk = np.cumsum(np.where(on, 1, -1))
    depth = walk - np.where(heads > 0, walk[heads - 1], 0)[group]  # keys down, below 0 if strays
    apart = (2 * len(key) + 2) * group  # keeps the running minimum inside its group
    floor = np.minimum.accumulate(np.minimum(depth, 0) - apart) + apart
    before = np.concatenate([[0], floor])[:-1]
    before[heads] = 0
    release = ~on & (floor == before)  # a stray release is one that makes the floor sink

    n_releases = np.bincount(group[release], minlength=len(heads))
    first_release = np.cumsum(n_releases) - n_releases
    presses = np.cumsum(on)
    rank = (presses - (presses - on)[heads][group])[on] - 1  # n-th press of its key
    group, pressed, released = group[on], events[on], events[release]
    closed = rank < n_releases[group]
    start = table.tick[pressed]
    end = table.track_end[table.track[pressed]]
    end[closed] = table.tick[released[(first_release[group] + rank)[closed]]]
    notes = _Pressed(
        start,
        end,
        table.data1[pressed].astype(np.int64),
        table.data2[pressed].astype(np.int64),
        (table.status[pressed] & 0x0F).astype(np.int64),
        table.track[pressed],
        pressed,
    )
    left_open = ~closed & (end > start)
    return notes.take(closed | left_open), int(left_open.sum())


def _piano_only(table: EventTable, pressed: _Pressed, warnings: list[str]) -> _Pressed:
    """The notes of pianos if there are any, else all; says what was left out."""
    piano = _programs(table, pressed) < N_PIANO_PROGRAMS
    drums = _is_on(table) & ((table.status & 0x0F) == DRUM_CHANNEL)
    left_out = ["drums"] if drums.any() else []
    if piano.any() and not piano.all():
        left_out = ["other instruments", *left_out]
        pressed = pressed.take(piano)
    elif not piano.any() and len(piano):
        warnings.append("The file has no piano track; all its pitched tracks are read as piano.")
    if left_out and len(piano):
        kept = "piano" if piano.any() else "pitched"
        warnings.append(f"Only the {kept} tracks are read; {' and '.join(left_out)} are left out.")
    return pressed


def _programs(table: EventTable, pressed: _Pressed) -> Ints:
    """Program in force at each note: of its own track, else of its channel, else 0."""
    changes = np.flatnonzero((table.status >> 4) == PROGRAM)
    if not len(changes):
        return np.zeros(len(pressed.start), np.int64)
    program = table.data1[changes].astype(np.int64)
    track, channel = table.track[changes], (table.status[changes] & 0x0F).astype(np.int64)
    in_time = np.empty(len(table.tick), np.int64)  # place of each event when all tracks play
    in_time[np.argsort(table.tick, kind="stable")] = np.arange(len(table.tick))
    of_channel = _latest(
        channel << 40 | in_time[changes], program, pressed.channel << 40 | in_time[pressed.event]
    )
    of_track = _latest(
        (track << 4 | channel) << 32 | changes,
        program,
        (pressed.track << 4 | pressed.channel) << 32 | pressed.event,
    )
    own = np.isin(pressed.track << 4 | pressed.channel, track << 4 | channel)
    return np.maximum(np.where(own, of_track, of_channel), 0)


def _latest(at: Ints, value: Ints, asked: Ints) -> Ints:
    """The value set last before `asked`, -1 for none; the upper bits of both name a channel."""
    order = np.argsort(at)
    found = np.searchsorted(at[order], asked) - 1
    latest = order[np.maximum(found, 0)]
    same = (at[latest] >> 32 == asked >> 32) | (at[latest] >> 40 == asked >> 40)
    return np.where((found >= 0) & same, value[latest], -1)


# ----------------------------------------------------------------------------------------- pedal

Pedals = dict[int, tuple[Times, npt.NDArray[np.bool_]]]
"""Channel -> times of the sustain pedal in order, and whether it is down from then on."""


def _pedals(table: EventTable, pressed: _Pressed, clock: _Clock, warnings: list[str]) -> Pedals:
    """Pedal of each channel that plays, from all tracks."""
    events = np.flatnonzero(((table.status >> 4) == CONTROL) & (table.data1 == SUSTAIN))
    events = events[np.argsort(table.tick[events], kind="stable")]
    pedals: Pedals = {}
    for channel in np.unique(pressed.channel):
        mine = events[(table.status[events] & 0x0F) == channel]
        tick, down = table.tick[mine], table.data2[mine] >= SUSTAIN_DOWN
        if not down.any():
            continue
        last = pressed.start[pressed.channel == channel].max()
        waits = np.diff(clock(np.array([tick[down.argmax()], last])))[0]
        if down.all() and waits > STUCK_PEDAL_SECONDS:
            warnings.append("A pedal that is never released was ignored.")
        else:
            pedals[int(channel)] = tick, down
    return pedals


def _sounding_end(
    start: Times, end: Times, pitch: Ints, channel: Ints, track_end: Times, pedals: Pedals
) -> Times:
    """When each sound ends: key up and pedal up, or its pitch struck again, or the track's end.

    Takes and gives (N,) arrays in ticks or in seconds, notes sorted by start.
    """
    until = end.copy()
    for number, (time, down) in pedals.items():
        mine = np.flatnonzero(channel == number)
        latest = np.searchsorted(time, end[mine], side="right") - 1
        held = mine[(latest >= 0) & down[latest]]
        ups = time[~down]
        up = np.searchsorted(ups, end[held], side="right")
        until[held] = np.maximum(end[held], track_end[held])
        until[held[up < len(ups)]] = ups[up[up < len(ups)]]
    return np.minimum(until, np.maximum(_next_strike(start, pitch, until), start))


def _next_strike(start: Times, pitch: Ints, default: Times) -> Times:
    """When the pitch of each note is struck again, later than the note itself; else `default`."""
    order = np.argsort(pitch.astype(np.uint8), kind="stable")
    s, p = start[order], pitch[order]
    heads = np.flatnonzero((s[1:] != s[:-1]) | (p[1:] != p[:-1])) + 1  # first note of each strike
    strike = np.searchsorted(heads, np.arange(len(s)), side="right")
    follower = np.append(heads, 0)[strike]
    again = (strike < len(heads)) & (p[follower] == p)
    struck = default.copy()
    struck[order[again]] = s[follower[again]]
    return struck


# ------------------------------------------------------------------------------------------ time


class _Clock:
    """Ticks -> seconds, through all tempo events of all tracks in float64."""

    def __init__(self, table: EventTable) -> None:
        if table.seconds_per_tick:  # tempo events do not count in SMPTE time
            self.tick, self.rate = np.zeros(1, np.int64), np.array([table.seconds_per_tick])
        else:
            order = np.argsort(table.tempo_tick, kind="stable")
            tick = np.concatenate([[-1], table.tempo_tick[order]])
            tempo = np.concatenate([[DEFAULT_TEMPO], table.tempo[order]])
            last = np.append(tick[1:] != tick[:-1], True)  # of several at one tick, the last
            self.tick, self.rate = tick[last], tempo[last] / 1e6 / table.ticks_per_quarter
            self.tick[0] = 0  # before the first tempo event it is the default
        passed = np.diff(self.tick) * self.rate[:-1]
        self.seconds = np.concatenate([[0.0], np.cumsum(passed)])

    def __call__(self, tick: Ints) -> Floats:
        """Seconds of each tick."""
        if len(self.tick) == 1:
            return np.asarray(tick * self.rate[0], np.float64)
        at = np.searchsorted(self.tick, tick, side="right") - 1
        return np.asarray(self.seconds[at] + (tick - self.tick[at]) * self.rate[at], np.float64)


def _one_after_the_other(parts: list[tuple[Notes, Notes]]) -> tuple[Notes, Notes]:
    """The parts of a type 2 file joined; each begins where the one before it has died away."""
    offset = 0.0
    for keys, sounding in parts:
        for notes in (keys, sounding):
            notes["start"] += offset
            notes["end"] += offset
        offset = float(sounding["end"].max())
    joined = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    keys, sounding = joined
    return keys, sounding


def _finish(
    keys: Notes, sounding: Notes, warnings: list[str], name: str, limits: MidiLimits
) -> Piece:
    """Shorten what no music is, check the length, freeze."""
    if _shorten_silences(keys, sounding):
        warnings.append(
            f"Silences longer than {LONGEST_SILENCE_SECONDS / 60:g} minutes were shortened."
        )
    piece = Piece(keys, sounding, list(dict.fromkeys(warnings)), name)
    if piece.seconds > limits.max_seconds:
        raise InputError(
            f"The piece lasts {piece.seconds:,.0f} seconds, and at most {limits.max_seconds:,.0f} "
            "are allowed; cut it into shorter files."
        )
    return piece


def _shorten_silences(keys: Notes, sounding: Notes) -> bool:
    """Move the notes after each endless silence forward, in place; whether there was one."""
    heard_until = np.maximum.accumulate(np.maximum(keys["end"], sounding["end"]))
    gap = keys["start"] - np.concatenate([[0.0], heard_until[:-1]])
    excess = np.maximum(gap - LONGEST_SILENCE_SECONDS, 0)
    shift = np.cumsum(excess)
    for notes in (keys, sounding):
        notes["start"] -= shift
        notes["end"] -= shift
    return bool(excess.any())


# -------------------------------------------------------------------- other things -> piece


def make_notes(rows: Any) -> Notes:
    """Rows of (start, end, pitch, velocity) as an array of notes, sorted.

    >>> make_notes([(0.5, 1.0, 64, 70), (0.0, 0.5, 60, 70)])["pitch"]
    array([60, 64], dtype=uint8)
    """
    return _sorted(np.array([tuple(row) for row in rows], NOTE_DTYPE))


def piece_from_notes(notes: Notes, name: str = "") -> Piece:
    """The piece whose notes sound exactly as `notes` says; they may come in any order.

    Raises:
        InputError: a time is not finite, or a pitch or velocity is above 127.
    """
    notes = np.asarray(notes)
    if notes.dtype != NOTE_DTYPE:
        raise InputError(
            "Notes have to be an array of music_gpt.notes.NOTE_DTYPE "
            "(start, end, pitch, velocity); make_notes builds one."
        )
    fine = np.isfinite(notes["start"]) & np.isfinite(notes["end"]) & (notes["start"] >= 0)
    if not (fine & (notes["pitch"] < 128) & (notes["velocity"] < 128)).all():
        raise InputError("Times of notes have to be finite and 0 or more, pitches at most 127.")
    notes = _sorted(notes)
    return Piece(notes, notes.copy(), [], name)


def as_piece(thing: PieceLike) -> Piece:
    """Anything that holds music as a piece: a path, bytes, a PrettyMIDI, notes, or a piece.

    Raises:
        InputError: it holds no piano music or is of another type.
    """
    if isinstance(thing, Piece):
        return thing
    if isinstance(thing, np.ndarray):
        return piece_from_notes(thing)
    if isinstance(thing, (str, Path, bytes, bytearray, memoryview)):
        return read_piece(thing)
    if hasattr(thing, "instruments"):
        return _from_pretty_midi(thing)
    raise InputError(
        f"Music cannot be a {type(thing).__name__}; give a path, bytes, a PrettyMIDI or notes."
    )


def _from_pretty_midi(score: PrettyMIDI) -> Piece:
    """The piano instruments of a PrettyMIDI; instruments of one program share their pedal."""
    pitched = [i for i in score.instruments if not i.is_drum and i.notes]
    chosen = [i for i in pitched if i.program < N_PIANO_PROGRAMS] or pitched
    rows = [
        (n.start, max(n.start, n.end), min(max(n.pitch, 0), 127), min(max(n.velocity, 1), 127))
        for i in chosen
        for n in i.notes
    ]
    if not rows:
        raise InputError(_why_empty(sum(len(i.notes) for i in score.instruments)))
    keys = np.array(rows, NOTE_DTYPE)
    program = np.repeat([i.program for i in chosen], [len(i.notes) for i in chosen])
    order = np.lexsort((keys["pitch"], keys["start"]))
    keys, program = keys[order], program[order]
    pedals: Pedals = {}
    for number in {i.program for i in chosen}:
        same = [i for i in score.instruments if i.program == number and not i.is_drum]
        moves = [c for i in same for c in i.control_changes if c.number == SUSTAIN]
        moves.sort(key=lambda c: c.time)
        down = np.array([c.value >= SUSTAIN_DOWN for c in moves], np.bool_)
        if down.any():
            pedals[number] = np.array([c.time for c in moves], np.float64), down
    end = np.full(len(keys), score.get_end_time())
    sounding = keys.copy()
    sounding["end"] = _sounding_end(keys["start"], keys["end"], keys["pitch"], program, end, pedals)
    warnings = ["Only the piano instruments are read."] if len(chosen) < len(pitched) else []
    return _finish(keys, sounding, warnings, "", DEFAULT_LIMITS)


def cut_notes(notes: Notes, start: float, end: float) -> Notes:
    """The part of `notes` between two times in seconds; `start` becomes 0.

    A note that reaches over an edge is clipped there.

    >>> cut_notes(make_notes([(0.0, 2.0, 60, 64), (3.0, 4.0, 62, 64)]), 1.0, 3.0)["end"]
    array([1.])
    """
    inside = notes[(notes["start"] < end) & (np.maximum(notes["end"], notes["start"]) >= start)]
    inside = inside[(inside["end"] > start) | (inside["start"] >= start)].copy()
    inside["start"] = np.maximum(inside["start"], start) - start
    inside["end"] = np.minimum(inside["end"], end) - start
    return _sorted(inside)


def _assemble(start: Floats, end: Floats, pitch: Ints, velocity: Ints) -> Notes:
    notes = np.empty(len(start), NOTE_DTYPE)
    notes["start"], notes["end"], notes["pitch"], notes["velocity"] = start, end, pitch, velocity
    return notes


def _sorted(notes: Notes) -> Notes:
    return notes[np.lexsort((notes["pitch"], notes["start"]))]


# ---------------------------------------------------------------------------- notes -> MIDI file


def _to_ticks(notes: Notes) -> tuple[Ints, Ints, Ints, Ints]:
    """start, end, pitch, velocity in whole milliseconds, one sound at a time on each pitch.

    Of notes that begin in the same millisecond on one pitch the loudest and the longest counts.
    """
    start = np.rint(notes["start"] * TICKS_PER_SECOND).astype(np.int64)
    end = np.rint(notes["end"] * TICKS_PER_SECOND).astype(np.int64)
    key, group = np.unique(start << 7 | notes["pitch"], return_inverse=True)
    longest, loudest = np.zeros(len(key), np.int64), np.ones(len(key), np.int64)
    np.maximum.at(longest, group, end)
    np.maximum.at(loudest, group, np.minimum(notes["velocity"], 127).astype(np.int64))
    start, pitch = key >> 7, key & 0x7F
    end = np.maximum(longest, start + SHORTEST_NOTE_TICKS)
    return start, np.minimum(end, _next_strike(start, pitch, end)), pitch, loudest


def to_pretty_midi(notes: Notes, *, name: str = "piano", text: str | None = None) -> PrettyMIDI:
    """The notes as a PrettyMIDI with one piano, on a grid of milliseconds.

    Args:
        notes: in seconds; sounds that overlap on one pitch are trimmed.
        name: of the track.
        text: a remark for the file, such as how it was made.
    """
    import pretty_midi  # costs 0.3 s: only for those who ask for it

    score = pretty_midi.PrettyMIDI(resolution=TICKS_PER_QUARTER, initial_tempo=120.0)
    piano = pretty_midi.Instrument(program=0, name=name)
    columns = zip(*(column.tolist() for column in _to_ticks(notes)), strict=True)
    piano.notes = [
        pretty_midi.Note(velocity, pitch, start / TICKS_PER_SECOND, end / TICKS_PER_SECOND)
        for start, end, pitch, velocity in columns
    ]
    score.instruments.append(piano)
    if text is not None:
        score.text_events.append(pretty_midi.Text(text, 0.0))
    return score


def midi_bytes(notes: Notes, *, text: str | None = None) -> bytes:
    """A type 1 MIDI file: one piano track at 120 BPM, one tick a millisecond.

    >>> midi_bytes(make_notes([(0.0, 0.5, 60, 64)]))[:4]
    b'MThd'
    """
    start, end, pitch, velocity = _to_ticks(notes)
    ons = np.stack([start * 2 + 1, np.full_like(pitch, 0x90), pitch, velocity], axis=1)
    offs = np.stack([end * 2, np.full_like(pitch, 0x80), pitch, np.full_like(pitch, 64)], axis=1)
    events = np.concatenate([ons, offs])
    events = events[np.argsort(events[:, 0], kind="stable")]  # at one tick, ends come first
    ticks = events[:, 0] >> 1
    body = bytearray(b"\x00" + _meta(0x03, b"piano") + b"\x00\xc0\x00")
    for delta, event in zip(
        np.diff(ticks, prepend=0).tolist(), events[:, 1:].tolist(), strict=True
    ):
        body += _variable_length(delta) + bytes(event)
    body += b"\x00" + _meta(0x2F, b"")
    conductor = b"" if text is None else b"\x00" + _meta(0x01, text.encode("utf-8"))
    conductor += b"\x00" + _meta(0x51, DEFAULT_TEMPO.to_bytes(3, "big"))
    conductor += b"\x00" + _meta(0x58, b"\x04\x02\x18\x08") + b"\x00" + _meta(0x2F, b"")
    header = b"".join(n.to_bytes(2, "big") for n in (1, 2, TICKS_PER_QUARTER))
    return _chunk(b"MThd", header) + _chunk(b"MTrk", conductor) + _chunk(b"MTrk", bytes(body))


def _variable_length(value: int) -> bytes:
    """MIDI's numbers of 7 bits a byte, the last without the high bit."""
    out = [value & 0x7F]
    while value := value >> 7:
        out.append(0x80 | value & 0x7F)
    return bytes(reversed(out))


def _meta(kind: int, data: bytes) -> bytes:
    return bytes([0xFF, kind]) + _variable_length(len(data)) + data


def _chunk(tag: bytes, body: bytes) -> bytes:
    return tag + len(body).to_bytes(4, "big") + body


def write_midi(notes: Notes, path: str | Path, *, text: str | None = None) -> None:
    """Write `midi_bytes` to `path`: whole or not at all, whatever happens meanwhile.

    Raises:
        InputError: the file cannot be written there.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(midi_bytes(notes, text=text))
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(
            f"{path} cannot be written ({error.strerror}); give a folder that exists and is yours."
        ) from error
