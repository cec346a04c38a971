"""The verbs evaluate and originality: figures, and where nothing can be told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from calls import LONG, compose, refused
from small import melody, tokens_folder

from music_gpt.composing.composition import Composition
from music_gpt.errors import InputError
from music_gpt.generation import engines
from music_gpt.metrics import likelihood
from music_gpt.midi import files as midi_files
from music_gpt.midi.piece import read_piece, write_midi
from music_gpt.network import onnx_graph
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.originality import INDEX_FILE, IndexWriter


def test_evaluate_gives_all_figures(call: Any, tokens: Path, checkpoint: Path) -> None:
    words = ["evaluate", "--tokens", tokens, "--checkpoint", checkpoint, "--split", "test"]
    said = call(*words, "--sliding", "--ngram", "--device=cpu", "--json")
    figures = said.json
    assert figures["checkpoint"] == "model.safetensors"
    assert len(figures["sha256"]) == 64
    assert (figures["split"], figures["window"]) == ("test", 512)
    split = Corpus.open(tokens).split("test")
    assert figures["tokens"] == split.n_tokens - split.n_pieces
    names = ("nats_per_token", "nats_per_note", "sliding_nats_per_token", "ngram_nats_per_token")
    assert all(1 < figures[name] < 100 for name in names)
    told = call(*words, "--device=cpu")
    assert (told.code, told.out) == (0, "")
    assert f"{figures['nats_per_token']:8.4f} nats/token" in told.err


def test_evaluate_refuses_a_split_that_is_not_there(
    call: Any, tokens: Path, checkpoint: Path
) -> None:
    words = ["evaluate", "--tokens", tokens, "--checkpoint", checkpoint]
    refused(call(*words, "--split", "training"), "no split 'training', only train")
    refused(call(*words, "--window", "4096"), "--window is 4096, but it has to be a whole")


def test_an_engine_that_cannot_compose_is_refused_before_minutes_of_scoring(
    call: Any, tokens: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "likelihood", lambda *_, **__: pytest.fail("scored"))
    words = ["evaluate", "--tokens", tokens, "--checkpoint", checkpoint, "--split", "train"]
    words += ["--samples=8", "--sample-seconds=1", "--device=cpu"]
    with monkeypatch.context() as patch:
        patch.setattr(engines, "NEEDED", ("a_package_that_nobody_has",))
        refused(call(*words, "--engine=onnx"), "The engine onnx needs the packages")
    monkeypatch.setattr(onnx_graph, "why_not", lambda _: "it is made of wood")
    refused(call(*words, "--engine=onnx"), "cannot run this network: it is made of wood; use torch")


def test_an_ngram_without_music_to_count_is_refused_before_minutes_of_scoring(
    call: Any, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "likelihood", lambda *_, **__: pytest.fail("scored"))
    tokens = tokens_folder(tmp_path / "tokens", {"test": [50]})
    words = ["evaluate", "--tokens", tokens, "--checkpoint", checkpoint, "--split", "test"]
    refused(call(*words, "--ngram"), "no split 'train', only test")


def test_an_engine_that_fails_its_check_leaves_the_likelihoods(
    call: Any, tokens: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(*_: object) -> None:
        raise InputError("The engine cuda does not compute what torch does.")

    monkeypatch.setattr(engines, "choose_engine", choose)
    words = ["evaluate", "--tokens", tokens, "--checkpoint", checkpoint, "--split", "train"]
    said = call(*words, "--samples=8", "--sample-seconds=1", "--device=cpu", "--json")
    assert said.code == 2
    assert "does not compute what torch does" in said.err
    assert 1 < json.loads(said.out)["nats_per_token"] < 100


def test_an_engine_that_is_not_there_is_refused_before_a_network_is_read(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["generate", "--checkpoint=none.safetensors", "--out=take.mid", "--engine=cuda"]
    refused(call(*words), "The engine cuda needs an NVIDIA GPU")


def test_evaluate_compares_continuations_with_the_music(
    call: Any, tokens: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["evaluate", "--tokens", tokens, "--checkpoint", checkpoint, "--split", "train"]
    words += ["--samples=8", "--sample-seconds=1", "--device=cpu"]
    figures = call(*words, "--json").json["samples"]
    assert (figures["samples"], figures["seconds"], figures["interrupted"]) == (8, 1.0, False)
    assert 0 < figures["overlap"] < 1
    told = call(*words)
    assert "8 continuations of 2 prompts" in told.err
    assert "shared with the training music is not told: There is no index" in told.err
    refused(
        call(*words, "--samples=3"), "--samples is 3, but it has to be a whole number from 8 to"
    )
    refused(call(*words, "--sample-seconds=60"), "No piece of the train split lasts 76 seconds")

    advance = Composition.__next__
    rounds = iter(range(200))

    def interrupted(composition: Composition) -> Any:
        if next(rounds, None) is None:
            raise KeyboardInterrupt
        return advance(composition)

    monkeypatch.setattr(Composition, "__next__", interrupted)
    said = call(*words, "--samples=400", "--json")
    assert said.code == 130
    assert "what had been composed was compared" in said.err
    assert 8 <= json.loads(said.out)["samples"]["samples"] < 400
    said = call(*words, "--json")  # the rounds are over: at once
    assert said.code == 130
    assert "too little had been composed to be compared" in said.err
    assert json.loads(said.out)["nats_per_token"] > 0


def test_originality_tells_where_a_piece_has_its_notes_from(
    call: Any, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tokens"
    call("prepare", "--midi", midi_folder, "--out", out, "--workers=1", "--validation=0")
    name = Corpus.open(out).split("train").names[0]
    found = call("originality", midi_folder / name, "--tokens", out, "--json").json
    assert found["shared"]["source"] == name
    assert found["shared"]["notes"] == 60
    told = call("originality", midi_folder / name, "--index", out / "originality.npz")
    assert (told.code, told.out) == (0, "")
    plain = Path(name).stem
    where = r"[\d.]+ seconds, here from \d:\d\d and there from \d:\d\d on\."
    told_first = rf"piece-\d.mid: \d+ to \d+ notes in a row are as in {plain} .{name}.: {where}"
    assert re.search(rf"{told_first} Of 30-second passages of other music, 2.2 % share", told.err)
    write_midi(melody(99, 60), tmp_path / "own.mid")
    own = ("originality", tmp_path / "own.mid", "--tokens", out)
    assert (
        "own.mid: No run of 24 notes is in the training music: it counts as new." in call(*own).err
    )
    result = call(*own, "--json").json
    assert (result["notes"], result["shared"]) == (60, None)
    write_midi(melody(99, 23), tmp_path / "own.mid")
    assert "own.mid: Too short to tell whether it is new: 23 notes, where 24" in call(*own).err
    assert call(*own, "--json").json["notes"] == 23
    refused(call(*own, "--index", out), "Give --tokens or --index, one of them")
    told = call("originality", tmp_path / "own.mid")  # the bundled network's, where none is named
    assert told.code == 0
    assert "Looked for in what the bundled network was trained on" in told.err
    assert "own.mid: Too short to tell" in told.err


def test_originality_looks_at_what_was_composed(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out, take, better = (tmp_path / name for name in ("tokens", "take.mid", "better.mid"))
    call("prepare", "--midi", midi_folder, "--out", out, "--workers=1", "--validation=0")
    prompt = midi_folder / Corpus.open(out).split("train").names[0]
    assert call(*compose(checkpoint, take, "--seed=4", "--prompt", prompt)).code == 0
    words = ["originality", take, "--tokens", out]
    seam = read_piece(prompt).sounding_notes["end"].max() - read_piece(prompt).notes["start"].min()
    told = call(*words).err
    assert f"Only what was composed, from {seam:.1f} s on, is looked at; --whole takes" in told
    assert "take.mid: Too short to tell whether it is new: " in told
    assert call(*words, "--whole", "--json").json["shared"]["source"] == prompt.name
    found = call(*words, "--json").json
    assert found["shared"] is None
    assert found["composed"] == {"from_seconds": pytest.approx(seam, abs=0.01), "to_seconds": None}
    assert (
        f"seconds of music, composed from {seam:.1f} s on."
        in call("render", take, "--out", tmp_path / "a.wav").err
    )
    words = ["redo", prompt, "--from=4", "--to=6.5", "--seed=4", "--checkpoint", checkpoint]
    assert call(*words, "--candidates=1", "--out", better).code == 0
    told = call("originality", better, "--tokens", out).err
    assert "Only what was composed, from 4.0 to 6.5 s, is looked at" in told


def test_a_file_is_read_once_for_its_notes_and_for_what_made_it(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_midi(melody(1, 30), tmp_path / "a.mid")
    with IndexWriter(tmp_path / INDEX_FILE) as index:
        index.finish()
    read, reading = list[Any](), midi_files.read_bytes
    monkeypatch.setattr(midi_files, "read_bytes", lambda *a: (read.append(a), reading(*a))[1])
    assert call("originality", tmp_path / "a.mid", "--index", tmp_path).code == 0
    assert len(read) == 1
    assert call("render", tmp_path / "a.mid", "--out", tmp_path / "a.wav").code == 0
    assert len(read) == 2


def test_originality_refuses_what_is_no_training_music(
    call: Any, midi_folder: Path, tmp_path: Path
) -> None:
    name = "piece-0.mid"
    for flag in ("--tokens", "--index"):
        refused(call("originality", midi_folder / name, flag, LONG), "There is no index")
    refused(call("originality", midi_folder / name, "--tokens", tmp_path), "music-gpt prepare")
