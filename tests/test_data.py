"""Crops and batches: all of the music is seen, once an epoch, in the same order on every run."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import PLAIN, piece, split_of, tokens_folder

from music_gpt.config.training import DataConfig
from music_gpt.errors import InputError
from music_gpt.notes import HIGHEST_KEY, LOWEST_KEY
from music_gpt.process import TERMINATION_SIGNALS
from music_gpt.tokens.corpus import Corpus, CorpusWriter, Split
from music_gpt.tokens.data import (
    CropBatches,
    Windows,
    crop_counts,
    crop_starts,
    cut_crop,
    loader,
)
from music_gpt.tokens.events import (
    EOS,
    NOTE_OFF,
    PAD,
    TIME_SHIFT,
    VELOCITY,
    decode_ids,
    shift_velocity_ids,
    stretch_ids,
    transpose_ids,
)

T = 32


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    return split_of(tmp_path_factory.mktemp("data") / "tokens", [3, 40, 80, 2, 61])


def batches(split: Split, config: DataConfig = PLAIN, **options: Any) -> CropBatches:
    return CropBatches(split, T, config, **{"seed": 5, **options})


def first(n: int, source: Any) -> list[torch.Tensor]:
    return list(itertools.islice(iter(source), n))


def own_velocity(ids: np.ndarray, place: int) -> int:
    """The velocity event in force at `place`, looked for one by one."""
    for i in range(place, -1, -1):
        if VELOCITY <= ids[i] < EOS:
            return int(ids[i])
    return -1


# --- crops ------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(2, 80), st.integers(0, 99)
)
def test_the_crops_of_an_epoch_cover_every_target_of_every_piece(
    lengths: list[int], context: int, seed: int
) -> None:
    array = np.array(lengths)
    pieces, starts = crop_starts(array, context, np.random.default_rng(seed))
    assert len(pieces) == crop_counts(array, context).sum()
    for number, length in enumerate(lengths):
        own = starts[pieces == number]
        assert own.min() == 0  # the head
        assert (own + context).max() >= length - 1  # the end
        assert (own[1:] - own[:-1] <= context).all()
        assert own.max() <= max(length - 1 - context, 0)  # no crop hangs over the end for nothing
        covered = {target for start in own for target in range(start + 1, start + context + 1)}
        assert covered >= set(range(1, length))


def test_the_borders_of_the_crops_move_from_epoch_to_epoch() -> None:
    lengths = np.full(20, 200)
    one, other = (crop_starts(lengths, 64, np.random.default_rng(seed))[1] for seed in (0, 1))
    assert (one != other).mean() > 0.3


def test_each_epoch_shows_every_crop_of_every_piece_once(split: Split) -> None:
    source = batches(split)
    n = source.crops_per_epoch
    epochs = []
    for epoch in range(2):
        crops = source._crops_of_epoch(epoch)
        expected = np.repeat(np.arange(split.n_pieces), crop_counts(split.length, T))
        assert Counter(crops.piece.tolist()) == Counter(expected.tolist())
        epochs.append([tuple(source.crop(epoch * n + i)) for i in range(n)])
    assert epochs[0] != epochs[1]
    assert [len(set(epoch)) for epoch in epochs] == [n, n]


def test_every_token_of_every_piece_is_a_target_in_each_epoch(split: Split) -> None:
    # targets in threes stand for their place: with two ids before them they are nearly unique
    def triples(ids: np.ndarray) -> set[tuple[int, ...]]:
        return {tuple(map(int, ids[i - 2 : i + 1])) for i in range(2, len(ids))}

    source = batches(split)
    seen: set[tuple[int, ...]] = set()
    for number in range(source.crops_per_epoch):
        ids = source.crop(number)
        seen |= triples(ids) | {tuple(map(int, ids[:2]))}
    for i in range(split.n_pieces):
        ids = split.piece(i)
        missed = triples(ids) - seen
        # a head that was replaced by the velocity in force hides the first triple of its crop
        assert len(missed) <= crop_counts(split.length[i : i + 1], T)[0] - 1


def test_a_crop_begins_with_the_head_of_its_piece_or_the_velocity_in_force(split: Split) -> None:
    for number in range(split.n_pieces):
        ids = split.piece(number)
        for start in range(len(ids) - 1):
            crop = cut_crop(ids, start, T + 1)
            assert crop[1:].tolist() == ids[start + 1 : start + T + 1].tolist()
            velocity = own_velocity(ids, start)
            expected = ids[start] if start == 0 or velocity < 0 else velocity
            assert crop[0] == expected


def test_a_velocity_told_long_before_is_still_in_force() -> None:
    ids = np.array([EOS, VELOCITY + 7, *[60, NOTE_OFF + 60] * 500, EOS], dtype=np.uint16)
    assert cut_crop(ids, 900, 5)[0] == VELOCITY + 7
    silent = np.array([EOS, *[TIME_SHIFT] * 500, EOS], dtype=np.uint16)
    assert cut_crop(silent, 300, 5)[0] == TIME_SHIFT


def test_cutting_a_crop_leaves_the_corpus_alone(split: Split) -> None:
    before = split.piece(2).tolist()
    cut_crop(split.piece(2), 20, 10)[:] = 0
    assert split.piece(2).tolist() == before


# --- augmentation -----------------------------------------------------------------------------


def crops_of(split: Split, **knobs: Any) -> list[tuple[np.ndarray, np.ndarray, Any, int]]:
    """Augmented crops of one epoch, each with the events it was made from."""
    config = DataConfig(**{**PLAIN.__dict__, **knobs})
    source = batches(split, config)
    crops = source._crops_of_epoch(0)
    return [
        (
            source.crop(i),
            cut_crop(split.piece(int(crops.piece[i])), int(crops.start[i]), 10_000),
            crops,
            i,
        )
        for i in range(source.crops_per_epoch)
    ]


def test_a_transposed_crop_is_the_same_music_on_other_keys(split: Split) -> None:
    shifts = set()
    for ids, plain, crops, i in crops_of(split, transpose=6):
        plain = plain[: T + 1]
        notes = plain < TIME_SHIFT
        assert (ids[~notes] == plain[~notes]).all()
        moved = ids[notes].astype(int) - plain[notes].astype(int)
        assert len(set(moved.tolist())) <= 1
        assert (ids[notes] < NOTE_OFF).tolist() == (plain[notes] < NOTE_OFF).tolist()
        shifts |= set(moved.tolist())
        assert moved.size == 0 or moved[0] == crops.transpose[i]
    assert min(shifts) < -2
    assert max(shifts) > 2


@given(st.integers(0, 50), st.integers(-12, 12))
def test_transposition_stays_on_the_keys_of_a_piano(seed: int, semitones: int) -> None:
    ids = transpose_ids(piece(seed, 30), semitones, low=LOWEST_KEY, high=HIGHEST_KEY)
    pitches = decode_ids(ids)["pitch"]
    assert pitches.min() >= LOWEST_KEY
    assert pitches.max() <= HIGHEST_KEY


def test_a_crop_near_the_edge_of_the_keyboard_moves_only_as_far_as_there_are_keys(
    tmp_path: Path,
) -> None:
    edges = [EOS, VELOCITY, 22, TIME_SHIFT, 107, TIME_SHIFT, NOTE_OFF + 22, NOTE_OFF + 107, EOS]
    with CorpusWriter(tmp_path / "edges") as writer:
        writer.add("train", edges, {"file": "edges", "notes": 2, "seconds": 1.0})
        writer.finish({}, tokenizer="{}")
    split = Corpus.open(tmp_path / "edges").split("train")
    config = DataConfig(batch_size=1, transpose=12, stretch=0.0, velocity_bins=0)
    lowest = {int(batches(split, config).crop(number)[2]) for number in range(40)}
    assert lowest == {21, 22, 23}


def times_of(ids: np.ndarray) -> tuple[list[tuple[int, int]], int]:
    """(event, frame) of the notes in any stretch of events, added up one by one."""
    frame, events = 0, []
    for event in map(int, ids):
        if event < TIME_SHIFT:
            events.append((event, frame))
        elif event < VELOCITY:
            frame += event - TIME_SHIFT + 1
    return events, frame


def test_a_stretched_crop_has_every_event_at_its_stretched_time(split: Split) -> None:
    factors = set()
    for ids, plain, crops, i in crops_of(split, stretch=0.2):
        factor = float(crops.stretch[i])
        factors.add(round(factor, 3))
        stretched, _ = times_of(ids)
        original = times_of(plain)[0][: len(stretched)]
        # as many events of each kind; those that meet in one frame may change places
        for event in {event for event, _ in original}:
            then = [frame for e, frame in original if e == event]
            now = [frame for e, frame in stretched if e == event]
            for old, new in zip(then, now, strict=False):
                # half a frame of rounding, and one more where a short note is kept alive
                assert abs(new - old * factor) <= 1.5
    assert factors == {0.8, 0.9, 1.0, 1.1, 1.2}


def test_stretching_a_whole_piece_does_not_drift() -> None:
    ids = piece(3, 400)
    before, after = decode_ids(ids), decode_ids(stretch_ids(ids, 1.05))
    assert len(before) == len(after)
    assert abs(after["start"].max() - 1.05 * before["start"].max()) <= 0.015


def test_a_shift_of_velocities_moves_all_of_a_crop_alike(split: Split) -> None:
    for ids, plain, crops, i in crops_of(split, velocity_bins=8):
        expected = shift_velocity_ids(plain, int(crops.velocity[i]))[: T + 1]
        assert ids.tolist() == expected.tolist()


def test_an_augmented_crop_of_a_long_piece_is_still_full(tmp_path: Path) -> None:
    split = split_of(tmp_path / "tokens", [400])
    config = DataConfig(batch_size=4, transpose=6, stretch=0.05, velocity_bins=3)
    source = CropBatches(split, 128, config, seed=1)
    crops = source._crops_of_epoch(0)
    last = split.length[0] - 1 - 128
    full = [len(source.crop(i)) for i in range(len(crops.start)) if crops.start[i] < last - 30]
    assert len(full) > 5
    assert set(full) == {129}


def test_the_last_crop_of_a_piece_keeps_its_end_however_it_is_stretched(tmp_path: Path) -> None:
    split = split_of(tmp_path / "tokens", [400, 300, 500])
    source = CropBatches(split, 128, DataConfig(stretch=0.3, velocity_bins=0, transpose=0), seed=1)
    ends = 0
    for epoch in range(4):
        crops = source._crops_of_epoch(epoch)
        for i in np.flatnonzero(crops.start + 129 >= split.length[crops.piece]).tolist():
            ids = source.crop(epoch * source.crops_per_epoch + i)
            ends += 1
            assert ids[-1] == EOS
            assert len(ids) <= 129
    assert ends == 12


# --- batches ----------------------------------------------------------------------------------


def test_bits_that_changed_on_the_disk_are_found_before_the_network_sees_them(
    tmp_path: Path,
) -> None:
    split = split_of(tmp_path / "tokens", [40])
    shard = split.path / "train-00000.bin"
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    for source in (batches(split), Windows(split, T, 2)):
        with pytest.raises(InputError, match="a shard of the train split .* copy the folder anew"):
            next(iter(source))


def test_a_batch_is_a_function_of_its_number(split: Split) -> None:
    config = DataConfig(batch_size=4)
    one, other = batches(split, config), batches(split, config)
    far = one.batch(123)
    assert torch.equal(other.batch(123), far)
    assert torch.equal(one.batch(123), far)
    assert far.dtype == torch.int64
    assert far.shape == (4, T + 1)


def test_batches_differ_within_an_epoch_and_between_epochs(split: Split) -> None:
    shown = first(40, batches(split, DataConfig(batch_size=4)))
    assert len({batch.numpy().tobytes() for batch in shown}) == 40


def test_another_seed_shows_the_crops_in_another_order(split: Split) -> None:
    assert not torch.equal(batches(split).batch(0), batches(split, seed=6).batch(0))


def test_a_loader_that_starts_later_goes_on_like_an_unbroken_one(split: Split) -> None:
    unbroken = first(12, loader(batches(split), 0, pin=False))
    later = first(5, loader(batches(split, first_batch=7), 0, pin=False))
    assert all(torch.equal(a, b) for a, b in zip(unbroken[7:], later, strict=True))


def test_two_loader_processes_give_the_batches_that_none_gives(split: Split) -> None:
    unbroken = first(12, batches(split))
    later = first(9, loader(batches(split, first_batch=3), 2, pin=False))
    assert all(torch.equal(a, b) for a, b in zip(unbroken[3:], later, strict=True))


def test_a_loader_process_outlives_ctrl_c_and_ends_with_its_training(split: Split) -> None:
    shown = iter(loader(batches(split), 1, pin=False))
    next(shown)
    worker = shown._workers[0]  # type: ignore[attr-defined]
    for number in (signal.SIGINT, *TERMINATION_SIGNALS):
        os.kill(worker.pid, number)
    assert [next(shown).shape for _ in range(20)] == [(4, T + 1)] * 20
    shown._shutdown_workers()  # type: ignore[attr-defined]
    assert not worker.is_alive()


def test_a_loader_leaves_the_random_numbers_of_the_network_alone(split: Split) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first(2, loader(batches(split), 0, pin=False))
    assert torch.equal(torch.get_rng_state(), before)


def test_two_ranks_together_see_what_one_sees_and_each_as_much(split: Split) -> None:
    alone = first(8, batches(split))
    ranks = [first(4, batches(split, rank=rank, n_ranks=2)) for rank in (0, 1)]
    together = [ranks[i % 2][i // 2] for i in range(8)]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_the_crops_of_an_epoch_count_for_all_ranks_together(split: Split) -> None:
    alone, shared = batches(split), batches(split, rank=1, n_ranks=4)
    assert alone.batches_per_epoch == alone.crops_per_epoch / 4
    assert shared.batches_per_epoch == alone.batches_per_epoch / 4


def test_a_piece_shorter_than_the_context_is_filled_with_padding(tmp_path: Path) -> None:
    split = split_of(tmp_path / "tokens", [2])
    ids = split.piece(0)
    row = batches(split).batch(0)[0]
    assert row[: len(ids)].tolist() == ids.tolist()
    assert set(row[len(ids) :].tolist()) == {PAD}


def test_a_loader_process_is_told_no_tokens(split: Split) -> None:
    source = batches(split)
    source.batch(0)
    sent = pickle.dumps(source)
    assert len(sent) < 2500
    assert torch.equal(pickle.loads(sent).batch(4), source.batch(4))


def test_a_split_without_pieces_is_said_to_be_empty(split: Split) -> None:
    empty = pickle.loads(pickle.dumps(split))
    empty.length = empty.length[:0]
    with pytest.raises(InputError, match="train split holds no piece; run `music-gpt prepare`"):
        batches(empty)


# --- windows ----------------------------------------------------------------------------------


def scored(windows: Windows, split: Split, skip: int = 0) -> list[tuple[int, int]]:
    """(piece, place) of every target; `skip` targets at the head of a window inside a piece."""
    found = []
    for i, start in zip(windows.piece.tolist(), windows.start.tolist(), strict=True):
        end = min(start + windows.context + 1, int(split.length[i]))
        found += [(i, place) for place in range(start + 1 + (skip if start else 0), end)]
    return found


def all_targets(split: Split) -> list[tuple[int, int]]:
    return [(i, p) for i in range(split.n_pieces) for p in range(1, int(split.length[i]))]


@pytest.mark.parametrize("context", [2, 3, 7, 32, 5000])
def test_windows_score_every_target_once(split: Split, context: int) -> None:
    windows = Windows(split, context, 4)
    assert sorted(scored(windows, split)) == all_targets(split)
    assert windows.n_targets == len(all_targets(split))


@pytest.mark.parametrize(("context", "stride"), [(32, 16), (7, 3), (5, 1), (8, 5)])
def test_sliding_windows_score_every_target_once_with_their_new_part(
    split: Split, context: int, stride: int
) -> None:
    windows = Windows(split, context, 4, stride=stride)
    assert sorted(scored(windows, split, skip=context - stride)) == all_targets(split)


def test_windows_are_the_pieces_own_ids_with_padding_behind(split: Split) -> None:
    windows = Windows(split, T, 3)
    rows = [(row, start) for batch in windows for row, start in batch_rows(windows, batch)]
    assert len(rows) == len(windows.piece)
    for (row, start), number in zip(rows, windows.piece.tolist(), strict=True):
        ids = split.piece(number)[start : start + T + 1]
        assert row[: len(ids)].tolist() == ids.tolist()
        assert set(row[len(ids) :].tolist()) <= {PAD}
    assert len(windows) == len(list(windows))


def batch_rows(windows: Windows, batch: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    return list(zip(batch, windows.batch_starts.tolist(), strict=True))


def test_a_few_windows_lie_spread_over_the_whole_split(split: Split) -> None:
    some = Windows(split, 8, 4, n_tokens=8 * 12)
    assert len(some.piece) == 12
    assert set(some.piece.tolist()) >= {1, 2, 4}
    assert 0 < some.n_targets <= 8 * 12
    assert len(set(scored(some, split))) == some.n_targets


def test_the_ranks_share_the_windows(split: Split) -> None:
    ranks = [Windows(split, T, 4, rank=rank, n_ranks=3) for rank in range(3)]
    together = sorted(place for rank in ranks for place in scored(rank, split))
    assert together == all_targets(split)


def test_more_ranks_than_windows_leave_some_without_work(tmp_path: Path) -> None:
    split = Corpus.open(tokens_folder(tmp_path / "t", {"train": [2]})).split("train")
    idle = Windows(split, T, 4, rank=1, n_ranks=2)
    assert (len(idle), list(idle), idle.n_targets) == (0, [], 0)
