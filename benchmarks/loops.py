"""How soon a figure that goes round has to grow stale for takes to loop as rarely as real music.

    python benchmarks/loops.py TOKENS [--n 160] [--seconds 30] [--presets faithful balanced]

For every setting the same prompts are continued with the same seeds. A loop of pitches says 32 or
more of them again at once, whatever their timing; stuck is a take in which one figure goes round
for 8 seconds. Real passages do both, on purpose: the first row says how often. The agreement tells
how close the statistics of the takes come to those of real passages, where 1 is the same, and the
cost by how many nats an event real music would be less likely: in it, too, figures go round.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import music_gpt
from music_gpt.config.sampling import SAMPLING_PRESETS
from music_gpt.generation import bias
from music_gpt.metrics.continuations import sample
from music_gpt.network.checkpoint import bundled_checkpoint, load_checkpoint
from music_gpt.network.model import GPT
from music_gpt.tokens.corpus import Corpus, Split
from music_gpt.tokens.events import VOCAB_SIZE


class Staleness(NamedTuple):
    """When a figure grows stale, and how fast: by the names of `music_gpt.generation.bias`."""

    STALE_RUN: float
    STALE_SECONDS: float
    PITCHES_PER_NAT: float
    SECONDS_PER_NAT: float

    def __str__(self) -> str:
        """The setting as a row of the table calls it."""
        if np.isinf(self.STALE_RUN):
            return "never"
        return (
            f"{self.STALE_RUN:g} pitches or {self.STALE_SECONDS:g} s; "
            f"{self.PITCHES_PER_NAT:g} pitches or {self.SECONDS_PER_NAT:g} s"
        )

    def apply(self) -> None:
        """Let all that is composed from now on go by this setting."""
        for name, value in self._asdict().items():
            setattr(bias, name, value)


NOW = Staleness(*(getattr(bias, name) for name in Staleness._fields))
SETTINGS = (
    Staleness(np.inf, np.inf, 1, 1),
    Staleness(32, 5.0, 8, 1.0),
    Staleness(24, 4.0, 4, 0.5),
    NOW,
    Staleness(16, 3.0, 4, 0.5),
)


@torch.inference_mode()
def cost(model: GPT, split: Split, n_pieces: int) -> tuple[float, float]:
    """Nats an event by which the pieces of the split are less likely; the most in one piece."""
    costs = []
    for piece in range(min(n_pieces, split.n_pieces)):
        ids = torch.from_numpy(split.piece(piece)[: model.config.context + 1].astype(np.int64))
        logits = model(ids[None, :-1])[0].float()
        leaning = logits + leans(ids[:-1])
        costs.append((nats(leaning, ids[1:]) - nats(logits, ids[1:])).mean())
    return float(torch.stack(costs).mean()), float(torch.stack(costs).max())


def nats(logits: Tensor, ids: Tensor) -> Tensor:
    """Nats (T) of the events ids (T) by logits (T, V)."""
    return torch.nn.functional.cross_entropy(logits, ids, reduction="none")


def leans(ids: Tensor) -> Tensor:
    """What stale figures take from the logits (T, V) after each of the events ids (T)."""
    figures, found = bias.Figures(1), torch.zeros(len(ids), VOCAB_SIZE)
    for place, event in enumerate(ids.numpy()[:, None]):
        figures.advance(event)
        figures.lean(found[place : place + 1].numpy())
    return found


def show(label: str, loops: dict[str, float], more: str = "") -> None:
    """One row of a table."""
    print(
        f"{label:40s} loops {loops['pitches']:5.1%}  stuck {loops['stuck']:5.1%}{more}", flush=True
    )


def main() -> None:
    """Read the command line, compose, compare."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--checkpoint", type=Path, default=None)
    parser.add_argument("--n", type=int, default=160)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--presets", nargs="*", default=tuple(SAMPLING_PRESETS))
    args = parser.parse_args()

    torch.set_num_threads(1)
    split = Corpus.open(args.tokens).split(args.split)
    model, _ = load_checkpoint(args.checkpoint or bundled_checkpoint())
    pianist = music_gpt.load(args.checkpoint, threads=1)
    for setting in SETTINGS:
        setting.apply()
        mean, most = cost(model.eval(), split, args.n)
        print(f"{setting!s:40s} costs real music {mean:.4f} nats an event, at most {most:.3f}")
    for preset in args.presets:
        print(preset)
        for number, setting in enumerate(SETTINGS):
            setting.apply()
            sampling = SAMPLING_PRESETS[preset]
            found = sample(pianist, split, args.n, args.seconds, sampling=sampling)
            if number == 0:
                show("real passages", found.loops["real"])
            agreement = np.nanmean([one.overlap for one in found.agreement.values()])
            show(str(setting), found.loops["composed"], f"  agreement {agreement:.3f}")


if __name__ == "__main__":
    main()
