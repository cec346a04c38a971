"""Ids that were heard -> an iterator of the ids that follow: cache, grammar, sampler, window.

The letters in the shape comments: B takes side by side, V events in the vocabulary.

Three things are done for every event. The network gives logits (B, V), from a cache that slides on
when the context is full. The grammar leaves only events that decode without loss, and brings the
music to its end near the asked length. The sampler draws one event for each take, from the take's
own generator; so a take is the same alone or among others. The module knows nothing of MIDI.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch

from music_gpt.arrays import Floats, Ints, Mask
from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.generation.sampler import Logits, draw, surprise
from music_gpt.generation.takes import Rows
from music_gpt.network.attention import KVCache
from music_gpt.network.model import GPT
from music_gpt.network.packed import packed
from music_gpt.tokens.events import EOS, VELOCITY, VOCAB_SIZE

LONGEST_PERIOD = 64
"""Longest pattern, in events, whose repetition counts as a loop."""
SUSPECT_RUN = 32
"""Repeated events after which nothing more is told until the repetition ends. In 3.4 million events
of 274 real pieces there are 26 pieces with such a run, and none with one of more than 85."""
LOOP_RUN = 2 * LONGEST_PERIOD
"""Repeated events that make a loop: 64 events three times, or a shorter pattern more often."""
MAX_STEPS_BACK = 16
"""How often one take may go back out of loops; then it is left to go on as it likes."""
EVENTS_AHEAD = 16
"""Events whose noise a take draws at once: the calls cost more than the numbers of one event do."""


# --- engines ----------------------------------------------------------------------------------


class Decoder(Protocol):
    """Takes of equal length behind one cache."""

    @property
    def length(self) -> int:
        """Positions in use."""

    def prefill(self, windows: Sequence[Sequence[int]]) -> Logits:
        """Forget everything and hear B windows of equal length: logits (B, V) of what follows."""

    def step(self, ids: Ints) -> Logits:
        """Hear one more id in each take, ids (B): logits (B, V) of what follows."""

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these takes only."""


class Engine(Protocol):
    """What runs the network: torch here, another runtime elsewhere."""

    name: str
    """What people call it."""
    context: int
    """Longest window in ids."""

    def decoder(self, n_takes: int) -> Decoder:
        """An empty cache for so many takes."""

    def logits(self, ids: Sequence[int]) -> Logits:
        """Logits (V) of what follows `ids`, computed from nothing: the plain full recompute."""


class TorchEngine:
    """The network in plain torch, on the device where it lies."""

    name = "torch"

    def __init__(self, model: GPT) -> None:
        """On a CPU the engine keeps the weights of now: one is made anew for other ones."""
        self.model, self.context = packed(model.eval()), model.config.context

    def decoder(self, n_takes: int) -> TorchDecoder:
        """An empty cache for so many takes."""
        return TorchDecoder(self.model, n_takes)

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> Logits:
        """Logits (V) of what follows `ids`, without a cache."""
        row = torch.tensor([ids], device=self.model.embedding.weight.device)
        return as_array(self.model(row)[0, -1])


