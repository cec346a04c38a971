"""A page that is loaded again, without a browser."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from fake_pianist import FakePianist
from visiting import BAND, FIRST, PIANIST, SCALE, plain, steps, values_of, visitor

from music_gpt.midi import piece as midi
from music_gpt.midi.piece import piece_from_notes
from music_gpt.ui import bounds, cloakroom
from music_gpt.ui import visit as visits
from music_gpt.ui.cloakroom import Cloakroom
from music_gpt.ui.desk import NOTHING, Desk
from music_gpt.ui.form import FORM, PRESET_MOVES, preset_values
from music_gpt.ui.visit import Visit, Wish

VISIT, KEY, ROLL, EXAMPLE, TRACKS, COMPOSE, _, STOP, MIDI = range(9)
"""Where things are in what a page gets that was loaded."""
SLOW: Any = FakePianist(pace=20.0)


def load(desk: Desk, key: object = None) -> tuple[Any, ...]:
    """What a page gets that is loaded and has this key."""
    return desk.come_in(desk.arrive(), key)


def composed(*numbers: int) -> Visit:
    """A visitor who has composed with these seeds, one after the other."""
    visit = visitor()
    for seed in numbers:
        steps(visit, Wish(5.0, seed=seed))
    return visit


def seeds(visit: Visit) -> list[int]:
    return [take.settings["seed"] for take in visit.shown.takes]


def test_a_page_that_is_loaded_again_gets_its_music_and_buttons() -> None:
    desk = Desk(PIANIST)
    visit, key, *_ = load(desk)
    desk.choose(visit, NOTHING)
    for seed in (1, 2):
        list(desk.compose(visit, FIRST | {"end": 0}, *values_of(seed=str(seed))))
    again = load(desk, key)
    assert plain(again[ROLL])
    assert again[ROLL] == visit.shown.roll
    assert (again[ROLL]["earlier"], again[EXAMPLE]["value"]) == (1, NOTHING)
    assert again[TRACKS]["visible"] is False
    assert again[KEY] != key
    assert again[COMPOSE]["visible"] is True
    assert again[MIDI]["interactive"] is True
    assert again[STOP]["visible"] is False
    saved = desk.save(".mid", again[VISIT], FIRST | {"version": visit.shown.roll["version"]})
    assert saved is not None
    assert Path(saved).name == "from-nothing-take-1-seed-2.mid"


def test_the_form_is_as_it_was_when_music_was_last_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gr, "Warning", str)
    desk = Desk(PIANIST)
    visit, key, *rest = load(desk)
    n_fields = len(FORM) + 1
    assert rest[-n_fields:] == [gr.skip()] * n_fields
    daring = dict(zip(PRESET_MOVES, preset_values("adventurous"), strict=True))
    asked = values_of(**daring, seconds=5.0, seed="7", key="C minor", end=True)
    list(desk.compose(visit, FIRST | {"end": 0}, *asked))
    list(desk.compose(visit, FIRST | {"end": 0}, *values_of(seed="no number")))
    again = load(desk, key)
    assert [field["value"] for field in again[-n_fields:]] == [*asked, "adventurous"]
    assert plain(list(again[-n_fields:]))
    list(desk.compose(again[VISIT], FIRST | {"end": 0}, *values_of(temperature=1.4)))
    assert load(desk, again[KEY])[-1]["value"] is None  # it is no character's


def test_the_tracks_of_a_dropped_file_are_there_again(tmp_path: Path) -> None:
    (tmp_path / "band.mid").write_bytes(BAND)
    desk = Desk(PIANIST)
    visit, key, *_ = load(desk)
    desk.drop(visit, str(tmp_path / "band.mid"))
    desk.take_tracks(visit, [1])
    again = load(desk, key)
    assert (again[EXAMPLE]["value"], again[TRACKS]["value"]) == (None, [1])
    assert len(again[TRACKS]["choices"]) == 2
    assert again[ROLL]["name"] == "band"


def test_two_pages_with_one_key_go_their_own_ways() -> None:
    desk = Desk(PIANIST)
    visit, key, *_ = load(desk)
    steps(visit, Wish(5.0, seed=1))
    one, other = (load(desk, key)[VISIT] for _ in range(2))
    steps(one, Wish(5.0, seed=2))
    steps(one, Wish(5.0, seed=3))
    other.stop_asked = True
    assert not visit.stop_asked
    assert [len(each.history.earlier) for each in (visit, one, other)] == [0, 2, 0]
    assert [seeds(each) for each in (visit, one, other)] == [[1], [3], [1]]


@pytest.mark.parametrize("key", ["", "0" * 32, 5, None, [], {}])
def test_a_wrong_key_opens_nothing(key: object) -> None:
    desk = Desk(PIANIST)
    load(desk)
    for told in ({"key": key}, key):
        fresh = desk.arrive()
        shown = fresh.shown
        visit, given, *unchanged = desk.come_in(fresh, told)
        assert visit is fresh
        assert visit.shown is shown
        assert len(given["key"]) == 32
        assert unchanged[:3] == [gr.skip()] * 3


def test_what_is_done_while_the_page_is_loaded_stays_and_the_rest_is_earlier() -> None:
    desk = Desk(PIANIST)
    visit, key, *_ = load(desk)
    for seed in (1, 2):
        steps(visit, Wish(5.0, seed=seed))
    quick = desk.arrive()
    steps(quick, Wish(5.0, seed=9))
    again = desk.come_in(quick, key)
    assert seeds(again[VISIT]) == [9]
    assert (again[ROLL]["earlier"], again[ROLL]["version"]) == (2, quick.shown.roll["version"])
    assert [quick.browse(-1)["takes"][0]["seed"] for _ in range(2)] == [2, 1]


def begin(desk: Desk, seed: int) -> tuple[Visit, Any, Iterator[Any]]:
    """A visit with its key in which music is composed, after other music."""
    visit, key, *_ = load(desk)
    steps(visit, Wish(5.0, seed=seed - 1))
    composing = desk.compose(visit, FIRST, *values_of(seconds=60.0, seed=str(seed)))
    for _ in range(2):
        assert next(composing)[0]["state"] == "composing"
    return visit, key, composing


def test_music_under_way_is_waited_for() -> None:
    desk = Desk(SLOW)
    _, key, composing = begin(desk, 5)
    again: list[Any] = []
    waits = threading.Thread(target=lambda: again.append(load(desk, key)))
    waits.start()
    time.sleep(0.1)
    assert not again
    composing.close()  # type: ignore[attr-defined]
    waits.join(cloakroom.ENDING_SECONDS)
    assert seeds(again[0][VISIT]) == [5]
    assert (again[0][ROLL]["state"], again[0][ROLL]["earlier"]) == ("done", 1)


def test_of_music_that_does_not_end_the_prompt_is_shown_and_what_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    monkeypatch.setattr(cloakroom, "ENDING_SECONDS", 0.05)
    desk = Desk(SLOW)
    visit, key, composing = begin(desk, 5)
    again = load(desk, key)
    copy = again[VISIT]
    assert (again[ROLL]["state"], again[ROLL]["takes"], copy.shown.takes) == ("prompt", [], ())
    assert again[MIDI]["interactive"] is False
    assert again[COMPOSE]["visible"] is True
    assert desk.save(".mid", copy, FIRST) is None
    assert told == ["There is no such take yet; press Compose first."]
    copy.browse(-1)
    assert seeds(copy) == [4]
    composing.close()  # type: ignore[attr-defined]
    assert (seeds(visit), seeds(copy)) == ([5], [4])


def test_earlier_music_can_be_saved_while_other_music_is_composed() -> None:
    desk = Desk(SLOW)
    visit, _, composing = begin(desk, 5)
    before = visit.history.earlier[-1].roll["version"]
    saved = desk.save(".mid", visit, FIRST | {"version": before})
    assert saved is not None
    assert saved.endswith("take-1-seed-4.mid")
    composing.close()  # type: ignore[attr-defined]


def first_of_all(
    meanwhile: Callable[[], Any], slow: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let something happen each time that a slow function, named with its owner, is called."""
    honest = getattr(*slow)

    def slowly(*args: Any, **options: Any) -> Any:
        meanwhile()
        return honest(*args, **options)

    monkeypatch.setattr(*slow, slowly)


