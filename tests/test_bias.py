"""A key and a density lean on the music: it moves their way, and without them it is as before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from odd_engines import MadEngine, take_ids

from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation import bias
from music_gpt.generation.bias import (
    CROWD_NATS,
    CROWDED,
    FEWEST_REPEATED,
    MEMORY_SECONDS,
    PITCHES_PER_NAT,
    SECONDS_PER_NAT,
    STALE_RUN,
    STALE_SECONDS,
    Crowd,
    Figures,
    Leaning,
)
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.keys import MAJOR, MINOR, scale
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, VOCAB_SIZE, decode_ids

SEEDS = (1, 2, 3, 4)


def music(**knobs: Any) -> list[Any]:
    """Notes of four takes of 20 seconds of a network that knows no music."""
    sampling = SamplingConfig(temperature=1.0, min_p=0.0, **knobs)
    engine = MadEngine(spread=1.0, kinds=[0, 0, 0.5, 0, 0])
    return [decode_ids(ids) for ids in take_ids(engine, 20.0, SEEDS, sampling)]


def share_in_key(takes: list[Any], key: str) -> float:
    kept = scale(key)
    assert kept is not None
    pitches = np.concatenate([notes["pitch"] for notes in takes])
    return float(np.mean([pitch % 12 in kept for pitch in pitches]))


def notes_per_second(takes: list[Any]) -> float:
    return sum(len(notes) for notes in takes) / (20.0 * len(takes))


@pytest.mark.parametrize(
    ("name", "tonic", "steps"),
    [
        *[("C", 0, MAJOR), ("a", 9, MINOR), ("F# minor", 6, MINOR), ("Bb", 10, MAJOR)],
        *[("b", 11, MINOR), ("bb", 10, MINOR), ("B", 11, MAJOR), ("Am", 9, MINOR)],
        *[("e major", 4, MAJOR), ("E♭ Minor", 3, MINOR), ("Cb", 11, MAJOR), (" g maj ", 7, MAJOR)],
        *[("F♯", 6, MAJOR), ("Fis-Moll", 6, MINOR), ("H-Dur", 11, MAJOR), ("a-Moll", 9, MINOR)],
        *[("B-Dur", 10, MAJOR), ("b-moll", 10, MINOR), ("Es-Dur", 3, MAJOR), ("as moll", 8, MINOR)],
        *[
            ("Ces-Dur", 11, MAJOR),
            ("DES-DUR", 1, MAJOR),
            ("C♯-Moll", 1, MINOR),
            ("B♭-Dur", 10, MAJOR),
        ],
    ],
)
def test_a_key_has_the_notes_of_its_scale(name: str, tonic: int, steps: tuple[int, ...]) -> None:
    assert scale(name) == {(tonic + step) % 12 for step in steps}


@pytest.mark.parametrize(
    "name", ["", "H", "C##", "minor", "c dorian", "7", "Cis", "x minor", "Ds-Dur", "Bis-Dur"]
)
def test_what_is_no_key_is_none(name: str) -> None:
    assert scale(name) is None


@pytest.mark.parametrize("key", ["C", "f# minor"])
def test_a_key_draws_the_notes_into_its_scale(key: str) -> None:
    free, leaning = share_in_key(music(), key), share_in_key(music(key=key), key)
    firm = share_in_key(music(key=key, key_strength=6.0), key)
    assert free + 0.1 < leaning < firm
    assert firm > 0.97


def test_a_density_draws_the_notes_per_second_towards_it() -> None:
    free = notes_per_second(music())
    thin, thick = (notes_per_second(music(density=free * way)) for way in (0.4, 2.5))
    assert thin < 0.8 * free < 1.2 * free < thick
    firm = notes_per_second(music(density=free * 0.4, density_strength=6.0))
    assert abs(firm - 0.4 * free) < abs(thin - 0.4 * free)


@pytest.mark.parametrize(
    "off",
    [{"key": "", "density": 0.0}, {"key": "C", "key_strength": 0}, {"density_strength": 0.0}],
    ids=str,
)
def test_without_a_wish_the_music_is_the_same_to_the_note(off: dict[str, Any]) -> None:
    assert [n.tolist() for n in music(**off)] == [n.tolist() for n in music()]


def test_the_lean_is_bounded_and_none_at_the_density_that_is_aimed_at() -> None:
    sampling = SamplingConfig(density=4.0, density_strength=1.5)
    leaning = Leaning(sampling, 2)
    going = np.array([True, True])
    assert not leaning.bias(going).any()
    for _ in range(60):  # one take strikes on and on, the other waits
        leaning.advance(np.array([60, TIME_SHIFT + 99]))
    crowded, sparse = leaning.bias(going)
    assert crowded[60] == crowded[VELOCITY] == -1.5
    assert (crowded[TIME_SHIFT], crowded[VELOCITY - 1]) == (pytest.approx(0.03), 1.5)
    assert (sparse[60], sparse[VELOCITY - 1]) == (1.5, -1.5)
    assert not crowded[NOTE_OFF:TIME_SHIFT].any()
    assert crowded[EOS] == 0
    assert not leaning.bias(~going).any()
    assert (leaning.pick([1]).bias(going[:1]) == sparse).all()


def test_a_steady_density_is_measured_as_what_it_is() -> None:
    leaning = Leaning(SamplingConfig(density=1.0), 1)
    for _ in range(200):
        leaning.advance(np.array([60]))
        leaning.advance(np.array([TIME_SHIFT + 24]))
    # just before a note, four a second seem half a note fewer
    assert leaning._rate.per_second[0] == pytest.approx(4.0 - 0.5 / MEMORY_SECONDS, abs=0.02)


def crowd_leans(notes_per_second: list[int]) -> Any:
    """What is added after ten seconds at these rates, one take for each."""
    crowd, n_takes = Crowd(len(notes_per_second)), len(notes_per_second)
    for frame in range(1000):
        striking = [frame % 100 < notes for notes in notes_per_second]
        crowd.advance(np.array([60 if strikes else NOTE_OFF + 60 for strikes in striking]))
        crowd.advance(np.full(n_takes, TIME_SHIFT))
    added = np.zeros((n_takes, VOCAB_SIZE))
    crowd.lean(added)
    return added


def test_more_notes_than_a_pianist_plays_become_less_likely_up_to_a_bound() -> None:
    usual, crowded, mad = crowd_leans([round(CROWDED) - 3, round(CROWDED) + 7, 90])
    assert not usual.any()
    assert -CROWD_NATS <= mad[60] < crowded[60] < 0
    assert mad[60] == mad[VELOCITY] == -CROWD_NATS
    assert mad[TIME_SHIFT + 99] == CROWD_NATS > mad[TIME_SHIFT] > 0
    assert not mad[NOTE_OFF:TIME_SHIFT].any()


class CrowdingEngine(MadEngine):
    """A network that waits for hundredths of a second only."""

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        logits = super().logits(ids)
        logits[TIME_SHIFT:VELOCITY] = 6.0 - 2 * np.log(np.arange(1, 101))
        logits[NOTE_OFF:TIME_SHIFT] += 6.0
        logits[:NOTE_OFF] += 3.0
        return logits


def test_a_network_that_crowds_notes_is_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = CrowdingEngine(spread=1.0)
    sampling = SamplingConfig(temperature=1.0, min_p=0.0)
    thinned = [decode_ids(ids) for ids in take_ids(engine, 20.0, SEEDS, sampling)]
    monkeypatch.setattr(bias, "CROWDED", 1e9)
    crowded = [decode_ids(ids) for ids in take_ids(engine, 20.0, SEEDS, sampling)]
    assert notes_per_second(crowded) > 1.5 * CROWDED
    assert notes_per_second(thinned) < 1.2 * CROWDED


def test_a_density_may_be_higher_than_what_a_pianist_plays() -> None:
    sampling = SamplingConfig(density=50.0)
    grammar = Grammar(Start(), Ending.after(0, 60.0), sampling, 1)
    for _ in range(100):
        grammar.advance(np.array([60]))
    plain = Leaning(sampling, 1)
    for _ in range(100):
        plain.advance(np.array([60]))
    # figures lean as well: 61 is in none
    assert grammar.bias()[0, 61] == plain.bias([True])[0, 61]


def test_a_wish_leans_on_the_grammar_until_the_end_is_near() -> None:
    ending = Ending.after(0, 20.0)
    sampling = SamplingConfig(key="C", key_strength=3.0, density=5.0)
    grammar = Grammar(Start(frame=ending.fade - 300), ending, sampling, 1)
    for event in (VELOCITY, 60, TIME_SHIFT + 99, TIME_SHIFT + 99):
        grammar.advance(np.array([event]))
    bias = grammar.bias()[0]
    assert bias[62] > 0
    assert bias[61] == pytest.approx(bias[62] - 3.0)
    for event in (TIME_SHIFT + 99, TIME_SHIFT + 99):
        grammar.advance(np.array([event]))
    bias = grammar.bias()[0]
    assert bias[62] < 0
    assert bias[61] == pytest.approx(bias[62] - 3.0)  # the key is kept to the end


# --- figures that go stale -----------------------------------------------------------------------


def leans(figures: Figures, n_takes: int = 1) -> np.ndarray:
    bias = np.zeros((n_takes, VOCAB_SIZE))
    figures.lean(bias)
    return bias


@pytest.mark.parametrize("figure", [[60], [60, 62], [48, 55, 64, 67, 72, 67, 64, 55]], ids=str)
def test_a_figure_that_goes_round_and_round_grows_stale_whatever_its_timing(
    figure: list[int],
) -> None:
    rng = np.random.default_rng(0)
    figures, nats = Figures(1), []
    for place in range(100):
        pitch = figure[place % len(figure)]
        nats.append(-leans(figures)[0, pitch])
        for event in (rng.integers(VELOCITY, EOS), pitch, TIME_SHIFT + rng.integers(0, 5)):
            figures.advance(np.array([event]))
    stale = STALE_RUN + len(figure)
    assert not any(nats[: stale + 1])
    assert nats[stale + PITCHES_PER_NAT] == pytest.approx(1.0)
    assert nats[99] == pytest.approx((99 - stale) / PITCHES_PER_NAT)
    assert np.count_nonzero(leans(figures)) == 1


def test_a_melody_or_a_longer_figure_does_not_grow_stale() -> None:
    rng = np.random.default_rng(0)
    for pattern in (rng.integers(0, 128, 400).tolist(), list(range(17)) * 20):
        figures = Figures(1)
        for pitch in pattern:
            struck(figures, pitch, 0.6)
            assert not leans(figures).any()


def struck(figures: Figures, pitch: int, seconds: float) -> None:
    """A note, and the time to the next."""
    figures.advance(np.array([pitch]))
    for _ in range(round(seconds / 0.1)):
        figures.advance(np.array([TIME_SHIFT + 9]))


@pytest.mark.parametrize("figure", [[37], [64, 76], [69, 72, 64, 76]], ids=str)
def test_a_slow_figure_grows_stale_by_the_time_it_takes(figure: list[int]) -> None:
    figures, nats = Figures(1), []
    for place in range(24):
        pitch = figure[place % len(figure)]
        nats.append(-leans(figures)[0, pitch])
        struck(figures, pitch, 1.0)
    rounds = max(2 * len(figure), FEWEST_REPEATED)
    assert not any(nats[: len(figure) + rounds])
    # the note that has just come is `len(figure)` notes later than what it repeats
    assert nats[20] == pytest.approx((21 - len(figure) - STALE_SECONDS) / SECONDS_PER_NAT)


def test_a_figure_that_is_broken_by_a_note_here_and_there_grows_stale_too() -> None:
    figures, stale, fast, fast_stale = Figures(1), [], Figures(1), []
    for place in range(80):
        pitch = 38 if place % 12 == 11 else 37  # what a network did with a bass note
        stale.append(-leans(figures)[0, 37])
        struck(figures, pitch, 1.0)
        fast_stale.append(-leans(fast).min())
        struck(fast, 90 if place % 20 == 19 else 60 + place % 4, 0.1)
    assert np.median(stale[40:]) > 2.0
    assert max(fast_stale) > 0.2


def test_notes_that_are_repeated_under_a_melody_hardly_grow_stale() -> None:
    rng = np.random.default_rng(0)
    figures, worst = Figures(1), 0.0
    for place in range(400):
        if place % 4 == 0:
            struck(figures, int(rng.integers(60, 90)), 0.0)
        worst = max(worst, -leans(figures).min())
        struck(figures, 56, 0.25)
    assert worst < 1.0


def test_a_figure_becomes_fresh_again_with_other_notes() -> None:
    figures = Figures(1)
    for _ in range(60):
        struck(figures, 60, 0.3)
    before = -leans(figures)[0, 60]
    for pitch in range(30, 40):
        struck(figures, pitch, 0.3)
    assert before > 5.0
    assert not leans(figures).any()


def test_each_take_has_figures_of_its_own() -> None:
    figures = Figures(2)
    for place in range(60):
        figures.advance(np.array([60, 30 + place]))
        figures.advance(np.array([TIME_SHIFT, NOTE_OFF + 30 + place]))
    bias = leans(figures, 2)
    assert bias[0, 60] < 0
    assert not bias[1].any()
    assert (leans(figures.pick([0])) == bias[:1]).all()
