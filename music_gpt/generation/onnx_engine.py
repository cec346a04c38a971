"""An ONNX file -> an `Engine`: ids to logits in ONNX Runtime, with a cache that is filled in place.

The letters in the shape comments are those of `music_gpt.network.attention`. Past and present of
the cache are the same memory, and so are the ids and the logits of one step and the next: a step of
a batch costs one call and copies nothing but the logits. The module is the door to onnxruntime.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as said

from music_gpt.arrays import Ints
from music_gpt.config.model import ModelConfig
from music_gpt.errors import InputError
from music_gpt.generation.sampler import Logits

VERSION: str = ort.__version__
"""Version of ONNX Runtime."""
ERRORS_ONLY = 3
CANNOT_RUN = (
    said.Fail,
    said.InvalidArgument,
    said.InvalidGraph,
    said.InvalidProtobuf,
    said.NotImplemented,
    said.RuntimeException,
)
"""What ONNX Runtime raises at a file; they have no common parent of their own."""

Int32s = npt.NDArray[np.int32]


class OnnxEngine:
    """The network of one ONNX file that `music_gpt.network.onnx_graph` made."""

    def __init__(self, file: bytes, config: ModelConfig, name: str, threads: int = 1) -> None:
        """Raises `InputError` where this ONNX Runtime does not know what the file asks for."""
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = ERRORS_ONLY
        try:
            self.session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        except CANNOT_RUN as error:
            raise InputError(
                f"ONNX Runtime {VERSION} cannot run this network ({str(error).splitlines()[0]}); "
                "update onnxruntime, or use the engine torch."
            ) from error
        self.config, self.context, self.name = config, config.context, name

    def decoder(self, n_takes: int) -> OnnxDecoder:
        """An empty cache for so many takes."""
        return OnnxDecoder(self, n_takes)

    def logits(self, ids: Sequence[int]) -> Logits:
        """Logits (V) of what follows `ids`, computed from nothing."""
        last: Logits = self.window_logits(ids)[-1]
        return last

    def window_logits(self, ids: Sequence[int]) -> Logits:
        """Logits (T, V) of what follows each of `ids`, computed from nothing."""
        return OnnxDecoder(self, 1, len(ids)).hear(ids)


class OnnxDecoder:
    """A `Decoder` over the session of an engine."""

    def __init__(self, engine: OnnxEngine, n_takes: int, capacity: int | None = None) -> None:
        self._session, self._config, c = engine.session, engine.config, engine.config
        shape = (c.n_layers, 2, n_takes, c.n_kv_heads, capacity or c.context, c.d_head)
        self._take(np.zeros(shape, np.float32), 0)

    def _take(self, cache: Logits, length: int) -> None:
        """Go on with this cache (L, 2, B, G, capacity, K), `length` positions of which are used."""
        self._cache, self.length = cache, length
        n_takes = cache.shape[2]
        self._ids = np.zeros((n_takes, 1), np.int64)
        self._last, self._total = np.zeros(n_takes, np.int32), np.zeros((), np.int32)
        self._position = np.zeros(1, np.int64)
        self._logits = np.zeros((n_takes, 1, self._config.vocab_size), np.float32)
        self._binding = self._bind(
            cache, self._ids, self._last, self._total, self._position, self._logits
        )

    def prefill(self, windows: Sequence[Sequence[int]]) -> Logits:
        """Row by row, as a take alone would do it; windows that are all the same are heard once."""
        if len(windows) > 1 and all(window == windows[0] for window in windows):
            logits = self.hear(windows[0])[-1:]
            used = self._cache[:, :, :, :, : self.length]
            used[:, :, 1:] = used[:, :, :1]
            return np.repeat(logits, len(windows), axis=0)
        return np.stack([self.hear(window, row)[-1] for row, window in enumerate(windows)])

    def hear(self, window: Sequence[int], row: int = 0) -> Logits:
        """Forget what one row holds and hear a window: logits (T, V) of what follows each id."""
        ids = np.array([window], np.int64)  # (1, T)
        n_time = self.length = ids.shape[1]
        logits: Logits = np.zeros((n_time, self._config.vocab_size), np.float32)
        last, total = np.full(1, n_time - 1, np.int32), np.array(n_time, np.int32)
        cache, positions = self._cache[:, :, row : row + 1], np.arange(n_time)
        binding = self._bind(cache, ids, last, total, positions, logits[None])
        self._session.run_with_iobinding(binding)
        return logits

    def step(self, ids: Ints) -> Logits:
        """Hear one more id in each take, ids (B): logits (B, V) of what follows."""
        self._ids[:, 0] = ids
        self._last[:] = self._position[:] = self.length
        self.length += 1
        self._total[...] = self.length
        self._session.run_with_iobinding(self._binding)
        logits: Logits = self._logits[:, 0].copy()
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these takes only."""
        self._take(np.ascontiguousarray(self._cache[:, :, list(rows)]), self.length)

    def _bind(
        self,
        cache: Logits,
        ids: Ints,
        last: Int32s,
        total: Int32s,
        positions: Ints,
        logits: Logits,
    ) -> ort.IOBinding:
        """One call of the session, over memory that stays where it is."""
        binding = self._session.io_binding()
        value = ort.OrtValue.ortvalue_from_numpy
        for name, array in (("ids", ids), ("last", last), ("length", total)):
            binding.bind_ortvalue_input(name, value(array))
        if self._config.positions == "learned":
            binding.bind_ortvalue_input("positions", value(positions))
        for layer, pair in enumerate(cache):
            for kind, part in zip(("key", "value"), pair, strict=True):
                shared = value(part)
                binding.bind_ortvalue_input(f"past.{layer}.{kind}", shared)
                binding.bind_ortvalue_output(f"present.{layer}.{kind}", shared)
        binding.bind_ortvalue_output("logits", value(logits))
        return binding
