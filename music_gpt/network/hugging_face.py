"""A network -> a folder that transformers loads: config.json, model.safetensors and the like.

With rotary positions it is Hugging Face's Starcoder2, or Persimmon where queries and keys are
normalised; with learned positions it is GPT-2. All compute the same. Only names and layouts change
here; neither transformers nor the network runs for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from music_gpt.config.model import N_EVENTS, ModelConfig
from music_gpt.errors import InputError
from music_gpt.files import as_path, require_writable, whole_file
from music_gpt.folders import EXPORT, EXPORT_CARD, require_room
from music_gpt.network.attention import NORM_EPS, ROPE_BASE
from music_gpt.network.model import GPT
from music_gpt.tokens.corpus import tokenizer_text
from music_gpt.tokens.events import EOS, PAD

Weights = dict[str, Tensor]

KINDS = ("weight", "bias")
_OURS = re.compile(
    rf"{re.escape(EXPORT_CARD)}|(config|generation_config|miditok)\.json|model\.safetensors|README\.md"
)
"""The names in an export."""
GPT2_NAMES = {
    "ln_1": "norm1",
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.proj",
    "ln_2": "norm2",
    "mlp.c_fc": "feed_forward.up",
    "mlp.c_proj": "feed_forward.down",
}
"""Part of a block in GPT-2 -> the same part here."""

STARCODER2_NORMS = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"}
STARCODER2_LINEARS = {
    "self_attn.o_proj": "attention.proj",
    "mlp.c_fc": "feed_forward.up",
    "mlp.c_proj": "feed_forward.down",
}
PERSIMMON_NAMES = {
    **STARCODER2_NORMS,
    "self_attn.dense": "attention.proj",
    "mlp.dense_h_to_4h": "feed_forward.up",
    "mlp.dense_4h_to_h": "feed_forward.down",
}
"""The same for Starcoder2, whose linear layers may lack a bias, and for Persimmon."""

READ_ME = """---
library_name: transformers
license: {licence}
tags: [music, piano, midi]
---
# {name}

A {kind} that `music-gpt export` wrote; `music_gpt.json` says where it comes from.

