"""A prompt in another key and tempo on the page, without a browser."""

import time
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from fake_pianist import FakePianist
from visiting import BAND, FIRST, PIANIST, SCALE, plain, steps, values_of, visitor

from music_gpt.composing.pianist import Pianist
from music_gpt.composing.provenance import read_recipe
from music_gpt.config.model import ModelConfig
from music_gpt.midi.piece import make_notes, piece_from_notes, read_piece, write_midi
from music_gpt.network.model import GPT
from music_gpt.ui import visit as visits
from music_gpt.ui.desk import NOTHING, Desk
from music_gpt.ui.roll_value import RollValue, notes_text
from music_gpt.ui.visit import CHANGED, Visit, Wish

EXAMPLE = next(iter(Desk(PIANIST).examples))


def change(desk: Desk, visit: Visit, transpose: Any = 0, speed: Any = 100, **part: Any) -> Any:
    """What the fields below the roll get back; handles are where they were, unless told."""
    roll = visit.shown.roll
    hands = {"start": roll["start"], "end": roll["end"], "take": 0, "tab": 0} | part
    wish = {"transpose": transpose, "speed": speed, "given": roll["given"], "wants": "change"}
    return desk.browse(visit, {"version": roll["version"]} | hands | wish)


def changed(desk: Desk, visit: Visit, *how: Any, **part: Any) -> RollValue:
    roll: RollValue = change(desk, visit, *how, **part)[0]
    return roll


def told(roll: RollValue) -> tuple[int, float]:
    return roll["transpose"], roll["speed"]


def test_the_roll_shows_the_prompt_in_another_key_and_tempo() -> None:
    desk, visit = Desk(PIANIST), visitor()
    before = visit.shown.roll
    assert told(before) == (0, 100)
    roll, example, tracks, *buttons = change(desk, visit, -3, 80.0)
    assert plain(roll)
    assert told(roll) == (-3, 80)
    assert roll["prompt"].startswith("0,625,57,64;625,625,58,64;")
    assert (roll["promptSeconds"], roll["version"] != before["version"]) == (10.0, True)
    assert (roll["name"], roll["given"]) == (before["name"], before["given"])
    assert example == tracks == gr.skip()
    assert buttons[-1]["interactive"] is False


def test_a_prompt_is_always_changed_as_it_was_chosen() -> None:
    desk, visit = Desk(PIANIST), visitor()
    before = visit.shown.roll
    for speed in (70, 130, 33, 400, 25, 100):
        roll = changed(desk, visit, 5, speed)
    roll = changed(desk, visit)
    assert roll["prompt"] == before["prompt"] == notes_text(SCALE)
    assert (roll["start"], roll["end"]) == (before["start"], before["end"])


def test_the_handles_keep_their_notes_when_the_speed_changes() -> None:
    desk, visit = Desk(PIANIST), visitor()
    roll = changed(desk, visit, 0, 200, start=2.0, end=6.0)
    assert (roll["start"], roll["end"]) == (1.0, 3.0)
    list(desk.compose(visit, FIRST | {"start": 1.0, "end": 3.0}, *values_of(seconds=5.0)))
    kept = visit.shown.takes[0].notes[:8]
    assert kept["pitch"].tolist() == SCALE["pitch"][4:12].tolist()
    assert kept["start"] == pytest.approx((SCALE["start"][4:12] - 2) / 2)
    roll = changed(desk, visit, 0, 50)
    assert (roll["start"], roll["end"]) == (4.0, 12.0)
    roll = changed(desk, visit, 0, 77, end=16.0)  # the end remains the end
    assert roll["end"] == roll["promptSeconds"] == round(8 / 0.77, 3)
    roll = changed(desk, visit, 0, 100, end=99.0)  # what cannot be meant is not made into something
    assert roll["end"] == pytest.approx(99.0 * 0.77)


def test_a_long_prompt_is_continued_from_the_same_notes_at_every_speed() -> None:
    desk, visit = Desk(PIANIST), visitor()
    visit.show_prompt(
        piece_from_notes(make_notes((float(i), i + 1.0, 60, 64) for i in range(100))), "Long"
    )
    roll = changed(desk, visit, 0, 200)
    assert (roll["start"], roll["end"], roll["reach"]) == (30.0, 50.0, 20.0)


