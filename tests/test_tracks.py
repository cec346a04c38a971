"""Which tracks of a MIDI file are the piano, and how others are chosen."""

import pretty_midi
import pytest
from midi_bytes import SCALE, events_of, file, header, meta, pedal, press, program, track
from midi_rows import rows, seconds, warned

from music_gpt.errors import InputError
from music_gpt.midi.piece import Piece, as_piece, read_piece


def test_of_a_band_only_the_pianos_are_read_and_it_is_said() -> None:
    grand, electric = events_of(SCALE), events_of([(0, 900, 72, 60)], 1)
    strings, drums = events_of([(0, 2000, 60, 40)], 3), events_of([(0, 50, 42, 80)], 9)
    data = file(
        [(0, program(0)), *grand],
        [(0, program(4, 1)), *electric],
        [(0, program(48, 3)), *strings],
        drums,
    )
    piece = read_piece(data)
    assert sorted(rows(piece.notes)) == sorted([*seconds(SCALE), (0.0, 0.9, 72, 60)])
    assert warned(piece, "other instruments are left out")
    assert warned(piece, "Drums are left out")


def test_without_a_piano_all_pitched_tracks_are_read_and_it_is_said() -> None:
    strings, drums = events_of(SCALE, 3), events_of([(0, 50, 42, 80)], 9)
    piece = read_piece(file([(0, program(48, 3)), *strings], drums))
    assert rows(piece.notes) == seconds(SCALE)
    assert warned(piece, "no piano")


def test_programs_may_be_named_in_a_track_of_their_own() -> None:
    setup = [(0, program(0, 0)), (0, program(48, 1))]
    piece = read_piece(file(setup, events_of(SCALE, 0), events_of([(0, 100, 90, 64)], 1)))
    assert rows(piece.notes) == seconds(SCALE)


def test_a_track_that_names_its_program_is_not_bound_by_another_on_its_channel() -> None:
    piano = [(0, program(0)), *events_of(SCALE)]
    strings = [(0, program(48)), *events_of([(0, 100, 90, 64)])]
    for tracks in ((piano, strings), (strings, piano)):
        assert rows(read_piece(file(*tracks)).notes) == seconds(SCALE)


BAND = file(
    [(0, meta(3, b"conductor"))],
    [(0, meta(3, b"Right hand")), (0, program(0)), *events_of(SCALE)],
    [(0, meta(3, b"Strings")), (0, program(48, 3)), *events_of([(0, 2000, 60, 40)], 3)],
    [(0, meta(3, b"Kit")), *events_of([(0, 50, 42, 80), (100, 150, 42, 80)], 9)],
    [(0, program(4, 1)), *events_of([(0, 900, 72, 60)], 1)],
)
TRACKS_OF_BAND = [
    ("Right hand", 0, False, 5),
    ("Strings", 48, False, 1),
    ("Kit", 0, True, 2),
    ("", 4, False, 1),
]


def used(piece: Piece) -> list[int]:
    return [track.number for track in piece.tracks if track.used]


def test_the_tracks_that_have_notes_are_listed_with_what_was_used() -> None:
    piece = read_piece(BAND)
    assert [(t.name, t.program, t.is_drum, t.n_notes) for t in piece.tracks] == TRACKS_OF_BAND
    assert [track.number for track in piece.tracks] == [0, 1, 2, 3]
    assert used(piece) == [0, 3]


@pytest.mark.parametrize(
    ("tracks", "numbers"),
    [([1], [1]), (["strings "], [1]), ([0, "1"], [0, 1]), (["Right hand", 3, 3], [0, 3])],
)
def test_tracks_are_chosen_by_number_or_by_name(
    tracks: list[int | str], numbers: list[int]
) -> None:
    piece = read_piece(BAND, tracks=tracks)
    assert used(piece) == numbers
    assert piece.n_notes == sum(TRACKS_OF_BAND[number][3] for number in numbers)
    assert piece.warnings == []


def test_a_name_that_two_tracks_have_chooses_both_and_a_name_goes_before_a_number() -> None:
    named = [[(0, meta(3, name)), *events_of(SCALE)] for name in (b"1", b"hand", b"hand")]
    data = file(*named)
    assert used(read_piece(data, tracks=["hand"])) == [1, 2]
    assert used(read_piece(data, tracks=["1"])) == [0]
    assert used(read_piece(data, tracks=[1])) == [1]


def test_channels_of_one_track_are_listed_as_tracks_of_their_own() -> None:
    events = [*events_of(SCALE), *events_of([(0, 100, 90, 64)], 1), (0, program(48, 1))]
    data = file(sorted(events, key=lambda event: (event[0], event[1][0] < 0xC0)))
    assert [t.program for t in read_piece(data).tracks] == [0, 48]
    assert rows(read_piece(data, tracks=[1]).notes) == [(0.0, 0.1, 90, 64)]


def test_a_chosen_track_keeps_the_pedal_of_its_channel() -> None:
    feet, left = [(0, pedal(127)), (2000, pedal(0))], events_of([(100, 300, 48, 50)])
    piece = read_piece(file(feet, events_of(SCALE), left), tracks=[1])
    assert rows(piece.sounding_notes) == [(0.1, 2.0, 48, 50)]


def test_tracks_of_a_type_2_file_are_chosen_too() -> None:
    note = events_of([(0, 1000, 60, 64)])
    strings = [(0, program(48)), *note]
    data = header(2, 3) + track(note) + track(strings) + track(note)
    assert used(read_piece(data)) == [0, 1, 2]  # each pattern stands for itself
    piece = read_piece(data, tracks=[0, 2])
    assert used(piece) == [0, 2]
    assert rows(piece.notes) == [(0.0, 1.0, 60, 64), (1.0, 2.0, 60, 64)]


@pytest.mark.parametrize(
    ("tracks", "sentence"),
    [
        ([7], "Track '7' is not in the file; choose among 0 .Right hand., 1 .Strings., 3"),
        (["Viola"], "Track 'Viola' is not in the file"),
        (["kit"], "Track 'kit' plays drums"),
        ([2], "Track '2' plays drums"),
        ([], "No track is chosen"),
    ],
)
def test_a_track_that_cannot_be_chosen_is_refused_with_those_that_can(
    tracks: list[int | str], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        read_piece(BAND, tracks=tracks)


def test_of_very_many_tracks_only_some_are_told() -> None:
    data = file(*[events_of(SCALE)] * 50)
    with pytest.raises(InputError, match="18, 19, 30 more"):
        read_piece(data, tracks=[50])


def test_a_pretty_midi_lists_its_tracks() -> None:
    score = pretty_midi.PrettyMIDI()
    for its_program, name in [(0, "left"), (48, "strings")]:
        part = pretty_midi.Instrument(its_program, name=name)
        part.notes = [pretty_midi.Note(64, 60, 0.0, 0.1)]
        score.instruments.append(part)
    piece = as_piece(score)
    assert [(t.name, t.program, t.used) for t in piece.tracks] == [
        ("left", 0, True),
        ("strings", 48, False),
    ]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (file(events_of(SCALE, 9)), "only drums"),
        (file([(0, press(60))]), "no notes"),
        (file(*[[]] * 16), "no notes"),
        (header(1, 0), "no notes"),
    ],
    ids=["drums", "a press at the very end", "empty tracks", "no track"],
)
def test_a_file_without_a_note_for_the_piano_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_piece(data)
