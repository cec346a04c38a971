"""A network -> the bytes of an ONNX file: the same arithmetic in ONNX Runtime's fused operators.

The letters in the comments are those of `music_gpt.network.attention`. The file takes ids (B, T)
behind P positions in a cache that the caller owns and that the file fills in place; it gives logits
(B, T, V). With `int8` the matrices are whole numbers of 8 bits, each block of 32 with a scale of
its own, and so are the activations that meet them; rows do not see each other, so that a take is
the same alone or among others. The module is the door to onnx, and does not know who runs the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from music_gpt.config.model import ModelConfig
from music_gpt.network.attention import NORM_EPS
from music_gpt.network.model import GPT

GRAPH_VERSION = 2
"""Counts the changes of the files that come from the same weights."""
OPSET, IR_VERSION = 17, 10
"""Old enough for the oldest ONNX Runtime that knows the operators."""
FUSED = "com.microsoft"
"""Where ONNX Runtime's own operators live."""
BLOCK = 32
"""Weights that share a scale. With 128 the rows of a batch were no longer those of a take alone."""
HEAD_STEPS = {"rope": 16, "learned": 8}
"""ONNX Runtime takes only heads whose width is a multiple of it, for each kind of positions."""
MAX_BYTES = 1_900_000_000
"""Protocol buffers, and so ONNX files in one piece, end at 2 GB."""

Floats = npt.NDArray[np.float32]
Shape = list[str | int | None]


def why_not(config: ModelConfig) -> str | None:
    """Why such a network has no ONNX file, as the end of a sentence; None where it has one."""
    step = HEAD_STEPS[config.positions]
    if config.d_head % step:
        return f"its heads are {config.d_head} wide, and only multiples of {step} have a place"
    size = 4 * config.n_layers * config.d_model * (4 * config.d_model + 2 * config.d_ff)
    return "it is larger than such a file can be" if size > MAX_BYTES else None


def onnx_bytes(model: GPT, *, int8: bool = False) -> bytes:
    """The network as an ONNX file; `why_not` tells which networks have one."""
    graph = _Graph(model, int8=int8)
    graph.compute_logits()
    shape: Shape = ["batch", "time", model.config.vocab_size]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape), *graph.present]
    made = helper.make_graph(graph.nodes, "music_gpt", graph.inputs, outputs, graph.weights)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    file = helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION)
    helper.set_model_props(file, {"music_gpt": json.dumps(model.config.to_dict())})
    return bytes(file.SerializeToString())


