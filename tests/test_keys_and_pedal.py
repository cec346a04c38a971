"""How long each note of a MIDI file sounds: keys that are struck again, and the pedal."""

import random
from collections import defaultdict, deque

import pytest
import symusic
from hypothesis import given
from hypothesis import strategies as st
from midi_bytes import SCALE, control, events_of, file, pedal, press, release
from midi_rows import Row, rows, seconds, warned

from music_gpt.midi.piece import read_piece
from music_gpt.midi.timing import STUCK_PEDAL_SECONDS

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
