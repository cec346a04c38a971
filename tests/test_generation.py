"""Events are drawn from what the network says: cache and window, seeds, likelihoods, loops."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from odd_engines import (
    DENSE,
    GREEDY,
    PLAIN,
    MadEngine,
    PlainDecoder,
    RecomputeEngine,
    engine_for,
    every_engine,
    exact_engines,
    lively_model,
    take_ids,
)

from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation import decoding
from music_gpt.generation.decoding import LOOP_RUN, LoopWatch, TorchEngine, generate
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.generation.sampler import surprise
from music_gpt.tokens.events import (
    EOS,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    VOCAB_SIZE,
    decode_ids,
    duration_frames,
    encode_notes,
)

# --- what the network finds of it -----------------------------------------------------------------


def test_what_the_network_finds_of_an_event_is_free_of_grammar_and_temperature():
    engine, start = MadEngine(), Start()
    sampling = SamplingConfig(temperature=0.7, top_k=5, min_p=0.1)
    heard = list(start.context)
    for drawn in generate(engine, start, Ending.after(0, 1.0), sampling, (4,)):
        logits = engine.logits(heard).astype(np.float64)
        assert drawn.nats == pytest.approx(np.log(np.exp(logits).sum()) - logits[drawn.id])
        heard.append(drawn.id)


# --- the network, its cache and its window -------------------------------------------------------

LONG_CONTEXT = Start(
    context=[VELOCITY + 15, *([60, TIME_SHIFT + 30, NOTE_OFF + 60] * 20)][:48], velocity=15
)


@pytest.mark.parametrize("changes", [{}, {"positions": "learned"}, {"n_kv_heads": 1}])
@pytest.mark.parametrize("start", [Start(), LONG_CONTEXT], ids=["nothing", "prompt"])
@pytest.mark.parametrize("sampling", [GREEDY, DENSE], ids=["greedy", "sampled"])
@exact_engines
def test_the_cache_changes_no_event_over_several_windows(changes, start, sampling, engine_name):
    model = lively_model(**changes)
    cached = take_ids(engine_for(model, engine_name), 8.0, (5, 6), sampling, start)
    plain = take_ids(RecomputeEngine(model), 8.0, (5, 6), sampling, start)
    assert cached == plain
    assert min(len(ids) for ids in cached) > 3 * 64 or sampling is GREEDY


@exact_engines
def test_cached_logits_are_those_of_the_full_recompute(engine_name):
    model = lively_model()
    engine, plain = engine_for(model, engine_name), TorchEngine(model)
    rng = np.random.default_rng(0)
    windows = rng.integers(0, EOS, (3, 20)).tolist()
    decoder = engine.decoder(3)
    logits = decoder.prefill(windows)
    for _ in range(44):
        for row in range(3):
            assert np.abs(logits[row] - plain.logits(windows[row])).max() < 1e-4
        ids = rng.integers(0, EOS, 3)
        windows = [[*window, int(i)] for window, i in zip(windows, ids, strict=True)]
        logits = decoder.step(ids)
    decoder.keep([2, 0])
    logits = decoder.prefill([windows[2][:30], windows[0][:30]])
    assert np.abs(logits[1] - plain.logits(windows[0][:30])).max() < 1e-4


@exact_engines
def test_takes_that_are_kept_go_on_as_if_alone(engine_name):
    model = lively_model()
    decoder, plain = engine_for(model, engine_name).decoder(3), TorchEngine(model)
    windows = [[EOS, VELOCITY + 3, pitch] for pitch in (60, 61, 62)]
    decoder.prefill(windows)
    decoder.keep([2, 0])
    after = decoder.step(np.array([TIME_SHIFT, 64]))
    assert decoder.length == 4
    assert np.abs(after[0] - plain.logits([*windows[2], TIME_SHIFT])).max() < 1e-4
    assert np.abs(after[1] - plain.logits([*windows[0], 64])).max() < 1e-4


@exact_engines
def test_equal_windows_are_heard_once_and_copied(engine_name):
    engine = engine_for(lively_model(), engine_name)
    decoder, window = engine.decoder(3), [EOS, VELOCITY + 3, 60]
    first = decoder.prefill([window] * 3)
    after = decoder.step(np.array([TIME_SHIFT, TIME_SHIFT + 5, 64]))
    assert (first == first[0]).all()
    assert np.abs(after[2] - engine.logits([*window, 64])).max() < 1e-4


def test_the_window_that_slid_on_is_headed_by_the_velocity_in_force():
    seen: list[list[int]] = []

    class Watched(MadEngine):
        def decoder(self, n_takes):
            decoder = PlainDecoder(self)
            prefill = decoder.prefill
            decoder.prefill = lambda windows: (seen.extend(map(list, windows)), prefill(windows))[1]
            return decoder

    (ids,) = take_ids(Watched(), 10.0, sampling=DENSE)
    history = [EOS, *ids]
    assert len(seen) > 3
    for number, window in enumerate(seen[1:]):
        end = 65 + number * 33
        assert len(window) == 32
        assert window[1:] == history[end - 31 : end]
        told = [i for i in history[: end - 31] if VELOCITY <= i < EOS]
        assert window[0] == told[-1]


def test_the_number_of_threads_is_tried_and_torch_left_as_it_was(monkeypatch):
    used = [1]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    slow, clock = {1: 0.0, 2: 0.0}, [0.0]
    for slower in (1, 2):
        slow.update({1: 0.0, 2: 0.0, slower: 1.0})

        def tick() -> float:
            clock[0] += 0.01 + slow[used[-1]]
            return clock[0]

        monkeypatch.setattr(decoding.time, "perf_counter", tick)
        assert decoding.fastest_threads(lively_model()) == 3 - slower
        assert used[-1] == 2


# --- seeds ---------------------------------------------------------------------------------------


@every_engine
def test_a_take_is_the_same_alone_or_among_others(engine_name):
    engine = engine_for(lively_model(), engine_name)
    together = take_ids(engine, 5.0, (3, 4, 5, 6), DENSE)
    assert together == [take_ids(engine, 5.0, (seed,), DENSE)[0] for seed in (3, 4, 5, 6)]
    assert len({tuple(ids) for ids in together}) == 4


@pytest.mark.parametrize("sampling", [GREEDY, DENSE, replace(DENSE, top_k=3)])
def test_rounding_that_differs_with_the_batch_changes_no_event(sampling):
    model = lively_model()
    twins = model.head.weight.data.view(-1, 2, model.config.d_model)
    twins[:, 1] = twins[:, 0]  # any two neighbours are equally likely: rounding decides
    engine, seeds = RecomputeEngine(model, noise=5e-6), (1, 2, 3)
    together = take_ids(engine, 3.0, seeds, sampling)
    assert together == [take_ids(engine, 3.0, (seed,), sampling)[0] for seed in seeds]
    assert together == take_ids(TorchEngine(model), 3.0, seeds, sampling)


def test_temperature_0_ignores_the_seed():
    first, second = take_ids(TorchEngine(lively_model()), 3.0, (1, 99), GREEDY)
    assert first == second


def test_noise_is_drawn_ahead_without_another_number():
    noise, generator = decoding.gumbel(7), torch.Generator().manual_seed(7)
    for _ in range(decoding.EVENTS_AHEAD + 2):
        waiting = torch.empty(VOCAB_SIZE, dtype=torch.float64).exponential_(generator=generator)
        assert np.allclose(next(noise), -np.log(waiting.numpy()), rtol=0, atol=1e-12)


def test_a_take_that_is_picked_out_goes_its_own_way():
    both = Grammar(Start(), Ending.after(0, 60.0), SamplingConfig(density=2.0), 2)
    for event in (VELOCITY + 9, 60, TIME_SHIFT + 9):
        both.advance(np.array([event, event]))
    allowed, bias, picked = both.allowed(), both.bias(), both.pick([1])
    for event in (NOTE_OFF + 60, VELOCITY + 2, 64, TIME_SHIFT + 99):
        picked.advance(np.array([event]))
    assert (both.allowed() == allowed).all()
    assert (both.bias() == bias).all()
    assert not (picked.allowed() == allowed[1]).all()
    assert not (picked.bias() == bias[1]).all()


# --- loops ---------------------------------------------------------------------------------------


class LoopEngine(MadEngine):
    """A network that has fallen in love with one bar."""

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        bar = [60, TIME_SHIFT + 9, NOTE_OFF + 60, TIME_SHIFT + 4]
        bar += [64, TIME_SHIFT + 19, NOTE_OFF + 64, TIME_SHIFT + 5]
        logits = super().logits(ids)
        if ids[-1] in bar:
            logits[bar[(bar.index(ids[-1]) + 1) % len(bar)]] += 20.0
        else:
            logits[bar] += 10.0
        return logits


def longest_run(ids: Sequence[int]) -> int:
    watch = LoopWatch(1)
    return max(int(watch.advance(np.array([event]))[0]) for event in ids)


def test_a_repetition_is_counted_whatever_its_period():
    rng = np.random.default_rng(0)
    for period in (1, 7, 64):
        pattern = rng.permutation(VOCAB_SIZE)[:period].tolist()
        assert longest_run(pattern * 5) == 4 * period
    assert longest_run(rng.permutation(VOCAB_SIZE).tolist() * 2) == 0  # too long to be a loop


def test_a_loop_is_left_by_stepping_back():
    sampling = SamplingConfig(temperature=1.0, min_p=0.0, max_note_seconds=2.0)
    alone = [take_ids(LoopEngine(spread=1.0), 20.0, (seed,), sampling)[0] for seed in (1, 2, 3)]
    assert all(longest_run(ids) < LOOP_RUN for ids in alone)
    assert all(encode_notes(decode_ids(ids)).tolist() == ids[:-1] for ids in alone)
    assert take_ids(LoopEngine(spread=1.0), 20.0, (1, 2, 3), sampling) == alone


def test_what_was_taken_back_takes_its_likelihood_with_it(monkeypatch):
    monkeypatch.setattr(LoopEngine, "context", 10_000)
    engine, heard = LoopEngine(spread=1.0), [EOS]
    for drawn in generate(engine, Start(), Ending.after(0, 20.0), PLAIN, (1,)):
        expected = surprise(engine.logits(heard)[None], np.array([drawn.id]))[0]
        assert drawn.nats == pytest.approx(expected)
        heard.append(drawn.id)


def test_a_take_that_cannot_leave_its_loop_goes_on_in_it(monkeypatch):
    monkeypatch.setattr(decoding, "MAX_STEPS_BACK", 2)
    sampling = SamplingConfig(temperature=0.3, max_note_seconds=60.0)
    (ids,) = take_ids(LoopEngine(spread=0.0), 30.0, (1,), sampling)
    assert longest_run(ids) > LOOP_RUN
    assert abs(duration_frames(ids) / 100 - 30.0) <= 1.0
