"""Networks of every form, small, with weights that make every part count."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from music_gpt.config.model import PRESETS, ModelConfig
from music_gpt.network.model import GPT

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
    "no query and key norm": ModelConfig(**SHRUNK, qk_norm=False),
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
