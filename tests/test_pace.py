"""From the second minute on a take keeps to the pace of its first one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from odd_engines import MadEngine, take_ids

from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation import drift
from music_gpt.generation.drift import Pace
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.tokens.events import NOTE_OFF, TIME_SHIFT, VELOCITY, VOCAB_SIZE, decode_ids

SHORT, USUAL, LONG = TIME_SHIFT + 1, TIME_SHIFT + 9, TIME_SHIFT + 49


def played(pace: Pace, seconds: int, *notes_per_second: int) -> np.ndarray:
    """Strike so many notes a second in each take, for whole seconds: the bias after it."""
    for _ in range(seconds):
        for beat in range(max(notes_per_second)):
            strikes = np.array([beat < n for n in notes_per_second])
            pace.advance(np.where(strikes, 60, NOTE_OFF))
        for _ in range(10):
            pace.advance(np.full(len(notes_per_second), USUAL))
    return lean_of(pace, len(notes_per_second))


def lean_of(pace: Pace, n_takes: int) -> np.ndarray:
    found = np.zeros((n_takes, VOCAB_SIZE))
    pace.lean(found, np.full(n_takes, True))
    return found


def test_in_its_first_minute_a_take_has_the_pace_it_likes() -> None:
    pace = Pace(3)
    for seconds in (20, 20, 20):
        assert not played(pace, seconds, 1, 4, 9).any()


def test_later_a_take_keeps_to_the_pace_of_its_first_minute() -> None:
    pace = Pace(4)
    played(pace, 60, 4, 4, 4, 8)
    steady, slow, fast, other = found = played(pace, 60, 4, 1, 9, 8)
    assert np.abs([steady, other]).max() < 0.2
    assert slow[[SHORT, USUAL, LONG]] == pytest.approx([0.0, -1.0, -2.0])
    assert fast[[SHORT, USUAL, LONG]] == pytest.approx([0.0, 1.0, 2.0])
    assert not found[:, :TIME_SHIFT].any()
    assert not found[:, VELOCITY:].any()
    assert np.abs(played(pace, 120, 4, 4, 4, 8)).max() < 0.4
    assert (lean_of(pace.pick([3]), 1) == lean_of(pace, 4)[3:]).all()


def test_a_rest_of_a_few_seconds_hardly_moves_the_pace() -> None:
    pace = Pace(1)
    before = played(pace, 90, 4)
    for _ in range(4):
        pace.advance(np.array([TIME_SHIFT + 99]))
    assert np.abs(lean_of(pace, 1) - before)[0, USUAL] < 0.6


def test_near_the_end_the_pace_leans_no_more() -> None:
    pace, found = Pace(1), np.zeros((1, VOCAB_SIZE))
    played(pace, 60, 4)
    assert played(pace, 60, 1).any()
    pace.lean(found, np.array([False]))
    assert not found.any()


def last_beside_first_minute(takes: list[list[int]]) -> float:
    """Notes in nearly the last of three minutes for one in the first, of all takes together."""
    starts = np.concatenate([decode_ids(ids)["start"] for ids in takes])
    first, last = (np.sum((starts >= at) & (starts < at + 60)) for at in (0, 115))
    return float(last / first)


def test_a_network_that_tires_is_kept_going(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling, seeds = SamplingConfig(temperature=1.0, min_p=0.0), tuple(range(1, 13))
    takes = take_ids(TiringEngine(), 180.0, seeds, sampling)
    assert takes[1] == take_ids(TiringEngine(), 180.0, seeds[1:2], sampling)[0]
    kept = last_beside_first_minute(takes)
    monkeypatch.setattr(drift, "PACE_NATS", 0.0)
    left = last_beside_first_minute(take_ids(TiringEngine(), 180.0, seeds, sampling))
    assert left < 0.4
    assert kept > 1.7 * left


class TiringEngine(MadEngine):
    """A network that waits the longer the less has happened: left to itself it falls silent."""

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        logits = super().logits(ids)
        logits[:NOTE_OFF] += 0.4  # as many onsets as if each of the 128 pitches could be struck
        waits = [i - TIME_SHIFT + 1 for i in ids[-80:] if TIME_SHIFT <= i < VELOCITY]
        usual = np.exp(np.log(waits[-16:] or [10]).mean()) * 1.01
        logits[TIME_SHIFT:VELOCITY] = 6.0 - np.abs(np.log(np.arange(1, 101) / usual)) * 6
        return logits


def test_a_density_takes_the_place_of_a_takes_own_pace() -> None:
    ending = Ending.after(0, 600.0)
    assert Grammar(Start(), ending, SamplingConfig(density=2.0), 1)._pace is None
    assert Grammar(Start(), ending, SamplingConfig(key="C"), 1)._pace is not None
