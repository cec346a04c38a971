"""Networks and engines to compose with in tests: without sense, or without a cache."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from music_gpt.arrays import Ints
from music_gpt.config.model import ModelConfig
from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation.decoding import TorchEngine, generate
from music_gpt.generation.grammar import Ending, Start
from music_gpt.network.model import GPT
from music_gpt.tokens.events import EOS, NOTE_OFF, PAD, TIME_SHIFT, VELOCITY, VOCAB_SIZE

PLAIN = SamplingConfig(temperature=1.0, min_p=0.0)
GREEDY = SamplingConfig(temperature=0.0)
DENSE = SamplingConfig(temperature=1.0, min_p=0.0, max_wait_seconds=0.1)


class MadEngine:
    """A network with no idea of music: its logits depend on the last ids in no sensible way."""

    context = 64

    def __init__(self, seed: int = 0, spread: float = 3.0, kinds: Sequence[float] = ()) -> None:
        rng = np.random.default_rng(seed)
        self._table = (spread * rng.standard_normal((97, VOCAB_SIZE))).astype(np.float32)
        borders = (0, NOTE_OFF, TIME_SHIFT, VELOCITY, EOS, PAD)
        for first, last, loved in zip(borders, borders[1:], kinds, strict=False):
            self._table[:, first:last] += loved

    def decoder(self, n_takes: int) -> "PlainDecoder":
        return PlainDecoder(self)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        return self._table[(3 * sum(ids[-3:]) + len(ids)) % 97].copy()


class PlainDecoder:
    """A decoder without a cache: it computes everything anew for every event."""

    def __init__(self, engine, noise: float = 0.0) -> None:
        self._engine, self._noise = engine, np.random.default_rng(0).normal(0, noise, VOCAB_SIZE)
        self._windows: list[list[int]] = []

    @property
    def length(self) -> int:
        return len(self._windows[0])

    def prefill(self, windows: Sequence[Sequence[int]]) -> np.ndarray:
        self._windows = [list(window) for window in windows]
        return self._logits()

    def step(self, ids: Ints) -> np.ndarray:
        assert len(ids) == len(self._windows)
        assert self.length < self._engine.context
        self._windows = [[*w, int(i)] for w, i in zip(self._windows, ids, strict=True)]
        return self._logits()

    def keep(self, rows: Sequence[int]) -> None:
        self._windows = [self._windows[row] for row in rows]

    def _logits(self) -> np.ndarray:
        # rounding differs with the size of the batch
        logits = np.stack([self._engine.logits(window) for window in self._windows])
        return (logits + self._noise * len(self._windows)).astype(np.float32)


class RecomputeEngine:
    """A network without cache: the plain full recompute that cached decoding has to agree with."""

    def __init__(self, model: GPT, noise: float = 0.0) -> None:
        self._plain, self._noise = TorchEngine(model), noise
        self.context = model.config.context

    def decoder(self, n_takes: int) -> PlainDecoder:
        return PlainDecoder(self, self._noise)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        return self._plain.logits(ids)


def lively_model(context: int = 64, **changes) -> GPT:
    """A small network with random weights that make it prefer some events clearly."""
    torch.manual_seed(11)
    model = GPT(replace(ModelConfig.preset("tiny"), context=context, **changes))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.15)
    return model.eval()


FAST = "the extra `fast` is not installed; composing needs it only to be quicker"


def engine_for(model: GPT, name: str):
    """The network in this engine, which may be missing."""
    if name == "torch":
        return TorchEngine(model)
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason=FAST)
    from music_gpt.generation.onnx_engine import OnnxEngine
    from music_gpt.network.onnx_graph import onnx_bytes

    return OnnxEngine(onnx_bytes(model, int8=name == "onnx-int8"), model.config, name)


exact_engines = pytest.mark.parametrize("engine_name", ["torch", "onnx"])
every_engine = pytest.mark.parametrize("engine_name", ["torch", "onnx", "onnx-int8"])


def take_ids(engine, seconds=5.0, seeds=(1,), sampling=PLAIN, start=None, own=False):
    """The new ids of each take."""
    start = Start() if start is None else start
    takes: list[list[int]] = [[] for _ in seeds]
    ending = Ending.after(start.seam, seconds, own=own)
    for drawn in generate(engine, start, ending, sampling, seeds):
        takes[drawn.take].append(drawn.id)
    return takes
