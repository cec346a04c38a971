"""The verbs that prepare, train, exchange networks and open the page: what they write and say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from calls import refused
from small import run_config

from music_gpt import doctor, soundfont
from music_gpt.doctor import Finding
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.tokens.corpus import Corpus


def test_prepare_writes_a_tokens_folder_and_reports_it(
    call: Any, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tokens"
    report = call("prepare", "--midi", midi_folder, "--out", out, "--workers=1", "--json").json
    assert sum(split["pieces"] for split in report["splits"].values()) == 6
    assert len(report["left_out"]) == 1
    assert Corpus.open(out).split("train").n_pieces >= 1


def test_prepare_says_what_to_do_next(call: Any, midi_folder: Path, tmp_path: Path) -> None:
    said = call("prepare", "--midi", midi_folder, "--out", tmp_path / "tokens", "--workers=1")
    assert (said.code, said.out) == (0, "")
    assert "train:" in said.err
    report = tmp_path / "tokens" / "report.html"
    assert f"1 file was left out; {report} says why." in said.err
    assert report.is_file()
    assert f"Next: music-gpt train --tokens {tmp_path / 'tokens'} --out runs/NAME" in said.err


def test_prepare_verifies_what_lies_in_a_tokens_folder(call: Any, tokens: Path) -> None:
    assert call("prepare", "--verify", "--out", tokens, "--json").json["files"] == 9
    said = call("prepare", "--verify", "--out", tokens)
    assert (said.code, said.out) == (0, "")
    assert "all 9 files" in said.err
    shard = tokens / "train-00000.bin"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-2] + b"\0\0")
    refused(call("prepare", "--verify", "--out", tokens), "train-00000.bin")
    shard.write_bytes(whole)


def test_prepare_without_a_folder_of_midi_files_says_what_is_missing(
    call: Any, tmp_path: Path
) -> None:
    refused(call("prepare", "--out", tmp_path / "tokens"), "--midi is missing")


def test_prepare_looks_at_once_at_where_its_stream_would_go(
    call: Any, midi_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "stream").mkdir()
    (tmp_path / "stream" / "mine").touch()
    words = ["prepare", "--midi", midi_folder, "--out", tmp_path / "tokens"]
    refused(call(*words, "--litdata", tmp_path / "stream"), "is not an empty folder")
    assert not (tmp_path / "tokens").exists()


def test_export_and_import_look_at_all_places_before_they_write(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from music_gpt.network import foreign, onnx_graph

    (tmp_path / "x.onnx").mkdir()
    monkeypatch.setattr(onnx_graph, "onnx_bytes", lambda *_, **__: pytest.fail("it was made"))
    words = ["export", "--format=onnx", "--out", tmp_path / "x.onnx"]
    refused(call(*words), "it is a folder")
    (tmp_path / "x.safetensors").mkdir()
    monkeypatch.setattr(foreign, "import_weights", lambda *_: pytest.fail("it was read"))
    words = ["import", "a.pth", "--from=chapter14", "--out", tmp_path / "x.safetensors"]
    refused(call(*words), "it is a folder")


def small_run(tokens: Path, out: Path) -> list[object]:
    flags = [f"--model.{k}={json.dumps(v).strip(chr(34))}" for k, v in _model().items()]
    return ["train", "--tokens", tokens, "--out", out, *flags, "--train.device=cpu"]


def _model() -> dict[str, Any]:
    return {k: v for k, v in run_config().model.to_dict().items() if k != "vocab_size"}


def test_train_writes_a_run_and_its_result(call: Any, tokens: Path, tmp_path: Path) -> None:
    result = call(*small_run(tokens, tmp_path / "run"), "--train.max_steps=3", "--json").json
    assert result["steps"] == 3
    model, _ = load_checkpoint(result["checkpoint"])
    assert model.config == run_config().model


def test_train_reads_the_configuration_of_a_run_again(
    call: Any, tokens: Path, tmp_path: Path
) -> None:
    first = [*small_run(tokens, tmp_path / "one"), "--optim.betas=[0.8,0.9]", "--optim.ema=3e-05"]
    assert call(*first, "--train.max_steps=2").code == 0
    config = tmp_path / "one" / "config.yaml"
    said = call("train", "--config", config, "--tokens", tokens, "--out", tmp_path / "two")
    assert said.code == 0, said.err
    assert (tmp_path / "two" / "config.yaml").read_text() == config.read_text()
    assert said.err.splitlines()[-3].startswith("Finished after 2 steps, ")
    assert said.err.splitlines()[-1] == f"Checkpoint: {tmp_path / 'two' / 'best.safetensors'}"


def test_max_minutes_is_the_same_as_the_knob(call: Any, tokens: Path, tmp_path: Path) -> None:
    said = call(*small_run(tokens, tmp_path / "run"), "--max-minutes=0.001", "--json")
    assert said.json["finished"]
    assert "max_minutes: 0.001" in (tmp_path / "run" / "config.yaml").read_text()


def test_a_run_that_is_there_is_a_sentence(call: Any, tokens: Path, tmp_path: Path) -> None:
    words = [*small_run(tokens, tmp_path / "run"), "--train.max_steps=2"]
    assert call(*words).code == 0
    refused(call(*words), "already holds a run")
    refused(call(*words, "--resume"), "is finished")


def test_app_opens_the_page_of_a_checkpoint(
    call: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import music_gpt.ui

    opened: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(
        music_gpt.ui, "launch", lambda pianist, **options: opened.append((pianist, options))
    )
    said = call("app", "--checkpoint", checkpoint, "--port=80", "--auth=me:a:b")
    assert (said.code, said.out) == (0, "")
    ((pianist, options),) = opened
    assert pianist.card["file"] == "model.safetensors"
    assert options == {
        "host": "127.0.0.1",
        "port": 80,
        "share": False,
        "auth": ("me", "a:b"),
        "soundfont": None,
    }
    monkeypatch.setattr(soundfont, "open_soundfont", lambda path: f"opened {path}")
    assert call("app", "--checkpoint", checkpoint, "--soundfont=a.sf2").code == 0
    assert opened[-1][1]["soundfont"] == "opened a.sf2"


def test_the_doctor_tells_people_and_programs_how_it_is(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Finding("sound", "the piano sounds"), Finding("page", "port 1", "take 2")]
    monkeypatch.setattr(doctor, "findings", lambda checkpoint, engine: iter(found))
    said = call("doctor")
    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines()[-1] == "All that is needed works."
    assert "to do: take 2" in said.err
    assert call("doctor", "--json").json["works"] is True
    found.append(Finding("network", "no file", is_fault=True))
    said = call("doctor", "--json")
    assert said.code == 2
    assert json.loads(said.out)["works"] is False
    assert said.err == "music-gpt: Not all works: network; what to do stands above.\n"
