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
from music_gpt.generation.bias import Crowd, Figures, Leaning
from music_gpt.generation.drift import Articulation, Pace
from music_gpt.generation.takes import Rows
from music_gpt.notes import HIGHEST_KEY, LOWEST_KEY
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    N_PITCHES,
    N_SHIFTS,
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

_PITCHES = np.arange(N_PITCHES)
_KEYS = (_PITCHES >= LOWEST_KEY) & (_PITCHES <= HIGHEST_KEY)
"""What a piano has: a corpus holds a few pitches beyond, which nobody could play."""
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


@dataclass(slots=True)
class Moment:
    """Where one take stands: plain numbers, since numpy would take longer to begin with them."""

    frame: int
    """Time."""
    open: dict[int, int]
    """Pitches that sound and may be released -> time of their onset, the oldest first."""
    held: frozenset[int]
    """Pitches that sound on whatever comes."""
    silent: Mask
    """Keys of a piano that do not sound, (128)."""
    velocity: int
    """Bin in force, -1 for none."""
    last: int
    """The last event."""
    last_off: int = -1
    """Highest pitch released in this frame."""
    last_on: int = -1
    """Highest pitch struck in this frame."""
    waited: int = 0
    """Frames since the last event that is no wait."""

    @classmethod
    def at(cls, start: Start) -> Moment:
        """Where the new music begins."""
        oldest_first = sorted(start.onsets, key=start.onsets.__getitem__)
        silent = _KEYS.copy()
        silent[oldest_first] = False
        return cls(
            frame=start.frame,
            open={pitch: start.onsets[pitch] for pitch in oldest_first if pitch not in start.held},
            held=start.held,
            silent=silent,
            velocity=start.velocity,
            last=NOTE_OFF if start.onsets else EOS,
        )

    @property
    def quiet(self) -> bool:
        """Whether nothing sounds."""
        return not (self.open or self.held)

    def advance(self, id_: int) -> None:
        """One more event."""
        self.last = id_
        if TIME_SHIFT <= id_ < VELOCITY:
            wait = id_ - (TIME_SHIFT - 1)
            self.frame, self.waited = self.frame + wait, self.waited + wait
            self.last_off = self.last_on = -1
            return
        self.waited = 0
        if id_ < NOTE_OFF:
            self.open[id_], self.silent[id_], self.last_on = self.frame, False, id_
        elif id_ < TIME_SHIFT:
            pitch = id_ - NOTE_OFF
            self.open.pop(pitch, None)
            self.silent[pitch], self.last_off = _KEYS[pitch], pitch
        elif id_ < EOS:
            self.velocity = id_ - VELOCITY


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
        self._crowd = None if sampling.density else Crowd(n_takes)
        self._articulation = Articulation(n_takes, sounding=len(start.onsets))
        self._longest_wait = max(round(sampling.max_wait_seconds * FRAMES_PER_SECOND), 1)
        self._longest_note = round(sampling.max_note_seconds * FRAMES_PER_SECOND)
        self._release_after = round(sampling.release_after_seconds * FRAMES_PER_SECOND)
        self._closes_at = ending.stop if ending.own else ending.earliest
        self.moments = [Moment.at(start) for _ in range(n_takes)]

    def allowed(self) -> Mask:
        """Events that may follow, (B, V); there is always one."""
        mask = np.zeros((len(self.moments), VOCAB_SIZE), np.bool_)
        for row, now in zip(mask, self.moments, strict=True):
            if self._ending.exact and now.frame >= self._ending.latest:
                row[EOS] = True
            elif VELOCITY <= now.last < EOS:  # a note-on has to follow
                row[NOTE_ON + now.last_on + 1 : NOTE_OFF] = now.silent[now.last_on + 1 :]
            else:
                self._allow(row, now)
        return mask

    def _allow(self, row: Mask, now: Moment) -> None:
        """Mark in `row` (V) what may follow an event that is no velocity."""
        ending, frame, quiet = self._ending, now.frame, now.quiet
        early = frame < self._seam
        lowest_late = N_PITCHES if early else self._lowest_late(now)
        overdue = lowest_late < N_PITCHES
        closing = quiet and frame >= self._closes_at

        # 1. offs by pitch, before all ons; what is overdue goes first
        if now.last_on < 0 and not early:
            for pitch, onset in now.open.items():
                if onset < frame and now.last_off < pitch <= lowest_late:
                    row[NOTE_OFF + pitch] = True
        # 2. ons by pitch; a velocity where one can follow
        if frame < ending.stop and not (early or overdue or closing):
            higher = now.silent[now.last_on + 1 :]
            row[VELOCITY:EOS] = now.silent[HIGHEST_KEY] or higher.any()  # mostly the first is true
            if now.velocity >= 0:
                row[NOTE_ON + now.last_on + 1 : NOTE_OFF] = higher
                row[VELOCITY + now.velocity] = False
        # 3. waits up to what comes next
        shortest, longest = self._waits(now, never=overdue or closing)
        row[TIME_SHIFT - 1 + shortest : TIME_SHIFT + longest] = True
        # 4. the end, with the last note
        if quiet and NOTE_OFF <= now.last < TIME_SHIFT and not early:
            row[EOS] = frame >= ending.earliest
        # 5. where every key is held over the longest wait, nothing but time can pass
        if not row.any():
            row[TIME_SHIFT:VELOCITY] = True

    def _lowest_late(self, now: Moment) -> int:
        """Lowest pitch whose release is overdue, 128 for none."""
        before = now.frame if now.frame >= self._ending.latest else now.frame - self._longest_note
        lowest = N_PITCHES
        for pitch, onset in now.open.items():
            if onset > before:  # and so are all that follow
                break
            lowest = min(lowest, pitch)
        return lowest

    def _waits(self, now: Moment, never: bool) -> tuple[int, int]:
        """Shortest and longest shift in frames, 0 to 100; none where longest is below shortest."""
        until = next(iter(now.open.values()), _FOREVER) + self._longest_note
        # silence has to end while there is still time for a note
        if not self._ending.exact:
            until = self._closes_at - 1 if now.quiet else min(until, self._ending.latest)
        longest = max(min(until - now.frame, self._longest_wait - now.waited, N_SHIFTS), 0)
        # a wait is whole seconds and then a rest; and a piece does not begin with one
        rest_before = TIME_SHIFT <= now.last < TIME_SHIFT + N_SHIFTS - 1
        if never or rest_before or now.last == EOS:
            longest = 0
        needed = min(self._seam - now.frame, N_SHIFTS)
        return max(needed, 1), max(needed, longest)

    def bias(self) -> Floats:
        """What is added to the logits, (B, V): onsets fade, overlong notes let go, the end nears.

        To it comes what a person would like, a key or a density, or else the take's own pace, and
        that notes stay as long and no figure goes round for ever (`bias` and `drift`, beside this).
        """
        bias = np.zeros((len(self.moments), VOCAB_SIZE))
        for row, now in zip(bias, self.moments, strict=True):
            self._let_go(row, now)
            self._near_the_end(row, now.frame)
        self._figures.lean(bias)
        going = [now.frame <= self._ending.fade for now in self.moments]
        self._articulation.lean(bias, going)
        if self._pace is not None:
            self._pace.lean(bias, going)
        if self._crowd is not None:
            self._crowd.lean(bias)
        if self._leaning is not None:
            bias += self._leaning.bias(going)
        return bias

    def _let_go(self, row: Floats, now: Moment) -> None:
        """Lean on `row` (V) for the release of notes that have sounded too long.

        A note whose release a network has once missed is seldom released later: in its corpus such
        a thing does not happen. So the longer a note sounds past `release_after_seconds`, the
        likelier its release is made.
        """
        for pitch, onset in now.open.items():
            overtime = now.frame - onset - self._release_after
            if overtime <= 0:  # and so for all that follow
                break
            row[NOTE_OFF + pitch] = RELEASE_NATS_PER_SECOND / FRAMES_PER_SECOND * overtime

    def _near_the_end(self, row: Floats, frame: int) -> None:
        """Lean on `row` (V): onsets fade out, and EOS comes for a piece that looks for it."""
        ending = self._ending
        if frame > ending.fade:
            faded = (frame - ending.fade) / max(ending.stop - ending.fade, 1)
            fading = FADE_NATS * min(faded, 1.0)
            row[NOTE_ON:NOTE_OFF] -= fading
            row[VELOCITY:EOS] -= fading
        if ending.own and frame >= ending.earliest:
            row[EOS] = END_NATS

    def cut(self, ids: Ints) -> Ints:
        """The ids (B) as they are written: a wait beyond an exact end leads to that end.

        Were such waits not allowed, a network that wants to wait for a second where a tenth is left
        would have to fill it with what it finds unlikely: a cluster of notes.
        """
        if not self._ending.exact:
            return ids
        left = self._ending.latest - np.array([now.frame for now in self.moments])
        shift = (ids >= TIME_SHIFT) & (ids < VELOCITY)
        return np.where(shift, np.minimum(ids, TIME_SHIFT - 1 + left), ids)

    def advance(self, ids: Ints) -> None:
        """One more event in each take, ids (B)."""
        for state in (self._figures, self._articulation, self._pace, self._crowd, self._leaning):
            if state is not None:
                state.advance(ids)
        for now, id_ in zip(self.moments, ids.tolist(), strict=True):
            now.advance(id_)
