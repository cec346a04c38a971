"""The network part by part: its cache, and what it refuses."""

import pytest
import torch
from networks import CONFIGS, HISTORICAL, network, some_ids
from torch import Tensor

from music_gpt.config.model import N_EVENTS, ModelConfig
from music_gpt.errors import InputError
from music_gpt.network.attention import KVCache
from music_gpt.network.model import GPT

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


# --- the same networks in another library -----------------------------------------------------


@pytest.mark.parametrize("ids", [[[0, 390]], [[-1, 0]], [[0.5, 1.0]]], ids=repr)
def test_ids_outside_the_vocabulary_are_one_sentence(ids: list[list[float]]) -> None:
    with pytest.raises(InputError, match="whole numbers from 0 to 389"):
        GPT(ModelConfig.preset("tiny"))(torch.tensor(ids))


@pytest.mark.parametrize("shape", [(1, 0), (3,), (1, 2, 3)], ids=repr)
def test_ids_are_rows_of_at_least_one_token(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="at least one token; give a row of ids for each piece"):
        GPT(ModelConfig.preset("tiny"))(torch.zeros(shape, dtype=torch.long))
