"""MIDI files <-> pieces: clean and damaged files, keys, pedals, tracks, limits, and the writer."""

import gzip
import random
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pretty_midi
import pytest
import symusic
from fuzz_midi import real_files
from hypothesis import given
from hypothesis import strategies as st
from midi_bytes import (
    END_OF_TRACK,
    SCALE,
    body,
    chunk,
    control,
    events_of,
    file,
    header,
    meta,
    number,
    pedal,
    press,
    program,
    release,
    tempo,
    track,
)

from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.midi import mending
from music_gpt.midi.piece import (
    LONGEST_SILENCE_SECONDS,
    Piece,
    as_piece,
    cut_notes,
    make_notes,
    midi_bytes,
    piece_from_notes,
    read_piece,
    to_pretty_midi,
    write_midi,
)
from music_gpt.midi.timing import STUCK_PEDAL_SECONDS
from music_gpt.notes import NOTE_DTYPE, Notes

Row = tuple[float, float, int, int]


def rows(notes: Notes) -> list[Row]:
    return [(round(s, 6), round(e, 6), p, v) for s, e, p, v in notes.tolist()]


def seconds(ticks: list[tuple[int, int, int, int]]) -> list[Row]:
    return [(s / 1000, e / 1000, p, v) for s, e, p, v in ticks]


def warned(piece: Piece, words: str) -> bool:
    return any(words in warning for warning in piece.warnings)


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


# ------------------------------------------------------------------------ how long is each key


def test_a_key_that_is_struck_again_while_down_is_released_first_in_first_out() -> None:
    data = file(
        [(0, press(60, 90)), (500, press(60, 50)), (1000, release(60)), (1500, release(60))]
    )
    piece = read_piece(data)
    assert rows(piece.notes) == [(0.0, 1.0, 60, 90), (0.5, 1.5, 60, 50)]
    assert rows(piece.sounding_notes) == [(0.0, 0.5, 60, 90), (0.5, 1.5, 60, 50)]


def test_a_note_of_no_length_does_not_swallow_the_next() -> None:
    data = file(
        [
            (0, press(60)),
            (0, release(60)),
            (500, press(60)),
            (1000, release(60)),
            (1000, press(60, 0)),
        ]
    )
    assert rows(read_piece(data).notes) == [(0.0, 0.0, 60, 64), (0.5, 1.0, 60, 64)]


def test_velocity_0_is_a_release_and_stray_releases_are_ignored() -> None:
    events = [(0, press(79, 0)), (0, press(79, 1)), (200, press(79, 0)), (250, release(50))]
    events += [(300, press(60, 127)), (500, release(60)), (500, press(60, 0))]
    assert rows(read_piece(file(events)).notes) == [(0.0, 0.2, 79, 1), (0.3, 0.5, 60, 127)]


def test_a_note_that_is_never_released_ends_with_its_track() -> None:
    piece = read_piece(file([*events_of(SCALE[:2]), (1000, press(67, 77))], end=3000))
    assert rows(piece.notes) == [*seconds(SCALE[:2]), (1.0, 3.0, 67, 77)]
    assert warned(piece, "without a release")


def test_the_same_key_on_two_tracks_or_channels_is_two_keys() -> None:
    left, right = [(0, 1000, 60, 50)], [(500, 600, 60, 70)]
    for other_channel in (0, 1):
        piece = read_piece(file(events_of(left), events_of(right, other_channel)))
        assert rows(piece.notes) == [(0.0, 1.0, 60, 50), (0.5, 0.6, 60, 70)]


PRESS, RELEASE, SILENCE = "press", "release", "silence"
moves_of_keys = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([PRESS, PRESS, PRESS, RELEASE, RELEASE, RELEASE, SILENCE]),
        st.integers(60, 61),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=40,
)


@given(moves_of_keys)
def test_keys_are_paired_as_a_queue_for_each_key_pairs_them(
    moves: list[tuple[int, str, int, int]],
) -> None:
    now, events, expected = 0, [(0, press(40)), (1, release(40))], [(0.0, 0.001, 40, 64)]
    down: dict[tuple[int, int], deque[int]] = defaultdict(deque)

    def end_all(pitch: int, channel: int, at: int) -> None:
        queue = down[pitch, channel]
        expected.extend((start / 1000, at / 1000, pitch, 64) for start in queue if start < at)
        queue.clear()

    for wait, move, pitch, channel in [(1, SILENCE, 60, 15), *moves]:
        now += wait
        queue = down[pitch, channel]
        if move == PRESS:
            queue.append(now)
            events.append((now, press(pitch, 64, channel)))
        elif move == RELEASE:
            if queue:
                expected.append((queue.popleft() / 1000, now / 1000, pitch, 64))
            events.append((now, release(pitch, channel)))
        else:
            for each in (60, 61):
                end_all(each, channel, now)
            events.append((now, control(123, 0, channel)))
    for pitch, channel in down:
        end_all(pitch, channel, max(now, 1))
    assert sorted(rows(read_piece(file(events)).notes)) == sorted(expected)


