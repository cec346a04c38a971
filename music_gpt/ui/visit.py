"""One visitor's wishes -> what the piano roll shows: the prompt, and the takes as they grow.

A `Visit` belongs to one open page; what two of them share is never changed. This module knows the
pianist and notes, but neither Gradio nor the browser.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from music_gpt.composing.pianist import DEFAULT_SEED_LIMIT
from music_gpt.config.prompt import AS_GIVEN, PromptChange
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.midi.changing import change_piece
from music_gpt.midi.piece import piece_from_notes
from music_gpt.ui import bounds
from music_gpt.ui.history import History, Snapshot, Source, latest
from music_gpt.ui.roll_value import (
    SHOWN_SECONDS,
    Growth,
    RollValue,
    Take,
    change_told,
    composed_takes,
    length,
    moved_prompt,
    prompt_value,
    redone_takes,
    redone_value,
    silence,
    status_line,
    without_takes,
)

if TYPE_CHECKING:
    from music_gpt.composing.pianist import Pianist
    from music_gpt.composing.redoing import Redone
    from music_gpt.midi.piece import Piece

ARRIVED = 1
"""The turn of a visitor who has not done anything yet: the first example is shown."""
CHANGED = "Other music is shown by now; press the button again to go on from it."
FORGOTTEN = (
    "The music of this page is not known any more, as when the program was started anew; load the "
    "page again."
)
UNTOUCHED = "Stopped; the part is as it was"


@dataclass(frozen=True)
class Wish:
    """What a person asks for when Compose is pressed; `music_gpt.ui.form` makes and checks it."""

    seconds: float = 30.0
    """Length of the new music."""
    variations: int = 1
    """How many takes are composed at once."""
    seed: int | None = None
    """The same seed gives the same music; None draws one."""
    end: bool = False
    """Whether the music looks for an ending of its own."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """How the next event is drawn."""


@dataclass
class Visit:
    """The music of one open page."""

    shown: Snapshot = field(default_factory=Snapshot)
    """What is shown now: replaced as a whole, so that who reads it has what belongs together."""
    history: History = field(default_factory=History)
    warnings: list[str] = field(default_factory=list)
    """What the pianist has to say about the prompt, besides what its file said: sentences."""
    stop_asked: bool = False
    n_under_way: int = 0
    """Compositions that have not ended; one that gives up takes until its next note."""
    turn: int = 0
    """Grows with each new prompt and composition; one that is no longer the last one gives up."""

    key: str = ""
    """What its page has to show when it is loaded again."""
    was_loaded: bool = False
    """Whether its page came in here: else it was loaded before the program was started anew, or is
    about to come."""
    form: tuple[Any, ...] = ()
    """What stood in the form when music was last asked for, as `music_gpt.ui.form.FORM` has it."""
    composing: int = 0
    """The turn in which music is composed that is in view and has not ended; else one before it."""

    def change(self, **changed: Any) -> RollValue:
        """Change fields of what is shown; the roll."""
        self.shown = replace(self.shown, **changed)
        return self.shown.roll

    @property
    def kept(self) -> list[Snapshot]:
        """What is shown, and all that one can go back or on to."""
        return [self.shown, *self.history.earlier, *self.history.later]

    @property
    def has_music(self) -> bool:
        """Whether something was composed, or a prompt chosen that is not of the page."""
        return any(each.takes or not each.source.example for each in self.kept)

    @property
    def is_known(self) -> bool:
        """Whether what its page shows comes from here."""
        return self.was_loaded or self.turn > ARRIVED

    def check(self, number: int | None, of: str = "version") -> None:
        """Raise `InputError` where other music is shown by now than under this version.

        of: another number of the roll's value, such as that of the prompt that was `given`.
        """
        if number not in (None, self.shown.roll[of]):
            raise InputError(CHANGED if self.is_known else FORGOTTEN)

    def begin(self, before: Snapshot) -> int:
        """The number of the next turn, in which music goes on from `before`.

        Raises `InputError` where other music is shown by now: to read a prompt takes a moment.
        """
        self.check(before.roll["version"])
        self.stop_asked, self.turn = False, self.turn + 1
        return self.turn

    def seen(self, version: int | None) -> Snapshot:
        """The music that was shown under this version; raises `InputError` where it is gone."""
        for snapshot in self.kept:
            if version in (None, snapshot.roll["version"]):
                return snapshot
        gone = "The music that was shown is no longer kept; choose other music."
        raise InputError(gone if self.is_known else FORGOTTEN)

    def browse(self, direction: int) -> RollValue:
        """Show the music before (-1) or after (1) what is shown, if there is any."""
        is_given_up = self.composing == self.turn
        found = self.history.go(direction, None if is_given_up else self.shown)
        if found is None:
            return self.shown.roll
        self.shown, self.turn = found, self.turn + 1
        return self.change(roll=found.roll | self.history.place)

    def show_prompt(
        self,
        prompt: Piece | None,
        name: str,
        detail: str = "",
        source: Source | None = None,
        *,
        reach: float = bounds.DEFAULT_PROMPT_SECONDS,
        change: PromptChange = AS_GIVEN,
    ) -> RollValue:
        """Take `prompt` (None for none) as what is to be continued: arguments of `prompt_value`.

        Raises `InputError` where it cannot be changed by `change`.
        """
        changed = _with_change(prompt, change)
        roll = prompt_value(changed, name, detail, reach) | change_told(prompt, change)
        return self._begin_with(
            Snapshot(changed, source or Source(), name, (), roll, prompt, change)
        )

    def change_prompt(self, change: PromptChange, start: float, end: float) -> RollValue:
        """Show the prompt as it was chosen, but changed; the handles were at `start` and `end`.

        Raises `InputError` where it cannot be changed so.
        """
        shown = self.shown
        if shown.given is None:
            raise InputError("There is no prompt to transpose; choose one.")
        prompt = change_piece(shown.given, change)
        before = shown.roll | {"start": start, "end": end}
        faster = change.speed / shown.change.speed
        roll = moved_prompt(before, prompt, faster) | change_told(shown.given, change)
        told = [line for line in prompt.warnings if line not in shown.given.warnings]
        roll |= {"status": " ".join(told)}
        return self._begin_with(replace(shown, prompt=prompt, takes=(), roll=roll, change=change))

    def _begin_with(self, prompt: Snapshot) -> RollValue:
        """Show a prompt from which nothing was composed; what was shown is earlier."""
        self.history.keep(self.shown)
        self.turn += 1
        self.shown = replace(prompt, roll=prompt.roll | self.history.place)
        return self.shown.roll

    def take_over(self, left: Visit) -> RollValue:
        """Show the music of another visit, whose page was left, and which is not changed.

        What is composed there is not waited for. When something was chosen here meanwhile, this
        stays in view, and what had been composed there is earlier.
        """
        shown, history, self.form = left.shown, left.history.copy(), self.form or left.form
        if self.turn > ARRIVED:
            composed = [each for each in history.whole(shown) if each.takes]
            self.history.earlier = latest([*composed, *self.history.earlier], self.shown)
            return self.change(roll=self.shown.roll | self.history.place)
        self.history, self.turn = history, self.turn + 1
        self.shown = replace(shown, roll=shown.roll | history.place)
        return self.shown.roll

    def show_take(self, number: int) -> RollValue:
        """Take what was composed as what is to be continued, from its very beginning.

        Raises `InputError` where there is no take of that number, and for one that is too long.
        """
        shown = self.shown
        take = shown.take(number)
        if len(take.notes) > bounds.MAX_NOTES:
            raise InputError(
                f"This take has {len(take.notes):,} notes, and the page continues music of up to "
                f"{bounds.MAX_NOTES:,}; save it, and drop a part of it as a prompt."
            )
        piece = piece_from_notes(take.notes) if len(take.notes) else None
        reach = 0.0 if piece is None else piece.seconds
        return self.show_prompt(piece, continued(shown.name), take.title, reach=reach)

    def show_redone(self, before: Take, redone: Redone) -> RollValue:
        """The piece as it was, and with each candidate in it, the one that fits best first."""
        self.history.keep(self.shown)
        takes = redone_takes(before, redone)
        roll = self.shown.roll | redone_value(takes) | self.history.place
        return self.change(takes=takes, roll=roll)


def compose(
    visit: Visit,
    pianist: Pianist,
    wish: Wish,
    start: float,
    end: float,
    *,
    every_seconds: float = 0.15,
) -> Generator[RollValue, None, None]:
    """Continue the part from `start` to `end` (seconds): the roll's value as the music grows.

    When the iterator is closed, or `visit.stop_asked` is set from another thread, what has been
    composed stays in `visit.shown`; when other music is shown meanwhile, it is earlier. Raises
    `InputError` for a part that cannot be continued.
    """
    before = visit.shown
    prompt_seconds, prompt_end_seconds = _part(before.prompt, start, end)
    seed = wish.seed if wish.seed is not None else secrets.randbelow(DEFAULT_SEED_LIMIT)
    composition = pianist.compose(
        before.given,
        **asdict(before.change),
        prompt_seconds=prompt_seconds,
        prompt_end_seconds=prompt_end_seconds,
        seconds=wish.seconds,
        variations=wish.variations,
        seed=seed,
        end=wish.end,
        **asdict(wish.sampling),
    )
    turn = visit.begin(before)
    visit.history.keep(before)
    part = {"start": round(start, 3), "end": round(end, 3)}  # where the handles are again
    roll = without_takes(before.roll) | part | visit.history.place
    begun = visit.shown = replace(before, takes=(), roll=roll)
    visit.composing = turn
    told = [] if begun.prompt is None else begun.prompt.warnings
    visit.warnings = [line for line in composition.warnings if line not in told]
    growth, is_cut = Growth(composition, seed, roll), True
    try:
        yield growth.value("composing")
        shown = time.monotonic()
        for note in composition:
            growth.add(note)
            if visit.stop_asked or visit.turn != turn:
                break
            if time.monotonic() - shown >= every_seconds:
                yield growth.value("composing")
                shown = time.monotonic()
        else:
            is_cut = False
    finally:
        composition.close()
        roll = growth.value("done", is_cut=is_cut) | visit.history.place
        composed = replace(begun, takes=composed_takes(composition), roll=roll)
        if visit.turn == turn:
            visit.shown, visit.composing = composed, 0
        elif composition.seconds_composed > 0:  # other music is shown meanwhile
            visit.history.keep_earlier(composed)
            visit.change(roll=visit.shown.roll | visit.history.place)
    yield visit.shown.roll


def redo(
    visit: Visit,
    pianist: Pianist,
    wish: Wish,
    take: int | None,
    part: tuple[float, float],
    *,
    every_seconds: float = 0.15,
) -> Generator[RollValue, None, None]:
    """Compose a part (seconds) of a take, or of the prompt (None), anew: the roll meanwhile.

    What was there before is the first of the takes then, and the candidates follow, the one that
    fits best first. When the iterator is closed or `visit.stop_asked` is set, all stays as it was.
    Raises `InputError` for a part that cannot be redone.
    """
    shown_before = visit.shown
    before = _to_be_redone(shown_before, take)
    redoing = pianist.begin_redo(
        piece_from_notes(before.notes),
        part[0],
        until(part[1], length(before.notes)),
        candidates=wish.variations,
        seed=wish.seed,
        **asdict(wish.sampling),
    )
    turn, composition, shown = visit.begin(shown_before), redoing.composition, 0.0
    visit.warnings = []

    def given_up() -> bool:
        return visit.stop_asked or visit.turn != turn

    with closing(composition):
        for _ in composition:
            if given_up():
                break
            if time.monotonic() - shown >= every_seconds:
                shown = time.monotonic()
                status = status_line(composition)
                yield visit.shown.roll | {"state": "redoing", "status": status}
        else:
            status = "Composed; finding out which candidate fits best"
            yield visit.shown.roll | {"state": "redoing", "status": status}
            redone = None if given_up() else redoing.redone()
            if redone is not None and not given_up():  # comparing takes seconds, too
                visit.show_redone(before, redone)
    if visit.stop_asked and visit.turn == turn:
        visit.change(roll=visit.shown.roll | {"status": UNTOUCHED})
    yield visit.shown.roll


def _with_change(given: Piece | None, change: PromptChange) -> Piece | None:
    return None if given is None else change_piece(given, change)


def _part(prompt: Piece | None, start: float, end: float) -> tuple[float | None, float | None]:
    """The stretch that is continued: its seconds and its end, None for all there is.

    Raises `InputError` for one that is not in the prompt.
    """
    if prompt is None:
        return None, None
    whole = prompt.seconds
    if not 0 <= start < end <= whole + SHOWN_SECONDS:
        raise InputError(
            f"The music cannot go on from {end:g} seconds, since the prompt lasts {whole:.2f}; "
            "choose a point within it."
        )
    return (
        until(end, whole) - start if start > 0 else None,
        end if end < whole - 0.001 else None,
    )


def _to_be_redone(shown: Snapshot, take: int | None) -> Take:
    """The chosen take, or the whole prompt."""
    if take is not None:
        return shown.take(take)
    notes = silence() if shown.prompt is None else shown.prompt.sounding_notes
    return Take("prompt", notes, {}, 0)


def continued(name: str) -> str:
    """The name of what goes on from music with this name, so that files have names of their own.

    >>> continued("Waltz"), continued("Waltz, continued"), continued("Waltz, continued 2")
    ('Waltz, continued', 'Waltz, continued 2', 'Waltz, continued 3')
    """
    first, _, times = name.rpartition(", continued")
    if not first or not (not times or times.strip().isdecimal()):
        return f"{name}, continued"
    return f"{first}, continued {int(times or 1) + 1}"


def until(end: float, whole: float) -> float:
    """An end (seconds) that was sent, where it is that of the music as shown: the very end.

    >>> until(12.0, 11.996), until(12.5, 11.996)
    (11.996, 12.5)
    """
    return whole if whole < end <= whole + SHOWN_SECONDS else end
