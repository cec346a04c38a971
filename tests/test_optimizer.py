"""The optimiser: Muon and AdamW move what is theirs, by the schedule, and the average follows."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from small import random_network

from music_gpt.config.training import OptimConfig
from music_gpt.training import optimizer
from music_gpt.training.optimizer import EMA, Muon, MuonAdamW, lr_factor, weight_decay_factor


def groups_of(optimizer: MuonAdamW) -> list[set[int]]:
    return [{id(p) for p in group["params"]} for group in optimizer.param_groups]


@pytest.mark.parametrize("tie_head", [False, True])
@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_every_parameter_is_moved_by_one_part_and_hidden_matrices_by_muon(
    kind: str, tie_head: bool
) -> None:
    model = random_network(tie_head=tie_head, positions="learned")
    optimizer = MuonAdamW(model, OptimConfig(optimizer=kind))  # type: ignore[arg-type]
    groups = groups_of(optimizer)
    assert sum(map(len, groups)) == len(list(model.parameters()))
    assert set.union(*groups) == {id(p) for p in model.parameters()}
    hidden = {id(p) for n, p in model.named_parameters() if n.startswith("blocks.") and p.ndim == 2}
    assert len(hidden) == 2 * 4
    decayed = [g for g, ids in zip(optimizer.param_groups, groups, strict=True) if ids == hidden]
    assert [group["weight_decay"] for group in decayed] == [0.05]
    muon = [part for part in optimizer.parts if isinstance(part, torch.optim.Muon)]
    assert len(muon) == (kind == "muon")
    for part in muon:
        assert {id(p) for group in part.param_groups for p in group["params"]} == hidden


def steps_with(optimizer: MuonAdamW, model: torch.nn.Module, n: int) -> None:
    ids = torch.arange(20).reshape(2, 10)
    for _ in range(n):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        )
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_the_state_of_the_optimizer_goes_there_and_back(kind: str) -> None:
    config = OptimConfig(optimizer=kind)  # type: ignore[arg-type]
    model = random_network()
    optimizer = MuonAdamW(model, config)
    steps_with(optimizer, model, 3)
    copy = random_network()
    copy.load_state_dict(model.state_dict())
    restored = MuonAdamW(copy, config)
    restored.load_state_dict(deepcopy(optimizer.state_dict()))
    for one, net in ((optimizer, model), (restored, copy)):
        one.scale(lr=0.5)
        steps_with(one, net, 3)
    for name, tensor in model.state_dict().items():
        assert torch.equal(copy.state_dict()[name], tensor)


def test_a_scaled_learning_rate_reaches_both_parts() -> None:
    optimizer = MuonAdamW(random_network(), OptimConfig(muon_lr=0.04, adamw_lr=0.002))
    optimizer.scale(lr=0.25)
    rates = [group["lr"] for part in optimizer.parts for group in part.param_groups]
    assert sorted(set(rates)) == [0.0005, 0.01]
    optimizer.scale(lr=1.0)
    assert {group["lr"] for group in optimizer.param_groups} == {0.002, 0.04}


def test_adamw_moves_like_torch_own() -> None:
    config = OptimConfig(optimizer="adamw", weight_decay=0.0)
    model, peer = random_network(), random_network()
    steps_with(MuonAdamW(model, config), model, 4)
    adamw = torch.optim.AdamW(
        peer.parameters(), lr=config.adamw_lr, betas=config.betas, weight_decay=0.0
    )
    steps_with(adamw, peer, 4)  # type: ignore[arg-type]
    for one, other in zip(model.parameters(), peer.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_learning_rate_rises_holds_and_falls(schedule: str) -> None:
    config = OptimConfig(schedule=schedule, warmup_steps=10, cooldown=0.4)  # type: ignore[arg-type]
    factors = [lr_factor(config, step, step / 100) for step in range(101)]
    assert factors[0] == 0.1
    assert factors[9:61] == [1.0] * 52
    assert factors[60:] == sorted(factors[60:], reverse=True)
    assert factors[100] == pytest.approx(config.final_lr)
    assert factors[80] == pytest.approx(0.51)


def test_the_average_of_the_weights_follows_them() -> None:
    model = random_network()
    average = EMA(model, 0.9)
    expected = {k: v.clone() for k, v in model.state_dict().items()}
    for n in range(1, 200):
        with torch.no_grad():
            model.norm.weight.add_(0.1)
        average.update(model)
        decay = min(0.9, n / (n + 10))
        expected["norm.weight"] = decay * expected["norm.weight"] + (1 - decay) * model.norm.weight
    torch.testing.assert_close(average.state["norm.weight"], expected["norm.weight"].detach())
    assert torch.equal(average.state["head.weight"], model.head.weight)


def test_a_step_without_gradients_moves_nothing() -> None:
    model = random_network()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    MuonAdamW(model, OptimConfig()).step()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


# --- matrices of one shape take their step together -------------------------------------------

SHAPES = [(16, 8), (8, 16), (16, 8), (8, 8), (16, 8)]


def matrices() -> list[torch.nn.Parameter]:
    random = torch.Generator().manual_seed(2)
    return [torch.nn.Parameter(torch.randn(shape, generator=random)) for shape in SHAPES]


@pytest.fixture
def in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on hardware that multiplies bfloat16, and as torch does everywhere."""
    monkeypatch.setattr(optimizer, "use_bf16", lambda *_: True)


