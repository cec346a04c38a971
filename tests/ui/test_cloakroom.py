"""A page that is loaded again, without a browser."""

import threading
from typing import Any

import pytest
from visiting import BAND, FIRST, PIANIST, plain, steps, values_of, visitor

from music_gpt.ui import bounds, cloakroom
from music_gpt.ui.cloakroom import Cloakroom
from music_gpt.ui.desk import NOTHING, Desk
from music_gpt.ui.history import Snapshot
from music_gpt.ui.visit import Visit, Wish

VISIT, ROLL, EXAMPLE, TRACKS, COMPOSE, _, STOP, MIDI = range(8)
"""Where things are in what a page gets that comes in."""


def come_in(desk: Desk, key: object = None) -> tuple[Any, ...]:
    """What a page gets that is loaded, and has this key."""
    return desk.come_in(desk.arrive(), key)


def test_a_page_that_is_loaded_again_gets_its_music_and_buttons() -> None:
    desk = Desk(PIANIST)
    first = come_in(desk)
    visit, key = first[VISIT], first[ROLL]["key"]
    desk.choose(visit, NOTHING)
    for seed in (1, 2):
        list(desk.compose(visit, FIRST | {"end": 0}, *values_of(seed=str(seed))))
    again = come_in(desk, key)
    assert plain(again[ROLL])
    assert again[ROLL] == visit.shown.roll | {"key": again[ROLL]["key"]}
    assert again[ROLL]["key"] != key
    assert (again[ROLL]["earlier"], again[EXAMPLE]["value"]) == (1, NOTHING)
    assert again[TRACKS]["visible"] is False
    assert again[COMPOSE]["visible"], again[MIDI]["interactive"]
    assert not again[STOP]["visible"]
    assert desk.save(".mid", again[VISIT], FIRST | {"version": visit.shown.roll["version"]})


def test_the_tracks_of_a_dropped_file_are_there_again(tmp_path: Any) -> None:
    (tmp_path / "band.mid").write_bytes(BAND)
    desk = Desk(PIANIST)
    visit, roll, *_ = come_in(desk)
    desk.drop(visit, str(tmp_path / "band.mid"))
    desk.take_tracks(visit, [1])
    again = come_in(desk, roll["key"])
    assert (again[EXAMPLE]["value"], again[TRACKS]["value"]) == (None, [1])
    assert len(again[TRACKS]["choices"]) == 2
    assert again[ROLL]["name"] == "band"


def test_two_pages_with_one_key_go_their_own_ways() -> None:
    room, visit = Cloakroom(), visitor()
    steps(visit, Wish(5.0, seed=1))
    copies = [room.hand_out(room.hand_in(visit)) for _ in range(2)]
    assert copies[0] is not None
    assert copies[1] is not None
    steps(copies[0], Wish(5.0, seed=2))
    steps(copies[0], Wish(5.0, seed=3))
    copies[1].stop_asked = True
    assert len(copies[0].history.earlier) == 2
    assert visit.history.earlier == copies[1].history.earlier == []
    assert not visit.stop_asked
    assert [each.shown.roll["takes"][0]["seed"] for each in (visit, *copies)] == [1, 3, 1]


@pytest.mark.parametrize("key", [None, "", "0" * 32, 5, [], {"key": 1}, {"value": None}])
def test_a_wrong_key_opens_nothing(key: object) -> None:
    desk = Desk(PIANIST)
    come_in(desk)
    fresh = desk.arrive()
    visit, roll, example, tracks, *_ = desk.come_in(fresh, key)
    assert visit is fresh
    assert roll["name"].startswith("Gymnopédie")
    assert "value" not in example
    assert "choices" not in tracks


def test_music_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    room, visit = Cloakroom(), visitor()
    key = room.hand_in(visit)
    visit.n_under_way = 1

    def end() -> None:
        steps(visit, Wish(5.0, seed=4))
        visit.n_under_way = 0

    ends = threading.Timer(0.1, end)
    ends.start()
    again = room.hand_out(key)
    ends.join()
    assert again is not None
    assert [take.settings["seed"] for take in again.shown.takes] == [4]
    visit.n_under_way = 1  # one that does not end is left where it is
    monkeypatch.setattr(cloakroom, "PATIENCE_SECONDS", 0.05)
    again = room.hand_out(key)
    assert again is not None
    assert again.n_under_way == 0


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Cloakroom()
    monkeypatch.setattr(bounds, "MAX_VISITS", 3)
    keys = [room.hand_in(Visit(Snapshot(roll={"version": number}))) for number in range(5)]
    known = [room.hand_out(key) for key in keys]
    assert [visit.shown.roll["version"] for visit in known if visit] == [2, 3, 4]
    visit = visitor()
    steps(visit, Wish(5.0, seed=1))
    size = sum(snapshot.n_bytes for snapshot in visit.kept)
    assert size > 60 * (16 + len(visit.shown.takes[0].notes)) - 1
    monkeypatch.setattr(bounds, "MAX_VISITS_BYTES", 2 * size)
    keys = [room.hand_in(visit) for _ in range(3)]
    assert [room.hand_out(key) is not None for key in keys] == [False, True, True]
    monkeypatch.setattr(bounds, "MAX_VISITS_BYTES", 1)
    assert room.hand_out(room.hand_in(visit)) is not None
