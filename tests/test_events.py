"""Notes <-> ids: what a musician would notice, exact ids, and the rules for any input."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from music_gpt.config.model import N_EVENTS
from music_gpt.errors import InputError
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens import events
from music_gpt.tokens.events import (
    EOS,
    NOTE_OFF,
    NOTE_ON,
    PAD,
    TIME_SHIFT,
    VELOCITY,
    canonical_notes,
    count_notes,
    decode_ids,
    duration_frames,
    encode_notes,
    shift_velocity_ids,
    sounding_after,
    stretch_ids,
    transpose_ids,
    velocity_bin,
    velocity_in_force,
    velocity_value,
)

MEZZO_FORTE = 66
MEZZO_FORTE_ID = VELOCITY + 16


def notes_of(*notes: tuple[float, float, int, int]) -> Notes:
    return np.array(list(notes), NOTE_DTYPE)


def frames_of(notes: Notes) -> list[tuple[int, int, int, int]]:
    """Start, end, pitch and velocity bin in frames."""
    return [
        (round(start * 100), round(end * 100), int(pitch), (int(velocity) - 1) // 4)
        for start, end, pitch, velocity in notes
    ]


def canonical_by_hand(notes: Notes) -> list[tuple[int, int, int, int]]:
    """The rules one note at a time, the slow way: the reference for `canonical_notes`."""
    if len(notes) == 0:
        return []
    first = min(float(note["start"]) for note in notes)
    merged: dict[tuple[int, int], tuple[int, int]] = {}
    for start, end, pitch, velocity in notes.tolist():
        place = (pitch, round((start - first) * 100))
        longest, loudest = merged.get(place, (0, 0))
        merged[place] = max(longest, round((end - first) * 100)), max(loudest, velocity)
    result = []
    for (pitch, start), (end, velocity) in merged.items():
        later = [s for p, s in merged if p == pitch and s > start]
        end = min([max(end, start + 1), *later])
        result.append((start, end, pitch, (velocity - 1) // 4))
    return sorted(result, key=lambda note: (note[0], note[2]))


# times lie near each other, so that pitches meet, overlap and repeat
note_lists = st.lists(
    st.tuples(
        st.floats(0, 6, allow_nan=False) | st.integers(0, 40).map(lambda n: n / 100),
        st.floats(0, 3, allow_nan=False) | st.just(0.0),
        st.integers(58, 64) | st.integers(0, 127),
        st.integers(1, 127),
    ),
    max_size=40,
).map(lambda notes: notes_of(*((start, start + held, p, v) for start, held, p, v in notes)))
id_lists = st.lists(st.integers(0, events.VOCAB_SIZE - 1), max_size=80) | st.lists(
    st.sampled_from([60, 61, 188, 189, 256, 257, 355, 356, 371, EOS, PAD]), max_size=80
)


# --- the vocabulary ---------------------------------------------------------------------------


def test_the_vocabulary_is_the_390_events_of_performance_rnn():
    names = events.token_names()
    assert len(names) == len(set(names)) == events.VOCAB_SIZE == N_EVENTS == 390
    assert names[NOTE_ON + 60] == "NoteOn_60"
    assert names[NOTE_OFF + 127] == "NoteOff_127"
    assert names[TIME_SHIFT] == "TimeShift_0.1.100"
    assert names[TIME_SHIFT + 98] == "TimeShift_0.99.100"
    assert names[TIME_SHIFT + 99] == "TimeShift_1.0.100"
    assert names[VELOCITY] == "Velocity_3"
    assert names[VELOCITY + 31] == "Velocity_127"
    assert names[EOS] == "EOS_None"
    assert names[PAD] == "PAD_None"


def test_the_hash_of_the_vocabulary_is_the_one_that_corpora_and_checkpoints_carry():
    assert events.vocabulary_hash() == (
        "689e8f014a09a150623b0225c63d2abd3abd5629bbb33a4340c339eddb01b3cd"
    )


def test_every_velocity_is_told_within_two_and_none_becomes_silence():
    velocities = np.arange(1, 128)
    told = velocity_value(velocity_bin(velocities))
    assert np.abs(told - velocities).max() == 2
    assert told.min() == 3
    assert [velocity_value(velocity_bin(v)) for v in (1, 4, 5, 126, 127)] == [3, 3, 7, 127, 127]
    assert velocity_bin(0) == 0
    assert velocity_bin(np.array([0])).tolist() == [0]


# --- notes -> ids -----------------------------------------------------------------------------


def test_a_small_piece_has_exactly_these_ids():
    piece = notes_of(
        (2.0, 2.5, 60, 66),  # C and E together, equally loud
        (2.0, 3.0, 64, 66),
        (2.5, 3.0, 67, 66),  # G as C ends: off before on
        (3.0, 5.25, 60, 100),  # E and G end, C again, louder
    )
    assert encode_notes(piece).tolist() == [
        *(MEZZO_FORTE_ID, 60, 64),
        *(TIME_SHIFT + 49, NOTE_OFF + 60, 67),
        *(TIME_SHIFT + 49, NOTE_OFF + 64, NOTE_OFF + 67, VELOCITY + 24, 60),
        *(TIME_SHIFT + 99, TIME_SHIFT + 99, TIME_SHIFT + 24, NOTE_OFF + 60),
    ]
    assert encode_notes(piece, eos=True).tolist() == [EOS, *encode_notes(piece).tolist(), EOS]


@pytest.mark.parametrize(
    ("seconds", "shifts"),
    [(0.01, [0]), (0.99, [98]), (1.0, [99]), (1.01, [99, 0]), (2.0, [99] * 2)],
)
def test_a_wait_takes_as_many_shifts_as_it_has_begun_seconds(seconds, shifts):
    ids = encode_notes(notes_of((0, seconds, 60, MEZZO_FORTE)))
    assert ids.tolist() == [MEZZO_FORTE_ID, 60, *(TIME_SHIFT + s for s in shifts), NOTE_OFF + 60]


def test_silence_before_the_first_note_is_left_out():
    late = notes_of((31.237, 32.237, 60, MEZZO_FORTE))
    assert decode_ids(encode_notes(late)).tolist() == [(0.0, 1.0, 60, 67)]


def test_a_long_silence_is_shortened_but_a_long_note_is_not():
    piece = notes_of((0, 30, 60, 66), (100, 101, 62, 66), (101, 102, 64, 66), (109, 110, 65, 66))
    short = canonical_notes(piece, max_gap_seconds=10)
    assert short["start"].tolist() == [0, 40, 41, 49]
    assert short["end"].tolist() == [30, 41, 42, 50]
    assert canonical_notes(piece)["start"].tolist() == [0, 100, 101, 109]


def test_the_same_note_twice_at_once_is_one_note_the_loudest_and_the_longest():
    doubled = notes_of((0, 1.0, 60, 30), (0.001, 2.0, 60, 20), (0, 0.5, 60, 90))
    assert frames_of(canonical_notes(doubled)) == [(0, 200, 60, 22)]


def test_a_note_ends_when_it_is_struck_again():
    again = notes_of((0, 5, 60, 66), (1, 2, 60, 66))
    assert frames_of(canonical_notes(again)) == [(0, 100, 60, 16), (100, 200, 60, 16)]


def test_a_note_of_no_length_lasts_a_frame_and_a_trill_in_frames_keeps_every_note():
    trill = notes_of((0, 0, 60, 66), (0.01, 0.01, 60, 66), (0.02, 0.5, 60, 66))
    assert encode_notes(trill).tolist() == [
        *(MEZZO_FORTE_ID, 60),
        *(TIME_SHIFT, NOTE_OFF + 60, 60),
        *(TIME_SHIFT, NOTE_OFF + 60, 60),
        *(TIME_SHIFT + 47, NOTE_OFF + 60),
    ]


def test_no_notes_are_no_ids():
    assert encode_notes(notes_of()).tolist() == []
    assert encode_notes(notes_of(), eos=True, max_gap_seconds=1).tolist() == [EOS, EOS]
    assert encode_notes(notes_of()).dtype == encode_notes(notes_of(), eos=True).dtype == np.uint16


@pytest.mark.parametrize(
    "note", [(0, np.nan, 60, 66), (np.nan, 1, 60, 66), (0, np.inf, 60, 66), (0, 1, 128, 66)]
)
def test_a_note_that_no_keyboard_has_is_refused(note):
    with pytest.raises(InputError):
        encode_notes(notes_of((0, 1, 60, 66), note))


@given(note_lists)
def test_canonical_notes_follow_the_rules_as_told_one_by_one(notes):
    assert frames_of(canonical_notes(notes)) == canonical_by_hand(notes)


@given(note_lists, st.none() | st.floats(0, 4))
def test_decoding_what_was_encoded_gives_the_canonical_notes(notes, gap):
    ids = encode_notes(notes, max_gap_seconds=gap)
    canonical = canonical_notes(notes, max_gap_seconds=gap)
    assert decode_ids(ids).tolist() == canonical.tolist()
    assert decode_ids(encode_notes(notes, max_gap_seconds=gap, eos=True)).tolist() == (
        canonical.tolist()
    )
    assert canonical_notes(canonical, max_gap_seconds=gap).tolist() == canonical.tolist()
    assert encode_notes(canonical).tolist() == ids.tolist()


@given(note_lists, st.floats(0, 2))
def test_no_silence_is_longer_than_the_longest_allowed(notes, gap):
    notes = canonical_notes(notes, max_gap_seconds=gap)
    silences = notes["start"][1:] - np.maximum.accumulate(notes["end"])[:-1]
    assert (silences <= gap + 0.0051).all()


@given(note_lists.filter(len))
def test_every_id_is_in_its_place_by_the_grammar(notes):
    ids = encode_notes(notes).astype(int)
    bin_, frame, sounding, last = None, 0, set(), -1
    for i, id_ in enumerate(ids):
        if TIME_SHIFT <= id_ < VELOCITY:
            assert i + 1 < len(ids)
            follows_shift = TIME_SHIFT <= ids[i + 1] < VELOCITY
            assert id_ == TIME_SHIFT + 99 or not follows_shift
            frame, last = frame + id_ - TIME_SHIFT + 1, -1
        elif id_ >= VELOCITY:
            assert id_ != bin_
            assert ids[i + 1] < NOTE_OFF
            bin_ = id_
        else:
            is_on, pitch = id_ < NOTE_OFF, id_ % 128
            place = pitch + 128 * is_on
            assert place > last, "offs by pitch, then ons by pitch"
            last = place
            assert (pitch in sounding) != is_on
            sounding ^= {pitch}
    assert not sounding


def test_onsets_stay_within_five_milliseconds_over_an_hour_of_changing_tempo():
    rng = np.random.default_rng(5)
    beats = 60 / rng.uniform(30, 200, 9_000)  # seconds of 9,000 beats, each with its own tempo
    start = np.cumsum(beats)
    start = start[start < 3_700]
    pitch = np.tile(np.arange(21, 109), len(start) // 88 + 1)[: len(start)]
    notes = np.empty(len(start), NOTE_DTYPE)
    notes["start"], notes["end"], notes["pitch"], notes["velocity"] = start, start + 1, pitch, 80
    decoded = decode_ids(encode_notes(notes))
    assert start[-1] > 3_600
    assert len(decoded) == len(notes)
    error = np.abs(decoded["start"] - (start - start[0]))
    assert error.max() <= 0.005 + 1e-9


# --- ids -> notes -----------------------------------------------------------------------------


@given(id_lists)
def test_any_ids_decode_to_notes_that_a_piano_can_play(ids):
    notes = decode_ids(ids)
    assert (notes["end"] - notes["start"] > 0.0099).all()
    assert ((notes["velocity"] >= 3) & (notes["velocity"] <= 127)).all()
    first = notes["start"].min() if len(notes) else 0
    moved = notes.copy()
    moved["start"] -= first
    moved["end"] -= first
    assert frames_of(canonical_notes(notes)) == frames_of(moved)


@given(st.lists(st.sampled_from([60, 61, 188, 189, 256, 258, 360, 371, 355]), max_size=60))
def test_decoding_agrees_with_a_player_who_reads_one_event_at_a_time(ids):
    frame, bin_, held, struck = 0, 15, {}, {}
    for id_ in ids:
        if id_ < TIME_SHIFT:
            pitch = id_ % 128
            if pitch in held:
                start = held.pop(pitch)
                end, loudest = struck[pitch, start]
                struck[pitch, start] = max(end, frame, start + 1), loudest
            if id_ < NOTE_OFF:
                held[pitch] = frame
                _, loudest = struck.get((pitch, frame), (0, 0))
                struck[pitch, frame] = frame + 1, max(bin_, loudest)
        elif id_ < VELOCITY:
            frame += id_ - TIME_SHIFT + 1
        else:
            bin_ = id_ - VELOCITY
    for pitch, start in held.items():
        struck[pitch, start] = max(frame, start + 1), struck[pitch, start][1]
    expected = sorted((start, p, end, bin_) for (p, start), (end, bin_) in struck.items())
    assert [(s, p, e, b) for s, e, p, b in frames_of(decode_ids(ids))] == expected


def test_a_stray_end_is_ignored_and_an_open_note_ends_with_the_ids():
    ids = [NOTE_OFF + 40, MEZZO_FORTE_ID, 60, TIME_SHIFT + 49, NOTE_OFF + 61, TIME_SHIFT + 9]
    assert decode_ids(ids).tolist() == [(0.0, 0.6, 60, 67)]


@pytest.mark.parametrize("end", [EOS, PAD])
def test_the_piece_ends_at_the_first_end_after_its_head(end):
    ids = [EOS, MEZZO_FORTE_ID, 60, TIME_SHIFT + 49, end, TIME_SHIFT + 99, 62, TIME_SHIFT]
    assert decode_ids(ids).tolist() == [(0.0, 0.5, 60, 67)]
    assert decode_ids([PAD, PAD, *ids]).tolist() == [(0.0, 0.5, 60, 67)]
    assert decode_ids([end]).tolist() == decode_ids([]).tolist() == []


def test_a_wait_before_the_first_note_is_kept():
    assert decode_ids([TIME_SHIFT + 24, 60, TIME_SHIFT]).tolist() == [(0.25, 0.26, 60, 63)]


@pytest.mark.parametrize("ids", [[390], [-1], [60.0], [[60, 188]], 60])
def test_what_is_not_a_row_of_the_390_ids_is_refused(ids):
    with pytest.raises(InputError):
        decode_ids(ids)


# --- ids -> ids -------------------------------------------------------------------------------


@given(note_lists, st.integers(-30, 30))
def test_transposing_moves_every_note_alike_and_keeps_it_on_the_keyboard(notes, semitones):
    before = canonical_notes(notes)
    after = decode_ids(transpose_ids(encode_notes(notes), semitones))
    moved = np.unique(after["pitch"].astype(int) - before["pitch"])
    assert len(moved) <= 1
    assert (np.abs(moved) <= abs(semitones)).all()
    assert (after["pitch"] < 128).all()
    for name in ("start", "end", "velocity"):
        assert after[name].tolist() == before[name].tolist()


def test_transposing_stops_at_the_border_and_leaves_what_lies_outside_it():
    assert transpose_ids([60, TIME_SHIFT, 100, 188, 228], 12, 21, 108).tolist() == [
        *(68, TIME_SHIFT, 108, 196, 236)
    ]
    assert transpose_ids([110, 60], 3, 21, 108).tolist() == [110, 60]
    assert transpose_ids([110, 60], -3, 21, 108).tolist() == [107, 57]
    assert transpose_ids([EOS, TIME_SHIFT, PAD], 3).tolist() == [EOS, TIME_SHIFT, PAD]


@given(note_lists, st.sampled_from([0.5, 0.9, 0.95, 1.025, 1.05, 2.0]))
def test_stretching_keeps_every_note_and_scales_the_times(notes, factor):
    before = canonical_notes(notes)
    ids = stretch_ids(encode_notes(notes, eos=True), factor)
    after = decode_ids(ids)
    assert encode_notes(after, eos=True).tolist() == ids.tolist()
    assert sorted(after["pitch"]) == sorted(before["pitch"])
    by_pitch = [np.lexsort((n["start"], n["pitch"])) for n in (before, after)]
    before, after = before[by_pitch[0]], after[by_pitch[1]]
    assert before["velocity"].tolist() == after["velocity"].tolist()
    # a note moves on by a frame where it would meet the one before it on its pitch
    error = after["start"] - before["start"] * factor
    assert error.min(initial=0) >= -0.0051
    if factor > 1:
        assert error.max(initial=0) <= 0.0051


@given(note_lists, st.data())
def test_stretching_by_one_changes_nothing_of_any_crop(notes, data):
    ids = encode_notes(notes, eos=True)
    begin = data.draw(st.integers(0, len(ids)))
    crop = ids[begin : data.draw(st.integers(begin, len(ids)))]
    assert stretch_ids(crop, 1.0).tolist() == crop.tolist()
    assert count_notes(stretch_ids(crop, 0.7)) == count_notes(crop)
    assert velocity_in_force(stretch_ids(crop, 1.3)) == velocity_in_force(crop)


def test_stretching_does_not_drift():
    ids = np.tile([60, TIME_SHIFT + 2, NOTE_OFF + 60, TIME_SHIFT + 2], 10_000)
    assert duration_frames(ids) == 60_000
    assert duration_frames(stretch_ids(ids, 1.05)) == 63_000  # shift by shift: 60,000


def test_a_velocity_at_the_head_of_a_crop_stays_there():
    crop = [MEZZO_FORTE_ID, NOTE_OFF + 60, TIME_SHIFT + 99, 62, TIME_SHIFT, VELOCITY]
    assert stretch_ids(crop, 1.5).tolist() == [
        *(MEZZO_FORTE_ID, NOTE_OFF + 60, TIME_SHIFT + 99, TIME_SHIFT + 49, 62, TIME_SHIFT + 1),
        VELOCITY,
    ]


def test_notes_that_meet_when_time_shrinks_stay_in_the_order_of_the_rules():
    ids = [MEZZO_FORTE_ID, 60, 62, TIME_SHIFT, NOTE_OFF + 60, 60, TIME_SHIFT, NOTE_OFF + 60]
    shrunk = stretch_ids(ids, 0.3).tolist()
    assert shrunk == [MEZZO_FORTE_ID, 60, 62, TIME_SHIFT, 188, 60, TIME_SHIFT, 188]
    late = [MEZZO_FORTE_ID, 60, TIME_SHIFT + 9, 62, TIME_SHIFT, NOTE_OFF + 60, 64]
    assert stretch_ids(late, 0.95).tolist() == [
        *(MEZZO_FORTE_ID, 60, TIME_SHIFT + 9, NOTE_OFF + 60, 62, 64)
    ]


@given(note_lists, st.integers(-40, 40))
def test_shifting_velocities_clips_them_and_tells_none_twice(notes, bins):
    before = canonical_notes(notes)
    ids = shift_velocity_ids(encode_notes(notes), bins)
    after = decode_ids(ids)
    expected = np.clip(velocity_bin(before["velocity"]) + bins, 0, 31)
    assert velocity_bin(after["velocity"]).tolist() == expected.tolist()
    assert encode_notes(after).tolist() == ids.tolist()


# --- ids -> what they say ---------------------------------------------------------------------


def test_the_velocity_in_force_is_the_last_one_told():
    assert velocity_in_force([]) == velocity_in_force([60, TIME_SHIFT, EOS]) == -1
    assert velocity_in_force([VELOCITY, 60, VELOCITY + 31, TIME_SHIFT]) == 31


@given(note_lists, st.data())
def test_what_sounds_after_a_part_is_what_a_player_still_holds(notes, data):
    ids = encode_notes(notes, eos=True)
    part = ids[: data.draw(st.integers(0, len(ids)))]
    held, frame = {}, 0
    for id_ in part.astype(int):
        if id_ < NOTE_OFF:
            held[id_] = frame
        elif id_ < TIME_SHIFT:
            held.pop(id_ - NOTE_OFF)
        elif id_ < VELOCITY:
            frame += id_ - TIME_SHIFT + 1
    assert sounding_after(part) == held
    assert duration_frames(part) == frame


@given(note_lists)
def test_counts_and_durations_agree_with_the_notes(notes):
    canonical = canonical_notes(notes)
    ids = encode_notes(notes, eos=True)
    assert count_notes(ids) == len(canonical)
    assert duration_frames(ids) == round(canonical["end"].max(initial=0) * 100)


def test_ids_of_any_integer_type_and_read_only_ones_are_taken():
    ids = encode_notes(notes_of((0, 1, 60, 66)), eos=True)
    ids.flags.writeable = False
    for kind in (np.int64, np.int32, np.uint16, ">u2"):
        assert decode_ids(ids.astype(kind)).tolist() == [(0, 1, 60, 67)]
    assert transpose_ids(ids, 1)[2] == 61
    assert shift_velocity_ids(ids, 1)[1] == ids[1] + 1


def test_notes_become_ids_without_miditok_and_torch():
    command = "import sys, music_gpt.tokens.events; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert not {b"miditok", b"symusic", b"torch"} & set(done.stdout.split())
