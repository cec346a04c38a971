"""A YAML file is run, measured and ended in time where only torch and Lightning are."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from small import ONE_TOKEN, folder_of_ids, piece, run_config, tokens_folder

from music_gpt import train_config
from music_gpt.metrics import likelihood
from music_gpt.tokens.corpus import Corpus
from music_gpt.train_config import evaluate, main, read_config
from music_gpt.training.callback import RunCallback
from music_gpt.training.run_folder import EVALUATION


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train-config") / "tokens"
    return tokens_folder(folder, {"train": [120, 90], "validation": [60], "test": [50, 20]})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The small network of the tests, for six steps."""
    settings = run_config(max_steps=6).to_dict()
    settings["optim"]["betas"] = list(settings["optim"]["betas"])
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def words(file: Path, tokens: Path, *more: str) -> list[str]:
    return [str(file), "--tokens", str(tokens), "--out", str(file.parent / "run"), *more]


def test_a_file_is_trained_and_both_splits_are_scored_whole(
    file: Path, tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(file, tokens)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((file.parent / "run" / EVALUATION).read_text())
    assert told["steps"] == 6
    assert Path(told["checkpoint"]).exists()
    card = json.loads((tokens / "corpus.json").read_text())["splits"]
    for name in ("validation", "test"):
        assert told["evaluation"][name]["tokens"] == card[name]["tokens"] - card[name]["pieces"]
        assert 0 < told["evaluation"][name]["nats_per_token"] < 2 * math.log(390)


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_it_before_the_scoring_with_its_code(
    file: Path,
    tokens: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    signal: str,
    code: int,
) -> None:
    after_step = RunCallback._after_step

    def signalled(self: RunCallback, trainer: Any, module: Any) -> None:
        self.signals.received = signal if module.step == 3 else ""
        after_step(self, trainer, module)

    monkeypatch.setattr(RunCallback, "_after_step", signalled)
    assert main(words(file, tokens)) == code
    assert "Stopped after 3 steps; --resume goes on." in capsys.readouterr().err
    assert not (file.parent / "run" / EVALUATION).exists()


@pytest.mark.parametrize("bound", [(), ("--train.max_steps", "0", "--max-minutes", "0.15")])
def test_a_run_that_ended_while_it_was_scored_is_scored_by_resuming(
    bound: tuple[str, ...],
    file: Path,
    tokens: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train_config, "evaluate", interrupted)
        assert main(words(file, tokens, *bound)) == 130
    run = file.parent / "run"
    best, rows = (run / "best.safetensors").read_bytes(), (run / "log.csv").read_text()
    assert not (run / EVALUATION).exists()
    assert main(words(file, tokens, *bound, "--resume")) == 0
    told = json.loads((run / EVALUATION).read_text())
    assert told["steps"] == int(rows.splitlines()[-1].split(",")[0])
    assert told["evaluation"].keys() == {"validation", "test"}
    assert (run / "log.csv").read_text() == rows
    assert (run / "best.safetensors").read_bytes() == best
    capsys.readouterr()
    assert main(words(file, tokens, *bound, "--resume")) == 2
    assert "is finished; to train longer" in capsys.readouterr().err


def test_what_was_scored_gives_way_where_the_run_goes_on(
    file: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    assert main(words(file, tokens)) == 0
    longer = words(file, tokens, "--train.max_steps", "8", "--resume")
    with monkeypatch.context() as patch:
        patch.setattr(train_config, "evaluate", interrupted)
        assert main(longer) == 130
    assert main(longer) == 0
    assert json.loads((file.parent / "run" / EVALUATION).read_text())["steps"] == 8


def test_what_was_scored_is_not_written_over_and_is_no_file_of_others(
    file: Path, tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = file.parent / "run"
    assert main(words(file, tokens)) == 0
    for result in [*run.glob("*.ckpt"), *run.glob("*.safetensors")]:
        result.unlink()
    capsys.readouterr()
    assert main(words(file, tokens)) == 2
    assert "already holds a run" in capsys.readouterr().err
    (run / EVALUATION).unlink()
    assert main(words(file, tokens)) == 0


def test_a_flag_wins_over_the_file_and_the_minutes_are_those_of_all(
    file: Path, tokens: Path
) -> None:
    flags = ("--max-minutes", "0.15", "--train.max_steps", "0", "--model.n_layers", "1")
    assert main(words(file, tokens, *flags)) == 0
    run = yaml.safe_load((file.parent / "run" / "config.yaml").read_text())
    assert run["model"]["n_layers"] == 1
    assert 0 < run["train"]["max_minutes"] < 0.15


def test_where_time_is_short_a_part_of_a_split_is_scored(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_folder(tmp_path / "tokens", {"train": [90], "test": [300, 200]})
    assert main(words(file, tokens)) == 0
    monkeypatch.setattr("music_gpt.train_config.TRIAL_TOKENS", 320)
    checkpoint, config = file.parent / "run" / "best.safetensors", read_config(file, {})
    late = evaluate(tokens, checkpoint, config, time.monotonic() - 1)
    whole = evaluate(tokens, checkpoint, config, math.inf)
    assert late["test"]["tokens"] <= 32  # a window
    assert whole["test"]["tokens"] > 320


def test_where_there_is_time_a_split_below_a_trial_is_scored_whole_at_once(
    file: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(words(file, tokens)) == 0
    asked = list[int]()

    def counted(*words: Any, max_tokens: int, **how: Any) -> likelihood.Likelihood:
        asked.append(max_tokens)
        return scored(*words, max_tokens=max_tokens, **how)

    scored = likelihood.likelihood
    monkeypatch.setattr(likelihood, "likelihood", counted)
    checkpoint, config = file.parent / "run" / "best.safetensors", read_config(file, {})
    found = evaluate(tokens, checkpoint, config, time.monotonic() + 1e6)
    assert asked == [1, 0, 1, 0]  # a window, then all, of each split
    for name, figures in found.items():
        assert figures["tokens"] == Corpus.open(tokens).split(name).n_targets


def test_a_split_of_pieces_of_one_token_is_not_scored(file: Path, tmp_path: Path) -> None:
    splits = {"train": [piece(1, 60)], "validation": [ONE_TOKEN], "test": [piece(2, 30)]}
    assert main(words(file, folder_of_ids(tmp_path / "tokens", splits))) == 0
    told = json.loads((file.parent / "run" / EVALUATION).read_text())
    assert told["evaluation"].keys() == {"test"}


def test_what_a_person_can_mend_is_one_sentence(
    file: Path, tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, sentence in (
        (("--model.n_layer", "4"), "There is no setting --model.n_layer"),
        (("--modle.n_layers", "4"), "There is no setting --modle.n_layers"),
        (("--model.n_heads", "7"), "n_heads is 7, but it has to be a divisor"),
        (("--model.n_heads", "[" * 5000), "--model.n_heads is no valid YAML in line 1 (more than"),
        (("--train.seed", "2026-99-99"), "--train.seed is no valid YAML in line 1 ('2026-99-99'"),
        (("--train.seed", "9" * 5000), "--train.seed is no valid YAML in line 1 ('999"),
    ):
        assert main(words(file, tokens, *more)) == 2
        assert sentence in capsys.readouterr().err
    assert main(words(tmp_path / "none.yaml", tokens)) == 2
    assert "there is no file" in capsys.readouterr().err
    assert not (file.parent / "run").exists()


def test_a_word_that_is_no_flag_is_told(
    file: Path, tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words(file, tokens, "--compile"))
    assert "not understood: --compile" in capsys.readouterr().err


BLOCKED = """
import sys
sys.modules.update(dict.fromkeys("%s".split()))
"""
ABSENT = (
    "symusic miditok pretty_midi mido jsonargparse docstring_parser gradio soundfile tensorboard "
    "litdata onnx onnxruntime PIL matplotlib"
)
ROOT = Path(__file__).parent.parent


def test_the_command_runs_to_its_end_on_a_machine_with_torch_and_lightning_alone(
    file: Path, tokens: Path, tmp_path: Path
) -> None:
    # Python imports this module first, in every process, and cannot import those that it names
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(BLOCKED % ABSENT)
    paths = os.pathsep.join(map(str, (tmp_path / "bare", ROOT)))

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
        )

    for name in ("symusic", "jsonargparse", "gradio"):
        assert f"import of {name} halted" in python("-c", f"import {name}").stderr
    command = ("-m", "music_gpt.train_config", *words(file, tokens))
    done = python(*command, "--max-minutes", "5", "--data.workers", "1")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    run = file.parent / "run"
    assert told == json.loads((run / EVALUATION).read_text())
    assert (told["finished"], told["steps"]) == (True, 6)
    assert told["evaluation"].keys() == {"validation", "test"}
    assert (run / "report.html").exists()
