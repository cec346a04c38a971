"""Queries, keys and values of tokens -> what each takes from those before it: causal attention.

The letters in the shape comments are those of `music_gpt.network.model`.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_gpt.config.model import ModelConfig

ROPE_BASE = 10_000.0
NORM_EPS = 1e-5


def rope_table(n_positions: int, d_head: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions, each (n_positions, K), in float32.

    Source: Su et al. 2021, "RoFormer", in the "rotate half" layout of the Hugging Face models.
    """
    frequencies = ROPE_BASE ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)  # (K/2)
    angles = torch.outer(torch.arange(n_positions, dtype=torch.float64), frequencies)
    angles = torch.cat((angles, angles), dim=-1)  # (positions, K)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of x (B, H, T, K) by the angle of its position; cos and sin are (T, K)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-second, first), dim=-1) * sin.to(x.dtype)


class KVCache:
    """Keys and values of the tokens that the network has seen, in buffers of fixed size.

    keys, values: (L, B, G, capacity, K); `length` counts the positions in use. Keys are stored
    after rotation, so a cached position keeps its place. The caller owns it; the model fills it.
    """

    seen: Tensor | None = None
    """Positions that may be attended to, where they are not those up to each token's own."""

    def __init__(self, keys: Tensor, values: Tensor, length: int = 0) -> None:
        self.keys, self.values, self.length = keys, values, length

    @property
    def capacity(self) -> int:
        """Number of positions that fit."""
        return self.keys.shape[3]

    def expand(self, batch_size: int) -> KVCache:
        """A new cache of `batch_size` rows, each a copy of row 0."""

        def copies(buffer: Tensor) -> Tensor:
            wide = buffer.new_zeros(buffer.shape[0], batch_size, *buffer.shape[2:])
            wide[:, :, :, : self.length] = buffer[:, :1, :, : self.length]
            return wide

        return KVCache(copies(self.keys), copies(self.values), self.length)

    def places(self, n_new: int) -> slice | Tensor:
        """Positions of the next `n_new` tokens."""
        return slice(self.length, self.length + n_new)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put (B, G, T, K) behind what `layer` holds; returns views (B, G, P + T, K) of it all."""
        end = self.length + keys.shape[2]
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def heard(self, n_new: int) -> None:
        """All layers hold so many tokens more."""
        self.length += n_new


class StepCache(KVCache):
    """A cache for steps of one token each, all of one shape, wherever they stand.

    Where a step stands is a number on the device, `place` (1), which the caller sets before each
    one. So all steps are the same operations on the same memory, as a CUDA graph needs them; each
    attends to the whole capacity, under a mask. Keys and values are shared with `cache`.
    """

    def __init__(self, cache: KVCache) -> None:
        super().__init__(cache.keys, cache.values)
        self.place = torch.zeros(1, dtype=torch.long, device=cache.keys.device)
        self._positions = torch.arange(self.capacity, device=cache.keys.device)

    def places(self, n_new: int) -> Tensor:
        """The place of the one new token, (1)."""
        self.seen = (self._positions <= self.place)[None]  # (1, capacity)
        return self.place

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put (B, G, 1, K) at the place; returns the whole buffers (B, G, capacity, K)."""
        kept_keys, kept_values = self.keys[layer], self.values[layer]
        kept_keys.index_copy_(2, self.place, keys.to(kept_keys.dtype))
        kept_values.index_copy_(2, self.place, values.to(kept_values.dtype))
        return kept_keys, kept_values

    def heard(self, n_new: int) -> None:
        """Nothing to count: the caller knows the place."""


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None) -> Tensor:
    """Causal attention of the last T positions over all P + T: softmax(q k' / sqrt(K)) v.

    q is (B, H, T, K), k and v are (B, G, P + T, K) with G a divisor of H; returns (B, H, T, K).
    seen: what each position may attend to in place of that, (T, P + T).

    Worked example, one query with scores 0 and ln 3, so weights 1/4 and 3/4:

    >>> from math import log
    >>> q = torch.tensor([[[[0.0, 1.0]]]])
    >>> k = torch.tensor([[[[0.0, 0.0], [0.0, log(3) * 2**0.5]]]])
    >>> v = torch.tensor([[[[2.0, 0.0], [0.0, 4.0]]]])
    >>> [round(x, 5) for x in attend(q, k, v).flatten().tolist()]
    [0.5, 3.0]
    """
    n_new, n_all = q.shape[2], k.shape[2]
    grouped = q.shape[1] != k.shape[1]
    if seen is not None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped)
    if n_new == 1 or n_new == n_all:
        return F.scaled_dot_product_attention(q, k, v, is_causal=n_new > 1, enable_gqa=grouped)
    # new tokens behind a cache: row t may see the P cached positions and the new ones up to its own
    mask = torch.ones(n_new, n_all, dtype=torch.bool, device=q.device).tril(n_all - n_new)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)


class Attention(nn.Module):
    """Causal self-attention with H query heads over G key/value heads."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.n_heads, self.n_kv_heads = layer, config.n_heads, config.n_kv_heads
        self.d_head = config.d_head
        self.qkv_rows = config.qkv_rows
        self.qkv = nn.Linear(
            config.d_model, sum(self.qkv_rows), bias=config.bias and config.qkv_bias
        )
        self.proj = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.qk_norm = config.qk_norm

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor] | None, cache: KVCache | None
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        q, k, v = self.project(x)
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        seen = None
        if cache is not None:
            k, v = cache.write(self.layer, k, v)
            seen = cache.seen
        # a cache may hold another type of number than the network computes with
        mixed = attend(q.to(k.dtype), k, v, seen).to(q.dtype)  # (B, H, T, K)
        return cast(Tensor, self.proj(mixed.transpose(1, 2).reshape(x.shape)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, D) -> queries (B, H, T, K), keys and values (B, G, T, K), without positions."""
        heads = self.qkv(x).unflatten(2, (-1, self.d_head)).transpose(1, 2)
        q, k, v = heads.split((self.n_heads, self.n_kv_heads, self.n_kv_heads), dim=1)
        if self.qk_norm:
            q, k = (F.layer_norm(part, (self.d_head,), eps=NORM_EPS) for part in (q, k))
        return q, k, v
