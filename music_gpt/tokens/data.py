"""A split of a tokens folder -> batches of crops (B, T + 1): augmented, shuffled, resumable.

Every batch is a pure function of (seed, number of the batch): nothing has to be remembered but a
number, so a run that goes on after an interruption sees the batches that an unbroken one would have
seen, whatever the number of worker processes. B crops in a batch, T tokens of context.

The module knows the event vocabulary but neither MIDI nor the network.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from music_gpt.arrays import Ids
from music_gpt.config.training import DataConfig
from music_gpt.notes import HIGHEST_KEY, LOWEST_KEY
from music_gpt.process import TERMINATION_SIGNALS
from music_gpt.tokens.corpus import Split, require_events, require_targets
from music_gpt.tokens.events import (
    PAD,
    VELOCITY,
    shift_velocity_ids,
    stretch_ids,
    transpose_ids,
    velocity_in_force,
)

N_STRETCHES = 5
"""Factors on the tempo, evenly spaced: an odd number, so that 1 is one of them."""
LOOK_BACK = 128
"""Tokens read at once in search of the velocity in force: it is told about every 20 tokens."""


@dataclass(frozen=True)
class Crops:
    """Where the crops of one epoch lie, and how each is changed: arrays with one entry a crop."""

    piece: npt.NDArray[np.int64]
    """Number of the piece."""
    start: npt.NDArray[np.int64]
    """First token inside the piece."""
    transpose: npt.NDArray[np.int64]
    """Semitones."""
    stretch: npt.NDArray[np.float64]
    """Factor on all times."""
    velocity: npt.NDArray[np.int64]
    """Shift in velocity bins."""


def crop_counts(lengths: npt.NDArray[np.integer], context: int) -> npt.NDArray[np.int64]:
    """Crops that it takes to see each token of pieces of these lengths as a target once."""
    targets = np.maximum(lengths.astype(np.int64) - 1, 1)
    return -(-targets // context)


def crop_starts(
    lengths: npt.NDArray[np.integer], context: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Piece and start of every crop of one epoch, in order.

    A piece of n targets needs ceil(n / T) crops, which have c * T - n positions to spare. The first
    crop stands at the head, the last ends with the piece, and the spare positions fall as random
    overlaps between them: every target is covered, and the borders differ from epoch to epoch.
    """
    counts = crop_counts(lengths, context)
    piece = np.repeat(np.arange(len(lengths)), counts)  # (C)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    number = np.arange(len(piece)) - first  # of the crop inside its piece
    spare = np.maximum(counts * context - (lengths.astype(np.int64) - 1), 0)
    share = rng.random(len(piece))
    share[number == 0] = 0.0
    share[number == counts[piece] - 1] = 1.0
    share[counts[piece] == 1] = 0.0  # a piece that fits starts at its head
    share = share[np.lexsort((share, piece))]  # overlaps only grow along a piece
    return piece, number * context - np.floor(share * spare[piece]).astype(np.int64)


