"""The notes of a whole piece -> a picture to take away: its piano roll in lines, as PNG or SVG.

The roll is written like a score, in lines (systems) from top to bottom, all for the same time and
the same keys. The sheet is never larger than a page of paper: long music is drawn smaller. Both
kinds of file are painted from one list of shapes, and nothing but numpy is needed for them, no
font either.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from music_gpt.errors import InputError
from music_gpt.files import as_path, whole_file
from music_gpt.keys import pitch_name
from music_gpt.notes import A_MOMENT, NO_PART, Notes, end_at_next_strike, struck_within
from music_gpt.report.drawing import BLACK_KEYS, PITCH_MARGIN
from music_gpt.report.figures import AIR, LETTER, SPACE, figure_cover, figure_width

WIDTH, MOST_HEIGHT = 2400, 3394
"""Pixels of the sheet, at most a page of A4."""
PIXELS_PER_METRE = 11_811
"""As a printer has them, to the inch."""
MARGIN, GUTTER, TIMES, GAP = 52, 66, 40, 26
"""Around the sheet; for the names of the octaves; for the times above a line; below it."""
LONGEST_SECONDS = 40_000.0
"""Longer music is not drawn."""
SHORTEST_SECONDS = 5.0
"""Shorter music does not fill the first line."""
ROW, LEAST_ROW = 12, 3
"""Height of a semitone: where there is room, and where there is little."""
MOST_STRETCH = 8
"""A second is no longer than so many semitones are high: more lines would be thin, and no use."""
LEAST_ROWS = 36
"""Music in few keys is shown among three octaves."""
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
MOST_STEPS = 10
"""Seconds between two times, of which a line has no more than this."""
MOST_TOGETHER = 4
"""Notes of one key that are struck at once and drawn one over the other."""
ROUNDING = 3
"""Radius of the corners of a note."""

Colour = tuple[int, int, int]
Pixels = npt.NDArray[np.uint8]
PAPER, SHEET, BLACK_ROW = (251, 250, 247), (255, 255, 255), (247, 245, 241)
GRID, OCTAVE, SOFT = (237, 233, 226), (214, 207, 196), (122, 116, 106)
GIVEN, COMPOSED = (93, 112, 153), (212, 85, 42)
"""The colours of notes are those of the page."""


@dataclass(frozen=True)
class Box:
    """A rectangle in whole pixels; `opacity` 1 covers what is below it."""

    x: int
    y: int
    width: int
    height: int
    colour: Colour
    opacity: float = 1.0
    is_round: bool = False


@dataclass(frozen=True)
class Label:
    """Some figures in the middle of (x, y)."""

    x: int
    y: int
    text: str


def is_picture(path: str | Path) -> bool:
    """Whether the suffix of a path is that of a picture."""
    return as_path(path).suffix.lower() in FORMATS


def write_picture(
    notes: Notes, path: str | Path, *, composed: tuple[float, float] | None = None
) -> None:
    """Write the picture of a piece to `path`, whose suffix says how: .png or .svg.

    The file appears whole or not at all. `InputError` as `picture_bytes` says, and when the file
    cannot be written.
    """
    path = as_path(path)
    data = picture_bytes(notes, path.suffix, composed=composed)
    with whole_file(path) as beside:
        beside.write_bytes(data)


def picture_bytes(
    notes: Notes, suffix: str = ".png", *, composed: tuple[float, float] | None = None
) -> bytes:
    """The picture of a piece as a file of this kind.

    Args:
        notes: all of them, with the pedal applied; a louder one is darker.
        suffix: .png or .svg.
        composed: notes that begin from the first second on, and before the last one, are drawn as
            composed ones; all others as given ones.

    Raises:
        InputError: there are no notes, or the suffix is another one.

    >>> from music_gpt.notes import NOTE_DTYPE
    >>> picture_bytes(np.array([(0.0, 1.0, 60, 64)], NOTE_DTYPE))[1:4]
    b'PNG'
    """
    if suffix.lower() not in FORMATS:
        raise InputError(f"A picture cannot end in {suffix!r}; end its name in .png or .svg.")
    if len(notes) == 0:
        raise InputError("This piece contains no notes, so there is nothing to see; add some.")
    if not (notes["start"].min() >= 0 and notes["end"].max() <= LONGEST_SECONDS):  # also NaN
        raise InputError(
            f"A picture shows music from 0 to {LONGEST_SECONDS:,.0f} seconds; give it notes in it."
        )
    return FORMATS[suffix.lower()](Roll(notes, composed or NO_PART))


# --- where everything lies --------------------------------------------------------------------


class Roll:
    """What lies where on the sheet, in pixels."""

    def __init__(self, notes: Notes, composed: tuple[float, float]) -> None:
        self.notes, self.composed = _seen(notes), composed
        self.low, self.high = _keys(notes)
        n_rows = self.high - self.low + 1
        seconds = max(float(notes["end"].max()), SHORTEST_SECONDS)
        self.left, self.width = MARGIN + GUTTER, WIDTH - 2 * MARGIN - GUTTER
        self.step, self.seconds = _line(seconds / self._n_lines(seconds, n_rows))
        self.n_lines = math.ceil(seconds / self.seconds)
        self.row = _row(self.n_lines, n_rows)
        self.line_height = n_rows * self.row

    @property
    def height(self) -> int:
        """Of the whole sheet."""
        return 2 * MARGIN - GAP + self.n_lines * (TIMES + self.line_height + GAP)

    def top(self, line: int) -> int:
        """Where the highest key of a line lies."""
        return MARGIN + TIMES + line * (TIMES + self.line_height + GAP)

    def x(self, seconds: float) -> int:
        """Where a time of a line lies, counted from its beginning."""
        return self.left + round(seconds / self.seconds * self.width)

    def boxes(self) -> Iterator[Box]:
        """All that is painted, from the bottom up."""
        for line in range(self.n_lines):
            yield from self._sheet(line)
        is_composed = struck_within(self.notes, self.composed)
        colours = [COMPOSED if is_new else GIVEN for is_new in is_composed]
        for note, colour in zip(self.notes.tolist(), colours, strict=True):
            yield from self._note(note, colour)
        for edge in self.composed:
            yield from self._seam(edge)

    def labels(self) -> Iterator[Label]:
        """The times above each line, and the names of its octaves."""
        for line in range(self.n_lines):
            for seconds in range(0, self.seconds, self.step):
                time = line * self.seconds + seconds
                yield Label(self.x(seconds), self.top(line) - LETTER, _clock(time))
            for pitch in range(self.low, self.high + 1):
                if pitch % 12 == 0:
                    y = self._y(line, pitch) + self.row // 2
                    yield Label(self.left - GUTTER // 2, y, pitch_name(pitch))

    def _n_lines(self, seconds: float, n_rows: int) -> int:
        """As many lines as are worth it, and have room on the page."""
        n = 1
        while (row := _row(n + 1, n_rows)) >= LEAST_ROW:
            if self.width * (n + 1) / seconds > MOST_STRETCH * row:
                break
            n += 1
        return n

    def _y(self, line: int, pitch: int) -> int:
        return self.top(line) + (self.high - pitch) * self.row

    def _sheet(self, line: int) -> Iterator[Box]:
        """The rows of the keys, with a line below each C, and the times."""
        top, left, width = self.top(line), self.left, self.width
        yield Box(left, top, width, self.line_height, SHEET)
        for pitch in range(self.low, self.high + 1):
            if pitch % 12 in BLACK_KEYS:
                yield Box(left, self._y(line, pitch), width, self.row, BLACK_ROW)
        for seconds in range(0, self.seconds + 1, self.step):
            yield Box(self.x(seconds) - 1, top, 2, self.line_height, GRID)
        for pitch in range(self.low + 1, self.high + 1):
            if pitch % 12 == 0:
                yield Box(left, self._y(line, pitch) + self.row - 1, width, 2, OCTAVE)

    def _note(self, note: tuple[float, float, int, int], colour: Colour) -> Iterator[Box]:
        """A note; one that goes on in the next line has a part in each."""
        start, end, pitch, velocity = note
        opacity = round(0.35 + 0.65 * min(velocity, 127) / 127, 2)
        height = self.row - 1 if self.row > LEAST_ROW + 1 else self.row
        first = min(int(start // self.seconds), self.n_lines - 1)
        last = min(int(max(start, end - A_MOMENT) // self.seconds), self.n_lines - 1)
        for line in range(first, last + 1):
            began = line * self.seconds
            left = self.x(max(start - began, 0))
            right = self.x(min(end - began, self.seconds))
            width = max(2, right - left - 1)  # a key that is struck again is seen
            y = self._y(line, pitch)
            yield Box(left, y, width, height, colour, opacity, is_round=True)

    def _seam(self, edge: float) -> Iterator[Box]:
        """Where what is composed begins or ends, in a piece that holds more: a dashed line."""
        line = int(min(edge, 1e9) // self.seconds)
        if not edge > 0 or line >= self.n_lines:
            return
        for y in range(0, self.line_height - 7, 16):
            x = self.x(edge - line * self.seconds)
            yield Box(x - 1, self.top(line) + y, 2, 8, SOFT)


def _seen(notes: Notes) -> Notes:
    """The notes, each ended where its key is struck again; of those struck together the longest.

    That is so in all that a pianist plays. Other notes would be painted over themselves: with it,
    twenty thousand of ten hours each take a second, not half a minute.
    """
    seen = notes[np.lexsort((-notes["end"], notes["pitch"], notes["start"]))]
    seen["end"] = end_at_next_strike(seen["start"], seen["pitch"], seen["end"])
    behind, before = seen[MOST_TOGETHER:], seen[:-MOST_TOGETHER]
    hidden = (behind["start"] == before["start"]) & (behind["pitch"] == before["pitch"])
    return np.concatenate([seen[:MOST_TOGETHER], behind[~hidden]])


def _keys(notes: Notes) -> tuple[int, int]:
    """The lowest and the highest key that are shown."""
    low, high = int(notes["pitch"].min()) - PITCH_MARGIN, int(notes["pitch"].max()) + PITCH_MARGIN
    low -= max(0, LEAST_ROWS - (high - low + 1)) // 2
    low = min(max(0, low), 128 - LEAST_ROWS)
    return low, max(min(high, 127), low + LEAST_ROWS - 1)


def _row(n_lines: int, n_rows: int) -> int:
    """Height of a semitone, where a page has so many lines of so many semitones."""
    room = MOST_HEIGHT - 2 * MARGIN + GAP - n_lines * (TIMES + GAP)
    return min(ROW, room // (n_lines * n_rows))


def _line(longest: float) -> tuple[int, int]:
    """Seconds between two times that are told, and those of a line: some of these steps.

    >>> _line(23.3), _line(720.0)
    ((5, 25), (120, 720))
    """
    step = next((step for step in STEPS if longest <= step * MOST_STEPS), STEPS[-1])
    return step, math.ceil(longest / step) * step


def _clock(seconds: int) -> str:
    """Minutes and seconds, as the page tells them.

    >>> _clock(65), _clock(4000)
    ('1:05', '66:40')
    """
    return f"{seconds // 60}:{seconds % 60:02}"


# --- SVG --------------------------------------------------------------------------------------


def _svg(roll: Roll) -> bytes:
    """The sheet as SVG, with colours of its own: it stands alone."""
    groups: dict[tuple[Colour, float, bool], list[str]] = {}
    for box in roll.boxes():
        shape = f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
        groups.setdefault((box.colour, box.opacity, box.is_round), []).append(shape)
    parts = [
        f'<g fill="{_hex(colour)}" fill-opacity="{opacity:g}">'
        + "".join(f'{shape} rx="{ROUNDING}"/>' if is_round else f"{shape}/>" for shape in shapes)
        + "</g>"
        for (colour, opacity, is_round), shapes in groups.items()
    ]
    texts = "".join(
        f'<text x="{label.x}" y="{label.y + LETTER // 2}">{label.text}</text>'
        for label in roll.labels()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {roll.height}">\n'
        f'<rect width="{WIDTH}" height="{roll.height}" fill="{_hex(PAPER)}"/>\n'
        + "\n".join(parts)
        + f'\n<g fill="{_hex(SOFT)}" font-family="sans-serif" font-size="{1.38 * LETTER:g}" '
        f'text-anchor="middle">{texts}</g>\n</svg>\n'
    ).encode()


def _hex(colour: Colour) -> str:
    return "#" + bytes(colour).hex()


# --- PNG --------------------------------------------------------------------------------------


def _png(roll: Roll) -> bytes:
    pixels = np.full((roll.height, WIDTH, 3), PAPER, np.uint8)
    for box in roll.boxes():
        place = pixels[box.y : box.y + box.height, box.x : box.x + box.width]
        if box.opacity == 1 and not box.is_round:
            place[:] = box.colour
        else:
            cover = _round(*place.shape[:2]) if box.is_round else np.ones((1, 1, 1), np.float32)
            _blend(place, box.opacity * cover, box.colour)
    for label in roll.labels():
        _letter(pixels, label)
    return _png_file(pixels)


def _blend(place: Pixels, cover: npt.NDArray[np.float32], colour: Colour) -> None:
    """Paint over pixels (h, w, 3); `cover` (h, w, 1) is the share of each that is painted."""
    place[:] = np.rint(place + cover * (np.array(colour, np.float32) - place)).astype(np.uint8)


@functools.lru_cache(256)
def _round(height: int, width: int) -> npt.NDArray[np.float32]:
    """How far each pixel of a note is covered (h, w, 1): less at its corners."""
    radius = ROUNDING if min(height, width) > ROUNDING else 0  # a point stays a point
    beyond = [
        np.maximum(radius - np.minimum(at + 0.5, size - at - 0.5), 0)
        for at, size in ((np.arange(height), height), (np.arange(width), width))
    ]
    distance = np.hypot(beyond[0][:, None, None], beyond[1][None, :, None])
    cover: npt.NDArray[np.float32] = np.clip(radius - distance + 0.5, 0, 1).astype(np.float32)
    return cover


def _png_file(pixels: Pixels) -> bytes:
    """Pixels (height, width, 3) as a file. Source: the PNG specification, third edition."""
    height, width, _ = pixels.shape
    rows = np.empty((height, 1 + 3 * width), np.uint8)
    rows[:, 0] = 2  # the filter: each row is told by what it differs in from the one above
    rows[:, 1:] = pixels.reshape(height, -1)
    rows[1:, 1:] -= pixels.reshape(height, -1)[:-1]
    head = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 2, 0, 0, 0])  # 8 bits of RGB
    size = 2 * PIXELS_PER_METRE.to_bytes(4) + b"\x01"
    chunks = (
        (b"IHDR", head),
        (b"pHYs", size),
        (b"IDAT", zlib.compress(rows.tobytes(), 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4) + tag + data + zlib.crc32(tag + data).to_bytes(4)
        for tag, data in chunks
    )


def _letter(pixels: Pixels, label: Label) -> None:
    """Write the figures of a label."""
    unit = LETTER / 6
    widths = [figure_width(figure) for figure in label.text]
    x = label.x - unit * (sum(widths) + SPACE * (len(widths) - 1)) / 2
    top = label.y - LETTER // 2 - round(AIR * unit)
    for figure, width in zip(label.text, widths, strict=True):
        cover = figure_cover(figure)
        left = round(x - AIR * unit)
        place = pixels[top : top + cover.shape[0], left : left + cover.shape[1]]
        _blend(place, cover[: place.shape[0]], SOFT)
        x += unit * (width + SPACE)


FORMATS = {".png": _png, ".svg": _svg}
