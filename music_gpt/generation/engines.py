"""A network and the name of an engine -> what runs it: torch, a GPU, or ONNX Runtime.

ONNX Runtime comes with the extra `fast` and is up to four times as quick on a CPU. Its files are
made once for each checkpoint and kept in the user's cache, and so is what was measured when a file
was made: by how much the engine predicts real music worse than torch does, and whether its takes
are the same alone and among others. Without a good answer `auto` does not choose it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from music_gpt.checking import choice
from music_gpt.config.sampling import ENGINES, ONNX_ENGINES
from music_gpt.errors import InputError, install
from music_gpt.files import as_path, plain_errors, require_writable, whole_file
from music_gpt.generation.cuda_engine import CudaEngine, require_gpu
from music_gpt.generation.decoding import (
    Engine,
    TorchEngine,
    fastest_threads,
    quickest,
)
from music_gpt.generation.sampler import NEAR_TIE, Logits
from music_gpt.midi.piece import read_piece
from music_gpt.network.model import GPT, token_nats
from music_gpt.tokens.events import EOS, encode_notes

NEEDED = ("onnx", "onnxruntime")
"""What the extra `fast` brings."""
MOST_NATS_WORSE = 0.01
"""Nats/token by which an engine that is chosen by itself may predict real music worse."""
MOST_THREADS = 4
"""One event gives an engine too little work for more."""
CHECKED_IDS, LONGEST_CHECKED = 2048, 512
"""Real music that an engine is checked with, and its longest window; the second half of each window
is scored."""
OPENINGS = Path(__file__).parent.parent / "prompts"


def require_engine(name: str, model: GPT | None = None) -> None:
    """Raise `InputError` unless the engine `name` can run here, and run `model` if it is given.

    This is quick; whether the engine computes what torch does is found out when it is chosen.
    """
    choice("engine", name, ENGINES)
    if name == "cuda":
        require_gpu()
    if name not in ONNX_ENGINES:
        return
    if not all(importlib.util.find_spec(package) for package in NEEDED):
        raise InputError(
            f"The engine {name} needs the packages {' and '.join(NEEDED)}, which are not installed;"
            f" install them with `{install()}`, or use the engine torch."
        )
    from music_gpt.network import onnx_graph

    reason = None if model is None else onnx_graph.why_not(model.config)
    if reason is not None:
        raise InputError(f"The engine {name} cannot run this network: {reason}; use torch.")


def choose_engine(
    model: GPT, sha256: str, name: str = "auto", threads: int | None = None
) -> Engine:
    """The engine called `name` for the checkpoint with this hash.

    auto takes the quickest on the CPU that is installed and passed its check: onnx-int8, then onnx,
    then torch. threads: how many the engine shall use; None tries for half a second what is
    fastest. For torch that is a setting of the whole process, and on a GPU it is none. cuda moves
    `model` to the GPU.

    Raises:
        InputError: there is no such engine, it is not installed, it cannot run this network, or the
            GPU computes something else.
    """
    require_engine(name, model)
    if name == "auto":
        return _quickest_that_passed(model, sha256, threads)
    if name == "cuda":
        return _cuda_engine(model)
    if name != "torch":
        return _onnx_engine(model, sha256, name, threads)
    engine = TorchEngine(model)
    torch.set_num_threads(fastest_threads(engine.model) if threads is None else threads)
    return engine


def _quickest_that_passed(model: GPT, sha256: str, threads: int | None) -> Engine:
    for name in reversed(ONNX_ENGINES):
        with contextlib.suppress(InputError):  # it is not there, or not for this network
            if _passed(model, sha256, name):
                return choose_engine(model, sha256, name, threads)
    return choose_engine(model, sha256, "torch", threads)


def _cuda_engine(model: GPT) -> Engine:
    """On the GPU, if what it recorded there gives what the plain network gives."""
    engine = CudaEngine(model)
    if not _good(found := check_engine(engine, model, opening_windows(engine.context)[-2:])):
        alone = "a take alone is not the same as among others"
        worse = f"it is worse by {found['nats_worse']:.3f} nats/token"
        differs = alone if found["nats_worse"] <= MOST_NATS_WORSE else worse
        raise InputError(
            f"The engine cuda does not compute what torch does on this GPU: {differs}; use the "
            "engine torch."
        )
    return engine


def _onnx_engine(model: GPT, sha256: str, name: str, threads: int | None) -> Engine:
    most = min(torch.get_num_threads(), MOST_THREADS)
    choices = [n for n in (1, 2, MOST_THREADS) if n <= most] if threads is None else [threads]
    engines = {n: _opened(model, sha256, name, n) for n in choices}
    if len(choices) > 1:
        decoders = {n: engine.decoder(1) for n, engine in engines.items()}
        choices = [quickest(choices, decoders.__getitem__, 0.5)]
    return engines[choices[0]]


# --- files --------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where files lie that can be made again: $MUSIC_GPT_CACHE, or the place of the system."""
    own = os.environ.get("MUSIC_GPT_CACHE")
    system = os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(system) if system else Path.home() / ".cache") / "music_gpt"


