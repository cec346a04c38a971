"""Token ids (B, T) -> logits (B, T, V): the decoder in plain torch.

The letters in the shape comments: B pieces in a batch, T new tokens, P tokens already in the cache,
D width of the residual stream, H query heads, G key/value heads, K width of a head, F width of the
feed-forward part, V tokens in the vocabulary, L blocks.

The module knows nothing of music, files or training loops. Its parts carry the names of GPT-2 and
of "Attention is all you need"; with the default knobs it computes what transformers calls
Starcoder2, with learned positions what it calls GPT-2, with normalised queries and keys Persimmon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_gpt.checking import whole
from music_gpt.config.model import ModelConfig
from music_gpt.errors import InputError
from music_gpt.network.attention import NORM_EPS, Attention, KVCache, rope_table

EMBEDDING_STD = 0.02
"""Spread of the embeddings and of the head at the start, as in GPT-2."""


class FeedForward(nn.Module):
    """Two linear layers with a nonlinearity between, at each position alone."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.relu = config.activation == "relu"

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        h = self.up(x)  # (B, T, F)
        h = F.relu(h) if self.relu else F.gelu(h, approximate="tanh")
        return cast(Tensor, self.down(h))


class Block(nn.Module):
    """Attention, then feed-forward, each added to the residual stream and normalised."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.d_model, eps=NORM_EPS, bias=config.bias)
        self.attention = Attention(config, layer)
        self.norm2 = nn.LayerNorm(config.d_model, eps=NORM_EPS, bias=config.bias)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)
        self.post = config.norm == "post"

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor] | None, cache: KVCache | None
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        return self.fed(self.attended(x, rope, cache))

    def attention_input(self, x: Tensor) -> Tensor:
        """What attention is given of the stream x (B, T, D): the same shape."""
        return x if self.post else cast(Tensor, self.norm1(x))

    def attended(
        self, x: Tensor, rope: tuple[Tensor, Tensor] | None, cache: KVCache | None
    ) -> Tensor:
        """The stream x (B, T, D) with what attention adds to it."""
        x = x + self.dropout(self.attention(self.attention_input(x), rope, cache))
        return cast(Tensor, self.norm1(x)) if self.post else x

    def fed(self, x: Tensor) -> Tensor:
        """The stream x (B, T, D) with what the feed-forward layer adds to it."""
        if self.post:
            return cast(Tensor, self.norm2(x + self.dropout(self.feed_forward(x))))
        return cast(Tensor, x + self.dropout(self.feed_forward(self.norm2(x))))


class GPT(nn.Module):
    """The network: embedding, blocks, head.

    >>> model = GPT(ModelConfig.preset("tiny"))
    >>> model(torch.zeros(1, 5, dtype=torch.long)).shape
    torch.Size([1, 5, 390])
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = (
            nn.Embedding(config.context, config.d_model) if config.positions == "learned" else None
        )
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        # with post-norm the last block already ends in a LayerNorm
        self.norm = (
            nn.LayerNorm(config.d_model, eps=NORM_EPS, bias=config.bias)
            if config.norm == "pre" or config.final_norm
            else nn.Identity()
        )
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)
        if config.tie_head:
            self.head.weight = self.embedding.weight
        self.rope_cos: Tensor
        self.rope_sin: Tensor
        cos, sin = rope_table(config.context, config.d_head)
        self.register_buffer("rope_cos", cos, persistent=False)
        self.register_buffer("rope_sin", sin, persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        """Normal weights; the last projection of each residual part zero or scaled down as GPT-2's.

        With a spread of 1 / sqrt(inputs) queries and keys begin with entries of about 1. With the
        0.02 of GPT-2 attention begins almost flat, and a short training loses much of what it has
        to finding its way out (see docs/ablations.md).
        """
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=EMBEDDING_STD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        zero, shrink = self.config.zero_init, 1 / math.sqrt(2 * self.config.n_layers)
        for block in self.blocks:
            assert isinstance(block, Block)
            attention, feed_forward = block.attention, block.feed_forward
            for linear in (attention.qkv, feed_forward.up):
                nn.init.normal_(linear.weight, std=self._init_std(linear))
            for linear in (attention.proj, feed_forward.down):
                std = 0.0 if zero else self._init_std(linear) * shrink
                nn.init.normal_(linear.weight, std=std)
        if zero and not self.config.tie_head:
            nn.init.zeros_(self.head.weight)

    def _init_std(self, linear: nn.Linear) -> float:
        return self.config.init_std or linear.in_features**-0.5

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits of the token after each of `ids`.

        ids: (B, T) whole numbers below vocab_size. cache: when given, `ids` continue what it holds,
        and their keys and values are added to it. Returns (B, T, V) in float32. Raises `InputError`
        when more positions are asked for than there are (the context, or the cache's capacity), for
        no ids at all and, on a CPU, for ids that are not in the vocabulary.
        """
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise InputError(
                f"Ids of shape {tuple(ids.shape)} were given, but they have to be (pieces, tokens) "
                "with at least one token; give a row of ids for each piece."
            )
        start = 0 if cache is None else cache.length
        end = start + ids.shape[1]
        limit = self.config.context if cache is None else cache.capacity
        if end > limit:
            raise InputError(
                f"{end} tokens do not fit into a context of {limit}; give fewer, or slide on."
            )
        places = slice(start, end) if cache is None else cache.places(ids.shape[1])
        x, rope = self.enter(ids, places)
        for block in self.blocks:
            x = block(x, rope, cache)
        if cache is not None:
            cache.heard(ids.shape[1])
        return self.leave(x)

    def enter(
        self, ids: Tensor, places: slice | Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Ids (B, T) at these places -> the stream x (B, T, D), and the rotations of its keys."""
        x, rope = self._embed(ids), None
        if self.positions is not None:
            x = x + self.positions.weight[places]
        else:
            rope = self.rope_cos[places], self.rope_sin[places]
        return self.dropout(x), rope

    def leave(self, x: Tensor) -> Tensor:
        """The stream x (B, T, D) -> logits (B, T, V) in float32."""
        return cast(Tensor, self.head(self.norm(x)).float())

    def _embed(self, ids: Tensor) -> Tensor:
        try:
            return cast(Tensor, self.embedding(ids))
        except (IndexError, RuntimeError) as error:
            if not ids.is_cpu or not self.embedding.weight.is_cpu:
                raise  # a graphics card tells nothing of this kind
            raise InputError(
                f"The ids have to be whole numbers from 0 to {self.config.vocab_size - 1}, the "
                "vocabulary of this network; give others."
            ) from error

    def new_cache(
        self, batch_size: int, length: int | None = None, dtype: torch.dtype = torch.float32
    ) -> KVCache:
        """An empty cache for `batch_size` pieces of `length` tokens (default: the context)."""
        length = self.config.context if length is None else length
        whole("length", length, 1, self.config.context)
        c = self.config
        shape = (c.n_layers, batch_size, c.n_kv_heads, length, c.d_head)
        device = self.embedding.weight.device
        return KVCache(
            torch.zeros(shape, dtype=dtype, device=device),
            torch.zeros(shape, dtype=dtype, device=device),
        )

    @property
    def n_parameters(self) -> int:
        """Number of trained numbers."""
        return sum(p.numel() for p in self.parameters())

    def flops_per_token(self, n_time: int | None = None) -> float:
        """Floating-point operations per token of one forward and backward pass over n_time tokens.

        Source: Chowdhery et al. 2022 (PaLM), appendix B: 6 per matrix weight + 12 L D T, the latter
        halved for causality.
        """
        n_time = self.config.context if n_time is None else n_time
        # what is only looked up costs nothing; a tied embedding multiplies as the head
        looked_up = 0 if self.config.tie_head else self.embedding.weight.numel()
        if self.positions is not None:
            looked_up += self.positions.weight.numel()
        weights = self.n_parameters - looked_up
        return 6.0 * weights + 6.0 * self.config.n_layers * self.config.d_model * n_time


def state_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights of a `GPT`, however large: nothing is built for it.

    >>> state_shapes(ModelConfig.preset("tiny"))["blocks.1.attention.proj.weight"]
    (64, 64)
    """
    c, n_qkv = config, sum(config.qkv_rows)
    block = {
        "norm1": ((c.d_model,), c.bias),
        "attention.qkv": ((n_qkv, c.d_model), c.bias and c.qkv_bias),
        "attention.proj": ((c.d_model, c.d_model), c.bias),
        "norm2": ((c.d_model,), c.bias),
        "feed_forward.up": ((c.d_ff, c.d_model), c.bias),
        "feed_forward.down": ((c.d_model, c.d_ff), c.bias),
    }
    parts: dict[str, tuple[tuple[int, ...], bool]] = {
        "embedding": ((c.vocab_size, c.d_model), False),
        "head": ((c.vocab_size, c.d_model), c.head_bias),
    }
    if c.positions == "learned":
        parts["positions"] = (c.context, c.d_model), False
    if c.norm == "pre" or c.final_norm:
        parts["norm"] = (c.d_model,), c.bias
    for layer in range(c.n_layers):
        parts |= {f"blocks.{layer}.{name}": part for name, part in block.items()}
    weights = {f"{name}.weight": shape for name, (shape, _) in parts.items()}
    return weights | {f"{name}.bias": shape[:1] for name, (shape, bias) in parts.items() if bias}


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number in the tensors is finite.

    >>> all_finite([torch.zeros(2), torch.tensor([1.0, math.nan])])
    False
    """
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def token_nats(logits: Tensor, targets: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    """Sum of the negative log-likelihoods in nats, and how many targets it counts.

    logits (B, T, V), targets (B, T); targets equal to `ignore` are left out of both. Two scalars;
    the sum of no targets is 0, so that a window of padding alone cannot make a mean NaN.
    """
    nats = F.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=ignore, reduction="sum"
    )
    return nats, (targets != ignore).sum()


def use_bf16(precision: str, device: str) -> bool:
    """Whether to compute in bf16: as told, or where the hardware multiplies it."""
    if precision != "auto":
        return precision == "bf16"
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and bool(torch.cpu._is_avx512_bf16_supported())


def resolve_device(device: str) -> str:
    """'cpu', 'cuda' or 'mps' for one of them or 'auto'; `InputError` if there is no such thing."""
    has = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        return next(name for name, there in has.items() if there)
    if not has.get(device, False):
        raise InputError(f"This machine has no {device}; use auto, or one of {', '.join(has)}.")
    return device
