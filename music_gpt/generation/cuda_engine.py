"""A network on an NVIDIA GPU -> an `Engine`: every step is one recorded CUDA graph.

A step of one event is some hundred small operations, and telling them to the GPU one by one takes
longer than they do. So they are recorded once for each batch and cache, and a step is then one
call. The letters in the shape comments are those of `music_gpt.network.attention`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from music_gpt.arrays import Ints
from music_gpt.errors import InputError
from music_gpt.generation.decoding import TorchDecoder, TorchEngine, as_array
from music_gpt.generation.sampler import Logits
from music_gpt.network.attention import KVCache, StepCache
from music_gpt.network.model import GPT

DEVICE = "cuda"
WARM_UPS = 3
"""Steps before the recording, in which libraries choose their kernels and take their memory."""
RECORDING = threading.Lock()
"""Held while a step is recorded: torch allows one recording at a time in a process."""


def require_gpu() -> None:
    """Raise `InputError` where torch can use no NVIDIA GPU."""
    if not torch.cuda.is_available():
        raise InputError(
            "The engine cuda needs an NVIDIA GPU and a torch that was built for it, and there "
            "is none here; use the engine auto."
        )


class CudaEngine(TorchEngine):
    """The network in torch on an NVIDIA GPU, in float32."""

    name = "cuda"

    def __init__(self, model: GPT) -> None:
        """Moves `model` to the GPU; raises `InputError` where there is none that torch can use."""
        require_gpu()
        super().__init__(model.to(DEVICE))

    def decoder(self, n_takes: int) -> CudaDecoder:
        """An empty cache for so many takes."""
        return CudaDecoder(self.model, n_takes)


class CudaDecoder(TorchDecoder):
    """A `Decoder` whose steps are recorded; windows are heard as by its parent."""

    _recorded: RecordedStep | None = None

    @torch.inference_mode()
    def step(self, ids: Ints) -> Logits:
        """Hear one more id in each take, ids (B): logits (B, V) of what follows."""
        step = self._recorded
        if step is None or step.cache is not self._cache:  # the first one of this batch
            step = self._recorded = RecordedStep(self._model, self._cache)
        column = torch.from_numpy(ids)[:, None]
        logits = as_array(step(column, self._cache.length))
        self._cache.length += 1
        return logits


class RecordedStep:
    """One step of the network on this cache, at any place."""

    def __init__(self, model: GPT, cache: KVCache) -> None:
        self.cache, self._model, self._steps = cache, model, StepCache(cache)
        self._ids = torch.zeros(cache.keys.shape[1], 1, dtype=torch.long, device=cache.keys.device)
        self._logits: Tensor | None = None
        self._replay: Callable[[], None] = lambda: None

    def __call__(self, ids: Tensor, place: int) -> Tensor:
        """Hear ids (B, 1) at this place: logits (B, V), good until the next call."""
        self._ids.copy_(ids)
        self._steps.place.fill_(place)
        if self._logits is None:
            # the warm-ups hear the same ids at the same place, so they leave nothing else behind
            self._logits, self._replay = record(self._run)
        self._replay()
        return self._logits

    def _run(self) -> Tensor:
        return cast(Tensor, self._model(self._ids, self._steps)[:, -1])


def record(run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """What `run` gives, and a call that does all its work on the GPU again, into the same memory.

    Source: the recipe under "CUDA Graphs" in the notes of PyTorch.
    """
    with RECORDING:
        here, aside = torch.cuda.current_stream(), warm_up_stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                run()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # other threads may compose meanwhile: what they ask of the GPU is no error of this one
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            logits = run()
    return logits, graph.replay


@functools.cache
def warm_up_stream() -> torch.cuda.Stream:
    """One stream for all: torch has only 32, and cuBLAS keeps memory for each that it was used on.

    A new one each time would some day be the one that is recorded on.
    """
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
