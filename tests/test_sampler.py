"""One event is drawn as often as the logits, the temperatures and the filters say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_gpt.arrays import Floats
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.generation.sampler import draw, probabilities, survivors, two_stage
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, VOCAB_SIZE

PLAIN = SamplingConfig(temperature=1.0, min_p=0.0)
GREEDY = SamplingConfig(temperature=0.0)


def drawn(logits: Sequence[float], n: int = 4000, **knobs: float) -> np.ndarray:
    """How often each event is drawn."""
    table: Floats = np.tile(np.array(logits, np.float64), (n, 1))
    rng = np.random.default_rng(3)
    ids, _ = draw(table, SamplingConfig(**{"min_p": 0.0, **knobs}), rng.gumbel(size=table.shape))
    return np.bincount(ids, minlength=len(logits)) / n


def test_events_are_drawn_as_often_as_the_softmax_says():
    shares = np.array([0.5, 0.3, 0.2])
    assert np.allclose(drawn(np.log(shares), temperature=1.0), shares, atol=0.03)
    hot = shares**0.5 / (shares**0.5).sum()
    assert np.allclose(drawn(np.log(shares), temperature=2.0), hot, atol=0.03)


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-8])
def test_no_heat_takes_the_likeliest_event(temperature):
    shares = drawn([1.0, 1.001, -np.inf, 0.0], temperature=temperature, top_p=0.5, min_p=0.1)
    assert shares.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("knobs", "left"),
    [
        ({"top_k": 1}, [0]),
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 500}, [0, 1, 2, 3]),
        ({"top_p": 0.39}, [0]),
        ({"top_p": 0.41}, [0, 1]),
        ({"top_p": 1e-9}, [0]),
        ({"min_p": 0.4}, [0, 1, 2]),
        ({"min_p": 0.9}, [0]),
        ({"min_p": 0.6, "top_p": 0.6}, [0, 1]),  # 0.4 and 0.3 are left, and 0.4 alone is 57 %
        ({"top_k": 3, "top_p": 0.75}, [0, 1]),  # of 0.4, 0.3 and 0.2 the first two are 78 %
    ],
)
def test_the_filters_leave_the_likeliest_events(knobs, left):
    shares = drawn(np.log([0.4, 0.3, 0.2, 0.1]), temperature=1.0, **knobs)
    assert np.flatnonzero(shares).tolist() == left


def test_what_the_grammar_forbids_takes_no_part_in_the_filters():
    logits = np.array([[9.0, 1.0, 0.0, -1.0]])
    masked = np.where([False, True, True, True], logits, -np.inf)
    assert survivors(masked, SamplingConfig(min_p=0.9))[0][0] > 0.0
    assert drawn(masked[0], top_k=1).tolist() == [0, 1, 0, 0]


def test_a_near_tie_is_told():
    noise = np.zeros((3, 3))
    logits = np.array([[1.0, 1.00001, 0.0], [1.0, 2.0, 0.0], [1.0, -np.inf, -np.inf]])
    assert draw(logits, GREEDY, noise)[1].tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("knobs", "sure"),
    [
        ({"top_k": 1}, True),
        ({"top_k": 2}, True),  # the second is far from the third
        ({"top_k": 3}, False),  # the third and the fourth could change places
        ({"top_p": 0.5}, True),
        ({"top_p": 1 / 1.4}, False),  # is the first alone this much of it, or is it not
        ({"min_p": 0.399995}, False),
        ({"min_p": 0.3}, True),
    ],
)
def test_an_event_at_the_edge_of_a_filter_is_in_doubt(knobs, sure):
    logits = np.log([[1.0, 0.4, 1e-7, 1e-7]])
    noise = np.zeros((1, 4))
    noise[0, 1] = 2.0  # the second is drawn if it may be
    if knobs == {"top_k": 3}:
        noise[0, 2] = 30.0
    sampling = SamplingConfig(**{"temperature": 1.0, "min_p": 0.0, **knobs})
    assert draw(logits, sampling, noise)[1].tolist() == [sure]


def test_what_only_rounding_could_let_through_is_not_drawn():
    logits, noise = np.array([[1.0, 0.99995, 0.0]]), np.array([[0.0, 5.0, 0.0]])
    ids, sure = draw(logits, SamplingConfig(top_k=1), noise)
    assert (ids.tolist(), sure.tolist()) == ([0], [False])


def test_a_network_that_gives_no_numbers_is_told():
    with pytest.raises(InputError, match="checkpoint is damaged"):
        draw(np.array([[np.nan, 1.0]]), PLAIN, np.zeros((1, 2)))


# --- temperatures of their own -------------------------------------------------------------------

KINDS = {
    "pitch_temperature": slice(0, NOTE_OFF),
    "time_temperature": slice(TIME_SHIFT, VELOCITY),
    "velocity_temperature": slice(VELOCITY, EOS),
}
warm = st.sampled_from([0.05, 0.3, 0.9, 1.0, 1.7, 10.0])
own = st.sampled_from([0.0, 0.05, 0.5, 1.0, 2.0, 10.0])


def softmax(logits: Floats) -> Floats:
    weights: Floats = np.exp(logits - logits.max())
    return weights / weights.sum()


def some_logits(seed: int, share_allowed: float = 0.5) -> Floats:
    """Logits (1, V), of which some are forbidden, whole kinds among them."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((1, VOCAB_SIZE))
    logits[0, rng.random(VOCAB_SIZE) > share_allowed] = -np.inf
    for kind in KINDS.values():
        if rng.random() < 0.2:
            logits[0, kind] = -np.inf
    logits[0, NOTE_OFF + 5] = 0.0
    return logits


