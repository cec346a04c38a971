"""A model and a split -> numbers: likelihood by the protocol of the published figures.

Every token of the split is scored exactly once, in non-overlapping windows of at most 2,048 tokens
inside one piece; that is how the figures for MAESTRO are computed, so they compare. A second figure
slides the window by half and scores only its second half, as a listener would hear it: always with
at least half a window of past.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from music_gpt.arrays import Ids
from music_gpt.checking import whole
from music_gpt.errors import InputError
from music_gpt.network.model import GPT, token_nats
from music_gpt.network.packed import packed
from music_gpt.tokens.corpus import Split, require_targets
from music_gpt.tokens.data import Windows
from music_gpt.tokens.events import PAD, VOCAB_SIZE

PROTOCOL_WINDOW = 2048


@dataclass(frozen=True)
class Likelihood:
    """How well a model predicts a split; lower is better but for `accuracy`."""

    nats_per_token: float
    nats_per_note: float
    nats_per_second: float
    accuracy: float
    n_tokens: int
    window: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, rounded to what the measurement can tell."""
        return {
            "nats_per_token": round(self.nats_per_token, 4),
            "nats_per_note": round(self.nats_per_note, 4),
            "nats_per_second": round(self.nats_per_second, 2),
            "accuracy": round(self.accuracy, 4),
            "tokens": self.n_tokens,
            "window": self.window,
        }


def likelihood(
    model: GPT,
    split: Split,
    *,
    window: int | None = None,
    batch_size: int = 8,
    max_tokens: int = 0,
    bf16: bool = False,
    progress: bool = False,
) -> Likelihood:
    """Score `split` with `model` in non-overlapping windows.

    window: tokens in a window, at most (and by default) the smaller of the network's context and
    2,048. max_tokens: read only about so many, spread evenly; 0 reads all. bf16: compute in bf16.
    """
    window = _checked_window(model, split, window, max_tokens)
    windows = Windows(split, window, batch_size, n_tokens=max_tokens)
    scored = windows.n_targets
    share = scored / split.n_targets
    nats, hits = 0.0, 0
    for ids, logits in _forward(model, windows, bf16=bf16, progress=progress):
        nats += float(token_nats(logits, ids[:, 1:], PAD)[0])
        hits += _hits(logits, ids)
    return Likelihood(
        nats_per_token=nats / max(scored, 1),
        nats_per_note=nats / max(split.n_notes * share, 1e-9),
        nats_per_second=nats / max(split.n_seconds * share, 1e-9),
        accuracy=hits / max(scored, 1),
        n_tokens=scored,
        window=window,
    )


