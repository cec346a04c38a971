"""MIDI files -> pieces: clean files in every form, and the limits on what is read."""

from pathlib import Path

import numpy as np
import pytest
from midi_bytes import (
    END_OF_TRACK,
    SCALE,
    chunk,
    events_of,
    file,
    header,
    meta,
    number,
    press,
    program,
    tempo,
    track,
)
from midi_rows import WHOLE, rows, seconds, warned

from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.midi import mending
from music_gpt.midi.piece import LONGEST_SILENCE_SECONDS, read_piece

# -------------------------------------------------------------------------------- clean files


def test_a_clean_file_gives_its_notes_and_no_warning() -> None:
    piece = read_piece(file(events_of(SCALE)))
    assert rows(piece.notes) == rows(piece.sounding_notes) == seconds(SCALE)
    assert piece.warnings == []
    assert piece.n_notes == 5
    assert piece.seconds == 1.2


def test_a_piece_reads_the_same_from_a_path_and_from_bytes(tmp_path: Path) -> None:
    path = tmp_path / "étude no. 1.mid"
    path.write_bytes(file(events_of(SCALE)))
    for source in (path, str(path)):
        assert rows(read_piece(source).notes) == seconds(SCALE)
    assert read_piece(path).name == "étude no. 1"


def test_a_file_without_a_path_is_called_what_its_track_says() -> None:
    named = [(0, meta(3, "Für Elise".encode("latin-1"))), *events_of(SCALE)]
    assert read_piece(file(named)).name == "Für Elise"


def test_tempo_events_count_on_every_track_and_before_the_first_it_is_120() -> None:
    notes = [(0, 500, 60, 64), (1000, 1500, 62, 64), (2000, 2500, 64, 64)]
    data = file([(0, meta(3, b"conductor"))], [(1500, tempo(1_000_000)), *events_of(notes)])
    expected = [(0.0, 0.5, 60, 64), (1.0, 1.5, 62, 64), (2.5, 3.5, 64, 64)]
    assert rows(read_piece(data).notes) == expected


def test_of_two_tempos_at_one_tick_the_last_counts_and_tempo_0_never() -> None:
    head = [(0, tempo(250_000)), (0, tempo(1_000_000)), (0, tempo(0))]
    assert rows(read_piece(file([*head, *events_of([(500, 1000, 60, 64)])])).notes) == [
        (1.0, 2.0, 60, 64)
    ]


def test_times_do_not_drift_over_thousands_of_tempo_changes() -> None:
    changes = [(tick, tempo(333_333 + tick % 7)) for tick in range(0, 100_000, 10)]
    data = file(changes, events_of([(100_000, 100_010, 60, 64)]))
    exact = sum(10 * (333_333 + tick % 7) for tick in range(0, 100_000, 10)) / 500 / 1e6
    assert read_piece(data).notes["start"][0] == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    ("division", "tick_seconds"),
    [(0xE728, 1 / 1000), (0xE804, 1 / 96), (0xE304, 1001 / 120_000), (0xE201, 1 / 30)],
)
def test_smpte_time_is_read_and_tempo_does_not_count_in_it(
    division: int, tick_seconds: float
) -> None:
    data = header(0, 1, division) + track([(0, tempo(250_000)), *events_of([(30, 60, 60, 64)])])
    note = read_piece(data).notes[0]
    assert note["start"] == pytest.approx(30 * tick_seconds)
    assert note["end"] == pytest.approx(60 * tick_seconds)


def test_a_piece_at_the_finest_resolution_is_not_taken_for_endless() -> None:
    notes = [(65_534 * i, 65_534 * i + 32_767, 48 + i % 24, 64) for i in range(360)]
    piece = read_piece(file(events_of(notes), division=32_767))
    assert piece.n_notes == 360
    assert piece.notes["start"][-1] == 359.0


def test_running_status_goes_on_over_a_text_event() -> None:
    events = [(0, press(60, 80)), (100, meta(1, b"ab")), (200, b"\x3c\x00"), (250, b"\x40\x51")]
    data = file([*events, (450, b"\x40\x00")])
    assert rows(read_piece(data).notes) == [(0.0, 0.2, 60, 80), (0.25, 0.45, 64, 81)]


def test_running_status_goes_on_over_system_messages() -> None:
    between = [b"\xf0\x03\x01\x02\xf7", b"\xf7\x01\x00", b"\xf8", b"\xf2\x01\x02"]
    for message in between:
        events = [(0, press(60, 80)), (100, message), (200, b"\x3c\x00"), (250, b"\x40\x51")]
        data = file([*events, (450, b"\x40\x00")])
        assert rows(read_piece(data).notes) == [(0.0, 0.2, 60, 80), (0.25, 0.45, 64, 81)]


