"""A packed network computes what the plain one does, and leaves that as it is."""

import pytest
import torch
from networks import CONFIGS, network, some_ids
from small import random_network
from torch import nn

from music_gpt.network import packed as module
from music_gpt.network.packed import PackedLinear, packed

needs_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()),
    reason="this build of torch has no oneDNN, or no MKL that it could replace",
)


def kinds(model: nn.Module) -> set[type[nn.Module]]:
    return {type(part) for part in model.modules()} & {nn.Linear, PackedLinear}


@needs_onednn
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("least", [0, 10_000, 300_000])
@torch.inference_mode()
def test_the_logits_are_those_of_the_plain_network(
    monkeypatch: pytest.MonkeyPatch, name: str, least: int
) -> None:
    monkeypatch.setattr(module, "LEAST", least)
    model = network(name)
    twin = packed(model)
    assert (kinds(model), kinds(twin)) == ({nn.Linear}, {PackedLinear})
    assert packed(twin) is twin
    for n_takes, n_time in ((1, 1), (3, 1), (2, 20)):
        ids = some_ids(CONFIGS[name], n_takes, n_time)
        torch.testing.assert_close(twin(ids), model(ids), rtol=0, atol=1e-5)


@needs_onednn
@torch.inference_mode()
@pytest.mark.parametrize("least", [0, 300_000])
def test_it_keeps_its_weights_whatever_becomes_of_the_plain_network(
    monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(module, "LEAST", least)
    model = random_network()
    twin, ids = packed(model), torch.tensor([[388, 60, 370]])
    before = twin(ids)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.zero_()
    assert torch.equal(twin(ids), before)


@pytest.mark.parametrize("lacks", [AttributeError, RuntimeError, NotImplementedError])
def test_where_torch_has_no_onednn_the_network_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, lacks: type[Exception]
) -> None:
    def refuse(*_: object) -> None:
        raise lacks("not in this build")

    monkeypatch.setattr(module.PackedLinear, "_multiply", refuse)
    model = random_network()
    assert packed(model) is model


def test_where_torch_has_no_mkl_the_network_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    model = random_network()
    assert packed(model) is model


def test_other_precisions_stay_as_they_are() -> None:
    model = random_network().bfloat16()
    assert packed(model) is model
