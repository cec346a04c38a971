"""Pieces <-> what holds music: PrettyMIDI, notes, and the MIDI files that are written."""

from pathlib import Path

import numpy as np
import pretty_midi
import pytest
import symusic
from hypothesis import given
from hypothesis import strategies as st
from midi_bytes import SCALE, events_of, file, number, pedal
from midi_rows import Row, rows, seconds, warned

from music_gpt.errors import InputError
from music_gpt.midi.piece import (
    as_piece,
    cut_notes,
    make_notes,
    midi_bytes,
    piece_from_notes,
    read_piece,
    to_pretty_midi,
    write_midi,
)
from music_gpt.notes import NOTE_DTYPE, Notes

# -------------------------------------------------------------------------- other things -> piece


def test_a_pretty_midi_sounds_as_its_file_does() -> None:
    moves = [(0, pedal(127)), (900, pedal(0))]
    data = file([*moves, *events_of(SCALE)], events_of([(0, 100, 42, 64)], 9))
    score = pretty_midi.PrettyMIDI()
    piano, drums = pretty_midi.Instrument(0), pretty_midi.Instrument(0, is_drum=True)
    piano.notes = [pretty_midi.Note(v, p, s, e) for s, e, p, v in reversed(seconds(SCALE))]
    piano.control_changes = [
        pretty_midi.ControlChange(64, 127, 0),
        pretty_midi.ControlChange(64, 0, 0.9),
    ]
    drums.notes = [pretty_midi.Note(64, 42, 0.0, 0.1)]
    score.instruments = [drums, piano]
    piece = as_piece(score)
    assert rows(piece.notes) == seconds(SCALE)
    assert rows(piece.sounding_notes) == rows(read_piece(data).sounding_notes)
    assert warned(piece, "left out")


def test_a_pretty_midi_with_only_drums_or_nothing_is_refused() -> None:
    score = pretty_midi.PrettyMIDI()
    with pytest.raises(InputError, match="no notes"):
        as_piece(score)
    drums = pretty_midi.Instrument(0, is_drum=True)
    drums.notes = [pretty_midi.Note(64, 42, 0.0, 0.1)]
    score.instruments = [drums]
    with pytest.raises(InputError, match="only drums"):
        as_piece(score)


def test_everything_that_holds_music_becomes_the_same_piece(tmp_path: Path) -> None:
    notes = make_notes(seconds(SCALE))
    write_midi(notes, tmp_path / "a.mid")
    piece = piece_from_notes(notes)
    data = midi_bytes(notes)
    for thing in (piece, notes, data, bytearray(data), tmp_path / "a.mid", str(tmp_path / "a.mid")):
        assert rows(as_piece(thing).sounding_notes) == seconds(SCALE)
    assert rows(as_piece(to_pretty_midi(notes)).notes) == seconds(SCALE)
    assert as_piece(piece) is piece


def test_what_holds_no_music_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be a int"):
        as_piece(5)
    with pytest.raises(InputError, match="make_notes"):
        as_piece(np.zeros(3))


@pytest.mark.parametrize(
    "row",
    [(-1, 1, 60, 64), (1, 0.5, 60, 64), (0, np.nan, 60, 64), (0, np.inf, 60, 64), (0, 1, 128, 64)],
)
def test_a_note_out_of_range_is_refused(row: Row) -> None:
    with pytest.raises(InputError, match="out of range"):
        piece_from_notes(make_notes([row]))


def test_notes_are_sorted_by_start_and_pitch() -> None:
    notes = make_notes([(1, 2, 60, 1), (0, 1, 64, 1), (0, 1, 60, 1)])
    assert [(n["start"], n["pitch"]) for n in notes] == [(0, 60), (0, 64), (1, 60)]


def test_a_piece_of_no_notes_lasts_no_time() -> None:
    assert piece_from_notes(np.zeros(0, NOTE_DTYPE)).seconds == 0


def test_a_cut_clips_at_its_edges_and_starts_at_0() -> None:
    notes = make_notes(
        [(0, 1, 50, 9), (0.5, 2.5, 60, 9), (1, 1.5, 62, 9), (2, 9, 64, 9), (3, 4, 65, 9)]
    )
    assert rows(cut_notes(notes, 1, 3)) == [(0, 1.5, 60, 9), (0, 0.5, 62, 9), (1, 2, 64, 9)]


# --------------------------------------------------------------------------- notes -> MIDI file


