"""The picture of a piece shows each note where it sounds, and fits on a page."""

from __future__ import annotations

import errno
import io
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from small import melody

from music_gpt.errors import InputError
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.report.picture import (
    BLACK_ROW,
    COMPOSED,
    GIVEN,
    LEAST_ROW,
    MOST_HEIGHT,
    MOST_TOGETHER,
    PAPER,
    SHEET,
    WIDTH,
    Roll,
    picture_bytes,
    write_picture,
)

Colour = tuple[int, int, int]
ALL_GIVEN = (math.inf, math.inf)


def notes_of(*rows: tuple[float, float, int, int]) -> Notes:
    return np.array(list(rows), NOTE_DTYPE)


def two_notes() -> Notes:
    return notes_of((0.0, 5.0, 60, 127), (5.0, 10.0, 64, 127))


def opened(png: bytes) -> Image.Image:
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        return image


def at(image: Image.Image, roll: Roll, seconds: float, pitch: int, line: int = 0) -> Colour:
    """The colour of a key at a time of a line."""
    x, y = roll.x(seconds), roll.top(line) + (roll.high - pitch) * roll.row
    red, green, blue = image.getpixel((x, y + roll.row // 2))  # type: ignore[misc]
    return red, green, blue


def long_piece(seconds: float, low: int = 21, high: int = 108) -> Notes:
    starts = np.arange(0, seconds, seconds / 500)
    keys = np.linspace(low, high, len(starts)).astype(int).tolist()
    ends = (starts + seconds / 500).tolist()
    return notes_of(*[(s, e, k, 64) for s, e, k in zip(starts.tolist(), ends, keys, strict=True)])


# --- what is seen -----------------------------------------------------------------------------


def test_each_note_is_seen_where_it_sounds_in_the_colour_of_where_it_comes_from() -> None:
    notes, part = two_notes(), (5.0, math.inf)
    image, roll = opened(picture_bytes(notes, composed=part)), Roll(notes, part)
    assert image.size == (WIDTH, roll.height)
    assert at(image, roll, 2.5, 60) == GIVEN
    assert at(image, roll, 7.5, 64) == COMPOSED
    assert at(image, roll, 2.5, 64) == at(image, roll, 7.5, 60) == SHEET
    assert at(image, roll, 2.5, 61) == BLACK_ROW
    assert image.getpixel((3, 3)) == PAPER


def test_only_the_part_that_was_redone_is_shown_as_composed() -> None:
    notes = notes_of(*[(float(i), i + 1.0, 60, 127) for i in range(9)])
    image, roll = opened(picture_bytes(notes, composed=(3.0, 6.0))), Roll(notes, (3.0, 6.0))
    seen = [at(image, roll, i + 0.5, 60) for i in range(9)]
    assert seen == [GIVEN] * 3 + [COMPOSED] * 3 + [GIVEN] * 3


def test_a_note_that_a_file_tells_by_a_millisecond_too_early_is_composed_all_the_same() -> None:
    notes = notes_of((4.999, 10.0, 60, 127))
    roll = Roll(notes, (5.0, math.inf))
    assert at(opened(picture_bytes(notes, composed=(5.0, math.inf))), roll, 7.5, 60) == COMPOSED


def test_a_line_parts_what_was_composed_from_what_was_given() -> None:
    def dashes(composed: tuple[float, float] | None) -> int:
        return picture_bytes(two_notes(), ".svg", composed=composed).count(b'width="2" height="8"')

    assert dashes(None) == dashes((0.0, math.inf)) == 0
    assert dashes((5.0, math.inf)) > 10
    assert dashes((5.0, 8.0)) == 2 * dashes((5.0, math.inf))


def test_a_louder_note_is_darker() -> None:
    notes = notes_of(
        *[(float(i), i + 1.0, 60, velocity) for i, velocity in enumerate((1, 60, 127))]
    )
    image, roll = opened(picture_bytes(notes)), Roll(notes, ALL_GIVEN)
    soft, middle, loud = (sum(at(image, roll, i + 0.5, 60)) for i in range(3))
    assert sum(SHEET) > soft > middle > loud


def test_a_key_that_is_struck_again_is_seen_twice() -> None:
    notes = notes_of((0.0, 5.0, 60, 127), (5.0, 10.0, 60, 127))
    image, roll = opened(picture_bytes(notes)), Roll(notes, ALL_GIVEN)
    y = roll.top(0) + (roll.high - 60) * roll.row + roll.row // 2
    seen = [image.getpixel((x, y)) for x in range(roll.x(4.9), roll.x(5.1))]
    assert set(seen) > {GIVEN}


def test_a_note_that_rings_into_the_next_line_goes_on_there() -> None:
    notes = np.sort(np.concatenate([long_piece(100.0, 41), notes_of((0.0, 100.0, 40, 127))]))
    image, roll = opened(picture_bytes(notes)), Roll(notes, ALL_GIVEN)
    assert roll.n_lines > 1
    assert at(image, roll, roll.seconds - 1.0, 40) == at(image, roll, 1.0, 40, line=1) == GIVEN


def test_a_drawing_in_svg_stands_alone_and_shows_the_same() -> None:
    notes = melody(3, 40)
    svg = picture_bytes(notes, ".SVG", composed=(2.0, math.inf))
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox") == f"0 0 {WIDTH} {Roll(notes, ALL_GIVEN).height}"
    assert svg.count(b"rx=") == len(notes)
    told = set(re.findall(r'<g fill="(#\w+)" fill-opacity="[\d.]+"><rect[^>]* rx', svg.decode()))
    assert told == {"#" + bytes(colour).hex() for colour in (GIVEN, COMPOSED)}
    assert b">0:00<" in svg
    assert b">C4<" in svg


def test_the_figures_of_a_png_are_written_beside_the_lines() -> None:
    notes = long_piece(7200.0)
    image, roll = opened(picture_bytes(notes)), Roll(notes, ALL_GIVEN)
    texts = {label.text for label in roll.labels()}
    assert {"0:00", "C1", "C7"} < texts
    assert set("0123456789:C") == set("".join(texts))
    for label in roll.labels():
        box = (label.x - 9, label.y - 9, label.x + 9, label.y + 9)
        assert len(image.crop(box).getcolors() or ()) > 3, label


# --- how large it is --------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.01, 5.0, 66.0, 600.0, 7200.0, 36_000.0])
@pytest.mark.parametrize(("low", "high"), [(0, 0), (60, 62), (36, 84), (21, 108), (0, 127)])
def test_a_picture_is_no_larger_than_a_page_and_all_of_it_lies_inside(
    seconds: float, low: int, high: int
) -> None:
    roll = Roll(long_piece(seconds, low, high), (seconds / 3, seconds / 2))
    assert roll.height <= MOST_HEIGHT
    assert roll.row >= LEAST_ROW
    assert roll.n_lines * roll.seconds >= seconds
    assert (roll.n_lines - 1) * roll.seconds < max(seconds, 5.0)
    for box in roll.boxes():
        assert 0 <= box.x < box.x + box.width <= WIDTH
        assert 0 <= box.y < box.y + box.height <= roll.height


def test_a_longer_piece_has_more_lines_until_the_page_is_full() -> None:
    lines = [Roll(long_piece(seconds), ALL_GIVEN).n_lines for seconds in (20, 60, 150, 600, 7200)]
    assert lines[0] == 1
    assert lines == sorted(lines)
    assert lines[-1] < 12


def test_notes_of_hours_that_hide_each_other_are_drawn_once() -> None:
    rng = np.random.default_rng(0)
    starts, keys = rng.uniform(0, 3000, 20_000).tolist(), rng.integers(21, 109, 20_000).tolist()
    notes = notes_of(*[(s, s + 36_000, k, 64) for s, k in zip(starts, keys, strict=True)])
    assert sum(1 for _ in Roll(notes, ALL_GIVEN).boxes()) < 1.2 * len(notes)
    together = notes_of(*[(0.0, 36_000.0, 60, 64)] * 20_000)
    assert sum(box.is_round for box in Roll(together, ALL_GIVEN).boxes()) < 100


def test_of_many_notes_that_are_struck_together_the_longest_are_seen() -> None:
    notes = notes_of(*[(0.0, 1.0 + (i == 7) * 29, 60, 64) for i in range(9)], (0.0, 1.0, 62, 64))
    roll = Roll(notes, ALL_GIVEN)
    assert len(roll.notes) == MOST_TOGETHER + 1
    assert roll.notes["end"].max() == 30.0


def test_two_voices_that_strike_a_key_together_are_both_drawn() -> None:
    notes = notes_of((0.0, 1.0, 60, 90), (0.0, 2.0, 60, 50), (3.0, 4.0, 60, 50), (0.0, 9.0, 64, 9))
    assert sum(box.is_round for box in Roll(notes, ALL_GIVEN).boxes()) == len(notes)


def test_a_picture_is_sharp_enough_to_print() -> None:
    assert opened(picture_bytes(two_notes())).info["dpi"] == pytest.approx((300, 300), abs=0.1)


# --- what goes wrong --------------------------------------------------------------------------


def test_of_no_notes_there_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no notes, so there is nothing to see; add some"):
        write_picture(notes_of(), tmp_path / "a.png")
    with pytest.raises(InputError, match=r"end its name in \.png or \.svg"):
        write_picture(two_notes(), tmp_path / "a.jpg")
    with pytest.raises(InputError, match="its folder does not exist"):
        write_picture(two_notes(), tmp_path / "none" / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_keeps_the_picture_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.png").write_bytes(b"before")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="the disk is full; free some space"):
        write_picture(two_notes(), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1
