"""A run that is killed (kill -9) while it saves or is heard goes on as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import killed_runs
import pytest
from killed_runs import (
    BETWEEN_MOVES,
    FIRST_MOVE,
    HALF_WRITTEN,
    HALF_WRITTEN_AGAIN,
    HEARD,
    LAST_MOVE,
)
from runs import assert_same_run, log_of, refused

from music_gpt.files import UNFINISHED_FILES
from music_gpt.training import callback
from music_gpt.training.run import train
from music_gpt.training.run_folder import read_resume_point

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

TESTS = Path(__file__).parent.parent
PART, LAST, PREVIOUS = UNFINISHED_FILES, "last.ckpt", "previous.ckpt"


@pytest.fixture(scope="module")
def killed_once(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    paths = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "training")))
    done = subprocess.run(
        [sys.executable, "-W", "error", killed_runs.__file__, tokens, folder],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def unbroken(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("unbroken") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callback, "LOG_EVERY_STEPS", 1)
        train(tokens, run, killed_runs.config())
    return run


def checkpoints_in(run: Path) -> set[str]:
    """The resume points, whole or not, that lie there."""
    return {pattern for pattern in (PART, LAST, PREVIOUS) if list(run.glob(pattern))}


@pytest.mark.parametrize(
    ("moment", "step", "left", "goes_on_after"),
    [
        (HALF_WRITTEN, 6, {PART, LAST}, 3),
        (FIRST_MOVE, 6, {PART, LAST}, 3),
        (BETWEEN_MOVES, 6, {PART, PREVIOUS}, 3),
        (LAST_MOVE, 6, {LAST, PREVIOUS}, 6),
        (HALF_WRITTEN, 10, {PART, LAST, PREVIOUS}, 9),
        (HEARD, 10, {LAST, PREVIOUS}, 10),
        (HALF_WRITTEN_AGAIN, 10, {PART, LAST, PREVIOUS}, 10),
    ],
)
def test_a_run_killed_while_it_saves_goes_on_as_the_unbroken_run_step_by_step(
    tokens: Path,
    killed_once: Path,
    unbroken: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    moment: str,
    step: int,
    left: set[str],
    goes_on_after: int,
) -> None:
    killed = killed_once / killed_runs.folder_name(moment, step)
    run = Path(shutil.copytree(killed, tmp_path / "run"))
    assert checkpoints_in(run) == left
    # of which nothing that was not saved is kept; the last step is first saved and then logged
    assert log_of(run)[-1]["step"] == str(9 if (moment, step) == (HALF_WRITTEN, 10) else step)
    assert read_resume_point(run)["step"] == goes_on_after
    monkeypatch.setattr(callback, "LOG_EVERY_STEPS", 1)
    assert train(tokens, run, killed_runs.config(), resume=True)["finished"]
    assert [row["step"] for row in log_of(run)] == [str(n) for n in range(1, 11)]
    assert_same_run(unbroken, run)
    assert checkpoints_in(run) == {LAST, PREVIOUS}
    assert "Finished after 10 steps" in (run / "report.html").read_text()
    assert "not readable" not in capsys.readouterr().err  # no half of a file under its name


def test_a_run_killed_in_its_first_save_is_told_to_begin_again(
    tokens: Path, killed_once: Path, tmp_path: Path
) -> None:
    killed = killed_once / killed_runs.folder_name(HALF_WRITTEN, 3)
    run = Path(shutil.copytree(killed, tmp_path / "run"))
    config = killed_runs.config()
    told = "nothing to resume .*--out, with --init-from .*best.safetensors"
    refused(told, tokens, run, config, resume=True)
    refused("already holds a run; choose another --out", tokens, run, config)
    new = tmp_path / "new"
    assert train(tokens, new, config, init_from=run / "best.safetensors")["finished"]
