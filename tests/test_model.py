"""The network against its definition, written out once more below without any of its code."""

import dataclasses
import math
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from music_gpt.config.model import N_EVENTS, PRESETS, ModelConfig
from music_gpt.errors import InputError
from music_gpt.network.model import (
    GPT,
    Attention,
    Block,
    FeedForward,
    KVCache,
    attend,
    rope_table,
    rotate,
    state_shapes,
    token_nats,
    use_bf16,
)

torch.set_num_threads(1)

HISTORICAL = ("chapter14", "text-3x256", "lecture", "original-2017")
SHRUNK = {"n_layers": 3, "d_model": 48, "d_ff": 96, "n_heads": 4, "n_kv_heads": 4, "context": 32}
CONFIGS = {name: PRESETS[name] for name in HISTORICAL} | {
    "default, shrunk": ModelConfig(**SHRUNK),
    "grouped-query": ModelConfig(**SHRUNK | {"n_kv_heads": 2}),
    "one key/value head": ModelConfig(**SHRUNK | {"n_kv_heads": 1}),
    "grouped-query, learned": ModelConfig(**SHRUNK | {"n_kv_heads": 2}, positions="learned"),
    "without biases": ModelConfig(**SHRUNK, bias=False),
    "post-norm, RoPE": ModelConfig(**SHRUNK, norm="post"),
    "query and key norm": ModelConfig(**SHRUNK, qk_norm=True),
    "tied head with bias": ModelConfig(**SHRUNK, tie_head=True, head_bias=True),
}
every_network = pytest.mark.parametrize("name", CONFIGS)


def shaken(config: ModelConfig, seed: int = 1) -> GPT:
    """A network with weights that make every part count: none zero, no gain one, all mixing."""
    torch.manual_seed(seed)
    model = GPT(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2:
                p.normal_(std=0.5 if "embedding" in name else 1.0 / math.sqrt(p.shape[1]))
            else:
                p.normal_(mean=float("norm" in name and "weight" in name), std=0.2)
    return model


@cache
def network(name: str) -> GPT:
    return shaken(CONFIGS[name])


def some_ids(config: ModelConfig, n_batch: int, n_time: int, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.vocab_size, (n_batch, n_time), generator=generator)


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
    if c.qk_norm:  # torch's rms_norm takes the epsilon of its input's type
        eps = torch.finfo(torch.float32).eps
        q, k = (x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) for x in (q, k))
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


# --- the cache --------------------------------------------------------------------------------

CACHED = [name for name in CONFIGS if name not in HISTORICAL] + ["lecture"]
every_cached = pytest.mark.parametrize("name", CACHED)


def in_chunks(model: GPT, ids: Tensor, sizes: list[int], cache: KVCache) -> Tensor:
    return torch.cat([model(chunk, cache) for chunk in ids.split(sizes, dim=1)], dim=1)


@every_cached
@pytest.mark.parametrize("sizes", [[1] * 24, [24], [7, 1, 1, 9, 6], [1, 22, 1]], ids=str)
@torch.no_grad()
def test_decoding_in_parts_equals_reading_the_whole(name: str, sizes: list[int]) -> None:
    model, ids = network(name), some_ids(CONFIGS[name], 2, 24)
    cache = model.new_cache(2, 24)
    torch.testing.assert_close(in_chunks(model, ids, sizes, cache), model(ids), rtol=0, atol=1e-4)
    assert (cache.length, cache.capacity) == (24, 24)


