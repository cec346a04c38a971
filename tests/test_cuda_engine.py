"""The engine on a GPU: its steps, at any place, are those of the plain network.

Where there is no GPU, all but the recording itself is tried on the CPU, where a step that was
"recorded" is computed again into the same memory.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from networks import CONFIGS, HISTORICAL, network, some_ids
from small import random_network
from torch import Tensor

from music_gpt.arrays import Ints
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.generation import cuda_engine
from music_gpt.generation.cuda_engine import CudaDecoder, CudaEngine
from music_gpt.generation.decoding import Drawn, Engine, TorchEngine, generate
from music_gpt.generation.engines import choose_engine
from music_gpt.generation.grammar import Ending, Start
from music_gpt.network.attention import StepCache
from music_gpt.tokens.events import EOS

CACHED = [name for name in CONFIGS if name not in HISTORICAL] + ["lecture"]
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU and a torch built for it"
)


def recorded_on_the_cpu(run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """As a graph does: nothing is there before the first replay, and all lands in one place."""
    logits = torch.full_like(run(), torch.nan)

    def replay() -> None:
        logits.copy_(run())

    return logits, replay


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda_engine, "DEVICE", "cpu")
    monkeypatch.setattr(cuda_engine, "record", recorded_on_the_cpu)


# --- steps of one shape -------------------------------------------------------------------------


@pytest.mark.parametrize("name", CACHED)
@torch.no_grad()
def test_a_step_at_a_place_equals_the_step_behind_as_many(name: str) -> None:
    model, ids = network(name), some_ids(CONFIGS[name], 2, 24)
    cache = model.new_cache(2, 24)
    model(ids[:, :10], cache)
    steps, logits = StepCache(cache), []
    for place in range(10, 24):
        steps.place.fill_(place)
        logits.append(model(ids[:, place : place + 1], steps))
    torch.testing.assert_close(torch.cat(logits, 1), model(ids)[:, 10:], rtol=0, atol=1e-4)
    assert cache.length == 10


@torch.no_grad()
def test_what_lies_behind_the_place_is_not_heard() -> None:
    model, ids = network("grouped-query"), some_ids(CONFIGS["grouped-query"], 1, 8)
    cache = model.new_cache(1, 24)
    cache.keys.fill_(7.0)
    cache.values.fill_(7.0)
    model(ids[:, :7], cache)
    steps = StepCache(cache)
    steps.place.fill_(7)
    torch.testing.assert_close(model(ids[:, 7:], steps), model(ids)[:, 7:], rtol=0, atol=1e-4)


# --- the engine ---------------------------------------------------------------------------------


def drawn(engine: Engine, n_takes: int) -> list[Drawn]:
    start, ending = Start(context=[EOS]), Ending.after(0, 12.0)
    return list(generate(engine, start, ending, SamplingConfig(), range(n_takes)))


@pytest.mark.parametrize("n_takes", [1, 3])
def test_the_engine_draws_what_torch_draws(no_gpu: None, n_takes: int) -> None:
    model = random_network(context=48)  # it slides on, and takes end one by one
    plain = drawn(TorchEngine(model), n_takes)
    ours = drawn(CudaEngine(model), n_takes)
    assert [(event.take, event.id) for event in ours] == [(e.take, e.id) for e in plain]
    assert np.allclose([event.nats for event in ours], [e.nats for e in plain], atol=1e-4)
    assert len(plain) > 96 * n_takes


def test_a_batch_is_recorded_once(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Callable[[], Tensor]] = []

    def record(run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        recorded.append(run)
        return recorded_on_the_cpu(run)

    monkeypatch.setattr(cuda_engine, "record", record)
    decoder = CudaEngine(random_network()).decoder(2)
    decoder.prefill([[EOS, 60]] * 2)
    for _ in range(5):
        decoder.step(np.array([361, 362]))
    decoder.prefill([[EOS], [60]])  # the same memory
    decoder.step(np.array([361, 362]))
    assert (len(recorded), decoder.length) == (1, 2)
    decoder.keep([1])
    decoder.step(np.array([361]))
    assert len(recorded) == 2


def test_without_a_gpu_the_engine_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"cuda needs an NVIDIA GPU .*; use the engine auto\.$"):
        choose_engine(random_network(), "5eed", "cuda")


def test_a_gpu_that_computes_something_else_is_refused(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_network()
    assert choose_engine(model, "5eed", "cuda").name == "cuda"
    honest = CudaDecoder.step

    def step(self: CudaDecoder, ids: Ints) -> np.ndarray:
        return honest(self, ids)[:, ::-1]

    monkeypatch.setattr(CudaDecoder, "step", step)
    with pytest.raises(InputError, match=r"GPU: it is worse by \d+\.\d{3} nats/token; use the"):
        choose_engine(model, "5eed", "cuda")


def test_a_gpu_on_which_a_take_depends_on_the_others_is_refused(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = CudaDecoder.step

    def step(self: CudaDecoder, ids: Ints) -> np.ndarray:
        return honest(self, ids) + np.float32(0.01 * len(ids))  # the likelihood stays as it is

    monkeypatch.setattr(CudaDecoder, "step", step)
    with pytest.raises(InputError, match="GPU: a take alone is not the same as among others; use"):
        choose_engine(random_network(), "5eed", "cuda")


def test_two_threads_record_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    both_record = threading.Barrier(2)

    @contextmanager
    def graph(*_: object, **__: object) -> Iterator[None]:
        with pytest.raises(threading.BrokenBarrierError):  # nobody else comes
            both_record.wait(0.1)
        both_record.reset()
        yield

    for name in ("current_stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, MagicMock)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(cuda_engine, "warm_up_stream", MagicMock)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda n: cuda_engine.record(lambda: torch.tensor(n)), range(2)))
    assert [logits.item() for logits, _ in made] == [0, 1]


@needs_gpu
@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 1}, {"positions": "learned"}], ids=str)
def test_a_recorded_step_gives_the_logits_of_the_plain_network(changes: dict[str, object]) -> None:
    model = random_network(**changes)
    ids = np.random.default_rng(0).integers(0, 390, (2, 30))
    with torch.inference_mode():
        plain = model(torch.from_numpy(ids)).numpy()
    decoder = CudaEngine(model).decoder(2)
    found = [decoder.prefill(ids[:, :10].tolist())]
    found += [decoder.step(ids[:, place]).copy() for place in range(10, 30)]
    assert np.abs(np.stack(found, 1) - plain[:, 9:]).max() < 1e-3
