"""Runs that cannot work say so in a sentence; those that diverge keep what was good."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import log_of, refused
from small import ONE_TOKEN, folder_of_ids, piece, run_config, tokens_folder

from music_gpt import files
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.training import callback, run_folder
from music_gpt.training.callback import ValidationScore
from music_gpt.training.module import Training
from music_gpt.training.optimizer import MuonAdamW, lr_factor
from music_gpt.training.run import train
from music_gpt.training.run_folder import read_log

# --- what cannot work is said -----------------------------------------------------------------


def test_a_folder_that_holds_a_run_is_not_overwritten(stopped: Path, tokens: Path) -> None:
    before = {p.name: p.read_bytes() for p in stopped.iterdir()}
    refused("already holds a run; go on with it with --resume", tokens, stopped)
    assert {p.name: p.read_bytes() for p in stopped.iterdir()} == before
    for name in ("last.ckpt", "previous.ckpt", "last.safetensors"):
        (stopped / name).unlink()
    refused("already holds a run; choose another --out", tokens, stopped)  # its best are there


def test_what_a_start_without_a_result_left_is_written_anew(tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    run_folder.open_run(run, run_config(), step=None)
    (run / "log.csv").write_text("step\n1\n")
    train(tokens, run, run_config(max_steps=2))
    assert [row["step"] for row in log_of(run)] == ["2"]


def test_nothing_to_resume_is_said(tokens: Path, tmp_path: Path) -> None:
    refused("nothing to resume", tokens, tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


def test_a_finished_run_is_not_resumed(stopped: Path, tokens: Path) -> None:
    train(tokens, stopped, run_config(max_steps=8), resume=True)
    refused("is finished; to train longer.*--init-from", tokens, stopped, resume=True)


def test_a_run_is_not_resumed_with_another_network(stopped: Path, tokens: Path) -> None:
    other = run_config(model={"d_ff": 64}, max_steps=8)
    refused("another network or optimizer.*config.yaml", tokens, stopped, other, resume=True)
    other = run_config(optim={"optimizer": "adamw"}, max_steps=8)
    refused("another network or optimizer.*config.yaml", tokens, stopped, other, resume=True)


def test_a_run_whose_network_was_another_one_is_not_resumed(stopped: Path, tokens: Path) -> None:
    state = torch.load(stopped / "last.ckpt", weights_only=True)
    del state["version"]  # as before versions were told
    torch.save(state, stopped / "last.ckpt")
    refused("normalised queries and keys in another way", tokens, stopped, resume=True)


def test_a_run_is_not_resumed_on_other_tokens(stopped: Path, tmp_path: Path) -> None:
    other = tokens_folder(tmp_path / "other", {"train": [30]}, seed=90)
    refused("not the one that the run was started with", other, stopped, resume=True)


def test_a_folder_that_cannot_be_written_is_said_before_the_first_step(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(Training, "training_step", lambda *_: pytest.fail("a step was made"))
    refused("cannot be written.*choose another folder", tokens, tmp_path / "file")
    refused("cannot be written.*choose another folder", tokens, tmp_path / "file" / "run")


def test_a_second_run_in_the_same_folder_is_refused(
    tokens: Path, stopped: Path, tmp_path: Path
) -> None:
    with files.locked(tmp_path / "new", "train"):
        refused("Another `music-gpt train` is writing to .*new; wait", tokens, tmp_path / "new")
    with files.locked(stopped, "train"):
        refused("Another `music-gpt train`", tokens, stopped, run_config(max_steps=8), resume=True)
    assert [file.name for file in (tmp_path / "new").iterdir()] == [files.LOCK]


def test_a_network_for_text_is_not_trained_on_music(tokens: Path, tmp_path: Path) -> None:
    text = run_config(model={"vocab_size": 65})
    refused("vocab_size is 65, but the tokens are 390 events", tokens, tmp_path / "run", text)


def test_without_training_pieces_there_is_no_run(tmp_path: Path) -> None:
    only = tokens_folder(tmp_path / "tokens", {"validation": [30]})
    refused("no split 'train', only validation", only, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_pieces_of_one_token_are_refused_before_the_first_step(tmp_path: Path) -> None:
    only = folder_of_ids(tmp_path / "tokens", {"train": 3 * [ONE_TOKEN]})
    refused("No piece of the train split .* nothing to predict; run", only, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_validation_pieces_of_one_token_are_as_no_validation_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = {"train": [piece(1, 60)], "validation": 3 * [ONE_TOKEN]}
    folder = folder_of_ids(tmp_path / "tokens", splits)
    result = train(folder, tmp_path / "run", run_config(max_steps=6, validate_every_steps=3))
    told = capsys.readouterr().err
    assert told.startswith("The tokens folder has no token to predict for validation: the best")
    rows = log_of(tmp_path / "run")
    assert [row["validation_nats_per_token"] for row in rows] == ["", ""]
    loss = float(rows[-1]["train_nats_per_token"])
    assert result["nats_per_token"] == pytest.approx(loss, abs=1e-4)
    assert result["checkpoint"].endswith("best.safetensors")


def test_validation_pieces_of_one_token_beside_others_are_left_out(tmp_path: Path) -> None:
    music, nats = [piece(2, 30), piece(3, 20)], []
    for name, pieces in (("with", [*music, *9 * [ONE_TOKEN]]), ("without", music)):
        splits = {"train": [piece(1, 60)], "validation": pieces}
        folder = folder_of_ids(tmp_path / f"tokens-{name}", splits)
        nats.append(train(folder, tmp_path / name, run_config(max_steps=2))["nats_per_token"])
    assert nats[0] == nats[1] > 0


def test_without_a_validation_split_the_training_loss_chooses_and_this_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = tokens_folder(tmp_path / "tokens", {"train": [60]})
    result = train(only, tmp_path / "run", run_config(max_steps=6, validate_every_steps=3))
    assert "no validation split: the best checkpoint is chosen" in capsys.readouterr().err
    assert result["checkpoint"].endswith("best.safetensors")
    assert result["nats_per_token"] == pytest.approx(
        float(log_of(tmp_path / "run")[-1]["train_nats_per_token"]), abs=1e-4
    )
    assert load_checkpoint(result["checkpoint"])[1]["quick_validation_nats_per_token"] is None


def test_pieces_shorter_than_the_context_are_learned_too(tmp_path: Path) -> None:
    short = tokens_folder(tmp_path / "tokens", {"train": [2, 3], "validation": [2]})
    result = train(short, tmp_path / "run", run_config(max_steps=40, model={"context": 128}))
    assert result["nats_per_token"] < 5.9


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has cuda")
def test_a_device_that_is_not_there_is_said(tokens: Path, tmp_path: Path) -> None:
    refused("This machine has no cuda", tokens, tmp_path / "run", run_config(device="cuda"))


def test_a_disk_that_is_full_ends_the_run_with_the_checkpoint_before(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, calls = torch.save, []

    def full(state: Any, file: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            file.write(b"part")
            raise RuntimeError("PytorchStreamWriter failed writing file: no space\nat line 3")
        save(state, file)

    monkeypatch.setattr(run_folder.torch, "save", full)
    config = run_config(max_steps=8, validate_every_steps=3)
    refused(
        "last.ckpt cannot be written: the disk is full; free .*go on with --resume",
        tokens,
        tmp_path / "r",
        config,
    )
    assert run_folder.read_resume_point(tmp_path / "r")["step"] == 3
    assert not list((tmp_path / "r").glob(".part*"))


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors", "log.csv"])
def test_whatever_the_disk_does_not_take_the_run_goes_on_from_its_checkpoint(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # the log is read between two of its rows, for the report
    after = {"best.safetensors": 2, "last.safetensors": 1, "log.csv": 3}[name]
    calls: list[Path] = []

    def full(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Path, *args: Any, **how: Any) -> Any:
            calls.extend([path] * (path.name == name))
            if path.name == name and len(calls) == after:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(path, *args, **how)

        return wrapped

    config = run_config(max_steps=6, validate_every_steps=3)
    figures = iter(ValidationScore(nats, 4 * nats) for nats in (3.0, 2.0, 2.0))
    with monkeypatch.context() as patch:
        patch.setattr(callback, "mean_nats", lambda *_: next(figures))
        patch.setattr(files, "_new_file", full(files._new_file))
        patch.setattr(Path, "open", full(Path.open))
        sentence = f"{name} cannot be written: the disk is full; free .*go on with --resume"
        refused(sentence, tokens, tmp_path / "r", config)
    saved = run_folder.read_resume_point(tmp_path / "r")["step"]
    assert saved == 6  # before it is measured
    result = train(tokens, tmp_path / "r", config, resume=True)
    assert (result["finished"], result["steps"]) == (True, 6)
    assert load_checkpoint(tmp_path / "r" / "last.safetensors")[1]["steps"] == 6


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff\x89PNG",
        b"\x00\xff\x89\nPNG\n",
        b"step,minutes,tokens\n3,0.1,\n",
        b"step,minutes,tokens\n3,0.1\n",
        b"step,minutes,tokens\n3,0.1,1\x000\n",
        b"step,minutes,tokens\ninf,0.1,100\n",
        b"date;price\n1;2\n",
        b"step,tokens,accuracy\n",
        b"\xff",
    ],
    ids=str,
)
def test_a_log_that_is_none_is_told_before_anything_is_written(
    stopped: Path, tokens: Path, content: bytes
) -> None:
    (stopped / "log.csv").write_bytes(content)
    (stopped / "config.yaml").write_text("mine: 1\n")
    refused("log.csv is damaged, or not .*; move it", tokens, stopped, resume=True)
    assert (stopped / "log.csv").read_bytes() == content
    assert (stopped / "config.yaml").read_text() == "mine: 1\n"
    (stopped / "log.csv").unlink()
    assert train(tokens, stopped, run_config(max_steps=8), resume=True)["finished"]


@pytest.mark.parametrize("rest", ["4,0.0", "\0" * 100, "4,0.1,2\udc85"])
def test_a_last_row_that_was_cut_off_is_left_out(stopped: Path, rest: str) -> None:
    rows = read_log(stopped)
    with (stopped / "log.csv").open("a", encoding="utf-8", errors="replace") as file:
        file.write(rest)
    assert read_log(stopped) == rows
    (stopped / "log.csv").write_text("step,minu")
    assert read_log(stopped) == []


def test_a_damaged_index_of_the_training_music_is_told_before_anything_is_written(
    tmp_path: Path,
) -> None:
    folder = tokens_folder(tmp_path / "tokens", {"train": [60]})
    (folder / "originality.npz").write_bytes(b"PK\x03\x04 cut off")
    refused("originality.npz is no index of this version, or is damaged", folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- divergence -------------------------------------------------------------------------------


def test_a_run_that_diverges_at_once_says_so_and_keeps_no_weights(
    tokens: Path, tmp_path: Path
) -> None:
    wild = run_config(
        max_steps=40, optim={"optimizer": "adamw", "adamw_lr": 1e30, "warmup_steps": 0}
    )
    refused(
        "diverged between steps 1 and 20 .*start again with a lower --optim",
        tokens,
        tmp_path / "r",
        wild,
    )
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [files.LOCK, "config.yaml"]


def test_a_run_that_diverges_later_keeps_the_last_good_checkpoint(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(max_steps=40, validate_every_steps=6)
    training_step = Training.training_step

    def wild(self: Training, batch: torch.Tensor, i: int) -> torch.Tensor:
        loss = training_step(self, batch, i)
        if self.step == 14:  # before the end of step 15
            self.loss_sum += math.nan
            return loss * math.nan
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Training, "training_step", wild)
        told = "diverged between steps 12 and 18 .*good checkpoint .* was kept"
        refused(told, tokens, tmp_path / "r", config)
        refused("between steps 12 and 18", tokens, tmp_path / "r", config, resume=True)
    state = run_folder.read_resume_point(tmp_path / "r")
    assert state["step"] == 12
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
    load_checkpoint(tmp_path / "r" / "best.safetensors")
    assert train(tokens, tmp_path / "r", config, resume=True)["finished"]


def test_weights_that_diverge_in_the_last_step_are_not_kept(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = tokens_folder(tmp_path / "tokens", {"train": [60]})
    step = MuonAdamW.step

    def wild(self: MuonAdamW, closure: Any = None) -> Any:
        loss = step(self, closure)
        if self.param_groups[0]["lr"] == pytest.approx(2e-3 * lr_factor(config.optim, 5, 5 / 6)):
            with torch.no_grad():
                self.param_groups[1]["params"][0].fill_(math.nan)
        return loss

    config = run_config(max_steps=6)
    monkeypatch.setattr(MuonAdamW, "step", wild)
    refused("diverged at step 6 ", only, tmp_path / "r", config)
    assert not list((tmp_path / "r").glob("*.safetensors"))
    assert not (tmp_path / "r" / "last.ckpt").exists()
