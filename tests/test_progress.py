"""While a run goes on: the line of progress, TensorBoard, the page, and what a bare machine has."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small import run_config, tokens_folder
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from music_gpt.errors import InputError
from music_gpt.training import progress
from music_gpt.training.callback import RunCallback
from music_gpt.training.progress import TENSORBOARD_TAGS, Watch
from music_gpt.training.run import train
from music_gpt.training.run_folder import Measurement, read_log

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watching") / "tokens"
    return tokens_folder(folder, {"train": [120, 90], "validation": [60, 20]})


def points_in(run: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(run))
    events.Reload()
    return [(point.step, point.value) for point in events.Scalars(tag)]


def test_tensorboard_is_told_what_the_log_is_told(tokens: Path, tmp_path: Path) -> None:
    config = run_config(max_steps=30, validate_every_steps=12, tensorboard=True)
    train(tokens, tmp_path, config)
    rows = read_log(tmp_path)
    assert [row.step for row in rows] == [12, 20, 24, 30]
    for tag, column in TENSORBOARD_TAGS.items():
        told = [(row.step, getattr(row, column)) for row in rows]
        told = [(step, value) for step, value in told if not math.isnan(value)]
        if told:
            points = points_in(tmp_path, tag)
            assert [step for step, _ in points] == [step for step, _ in told]
            values = [value for _, value in points]
            assert values == pytest.approx([value for _, value in told], rel=1e-3, abs=1)


class Killed(BaseException):
    """Ends the run without a chance to save."""


def test_a_run_that_goes_on_leaves_no_point_of_tensorboard_twice(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(max_steps=50, validate_every_steps=15, tensorboard=True)
    after_step = RunCallback._after_step

    def killed_at_42(self: RunCallback, trainer: Any, module: Any) -> None:
        if module.step == 42:  # step 40 was told, the last saved point is step 30
            raise Killed
        after_step(self, trainer, module)

    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "_after_step", killed_at_42)
        with pytest.raises(Killed):
            train(tokens, tmp_path, config)
    train(tokens, tmp_path, config, resume=True)
    points = points_in(tmp_path, "nats_per_token/train")
    assert [step for step, _ in points] == [15, 20, 30, 40, 45, 50]
    assert [step for step, _ in points] == [row.step for row in read_log(tmp_path)]


def test_tensorboard_that_is_not_installed_is_missed_before_the_first_step(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="TensorBoard is asked for, but it is not installed"):
        train(tokens, tmp_path / "run", run_config(max_steps=2, tensorboard=True))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "error", [InputError("No room."), OSError(28, "full"), KeyError("pieces")], ids=repr
)
def test_a_report_that_cannot_be_written_is_told_once_and_ends_nothing(
    tokens: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(progress, "write_report", fails)
    result = train(tokens, tmp_path, run_config(max_steps=6, validate_every_steps=2))
    assert result["finished"]
    assert capsys.readouterr().err.count("The report is missing: ") == 1


@pytest.mark.parametrize("writes", ["__init__", "add_scalar", "close"])
def test_a_disk_that_takes_no_more_events_ends_nothing(
    tokens: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    writes: str,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"torch.utils.tensorboard.SummaryWriter.{writes}", full)
    config = run_config(max_steps=6, validate_every_steps=2, tensorboard=True)
    assert train(tokens, tmp_path, config)["finished"]
    assert capsys.readouterr().err.count("The log for TensorBoard is missing: ") == 1


def test_the_line_tells_the_last_validation_and_the_time_that_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = Watch(tmp_path, {}, first_step=1, tensorboard=False)
    watch.show(Measurement(20, 1.0, 500, 3.0, 2.5, 10.0, tokens_per_second=1234.4), 0.25)
    watch.show(Measurement(40, 2.0, 900, 2.0, tokens_per_second=99.0, mfu=0.314), 0.5)
    watch.close()
    first, second = capsys.readouterr().err.split("\r")[-3:-1]
    assert (
        "| 01:00 · step 20 · loss 3.000 · validation 2.500 at step 20 · 1,234 tokens/s · 3 min left"
        in first
    )
    assert "loss 2.000 · validation 2.500 at step 20 · 99 tokens/s · 31% MFU · 2 min left" in second


BARE = """
import sys
absent = "miditok symusic pretty_midi soundfile jsonargparse docstring_parser tensorboard gradio"
sys.modules.update(dict.fromkeys([*absent.split(), "onnx", "onnxruntime", "PIL", "matplotlib"]))
from small import run_config
from music_gpt import training_samples
from music_gpt.training.run import train
training_samples.SHORTEST_RUN = 0.0
result = train(sys.argv[1], sys.argv[2], run_config(max_steps=3),
               listener=training_samples.Listening(sys.argv[1], sys.argv[2], 1))
assert result["steps"] == 3
"""


def test_a_bare_machine_trains_draws_and_writes_midi(tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BARE, tokens, run],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Samples come without sound: soundfile is not installed." in done.stderr
    assert sorted(file.name for file in (run / "samples" / "step-3").iterdir()) == [
        *("1.mid", "1.png", "samples.json"),
    ]
    assert "What it plays after 3 steps" in (run / "report.html").read_text()