def test_text_of_any_bytes_and_impossible_signatures_do_no_harm() -> None:
    odd = [meta(3, b"\x83s\x83A\x83m\xa9"), meta(5, b"\xff\xfe\x00"), meta(0x59, b"\xf0\x07")]
    odd += [meta(0x59), meta(0x58, b"\x04"), meta(0x54), b"\xf0\x03\x01\x02\xf7"]
    piece = read_piece(file([(0, message) for message in odd] + events_of(SCALE)))
    assert rows(piece.notes) == seconds(SCALE)
    assert piece.warnings == []


# ----------------------------------------------------------------------------------------- limits


def test_a_silence_of_days_is_shortened_and_told() -> None:
    far = 0x0FFFFFFF
    piece = read_piece(file(events_of([(0, 200, 60, 64), (200 + far, 400 + far, 62, 64)])))
    assert piece.notes["start"][1] == pytest.approx(0.2 + LONGEST_SILENCE_SECONDS)
    assert piece.seconds == pytest.approx(0.4 + LONGEST_SILENCE_SECONDS)
    assert warned(piece, "shortened")


def test_a_key_held_for_days_is_shortened() -> None:
    piece = read_piece(
        file(events_of([(0, 0x0FFFFFFF, 60, 64), (0x0FFFFFFF, 0x0FFFFFFF + 9, 61, 64)]))
    )
    assert rows(piece.notes)[0] == (0.0, LONGEST_SILENCE_SECONDS, 60, 64)
    assert piece.notes["start"][1] == 2 * LONGEST_SILENCE_SECONDS


def test_a_silence_of_ten_minutes_is_left_as_it_is() -> None:
    notes = [(30_000, 30_500, 60, 64), (630_500, 631_000, 64, 64)]
    assert rows(read_piece(file(events_of(notes))).notes) == seconds(notes)


@pytest.mark.parametrize(
    "limits",
    [
        MidiLimits(max_bytes=50),
        MidiLimits(max_events=10),
        MidiLimits(max_notes=4),
        MidiLimits(max_seconds=1.1),
    ],
)
def test_a_file_beyond_a_limit_is_refused_with_the_limit(
    limits: MidiLimits, tmp_path: Path
) -> None:
    (tmp_path / "a.mid").write_bytes(WHOLE)
    for source in (WHOLE, tmp_path / "a.mid"):
        with pytest.raises(InputError, match="allowed"):
            read_piece(source, limits=limits)


def test_a_file_of_just_the_most_events_is_read() -> None:
    n_events = 2 * len(SCALE) + 1  # with the end mark
    assert read_piece(WHOLE, limits=MidiLimits(max_events=n_events)).n_notes == len(SCALE)
    with pytest.raises(InputError, match="more than the 10 events"):
        read_piece(WHOLE, limits=MidiLimits(max_events=n_events - 1))


def test_a_flood_of_events_is_refused_before_it_is_read_to_its_end() -> None:
    unread = b"\x00\xff\x01\x7f"  # a text that would be cut off
    data = header() + chunk(b"MTrk", b"\x00\xf8" * 3_000_000 + unread)
    with pytest.raises(InputError, match="more than the 1,000,000 events"):
        read_piece(data)


def test_a_flood_of_chunks_is_not_read_to_its_end() -> None:
    data = header() + chunk(b"ABCD", b"") * 70_000 + WHOLE[14:]
    with pytest.raises(InputError, match="no notes"):
        read_piece(data)


def test_a_flood_of_patterns_is_refused() -> None:
    pattern = track(events_of([(0, 1, 60, 64)]))
    with pytest.raises(InputError, match="patterns"):
        read_piece(header(2, 2000) + pattern * 2000)


def test_150_000_notes_in_tiny_steps_are_all_read() -> None:
    step = b"\x00\x90" + b"\x00".join(bytes((p, 64)) for p in range(1, 126))
    step += b"\x14" + b"\x00".join(bytes((p, 0)) for p in range(1, 126))
    data = header() + chunk(b"MTrk", step * 1200 + b"\x00" + END_OF_TRACK)
    assert read_piece(data).n_notes == 150_000


# --------------------------------------------------------------------------- notes -> MIDI file


def test_long_stretches_are_read_as_they_are_event_by_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    events = bytearray()
    for i in range(6000):
        events += number(int(rng.integers(300)))
        events += rng.choice(
            [program(5) + b"\1\6", meta(1, b"abc"), press(60 + i % 12), bytes([40 + i % 12, 64])],
            p=[0.001, 0.001, 0.5, 0.498],
        )
    for cut in (len(events), len(events) - 1, 5000):
        data = header() + chunk(b"MTrk", bytes(events[:cut]))
        at_once = mending.read_events(data, 10**6)
        with monkeypatch.context() as patch:
            patch.setattr(mending, "LONG_BYTES", 10**9)
            one_by_one = mending.read_events(data, 10**6)
        for column in ("tick", "status", "data1", "data2"):
            assert getattr(at_once, column).tolist() == getattr(one_by_one, column).tolist()
        assert at_once.notices == one_by_one.notices
