"""Gradients of a network -> its next weights: Muon and AdamW as one optimiser, and the schedule.

The module knows neither batches nor files nor Lightning.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from music_gpt.config.training import OptimConfig, RunConfig
from music_gpt.network.model import GPT, use_bf16

EMA_WARMUP = 10
"""After n updates the moving average weighs the past by n / (n + this), until it is slow enough."""


class Muon(torch.optim.Muon):
    """`torch.optim.Muon`, for matrices that may be several in one.

    Queries, keys and values come from one product, but they are three matrices, and each learns
    better when it is made orthogonal by itself (docs/ablations.md). On a GPU matrices of one shape
    take their step together: one by one those of the default network are some 600 small kernels a
    step, which it finishes sooner than they are launched; together they are about a fifth of that.
    A CPU is a quarter slower at it, and goes one by one. The state is that of torch, and so is the
    result where a matrix is one.
    """

    def __init__(
        self,
        params: Sequence[nn.Parameter],
        rows: Mapping[Tensor, list[int]] | None = None,
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        """`rows` tells of a matrix that is several, one on the other, how many rows each has."""
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay)
        self._rows = dict(rows or {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the matrices that have a gradient."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self.step_group(parameters, group, together=not parameters[0].is_cpu)
        return loss

    @torch.no_grad()
    def step_group(
        self, parameters: Sequence[Tensor], group: dict[str, Any], *, together: bool
    ) -> None:
        """Move these, those of one shape at once or each alone."""
        lr, momentum = group["lr"], group["momentum"]
        updates = [self._update(p, momentum) for p in parameters]
        torch._foreach_mul_(list(parameters), 1 - lr * group["weight_decay"])
        alike: dict[Any, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter, update in zip(parameters, updates, strict=True):
            rows = self._rows.get(parameter, [len(parameter)])
            for matrix, its in zip(
                torch.split(parameter, rows), torch.split(update, rows), strict=True
            ):
                alike[matrix.shape if together else id(matrix)].append((matrix, its))
        how = group["ns_coefficients"], group["ns_steps"], group["eps"]
        for pairs in alike.values():
            matrices, theirs = zip(*pairs, strict=True)
            n_rows, n_columns = matrices[0].shape
            scale = math.sqrt(max(1, n_rows / n_columns))
            if together:
                moves = orthogonal(torch.stack(theirs), *how).to(matrices[0].dtype).contiguous()
                torch._foreach_add_(list(matrices), list(moves.unbind()), alpha=-lr * scale)
            else:
                matrices[0].add_(orthogonal(theirs[0], *how), alpha=-lr * scale)

    def _update(self, parameter: Tensor, momentum: float) -> Tensor:
        """Nesterov's update, from the gradient and those before."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(state["momentum_buffer"], momentum)