@every_cached
@torch.no_grad()
def test_an_expanded_cache_carries_each_take_on_its_own(name: str) -> None:
    model, prompt = network(name), some_ids(CONFIGS[name], 1, 12)
    takes = some_ids(CONFIGS[name], 3, 6, seed=9)
    narrow = model.new_cache(1, 20)
    model(prompt, narrow)
    wide = narrow.expand(3)
    assert (wide.keys.shape[1], wide.length, wide.capacity) == (3, 12, 20)
    whole = model(torch.cat((prompt.expand(3, -1), takes), dim=1))[:, 12:]
    torch.testing.assert_close(in_chunks(model, takes, [1, 4, 1], wide), whole, rtol=0, atol=1e-4)
    # the narrow one is still where it was
    assert narrow.length == 12
    torch.testing.assert_close(model(takes[:1], narrow), whole[:1], rtol=0, atol=1e-4)


@torch.no_grad()
def test_a_grouped_query_cache_is_smaller_by_the_size_of_the_groups() -> None:
    full, grouped = (network(n).new_cache(2) for n in ("default, shrunk", "grouped-query"))
    assert full.keys.shape == (3, 2, 4, 32, 12)
    assert grouped.keys.shape == grouped.values.shape == (3, 2, 2, 32, 12)


@torch.no_grad()
def test_a_cache_in_bf16_serves_a_network_in_float32() -> None:
    model, ids = network("grouped-query"), some_ids(CONFIGS["grouped-query"], 1, 16)
    cache = model.new_cache(1, dtype=torch.bfloat16)
    logits = in_chunks(model, ids, [10, 1, 5], cache)
    assert cache.keys.dtype == torch.bfloat16
    assert logits.dtype == torch.float32
    assert (logits - model(ids)).abs().max() < 0.1


