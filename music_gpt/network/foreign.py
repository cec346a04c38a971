"""A file that another program wrote with torch.save -> a network with the same logits.

Such a file is a pickle: it is read as tensors only, no code in it runs, and what its tensors claim
to be is compared with the size of the file before any is made. Known are the networks of chapter 14
of "Learn Generative AI with PyTorch" and of MusicTransformer-Pytorch without relative positions.
Both number the events as they are numbered here, but tell the velocity before every note, and here
it is told only when it changes.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from music_gpt.checking import choice
from music_gpt.config.model import ModelConfig
from music_gpt.errors import InputError
from music_gpt.files import as_path, require_file
from music_gpt.network.checkpoint import MAX_PARAMETERS
from music_gpt.network.hugging_face import GPT2_NAMES, KINDS, Weights
from music_gpt.network.model import GPT, all_finite, state_shapes
from music_gpt.printable import printable_name, shown
from music_gpt.tokens.corpus import sha256_of

MUSIC_TRANSFORMER_NAMES = {
    "self_attn.out_proj": "attention.proj",
    "linear1": "feed_forward.up",
    "linear2": "feed_forward.down",
    "norm1": "norm1",
    "norm2": "norm2",
}
"""Part of a block of torch's nn.Transformer -> the same part here."""
DTYPES = {
    "torch.FloatStorage": torch.float32,
    "torch.DoubleStorage": torch.float64,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.LongStorage": torch.int64,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}
"""What torch.save calls the memory of tensors -> the numbers in it: weights, masks, counts."""
MOST_BYTES = 8 * MAX_PARAMETERS
PICKLES_OF_OLD = 5
"""Pickles in a file as torch before 1.6 wrote it: mark, version, machine, tensors, their memory."""
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
    choice("source", source, SOURCES)
    path = as_path(path)
    theirs = _read(path)
    if any(name.endswith("self_attn.Er") for name in theirs):
        raise InputError(
            f"{shown(path)} holds relative positions (rpr), which this network lacks; only a Music "
            "Transformer that was trained without --rpr can be imported."
        )
    try:
        config, weights = SOURCES[source](theirs, n_heads)
        if {name: tuple(t.shape) for name, t in weights.items()} != state_shapes(config):
            raise RuntimeError("the network would be larger than the file")
        if len(weights) < len(theirs):
            raise RuntimeError("some of its tensors have no place")
    except (KeyError, IndexError, RuntimeError) as error:
        lacks = f"it has no {error}" if isinstance(error, KeyError) else "its shapes do not fit"
        raise InputError(
            f"{shown(path)} is no network of {source}: {lacks}; give the file that its program "
            "wrote with torch.save(model.state_dict(), ...)."
        ) from error
    model = GPT(config)
    model.load_state_dict(weights)
    if not all_finite(model.parameters()):
        raise InputError(
            f"{shown(path)} has weights that are no finite numbers, so its training had failed; "
            "give the file of another step."
        )
    origin = {"program": source, "file": printable_name(path.name), "sha256": sha256_of(path)}
    return model.eval(), {"name": printable_name(path.stem), "imported_from": origin, "note": NOTE}


def _read(path: Path) -> Weights:
    """The tensors of the file by name; anything else in it is refused before it can do a thing."""
    require_file(path, MOST_BYTES, "a file that torch.save wrote")
    with _plain_errors(path):
        size = path.stat().st_size
        _require_size(path, _bytes_in_memory(path), size)
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
        raise InputError(
            f"{shown(path)} holds more than the weights of a network; save its state_dict() alone."
        )
    # two tensors may share their memory, as the embedding and a head that is tied to it
    _require_size(path, sum(tensor.nbytes for tensor in state.values()) // 2, size)
    return {str(name): tensor for name, tensor in state.items()}


def _require_size(path: Path, n_bytes: int, limit: int) -> None:
    if n_bytes > limit:
        raise InputError(
            f"{shown(path)} says that it holds more than its {limit:,} bytes, which no file of "
            "torch.save(model.state_dict(), ...) does; give one."
        )


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """What is said against a file becomes an `InputError` of one sentence."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"{shown(path)} cannot be read ({error.strerror or error}); give the path of a file "
            "that torch.save wrote."
        ) from error
    except Exception as error:  # a pickle of a stranger can fail in every way there is
        raise InputError(
            f"{shown(path)} is no file of weights alone, and nothing else is read; give one that "
            "torch.save(model.state_dict(), ...) wrote."
        ) from error


class _Outline(pickle._Unpickler):
    """Reads a pickle of tensors for the memory they ask for: none of it is taken, no code runs.

    In Python, because the pickle module in C takes as much memory as a file of some bytes tells it.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.bytes_of: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        """The few names that weights need; no tensor is made, and a dtype stands for its memory."""
        known = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": lambda *_: None,
            "torch._utils._rebuild_parameter": lambda *_: None,
        }
        return (known | DTYPES)[f"{module}.{name}"]

    def persistent_load(self, saved: Any) -> None:
        """Count what the memory of tensors would take."""
        _, dtype, key, _, numel, *_ = saved
        self.bytes_of[key] = numel * dtype.itemsize


def _bytes_in_memory(path: Path) -> int:
    """What torch.load would take for a file."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            file.seek(0)
            return sum(_outlined(file) for _ in range(PICKLES_OF_OLD))
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(record.file_size for record in archive.infolist())
            (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            if unpacked > path.stat().st_size:
                return unpacked  # before any of it is unpacked
            return _outlined(io.BytesIO(archive.read(name)))


def _outlined(file: BinaryIO) -> int:
    outline = _Outline(file)
    outline.load()
    return sum(outline.bytes_of.values())


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
        qk_norm=False,
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
        qk_norm=False,
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
