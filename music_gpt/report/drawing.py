"""Numbers and notes -> drawings of a report in SVG: bars, curves, and how pieces begin.

They take their colours from the page around them (`music_gpt.report.html`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from music_gpt.keys import pitch_name
from music_gpt.notes import Notes

WIDTH, HEIGHT = 480.0, 170.0
BASE, TOP = 148.0, 12.0
"""Where bars stand, and where the highest one ends."""
LABEL_DROP = 16.0
CURVE_LEFT = 42.0
"""Where curves begin, right of the numbers of their axis."""
MOST_POINTS, MOST_TITLES = 400, 80
"""Points of a curve that are drawn, and that tell their numbers."""
SETTLING_SHARE = 0.05
"""The first part of a curve, which may fall from far above: it does not decide the scale."""
ROLL_WIDTH, ROLL_HEIGHT = 960.0, 150.0
ROLL_LEFT = 24.0
"""Where the notes begin, right of the names of the octaves."""
ROLL_SECONDS = 60.0
"""So much of a piece is drawn, from its beginning."""
N_SHADES = 4
"""A louder note is darker."""
PITCH_MARGIN = 2
BLACK_KEYS = frozenset({1, 3, 6, 8, 10})


def bars(
    values: Sequence[float],
    titles: Sequence[str],
    labels: Mapping[int, str],
    caption: str,
    shades: Sequence[str] | None = None,
) -> str:
    """A bar a value with its title to hover on, and labels under some of the bars' left edges.

    `shades` are further classes of the bars.

    >>> bars([1, 2], ["one", "two"], {0: "from 0"}, "A test").count("<rect")
    2
    """
    step, highest = WIDTH / max(len(values), 1), max([*values, 1e-9])
    gap = min(2.0, 0.2 * step)
    parts = []
    for i, (value, title) in enumerate(zip(values, titles, strict=True)):
        height = (BASE - TOP) * value / highest
        shade = f" {shades[i]}" if shades else ""
        parts.append(
            f'<rect class="bar{shade}" x="{i * step + gap / 2:.1f}" y="{BASE - height:.1f}" '
            f'width="{step - gap:.1f}" height="{height:.1f}"><title>{escape(title)}</title></rect>'
        )
    for i, label in labels.items():
        parts.append(f'<text x="{i * step:.1f}" y="{BASE + LABEL_DROP:g}">{escape(label)}</text>')
    base = f'<path class="axis" d="M0 {BASE:g}H{WIDTH:g}"/>'
    return _svg(WIDTH, HEIGHT, "".join(parts) + base, caption)


# --- curves -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Points (x, y) in the order of x, drawn in the colour of `kind`; NaN leaves a point out."""

    kind: str
    x: Sequence[float]
    y: Sequence[float]

    def thinned(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Its points, or the means of so many neighbours that `MOST_POINTS` are left."""
        points = np.array([self.x, self.y], np.float64)
        points = points[:, np.isfinite(points).all(0)]
        parts = np.array_split(points, max(1, min(points.shape[1], MOST_POINTS)), axis=1)
        means = np.array([part.mean(1) for part in parts if part.size]).reshape(-1, 2)
        return means[:, 0], means[:, 1]


def curves(
    lines: Sequence[Curve],
    caption: str,
    told_x: Callable[[float], str],
    told_y: Callable[[float], str],
    *,
    from_zero: bool = False,
) -> str:
    """Curves over one pair of axes; `told_x` and `told_y` write the numbers of each.

    The height shows the range of the numbers, or all that lies between them and 0.

    >>> curves([Curve("train", [0, 1, 2], [3, 1, 2])], "loss", str, str).count("<path class")
    4
    """
    drawn = [(line.kind, *line.thinned()) for line in lines]
    drawn = [(kind, x, y) for kind, x, y in drawn if len(x)]
    if not drawn:
        return _svg(WIDTH, HEIGHT, "", caption)
    last = max(float(x[-1]) for _, x, _ in drawn) or 1.0
    low, high = _range(drawn, SETTLING_SHARE * last)
    low = 0.0 if from_zero else low
    across, up = (WIDTH - CURVE_LEFT) / last, (BASE - TOP) / (high - low)
    parts = [
        f'<path class="axis" d="M{CURVE_LEFT:g} {BASE - (tick - low) * up:.1f}H{WIDTH:g}"/>'
        f'<text class="end" x="{CURVE_LEFT - 6:g}" y="{BASE - (tick - low) * up + 4:.1f}">'
        f"{escape(told_y(tick))}</text>"
        for tick in _ticks(low, high, 4)
    ]
    parts += [
        f'<text class="middle" x="{CURVE_LEFT + tick * across:.1f}" y="{BASE + LABEL_DROP:g}">'
        f"{escape(told_x(tick))}</text>"
        for tick in _ticks(0.0, last, 5)
    ]
    for kind, x, y in drawn:
        places = np.stack([CURVE_LEFT + x * across, BASE - (np.clip(y, low, high) - low) * up], 1)
        path = "L".join(f"{left:.1f} {top:.1f}" for left, top in places.tolist())
        parts.append(f'<path class="curve {kind}" d="M{path}"/>')
        for i in np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_TITLES)).astype(int)):
            title = escape(f"{told_x(float(x[i]))}: {told_y(float(y[i]))}")
            parts.append(
                f'<circle class="{kind}" cx="{places[i, 0]:.1f}" cy="{places[i, 1]:.1f}" r="3.5">'
                f"<title>{title}</title></circle>"
            )
    return _svg(WIDTH, HEIGHT, "".join(parts), caption)


def _range(
    drawn: Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]], settled: float
) -> tuple[float, float]:
    """Lowest and highest value to draw: of all that comes after `settled`, if anything does."""
    values = np.concatenate([y[x >= min(settled, x[-1])] for _, x, y in drawn])
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    return low - margin if low < 0 or low > margin else 0.0, high + margin


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from `low` to `high`.

    >>> _ticks(1.9, 3.2, 4)
    [2.0, 2.5, 3.0]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


# --- piano rolls ------------------------------------------------------------------------------


def piano_roll(
    notes: Notes,
    caption: str,
    *,
    seconds: float = ROLL_SECONDS,
    seam_seconds: float = math.inf,
) -> str:
    """The first `seconds` of a piece: time to the right, pitch upwards, loud notes dark.

    Notes that begin at `seam_seconds` or later are drawn as new ones.
    """
    shown = notes[notes["start"] < seconds]
    low = int(shown["pitch"].min()) - PITCH_MARGIN
    high = int(shown["pitch"].max()) + PITCH_MARGIN
    scale, row = (ROLL_WIDTH - ROLL_LEFT) / seconds, ROLL_HEIGHT / (high - low + 1)
    lines = "".join(
        f'<path class="octave" d="M0 {(high - pitch + 1) * row:.1f}H{ROLL_WIDTH:g}"/>'
        f'<text x="0" y="{(high - pitch + 1) * row - 2:.1f}">{pitch_name(pitch)}</text>'
        for pitch in range(low, high + 1)
        if pitch % 12 == 0
    )
    group = _shade(shown) + N_SHADES * (shown["start"] >= seam_seconds)
    left = ROLL_LEFT + shown["start"] * scale
    width = np.maximum((np.minimum(shown["end"], seconds) - shown["start"]) * scale, 1)
    paths = []
    for number in range(2 * N_SHADES):
        columns = (left, width, shown["pitch"])
        rows = zip(*(column[group == number].tolist() for column in columns), strict=True)
        boxes = "".join(
            f"M{x:.1f} {(high - pitch) * row:.1f}h{w:.1f}v{max(row - 0.4, 0.6):.1f}h-{w:.1f}z"
            for x, w, pitch in rows
        )
        new = " new" if number >= N_SHADES else ""
        name = f"note{new} shade{number % N_SHADES}"
        paths.append(f'<path class="{name}" d="{boxes}"/>' if boxes else "")
    return _svg(ROLL_WIDTH, ROLL_HEIGHT, lines + "".join(paths), caption)


def _shade(notes: Notes) -> npt.NDArray[np.int64]:
    """0 for soft notes up to `N_SHADES` - 1 for loud ones."""
    return np.minimum(notes["velocity"].astype(np.int64) * N_SHADES // 128, N_SHADES - 1)


def _svg(width: float, height: float, content: str, caption: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(caption)}">'
        f"{content}</svg>"
    )
