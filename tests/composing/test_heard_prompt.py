"""What of a prompt is heard, up to the point where it is continued."""

import numpy as np
import pytest
from playing import CHORD, CONTEXT, scale

from music_gpt.composing.prompt import hear
from music_gpt.errors import InputError
from music_gpt.midi.piece import make_notes, piece_from_notes
from music_gpt.notes import NOTE_DTYPE
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, encode_notes


def test_a_prompt_is_heard_without_its_last_releases_and_the_wait_before_them():
    heard = hear(piece_from_notes(CHORD), CONTEXT, None, 4.0)
    ids = encode_notes(CHORD).tolist()
    assert ids[-3:] == [TIME_SHIFT + 49, NOTE_OFF + 60, NOTE_OFF + 64]
    assert list(heard.start.context) == [EOS, *ids[:-3]]
    assert (heard.start.frame, heard.start.seam) == (150, 200)
    assert heard.start.onsets == {60: 50, 64: 50}
    assert heard.start.velocity == (90 - 1) // 4
    assert heard.warnings == []


def test_silence_before_the_prompt_is_left_out():
    late = CHORD.copy()
    late["start"] += 3.007
    late["end"] += 3.007
    heard, plain = (hear(piece_from_notes(n), CONTEXT, None, 4.0) for n in (late, CHORD))
    assert heard.start == plain.start
    assert np.allclose(heard.notes["start"], CHORD["start"])


def test_a_long_last_note_is_heard_as_if_struck_a_longest_wait_before_the_seam():
    heard = hear(piece_from_notes(make_notes([(0.0, 300.0, 60, 64)])), CONTEXT, None, 4.0)
    assert (heard.start.frame, heard.start.seam) == (29_600, 30_000)
    assert list(heard.start.context) == [EOS, VELOCITY + 15, 60]


def test_only_the_last_seconds_are_heard_when_asked():
    heard = hear(piece_from_notes(scale(20)), CONTEXT, 1.1, 4.0)
    assert heard.notes["end"].max() == pytest.approx(1.1)
    assert heard.notes["pitch"].tolist() == [54, 55, 56, 57, 58, 59]
    assert heard.notes["end"][0] == pytest.approx(0.1)
    assert heard.warnings == []
    all_of_it = hear(piece_from_notes(scale(15)), CONTEXT, 1000.0, 4.0)
    assert len(all_of_it.notes) == 15


def test_a_piece_is_heard_up_to_the_point_where_it_is_continued_and_what_sounds_there_rings():
    held = make_notes([*scale(20).tolist(), (0.5, 3.9, 30, 100)])
    heard = hear(piece_from_notes(held), CONTEXT, None, 4.0, 1.1)
    assert heard.notes["pitch"].tolist() == [40, 41, 42, 30, 43, 44, 45]
    assert heard.start.seam == 110
    assert heard.start.onsets == {30: 50, 45: 100}
    assert NOTE_OFF + 30 not in heard.start.context
    last = hear(piece_from_notes(held), CONTEXT, 0.3, 4.0, 1.1)
    assert last.notes["pitch"].tolist() == [30, 44, 45]
    assert np.allclose(last.notes["start"], [0.0, 0.0, 0.2])
    assert last.start.seam == 30


def test_a_note_that_begins_at_the_point_belongs_to_the_new_music():
    notes = scale(20)
    for point in (1.0, np.nextafter(1.0, 2), 1.004):
        heard = hear(piece_from_notes(notes), CONTEXT, 0.4, 4.0, float(point))
        assert heard.notes["pitch"].tolist() == [43, 44]
    whole = hear(piece_from_notes(notes), CONTEXT, None, 4.0, float(notes["end"].max()))
    assert whole.start == hear(piece_from_notes(notes), CONTEXT, None, 4.0).start


def test_of_a_prompt_longer_than_the_context_all_is_kept_and_the_tail_is_heard_and_told():
    notes = scale(200)
    held = make_notes([*notes.tolist(), (0.1, 39.9, 30, 100)])
    heard = hear(piece_from_notes(held), CONTEXT, None, 4.0)
    context = list(heard.start.context)
    ids = encode_notes(held).tolist()
    assert len(context) <= CONTEXT * 0.75
    stripped = ids[: ids.index(context[-1], len(ids) - 6) + 1]
    assert context[1:] == stripped[1 - len(context) :]
    before = stripped[: 1 - len(context)]
    assert context[0] == [i for i in before if VELOCITY <= i < EOS][-1]
    assert TIME_SHIFT <= before[-1] < VELOCITY
    assert heard.notes.tolist() == held.tolist()
    assert heard.start.seam == round(100 * held["end"].max())
    n_onsets = sum(i < NOTE_OFF for i in context)
    (warning,) = heard.warnings
    assert f"knows only its last {0.2 * n_onsets:.0f} seconds" in warning


def test_the_new_music_is_the_same_whether_what_is_not_heard_is_there_or_not(pianist):
    notes = scale(200)
    whole = pianist.compose(piece_from_notes(notes), seconds=3.0, seed=5)
    heard = whole.prompt_notes
    # the tail alone, as long as it is heard to the id
    tail = pianist.compose(piece_from_notes(notes[60:]), seconds=3.0, seed=5)
    new = []
    for composition in (whole, tail):
        for _ in composition:
            pass
        music = composition.new_notes()
        music["start"] -= composition.seam_seconds
        new.append(music["start"].round(3).tolist() + music["pitch"].tolist())
    assert len(heard) == 200
    assert new[0] == new[1] != []


def test_a_long_silence_is_heard_as_short_as_in_the_training_corpus():
    notes = make_notes([(0.0, 0.5, 60, 64), (100.0, 100.5, 62, 64)])
    heard = hear(piece_from_notes(notes), CONTEXT, None, 4.0)
    assert len(heard.start.context) == 1 + 4 + 10 + 1
    assert heard.start.seam == 10_050  # but nothing is cut from what the person gave


@pytest.mark.parametrize("empty", [np.zeros(0, NOTE_DTYPE), piece_from_notes(CHORD[:0])])
def test_an_empty_prompt_is_told(pianist, empty):
    with pytest.raises(InputError, match="holds no notes"):
        pianist.compose(empty)
