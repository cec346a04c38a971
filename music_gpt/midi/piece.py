"""A MIDI file or a PrettyMIDI comes in -> a piece goes out, and notes in seconds -> a MIDI file.

A piece holds its notes twice: as the keys were pressed, and as they sound with the sustain pedal.
`music_gpt.midi.files` takes the bytes out of what they are wrapped in, `music_gpt.midi.mending`
reads them, damaged or not, and `music_gpt.midi.timing` makes notes of them; here stand the limits,
the piece itself and the writer. Knows nothing of token ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from music_gpt.arrays import Ints
from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError, argument
from music_gpt.files import as_path, whole_file
from music_gpt.midi.files import read_file, unpack
from music_gpt.midi.mending import DEFAULT_TEMPO, EventTable, read_events
from music_gpt.midi.timing import (
    N_PIANO_PROGRAMS,
    PEDAL_CONTROLLERS,
    Pedals,
    Reading,
    Track,
    apply_pedals,
    choose_tracks,
    is_press,
    list_tracks,
    only_parts,
    pedal_changes,
    read_notes,
)
from music_gpt.notes import NOTE_DTYPE, Notes, end_at_next_strike

if TYPE_CHECKING:
    from pretty_midi import Instrument, PrettyMIDI

MOST_PATTERNS = 1000
"""Most patterns that are read from a type 2 file."""
LONGEST_SILENCE_SECONDS = 600.0
"""A longer silence, or a longer note, is shortened to this, so that no file claims days."""
TICKS_PER_QUARTER = 500
"""Resolution of written files: at 120 BPM one tick is one millisecond."""
TICKS_PER_SECOND = 1000
SHORTEST_NOTE_TICKS = 10
DEFAULT_LIMITS = MidiLimits()


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
    tracks: list[Track] = field(default_factory=list)
    """The tracks of the file that have notes, and which of them were read."""

    @property
    def n_notes(self) -> int:
        """Number of notes."""
        return len(self.notes)

    @property
    def seconds(self) -> float:
        """End of the last sounding note."""
        return float(self.sounding_notes["end"].max()) if self.n_notes else 0.0


PieceLike: TypeAlias = "Piece | PrettyMIDI | str | Path | bytes | Notes"
"""What stands for a piece wherever one is asked for."""


# ------------------------------------------------------------------------------- file -> piece


def track_keys(text: str | None) -> list[int | str] | None:
    """The tracks that a person has typed, for `read_piece`: numbers or names, commas between them.

    >>> track_keys("0, Left hand")
    ['0', ' Left hand']
    """
    return None if text is None else [key for key in text.split(",") if key.strip()]


def read_piece(
    source: str | Path | bytes,
    *,
    tracks: Sequence[int | str] | None = None,
    limits: MidiLimits = DEFAULT_LIMITS,
) -> Piece:
    """The piano music of a MIDI file, damaged or not.

    Without `tracks`, programs 0-7 are read if the file has any, else all that have pitches; never
    drums.

    Args:
        source: path of a MIDI file, or its bytes.
        tracks: numbers or names of the tracks to read, as `Piece.tracks` lists them.
        limits: bounds on bytes, events, notes and seconds, each checked as early as it is known.

    Raises:
        InputError: it is no MIDI file, holds no notes, has no time base, lacks one of the
            `tracks`, or is too large.

    >>> piece = read_piece(midi_bytes(make_notes([(0.0, 0.5, 60, 64), (0.5, 1.0, 64, 64)])))
    >>> piece.n_notes, piece.seconds, piece.warnings
    (2, 1.0, [])
    >>> piece.tracks
    [Track(number=0, name='piano', program=0, is_drum=False, n_notes=2, used=True)]
    """
    name = "" if isinstance(source, bytes) else as_path(source).stem
    data = source if isinstance(source, bytes) else read_file(source, limits)
    table = read_events(unpack(data, limits), limits.max_events)
    _check_notes(table, limits)
    listed, parts = list_tracks(table)
    if tracks is not None:
        if isinstance(tracks, (str, bytes)) or not isinstance(tracks, Iterable):
            raise InputError(
                f"{argument('tracks')} is {tracks!r}, but it has to be a list of numbers or names, "
                "as [0]."
            )
        table = only_parts(table, parts[choose_tracks(listed, tracks)])
    read = _read_patterns if table.header.kind == 2 else read_notes
    notes, sounding, remarks, used = read(table, any_program=tracks is not None)
    if not len(notes):
        raise InputError(_why_empty(bool(listed) and all(track.is_drum for track in listed)))
    warnings = [*table.notices, *remarks]
    if table.damaged:
        warnings.insert(0, f"The file is damaged; {_count(len(notes))} read.")
    name = name or next(iter(table.names.values()), "")
    piece = finish_piece(notes, sounding, warnings, name, limits)
    read_parts, marks = {*used.tolist()}, zip(listed, parts.tolist(), strict=True)
    return replace(piece, tracks=[track._replace(used=part in read_parts) for track, part in marks])


def _check_notes(table: EventTable, limits: MidiLimits) -> None:
    n_notes = int(is_press(table).sum())
    if n_notes > limits.max_notes:
        raise InputError(
            f"The MIDI file holds {n_notes:,} notes, and at most {limits.max_notes:,} are "
            "allowed; cut it into shorter files."
        )


def _read_patterns(table: EventTable, *, any_program: bool) -> Reading:
    """The tracks of a type 2 file, each played when the sound of the one before has ended."""
    numbers = np.unique(table.track)
    if len(numbers) <= 1:
        return read_notes(table, any_program=any_program)
    if len(numbers) > MOST_PATTERNS:
        raise InputError(
            f"The MIDI file holds {len(numbers):,} separate patterns, and at most {MOST_PATTERNS:,}"
            " are allowed; save it as a file of type 0 or 1."
        )
    patterns, offset, remarks = [], 0.0, []
    for number in numbers.tolist():
        read = read_notes(table.of_track(number), any_program=any_program)
        patterns.append(
            (_moved(read.notes, offset), _moved(read.sounding, offset), read.parts + 16 * number)
        )
        offset = float(patterns[-1][1]["end"].max(initial=offset))
        remarks += read.remarks
    if sum(len(notes) > 0 for notes, _, _ in patterns) > 1:
        remarks.append("The patterns of the file (type 2) are read one after the other.")
    notes, sounding, parts = (np.concatenate(kind) for kind in zip(*patterns, strict=True))
    return Reading(notes, sounding, remarks, parts)


def _moved(notes: Notes, seconds: float) -> Notes:
    """The notes later by `seconds`."""
    notes = notes.copy()
    notes["start"] += seconds
    notes["end"] += seconds
    return notes


def _count(n: int) -> str:
    return "1 note was" if n == 1 else f"{n:,} notes were"


def _why_empty(drums: bool) -> str:
    if drums:
        return "The MIDI file holds only drums; give one with piano music."
    return "The MIDI file contains no notes; give one with piano music."


def finish_piece(
    notes: Notes, sounding: Notes, warnings: list[str], name: str, limits: MidiLimits
) -> Piece:
    """The piece, once its silences are shortened and its length is checked."""
    if _shorten(notes, sounding):
        warnings.append(
            f"Silences or notes of more than {LONGEST_SILENCE_SECONDS / 60:g} minutes "
            "were shortened."
        )
    piece = Piece(notes, sounding, list(dict.fromkeys(warnings)), name)
    if piece.seconds > limits.max_seconds:
        raise InputError(
            f"The piece lasts {piece.seconds:,.0f} seconds, and at most {limits.max_seconds:,.0f} "
            "are allowed; cut it into shorter files."
        )
    return piece


def _shorten(notes: Notes, sounding: Notes) -> bool:
    """Cut endless notes and silences down, in place; whether there was one."""
    if max(kind["end"].max(initial=0.0) for kind in (notes, sounding)) <= LONGEST_SILENCE_SECONDS:
        return False
    longest = notes["start"] + LONGEST_SILENCE_SECONDS
    endless = bool((sounding["end"] > longest).any() or (notes["end"] > longest).any())
    heard = np.minimum(np.maximum(notes["end"], sounding["end"]), longest)
    before = np.append(0.0, np.maximum.accumulate(heard))[:-1]
    excess = np.maximum(notes["start"] - before - LONGEST_SILENCE_SECONDS, 0)
    if not endless and not excess.any():
        return False
    for kind in (notes, sounding):
        kind["end"] = np.minimum(kind["end"], longest) - np.cumsum(excess)
        kind["start"] -= np.cumsum(excess)
    return True


# ------------------------------------------------------------------------ other things -> piece


def make_notes(rows: Iterable[tuple[float, float, int, int]]) -> Notes:
    """Rows of (start, end, pitch, velocity), in seconds, as a sorted array of notes.

    >>> make_notes([(0.5, 1.0, 64, 70), (0.0, 0.5, 60, 70)])["pitch"]
    array([60, 64], dtype=uint8)
    """
    return _sorted(np.array([tuple(row) for row in rows], NOTE_DTYPE))


def piece_from_notes(notes: Notes, name: str = "") -> Piece:
    """The piece whose notes sound exactly as `notes` says; they may come in any order.

    Raises:
        InputError: it is no array of notes, or a number in it is out of range.
    """
    if getattr(notes, "dtype", None) != NOTE_DTYPE or notes.ndim != 1:
        raise InputError(
            "Notes have to be an array of (start, end, pitch, velocity) rows; make one with "
            "music_gpt.midi.piece.make_notes."
        )
    times_fit = (notes["start"] >= 0) & (notes["end"] >= notes["start"]) & (notes["end"] < np.inf)
    if not (times_fit & (notes["pitch"] < 128) & (notes["velocity"] < 128)).all():
        raise InputError(
            "A note is out of range: seconds have to be finite and 0 or more, with the end not "
            "before the start, and pitch and velocity at most 127."
        )
    notes = _sorted(notes)
    return Piece(notes, notes.copy(), [], name)


def as_piece(thing: PieceLike) -> Piece:
    """Anything that holds music as a piece: a path, bytes, a PrettyMIDI, notes, or a piece.

    Raises:
        InputError: it holds no piano music or is of another type.

    >>> as_piece(to_pretty_midi(make_notes([(0.0, 0.5, 60, 64)]))).n_notes
    1
    """
    if isinstance(thing, Piece):
        return thing
    if isinstance(thing, np.ndarray):
        return piece_from_notes(thing)
    if isinstance(thing, bytearray):
        return read_piece(bytes(thing))
    if isinstance(thing, (str, Path, bytes)):
        return read_piece(thing)
    if hasattr(thing, "instruments") and hasattr(thing, "get_end_time"):
        return _from_pretty_midi(thing)
    raise InputError(
        f"Music cannot be a {type(thing).__name__}; give a path, bytes, a PrettyMIDI or notes."
    )


def _from_pretty_midi(score: PrettyMIDI) -> Piece:
    """The piano of a PrettyMIDI; instruments of one program share their pedal."""
    pitched = [i for i in score.instruments if not i.is_drum and i.notes]
    chosen = [i for i in pitched if i.program < N_PIANO_PROGRAMS] or pitched
    if not chosen:
        raise InputError(_why_empty(any(i.notes for i in score.instruments)))
    try:
        rows = [(n.start, n.end, n.pitch, max(n.velocity, 1)) for i in chosen for n in i.notes]
        columns, pedals = np.array(rows, NOTE_DTYPE), _pedals(chosen, score)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            "A note or pedal of the PrettyMIDI is out of range: its times have to be numbers, and "
            "pitch, velocity and pedal whole numbers from 0 to 127."
        ) from error
    program = np.repeat([i.program for i in chosen], [len(i.notes) for i in chosen])
    program = program[np.lexsort((columns["pitch"], columns["start"]))]
    notes = piece_from_notes(columns).notes
    last = float(score.get_end_time())
    sounding, warnings = apply_pedals(notes, program, pedals, last)
    if len(chosen) < sum(bool(i.notes) for i in score.instruments):
        warnings.append("Only the piano is read; other instruments are left out.")
    piece = finish_piece(notes, sounding, warnings, "", DEFAULT_LIMITS)
    tracks = [
        Track(number, i.name, i.program, i.is_drum, len(i.notes), i in chosen)
        for number, i in enumerate(i for i in score.instruments if i.notes)
    ]
    return replace(piece, tracks=tracks)


def _pedals(chosen: list[Instrument], score: PrettyMIDI) -> Pedals:
    """The sustain pedal of each program, in seconds, from all instruments of that program."""
    pedals: Pedals = {}
    for program in {i.program for i in chosen}:
        same = [i for i in score.instruments if i.program == program and not i.is_drum]
        moves = [c for i in same for c in i.control_changes if c.number in PEDAL_CONTROLLERS]
        moves.sort(key=lambda c: c.time)
        pairs = np.array([(c.number, c.value) for c in moves], np.int8)  # refuses what is above 127
        rows = pairs.reshape(-1, 2).astype(np.uint8)
        times = np.array([c.time for c in moves], np.float64)
        pedals[program] = times[pedal_changes(rows[:, 0], rows[:, 1])]
    return pedals


def cut_notes(notes: Notes, start: float, end: float) -> Notes:
    """The part of `notes` between two times in seconds; `start` becomes 0.

    A note that reaches over an edge is clipped there.

    >>> cut_notes(make_notes([(0.0, 2.0, 60, 64), (3.0, 4.0, 62, 64)]), 1.0, 3.0)["end"]
    array([1.])
    """
    heard = (notes["end"] > start) | (notes["start"] >= start)
    inside = notes[heard & (notes["start"] < end)].copy()
    inside["start"] = np.maximum(inside["start"], start) - start
    inside["end"] = np.minimum(inside["end"], end) - start
    return _sorted(inside)


def _sorted(notes: Notes) -> Notes:
    return notes[np.lexsort((notes["pitch"], notes["start"]))]


# ---------------------------------------------------------------------------- notes -> MIDI file


def _to_ticks(notes: Notes) -> tuple[Ints, Ints, Ints, Ints]:
    """start, end, pitch, velocity in whole milliseconds, one sound at a time on each pitch.

    Of notes that begin in the same millisecond on one pitch the loudest and the longest counts.
    """
    start = np.rint(notes["start"] * TICKS_PER_SECOND).astype(np.int64)
    end = np.rint(notes["end"] * TICKS_PER_SECOND).astype(np.int64)
    key, which = np.unique(start << 7 | notes["pitch"], return_inverse=True)
    longest, loudest = np.zeros(len(key), np.int64), np.ones(len(key), np.int64)
    np.maximum.at(longest, which, end)
    np.maximum.at(loudest, which, notes["velocity"].astype(np.int64))
    start, pitch = key >> 7, key & 0x7F
    end = np.maximum(longest, start + SHORTEST_NOTE_TICKS)
    return start, end_at_next_strike(start, pitch, end), pitch, loudest


def to_pretty_midi(notes: Notes, *, name: str = "piano", text: str | None = None) -> PrettyMIDI:
    """The notes as a PrettyMIDI with one piano, on a grid of milliseconds.

    Args:
        notes: in seconds; sounds that overlap on one pitch are trimmed.
        name: of the track.
        text: a remark for the file, such as how the music was made.
    """
    import pretty_midi  # takes a third of a second: only for those who ask for it

    score = pretty_midi.PrettyMIDI(
        resolution=TICKS_PER_QUARTER, initial_tempo=120.0, charset="utf8"
    )
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
    """A type 1 MIDI file: one piano track at 120 BPM, where one tick is one millisecond.

    >>> read_piece(midi_bytes(make_notes([(0.0, 0.25, 60, 64)]))).notes["end"]
    array([0.25])
    """
    start, end, pitch, velocity = _to_ticks(notes)
    releases = _join_events(end, 0x80, pitch, np.full_like(pitch, 64))
    events = np.concatenate([releases, _join_events(start, 0x90, pitch, velocity)])
    events = events[np.argsort(events[:, 0], kind="stable")]  # at one tick the releases first
    body = bytearray(_meta(0x03, b"piano") + b"\x00\xc0\x00")
    deltas = np.diff(events[:, 0], prepend=0).tolist()
    for delta, event in zip(deltas, events[:, 1:].tolist(), strict=True):
        body += _number(delta) + bytes(event)
    remark = b"" if text is None else _meta(0x01, text.encode("utf-8"))
    conductor = remark + _meta(0x51, DEFAULT_TEMPO.to_bytes(3)) + _meta(0x58, b"\x04\x02\x18\x08")
    header = b"".join(field.to_bytes(2) for field in (1, 2, TICKS_PER_QUARTER))
    tracks = (conductor + _meta(0x2F), bytes(body) + _meta(0x2F))
    return _chunk(b"MThd", header) + b"".join(_chunk(b"MTrk", track) for track in tracks)


def _join_events(tick: Ints, status: int, data1: Ints, data2: Ints) -> Ints:
    """Events with one status byte as rows of (tick, status, data1, data2)."""
    return np.stack([tick, np.full_like(tick, status), data1, data2], axis=1)


def _number(value: int) -> bytes:
    """MIDI's numbers: 7 bits a byte, all but the last with the high bit."""
    out = [value & 0x7F]
    while value := value >> 7:
        out.append(0x80 | value & 0x7F)
    return bytes(reversed(out))


def _meta(kind: int, data: bytes = b"") -> bytes:
    """A meta event at the time of the event before it."""
    return bytes([0, 0xFF, kind]) + _number(len(data)) + data


def _chunk(tag: bytes, body: bytes) -> bytes:
    return tag + len(body).to_bytes(4) + body


def write_midi(notes: Notes, path: str | Path, *, text: str | None = None) -> None:
    """Write `midi_bytes` to `path`: whole or not at all, whatever happens meanwhile.

    Raises:
        InputError: the file cannot be written there.
    """
    data = midi_bytes(notes, text=text)
    with whole_file(path) as beside:
        beside.write_bytes(data)