@given(seed=st.integers(0, 999), heat=warm, pitch=own, time=own, velocity=own)
def test_a_kind_is_as_likely_as_before_and_its_events_have_their_own_temperature(
    seed: int, heat: float, pitch: float, time: float, velocity: float
) -> None:
    logits = some_logits(seed)
    own = dict(zip(KINDS, (pitch, time, velocity), strict=True))
    found = np.exp(two_stage(logits, SamplingConfig(temperature=heat, min_p=0.0, **own)))[0]
    plain = softmax(logits[0] / heat)
    assert found.sum() == pytest.approx(1.0)
    rest = np.ones(VOCAB_SIZE, bool)
    for name, kind in KINDS.items():
        rest[kind] = False
        assert found[kind].sum() == pytest.approx(plain[kind].sum(), abs=1e-12)
        if plain[kind].sum() > 1e-200:
            within = softmax(logits[0, kind] / (own[name] or heat))
            assert found[kind] / found[kind].sum() == pytest.approx(within)
    assert found[rest] == pytest.approx(plain[rest])


def test_events_are_drawn_as_often_as_the_two_stages_say() -> None:
    logits = np.full(VOCAB_SIZE, -np.inf)
    logits[[60, 64, TIME_SHIFT, TIME_SHIFT + 9]] = np.log([0.3, 0.2, 0.4, 0.1])
    shares = drawn(logits.tolist(), temperature=1.0, pitch_temperature=0.5, time_temperature=2.0)
    expected = [0.5 * 9 / 13, 0.5 * 4 / 13, 0.5 * 2 / 3, 0.5 * 1 / 3]
    assert shares[[60, 64, TIME_SHIFT, TIME_SHIFT + 9]] == pytest.approx(expected, abs=0.03)


def test_an_own_temperature_of_0_and_one_that_is_the_same_change_nothing() -> None:
    rng = np.random.default_rng(0)
    logits = np.concatenate([some_logits(seed) for seed in range(50)])
    noise = rng.gumbel(size=logits.shape)
    plain, sure = draw(logits, SamplingConfig(0.9), noise)
    same = SamplingConfig(0.9, time_temperature=0.9, pitch_temperature=0.0)
    ids, as_sure = draw(logits, same, noise)
    assert (ids == plain).all()
    assert (as_sure == sure).all()


def test_temperature_0_ignores_the_temperatures_of_the_kinds() -> None:
    logits = some_logits(3)
    hot = SamplingConfig(temperature=0, pitch_temperature=5.0, time_temperature=5.0)
    ids, _ = draw(logits, hot, np.random.default_rng(0).gumbel(size=logits.shape))
    assert ids == draw(logits, GREEDY, np.zeros((1, 1)))[0]


def test_where_a_kind_is_sharpened_a_near_tie_is_wider() -> None:
    logits = np.full((1, VOCAB_SIZE), -np.inf)
    logits[0, [60, 64]] = [1.0, 1.0004]
    noise = np.zeros((1, VOCAB_SIZE))
    assert draw(logits, PLAIN, noise)[1].tolist() == [True]
    sharp = SamplingConfig(**{**asdict(PLAIN), "pitch_temperature": 0.1})
    # 0.004 apart now, but logits that differ by NEAR_TIE would differ by ten times that here
    assert draw(logits, sharp, noise)[1].tolist() == [True]
    logits[0, 64] = 1.00005
    assert draw(logits, sharp, noise)[1].tolist() == [False]


def test_no_pitch_gets_hotter_when_only_the_timing_does() -> None:
    logits = some_logits(5, 1.0)
    cool, hot = (
        np.exp(two_stage(logits, SamplingConfig(1.0, time_temperature=heat)))[0]
        for heat in (0.5, 3.0)
    )
    assert np.allclose(cool[:TIME_SHIFT], hot[:TIME_SHIFT])
    entropy = [
        -(p * np.log(p)).sum() for p in (cool[TIME_SHIFT:VELOCITY], hot[TIME_SHIFT:VELOCITY])
    ]
    assert entropy[0] < entropy[1]


@pytest.mark.parametrize(
    "knobs",
    [
        {"temperature": 0.7, "min_p": 0.05},
        {"temperature": 1.3, "top_k": 3, "min_p": 0.0},
        {"temperature": 1.0, "top_p": 0.6, "min_p": 0.0},
        {"temperature": 0.0},
        {"temperature": 0.9, "pitch_temperature": 0.4, "min_p": 0.1},
    ],
    ids=str,
)
def test_how_likely_an_event_is_said_to_be_is_how_often_it_is_drawn(knobs: dict[str, Any]) -> None:
    sampling, n_draws = SamplingConfig(**knobs), 4000
    logits = np.full((1, VOCAB_SIZE), -np.inf)
    logits[0, [60, 62, 64, 256, 300, 380]] = [1.0, 0.2, -1.0, 0.8, 0.0, -3.0]
    said = probabilities(logits, sampling)[0]
    noise = np.random.default_rng(1).gumbel(size=(n_draws, VOCAB_SIZE))
    ids, _ = draw(np.repeat(logits, n_draws, axis=0), sampling, noise)
    drawn = np.bincount(ids, minlength=VOCAB_SIZE) / n_draws
    assert np.abs(drawn - said).max() < 0.03
    assert ((drawn > 0) <= (said > 0)).all()
    assert said.sum() == pytest.approx(1.0)
