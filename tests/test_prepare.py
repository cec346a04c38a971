"""A folder of MIDI files becomes a tokens folder: the same bytes each time, nothing in silence."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from midi_folders import HERE, changed, music, run, split_of, write_folder

from data_prep import encode
from data_prep.cache import Cache
from data_prep.collect import MidiFile, collect
from data_prep.prepare import prepare
from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError
from music_gpt.files import locked
from music_gpt.midi.piece import read_piece, write_midi
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.events import EOS, encode_notes


def content(out: Path) -> dict[str, bytes]:
    """All that prepare promises to be the same, which is all but the cache."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_every_piece_is_on_disk_with_all_of_its_events(midi: Path, tmp_path: Path) -> None:
    run(midi, tmp_path / "out")
    corpus = Corpus.open(tmp_path / "out")
    corpus.verify()
    seen = 0
    for name in corpus.splits:
        split = corpus.split(name)
        for i, file in enumerate(split.names):
            notes = read_piece(midi / file).sounding_notes
            expected = encode_notes(notes, max_gap_seconds=HERE.max_gap_seconds, eos=True)
            assert split.piece(i).tolist() == expected.tolist()
            assert split.piece(i)[0] == split.piece(i)[-1] == EOS
            assert split.notes[i] == len(notes)
            seen += 1
    assert seen == 12


