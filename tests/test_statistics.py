"""Statistics of music: worked by hand, or counted plainly."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from small import melody

from music_gpt.metrics.statistics import (
    GRID,
    agreement,
    compare,
    density,
    divergence,
    means,
    overlap_area,
    statistics,
)
from music_gpt.midi.piece import make_notes
from music_gpt.notes import Notes

CHORD = make_notes(
    # C major chord for a second, an octave above it one note for half a second, half a second rest
    [(0.0, 1.0, 60, 40), (0.0, 1.0, 64, 60), (0.0, 1.0, 67, 80), (1.5, 2.0, 72, 100)]
)


def one(notes: Notes, name: str, seconds: float = 2.0) -> float:
    (value,) = statistics(notes, seconds)[name]
    return float(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pitch_range", 12),
        ("n_pitches_used", 4),
        ("n_pitch_classes_used", 3),
        ("polyphony", (100 * 3 + 50 * 1) / 150),  # frames in which something sounds
        ("polyphony_rate", 100 / 200),  # frames with more than two pitches, of all
        ("pitch_entropy", 2.0),  # four pitches, once each
        ("pitch_class_entropy", 1.5),  # 1/2, 1/4, 1/4
        ("scale_consistency", 1.0),
        ("notes_per_second", 2.0),
        ("inter_onset_interval", 1.5),
        ("note_length", 0.875),
        ("velocity", 70.0),
    ],
)
def test_a_chord_and_a_note_have_the_numbers_worked_by_hand(name: str, value: float) -> None:
    assert one(CHORD, name) == pytest.approx(value)


def test_the_histograms_of_a_chord_and_a_note_are_those_worked_by_hand() -> None:
    found = statistics(CHORD, 2.0)
    classes = dict(enumerate(found["pitch_class_histogram"].tolist()))
    assert {k: v for k, v in classes.items() if v} == {0: 0.5, 4: 0.25, 7: 0.25}
    velocities = found["velocity_histogram"]  # eight MIDI velocities a bin
    assert np.flatnonzero(velocities).tolist() == [40 // 8, 60 // 8, 80 // 8, 100 // 8]
    lengths = found["note_length_histogram"]
    assert sorted(lengths[lengths > 0].tolist()) == [0.25, 0.75]
    assert all(found[name].sum() == pytest.approx(1) for name in found if "histogram" in name)


def test_a_chromatic_scale_fits_no_key_better_than_seven_twelfths() -> None:
    scale = make_notes((0.1 * i, 0.1 * i + 0.1, 60 + i, 64) for i in range(12))
    assert one(scale, "scale_consistency") == pytest.approx(7 / 12)
    assert one(scale, "pitch_class_entropy") == pytest.approx(math.log2(12))


def test_repetition_is_the_share_of_figures_that_came_before() -> None:
    def of(pitches: list[int]) -> float:
        rows = ((0.1 * i, 0.1 * i + 0.1, p, 64) for i, p in enumerate(pitches))
        return one(make_notes(rows), "repetition")

    figure = [60, 62, 64, 65, 67, 69, 71, 72]
    assert of(figure) == 0.0
    assert of(figure * 2) == pytest.approx(1 / 9)  # of nine figures the last is the first
    assert of([60] * 30) == pytest.approx(22 / 23)


@pytest.mark.parametrize("seed", range(4))
def test_the_polyphony_is_that_of_a_piano_roll(seed: int) -> None:
    notes = melody(seed, 80)
    sounding: dict[int, set[int]] = {}
    for note in notes:
        for frame in range(round(note["start"] * 100), round(note["end"] * 100)):
            sounding.setdefault(frame, set()).add(int(note["pitch"]))
    counts = [len(pitches) for pitches in sounding.values()]
    n_frames = round(notes["end"].max() * 100)
    assert one(notes, "polyphony") == pytest.approx(sum(counts) / len(counts))
    assert one(notes, "polyphony_rate") == pytest.approx(sum(n > 2 for n in counts) / n_frames)


@pytest.mark.parametrize("seed", range(4))
def test_the_entropies_are_those_of_plain_counts(seed: int) -> None:
    pitches = melody(seed, 80)["pitch"].tolist()

    def entropy(values: list[int]) -> float:
        shares = [n / len(values) for n in Counter(values).values()]
        return -sum(p * math.log2(p) for p in shares)

    assert one(melody(seed, 80), "pitch_entropy") == pytest.approx(entropy(pitches))
    of_classes = entropy([p % 12 for p in pitches])
    assert one(melody(seed, 80), "pitch_class_entropy") == pytest.approx(of_classes)


def test_silence_has_no_statistics_but_its_density() -> None:
    found = statistics(make_notes([]), 30.0)
    known = {name for name, value in found.items() if np.isfinite(value).all()}
    assert known == {"n_pitches_used", "n_pitch_classes_used", "notes_per_second"}


# --- sets of passages -------------------------------------------------------------------------


def plain_density(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The sum of a bell for each value; its width is by Scott's rule."""
    width = np.std(values, ddof=1) * len(values) ** (-1 / 5)
    bells = np.exp(-0.5 * ((points[:, None] - values) / width) ** 2)
    return bells.sum(1) / (len(values) * width * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("dims", [1, 12])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_agreement_is_that_of_plain_densities_of_all_distances(dims: int, shift: float) -> None:
    rng = np.random.default_rng(dims)
    real, made = rng.normal(0, 1, (25, dims)), rng.normal(shift, 1.5, (18, dims))
    inside = np.array(
        [math.dist(a, b) for i, a in enumerate(real) for j, b in enumerate(real) if i != j]
    )
    across = np.array([math.dist(a, b) for a in real for b in made])
    points = np.linspace(min(inside.min(), across.min()), max(inside.max(), across.max()), 5000)
    p, q = plain_density(inside, points), plain_density(across, points)
    found = agreement(real, made)
    assert found.overlap == pytest.approx(np.trapezoid(np.minimum(p, q), points), abs=1e-3)
    p, q = p / p.sum(), q / q.sum()
    assert found.divergence == pytest.approx((p * np.log(p / q)).sum(), abs=1e-3)


def test_a_set_agrees_less_with_another_the_farther_that_is_away() -> None:
    rng = np.random.default_rng(1)
    real = rng.normal(0, 1, (40, 1))
    found = [agreement(real, rng.normal(far, 1, (40, 1))) for far in (0, 2, 8)]
    assert found[0].overlap > 0.9 > found[1].overlap > 0.2 > found[2].overlap
    assert found[0].divergence < 0.1 < found[1].divergence < found[2].divergence


def test_sets_without_any_spread_agree_wholly_or_next_to_not_at_all() -> None:
    twelve, seven = np.full((9, 1), 12.0), np.full((9, 1), 7.0)
    assert agreement(twelve, twelve).overlap == 1.0
    assert agreement(twelve, twelve).divergence == 0.0
    assert agreement(twelve, seven).overlap < 0.01
    assert agreement(twelve, seven).divergence > 1


def test_too_few_passages_agree_in_nothing_that_can_be_told() -> None:
    assert math.isnan(agreement(np.zeros((1, 1)), np.zeros((5, 1))).overlap)
    assert math.isnan(agreement(np.zeros((5, 1)), np.zeros((0, 1))).divergence)


def test_equal_densities_overlap_wholly() -> None:
    values = np.random.default_rng(2).normal(0, 1, 1000)
    smooth = density(values, -8.0, 8.0)
    assert overlap_area(smooth, smooth, 16 / (GRID - 1)) == pytest.approx(1.0, abs=1e-3)
    assert divergence(smooth, smooth) == 0.0


def test_passages_are_compared_statistic_by_statistic() -> None:
    real = [statistics(melody(seed, 60), 18.0) for seed in range(12)]
    slow = [melody(seed, 60) for seed in range(20, 32)]
    for notes in slow:
        notes["start"] *= 3
        notes["end"] *= 3
    found = compare(real, [statistics(notes, 54.0) for notes in slow])
    assert found.keys() == real[0].keys()
    assert found["pitch_entropy"].overlap > 0.5 > found["note_length"].overlap


def test_a_passage_without_notes_is_left_out_of_the_means() -> None:
    passages = [statistics(CHORD, 2.0), statistics(make_notes([]), 2.0)]
    found = means(passages)
    assert found["velocity"] == pytest.approx(70.0)
    assert found["notes_per_second"] == pytest.approx(1.0)
    assert "velocity_histogram" not in found
