"""A pianist as people call it: seeds, settings, tracks, and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from midi_bytes import file, meta, press, program, release
from playing import CHORD
from small import compose, finished

import music_gpt
from music_gpt.composing.pianist import Pianist
from music_gpt.composing.provenance import settings_text
from music_gpt.config.model import ModelConfig
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.midi.piece import (
    midi_bytes,
    piece_from_notes,
    read_piece,
    to_pretty_midi,
    write_midi,
)
from music_gpt.network.checkpoint import save_checkpoint
from music_gpt.network.model import GPT
from music_gpt.tokens.events import EOS, encode_notes

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
        (None, {"transpose": 3}, "transpose changes the prompt; give a prompt, or leave it out"),
        (None, {"speed": 0.5}, "speed changes the prompt; give a prompt, or leave it out"),
        (DUO, {"transpose": 19, "tracks": [1]}, "88 keys of a piano; choose from -24 to 18"),
    ],
)
def test_a_choice_that_cannot_be_made_gets_a_sentence(pianist, prompt, options, sentence):
    with pytest.raises(InputError, match=sentence):
        pianist.compose(prompt, **options)


def test_a_prompt_is_continued_in_another_key_and_tempo(pianist):
    moved = CHORD.copy()
    moved["pitch"] += 5
    moved["start"] /= 1.25
    moved["end"] /= 1.25
    there = compose(pianist, moved)
    take = compose(pianist, CHORD, transpose=5, speed=1.25)
    assert take.notes().tolist() == there.notes().tolist()
    assert (take.settings()["transpose"], take.settings()["speed"]) == (5, 1.25)
    assert (there.settings()["transpose"], there.settings()["speed"]) == (0, 1.0)
    score = pianist.continue_piece(CHORD, transpose=5, speed=1.25, seconds=1, seed=7)
    assert [note.pitch for note in score.instruments[0].notes[: len(CHORD)]] == [77, 65, 69, 72]
    streamed = pianist.stream(CHORD, transpose=5, speed=1.25)
    assert streamed.prompt_notes.tolist() == moved.tolist()


def test_seconds_of_a_prompt_are_counted_at_its_speed(pianist):
    half = pianist.compose(CHORD, speed=2, prompt_end_seconds=0.5)
    assert half.seam_seconds == 0.5
    assert half.prompt_notes["pitch"].tolist() == CHORD["pitch"].tolist()  # a second of the given
    slow = pianist.compose(CHORD, speed=0.5, prompt_seconds=2.0)
    assert slow.seam_seconds == 2.0  # the last second of the given
    with pytest.raises(InputError, match="prompt_end_seconds is 1.5, but the prompt lasts 1.00 s"):
        pianist.compose(CHORD, speed=2, prompt_end_seconds=1.5)


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
        {"transpose": 25},
        {"transpose": -25},
        {"transpose": 1.5},
        {"transpose": "up"},
        {"speed": 0.24},
        {"speed": 4.1},
        {"speed": math.nan},
        {"speed": "fast"},
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