def test_the_same_folder_gives_the_same_bytes(midi: Path, tmp_path: Path) -> None:
    run(midi, tmp_path / "one")
    run(midi, tmp_path / "two")
    run(midi, tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_several_processes_give_the_bytes_of_one(tmp_path: Path) -> None:
    midi = write_folder(tmp_path / "midi", range(50))
    run(midi, tmp_path / "one")
    run(midi, tmp_path / "two", PrepareConfig(workers=2))
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_grown_folder_reads_only_what_is_new(
    midi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(midi, tmp_path / "grown")
    write_folder(midi, range(14))
    (midi / "a" / "piece 00.mid").rename(midi / "renamed.MID")
    (midi / "b" / "piece 01.mid").unlink()
    read: list[str] = []
    original = encode.encode_file

    def noted(file: MidiFile, max_gap_seconds: float) -> Any:
        read.append(file.name)
        return original(file, max_gap_seconds)

    monkeypatch.setattr(encode, "encode_file", noted)
    run(midi, tmp_path / "grown")
    assert read == ["a/piece 12.mid", "b/piece 13.mid"]
    run(midi, tmp_path / "fresh")
    assert content(tmp_path / "grown") == content(tmp_path / "fresh")


def test_other_settings_do_not_use_what_was_read_before(midi: Path, tmp_path: Path) -> None:
    notes = music(99)
    notes["start"][60:] += 8
    notes["end"][60:] += 8
    write_midi(notes, midi / "with a gap.mid")
    run(midi, tmp_path / "out")
    run(midi, tmp_path / "out", PrepareConfig(workers=1, max_gap_seconds=2.0))
    run(midi, tmp_path / "fresh", PrepareConfig(workers=1, max_gap_seconds=2.0))
    assert content(tmp_path / "out") == content(tmp_path / "fresh")
    assert len(list((tmp_path / "out" / ".music-gpt-cache").iterdir())) == 1


def test_ctrl_c_keeps_what_was_read_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    midi = write_folder(tmp_path / "midi", range(20))
    original = Cache._learn
    calls = 0

    def interrupted(self: Cache, chunk: Path, **how: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        return original(self, chunk, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Cache, "_learn", interrupted)
        with pytest.raises(KeyboardInterrupt, match="Stopped after 16 of 20 files .* goes on"):
            run(midi, tmp_path / "out")
    with pytest.raises(InputError, match="no finished corpus"):
        Corpus.open(tmp_path / "out")
    run(midi, tmp_path / "out")
    run(midi, tmp_path / "fresh")
    assert content(tmp_path / "out") == content(tmp_path / "fresh")


SCRIPT = """
import sys
from music_gpt.files import locked
from data_prep.prepare import prepare
from music_gpt.config.preparing import PrepareConfig
if __name__ == "__main__":
    try:
        prepare(sys.argv[1], sys.argv[2], PrepareConfig(workers=2), progress=False)
    except KeyboardInterrupt as stopped:
        sys.exit(str(stopped))
"""


def begin(
    script: Path, midi: Path, out: Path, until: Callable[[Path], bool]
) -> subprocess.Popen[str]:
    """Start prepare in a process of its own, and wait until the folder looks as it is to."""
    script.write_text(SCRIPT)
    root = Path(__file__).resolve().parents[1]
    process = subprocess.Popen(
        [sys.executable, str(script), str(midi), str(out)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not until(out) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return process


def stored(n_chunks: int) -> Callable[[Path], bool]:
    return lambda out: len(list(out.glob(".music-gpt-cache/*/*.npz"))) >= n_chunks


def writes(out: Path) -> bool:
    return (out / ".music-gpt-writing").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
@pytest.mark.parametrize(
    ("how", "until"),
    [
        (signal.SIGKILL, stored(1)),
        (signal.SIGKILL, stored(8)),
        (signal.SIGKILL, writes),
        (signal.SIGINT, stored(1)),
    ],
    ids=["killed at once", "killed half way", "killed while it writes", "Ctrl-C"],
)
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(
    how: int, until: Callable[[Path], bool], tmp_path: Path
) -> None:
    midi = write_folder(tmp_path / "midi", range(200))
    out = tmp_path / "out"
    process = begin(tmp_path / "script.py", midi, out, until)
    os.kill(process.pid, how)
    _, said = process.communicate(timeout=60)
    if how == signal.SIGINT and process.returncode:  # it was not faster than the signal
        assert "kept, and the same command goes on from there" in said
        assert "Traceback" not in said
    assert len(list(out.glob(".music-gpt-cache/*/*.npz"))) > 0
    run(midi, out)
    run(midi, tmp_path / "fresh")
    assert content(out) == content(tmp_path / "fresh")


def test_a_folder_that_another_run_writes_to_is_left_alone(midi: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        locked(out, "prepare"),
        pytest.raises(InputError, match="Another .* is writing to .*out; wait"),
    ):
        run(midi, out)
    assert not (out / "corpus.json").exists()
    run(midi, out)  # the lock lies there still, and nobody holds it


def test_a_script_needs_no_guard_to_call_prepare(tmp_path: Path) -> None:
    midi = write_folder(tmp_path / "midi", range(50))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    root = Path(__file__).resolve().parents[1]
    subprocess.run(
        [sys.executable, str(script), str(midi), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
        timeout=60,
    )
    run(midi, tmp_path / "one")
    assert content(tmp_path / "out") == content(tmp_path / "one")


def test_scores_are_kept_unless_they_are_not_wanted(midi: Path, tmp_path: Path) -> None:
    flat = music(60)
    flat["velocity"] = 80
    write_midi(flat, midi / "flat.mid")
    strict = music(61)
    strict["start"] = np.arange(len(strict)) // 2 * 0.25
    strict["end"] = strict["start"] + 0.25
    write_midi(strict, midi / "strict.mid")
    assert run(midi, tmp_path / "out")["left_out"] == []
    config = PrepareConfig(workers=1, min_velocity_spread=3, max_regularity=0.9)
    report = run(midi, tmp_path / "out", config)
    assert [(left["name"], left["kind"], left["reason"]) for left in report["left_out"]] == [
        (
            "flat.mid",
            "flat velocity",
            "Its velocities vary by 0.0, less than 3 (min_velocity_spread).",
        ),
        (
            "strict.mid",
            "quantised",
            "Of its onsets 100% follow at machine-exact distances, more than 90% (max_regularity).",
        ),
    ]
    assert report["left_out_counts"] == {"flat velocity": 1, "quantised": 1}


def chunks_in(out: Path) -> list[Path]:
    return sorted(out.glob(".music-gpt-cache/*/*.npz"))


@pytest.mark.parametrize("place", [0.01, 0.2, 0.5, 0.8, 0.95, 0.999])
def test_a_damaged_chunk_is_thrown_away_and_its_files_are_read_anew(
    midi: Path, tmp_path: Path, place: float
) -> None:
    run(midi, tmp_path / "out")
    expected = content(tmp_path / "out")
    [chunk] = chunks_in(tmp_path / "out")
    whole = chunk.read_bytes()
    for at in range(int(place * len(whole)), len(whole), 1 + len(whole) // 3):
        chunk.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        run(midi, tmp_path / "out")
        assert content(tmp_path / "out") == expected


@pytest.mark.parametrize("damage", [lambda whole: whole[:-30], lambda whole: b"", lambda _: b"PK"])
def test_a_chunk_that_was_cut_is_read_anew(
    midi: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    run(midi, tmp_path / "out")
    expected = content(tmp_path / "out")
    [chunk] = chunks_in(tmp_path / "out")
    whole = chunk.read_bytes()
    chunk.write_bytes(damage(whole))
    run(midi, tmp_path / "out")
    assert content(tmp_path / "out") == expected
    assert chunk.read_bytes() == whole


def test_what_others_put_into_the_cache_stays_and_does_no_harm(midi: Path, tmp_path: Path) -> None:
    run(midi, tmp_path / "out")
    cache = tmp_path / "out" / ".music-gpt-cache"
    [ours] = cache.iterdir()
    other_setting = cache / ("0" * 16)
    foreign = [
        *(folder / name for folder in (cache, ours) for name in ("notes.txt", "a.npz", "b/c.npz")),
        *(ours / f"{digit * 24}.npz" / "x" for digit in "01"),
        other_setting / "notes.txt",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    leftover = [
        other_setting / f"{'a' * 24}.npz",
        ours / ".part-1-ab",
        cache / ("1" * 16) / ".part-1",
    ]
    leftover[-1].parent.mkdir()
    for path in leftover:
        path.write_text("ours")
    write_folder(midi, range(14))
    assert run(midi, tmp_path / "out")["pieces"] == 14
    assert {path.read_text() for path in foreign} == {"precious"}
    assert not any(path.exists() for path in [*leftover, leftover[-1].parent])


def test_a_chunk_that_is_damaged_while_it_is_used_is_told_in_a_sentence(
    midi: Path, tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache", 10.0)
    cache.encode(collect(midi).files, workers=1, progress=lambda what, done, total: None)
    [chunk] = cache.folder.iterdir()
    chunk.write_bytes(b"")
    with pytest.raises(InputError, match=r"npz is damaged or gone, .* run the same command again"):
        cache.ids(0)


def test_a_transposed_slower_and_renamed_copy_lands_in_the_same_split(tmp_path: Path) -> None:
    midi = write_folder(tmp_path / "midi", range(30))
    for seed in range(30):
        copy = changed(music(seed), semitones=(seed % 7) - 3, stretch=1.1)
        write_midi(copy[5:] if seed % 2 else copy[:-5], midi / f"other name {seed:02d}.midi")
    config = PrepareConfig(workers=1, validation=0.3, test=0.3)
    report = run(midi, tmp_path / "out", config)
    assert report["compositions"] == 30
    assert report["most_similar_across_splits"] == []
    splits = split_of(tmp_path / "out")
    assert len(splits) == 60
    for seed in range(30):
        original = f"{'ab'[seed % 2]}/piece {seed:02d}.mid"
        assert splits[original] == splits[f"other name {seed:02d}.midi"]
    assert set(splits.values()) == {"train", "validation", "test"}


def test_no_piece_is_in_two_splits(midi: Path, tmp_path: Path) -> None:
    run(midi, tmp_path / "out")
    lines = (tmp_path / "out" / "pieces.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len({record["file"] for record in records}) == len(records) == 12
    where: dict[str, str] = {}
    for record in records:
        assert where.setdefault(record["composition"], record["split"]) == record["split"]


def test_a_folder_with_too_long_a_name_is_refused(midi: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        run(midi, tmp_path / ("b" * 300), PrepareConfig())


def test_a_file_that_kills_its_process_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    midi = write_folder(tmp_path / "midi", range(50))
    deadly = midi / "a" / "deadly.mid"
    deadly.write_bytes(b"deadly")
    cache = Cache(tmp_path / "cache", 10.0)
    monkeypatch.setattr(cache, "_encode", _die_or_encode)
    monkeypatch.setenv("TEST_CACHE", str(cache.folder))
    files = collect(midi).files
    cache.encode(files, workers=2, progress=lambda what, done, total: None)
    rows = cache.rows(files.digests)
    problems = {files.name(i): cache.said(int(row))[0] for i, row in enumerate(rows)}
    assert problems.pop("a/deadly.mid") == encode.CRASHED
    assert len(problems) == 50
    assert set(problems.values()) == {""}


def _die_or_encode(files: list[MidiFile]) -> Path:
    if any(file.path.read_bytes() == b"deadly" for file in files):
        os._exit(1)
    return encode.encode_chunk(files, folder=Path(os.environ["TEST_CACHE"]), max_gap_seconds=10.0)


def test_a_place_that_cannot_be_written_is_said_in_a_sentence(midi: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="a file stands where a folder should be"):
        run(midi, file)
    with pytest.raises(InputError, match="cannot be written"):
        run(midi, file / "below")


def test_a_folder_with_other_things_is_not_written_into(midi: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train-00000.bin").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        run(midi, tmp_path / "mine")
    with pytest.raises(InputError, match="holds other files"):
        run(midi, midi)


@pytest.mark.parametrize("name", [".cache", ".writing", "last.ckpt", "log.csv", "notes.txt"])
def test_nothing_of_others_is_lost_in_a_tokens_folder(
    midi: Path, tmp_path: Path, name: str
) -> None:
    run(midi, tmp_path / "out")
    (tmp_path / "out" / name).mkdir()
    (tmp_path / "out" / name / "precious").write_text("precious")
    with pytest.raises(InputError, match=rf"holds other files \({re.escape(name)}\)"):
        run(midi, tmp_path / "out")
    assert (tmp_path / "out" / name / "precious").read_text() == "precious"


def test_progress_is_shown_on_stderr(
    midi: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(midi, tmp_path / "out", HERE)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[0] for line in err.splitlines()] == ["looking", "reading", "writing"]
    assert "12/12 files" in err