class TorchDecoder:
    """A `Decoder` over the key/value cache of the model."""

    @torch.inference_mode()
    def __init__(self, model: GPT, n_takes: int) -> None:
        self._model, self._cache = model, model.new_cache(n_takes)
        self._device = model.embedding.weight.device

    @property
    def length(self) -> int:
        """Positions in use."""
        return self._cache.length

    @torch.inference_mode()
    def prefill(self, windows: Sequence[Sequence[int]]) -> Logits:
        """Row by row, as a take alone would do it; windows that are all the same are heard once."""
        if len(windows) > 1 and all(window == windows[0] for window in windows):
            logits = self._prefill_row(0, windows[0])
            self._cache.length = len(windows[0])
            self._cache = self._cache.expand(len(windows))
            return np.repeat(logits, len(windows), axis=0)
        rows = [self._prefill_row(row, window) for row, window in enumerate(windows)]
        self._cache.length = len(windows[0])
        return np.concatenate(rows)

    def _prefill_row(self, row: int, window: Sequence[int]) -> Logits:
        part = slice(row, row + 1)
        view = KVCache(self._cache.keys[:, part], self._cache.values[:, part])
        return as_array(self._model(torch.tensor([window], device=self._device), view)[:, -1])

    @torch.inference_mode()
    def step(self, ids: Ints) -> Logits:
        """Hear one more id in each take, ids (B): logits (B, V) of what follows."""
        column = torch.from_numpy(ids)[:, None].to(self._device)
        return as_array(self._model(column, self._cache)[:, -1])

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these takes only."""
        old, index = self._cache, torch.tensor(rows, device=self._device)
        new = self._model.new_cache(len(rows), old.capacity, old.keys.dtype)
        new.keys[:, :, :, : old.length] = old.keys[:, index, :, : old.length]
        new.values[:, :, :, : old.length] = old.values[:, index, :, : old.length]
        new.length = old.length
        self._cache = new


def fastest_threads(model: GPT, seconds: float = 0.5) -> int:
    """The number of threads with which this machine, as busy as it is now, decodes fastest.

    One event gives little work to share: on a busy machine two threads are slower than one. Tries
    1, 2, 4, ... up to what torch uses now, for `seconds` in all, and leaves torch as it was.
    """
    most = torch.get_num_threads()
    if most == 1 or model.embedding.weight.device.type != "cpu":
        return most
    decoder = TorchDecoder(model, 1)

    def with_threads(n_threads: int) -> Decoder:
        torch.set_num_threads(n_threads)
        return decoder

    best = quickest([n for n in (1, 2, 4, 8, 16, 32) if n < most] + [most], with_threads, seconds)
    torch.set_num_threads(most)
    return best


def quickest(choices: Sequence[int], decoder: Callable[[int], Decoder], seconds: float) -> int:
    """The choice whose decoder takes least time for an event; all are tried in turn."""
    one, spent = np.zeros(1, np.int64), dict.fromkeys(choices, 0.0)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or 0.0 in spent.values():
        for choice in choices:
            tried = decoder(choice)
            tried.prefill([[EOS, EOS]])  # also the first parallel region of these threads
            tick = time.perf_counter()
            for _ in range(4):
                tried.step(one)
            spent[choice] += time.perf_counter() - tick
    return min(choices, key=spent.__getitem__)


def as_array(logits: torch.Tensor) -> Logits:
    """The same numbers on the CPU, in memory of their own."""
    array: Logits = logits.to("cpu", torch.float32, copy=True).numpy()
    return array


# --- loops ----------------------------------------------------------------------------------------


class LoopWatch(Rows):
    """For how many events each of B takes has been repeating what stood up to 64 events before."""

    def __init__(self, n_takes: int) -> None:
        self._recent = np.full((n_takes, LONGEST_PERIOD), -1)
        self._runs = np.zeros((n_takes, LONGEST_PERIOD), np.int64)

    def advance(self, ids: Ints) -> Ints:
        """One more event in each take, ids (B): the length of the longest repetition, (B)."""
        self._runs += 1
        self._runs *= self._recent == ids[:, None]
        self._recent[:, 1:] = self._recent[:, :-1]
        self._recent[:, 0] = ids
        longest: Ints = self._runs.max(1)
        return longest


# --- decoding -----------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """One event of one take."""

    take: int
    id: int
    nats: float
    """How unlikely the network itself finds it: at temperature 1, without grammar and filters."""


def gumbel(seed: int) -> Iterator[Floats]:
    """Gumbel's distribution, (V) again and again, from a generator with this seed."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        uniform = torch.rand(EVENTS_AHEAD, VOCAB_SIZE, dtype=torch.float64, generator=generator)
        yield from -np.log(-np.log1p(-uniform.numpy()))


