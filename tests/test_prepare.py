"""A folder of MIDI files becomes a tokens folder: the same bytes each time, nothing in silence."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep import encode
from data_prep.cache import Cache
from data_prep.collect import MidiFile, collect
from data_prep.prepare import prepare
from music_gpt.config.preparing import MidiLimits, PrepareConfig
from music_gpt.errors import InputError
from music_gpt.files import locked
from music_gpt.midi.piece import midi_bytes, read_piece, write_midi
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.events import EOS, encode_notes

HERE = PrepareConfig(workers=1)
"""No further processes: they would cost a second for each test."""


def music(seed: int, n_notes: int = 120) -> Notes:
    rng = np.random.default_rng(seed)
    notes = np.zeros(n_notes, dtype=NOTE_DTYPE)
    notes["start"] = np.cumsum(rng.uniform(0.1, 0.4, n_notes))
    notes["end"] = notes["start"] + 0.2
    notes["pitch"] = 60 + rng.integers(-12, 13, n_notes)
    notes["velocity"] = rng.integers(30, 100, n_notes)
    return notes


def changed(notes: Notes, *, semitones: int = 0, stretch: float = 1.0) -> Notes:
    copy = notes.copy()
    copy["pitch"] = copy["pitch"].astype(int) + semitones
    copy["start"] *= stretch
    copy["end"] *= stretch
    return copy


def write_folder(folder: Path, seeds: range) -> Path:
    for seed in seeds:
        path = folder / f"{'ab'[seed % 2]}" / f"piece {seed:02d}.mid"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_midi(music(seed), path)
    return folder


def run(midi: Path, out: Path, config: PrepareConfig = HERE) -> dict[str, Any]:
    return prepare(midi, out, config, progress=False)


def content(out: Path) -> dict[str, bytes]:
    """All that prepare promises to be the same, which is all but the cache."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def split_of(out: Path) -> dict[str, str]:
    corpus = Corpus.open(out)
    return {name: split for split in corpus.splits for name in corpus.split(split).names}


@pytest.fixture
def midi(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "midi", range(12))


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


@pytest.mark.parametrize(
    "name", ["/a/piece 00.mid", "../a/piece 00.mid", "C:\\a\\piece 00.mid", "\0", "", "a" * 9999]
)
def test_a_table_that_names_files_elsewhere_does_no_harm(
    midi: Path, tmp_path: Path, name: str
) -> None:
    table = f"split,midi_filename\ntest,{name}\ntest,a/../b/piece 01.mid\n"
    (midi / "maestro-v9.csv").write_text(table)
    run(midi, tmp_path / "out", PrepareConfig(workers=1, validation=0, test=0))
    assert [file for file, split in split_of(tmp_path / "out").items() if split == "test"] == [
        "b/piece 01.mid"
    ]


def test_a_table_in_a_folder_tells_of_the_files_there(tmp_path: Path) -> None:
    write_folder(tmp_path / "midi" / "below", range(4))
    table = tmp_path / "midi" / "below" / "maestro-v9.csv"
    table.write_text("split,midi_filename\ntest,b/piece 01.mid\n")
    run(tmp_path / "midi", tmp_path / "out", PrepareConfig(workers=1, validation=0, test=0))
    assert split_of(tmp_path / "out")["below/b/piece 01.mid"] == "test"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
@pytest.mark.parametrize("which", ["maestro", "split_by", "sources"])
@pytest.mark.parametrize("what", ["pipe", "device", "sparse"])
def test_a_list_that_never_ends_is_not_waited_for(
    midi: Path, tmp_path: Path, which: str, what: str
) -> None:
    table = midi / "maestro-v9.csv" if which == "maestro" else tmp_path / "list"
    if what == "pipe":
        os.mkfifo(table)
    elif what == "device":
        table.symlink_to("/dev/zero")
    else:
        with table.open("wb") as file:
            file.truncate(6 << 30)
    knobs = {} if which == "maestro" else {which: str(table)}
    with pytest.raises(InputError, match=f"{table} cannot be read: it .*; give a UTF-8 text"):
        run(midi, tmp_path / "out", PrepareConfig(workers=1, **knobs))


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


def test_maestros_own_split_is_kept(midi: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(midi).as_posix() for path in midi.rglob("*.mid"))
    wanted = {name: ("train", "validation", "test")[i % 3] for i, name in enumerate(names)}
    lines = [f'Franz Liszt,"A title, with comma",{s},2018,{n}' for n, s in wanted.items()]
    header = "canonical_composer,canonical_title,split,year,midi_filename"
    (midi / "maestro-v9.csv").write_text("\n".join([header, *lines]) + "\n")
    run(midi, tmp_path / "out")
    assert split_of(tmp_path / "out") == wanted
    card = Corpus.open(tmp_path / "out").card
    assert list(card["licences"]) == ["CC BY-NC-SA 4.0"]
    assert card["sources"]["maestro-v9"]["pieces"] == 12


