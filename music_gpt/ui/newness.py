"""Takes, and an index of the training music beside the checkpoint -> a line on each: is it new?"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from music_gpt.errors import InputError
from music_gpt.tokens.originality import (
    INDEX_FILE,
    OriginalityIndex,
    SharedRun,
    nothing_shared,
    what_a_run_means,
)
from music_gpt.ui.roll_value import Take

MOST_LETTERS = 40
"""Of the name of a training piece."""


class Newness:
    """What takes share with the music that a network was trained on, if it is known."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` holds the checkpoint, and perhaps the index."""
        self._file = None if folder is None else folder / INDEX_FILE
        self.is_known = self._file is not None and self._file.is_file()

    @cached_property
    def _index(self) -> OriginalityIndex:
        assert self._file is not None
        return OriginalityIndex.open(self._file)

    def line(self, take: Take) -> str:
        """What the new notes of a take share; why that is not known, where the index is damaged."""
        try:
            new = take.notes[take.is_new]
            run = self._index.longest_run(new)
            return nothing_shared(len(new)) if run is None else shared_line(run)
        except InputError as error:
            return str(error)


def shared_line(run: SharedRun) -> str:
    """A longest run in one line, and what is usual.

    >>> run = SharedRun(30, 28, 4.25, 62.0, "salon/Spring__Waltz,_1.mid", 9.5, exact=False)
    >>> shared_line(run).partition(";")[0]
    '28 to 50 notes in a row are as in Spring Waltz, 1'
    """
    name = run.name if len(run.name) <= MOST_LETTERS else run.name[:MOST_LETTERS] + "…"
    notes = run.at_most(run.different_notes)
    return f"{notes} notes in a row are as in {name}; {what_a_run_means(run.different_notes)}."
