"""A network comes in -> how many events a second each engine composes, beside two peers, goes out.

    python benchmarks/generation.py [--network default | --network FILE] [--threads 1 2]
        [--takes 1 8] [--positions 16 512 1000 2000] [--events 40] [--rounds 5] [--json]

Engines run the whole loop (network, grammar, sampler) after a context of so many events; what is
counted are events after the first, all takes together. The loop also runs without a network, whose
logits lie ready: so is seen what the rest of it takes. There are three peers: transformers'
`generate` with its cache and its own sampler on the network that `music-gpt export` wrote, the
engine torch without `music_gpt.network.packed`, and the same network computed anew for every event,
as without a cache. All run in one process and in turn,
and medians count. With one thread seconds are those of the processor, so that other programs on the
machine count little; with more they are those of the clock, and its load is printed. Speed does not
depend on the weights, so a preset is measured with random ones. Memory is the peak of a process of
its own (Linux), less what it held after its imports.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from music_gpt.arrays import Ints
from music_gpt.composing.pianist import Pianist
from music_gpt.config.model import PRESETS, ModelConfig
from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation.decoding import Decoder, Engine, TorchEngine, generate
from music_gpt.generation.grammar import Ending, Start
from music_gpt.generation.sampler import Logits
from music_gpt.midi.piece import make_notes, piece_from_notes
from music_gpt.network.checkpoint import bundled_checkpoint, load_checkpoint, save_checkpoint
from music_gpt.network.hugging_face import export_for_transformers
from music_gpt.network.model import GPT
from music_gpt.tokens.events import EOS, VOCAB_SIZE, encode_notes, velocity_in_force

ENGINES = ("torch", "onnx", "onnx-int8", *(["cuda"] if torch.cuda.is_available() else []))
PEER, NO_NETWORK = "transformers", "no network"
UNCACHED_EVENTS = 3
"""Without a cache one event takes as long as many with it: so few are enough."""
NOTES_PER_SECOND = 11
"""Of real performances: 41 events a second."""
PROMPT_SECONDS = 30

Compose = Callable[[int, int, int], float]
"""(position, takes, events) -> seconds for so many events of each take, after the first."""


def seconds_now() -> float:
    """The processor's seconds with one thread, those of the clock with more, or beside a GPU."""
    alone = torch.get_num_threads() == 1 and "cuda" not in ENGINES
    return time.process_time() if alone else time.perf_counter()


# --- the engines and the peers ------------------------------------------------------------------


class Unpacked(TorchEngine):
    """The engine torch with the matrices of the network as they are."""

    name = "unpacked"

    def __init__(self, model: GPT) -> None:
        super().__init__(model)
        self.model = model


class Uncached:
    """The same network without a cache."""

    name = "uncached"

    def __init__(self, model: GPT) -> None:
        plain = TorchEngine(model)
        self.context, self.logits = plain.context, plain.logits

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


class Ready:
    """No network: its logits lie ready. What is left is what is done beside a network."""

    name, context = NO_NETWORK, 1 << 30

    def __init__(self) -> None:
        table = np.random.default_rng(1).standard_normal((512, VOCAB_SIZE), np.float32)
        self.table: list[Logits] = list(3 * table)  # as unequal as those of a network

    def logits(self, ids: Sequence[int]) -> Logits:
        """Logits (V)."""
        return self.table[len(ids) % len(self.table)]

    def decoder(self, n_takes: int) -> Decoder:
        """One that only counts."""
        return ReadyDecoder([np.array([logits] * n_takes) for logits in self.table])


class ReadyDecoder:
    """A decoder that has all its logits before it begins."""

    def __init__(self, table: list[Logits]) -> None:
        self._table, self.length = table, 0

    def prefill(self, windows: Sequence[Sequence[int]]) -> Logits:
        """Logits (B, V)."""
        self.length = len(windows[0])
        return self._table[self.length % len(self._table)]

    def step(self, ids: Ints) -> Logits:
        """Logits (B, V)."""
        self.length += 1
        return self._table[self.length % len(self._table)]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these takes only."""
        self._table = [logits[rows] for logits in self._table]


def engine_called(name: str, model: GPT, threads: int) -> Engine:
    """The engine, made anew, without the user's cache."""
    if name == "torch":
        return TorchEngine(model)
    if name == "cuda":
        from music_gpt.generation.cuda_engine import CudaEngine

        return CudaEngine(copy.deepcopy(model))  # the others want theirs on the CPU
    from music_gpt.generation.onnx_engine import OnnxEngine
    from music_gpt.network.onnx_graph import onnx_bytes

    return OnnxEngine(onnx_bytes(model, int8=name == "onnx-int8"), model.config, name, threads)


