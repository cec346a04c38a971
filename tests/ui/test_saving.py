"""What is taken away: takes as files of every kind, on a shelf that is bounded."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
import soundfile
from PIL import Image
from visiting import FIRST, PIANIST, SCALE, names_in, steps, visitor

from music_gpt import audio
from music_gpt.config.prompt import PromptChange
from music_gpt.errors import InputError
from music_gpt.midi.piece import make_notes, read_piece, write_midi
from music_gpt.soundfont import SoundFont
from music_gpt.ui import bounds
from music_gpt.ui.desk import Desk
from music_gpt.ui.roll_value import Take, length
from music_gpt.ui.saving import KINDS, stem, write_all
from music_gpt.ui.shelf import PREFIX, Shelf, clear_stale_shelves
from music_gpt.ui.visit import Wish

DESK = Desk(PIANIST)
"""Its files go when it goes."""


def test_no_sound_is_made_of_music_that_lasts_too_long(tmp_path: Path) -> None:
    path = tmp_path / "long.mid"
    write_midi(make_notes([(10.0 * i, 10.0 * i + 10, 60, 64) for i in range(125)]), path)
    with pytest.raises(gr.Error, match="20.8 minutes, but the page makes sound of up to 20;"):
        Desk(PIANIST).render(str(path))


def test_the_oldest_files_make_room_for_new_ones() -> None:
    shelf = Shelf(max_bytes=1000)
    paths = []
    for age in (30, 20, 10):
        paths.append(shelf.path("a.wav", room=300))
        paths[-1].write_bytes(bytes(300))
        os.utime(paths[-1].parent, (paths[-1].stat().st_mtime - age,) * 2)
    assert [path.exists() for path in paths] == [True, True, True]
    shelf.path("a.wav", room=300)
    assert [path.exists() for path in paths] == [False, True, True]
    shelf.path("a.wav", room=1000)
    assert not any(path.exists() for path in paths)


def test_what_a_killed_page_left_behind_is_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [f"{PREFIX}{gone.pid}-abc", f"{PREFIX}{os.getpid()}-abc", f"{PREFIX}mine", "other"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.wav").write_bytes(b"sound")
    clear_stale_shelves(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_a_saved_take_tells_how_it_was_made() -> None:
    desk, visit = Desk(PIANIST), visitor()
    steps(visit, Wish(5.0, seed=77))
    path = desk.save(".mid", visit, FIRST)
    assert path is not None
    assert Path(path).name == "scale-take-1-seed-77.mid"
    assert b'music-gpt {"seconds": 5.0, "seed": 77}' in Path(path).read_bytes()
    assert read_piece(path).n_notes == len(visit.shown.takes[0].notes)


def test_the_name_of_a_file_tells_the_key_and_the_tempo_of_its_prompt() -> None:
    visit, names = visitor(), []
    for change in (PromptChange(3), PromptChange(-3), PromptChange(speed=0.5)):
        music = replace(visit.shown, change=change)
        names.append(stem(music, Take("take-1", SCALE, {"seed": 7}, 0.0)))
    assert names == [f"scale-{told}-take-1-seed-7" for told in ("up-3", "down-3", "50-percent")]


def test_a_take_is_taken_away_in_every_kind() -> None:
    desk, visit = Desk(PIANIST), visitor()
    steps(visit, Wish(5.0, seed=77))
    for suffix, kind in ((".wav", "WAV"), (".flac", "FLAC"), (".mp3", "MP3")):
        path = desk.save(suffix, visit, FIRST)
        assert path is not None
        assert Path(path).name == f"scale-take-1-seed-77{suffix}"
        about = soundfile.info(path)
        assert about.format in (kind, "MPEG")
        assert about.duration > length(visit.shown.takes[0].notes)


def test_the_picture_of_a_take_has_its_prompt_and_its_music_in_their_colours() -> None:
    desk, visit = Desk(PIANIST), visitor()
    steps(visit, Wish(5.0, seed=77))
    path = desk.save(".png", visit, FIRST)
    assert path is not None
    assert Path(path).name == "scale-take-1-seed-77.png"
    with Image.open(path) as image:
        shown = {colour for _, colour in image.getcolors(2**20) or ()}
    reds = [colour for colour in shown if isinstance(colour, tuple) and colour[0] > colour[2] + 80]
    blues = [colour for colour in shown if isinstance(colour, tuple) and colour[2] > colour[0] + 30]
    assert reds
    assert blues


def test_all_takes_are_taken_away_in_one_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, visit = Desk(PIANIST), visitor()
    steps(visit, Wish(5.0, 2, seed=7))
    path = desk.save(".zip", visit, FIRST)
    assert path is not None
    stems = ("scale-take-1-seed-7", "scale-take-2-seed-8")
    assert Path(path).name == "scale-2-takes.zip"
    assert names_in(path) == [f"{stem}{end}" for stem in stems for end in (".mid", ".png", ".flac")]
    assert [p.name for p in Path(path).parent.iterdir()] == ["scale-2-takes.zip"]
    with zipfile.ZipFile(path) as archive:
        piece = read_piece(archive.read("scale-take-2-seed-8.mid"))
    assert piece.n_notes == len(visit.shown.takes[1].notes)
    told: list[str] = []
    monkeypatch.setattr(gr, "Info", told.append)
    monkeypatch.setattr(bounds, "MAX_SOUND_SECONDS", 20.0)
    silent = [f"{stem}{end}" for stem in stems for end in (".mid", ".png")]
    assert names_in(desk.save(".zip", visit, FIRST)) == silent
    assert "holds them as MIDI and pictures only" in told[0]


def test_there_is_nothing_to_take_away_before_music_is_composed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    for suffix in KINDS.values():
        assert Desk(PIANIST).save(suffix, visitor(), FIRST) is None
    assert told == ["There is no such take yet; press Compose first."] * len(KINDS)


def test_two_files_of_one_name_never_meet() -> None:
    desk, one, two = Desk(PIANIST), visitor(), visitor()
    for visit, seconds in ((one, 5.0), (two, 10.0)):
        steps(visit, Wish(seconds, seed=1))
    first, second = (desk.save(".mid", v, FIRST) for v in (one, two))
    assert first is not None
    assert second is not None
    assert Path(first).name == Path(second).name
    assert read_piece(first).n_notes < read_piece(second).n_notes


def test_what_is_saved_as_sound_is_played_by_the_soundfont_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(font: SoundFont, *_: Any) -> Iterator[Any]:
        assert font is harp
        yield np.full((2, 1000), 0.5, np.float32)

    monkeypatch.setattr(audio, "play", play)
    harp = SoundFont(tmp_path / "harp<1>.sf2", "Harp", 0, 0)
    desk, visit = Desk(PIANIST, harp), visitor()
    steps(visit, Wish(seconds=1.0, seed=1))
    write_midi(SCALE, tmp_path / "a.mid")
    files = [desk.save(suffix, visit, FIRST) for suffix in (".wav", ".flac", ".zip")]
    with zipfile.ZipFile(str(files.pop())) as archive:
        (take,) = (name for name in archive.namelist() if name.endswith(".flac"))
        files.append(archive.extract(take, tmp_path))
    for file in [*files, desk.render(str(tmp_path / "a.mid"))]:
        sound = soundfile.read(str(file))[0]
        assert sound.shape == (1000, 2)
        assert np.allclose(sound, 0.5, atol=1e-3)


def test_where_no_sound_can_be_made_the_archive_holds_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InputError("The SoundFont is no longer there; put it back.")

    monkeypatch.setattr(audio, "write_audio", refuse)
    visit = visitor()
    steps(visit, Wish(2.0, 2, seed=7))
    shelf = Shelf()
    path, told = write_all(shelf, visit.shown)
    assert [name[-4:] for name in names_in(str(path))] == [".mid", ".png"] * 2
    assert told == [
        "The archive holds MIDI and pictures only. The SoundFont is no longer there; put it back."
    ]
