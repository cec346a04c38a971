"""What counts as a loop, and as stuck: the detectors find what they look for, and nothing else."""

from __future__ import annotations

import numpy as np

from music_gpt.metrics.loops import LOOP_EVENTS, has_loop, is_stuck, looping
from music_gpt.midi.piece import make_notes
from music_gpt.notes import Notes
from music_gpt.tokens.events import encode_notes


def test_a_stretch_that_says_again_what_stands_before_it_is_a_loop() -> None:
    rng = np.random.default_rng(0)
    own, figure = rng.integers(0, 390, 300), rng.integers(0, 390, 40)
    assert not has_loop(own, 32)
    assert has_loop(np.concatenate([own, figure, figure]), 32)
    assert not has_loop(np.concatenate([own, figure, figure[:31]]), 32)
    assert not has_loop(np.concatenate([figure, own, figure]), 32)  # it came back later
    assert has_loop(np.array([60] * 33), 32)
    assert not has_loop(np.array([60]), 32)


def line(pitches: list[int], seconds: float) -> Notes:
    return make_notes([(i * seconds, i * seconds + 0.1, p, 64) for i, p in enumerate(pitches)])


def test_music_is_stuck_where_a_figure_goes_round_but_for_a_note_here_and_there() -> None:
    rng = np.random.default_rng(0)
    own = rng.integers(40, 80, 60).tolist()
    bass = [38 if place % 12 == 11 else 37 for place in range(40)]
    assert is_stuck(line([*own, *bass, *own], 1.0))
    assert is_stuck(line([*own, *[60, 62] * 60, *own], 0.1))
    assert not is_stuck(line([*own, *[60, 62] * 30, *own], 0.1))  # a trill of six seconds
    assert not is_stuck(line(own, 1.0))
    assert not is_stuck(line([*own, 60, 60, 60, *own], 4.0))
    assert not is_stuck(line([60], 1.0))


def test_all_kinds_are_told_in_their_order() -> None:
    own = np.random.default_rng(0).integers(40, 80, 60).tolist()
    assert looping(line(own, 0.2)) == (False, False, False)
    assert looping(line([*own, *own, *own], 0.2)) == (True, True, False)
    assert len(encode_notes(line(own, 0.2))) >= LOOP_EVENTS
    assert looping(line([*own, *[60, 62] * 60], 0.1)) == (True, True, True)
    assert looping(line([*own, *[60] * 10], 1.0)) == (False, False, True)