```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(".")
ids = model.generate(torch.tensor([[{start}]]), max_new_tokens=500)
```
"""
EVENTS = f"""
Its {N_EVENTS} ids: 0-127 note on, 128-255 note off, 256-355 waits of 10 ms to 1 s, 356-387 velocity
in 32 bins, told only when it changes, {EOS} heads and ends a piece, {PAD} pads. `miditok.json` is
the tokenizer for MidiTok; it is none of transformers'.
"""


def export_for_transformers(model: GPT, card: Mapping[str, Any], folder: str | Path) -> list[str]:
    """Write what `AutoModelForCausalLM.from_pretrained(folder)` loads; the names of the files.

    Beside the network lie `generation_config.json`, the card, MidiTok's tokenizer under a name of
    its own (it is none of transformers') and a README that says how to use them. Raises
    `InputError` for a network that has no place in transformers, and where the folder cannot be
    written or holds anything but an export.
    """
    config, weights = as_transformers(model)
    music = model.config.vocab_size == N_EVENTS
    files = {
        # first: by it the folder is known as ours, should the rest not be written
        EXPORT_CARD: _json({"model": model.config.to_dict(), "card": dict(card)}),
        "model.safetensors": save(weights, metadata={"format": "pt"}),
        "config.json": _json(config),
        "README.md": _read_me(config, card, music=music).encode(),
    }
    if music:
        ends = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": PAD}
        files["generation_config.json"] = _json({**ends, "do_sample": True})
        files["miditok.json"] = tokenizer_text().encode()
    folder = as_path(folder)
    require_room(folder, EXPORT, _OURS)
    for name in files:  # all, before the first is written
        require_writable(folder / name)
    for name, content in files.items():
        with whole_file(folder / name) as beside:
            beside.write_bytes(content)
    return sorted(files)


def as_transformers(model: GPT) -> tuple[dict[str, Any], Weights]:
    """The configuration and the weights of the same network in transformers' names.

    Raises `InputError` for a network that transformers has no architecture for.
    """
    c = model.config
    reasons = {
        "its LayerNorms stand after the sums (norm post)": c.norm == "post",
        "its head has a bias (head_bias)": c.head_bias,
        "it has learned positions and normalises queries and keys (qk_norm)": c.qk_norm
        and c.positions == "learned",
        "it has learned positions and fewer key/value heads than heads": c.positions == "learned"
        and c.n_kv_heads < c.n_heads,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"transformers has no place for this network, because {reason}; export a network "
                "with norm pre and without that."
            )
    with_rope = _persimmon if c.qk_norm else _starcoder2
    config, weights = (with_rope if c.positions == "rope" else _gpt2)(model)
    shared = {"dtype": "float32", "vocab_size": c.vocab_size, "tie_word_embeddings": c.tie_head}
    ids = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": PAD}
    none = dict.fromkeys(ids)
    config |= {**shared, **(ids if c.vocab_size == N_EVENTS else none)}
    if not c.tie_head:
        weights["lm_head.weight"] = model.head.weight
    return config, {name: t.detach().float().contiguous() for name, t in weights.items()}


def _activation(config: ModelConfig) -> str:
    return "relu" if config.activation == "relu" else "gelu_pytorch_tanh"


def _with_rope(c: ModelConfig, kind: str, further: Mapping[str, Any]) -> dict[str, Any]:
    """What Starcoder2 and Persimmon tell in the same words."""
    return {
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "max_position_embeddings": c.context,
        "hidden_act": _activation(c),
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_BASE},
        "rope_theta": ROPE_BASE,  # where transformers before 5 look for it
        **further,
    }


def _starcoder2(model: GPT) -> tuple[dict[str, Any], Weights]:
    c, own = model.config, _Own(model)
    its_own = {
        "num_key_value_heads": c.n_kv_heads,
        "norm_epsilon": NORM_EPS,
        "sliding_window": None,
        "use_bias": c.bias,
    }
    layers, biased = "model.layers.{}", KINDS if c.bias else ("weight",)
    out = {"model.embed_tokens.weight": own("embedding.weight")}
    out |= {f"model.norm.{kind}": own(f"norm.{kind}") for kind in KINDS}
    out |= own.of_blocks(layers, STARCODER2_NORMS)
    out |= own.of_blocks(layers, STARCODER2_LINEARS, biased)
    for name, qkv in own.of_blocks(layers, {"self_attn.{}_proj": "attention.qkv"}, biased).items():
        parts = torch.split(qkv, c.qkv_rows)
        out |= {name.format(letter): part for letter, part in zip("qkv", parts, strict=True)}
    return _with_rope(c, "starcoder2", its_own), out


def _persimmon(model: GPT) -> tuple[dict[str, Any], Weights]:
    c, own = model.config, _Own(model)
    config = _with_rope(c, "persimmon", {"layer_norm_eps": NORM_EPS, "qk_layernorm": True})
    config["partial_rotary_factor"] = config["rope_parameters"]["partial_rotary_factor"] = 1.0
    layers = "model.layers.{}"
    out = {"model.embed_tokens.weight": own("embedding.weight")}
    out |= {f"model.final_layernorm.{kind}": own(f"norm.{kind}") for kind in KINDS}
    out |= own.of_blocks(layers, PERSIMMON_NAMES)
    fused = own.of_blocks(layers, {"self_attn.query_key_value": "attention.qkv"})
    out |= {name: _by_the_head(qkv, c) for name, qkv in fused.items()}
    for layer in range(c.n_layers):
        for letter in "qk":  # of these ours has no weights
            norm = f"{layers.format(layer)}.self_attn.{letter}_layernorm"
            out |= {f"{norm}.weight": torch.ones(c.d_head), f"{norm}.bias": torch.zeros(c.d_head)}
    return config, out


def _by_the_head(qkv: Tensor, config: ModelConfig) -> Tensor:
    """Rows of all queries, keys and values -> the three of each head after each other.

    Keys and values that several heads share are written for each of them: Persimmon shares none.
    """
    c, rest = config, qkv.shape[1:]
    heads = qkv.view(-1, c.d_head, *rest)
    split = torch.split(heads, [c.n_heads, c.n_kv_heads, c.n_kv_heads])
    parts = [part.repeat_interleave(c.n_heads // len(part), 0) for part in split]
    return torch.stack(parts, 1).reshape(-1, *rest)


def _gpt2(model: GPT) -> tuple[dict[str, Any], Weights]:
    c, own = model.config, _Own(model)
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": c.d_model,
        "n_inner": c.d_ff,
        "n_layer": c.n_layers,
        "n_head": c.n_heads,
        "n_positions": c.context,
        "layer_norm_epsilon": NORM_EPS,
        "activation_function": _activation(c),
    }
    out = {
        "transformer.wte.weight": own("embedding.weight"),
        "transformer.wpe.weight": own("positions.weight"),
    }
    out |= {f"transformer.ln_f.{kind}": own(f"norm.{kind}") for kind in KINDS}
    for name, tensor in own.of_blocks("transformer.h.{}", GPT2_NAMES).items():
        # a linear layer of GPT-2 keeps its matrix the other way round
        out[name] = tensor.T if tensor.ndim == 2 else tensor
    return config, out


class _Own:
    """The weights of a network by name; a bias that it lacks is zero."""

    def __init__(self, model: GPT) -> None:
        self._state: Weights = model.state_dict()
        self._n_layers = model.config.n_layers

    def __call__(self, name: str) -> Tensor:
        if name in self._state or not name.endswith(".bias"):
            return self._state[name]
        matrix = self._state[f"{name.removesuffix('bias')}weight"]
        return matrix.new_zeros(matrix.shape[0])

    def of_blocks(
        self, layers: str, names: Mapping[str, str], kinds: Sequence[str] = KINDS
    ) -> Weights:
        """Those of all blocks under other names: theirs -> ours, below `layers` with a number."""
        return {
            f"{layers.format(layer)}.{theirs}.{kind}": self(f"blocks.{layer}.{ours}.{kind}")
            for layer in range(self._n_layers)
            for theirs, ours in names.items()
            for kind in kinds
        }


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _read_me(config: Mapping[str, Any], card: Mapping[str, Any], *, music: bool) -> str:
    licence = str(card.get("licence", "unknown")).lower().replace(" ", "-")
    name, kind = card.get("name", "A network of music_gpt"), config["architectures"][0]
    return READ_ME.format(licence=licence, name=name, kind=kind, start=EOS if music else 0) + (
        EVENTS if music else ""
    )