@pytest.mark.parametrize("number", [120, 123, 124, 127])
def test_all_notes_off_ends_the_keys_of_its_channel_on_every_track(number: int) -> None:
    left = [(0, press(48, 50)), (900, press(48, 51)), (1200, release(48))]
    right, other = [(100, press(72)), (900, release(72))], events_of([(0, 1100, 60, 64)], 1)
    piece = read_piece(file(left, right, other, [(500, control(number))]))
    assert rows(piece.notes) == [
        (0.0, 0.5, 48, 50),
        (0.0, 1.1, 60, 64),
        (0.1, 0.5, 72, 64),
        (0.9, 1.2, 48, 51),
    ]
    assert piece.warnings == []


@pytest.mark.parametrize("number", [120, 123, 124, 127])
def test_all_notes_off_before_the_first_note_and_after_the_last_changes_nothing(
    number: int,
) -> None:
    silences = [(0, control(number)), (1300, control(number))]
    piece = read_piece(file([silences[0], *events_of(SCALE), silences[1]]))
    assert rows(piece.notes) == rows(piece.sounding_notes) == seconds(SCALE)


def test_symusic_reads_the_same_notes_from_a_clean_file() -> None:
    draw = random.Random(3)
    starts = [draw.randrange(60_000) for _ in range(3000)]
    notes = [(s, s + draw.randrange(1, 900), draw.randrange(21, 109), 64) for s in starts]
    data = file(events_of(notes[:2000]), events_of(notes[2000:], channel=5))
    score = symusic.Score.from_midi(data)
    theirs = [
        (note.time / 1000, note.end / 1000, note.pitch, note.velocity)
        for part in score.tracks
        for note in part.notes
    ]
    assert sorted(rows(read_piece(data).notes)) == sorted(theirs)


# ----------------------------------------------------------------------------------------- pedal


def sounding(notes: list[tuple[int, int, int, int]], moves: list[tuple[int, int]]) -> list[Row]:
    data = file([*((tick, pedal(value)) for tick, value in moves), *events_of(notes)])
    return rows(read_piece(data).sounding_notes)


def test_a_note_held_by_the_pedal_ends_when_it_is_struck_again() -> None:
    notes = [(100, 300, 60, 80), (1000, 1200, 60, 70), (2500, 4000, 64, 60)]
    assert sounding(notes, [(0, 127), (3000, 0)]) == [
        (0.1, 1.0, 60, 80),
        (1.0, 3.0, 60, 70),
        (2.5, 4.0, 64, 60),
    ]


def test_the_pedal_is_down_from_64_on() -> None:
    notes = [(100, 200, 60, 64), (1100, 1200, 62, 64), (2100, 2200, 64, 64)]
    moves = [(0, 5), (90, 100), (400, 63), (500, 64), (900, 63), (1150, 64), (1500, 90)]
    moves += [(1800, 63), (3000, 127), (3500, 20)]
    assert [end for _, end, _, _ in sounding(notes, moves)] == [0.4, 1.8, 2.2]


def test_a_pedal_that_goes_down_with_the_key_up_still_catches_the_note() -> None:
    assert sounding([(0, 100, 60, 64)], [(100, 127), (500, 0)]) == [(0.0, 0.5, 60, 64)]


def test_a_pedal_that_is_changed_at_one_tick_damps_what_it_held() -> None:
    moves = [(0, 127), (500, 0), (500, 127), (900, 0)]
    ends = [end for _, end, _, _ in sounding([(0, 100, 60, 64), (600, 700, 62, 64)], moves)]
    assert ends == [0.5, 0.9]


@pytest.mark.parametrize(("number", "end"), [(123, 2.0), (126, 2.0), (121, 0.5), (120, 0.5)])
def test_all_notes_off_leaves_the_pedal_down_and_a_reset_lifts_it(number: int, end: float) -> None:
    events = [(0, pedal(127)), (500, control(number)), (2000, pedal(0))]
    piece = read_piece(file([*events, *events_of([(0, 100, 60, 64)])]))
    assert rows(piece.sounding_notes) == [(0.0, end, 60, 64)]


def test_notes_after_the_last_pedal_up_are_kept() -> None:
    assert len(sounding(SCALE, [(0, 100), (600, 0)])) == len(SCALE)


