"""Notes in seconds come in -> ids of the 390 events go out, and back: plain numpy.

Knows neither MIDI files nor MidiTok nor torch; `music_gpt.tokens.tokenizer` puts MidiTok's face on
it.

    ids        event        meaning
    0-127      NoteOn p     key p goes down, with the velocity in force
    128-255    NoteOff p    the sound of p ends
    256-355    TimeShift    10 ms to 1 s; a longer wait repeats the 1 s shift
    356-387    Velocity     one of 32 bins; written only when the bin changes
    388        EOS          ends a piece, and heads it on disk
    389        PAD

Times are rounded once, as absolute times, to frames of 10 ms; so nothing drifts.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Ids, Ints
from music_gpt.errors import InputError
from music_gpt.notes import NOTE_DTYPE, Notes

NOTE_ON = 0
NOTE_OFF = 128
TIME_SHIFT = 256
VELOCITY = 356
EOS = 388
PAD = 389
VOCAB_SIZE = 390

FRAMES_PER_SECOND = 100
N_PITCHES = 128
N_SHIFTS = 100
"""The longest single shift in frames: one second."""
N_VELOCITIES = 32
DEFAULT_VELOCITY_BIN = 15
"""In force before the first Velocity event, which only ids from elsewhere lack: velocity 63."""

LONGEST_FRAMES = 1 << 31
"""Bound on a time in frames (248 days): what lies beyond is not music but a damaged number."""


# --- the vocabulary ---------------------------------------------------------------------------


def token_names() -> list[str]:
    """The names of the 390 events in the order of their ids, as MidiTok spells them.

    >>> names = token_names()
    >>> names[60], names[188], names[256], names[355], names[371], names[388]
    ('NoteOn_60', 'NoteOff_60', 'TimeShift_0.1.100', 'TimeShift_1.0.100', 'Velocity_63', 'EOS_None')
    """
    shifts = [divmod(frames, FRAMES_PER_SECOND) for frames in range(1, N_SHIFTS + 1)]
    return [
        *(f"NoteOn_{pitch}" for pitch in range(N_PITCHES)),
        *(f"NoteOff_{pitch}" for pitch in range(N_PITCHES)),
        *(f"TimeShift_{second}.{frame}.{FRAMES_PER_SECOND}" for second, frame in shifts),
        *(f"Velocity_{velocity_value(k)}" for k in range(N_VELOCITIES)),
        "EOS_None",
        "PAD_None",
    ]


def vocabulary_hash() -> str:
    """SHA-256 (hex) of the names in the order of their ids: two corpora with it are compatible."""
    return hashlib.sha256("\n".join(token_names()).encode()).hexdigest()


@overload
def velocity_bin(velocity: int) -> int: ...
@overload
def velocity_bin(velocity: npt.NDArray[np.integer]) -> Ints: ...
def velocity_bin(velocity: int | npt.NDArray[np.integer]) -> int | Ints:
    """Bin 0-31 of a MIDI velocity 1-127 (or of an array of them); 0 counts as 1.

    >>> velocity_bin(1), velocity_bin(4), velocity_bin(5), velocity_bin(127)
    (0, 0, 1, 31)
    """
    if isinstance(velocity, np.ndarray):
        return (np.maximum(velocity.astype(np.int64), 1) - 1) >> 2
    return (max(int(velocity), 1) - 1) >> 2


@overload
def velocity_value(velocity_bin: int) -> int: ...
@overload
def velocity_value(velocity_bin: npt.NDArray[np.integer]) -> Ints: ...
def velocity_value(velocity_bin: int | npt.NDArray[np.integer]) -> int | Ints:
    """MIDI velocity of a bin, at most 2 from every velocity in it, and never 0.

    >>> velocity_value(0), velocity_value(31)
    (3, 127)
    """
    if isinstance(velocity_bin, np.ndarray):
        return velocity_bin.astype(np.int64) * 4 + 3
    return int(velocity_bin) * 4 + 3


# --- notes -> canonical notes -----------------------------------------------------------------


class _Frames(NamedTuple):
    """Notes on the 10 ms grid, four arrays of one length."""

    start: Ints
    end: Ints
    pitch: Ints
    bin: Ints


def canonical_notes(notes: Notes, *, max_gap_seconds: float | None = None) -> Notes:
    """What `decode_ids(encode_notes(notes))` gives: the notes as the events can tell them.

    The first note starts at 0; times lie on the 10 ms grid; a pitch sounds once at a time; every
    note lasts at least 10 ms; a velocity is the value of its bin.
    """
    return _notes_from_frames(_frames_from_notes(notes, max_gap_seconds))


def whole_frames(notes: Notes) -> Notes:
    """The notes with their times at whole frames of their own clock; each lasts one at least.

    Events are counted from the first note on. Where that lies between two frames, their times are
    rounded in another way than those of the piece, and a note may have ended for the one that still
    sounds for the other. After this there is one way only.
    """
    moved = notes.copy()
    start = np.rint(notes["start"] * FRAMES_PER_SECOND)
    end = np.maximum(np.rint(notes["end"] * FRAMES_PER_SECOND), start + 1)
    moved["start"], moved["end"] = start / FRAMES_PER_SECOND, end / FRAMES_PER_SECOND
    return moved


def _frames_from_notes(notes: Notes, max_gap_seconds: float | None) -> _Frames:
    if len(notes) == 0:
        empty = np.zeros(0, np.int64)
        return _Frames(empty, empty, empty, empty)
    first = notes["start"].min()  # leading silence goes before rounding: then 5 ms stay 5 ms
    start = np.rint((notes["start"] - first) * FRAMES_PER_SECOND)
    end = np.rint((notes["end"] - first) * FRAMES_PER_SECOND)
    pitch = notes["pitch"].astype(np.int64)
    if not (start.max() < LONGEST_FRAMES and np.abs(end).max() < LONGEST_FRAMES):  # also NaN
        raise InputError("A note lies at no possible time; give times in seconds below 248 days.")
    if pitch.max() >= N_PITCHES:
        raise InputError(f"A note has pitch {pitch.max()}; MIDI pitches are 0 to 127.")
    frames = _Frames(
        start.astype(np.int64), end.astype(np.int64), pitch, velocity_bin(notes["velocity"])
    )
    frames = _one_note_per_pitch(frames)
    if max_gap_seconds is not None:
        frames = _shorten_silences(frames, max(round(max_gap_seconds * FRAMES_PER_SECOND), 0))
    return frames


def _one_note_per_pitch(frames: _Frames) -> _Frames:
    """Merge, end and lengthen notes by the rules; the result is sorted by (start, pitch)."""
    # 1. by pitch and then time
    key = frames.pitch * LONGEST_FRAMES + frames.start
    order = np.argsort(key)
    key, end, velocity = key[order], frames.end[order], frames.bin[order]
    # 2. the same pitch in the same frame: one note, the loudest and the longest
    is_first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=is_first[1:])
    if not is_first.all():
        firsts = np.flatnonzero(is_first)
        key = key[firsts]
        end = np.maximum.reduceat(end, firsts)
        velocity = np.maximum.reduceat(velocity, firsts)
    # 3. a note ends where its pitch is struck again, and lasts a frame at least
    pitch, start = key // LONGEST_FRAMES, key & (LONGEST_FRAMES - 1)
    end = np.maximum(end, start + 1)
    again = np.where(pitch[1:] == pitch[:-1], start[1:], LONGEST_FRAMES)
    np.minimum(end[:-1], again, out=end[:-1])
    # 4. by time and then pitch
    order = np.argsort(start * N_PITCHES + pitch)
    return _Frames(start[order], end[order], pitch[order], velocity[order])


def _shorten_silences(frames: _Frames, longest: int) -> _Frames:
    """Bring every stretch in which nothing sounds down to `longest` frames."""
    silence = frames.start[1:] - np.maximum.accumulate(frames.end)[:-1]
    moved = np.zeros(len(frames.start), np.int64)
    np.cumsum(np.maximum(silence - longest, 0), out=moved[1:])
    return frames._replace(start=frames.start - moved, end=frames.end - moved)


def _notes_from_frames(frames: _Frames) -> Notes:
    notes = np.empty(len(frames.start), NOTE_DTYPE)
    notes["start"] = frames.start / FRAMES_PER_SECOND
    notes["end"] = frames.end / FRAMES_PER_SECOND
    notes["pitch"] = frames.pitch
    notes["velocity"] = velocity_value(frames.bin)
    return notes


# --- notes -> ids -----------------------------------------------------------------------------


def encode_notes(notes: Notes, *, max_gap_seconds: float | None = None, eos: bool = False) -> Ids:
    """The events of `notes`, which are sounding notes (pedal applied) in seconds, in any order.

    Silence before the first note is left out, and a silence inside is shortened to
    `max_gap_seconds`. With `eos` the ids have EOS at the head and at the end: the form on disk.
    Raises `InputError` for a time or pitch that no MIDI file can hold.

    >>> from music_gpt.notes import NOTE_DTYPE
    >>> notes = np.array([(0.5, 1.0, 60, 64), (1.0, 2.5, 64, 66)], NOTE_DTYPE)
    >>> encode_notes(notes, eos=True).tolist()
    [388, 371, 60, 305, 188, 372, 64, 355, 305, 192, 388]
    """
    frames = _frames_from_notes(notes, max_gap_seconds)
    # an event in one number, so that sorting numbers sorts events: frame, off before on, pitch
    ons = (frames.start * 256 + 128 + frames.pitch) * N_VELOCITIES + frames.bin
    offs = (frames.end * 256 + frames.pitch) * N_VELOCITIES
    packed = np.concatenate([ons, offs])
    packed.sort()
    body = _emit(packed >> 13, ((packed >> 5) & 255) ^ 128, packed & 31)
    if not eos:
        return body
    return np.concatenate([[EOS], body, [EOS]]).astype(np.uint16)


def _emit(frame: Ints, event: Ints, velocity: Ints, in_force: int = -1) -> Ids:
    """Ids of the note events `event` (< 256) at `frame`; shifts and velocities go in between."""
    wait = np.diff(frame, prepend=0)
    n_shifts = (wait + (N_SHIFTS - 1)) // N_SHIFTS
    # a NoteOn tells its velocity where that differs from the one of the NoteOn before it
    tells = np.zeros(len(frame), bool)
    ons = np.flatnonzero(event < NOTE_OFF)
    tells[ons] = np.diff(velocity[ons], prepend=in_force) != 0
    place = np.cumsum(n_shifts + tells) + np.arange(len(frame))
    # whole seconds everywhere; the rest of a wait, velocities and notes are written over them
    ids = np.full(place[-1] + 1 if len(place) else 0, TIME_SHIFT + N_SHIFTS - 1, np.uint16)
    waits = wait > 0
    rest = wait - N_SHIFTS * (n_shifts - 1)  # of 1 to 100 frames
    ids[(place - tells)[waits] - 1] = (TIME_SHIFT - 1) + rest[waits]
    ids[place[tells] - 1] = VELOCITY + velocity[tells]
    ids[place] = event
    return ids


# --- ids -> notes -----------------------------------------------------------------------------


def decode_ids(ids: npt.ArrayLike) -> Notes:
    """The notes of any ids in any order, sorted by (start, pitch), in seconds from the first id.

    EOS and PAD at the head are passed over; the next one ends the piece. A NoteOff of a silent
    pitch is ignored, a second NoteOn ends the note before it, and the end of the ids ends what
    still sounds. Raises `InputError` for an id that is not one of the 390.

    >>> decode_ids([388, 371, 60, 305, 188, 388]).tolist()
    [(0.0, 0.5, 60, 63)]
    """
    body = _body(_as_ids(ids))
    # 1. time and velocity at every event
    frame = np.cumsum(shift_frames(body))
    n_frames = int(frame[-1]) if len(frame) else 0
    # 2. note events by pitch, in order within a pitch (a stable sort of bytes is a radix sort)
    notes = np.flatnonzero(body < TIME_SHIFT)
    pitch = (body[notes] & 127).astype(np.uint8)
    order = np.argsort(pitch, kind="stable")
    notes, pitch = notes[order], pitch[order]
    # 3. a NoteOn ends at the next event of its pitch, or with the piece
    when = frame[notes]
    until = np.full(len(notes), n_frames)
    until[:-1] = np.where(pitch[1:] == pitch[:-1], when[1:], n_frames)
    on = body[notes] < NOTE_OFF
    velocity = _velocity_bins(body)[notes[on]]
    velocity[velocity < 0] = DEFAULT_VELOCITY_BIN
    frames = _Frames(when[on], until[on], pitch[on].astype(np.int64), velocity)
    return _notes_from_frames(_one_note_per_pitch(frames))


def _as_ids(ids: npt.ArrayLike) -> Ids:
    array = np.asarray(ids)
    if array.size == 0:
        return np.zeros(0, np.uint16)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"Ids are a row of whole numbers, not {array.dtype} of shape {array.shape}."
        )
    lowest, highest = int(array.min()), int(array.max())
    if highest >= VOCAB_SIZE or lowest < 0:
        bad = lowest if lowest < 0 else highest
        raise InputError(f"There is no event {bad}; ids are 0 to {VOCAB_SIZE - 1}.")
    return array.astype(np.uint16, copy=False)


def _body_bounds(ids: Ids) -> tuple[int, int]:
    """Where the events of the piece begin and end: after a head of EOS or PAD, up to the next."""
    inside = ids < EOS
    begin = int(inside.argmax()) if inside.any() else len(ids)
    ends = ~inside[begin:]
    return begin, begin + int(ends.argmax()) if ends.any() else len(ids)


def _body(ids: Ids) -> Ids:
    begin, end = _body_bounds(ids)
    return ids[begin:end]


def _is_velocity(ids: Ids) -> npt.NDArray[np.bool_]:
    return (ids >= VELOCITY) & (ids < EOS)


def frames_of(id_: int) -> int:
    """Frames that one id lets pass, as `shift_frames` has them for many.

    >>> frames_of(256), frames_of(355), frames_of(60)
    (1, 100, 0)
    """
    return id_ - (TIME_SHIFT - 1) if TIME_SHIFT <= id_ < VELOCITY else 0


def shift_frames(ids: Ids | Ints) -> Ints:
    """Frames that each id lets pass; 0 for all but shifts."""
    shifts = (ids >= TIME_SHIFT) & (ids < VELOCITY)
    return np.where(shifts, ids.astype(np.int64) - (TIME_SHIFT - 1), 0)


# --- ids -> ids -------------------------------------------------------------------------------


def transpose_ids(
    ids: npt.ArrayLike, semitones: int, low: int = 0, high: int = N_PITCHES - 1
) -> Ids:
    """Move all pitches by `semitones`, or by as much of it as keeps them in `low` to `high`.

    >>> transpose_ids([371, 60, 305, 188], -2).tolist()
    [371, 58, 305, 186]
    """
    moved = _as_ids(ids).copy()
    notes = moved < TIME_SHIFT
    if not notes.any():
        return moved
    pitch = moved[notes] & 127
    down, up = min(low - int(pitch.min()), 0), max(high - int(pitch.max()), 0)
    moved[notes] = moved[notes].astype(np.int64) + min(max(semitones, down), up)
    return moved


def shift_velocity_ids(ids: npt.ArrayLike, bins: int) -> Ids:
    """Move all velocities of one piece by `bins`, held within the 32.

    Where two velocities become one at the edge, the second says nothing new and is left out.

    >>> shift_velocity_ids([385, 60, 387, 64, 386, 67], 2).tolist()
    [387, 60, 64, 67]
    """
    moved = _as_ids(ids).copy()
    places = np.flatnonzero(_is_velocity(moved))
    old = moved[places].astype(np.int64)
    new = np.clip(old + bins, VELOCITY, EOS - 1)
    moved[places] = new
    said = (np.diff(new) == 0) & (np.diff(old) != 0)
    return np.delete(moved, places[1:][said])


def stretch_ids(ids: npt.ArrayLike, factor: float) -> Ids:
    """Make one piece (or a crop of it) last `factor` times as long.

    Goes through absolute times, as shifts rounded one by one would drift by seconds; events that
    meet in a frame are put in the order of the rules, and every note keeps at least a frame.
    Head and tail (EOS, PAD) and a velocity at the head or end of a crop stay where they are.

    >>> stretch_ids([371, 60, 305, 188], 1.5).tolist()
    [371, 60, 330, 188]
    """
    ids = _as_ids(ids)
    begin, end = _body_bounds(ids)
    body = ids[begin:end]
    if len(body) == 0:
        return ids.copy()
    # 1. the note events at their new times, in the order of the rules
    frame = np.rint(np.cumsum(shift_frames(body)) * factor).astype(np.int64)
    n_frames = int(frame[-1])
    notes = np.flatnonzero(body < TIME_SHIFT)
    event = body[notes].astype(np.int64)
    frame = _keep_apart(frame[notes], event)
    order = np.argsort(frame * 256 + (event ^ 128), kind="stable")
    frame, event, velocity = frame[order], event[order], _velocity_bins(body)[notes[order]]
    # 2. shifts and velocities between them, and what a crop has before and after them
    head, tail = _velocities_at_the_edges(body)
    before = int(head[0]) - VELOCITY if len(head) else -1
    stretched = _emit(frame, event, velocity, before)
    rest = _wait_ids(n_frames - (int(frame[-1]) if len(frame) else 0))
    return np.concatenate([ids[:begin], head, stretched, rest, tail, ids[end:]])


def _velocities_at_the_edges(body: Ids) -> tuple[Ids, Ids]:
    """The velocity of a crop that is told before any NoteOn needs it, and the one at its end."""
    is_head = bool(_is_velocity(body[:1])[0]) and not (body[1:2] < NOTE_OFF).any()
    ons = np.flatnonzero(body < NOTE_OFF)
    after = body[ons[-1] + 1 :] if len(ons) else body[is_head:]
    return body[:is_head], after[_is_velocity(after)][-1:]


def _keep_apart(frame: Ints, event: Ints) -> Ints:
    """Frames moved on where a NoteOn and the next event of its pitch would share one."""
    order = np.argsort((event & 127).astype(np.uint8), kind="stable")
    pitch, on = event[order] & 127, event[order] < NOTE_OFF
    steps = np.zeros(len(event), np.int64)
    steps[1:] = on[:-1] & (pitch[1:] == pitch[:-1])
    # g[i] = max(f[i], g[i-1] + step[i]) within a pitch, as one running maximum over all pitches
    needed = np.cumsum(steps)
    far_apart = pitch * LONGEST_FRAMES
    moved = frame.copy()
    raised = np.maximum.accumulate(frame[order] - needed + far_apart)
    moved[order] = raised + needed - far_apart
    return moved


def _velocity_bins(body: Ids) -> Ints:
    """The bin in force at each id, -1 before the first one is told."""
    if len(body) == 0:
        return np.zeros(0, np.int64)
    latest = np.maximum.accumulate(np.where(_is_velocity(body), np.arange(len(body)), -1))
    return np.where(latest < 0, -1, body[latest].astype(np.int64) - VELOCITY)


def _wait_ids(n_frames: int) -> Ids:
    seconds, rest = divmod(max(n_frames, 0), N_SHIFTS)
    ids = [TIME_SHIFT + N_SHIFTS - 1] * seconds + [TIME_SHIFT + rest - 1] * (rest > 0)
    return np.array(ids, np.uint16)


# --- ids -> what they say ---------------------------------------------------------------------


def velocity_in_force(ids: npt.ArrayLike) -> int:
    """The velocity bin (0-31) that a NoteOn after `ids` would have, or -1 where none was told."""
    array = _as_ids(ids)
    places = np.flatnonzero(_is_velocity(array))
    return int(array[places[-1]]) - VELOCITY if len(places) else -1


def sounding_after(ids: npt.ArrayLike) -> dict[int, int]:
    """Pitches still held at the end of one piece's ids -> the frame in which each was struck.

    >>> sounding_after([371, 60, 305, 64, 188])
    {64: 50}
    """
    body = _body(_as_ids(ids))
    frame = np.cumsum(shift_frames(body))
    notes = np.flatnonzero(body < TIME_SHIFT)
    # the last event of a pitch decides: the first one in the reversed order
    pitches, last = np.unique((body[notes] & 127)[::-1], return_index=True)
    places = notes[len(notes) - 1 - last]
    held = body[places] < NOTE_OFF
    return dict(zip(pitches[held].tolist(), frame[places[held]].tolist(), strict=True))


def duration_frames(ids: npt.ArrayLike) -> int:
    """Frames of 10 ms that pass in one piece's ids."""
    return int(shift_frames(_body(_as_ids(ids))).sum())


def count_notes(ids: npt.ArrayLike) -> int:
    """Number of NoteOn events in one piece's ids."""
    return int(np.count_nonzero(_body(_as_ids(ids)) < NOTE_OFF))
