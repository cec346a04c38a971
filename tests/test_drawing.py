"""The drawings of the reports show what the numbers say."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.report.drawing import (
    CURVE_LEFT,
    MOST_POINTS,
    WIDTH,
    Curve,
    bars,
    curves,
    piano_roll,
)


def points_of(svg: str, kind: str) -> list[tuple[float, float]]:
    [path] = re.findall(rf'<path class="curve {kind}" d="M([^"]*)"', svg)
    return [(float(x), float(y)) for x, y in (point.split() for point in path.split("L"))]


def two_notes() -> Notes:
    return np.array([(0.0, 1.0, 60, 127), (1.0, 2.0, 64, 127)], NOTE_DTYPE)


# --- bars and curves --------------------------------------------------------------------------


def test_the_tallest_bar_is_the_greatest_number() -> None:
    svg = bars([1, 4, 2], ["a", "b", "c"], {}, "heights")
    heights = [float(part.split('"')[0]) for part in svg.split('height="')[1:]]
    assert heights == [34.0, 136.0, 68.0]


def test_a_curve_goes_from_left_to_right_and_its_greatest_number_is_on_top() -> None:
    svg = curves([Curve("train", [1, 2, 4], [2.0, 5.0, 3.0])], "loss", str, str)
    points = points_of(svg, "train")
    assert [x for x, _ in points] == [
        CURVE_LEFT + (WIDTH - CURVE_LEFT) * s for s in (1 / 4, 1 / 2, 1)
    ]
    tops = [y for _, y in points]
    assert tops[1] < tops[2] < tops[0]


def test_curves_share_their_axes_and_leave_out_what_was_not_measured() -> None:
    lines = [
        Curve("train", [1, 2, 3], [3.0, 2.0, 1.0]),
        Curve("validation", [1, 2, 3], [math.nan, 2.0, 1.0]),
    ]
    svg = curves(lines, "loss", str, str)
    assert points_of(svg, "validation") == points_of(svg, "train")[1:]
    assert "nan" not in svg


def test_the_fall_at_the_beginning_does_not_press_the_rest_flat() -> None:
    y = [100.0, *(2.0 - 0.001 * i for i in range(100))]
    tops = [
        top for _, top in points_of(curves([Curve("train", range(101), y)], "", str, str), "train")
    ]
    assert tops[0] == min(tops)
    assert tops[-1] - tops[10] > 50


def test_long_curves_are_drawn_by_means() -> None:
    y = [float(i % 2) for i in range(20 * MOST_POINTS)]
    line = Curve("train", [float(i) for i in range(len(y))], y)
    means = line.thinned()[1]
    assert len(means) == MOST_POINTS
    assert set(means.tolist()) == {0.5}


@pytest.mark.parametrize("values", [[], [math.nan], [0.0], [2.5, 2.5], [-1.0, -3.0]])
def test_curves_of_little_are_drawn_too(values: list[float]) -> None:
    svg = curves([Curve("train", range(len(values)), values)], "little", str, str)
    assert svg.startswith("<svg")
    assert "nan" not in svg


def test_from_zero_shows_how_great_a_change_is() -> None:
    line = Curve("train", [1, 2], [99.0, 100.0])
    low, high = (
        points_of(curves([line], "", str, str, from_zero=zero), "train")[0][1]
        for zero in (False, True)
    )
    assert low > 100 > 20 > high


# --- piano rolls ------------------------------------------------------------------------------


def test_louder_notes_are_drawn_darker() -> None:
    notes = two_notes()
    notes["velocity"] = [1, 127]
    svg = piano_roll(notes, "two notes")
    assert 'note shade0" d="M' in svg
    assert 'note shade3" d="M' in svg
    assert 'shade1" d="M' not in svg


def test_notes_from_the_seam_on_are_new() -> None:
    svg = piano_roll(two_notes(), "two notes", seconds=2.0, seam_seconds=1.0)
    assert re.findall(r'<path class="note( new)? shade3" d="([^"]*)"', svg) != []
    assert svg.count("note shade3") == svg.count("note new shade3") == 1
