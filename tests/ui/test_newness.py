"""What the page says of how new a take is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_pianist import FakePianist
from visiting import SCALE

from music_gpt.midi.piece import make_notes, piece_from_notes
from music_gpt.tokens.events import encode_notes
from music_gpt.tokens.originality import INDEX_FILE, IndexWriter, SharedRun
from music_gpt.ui.desk import Desk
from music_gpt.ui.newness import Newness, shared_line
from music_gpt.ui.roll_value import Take
from music_gpt.ui.visit import Visit


def test_it_is_told_what_the_new_notes_of_a_take_share_with_the_training_music(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(1)
    known = make_notes(
        [
            (0.5 * i, 0.5 * i + 0.4, int(pitch), 64)
            for i, pitch in enumerate(rng.integers(40, 80, 90))
        ]
    )
    with IndexWriter(tmp_path / INDEX_FILE) as index:
        index.add(encode_notes(known), "salon/waltz.mid")
        index.finish()
    pianist: Any = FakePianist(pace=1e6)
    pianist.folder = tmp_path
    desk, visit = Desk(pianist), Visit()
    visit.show_prompt(piece_from_notes(known), "Known")
    assert desk.newness.is_known
    visit.change(takes=tuple(Take("take-1", known, {}, first) for first in (0.0, 40.0)))
    told = desk.compare(visit)
    assert told["version"] == visit.shown.roll["version"]
    whole, new = told["lines"]
    assert (
        "notes in a row are as in waltz; of 30-second passages of other music, 2.2 % share" in whole
    )
    assert new == "Too short to tell whether it is new: 10 notes, where 24 in a row are looked for."
    others = make_notes([(0.5 * i, 0.5 * i + 0.4, 40 + 7 * i % 41, 64) for i in range(24)])
    visit.change(takes=(Take("take-1", others, {}, 0.0),))
    none = "No run of 24 notes is in the training music: it counts as new."
    assert desk.compare(visit)["lines"] == [none]


def test_a_training_piece_whose_name_is_underscores_keeps_it() -> None:
    run = SharedRun(30, 28, 4.25, 62.0, "salon/__.mid", 9.5, exact=True)
    assert shared_line(run).startswith("28 notes in a row are as in __;")


@pytest.mark.parametrize(("notes", "said"), [(13, True), (23, True), (24, False), (60, False)])
def test_a_run_so_short_that_it_may_be_chance_is_told_as_such(notes: int, said: bool) -> None:
    run = SharedRun(notes, notes, 4.25, 62.0, "waltz.mid", 9.5, exact=False)
    told = shared_line(run)
    assert told.startswith(f"{notes} to {notes + 22} notes in a row are as in waltz; ")
    assert ("fewer than 24 mean little" in told) is said


def test_a_damaged_index_is_told_and_none_at_all_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_bytes(b"no index")
    take = Take("take-1", SCALE, {}, 0.0)
    assert "is damaged" in Newness(tmp_path).line(take)
    assert not Newness(tmp_path / "elsewhere").is_known
    assert not Newness(None).is_known
