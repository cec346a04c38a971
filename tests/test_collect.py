"""Which files of a folder are read: each one once, and every other one with the reason."""

from __future__ import annotations

import errno
import gzip
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from midi_folders import changed, music, run, split_of

from data_prep.collect import collect
from music_gpt.config.preparing import MidiLimits, PrepareConfig
from music_gpt.errors import InputError
from music_gpt.midi.piece import midi_bytes, write_midi


def test_what_is_no_music_is_named_with_its_reason(midi: Path, tmp_path: Path) -> None:
    (midi / "noise.mid").write_bytes(b"\xff\xfe" * 50)
    (midi / "empty.MIDI").write_bytes(b"")
    (midi / "._piece 00.mid").write_bytes(b"Mac OS X")
    (midi / "folder.mid").mkdir()
    (midi / "z copy.mid").write_bytes((midi / "a" / "piece 00.mid").read_bytes())
    write_midi(music(0), midi / "z same events.mid", text="another text")
    packed = gzip.compress((midi / "a" / "piece 02.mid").read_bytes())
    (midi / "z packed.mid").write_bytes(packed)
    with (midi / "huge.mid").open("wb") as file:
        file.truncate(MidiLimits().max_bytes + 1)
    write_midi(music(50, 10), midi / "few.mid")
    write_midi(changed(music(51), stretch=0.1), midi / "short.mid")
    one_key = music(52)
    one_key["pitch"] = 60
    write_midi(one_key, midi / "one key.mid")
    write_midi(changed(music(53, 2000), stretch=0.02), midi / "dense.mid")
    low = music(54)
    low["pitch"][::5] = 12
    write_midi(low, midi / "low.mid")
    (midi / "notes.txt").write_text("a text")
    report = run(midi, tmp_path / "out")
    kinds = {left["name"]: left["kind"] for left in report["left_out"]}
    assert kinds == {
        "noise.mid": "unreadable",
        "empty.MIDI": "unreadable",
        "._piece 00.mid": "hidden",
        "folder.mid": "not a file",
        "z copy.mid": "double",
        "z same events.mid": "double",
        "z packed.mid": "double",
        "huge.mid": "unreadable",
        "few.mid": "too few notes",
        "short.mid": "too short",
        "one key.mid": "too few pitches",
        "dense.mid": "too dense",
        "low.mid": "out of range",
    }
    assert all(left["reason"].endswith(".") for left in report["left_out"])
    assert report["left_out_counts"]["double"] == 3
    assert report["other_files"] == {".txt": 1}
    assert (report["midi_files"], report["pieces"]) == (25, 12)
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {**written, "seconds_taken": report["seconds_taken"]} == report


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
def test_what_is_no_regular_file_is_named_and_not_even_opened(
    midi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(midi / "pipe.mid")
    (midi / "device.mid").symlink_to("/dev/zero")
    (midi / "itself.mid").symlink_to(midi / "itself.mid")
    monkeypatch.chdir(midi)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.mid")
    report = run(midi, tmp_path / "out")
    assert {left["name"]: (left["kind"], left["reason"]) for left in report["left_out"]} == {
        **{
            f"{name}.mid": ("not a file", "It is not a regular file.")
            for name in ("pipe", "device", "socket")
        },
        "itself.mid": ("unreadable", "It cannot be opened (Too many levels of symbolic links)."),
    }


def test_a_file_that_is_too_large_is_not_read_for_its_checksum(
    midi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (midi / "huge.mid").open("wb") as file:
        file.truncate(6 << 30)  # it takes no room on the disk
    opened = []
    original = os.open

    def noted(path: str, *args: Any, **how: Any) -> int:
        opened.append(Path(path).name)
        return original(path, *args, **how)

    monkeypatch.setattr(os, "open", noted)
    [left] = collect(midi).left_out
    assert (left.kind, left.reason) == (
        "unreadable",
        "It cannot be opened (it has more than the 10,000,000 bytes that are allowed).",
    )
    assert len(set(opened)) == 12
    assert "huge.mid" not in opened


def test_files_that_may_not_be_looked_at_are_named_with_the_reason(
    midi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied")
    original_stat, original_open = os.stat, os.open

    def stat(path: Any, *args: Any, **how: Any) -> os.stat_result:
        if str(path).endswith("piece 00.mid"):  # its folder may not be entered
            raise refused
        return original_stat(path, *args, **how)

    def open_(path: Any, *args: Any, **how: Any) -> int:
        if str(path).endswith("piece 01.mid"):
            raise refused
        return original_open(path, *args, **how)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "open", open_)
    report = run(midi, tmp_path / "out")
    assert [tuple(left.values()) for left in report["left_out"]] == [
        ("a/piece 00.mid", "unreadable", "It cannot be opened (Permission denied)."),
        ("b/piece 01.mid", "unreadable", "It cannot be opened (Permission denied)."),
    ]


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "x/" * 3000], ids=["long", "zero", "deep"])
def test_a_name_that_nothing_can_have_is_told_in_a_sentence(
    midi: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        run(tmp_path / name, tmp_path / "out")
    with pytest.raises(InputError, match="give"):
        run(midi, tmp_path / name)
    with pytest.raises(InputError, match="list.* cannot be read: .*; give a UTF-8 text"):
        run(midi, tmp_path / "out", PrepareConfig(split_by=f"{tmp_path}/list{name}"))


def test_a_link_that_leads_back_is_followed_once(midi: Path, tmp_path: Path) -> None:
    (midi / "a" / "up").symlink_to(midi, target_is_directory=True)
    (midi / "gone.mid").symlink_to(tmp_path / "nowhere")
    report = run(midi, tmp_path / "out")
    assert report["pieces"] == 12
    assert [left["name"] for left in report["left_out"]] == ["gone.mid"]


def test_a_name_that_is_not_text_is_written_out(midi: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.mid")
    try:
        (midi / odd).write_bytes(midi_bytes(music(70)))
    except OSError:
        pytest.skip("this file system takes no such name")
    run(midi, tmp_path / "out")
    assert "caf\\xe9.mid" in split_of(tmp_path / "out")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="such a name cannot be given here")
def test_names_that_would_act_on_a_terminal_are_written_out_and_stay_apart(
    midi: Path, tmp_path: Path
) -> None:
    odd = {os.fsdecode(b"\xff.mid"): "test", r"\xff.mid": "validation", "\x1b[2J\n.mid": "test"}
    for seed, name in enumerate(odd):
        (midi / name).write_bytes(midi_bytes(music(70 + seed)))
    (midi / os.fsdecode(b"a.\xfe")).touch()
    table = tmp_path / "mine.csv"
    table.write_text('path,split\n\\xff.mid,test\n\\\\xff.mid,validation\n"\x1b[2J\n.mid",test\n')
    report = run(midi, tmp_path / "out", PrepareConfig(workers=1, split_by=str(table)))
    splits = split_of(tmp_path / "out")
    wanted = {"\\xff.mid": "test", "\\\\xff.mid": "validation", "\\x1b[2J\\x0a.mid": "test"}
    assert {name: splits[name] for name in splits if "\\" in name} == wanted
    assert (report["stray_rows"], report["other_files"]) == ([], {".\\xfe": 1})


def test_a_folder_without_midi_files_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no readable MIDI file"):
        run(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(InputError, match="no folder"):
        run(tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "empty" / "x.mid").write_bytes(b"no music")
    with pytest.raises(InputError, match=r"No piece .*1 unreadable.*x\.mid"):
        run(tmp_path / "empty", tmp_path / "out")