def orthogonal(
    matrices: Tensor, coefficients: tuple[float, float, float], n_steps: int, eps: float
) -> Tensor:
    """The nearest (semi-)orthogonal matrices, about: (N, R, C) or (R, C) -> the same shape.

    In bfloat16 where the hardware multiplies that; where it does not, as on most CPUs of laptops,
    float32 is a hundred times as fast.

    Source: the quintic Newton-Schulz iteration of `torch.optim.Muon`, also on a batch.
    """
    a, b, c = coefficients
    add_product = torch.baddbmm if matrices.ndim == 3 else torch.addmm
    x = matrices.to(torch.bfloat16 if use_bf16("auto", matrices.device.type) else torch.float32)
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(n_steps):
        gram = x @ x.mT
        x = add_product(x, add_product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class MuonAdamW(torch.optim.Optimizer):
    """Muon on the hidden matrices and AdamW on the rest, behind one optimiser.

    Source of Muon: Jordan et al. 2024. Both parts share their parameter groups with this object, so
    whatever sets a learning rate here sets it there.
    """

    def __init__(self, model: GPT, config: OptimConfig) -> None:
        hidden, decayed, plain = _parameter_groups(model, muon=config.optimizer == "muon")
        adamw = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": config.weight_decay},
                {"params": plain, "weight_decay": 0.0},
            ],
            lr=config.adamw_lr,
            betas=config.betas,
            # the foreach and fused forms differ in the last bits only; fused is the quickest
            fused=True,
        )
        self.parts: list[torch.optim.Optimizer] = [adamw]
        if hidden:
            self.parts.append(
                Muon(
                    hidden,
                    rows_of_qkv(model),
                    lr=config.muon_lr,
                    momentum=config.muon_momentum,
                    weight_decay=config.weight_decay,
                )
            )
        groups = [group for part in self.parts for group in part.param_groups]
        super().__init__([{"params": list(group["params"])} for group in groups], {})
        self._share_groups()
        for group in self.param_groups:
            group["peak_lr"], group["peak_weight_decay"] = group["lr"], group["weight_decay"]

    def _share_groups(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def scale(self, *, lr: float, weight_decay: float = 1.0) -> None:
        """Set every learning rate and weight decay to so many times its peak."""
        for group in self.param_groups:
            group["lr"] = lr * group["peak_lr"]
            group["weight_decay"] = weight_decay * group["peak_weight_decay"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Evaluate `closure` once (forward and backward), then move all parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of both parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the momenta of both parts; the knobs stay those of this configuration.

        So a run that diverged can go on with a lower learning rate.
        """
        knobs = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()
        for group, own in zip(self.param_groups, knobs, strict=True):
            group.update(own)


def _parameter_groups(
    model: GPT, *, muon: bool
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Hidden matrices for Muon, matrices with weight decay for AdamW, and all the rest."""
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "blocks." in name]
    chosen = {id(p) for p in hidden}
    plain = [p for p in model.parameters() if id(p) not in chosen]
    return (hidden, [], plain) if muon else ([], hidden, plain)


def rows_of_qkv(model: GPT) -> dict[Tensor, list[int]]:
    """Rows of queries, keys and values in the matrices that hold all three."""
    rows = model.config.qkv_rows
    named = model.named_parameters()
    return {p: rows for name, p in named if name.endswith("attention.qkv.weight")}


def lr_factor(config: OptimConfig, step: int, progress: float) -> float:
    """Share of the peak learning rate after `step` steps, at `progress` (0 to 1) of the run.

    It rises over the warm-up, holds, and falls over the last `cooldown` of the run.

    >>> [lr_factor(OptimConfig(), step, step / 1000) for step in (0, 49, 400, 750, 1000)]
    [0.01, 0.5, 1.0, 0.51, 0.02]
    """
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    left = 1.0 - min(progress, 1.0)
    fall = min(1.0, left / config.cooldown) if config.cooldown else 1.0
    if config.schedule == "cosine":
        fall = (1.0 - math.cos(math.pi * fall)) / 2.0
    return warm * (config.final_lr + (1.0 - config.final_lr) * fall)


def weight_decay_factor(config: OptimConfig, progress: float) -> float:
    """Share of the weight decay at `progress` (0 to 1) of the run.

    Source of `linear`: nanochat, whose decay falls in a line over the whole run.

    >>> weight_decay_factor(OptimConfig(weight_decay_schedule="linear"), 0.25)
    0.75
    """
    return 1.0 - min(progress, 1.0) if config.weight_decay_schedule == "linear" else 1.0


def context_at(config: RunConfig, progress: float) -> int:
    """Tokens that the network sees at once at `progress` (0 to 1) of the run.

    A network learns from short passages first what goes with what, and sooner; see
    docs/ablations.md. Every length has an equal part of `context_warmup`.

    >>> from music_gpt.config.training import DataConfig
    >>> data = DataConfig(first_context=512, context_warmup=0.5)
    >>> [context_at(RunConfig(data=data), p) for p in (0, 0.24, 0.25, 0.49, 0.5, 1)]
    [512, 512, 1024, 1024, 2048, 2048]
    """
    context, first = config.model.context, config.data.first_context
    if not first or progress >= config.data.context_warmup:
        return context
    doublings = (context // first).bit_length() - 1
    return int(first << int(doublings * progress / config.data.context_warmup))


class EMA:
    """Exponential moving average of a model's weights."""

    def __init__(self, model: GPT, decay: float) -> None:
        self.decay = decay
        self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.updates = 0

    def to(self, device: torch.device) -> None:
        """Move the average to where the model is."""
        self.state = {k: v.to(device) for k, v in self.state.items()}

    @torch.no_grad()
    def update(self, model: GPT) -> None:
        """Move towards the present weights; quicker at first, when the start still weighs."""
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + EMA_WARMUP))
        now = model.state_dict()
        names = list(self.state)
        torch._foreach_lerp_([self.state[n] for n in names], [now[n] for n in names], 1 - decay)
