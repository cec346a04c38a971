"""Pieces of one composition are found whatever their key, tempo and length, and stay together."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from data_prep import similar
from data_prep.fingerprint import FIGURES, TIMED_TURNS, TURNS, Fingerprints, fingerprints
from data_prep.similar import COMMON_HASH, Pairs, similar_pairs
from data_prep.split import (
    MIN_FIGURES,
    SAME_RECORDING,
    alike,
    assign_splits,
    composition_names,
    compositions,
    highest_across_splits,
)
from music_gpt.hashing import Hashes
from music_gpt.notes import NOTE_DTYPE, Notes


def music(seed: int, chords: int = 300) -> Notes:
    """A melody in random steps over a slower bass."""
    rng = np.random.default_rng(seed)
    notes = np.zeros(2 * chords, dtype=NOTE_DTYPE)
    start = np.cumsum(rng.uniform(0.1, 0.4, chords))
    notes["start"] = np.repeat(start, 2)
    notes["end"] = notes["start"] + 0.2
    notes["pitch"][0::2] = 45 + rng.integers(-8, 9, chords)
    notes["pitch"][1::2] = 72 + rng.integers(-10, 11, chords)
    notes["velocity"] = 64
    return np.sort(notes, order=["start", "pitch"])


def performed(
    notes: Notes, seed: int, *, slips: float = 0.02, apart_seconds: float = 0.03
) -> Notes:
    """As a pianist plays it: another tempo, chords not quite together, a few wrong notes."""
    rng = np.random.default_rng(seed)
    played = notes.copy()
    played["start"] = played["start"] * 1.2 + rng.uniform(0, apart_seconds, len(notes))
    wrong = rng.random(len(notes)) < slips
    played["pitch"][wrong] += 1
    return np.sort(played, order=["start", "pitch"])


def moved(notes: Notes, *, seconds: float = 0.0, keys: int = 0, tempo: float = 1.0) -> Notes:
    """In another key, in another tempo, beginning somewhere else."""
    copy = notes.copy()
    copy["start"] = (copy["start"] - notes["start"][0]) * tempo + seconds
    copy["end"] = copy["start"] + 0.2
    copy["pitch"] = copy["pitch"].astype(np.int64) + keys
    return copy


def one_after_the_other(*pieces: Notes) -> Notes:
    """A roll, with three seconds between its pieces."""
    roll = pieces[0]
    for piece in pieces[1:]:
        roll = np.concatenate([roll, moved(piece, seconds=float(roll["start"][-1]) + 3)])
    return roll


def spread(notes: Notes) -> Notes:
    """With each chord broken from low to high, as on a roll: no two notes are together."""
    broken = notes.copy()
    broken["start"][1::2] += 0.06
    return broken


def sizes(sketches: list[Hashes]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([len(sketch) for sketch in sketches], np.int64)


def compared(pieces: list[Notes], kind: str = "turns") -> Pairs:
    sketches = [getattr(fingerprints(piece), kind) for piece in pieces]
    sample = dict(zip(Fingerprints._fields, (TURNS, TIMED_TURNS, FIGURES), strict=True))[kind]
    return similar_pairs(sizes(sketches), sketches.__getitem__, sample=sample)


def recordings(pieces: list[Notes]) -> list[tuple[int, int]]:
    pairs = compared(pieces, "timed_turns")
    same = pairs.similarity >= SAME_RECORDING
    return list(zip(pairs.first[same].tolist(), pairs.second[same].tolist(), strict=True))


def groups(pieces: list[Notes]) -> list[int]:
    links = alike(*(compared(pieces, kind) for kind in Fingerprints._fields))
    return [int(group) for group in compositions(len(pieces), links)]


def test_a_transposed_and_slower_copy_has_the_same_turns_and_figures() -> None:
    notes = music(1)
    prints, of_copy = fingerprints(notes), fingerprints(moved(notes, keys=5, tempo=1.5))
    assert prints.turns.tolist() == of_copy.turns.tolist()
    assert prints.figures.tolist() == of_copy.figures.tolist()
    assert len(prints.turns) > 100
    assert len(prints.figures) > 100


def test_a_performance_belongs_to_its_score() -> None:
    assert groups([music(1), music(2), performed(music(1), 7)]) == [0, 1, 0]


def test_a_piece_with_cut_ends_belongs_to_the_whole_piece() -> None:
    assert groups([music(2), music(1, 4000), music(1, 4000)[3000:4200]]) == [0, 1, 1]


def test_many_links_take_little_memory() -> None:
    links = np.random.default_rng(0).integers(0, 1000, (200_000, 2), np.int32)
    tracemalloc.start()
    assert set(compositions(1000, links).tolist()) == {0}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_pieces_of_random_notes_are_different_compositions() -> None:
    assert groups([music(seed) for seed in range(20)]) == list(range(20))


def test_scales_and_broken_chords_make_no_two_pieces_one() -> None:
    figures = []
    for pattern in ([0, 4, 7, 4], [0, 2, 4, 5, 7, 9, 11], [0, 7]):
        for seed in (1, 2):
            notes = music(seed, 200)
            notes["pitch"][: 2 * 100] = np.resize(60 + np.array(pattern), 2 * 100)
            figures.append(notes)
    own = groups(figures)
    assert all(own[i] == own[i % 2] for i in range(6))  # by the random half that they share
    assert own[0] != own[1]


def test_a_hundred_performances_of_one_piece_are_one_composition() -> None:
    n = 4 * COMMON_HASH
    assert set(groups([performed(music(1, 100), seed, slips=0.0) for seed in range(n)])) == {0}


def test_a_turn_that_many_pieces_have_does_not_chain_them() -> None:
    rng = np.random.default_rng(0)
    common = rng.integers(0, 2**63, 7, dtype=np.uint64)
    sketches: list[Hashes] = [
        np.unique(np.concatenate([common, rng.integers(0, 2**63, 60, dtype=np.uint64)]))
        for _ in range(100)
    ]
    pairs = similar_pairs(sizes(sketches), sketches.__getitem__)
    assert len(pairs.first) == 0
    assert compositions(100, alike(pairs, pairs, pairs)).tolist() == list(range(100))


def test_of_a_long_piece_an_eighth_of_the_turns_and_a_quarter_of_the_figures_are_kept() -> None:
    prints = fingerprints(music(1, 20_000))  # about 40,000 turns and as many figures
    assert 4500 < len(prints.turns) < 5500
    assert 9000 < len(prints.figures) < 11_000
    assert len(prints.timed_turns) == TIMED_TURNS.smallest


def test_a_piece_without_notes_has_no_fingerprint_and_is_its_own_composition() -> None:
    assert [len(kind) for kind in fingerprints(np.zeros(0, dtype=NOTE_DTYPE))] == [0, 0, 0]
    assert groups([music(1)[:0], music(1)[:0], music(1)]) == [0, 1, 2]
    assert groups([]) == []


def test_a_part_of_a_recording_is_known_from_another_performance_of_the_same_notes() -> None:
    whole, other = performed(music(1, 2000), 1), performed(music(1, 2000), 2)
    part = whole[1500:2500].copy()
    part["start"] -= part["start"][0] - 3.0
    assert recordings([whole, other, part]) == [(0, 2)]


def test_a_movement_in_a_long_recording_shares_its_composition() -> None:
    long = one_after_the_other(*(performed(music(seed, 4000), 1) for seed in (2, 3, 4)))
    movement = music(1, 400)
    roll = one_after_the_other(performed(movement, 1), long)
    assert groups([roll, performed(movement, 1), performed(movement, 2), music(5)]) == [0, 0, 0, 3]


def test_a_movement_in_hours_of_music_is_known_though_its_chords_are_played_apart() -> None:
    """Which note of a chord comes first is chance then, so that hardly any figure is left."""
    movement, hours = music(1, 400), music(2, 30_000)
    played, again = (performed(movement, seed, slips=0.04, apart_seconds=0.049) for seed in (1, 2))
    pieces = [one_after_the_other(played, hours), again]
    assert not (compared(pieces, "figures").common >= MIN_FIGURES).any()
    assert groups([*pieces, music(3, 400)]) == [0, 0, 2]


def test_a_roll_with_three_pieces_keeps_them_all_in_its_split() -> None:
    waltz, prelude, song = (music(seed, 150) for seed in (1, 2, 3))
    roll = spread(one_after_the_other(waltz, prelude, song))
    pieces = [
        waltz,
        moved(prelude, keys=-3),
        moved(song, tempo=0.7),
        music(4, 150),
        roll,
    ]
    own = groups(pieces)
    assert own == [0, 0, 0, 3, 0]
    splits = assign_splits([str(i) for i in own], {4: "test"}, validation=0, test=0, seed=0)
    assert splits == ["test", "test", "test", "train", "test"]


def test_two_rolls_that_share_one_piece_are_in_one_group() -> None:
    shared = music(1, 150)
    rolls = [one_after_the_other(music(seed, 600), shared) for seed in (2, 3)]
    assert groups([*rolls, one_after_the_other(music(4, 600), music(5, 150))]) == [0, 0, 2]


def test_a_roll_whose_chords_are_spread_belongs_to_the_score() -> None:
    """The turns know none of it: where a score has a chord, the roll has two notes."""
    pieces = [music(1, 200), spread(music(1, 200))]
    assert len(compared(pieces).first) == 0
    assert groups([*pieces, spread(music(2, 200))]) == [0, 0, 2]


def test_a_study_at_twice_the_speed_belongs_to_the_study() -> None:
    """Its notes come within 50 ms of each other, so that the turns take them for chords."""
    notes = music(1, 400)
    notes["start"] = np.arange(len(notes)) * 0.06
    pieces = [notes, moved(notes, tempo=0.5)]
    assert len(compared(pieces).first) == 0
    assert groups([*pieces, music(2, 400)]) == [0, 0, 2]


def test_a_quotation_of_two_bars_binds_nothing() -> None:
    quoted = music(1, 300)[200:232]  # sixteen chords
    assert groups([music(1, 300), one_after_the_other(music(2, 200), quoted, music(3, 200))]) == [
        0,
        1,
    ]


def test_a_passage_of_a_hundred_notes_binds_two_pieces() -> None:
    passage = music(1, 2000)[3000:3100]
    other = one_after_the_other(music(2, 900), moved(passage, keys=2, tempo=1.3), music(3, 900))
    assert groups([music(1, 2000), other]) == [0, 0]


def test_a_short_piece_in_a_collection_belongs_to_it() -> None:
    """Its fifty notes have fewer figures than two long pieces need to have in common."""
    short = music(1, 25)
    collection = spread(one_after_the_other(music(2, 1000), short, music(3, 1000)))
    assert compared([short, collection], "figures").common.max() < MIN_FIGURES
    assert groups([short, collection]) == [0, 0]


def test_the_test_of_the_valves_at_the_end_of_rolls_makes_no_two_of_them_one() -> None:
    rows = [np.arange(low, 109, step) for step in (4, 8, 12, 16) for low in range(21, 21 + step)]
    valves = np.concatenate([*rows, *(row[::-1] for row in rows)])
    test = np.zeros(len(valves), dtype=NOTE_DTYPE)
    test["start"], test["pitch"] = np.arange(len(valves)) * 0.03, valves
    rolls = [one_after_the_other(music(seed, 1000), test) for seed in (1, 2)]
    assert len(compared(rolls, "figures").first) == 0
    assert groups(rolls) == [0, 1]


def test_pairs_that_go_through_files_are_those_found_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [performed(music(seed // 3), seed) for seed in range(60)]
    sketches = [fingerprints(piece).turns for piece in pieces]
    in_memory = similar_pairs(sizes(sketches), sketches.__getitem__)
    assert len(in_memory.first) == 60
    monkeypatch.setattr(similar, "HELD", 1000)
    through_files = similar_pairs(sizes(sketches), sketches.__getitem__, tmp_path / "scratch")
    for column in ("first", "second", "common", "similarity"):
        assert getattr(through_files, column).tolist() == getattr(in_memory, column).tolist()
    assert not (tmp_path / "scratch").exists()


def test_the_similarity_is_the_share_of_the_shorter_piece() -> None:
    whole = music(1, 300)
    pairs = compared([whole, whole[: len(whole) // 2], whole])
    found = dict(
        zip(
            zip(pairs.first.tolist(), pairs.second.tolist(), strict=True),
            pairs.similarity,
            strict=True,
        )
    )
    assert found[0, 2] == 1.0
    assert found[0, 1] > 0.95  # all but the turns over the cut


def test_a_composition_keeps_its_name_when_files_come_later() -> None:
    checksums = ["5" * 64, "3" * 64, "7" * 64]
    assert composition_names(np.array([0, 1, 0]), checksums) == ["5" * 16, "3" * 16, "5" * 16]


def test_pieces_keep_their_split_when_a_corpus_grows() -> None:
    names = [f"{i:04d}" for i in range(2000)]
    few = assign_splits(names[:500], {}, validation=0.1, test=0.1, seed=3)
    many = assign_splits(names, {}, validation=0.1, test=0.1, seed=3)
    assert many[:500] == few
    assert many.count("test") == pytest.approx(200, abs=50)
    assert many.count("validation") == pytest.approx(200, abs=50)
    assert assign_splits(names, {}, validation=0.1, test=0.1, seed=4) != many


@pytest.mark.parametrize("seed", range(20))
def test_three_compositions_are_enough_for_three_splits(seed: int) -> None:
    splits = assign_splits(["a", "b", "c"], {}, validation=0.1, test=0.1, seed=seed)
    assert sorted(splits) == ["test", "train", "validation"]


def test_one_or_two_compositions_go_to_training_first() -> None:
    for seed in range(20):
        assert assign_splits(["a", "a"], {}, validation=0.4, test=0.4, seed=seed) == ["train"] * 2
        two = assign_splits(["a", "b"], {}, validation=0.1, test=0.1, seed=seed)
        assert "train" in two


def test_a_split_without_a_share_stays_empty() -> None:
    names = [str(i) for i in range(100)]
    assert set(assign_splits(names, {}, validation=0, test=0.2, seed=0)) == {"train", "test"}


def test_the_other_performances_follow_a_piece_whose_split_is_fixed() -> None:
    splits = assign_splits(["a", "b", "a"], {2: "validation"}, validation=0, test=0, seed=0)
    assert splits == ["validation", "train", "validation"]


def test_the_likest_pieces_across_splits_are_found() -> None:
    pieces = [music(1), performed(music(1), 7), music(2), performed(music(2), 8, slips=0.2)]
    pairs = compared(pieces)
    across = highest_across_splits(pairs, ["train", "test", "train", "test"], pairs.similarity)
    assert (pairs.first[across[0]], pairs.second[across[0]]) == (0, 1)
    assert highest_across_splits(pairs, ["train"] * 4, pairs.common) == []