@dataclass
class _Take:
    """One piece in the making."""

    number: int
    noise: Iterator[Floats]
    """For each event Gumbel's distribution, (V), from a generator of the take's own."""
    ids: list[int]
    """The context and all that follows."""
    heard: list[int]
    """The window that the network has before it."""
    n_told: int
    """So many of the ids have been told to the caller."""
    untold_nats: list[float] = field(default_factory=list)
    """What the network finds of the ids that have not been told."""
    n_steps_back: int = 0
    banned: set[int] = field(default_factory=set)
    """Events that led into a loop when they stood at place `n_told`."""
    before_loop: tuple[Grammar, LoopWatch] | None = None
    """State at place `n_told`."""

    def forbid(self, allowed: Mask) -> None:
        """Take out of `allowed` (V) what led into a loop here, unless nothing else is left."""
        if self.banned and len(self.ids) == self.n_told:
            others = allowed.copy()
            others[list(self.banned)] = False
            if others.any():
                allowed[:] = others

    def add(self, id_: int, nats: float) -> None:
        """One more event."""
        self.ids.append(id_)
        self.heard.append(id_)
        self.untold_nats.append(nats)

    def tell(self) -> Iterator[Drawn]:
        """What has not been told yet."""
        untold, nats = self.ids[self.n_told :], self.untold_nats
        self.n_told, self.untold_nats = len(self.ids), []
        self.banned.clear()
        return map(Drawn, itertools.repeat(self.number), untold, nats)

    def step_back(self, window: int) -> None:
        """Take back what has not been told, and remember which event led there."""
        self.banned.add(self.ids[self.n_told])
        del self.ids[self.n_told :]
        self.untold_nats.clear()
        self.n_steps_back += 1
        self.slide(window)

    def slide(self, window: int) -> None:
        """Hear the last `window` ids only, headed by the velocity in force there."""
        self.heard = last_window(self.ids, window)