def test_a_pedal_that_is_never_released_holds_to_the_end_of_the_track() -> None:
    notes = [(300 * i, 300 * i + 100, (60, 64)[i % 2], 64) for i in range(4)]
    piece = read_piece(file([(0, pedal(127)), *events_of(notes)], end=2600))
    assert piece.sounding_notes["end"].tolist() == [0.6, 0.9, 2.6, 2.6]


@pytest.mark.parametrize("before", [[], [(0, pedal(127)), (150, pedal(0))]])
def test_a_pedal_left_down_for_the_whole_piece_is_not_believed(
    before: list[tuple[int, bytes]],
) -> None:
    late = int(STUCK_PEDAL_SECONDS * 1000) + 500
    notes = [(200, 300, 60, 64), (late, late + 100, 62, 64)]
    piece = read_piece(file([*before, (190, pedal(127)), *events_of(notes)], end=late + 5000))
    assert rows(piece.sounding_notes) == seconds(notes)
    assert warned(piece, "pedal that is never released")


def test_the_pedal_acts_on_its_channel_in_every_track_even_from_one_without_notes() -> None:
    right, left = [(100, 200, 72, 64)], [(100, 300, 48, 50)]
    feet = [(0, pedal(127, 3)), (2000, pedal(0, 3))]
    piece = read_piece(file(feet, events_of(right, 3), events_of(left, 3)))
    assert piece.sounding_notes["end"].tolist() == [2.0, 2.0]
    other = read_piece(file(feet, events_of(right, 3), events_of(left, 4)))
    assert rows(other.sounding_notes) == [(0.1, 0.3, 48, 50), (0.1, 2.0, 72, 64)]


def played(notes: list[Row], moves: dict[int, list[int]]) -> list[Row]:
    """Key by key and tick by tick what a piano does, to compare with."""
    ends = dict.fromkeys(range(len(notes)), 10**6)
    ringing: set[int] = set()
    is_down = False
    for tick in range(400):
        for value in moves.get(tick, []):
            is_down = value >= 64
            lifted = {i for i in ringing if round(notes[i][1] * 1000) < tick}
            for index in lifted if not is_down else ():
                ends[index] = tick
                ringing.discard(index)
        for index, (start, end, pitch, _) in enumerate(notes):
            if round(start * 1000) == tick:
                again = {i for i in ringing if notes[i][2] == pitch and notes[i][0] < start}
                ends |= dict.fromkeys(again, tick)
                ringing = (ringing - again) | {index}
            if round(end * 1000) == tick and index in ringing and not is_down:
                ends[index] = tick
                ringing.discard(index)
    ends |= dict.fromkeys(ringing, 399)
    return [(start, ends[i] / 1000, p, v) for i, (start, _, p, v) in enumerate(notes)]


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 60), st.integers(60, 62)),
        min_size=1,
        max_size=15,
    ),
    st.lists(st.tuples(st.integers(0, 390), st.sampled_from([0, 63, 64, 127])), max_size=12),
)
def test_the_pedal_does_what_a_piano_played_tick_by_tick_does(
    keys: list[tuple[int, int, int]], moves: list[tuple[int, int]]
) -> None:
    events = events_of([(start, start + length, pitch, 64) for start, length, pitch in keys])
    feet = [(tick, pedal(value)) for tick, value in sorted(moves, key=lambda move: move[0])]
    piece = read_piece(file(feet, events, end=399))
    by_tick: dict[int, list[int]] = defaultdict(list)
    for tick, value in sorted(moves, key=lambda move: move[0]):
        by_tick[tick].append(value)
    assert rows(piece.sounding_notes) == played(rows(piece.notes), by_tick)


# ------------------------------------------------------------------------- which keys are a piano


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


# ---------------------------------------------------------------------------------- damaged files

WHOLE = file(events_of(SCALE))
INSIDE = body(events_of(SCALE))


def test_a_file_cut_in_the_middle_of_an_event_gives_its_whole_notes_and_says_how_many() -> None:
    cut = body(events_of(SCALE)[:8], ended=False) + b"\x32\x90\x43"
    piece = read_piece(header() + chunk(b"MTrk", cut, len(INSIDE)))
    assert rows(piece.notes) == seconds(SCALE[:4])
    assert piece.warnings[0] == "The file is damaged; 4 notes were read."


def test_every_cut_of_a_file_gives_a_beginning_of_its_notes_or_a_refusal() -> None:
    for length in range(len(WHOLE)):
        try:
            piece = read_piece(WHOLE[:length])
        except InputError:
            assert length < 45  # before the first note is heard
        else:
            pitches = piece.notes["pitch"].tolist()
            assert pitches == [pitch for _, _, pitch, _ in SCALE][: len(pitches)]
            assert warned(piece, "damaged")


