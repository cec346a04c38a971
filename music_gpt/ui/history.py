"""What was shown before -> the same again: a prompt, and what was composed from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from music_gpt.config.prompt import AS_GIVEN, PromptChange
from music_gpt.errors import InputError
from music_gpt.ui import bounds
from music_gpt.ui.roll_value import RollValue, Take

if TYPE_CHECKING:
    from music_gpt.midi.piece import Piece


@dataclass(frozen=True)
class Source:
    """Where a prompt comes from: what the page shows as chosen."""

    example: str | None = None
    """The key of a shipped opening."""
    file: bytes = b""
    """A MIDI file that has several tracks to choose from."""
    tracks: tuple[tuple[str, int], ...] = ()
    """A line and the number of each of them."""
    used: tuple[int, ...] = ()
    """The numbers of those that are used."""


@dataclass(frozen=True)
class Snapshot:
    """A prompt and what was composed from it, as the roll showed it."""

    prompt: Piece | None = None
    """What is continued, as it was changed; or None for a start from nothing."""
    source: Source = field(default_factory=Source)
    name: str = "Untitled"
    takes: tuple[Take, ...] = ()
    roll: RollValue = field(default_factory=dict)
    given: Piece | None = None
    """The prompt as it was chosen."""
    change: PromptChange = AS_GIVEN
    """By which it became what is continued."""

    @property
    def n_notes(self) -> int:
        """Notes of all takes together."""
        return sum(len(take.notes) for take in self.takes)

    def take(self, number: int) -> Take:
        """A take by its number from 0; raises `InputError` where there is none of that number."""
        if number >= len(self.takes):
            raise InputError("There is no such take yet; press Compose first.")
        return self.takes[number]

    @property
    def sizes(self) -> dict[int, int]:
        """About the bytes in memory of each thing in it, which others may hold, too: by `id`."""
        notes = {id(take): len(take.notes) for take in self.takes}
        for piece in (self.prompt, self.given):
            if piece is not None:
                notes[id(piece)] = piece.n_notes
        sizes = {thing: n_notes * bounds.BYTES_OF_NOTE for thing, n_notes in notes.items()}
        return sizes | {id(self.source.file): len(self.source.file)}


@dataclass
class History:
    """The music before and after what is shown; there is some after it once one has gone back."""

    earlier: list[Snapshot] = field(default_factory=list)
    """The latest last."""
    later: list[Snapshot] = field(default_factory=list)
    """The next one first."""

    @property
    def place(self) -> RollValue:
        """What the roll is told: how many there are before and after what is shown."""
        return {"earlier": len(self.earlier), "later": len(self.later)}

    def whole(self, shown: Snapshot) -> list[Snapshot]:
        """All there is, with what is shown in its place."""
        return [*self.earlier, shown, *self.later]

    def copy(self) -> History:
        """One with the same music, which goes its own way."""
        return History(list(self.earlier), list(self.later))

    def keep(self, shown: Snapshot) -> None:
        """Make what is shown, and all after it, earlier than what is shown next.

        Only the latest are kept, and no prompt from which nothing was composed.
        """
        self.earlier = latest([each for each in self.whole(shown) if each.takes], shown)
        self.later = []

    def keep_earlier(self, left: Snapshot) -> None:
        """Music that was left while it was composed is the latest of the earlier."""
        self.earlier = latest([*self.earlier, left], left)

    def go(self, direction: int, shown: Snapshot | None) -> Snapshot | None:
        """What is before (-1) or after (1) what is shown, or None where nothing is.

        What is shown stays beside it, unless it is None: given up.
        """
        here = [] if shown is None else [shown]
        if direction < 0 and self.earlier:
            self.later[:0] = here
            return self.earlier.pop()
        if direction > 0 and self.later:
            self.earlier += here
            return self.later.pop(0)
        return None


def latest(snapshots: list[Snapshot], shown: Snapshot) -> list[Snapshot]:
    """As many of them as may be kept: the oldest goes first, but `shown` last."""
    kept = list(snapshots)
    while (
        len(kept) > bounds.MAX_EARLIER
        or sum(each.n_notes for each in kept) > bounds.MAX_EARLIER_NOTES
    ):
        del kept[1 if kept[0] is shown and len(kept) > 1 else 0]
    return kept
