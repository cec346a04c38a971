"""What growth.py promises: a larger network that computes the same, and can learn to differ."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from music_gpt.config.model import ModelConfig
from music_gpt.errors import InputError
from music_gpt.network.growth import grown
from music_gpt.network.model import GPT

SMALL = replace(ModelConfig.preset("tiny"), zero_init=False)
SHAPES = {
    "as it is": {},
    "wider": {"d_model": 128, "d_ff": 512, "n_heads": 4, "n_kv_heads": 4},
    "three times as wide": {"d_model": 192, "d_ff": 768, "n_heads": 6, "n_kv_heads": 6},
    "only its feed-forward part": {"d_ff": 1024},
    "deeper": {"n_layers": 5},
    "longer": {"context": 512},
    "wider, deeper, longer": {
        "n_layers": 4,
        "d_model": 128,
        "d_ff": 512,
        "n_heads": 4,
        "n_kv_heads": 4,
        "context": 300,
    },
}


def trained_like(config: ModelConfig) -> GPT:
    """A network with weights of some size everywhere, biases and norms too."""
    torch.manual_seed(3)
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def ids_of(config: ModelConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, config.vocab_size, (2, config.context), generator=generator)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize(
    "base",
    [
        SMALL,
        replace(SMALL, n_kv_heads=1),
        replace(SMALL, qk_norm=False, bias=False),
        replace(SMALL, positions="learned", head_bias=True, activation="relu"),
        replace(SMALL, norm="post"),
    ],
    ids=["default", "grouped", "qk-norm", "learned", "post-norm"],
)
def test_a_grown_network_computes_what_the_small_one_did(
    base: ModelConfig, changes: dict[str, int]
) -> None:
    large = replace(base, **changes)
    if "n_kv_heads" in changes:
        large = replace(large, n_kv_heads=base.n_kv_heads * large.d_model // base.d_model)
    impossible = (base.positions == "learned" and "context" in changes) or (
        base.norm == "post" and "n_layers" in changes
    )
    small, ids = trained_like(base), ids_of(base)
    if impossible:
        with pytest.raises(InputError, match="cannot be grown"):
            grown(small, large)
        return
    with torch.no_grad():
        torch.testing.assert_close(grown(small, large).eval()(ids), small(ids), atol=2e-4, rtol=0)


def test_the_copies_of_a_number_learn_different_things() -> None:
    small = trained_like(SMALL)
    large = grown(small, replace(SMALL, **SHAPES["wider"])).eval()
    ids = ids_of(SMALL)
    F.cross_entropy(large(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    block = large.blocks[0]
    copies = {
        "residual stream": large.embedding.weight.grad.chunk(2, dim=1),
        "heads": block.attention.qkv.weight.grad[: 2 * SMALL.d_model].chunk(2),
        "hidden units": block.feed_forward.up.weight.grad.chunk(2),
    }
    for name, (first, second) in copies.items():
        assert float((first - second).norm() / (first.norm() + second.norm())) > 0.1, name


def test_an_added_block_takes_part_in_learning() -> None:
    small = trained_like(SMALL)
    large = grown(small, replace(SMALL, n_layers=3))
    ids = ids_of(SMALL)
    F.cross_entropy(large(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    for block in large.blocks:
        assert float(block.feed_forward.down.weight.grad.norm()) > 0


def test_a_grown_matrix_has_the_spread_that_its_width_asks_for() -> None:
    small = GPT(SMALL)
    large = grown(small, replace(SMALL, **SHAPES["wider"]))
    wide, narrow = (m.blocks[1].attention.qkv.weight.detach().std() for m in (large, small))
    assert float(wide / narrow) == pytest.approx(2**-0.5, rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 96, "n_heads": 3, "n_kv_heads": 3},
        {"n_heads": 4, "n_kv_heads": 4},
        {"n_layers": 1},
        {"context": 128},
        {"activation": "relu"},
        {"d_model": 128, "n_heads": 4, "n_kv_heads": 2},
    ],
)
def test_a_shape_that_is_no_growth_is_refused_in_a_sentence(changes: dict[str, int]) -> None:
    with pytest.raises(InputError, match="cannot be grown into"):
        grown(GPT(SMALL), replace(SMALL, **changes))


def test_the_sentence_names_the_settings_that_differ() -> None:
    other = replace(SMALL, qk_norm=False, bias=False)
    differ = "bias False in place of True and qk_norm False in place of True;"
    with pytest.raises(InputError, match=f"2 and 2 with {differ}"):
        grown(GPT(SMALL), other)


def test_a_tied_head_cannot_be_widened() -> None:
    tied = replace(SMALL, tie_head=True)
    with pytest.raises(InputError, match="cannot be grown into"):
        grown(GPT(tied), replace(tied, **SHAPES["wider"]))