def sliding_nats_per_token(
    model: GPT,
    split: Split,
    *,
    window: int | None = None,
    batch_size: int = 8,
    max_tokens: int = 0,
    bf16: bool = False,
    progress: bool = False,
) -> float:
    """Nats per token when each token has at least half a window of past (where the piece has it).

    The window moves on by half of its length; only its second half is scored, but for the first
    window of a piece, which is scored whole.
    """
    window = _checked_window(model, split, window, max_tokens)
    stride = max(window // 2, 1)
    windows = Windows(split, window, batch_size, n_tokens=max_tokens, stride=stride)
    nats, count = 0.0, 0
    for ids, logits in _forward(model, windows, bf16=bf16, progress=progress):
        targets = ids[:, 1:].clone()
        targets[windows.batch_starts.to(ids.device) > 0, : window - stride] = PAD
        part, n = token_nats(logits, targets, PAD)
        nats, count = nats + float(part), count + int(n)
    return nats / max(count, 1)


def require_max_tokens(max_tokens: int) -> None:
    """Raise `InputError` unless so many tokens can be scored; 0 stands for all."""
    whole("max_tokens", max_tokens, 0)


def _checked_window(model: GPT, split: Split, window: int | None, max_tokens: int) -> int:
    """The window, or the protocol's; `InputError` if the network cannot score the split with it."""
    require_max_tokens(max_tokens)
    context, n_ids = model.config.context, model.config.vocab_size
    if n_ids < VOCAB_SIZE:
        raise InputError(
            f"The network knows {n_ids:,} tokens, but the {split.name} split has {VOCAB_SIZE}; use "
            "a checkpoint that was trained on music."
        )
    require_targets(split)
    window = min(context, PROTOCOL_WINDOW) if window is None else window
    return whole("window", window, 1, context)


def _forward(
    model: GPT, windows: Windows, *, bf16: bool, progress: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of ids (B, T + 1) with their logits (B, T, V), without dropout."""
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    network = model if bf16 else packed(model)
    batches = tqdm(windows, "evaluate", unit="batch", file=sys.stderr, disable=not progress)
    try:
        for batch in batches:
            ids = batch.to(device)
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                logits = network(ids[:, :-1])
            yield ids, logits
    finally:
        model.train(was_training)


def _hits(logits: Tensor, ids: Tensor) -> int:
    targets = ids[:, 1:]
    return int(((logits.argmax(dim=-1) == targets) & (targets != PAD)).sum())


# --- the plain model that any network has to beat ---------------------------------------------


def ngram_nats_per_token(train: Split, test: Split, *, order: int = 2) -> float:
    """Nats per token on `test` of an interpolated n-gram of `train` with `order` tokens of past."""
    return mean_nats_of(ngram(train, order), test)


def mean_nats_of(probability: Callable[[Ids], np.ndarray], test: Split) -> float:
    """Nats per token on `test` of what `ngram` returns."""
    nats = [-np.log(probability(test.piece(i))).sum() for i in range(test.n_pieces)]
    return float(sum(nats) / max(test.n_tokens - test.n_pieces, 1))


def ngram(train: Split, order: int) -> Callable[[Ids], np.ndarray]:
    """The function from the ids of a piece (N) to the probability of each but the first (N - 1).

    Source: Jelinek-Mercer smoothing with Witten-Bell weights (Chen and Goodman 1998): each order
    gives the share T / (N + T) to the one below, where T is the number of different followers of a
    past that was seen N times; below the unigrams stands the uniform distribution.
    """
    probability: Callable[[Ids], np.ndarray] = _uniform
    for n in range(order + 1):
        probability = _interpolated(train, n, probability)
    return probability


def _uniform(ids: Ids) -> np.ndarray:
    return np.full(len(ids) - 1, 1.0 / VOCAB_SIZE)


def _keys(ids: Ids, n: int) -> tuple[np.ndarray, np.ndarray]:
    """For each target: the number of its past of n tokens, and of past and target together.

    A past that would begin before the piece is filled up with PAD.
    """
    padded = np.concatenate((np.full(max(n - 1, 0), PAD), ids)).astype(np.int64)
    n_targets = len(ids) - 1
    past = np.zeros(n_targets, dtype=np.int64)
    for k in range(n):
        first = len(padded) - 1 - n_targets - k
        past += padded[first : first + n_targets] * (VOCAB_SIZE**k)
    return past, past * VOCAB_SIZE + ids[1:]


def _interpolated(
    train: Split, n: int, below: Callable[[Ids], np.ndarray]
) -> Callable[[Ids], np.ndarray]:
    """The distribution with n tokens of past, mixed with the one below."""
    joint_all = np.concatenate([_keys(train.piece(i), n)[1] for i in range(train.n_pieces)])
    joints, joint_counts = np.unique(joint_all, return_counts=True)
    pasts, first, kinds = np.unique(joints // VOCAB_SIZE, return_index=True, return_counts=True)
    past_counts = np.add.reduceat(joint_counts, first)

    def look_up(table: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> np.ndarray:
        place = np.minimum(np.searchsorted(table, keys), len(table) - 1)
        return np.where(table[place] == keys, counts[place], 0)

    def probability(ids: Ids) -> np.ndarray:
        past, joint = _keys(ids, n)
        seen, followers = look_up(pasts, past_counts, past), look_up(pasts, kinds, past)
        lower = below(ids)
        weight = np.maximum(seen + followers, 1)
        mixed = (look_up(joints, joint_counts, joint) + followers * lower) / weight
        return np.where(seen > 0, mixed, lower)

    return probability
