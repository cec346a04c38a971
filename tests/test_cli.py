"""The command line: what it prints where, which code it leaves, and that it speaks in sentences."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from midi_bytes import events_of, file, meta, program
from small import melody, random_network, run_config, tokens_folder

from music_gpt import audio
from music_gpt.cli import main as cli
from music_gpt.cli import verbs
from music_gpt.composing.composition import Composition
from music_gpt.composing.provenance import read_recipe
from music_gpt.composing.redoing import candidate_seeds
from music_gpt.midi import files as midi_files
from music_gpt.midi.piece import read_piece, write_midi
from music_gpt.network.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.originality import INDEX_FILE, IndexWriter

ROOT = Path(__file__).parent.parent
LONG = "a" * 5000
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
VERBS = {
    "prepare": [
        "--midi",
        "--out",
        "--json",
        "--workers",
        "--min-notes",
        "--split-by",
        "--verify",
        "--litdata",
    ],
    "train": [
        *("--config", "--tokens", "--out", "--resume", "--max-minutes", "--init-from", "--json"),
        *("--model.n_layers", "--data.transpose", "--optim.muon_lr", "--train.max_steps"),
    ],
    "evaluate": [
        *("--tokens", "--split", "--checkpoint", "--window", "--sliding", "--device"),
        *("--samples", "--sample-seconds", "--engine"),
    ],
    "generate": [
        "--prompt",
        "--prompt-end",
        "--tracks",
        "--seconds",
        "--out",
        "--variations",
        "--seed",
        *("--temperature", "--again", "--rank", "--key", "--density"),
        "--preset {faithful,balanced,adventurous}",
    ],
    "redo": ["midi", "--from", "--to", "--out", "--candidates", "--seed", "--temperature"],
    "originality": ["midi", "--tokens", "--index", "--tracks", "--whole", "--json"],
    "render": ["midi", "--out", "--tracks"],
    "export": ["--checkpoint", "--format {hf,onnx,onnx-int8}", "--out", "--json"],
    "import": ["file", "--from {chapter14,music-transformer}", "--heads", "--out", "--json"],
    "app": ["--checkpoint", "--engine", "--host", "--port", "--share", "--auth"],
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "tokens"
    return tokens_folder(folder, {"train": [90, 70], "validation": [40], "test": [30]})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "model.safetensors"
    save_checkpoint(path, random_network(context=512), {})
    return path


class Said:
    """What one call of the command line left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*words: object) -> Said:
        capfd.readouterr()
        code = cli.main([str(word) for word in words])
        return Said(code, *capfd.readouterr())

    return call


def refused(said: Said, sentence: str) -> None:
    """One sentence on standard error, nothing on standard output, code 2."""
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("music-gpt: ")
    assert said.err.count("\n") == 1, said.err
    assert said.err.rstrip().endswith(".")
    assert sentence in said.err


# --- help and words ---------------------------------------------------------------------------