class _Group:
    """Takes of equal window length, which share each forward pass of the network."""

    def __init__(
        self,
        engine: Engine,
        sampling: SamplingConfig,
        takes: list[_Take],
        grammar: Grammar,
        watch: LoopWatch,
    ) -> None:
        self._engine, self._sampling, self._takes = engine, sampling, takes
        self._grammar, self._watch = grammar, watch
        self._decoder = engine.decoder(len(takes))
        self._logits = self._decoder.prefill([take.heard for take in takes])
        self._looping: list[int] = []

    def step(self) -> Iterator[Drawn]:
        """Draw one event for each take; gives all that can be told."""
        ids = self._draw()
        nats = surprise(self._logits, ids).tolist()
        ids = self._grammar.cut(ids)
        self._grammar.advance(ids)
        runs = self._watch.advance(ids).tolist()
        self._looping = []
        for row, (take, id_, run) in enumerate(zip(self._takes, ids.tolist(), runs, strict=True)):
            take.add(id_, nats[row])
            watched = self._sampling.temperature > 0 and take.n_steps_back < MAX_STEPS_BACK
            if not watched or run <= SUSPECT_RUN or id_ == EOS:
                yield from take.tell()
                if run == SUSPECT_RUN:
                    take.before_loop = self._grammar.pick([row]), self._watch.pick([row])
            elif run >= LOOP_RUN:
                self._looping.append(row)

    def _draw(self) -> Ints:
        allowed = self._grammar.allowed()  # (B, V)
        for row, take in enumerate(self._takes):
            take.forbid(allowed[row])
        bias = self._grammar.bias()
        heat = self._sampling.temperature
        noise = np.array([next(take.noise) for take in self._takes]) if heat else np.zeros((1, 1))
        ids, sure = draw(_limited(self._logits, allowed, bias), self._sampling, noise)
        if not sure.all():
            # too close to tell: decide by logits that do not depend on the batch or the cache
            for row in np.flatnonzero(~sure).tolist():
                self._logits[row] = self._engine.logits(self._takes[row].heard)
            ids, _ = draw(_limited(self._logits, allowed, bias), self._sampling, noise)
        return ids

    def settle(self) -> list[_Group]:
        """Let the network hear what was drawn; gives the groups that go on."""
        rows = range(len(self._takes))
        stuck = [self._step_back(row) for row in self._looping]
        going = [r for r in rows if r not in self._looping and self._takes[r].ids[-1] != EOS]
        if not going:
            return stuck
        if len(going) < len(self._takes):
            self._takes = [self._takes[row] for row in going]
            self._grammar, self._watch = self._grammar.pick(going), self._watch.pick(going)
            self._decoder.keep(going)
        if self._decoder.length < self._engine.context:
            self._logits = self._decoder.step(np.array([take.ids[-1] for take in self._takes]))
        else:
            for take in self._takes:
                take.slide(self._engine.context // 2)
            self._logits = self._decoder.prefill([take.heard for take in self._takes])
        return [self, *stuck]

    def _step_back(self, row: int) -> _Group:
        """The take of this row alone, before its loop; its noise goes on where it is."""
        take = self._takes[row]
        assert take.before_loop is not None  # set when the repetition became suspicious
        grammar, watch = take.before_loop[0].pick([0]), take.before_loop[1].pick([0])
        take.step_back(self._engine.context // 2)
        return _Group(self._engine, self._sampling, [take], grammar, watch)


def last_window(ids: Sequence[int], window: int) -> list[int]:
    """The last `window` ids, headed by the velocity in force there if they are not all."""
    heard = list(ids[-window:])
    if len(ids) > window:
        told = (i for i in reversed(ids[: 1 - window or None]) if VELOCITY <= i < EOS)
        heard[0] = next(told, heard[0])
    return heard


def _limited(logits: Logits, allowed: Mask, bias: Floats) -> Floats:
    """Logits (B, V) in float64, -inf for what is not allowed."""
    return np.where(allowed, logits + bias, -np.inf)


def generate(
    engine: Engine,
    start: Start,
    ending: Ending,
    sampling: SamplingConfig,
    seeds: Sequence[int],
) -> Iterator[Drawn]:
    """Compose one take for each seed, side by side: gives their events one by one.

    Each take ends with EOS. A take depends on its seed, not on the other takes: it draws from its
    own generator, and where two events are so close that rounding could decide, logits decide that
    are the same in every batch. What has been given is never taken back: a take that repeats itself
    tells nothing until the repetition ends, or it goes back to where it fell silent and draws anew.
    """
    takes = [
        _Take(
            number=number,
            noise=gumbel(seed),
            ids=list(start.context),
            heard=list(start.context),
            n_told=len(start.context),
        )
        for number, seed in enumerate(seeds)
    ]
    n_takes = len(takes)
    grammar = Grammar(start, ending, sampling, n_takes)
    groups = [_Group(engine, sampling, takes, grammar, LoopWatch(n_takes))]
    while groups:
        for group in groups:
            yield from group.step()
        groups = [after for group in groups for after in group.settle()]


def surprise_after(
    engine: Engine, contexts: Sequence[Sequence[int]], followings: Sequence[Sequence[int]]
) -> list[float]:
    """Mean nats by which the ids of each of `followings` surprise after its context, side by side.

    Of all contexts equally many ids are left out where they do not fit with what follows; of what
    follows, what does not fit into a quarter of the window.
    """
    ends = [list(following[: engine.context // 4]) for following in followings]
    whole = max(len(ids) + len(end) for ids, end in zip(contexts, ends, strict=True))
    excess, half = max(whole - engine.context, 0), engine.context // 2
    heard = [last_window(ids, min(len(ids), max(len(ids) - excess, half))) for ids in contexts]
    rows = [ids + end for ids, end in zip(heard, ends, strict=True)]
    first, longest = min(map(len, heard)), max(map(len, rows))
    decoder, nats = engine.decoder(len(rows)), np.zeros(len(rows))
    logits = decoder.prefill([row[:first] for row in rows])
    for place in range(first, longest):
        column = np.array([row[min(place, len(row) - 1)] for row in rows])
        counts = [len(ids) <= place < len(row) for ids, row in zip(heard, rows, strict=True)]
        nats += np.where(counts, surprise(logits, column), 0.0)
        if place + 1 < longest:
            logits = decoder.step(column)
    return [float(n) / max(len(end), 1) for n, end in zip(nats, ends, strict=True)]
