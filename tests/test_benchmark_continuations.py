"""What benchmarks/continuations.py counts: its detectors find what they look for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from midi_bytes import file
from small import melody, random_network

from music_gpt.composing.pianist import Pianist
from music_gpt.midi.piece import make_notes, write_midi
from music_gpt.tokens.events import NOTE_OFF, TIME_SHIFT

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "continuations.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("continuations", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(folder: Path, *events: tuple[int, bytes]) -> Path:
    path = folder / "a.mid"
    path.write_bytes(file(events))
    return path


@pytest.mark.parametrize(
    ("events", "n"),
    [
        ([(0, b"\x90\x3c\x40"), (9, b"\x80\x3c\x40")], 0),
        ([(0, b"\x90\x3c\x40"), (9, b"\x90\x3c\x00")], 0),
        ([(0, b"\x90\x3c\x40")], 1),
        ([(0, b"\x80\x3c\x40")], 1),
        ([(0, b"\x90\x3c\x40"), (5, b"\x90\x3c\x40"), (9, b"\x80\x3c\x40")], 1),
        ([(0, b"\x90\x3c\x40"), (9, b"\x81\x3c\x40")], 2),  # released on another channel
    ],
)
def test_a_note_that_is_not_ended_or_struck_twice_is_counted(
    script: Any, tmp_path: Path, events: list[tuple[int, bytes]], n: int
) -> None:
    assert script.hanging_notes(written(tmp_path, *events)) == n


def test_a_spread_chord_is_one_stroke(script: Any) -> None:
    assert script.strokes(np.array([0.0, 0.0, 0.02, 0.05, 0.5, 0.6, 0.6])) == 3
    assert script.strokes(np.zeros(0)) == 0


def test_what_the_program_writes_has_no_hanging_note(script: Any, tmp_path: Path) -> None:
    write_midi(melody(1, 200), tmp_path / "a.mid")
    assert script.hanging_notes(tmp_path / "a.mid") == 0


def line(pitches: list[int], seconds: float) -> Any:
    return make_notes([(i * seconds, i * seconds + 0.1, p, 64) for i, p in enumerate(pitches)])


def test_the_last_minute_is_held_against_the_first(script: Any, capsys: Any) -> None:
    nothing = SimpleNamespace(splits=(), split=None)
    slowing = [line(np.arange(60, 80).tolist() * 6, 0.5), line(list(range(60, 80)) * 3, 1.0)]
    slowing[1]["start"] += 60
    slowing[1]["end"] += 60
    script.show_drift([np.concatenate(slowing)], nothing, 120.0)
    rows = {row[:22].strip(): row for row in capsys.readouterr().out.splitlines()}
    assert rows["notes_per_second"].split()[1:4] == ["2.00", "1.00", "-50.0%"]
    assert rows["notes_per_second"].endswith("beyond 5%")
    assert "beyond" not in rows["mean_pitch"]


@pytest.mark.parametrize("prompt_notes", [20, 400])  # the second is longer than the context
def test_grammar_errors_are_those_of_the_new_events(script: Any, prompt_notes: int) -> None:
    pianist = Pianist(random_network(context=256))
    composition = pianist.compose(melody(3, prompt_notes), seconds=2.0, seed=1)
    (events,) = script.compose(composition)
    assert len(events) == composition.n_tokens
    assert script.grammar_errors(composition, events) == 0
    place = next(i for i, event in enumerate(events) if event < NOTE_OFF)
    silent = NOTE_OFF + events[place]
    assert script.grammar_errors(composition, [*events[:place], silent, *events[place:]]) > 0
    struck_twice = [*events[: place + 1], TIME_SHIFT, events[place], *events[place + 1 :]]
    assert script.grammar_errors(composition, struck_twice) > 0
