"""Pieces of one composition are found whatever their key, tempo and length, and stay together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_prep import similar
from data_prep.fingerprint import (
    SKETCH_SIZE,
    TIMED_SKETCH_SIZE,
    Hashes,
    fingerprint,
    fingerprints,
)
from data_prep.similar import COMMON_HASH, Pairs, similar_pairs
from data_prep.split import (
    SAME_RECORDING,
    assign_splits,
    composition_names,
    compositions,
    highest_across_splits,
)
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


def performed(notes: Notes, seed: int, *, slips: float = 0.02) -> Notes:
    """As a pianist plays it: another tempo, chords not quite together, a few wrong notes."""
    rng = np.random.default_rng(seed)
    played = notes.copy()
    played["start"] = played["start"] * 1.2 + rng.uniform(0, 0.03, len(notes))
    wrong = rng.random(len(notes)) < slips
    played["pitch"][wrong] += 1
    return np.sort(played, order=["start", "pitch"])


def recordings(pieces: list[Notes]) -> list[tuple[int, int]]:
    sketches = [fingerprints(piece)[1] for piece in pieces]
    pairs = similar_pairs(len(pieces), sketches.__getitem__, sketch_size=TIMED_SKETCH_SIZE)
    same = pairs.similarity >= SAME_RECORDING
    return list(zip(pairs.first[same].tolist(), pairs.second[same].tolist(), strict=True))


def compared(pieces: list[Notes]) -> Pairs:
    return similar_pairs(len(pieces), [fingerprint(piece) for piece in pieces].__getitem__)


def groups(pieces: list[Notes]) -> list[int]:
    pairs = compared(pieces)
    return [int(group) for group in compositions(len(pieces), pairs)]


def test_a_transposed_and_slower_copy_has_the_same_fingerprint() -> None:
    notes = music(1)
    copy = notes.copy()
    copy["pitch"] += 5
    copy["start"] *= 1.5
    assert fingerprint(notes).tolist() == fingerprint(copy).tolist()
    assert len(fingerprint(notes)) > 100


def test_a_performance_belongs_to_its_score() -> None:
    assert groups([music(1), music(2), performed(music(1), 7)]) == [0, 1, 0]


def test_a_piece_with_cut_ends_belongs_to_the_whole_piece() -> None:
    assert groups([music(2), music(1, 4000), music(1, 4000)[3000:4200]]) == [0, 1, 1]


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
    pairs = similar_pairs(len(sketches), sketches.__getitem__)
    assert len(pairs.first) == 0
    assert compositions(100, pairs).tolist() == list(range(100))


def test_the_sketch_of_a_long_piece_is_bounded() -> None:
    assert len(fingerprint(music(1, 20_000))) == SKETCH_SIZE


def test_a_piece_without_notes_has_no_fingerprint_and_is_its_own_composition() -> None:
    assert len(fingerprint(np.zeros(0, dtype=NOTE_DTYPE))) == 0
    assert groups([music(1)[:0], music(1)[:0], music(1)]) == [0, 1, 2]
    assert groups([]) == []


def test_a_part_of_a_recording_is_known_from_another_performance_of_the_same_notes() -> None:
    whole, other = performed(music(1, 2000), 1), performed(music(1, 2000), 2)
    part = whole[1500:2500].copy()
    part["start"] -= part["start"][0] - 3.0
    assert recordings([whole, other, part]) == [(0, 2)]


def test_a_movement_in_a_long_recording_shares_its_composition() -> None:
    movement = performed(music(1, 400), 1)
    others = [performed(music(seed, 4000), 1) for seed in (2, 3, 4)]
    for number, other in enumerate(others):
        other["start"] += 2000.0 * (number + 1)
    pieces = [np.concatenate([movement, *others]), movement]
    alike = compared(pieces)
    sketches = [fingerprints(piece)[1] for piece in pieces]
    timed = similar_pairs(2, sketches.__getitem__, sketch_size=TIMED_SKETCH_SIZE)
    assert compositions(2, alike, timed).tolist() == [0, 0]


def test_pairs_that_go_through_files_are_those_found_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [performed(music(seed // 3), seed) for seed in range(60)]
    sketches = [fingerprint(piece) for piece in pieces]
    in_memory = similar_pairs(len(sketches), sketches.__getitem__)
    assert len(in_memory.first) == 60
    monkeypatch.setattr(similar, "HELD", 1000)
    through_files = similar_pairs(len(sketches), sketches.__getitem__, tmp_path / "scratch")
    for column in ("first", "second", "common", "similarity"):
        assert getattr(through_files, column).tolist() == getattr(in_memory, column).tolist()
    assert not list((tmp_path / "scratch").iterdir())


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
    across = highest_across_splits(pairs, ["train", "test", "train", "test"])
    assert (pairs.first[across[0]], pairs.second[across[0]]) == (0, 1)
    assert highest_across_splits(pairs, ["train"] * 4) == []
