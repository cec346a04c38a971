"""A table of MIDI events in ticks comes in -> notes in seconds go out, as pressed and as sounding.

Pairs key down with key up, chooses the piano, applies the sustain pedal and the tempo map; all in
numpy, with no loop over notes. Knows nothing of files and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Floats, Ints
from music_gpt.errors import InputError
from music_gpt.midi.mending import DEFAULT_TEMPO, Bytes, EventTable
from music_gpt.notes import NOTE_DTYPE, Notes, end_at_next_strike

MOST_TOLD = 20
"""Tracks that a sentence lists, at most."""
DRUM_CHANNEL = 9
"""Channel 10 of the standard, counted from 0."""
N_PIANO_PROGRAMS = 8
"""General MIDI programs 0-7 are pianos."""
SUSTAIN, SUSTAIN_DOWN = 64, 64
"""Controller of the right pedal, and the value from which it is down."""
ALL_SOUND_OFF, RESET_CONTROLLERS = 120, 121
"""Controllers that lift the pedal as well; the first one also ends all notes."""
ALL_NOTES_OFF = (123, 124, 125, 126, 127)
"""Controllers that end all notes but leave the pedal: the last four change the mode, and the
standard (MIDI 1.0, "Mode Messages as All Notes Off Messages") has them do so too."""
PEDAL_CONTROLLERS = (SUSTAIN, ALL_SOUND_OFF, RESET_CONTROLLERS)
NOTE_OFF, NOTE_ON, CONTROL, PROGRAM = 8, 9, 11, 12
"""Upper halves of the status bytes that count here."""
STUCK_PEDAL_SECONDS = 30.0
"""A pedal that goes down and never up again is believed if no note starts later than this after
it; else the message is a leftover of some set-up, and obeying it would drown the piece."""

Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[Any]  # ticks (int64) or seconds (float64)
Pedals = dict[int, Floats]
"""Channel -> seconds at which its sustain pedal goes down, up, down and so on."""


@dataclass(frozen=True, eq=False)
class PressedKeys:
    """Keys that were pressed, (N,) each, times in ticks."""

    start: Ints
    end: Ints
    pitch: Ints
    velocity: Ints
    channel: Ints
    track: Ints
    event: Ints  # number of the note-on in the table

    def take(self, which: npt.NDArray[Any]) -> PressedKeys:
        """Those at the indices or flags `which`."""
        return PressedKeys(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


class Reading(NamedTuple):
    """Notes of tracks that play together; both arrays are `NOTE_DTYPE` with the same notes."""

    notes: Notes  # as pressed, sorted by (start, pitch)
    sounding: Notes
    remarks: list[str]
    parts: Ints  # numbers of the parts that were read


def read_notes(table: EventTable, *, any_program: bool = False) -> Reading:
    """The notes of the piano, or of whatever instruments there are if they were chosen."""
    keys, n_open = pair_keys(table)
    keys, remarks = (keys, []) if any_program else choose_piano(table, keys)
    keys = keys.take(np.argsort(keys.start << 7 | keys.pitch, kind="stable"))
    if n_open:
        remarks.append("Notes without a release were ended with their track.")
    seconds = tempo_map(table)
    notes = join_columns(seconds(keys.start), seconds(keys.end), keys.pitch, keys.velocity)
    last = float(seconds(table.track_end).max(initial=0.0))
    sounding, its_remarks = apply_pedals(notes, keys.channel, find_pedals(table, seconds), last)
    parts = np.flatnonzero(np.bincount(keys.track << 4 | keys.channel))
    return Reading(notes, sounding, remarks + its_remarks, parts)


def join_columns(start: Times, end: Times, pitch: Ints, velocity: Ints) -> Notes:
    """Four columns as one array of notes."""
    notes = np.empty(len(start), NOTE_DTYPE)
    notes["start"], notes["end"], notes["pitch"], notes["velocity"] = start, end, pitch, velocity
    return notes


# -------------------------------------------------------------------------- how long is each key


def is_press(table: EventTable) -> Flags:
    """Which events press a key; a note-on with velocity 0 releases one."""
    presses: Flags = ((table.status >> 4) == NOTE_ON) & (table.data2 > 0)
    return presses


def pair_keys(table: EventTable) -> tuple[PressedKeys, int]:
    """Pressed keys of all channels but the drums, and how many are never released.

    A release ends the oldest press of its key on its track and channel (first in, first out);
    one without a press is ignored. "All notes off" ends all keys of its channel. What is never
    released lasts to the end of its track.
    """
    kind, channel = table.status >> 4, table.status & 0x0F
    events = np.flatnonzero(((kind == NOTE_ON) | (kind == NOTE_OFF)) & (channel != DRUM_CHANNEL))
    key = table.track[events] << 11 | channel[events].astype(np.int64) << 7 | table.data1[events]
    silences = find_silences(table)
    if len(silences):  # nothing pairs across a silence
        key |= count_silences(table, silences, events) << 32
    elif table.track_end.size <= 1 << 5:
        key = key.astype(np.uint16)  # numpy sorts these by radix, many times as fast
    order = np.argsort(key, kind="stable")
    events, key = events[order], key[order]
    press = is_press(table)[events]
    ends = pair_presses(key, press)
    closed, pressed = ends >= 0, events[press]
    end, silenced = unreleased_ends(table, silences, pressed)
    end[closed] = table.tick[events[ends[closed]]]

    keys = PressedKeys(
        start=table.tick[pressed],
        end=end,
        pitch=table.data1[pressed].astype(np.int64),
        velocity=table.data2[pressed].astype(np.int64),
        channel=channel_of(table, pressed),
        track=table.track[pressed],
        event=pressed,
    )
    heard = closed | (end > keys.start)  # pressed at the very end: nothing to hear
    n_open = int((heard & ~closed & ~silenced).sum())
    return keys if heard.all() else keys.take(heard), n_open


def pair_presses(key: npt.NDArray[np.integer], press: Flags) -> Ints:
    """Place of the release that ends each press, first in, first out; -1 for none.

    Args:
        key: (N,) what is pressed or released, sorted, and by time where it is the same.
        press: (N,) whether it is pressed.

    >>> pair_presses(np.array([1, 1, 1, 1, 2]), np.array([True, True, False, False, True])).tolist()
    [2, 3, -1]
    """
    # 0. as a rule each press is released before the next
    if np.array_equal(key[::2], key[1::2]) and press[::2].all() and not press[1::2].any():
        return np.arange(1, len(key), 2)
    # 1. a walk up with each press and down with each release, anew in each group of one key
    heads = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    group = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(key))))
    walk = np.append(0, np.cumsum(np.where(press, 1, -1)))
    depth = walk[1:] - walk[heads][group]
    # 2. a release without a press is one that brings the walk to a new low below 0
    apart = (2 * len(key) + 2) * group  # keeps the running minimum inside its group
    low = np.minimum.accumulate(np.minimum(depth, 0) - apart) + apart
    low_before = np.append(0, low)[:-1]
    low_before[heads] = 0
    release = ~press & (low == low_before)
    # 3. in each group the n-th press ends with the n-th release
    n_releases = np.bincount(group[release], minlength=len(heads))
    first_release = np.cumsum(n_releases) - n_releases
    n_presses = np.append(0, np.cumsum(press))
    nth = (n_presses[1:] - n_presses[heads][group] - 1)[press]
    closed, places = nth < n_releases[group[press]], np.flatnonzero(release)
    ends = np.full(len(nth), -1)
    ends[closed] = places[(first_release[group[press]] + nth)[closed]]
    return ends


def find_silences(table: EventTable) -> Ints:
    """The events by which all notes end, by channel and then by time."""
    silences = controls(table, ALL_SOUND_OFF, *ALL_NOTES_OFF)
    if len(silences):
        silences = silences[np.lexsort((table.place[silences], channel_of(table, silences)))]
    return silences


def count_silences(table: EventTable, silences: Ints, events: Ints) -> Ints:
    """How many silences stand before each event: on its channel, and all on lower channels."""
    when, asked = (
        channel_of(table, e) * len(table.place) + table.place[e] for e in (silences, events)
    )
    return np.searchsorted(when, asked)


def unreleased_ends(table: EventTable, silences: Ints, pressed: Ints) -> tuple[Ints, Flags]:
    """Where each press ends without a release, and whether a silence is what ends it."""
    end, silenced = table.track_end[table.track[pressed]], np.zeros(len(pressed), np.bool_)
    if len(silences):
        nth = count_silences(table, silences, pressed)
        follower = np.append(silences, 0)[nth]
        same_channel = channel_of(table, follower) == channel_of(table, pressed)
        silenced = (nth < len(silences)) & same_channel & (table.tick[follower] <= end)
        end = np.where(silenced, table.tick[follower], end)
    return end, silenced


def controls(table: EventTable, *numbers: int) -> Ints:
    """The events of the controllers of these `numbers`."""
    wanted = np.logical_or.reduce([table.data1 == number for number in numbers])
    return np.flatnonzero(wanted & ((table.status >> 4) == CONTROL))


def channel_of(table: EventTable, events: Ints) -> Ints:
    """Channel of each of the `events`."""
    return (table.status[events] & 0x0F).astype(np.int64)


# ------------------------------------------------------------------------- which keys are a piano


def choose_piano(table: EventTable, keys: PressedKeys) -> tuple[PressedKeys, list[str]]:
    """The keys of pianos if there are any, else all; and what was left out, in sentences."""
    if not len(keys.start):
        return keys, []
    piano = programs(table, keys.event) < N_PIANO_PROGRAMS
    remarks = []
    if not piano.any():
        remarks.append("The file has no piano; its pitched instruments are read as one.")
    elif not piano.all():
        keys = keys.take(piano)
        remarks.append("Only the piano is read; other instruments are left out.")
    if (is_press(table) & ((table.status & 0x0F) == DRUM_CHANNEL)).any():
        remarks.append("Drums are left out.")
    return keys, remarks


def programs(table: EventTable, events: Ints) -> Ints:
    """Program in force at each event: of its channel in its own track, else of its channel, or 0.

    Files with more than 16 instruments use a channel in several tracks, and each track names its
    program; other files name all programs in a track of their own.
    """
    changes = np.flatnonzero((table.status >> 4) == PROGRAM)
    value = table.data1[changes].astype(np.int64)
    if not value.any():  # the first program, which is also the one that nobody needs to name
        return np.zeros(len(events), np.int64)
    channel, own_channel = channel_of(table, changes), channel_of(table, events)
    place = table.place
    by_channel = _latest(channel, place[changes], value, own_channel, place[events], len(place))
    part, own_part = table.track[changes] << 4 | channel, table.track[events] << 4 | own_channel
    by_part = _latest(part, changes, value, own_part, events, len(place))
    return np.where(np.isin(own_part, part), by_part, by_channel)


def _latest(
    group: Ints, place: Ints, value: Ints, asked_group: Ints, asked_place: Ints, n_places: int
) -> Ints:
    """The value that stands last before each asked place in its group, 0 for none."""
    at = group * n_places + place
    order = np.argsort(at)
    found = np.searchsorted(at[order], asked_group * n_places + asked_place) - 1
    latest = order[np.maximum(found, 0)]
    return np.where((found >= 0) & (group[latest] == asked_group), value[latest], 0)


# ---------------------------------------------------------------------------- the list of tracks


class Track(NamedTuple):
    """What one track plays on one channel."""

    number: int
    """By which it can be chosen."""
    name: str
    """As the file calls it, or ""."""
    program: int
    """General MIDI program of its first note, 0-127."""
    is_drum: bool
    n_notes: int
    used: bool
    """Whether its notes are in the piece."""

    def __str__(self) -> str:
        return f"{self.number} ({self.name})" if self.name else str(self.number)


def list_tracks(table: EventTable) -> tuple[list[Track], Ints]:
    """The tracks that have notes, none of them used yet, and the number of each part.

    A track that plays on several channels is listed once for each, for these are separate
    instruments; the number of a part is 16 times that of the track, plus the channel.
    """
    presses = np.flatnonzero(is_press(table))
    part_of = table.track[presses] << 4 | channel_of(table, presses)
    n_notes = np.bincount(part_of)
    first = np.empty(len(n_notes), np.int64)
    first[part_of[::-1]] = presses[::-1]  # of several the last to be written is the first note
    parts = np.flatnonzero(n_notes)
    columns = zip(
        parts.tolist(), programs(table, first[parts]).tolist(), n_notes[parts].tolist(), strict=True
    )
    tracks = [
        Track(number, table.names.get(part >> 4, ""), its, part & 0x0F == DRUM_CHANNEL, n, False)
        for number, (part, its, n) in enumerate(columns)
    ]
    return tracks, parts


def choose_tracks(tracks: list[Track], wanted: Sequence[int | str]) -> list[int]:
    """Numbers of the tracks that are `wanted` by number or by name (of any case).

    Raises:
        InputError: there is no such track, or it plays drums.
    """
    chosen: set[int] = set()
    for key in wanted:
        name = str(key).strip().casefold()
        named = [t for t in tracks if isinstance(key, str) and t.name.casefold() == name]
        found = named or [t for t in tracks if name == str(t.number)]
        if not found or all(track.is_drum for track in found):
            fault = "plays drums" if found else "is not in the file"
            raise InputError(f"Track {str(key)!r} {fault}; choose among {_told(tracks)}.")
        chosen.update(track.number for track in found if not track.is_drum)
    if not chosen:
        raise InputError(f"No track is chosen; choose among {_told(tracks)}.")
    return sorted(chosen)


def _told(tracks: list[Track]) -> str:
    pitched = [str(track) for track in tracks if not track.is_drum]
    more = [f"{len(pitched) - MOST_TOLD} more"] if len(pitched) > MOST_TOLD else []
    return ", ".join(pitched[:MOST_TOLD] + more) or "none: all its tracks play drums or nothing"


def only_parts(table: EventTable, parts: Ints) -> EventTable:
    """The table without the notes of other parts; their pedals and programs stay."""
    is_note = ((table.status >> 4) == NOTE_ON) | ((table.status >> 4) == NOTE_OFF)
    others = is_note & ~np.isin(table.track << 4 | table.status & 0x0F, parts)
    return replace(table, status=np.where(others, 0, table.status).astype(np.uint8))


# ----------------------------------------------------------------------------------------- pedal


def find_pedals(table: EventTable, seconds: TempoMap) -> Pedals:
    """The sustain pedal of each channel, from all tracks, also those without notes."""
    events = controls(table, *PEDAL_CONTROLLERS)
    events = events[np.argsort(table.tick[events], kind="stable")]
    pedals, channel = {}, table.status[events] & 0x0F
    for number in np.unique(channel).tolist():
        moves = events[channel == number]
        changes = pedal_changes(table.data1[moves], table.data2[moves])
        pedals[number] = seconds(table.tick[moves[changes]])
    return pedals


def pedal_changes(controller: Bytes, value: Bytes) -> Ints:
    """The moves by which the pedal goes down, up, down and so on.

    What resets the controllers lifts it.
    """
    down = (controller == SUSTAIN) & (value >= SUSTAIN_DOWN)
    return np.flatnonzero(np.diff(down, prepend=False))


def apply_pedals(
    notes: Notes, channel: Ints, pedals: Pedals, last: float
) -> tuple[Notes, list[str]]:
    """The notes as they sound, and a remark if a pedal was not believed.

    A sound ends with key up and pedal up, or when its pitch is struck again, or with the last
    track.

    Args:
        notes: (N,) as pressed, sorted by start.
        channel: (N,) channel of each note: the key of its pedal.
        pedals: of the channels that have one.
        last: seconds at which the last track ends.
    """
    # columns of their own: numpy takes places out of them ten times as fast as out of an array of
    # notes, and copies such an array note by note
    start, pressed_until, pitch, velocity = (notes[name].copy() for name in NOTE_DTYPE.names or ())
    end, remarks = pressed_until.copy(), []
    for number, changes in pedals.items():
        mine = np.flatnonzero(channel == number)
        last_start = start[mine].max(initial=0.0)
        if len(changes) % 2 and last_start - changes[-1] > STUCK_PEDAL_SECONDS:
            changes = changes[:-1]
            remarks.append("A pedal that is never released was ignored.")
        n_changes = np.searchsorted(changes, pressed_until[mine], side="right")
        down = n_changes & 1 > 0
        held, release = mine[down], n_changes[down]
        end[held] = np.maximum(np.append(changes, last)[release], pressed_until[held])
    end = end_at_next_strike(start, pitch, end)
    return join_columns(start, end, pitch, velocity), remarks


# ------------------------------------------------------------------------------------------ time


@dataclass(frozen=True, eq=False)
class TempoMap:
    """Stretches of constant tempo, (M,) each; in whole units, so that no rounding adds up."""

    tick: Ints  # where each begins; the first at 0
    units_per_tick: Floats
    passed: Floats  # units from tick 0 to each
    units_per_second: float

    def __call__(self, tick: Ints) -> Floats:
        """Seconds from the start of the file to each tick."""
        at = np.searchsorted(self.tick, tick, side="right") - 1 if len(self.tick) > 1 else 0
        units: Floats = self.passed[at] + (tick - self.tick[at]) * self.units_per_tick[at]
        return units / self.units_per_second


def tempo_map(table: EventTable) -> TempoMap:
    """The map through all tempo events of all tracks, in float64.

    In SMPTE time a unit is a tick; else it is a microsecond over the ticks of a quarter note.
    """
    if table.header.ticks_per_second:
        return TempoMap(
            np.zeros(1, np.int64), np.ones(1), np.zeros(1), table.header.ticks_per_second
        )
    order = np.argsort(table.tempo_tick, kind="stable")
    tick = np.append(-1, table.tempo_tick[order])
    tempo = np.append(DEFAULT_TEMPO, table.tempo[order]).astype(np.float64)
    last = np.append(tick[1:] != tick[:-1], True)  # of several at one tick the last counts
    tick, tempo = np.maximum(tick[last], 0), tempo[last]
    passed = np.append(0.0, np.cumsum(np.diff(tick) * tempo[:-1]))
    return TempoMap(tick, tempo, passed, 1e6 * table.header.ticks_per_quarter)
