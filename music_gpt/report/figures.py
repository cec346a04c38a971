"""A figure -> how far it covers each pixel: for pictures, which bring no font."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import numpy.typing as npt

LETTER = 20
"""Height of a figure, in pixels."""
Stroke = list[tuple[float, float]]


def _arc(x: float, y: float, across: float, up: float, first: int, last: int) -> Stroke:
    """Points of a part of an ellipse around (x, y), in degrees clockwise from the right."""
    turns = np.radians(np.linspace(first, last, 25))
    return [(x + across * math.cos(turn), y + up * math.sin(turn)) for turn in turns.tolist()]


STROKES: dict[str, tuple[Stroke, ...]] = {
    "0": (_arc(2, 3, 2, 3, 0, 360),),
    "1": ([(0.6, 1.3), (2.3, 0), (2.3, 6)],),
    "2": ([*_arc(2, 1.8, 1.9, 1.8, 185, 395), (0.1, 6), (4, 6)],),
    "3": (_arc(1.9, 1.5, 1.7, 1.5, 205, 450), _arc(1.9, 4.5, 2, 1.5, 270, 515)),
    "4": ([(3, 6), (3, 0), (0, 4.3), (4, 4.3)],),
    "5": ([(3.6, 0), (0.7, 0), (0.4, 2.7), *_arc(1.9, 4.1, 2.1, 1.9, 230, 510)],),
    "6": (_arc(2, 4.1, 1.9, 1.9, 0, 360), [(0.15, 3.9), (1, 1.8), (2.8, 0)]),
    "7": ([(0, 0), (4, 0), (1.4, 6)],),
    "8": (_arc(2, 1.5, 1.6, 1.5, 0, 360), _arc(2, 4.5, 2, 1.5, 0, 360)),
    "9": (_arc(2, 1.9, 1.9, 1.9, 0, 360), [(3.85, 2.1), (3, 4.2), (1.2, 6)]),
    "C": (_arc(2.3, 3, 2.3, 3, 310, 50),),
    ":": ([(0.5, 2), (0.5, 2)], [(0.5, 5), (0.5, 5)]),
    "-": ([(0.5, 3.4), (2.5, 3.4)],),
}
"""How each figure is written, in a box 6 high."""
PEN, SPACE, AIR = 0.62, 1.5, 1.0
"""Width of the pen and space between figures in the same unit; room around each of them."""


def figure_width(figure: str) -> float:
    """Width of a figure, where its height is 6."""
    return max(x for stroke in STROKES[figure] for x, _ in stroke)


@functools.cache
def figure_cover(figure: str) -> npt.NDArray[np.float32]:
    """How far a figure covers each pixel (h, w, 1), with air around it."""
    unit, strokes = LETTER / 6, [np.array(stroke) for stroke in STROKES[figure]]
    width = max(stroke[:, 0].max() for stroke in strokes)
    size = (math.ceil((6 + 2 * AIR) * unit), math.ceil((width + 2 * AIR) * unit))
    y, x = (np.indices(size) + 0.5) / unit - AIR
    distance = np.full(size, np.inf)
    for stroke in strokes:
        for (x0, y0), (x1, y1) in itertools.pairwise(stroke):
            along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / (
                (x1 - x0) ** 2 + (y1 - y0) ** 2 or 1
            )
            part = np.clip(along, 0, 1)
            away = np.hypot(x - x0 - part * (x1 - x0), y - y0 - part * (y1 - y0))
            distance = np.minimum(distance, away)
    return np.clip((PEN / 2 - distance) * unit + 0.5, 0, 1).astype(np.float32)[:, :, None]
