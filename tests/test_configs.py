"""The files in configs/: each is a run that the command line takes, and tells the truth."""

import dataclasses
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from endless import ENDLESS, make_endless

from music_gpt.cli import main as cli
from music_gpt.config.model import N_EVENTS, PRESETS, ModelConfig
from music_gpt.config.training import RunConfig, TrainConfig
from music_gpt.errors import InputError
from music_gpt.network.model import GPT
from music_gpt.train_config import read_config

FOLDER = Path(__file__).parent.parent / "configs"
FILES = sorted(FOLDER.glob("*.yaml"))
HEAD = ("machine", "minutes", "expected")

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """What `music-gpt train` asked of the training, which does not run."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def train(*args: Any, **kwargs: Any) -> dict[str, Any]:
        calls.append((args, kwargs))
        return {
            "finished": True,
            "steps": 1,
            "tokens": 1,
            "minutes": 0.0,
            "nats_per_token": None,
            "checkpoint": "",
            "report": "",
        }

    monkeypatch.setitem(sys.modules, "music_gpt.training.run", SimpleNamespace(train=train))
    return calls


def run_config(asked: list[Any], *words: str) -> RunConfig:
    """The run that these words lead to."""
    assert cli.main(["train", "--tokens", "tokens", "--out", "out", *words]) == 0
    ((args, kwargs),) = asked
    assert args[:2] == ("tokens", "out")
    assert kwargs.items() >= {"resume": False, "init_from": None}.items()
    assert isinstance(args[2], RunConfig)
    return args[2]


def head(file: Path) -> dict[str, str]:
    """The comment that a file opens with: `what` it is, and the facts under their names."""
    lines = []
    for line in file.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line[1:].strip())
    facts = dict(line.split(": ", 1) for line in lines if line.split(": ")[0] in HEAD)
    return {"what": lines[0], **facts}


def table() -> dict[str, dict[str, str]]:
    """The table of configs/README.md: a row for each file name."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (FOLDER / "README.md").read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    names = rows[0]
    links = {row[0]: dict(zip(names, row, strict=True)) for row in rows[2:]}
    found = {re.fullmatch(r"\[(.+)\]\(\1\)", link): row for link, row in links.items()}
    assert None not in found
    return {match[1]: row for match, row in found.items() if match}


def network(file: Path) -> ModelConfig:
    """The network that a file describes."""
    return read_config(file, {}).model


def test_there_is_a_file_for_every_preset_and_the_others_train_one_on_a_corpus() -> None:
    files = {file.stem: file for file in FILES}
    assert files.keys() >= PRESETS.keys()
    for name in files.keys() - PRESETS.keys():
        assert dataclasses.replace(network(files[name]), dropout=0.0) in PRESETS.values()


@pytest.mark.parametrize("name", PRESETS)
def test_the_command_line_reads_the_file_as_its_preset(name: str, asked: list[Any]) -> None:
    run = run_config(asked, "--config", str(FOLDER / f"{name}.yaml"))
    assert run.model == ModelConfig.preset(name)


@every_file
def test_a_bare_machine_reads_a_file_as_the_command_line_does(file: Path, asked: list[Any]) -> None:
    ours, theirs = (
        config.to_dict()
        for config in (read_config(file, {}), run_config(asked, "--config", str(file)))
    )
    for run in (ours, theirs):
        run["optim"]["betas"] = list(run["optim"]["betas"])
    assert ours == theirs


@pytest.mark.parametrize("name", ["maestro", "permissive", "permissive-expressive"])
def test_a_run_for_a_large_gpu_takes_steps_of_131072_tokens_and_minds_the_clock(name: str) -> None:
    run = read_config(FOLDER / f"{name}.yaml", {})
    assert run.data.batch_size * run.model.context * run.train.accumulate == 131_072
    assert run.train.compile
    assert 0 < run.train.max_minutes <= 9
    assert run.train.save_every_minutes == 2


