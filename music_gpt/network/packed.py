"""A network -> the same one, its matrices laid out as a CPU multiplies them fastest.

torch multiplies float32 by Intel's MKL, which leaves half of what AMD's processors can do. oneDNN,
which comes with torch as well, does not, and likes its matrices in blocks that suit the caches:
much faster, and the numbers are the same up to rounding (`benchmarks/generation.py`).
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from music_gpt.network.model import GPT

LEAST = 300_000
"""Products of two numbers below which a call of oneDNN costs more than it saves."""


def packed(model: GPT) -> GPT:
    """A copy of the network, for inference on a CPU.

    It keeps the weights of now, whatever becomes of `model`. Where torch has no MKL to be better
    than (on ARM) or no oneDNN, or on another device, it is `model` itself, and so where it is
    packed already.
    """
    linears = [part for part in model.modules() if isinstance(part, nn.Linear)]
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # torch's own
    if not linears or not has_mkl:
        return model
    try:
        packs: dict[int, object] = {id(linear): PackedLinear(linear) for linear in linears}
    except (AttributeError, RuntimeError):  # another build of torch, or not float32 on a CPU
        return model
    return copy.deepcopy(model, packs)  # each in the place of its layer


class PackedLinear(nn.Module):
    """A linear layer through oneDNN, by the operators that torch's own compiler puts in its place.

    Has no gradient, and belongs to the device and the precision of the layer that it is made of.
    """

    def __init__(self, linear: nn.Linear) -> None:
        """Raises `AttributeError` or `RuntimeError` where there are no such operators."""
        super().__init__()
        weight = linear.weight.detach()
        if weight.dtype != torch.float32:
            raise RuntimeError("only float32 gains")
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = None if linear.bias is None else linear.bias.detach().clone()
        # for few rows of a small matrix
        self._plain = weight.clone() if weight.numel() < LEAST else None
        self._multiply(torch.zeros(1, linear.in_features))  # what lacks is missed only in use

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) -> (..., outputs)."""
        if self._plain is not None and x.numel() * len(self._plain) < LEAST:
            return F.linear(x, self._plain, self._bias)
        return self._multiply(x)

    def _multiply(self, x: Tensor) -> Tensor:
        product = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return cast(Tensor, product)
