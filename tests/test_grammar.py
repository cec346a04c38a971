"""Whatever the network says, what follows is music that can be played, and it ends as asked."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_engines import PLAIN, MadEngine, take_ids

from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.notes import HIGHEST_KEY, LOWEST_KEY
from music_gpt.tokens.events import (
    EOS,
    NOTE_OFF,
    PAD,
    TIME_SHIFT,
    VELOCITY,
    count_notes,
    decode_ids,
    duration_frames,
    encode_notes,
)
from music_gpt.tokens.tokenizer import count_errors

any_engine = st.builds(
    MadEngine,
    seed=st.integers(0, 10_000),
    spread=st.floats(0.1, 10),
    kinds=st.tuples(
        st.sampled_from([-20.0, 0.0, 3.0]),
        st.sampled_from([-20.0, 0.0, 3.0]),
        st.sampled_from([0.0, 4.0, 20.0]),
        st.sampled_from([-20.0, 0.0, 3.0]),
        st.sampled_from([-20.0, 0.0, 20.0]),
    ),
)
any_sampling = st.builds(
    SamplingConfig,
    temperature=st.sampled_from([0.0, 1e-8, 0.5, 1.0, 10.0]),
    top_k=st.sampled_from([0, 1, 40, 389, 390, 100_000]),
    top_p=st.sampled_from([1e-6, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.03]),
    max_wait_seconds=st.sampled_from([0.01, 0.5, 4.0]),
    max_note_seconds=st.sampled_from([0.1, 1.0, 20.0]),
)


@settings(max_examples=40)
@given(any_engine, any_sampling, st.sampled_from([0.1, 0.37, 1.5]), st.booleans())
def test_whatever_the_network_says_every_note_decodes_without_loss(engine, sampling, seconds, own):
    (ids,) = take_ids(engine, seconds, sampling=sampling, own=own)
    assert ids[-1] == EOS
    assert EOS not in ids[:-1]
    assert PAD not in ids
    notes = decode_ids(ids)
    assert len(notes) == count_notes(ids)
    assert encode_notes(notes).tolist() == ids[:-1]  # already the canonical form
    assert count_errors([EOS, *ids]) == 0


@settings(max_examples=30)
@given(any_engine, any_sampling, st.sampled_from([0.1, 0.5, 2.0]))
def test_the_asked_length_is_met_within_one_second(engine, sampling, seconds):
    (ids,) = take_ids(engine, seconds, sampling=sampling)
    assert abs(duration_frames(ids) / 100 - seconds) <= 1.0
    assert abs(decode_ids(ids)["end"].max() - seconds) <= 1.0


@settings(max_examples=20)
@given(any_engine, any_sampling)
def test_waits_and_notes_have_their_longest(engine, sampling):
    (ids,) = take_ids(engine, 3.0, sampling=sampling)
    notes = decode_ids(ids)
    length = (notes["end"] - notes["start"]).max()
    assert length <= sampling.max_note_seconds + 1e-9
    waited, longest = 0, 0
    for event in ids:
        waited = waited + event - 255 if TIME_SHIFT <= event < VELOCITY else 0
        longest = max(longest, waited)
    assert longest <= round(100 * sampling.max_wait_seconds)


@settings(max_examples=60)
@given(
    st.data(),
    st.integers(0, 5000),
    st.dictionaries(st.integers(0, 127), st.integers(0, 900), min_size=1, max_size=128),
    st.integers(0, 700),
    any_sampling,
)
def test_any_prompt_leads_to_an_end_with_nothing_sounding(data, seed, ages, gap, sampling):
    before = 1000
    start = Start(
        context=[VELOCITY + 15, 60],
        frame=before,
        seam=before + gap,
        velocity=15,
        onsets={pitch: before - age for pitch, age in ages.items()},
    )
    ending = Ending.after(start.seam, 2.0)
    grammar = Grammar(start, ending, sampling, 1)
    rng = np.random.default_rng(seed)
    ids: list[int] = []
    while not ids or ids[-1] != EOS:
        allowed = np.flatnonzero(grammar.allowed()[0])
        assert len(allowed), f"a dead end after {ids}"
        ids.append(int(rng.choice(allowed)))
        grammar.advance(np.array(ids[-1:]))
    (now,) = grammar.moments
    assert now.quiet
    assert now.frame <= ending.latest
    # the first event after the wait comes at the seam or later
    wait = next(i for i, event in enumerate(ids) if not TIME_SHIFT <= event < VELOCITY)
    assert duration_frames(ids[:wait]) >= gap


def allowed_after(ids: Sequence[int], *, seconds: float = 60.0, **knobs: float) -> set[int]:
    grammar = Grammar(Start(), Ending.after(0, seconds), SamplingConfig(**knobs), 1)
    for event in ids:
        assert grammar.allowed()[0, event], f"{event} is not allowed here"
        grammar.advance(np.array([event]))
    return set(np.flatnonzero(grammar.allowed()[0]).tolist())


def test_a_piece_begins_with_a_velocity():
    assert allowed_after([]) == set(range(VELOCITY, EOS))


def test_after_a_velocity_comes_a_note_on_of_a_silent_pitch():
    keys = set(range(LOWEST_KEY, HIGHEST_KEY + 1))
    assert allowed_after([VELOCITY + 9]) == keys
    after = allowed_after([VELOCITY + 9, 60, TIME_SHIFT, VELOCITY + 3])
    assert after == keys - {60}


def test_a_velocity_that_is_in_force_is_not_told_again():
    assert allowed_after([VELOCITY + 9, 60]).isdisjoint({VELOCITY + 9})


def test_a_note_lasts_a_frame_at_least():
    assert allowed_after([VELOCITY, 60]).isdisjoint(range(NOTE_OFF, TIME_SHIFT))
    assert NOTE_OFF + 60 in allowed_after([VELOCITY, 60, TIME_SHIFT])


def test_a_pitch_may_be_struck_again_in_the_frame_where_it_ends():
    assert 60 in allowed_after([VELOCITY, 60, TIME_SHIFT, NOTE_OFF + 60])


def test_only_what_sounds_can_be_released():
    offs = allowed_after([VELOCITY, 60, 64, TIME_SHIFT]) & set(range(NOTE_OFF, TIME_SHIFT))
    assert offs == {NOTE_OFF + 60, NOTE_OFF + 64}


def test_a_long_wait_is_whole_seconds_and_a_rest():
    waits = set(range(TIME_SHIFT, VELOCITY))
    assert waits <= allowed_after([VELOCITY, 60, TIME_SHIFT + 99])
    assert waits.isdisjoint(allowed_after([VELOCITY, 60, TIME_SHIFT + 98]))
    third = allowed_after([VELOCITY, 60, TIME_SHIFT + 99], max_wait_seconds=1.5) & waits
    assert third == set(range(TIME_SHIFT, TIME_SHIFT + 50))


def test_a_note_at_its_longest_is_released_before_all_else():
    ids = [VELOCITY, 60, 72, TIME_SHIFT + 49]
    assert allowed_after(ids, max_note_seconds=0.5) == {NOTE_OFF + 60}
    assert allowed_after([*ids, NOTE_OFF + 60], max_note_seconds=0.5) == {NOTE_OFF + 72}


def test_the_end_comes_when_nothing_sounds_and_the_length_is_reached():
    ids = [VELOCITY, 60, TIME_SHIFT + 99]
    assert EOS not in allowed_after(ids, seconds=1.0)
    assert allowed_after([*ids, NOTE_OFF + 60], seconds=1.0) == {EOS}
    assert EOS not in allowed_after([*ids, NOTE_OFF + 60], seconds=3.0)


def test_onsets_grow_rarer_before_they_stop():
    ending = Ending.after(0, 20.0)
    grammar = Grammar(Start(frame=ending.fade - 1), ending, PLAIN, 1)
    assert not grammar.bias().any()
    grammar = Grammar(Start(frame=(ending.fade + ending.stop) // 2), ending, PLAIN, 1)
    bias = grammar.bias()[0]
    assert -4.0 < bias[60] < -1.0
    assert bias[VELOCITY] == bias[60]
    assert not bias[NOTE_OFF:VELOCITY].any()
    assert bias[EOS] == 0.0


def test_a_note_that_sounds_too_long_becomes_ever_likelier_to_be_released():
    start = Start(frame=400, onsets={60: 0, 64: 300})
    grammar = Grammar(start, Ending.after(0, 60.0), SamplingConfig(release_after_seconds=3.0), 2)
    bias = grammar.bias()
    assert bias[:, NOTE_OFF + 60].tolist() == pytest.approx([2.0, 2.0])
    assert np.count_nonzero(bias) == 2
    grammar.advance(np.array([TIME_SHIFT + 49, TIME_SHIFT + 99]))
    assert grammar.bias()[:, NOTE_OFF + 60].tolist() == pytest.approx([3.0, 4.0])


def test_a_piece_may_look_for_its_own_ending():
    sparse = MadEngine(kinds=[0, 5, 0, -5, 0])
    lengths = [duration_frames(ids) / 100 for ids in take_ids(sparse, 10.0, range(6), own=True)]
    assert all(6.0 <= length <= 13.5 for length in lengths)
    assert len(set(lengths)) > 1
    within = [duration_frames(ids) / 100 for ids in take_ids(sparse, 10.0, range(6))]
    assert all(9.0 <= length <= 11.0 for length in within)