def test_only_transpositions_that_fit_are_offered_and_others_get_a_sentence() -> None:
    desk, visit = Desk(PIANIST), Visit()
    visit.show_prompt(piece_from_notes(make_notes([(0, 1, 30, 64), (1, 2, 101, 64)])), "Wide")
    before = visit.shown.roll
    assert before["transpositions"] == list(range(-9, 8))
    roll = changed(desk, visit, 8)
    assert roll["status"].endswith("leave the 88 keys of a piano; choose from -9 to 7.")
    assert (told(roll), roll["version"]) == ((0, 100), before["version"])
    assert changed(desk, visit, -9)["transpositions"] == before["transpositions"]
    visit.show_prompt(piece_from_notes(make_notes([(0, 1, 5, 64), (1, 2, 120, 64)])), "Wider")
    assert visit.shown.roll["transpositions"] == [0]
    assert plain(visit.shown.roll)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ((25, 100), "transpose is 25, but it has to be a whole number from -24 to 24."),
        ((1.5, 100), "transpose is 1.5"),
        (("x", 100), "transpose is 'x'"),
        ((None, 100), "transpose is None"),
        ((0, 24.9), "speed in percent is 24.9, but it has to be a number from 25 to 400."),
        ((0, 401), "speed in percent is 401"),
        ((0, None), "speed in percent is None"),
        ((0, []), "speed in percent is []"),
    ],
)
def test_a_change_out_of_bounds_gets_a_sentence(how: tuple[Any, Any], sentence: str) -> None:
    desk, visit = Desk(PIANIST), visitor()
    before = visit.shown.roll
    roll = changed(desk, visit, *how)
    assert roll["status"].startswith(sentence)
    assert (told(roll), roll["version"]) == ((0, 100), before["version"])


def test_another_prompt_comes_as_it_is(tmp_path: Path) -> None:
    desk, visit = Desk(PIANIST), desk_visit()
    changed(desk, visit, 3, 120)
    write_midi(SCALE, tmp_path / "scale.mid")
    assert told(desk.drop(visit, str(tmp_path / "scale.mid"))[0]) == (0, 100)
    changed(desk, visit, 3, 120)
    assert told(desk.choose(visit, EXAMPLE)[0]) == (0, 100)
    changed(desk, visit, 3, 120)
    assert told(desk.choose(visit, NOTHING)[0]) == (0, 100)
    assert changed(desk, visit, 3, 120)["state"] == "empty"  # nothing stays nothing
    assert steps(visit, Wish(5.0), 0.0)[-1]["state"] == "done"


def desk_visit() -> Visit:
    """Somebody who has the first example in front of them."""
    visit = Visit(was_loaded=True)
    Desk(PIANIST).choose(visit, EXAMPLE)
    return visit


def test_other_tracks_of_a_file_come_in_the_same_key_and_tempo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gr, "Warning", str)
    (tmp_path / "band.mid").write_bytes(BAND)
    desk, visit = Desk(PIANIST), visitor()
    desk.drop(visit, str(tmp_path / "band.mid"))
    assert changed(desk, visit, -12, 200)["prompt"] == "0,1000,28,64;"
    roll = desk.take_tracks(visit, [0])
    assert (roll["prompt"], told(roll)) == ("0,1000,78,64;", (-12, 200))
    assert changed(desk, visit, 18, 200)["prompt"] == "0,1000,108,64;"
    changed(desk, visit, -20, 200)
    roll = desk.take_tracks(visit, [0, 1])
    assert roll["status"].endswith("choose from -19 to 18.")
    assert (roll["prompt"], visit.shown.source.used) == ("0,1000,70,64;", (0,))


def test_a_take_that_is_continued_can_be_changed() -> None:
    desk, visit = Desk(PIANIST), visitor()
    steps(visit, Wish(5.0, seed=1))
    take = visit.shown.takes[0].notes
    roll = desk.browse(visit, FIRST | {"wants": "continue"})[0]
    assert told(roll) == (0, 100)
    roll = changed(desk, visit, 2, 50)
    assert roll["end"] == roll["promptSeconds"] == pytest.approx(2 * take["end"].max(), abs=0.001)
    steps(visit, Wish(5.0, seed=1), roll["end"])
    pitches = visit.shown.takes[0].notes["pitch"][: len(take)]
    assert pitches.tolist() == (take["pitch"] + 2).tolist()


