"""The network against its definition, written out once more below without any of its code."""

import dataclasses
import math

import pytest
import torch
from networks import CONFIGS, every_network, network, some_ids
from torch import Tensor, nn

from music_gpt.config.model import PRESETS, ModelConfig
from music_gpt.network.attention import Attention, attend, rope_table, rotate
from music_gpt.network.model import GPT, Block, FeedForward, state_shapes


@every_network
def test_the_shapes_of_a_network_are_told_without_building_it(name: str) -> None:
    state = network(name).state_dict()
    assert state_shapes(CONFIGS[name]) == {key: tuple(t.shape) for key, t in state.items()}


# --- the definition, in double precision ------------------------------------------------------

Weights = dict[str, Tensor]


def plain_linear(w: Weights, name: str, x: Tensor) -> Tensor:
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def plain_layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    y = (x - mean) / torch.sqrt(variance + 1e-5) * w[f"{name}.weight"]
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def plain_softmax(scores: Tensor) -> Tensor:
    weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return weights / weights.sum(-1, keepdim=True)


def plain_rope(x: Tensor) -> Tensor:
    """x (T, K): dimensions i and i + K/2 are one complex number, turned by t / 10000^(2i/K)."""
    n_time, width = x.shape
    z = torch.complex(x[:, : width // 2], x[:, width // 2 :])
    for t in range(n_time):
        for i in range(width // 2):
            angle = t / 10_000 ** (2 * i / width)
            z[t, i] = z[t, i] * complex(math.cos(angle), math.sin(angle))
    return torch.cat((z.real, z.imag), dim=1)


def plain_head(c: ModelConfig, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head of one piece: q, k, v (T, K) -> (T, K)."""
    if c.qk_norm:
        q, k = (x - x.mean(-1, keepdim=True) for x in (q, k))
        q, k = (x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) for x in (q, k))
    if c.positions == "rope":
        q, k = plain_rope(q), plain_rope(k)
    scores = q @ k.T / math.sqrt(q.shape[1])
    for t in range(len(q)):
        scores[t, t + 1 :] = -math.inf
    return plain_softmax(scores) @ v


def plain_attention(w: Weights, name: str, c: ModelConfig, x: Tensor) -> Tensor:
    """The projection holds the rows of all query heads, then of all key heads, then all values."""
    width = c.d_model // c.n_heads
    rows = plain_linear(w, f"{name}.qkv", x)
    parts = [rows[..., start : start + width] for start in range(0, rows.shape[-1], width)]
    pieces = []
    for b in range(len(x)):
        heads = []
        for h in range(c.n_heads):
            group = h // (c.n_heads // c.n_kv_heads)
            key, value = c.n_heads + group, c.n_heads + c.n_kv_heads + group
            heads.append(plain_head(c, parts[h][b], parts[key][b], parts[value][b]))
        pieces.append(torch.cat(heads, dim=1))
    return plain_linear(w, f"{name}.proj", torch.stack(pieces))


def plain_feed_forward(w: Weights, name: str, c: ModelConfig, x: Tensor) -> Tensor:
    h = plain_linear(w, f"{name}.up", x)
    if c.activation == "relu":
        h = torch.where(h > 0, h, torch.zeros_like(h))
    else:
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    return plain_linear(w, f"{name}.down", h)


def plain_block(w: Weights, name: str, c: ModelConfig, x: Tensor) -> Tensor:
    attention, forward = f"{name}.attention", f"{name}.feed_forward"
    norm1, norm2 = f"{name}.norm1", f"{name}.norm2"
    if c.norm == "post":
        x = plain_layer_norm(w, norm1, x + plain_attention(w, attention, c, x))
        return plain_layer_norm(w, norm2, x + plain_feed_forward(w, forward, c, x))
    x = x + plain_attention(w, attention, c, plain_layer_norm(w, norm1, x))
    return x + plain_feed_forward(w, forward, c, plain_layer_norm(w, norm2, x))


def plain_network(w: Weights, c: ModelConfig, ids: Tensor) -> Tensor:
    """ids (B, T) -> logits (B, T, V)."""
    x = w["embedding.weight"][ids]
    if c.positions == "learned":
        x = x + w["positions.weight"][: ids.shape[1]]
    for layer in range(c.n_layers):
        x = plain_block(w, f"blocks.{layer}", c, x)
    if c.norm == "pre":
        x = plain_layer_norm(w, "norm", x)
    return plain_linear(w, "head", x)


def in_double(module: nn.Module) -> Weights:
    return {name: p.double() for name, p in module.state_dict().items()}


# --- the network equals its definition --------------------------------------------------------


@every_network
@torch.no_grad()
def test_the_network_computes_its_definition(name: str) -> None:
    model, ids = network(name), some_ids(CONFIGS[name], 2, 13)
    expected = plain_network(in_double(model), CONFIGS[name], ids)
    assert expected.std() > 0.2  # nothing is equal because all of it vanished
    torch.testing.assert_close(model(ids).double(), expected, rtol=0, atol=1e-5)


@every_network
@torch.no_grad()
def test_each_block_computes_its_definition(name: str) -> None:
    model, config = network(name), CONFIGS[name]
    x = torch.randn(2, 11, config.d_model, generator=torch.Generator().manual_seed(3))
    rope = None
    if config.positions == "rope":
        rope = model.rope_cos[:11], model.rope_sin[:11]
    for block in model.blocks:
        expected = plain_block(
            {f"b.{key}": value for key, value in in_double(block).items()}, "b", config, x.double()
        )
        torch.testing.assert_close(
            block(x, rope, None).double(), expected, rtol=0, atol=1e-5 * float(expected.std())
        )


@torch.no_grad()
def test_the_lecture_network_computes_what_separate_heads_compute() -> None:
    """The lecture's own form: a class for one head, with three projections of its own."""
    config = ModelConfig.preset("lecture")
    torch.manual_seed(4)
    keys, queries, values = (
        [nn.Linear(config.d_model, config.d_head, bias=False) for _ in range(config.n_heads)]
        for _ in range(3)
    )
    projection = nn.Linear(config.d_model, config.d_model)

    attention = Attention(config, layer=0)
    attention.qkv.weight.copy_(torch.cat([p.weight for p in (*queries, *keys, *values)]))
    attention.proj.load_state_dict(projection.state_dict())

    x = torch.randn(2, 9, config.d_model)
    heads = []
    for key, query, value in zip(keys, queries, values, strict=True):
        scores = query(x) @ key(x).transpose(-2, -1) * config.d_head**-0.5
        scores = scores.masked_fill(torch.tril(torch.ones(9, 9)) == 0, -math.inf)
        heads.append(torch.softmax(scores, dim=-1) @ value(x))
    expected = projection(torch.cat(heads, dim=-1))

    assert attention.qkv.bias is None
    torch.testing.assert_close(attention(x, None, None), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_lecture_uses_relu_and_the_chapter_gelu() -> None:
    for name, at_minus_one in (("lecture", 0.0), ("chapter14", -0.158808)):
        part = FeedForward(
            dataclasses.replace(PRESETS[name], d_model=6, d_ff=6, n_heads=6, n_kv_heads=6)
        )
        for linear in (part.up, part.down):
            linear.weight.copy_(torch.eye(6))
            linear.bias.zero_()
        assert part(torch.full((1, 1, 6), -1.0))[0, 0, 0] == pytest.approx(at_minus_one, abs=1e-6)


@torch.no_grad()
def test_the_network_of_2017_normalises_after_each_sum() -> None:
    out = Block(ModelConfig.preset("original-2017"), 0).eval()(
        7 + 3 * torch.randn(2, 5, 512), None, None
    )
    torch.testing.assert_close(out.mean(-1), torch.zeros(2, 5), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.var(-1, unbiased=False), torch.ones(2, 5), rtol=0, atol=1e-4)


def test_one_attention_row_with_scores_zero_and_ln_three() -> None:
    q = torch.tensor([[[[1.0, 0.0]]]])
    k = torch.tensor([[[[0.0, 5.0], [math.log(3) * math.sqrt(2), -5.0]]]])
    v = torch.tensor([[[[2.0, 0.0], [0.0, 4.0]]]])
    torch.testing.assert_close(attend(q, k, v), torch.tensor([[[[0.5, 3.0]]]]))


def test_a_rotated_score_depends_on_the_distance_alone() -> None:
    torch.manual_seed(5)
    q, k = torch.randn(8), torch.randn(8)
    cos, sin = rope_table(64, 8)

    def at(x: Tensor, position: int) -> Tensor:
        return rotate(x.expand(1, 1, 1, 8), cos[[position]], sin[[position]]).flatten()

    torch.testing.assert_close(at(q, 50) @ at(k, 41), at(q, 9) @ at(k, 0))
    assert abs(at(q, 9) @ at(k, 0) - at(q, 8) @ at(k, 0)) > 1e-3


def test_rotation_leaves_lengths_and_the_first_position_alone() -> None:
    x = torch.randn(1, 2, 16, 8, generator=torch.Generator().manual_seed(6))
    turned = rotate(x, *rope_table(16, 8))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[:, :, 0], x[:, :, 0], rtol=0, atol=0)


# --- what the network may see -----------------------------------------------------------------


@every_network
@torch.no_grad()
def test_a_later_token_changes_no_earlier_logit(name: str) -> None:
    model, ids = network(name), some_ids(CONFIGS[name], 1, 16)
    other = ids.clone()
    other[:, 9] = (other[:, 9] + 1) % CONFIGS[name].vocab_size
    before, after = model(ids), model(other)
    torch.testing.assert_close(after[:, :9], before[:, :9], rtol=0, atol=1e-6)
    for t in range(9, 16):
        assert (after[:, t] - before[:, t]).abs().max() > 1e-3


@every_network
@torch.no_grad()
def test_the_pieces_of_a_batch_do_not_see_each_other(name: str) -> None:
    model, ids = network(name), some_ids(CONFIGS[name], 3, 8)
    alone = torch.cat([model(row[None]) for row in ids])
    torch.testing.assert_close(model(ids), alone, rtol=0, atol=1e-5)


# --- how many numbers it has ------------------------------------------------------------------


def counted(c: ModelConfig) -> int:
    """Parameters by the formula: what each part is made of."""
    bias = 1 if c.bias else 0
    norm = c.d_model * (1 + bias)
    n_qkv = (c.n_heads + 2 * c.n_kv_heads) * (c.d_model // c.n_heads)
    attention = n_qkv * (c.d_model + (1 if c.bias and c.qkv_bias else 0))
    attention += c.d_model * (c.d_model + bias)
    forward = c.d_ff * (c.d_model + bias) + c.d_model * (c.d_ff + bias)
    total = c.vocab_size * c.d_model + c.n_layers * (2 * norm + attention + forward)
    total += c.context * c.d_model if c.positions == "learned" else 0
    total += norm if c.norm == "pre" else 0
    total += 0 if c.tie_head else c.vocab_size * c.d_model
    return total + (c.vocab_size if c.head_bias else 0)


def empty(config: ModelConfig) -> GPT:
    """The network without memory behind it."""
    with torch.device("meta"):
        return GPT(config)


@pytest.mark.parametrize("config", [*PRESETS.values(), *CONFIGS.values()])
def test_the_parameters_are_those_of_the_formula(config: ModelConfig) -> None:
    assert empty(config).n_parameters == counted(config)


@pytest.mark.parametrize(
    ("name", "n_parameters"),
    [
        ("default", 19_314_688),
        ("small", 3_359_232),
        ("chapter14", 20_363_264),
        ("lecture", 10_788_929),  # the figure that is read out in the lecture
    ],
)
def test_the_presets_have_their_known_sizes(name: str, n_parameters: int) -> None:
    assert empty(PRESETS[name]).n_parameters == n_parameters


def test_the_network_of_chapter_14_has_20_16_million_parameters_without_its_head() -> None:
    model = empty(PRESETS["chapter14"])
    assert model.head.bias is None
    assert round((model.n_parameters - model.head.weight.numel()) / 1e6, 2) == 20.16


@pytest.mark.parametrize("name", ["default", "chapter14", "tied head with bias"])
def test_the_operations_are_six_for_each_weight_that_multiplies_and_the_attention(
    name: str,
) -> None:
    config = (PRESETS | CONFIGS)[name]
    model, n_time = empty(config), 30
    looked_up = config.context * config.d_model if config.positions == "learned" else 0
    looked_up += 0 if config.tie_head else config.vocab_size * config.d_model
    expected = 6 * (counted(config) - looked_up) + 6 * config.n_layers * config.d_model * n_time
    assert model.flops_per_token(n_time) == expected
    assert model.flops_per_token() > expected


def test_a_table_of_positions_that_is_only_looked_up_costs_no_operations() -> None:
    tied = dataclasses.replace(PRESETS["chapter14"], tie_head=True)
    assert empty(tied).flops_per_token() == empty(PRESETS["chapter14"]).flops_per_token()