def _opened(model: GPT, sha256: str, name: str, threads: int) -> Engine:
    """The ONNX file from the cache, or made now and put there if that can be, with its engine."""
    onnx_graph = graph_maker(model, name)
    from music_gpt.generation.onnx_engine import OnnxEngine

    path = cache_folder() / f"{sha256[:32]}-{name}-{onnx_graph.GRAPH_VERSION}.onnx"
    with contextlib.suppress(OSError, InputError):  # it is not there, or damaged
        return OnnxEngine(path.read_bytes(), model.config, name, threads)
    file = onnx_graph.onnx_bytes(model, int8=name == "onnx-int8")
    _keep(path, file)
    return OnnxEngine(file, model.config, name, threads)


def graph_maker(model: GPT, name: str) -> ModuleType:
    """`music_gpt.network.onnx_graph`, which makes the file of the engine `name`.

    Raises `InputError` where the extra `fast` is not installed, and for a network that has no such
    file.
    """
    require_engine(name, model)
    from music_gpt.network import onnx_graph

    return onnx_graph


def export_onnx(model: GPT, name: str, path: str | Path) -> None:
    """Write the file that the engine `name` runs.

    Raises `InputError` as `graph_maker` does, and where the file cannot be written or named so.
    """
    path = as_path(path)
    if path.suffix != ".onnx":
        raise InputError(f"--out is {str(path)!r}, but it has to end in .onnx.")
    graph = graph_maker(model, name)
    require_writable(path)  # before the graph is made
    _write(path, graph.onnx_bytes(model, int8=name == "onnx-int8"))


def _keep(path: Path, content: bytes) -> None:
    """Put it into the cache, if that can be written."""
    with contextlib.suppress(InputError):
        _write(path, content)


def _write(path: Path, content: bytes) -> None:
    with plain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as beside:
        beside.write_bytes(content)


# --- the check ----------------------------------------------------------------------------------


def _passed(model: GPT, sha256: str, name: str) -> bool:
    """Whether the engine does its work well with this network, here; measured only once."""
    onnx_graph = graph_maker(model, name)
    from music_gpt.generation import onnx_engine

    where = {
        "onnxruntime": onnx_engine.VERSION,
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    path = cache_folder() / f"{sha256[:32]}-{name}-{onnx_graph.GRAPH_VERSION}.json"
    measured = _read(path)
    if not where.items() <= measured.items():
        measured = where
        with contextlib.suppress(*onnx_engine.CANNOT_RUN):
            measured = {**where, **check_engine(_opened(model, sha256, name, 1), model)}
        _keep(path, json.dumps(measured, indent=1).encode())
    return _good(measured)


def _good(measured: Mapping[str, Any]) -> bool:
    worse, alike = measured.get("nats_worse"), measured.get("same_among_others")
    return isinstance(worse, float) and worse <= MOST_NATS_WORSE and alike is True


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def check_engine(
    engine: Engine, model: GPT, windows: Sequence[Sequence[int]] | None = None
) -> dict[str, Any]:
    """How well the engine does what torch does: on `windows` of ids, or on the shipped openings.

    All windows are of one length. Their first half is heard at once and their second half event by
    event, all side by side, as when composing. nats_worse: nats/token on the second halves more
    than those of torch. same_among_others: whether one window alone gives the same logits.
    """
    windows = opening_windows(engine.context) if windows is None else windows
    ids = np.array(windows, np.int64)  # (B, T)
    half = ids.shape[1] // 2
    logits = np.stack(list(_heard(engine, ids, half)), 1)  # (B, T - half, V)
    alone = np.stack(list(_heard(engine, ids[-1:], half)), 1)
    rows = torch.from_numpy(ids).to(model.embedding.weight.device)
    with torch.inference_mode():
        plain = torch.cat([model(row[None, :-1])[:, half - 1 :] for row in rows]).cpu()
        targets = torch.from_numpy(ids[:, half:])
        nats, plain_nats = (
            float(token_nats(these, targets, -1)[0]) for these in (torch.from_numpy(logits), plain)
        )
    return {
        "nats_worse": (nats - plain_nats) / targets.numel(),
        "same_among_others": bool(np.abs(logits[-1:] - alone).max() < NEAR_TIE),
        "tokens": targets.numel(),
    }


def _heard(engine: Engine, ids: np.ndarray[Any, np.dtype[np.int64]], half: int) -> Iterator[Logits]:
    """Logits (B, V) before each id from place `half` on."""
    decoder = engine.decoder(len(ids))
    yield decoder.prefill(ids[:, :half].tolist())
    for place in range(half, ids.shape[1] - 1):
        yield decoder.step(ids[:, place])


def opening_windows(context: int) -> list[list[int]]:
    """Windows of equal length from the openings that are shipped with the package."""
    pieces = [encode_notes(read_piece(path).notes) for path in sorted(OPENINGS.glob("*.mid"))]
    ids = np.concatenate([[EOS, *piece] for piece in pieces])
    width = min(LONGEST_CHECKED, context, len(ids))
    starts = np.linspace(0, len(ids) - width, max(1, CHECKED_IDS // width)).astype(int)
    return [ids[start : start + width].tolist() for start in starts]
