"""The network against the same ones in transformers."""

from typing import Any

import pytest
import torch
from networks import network, shaken, some_ids
from torch import Tensor

from music_gpt.config.model import ModelConfig
from music_gpt.network.model import GPT


def heads_apart(model: GPT, layer: int, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Weight or bias of the query, key and value projections of a block."""
    c, qkv = model.config, getattr(model.blocks[layer].attention.qkv, kind)
    n_q, n_k = c.n_heads * c.d_head, c.n_kv_heads * c.d_head
    return qkv[:n_q], qkv[n_q : n_q + n_k], qkv[n_q + n_k :]


def below_llama_names(model: GPT, norm: str, names: dict[str, str]) -> dict[str, Tensor]:
    """What goes over as it is, where the parts lie as in Llama: ours -> theirs."""
    own = model.state_dict()
    out = {
        "lm_head.weight": own["head.weight"],
        "model.embed_tokens.weight": own["embedding.weight"],
    }
    names = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm", **names}
    for kind in ("weight", "bias"):
        out[f"model.{norm}.{kind}"] = own[f"norm.{kind}"]
        for layer in range(model.config.n_layers):
            for ours, theirs in names.items():
                there = f"model.layers.{layer}.{theirs}.{kind}"
                out[there] = own[f"blocks.{layer}.{ours}.{kind}"]
    return out


def as_starcoder2(model: GPT) -> dict[str, Tensor]:
    names = {
        "attention.proj": "self_attn.o_proj",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    out = below_llama_names(model, "norm", names)
    for kind in ("weight", "bias"):
        for layer in range(model.config.n_layers):
            for letter, part in zip("qkv", heads_apart(model, layer, kind), strict=True):
                out[f"model.layers.{layer}.self_attn.{letter}_proj.{kind}"] = part
    return out


def as_persimmon(model: GPT) -> dict[str, Tensor]:
    names = {
        "attention.proj": "self_attn.dense",
        "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    }
    out, c = below_llama_names(model, "final_layernorm", names), model.config
    for kind, plain in (("weight", torch.ones(c.d_head)), ("bias", torch.zeros(c.d_head))):
        for layer in range(c.n_layers):
            there = f"model.layers.{layer}.self_attn"
            out[f"{there}.q_layernorm.{kind}"] = plain
            out[f"{there}.k_layernorm.{kind}"] = plain
            q, k, v = heads_apart(model, layer, kind)
            rows = []
            for head in range(c.n_heads):  # query, key and value of one head, then the next
                shared = head * c.n_kv_heads // c.n_heads
                for part, at in ((q, head), (k, shared), (v, shared)):
                    rows.append(part[at * c.d_head : (at + 1) * c.d_head])
            out[f"{there}.query_key_value.{kind}"] = torch.cat(rows)
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


def sizes(c: ModelConfig) -> dict[str, Any]:
    """What the configurations of both networks with rotary positions tell in the same words."""
    return {
        "vocab_size": c.vocab_size,
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "max_position_embeddings": c.context,
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }


PEER = "transformers is not installed; it is no dependency, only a peer to compare with"


@pytest.mark.filterwarnings("ignore")  # its warnings are its own
@pytest.mark.parametrize("n_kv_heads", [8, 2])
@torch.no_grad()
def test_the_default_network_is_persimmon_in_transformers(n_kv_heads: int) -> None:
    transformers = pytest.importorskip("transformers", reason=PEER)
    c = ModelConfig(n_kv_heads=n_kv_heads)
    model, ids = shaken(c), some_ids(c, 2, 40)
    config = transformers.PersimmonConfig(
        **sizes(c),
        layer_norm_eps=1e-5,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
        },
    )
    peer = transformers.PersimmonForCausalLM(config).eval()
    peer.load_state_dict(as_persimmon(model))
    torch.testing.assert_close(model(ids), peer(ids).logits, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # its warnings are its own
@pytest.mark.parametrize("n_kv_heads", [8, 2])
@torch.no_grad()
def test_without_normed_queries_it_is_starcoder2_in_transformers(n_kv_heads: int) -> None:
    transformers = pytest.importorskip("transformers", reason=PEER)
    c = ModelConfig(n_kv_heads=n_kv_heads, qk_norm=False)
    model, ids = shaken(c), some_ids(c, 2, 40)
    config = transformers.Starcoder2Config(
        **sizes(c),
        num_key_value_heads=c.n_kv_heads,
        norm_epsilon=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        sliding_window=None,
        use_bias=True,
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