def test_a_list_of_ones_own_fixes_the_split_of_a_composition(midi: Path, tmp_path: Path) -> None:
    write_midi(changed(music(0), semitones=2), midi / "copy.mid")
    (tmp_path / "mine.csv").write_text("path,split\na/piece 00.mid,val\n")
    config = PrepareConfig(workers=1, test=0, validation=0, split_by=str(tmp_path / "mine.csv"))
    run(midi, tmp_path / "out", config)
    splits = split_of(tmp_path / "out")
    assert splits.pop("a/piece 00.mid") == splits.pop("copy.mid") == "validation"
    assert set(splits.values()) == {"train"}


def test_rows_that_name_no_file_are_told(midi: Path, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("path,split\n./a/piece 00.mid,val\nA/piece 02.mid,test\n")
    report = run(midi, tmp_path / "out", PrepareConfig(workers=1, split_by=str(table)))
    assert split_of(tmp_path / "out")["a/piece 00.mid"] == "validation"
    [sentence] = report["stray_rows"]
    assert sentence.startswith(f"1 of 2 rows of {table} name no file here: 'A/piece 02.mid'")
    assert "A/piece 02.mid" in (tmp_path / "out" / "report.html").read_text()


def test_a_list_of_sources_is_copied_to_each_piece_and_summed(midi: Path, tmp_path: Path) -> None:
    table = tmp_path / "sources.tsv"
    table.write_text(
        "# path\tsource\tlicence\ttier\tkind\n"
        "a/piece 00.mid\tmutopia\tPublic Domain\tA\tscore\n"
        "a/piece 02.mid\tmutopia\tCC0\tA\tscore\n"
    )
    run(midi, tmp_path / "out", PrepareConfig(workers=1, sources=str(table)))
    corpus = Corpus.open(tmp_path / "out")
    records = [record for name in corpus.splits for record in corpus.split(name).records]
    of = {record["file"]: record for record in records}
    assert of["a/piece 02.mid"]["licence"] == "CC0"
    assert of["a/piece 02.mid"]["kind"] == "score"
    assert of["b/piece 01.mid"]["source"] == ""
    mutopia = corpus.card["sources"]["mutopia"]
    assert (mutopia["pieces"], mutopia["licences"]) == (2, ["CC0", "Public Domain"])


def test_rows_of_maestros_own_that_contradict_each_other_are_refused(
    midi: Path, tmp_path: Path
) -> None:
    rows = ["split,midi_filename", "test,a/piece 00.mid", "test,./a/piece 00.mid"]
    (midi / "maestro-v9.csv").write_text("\n".join(rows))
    run(midi, tmp_path / "out")
    assert split_of(tmp_path / "out")["a/piece 00.mid"] == "test"
    (midi / "maestro-v9.csv").write_text("\n".join([*rows, "train,a/piece 00.mid"]))
    with pytest.raises(InputError, match="maestro-v9.csv tells two things of .*leave one"):
        run(midi, tmp_path / "out")


def test_rows_on_sources_that_contradict_each_other_are_refused(midi: Path, tmp_path: Path) -> None:
    table = tmp_path / "sources.tsv"
    table.write_text("path\tlicence\na/piece 00.mid\tCC0\na/piece 00.mid\tGPL\n")
    with pytest.raises(InputError, match="two things of 'a/piece 00.mid', 'CC0' and 'GPL'"):
        run(midi, tmp_path / "out", PrepareConfig(workers=1, sources=str(table)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,split\n", "no column 'path'"),
        ("path,split\na/piece 00.mid,best\n", "says split 'best'"),
        ("path,split\na/piece 00.mid\n", "says split ''"),
        ('path,split\n"abc', "is no table .* in line 2"),
        ("path,split,split\na/piece 00.mid,test,train\n", "two columns 'split'"),
        (
            "path,split\na/piece 00.mid,test\na/piece 00.mid,train\n",
            "two things of .*, 'test' and 'train'",
        ),
        ("path,split\nmidi/a/piece 00.mid,test\n", "No row of the list .* names a MIDI file"),
        (f"path,split\n{'a' * 200_000},train\n", "is no table"),
    ],
    ids=range(8),
)
def test_a_list_that_cannot_be_used_is_refused(
    text: str, said: str, midi: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        run(midi, tmp_path / "out", PrepareConfig(split_by=str(tmp_path / "mine.csv")))
    with pytest.raises(InputError, match="cannot be read"):
        run(midi, tmp_path / "out", PrepareConfig(split_by=str(tmp_path / "nowhere.csv")))


def test_a_folder_with_too_long_a_name_is_refused(midi: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        run(midi, tmp_path / ("b" * 300), PrepareConfig())


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


def test_a_folder_without_midi_files_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no readable MIDI file"):
        run(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(InputError, match="no folder"):
        run(tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "empty" / "x.mid").write_bytes(b"no music")
    with pytest.raises(InputError, match=r"No piece .*1 unreadable.*x\.mid"):
        run(tmp_path / "empty", tmp_path / "out")


def test_progress_is_shown_on_stderr(
    midi: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(midi, tmp_path / "out", HERE)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[0] for line in err.splitlines()] == ["looking", "reading", "writing"]
    assert "12/12 files" in err