def test_without_a_verb_the_help_is_shown(call: Any) -> None:
    said = call()
    assert said.code == 0
    assert all(verb in said.out for verb in VERBS)
    assert said.err == ""


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_lists_its_flags(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([verb, "--help"])
    assert caught.value.code == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert [flag for flag in VERBS[verb] if flag not in told.out] == []
    assert "lambda" not in told.out


def test_every_knob_is_explained_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "Number of decoder blocks." in told
    assert "Batches of whose gradients a step takes the mean." in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sing"], "sing"),
        (["render"], "required: midi, --out; see"),
        (["render", "a.mid", "--out", "a.wav", "--loud"], "--loud"),
        (["train", "--out", "x"], "tokens"),
        (
            ["train", "--tokens", "t", "--out", "x", "--train.max_steps=many"],
            "Expected a whole number, but got many; see",
        ),
        (
            ["train", "--tokens", "t", "--out", "x", "--model.n_heads=7"],
            "--model.n_heads is 7, but it has to be a divisor of --model.d_model",
        ),
        (["train", "--tokens", "t", "--out", "x", "--optim.clip=0"], "--optim.clip is 0"),
        (["train", "--tokens", "t", "--out", "x", "--config", "none.yaml"], "none.yaml"),
        (["train", "--tokens", "t", "--out", "x", "--model.wheels=4"], "wheels"),
        (["train", "--tokens", "t", "--out", "x", "--max-minutes=-1"], "--max-minutes is -1"),
        (["evaluate", "--tokens", "t", "--precision", "int3"], "precision"),
        (["generate", "--out", "a.wav"], "has to end in .mid"),
        (["generate", "--out", "a.mid", "--temperature=hot"], "temperature"),
        (["generate", "--out", "a.mid", "--checkpoint", "none"], "There is no checkpoint at none"),
        (["prepare", "--midi", "nowhere", "--out", "t"], "nowhere"),
        (["prepare", "--midi", ".", "--out", "t", "--test=2"], "--test is 2"),
        (["render", "nowhere.mid", "--out", "a.wav"], "nowhere.mid"),
        (["app", "--auth", "nobody"], "NAME:PASSWORD"),
        (["app", "--port=99999"], "--port is 99999, but it has to be a whole number"),
        (["app", "--port=-1"], "--port is -1"),
        (
            ["app", "--engine=gpu"],
            "--engine is 'gpu', but it has to be auto, torch, onnx or onnx-int8",
        ),
        (
            ["import", "a.pt", "--from=gpt2", "--out", "a.safetensors"],
            "--from is 'gpt2', but it has to be chapter14 or music-transformer.",
        ),
        (
            ["export", "--format=gguf", "--out", "a"],
            "--format is 'gguf', but it has to be hf, onnx",
        ),
        (["render", "a.mid"], "required: --out; see `music-gpt render --help`"),
        (
            ["prepare", "--midi", ".", "--out", "t", "--test=0.5", "--validation=0.5"],
            "--validation + --test is 1.0",
        ),
        (["generate", "--out", "a.mid", "--prompt-end=3"], "--prompt-end chooses a part of"),
        (["generate", "--out", "a.mid", "--variations=99"], "--variations is 99, but it has"),
        (["redo", "a.mid", "--out", "b.mid", "--from=1"], "required: --to; see"),
        (["evaluate", "--tokens", LONG], "There is no tokens folder at aa"),
        (["train", "--tokens", LONG, "--out", "x"], "There is no tokens folder at aa"),
        (["train", "--tokens", "t", "--out", "x", "--config", LONG], "--config: "),
        (["prepare", "--midi", LONG, "--out", "t"], "There is no folder aa"),
        (["prepare", "--verify", "--out", LONG], "There is no tokens folder at aa"),
        (["generate", "--out", LONG + ".mid"], "too long"),
        (["import", LONG, "--from", "chapter14", "--out", "a.safetensors"], "too long"),
        (["generate", "--out", "a.mid", "--seconds=inf"], "number that is finite, but got inf"),
        (
            ["generate", "--out", "a.mid", "--prompt-seconds=nan"],
            "--prompt-seconds: Expected a num",
        ),
        (
            ["generate", "--out", "a.mid", "--checkpoint", "a" * 5000],
            "There is no checkpoint at aa",
        ),
        (["train", "--tokens", "t", "--out", "x", "--model", "5"], "no file '5' of settings"),
        (["evaluate", "--tokens", "t", "--max-tokens=-1"], "--max-tokens is -1"),
    ],
    ids=lambda value: " ".join(value)[:80] if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    call: Any, words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(call(*words), sentence)
    assert list(tmp_path.iterdir()) == []


TEXTS = {
    "prepare": ["--midi", "--out", "--litdata"],
    "train": ["--tokens", "--out", "--init-from"],
    "evaluate": ["--tokens", "--split", "--checkpoint", "--device"],
    "generate": ["--prompt", "--out", "--checkpoint", "--again"],
    "redo --from=1 --to=2": ["midi", "--out", "--checkpoint"],
    "originality": ["midi", "--tokens", "--index"],
    "render": ["midi", "--out"],
    "export": ["--checkpoint", "--out"],
    "import --from=chapter14": ["file", "--out"],
    "app": ["--checkpoint", "--host", "--auth"],
}


