"""What follows is music, whatever the network says: grammar, sampler, window, loops, endings."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from music_gpt.arrays import Ints
from music_gpt.config.model import ModelConfig
from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation import decoding
from music_gpt.generation.decoding import (
    LOOP_RUN,
    LoopWatch,
    TorchEngine,
    generate,
)
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.generation.sampler import surprise
from music_gpt.network.model import GPT
from music_gpt.notes import HIGHEST_KEY, LOWEST_KEY
from music_gpt.tokens.events import (
    EOS,
    NOTE_OFF,
    PAD,
    TIME_SHIFT,
    VELOCITY,
    VOCAB_SIZE,
    count_notes,
    decode_ids,
    duration_frames,
    encode_notes,
)
from music_gpt.tokens.tokenizer import count_errors

PLAIN = SamplingConfig(temperature=1.0, min_p=0.0)
GREEDY = SamplingConfig(temperature=0.0)
DENSE = SamplingConfig(temperature=1.0, min_p=0.0, max_wait_seconds=0.1)


class MadEngine:
    """A network with no idea of music: its logits depend on the last ids in no sensible way."""

    context = 64

    def __init__(self, seed: int = 0, spread: float = 3.0, kinds: Sequence[float] = ()) -> None:
        rng = np.random.default_rng(seed)
        self._table = (spread * rng.standard_normal((97, VOCAB_SIZE))).astype(np.float32)
        borders = (0, NOTE_OFF, TIME_SHIFT, VELOCITY, EOS, PAD)
        for first, last, loved in zip(borders, borders[1:], kinds, strict=False):
            self._table[:, first:last] += loved

    def decoder(self, n_takes: int) -> "PlainDecoder":
        return PlainDecoder(self)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        return self._table[(3 * sum(ids[-3:]) + len(ids)) % 97].copy()


class PlainDecoder:
    """A decoder without a cache: it computes everything anew for every event."""

    def __init__(self, engine, noise: float = 0.0) -> None:
        self._engine, self._noise = engine, np.random.default_rng(0).normal(0, noise, VOCAB_SIZE)
        self._windows: list[list[int]] = []

    @property
    def length(self) -> int:
        return len(self._windows[0])

    def prefill(self, windows: Sequence[Sequence[int]]) -> np.ndarray:
        self._windows = [list(window) for window in windows]
        return self._logits()

    def step(self, ids: Ints) -> np.ndarray:
        assert len(ids) == len(self._windows)
        assert self.length < self._engine.context
        self._windows = [[*w, int(i)] for w, i in zip(self._windows, ids, strict=True)]
        return self._logits()

    def keep(self, rows: Sequence[int]) -> None:
        self._windows = [self._windows[row] for row in rows]

    def _logits(self) -> np.ndarray:
        # rounding differs with the size of the batch
        logits = np.stack([self._engine.logits(window) for window in self._windows])
        return (logits + self._noise * len(self._windows)).astype(np.float32)


class RecomputeEngine:
    """A network without cache: the plain full recompute that cached decoding has to agree with."""

    def __init__(self, model: GPT, noise: float = 0.0) -> None:
        self._plain, self._noise = TorchEngine(model), noise
        self.context = model.config.context

    def decoder(self, n_takes: int) -> PlainDecoder:
        return PlainDecoder(self, self._noise)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        return self._plain.logits(ids)


def lively_model(context: int = 64, **changes) -> GPT:
    """A small network with random weights that make it prefer some events clearly."""
    torch.manual_seed(11)
    model = GPT(replace(ModelConfig.preset("tiny"), context=context, **changes))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.15)
    return model.eval()


FAST = "the extra `fast` is not installed; composing needs it only to be quicker"


def engine_for(model: GPT, name: str):
    """The network in this engine, which may be missing."""
    if name == "torch":
        return TorchEngine(model)
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason=FAST)
    from music_gpt.generation.onnx_engine import OnnxEngine
    from music_gpt.network.onnx_graph import onnx_bytes

    return OnnxEngine(onnx_bytes(model, int8=name == "onnx-int8"), model.config, name)


exact_engines = pytest.mark.parametrize("engine_name", ["torch", "onnx"])
every_engine = pytest.mark.parametrize("engine_name", ["torch", "onnx", "onnx-int8"])


def take_ids(engine, seconds=5.0, seeds=(1,), sampling=PLAIN, start=None, own=False):
    """The new ids of each take."""
    start = Start() if start is None else start
    takes: list[list[int]] = [[] for _ in seeds]
    ending = Ending.after(start.seam, seconds, own=own)
    for drawn in generate(engine, start, ending, sampling, seeds):
        takes[drawn.take].append(drawn.id)
    return takes


# --- the grammar ---------------------------------------------------------------------------------

any_engine = st.builds(
    MadEngine,
    seed=st.integers(0, 10_000),
    spread=st.floats(0.1, 10),
    kinds=st.tuples(
        st.sampled_from([-20.0, 0.0, 3.0]),
        st.sampled_from([-20.0, 0.0, 3.0]),
        st.sampled_from([0.0, 4.0, 20.0]),
        st.sampled_from([-20.0, 0.0, 3.0]),
        st.sampled_from([-20.0, 0.0, 20.0]),
    ),
)
any_sampling = st.builds(
    SamplingConfig,
    temperature=st.sampled_from([0.0, 1e-8, 0.5, 1.0, 10.0]),
    top_k=st.sampled_from([0, 1, 40, 389, 390, 100_000]),
    top_p=st.sampled_from([1e-6, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.03]),
    max_wait_seconds=st.sampled_from([0.01, 0.5, 4.0]),
    max_note_seconds=st.sampled_from([0.1, 1.0, 20.0]),
)


@settings(max_examples=40)
@given(any_engine, any_sampling, st.sampled_from([0.1, 0.37, 1.5]), st.booleans())
def test_whatever_the_network_says_every_note_decodes_without_loss(engine, sampling, seconds, own):
    (ids,) = take_ids(engine, seconds, sampling=sampling, own=own)
    assert ids[-1] == EOS
    assert EOS not in ids[:-1]
    assert PAD not in ids
    notes = decode_ids(ids)
    assert len(notes) == count_notes(ids)
    assert encode_notes(notes).tolist() == ids[:-1]  # already the canonical form
    assert count_errors([EOS, *ids]) == 0


@settings(max_examples=30)
@given(any_engine, any_sampling, st.sampled_from([0.1, 0.5, 2.0]))
def test_the_asked_length_is_met_within_one_second(engine, sampling, seconds):
    (ids,) = take_ids(engine, seconds, sampling=sampling)
    assert abs(duration_frames(ids) / 100 - seconds) <= 1.0
    assert abs(decode_ids(ids)["end"].max() - seconds) <= 1.0


@settings(max_examples=20)
@given(any_engine, any_sampling)
def test_waits_and_notes_have_their_longest(engine, sampling):
    (ids,) = take_ids(engine, 3.0, sampling=sampling)
    notes = decode_ids(ids)
    length = (notes["end"] - notes["start"]).max()
    assert length <= sampling.max_note_seconds + 1e-9
    waited, longest = 0, 0
    for event in ids:
        waited = waited + event - 255 if TIME_SHIFT <= event < VELOCITY else 0
        longest = max(longest, waited)
    assert longest <= round(100 * sampling.max_wait_seconds)


@settings(max_examples=60)
@given(
    st.data(),
    st.integers(0, 5000),
    st.dictionaries(st.integers(0, 127), st.integers(0, 900), min_size=1, max_size=128),
    st.integers(0, 700),
    any_sampling,
)
def test_any_prompt_leads_to_an_end_with_nothing_sounding(data, seed, ages, gap, sampling):
    before = 1000
    start = Start(
        context=[VELOCITY + 15, 60],
        frame=before,
        seam=before + gap,
        velocity=15,
        onsets={pitch: before - age for pitch, age in ages.items()},
    )
    ending = Ending.after(start.seam, 2.0)
    grammar = Grammar(start, ending, sampling, 1)
    rng = np.random.default_rng(seed)
    ids: list[int] = []
    while not ids or ids[-1] != EOS:
        allowed = np.flatnonzero(grammar.allowed()[0])
        assert len(allowed), f"a dead end after {ids}"
        ids.append(int(rng.choice(allowed)))
        grammar.advance(np.array(ids[-1:]))
    (now,) = grammar.moments
    assert now.quiet
    assert now.frame <= ending.latest
    # the first event after the wait comes at the seam or later
    wait = next(i for i, event in enumerate(ids) if not TIME_SHIFT <= event < VELOCITY)
    assert duration_frames(ids[:wait]) >= gap


def allowed_after(ids: Sequence[int], *, seconds: float = 60.0, **knobs: float) -> set[int]:
    grammar = Grammar(Start(), Ending.after(0, seconds), SamplingConfig(**knobs), 1)
    for event in ids:
        assert grammar.allowed()[0, event], f"{event} is not allowed here"
        grammar.advance(np.array([event]))
    return set(np.flatnonzero(grammar.allowed()[0]).tolist())


def test_a_piece_begins_with_a_velocity():
    assert allowed_after([]) == set(range(VELOCITY, EOS))


def test_after_a_velocity_comes_a_note_on_of_a_silent_pitch():
    keys = set(range(LOWEST_KEY, HIGHEST_KEY + 1))
    assert allowed_after([VELOCITY + 9]) == keys
    after = allowed_after([VELOCITY + 9, 60, TIME_SHIFT, VELOCITY + 3])
    assert after == keys - {60}


def test_a_velocity_that_is_in_force_is_not_told_again():
    assert allowed_after([VELOCITY + 9, 60]).isdisjoint({VELOCITY + 9})


def test_a_note_lasts_a_frame_at_least():
    assert allowed_after([VELOCITY, 60]).isdisjoint(range(NOTE_OFF, TIME_SHIFT))
    assert NOTE_OFF + 60 in allowed_after([VELOCITY, 60, TIME_SHIFT])


def test_a_pitch_may_be_struck_again_in_the_frame_where_it_ends():
    assert 60 in allowed_after([VELOCITY, 60, TIME_SHIFT, NOTE_OFF + 60])


def test_only_what_sounds_can_be_released():
    offs = allowed_after([VELOCITY, 60, 64, TIME_SHIFT]) & set(range(NOTE_OFF, TIME_SHIFT))
    assert offs == {NOTE_OFF + 60, NOTE_OFF + 64}


def test_a_long_wait_is_whole_seconds_and_a_rest():
    waits = set(range(TIME_SHIFT, VELOCITY))
    assert waits <= allowed_after([VELOCITY, 60, TIME_SHIFT + 99])
    assert waits.isdisjoint(allowed_after([VELOCITY, 60, TIME_SHIFT + 98]))
    third = allowed_after([VELOCITY, 60, TIME_SHIFT + 99], max_wait_seconds=1.5) & waits
    assert third == set(range(TIME_SHIFT, TIME_SHIFT + 50))


def test_a_note_at_its_longest_is_released_before_all_else():
    ids = [VELOCITY, 60, 72, TIME_SHIFT + 49]
    assert allowed_after(ids, max_note_seconds=0.5) == {NOTE_OFF + 60}
    assert allowed_after([*ids, NOTE_OFF + 60], max_note_seconds=0.5) == {NOTE_OFF + 72}


def test_the_end_comes_when_nothing_sounds_and_the_length_is_reached():
    ids = [VELOCITY, 60, TIME_SHIFT + 99]
    assert EOS not in allowed_after(ids, seconds=1.0)
    assert allowed_after([*ids, NOTE_OFF + 60], seconds=1.0) == {EOS}
    assert EOS not in allowed_after([*ids, NOTE_OFF + 60], seconds=3.0)


def test_onsets_grow_rarer_before_they_stop():
    ending = Ending.after(0, 20.0)
    grammar = Grammar(Start(frame=ending.fade - 1), ending, PLAIN, 1)
    assert not grammar.bias().any()
    grammar = Grammar(Start(frame=(ending.fade + ending.stop) // 2), ending, PLAIN, 1)
    bias = grammar.bias()[0]
    assert -4.0 < bias[60] < -1.0
    assert bias[VELOCITY] == bias[60]
    assert not bias[NOTE_OFF:VELOCITY].any()
    assert bias[EOS] == 0.0


def test_a_note_that_sounds_too_long_becomes_ever_likelier_to_be_released():
    start = Start(frame=400, onsets={60: 0, 64: 300})
    grammar = Grammar(start, Ending.after(0, 60.0), SamplingConfig(release_after_seconds=3.0), 2)
    bias = grammar.bias()
    assert bias[:, NOTE_OFF + 60].tolist() == pytest.approx([2.0, 2.0])
    assert np.count_nonzero(bias) == 2
    grammar.advance(np.array([TIME_SHIFT + 49, TIME_SHIFT + 99]))
    assert grammar.bias()[:, NOTE_OFF + 60].tolist() == pytest.approx([3.0, 4.0])


def test_a_piece_may_look_for_its_own_ending():
    sparse = MadEngine(kinds=[0, 5, 0, -5, 0])
    lengths = [duration_frames(ids) / 100 for ids in take_ids(sparse, 10.0, range(6), own=True)]
    assert all(6.0 <= length <= 13.5 for length in lengths)
    assert len(set(lengths)) > 1
    within = [duration_frames(ids) / 100 for ids in take_ids(sparse, 10.0, range(6))]
    assert all(9.0 <= length <= 11.0 for length in within)


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