def blocks_of_8_bits(matrix: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Matrix (N, K) -> whole numbers (N, K / 32, 32) around 128, and the scale of each block.

    >>> numbers, scales = blocks_of_8_bits(np.array([[-1.0, 0.5, 0.0]], np.float32))
    >>> numbers[0, 0, :4].tolist(), round(float(127 * scales[0, 0]), 6)
    ([1, 192, 128, 128], 1.0)
    """
    rows, width = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -width % BLOCK))).reshape(rows, -1, BLOCK)
    scales = np.abs(padded).max(2) / np.float32(127)
    scales[scales == 0] = 1
    return (np.rint(padded / scales[..., None]) + 128).astype(np.uint8), scales


class _Graph:
    """The file in the making: nodes, weights and inputs in the order in which they are needed."""

    def __init__(self, model: GPT, *, int8: bool) -> None:
        self._config, self._int8 = model.config, int8
        self._state = {name: t.float().cpu().numpy() for name, t in model.state_dict().items()}
        self._rope = (model.rope_cos.cpu().numpy(), model.rope_sin.cpu().numpy())
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "time"]),
            helper.make_tensor_value_info("last", TensorProto.INT32, ["batch"]),
            helper.make_tensor_value_info("length", TensorProto.INT32, []),
        ]
        self.present: list[ValueInfoProto] = []

    def compute_logits(self) -> None:
        """The whole network, from the input `ids` to the output `logits`."""
        c = self._config
        x = self._embed()  # (B, T, D)
        pre = c.norm == "pre"
        normed = self._norm(x, "blocks.0.norm1") if pre else x
        for layer in range(c.n_layers):
            block = f"blocks.{layer}"
            following = f"blocks.{layer + 1}.norm1" if layer + 1 < c.n_layers else "norm"
            mixed = self._attention(normed, layer)
            first, second = ("norm2", following) if pre else ("norm1", f"{block}.norm2")
            normed, x = self._add_and_norm(mixed, x, f"{block}.attention.proj", f"{block}.{first}")
            wide = self._activation(self._matmul(normed, f"{block}.feed_forward.up"), block)
            normed, x = self._add_and_norm(wide, x, f"{block}.feed_forward.down", second)
        if not pre and "norm.weight" in self._state:
            normed = self._norm(normed, "norm")
        self._biased(self._matmul(normed, "head"), "head")
        self.nodes[-1].output[0] = "logits"

    def _embed(self) -> str:
        x = self._node("Gather", [self._weight("embedding.weight"), "ids"])
        if self._config.positions == "rope":
            half = self._config.d_head // 2  # both halves of the table are the same
            for name, table in zip(("cos", "sin"), self._rope, strict=True):
                self._constant(name, table[:, :half])
            return x
        self.inputs.append(helper.make_tensor_value_info("positions", TensorProto.INT64, ["time"]))
        return self._node(
            "Add", [x, self._node("Gather", [self._weight("positions.weight"), "positions"])]
        )

    def _attention(self, normed: str, layer: int) -> str:
        """Normed (B, T, D) -> what the heads have gathered, (B, T, D)."""
        c, name = self._config, f"blocks.{layer}.attention.qkv"
        qkv = self._biased(self._matmul(normed, name), name)
        parts = self._normed_heads(qkv, layer) if c.qk_norm else [qkv, "", ""]
        past = [self._cache(f"past.{layer}.{kind}", self.inputs) for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        for cache in present:
            self._cache(cache, self.present)
        rope = ["cos", "sin"] if c.positions == "rope" else []
        return self._node(
            "GroupQueryAttention",
            [*parts, *past, "last", "length", *rope],
            FUSED,
            further=present,
            num_heads=c.n_heads,
            kv_num_heads=c.n_kv_heads,
            do_rotary=len(rope) // 2,
        )

    def _normed_heads(self, qkv: str, layer: int) -> list[str]:
        """Queries and keys normalised head by head, and the values."""
        c = self._config
        parts = [f"{qkv}.{letter}" for letter in "qkv"]
        sizes = self._constant(f"{qkv}.widths", np.array(c.qkv_rows, np.int64))
        self.nodes.append(helper.make_node("Split", [qkv, sizes], parts, axis=-1))
        ones = self._constant(f"{qkv}.ones", np.ones(c.d_head, np.float32))
        for place in (0, 1):
            apart = np.array([0, 0, -1, c.d_head], np.int64)
            heads = self._node("Reshape", [parts[place], self._constant(f"{qkv}.{place}", apart)])
            normed = self._node("LayerNormalization", [heads, ones], epsilon=NORM_EPS)
            flat = self._constant(f"{qkv}.{place}.flat", np.array([0, 0, -1], np.int64))
            parts[place] = self._node("Reshape", [normed, flat])
        return parts

    def _cache(self, name: str, told: list[ValueInfoProto]) -> str:
        c = self._config
        shape: Shape = ["batch", c.n_kv_heads, "capacity", c.d_head]
        told.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def _activation(self, wide: str, block: str) -> str:
        name = f"{block}.feed_forward.up"
        if self._config.activation == "relu":
            return self._node("Relu", [self._biased(wide, name)])
        return self._node("FastGelu", [wide, self._bias(name)], FUSED)

    def _add_and_norm(self, y: str, x: str, linear: str, norm: str) -> tuple[str, str]:
        """x + linear(y), normalised, and what goes on to the next sum."""
        sides = [self._matmul(y, linear), x, *self._norm_weights(norm), self._bias(linear)]
        total = f"{norm}.sum"
        normed = self._node(
            "SkipLayerNormalization", sides, FUSED, further=["", "", total], epsilon=NORM_EPS
        )
        return normed, total if self._config.norm == "pre" else normed

    def _norm(self, x: str, name: str) -> str:
        weights = self._norm_weights(name)
        return self._node("LayerNormalization", [x, *weights], epsilon=NORM_EPS)

    def _norm_weights(self, name: str) -> list[str]:
        return [self._weight(f"{name}.weight"), self._bias(name)]

    def _matmul(self, x: str, name: str) -> str:
        matrix = self._state[f"{name}.weight"]  # (N, K)
        if not self._int8:
            return self._node("MatMul", [x, self._constant(name, matrix.T)])
        numbers, scales = blocks_of_8_bits(matrix)
        return self._node(
            "MatMulNBits",
            [x, self._constant(f"{name}.int8", numbers), self._constant(f"{name}.scales", scales)],
            FUSED,
            N=matrix.shape[0],
            K=matrix.shape[1],
            bits=8,
            block_size=BLOCK,
            accuracy_level=4,  # the activations become 8 bits, too
        )

    def _biased(self, x: str, name: str) -> str:
        bias = self._bias(name)
        return self._node("Add", [x, bias]) if bias else x

    def _bias(self, name: str) -> str:
        """The name of the bias, or the empty name, which stands for none."""
        return self._weight(f"{name}.bias") if f"{name}.bias" in self._state else ""

    def _weight(self, name: str) -> str:
        return self._constant(name, self._state[name])

    def _constant(self, name: str, array: npt.NDArray[Any]) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _node(
        self,
        kind: str,
        inputs: list[str],
        domain: str = "",
        *,
        further: Sequence[str] = (),
        **settings: Any,
    ) -> str:
        """One more node; the name of what comes out of it first. The last inputs may be none."""
        while not inputs[-1]:
            inputs = inputs[:-1]
        out = f"{len(self.nodes)}.{kind}"
        self.nodes.append(
            helper.make_node(kind, inputs, [out, *further], domain=domain, **settings)
        )
        return out
