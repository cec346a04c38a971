"""What a piece shares with the training pieces: planted runs are found and counted."""

from __future__ import annotations

import io
import os
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from small import melody, run_config

import music_gpt.tokens.originality as module
from data_prep.prepare import prepare
from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError
from music_gpt.midi.piece import make_notes, write_midi
from music_gpt.notes import Notes
from music_gpt.tokens.corpus import Corpus, CorpusWriter
from music_gpt.tokens.events import encode_notes
from music_gpt.tokens.originality import (
    CERTAIN_NOTES,
    FIGURE_INTERVALS,
    FIGURE_STEP,
    INDEX_FILE,
    IndexWriter,
    OriginalityIndex,
    copy_index,
    originality,
    shared_run,
)

NOTES_A_PIECE = 300


def steady(pitches: list[int], seconds: float = 0.25) -> Notes:
    """One note after the other."""
    return make_notes((i * seconds, (i + 0.9) * seconds, p, 64) for i, p in enumerate(pitches))


def wandering(seed: int, n: int, sizes: tuple[int, ...] = (-7, -5, -2, 1, 3, 4, 8)) -> list[int]:
    """Pitches whose intervals are drawn from `sizes`, turned back at the edges."""
    rng, pitches = np.random.default_rng(seed), [60]
    while len(pitches) < n:
        step = int(rng.choice(sizes))
        pitches.append(pitches[-1] + (step if 30 < pitches[-1] + step < 95 else -step))
    return pitches


TRAINING = [steady(wandering(seed, NOTES_A_PIECE)) for seed in range(4)]


def folder_of(folder: Path, pieces: list[Notes]) -> Path:
    """A tokens folder with these training pieces, a.mid, b.mid and so on, and their index."""
    with (
        CorpusWriter(folder) as writer,
        IndexWriter(writer.another_file(INDEX_FILE)) as index,
    ):
        for name, notes in zip("abcdefgh", pieces, strict=False):
            ids = encode_notes(notes, eos=True)
            seconds = float(notes["end"].max())
            record = {"file": f"{name}.mid", "notes": len(notes), "seconds": seconds}
            writer.add("train", ids, record)
            index.add(ids, f"{name}.mid")
        index.finish()
        writer.finish({}, tokenizer="{}")
    return folder


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("likeness") / "tokens", TRAINING)


@pytest.fixture(scope="module")
def index(tokens: Path) -> OriginalityIndex:
    return OriginalityIndex.open(tokens)


@pytest.fixture(scope="module")
def alone(tokens: Path) -> OriginalityIndex:
    return OriginalityIndex.open(tokens / INDEX_FILE)


def planted(begin: int, n: int, *, semitones: int = 0, seed: int = 90) -> Notes:
    """40 notes of its own, `n` notes of the third training piece from `begin` on, and 40 more.

    The intervals at the seams are such as no training piece has.
    """
    own = wandering(seed, 78, sizes=(-6, -1, 2, 6))
    borrowed = [p + semitones for p in wandering(2, NOTES_A_PIECE)[begin : begin + n]]
    row = [*own[:39], borrowed[0] - 6, *borrowed, borrowed[-1] + 6, *own[39:]]
    return steady(row, 0.2)


def test_a_borrowed_passage_is_found_whatever_its_key_and_tempo(index: OriginalityIndex) -> None:
    run = originality(planted(100, 50, semitones=-4), index)
    assert run is not None
    assert (run.notes, run.different_notes, run.exact) == (50, 50, True)
    assert run.at_seconds == pytest.approx(40 * 0.2)
    assert run.seconds == pytest.approx(49 * 0.2)
    assert (run.source, run.source_seconds) == ("c.mid", pytest.approx(100 * 0.25))


def test_the_time_of_a_run_is_that_of_the_file_with_its_silence(index: OriginalityIndex) -> None:
    notes = planted(100, 50)
    notes["start"] += 3.5
    notes["end"] += 3.5
    run = originality(notes, index)
    assert run is not None
    assert run.at_seconds == pytest.approx(3.5 + 40 * 0.2)


