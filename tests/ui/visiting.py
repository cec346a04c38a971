"""A visitor of the page without a browser, a piece, and what the browser sends."""

import zipfile
from typing import Any

from fake_pianist import FakePianist
from midi_bytes import events_of, file, meta, program

from music_gpt.midi.piece import make_notes, piece_from_notes
from music_gpt.ui import visit as visits
from music_gpt.ui.form import FORM, SLIDERS
from music_gpt.ui.roll_value import RollValue
from music_gpt.ui.visit import Visit, Wish

PIANIST: Any = FakePianist(pace=1e6)
SCALE = make_notes([(0.5 * i, 0.5 * i + 0.5, 60 + i, 64) for i in range(16)])

FIRST = {"start": 0, "end": 8, "take": 0}
"""What the browser sends of the first take."""
BAND = file(
    [(0, meta(3, b"Flute")), (0, program(73, 1)), *events_of([(0, 2000, 90, 64)], 1)],
    [(0, meta(3, b"Left hand")), (0, program(0)), *events_of([(0, 2000, 40, 64)])],
    [(0, meta(3, b"Kit")), *events_of([(0, 100, 36, 64)], 9)],
)


def visitor() -> Visit:
    """Somebody whose page was loaded."""
    visit = Visit(was_loaded=True)
    visit.show_prompt(piece_from_notes(SCALE), "Scale")
    return visit


def steps(visit: Visit, wish: Wish, end: float = 8.0) -> list[RollValue]:
    return list(visits.compose(visit, PIANIST, wish, 0.0, end, every_seconds=0.0))


def plain(value: Any) -> bool:
    """Whether a value holds nothing but what JSON has."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def values_of(**values: Any) -> list[Any]:
    """What the form sends, where these fields were changed."""
    usual: dict[str, Any] = {name: slider.value for name, slider in SLIDERS.items()}
    usual |= {"key": "", "end": False, "seed": ""}
    return [(usual | values)[name] for name in FORM]


def count(text: str) -> int:
    return text.count(";")


def names_in(path: str | None) -> list[str]:
    assert path is not None
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return archive.namelist()
