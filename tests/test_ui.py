"""What a visitor has and what a click does, without a browser."""

import os
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_pianist import FakePianist

from music_gpt.config import PageConfig, SamplingConfig
from music_gpt.errors import InputError
from music_gpt.midi import make_notes, piece_from_notes, read_piece
from music_gpt.ui import visit as visits
from music_gpt.ui.desk import NOTHING, Desk, make_wish
from music_gpt.ui.page import launch_options
from music_gpt.ui.pianoroll import read_selection
from music_gpt.ui.visit import Visit, Wish

ROOT = Path(__file__).parent.parent

PIANIST: Any = FakePianist(pace=1e6)
SCALE = make_notes([(0.5 * i, 0.5 * i + 0.5, 60 + i, 64) for i in range(16)])


def visitor() -> Visit:
    visit = Visit()
    visit.show_prompt(SCALE, "Scale")
    return visit


def steps(visit: Visit, wish: Wish, end: float = 8.0) -> list[visits.RollValue]:
    return list(visits.compose(visit, PIANIST, wish, 0.0, end, every_seconds=0.0))


def plain(value: Any) -> bool:
    """Whether a value holds nothing but what JSON has."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def count(text: str) -> int:
    return text.count(";")


def test_what_the_browser_gets_is_plain() -> None:
    visit = visitor()
    assert plain(visit.roll)
    assert all(plain(value) for value in steps(visit, Wish(5.0, 2)))


def test_the_text_of_a_take_only_grows() -> None:
    values = steps(visitor(), Wish(10.0, 2, seed=1))
    texts = [value["takes"][1]["notes"] for value in values]
    assert len(set(texts)) > 10
    assert all(after.startswith(before) for before, after in pairwise(texts))


def test_a_finished_take_is_what_was_shown() -> None:
    visit = visitor()
    last = steps(visit, Wish(5.0, 2, seed=3))[-1]
    assert last["state"] == "done"
    assert [take.settings["seed"] for take in visit.takes] == [3, 4]
    for shown, take in zip(last["takes"], visit.takes, strict=True):
        assert shown["open"] == ""
        assert count(shown["kept"]) == len(SCALE)
        assert count(shown["kept"]) + count(shown["notes"]) == len(take.notes)


def test_only_the_part_between_the_handles_is_continued() -> None:
    visit = visitor()
    values = list(visits.compose(visit, PIANIST, Wish(5.0), 2.0, 4.0))
    assert values[-1]["seam"] == 2.0
    assert list(visit.takes[0].notes["pitch"][:4]) == [64, 65, 66, 67]


def test_what_was_composed_stays_when_the_visitor_leaves() -> None:
    visit = visitor()
    composing = visits.compose(visit, PIANIST, Wish(60.0, seed=1), 0.0, 8.0, every_seconds=0.0)
    for _ in range(9):
        next(composing)
    composing.close()
    assert len(SCALE) < len(visit.takes[0].notes) < 60
    assert visit.roll["state"] == "done"


def test_stop_ends_at_the_next_note_and_keeps_the_music() -> None:
    visit = visitor()
    values = []
    for value in visits.compose(visit, PIANIST, Wish(60.0), 0.0, 8.0, every_seconds=0.0):
        values.append(value)
        visit.stop_asked = len(values) >= 5
    assert len(values) < 10
    assert values[-1]["state"] == "done"
    assert len(visit.takes) == 1


def test_a_new_prompt_is_not_overwritten_by_the_old_composition() -> None:
    visit = visitor()
    composing = visits.compose(visit, PIANIST, Wish(60.0), 0.0, 8.0, every_seconds=0.0)
    for _ in range(5):
        next(composing)
    shown = visit.show_prompt(SCALE[:4], "Other")
    assert list(composing)[-1] == shown
    assert visit.takes == []


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (Wish(4.0), "between 5 and 300"),
        (Wish(301.0), "between 5 and 300"),
        (Wish(float("nan")), "between 5 and 300"),
        (Wish(10.0, 9), "1 to 8"),
        (Wish(10.0, 1, -1), "between 0 and"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(wish: Wish, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        steps(visitor(), wish)


def test_a_part_without_notes_is_refused() -> None:
    visit = Visit()
    visit.show_prompt(make_notes([(0.0, 1.0, 60, 64), (9.0, 10.0, 60, 64)]), "Gap")
    with pytest.raises(InputError, match="no note between the two handles"):
        list(visits.compose(visit, PIANIST, Wish(5.0), 3.0, 8.0))


@pytest.mark.parametrize(
    "payload",
    [
        *(None, {}, [], "x", {"start": 1, "end": 2}, {"start": "a", "end": 2, "take": 0}),
        {"start": 3, "end": 2, "take": 0},
        {"start": 0, "end": float("inf"), "take": 0},
        {"start": 0, "end": 1, "take": -1},
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(payload: Any) -> None:
    with pytest.raises(InputError):
        read_selection(payload)


@pytest.mark.parametrize("seed", ["x", "-1", "1.5", "12x"])
def test_a_seed_that_is_no_whole_number_is_refused(seed: str) -> None:
    usual = SamplingConfig()
    with pytest.raises(InputError, match="whole number"):
        make_wish(30, 1, usual.temperature, 0, 1.0, 0.0, seed)


def test_every_shipped_example_can_be_continued() -> None:
    desk, visit = Desk(PIANIST), Visit()
    assert len(desk.examples) == 5
    for key in desk.examples:
        value = desk.choose(visit, key)
        assert value["state"] == "prompt"
        assert value["end"] - value["start"] > 10
        assert steps(visit, Wish(5.0), value["end"])[-1]["seam"] > 10


def test_from_nothing_there_is_no_prompt() -> None:
    desk, visit = Desk(PIANIST), Visit()
    assert desk.choose(visit, NOTHING)["state"] == "empty"
    assert steps(visit, Wish(5.0))[-1]["seam"] == 0.0


def test_a_saved_take_tells_how_it_was_made() -> None:
    desk, visit = Desk(PIANIST), visitor()
    steps(visit, Wish(5.0, seed=77))
    path = desk.save_midi(visit, {"start": 0, "end": 8, "take": 0})
    assert path is not None
    assert Path(path).name == "scale-take-1-seed-77.mid"
    assert b'music-gpt {"seconds": 5.0, "seed": 77}' in Path(path).read_bytes()
    assert read_piece(path).n_notes == len(visit.takes[0].notes)


def test_two_files_of_one_name_never_meet() -> None:
    desk, one, two = Desk(PIANIST), visitor(), visitor()
    for visit, seconds in ((one, 5.0), (two, 10.0)):
        steps(visit, Wish(seconds, seed=1))
    first, second = (desk.save_midi(v, {"start": 0, "end": 8, "take": 0}) for v in (one, two))
    assert first is not None
    assert second is not None
    assert Path(first).name == Path(second).name
    assert read_piece(first).n_notes < read_piece(second).n_notes


def test_the_page_is_for_this_machine_unless_told_otherwise() -> None:
    options = launch_options()
    assert options["server_name"] == "127.0.0.1"
    assert options["share"] is False
    assert options["max_file_size"] == PageConfig().max_file_bytes


def test_nothing_that_the_page_is_made_of_comes_from_elsewhere() -> None:
    import music_gpt.ui

    folder = Path(music_gpt.ui.__file__).parent
    texts = [p.read_text("utf-8") for p in folder.iterdir() if p.suffix in (".js", ".css", ".html")]
    assert len(texts) >= 7
    strange = [
        line for text in texts for line in text.splitlines() if "//" in line and "http" in line
    ]
    assert all("http://www.w3.org/2000/svg" in line for line in strange)


def test_a_long_prompt_is_continued_from_its_end() -> None:
    visit = Visit()
    notes = make_notes([(i, i + 1, 60, 64) for i in range(100)])
    value = visit.show_prompt(piece_from_notes(notes).sounding_notes, "Long")
    assert (value["start"], value["end"]) == (60.0, 100.0)
    assert np.isclose(value["promptSeconds"], 100.0)


def test_a_port_in_use_is_told_in_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = (
            "from fake_pianist import FakePianist\n"
            "from music_gpt.ui import launch\n"
            f"launch(FakePianist(), port={port})"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            cwd=ROOT / "tests",
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    assert f"InputError: The page cannot be served at 127.0.0.1:{port}" in done.stderr
