"""A network comes in -> how many events a second it composes, with the cache and without, goes out.

    python benchmarks/generation.py [--preset default | --checkpoint FILE] [--threads 1]
        [--positions 512 1024 2000] [--takes 1] [--events 64] [--rounds 5]

Both sides run the whole loop (network, grammar, sampler) in one process, and the runs alternate;
the medians count. The peer computes the window anew for every event, as generation without a cache
does. Speed does not depend on the weights, so a preset is measured with random ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch

from music_gpt.checkpoint import load_checkpoint
from music_gpt.config import ModelConfig, SamplingConfig
from music_gpt.events import EOS, VOCAB_SIZE, encode_notes, velocity_in_force
from music_gpt.generation import Decoder, Engine, Logits, TorchEngine, draw, generate
from music_gpt.grammar import Ending, Grammar, Ints, Start
from music_gpt.midi import make_notes
from music_gpt.model import GPT

PEER_EVENTS = 4
"""The peer needs seconds for what the cache does at once: so many events are enough."""


class Uncached(TorchEngine):
    """The same network without a cache."""

    def decoder(self, n_takes: int) -> Decoder:
        """One that computes every window from nothing."""
        return UncachedDecoder(self)


class UncachedDecoder:
    """A decoder that remembers ids only."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._windows = engine, list[list[int]]()

    @property
    def length(self) -> int:
        """Ids in each window."""
        return len(self._windows[0])

    def prefill(self, windows: Sequence[Sequence[int]]) -> Logits:
        """Logits (B, V) after each window."""
        self._windows = [list(window) for window in windows]
        return np.stack([self._engine.logits(window) for window in self._windows])

    def step(self, ids: Ints) -> Logits:
        """Logits (B, V) after one more id each."""
        return self.prefill([[*w, int(i)] for w, i in zip(self._windows, ids, strict=True)])

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these takes only."""
        self._windows = [self._windows[row] for row in rows]


def start_at(position: int) -> Start:
    """A beginning whose context has `position` ids: a scale that never ends."""
    notes = make_notes((i / 8, i / 8 + 0.1, 36 + i % 48, 64) for i in range(position))
    context = [EOS, *encode_notes(notes).tolist()][:position]
    return Start(context=context, velocity=velocity_in_force(context))


def rate(engine: Engine, start: Start, n_takes: int, n_events: int) -> float:
    """Events a second, all takes together, after the first event of each."""
    events = generate(engine, start, Ending.after(0, 600.0), SamplingConfig(), range(n_takes))
    for _ in range(n_takes):
        next(events)
    began = time.perf_counter()
    n_drawn = sum(1 for _ in islice(events, n_events * n_takes))
    return n_drawn / (time.perf_counter() - began)


def first_event_seconds(engine: Engine, start: Start) -> float:
    """Seconds to the first event: the context has to be heard."""
    began = time.perf_counter()
    next(generate(engine, start, Ending.after(0, 600.0), SamplingConfig(), (1,)))
    return time.perf_counter() - began


def overhead_milliseconds(n_events: int = 500) -> float:
    """Milliseconds of grammar and sampler for one event of one take, without a network."""
    grammar = Grammar(Start(), Ending.after(0, 600.0), SamplingConfig(), 1)
    rng, sampling = np.random.default_rng(1), SamplingConfig()
    table = rng.standard_normal((n_events, 1, VOCAB_SIZE))
    generator = torch.Generator().manual_seed(1)
    began = time.perf_counter()
    for logits in table:
        noise = torch.empty(logits.shape, dtype=torch.float64).exponential_(generator=generator)
        allowed = np.where(grammar.allowed(), logits, -np.inf)
        grammar.advance(draw(allowed, sampling, -np.log(noise.numpy()))[0])
    return 1000 * (time.perf_counter() - began) / n_events


def main() -> None:
    """Read the arguments, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="default", help="a network with random weights")
    parser.add_argument("--checkpoint", help="a network that was trained")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--positions", type=int, nargs="+", default=[16, 512, 1024, 1900])
    parser.add_argument("--takes", type=int, default=1)
    parser.add_argument("--events", type=int, default=64, help="of each take and round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = (
        load_checkpoint(options.checkpoint)[0]
        if options.checkpoint
        else GPT(ModelConfig.preset(options.preset)).eval()
    )
    if not options.checkpoint:  # a new head is zero: all events would tie
        torch.nn.init.normal_(model.head.weight, std=0.1)
    print(f"{model.n_parameters / 1e6:.1f} M parameters, {options.threads} threads, medians")
    print(f"grammar and sampler alone: {overhead_milliseconds():.2f} ms an event")
    print("position  cached/s  uncached/s   ratio  first event")
    for position in (p for p in options.positions if p < model.config.context):
        start = start_at(position)
        cached, plain, waits = [], [], []
        for _ in range(options.rounds):
            cached.append(rate(TorchEngine(model), start, options.takes, options.events))
            plain.append(rate(Uncached(model), start, options.takes, PEER_EVENTS))
            waits.append(first_event_seconds(TorchEngine(model), start))
        ours, theirs, wait = (statistics.median(figures) for figures in (cached, plain, waits))
        print(f"{position:8} {ours:9.0f} {theirs:11.1f} {ours / theirs:7.1f} {wait:10.2f} s")


if __name__ == "__main__":
    main()
