"""Folders of ours and of others: nothing that is not ours is written over, and mix-ups are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small import random_network, run_config, tokens_folder

from data_prep.prepare import prepare
from music_gpt.errors import InputError
from music_gpt.files import LOCK
from music_gpt.folders import EXPORT, RUN, TOKENS, what_is
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.network.hugging_face import export_for_transformers
from music_gpt.tokens.corpus import Corpus
from music_gpt.training.run import train
from music_gpt.training.run_folder import open_run

Write = Callable[[Path], object]


def make_tokens(folder: Path) -> None:
    tokens_folder(folder, {"train": [60]})


def make_run(folder: Path) -> None:
    folder.mkdir()
    open_run(folder, run_config(), step=None)


def make_export(folder: Path) -> None:
    export_for_transformers(random_network(), {}, folder)


def train_into(folder: Path) -> None:
    tokens = folder.parent / "some-tokens"
    make_tokens(tokens)
    train(tokens, folder, run_config(max_steps=1))


def prepare_into(folder: Path) -> None:
    prepare(Path(__file__).parent.parent / "examples" / "demo", folder, progress=False)


MAKE: dict[str, Write] = {TOKENS: make_tokens, RUN: make_run, EXPORT: make_export}
WRITE: dict[str, Write] = {TOKENS: prepare_into, RUN: train_into, EXPORT: make_export}


def held_by(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("kind", MAKE)
def test_a_folder_of_ours_is_known_and_others_are_not(tmp_path: Path, kind: str) -> None:
    MAKE[kind](tmp_path / "ours")
    assert what_is(tmp_path / "ours") == kind
    for name in ("none", "no\0name", "n" * 300):
        assert what_is(tmp_path / name) == ""
    for file in (tmp_path / "ours").iterdir():
        file.write_bytes(b"precious")
    assert what_is(tmp_path / "ours") == ""


@pytest.mark.parametrize("kind", WRITE)
@pytest.mark.parametrize(
    "name",
    [
        *("config.yaml", "log.csv", "report.html", "originality.npz", "last.ckpt"),
        *("events.out.tfevents.1", "corpus.json", "README.md", "config.json", "model.safetensors"),
        *("music_gpt.json", "notes.txt"),
    ],
)
def test_no_file_of_others_is_written_over(tmp_path: Path, kind: str, name: str) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / name).write_text("model:\n  precious: 1  # by hand\n")
    before = held_by(others)
    with pytest.raises(InputError, match=rf"holds other files \({name}\); choose a new or empty"):
        WRITE[kind](others)
    assert held_by(others) == before


@pytest.mark.parametrize(
    ("kind", "found"), [(kind, found) for kind in WRITE for found in MAKE if kind != found]
)
def test_a_folder_of_one_kind_does_not_become_one_of_another(
    tmp_path: Path, kind: str, found: str
) -> None:
    MAKE[found](tmp_path / "ours")
    before = held_by(tmp_path / "ours")
    with pytest.raises(InputError, match=f"is {found}, so {kind} cannot be made of it"):
        WRITE[kind](tmp_path / "ours")
    assert held_by(tmp_path / "ours") == before


def test_what_systems_and_killed_runs_leave_makes_no_folder_foreign(tmp_path: Path) -> None:
    for kind, write in (("run", train_into), ("export", make_export)):
        (tmp_path / kind).mkdir()
        for name in (LOCK, ".part-12-0a1b2c3d", ".DS_Store"):
            (tmp_path / kind / name).touch()
        write(tmp_path / kind)
        assert (tmp_path / kind / ".DS_Store").exists()
    make_export(tmp_path / "export")  # and again over its own


@pytest.mark.parametrize("found", [RUN, EXPORT])
def test_tokens_that_are_none_are_told_for_what_they_are(tmp_path: Path, found: str) -> None:
    MAKE[found](tmp_path / "ours")
    with pytest.raises(InputError, match=f"is {found}, not a tokens folder; give the folder that"):
        Corpus.open(tmp_path / "ours")


@pytest.mark.parametrize("found", MAKE)
def test_a_checkpoint_that_is_a_folder_is_told_for_what_it_is(tmp_path: Path, found: str) -> None:
    MAKE[found](tmp_path / "ours")
    give = "one in it, as .*ours/best.safetensors" if found == RUN else "one of a run"
    with pytest.raises(InputError, match=f"is {found}, not a checkpoint; give {give}"):
        load_checkpoint(tmp_path / "ours")