@torch.no_grad()
def test_the_logits_are_float32_under_autocast_too() -> None:
    model, ids = network("grouped-query"), some_ids(CONFIGS["grouped-query"], 1, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole, parts = model(ids), in_chunks(model, ids, [10, 1, 5], model.new_cache(1))
    assert whole.dtype == parts.dtype == torch.float32
    assert (whole - model(ids)).abs().max() < 0.2
    assert (parts - model(ids)).abs().max() < 0.2


# --- too much is a sentence -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default, shrunk", "grouped-query, learned"])
@torch.no_grad()
def test_more_tokens_than_the_context_is_an_input_error(name: str) -> None:
    model = network(name)
    assert model(some_ids(model.config, 1, 32)).shape == (1, 32, N_EVENTS)
    with pytest.raises(InputError, match="33 tokens do not fit into a context of 32"):
        model(some_ids(model.config, 1, 33))


@torch.no_grad()
def test_more_tokens_than_the_cache_holds_is_an_input_error_and_leaves_it_whole() -> None:
    model = network("default, shrunk")
    ids, cache = some_ids(model.config, 1, 10), model.new_cache(1, 10)
    first = model(ids[:, :8], cache)
    with pytest.raises(InputError, match="11 tokens do not fit into a context of 10"):
        model(ids[:, :3], cache)
    assert cache.length == 8
    logits = torch.cat((first, model(ids[:, 8:], cache)), dim=1)
    torch.testing.assert_close(logits, model(ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("length", [0, -1, 33])
def test_a_cache_of_an_impossible_length_is_an_input_error(length: int) -> None:
    with pytest.raises(InputError, match=f"length is {length}, but .* from 1 to 32"):
        network("default, shrunk").new_cache(1, length)


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


# --- the same networks in another library -----------------------------------------------------


def heads_apart(model: GPT, layer: int, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Weight or bias of the query, key and value projections of a block."""
    c, qkv = model.config, getattr(model.blocks[layer].attention.qkv, kind)
    n_q, n_k = c.n_heads * c.d_head, c.n_kv_heads * c.d_head
    return qkv[:n_q], qkv[n_q : n_q + n_k], qkv[n_q + n_k :]


def as_starcoder2(model: GPT) -> dict[str, Tensor]:
    own = model.state_dict()
    out = {
        "lm_head.weight": own["head.weight"],
        "model.embed_tokens.weight": own["embedding.weight"],
    }
    names = {
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        "attention.proj": "self_attn.o_proj",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    for kind in ("weight", "bias"):
        out[f"model.norm.{kind}"] = own[f"norm.{kind}"]
        for layer in range(model.config.n_layers):
            there = f"model.layers.{layer}"
            for ours, theirs in names.items():
                out[f"{there}.{theirs}.{kind}"] = own[f"blocks.{layer}.{ours}.{kind}"]
            for letter, part in zip("qkv", heads_apart(model, layer, kind), strict=True):
                out[f"{there}.self_attn.{letter}_proj.{kind}"] = part
    return out


def as_gpt2(model: GPT) -> dict[str, Tensor]:
    own = model.state_dict()
    out = {
        "lm_head.weight": own["head.weight"],
        "transformer.wte.weight": own["embedding.weight"],
        "transformer.wpe.weight": own["positions.weight"],
    }
    names = {
        "norm1": "ln_1",
        "norm2": "ln_2",
        "attention.qkv": "attn.c_attn",
        "attention.proj": "attn.c_proj",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    for kind in ("weight", "bias"):
        out[f"transformer.ln_f.{kind}"] = own[f"norm.{kind}"]
        for layer in range(model.config.n_layers):
            for ours, theirs in names.items():
                tensor = own[f"blocks.{layer}.{ours}.{kind}"]
                # GPT-2 keeps its matrices the other way round
                out[f"transformer.h.{layer}.{theirs}.{kind}"] = tensor.T
    return out


PEER = "transformers is not installed; it is no dependency, only a peer to compare with"


@pytest.mark.filterwarnings("ignore")  # its warnings are its own
@pytest.mark.parametrize("n_kv_heads", [8, 2])
@torch.no_grad()
def test_the_default_network_is_starcoder2_in_transformers(n_kv_heads: int) -> None:
    transformers = pytest.importorskip("transformers", reason=PEER)
    c = ModelConfig(n_kv_heads=n_kv_heads)
    model, ids = shaken(c), some_ids(c, 2, 40)
    config = transformers.Starcoder2Config(
        vocab_size=c.vocab_size,
        hidden_size=c.d_model,
        intermediate_size=c.d_ff,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads,
        max_position_embeddings=c.context,
        norm_epsilon=1e-5,
        hidden_act="gelu_pytorch_tanh",
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        sliding_window=None,
        use_bias=True,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    peer = transformers.Starcoder2ForCausalLM(config).eval()
    peer.load_state_dict(as_starcoder2(model))
    torch.testing.assert_close(model(ids), peer(ids).logits, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # its warnings are its own
@torch.no_grad()
def test_the_network_of_chapter_14_is_gpt2_in_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason=PEER)
    c = ModelConfig.preset("chapter14")
    model, ids = network("chapter14"), some_ids(c, 2, 40)
    config = transformers.GPT2Config(
        vocab_size=c.vocab_size,
        n_embd=c.d_model,
        n_inner=c.d_ff,
        n_layer=c.n_layers,
        n_head=c.n_heads,
        n_positions=c.context,
        activation_function="gelu_new",
        layer_norm_epsilon=1e-5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    peer = transformers.GPT2LMHeadModel(config).eval()
    peer.load_state_dict(as_gpt2(model))
    torch.testing.assert_close(model(ids), peer(ids).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("ids", [[[0, 390]], [[-1, 0]], [[0.5, 1.0]]], ids=repr)
def test_ids_outside_the_vocabulary_are_one_sentence(ids: list[list[float]]) -> None:
    with pytest.raises(InputError, match="whole numbers from 0 to 389"):
        GPT(ModelConfig.preset("tiny"))(torch.tensor(ids))


@pytest.mark.parametrize("shape", [(1, 0), (3,), (1, 2, 3)], ids=repr)
def test_ids_are_rows_of_at_least_one_token(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="at least one token; give a row of ids for each piece"):
        GPT(ModelConfig.preset("tiny"))(torch.zeros(shape, dtype=torch.long))
