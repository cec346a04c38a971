"""Events so far -> which events may follow: the grammar of the 390, up to the end of the piece.

The letters in the shape comments: B takes side by side, V events in the vocabulary. Times are
frames of 10 ms. The module knows neither the network nor MIDI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from music_gpt.arrays import Floats, Ints, Mask
from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation.bias import Figures, Leaning, Pace
from music_gpt.generation.takes import Rows
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    HIGHEST_KEY,
    LOWEST_KEY,
    N_PITCHES,
    N_SHIFTS,
    N_VELOCITIES,
    NOTE_OFF,
    NOTE_ON,
    TIME_SHIFT,
    VELOCITY,
    VOCAB_SIZE,
)

FADE_NATS = 4.0
"""How much less likely an onset has become when onsets stop."""
END_NATS = 4.0
"""How much likelier EOS is made for a piece that looks for its own ending."""
RELEASE_NATS_PER_SECOND = 2.0
"""How much likelier a release becomes with every second that a note has sounded too long."""

SILENT = -1
_PITCHES = np.arange(N_PITCHES)
_KEYS = (_PITCHES >= LOWEST_KEY) & (_PITCHES <= HIGHEST_KEY)
"""What a piano has: a corpus holds a few pitches beyond, which nobody could play."""
_SHIFTS = np.arange(1, N_SHIFTS + 1)
_BINS = np.arange(N_VELOCITIES)
_FOREVER = 1 << 40


# --- where the music begins and ends ------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """What came before the new music. Times are frames of 10 ms on one clock."""

    context: Sequence[int] = (EOS,)
    """Ids that the network hears; EOS heads a piece, the velocity in force heads a part of one."""
    frame: int = 0
    """Time at the end of the context."""
    seam: int = 0
    """Time at which the new music begins. If it lies behind `frame`, the first event is a wait
    that reaches it: the network, not the end of the prompt, says how long the wait becomes."""
    velocity: int = -1
    """Velocity bin in force, -1 for none."""
    onsets: Mapping[int, int] = field(default_factory=dict)
    """Pitches that still sound -> time of their onset."""
    held: frozenset[int] = frozenset()
    """Those of them that sound on whatever comes: never released, never struck again."""


@dataclass(frozen=True)
class Ending:
    """When the music may and must end. Times are frames on the clock of `Start`."""

    earliest: int
    """EOS is allowed from here on."""
    fade: int
    """Onsets grow rarer from here on."""
    stop: int
    """No onset from here on."""
    latest: int
    """Whatever still sounds is released here."""
    own: bool = False
    """Whether the piece looks for an ending of its own, from `earliest` on."""
    exact: bool = False
    """Whether the new music ends at `latest` to the frame, and leaves open what sounds there."""

    @classmethod
    def after(cls, seam: int, seconds: float, *, own: bool = False) -> Ending:
        """The ending of `seconds` of new music: within a second of that, or an `own` one.

        An own ending comes between 60 % of the asked length and some seconds (2 to 10) more.

        >>> Ending.after(0, 30.0)
        Ending(earliest=2910, fade=2750, stop=2950, latest=3090, own=False, exact=False)
        """
        asked = max(round(seconds * FRAMES_PER_SECOND), 2)
        more = min(max(asked // 4, 200), 1000) if own else 0
        stop = seam + asked + more - min(50, asked // 2)
        return cls(
            earliest=seam + (asked * 6 // 10 if own else asked - min(90, asked // 2)),
            fade=stop - min(200, asked // 4),
            stop=stop,
            latest=seam + asked + more + 90,
            own=own,
        )

    @classmethod
    def at(cls, frame: int) -> Ending:
        """The ending of a stretch in a piece, which goes on at `frame` whatever sounds there."""
        return cls(earliest=frame, fade=frame, stop=frame, latest=frame, exact=True)


# --- grammar ------------------------------------------------------------------------------------


class Grammar(Rows):
    """Which events may follow, for B takes at once, in constant time for each event.

    What comes out is what `encode_notes` would write: in a frame the offs stand before the ons,
    each by pitch; a velocity stands before a note-on and differs from the one in force; long waits
    are whole seconds and a rest. So it decodes without loss, whatever the network says.
    """

    def __init__(
        self, start: Start, ending: Ending, sampling: SamplingConfig, n_takes: int
    ) -> None:
        self._seam, self._ending = start.seam, ending
        self._figures = Figures(n_takes)
        self._leaning = Leaning(sampling, n_takes) if sampling.key or sampling.density else None
        self._pace = None if sampling.density else Pace(n_takes)
        self._longest_wait = max(round(sampling.max_wait_seconds * FRAMES_PER_SECOND), 1)
        self._longest_note = round(sampling.max_note_seconds * FRAMES_PER_SECOND)
        self._release_after = round(sampling.release_after_seconds * FRAMES_PER_SECOND)
        self.frame = np.full(n_takes, start.frame)
        self.onset = np.full((n_takes, N_PITCHES), SILENT)
        for pitch, frame in start.onsets.items():
            self.onset[:, pitch] = frame
        self._held = np.zeros((n_takes, N_PITCHES), np.bool_)
        self._held[:, list(start.held)] = True
        self.velocity = np.full(n_takes, start.velocity)
        self._waited = np.zeros(n_takes, np.int64)
        self._last = np.full(n_takes, EOS if not start.onsets else NOTE_OFF)
        self._last_off = np.full(n_takes, -1)  # highest pitch released in this frame
        self._last_on = np.full(n_takes, -1)  # highest pitch struck in this frame

    def allowed(self) -> Mask:
        """Events that may follow, (B, V); there is always one."""
        ending, frame = self._ending, self.frame
        sounding = self.onset >= 0  # (B, 128)
        silent = np.logical_not(sounding.any(1))  # (B)
        open_ = sounding & ~self._held  # (B, 128)
        told = (self._last >= VELOCITY) & (self._last < EOS)  # a velocity: a note-on has to follow
        early = frame < self._seam
        late = open_ & (self.onset + self._longest_note <= frame[:, None])
        late |= open_ & (frame >= ending.latest)[:, None]
        overdue = np.logical_and(late.any(1), ~early)
        closing = silent & (frame >= (ending.stop if ending.own else ending.earliest))

        mask = np.zeros((len(frame), VOCAB_SIZE), np.bool_)
        # 1. offs by pitch, before all ons; what is overdue goes first
        lowest_late = np.where(overdue, late.argmax(1), N_PITCHES)
        may_release = ~told & ~early & (self._last_on < 0)
        mask[:, NOTE_OFF:TIME_SHIFT] = (
            (open_ & may_release[:, None] & (self.onset < frame[:, None]))
            & (self._last_off[:, None] < _PITCHES)
            & (lowest_late[:, None] >= _PITCHES)
        )
        # 2. ons by pitch; a velocity where one can follow
        may_strike = ~early & ~overdue & ~closing & (frame < ending.stop)
        on = ~sounding & may_strike[:, None] & (self._last_on[:, None] < _PITCHES) & _KEYS
        mask[:, NOTE_ON:NOTE_OFF] = on & (self.velocity >= 0)[:, None]
        may_tell = ~told & on.any(1)
        mask[:, VELOCITY:EOS] = may_tell[:, None] & (self.velocity[:, None] != _BINS)
        # 3. waits up to what comes next
        shortest, longest = self._waits(open_, silent, told | overdue | closing, early)
        mask[:, TIME_SHIFT:VELOCITY] = (shortest[:, None] <= _SHIFTS) & (
            longest[:, None] >= _SHIFTS
        )
        # 4. the end, with the last note
        off_before = (self._last >= NOTE_OFF) & (self._last < TIME_SHIFT)
        mask[:, EOS] = silent & off_before & ~early & (frame >= ending.earliest)
        if ending.exact:
            over = frame >= ending.latest
            mask[over], mask[:, EOS] = False, over
        return mask

    def _waits(self, open_: Mask, silent: Mask, never: Mask, early: Mask) -> tuple[Ints, Ints]:
        """Shortest and longest shift in frames, each (B); none where longest is below shortest."""
        ending, frame = self._ending, self.frame
        first_onset = np.where(open_, self.onset, _FOREVER).min(1)
        until = first_onset + self._longest_note
        # silence has to end while there is still time for a note
        if not ending.exact:
            until = np.minimum(until, ending.latest)
            until = np.where(silent, (ending.stop if ending.own else ending.earliest) - 1, until)
        longest = np.minimum(until - frame, self._longest_wait - self._waited)
        # a wait is whole seconds and then a rest; and a piece does not begin with one
        rest_before = (self._last >= TIME_SHIFT) & (self._last < TIME_SHIFT + N_SHIFTS - 1)
        longest[never | rest_before | (self._last == EOS)] = 0
        needed = np.minimum(self._seam - frame, N_SHIFTS)
        longest = np.where(early, np.maximum(longest, needed), longest)
        return np.where(early, needed, 1), longest

    def bias(self) -> Floats:
        """What is added to the logits, (B, V): onsets fade, overlong notes let go, the end nears.

        To it comes what a person would like, a key or a density, or else the take's own pace, and
        that no figure goes round for ever (`music_gpt.generation.bias`).

        A note whose release a network has once missed is seldom released later: in its corpus such
        a thing does not happen. So the longer a note sounds past `release_after_seconds`, the
        likelier its release is made.
        """
        ending, frame = self._ending, self.frame
        bias = np.zeros((len(frame), VOCAB_SIZE))
        overtime = np.where(self.onset >= 0, frame[:, None] - self.onset - self._release_after, 0)
        per_frame = RELEASE_NATS_PER_SECOND / FRAMES_PER_SECOND
        bias[:, NOTE_OFF:TIME_SHIFT] = per_frame * np.maximum(overtime, 0)
        if frame.max() > ending.fade:
            faded = (frame - ending.fade) / max(ending.stop - ending.fade, 1)
            fading = FADE_NATS * np.clip(faded, 0.0, 1.0)[:, None]  # (B, 1)
            bias[:, NOTE_ON:NOTE_OFF] -= fading
            bias[:, VELOCITY:EOS] -= fading
        if ending.own:
            bias[:, EOS] = np.where(frame >= ending.earliest, END_NATS, 0.0)
        self._figures.lean(bias)
        if self._pace is not None:
            self._pace.lean(bias, frame <= ending.fade)
        if self._leaning is not None:
            bias += self._leaning.bias(frame <= ending.fade)
        return bias

    def cut(self, ids: Ints) -> Ints:
        """The ids (B) as they are written: a wait beyond an exact end leads to that end.

        Were such waits not allowed, a network that wants to wait for a second where a tenth is left
        would have to fill it with what it finds unlikely: a cluster of notes.
        """
        if not self._ending.exact:
            return ids
        last = TIME_SHIFT - 1 + self._ending.latest - self.frame
        shift = (ids >= TIME_SHIFT) & (ids < VELOCITY)
        return np.where(shift, np.minimum(ids, last), ids)

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        self._figures.advance(ids)
        for state in (self._pace, self._leaning):
            if state is not None:
                state.advance(ids)
        pitch = ids & 127
        on, off = ids < NOTE_OFF, (ids >= NOTE_OFF) & (ids < TIME_SHIFT)
        shift = (ids >= TIME_SHIFT) & (ids < VELOCITY)
        rows = np.arange(len(ids))
        self.onset[rows[on], pitch[on]] = self.frame[on]
        self.onset[rows[off], pitch[off]] = SILENT
        wait = np.where(shift, ids - (TIME_SHIFT - 1), 0)
        self.frame = self.frame + wait
        self._waited = np.where(shift, self._waited + wait, 0)
        self._last_off = np.where(shift, -1, np.where(off, pitch, self._last_off))
        self._last_on = np.where(shift, -1, np.where(on, pitch, self._last_on))
        told = (ids >= VELOCITY) & (ids < EOS)
        self.velocity = np.where(told, ids - VELOCITY, self.velocity)
        self._last = ids