def test_music_is_not_composed_from_a_prompt_that_gave_way_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visit = composed(1)
    first_of_all(
        lambda: visit.show_prompt(piece_from_notes(SCALE[:4]), "Other"),
        (PIANIST, "compose"),
        monkeypatch,
    )
    with pytest.raises(visits.InputError, match="Other music is shown by now"):
        steps(visit, Wish(5.0, seed=2))
    assert (visit.shown.name, visit.shown.takes, len(visit.history.earlier)) == ("Other", (), 1)


def test_a_part_is_not_redone_of_music_that_gave_way_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visit = composed(1)
    first_of_all(
        lambda: visit.show_prompt(piece_from_notes(SCALE[:4]), "Other"),
        (PIANIST, "begin_redo"),
        monkeypatch,
    )
    with pytest.raises(visits.InputError, match="Other music is shown by now"):
        list(visits.redo(visit, PIANIST, Wish(variations=2), 0, (1.0, 9.0)))
    assert (visit.shown.name, visit.shown.takes) == ("Other", ())


def test_tracks_are_not_taken_of_a_file_that_gave_way_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "band.mid").write_bytes(BAND)
    desk, visit = Desk(PIANIST), visitor()
    desk.drop(visit, str(tmp_path / "band.mid"))
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    first_of_all(lambda: desk.choose(visit, NOTHING), (midi, "read_piece"), monkeypatch)
    assert desk.take_tracks(visit, [1])["name"] == visit.shown.name == "From nothing"
    assert told == [visits.CHANGED]


