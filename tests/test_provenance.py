"""A file that was composed tells how: from it alone the same notes are made again."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import compose, finished, melody, small_pianist

from music_gpt.composing import composition
from music_gpt.composing.pianist import Pianist
from music_gpt.composing.provenance import read_recipe, settings_text
from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.midi.piece import make_notes, midi_bytes, read_piece, write_midi
from music_gpt.notes import NOTE_DTYPE, Notes

LONG, SHORT = melody(1, 60), melody(2, 9)  # one is longer than the window of the network


@pytest.fixture(scope="module")
def pianist() -> Pianist:
    return small_pianist()


def edited(settings: dict[str, Any], path: Path, **changes: Any) -> Path:
    """A file with other settings in it."""
    write_midi(SHORT, path, text=settings_text({**settings, **changes}))
    return path


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        (SHORT, {}),
        (LONG, {}),
        (None, {}),
        (LONG, {"prompt_end_seconds": 9.123, "prompt_seconds": 4.567}),
        (SHORT, {"end": True, "temperature": 0.8, "top_k": 9, "max_note_seconds": 3.0}),
        (SHORT, {"temperature": 0}),
        (LONG, {"transpose": -7, "speed": 1.3, "prompt_end_seconds": 9.0}),
    ],
    ids=["short prompt", "long prompt", "from nothing", "part", "settings", "greedy", "changed"],
)
def test_a_file_is_made_again_from_itself_alone(
    pianist: Pianist, tmp_path: Path, prompt: Any, options: dict[str, Any]
) -> None:
    first = compose(pianist, prompt, **options)
    first.write(tmp_path / "a.mid")
    again = finished(pianist.again(tmp_path / "a.mid"))
    again.write(tmp_path / "b.mid")
    assert (again.new_notes() == first.new_notes()).all()
    assert again.settings() == first.settings()
    assert (tmp_path / "b.mid").read_bytes() == (tmp_path / "a.mid").read_bytes()


def test_one_variation_of_several_is_made_again_alone(pianist: Pianist, tmp_path: Path) -> None:
    takes = compose(pianist, SHORT, variations=3)
    takes.midi(2).write(str(tmp_path / "third.mid"))  # as pretty_midi writes it
    again = finished(pianist.again(tmp_path / "third.mid"))
    assert again.n_takes == 1
    assert (again.new_notes() == takes.new_notes(2)).all()


@pytest.mark.parametrize("prompt", [SHORT, LONG], ids=["short", "long"])
def test_a_continuation_without_its_prompt_is_made_again_with_the_prompt(
    pianist: Pianist, tmp_path: Path, prompt: Any
) -> None:
    first = compose(pianist, prompt, include_prompt=False, prompt_seconds=5.0)
    first.write(tmp_path / "a.mid")
    write_midi(prompt, tmp_path / "prompt.mid")
    assert b"prompt_heard" in (tmp_path / "a.mid").read_bytes()
    assert read_recipe(tmp_path / "a.mid")["prompt_heard"] is None
    again = finished(pianist.again(tmp_path / "a.mid", prompt))
    again.write(tmp_path / "b.mid")
    assert (tmp_path / "b.mid").read_bytes() == (tmp_path / "a.mid").read_bytes()
    with pytest.raises(InputError, match=r"a.mid was written without its prompt; .* with prompt\."):
        pianist.again(tmp_path / "a.mid")
    with pytest.raises(InputError, match="The prompt is not what this take goes on from; give"):
        pianist.again(tmp_path / "a.mid", melody(5, 20))


def test_a_continuation_of_a_changed_prompt_is_made_again_with_the_prompt_as_it_was_given(
    pianist: Pianist, tmp_path: Path
) -> None:
    wish: dict[str, Any] = {"transpose": 5, "speed": 0.7, "prompt_end_seconds": 8.0}
    first = compose(pianist, LONG, include_prompt=False, **wish)
    first.write(tmp_path / "a.mid")
    assert wish.items() <= read_recipe(tmp_path / "a.mid").items()
    again = finished(pianist.again(tmp_path / "a.mid", LONG))
    again.write(tmp_path / "b.mid")
    assert (tmp_path / "b.mid").read_bytes() == (tmp_path / "a.mid").read_bytes()
    moved = LONG.copy()
    moved["pitch"] += 5
    with pytest.raises(InputError, match="The prompt is not what this take goes on from; give"):
        pianist.again(tmp_path / "a.mid", moved)


def test_a_file_of_before_prompts_could_be_changed_is_made_again(
    pianist: Pianist, tmp_path: Path
) -> None:
    first = compose(pianist, SHORT)
    older = {n: v for n, v in first.settings().items() if n not in ("transpose", "speed")}
    write_midi(first.notes(), tmp_path / "a.mid", text=settings_text(older))
    for prompt in (None, SHORT):
        again = finished(pianist.again(tmp_path / "a.mid", prompt))
        assert (again.new_notes() == first.new_notes()).all()


def test_the_prompt_may_be_given_though_the_file_holds_it(pianist: Pianist, tmp_path: Path) -> None:
    first = compose(pianist, SHORT)
    first.write(tmp_path / "a.mid")
    again = finished(pianist.again(tmp_path / "a.mid", SHORT))
    assert (again.notes() == first.notes()).all()


def test_another_checkpoint_or_engine_gets_a_sentence(pianist: Pianist, tmp_path: Path) -> None:
    wish = compose(pianist, SHORT).settings()
    file = edited(
        wish, tmp_path / "a.mid", checkpoint="big.safetensors", checkpoint_sha256="ab" * 9
    )
    with pytest.raises(
        InputError, match=r"big.safetensors \(sha256 abababababab\), but this is ti"
    ):
        pianist.again(file)
    file = edited(wish, tmp_path / "a.mid", engine="onnx-int8")
    with pytest.raises(InputError, match="in the engine onnx-int8, whose notes may differ .*torch"):
        pianist.again(file)


def packed(heard: bytes) -> str:
    return b64encode(zlib.compress(heard)).decode()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"seconds": -1},
            "settings in .*a.mid were changed: seconds is -1, .*; give the file as",
        ),
        ({"seed": 2**60}, "seed is 1"),
        ({"transpose": 25}, "transpose is 25, but .* from -24 to 24; give the file as music-gpt"),
        ({"speed": None}, "speed is None"),
        ({"seed": "7"}, "does not tell all that made it"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"prompt_sha256": "0"}, "What .* holds of its prompt is not what"),
        ({"prompt_heard": "!"}, "is damaged"),
        ({"prompt_heard": packed(b"[[999],0,0,0,[]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],0.5,0,0,[]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],-9,0,0,[]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],9,8,0,[]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],0,1e9,0,[]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],0,9999999,0,[]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],0,0,32,[]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],0,0,0,[[128,0]]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[[60],0,0,0,[[60,1]]]")}, "is damaged"),
        ({"prompt_heard": packed(b"[" * 10**7)}, "is damaged"),
    ],
    ids=str,
)
def test_settings_that_were_changed_get_a_sentence(
    pianist: Pianist, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    wish = compose(pianist, SHORT).settings()
    with pytest.raises(InputError, match=sentence):
        pianist.again(edited(wish, tmp_path / "a.mid", **changes))


@pytest.mark.parametrize(
    "changes", [{"transpose": 24}, {"prompt_end_seconds": 99.0}, {"tracks": [7]}], ids=str
)
def test_a_prompt_that_the_settings_do_not_fit_is_not_that_of_the_take(
    pianist: Pianist, tmp_path: Path, changes: dict[str, Any]
) -> None:
    high = melody(2, 9)
    high["pitch"] += 88 - high["pitch"].max()
    write_midi(high, tmp_path / "prompt.mid")
    wish = compose(pianist, high, include_prompt=False).settings()
    file = edited(wish, tmp_path / "a.mid", **changes)
    with pytest.raises(InputError, match=r"^The prompt is not what this take .*was made\.$"):
        pianist.again(file, tmp_path / "prompt.mid")
    with pytest.raises(InputError, match="gone.mid cannot be read: no such file"):
        pianist.again(file, tmp_path / "gone.mid")


def test_a_file_whose_prompt_was_edited_away_gets_a_sentence(
    pianist: Pianist, tmp_path: Path
) -> None:
    first = compose(pianist, SHORT)
    write_midi(first.new_notes(), tmp_path / "a.mid", text=settings_text(first.settings()))
    with pytest.raises(InputError, match="was changed: notes of its prompt are gone; give the"):
        pianist.again(tmp_path / "a.mid")


def test_a_file_of_another_program_gets_a_sentence(pianist: Pianist, tmp_path: Path) -> None:
    for number, text in enumerate([None, "music-gpt {", "music-gpt {" + "[" * 9**5]):
        path = tmp_path / f"{number}.mid"
        path.write_bytes(midi_bytes(SHORT, text=text))
        with pytest.raises(InputError, match=r"\d.mid does not tell how it was made"):
            pianist.again(path)
    with pytest.raises(InputError, match="gone.mid cannot be read"):
        pianist.again(tmp_path / "gone.mid")


def test_what_a_file_tells_of_its_prompt_is_short(pianist: Pianist) -> None:
    wish = compose(pianist, LONG).settings()
    assert len(json.dumps(wish)) < 2000


def test_a_name_in_any_script_is_told(tmp_path: Path) -> None:
    write_midi(
        SHORT, tmp_path / "a.mid", text=settings_text({"seed": 1, "prompt_sha256": "Träumerei"})
    )
    assert read_recipe(tmp_path / "a.mid")["prompt_sha256"] == "Träumerei"
    assert read_piece(tmp_path / "a.mid").n_notes == len(SHORT)


def test_what_is_composed_can_be_read_again_however_many_notes_the_prompt_has(
    pianist: Pianist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [len(compose(pianist, SHORT, seed=seed).notes()) for seed in (7, 8)]
    monkeypatch.setattr(composition, "MOST_NOTES", min(free) - 1)
    takes = compose(pianist, SHORT, variations=2)
    assert takes.warnings[-1].endswith("so the music falls silent at its end.")
    for take in (0, 1):
        takes.write(tmp_path / "a.mid", take)
        assert read_piece(tmp_path / "a.mid").n_notes == min(free) - 1
        again = finished(pianist.again(tmp_path / "a.mid"))
        assert (again.new_notes() == takes.new_notes(take)).all()


def crowd(n_notes: int) -> Notes:
    """So many notes, a hundred a second."""
    notes = np.zeros(n_notes, NOTE_DTYPE)
    notes["start"] = np.arange(n_notes) * 0.01
    notes["end"], notes["velocity"] = notes["start"] + 0.01, 64
    notes["pitch"] = 40 + np.arange(n_notes) % 7
    return notes


def test_a_prompt_that_leaves_no_room_for_music_is_refused_before_it_is_continued(
    pianist: Pianist,
) -> None:
    full = crowd(MidiLimits().max_notes - 50)
    endless = make_notes([(100.0 * i, 100.0 * i + 50, 60, 64) for i in range(360)])
    for prompt, told in ((full, "199,950 notes before anything"), (endless, "may last 36,0")):
        with pytest.raises(InputError, match=f"{told}.*; give a shorter"):
            pianist.compose(prompt, seconds=60.0)


def test_a_prompt_that_is_left_out_of_the_file_takes_no_room(
    pianist: Pianist, tmp_path: Path
) -> None:
    full = crowd(MidiLimits().max_notes - 50)
    take = finished(pianist.compose(full, seconds=2.0, include_prompt=False, seed=1))
    take.write(tmp_path / "a.mid")
    assert read_piece(tmp_path / "a.mid").n_notes == len(take.new_notes()) > 0
