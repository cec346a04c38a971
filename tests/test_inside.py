"""What the network shows of itself, against the network at work."""

import pytest
import torch
from networks import CONFIGS, every_network, network, some_ids

from music_gpt.network.inside import last_weights, observe
from music_gpt.network.model import Block


def row_of(name: str, n_time: int = 12) -> list[int]:
    ids: list[int] = some_ids(CONFIGS[name], 1, n_time)[0].tolist()
    return ids


@every_network
def test_its_last_answer_is_that_of_the_network(name: str) -> None:
    ids = row_of(name)
    inside = observe(network(name), ids)
    with torch.no_grad():
        answer = network(name)(torch.tensor([ids]))[0, -1]
    torch.testing.assert_close(inside.logits[-1], answer, atol=1e-5, rtol=1e-5)


@every_network
def test_the_weights_of_a_head_mix_what_attention_gives(name: str) -> None:
    model = network(name)
    block = model.blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad():
        x, rope = model.enter(torch.tensor([row_of(name)]), slice(0, 12))
        heard = block.attention_input(x)
        weights = last_weights(block.attention, heard, rope)  # (1, H, T)
        torch.testing.assert_close(weights.sum(2), torch.ones(weights.shape[:2]))
        values = block.attention.project(heard)[2]  # (1, G, T, K)
        n_sharing = weights.shape[1] // values.shape[1]
        mixed = weights[:, :, None] @ values.repeat_interleave(n_sharing, 1)  # (1, H, 1, K)
        given = block.attention.proj(mixed.flatten(1))
        torch.testing.assert_close(
            given, block.attention(heard, rope, None)[:, -1], atol=1e-5, rtol=1e-5
        )


def test_it_tells_of_each_block_before_and_after_its_feed_forward_layer() -> None:
    model, ids = network("default, shrunk"), row_of("default, shrunk")
    inside = observe(model, ids)
    assert inside.attention.shape == (3, 4, 12)
    assert inside.logits.shape == (7, 390)
    with torch.no_grad():
        x, rope = model.enter(torch.tensor([ids]), slice(0, 12))
        steps = [model.leave(x)[0, -1]]
        for block in model.blocks:
            assert isinstance(block, Block)
            x = x + block.attention(block.norm1(x), rope, None)
            steps.append(model.leave(x)[0, -1])
            x = x + block.feed_forward(block.norm2(x))
            steps.append(model.leave(x)[0, -1])
    torch.testing.assert_close(inside.logits, torch.stack(steps), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("n_time", [1, 32])
def test_it_looks_at_one_event_as_well_as_at_a_whole_context(n_time: int) -> None:
    inside = observe(network("default, shrunk"), row_of("default, shrunk", n_time))
    assert inside.attention.shape == (3, 4, n_time)
    assert inside.attention.isfinite().all()