# --- how much is kept ----------------------------------------------------------------------------


def is_kept(room: Cloakroom, keys: list[str]) -> list[bool]:
    return [key in room._visits for key in keys]


def test_visits_without_music_give_way_first_then_those_not_used_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_KEPT_VISITS", 3)
    room, desk = Cloakroom(), Desk(PIANIST)
    first = composed(1)
    old = room.hand_in(first)
    empty = [room.hand_in(desk.arrive()) for _ in range(5)]
    assert is_kept(room, [old, *empty]) == [True, False, False, False, True, True]
    others = [room.hand_in(composed(seed)) for seed in (2, 3)]
    room.hand_in(first)
    others.append(room.hand_in(composed(4)))
    assert is_kept(room, [old, *others]) == [True, False, True, True]
    newest = room.hand_in(desk.arrive())  # also where all others have music
    assert is_kept(room, [old, newest]) == [True, True]
    room.hand_in(composed(5))
    assert is_kept(room, [newest]) == [False]
    dropped = desk.arrive()
    dropped.show_prompt(piece_from_notes(SCALE), "Own")
    assert dropped.has_music


def test_a_page_that_is_loaded_over_and_over_takes_no_room_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_KEPT_VISITS", 3)
    desk = Desk(PIANIST)
    (other, its_key, *_), (visit, key, *_) = (load(desk) for _ in range(2))
    for each in (other, visit):
        list(desk.compose(each, FIRST, *values_of(seed="3")))
    for _ in range(9):
        visit, key, *_ = load(desk, key)
    assert load(desk, key)[ROLL]["takes"][0]["seed"] == 3
    assert load(desk, its_key)[ROLL]["version"] == other.shown.roll["version"]


def test_memory_is_bounded_also_of_music_that_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_KEPT_BYTES", 45_000)
    desk = Desk(PIANIST)
    first, second = (load(desk) for _ in range(2))
    prompt = first[VISIT].shown.prompt.n_notes * bounds.BYTES_OF_NOTE
    for page in (first, second):
        list(desk.compose(page[VISIT], FIRST, *values_of(seconds=100.0)))
    size = sum(first[VISIT].shown.sizes.values())
    assert 2 * size > bounds.MAX_KEPT_BYTES > size > 2 * prompt
    assert load(desk, first[KEY])[ROLL] == gr.skip()
    assert load(desk, second[KEY])[ROLL] == second[VISIT].shown.roll


def test_music_that_several_pages_share_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    visit, room = composed(1, 2), Cloakroom()
    sizes: dict[int, int] = {}
    for snapshot in visit.kept:
        sizes |= snapshot.sizes
    n_notes = len(SCALE) + sum(snapshot.n_notes for snapshot in visit.kept)
    assert sum(sizes.values()) == n_notes * bounds.BYTES_OF_NOTE
    monkeypatch.setattr(bounds, "MAX_KEPT_BYTES", sum(sizes.values()))
    copies = [Visit() for _ in range(3)]
    for copy in copies:
        copy.take_over(visit)
    keys = [room.hand_in(copy) for copy in copies]
    assert is_kept(room, keys) == [True] * 3
    assert is_kept(room, [*keys, room.hand_in(composed(3))]) == [False] * 3 + [True]


def test_a_visit_that_was_forgotten_is_kept_again_when_something_is_composed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_KEPT_VISITS", 2)
    desk = Desk(PIANIST)
    visit, key, *_ = load(desk)
    for _ in range(3):
        load(desk)
    assert load(desk, key)[ROLL] == gr.skip()
    list(desk.compose(visit, FIRST, *values_of(seed="3")))
    assert load(desk, key)[ROLL]["takes"][0]["seed"] == 3


def test_what_was_before_is_found_again_when_music_ends_that_a_page_began_while_it_was_loaded() -> (
    None
):
    desk = Desk(SLOW)
    visit, key, *_ = load(desk)
    steps(visit, Wish(5.0, seed=4))
    quick = desk.arrive()
    composing = desk.compose(quick, FIRST, *values_of(seconds=60.0, seed="5"))
    next(composing)
    desk.come_in(quick, key)
    desk.stop(quick)
    *_, (last, *_) = composing
    assert (last["earlier"], last["takes"][0]["seed"]) == (1, 5)
    assert quick.browse(-1)["takes"][0]["seed"] == 4