@pytest.mark.parametrize("name", ["maestro", "permissive", "permissive-expressive"])
def test_the_command_that_rehearses_a_run_for_a_large_gpu_needs_none(name: str) -> None:
    told = (FOLDER / "README.md").read_text("utf-8").replace("\\\n", " ")
    command = next(line for line in told.splitlines() if line.startswith("OMP_NUM_THREADS=1 "))
    words = command.split()
    start = words.index("--max-minutes") + 2
    knobs = dict(zip(words[start::2], words[start + 1 :: 2], strict=True))
    file, minutes = FOLDER / f"{name}.yaml", float(words[start - 1])
    run, whole = read_config(file, knobs, minutes), read_config(file, {})
    assert words[start:] == [word for pair in knobs.items() for word in pair]
    assert (run.train.precision, run.train.compile, run.train.max_minutes) == ("auto", False, 1.0)
    assert run.data.batch_size * run.model.context == 512
    assert (run.optim, run.train.validate_tokens) == (whole.optim, whole.train.validate_tokens)


def test_the_two_stages_of_the_permissive_corpus_have_one_network_and_nine_minutes() -> None:
    first, second = (read_config(FOLDER / f"permissive{s}.yaml", {}) for s in ("", "-expressive"))
    assert first.model == second.model
    assert first.train.max_minutes + second.train.max_minutes == 9
    assert second.optim.muon_lr < first.optim.muon_lr


@every_file
def test_what_the_file_says_is_what_is_run(file: Path, asked: list[Any]) -> None:
    run, said = run_config(asked, "--config", str(file)).to_dict(), yaml.safe_load(file.read_text())
    assert list(said) == [section for section in run if section in said]  # in the order of config
    for section, values in said.items():
        for name, value in values.items():
            is_run = run[section][name]
            assert (list(is_run) if isinstance(is_run, tuple) else is_run) == value


@every_file
def test_the_file_states_the_whole_size_of_its_network(file: Path) -> None:
    said = yaml.safe_load(file.read_text())["model"]
    assert {"n_layers", "d_model", "d_ff", "n_heads", "n_kv_heads", "context"} <= set(said)


def test_what_a_file_leaves_out_keeps_its_default(asked: list[Any]) -> None:
    run = run_config(asked, "--config", str(FOLDER / "small.yaml"))
    assert run.optim == RunConfig().optim
    assert run.train.seed == TrainConfig().seed


def test_a_flag_behind_the_file_wins_over_it(asked: list[Any]) -> None:
    run = run_config(
        asked,
        *("--config", str(FOLDER / "lecture.yaml")),
        *("--model.vocab_size", "390", "--data.batch_size", "3", "--max-minutes", "8"),
    )
    assert (run.model.vocab_size, run.data.batch_size, run.train.max_minutes) == (390, 3, 8.0)
    assert run.model.activation == "relu"


def test_the_flags_for_a_gpu_leave_the_default_run_the_same(asked: list[Any]) -> None:
    file = FOLDER / "default.yaml"
    flags = next(line for line in file.read_text().splitlines() if line.startswith("#   --"))
    run = run_config(asked, "--config", str(file), *flags.strip("# ").split())
    settings = yaml.safe_load(file.read_text())
    crops_a_step = settings["data"]["batch_size"] * settings["train"]["accumulate"]
    assert run.data.batch_size * run.train.accumulate == crops_a_step
    assert crops_a_step * run.model.context == 65_536
    assert run.train.compile


def test_a_network_for_text_says_how_to_train_it_on_music() -> None:
    for file in FILES:
        speaks_of_it = "--model.vocab_size 390" in file.read_text()
        assert speaks_of_it == (network(file).vocab_size != N_EVENTS)