@pytest.mark.parametrize("together", [False, True])
def test_steps_are_those_of_torch(together: bool, in_bf16: None) -> None:
    ours, theirs = matrices(), matrices()
    knobs = {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.9}
    muon, peer = Muon(ours, **knobs), torch.optim.Muon(theirs, **knobs)
    random = torch.Generator().manual_seed(3)
    for step in range(4):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=random)
            other.grad = one.grad.clone()
        if step == 2:
            ours[0].grad = theirs[0].grad = None  # a matrix that was not used stays where it is
        moved = [p for p in ours if p.grad is not None]
        muon.step_group(moved, muon.param_groups[0], together=together)
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
        state, torch_state = muon.state[one], peer.state[other]
        assert state.keys() == torch_state.keys()
        assert torch.equal(state["momentum_buffer"], torch_state["momentum_buffer"])


@pytest.mark.parametrize("native", [False, True])
def test_matrices_are_made_orthogonal_in_bf16_where_the_hardware_multiplies_it(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "use_bf16", lambda precision, device: native)
    made = optimizer.orthogonal(matrices()[0].detach(), (3.4445, -4.775, 2.0315), 5, 1e-7)
    assert made.dtype is (torch.bfloat16 if native else torch.float32)
    lengths = torch.linalg.svdvals(made.float())
    assert lengths.min() > 0.6
    assert lengths.max() < 1.3


def test_the_weight_decay_stays_or_falls_in_a_line_to_zero() -> None:
    shares = [0.0, 0.25, 0.5, 1.0, 1.01]
    stays, falls = OptimConfig(), OptimConfig(weight_decay_schedule="linear")
    assert [weight_decay_factor(stays, progress) for progress in shares] == [1.0] * 5
    assert [weight_decay_factor(falls, p) for p in shares] == [1.0, 0.75, 0.5, 0.0, 0.0]


def test_a_scaled_weight_decay_reaches_only_what_decays() -> None:
    optimizer = MuonAdamW(random_network(), OptimConfig(weight_decay=0.2))
    optimizer.scale(lr=1.0, weight_decay=0.5)
    decays = [group["weight_decay"] for part in optimizer.parts for group in part.param_groups]
    assert sorted(set(decays)) == [0.0, 0.1]
    optimizer.scale(lr=1.0)
    assert max(group["weight_decay"] for group in optimizer.param_groups) == 0.2


@pytest.mark.parametrize("together", [False, True])
def test_queries_keys_and_values_move_as_three_matrices(together: bool, in_bf16: None) -> None:
    model = random_network(n_heads=2, n_kv_heads=1)  # 16 rows of queries, 8 of keys, 8 of values
    (weight, *_) = [p for n, p in model.named_parameters() if n.endswith("qkv.weight")]
    parts = [torch.nn.Parameter(part.detach().clone()) for part in weight.split((16, 8, 8))]
    muon = next(part for part in MuonAdamW(model, OptimConfig()).parts if isinstance(part, Muon))
    peer = torch.optim.Muon(parts, lr=0.02, momentum=0.95, weight_decay=0.05)
    random = torch.Generator().manual_seed(3)
    for _ in range(3):
        weight.grad = torch.randn(weight.shape, generator=random)
        for part, gradient in zip(parts, weight.grad.split((16, 8, 8)), strict=True):
            part.grad = gradient.clone()
        muon.step_group([weight], muon.param_groups[0], together=together)
        peer.step()
    torch.testing.assert_close(weight.detach(), torch.cat(parts).detach(), atol=1e-6, rtol=0)
