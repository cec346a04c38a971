"""The shape of a network -> `ModelConfig`, checked; the names of known networks -> theirs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from music_gpt.checking import check_choices, check_fields, choice, number, require, whole
from music_gpt.errors import InputError, argument

MAX_LAYERS, MAX_CONTEXT = 1000, 131_072
"""Bounds on what the weights in a file do not bound: a hostile checkpoint must cost little."""
N_EVENTS = 390
"""Size of the event vocabulary: a fact of `music_gpt.tokens.tokenizer`, not a knob."""


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the decoder. The defaults are the 6-block 512/2048 network, 19.3 M parameters."""

    n_layers: int = 6
    """Number of decoder blocks."""
    d_model: int = 512
    """Width of the residual stream."""
    d_ff: int = 2048
    """Width inside the feed-forward part of a block."""
    n_heads: int = 8
    """Number of attention (query) heads; each is d_model / n_heads wide."""
    n_kv_heads: int = 8
    """Number of key/value heads; fewer than n_heads is grouped-query attention."""
    context: int = 2048
    """Longest sequence in tokens that the network is trained on."""
    vocab_size: int = N_EVENTS
    """Number of token ids; other than the default only for the historical networks for text."""
    norm: Literal["pre", "post"] = "pre"
    """Where LayerNorm stands: before each part (GPT-2) or after each sum (the paper of 2017)."""
    final_norm: bool = False
    """Whether one more LayerNorm follows the last block of `post`; `pre` always has it."""
    activation: Literal["gelu", "relu"] = "gelu"
    """Nonlinearity of the feed-forward part; gelu is the tanh form."""
    positions: Literal["rope", "learned"] = "rope"
    """Rotary positions in attention (base 10,000), or a learned table of absolute positions."""
    bias: bool = True
    """Whether linear layers and LayerNorms carry a bias."""
    qkv_bias: bool = True
    """Whether the query, key and value projections carry a bias; needs `bias` to have an effect."""
    head_bias: bool = False
    """Whether the output head carries a bias."""
    tie_head: bool = False
    """Whether the output head shares the matrix of the token embedding."""
    qk_norm: bool = True
    """Whether queries and keys are normalised per head, by a LayerNorm without weights."""
    zero_init: bool = True
    """Whether the last projection of each residual part starts at zero."""
    init_std: float = 0.0
    """Standard deviation of the matrices of the blocks at the start; 0 for 1 / sqrt(inputs)."""
    dropout: float = 0.0
    """Share of activations dropped after the embedding and after each residual part."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_fields(self, ("d_model", "d_ff", "n_heads", "n_kv_heads", "vocab_size"), whole, 1)
        check_fields(self, ("n_layers",), whole, 1, MAX_LAYERS)
        check_fields(self, ("context",), whole, 2, MAX_CONTEXT)
        for name, of in (("n_heads", "d_model"), ("n_kv_heads", "n_heads")):
            part, all_ = getattr(self, name), getattr(self, of)
            require(all_ % part == 0, name, part, f"a divisor of {argument(of)} ({all_})")
        turns = self.positions != "rope" or self.d_head % 2 == 0
        require(turns, "d_model / n_heads", self.d_head, "even for rotary positions")
        check_fields(self, ("init_std",), number, 0, 1)
        check_fields(self, ("dropout",), number, 0, 1, below=True)

    @property
    def d_head(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.n_heads

    @property
    def qkv_rows(self) -> list[int]:
        """Rows of the queries, of the keys and of the values in the matrix that makes all three.

        >>> ModelConfig(n_kv_heads=2).qkv_rows
        [512, 128, 128]
        """
        return [heads * self.d_head for heads in (self.n_heads, self.n_kv_heads, self.n_kv_heads)]

    @classmethod
    def preset(cls, name: str) -> ModelConfig:
        """The network called `name`; raises `InputError` with the known names for another one.

        >>> ModelConfig.preset("small").n_layers
        4
        """
        return PRESETS[choice("preset", name, PRESETS)]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """From the plain dict inside a checkpoint; unknown fields raise `InputError`."""
        unknown = sorted(set(values) - {knob.name for knob in dataclasses.fields(cls)})
        if unknown:
            raise InputError(
                f"The model configuration has unknown fields ({', '.join(unknown)}); it was "
                "written by a newer version, so update music_gpt."
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for the metadata of a checkpoint."""
        return dataclasses.asdict(self)


_OF_OLD: dict[str, Any] = {
    "positions": "learned",
    "qk_norm": False,
    "zero_init": False,
    "init_std": 0.02,
}
"""What the networks that this one descends from have in common."""
PRESETS: dict[str, ModelConfig] = {
    "default": ModelConfig(),
    "small": ModelConfig(n_layers=4, d_model=256, d_ff=1024, n_heads=4, n_kv_heads=4, context=1024),
    "tiny": ModelConfig(n_layers=2, d_model=64, d_ff=256, n_heads=2, n_kv_heads=2, context=256),
    # chapter 14 of "Learn Generative AI with PyTorch": GPT-2 blocks over the 390 events
    "chapter14": ModelConfig(**_OF_OLD, dropout=0.1),
    # the text network of the same book: 3 blocks over a vocabulary of 10,600 words
    "text-3x256": ModelConfig(
        **_OF_OLD,
        n_layers=3,
        d_model=256,
        d_ff=1024,
        n_heads=4,
        n_kv_heads=4,
        context=128,
        vocab_size=10_600,
        dropout=0.1,
    ),
    # the network of Karpathy's lecture "Let's build GPT": ReLU, heads without bias
    "lecture": ModelConfig(
        **_OF_OLD,
        n_layers=6,
        d_model=384,
        d_ff=1536,
        n_heads=6,
        n_kv_heads=6,
        context=256,
        vocab_size=65,
        activation="relu",
        qkv_bias=False,
        head_bias=True,
        dropout=0.2,
    ),
    # "Attention is all you need", decoder blocks without the cross-attention
    "original-2017": ModelConfig(**_OF_OLD, norm="post", activation="relu", dropout=0.1),
}