@st.composite
def playable(draw: st.DrawFn) -> Notes:
    """Notes on the 10 ms grid, one sound at a time on each pitch."""
    found: list[Row] = []
    for pitch in draw(st.lists(st.integers(0, 127), unique=True, max_size=4)):
        edges = draw(st.lists(st.integers(0, 50_000), unique=True, max_size=8))
        edges = sorted(edges)[: len(edges) // 2 * 2]
        velocities = draw(st.lists(st.integers(1, 127), min_size=4, max_size=4))
        found += [
            (start / 100, end / 100, pitch, velocity)
            for start, end, velocity in zip(edges[::2], edges[1::2], velocities, strict=False)
        ]
    return make_notes(found)


@given(playable())
def test_what_is_written_reads_back_equal(notes: Notes) -> None:
    data = midi_bytes(notes)
    if not len(notes):
        with pytest.raises(InputError, match="no notes"):
            read_piece(data)
        return
    again = read_piece(data)
    assert again.warnings == []
    assert np.array_equal(again.notes, notes)
    assert np.array_equal(again.sounding_notes, notes)


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(60, 61), st.integers(0, 127)),
        min_size=1,
        max_size=12,
    )
)
def test_written_notes_never_overlap_on_one_pitch(
    loose: list[tuple[int, int, int, int]],
) -> None:
    notes = make_notes([(s / 100, (s + length) / 100, p, v) for s, length, p, v in loose])
    piece = read_piece(midi_bytes(notes))
    assert np.array_equal(piece.notes, piece.sounding_notes)
    assert {(s, p) for s, _, p, _ in rows(piece.notes)} == {(s, p) for s, _, p, _ in rows(notes)}
    assert (piece.notes["end"] - piece.notes["start"] > 0.0099).all()


def test_a_written_file_opens_in_other_libraries_with_its_track_program_and_text(
    tmp_path: Path,
) -> None:
    write_midi(make_notes(seconds(SCALE)), tmp_path / "a.mid", text="seed 7 – Träumerei")
    theirs = pretty_midi.PrettyMIDI(str(tmp_path / "a.mid"), charset="utf8")
    (piano,) = theirs.instruments
    assert (piano.name, piano.program, piano.is_drum) == ("piano", 0, False)
    assert [(round(n.start, 6), round(n.end, 6), n.pitch, n.velocity) for n in piano.notes] == (
        seconds(SCALE)
    )
    assert theirs.text_events[0].text == "seed 7 – Träumerei"
    (part,) = symusic.Score(tmp_path / "a.mid").tracks
    assert part.note_num() == len(SCALE)


def test_a_pretty_midi_writes_what_midi_bytes_writes(tmp_path: Path) -> None:
    notes = make_notes([*seconds(SCALE), (0.1, 5.0, 60, 99)])  # overlaps on one pitch
    to_pretty_midi(notes, text="音").write(str(tmp_path / "a.mid"))
    assert rows(read_piece(tmp_path / "a.mid").notes) == rows(read_piece(midi_bytes(notes)).notes)


def test_writing_leaves_no_other_file_and_an_older_one_stays_if_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.mid"
    write_midi(make_notes(seconds(SCALE)), path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="cannot be written"):
        write_midi(make_notes(seconds(SCALE)), tmp_path / "no such folder" / "a.mid")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_midi(make_notes(seconds(SCALE)), tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mid", "folder"]
    assert path.read_bytes() == before


def test_a_number_takes_as_many_bytes_as_it_needs() -> None:
    late = make_notes([(0.0, 0.1, 60, 64), (300.0, 300.1, 62, 64)])
    assert number(299_900) in midi_bytes(late)


def test_what_is_no_path_and_what_are_no_tracks_is_said() -> None:
    data = midi_bytes(make_notes(seconds(SCALE)))
    with pytest.raises(InputError, match="A path is needed, but a NoneType was given"):
        read_piece(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="A path is needed, but an empty name"):
        read_piece("")
    with pytest.raises(InputError, match=r"^a{80}\.\.\.a{40} cannot be read"):
        read_piece("a" * 5000)
    for tracks in (5, "piano"):
        with pytest.raises(InputError, match="has to be a list of numbers or names"):
            read_piece(data, tracks=tracks)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="A path is needed, but a NoneType was given"):
        write_midi(make_notes(seconds(SCALE)), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["pedal", "velocity", "pitch"])
def test_a_pretty_midi_with_values_out_of_range_is_one_sentence(fault: str) -> None:
    score = to_pretty_midi(make_notes(seconds(SCALE)))
    piano = score.instruments[0]
    if fault == "pedal":
        piano.control_changes.append(pretty_midi.ControlChange(64, 300, 0.5))
    else:
        setattr(piano.notes[0], fault, 300 if fault == "pitch" else None)
    with pytest.raises(InputError, match="of the PrettyMIDI is out of range"):
        as_piece(score)
