"""numbers and notes -> SVG: bars and piano rolls that take their colours from the page around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from music_gpt.notes import Notes

WIDTH, HEIGHT = 480.0, 170.0
BASE, TOP = 148.0, 12.0
"""Where bars stand, and where the highest one ends."""
LABEL_DROP = 16.0
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


def piano_roll(notes: Notes, caption: str) -> str:
    """The first minute of a piece: time to the right, pitch upwards, loud notes dark."""
    shown = notes[notes["start"] < ROLL_SECONDS]
    low = int(shown["pitch"].min()) - PITCH_MARGIN
    high = int(shown["pitch"].max()) + PITCH_MARGIN
    scale, row = (ROLL_WIDTH - ROLL_LEFT) / ROLL_SECONDS, ROLL_HEIGHT / (high - low + 1)
    lines = "".join(
        f'<path class="octave" d="M0 {(high - pitch + 1) * row:.1f}H{ROLL_WIDTH:g}"/>'
        f'<text x="0" y="{(high - pitch + 1) * row - 2:.1f}">C{pitch // 12 - 1}</text>'
        for pitch in range(low, high + 1)
        if pitch % 12 == 0
    )
    shade = np.minimum(shown["velocity"].astype(int) * N_SHADES // 128, N_SHADES - 1)
    left = ROLL_LEFT + shown["start"] * scale
    width = np.maximum((np.minimum(shown["end"], ROLL_SECONDS) - shown["start"]) * scale, 1)
    paths = []
    for number in range(N_SHADES):
        columns = (left, width, shown["pitch"])
        rows = zip(*(column[shade == number].tolist() for column in columns), strict=True)
        boxes = "".join(
            f"M{x:.1f} {(high - pitch) * row:.1f}h{w:.1f}v{max(row - 0.4, 0.6):.1f}h-{w:.1f}z"
            for x, w, pitch in rows
        )
        paths.append(f'<path class="note shade{number}" d="{boxes}"/>' if boxes else "")
    return _svg(ROLL_WIDTH, ROLL_HEIGHT, lines + "".join(paths), caption)


def _svg(width: float, height: float, content: str, caption: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(caption)}">'
        f"{content}</svg>"
    )
