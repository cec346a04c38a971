"""The verbs generate, redo and render: music in files, whatever ends them."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from calls import compose, refused
from midi_bytes import events_of, file, meta, program

from music_gpt import audio, soundfont
from music_gpt.composing.composition import Composition
from music_gpt.composing.provenance import read_recipe, settings_text
from music_gpt.composing.redoing import candidate_seeds
from music_gpt.config.sampling import SAMPLING_PRESETS
from music_gpt.errors import InputError
from music_gpt.midi.piece import read_piece, write_midi
from music_gpt.process import TERMINATION_SIGNALS
from music_gpt.report import picture
from music_gpt.report.picture import COMPOSED, GIVEN

SIGNALS = [(number, 128 + number) for number in (signal.SIGINT, *TERMINATION_SIGNALS)]


def test_generate_continues_a_piece(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    prompt, out = midi_folder / "piece-0.mid", tmp_path / "new" / "out.mid"
    words = compose(checkpoint, out, "--prompt", prompt, "--seed=4", "--json")
    result = call(*words).json
    assert result["files"] == [str(out)]
    assert result["seeds"] == [4]
    assert result["seconds"] >= 1
    assert f"after {result['prompt_seconds']:.1f} of the prompt; " in call(*words[:-1]).err
    assert result["times_real_time"] > 0
    assert re.search(r"; \d+ tokens/s, [\d.]+× real time, seed 4\.$", call(*words[:-1]).err.strip())
    assert not result["interrupted"]
    notes = read_piece(out).notes
    assert len(notes) > 55  # the prompt is there, but for notes that meet
    first = out.read_bytes()
    call(*words)
    assert out.read_bytes() == first


def test_generate_can_leave_the_prompt_out(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    words = compose(checkpoint, out, "--prompt", midi_folder / "piece-0.mid", "--seed=4")
    assert call(*words).code == 0
    whole = read_piece(out)
    assert call(*words, "--continuation-only").code == 0
    new = read_piece(out)
    assert new.seconds < 10 < whole.seconds
    assert len(new.notes) < len(whole.notes) - 40


def test_generate_continues_from_a_point_of_the_piece(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    prompt = read_piece(midi_folder / "piece-0.mid")
    words = compose(checkpoint, out, "--prompt", midi_folder / "piece-0.mid", "--seed=4")
    assert call(*words, "--prompt-end=3").code == 0
    before = prompt.notes[prompt.notes["start"] < 2.99]
    assert read_piece(out).notes["pitch"][: len(before)].tolist() == before["pitch"].tolist()
    assert read_piece(out).seconds < 6
    refused(call(*words, "--prompt-end=9999"), "--prompt-end is 9999, but the prompt lasts")
    refused(call(*words, "--prompt-end=-1"), "--prompt-end is -1.0")
    refused(call(*words, "--prompt-end=soon"), "--prompt-end: Expected a num")
    refused(call(*compose(checkpoint, out, "--prompt-end=3")), "give a prompt, or leave it out")


def test_generate_continues_a_piece_in_another_key_and_tempo(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    prompt, out, again = midi_folder / "piece-0.mid", tmp_path / "1.mid", tmp_path / "2.mid"
    given = read_piece(prompt)
    words = compose(checkpoint, out, "--prompt", prompt, "--seed=4", "--transpose=-3")
    told = call(*words, "--speed=1.2").err
    assert (
        f"after {given.seconds / 1.2:.1f} of the prompt (transposed by -3, 1.2 times as fast); "
        in told
    )
    take = read_piece(out).notes
    early = given.sounding_notes[given.sounding_notes["start"] < 5]
    assert (early["pitch"] - 3).tolist() == take["pitch"][: len(early)].tolist()
    shift = early["start"][0]
    assert take["start"][: len(early)] == pytest.approx((early["start"] - shift) / 1.2, abs=0.001)
    assert call("generate", "--again", out, "--checkpoint", checkpoint, "--out", again).code == 0
    assert again.read_bytes() == out.read_bytes()
    words += ["--prompt-end=2", "--continuation-only", "--speed=2", "--json"]
    result = call(*words).json
    assert (result["transpose"], result["speed"]) == (-3, 2.0)
    recipe = ("generate", "--again", out, "--checkpoint", checkpoint, "--out", again)
    refused(call(*recipe), "was written without its prompt")
    assert call(*recipe, "--prompt", prompt).code == 0
    assert again.read_bytes() == out.read_bytes()
    refused(call(*recipe, "--speed=2"), "--again takes all settings from the file; leave out --sp")


def test_a_change_of_the_prompt_that_is_none_is_refused_before_anything_is_written(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    alone = compose(checkpoint, out)
    words = [*alone, "--prompt", midi_folder / "piece-0.mid"]
    highest = int(read_piece(midi_folder / "piece-0.mid").notes["pitch"].max())
    refused(call(*words, "--transpose=25"), "--transpose is 25, but it has to be a whole number f")
    refused(call(*words, "--transpose=high"), "--transpose: Expected a whole number")
    refused(call(*words, "--speed=0"), "--speed is 0.0, but it has to be a number from 0.25 to 4.")
    refused(call(*words, "--speed=nan"), "--speed")
    refused(call(*words, "--transpose=24"), "--transpose is 24, but then notes of the prompt leave")
    refused(call(*words, "--transpose=24"), f"to {108 - highest}.")
    refused(call(*alone, "--transpose=3"), "--transpose changes the prompt; give a prompt, or l")
    refused(call(*alone, "--speed=2"), "--speed changes the prompt; give a prompt, or leave it out")
    assert not out.exists()


def test_tracks_of_a_file_are_told_and_chosen(call: Any, checkpoint: Path, tmp_path: Path) -> None:
    band, out = tmp_path / "band.mid", tmp_path / "out.mid"
    low, high = (events_of([(0, 900, pitch, 60), (1000, 2000, pitch, 60)], 1) for pitch in (40, 90))
    strings = [(0, meta(3, b"Strings")), (0, program(48, 1)), *high]
    band.write_bytes(file([(0, meta(3, b"Left hand")), (0, program(0, 1)), *low], strings))
    sound = ["render", band, "--out", tmp_path / "a.wav"]
    assert "Tracks used: 0 (Left hand); not used: 1 (Strings)." in call(*sound).err
    words = compose(checkpoint, out, "--seed=4", "--prompt", band)
    assert "Tracks used: 0 (Left hand)" in call(*words).err
    assert read_piece(out).notes["pitch"][0] == 40
    assert "Tracks used: 1 (Strings)" in call(*words, "--tracks", "strings,").err
    assert read_piece(out).notes["pitch"][0] == 90
    assert "Tracks used" not in call(*words, "--tracks", "0, Strings").err
    refused(call(*words, "--tracks", "7"), "Track '7' is not in the file; choose among 0 (Left")
    refused(call(*sound, "--tracks", ""), "No track is chosen; choose among 0 (Left hand), 1 (St")
    refused(call(*compose(checkpoint, out, "--tracks", "0")), "give a --prompt")


def test_generate_numbers_its_takes(call: Any, checkpoint: Path, tmp_path: Path) -> None:
    result = call(
        *compose(checkpoint, tmp_path / "out.mid", "--variations=2", "--seed=7", "--json")
    ).json
    assert result["files"] == [str(tmp_path / "out-1.mid"), str(tmp_path / "out-2.mid")]
    assert result["seeds"] == [7, 8]
    assert all(Path(file).is_file() for file in result["files"])


def test_generate_numbers_its_takes_by_their_likelihood(
    call: Any, checkpoint: Path, tmp_path: Path
) -> None:
    words = compose(checkpoint, tmp_path / "out.mid", "--seed=7", "--json", "--variations=4")
    plain, ranked = call(*words).json, call(*words, "--rank").json
    assert ranked["nats_per_token"] == sorted(plain["nats_per_token"])
    best = plain["nats_per_token"].index(min(plain["nats_per_token"]))
    assert ranked["seeds"][0] == 7 + best != ranked["seeds"][1]
    assert read_recipe(Path(ranked["files"][0]))["seed"] == 7 + best
    words = compose(checkpoint, tmp_path / "out.mid", "--seed=7", "--variations=2")
    assert f"{tmp_path}/out-2.mid (the likeliest first): " in call(*words, "--rank").err
    assert "likeliest" not in call(*words).err
    refused(call(*words[:-1], "--rank"), "--rank puts several takes in order")


def test_generate_makes_a_file_again_from_what_it_tells(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    prompt, first, again = midi_folder / "piece-0.mid", tmp_path / "1.mid", tmp_path / "2.mid"
    asked = compose(checkpoint, first, "--prompt", prompt, "--seed=4", "--temperature=0.9")
    assert call(*asked, "--engine=torch").code == 0
    words = ["generate", "--again", first, "--checkpoint", checkpoint, "--out", again]
    assert call(*words, "--json").json["seeds"] == [4]
    assert again.read_bytes() == first.read_bytes()
    refused(call(*words, "--seed=5"), "--again takes all settings from the file; leave out --seed.")
    assert call(*asked, "--engine=torch", "--continuation-only").code == 0
    refused(call(*words), "was written without its prompt; give the prompt")
    assert call(*words, "--prompt", prompt).code == 0
    assert again.read_bytes() == first.read_bytes()
    refused(call(*words, "--again", prompt), "does not tell how it was made")
    settings = read_recipe(first)
    write_midi(read_piece(first).notes, first, text=settings_text({**settings, "top_p": 7}))
    refused(call(*words), f"The settings in {first} were changed: top_p is 7, but it has to be")
    lone = settings_text({**settings, "include_prompt": False, "prompt_heard": None})
    write_midi(read_piece(first).notes, first, text=lone)
    refused(call(*words), "give the prompt that it continues, with --prompt.")


def test_a_preset_turns_the_knobs_and_flags_after_it_turn_them_again(
    call: Any, checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    for words, temperature in (
        (["--preset=adventurous"], SAMPLING_PRESETS["adventurous"].temperature),
        (["--preset", "faithful"], SAMPLING_PRESETS["faithful"].temperature),
        (["--preset=faithful", "--temperature=1.2"], 1.2),
        ([], SAMPLING_PRESETS["balanced"].temperature),
    ):
        assert call(*compose(checkpoint, out, "--seed=4", "--seconds=0.5", *words)).code == 0
        assert read_recipe(out)["temperature"] == temperature
    words = compose(checkpoint, out, "--preset=wild")
    refused(call(*words), "--preset is 'wild', but it has to be faithful, balanced or adv")
    refused(call(*compose(checkpoint, out, "--key=H")), "--key is 'H', but it has to be a key")


def test_redo_composes_a_part_anew(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    piece, out = midi_folder / "piece-0.mid", tmp_path / "out.mid"
    words = ["redo", piece, "--out", out, "--checkpoint", checkpoint, "--seed=4", "--candidates=3"]
    result = call(*words, "--from=4", "--to=6.5", "--json").json
    assert result["file"] == str(out)
    assert result["part"] == [4.0, 6.5]
    assert sorted(result["seeds"]) == sorted(candidate_seeds(4, 3))
    nats = result["following_nats_per_token"]
    assert nats == sorted(nats)
    old, new = (read_piece(file).sounding_notes for file in (piece, out))
    for kept in (lambda n: n[n["start"] < 3.99], lambda n: n[n["start"] >= 6.5]):
        assert kept(new)["start"].tolist() == kept(old)["start"].tolist()
    assert "the best of 3, seed" in call(*words, "--from=4", "--to=6.5").err
    refused(call(*words, "--from=4", "--to=2"), "The part begins at 4 seconds and ends at 2; let")
    refused(call(*words, "--from=4"), "required: --to")
    refused(call("generate", "--again", out, "--out", out), "holds a part that was redone")
    again = ("--candidates=1", f"--seed={result['seeds'][0]}", "--from=4", "--to=6.5")
    best = out.read_bytes()
    out.unlink()
    assert call(*words, *again).code == 0
    assert out.read_bytes() == best


@pytest.mark.parametrize("verb", ["generate", "redo"])
def test_what_is_read_is_not_written_over(
    call: Any, checkpoint: Path, midi_folder: Path, verb: str
) -> None:
    piece = next(midi_folder.rglob("*.mid"))
    before = piece.read_bytes()
    reads = {"generate": ["--prompt", piece], "redo": [piece, "--from=1", "--to=2"]}[verb]
    out = piece.parent / "." / piece.name
    said = call(verb, *reads, "--checkpoint", checkpoint, "--out", out)
    refused(said, "which is read here and would be lost; choose another name")
    assert piece.read_bytes() == before


def interrupt(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Send this signal when the fourth note is asked for."""
    step, calls = Composition.__next__, []

    def interrupted(self: Composition) -> Any:
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), number)
        return step(self)

    monkeypatch.setattr(Composition, "__next__", interrupted)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_what_ends_redo_or_render_leaves_nothing_and_says_so(
    call: Any,
    checkpoint: Path,
    midi_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    piece, told = midi_folder / "piece-0.mid", "music-gpt: Interrupted; nothing was written."
    interrupt(monkeypatch, number)
    words = ["redo", piece, "--from=4", "--to=9", "--seed=1", "--checkpoint", checkpoint]
    said = call(*words, "--out", tmp_path / "out.mid")
    assert (said.code, said.out, said.err.splitlines()[-1]) == (code, "", told)
    monkeypatch.setattr(audio, "_mix", lambda *_: os.kill(os.getpid(), number))
    said = call("render", piece, "--out", tmp_path / "a.wav")
    assert (said.code, said.out, said.err.splitlines()[-1]) == (code, "", told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_what_ends_generate_keeps_the_music_so_far(
    call: Any,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    interrupt(monkeypatch, number)
    said = call(*compose(checkpoint, tmp_path / "out.mid", "--seed=1", "--seconds=60", "--json"))
    assert said.code == code
    assert json.loads(said.out)["interrupted"]
    assert "what had been composed was written" in said.err
    assert len(read_piece(tmp_path / "out.mid").notes) >= 3


def test_generate_refuses_what_it_cannot_use(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    broken = midi_folder / "broken.mid"
    refused(call(*compose(checkpoint, out, "--prompt", broken)), "This is not a MIDI file")
    refused(call(*compose(checkpoint, out, "--seconds=0")), "--seconds is 0")
    refused(call(*compose(checkpoint, out, "--top-p=2")), "--top-p is 2")
    (tmp_path / "folder.mid").mkdir()
    refused(call(*compose(checkpoint, tmp_path / "folder.mid")), "it is a folder; give the name")
    (tmp_path / "file").write_text("")
    refused(
        call(*compose(checkpoint, tmp_path / "file" / "out.mid")), "stands where a folder should"
    )
    refused(call(*compose(broken, out)), "not a usable music_gpt checkpoint")
    assert not out.exists()


def test_where_nothing_can_be_written_nothing_is_composed(
    call: Any, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(self: Path, data: bytes) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Composition, "__next__", lambda _: pytest.fail("a note was composed"))
    long = tmp_path / f"{'a' * 251}.mid"
    refused(call(*compose(checkpoint, long, "--variations=2")), "the name is too long")
    (tmp_path / "out-1.mid").mkdir()
    said = call(*compose(checkpoint, tmp_path / "out.mid", "--variations=2"))
    refused(said, "out-1.mid cannot be written: it is a folder")
    (tmp_path / "out-1.mid").rmdir()
    monkeypatch.setattr(Path, "write_bytes", read_only)
    refused(call(*compose(checkpoint, tmp_path / "x.mid")), "is read-only; choose another folder")
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_and_a_new_folder_can_be_written(
    call: Any, checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / f"{'a' * 251}.mid"
    assert call(*compose(checkpoint, out, "--seed=3")).code == 0
    assert read_piece(out).n_notes > 0
    assert call("render", out, "--out", tmp_path / "also" / "new" / "a.wav").code == 0
    assert [file.name for file in (tmp_path / "also" / "new").iterdir()] == ["a.wav"]


def test_render_says_at_once_where_it_cannot_write(
    call: Any, midi_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(audio, "write_audio", lambda *_: pytest.fail("sound was made"))
    said = call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "a.wav")
    refused(said, "a.wav cannot be written: the disk is full; free some space")
    said = call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "new" / "a.xyz")
    refused(said, "end the name in .wav, .flac or .mp3")
    said = call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "a.png")
    refused(said, "a.png cannot be written: the disk is full; free some space")
    said = call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "new" / "a.jpg")
    refused(said, "or in .png or .svg for a picture")
    assert list(tmp_path.iterdir()) == []


def test_render_writes_sound(call: Any, midi_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.wav"
    said = call("render", midi_folder / "piece-1.mid", "--out", out)
    assert (said.code, said.out) == (0, "")
    assert "seconds of music" in said.err
    assert out.read_bytes()[:4] == b"RIFF"
    refused(call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "a.xyz"), "xyz")
    refused(call("render", midi_folder / "broken.mid", "--out", out), "not a MIDI file")


def colours_of(svg: Path) -> set[tuple[int, ...]]:
    """Those of the notes in a picture."""
    groups = re.findall(r'<g fill="#(\w+)" fill-opacity="[\d.]+"><rect[^>]* rx=', svg.read_text())
    return {tuple(bytes.fromhex(colour)) for colour in groups}


def test_render_draws_a_picture(call: Any, midi_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "a.PNG"
    said = call("render", midi_folder / "piece-1.mid", "--out", out)
    assert (said.code, said.out) == (0, "")
    assert "a.PNG: " in said.err
    assert "seconds of music." in said.err
    assert out.read_bytes()[:4] == b"\x89PNG"
    refused(call("render", midi_folder / "broken.mid", "--out", out), "not a MIDI file")
    assert call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "a.svg").code == 0
    assert colours_of(tmp_path / "a.svg") == {GIVEN}


def test_where_no_soundfont_plays_the_flag_to_leave_out_is_named(
    call: Any, midi_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(path: str) -> None:
        raise InputError(soundfont.LIBRARY)

    monkeypatch.setattr(soundfont, "open_soundfont", missing)
    words = ["render", midi_folder / "piece-0.mid", "--out", tmp_path / "a.wav"]
    refused(call(*words, "--soundfont=a.sf2"), ", or leave out --soundfont.")


def test_a_soundfont_is_none_for_a_picture(call: Any, midi_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "roll.png"
    said = call("render", midi_folder / "piece-0.mid", "--out", out, "--soundfont", "piano.sf2")
    refused(said, "--soundfont plays, but")
    assert not out.exists()


def test_the_picture_of_a_take_tells_what_was_composed(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    take, out = tmp_path / "take.mid", tmp_path / "take.svg"
    words = compose(checkpoint, take, "--seed=3")
    assert call(*words).code == 0
    assert call("render", take, "--out", out).code == 0
    assert colours_of(out) == {COMPOSED}
    assert call(*words, "--prompt", midi_folder / "piece-1.mid").code == 0
    assert call("render", take, "--out", out).code == 0
    assert colours_of(out) == {GIVEN, COMPOSED}


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_what_ends_the_drawing_of_a_picture_leaves_nothing(
    call: Any,
    midi_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    monkeypatch.setattr(picture, "_letter", lambda *_: os.kill(os.getpid(), number))
    said = call("render", midi_folder / "piece-0.mid", "--out", tmp_path / "a.png")
    assert (said.code, said.out) == (code, "")
    assert "Interrupted; nothing was written." in said.err
    assert list(tmp_path.iterdir()) == []
