"""A file that another program wrote with torch.save -> a network with the same logits.

Such a file is a pickle: it is read as tensors only, and no code in it runs. Known are the networks
of chapter 14 of "Learn Generative AI with PyTorch" and of MusicTransformer-Pytorch without relative
positions. Both number the events as they are numbered here, but tell the velocity before every
note, and here it is told only when it changes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from music_gpt.config import ModelConfig
from music_gpt.errors import InputError
from music_gpt.files import as_path, shown
from music_gpt.network.hugging_face import GPT2_NAMES, KINDS, Weights
from music_gpt.network.model import GPT
from music_gpt.tokens.corpus import sha256_of

MUSIC_TRANSFORMER_NAMES = {
    "self_attn.out_proj": "attention.proj",
    "linear1": "feed_forward.up",
    "linear2": "feed_forward.down",
    "norm1": "norm1",
    "norm2": "norm2",
}
"""Part of a block of torch's nn.Transformer -> the same part here."""
NOTE = (
    "It learned music that tells the velocity before every note; here the velocity is told only "
    "when it changes, so its dynamics can be off."
)


def import_weights(path: str | Path, source: str, n_heads: int = 8) -> tuple[GPT, dict[str, Any]]:
    """The network in the file at `path`, and a card that says where it comes from.

    source: chapter14 or music-transformer. n_heads: the one number that weights do not tell.

    Raises:
        InputError: the file is missing, holds more than tensors or another network, or there is no
            such source.
    """
    if source not in SOURCES:
        raise InputError(f"--from is {source!r}, but it has to be one of {', '.join(SOURCES)}.")
    path = as_path(path)
    theirs = _read(path)
    if any(name.endswith("self_attn.Er") for name in theirs):
        raise InputError(
            f"{shown(path)} holds relative positions (rpr), which this network lacks; only a Music "
            "Transformer that was trained without --rpr can be imported."
        )
    try:
        config, weights = SOURCES[source](theirs, n_heads)
        model = GPT(config)
        model.load_state_dict(weights)
        if len(weights) < len(theirs):
            raise RuntimeError("some of its tensors have no place")
    except (KeyError, IndexError, RuntimeError) as error:
        lacks = f"it has no {error}" if isinstance(error, KeyError) else "its shapes do not fit"
        raise InputError(
            f"{shown(path)} is no network of {source}: {lacks}; give the file that its program "
            "wrote with torch.save(model.state_dict(), ...)."
        ) from error
    origin = {"program": source, "file": path.name, "sha256": sha256_of(path)}
    return model.eval(), {"name": path.stem, "imported_from": origin, "note": NOTE}


def _read(path: Path) -> Weights:
    """The tensors of the file by name; anything else in it is refused before it can do a thing."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(
            f"{shown(path)} cannot be read ({error.strerror or error}); give the path of a file "
            "that torch.save wrote."
        ) from error
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, LookupError) as error:
        raise InputError(
            f"{shown(path)} is no file of weights alone, and nothing else is read; give one that "
            "torch.save(model.state_dict(), ...) wrote."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
        raise InputError(
            f"{shown(path)} holds more than the weights of a network; save its state_dict() alone."
        )
    return {str(name): tensor for name, tensor in state.items()}


def _chapter14(theirs: Weights, n_heads: int) -> tuple[ModelConfig, Weights]:
    """GPT-2's names, but matrices as torch's linear layers keep them."""
    for layer in range(len(theirs)):
        theirs.pop(f"transformer.h.{layer}.attn.bias", None)  # the causal mask, not a weight
    embedding, positions = theirs["transformer.wte.weight"], theirs["transformer.wpe.weight"]
    n_layers = _count(theirs, "transformer.h.{}.ln_1.weight")
    config = ModelConfig(
        n_layers=n_layers,
        d_model=embedding.shape[1],
        d_ff=theirs["transformer.h.0.mlp.c_fc.weight"].shape[0],
        n_heads=n_heads,
        n_kv_heads=n_heads,
        context=positions.shape[0],
        vocab_size=embedding.shape[0],
        positions="learned",
    )
    weights = {"embedding.weight": embedding, "positions.weight": positions}
    weights["head.weight"] = theirs["lm_head.weight"]
    for kind in KINDS:
        weights[f"norm.{kind}"] = theirs[f"transformer.ln_f.{kind}"]
    return config, weights | _blocks(theirs, n_layers, "transformer.h", GPT2_NAMES)


def _music_transformer(theirs: Weights, n_heads: int) -> tuple[ModelConfig, Weights]:
    """torch's nn.Transformer: post-norm with a norm at the end, ReLU, positions as sines."""
    embedding, sines = theirs["embedding.weight"], theirs["positional_encoding.pe"]  # (T, 1, D)
    layers = "transformer.encoder.layers"
    n_layers = _count(theirs, layers + ".{}.norm1.weight")
    config = ModelConfig(
        n_layers=n_layers,
        d_model=embedding.shape[1],
        d_ff=theirs[f"{layers}.0.linear1.weight"].shape[0],
        n_heads=n_heads,
        n_kv_heads=n_heads,
        context=sines.shape[0],
        vocab_size=embedding.shape[0],
        norm="post",
        final_norm=True,
        activation="relu",
        positions="learned",
        head_bias=True,
    )
    weights = {"embedding.weight": embedding, "positions.weight": sines.flatten(1)}
    for kind in KINDS:
        weights[f"head.{kind}"] = theirs[f"Wout.{kind}"]
        weights[f"norm.{kind}"] = theirs[f"transformer.encoder.norm.{kind}"]
        for layer in range(n_layers):
            qkv = theirs[f"{layers}.{layer}.self_attn.in_proj_{kind}"]
            weights[f"blocks.{layer}.attention.qkv.{kind}"] = qkv
    return config, weights | _blocks(theirs, n_layers, layers, MUSIC_TRANSFORMER_NAMES)


def _count(theirs: Weights, pattern: str) -> int:
    """How many blocks there are; `KeyError` for none."""
    n_layers = sum(pattern.format(layer) in theirs for layer in range(len(theirs)))
    return n_layers or len(theirs[pattern.format(0)])


def _blocks(theirs: Weights, n_layers: int, there: str, names: dict[str, str]) -> Weights:
    return {
        f"blocks.{layer}.{ours}.{kind}": theirs[f"{there}.{layer}.{part}.{kind}"]
        for layer in range(n_layers)
        for part, ours in names.items()
        for kind in KINDS
    }


SOURCES: dict[str, Callable[[Weights, int], tuple[ModelConfig, Weights]]] = {
    "chapter14": _chapter14,
    "music-transformer": _music_transformer,
}
"""Program -> what reads its names."""
