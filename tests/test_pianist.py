"""Where ids meet music: what is heard of a prompt, how new music joins on, what a person gets."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_bytes import file, meta, press, program, release
from small import compose, finished, small_pianist

import music_gpt
from music_gpt.composing.composition import ComposedNote
from music_gpt.composing.pianist import Pianist
from music_gpt.composing.prompt import hear
from music_gpt.composing.provenance import settings_text
from music_gpt.config.model import ModelConfig
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.midi.piece import (
    make_notes,
    midi_bytes,
    piece_from_notes,
    read_piece,
    to_pretty_midi,
    write_midi,
)
from music_gpt.network.checkpoint import save_checkpoint
from music_gpt.network.model import GPT
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, encode_notes

CONTEXT = 128
CHORD = make_notes([(0.0, 0.5, 72, 70), (0.5, 2.0, 60, 66), (0.5, 2.0, 64, 66), (0.6, 1.5, 67, 90)])


@pytest.fixture(scope="module")
def pianist() -> Pianist:
    return small_pianist(CONTEXT)


def scale(n_notes: int, seconds: float = 0.2) -> Notes:
    """Notes one after the other, with velocities that change."""
    return make_notes(
        (seconds * i, seconds * (i + 0.8), 40 + i % 40, 1 + (5 * i) % 126) for i in range(n_notes)
    )


def overlaps(notes: Notes) -> int:
    by_pitch = notes[np.lexsort((notes["start"], notes["pitch"]))]
    same = by_pitch["pitch"][1:] == by_pitch["pitch"][:-1]
    return int((same & (by_pitch["start"][1:] < by_pitch["end"][:-1] - 1e-9)).sum())


# --- what is heard of a prompt -------------------------------------------------------------------


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


def test_a_prompt_longer_than_the_context_is_cut_between_two_frames_and_the_person_is_told():
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
    # the notes that were kept are those that were heard, and what sounded at the cut
    n_onsets = sum(i < NOTE_OFF for i in context)
    assert len(heard.notes) in (n_onsets + 1, n_onsets + 2)
    assert heard.notes[heard.notes["pitch"] == 30]["start"] == [0.0]
    assert heard.notes["start"].min() == 0.0
    assert heard.notes["end"].max() == pytest.approx(heard.start.seam / 100, abs=0.006)
    (warning,) = heard.warnings
    assert f"only its last {heard.start.seam / 100:.0f} seconds" in warning


def test_a_long_silence_is_heard_as_short_as_in_the_training_corpus():
    notes = make_notes([(0.0, 0.5, 60, 64), (100.0, 100.5, 62, 64)])
    heard = hear(piece_from_notes(notes), CONTEXT, None, 4.0)
    assert len(heard.start.context) == 1 + 4 + 10 + 1
    assert heard.start.seam == 10_050  # but nothing is cut from what the person gave


@pytest.mark.parametrize("empty", [np.zeros(0, NOTE_DTYPE), piece_from_notes(CHORD[:0])])
def test_an_empty_prompt_is_told(pianist, empty):
    with pytest.raises(InputError, match="holds no notes"):
        pianist.compose(empty)


# --- how the music joins on ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_music_joins_on_without_a_cut_chord_or_a_stuck_note(pianist, seed):
    take = compose(pianist, CHORD, seed=seed)
    notes, new = take.notes(), take.new_notes()
    assert take.seam_seconds == 2.0
    assert len(notes) == len(CHORD) + len(new)
    assert len(new)
    assert new["start"].min() >= 2.0
    prompt = notes[notes["start"] < 2.0]
    for name in ("start", "pitch", "velocity"):
        assert (prompt[name] == CHORD[name]).all()
    rings = CHORD["end"] == 2.0
    assert (prompt["end"][~rings] == CHORD["end"][~rings]).all()
    assert (prompt["end"][rings] >= 2.0).all()
    assert overlaps(notes) == 0
    assert abs(notes["end"].max() - 2.0 - 3.0) <= 1.0


def test_the_first_onset_is_not_bound_to_the_seam(pianist):
    firsts = {
        float(compose(pianist, CHORD, seed=seed, max_wait_seconds=2).new_notes()["start"].min())
        for seed in range(8)
    }
    assert len(firsts) > 2


def test_a_double_note_at_the_end_of_the_prompt_rings_as_one(pianist):
    double = make_notes([(0.0, 2.0, 60, 60), (0.0, 2.0, 60, 80), (1.0, 1.5, 64, 64)])
    take = compose(pianist, double)
    assert len(take.notes()) == 3 + len(take.new_notes())
    assert read_piece(midi_bytes(take.notes())).n_notes == 2 + len(take.new_notes())


note_rows = st.tuples(
    st.floats(0, 8), st.floats(0, 4), st.integers(0, 127), st.integers(1, 127)
).map(lambda row: (row[0], row[0] + row[1], row[2], row[3]))


@settings(max_examples=40)
@given(rows=st.lists(note_rows, min_size=1, max_size=60), seed=st.integers(0, 99))
def test_any_notes_are_continued(pianist, rows, seed):
    take = compose(pianist, make_notes(rows), seconds=0.5, seed=seed)
    notes, new = take.notes(), take.new_notes()
    assert len(notes) == len(take.prompt_notes) + len(new)
    assert (notes["end"] >= notes["start"]).all()
    assert notes["start"].min() >= 0
    assert new["start"].min(initial=take.seam_seconds) >= take.seam_seconds
    assert abs(take.prompt_notes["end"].max() - take.seam_seconds) <= 0.0151
    late = notes["start"] >= take.seam_seconds
    assert notes[~late]["end"].max() >= take.seam_seconds - 1e-9
    assert abs(notes["end"].max() - take.seam_seconds - 0.5) <= 1.0
    # nothing that is new begins before the prompt's note of its pitch has ended
    for note in new:
        same = notes[~late & (notes["pitch"] == note["pitch"])]
        assert same["end"].max(initial=0.0) <= note["start"] + 1e-9


def test_notes_that_overlap_on_one_pitch_end_where_it_is_struck_again(pianist):
    notes = make_notes([(0.0, 5.0, 60, 60), (4.0, 4.5, 60, 80)])
    take = compose(pianist, notes)
    assert take.seam_seconds == 4.5
    assert take.prompt_notes["end"].tolist() == [4.0, 4.5]
    assert take.notes()["end"][1] >= 4.5


@pytest.mark.parametrize("seconds", [0.1, 1.0, 7.3])
@pytest.mark.parametrize("prompt", [None, CHORD, scale(200)], ids=["nothing", "short", "long"])
def test_the_asked_seconds_are_met_within_one(pianist, prompt, seconds):
    take = compose(pianist, prompt, seconds=seconds)
    assert abs(take.seconds_composed - seconds) <= 1.0
    assert abs(take.notes()["end"].max() - take.seam_seconds - seconds) <= 1.0


def test_music_from_nothing_begins_at_once(pianist):
    take = compose(pianist)
    assert take.seam_seconds == 0.0
    assert len(take.prompt_notes) == 0
    assert take.notes()["start"].min() == 0.0


def test_an_own_ending_stays_near_the_asked_length(pianist):
    for seed in range(3):
        take = compose(pianist, CHORD, end=True, seconds=5.0, seed=seed)
        assert 3.0 <= take.seconds_composed <= 8.0


def test_a_piece_is_continued_from_a_point_within_it(pianist):
    take = compose(pianist, CHORD, prompt_end_seconds=1.2, prompt_seconds=0.9)
    assert take.seam_seconds == pytest.approx(0.9)
    assert take.prompt_notes["pitch"].tolist() == [72, 60, 64, 67]
    notes = take.notes()
    assert (notes["end"][1:4] >= 0.9).all()  # they sound across the point
    assert take.new_notes()["start"].min() >= 0.9
    wish = take.settings()
    assert (wish["prompt_end_seconds"], wish["prompt_seconds"]) == (1.2, 0.9)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"prompt_end_seconds": 2.5}, "is 2.5, but the prompt lasts 2.00 seconds"),
        ({"prompt_end_seconds": 9.5, "prompt_seconds": 1}, "Nothing sounds between 8.5 and 9.5 s"),
        ({"prompt_end_seconds": 3.0}, "Nothing sounds between 0 and 3 seconds"),
    ],
    ids=str,
)
def test_a_point_without_music_before_it_gets_a_sentence(pianist, wrong, sentence):
    late = make_notes([(5.0, 6.0, 60, 64), (11.0, 12.0, 62, 64)])
    with pytest.raises(InputError, match=sentence):
        pianist.compose(CHORD if wrong["prompt_end_seconds"] == 2.5 else late, **wrong)


# --- the notes as they come ----------------------------------------------------------------------


def test_every_new_note_is_told_once_when_it_has_ended(pianist):
    composition = pianist.compose(CHORD, seconds=4.0, seed=1, variations=2, max_wait_seconds=0.3)
    told: list[ComposedNote] = []
    for note in composition:
        told.append(note)
        so_far = composition.new_notes(note.take)
        assert (note.start, note.end, note.pitch, note.velocity) in so_far.tolist()
        assert composition.notes(note.take)["end"].max() >= note.end
    for take in (0, 1):
        rows = make_notes(note[1:] for note in told if note.take == take)
        assert (rows == composition.new_notes(take)).all()
    assert len(list(composition)) == 0


def test_closing_keeps_the_music_and_ends_what_sounds(pianist):
    composition = pianist.compose(CHORD, seconds=60.0, seed=2, variations=2, max_wait_seconds=0.3)
    told = [next(composition) for _ in range(5)]
    open_and_closed = composition.notes(0)
    composition.close()
    composition.close()
    assert list(composition) == []
    notes = composition.notes(0)
    assert (notes == open_and_closed).all()
    assert (notes["end"] > notes["start"]).all()
    assert overlaps(notes) == 0
    assert {tuple(note[1:]) for note in told if note.take == 0} <= set(notes.tolist())
    assert notes["end"].max() <= max(2.0 + composition.seconds_composed, 2.0) + 1.0
    assert composition.midi(1).get_end_time() > 2.0


def test_closing_before_the_first_note_leaves_the_prompt(pianist):
    composition = pianist.compose(CHORD)
    composition.close()
    assert (composition.notes() == CHORD).all()
    assert composition.seconds_composed == 0.0
    assert len(pianist.compose().notes()) == 0


def test_a_fault_on_the_way_keeps_what_was_composed(pianist):
    composition = pianist.compose(CHORD, seconds=60.0, seed=2, max_wait_seconds=0.3)

    def broken(events: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for number, event in enumerate(events):
            yield event
            if number == 80:
                raise MemoryError

    assert composition._events is not None
    composition._events = broken(composition._events)
    with pytest.raises(MemoryError):
        finished(composition)
    assert len(composition.new_notes()) > 0
    assert overlaps(composition.notes()) == 0
    assert list(composition) == []


def test_progress_is_told_while_composing(pianist):
    composition = pianist.compose(seconds=5.0, variations=2, seed=1, max_wait_seconds=0.3)
    progress = [composition.seconds_composed for _ in composition]
    assert progress == sorted(progress)
    assert 0 < progress[len(progress) // 2] < composition.seconds_composed
    assert composition.n_tokens >= 2 * 2 * len(composition.new_notes(0)) / 2
    assert composition.elapsed > 0
    assert composition.seconds == 5.0
    assert composition.n_takes == 2


# --- seeds and settings --------------------------------------------------------------------------


def test_each_variation_can_be_made_again_alone(pianist):
    together = compose(pianist, CHORD, variations=3)
    takes = [together.notes(take).tolist() for take in range(3)]
    assert len({tuple(take) for take in takes}) == 3
    for number, take in enumerate(takes):
        wish = together.settings(number)
        knobs = {name: wish[name] for name in SamplingConfig.__dataclass_fields__}
        again = compose(pianist, CHORD, seed=wish["seed"], seconds=wish["seconds"], **knobs)
        assert again.notes().tolist() == take
        assert again.settings() == wish


def test_a_seed_that_was_not_given_is_told(pianist):
    first, second = (compose(pianist, seed=None) for _ in range(2))
    assert first.settings()["seed"] != second.settings()["seed"]
    again = compose(pianist, seed=first.settings()["seed"])
    assert again.notes().tolist() == first.notes().tolist()


def test_the_file_tells_how_it_was_made(pianist, tmp_path):
    take = compose(pianist, CHORD, variations=2)
    (event,) = take.midi(1).text_events
    name, text = event.text.split(" ", 1)
    assert name == "music-gpt"
    assert json.loads(text) == take.settings(1)
    wish = take.settings(1)
    assert wish["checkpoint"] == "tiny.safetensors"
    assert wish["checkpoint_sha256"] == "5eed"
    assert (wish["seed"], wish["seconds"], wish["min_p"]) == (8, 3.0, 0.0)
    take.midi(1).write(str(tmp_path / "take.mid"))
    assert text.encode() in (tmp_path / "take.mid").read_bytes()


def test_takes_are_ranked_by_how_likely_the_network_finds_them(pianist):
    takes = compose(pianist, CHORD, variations=4, seconds=5)
    nats = [takes.nats_per_token(take) for take in range(4)]
    assert len(set(nats)) == 4
    assert [nats[take] for take in takes.ranking()] == sorted(nats)
    assert [takes.settings(take)["nats_per_token"] for take in range(4)] == nats
    calm = compose(pianist, CHORD, variations=4, seconds=5, temperature=0.3)
    assert max(calm.nats_per_token(take) for take in range(4)) < min(nats)


def test_a_take_has_no_likelihood_before_its_first_event(pianist):
    composition = pianist.compose(CHORD, variations=2)
    assert composition.nats_per_token(1) is None
    assert composition.ranking() == [0, 1]


def test_likelihood_is_that_of_the_music_by_the_plain_network(pianist):
    take = compose(pianist, seconds=1.0, seed=3)
    ids = [EOS, *encode_notes(take.new_notes()).tolist()]
    with torch.no_grad():
        logits = pianist._engine.model(torch.tensor([ids[:-1]]))[0].double()
    nats = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).item()
    assert take.nats_per_token() == pytest.approx(nats, abs=0.001)


# --- what a person calls -------------------------------------------------------------------------


def test_a_piece_is_continued_from_anything_that_holds_music(pianist, tmp_path):
    write_midi(CHORD, tmp_path / "chord.mid")
    path = tmp_path / "chord.mid"
    forms = [path, str(path), path.read_bytes(), CHORD, piece_from_notes(CHORD)]
    forms.append(to_pretty_midi(CHORD))
    starts = [
        [
            (n.start, n.pitch)
            for n in pianist.continue_piece(f, seconds=1, seed=3).instruments[0].notes
        ]
        for f in forms
    ]
    assert all(start == starts[0] for start in starts)
    assert starts[0][:1] == [(0.0, 72)]


DUO = file(
    [(0, meta(3, b"Piano")), (0, program(0)), (0, press(40)), (900, release(40))],
    [(0, meta(3, b"Flute")), (0, program(73, 1)), (0, press(90, 64, 1)), (900, release(90, 1))],
)


@pytest.mark.parametrize(
    ("tracks", "pitches", "used"),
    [
        (None, [40], [0]),
        ([1], [90], [1]),
        (["flute"], [90], [1]),
        (("Piano", 1), [40, 90], None),
    ],
)
def test_the_tracks_of_a_file_can_be_chosen(pianist, tmp_path, tracks, pitches, used):
    (tmp_path / "duo.mid").write_bytes(DUO)
    for prompt in (DUO, bytearray(DUO), tmp_path / "duo.mid", str(tmp_path / "duo.mid")):
        take = pianist.compose(prompt, tracks=tracks, seconds=1)
        assert take.prompt_notes["pitch"].tolist() == pitches
        assert take.settings()["tracks"] == used
    score = pianist.continue_piece(DUO, tracks=tracks, seconds=0.5, seed=1)
    assert [note.pitch for note in score.instruments[0].notes][: len(pitches)] == pitches


@pytest.mark.parametrize(
    ("prompt", "options", "sentence"),
    [
        (DUO, {"tracks": [7]}, "Track '7' is not in the file; choose among 0 .Piano., 1 .Flute"),
        (DUO, {"tracks": []}, "No track is chosen"),
        (DUO, {"tracks": "0"}, "tracks is '0', but it has to be a list"),
        (CHORD, {"tracks": [0]}, "tracks chooses .* but the prompt is a ndarray; give the path"),
        (None, {"tracks": [0]}, "chooses a part of the prompt; give a prompt"),
        (None, {"prompt_end_seconds": 3}, "chooses a part of the prompt; give a prompt"),
        (None, {"prompt_seconds": 3}, "chooses a part of the prompt; give a prompt"),
    ],
)
def test_a_choice_that_cannot_be_made_gets_a_sentence(pianist, prompt, options, sentence):
    with pytest.raises(InputError, match=sentence):
        pianist.compose(prompt, **options)


def test_the_prompt_may_be_left_out_of_the_file(pianist):
    whole = compose(pianist, CHORD)
    alone = compose(pianist, CHORD, include_prompt=False)
    new = alone.midi().instruments[0].notes
    assert len(new) == len(whole.midi().instruments[0].notes) - len(CHORD)
    assert min(note.start for note in new) < 1.0
    assert (alone.notes() == whole.notes()).all()


def test_the_three_ways_to_compose_agree(pianist):
    options = {"seconds": 2.0, "seed": 5, "prompt_end_seconds": 1.9}
    notes = [note[1:] for note in pianist.stream(CHORD, **options)]
    take = pianist.continue_piece(CHORD, **options)
    several = pianist.variations(CHORD, n=2, **options)
    assert len(take.instruments[0].notes) == len(CHORD) + len(notes)
    assert [str(n) for n in several[0].instruments[0].notes] == [
        str(n) for n in take.instruments[0].notes
    ]
    assert len(several) == 2


def test_the_warnings_of_a_damaged_prompt_are_handed_on(pianist):
    damaged = midi_bytes(CHORD)[:-7]
    assert read_piece(damaged).warnings
    assert pianist.compose(damaged).warnings[:1] == read_piece(damaged).warnings[:1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0},
        {"seconds": -3},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": 3601},
        {"seconds": "long"},
        {"seconds": None},
        {"seed": -1},
        {"seed": 1.5},
        {"seed": 2**60},
        {"variations": 0},
        {"variations": 17},
        {"variations": 2.5},
        {"prompt_seconds": 0},
        {"prompt_seconds": math.nan},
        {"prompt_end_seconds": -1},
        {"prompt_end_seconds": math.inf},
        {"prompt_end_seconds": "the end"},
        {"temperature": -1},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 0},
        {"min_p": 1},
        {"max_wait_seconds": 0},
        {"max_note_seconds": 0},
    ],
    ids=str,
)
def test_a_number_out_of_range_gets_a_sentence(pianist, wrong):
    ((name, _),) = wrong.items()
    with pytest.raises(InputError, match=f"^{name} is .* but it has to be .*\\.$"):
        pianist.compose(CHORD, **wrong)


def test_every_knob_of_sampling_can_be_turned_when_composing(pianist):
    wish = {"key": "Eb", "density": 4.0, "time_temperature": 0.7, "velocity_temperature": 2.0}
    take = compose(pianist, CHORD, **wish)
    assert wish.items() <= take.settings().items()
    assert take.notes().tolist() != compose(pianist, CHORD).notes().tolist()


def test_whole_numbers_of_numpy_are_whole_numbers(pianist):
    composition = pianist.compose(CHORD, seed=np.int64(3), variations=np.int32(2), seconds=1)
    assert json.dumps(composition.settings(1))
    assert composition.settings(1)["seed"] == 4


def test_a_network_for_text_is_told():
    with pytest.raises(InputError, match="trained on music"):
        Pianist(GPT(replace(ModelConfig.preset("tiny"), vocab_size=65)))


def test_a_checkpoint_plays(tmp_path):
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "m.safetensors", GPT(ModelConfig.preset("tiny")), {"data": "none"})
    pianist = music_gpt.load(tmp_path / "m.safetensors")
    assert pianist.card["data"] == "none"
    take = finished(pianist.compose(seconds=0.5, seed=1))
    assert take.settings()["checkpoint"] == "m.safetensors"
    assert len(take.notes()) > 0


def test_a_take_that_is_not_there_and_what_is_no_path_are_refused(tmp_path: Path) -> None:
    model = GPT(ModelConfig.preset("tiny"))
    composition = Pianist(model).compose(seconds=1, seed=1, temperature=np.float32(1), variations=2)
    assert settings_text(composition.settings())
    for ask in (composition.notes, composition.new_notes, composition.settings, composition.midi):
        for take in (2, -1, None, 0.5):
            with pytest.raises(InputError, match="take is .* a whole number from 0 to 1"):
                ask(take)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="take is 9"):
        composition.write(tmp_path / "a.mid", take=9)
    with pytest.raises(InputError, match="A path is needed, but a NoneType was given"):
        composition.write(None)  # type: ignore[arg-type]
