"""Ids -> what each layer makes of the last of them: where it looks, and what it expects next.

The letters are those of `music_gpt.network.attention`. The module knows neither events nor music.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from music_gpt.network.attention import Attention, rotate
from music_gpt.network.model import GPT, Block


@dataclass(frozen=True)
class Inside:
    """What goes on in the network while it makes out what follows T ids."""

    attention: Tensor
    """How much each head of each block attends to each id, (L, H, T); a head's weights sum to 1."""
    logits: Tensor
    """What would come next if the network ended there, (1 + 2 L, V): after the embedding, and in
    each block after attention and after the feed-forward layer. The last row is its answer.

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens"."""


@torch.inference_mode()
def observe(model: GPT, ids: Sequence[int]) -> Inside:
    """The network at work on a row of ids, at most its context, as it hears them from nothing.

    >>> from music_gpt.config.model import ModelConfig
    >>> inside = observe(GPT(ModelConfig.preset("tiny")), [388, 60, 300])
    >>> inside.attention.shape, inside.logits.shape
    (torch.Size([2, 2, 3]), torch.Size([5, 390]))
    """
    row = torch.tensor([list(ids)], device=model.embedding.weight.device)  # (1, T)
    x, rope = model.enter(row, slice(0, row.shape[1]))
    weights, streams = [], [x]
    for block in cast("Iterable[Block]", model.blocks):
        weights.append(last_weights(block.attention, block.attention_input(x), rope)[0])
        after_attention = block.attended(x, rope, None)
        x = block.fed(after_attention)
        streams += [after_attention, x]
    last = torch.cat([stream[:, -1] for stream in streams])  # (1 + 2 L, D)
    return Inside(torch.stack(weights).cpu(), model.leave(last).cpu())


def last_weights(attention: Attention, x: Tensor, rope: tuple[Tensor, Tensor] | None) -> Tensor:
    """How much the last position attends to each one: x (B, T, D) -> (B, H, T)."""
    q, k, _ = attention.project(x)  # (B, H, T, K), (B, G, T, K)
    if rope is not None:
        q, k = rotate(q, *rope), rotate(k, *rope)
    k = k.repeat_interleave(attention.n_heads // attention.n_kv_heads, dim=1)
    scores = q[:, :, -1:] @ k.transpose(2, 3) / math.sqrt(attention.d_head)  # (B, H, 1, T)
    return scores.softmax(3)[:, :, 0]