@pytest.mark.parametrize(("verb", "flag"), [(v, flag) for v in TEXTS for flag in TEXTS[v]])
def test_an_empty_name_is_refused_by_its_flag(call: Any, verb: str, flag: str) -> None:
    words = {name: "" if name == flag else "x" for name in TEXTS[verb]}
    typed = [f"{name}={word}" if name[0] == "-" else word for name, word in words.items()]
    refused(call(*verb.split(), *typed), f"{flag} is empty; give a value")


@pytest.mark.parametrize(("verb", "flag"), [(v, flag) for v in TEXTS for flag in TEXTS[v]])
def test_a_name_that_would_act_on_the_terminal_is_told_as_it_is_spelled(
    call: Any, verb: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = {name: "\x1b[2J\r\n\u2028" if name == flag else "x" for name in TEXTS[verb]}
    said = call(*verb.split(), *(f"{n}={w}" if n[0] == "-" else w for n, w in words.items()))
    assert said.code == 2
    assert said.err.removesuffix("\n").isprintable()


def test_what_is_written_under_such_a_name_is_told_so_too(
    call: Any, midi_folder: Path, tmp_path: Path
) -> None:
    said = call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "\x1b[2J\n.wav")
    assert said.code == 0
    assert said.err.startswith(rf"{tmp_path}{os.sep}\x1b[2J\x0a.wav: ")
    said = call("prepare", "--midi", midi_folder, "--out", tmp_path / "\x1b[2J", "--workers=1")
    assert rf"--tokens {tmp_path}{os.sep}\x1b[2J --out" in said.err
    assert "\x1b" not in said.err


def test_a_system_that_refuses_a_long_name_is_a_sentence(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(_: Any) -> None:
        raise OSError(errno.ENAMETOOLONG, "File name too long", LONG)

    monkeypatch.setattr(verbs, "render", too_long)
    said = call("render", "a.mid", "--out", "a.wav")
    refused(said, "is too long; give a shorter one.")
    assert len(said.err) < 300


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(verbs, "render", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["render", "a.mid", "--out", "a.wav"])


def test_ctrl_c_while_the_program_is_still_being_imported_is_one_line() -> None:
    script = """
        import sys
        class Interrupted:
            def find_spec(self, name, path, target=None):
                if name == "jsonargparse":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupted())
        from music_gpt.cli.main import main
        sys.exit(main(["evaluate", "--tokens", "none"]))
    """
    words = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "music-gpt: Interrupted.\n")


def test_ctrl_c_leaves_code_130(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verbs, "render", interrupted)
    said = call("render", "a.mid", "--out", "a.wav")
    assert (said.code, said.out, said.err) == (130, "", "music-gpt: Interrupted.\n")