def test_an_unknown_knob_in_a_file_is_one_sentence(
    tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "typo.yaml"
    file.write_text("model:\n  n_layer: 4\n")
    assert cli.main(["train", "--tokens", "t", "--out", "o", "--config", str(file)]) == 2
    assert asked == []
    said = capsys.readouterr().err
    assert "n_layer" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"model: 5\n", "model has to hold names with values, but it is 5; see `music-gpt train"),
        (b"model:\n", "model has to hold names with values, but it is None"),
        (b"- 1\n", "has to hold names with values, but it is [1]"),
        (b"", "has to hold names with values, but it is None"),
        (b"\xff\xfe\x00model", "is no text in UTF-8; give a YAML file"),
        (b"train:\n  seed: 2026-99-99\n", "no valid YAML in line 2 ('2026-99-99' cannot be read"),
        (b"train:\n  seed: !!int abc\n", "no valid YAML in line 2 ('abc' cannot be read as int)"),
        (b"train:\n  seed: !!bool abc\n", "line 2 ('abc' cannot be read as bool)"),
        (b"train:\n  seed: !!timestamp a\n", "line 2 ('a' cannot be read as timestamp)"),
        (b"train:\n  seed: " + b"9" * 5000, "no valid YAML in line 2 ('9999"),
        (b"train: " + b"[" * 10_000, "no valid YAML in line 1 (more than 8 levels)"),
        (b"train: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
        (b"a: &a [x, x]\nb: [*a, *a]\n", "line 2 (nothing may refer to another place with *)"),
        (b"train:\n  seed: 1\n  seed: 2\n", "no valid YAML in line 3 ('seed' stands there twice)"),
        (b"train: {}\ntrain: {}\n", "no valid YAML in line 2 ('train' stands there twice)"),
        (b"train:\n  seed: 1\0\n", "is no valid YAML (special characters are not allowed)"),
        (b"train: {}\n---\ntrain: {}\n", "no valid YAML in line 2 (but found another document)"),
        (b"? [1]\n: 2\n", "no valid YAML in line 1 (found unhashable key)"),
        (b"model:\n  n_layers: {a: 1}\n", "n_layers is {'a': 1}, but it has to be a whole number"),
        (b"model:\n  n_layers: [1]\n", "n_layers is [1], but it has to be a whole number"),
        (b"model:\n  n_layers:\n", "n_layers is None, but it has to be a whole number from 1 to"),
        (b"model:\n  n_layers: true\n", "n_layers is True, but it has to be a whole number"),
        (b"train:\n  compile: 1\n", "compile is 1, but it has to be true or false"),
        (b"train:\n  precision: [fp32]\n", "precision is ['fp32'], but it has to be auto, bf16 or"),
        (b"optim:\n  betas: {a: 1}\n", "betas is {'a': 1}, but it has to be two numbers"),
        (b"optim:\n  clip: .nan\n", "clip is nan, but it has to be a number above 0"),
        (b"train:\n  max_minutes: 1e999\n", "is inf, but it has to be a number of 0 or more"),
        (b"modle:\n  n_layers: 2\n", "has 'modle', but there is no such setting; see `music-gpt"),
        (b"config: run.yaml\n", "has 'config', but there is no such setting"),
        (b"model:\n  class_path: os.system\n", "model has 'class_path', but there is no such"),
        (b"model: {a: [\n", "is no valid YAML in line 2"),
    ],
    ids=repr,
)
def test_a_file_that_holds_no_settings_is_one_plain_sentence(
    tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str], text: bytes, sentence: str
) -> None:
    file = tmp_path / "odd.yaml"
    file.write_bytes(text)
    assert cli.main(["train", "--tokens", "t", "--out", "o", "--config", str(file)]) == 2
    assert asked == []
    said = capsys.readouterr().err
    assert sentence in said
    assert str(file) in said
    assert len(said.splitlines()) == 1
    assert len(said) < 300 + len(str(file))
    with pytest.raises(InputError) as caught:
        read_config(file, {})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("number", ["1e-3", "1E-3", ".1e-2", "0.001", "1.0e-03"])
