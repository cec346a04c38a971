"""A tokens folder comes in -> how many tokens a second the loader delivers goes out.

    python benchmarks/data.py TOKENS [--context 2048] [--batch-size 16] [--workers 2] [--seconds 5]

The peer is what most training scripts do: random offsets into one long array of tokens, without
augmentation, copied row by row. Both run in turns in one process tree, with and without loader
processes, and the best round counts: what else the machine does can only slow a round down. The
figures by processor time tell what a machine with cores to spare delivers: a loader process makes
so much of one core's time, and taking a batch costs the training so long.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from music_gpt.config.training import DataConfig
from music_gpt.tokens.corpus import Corpus, Split
from music_gpt.tokens.data import CropBatches, loader

ROUNDS = 3
N_BATCHES = 40


class RandomOffsets(IterableDataset[Tensor]):
    """Batches (B, T + 1) at random places of the first shard: no pieces, no augmentation."""

    def __init__(self, split: Split, context: int, batch_size: int) -> None:
        self.split, self.context, self.batch_size = split, context, batch_size

    def __iter__(self) -> Iterator[Tensor]:
        rng, ids = np.random.default_rng(), self.split.shards[0]
        while True:
            starts = rng.integers(0, len(ids) - self.context - 1, self.batch_size)
            rows = [ids[start : start + self.context + 1].astype(np.int64) for start in starts]
            yield torch.from_numpy(np.stack(rows))


def main() -> None:
    """Read the arguments, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    split = Corpus.open(options.tokens).split("train")
    ours = CropBatches(split, options.context, DataConfig(batch_size=options.batch_size), seed=1)
    _processor_figures(ours)
    peer = RandomOffsets(split, options.context, options.batch_size)
    for workers in sorted({0, options.workers}):
        loaders = [loader(dataset, workers, pin=False) for dataset in (ours, peer)]
        mine, theirs = _alternate(loaders, options.seconds)
        print(
            f"{workers} loader processes: {mine / 1e6:.2f} M tokens/s with augmentation, "
            f"{theirs / 1e6:.2f} M plain random offsets: {mine / theirs:.2f} times"
        )


def _processor_figures(dataset: CropBatches) -> None:
    """Print what making and taking a batch costs in seconds of the processor."""
    began = time.process_time()
    for number in range(N_BATCHES):
        dataset.batch(number)
    made = (time.process_time() - began) / N_BATCHES
    source = iter(loader(dataset, 1, pin=False))
    next(source)
    began = time.process_time()
    for _ in range(N_BATCHES):
        next(source)
    taken = (time.process_time() - began) / N_BATCHES
    n_tokens = dataset.config.batch_size * dataset.context
    print(
        f"by processor time, a loader process makes {n_tokens / made / 1e6:.1f} M tokens/s; taking "
        f"a batch of {dataset.config.batch_size} × {dataset.context:,} costs {taken * 1e3:.1f} ms"
    )


def _alternate(loaders: list[DataLoader[Tensor]], seconds: float) -> list[float]:
    """The best of some rounds of each loader, in tokens a second."""
    rounds = [[_speed(one, seconds) for one in loaders] for _ in range(ROUNDS)]
    return [max(column) for column in zip(*rounds, strict=True)]


def _speed(source: DataLoader[Tensor], seconds: float) -> float:
    batches = iter(source)
    for _ in range(20):  # until every process has begun
        next(batches)
    tokens, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = next(batches)
        tokens += batch.numel() - len(batch)
    return tokens / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