MENDED = {
    "no end mark": header() + chunk(b"MTrk", body(events_of(SCALE), ended=False)),
    "length too long": header() + chunk(b"MTrk", INSIDE, len(INSIDE) + 1000),
    "length too short": header() + chunk(b"MTrk", INSIDE, 20),
    "length zero": header() + chunk(b"MTrk", INSIDE, 0),
    "bytes before the header": b"\r\n\r\n" + WHOLE,
    "damaged tag of the header": b"M\x00hd" + WHOLE[4:],
    "damaged tag of the header in a wrapper": b"RIFF\0\0\0\0RMIDdata\0\0\0\0MThe" + WHOLE[4:],
    "damaged tag of a track": header() + chunk(b"MTr\xeb", INSIDE),
    "damaged tag of a later track": header(1, 2)
    + track(events_of(SCALE[:3]))
    + chunk(b"MTr\xeb", body(events_of(SCALE[3:]))),
    "no length": header() + b"MTrk" + INSIDE,
    "length of 2 GB": header() + chunk(b"MTrk", INSIDE, 0x7FFFFFFF),
    "length of 4 GB": header() + chunk(b"MTrk", INSIDE, 0xFFFFFFFF),
    "stray bytes between tracks": header(1, 2)
    + track(events_of(SCALE[:3]))
    + b"\x85\x85\x00\x01\x02\xf7\x40"
    + track(events_of(SCALE[3:])),
}
UNDAMAGED = {
    "chunks of unknown kinds": header()
    + chunk(b"XFIH", b"abcd")
    + WHOLE[14:]
    + chunk(b"XFKM", b"x"),
    "longer header": chunk(b"MThd", WHOLE[8:14] + b"\x00\x01") + WHOLE[14:],
    "header length of 0": chunk(b"MThd", WHOLE[8:14], 0) + WHOLE[14:],
    "header length of 7": chunk(b"MThd", WHOLE[8:14], 7) + WHOLE[14:],
    "endless header length": chunk(b"MThd", WHOLE[8:14], 0xFFFFFFFF) + WHOLE[14:],
    "more tracks than the header tells": header(1, 1)
    + track(events_of(SCALE[:3]))
    + track(events_of(SCALE[3:])),
    "an empty track": header(1, 2) + track([]) + WHOLE[14:],
    "bytes behind the last track": WHOLE + bytes(5),
    "a second file behind the first": WHOLE + WHOLE,
    "RIFF": b"RIFF\x00\x00\x00\x00RMIDLIST\x04\x00\x00\x00INFOdata"
    + len(WHOLE).to_bytes(4, "little")
    + WHOLE
    + b"\x00LIST\x04\x00\x00\x00INFO",
    "RIFF that tells no length": b"RIFF\0\0\0\0RMIDdata\0\0\0\0" + WHOLE,
    "RIFF that ends too early": b"RIFF\0\0\0\0RMIDdata\x10\0\0\0" + WHOLE,
    "MacBinary": bytes(83) + len(WHOLE).to_bytes(4) + bytes(41) + WHOLE + bytes(100),
}


@pytest.mark.parametrize("fault", MENDED)
def test_a_fault_around_the_notes_costs_no_note_and_is_told(fault: str) -> None:
    piece = read_piece(MENDED[fault])
    assert rows(piece.notes) == seconds(SCALE)
    assert len(piece.warnings) == 1


@pytest.mark.parametrize("form", UNDAMAGED)
def test_an_unusual_but_whole_file_is_read_without_a_word(form: str) -> None:
    piece = read_piece(UNDAMAGED[form])
    assert rows(piece.notes) == seconds(SCALE)
    assert piece.warnings == []


TENS = [(10 * i, 10 * i + 10, 10 + i, 10) for i in range(20)]
"""Notes of which many bytes are 10, which is a line end in a text."""


def in_utf8(data: bytes) -> bytes:
    return data.decode("latin-1").encode("utf-8")


