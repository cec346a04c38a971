"""The network before and during training: how it starts, what it learns, and its loss."""

import dataclasses
import math

import pytest
import torch
from networks import CONFIGS, HISTORICAL, SHRUNK, every_network, shaken, some_ids
from torch import Tensor, nn

from music_gpt.config.model import N_EVENTS, PRESETS, ModelConfig
from music_gpt.network.model import GPT, token_nats, use_bf16

# --- before and during training ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "small", "tiny"])
def test_a_new_network_gives_every_event_the_same_probability(name: str) -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(PRESETS[name], context=64)
    ids = some_ids(config, 2, 9)
    logits = GPT(config)(ids)
    torch.testing.assert_close(logits.softmax(-1), torch.full((2, 9, N_EVENTS), 1 / N_EVENTS))
    nats, n_targets = token_nats(logits[:, :-1], ids[:, 1:], ignore=-1)
    assert (nats / n_targets).item() == pytest.approx(math.log(N_EVENTS), abs=1e-5)


@pytest.mark.parametrize("name", HISTORICAL)
def test_a_new_historical_network_starts_near_even_odds_but_not_at_them(name: str) -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(PRESETS[name], n_layers=2)
    logits = GPT(config).eval()(some_ids(config, 2, 9))
    spread = logits.std().item()
    assert 0.01 < spread < 1.0


def test_the_residual_projections_start_smaller_the_deeper_the_network_is() -> None:
    torch.manual_seed(0)
    model = GPT(dataclasses.replace(PRESETS["text-3x256"], n_layers=8))
    block = model.blocks[3]
    assert block.feed_forward.up.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert block.feed_forward.down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert block.attention.proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.02)


def test_queries_and_keys_of_a_new_network_have_entries_of_about_one_whatever_its_width() -> None:
    for name in ("default", "small"):
        torch.manual_seed(0)
        config = dataclasses.replace(PRESETS[name], n_layers=1)
        qkv = GPT(config).blocks[0].attention.qkv
        x = torch.randn(500, config.d_model)
        assert qkv(x).std().item() == pytest.approx(1.0, rel=0.03)


def test_dropout_acts_in_training_only() -> None:
    model = shaken(ModelConfig(**SHRUNK, dropout=0.3))
    ids = some_ids(model.config, 1, 12)
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.allclose(model(ids), model(ids), atol=1e-2)


def test_dropout_stands_behind_the_embedding_and_behind_each_residual_part() -> None:
    model = shaken(ModelConfig(**SHRUNK, dropout=0.3))
    dropped: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda *_, name=name: dropped.append(name))
    model(some_ids(model.config, 1, 5))
    assert dropped == ["dropout", *(f"blocks.{i}.dropout" for i in (0, 0, 1, 1, 2, 2))]


def test_without_dropout_training_and_use_are_the_same() -> None:
    model = shaken(ModelConfig(**SHRUNK))
    ids = some_ids(model.config, 1, 12)
    assert torch.equal(model.train()(ids), model.eval()(ids))


def loss_of(model: GPT, ids: Tensor) -> Tensor:
    nats, n_targets = token_nats(model(ids[:, :-1]), ids[:, 1:], ignore=-1)
    return nats / n_targets


@every_network
def test_every_parameter_gets_a_gradient(name: str) -> None:
    small = {"n_layers": 2, "vocab_size": 50, "context": 24}
    model = shaken(dataclasses.replace(CONFIGS[name], **small))
    loss_of(model, some_ids(model.config, 2, 24)).backward()
    for key, p in model.named_parameters():
        assert p.grad is not None, key
        assert p.grad.isfinite().all(), key
        assert p.grad.abs().max() > 1e-7, key


def test_a_network_that_starts_at_zero_moves_all_its_parameters_by_the_third_step() -> None:
    torch.manual_seed(0)
    model = GPT(ModelConfig(**SHRUNK))
    ids = some_ids(model.config, 2, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, ids).backward()
        optimizer.step()
    still = [key for key, p in model.named_parameters() if p.grad.abs().max() == 0]
    assert still == []


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_few_steps_learn_a_sequence_by_heart(norm: str) -> None:
    torch.manual_seed(0)
    model = GPT(ModelConfig(**SHRUNK, norm=norm))
    ids = some_ids(model.config, 1, 24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        loss_of(model, ids).backward()
        optimizer.step()
    assert loss_of(model, ids) < 0.1
    assert torch.equal(model(ids[:, :-1]).argmax(-1), ids[:, 1:])


def test_a_tied_head_is_the_embedding() -> None:
    free, tied = (GPT(ModelConfig(**SHRUNK, tie_head=tie)) for tie in (False, True))
    assert tied.head.weight is tied.embedding.weight
    assert free.head.weight is not free.embedding.weight
    assert free.n_parameters - tied.n_parameters == N_EVENTS * 48


def test_a_tied_network_does_not_start_with_an_embedding_of_zeros() -> None:
    torch.manual_seed(0)
    model = GPT(ModelConfig(**SHRUNK, tie_head=True))
    assert model.embedding.weight.std().item() == pytest.approx(0.02, rel=0.05)


# --- the loss ---------------------------------------------------------------------------------


def test_padding_counts_neither_in_the_sum_nor_in_the_number() -> None:
    logits = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(1))
    nats, n_targets = token_nats(logits, torch.tensor([[3, 4, 0, 4]]), ignore=4)
    rows = logits[0].double()
    expected = sum(
        math.log(rows[t].exp().sum()) - rows[t, target].item() for t, target in ((0, 3), (2, 0))
    )
    assert n_targets == 2
    assert nats.item() == pytest.approx(expected, abs=1e-5)


def test_padding_alone_costs_nothing() -> None:
    nats, n_targets = token_nats(torch.randn(2, 3, 5), torch.full((2, 3), 4), ignore=4)
    assert (nats.item(), n_targets.item()) == (0.0, 0)


def test_a_precision_that_was_asked_for_is_taken() -> None:
    assert use_bf16("bf16", "cpu")
    assert not use_bf16("fp32", "cpu")
    assert use_bf16("auto", "cpu") == torch.cpu._is_avx512_bf16_supported()
    assert not use_bf16("auto", "mps")