@pytest.mark.parametrize("begin", range(60, 60 + FIGURE_STEP))
def test_no_run_of_the_certain_length_is_missed(
    index: OriginalityIndex, alone: OriginalityIndex, begin: int
) -> None:
    counted, told = (originality(planted(begin, CERTAIN_NOTES), ix) for ix in (index, alone))
    assert counted is not None
    assert told is not None
    assert counted.notes == CERTAIN_NOTES
    assert (counted.source, told.source) == ("c.mid", "c.mid")
    assert not told.exact
    assert CERTAIN_NOTES - 2 * (FIGURE_STEP - 1) <= told.notes <= CERTAIN_NOTES


@pytest.mark.parametrize("n", [30, 61, 144])
def test_the_index_alone_leaves_out_no_more_than_a_step_at_each_end(
    alone: OriginalityIndex, n: int
) -> None:
    run = originality(planted(77, n), alone)
    assert run is not None
    assert n - 2 * (FIGURE_STEP - 1) <= run.notes <= n
    behind = run.at_seconds / 0.2 - 40  # notes of the run that come before
    assert 0 <= behind < FIGURE_STEP
    assert run.source_seconds == pytest.approx((77 + behind) * 0.25)


def plain_longest(row: list[int], others: list[list[int]]) -> int:
    """Most notes of a common run where figures count once; by comparing everything with all."""
    best = 0
    steps = np.diff(row).tolist()
    for other in others:
        theirs = np.diff(other).tolist()
        for i in range(len(steps)):
            for j in range(len(theirs)):
                n = 0
                while i + n < len(steps) and j + n < len(theirs) and steps[i + n] == theirs[j + n]:
                    n += 1
                figures = {
                    tuple(steps[k : k + FIGURE_INTERVALS])
                    for k in range(i, i + n - FIGURE_INTERVALS + 1)
                }
                if figures:
                    best = max(best, len(figures) + FIGURE_INTERVALS)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_longest_run_is_that_of_a_plain_comparison(tmp_path: Path, seed: int) -> None:
    # two intervals only: many runs, many repetitions
    rows = [wandering(10 * seed + i, 120, sizes=(2, -2)) for i in range(3)]
    index = OriginalityIndex.open(folder_of(tmp_path / "t", [steady(r) for r in rows]))
    row = [*wandering(10 * seed + 5, 40, sizes=(2, -2)), *(p + 1 for p in rows[1][30:70])]
    run = originality(steady(row), index)
    assert run is not None
    assert run.different_notes == plain_longest(row, rows) >= CERTAIN_NOTES


def test_a_trill_counts_once_however_long_it_is(tmp_path: Path) -> None:
    trill = [60, 62] * 60
    index = OriginalityIndex.open(folder_of(tmp_path / "t", [steady(trill)]))
    run = originality(steady([p + 5 for p in trill]), index)
    assert run is not None
    assert run.notes == len(trill)
    assert run.different_notes == FIGURE_INTERVALS + 2


def test_figures_that_are_everybodys_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = OriginalityIndex.open(folder_of(tmp_path / "t", [steady([60, 62] * 60)]))
    monkeypatch.setattr(module, "COMMON_FIGURE", 2)
    assert originality(steady([60, 62] * 30), index) is None


def test_chords_that_are_struck_in_another_order_are_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    chords = [np.sort(rng.choice(np.arange(40, 90), 3, replace=False)) for _ in range(30)]

    def played(seed: int) -> Notes:
        offsets = np.random.default_rng(seed)
        return make_notes(
            (0.5 * i + 0.01 * late, 0.5 * i + 0.4, int(pitch), 70)
            for i, chord in enumerate(chords)
            for pitch, late in zip(chord, offsets.permutation(3), strict=True)
        )

    index = OriginalityIndex.open(folder_of(tmp_path / "t", [played(1)]))
    run = originality(played(2), index)
    assert run is not None
    assert run.notes == 90