def with_line_ends(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("transfer", [in_utf8, with_line_ends])
def test_a_file_that_was_transferred_as_text_is_read_as_it_was(
    transfer: Callable[[bytes], bytes],
) -> None:
    for whole in [file(events_of(TENS)), *real_files()]:
        if (changed := transfer(whole)) != whole:
            piece = read_piece(changed)
            assert piece.notes.tolist() == read_piece(whole).notes.tolist()
            assert warned(piece, "transfer as text")


def test_line_ends_that_are_music_stay_as_they_are() -> None:
    fives = [(0, 13, 13, 10), (13, 26, 13, 10)]
    data = file(events_of(fives))
    assert b"\r\n" in data
    assert rows(read_piece(data).notes) == seconds(fives)
    assert rows(read_piece(data[:-4]).notes) == seconds(fives)  # no end mark, but nothing to mend


@pytest.mark.parametrize("n_lost", [0, 9])
def test_a_packed_file_is_read_and_a_cut_one_as_far_as_it_goes(n_lost: int) -> None:
    packed = gzip.compress(file(events_of(TENS)))
    piece = read_piece(packed[: len(packed) - n_lost])
    assert rows(piece.notes) == seconds(TENS)[: piece.n_notes]
    assert piece.n_notes == 20 or warned(piece, "is damaged")


def test_a_packed_file_is_not_unpacked_beyond_the_limit() -> None:
    limits = MidiLimits(max_bytes=10_000)
    with pytest.raises(InputError, match=r"more than the 10,000 bytes that are allowed; give"):
        read_piece(gzip.compress(file(events_of(SCALE)) + bytes(20_000)), limits=limits)


def test_a_data_byte_above_127_costs_at_most_its_note() -> None:
    events = [(0, press(60)), (100, release(60)), (200, b"\x90\x3e\xff"), (300, release(62))]
    piece = read_piece(file([*events, (400, press(64)), (500, release(64))]))
    assert rows(piece.notes)[0] == (0.0, 0.1, 60, 64)
    assert rows(piece.notes)[-1] == (0.4, 0.5, 64, 64)
    assert warned(piece, "damaged")


def test_a_lost_track_is_noticed() -> None:
    assert warned(read_piece(header(1, 3) + track(events_of(SCALE))), "damaged")


def test_data_without_a_status_are_skipped() -> None:
    piece = read_piece(header() + chunk(b"MTrk", b"\x00\x3c\x40" + INSIDE))
    assert piece.notes["pitch"].tolist() == [pitch for _, _, pitch, _ in SCALE]
    assert warned(piece, "damaged")


def test_a_track_of_no_length_costs_the_others_nothing() -> None:
    piece = read_piece(header(1, 2) + chunk(b"MTrk", b"") + WHOLE[14:])
    assert rows(piece.notes) == seconds(SCALE)
    assert piece.warnings == ["A track has no end mark; it ends with its last event."]


def test_a_type_2_file_of_one_pattern_is_read_like_any_other() -> None:
    piece = read_piece(header(2, 1) + track(events_of(SCALE)))
    assert rows(piece.notes) == seconds(SCALE)
    assert piece.warnings == []


def test_patterns_of_a_type_2_file_follow_each_other_each_at_its_own_tempo() -> None:
    note = events_of([(0, 1000, 60, 64)])
    data = header(2, 3) + track(note) + track([(0, tempo(250_000)), *note]) + track(note)
    piece = read_piece(data)
    assert rows(piece.notes) == [(0.0, 1.0, 60, 64), (1.0, 1.5, 60, 64), (1.5, 2.5, 60, 64)]
    assert warned(piece, "one after the other")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "empty"),
        (b"<html><title>404 not found</title></html>", "not a MIDI file"),
        (b"ID3\x03\x00" + b"\xff\xfb\x90\x00" + bytes(400), "not a MIDI file"),
        (b"MThd\x00\x00\x00\x06\x00\x01", "ends inside its header"),
        (WHOLE[14:], "lost its header"),
        (WHOLE[8:], "lost its header"),
        (bytes(14) + WHOLE[14:], "lost its header"),
        (header(0, 1, 0) + WHOLE[14:], "no time base"),
        (header(0, 1, 0xE700) + WHOLE[14:], "no time base"),
        (header(0, 1, 0x8001) + WHOLE[14:], "no time base"),
        (b"\x1f\x8b\x08" + bytes(40), "the packing is damaged"),
        (gzip.compress(b"music"), "not a MIDI file"),
        (WHOLE.decode("utf-8", "replace").encode("utf-8"), "saved as text"),
    ],
    ids=[
        "0 bytes",
        "web page",
        "mp3",
        "only a header",
        "no header",
        "half a header",
        "a header of zeros",
        "0 ticks",
        "0 SMPTE ticks",
        "no frame rate",
        "broken gzip",
        "gzip of a text",
        "saved as UTF-8",
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as refusal:
        read_piece(data)
    assert str(refusal.value).count(". ") == 0


@pytest.mark.parametrize("path", ["no such file.mid", ".", "a\0b.mid", "n" * 5000])
def test_a_path_that_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="give a MIDI file"):
        read_piece(path)


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
