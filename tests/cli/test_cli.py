"""The command line: what it prints where, which code it leaves, and that it speaks in sentences."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from calls import LONG, Said, refused

import music_gpt
from music_gpt.cli import main as cli
from music_gpt.cli import verbs
from music_gpt.composing import pianist

ROOT = Path(__file__).parent.parent.parent
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
    "render": ["midi", "--out", "--tracks", "--soundfont"],
    "export": ["--checkpoint", "--format {hf,onnx,onnx-int8}", "--out", "--json"],
    "import": ["file", "--from {chapter14,music-transformer}", "--heads", "--out", "--json"],
    "app": ["--checkpoint", "--engine", "--soundfont", "--host", "--port", "--share", "--auth"],
    "doctor": ["--checkpoint", "--engine", "--json"],
}


def test_without_a_verb_the_help_is_shown(call: Any) -> None:
    said = call()
    assert said.code == 0
    assert all(verb in said.out for verb in VERBS)
    assert said.err == ""


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"music-gpt {music_gpt.__version__}\n"


def test_a_library_that_is_missing_is_a_sentence(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*args: object, **options: object) -> None:
        raise ModuleNotFoundError("No module named 'gradio'", name="gradio")

    monkeypatch.setattr(pianist, "load", load)
    refused(call("app"), "A library is missing or broken (ModuleNotFoundError: No module named")
    monkeypatch.setitem(sys.modules, "music_gpt.composing.pianist", None)  # a fault of our own
    with pytest.raises(ImportError, match="music_gpt.composing.pianist"):
        call("app")


@pytest.mark.parametrize(
    ("library", "fault", "said"),
    [
        ("jsonargparse", "import no_such_part", "No module named 'no_such_part'"),
        ("yaml", "raise RuntimeError('built for another Python')", "built for another Python"),
        ("yaml", "def (", "invalid syntax"),
        ("numpy", "import no_such_part", "No module named 'no_such_part'"),
        ("packaging", "import no_such_part", "No module named 'no_such_part'"),
        ("gradio", "print('hello'); import no_such_part", "No module named 'no_such_part'"),
    ],
)
def test_without_a_library_the_doctor_or_who_stands_in_for_it_says_what_to_do(
    library: str, fault: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / f"{library}.py").write_text(fault)
    done = subprocess.run(
        [sys.executable, "-m", "music_gpt.cli.main", "doctor"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "pip install -c constraints.txt" in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_lists_its_flags(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([verb, "--help"])
    assert caught.value.code == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert [flag for flag in VERBS[verb] if flag not in told.out] == []
    assert "lambda" not in told.out
    assert told.out.startswith(f"usage: music-gpt {verb} ")


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
            "--engine is 'gpu', but it has to be auto, torch, cuda, onnx or onnx-int8",
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
