"""A part of a piece is composed anew, and all around it stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small import melody, small_pianist

from music_gpt.composing.pianist import Pianist
from music_gpt.composing.provenance import read_recipe
from music_gpt.composing.redoing import candidate_seeds, hear_stretch
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.generation.decoding import TorchEngine, surprise_after
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.midi.piece import make_notes, midi_bytes, piece_from_notes, read_piece, write_midi
from music_gpt.notes import Notes, end_at_next_strike
from music_gpt.tokens.events import (
    EOS,
    NOTE_OFF,
    TIME_SHIFT,
    VELOCITY,
    encode_notes,
    shift_frames,
    sounding_after,
)


def one_sound_at_a_time(notes: Notes) -> Notes:
    """The notes, each ended where its pitch is struck again."""
    notes = notes.copy()
    notes["end"] = end_at_next_strike(notes["start"], notes["pitch"], notes["end"])
    return notes


PIECE = one_sound_at_a_time(melody(3, 90))
"""Half a minute, with notes of up to two seconds."""
DENSE = {"max_wait_seconds": 0.4, "min_p": 0.0}


@pytest.fixture(scope="module")
def pianist() -> Pianist:
    return small_pianist()


def frames(seconds: Any) -> Any:
    return np.rint(np.asarray(seconds) * 100).astype(int)


def redone_notes(pianist: Pianist, piece: Notes, start: float, end: float, **options: Any) -> Notes:
    options = {"seed": 1, "candidates": 1, **DENSE, **options}
    return pianist.redo(piece, start, end, **options).notes()


def around(notes: Notes, start: float, end: float) -> Notes:
    """What is struck outside, and how far it sounds outside."""
    struck, first, last = frames(notes["start"]), frames(start), frames(end)
    outside = notes[(struck < first) | (struck >= last)].copy()
    before = frames(outside["start"]) < first
    within = before & (frames(outside["end"]) >= first) & (frames(outside["end"]) <= last)
    outside["end"][within] = start  # the new music says how long these sound
    return outside


def overlaps(notes: Notes) -> int:
    by_pitch = notes[np.lexsort((notes["start"], notes["pitch"]))]
    same = by_pitch["pitch"][1:] == by_pitch["pitch"][:-1]
    return int((same & (by_pitch["start"][1:] < by_pitch["end"][:-1] - 1e-9)).sum())


note_rows = st.tuples(
    st.floats(0, 9), st.floats(0.01, 5), st.integers(55, 70), st.integers(1, 127)
).map(lambda row: (row[0], row[0] + row[1], row[2], row[3]))


@example(
    rows=[(0.0, 1.0, 55, 1), (0.0, 1.0, 56, 1), (1.0, 3.0, 55, 1)], part=(1.0, 1.0), seed=0
).via("a note that rang into the part took over one that sounded on after it")
@settings(max_examples=25)
@given(
    rows=st.lists(
        note_rows, min_size=3, max_size=60, unique_by=lambda row: (row[2], round(row[0], 1))
    ),
    part=st.tuples(st.floats(0, 8), st.floats(0.11, 4)),
    seed=st.integers(0, 99),
)
def test_outside_the_part_no_note_is_changed(pianist, rows, part, seed):
    piece = piece_from_notes(make_notes(rows))
    whole = one_sound_at_a_time(piece.notes)
    start, end = part[0], min(part[0] + part[1], piece.seconds)
    if end - start < 0.1:
        return
    redone = redone_notes(pianist, make_notes(rows), start, end, seed=seed)
    assert around(redone, start, end).tolist() == around(whole, start, end).tolist()
    assert overlaps(redone) == 0
    assert (redone["end"] > redone["start"]).all()
    struck = frames(redone["start"])
    new = redone[(struck >= frames(start)) & (struck < frames(end))]
    # what is new ends with the part, or as far beyond it as the piece itself sounded there
    late = new[frames(new["end"]) > frames(end)]
    for note in late:
        assert note["end"] in whole[whole["pitch"] == note["pitch"]]["end"]


@pytest.mark.parametrize("late", np.linspace(0, 0.0095, 20).tolist())
def test_what_sounds_for_the_network_sounds_for_the_grammar_wherever_a_part_begins(late):
    notes = PIECE.copy()
    notes["start"], notes["end"] = notes["start"] + late, notes["end"] + late
    piece = piece_from_notes(notes)
    for start in np.arange(2.0, 20.0, 0.333).tolist():
        prompt = hear_stretch(piece, start, start + 2, 10_000, 4.0).prompt
        heard, first = np.array(prompt.start.context), frames(prompt.notes["start"]).min()
        assert sounding_after(heard).keys() == prompt.start.onsets.keys()
        assert [first + n for n in sounding_after(heard).values()] == [
            prompt.start.onsets[pitch] for pitch in sounding_after(heard)
        ]
        assert first + shift_frames(heard).sum() == prompt.start.frame


def test_what_follows_does_not_move(pianist):
    for seed in range(5):
        redone = redone_notes(pianist, PIECE, 5.0, 9.0, seed=seed)
        after = PIECE[frames(PIECE["start"]) >= 900]
        assert redone[frames(redone["start"]) >= 900]["start"].tolist() == after["start"].tolist()
        struck = frames(redone["start"])
        assert ((struck >= 500) & (struck < 900)).sum() > 3


def test_a_note_held_over_the_whole_part_sounds_on_untouched(pianist):
    held = make_notes([*PIECE.tolist(), (3.0, 12.0, 20, 90)])
    for seed in range(8):
        redone = redone_notes(pianist, held, 5.0, 9.0, seed=seed)
        assert redone[redone["pitch"] == 20].tolist() == [(3.0, 12.0, 20, 90)]


def test_a_note_that_rang_into_the_part_is_released_by_the_new_music(pianist):
    ringing = make_notes([*PIECE.tolist(), (4.0, 6.0, 20, 90)])
    ends = set()
    for seed in range(8):
        redone = redone_notes(pianist, ringing, 5.0, 9.0, seed=seed)
        first = redone[redone["pitch"] == 20][0]
        assert first["start"] == 4.0
        ends.add(float(first["end"]))
        assert 5.0 <= first["end"] <= 9.0
    assert len(ends) > 3


def test_what_sounds_at_the_end_takes_over_a_note_of_its_pitch_that_sounded_there():
    rows = [(0.0, 1.0, 60, 64), (1.2, 2.75, 62, 64), (2.5, 3.0, 64, 64)]
    stretch = hear_stretch(piece_from_notes(make_notes(rows)), 1.0, 2.0, 128, 4.0)
    assert stretch.crossing == {62: 2.75}
    new = [(0.0, 1.0, 60, 64), (1.1, 2.0, 62, 50), (1.5, 2.0, 70, 50), (1.6, 1.9, 71, 50)]
    joined = stretch.joined(make_notes(new)).tolist()
    assert joined == [new[0], (1.1, 2.75, 62, 50), new[2], new[3], rows[2]]


def test_the_part_may_be_the_beginning_the_end_or_all_of_the_piece(pianist):
    end = float(PIECE["end"].max())
    for start, stop in ((0.0, 3.0), (end - 3.0, end), (0.0, end)):
        redone = redone_notes(pianist, PIECE, start, stop)
        assert around(redone, start, stop).tolist() == around(PIECE, start, stop).tolist()
        assert frames(redone["end"]).max() <= max(frames(end), frames(stop))


@pytest.mark.parametrize("held", [frozenset(), frozenset({60, 72})], ids=["open", "held"])
def test_the_new_music_ends_on_the_frame_whatever_is_drawn(held: frozenset[int]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        seam, length = 200 + int(rng.integers(0, 50)), int(rng.integers(1, 300))
        onsets = {60: 100, 72: 0, 40: 199}
        start = Start([VELOCITY + 9, 40], 200, seam, 9, onsets, held)
        grammar = Grammar(start, Ending.at(seam + length), SamplingConfig(max_note_seconds=1.0), 1)
        grammar._crowd = None  # what is drawn at random is crowded; here it is the end that counts
        ids: list[int] = []
        while not ids or ids[-1] != EOS:
            assert not grammar.bias()[:, :128].any()
            drawn = rng.choice(np.flatnonzero(grammar.allowed()[0]), size=1)
            ids.append(int(grammar.cut(drawn)[0]))
            grammar.advance(np.array(ids[-1:]))
        (now,) = grammar.moments
        assert now.frame == seam + length
        assert now.held == held
        for pitch in held:
            assert not {pitch, 128 + pitch} & set(ids)


def test_a_network_that_wants_to_wait_does_not_fill_the_last_moment_with_notes() -> None:
    grammar = Grammar(Start(), Ending.at(50), SamplingConfig(), 1)
    for event in (VELOCITY + 9, 60, TIME_SHIFT + 39, NOTE_OFF + 60):
        assert grammar.allowed()[0, event]
        grammar.advance(np.array([event]))
    a_second = np.array([TIME_SHIFT + 99])  # where a tenth is left
    assert grammar.allowed()[0, a_second]
    assert grammar.cut(a_second).tolist() == [TIME_SHIFT + 9]
    grammar.advance(grammar.cut(a_second))
    assert np.flatnonzero(grammar.allowed()[0]).tolist() == [EOS]


def test_what_was_heard_ends_before_the_part_and_leaves_its_wait_open() -> None:
    piece = piece_from_notes(
        make_notes([(0.0, 0.5, 60, 64), (0.7, 5.0, 64, 64), (1.0, 1.5, 67, 64)])
    )
    start = hear_stretch(piece, 1.2, 2.0, 128, 4.0).prompt.start
    assert list(start.context) == [
        EOS,
        VELOCITY + 15,
        60,
        TIME_SHIFT + 49,
        188,
        TIME_SHIFT + 19,
        64,
        TIME_SHIFT + 29,
        67,
    ]
    assert (start.frame, start.seam, start.held) == (100, 120, {64})
    assert start.onsets == {64: 70, 67: 100}
    silent = hear_stretch(
        piece_from_notes(make_notes([(0, 1, 60, 64), (9, 10, 60, 64)])), 8, 9.5, 128, 4.0
    )
    assert list(silent.prompt.start.context)[-1] == 188
    assert (silent.prompt.start.frame, silent.prompt.start.seam) == (400, 800)


def test_candidates_are_ranked_by_how_likely_what_follows_becomes():
    pianist = small_pianist(context=2048)  # it hears all of the piece
    redone = pianist.redo(PIECE, 5.0, 8.0, candidates=5, seed=3, **DENSE)
    nats = [redone.settings(n)["following_nats_per_token"] for n in range(5)]
    assert nats == sorted(nats)
    assert len(set(nats)) > 2
    for number in (0, 4):
        ids = encode_notes(redone.notes(number)).tolist()
        joined = redone.notes(number)
        context, following = redone._stretch.split(joined)
        assert (context + following)[1:] == ids[: len(context) + len(following) - 1]
        expected = surprise_after(pianist._engine, [context], [following])
        assert nats[number] == pytest.approx(expected[0], abs=0.002)


def test_where_nothing_follows_the_likeliest_candidate_is_first(pianist):
    end = float(PIECE["end"].max())
    redone = pianist.redo(PIECE, end - 4.0, end, candidates=4, seed=3, **DENSE)
    nats = [redone.settings(number)["nats_per_token"] for number in range(4)]
    assert nats == sorted(nats)


def test_what_follows_is_scored_as_by_the_plain_network(pianist):
    engine = TorchEngine(pianist._engine.model)
    rng = np.random.default_rng(0)
    shared = rng.integers(0, EOS, 60).tolist()
    contexts = [[EOS, *shared, *rng.integers(0, EOS, n).tolist()] for n in (3, 9, 30)]
    followings = [rng.integers(0, EOS, n).tolist() for n in (7, 1, 12)]
    got = surprise_after(engine, contexts, followings)
    for context, following, nats in zip(contexts, followings, got, strict=True):
        expected = []
        for place, event in enumerate(following):
            logits = engine.logits([*context, *following[:place]]).astype(np.float64)
            expected.append(np.log(np.exp(logits).sum()) - logits[event])
        assert nats == pytest.approx(np.mean(expected), abs=1e-4)
    long = [[EOS, *rng.integers(0, EOS, n).tolist()] for n in (300, 500)]
    assert len(surprise_after(engine, long, [[60] * 90, [61] * 10])) == 2  # longer than the window


def test_neighbouring_seeds_share_no_candidate(pianist):
    one, two = (pianist.redo(PIECE, 5.0, 8.0, candidates=4, seed=seed, **DENSE) for seed in (3, 4))
    notes = [redone.notes(n).tobytes() for redone in (one, two) for n in range(4)]
    assert len(set(notes)) == 8
    assert [min(redone.settings(n)["seed"] for n in range(4)) for redone in (one, two)] == [3, 4]


def test_a_candidate_is_the_same_however_many_there_are_beside_it(pianist):
    assert candidate_seeds(7, 3) == candidate_seeds(7, 16)[:3]
    assert all(0 <= seed < 2**31 for first in range(99) for seed in candidate_seeds(first, 16))


def test_a_candidate_is_made_again_alone(pianist, tmp_path: Path):
    redone = pianist.redo(midi_bytes(PIECE), 5.0, 8.0, candidates=3, seed=3, **DENSE)
    redone.write(tmp_path / "a.mid", 1)
    seed = redone.settings(1)["seed"]
    alone = pianist.redo(midi_bytes(PIECE), 5.0, 8.0, candidates=1, seed=seed, **DENSE)
    assert alone.notes().tolist() == redone.notes(1).tolist()
    assert redone.settings(1)["redo"] == [5.0, 8.0]
    with pytest.raises(InputError, match="it holds a part that was redone"):
        read_recipe(tmp_path / "a.mid")
    assert len(redone.midi(2).instruments[0].notes) == len(redone.notes(2))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((5, 4), "The part begins at 5 seconds and ends at 4; let it begin before it ends"),
        ((5, 5), "The part begins at 5 seconds and ends at 5; let it begin before it ends"),
        ((5, 400), "The part from 5 to 400 seconds is not in the piece"),
        ((-1, 4), "start_seconds is -1, but it has to be a number"),
        ((5, 5.05), "The part lasts 0.05 seconds, but 0.1 to 60 can be redone"),
        ((5, 70), "The part lasts 65 seconds, but 0.1 to 60 can be redone"),
        ((5, float("nan")), "end_seconds is nan"),
        ((5, 6, 0), "candidates is 0, but it has to be a whole number from 1 to 16"),
        ((5, 6, 17), "candidates is 17"),
    ],
    ids=str,
)
def test_a_part_that_cannot_be_redone_gets_a_sentence(pianist, words, sentence):
    long = melody(1, 300)
    options = {"candidates": words[2]} if len(words) > 2 else {}
    with pytest.raises(InputError, match=sentence):
        pianist.redo(long if "400" not in str(words) else PIECE, *words[:2], **options)
    redone = pianist.redo(PIECE, 1, 2, candidates=2, seed=1, **DENSE)
    with pytest.raises(InputError, match="number is 2, but it has to be a whole number"):
        redone.notes(2)


def test_a_part_of_exactly_the_shortest_length_can_be_redone(pianist):
    assert 0.3 - 0.2 < 0.1
    assert len(pianist.redo(PIECE, 0.2, 0.3, candidates=1, seed=1).notes())


def test_where_every_key_is_held_time_passes(pianist):
    held = make_notes([(0.0, 20.0, pitch, 64) for pitch in range(21, 109)])
    redone = pianist.redo(held, 5.0, 16.0, candidates=1, seed=1, max_wait_seconds=0.5)
    assert redone.notes().tolist() == one_sound_at_a_time(held).tolist()


def test_the_file_of_a_redone_piece_is_read_as_it_was_meant(pianist, tmp_path: Path):
    write_midi(PIECE, tmp_path / "piece.mid")
    redone = pianist.redo(tmp_path / "piece.mid", 5.0, 8.0, candidates=2, seed=3, **DENSE)
    redone.write(tmp_path / "new.mid")
    assert read_piece(tmp_path / "new.mid").n_notes == len(redone.notes())
    assert read_piece(tmp_path / "new.mid").warnings == []