def test_what_has_nothing_in_common_has_no_run(index: OriginalityIndex) -> None:
    assert originality(steady(wandering(91, 200, sizes=(-6, -1, 2, 6))), index) is None
    assert originality(steady([60, 64, 67]), index) is None
    assert index.longest_run(make_notes([])) is None


def test_a_file_is_compared_with_the_index_beside_a_checkpoint(
    tokens: Path, tmp_path: Path
) -> None:
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    copy_index(tokens, run_folder)
    write_midi(planted(100, 60), tmp_path / "take.mid")
    run = originality(tmp_path / "take.mid", run_folder)
    assert run is not None
    assert run.source == "c.mid"
    assert not run.exact
    copy_index(tmp_path, run_folder)  # a corpus of an older version has none: nothing happens
    assert (run_folder / INDEX_FILE).read_bytes() == (tokens / INDEX_FILE).read_bytes()


def test_training_lays_the_index_beside_the_checkpoint(tokens: Path, tmp_path: Path) -> None:
    from music_gpt.training.run import train  # takes a second

    train(tokens, tmp_path / "run", run_config(max_steps=1))
    written = (tmp_path / "run" / INDEX_FILE).read_bytes()
    assert written == (tokens / INDEX_FILE).read_bytes()


# --- files ------------------------------------------------------------------------------------


def test_the_index_takes_seven_bytes_for_twelve_notes(tokens: Path) -> None:
    figures = (NOTES_A_PIECE - FIGURE_INTERVALS + FIGURE_STEP - 1) // FIGURE_STEP * len(TRAINING)
    assert (tokens / INDEX_FILE).stat().st_size < 7 * figures + 2000


def test_preparing_writes_the_same_index_again(tmp_path: Path) -> None:
    midi, out = tmp_path / "midi", tmp_path / "tokens"
    midi.mkdir()
    for name, notes in zip("abcd", TRAINING, strict=True):
        write_midi(notes, midi / f"{name}.mid")
    config = PrepareConfig(workers=1, validation=0.25, test=0.0)
    prepare(midi, out, config, progress=False)
    written = (out / INDEX_FILE).read_bytes()
    assert INDEX_FILE in Corpus.open(out).card["files"]
    Corpus.open(out).verify()
    (out / INDEX_FILE).write_bytes(bytes([*written[:-1], written[-1] ^ 1]))
    with pytest.raises(InputError, match="originality.npz .* is not what was written"):
        Corpus.open(out).verify()
    prepare(midi, out, config, progress=False)
    assert (out / INDEX_FILE).read_bytes() == written
    train = Corpus.open(out).split("train")
    for name, notes in zip("abcd", TRAINING, strict=True):
        run = originality(notes, out)
        assert (run is not None and run.notes == NOTES_A_PIECE) == (f"{name}.mid" in train.names)


def test_many_pieces_are_hashed_as_few_are(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 30)
    again = folder_of(tmp_path / "t", TRAINING)
    assert (again / INDEX_FILE).read_bytes() == (tokens / INDEX_FILE).read_bytes()


def test_pieces_shorter_than_a_figure_leave_the_others_where_they_are(tmp_path: Path) -> None:
    pieces = [steady([60]), TRAINING[0], steady([60, 62]), TRAINING[2]]
    index = OriginalityIndex.open(folder_of(tmp_path / "t", pieces) / INDEX_FILE)
    run = originality(planted(100, 60), index)
    assert run is not None
    assert run.source == "d.mid"


def test_a_folder_without_an_index_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no index.*music-gpt prepare"):
        OriginalityIndex.open(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "text", "form", "pieces"])