def test_the_process_leaves_the_code_and_no_warning(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "music_gpt.cli.main",
        "evaluate",
        "--tokens",
        "none",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
    refused(Said(done.returncode, done.stdout, done.stderr), "There is no tokens folder at none")


# --- the verbs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def midi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("midi")
    for seed in range(6):
        write_midi(melody(seed, 60), folder / f"piece-{seed}.mid")
    (folder / "broken.mid").write_bytes(b"not music")
    return folder


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
    assert "1 file was left out" in said.err
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
    assert f"are as in {name} from 0:00 on; up to 22 more at its ends are not told." in told.err
    write_midi(melody(99, 60), tmp_path / "own.mid")
    own = ("originality", tmp_path / "own.mid", "--tokens", out)
    assert "own.mid: No 24 notes in a row are as in the training music." in call(*own).err
    result = call(*own, "--json").json
    assert (result["notes"], result["shared"]) == (60, None)
    write_midi(melody(99, 23), tmp_path / "own.mid")
    assert "own.mid: Too short to tell: 23 notes, where 24" in call(*own).err
    assert call(*own, "--json").json["notes"] == 23
    refused(call("originality", midi_folder / name), "Give --tokens or --index")


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
    assert "take.mid: Too short to tell: " in told
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


def compose(checkpoint: Path, out: Path, *words: object) -> list[object]:
    return ["generate", "--checkpoint", checkpoint, "--out", out, "--seconds=2", *words]


def test_generate_continues_a_piece(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    prompt, out = midi_folder / "piece-0.mid", tmp_path / "new" / "out.mid"
    words = compose(checkpoint, out, "--prompt", prompt, "--seed=4", "--json")
    result = call(*words).json
    assert result["files"] == [str(out)]
    assert result["seeds"] == [4]
    assert result["seconds"] >= 1
    assert f"after {result['prompt_seconds']:.1f} of the prompt; " in call(*words[:-1]).err
    assert not result["interrupted"]
    notes = read_piece(out).notes
    assert len(notes) > 55  # the prompt is there, but for notes that meet
    first = out.read_bytes()
    call(*words)
    assert out.read_bytes() == first


def test_generate_can_leave_the_prompt_out(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    words = compose(checkpoint, out, "--prompt", midi_folder / "piece-0.mid", "--seed=4")
    assert call(*words).code == 0
    whole = read_piece(out)
    assert call(*words, "--continuation-only").code == 0
    new = read_piece(out)
    assert new.seconds < 10 < whole.seconds
    assert len(new.notes) < len(whole.notes) - 40


def test_generate_continues_from_a_point_of_the_piece(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    prompt = read_piece(midi_folder / "piece-0.mid")
    words = compose(checkpoint, out, "--prompt", midi_folder / "piece-0.mid", "--seed=4")
    assert call(*words, "--prompt-end=3").code == 0
    before = prompt.notes[prompt.notes["start"] < 2.99]
    assert read_piece(out).notes["pitch"][: len(before)].tolist() == before["pitch"].tolist()
    assert read_piece(out).seconds < 6
    refused(call(*words, "--prompt-end=9999"), "--prompt-end is 9999, but the prompt lasts")
    refused(call(*words, "--prompt-end=-1"), "--prompt-end is -1.0")
    refused(call(*words, "--prompt-end=soon"), "--prompt-end: Expected a num")
    refused(call(*compose(checkpoint, out, "--prompt-end=3")), "give a prompt, or leave it out")


def test_tracks_of_a_file_are_told_and_chosen(call: Any, checkpoint: Path, tmp_path: Path) -> None:
    band, out = tmp_path / "band.mid", tmp_path / "out.mid"
    low, high = (events_of([(0, 900, pitch, 60), (1000, 2000, pitch, 60)], 1) for pitch in (40, 90))
    strings = [(0, meta(3, b"Strings")), (0, program(48, 1)), *high]
    band.write_bytes(file([(0, meta(3, b"Left hand")), (0, program(0, 1)), *low], strings))
    sound = ["render", band, "--out", tmp_path / "a.wav"]
    assert "Tracks used: 0 (Left hand); not used: 1 (Strings)." in call(*sound).err
    words = compose(checkpoint, out, "--seed=4", "--prompt", band)
    assert "Tracks used: 0 (Left hand)" in call(*words).err
    assert read_piece(out).notes["pitch"][0] == 40
    assert "Tracks used: 1 (Strings)" in call(*words, "--tracks", "strings,").err
    assert read_piece(out).notes["pitch"][0] == 90
    assert "Tracks used" not in call(*words, "--tracks", "0, Strings").err
    refused(call(*words, "--tracks", "7"), "Track '7' is not in the file; choose among 0 (Left")
    refused(call(*sound, "--tracks", ""), "No track is chosen; choose among 0 (Left hand), 1 (St")
    refused(call(*compose(checkpoint, out, "--tracks", "0")), "give a --prompt")


def test_generate_numbers_its_takes(call: Any, checkpoint: Path, tmp_path: Path) -> None:
    result = call(
        *compose(checkpoint, tmp_path / "out.mid", "--variations=2", "--seed=7", "--json")
    ).json
    assert result["files"] == [str(tmp_path / "out-1.mid"), str(tmp_path / "out-2.mid")]
    assert result["seeds"] == [7, 8]
    assert all(Path(file).is_file() for file in result["files"])


def test_generate_numbers_its_takes_by_their_likelihood(
    call: Any, checkpoint: Path, tmp_path: Path
) -> None:
    words = compose(checkpoint, tmp_path / "out.mid", "--seed=7", "--json", "--variations=4")
    plain, ranked = call(*words).json, call(*words, "--rank").json
    assert ranked["nats_per_token"] == sorted(plain["nats_per_token"])
    best = plain["nats_per_token"].index(min(plain["nats_per_token"]))
    assert ranked["seeds"][0] == 7 + best != ranked["seeds"][1]
    assert read_recipe(Path(ranked["files"][0]))["seed"] == 7 + best
    refused(call(*words[:-1], "--rank"), "--rank puts several takes in order")


def test_generate_makes_a_file_again_from_what_it_tells(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    prompt, first, again = midi_folder / "piece-0.mid", tmp_path / "1.mid", tmp_path / "2.mid"
    asked = compose(checkpoint, first, "--prompt", prompt, "--seed=4", "--temperature=0.9")
    assert call(*asked, "--engine=torch").code == 0
    words = ["generate", "--again", first, "--checkpoint", checkpoint, "--out", again]
    assert call(*words, "--json").json["seeds"] == [4]
    assert again.read_bytes() == first.read_bytes()
    refused(call(*words, "--seed=5"), "--again takes all settings from the file; leave out --seed.")
    assert call(*asked, "--engine=torch", "--continuation-only").code == 0
    refused(call(*words), "was written without its prompt; give the prompt")
    assert call(*words, "--prompt", prompt).code == 0
    assert again.read_bytes() == first.read_bytes()
    refused(call(*words, "--again", prompt), "does not tell how it was made")


def test_a_preset_turns_the_knobs_and_flags_after_it_turn_them_again(
    call: Any, checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    for words, temperature in (
        (["--preset=adventurous"], 1.05),
        (["--preset", "faithful"], 0.95),
        (["--preset=faithful", "--temperature=1"], 1.0),
        ([], 1.0),
    ):
        assert call(*compose(checkpoint, out, "--seed=4", "--seconds=0.5", *words)).code == 0
        assert read_recipe(out)["temperature"] == temperature
    words = compose(checkpoint, out, "--preset=wild")
    refused(call(*words), "--preset is 'wild', but it has to be faithful, balanced or adv")
    refused(call(*compose(checkpoint, out, "--key=H")), "--key is 'H', but it has to be a key")


def test_redo_composes_a_part_anew(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    piece, out = midi_folder / "piece-0.mid", tmp_path / "out.mid"
    words = ["redo", piece, "--out", out, "--checkpoint", checkpoint, "--seed=4", "--candidates=3"]
    result = call(*words, "--from=4", "--to=6.5", "--json").json
    assert result["file"] == str(out)
    assert result["part"] == [4.0, 6.5]
    assert sorted(result["seeds"]) == sorted(candidate_seeds(4, 3))
    nats = result["following_nats_per_token"]
    assert nats == sorted(nats)
    old, new = (read_piece(file).sounding_notes for file in (piece, out))
    for kept in (lambda n: n[n["start"] < 3.99], lambda n: n[n["start"] >= 6.5]):
        assert kept(new)["start"].tolist() == kept(old)["start"].tolist()
    assert "the best of 3, seed" in call(*words, "--from=4", "--to=6.5").err
    refused(call(*words, "--from=4", "--to=2"), "The part begins at 4 seconds and ends at 2; let")
    refused(call(*words, "--from=4"), "required: --to")
    refused(call("generate", "--again", out, "--out", out), "holds a part that was redone")


def interrupt(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Send this signal when the fourth note is asked for."""
    step, calls = Composition.__next__, []

    def interrupted(self: Composition) -> Any:
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), number)
        return step(self)

    monkeypatch.setattr(Composition, "__next__", interrupted)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_what_ends_redo_or_render_leaves_nothing_and_says_so(
    call: Any,
    checkpoint: Path,
    midi_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    piece, told = midi_folder / "piece-0.mid", "music-gpt: Interrupted; nothing was written."
    interrupt(monkeypatch, number)
    words = ["redo", piece, "--from=4", "--to=9", "--checkpoint", checkpoint]
    said = call(*words, "--out", tmp_path / "out.mid")
    assert (said.code, said.out, said.err.splitlines()[-1]) == (code, "", told)
    monkeypatch.setattr(audio, "_mix", lambda *_: os.kill(os.getpid(), number))
    said = call("render", piece, "--out", tmp_path / "a.wav")
    assert (said.code, said.out, said.err.splitlines()[-1]) == (code, "", told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_what_ends_generate_keeps_the_music_so_far(
    call: Any,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    interrupt(monkeypatch, number)
    said = call(*compose(checkpoint, tmp_path / "out.mid", "--seed=1", "--seconds=60", "--json"))
    assert said.code == code
    assert json.loads(said.out)["interrupted"]
    assert "what had been composed was written" in said.err
    assert len(read_piece(tmp_path / "out.mid").notes) >= 3


def test_generate_refuses_what_it_cannot_use(
    call: Any, checkpoint: Path, midi_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mid"
    broken = midi_folder / "broken.mid"
    refused(call(*compose(checkpoint, out, "--prompt", broken)), "This is not a MIDI file")
    refused(call(*compose(checkpoint, out, "--seconds=0")), "--seconds is 0")
    refused(call(*compose(checkpoint, out, "--top-p=2")), "--top-p is 2")
    (tmp_path / "folder.mid").mkdir()
    refused(call(*compose(checkpoint, tmp_path / "folder.mid")), "it is a folder; give the name")
    (tmp_path / "file").write_text("")
    refused(
        call(*compose(checkpoint, tmp_path / "file" / "out.mid")), "stands where a folder should"
    )
    refused(call(*compose(broken, out)), "not a usable music_gpt checkpoint")
    assert not out.exists()


def test_where_nothing_can_be_written_nothing_is_composed(
    call: Any, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(self: Path, data: bytes) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Composition, "__next__", lambda _: pytest.fail("a note was composed"))
    long = tmp_path / f"{'a' * 251}.mid"
    refused(call(*compose(checkpoint, long, "--variations=2")), "the name is too long")
    (tmp_path / "out-1.mid").mkdir()
    said = call(*compose(checkpoint, tmp_path / "out.mid", "--variations=2"))
    refused(said, "out-1.mid cannot be written: it is a folder")
    (tmp_path / "out-1.mid").rmdir()
    monkeypatch.setattr(Path, "write_bytes", read_only)
    refused(call(*compose(checkpoint, tmp_path / "x.mid")), "is read-only; choose another folder")
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_and_a_new_folder_can_be_written(
    call: Any, checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / f"{'a' * 251}.mid"
    assert call(*compose(checkpoint, out, "--seed=3")).code == 0
    assert read_piece(out).n_notes > 0
    assert call("render", out, "--out", tmp_path / "also" / "new" / "a.wav").code == 0
    assert [file.name for file in (tmp_path / "also" / "new").iterdir()] == ["a.wav"]


def test_render_says_at_once_where_it_cannot_write(
    call: Any, midi_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(audio, "write_audio", lambda *_: pytest.fail("sound was made"))
    said = call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "a.wav")
    refused(said, "a.wav cannot be written: the disk is full; free some space")
    said = call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "new" / "a.xyz")
    refused(said, "end the name in .wav, .flac or .mp3")
    assert list(tmp_path.iterdir()) == []


def test_render_writes_sound(call: Any, midi_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.wav"
    said = call("render", midi_folder / "piece-1.mid", "--out", out)
    assert (said.code, said.out) == (0, "")
    assert "seconds of music" in said.err
    assert out.read_bytes()[:4] == b"RIFF"
    refused(call("render", midi_folder / "piece-1.mid", "--out", tmp_path / "a.xyz"), "xyz")
    refused(call("render", midi_folder / "broken.mid", "--out", out), "not a MIDI file")


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
    assert options == {"host": "127.0.0.1", "port": 80, "share": False, "auth": ("me", "a:b")}