def test_a_number_with_an_exponent_is_one_in_a_file_and_on_a_bare_machine(
    tmp_path: Path, asked: list[Any], number: str
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(f"optim:\n  adamw_lr: {number}\n")
    assert run_config(asked, "--config", str(file)).optim.adamw_lr == 1e-3
    assert read_config(file, {}).optim.adamw_lr == 1e-3
    assert read_config(file, {"--optim.muon_lr": number}).optim.muon_lr == 1e-3


def test_a_bad_value_in_a_file_is_the_sentence_of_its_knob(
    tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("model:\n  n_heads: 7\n")
    assert cli.main(["train", "--tokens", "t", "--out", "o", "--config", str(file)]) == 2
    assert asked == []
    said = capsys.readouterr().err
    assert said.startswith(f"music-gpt: {file}: ")
    assert "n_heads is 7, but it has to be a divisor of" in said


@pytest.mark.parametrize("value", ["maybe", "1", "[true]", ""])
def test_a_switch_in_a_file_is_on_or_off(
    tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str], value: str
) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(f"resume: {value}\n")
    assert cli.main(["train", "--tokens", "t", "--out", "o", "--config", str(file)]) == 2
    assert asked == []
    assert "resume is" in (said := capsys.readouterr().err)
    assert "but it has to be true or false" in said


@pytest.mark.parametrize("given", ["network.yaml", "{n_layers: 3}", "n_layers: 3"])
def test_a_section_is_read_from_a_file_of_its_own_or_from_the_flag(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("network.yaml").write_text("n_layers: 3\n")
    model = run_config(asked, "--model.d_ff=64", "--model", given, "--model.d_model=256").model
    assert (model.n_layers, model.d_ff, model.d_model) == (3, 64, 256)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
@pytest.mark.parametrize("flag", ["--config", "--model", "--data", "--optim", "--train"])
@pytest.mark.parametrize("what", ENDLESS)
def test_settings_that_never_end_are_not_waited_for(
    tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str], flag: str, what: str
) -> None:
    file = tmp_path / "endless.yaml"
    make_endless(file, what)
    assert cli.main(["train", "--tokens", "t", "--out", "o", flag, str(file)]) == 2
    assert asked == []
    assert f"{file} cannot be read: it " in (said := capsys.readouterr().err)
    assert "; give a YAML file." in said


@pytest.mark.parametrize(
    ("flag", "given", "sentence"),
    [
        ("--model", "nowhere.yaml", "--model: there is no file 'nowhere.yaml' of settings"),
        ("--config", "{model: {}}", "--config: there is no file '{model: {}}' of settings"),
        ("--model", "{n_layer: 3}", "--model has 'n_layer', but there is no such setting"),
        ("--optim", "a: &a [x]\nb: *a", "--optim is no valid YAML in line 2 (nothing may refer"),
        ("--train", "seed: [" + "[" * 99, "--train is no valid YAML in line 1 (more than 8"),
    ],
)
def test_a_section_that_cannot_be_used_is_one_sentence(
    asked: list[Any], capsys: pytest.CaptureFixture[str], flag: str, given: str, sentence: str
) -> None:
    assert cli.main(["train", "--tokens", "t", "--out", "o", flag, given]) == 2
    assert asked == []
    assert sentence in (said := capsys.readouterr().err)
    assert said.count("\n") == 1


def test_a_flag_of_thousands_of_characters_is_one_short_sentence(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for flag in ("--model.n_layers", "--optim.betas", "--model"):
        assert cli.main(["train", "--tokens", "t", "--out", "o", flag, "[" * 5000]) == 2
        assert len(capsys.readouterr().err) < 400
    assert asked == []


@every_file
def test_the_file_opens_with_what_it_is_and_what_to_expect(file: Path) -> None:
    said = head(file)
    assert said["what"].endswith(".")
    assert set(HEAD) <= set(said)
    assert all(said.values())


def test_the_table_lists_the_files_that_exist() -> None:
    assert sorted(table()) == [file.name for file in FILES]


@every_file
def test_the_table_tells_the_true_number_of_parameters(file: Path) -> None:
    with torch.device("meta"):
        model = GPT(network(file))
    assert table()[file.name]["parameters"] == f"{model.n_parameters:,}"


@every_file
def test_the_table_describes_the_network(file: Path) -> None:
    c = network(file)
    assert table()[file.name]["network"] == (
        f"{c.n_layers} × {c.d_model}/{c.d_ff}, {c.norm}-norm, "
        f"{c.activation.upper().replace('RELU', 'ReLU')}, "
        f"{'rotary' if c.positions == 'rope' else 'learned'} positions{', QK-norm' * c.qk_norm}"
    )


@every_file
def test_the_table_and_the_file_expect_the_same(file: Path) -> None:
    row, said = table()[file.name], head(file)
    assert (row["machine"], row["minutes"], row["expected loss"]) == tuple(said[k] for k in HEAD)