def test_a_damaged_index_is_told_in_a_sentence(tokens: Path, tmp_path: Path, damage: str) -> None:
    file = tmp_path / INDEX_FILE
    whole = (tokens / INDEX_FILE).read_bytes()
    with np.load(tokens / INDEX_FILE) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    if damage == "cut":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "text":
        file.write_text("music")
    else:
        held["form"] = held["form"] + (damage == "form")
        held["counts"] = held["counts"][: len(held["counts"]) - (damage == "pieces")]
        np.savez(file, **held)
    with pytest.raises(InputError, match="no index of this version, or is damaged"):
        OriginalityIndex.open(file)


@pytest.mark.parametrize("kind", ["packed", "sparse", "claims"])
def test_an_index_that_would_fill_the_memory_is_refused_before_it_does(
    tokens: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / INDEX_FILE
    with np.load(tokens / INDEX_FILE) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    if kind == "packed":
        held["names"] = np.zeros(50_000_000, np.uint8)
        np.savez_compressed(file, **held)
        assert file.stat().st_size < 1_000_000
    elif kind == "sparse":
        file.write_bytes((tokens / INDEX_FILE).read_bytes())
        os.truncate(file, 1 << 40)
    else:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in held.items():
                data = io.BytesIO()
                np.save(data, array)
                row = f"({len(array)},".encode()
                claims = (
                    data.getvalue()
                    .replace(row, f"({10**12},".encode())
                    .replace(b" " * 12 + b"\n", b"\n", 1)
                )
                archive.writestr(f"{name}.npy", claims)
    tracemalloc.start()
    with pytest.raises(InputError, match="no index of this version, or is damaged"):
        OriginalityIndex.open(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
def test_a_pipe_in_place_of_an_index_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / INDEX_FILE)
    with pytest.raises(InputError, match="no index of the training music"):
        OriginalityIndex.open(tmp_path)


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_a_name_that_nothing_has_is_told_in_a_sentence(name: str) -> None:
    with pytest.raises(InputError, match="no index of the training music"):
        OriginalityIndex.open(name)


def test_whatever_bytes_change_it_is_opened_or_told_in_a_sentence(
    tokens: Path, tmp_path: Path
) -> None:
    whole, rng = (tokens / INDEX_FILE).read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] = rng.integers(256)
        (tmp_path / INDEX_FILE).write_bytes(changed)
        try:
            OriginalityIndex.open(tmp_path / INDEX_FILE)
        except InputError:
            refused += 1
    assert refused > 100


def test_an_index_of_other_pieces_is_refused(tokens: Path, tmp_path: Path) -> None:
    other = folder_of(tmp_path / "t", TRAINING[:2])
    (other / INDEX_FILE).write_bytes((tokens / INDEX_FILE).read_bytes())
    with pytest.raises(InputError, match="not the index of the pieces beside it"):
        OriginalityIndex.open(other)


def test_random_music_shares_next_to_nothing(index: OriginalityIndex) -> None:
    assert all(originality(melody(seed, 200), index) is None for seed in range(5))


def test_an_index_of_no_pieces_is_an_index_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / INDEX_FILE) as writer:
        writer.finish()
    assert [path.name for path in tmp_path.iterdir()] == [INDEX_FILE]
    assert OriginalityIndex.open(tmp_path).longest_run(TRAINING[0]) is None


def test_an_index_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), IndexWriter(tmp_path / INDEX_FILE) as writer:
        writer.add(encode_notes(TRAINING[0], eos=True), "a.mid")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_the_run_that_two_pieces_share_is_counted_in_both() -> None:
    first, second = wandering(21, 200), wandering(22, 200)
    second[120:160] = [pitch + 2 for pitch in first[50:90]]
    one, other = (encode_notes(steady(pitches)) for pitches in (first, second))
    found = shared_run(one, other, "other.mid")
    assert found is not None
    assert 40 <= found.notes <= 42  # the interval before or after may be equal by chance
    assert found.source == "other.mid"
    assert found.at_seconds == pytest.approx(50 * 0.25, abs=0.26)
    assert found.source_seconds == pytest.approx(120 * 0.25, abs=0.26)
    assert found.exact
    assert shared_run(one, encode_notes(steady(wandering(23, 200))), "no.mid") is None