def _augmentations(
    n_crops: int, config: DataConfig, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    factors = 1.0 + np.linspace(-config.stretch, config.stretch, N_STRETCHES)
    return (
        rng.integers(-config.transpose, config.transpose, n_crops, endpoint=True),
        factors[rng.integers(0, N_STRETCHES, n_crops)],
        rng.integers(-config.velocity_bins, config.velocity_bins, n_crops, endpoint=True),
    )


class CropBatches(IterableDataset[Tensor]):
    """Endless batches (B, T + 1) int64 of augmented crops; epoch after epoch, each a permutation.

    `rank` of `n_ranks` processes takes every n_ranks-th batch, so all of them see equally many.
    A crop starts with EOS (head of the piece) or with the velocity that is in force there; crops of
    pieces that end early are filled with PAD, which the loss leaves out.
    """

    def __init__(
        self,
        split: Split,
        context: int,
        config: DataConfig,
        *,
        seed: int,
        rank: int = 0,
        n_ranks: int = 1,
        first_batch: int = 0,
    ) -> None:
        require_targets(split)
        self.split, self.context, self.config, self.seed = split, context, config, seed
        self.rank, self.n_ranks, self.first_batch = rank, n_ranks, first_batch
        self.crops_per_epoch = int(crop_counts(split.length, context).sum())
        self._crops_of_epoch = lru_cache(maxsize=2)(self._make_epoch)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        del state["_crops_of_epoch"]  # a cache is no part of what a worker process has to know
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._crops_of_epoch = lru_cache(maxsize=2)(self._make_epoch)

    @property
    def batches_per_epoch(self) -> float:
        """Batches that show every crop once, all ranks together."""
        return self.crops_per_epoch / (self.config.batch_size * self.n_ranks)

    def _make_epoch(self, epoch: int) -> Crops:
        rng = np.random.default_rng((self.seed, epoch))
        piece, start = crop_starts(self.split.length, self.context, rng)
        order = rng.permutation(len(piece))
        return Crops(piece[order], start[order], *_augmentations(len(piece), self.config, rng))

    def crop(self, number: int) -> Ids:
        """Crop `number` of the endless sequence: (T + 1) ids, uint16."""
        epoch, i = divmod(number, self.crops_per_epoch)
        crops = self._crops_of_epoch(epoch)
        piece, start = self.split.piece(int(crops.piece[i])), int(crops.start[i])
        factor, bins = float(crops.stretch[i]), int(crops.velocity[i])
        # other waits and velocities change the number of tokens a little: read some to spare
        n_read = self.context + 1
        if factor != 1.0 or bins:
            n_read = int(1.1 * n_read) + 8
        require_events(piece[max(start - LOOK_BACK, 0) : start + n_read], self.split)
        ids = cut_crop(piece, start, n_read)
        if factor != 1.0:
            ids = stretch_ids(ids, factor)
        if bins:
            ids = shift_velocity_ids(ids, bins)
        too_many = len(ids) - (self.context + 1)
        if too_many > 0 and start > 0 and start + n_read >= len(piece):
            ids = cut_crop(ids, too_many, self.context + 1)  # the last crop keeps the end
        ids = ids[: self.context + 1]
        if crops.transpose[i]:
            ids = transpose_ids(ids, int(crops.transpose[i]), low=LOWEST_KEY, high=HIGHEST_KEY)
        return ids

    def batch(self, number: int) -> Tensor:
        """Batch `number` of this rank: (B, T + 1) int64."""
        size = self.config.batch_size
        out = np.full((size, self.context + 1), PAD, dtype=np.int64)
        for row in range(size):
            ids = self.crop((number * self.n_ranks + self.rank) * size + row)
            out[row, : len(ids)] = ids
        return torch.from_numpy(out)

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        n_workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        number += self.first_batch
        while True:
            yield self.batch(number)
            number += n_workers


def cut_crop(piece: Ids, start: int, n_tokens: int) -> Ids:
    """`n_tokens` ids of a piece from `start` on, headed by the velocity that is in force there.

    The head takes the place of the token before `start + 1`, so the targets are the piece's own.
    """
    ids = np.array(piece[start : start + n_tokens])
    if start > 0:
        velocity = _velocity_after(piece, start)
        if velocity >= 0:
            ids[0] = VELOCITY + velocity
    return ids


def _velocity_after(piece: Ids, place: int) -> int:
    """The velocity bin in force after the event at `place`, or -1; searched for backwards."""
    for end in range(place + 1, 0, -LOOK_BACK):
        velocity = velocity_in_force(piece[max(end - LOOK_BACK, 0) : end])
        if velocity >= 0:
            return velocity
    return -1


class Windows(IterableDataset[Tensor]):
    """Batches (B, <= T + 1) of a split without augmentation, each target inside one piece.

    Without a `stride` the windows do not overlap and every token is a target exactly once: the
    protocol of the published figures. The last window of a piece is filled with PAD. A piece of one
    token has no target, and so no window. With `n_tokens` only about so many are read, spread
    evenly over the split.

    `batch_starts` tells, for the batch that was handed out last, where each window begins.
    """

    def __init__(
        self,
        split: Split,
        context: int,
        batch_size: int,
        *,
        n_tokens: int = 0,
        stride: int | None = None,
        rank: int = 0,
        n_ranks: int = 1,
    ) -> None:
        self.split, self.context, self.batch_size = split, context, batch_size
        stride = stride or context
        # a window more for each further stride that brings new targets
        counts = 1 + crop_counts(np.maximum(split.length.astype(np.int64) - context, 1), stride)
        counts = np.where(split.length <= context + 1, split.length > 1, counts)
        piece = np.repeat(np.arange(len(counts)), counts)
        start = (np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)) * stride
        n_windows = len(piece)
        if 0 < n_tokens < n_windows * stride:
            n_windows = max(1, n_tokens // stride)
        chosen = np.linspace(0, len(piece), n_windows, endpoint=False).astype(np.int64)
        chosen = chosen[rank::n_ranks]
        # windows of like length side by side: short pieces then waste no time on padding
        targets = np.minimum(
            split.length[piece[chosen]].astype(np.int64) - 1 - start[chosen], context
        )
        order = np.argsort(-targets, kind="stable")
        self.piece, self.start = piece[chosen][order], start[chosen][order]
        self.n_targets = int(targets.sum())
        self.batch_starts = torch.zeros(0, dtype=torch.long)

    def __len__(self) -> int:
        return -(-len(self.piece) // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.batch, range(len(self)))

    def batch(self, number: int) -> Tensor:
        """Batch `number`: (B, <= T + 1) int64."""
        first = number * self.batch_size
        rows = range(first, min(first + self.batch_size, len(self.piece)))
        crops = [self._window(row) for row in rows]
        out = np.full((len(crops), max(map(len, crops))), PAD, dtype=np.int64)
        for row, ids in enumerate(crops):
            out[row, : len(ids)] = ids
        require_events(out, self.split)
        self.batch_starts = torch.from_numpy(self.start[rows.start : rows.stop])
        return torch.from_numpy(out)

    def _window(self, row: int) -> Ids:
        start = int(self.start[row])
        return self.split.piece(int(self.piece[row]))[start : start + self.context + 1]


def loader(dataset: IterableDataset[Tensor], n_workers: int, *, pin: bool) -> DataLoader[Tensor]:
    """A loader that hands on the batches as they are made, in order.

    The tokens are not kept on a GPU, because they need not be: a process makes 5 to 10 M tokens a
    second of one core's time, by machine, stretched tempo included, and the training takes them for
    1 ms a batch of 64 × 2,048 (`benchmarks/data.py`), while the default network could not learn
    from more than 6.5 M a second on an H100 that did nothing but multiply (152 MFLOP a token).
    With `pin` the copies run beside the computing; eight batches a process wait in line.
    """
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=n_workers,
        pin_memory=pin,
        persistent_workers=n_workers > 0,
        prefetch_factor=8 if n_workers else None,
        multiprocessing_context="spawn" if n_workers else None,
        worker_init_fn=_leave_signals_to_the_training if n_workers else None,
        # a generator of its own: the random numbers of the network are not moved on by a loader
        generator=torch.Generator(),
    )


def _leave_signals_to_the_training(_: int) -> None:
    """Signals of a terminal reach every process; the training ends its loaders when it is done."""
    for number in (signal.SIGINT, *TERMINATION_SIGNALS):
        signal.signal(number, signal.SIG_IGN)