def start_at(position: int) -> Start:
    """A beginning whose context has `position` ids: a scale that never ends."""
    notes = make_notes((i / 8, i / 8 + 0.1, 36 + i % 48, 64) for i in range(position))
    context = [EOS, *encode_notes(notes).tolist()][:position]
    return Start(context=context, velocity=velocity_in_force(context))


def composing(engine: Engine) -> Compose:
    """How long our loop takes with this engine."""

    def seconds(position: int, n_takes: int, n_events: int) -> float:
        start, ending = start_at(position), Ending.after(0, 600.0)
        events = generate(engine, start, ending, SamplingConfig(), range(n_takes))
        for _ in range(n_takes):
            next(events)
        began = seconds_now()
        n_drawn = sum(1 for _ in islice(events, n_events * n_takes))
        return (seconds_now() - began) * n_events * n_takes / n_drawn

    return seconds


def with_transformers(model: GPT) -> Compose:
    """How long transformers' loop takes with the network that is written for it."""
    from transformers import AutoModelForCausalLM, StoppingCriteria
    from transformers.utils import logging

    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        export_for_transformers(model, {}, folder)
        peer = AutoModelForCausalLM.from_pretrained(folder)

    class Clock(StoppingCriteria):
        """Notes when an event was drawn."""

        def __init__(self) -> None:
            self.ticks: list[float] = []

        def __call__(self, ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            self.ticks.append(seconds_now())
            return torch.zeros(len(ids), dtype=torch.bool)

    def seconds(position: int, n_takes: int, n_events: int) -> float:
        clock, context = Clock(), torch.tensor([start_at(position).context] * n_takes)
        peer.generate(
            context,
            attention_mask=torch.ones_like(context),
            max_new_tokens=n_events + 1,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            min_p=SamplingConfig().min_p,
            eos_token_id=None,
            stopping_criteria=[clock],
        )
        return clock.ticks[-1] - clock.ticks[0]

    return seconds


# --- what is measured ---------------------------------------------------------------------------


def rates(
    ways: dict[str, Compose], position: int, n_takes: int, n_events: int, rounds: int
) -> dict[str, float]:
    """Way -> median of its events a second, all takes together; the ways run in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            n_drawn = UNCACHED_EVENTS if name == "uncached" else n_events
            seconds[name].append(way(position, n_takes, n_drawn) / (n_drawn * n_takes))
    return {name: 1 / statistics.median(times) for name, times in seconds.items()}


def first_note_seconds(model: GPT, engine: Engine) -> float:
    """Seconds from the call to the first new note behind half a minute of music."""
    n_notes = PROMPT_SECONDS * NOTES_PER_SECOND
    step = 1 / NOTES_PER_SECOND
    rows = ((i * step, i * step + 0.3, 36 + (7 * i) % 48, 20 + i % 80) for i in range(n_notes))
    prompt, pianist = piece_from_notes(make_notes(rows)), Pianist(model, engine=engine)
    began = seconds_now()
    next(pianist.compose(prompt, seconds=10, seed=1))
    return seconds_now() - began


def beside_the_network(n_takes: int, options: argparse.Namespace) -> float:
    """Microseconds of grammar, sampler and loop for one event in each of so many takes."""
    way = {NO_NETWORK: composing(Ready())}
    return 1e6 * n_takes / rates(way, 16, n_takes, 1000, options.rounds)[NO_NETWORK]


def peak_megabytes(name: str, checkpoint: Path) -> float:
    """Megabytes that loading the network and composing with it add to a process of its own."""
    words = [sys.executable, __file__, "--memory-of", name, "--network", str(checkpoint)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - this file
    return float(done.stdout.split()[-1])


def print_memory(name: str, checkpoint: str) -> None:
    """In that process: what was added at most, in megabytes."""
    torch.set_num_threads(1)
    if name == PEER:
        import transformers  # noqa: F401 - its import counts as little as the others'
    elif name != "torch":
        import music_gpt.generation.onnx_engine
        import music_gpt.network.onnx_graph  # noqa: F401
    before = _peak()
    if name == PEER:
        way = with_transformers(load_checkpoint(checkpoint)[0])
    else:
        way = composing(_alone(name, checkpoint))
    way(512, 1, 100)
    print(_peak() - before)


def _alone(name: str, checkpoint: str) -> Engine:
    return engine_called(name, load_checkpoint(checkpoint)[0], 1)


def _peak() -> float:
    """Megabytes; getrusage would tell those of the process that started this one, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


# --- the tables ---------------------------------------------------------------------------------


def network(name: str) -> GPT:
    """A preset with random weights, or the network in a file."""
    if name not in PRESETS:
        return load_checkpoint(name)[0]
    torch.manual_seed(0)
    model = GPT(ModelConfig.preset(name)).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:  # a new head is zero: all events would tie
            torch.nn.init.normal_(parameter, std=0.05)
    return model


def speed_table(
    model: GPT, options: argparse.Namespace, n_threads: int, n_takes: int
) -> Iterator[dict[str, Any]]:
    """One line for each position, printed when it is there."""
    torch.set_num_threads(n_threads)
    ways = {name: composing(engine_called(name, model, n_threads)) for name in ENGINES}
    peers = {PEER: with_transformers(model), "unpacked": composing(Unpacked(model))}
    if n_takes == 1:
        peers["uncached"] = composing(Uncached(model))
    ways |= {**peers, NO_NETWORK: composing(Ready())}
    print(f"\n{n_threads} thread(s), {n_takes} take(s): events/s, all takes together")
    print(f"{'position':>9}" + "".join(f"{name:>14}" for name in ways) + "   best / peers")
    for position in options.positions:
        n_events = min(options.events, model.config.context - position - 2)
        if n_events < UNCACHED_EVENTS:
            continue
        found = rates(ways, position, n_takes, n_events, options.rounds)
        best = max(found[name] for name in ENGINES)
        ratios = [f"{best / found[peer]:.1f}" for peer in peers]
        line = "".join(f"{rate:14.1f}" for rate in found.values())
        share = best / found[NO_NETWORK]
        print(f"{position:>9}{line}   {' / '.join(ratios)}; {share:.0%} is sampling", flush=True)
        yield {"threads": n_threads, "takes": n_takes, "position": position, **found}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one network."""
    model = network(name)
    print(
        f"\n== {name}: {model.n_parameters / 1e6:.1f} M parameters, {model.config.context} events"
    )
    speeds = [
        line
        for n_threads in options.threads
        for n_takes in options.takes
        for line in speed_table(model, options, n_threads, n_takes)
    ]
    torch.set_num_threads(options.threads[0])
    waits, memory = dict[str, float](), dict[str, float]()
    for engine in ENGINES:
        made = engine_called(engine, model, options.threads[0])
        times = [first_note_seconds(model, made) for _ in range(options.rounds)]
        waits[engine] = statistics.median(times)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "network.safetensors"
        save_checkpoint(checkpoint, model, {})
        names = [name for name in (*ENGINES, PEER) if name != "cuda"]  # its memory is another
        memory = {name: peak_megabytes(name, checkpoint) for name in names}
    print(f"\nfirst note behind {PROMPT_SECONDS} s, seconds: {_listed(waits, 2)}")
    print(f"peak memory, MB: {_listed(memory, 0)}")
    return {"network": name, "speed": speeds, "first_note_seconds": waits, "megabytes": memory}


def _listed(figures: dict[str, float], digits: int) -> str:
    return ", ".join(f"{name} {figure:.{digits}f}" for name, figure in figures.items())


def main() -> None:
    """Read the arguments, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    networks = ["default", str(bundled_checkpoint())]
    parser.add_argument("--network", nargs="+", default=networks, help="presets or checkpoints")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--positions", type=int, nargs="+", default=[16, 512, 1000, 2000])
    parser.add_argument("--takes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--events", type=int, default=40, help="of each take and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--memory-of", choices=[*ENGINES, PEER], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print_memory(options.memory_of, options.network[0])
        return
    print(f"load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, medians")
    torch.set_num_threads(options.threads[0])
    for n_takes in options.takes:
        spent = beside_the_network(n_takes, options)
        print(f"beside the network: {spent:.0f} microseconds an event, {n_takes} take(s) at once")
    figures = [measure(name, options) for name in options.network]
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
