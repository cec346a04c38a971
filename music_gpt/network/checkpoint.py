"""Model and card <-> one .safetensors file.

The file holds the weights and, in its metadata, the model's configuration, the vocabulary's hash
and the card (what it was trained on and how well it does), all as plain JSON. Loading runs no code:
there is no pickle in it, and every shape is compared with the configuration before any memory is
taken. The module knows nothing of training loops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from music_gpt.config.model import ModelConfig
from music_gpt.errors import InputError
from music_gpt.files import as_path, is_file, plain_errors, whole_file
from music_gpt.folders import RUN, what_is
from music_gpt.network.model import GPT, all_finite, state_shapes
from music_gpt.printable import printable_name, shown
from music_gpt.tokens.corpus import sha256_of
from music_gpt.tokens.events import vocabulary_hash

FORMAT_VERSION = 2
"""In version 1 normalised queries and keys kept their mean; all other networks are the same."""
BUNDLED_FOLDER = Path(__file__).parent.parent / "pretrained"
MAX_PARAMETERS = 2_000_000_000
"""A file that claims to hold more is not ours."""
MAX_POSITION_NUMBERS = 1 << 24
"""Bound on context times width of a head: rotary positions lie in memory, but not in the file."""


def bundled_checkpoint() -> Path:
    """Path of the checkpoint that is shipped with the package; `InputError` if there is none."""
    found = sorted(BUNDLED_FOLDER.glob("*.safetensors"))
    if not found:
        raise InputError(
            "No checkpoint is bundled with this copy of music_gpt; train one with "
            "`music-gpt train` and give that one."
        )
    return found[0]


def save_checkpoint(
    path: str | Path,
    model: GPT,
    card: Mapping[str, Any],
    *,
    dtype: torch.dtype = torch.float32,
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write `model` (or other `weights` of its shape) and its card to `path`, whole or not at all.

    dtype: how the weights are stored; bfloat16 halves the file. Raises `InputError` if the folder
    cannot be written or the disk is full; an older file at `path` is then still there.
    """
    path = as_path(path)
    state = model.state_dict() if weights is None else weights
    tensors = {name: t.detach().to("cpu", dtype).contiguous() for name, t in state.items()}
    if model.config.tie_head:
        del tensors["head.weight"]  # the same matrix as the embedding's
    about = {
        "version": FORMAT_VERSION,
        "model": model.config.to_dict(),
        "vocabulary_hash": vocabulary_hash(),
        "card": dict(card),
    }
    data = save(tensors, metadata={"music_gpt": json.dumps(about, ensure_ascii=False)})
    with plain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as beside:
        beside.write_bytes(data)  # not safetensors' own writer: only the owner could read its files


def load_checkpoint(path: str | Path | None = None) -> tuple[GPT, dict[str, Any]]:
    """The model at `path` (None: the bundled one), in float32 and ready to be used, and its card.

    The card also tells `file` and `sha256` of where it came from. Raises `InputError` for a file
    that is missing, damaged, foreign, or of another vocabulary.
    """
    path = bundled_checkpoint() if path is None else as_path(path)
    if found := what_is(path):
        its = f"one in it, as {shown(path / 'best.safetensors')}"
        wanted = its if found == RUN else "one of a run"
        raise InputError(f"{shown(path)} is {found}, not a checkpoint; give {wanted}.")
    if not is_file(path):
        raise InputError(
            f"There is no checkpoint at {shown(path)}; give the path of a .safetensors file."
        )
    try:
        with safe_open(path, framework="pt") as file:
            about = _read_about(path, file.metadata())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - safe_open is no mapping
            config = _read_config(path, about["model"])
            if shapes != _expected_shapes(config):
                raise InputError(_foreign(path, "its tensors do not fit its configuration"))
            state = {name: file.get_tensor(name).float() for name in shapes}
    except (OSError, SafetensorError) as error:
        raise InputError(_foreign(path, str(error))) from error
    if not all_finite(state.values()):
        raise InputError(_foreign(path, "some of its weights are no numbers"))
    card: dict[str, Any] = about["card"]
    card |= {"file": printable_name(path.name), "sha256": sha256_of(path)}
    return _filled(config, state), card


def _read_about(path: Path, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """The JSON in the metadata, checked."""
    try:
        about = json.loads((metadata or {})["music_gpt"])
        version, vocabulary = about["version"], about["vocabulary_hash"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InputError(_foreign(path, "it carries no music_gpt card")) from None
    if version not in (1, FORMAT_VERSION):
        raise InputError(
            f"{shown(path)} is a checkpoint of version {version!r}, but this program reads "
            f"versions up to {FORMAT_VERSION}; update music_gpt."
        )
    if vocabulary != vocabulary_hash():
        raise InputError(
            f"{shown(path)} was trained on another event vocabulary, so its output would be noise; "
            "use a checkpoint of this version."
        )
    if not isinstance(about.get("card"), dict) or not isinstance(about.get("model"), dict):
        raise InputError(_foreign(path, "its card is incomplete"))
    require_same_arithmetic(shown(path), version, about["model"])
    return dict(about)


def require_same_arithmetic(what: str, version: int, model: Mapping[str, Any]) -> None:
    """Raise `InputError` where a network of a file of this version was another one than it is now.

    model: its configuration as plain values.
    """
    if version < FORMAT_VERSION and model.get("qk_norm"):
        raise InputError(
            f"{what} comes from a version that normalised queries and keys in another way, so this "
            "program would compute something else; train it again, or use that version."
        )


def _read_config(path: Path, values: dict[str, Any]) -> ModelConfig:
    """The configuration in a file; nothing that it asks for is made yet."""
    try:
        config = ModelConfig.from_dict(values)
    except (InputError, TypeError) as error:
        raise InputError(_foreign(path, str(error))) from error
    size = config.n_layers * config.d_model * (config.d_model + config.d_ff)
    size += (config.vocab_size + config.context) * config.d_model
    if size > MAX_PARAMETERS or config.context * config.d_head > MAX_POSITION_NUMBERS:
        raise InputError(_foreign(path, "its configuration is too large to be real"))
    return config


def _expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """What the file of such a network holds."""
    shapes = state_shapes(config)
    if config.tie_head:
        del shapes["head.weight"]
    return shapes


def _filled(config: ModelConfig, state: dict[str, Tensor]) -> GPT:
    """The network with these weights."""
    model = GPT(config)
    if config.tie_head:
        state = {**state, "head.weight": state["embedding.weight"]}
    model.load_state_dict(state)
    return model.eval()


def _foreign(path: Path, why: str) -> str:
    return (
        f"{shown(path)} is not a usable music_gpt checkpoint ({why.rstrip('.')}); choose a "
        ".safetensors file that `music-gpt train` wrote."
    )