def test_what_was_composed_is_earlier_and_comes_back_with_its_own_key_and_tempo() -> None:
    desk, visit = Desk(PIANIST), visitor()
    changed(desk, visit, 3, 125)
    steps(visit, Wish(5.0, seed=1), 6.4)
    roll = changed(desk, visit, -4, 80)
    assert (roll["takes"], roll["earlier"], roll["state"]) == ([], 1, "prompt")
    assert visit.shown.takes == ()
    steps(visit, Wish(5.0, seed=2), 10.0)
    back = visit.browse(-1)
    assert (told(back), back["takes"][0]["seed"]) == ((3, 125), 1)
    assert visit.shown.takes[0].notes["pitch"][0] == 63
    assert told(visit.browse(1)) == (-4, 80)
    visit.browse(-1)
    assert changed(desk, visit)["prompt"] == notes_text(SCALE)  # as it was chosen


def test_a_page_that_is_loaded_again_has_its_key_and_tempo_again() -> None:
    desk = Desk(PIANIST)
    visit, key, *_ = desk.come_in(desk.arrive(), None)
    desk.choose(visit, EXAMPLE)
    roll = changed(desk, visit, 3, 125)
    again, _, shown, example, *_ = desk.come_in(desk.arrive(), key)
    assert shown == roll
    assert example["value"] == EXAMPLE
    as_chosen = changed(desk, again)
    assert as_chosen["prompt"] == desk.choose(Visit(), EXAMPLE)[0]["prompt"]


def test_a_change_while_music_is_composed_ends_it_and_keeps_it() -> None:
    desk, visit = Desk(FakePianist(pace=20.0)), visitor()  # type: ignore[arg-type]
    composing = desk.compose(visit, FIRST, *values_of(seconds=60.0, seed="4"))
    for _ in range(3):
        growing = next(composing)[0]
    assert growing["given"] == visit.shown.roll["given"]
    roll = changed(desk, visit, 3, 125)
    assert (told(roll), roll["state"]) == ((3, 125), "prompt")
    *_, (last, *buttons) = composing
    assert (told(last), last["earlier"], last["state"]) == ((3, 125), 1, "prompt")
    assert buttons[0] == gr.update(visible=True)
    back = visit.browse(-1)
    assert (told(back), back["takes"][0]["seed"]) == ((0, 100), 4)


def test_a_fault_of_a_change_leaves_what_is_composed_alone() -> None:
    desk, visit = Desk(FakePianist(pace=20.0)), visitor()  # type: ignore[arg-type]
    composing = desk.compose(visit, FIRST, *values_of(seconds=60.0))
    next(composing)
    assert change(desk, visit, 25)[0] == gr.skip()
    time.sleep(0.2)
    assert next(composing)[0]["state"] == "composing"
    composing.close()  # type: ignore[attr-defined]


def test_a_change_is_of_the_prompt_that_was_seen() -> None:
    desk, visit = Desk(PIANIST), visitor()
    asked = FIRST | {"wants": "change", "transpose": 3, "speed": 100, "tab": 0}
    asked |= {"given": visit.shown.roll["given"]}
    desk.choose(visit, EXAMPLE)
    roll = desk.browse(visit, asked)[0]
    assert (roll["status"], told(roll)) == (CHANGED, (0, 100))


def test_a_saved_take_tells_how_its_prompt_was_changed(tmp_path: Path) -> None:
    pianist = Pianist(GPT(ModelConfig.preset("tiny")))
    desk, visit = Desk(pianist), visitor()
    roll = changed(desk, visit, -3, 125)
    list(visits.compose(visit, pianist, Wish(5.0, seed=1), 0.0, roll["end"]))
    path = desk.save(".mid", visit, FIRST)
    assert path is not None
    recipe = read_recipe(path)
    assert (recipe["transpose"], recipe["speed"]) == (-3, 1.25)
    again = pianist.again(path, SCALE)
    for _ in again:
        pass
    again.write(tmp_path / "again.mid")
    assert (tmp_path / "again.mid").read_bytes() == Path(path).read_bytes()
    assert read_piece(path).notes["pitch"][0] == 57


def test_a_changed_prompt_is_counted_with_that_which_was_chosen() -> None:
    desk, visit = Desk(PIANIST), visitor()
    assert len(visit.shown.sizes) == 2  # the prompt, which is that which was chosen; and no file
    changed(desk, visit, 1)
    assert len(visit.shown.sizes) == 3
