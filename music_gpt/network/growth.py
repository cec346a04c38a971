"""A trained network and the shape of a larger one -> the larger one, which computes the same.

A large network that begins as a small one which already knows the music has a long way behind it.
Every number of the residual stream is there m times, every head and every hidden unit too; a matrix
that reads m copies of a number shares its weight among them, unequally, so that the copies learn
different things; added blocks begin as the identity.

Source: Chen et al. 2016, "Net2Net", with blocks added as in Bachlechner et al. 2021, "ReZero".
The module knows neither files nor training.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from music_gpt.config.model import ModelConfig
from music_gpt.errors import InputError
from music_gpt.network.model import GPT, Block

MAY_DIFFER = {"n_layers", "d_model", "d_ff", "n_heads", "n_kv_heads", "context", "dropout"} | {
    *("zero_init", "init_std")  # of no matter to a network that is trained
}
"""Fields of the configuration in which the larger network may differ."""


def grown(small: GPT, config: ModelConfig) -> GPT:
    """A network of the shape `config` whose logits are those of `small`, to rounding.

    d_model and d_ff have to be whole multiples of the small network's, the heads as wide as its
    heads and as many times as many, the blocks at least as many, the context at least as long.
    What is random is drawn from torch's generator. Raises `InputError` for another shape.

    >>> from dataclasses import replace
    >>> small = GPT(ModelConfig.preset("tiny")).eval()
    >>> shape = replace(small.config, n_layers=3, d_model=128, d_ff=512, n_heads=4, n_kv_heads=4)
    >>> large, ids = grown(small, shape).eval(), torch.tensor([[1, 2, 3]])
    >>> torch.allclose(small(ids), large(ids), atol=1e-5)
    True
    """
    _require_growth(small.config, config)
    large = GPT(config)
    m, f = config.d_model // small.config.d_model, config.d_ff // small.config.d_ff
    with torch.no_grad():
        large.embedding.weight.copy_(small.embedding.weight.repeat(1, m))
        if large.positions is not None and small.positions is not None:
            large.positions.weight.copy_(small.positions.weight.repeat(1, m))
        for block in large.blocks:
            _silence(cast(Block, block))
        for block, place in zip(small.blocks, _places(small.config, config), strict=True):
            _grow_block(cast(Block, large.blocks[place]), cast(Block, block), m, f)
        if isinstance(small.norm, nn.LayerNorm):
            _grow_norm(cast(nn.LayerNorm, large.norm), small.norm, m)
        _grow_linear(large.head, small.head, 1, m)
    return large


def _require_growth(small: ModelConfig, large: ModelConfig) -> None:
    theirs = large.to_dict()
    others = [
        f"{name} {theirs[name]} in place of {own}"
        for name, own in small.to_dict().items()
        if name not in MAY_DIFFER and own != theirs[name]
    ]
    m, rest = divmod(large.d_model, small.d_model)
    grows = (
        not others
        and (large.n_layers == small.n_layers or small.norm == "pre")
        and (m == 1 or not small.tie_head)
        and rest == 0
        and large.d_ff % small.d_ff == 0
        and large.d_head == small.d_head
        and large.n_kv_heads == m * small.n_kv_heads
        and large.n_layers >= small.n_layers
        and large.context >= small.context
        and (small.positions == "rope" or large.context == small.context)
    )
    if not grows:
        with_others = f" with {' and '.join(others)}" if others else ""
        raise InputError(
            f"A network of {small.n_layers} blocks, {small.d_model}/{small.d_ff}, "
            f"{small.n_heads} heads and {small.n_kv_heads} key/value heads cannot be grown into "
            f"one of {large.n_layers} blocks, {large.d_model}/{large.d_ff}, {large.n_heads} and "
            f"{large.n_kv_heads}{with_others}; use its own shape, or whole multiples of the "
            "widths and of the heads and at least as many blocks, and leave the other settings of "
            f"the model as they are: {small.to_dict()}."
        )


def _places(small: ModelConfig, large: ModelConfig) -> list[int]:
    """Where the blocks of the small network stand in the large one: spread evenly."""
    if small.n_layers == 1:
        return [0]
    step = (large.n_layers - 1) / (small.n_layers - 1)
    return [round(i * step) for i in range(small.n_layers)]


def _silence(block: Block) -> None:
    """Make a block the identity: what it adds to the residual stream is zero."""
    for linear in (block.attention.proj, block.feed_forward.down):
        nn.init.zeros_(linear.weight)


def _grow_block(large: Block, small: Block, m: int, f: int) -> None:
    _grow_norm(large.norm1, small.norm1, m)
    _grow_norm(large.norm2, small.norm2, m)
    # rows of the query, key and value heads lie one kind after the other, each is copied apart
    rows = small.attention.qkv_rows
    parts = torch.split(small.attention.qkv.weight, rows)
    large.attention.qkv.weight.copy_(torch.cat([_shared(part, m, m) for part in parts]))
    if small.attention.qkv.bias is not None:
        biases = torch.split(small.attention.qkv.bias, rows)
        large.attention.qkv.bias.copy_(torch.cat([bias.repeat(m) for bias in biases]))
    _grow_linear(large.attention.proj, small.attention.proj, m, m)
    _grow_linear(large.feed_forward.up, small.feed_forward.up, f, m)
    _grow_linear(large.feed_forward.down, small.feed_forward.down, m, f)


def _grow_norm(large: nn.LayerNorm, small: nn.LayerNorm, m: int) -> None:
    large.weight.copy_(small.weight.repeat(m))
    if small.bias is not None:
        large.bias.copy_(small.bias.repeat(m))


def _grow_linear(large: nn.Linear, small: nn.Linear, n_out: int, n_in: int) -> None:
    large.weight.copy_(_shared(small.weight, n_out, n_in))
    if small.bias is not None:
        large.bias.copy_(small.bias.repeat(n_out))


def _shared(weight: Tensor, n_out: int, n_in: int) -> Tensor:
    """weight (R, C) -> (n_out R, n_in C): acts on n_in copies of an input as `weight` on one.

    The weights of the copies sum to the old weight. They differ by noise as great as makes the
    variance of the new matrix 1 / n_in of the old one's, which is what its width asks for.
    """
    wide = weight.repeat(n_out, n_in) / n_in
    if n_in == 1:
        return wide
    spread = float(weight.std(correction=0)) * math.sqrt(1 / n_in)
    noise = spread * torch.randn(n_out * weight.shape[0], n_in, weight.shape[1])
    return wide + (noise - noise.mean(dim=1, keepdim=True)).flatten(1)
