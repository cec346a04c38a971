"""Beyond the context: what the network keeps of the past, and how well it predicts then.

    python benchmarks/windows.py TOKENS [--split test] [--checkpoint FILE] [--n 100]

Long pieces are scored from the end of the first context on, the same tokens each time, with

half          the last half of the window is heard anew when the window is full: what composing does
three         the last three quarters are: half as much is forgotten, and heard anew twice as often
rolling       keys and values of the last context of tokens are kept; nothing is heard anew
sinks         the same, and those of the first four tokens are kept, at the far end of the window
              (Xiao et al. 2023, "Efficient streaming language models with attention sinks")

In the last two a key still knows of what was dropped, for it was computed when that was there.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from music_gpt.arrays import Ids
from music_gpt.network.attention import Attention, rope_table, rotate
from music_gpt.network.checkpoint import bundled_checkpoint, load_checkpoint
from music_gpt.network.model import GPT, Block
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.data import cut_crop

N_SINKS = 4
CONTEXTS = 3
"""Length of a stretch in contexts; all but the first of them is scored."""

Score = Callable[[GPT, Ids], Tensor]
"""Ids of a stretch -> nats of each that lies beyond the first context."""


def nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Nats (N) of the targets (N) by the logits (N, V)."""
    return F.cross_entropy(logits.float(), targets, reduction="none")


# --- heard anew -------------------------------------------------------------------------------


def anew(kept: float) -> Score:
    """The window is full, its last part is heard anew, and what follows fills it up."""

    def score(model: GPT, ids: Ids) -> Tensor:
        window = model.config.context
        keep = int(window * kept)
        found = []
        for first in range(window - keep, len(ids) - keep, window - keep):
            heard = cut_crop(ids, first, window)  # headed as the window of a take
            row = torch.from_numpy(heard.astype(np.int64))
            logits = model(row[None, :-1])[0]
            found.append(nats(logits[keep - 1 :], row[keep:]))
        return torch.cat(found)

    return score


# --- kept -------------------------------------------------------------------------------------


def kept_keys(n_sinks: int) -> Score:
    """The last context of keys and values is kept, with those of the first `n_sinks` tokens."""

    def score(model: GPT, ids: Ids) -> Tensor:
        window, row = model.config.context, torch.from_numpy(np.array(ids, np.int64))
        x = model.embedding(row[None, :-1])
        for block in model.blocks:
            assert isinstance(block, Block)
            x = x + rolling(block.attention, block.norm1(x), window, n_sinks)
            x = x + block.feed_forward(block.norm2(x))
        logits = model.head(model.norm(x))[0]
        return nats(logits[window - 1 :], row[window:])

    return score


def rolling(attention: Attention, x: Tensor, window: int, n_sinks: int) -> Tensor:
    """Attention of each of x (1, T, D) to the last `window` keys, the first `n_sinks` among them.

    A sink stands as far back as the window reaches: its distance does not grow beyond it.
    """
    n_time = x.shape[1]
    q, k, v = attention.project(x)
    groups = attention.n_heads // attention.n_kv_heads
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    cos, sin = rope_table(n_time, attention.d_head)
    place = torch.arange(n_time)
    keys = rotate(k, cos, sin)
    scores = rotate(q, cos, sin) @ keys.transpose(2, 3)  # (1, H, T, T)
    far = place.clamp(max=window - 1)  # the place of a query in its own window
    scores[..., :n_sinks] = rotate(q, cos[far], sin[far]) @ keys[:, :, :n_sinks].transpose(2, 3)
    back = place[:, None] - place
    seen = (back >= 0) & ((back < window - n_sinks) | (place < n_sinks))
    weights = (scores / math.sqrt(attention.d_head)).masked_fill(~seen, -math.inf).softmax(-1)
    return attention.proj((weights @ v).transpose(1, 2).reshape(x.shape))


WAYS: dict[str, Score] = {
    "half": anew(0.5),
    "three": anew(0.75),
    "rolling": kept_keys(0),
    "sinks": kept_keys(N_SINKS),
}


@torch.inference_mode()
def main() -> None:
    """Read the command line, score, print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--checkpoint", type=Path, default=None)
    parser.add_argument("--n", type=int, default=100, help="pieces, one stretch of each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, _ = load_checkpoint(options.checkpoint or bundled_checkpoint())
    model.eval()
    if model.config.positions != "rope" or model.config.norm != "pre":
        parser.error("the network has to have rotary positions, and norms before")
    split = Corpus.open(options.tokens).split(options.split)
    length = CONTEXTS * model.config.context
    long = [i for i in range(split.n_pieces) if len(split.piece(i)) >= length][: options.n]
    if not long:
        parser.error(f"no piece of the {options.split} split has {length} tokens")
    found = {
        name: [score(model, split.piece(i)[:length]) for i in tqdm(long, name, leave=False)]
        for name, score in WAYS.items()
    }
    half = torch.cat(found["half"]).mean()
    print(f"{len(long)} pieces, {len(torch.cat(found['half'])):,} tokens, nats/token")
    for name, values in found.items():
        pairs = zip(values, found["half"], strict=True)
        of_pieces = torch.stack([a.mean() - b.mean() for a, b in pairs])
        error = float(of_pieces.std() / math.sqrt(len(long)))
        mean = torch.cat(values).mean()
        print(f"{name:8} {mean:.4f}  {mean - half:+.4f} (standard error {error:.4f})")


if __name__ == "__main__":
    main()
