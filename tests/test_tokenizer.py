"""MidiTok's own calls on the tokenizer of the 390 events."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from miditok import MIDILike, MusicTokenizer, TokenizerConfig, TokSequence
from symusic import ControlChange, Note, Score, Tempo, Track

from music_gpt.errors import InputError
from music_gpt.midi.piece import midi_bytes, piece_from_notes, to_pretty_midi, write_midi
from music_gpt.notes import NOTE_DTYPE
from music_gpt.tokens import events, tokenizer
from music_gpt.tokens.corpus import tokenizer_text
from music_gpt.tokens.events import EOS, NOTE_OFF, PAD, TIME_SHIFT, VELOCITY
from music_gpt.tokens.tokenizer import PerformanceTokenizer, count_errors, tokenizer_json

TOKENIZER = PerformanceTokenizer()
IDS = [VELOCITY + 16, 60, 64, TIME_SHIFT + 99, NOTE_OFF + 60, NOTE_OFF + 64]
NOTES = np.array([(0, 1, 60, 66), (0, 1, 64, 66)], NOTE_DTYPE)


def test_the_vocabulary_is_the_one_of_the_events_in_their_order():
    assert len(TOKENIZER) == TOKENIZER.len == TOKENIZER.vocab_size == 390
    assert TOKENIZER.vocab == {name: id_ for id_, name in enumerate(events.token_names())}
    assert [TOKENIZER[id_] for id_ in range(390)] == events.token_names()
    assert TOKENIZER.special_tokens == ["EOS_None", "PAD_None"]
    assert TOKENIZER.special_tokens_ids == [EOS, PAD]
    assert TOKENIZER.pad_token_id == PAD
    assert TOKENIZER.token_ids_of_type("Velocity") == list(range(VELOCITY, EOS))
    assert isinstance(TOKENIZER, MIDILike)
    assert TOKENIZER.io_format == ("T",)


def test_midi_toks_own_names_are_the_same_390_in_another_order():
    plain = MIDILike(
        TokenizerConfig(**{**TOKENIZER.config.to_dict(), "special_tokens": ["PAD", "EOS"]})
    )
    assert sorted(plain.vocab) == sorted(TOKENIZER.vocab)
    assert list(plain.vocab) != list(TOKENIZER.vocab)


def test_music_in_any_form_gives_the_same_sequence(tmp_path):
    path = tmp_path / "piece.mid"
    write_midi(NOTES, path)
    forms = [NOTES, piece_from_notes(NOTES), midi_bytes(NOTES), to_pretty_midi(NOTES), path]
    for music in [*forms, str(path), Score(path), Score(path, ttype="Second")]:
        sequence = TOKENIZER.encode(music)
        assert isinstance(sequence, TokSequence)
        assert sequence.ids == IDS
        assert sequence.tokens == [TOKENIZER[id_] for id_ in IDS]
        assert TOKENIZER(music) == sequence


def test_ids_in_any_form_give_the_same_score(tmp_path):
    TOKENIZER.save_tokens(IDS, tmp_path / "tokens.json")
    whole = TOKENIZER.encode(NOTES)
    forms = [IDS, np.array(IDS, np.uint16), torch.tensor(IDS), TokSequence(ids=IDS), whole]
    for ids in [*forms, TokSequence(tokens=whole.tokens), tmp_path / "tokens.json"]:
        score = TOKENIZER(ids)
        (track,) = score.tracks
        assert (track.program, track.is_drum) == (0, False)
        assert [(n.time, n.end, n.pitch, n.velocity) for n in track.notes] == [
            (0, 100, 60, 67),
            (0, 100, 64, 67),
        ]
        assert [tempo.qpm for tempo in score.tempos] == [60]
        assert score.to("second").end() == 1.0


def test_decoding_leaves_the_list_of_ids_alone_and_writes_a_file(tmp_path):
    ids = [*IDS]
    TOKENIZER.decode(ids, output_path=tmp_path / "new" / "take.mid")
    assert ids == IDS
    assert TOKENIZER.encode(tmp_path / "new" / "take.mid").ids == IDS


def test_nothing_decodes_to_a_score_without_notes_and_back():
    for nothing in ([], [EOS], [EOS, EOS, PAD]):
        score = TOKENIZER.decode(nothing)
        assert score.note_num() == 0
        assert TOKENIZER.encode(score).ids == []


@given(st.lists(st.integers(0, 389), max_size=60))
def test_any_ids_survive_midi_toks_decode_and_a_second_round(ids):
    score = TOKENIZER.decode(ids)
    canonical = events.canonical_notes(events.decode_ids(ids))
    again = TOKENIZER.encode(score)
    assert again.ids == events.encode_notes(canonical).tolist()
    assert TOKENIZER.tokens_errors(again) == 0
    preprocessed = TOKENIZER.preprocess_score(score)
    assert TOKENIZER.encode(preprocessed, no_preprocess_score=True).ids == again.ids


def test_a_score_is_read_with_its_tempo_changes_and_its_pedal_in_either_hand():
    score = Score(480)
    score.tempos = [Tempo(0, 120), Tempo(480, 30)]
    right, left = Track(program=0, name="right"), Track(program=0, name="left")
    right.notes = [Note(0, 240, 72, 66), Note(960, 480, 74, 66)]
    left.notes = [Note(0, 480, 48, 66)]
    left.controls = [ControlChange(10, 64, 127), ControlChange(960, 64, 0)]
    score.tracks = [right, left]
    assert TOKENIZER.encode(score).ids == [
        *(VELOCITY + 16, 48, 72),  # both last till the pedal is lifted: 0.5 s and 2 s
        *(TIME_SHIFT + 99, TIME_SHIFT + 99, TIME_SHIFT + 49, NOTE_OFF + 48, NOTE_OFF + 72, 74),
        *(TIME_SHIFT + 99, TIME_SHIFT + 99, NOTE_OFF + 74),
    ]
    assert len(score.tracks) == 2


def test_what_holds_no_piano_music_is_refused():
    with pytest.raises(InputError):
        TOKENIZER.encode(b"not a MIDI file")


# --- saved and loaded -------------------------------------------------------------------------


def test_it_loads_from_its_own_file_by_each_of_midi_toks_ways(tmp_path):
    TOKENIZER.save(tmp_path)
    TOKENIZER.save(tmp_path / "mine.json")
    TOKENIZER.save_pretrained(tmp_path / "folder")
    for params in (tmp_path / "tokenizer.json", tmp_path / "mine.json"):
        assert PerformanceTokenizer(params=params) == TOKENIZER
    for folder in (tmp_path, tmp_path / "folder"):
        loaded = PerformanceTokenizer.from_pretrained(folder)
        assert loaded == TOKENIZER
        assert loaded.encode(NOTES).ids == IDS
        assert loaded.decode(IDS) == TOKENIZER.decode(IDS)


def test_the_text_of_the_file_is_known_without_writing_it(tmp_path):
    TOKENIZER.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text() == tokenizer_json() == tokenizer_json()
    assert json.loads(tokenizer_json())["tokenization"] == "PerformanceTokenizer"


def test_the_text_that_tokens_folders_carry_is_what_midi_tok_writes(tmp_path):
    kept, written = json.loads(tokenizer_text()), json.loads(tokenizer_json())
    for text in (kept, written):
        for version in ("miditok_version", "symusic_version", "hf_tokenizers_version"):
            assert text.pop(version)
    assert kept == written
    (tmp_path / "kept.json").write_text(tokenizer_text())
    assert PerformanceTokenizer(params=tmp_path / "kept.json") == TOKENIZER


def test_settings_of_another_tokenizer_are_refused(tmp_path):
    with pytest.raises(InputError, match="390"):
        PerformanceTokenizer(TokenizerConfig(num_velocities=16))
    MIDILike(TokenizerConfig(use_tempos=True)).save(tmp_path / "other.json")
    with pytest.raises(InputError, match="390"):
        PerformanceTokenizer(params=tmp_path / "other.json")


def test_a_byte_pair_model_can_be_trained_over_the_events(tmp_path):
    melody = [(i / 4, i / 4 + 0.25, 60 + (i * 7) % 12, 66) for i in range(200)]
    path = tmp_path / "melody.mid"
    write_midi(np.array(melody, NOTE_DTYPE), path)
    trained = PerformanceTokenizer()
    trained.train(vocab_size=420, files_paths=[path])
    plain, short = TOKENIZER.encode(path), trained.encode(path)
    assert len(trained) == 420
    assert len(short) < len(plain)
    assert trained.decode(short) == TOKENIZER.decode(plain)
    trained.save(tmp_path / "trained.json")
    loaded: MusicTokenizer = PerformanceTokenizer(params=tmp_path / "trained.json")
    assert loaded.encode(path).ids == short.ids


# --- errors -----------------------------------------------------------------------------------


def test_what_a_piece_looks_like_on_disk_and_in_a_batch_has_no_errors():
    for ids in (
        IDS,
        [EOS, *IDS, EOS],
        [EOS, *IDS, EOS, PAD, PAD],
        [PAD, PAD, EOS, *IDS],
        [PAD] * 2,
    ):
        assert TOKENIZER.tokens_errors(ids) == 0
    assert TOKENIZER.tokens_errors([EOS, *IDS, EOS, EOS, *IDS, EOS]) == 0
    assert count_errors([]) == 0


@pytest.mark.parametrize(
    ("what", "ids", "errors"),
    [
        ("a note that is never ended", [VELOCITY, 60, TIME_SHIFT], 1),
        ("the end of a silent pitch", [VELOCITY, 60, TIME_SHIFT, 188, 189], 1),
        ("a pitch struck while it sounds", [VELOCITY, 60, TIME_SHIFT, 60, TIME_SHIFT, 188], 1),
        ("a velocity without a note", [VELOCITY, TIME_SHIFT, 60, TIME_SHIFT, 188], 1),
        ("two velocities in a row", [VELOCITY + 1, VELOCITY, 60, TIME_SHIFT, 188], 1),
        ("a velocity told again", [VELOCITY, 60, VELOCITY, 61, TIME_SHIFT, 188, 189], 1),
        ("an end after a start", [VELOCITY, 60, TIME_SHIFT, 61, 188, TIME_SHIFT, 189], 1),
        ("a wait in two short parts", [VELOCITY, 60, TIME_SHIFT, TIME_SHIFT, 188], 1),
        ("music after padding", [PAD, 60, TIME_SHIFT, 188], 1),
        ("an end of the piece in the middle", [VELOCITY, 60, EOS, TIME_SHIFT, 188], 1),
    ],
)
def test_each_break_of_the_rules_counts_once(what, ids, errors):
    assert count_errors(ids) == errors, what
    assert TOKENIZER.tokens_errors(ids) == pytest.approx(errors / len(ids))


def test_a_whole_second_may_be_followed_by_more_waiting():
    assert count_errors([VELOCITY, 60, VELOCITY - 1, VELOCITY - 1, TIME_SHIFT, 188]) == 0


@given(st.lists(st.integers(0, 389), min_size=1, max_size=60))
def test_the_share_of_errors_lies_between_none_and_all(ids):
    assert 0 <= TOKENIZER.tokens_errors(ids) <= 1


def test_the_names_of_the_events_stand_in_the_module_too():
    for name in tokenizer.__all__:
        if hasattr(events, name):
            assert getattr(tokenizer, name) is getattr(events, name)
