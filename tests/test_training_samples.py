"""The samples of a training: the same openings each time, little time, and never a run's end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import ONE_TOKEN, folder_of_ids, piece, random_network, run_config, tokens_folder

from music_gpt import training_samples
from music_gpt.errors import InputError
from music_gpt.midi.piece import read_piece
from music_gpt.tokens.corpus import Corpus
from music_gpt.training.progress import Moment
from music_gpt.training.run import train
from music_gpt.training_samples import FIRST_COST, LONGEST, OPENING_SECONDS, Listening, openings

LATE = Moment(step=4, seconds=10_000.0, is_last=True)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listening") / "tokens"
    return tokens_folder(folder, {"train": [60], "validation": [60, 50, 70, 60]})


@pytest.fixture(autouse=True)
def _short_music(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds at its full length."""
    monkeypatch.setattr(training_samples, "NEW_SECONDS", 2.0)


@pytest.fixture
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sound, which takes the most time."""
    monkeypatch.setattr(Listening, "_write_sound", lambda *_: False)


def told_in(run: Path, step: int = 4) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(
        (run / "samples" / f"step-{step}" / "samples.json").read_text()
    )
    return told


def test_each_sample_is_an_opening_and_its_continuation(tokens: Path, tmp_path: Path) -> None:
    Listening(tokens, tmp_path, 3)(random_network(context=256), LATE)
    told = told_in(tmp_path)
    assert len(told) == 3
    for sample, (title, split, opening) in zip(told, openings(Corpus.open(tokens), 3), strict=True):
        assert (sample["title"], sample["split"]) == (title, split)
        folder = tmp_path / "samples" / "step-4"
        assert {(folder / name).read_bytes()[:4] for name in sample["files"].values()} == {
            b"MThd",
            b"\x89PNG",
            *{(folder / sample["files"]["sound"]).read_bytes()[:4]},
        }
        piece = read_piece(folder / sample["files"]["MIDI"])
        starts = np.array([note[0] for note in sample["notes"]])
        assert piece.n_notes == len(starts)
        assert sample["seam_seconds"] <= OPENING_SECONDS + 0.01
        assert (starts >= sample["seam_seconds"]).any()
        given = [note[2] for note in sample["notes"] if note[0] < sample["seam_seconds"] - 0.02]
        assert set(given) <= set(opening["pitch"].tolist())


@pytest.mark.usefixtures("_silent")
def test_the_same_weights_play_the_same(tokens: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        Listening(tokens, tmp_path / name, 2)(random_network(context=256), LATE)
    assert told_in(tmp_path / "one") == told_in(tmp_path / "other")


@pytest.mark.usefixtures("_silent")
def test_listening_draws_nothing_from_the_random_numbers_of_the_training(
    tokens: Path, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    Listening(tokens, tmp_path, 1)(random_network(context=256), LATE._replace(seconds=0.0))
    model = random_network(context=256)
    torch.set_rng_state(before)
    Listening(tokens, tmp_path, 1)(model, LATE)
    assert torch.equal(torch.get_rng_state(), before)
    assert told_in(tmp_path)


def test_openings_are_of_pieces_that_are_not_trained_on(tokens: Path) -> None:
    corpus = Corpus.open(tokens)
    chosen = openings(corpus, 3)
    names = [Path(name).stem for name in corpus.split("validation").names]
    assert [title for title, _, _ in chosen] == [names[0], names[1], names[2]]
    assert all(notes["end"].max() <= OPENING_SECONDS for _, _, notes in chosen)


def test_without_a_validation_split_the_training_pieces_are_gone_on_with(tmp_path: Path) -> None:
    corpus = Corpus.open(tokens_folder(tmp_path, {"train": [40]}))
    [(_, split, _)] = openings(corpus, 3)
    assert split == "train"


def test_openings_are_not_of_a_validation_split_of_pieces_of_one_token(tmp_path: Path) -> None:
    splits = {"train": [piece(1, 40)], "validation": [ONE_TOKEN]}
    [(_, split, _)] = openings(Corpus.open(folder_of_ids(tmp_path, splits)), 3)
    assert split == "train"


# --- time -------------------------------------------------------------------------------------


def allowed_at(listening: Listening, seconds: float, *, is_last: bool = False) -> float:
    return listening._allowed(Moment(1, seconds, is_last))


def test_samples_take_no_more_than_a_fiftieth_of_the_run(tmp_path: Path) -> None:
    listener, spent = Listening("", tmp_path, 3), 0.0
    for seconds in range(1, 540):
        allowed = allowed_at(listener, float(seconds))
        if allowed:
            spent += allowed
            listener._spent = spent
    assert 0 < spent <= 0.01 * 540
    assert spent + allowed_at(listener, 540.0, is_last=True) <= 0.02 * 540


def test_a_run_has_samples_at_its_end_unless_it_took_hardly_any_time(tmp_path: Path) -> None:
    listener = Listening("", tmp_path, 3)
    assert allowed_at(listener, 4.9, is_last=True) == allowed_at(listener, 9.0) == 0.0
    assert (
        allowed_at(listener, 9.0, is_last=True) == allowed_at(listener, 60.0, is_last=True) == 8.0
    )
    assert allowed_at(Listening("", tmp_path, 0), 1e6, is_last=True) == 0.0
    listener._spent = 30.0
    assert allowed_at(listener, 60.0, is_last=True) == FIRST_COST


def test_the_last_samples_fit_into_the_minutes_of_a_run(tmp_path: Path) -> None:
    listener = Listening("", tmp_path, 3)
    limits = (4.0, 10.0, 60.0, 600.0, 36_000.0)
    assert [listener.last_seconds(limit) for limit in limits] == [0.0, FIRST_COST, 6.0, 12.0, 20.0]
    assert Listening("", tmp_path, 0).last_seconds(600.0) == 0.0
    for left, allowed in ((9.0, 9.0), (-1.0, FIRST_COST)):
        assert listener._allowed(Moment(1, 600.0, True, left)) == allowed


@pytest.mark.usefixtures("_silent")
def test_a_slow_network_is_heard_less_often_and_for_longer(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_samples, "_compose", lambda *_: False)
    listener = Listening(tokens, tmp_path, 1)
    costs = []
    for _ in range(6):
        listener(random_network(context=256), LATE._replace(seconds=1e6))
        costs.append(listener._cost)
    assert costs == [4.0, 8.0, 16.0, LONGEST, LONGEST, LONGEST]


@pytest.mark.usefixtures("_silent")
def test_what_was_composed_in_time_is_kept(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_samples, "NEW_SECONDS", 60.0)
    clock = iter(range(10**9))
    monkeypatch.setattr(training_samples.time, "monotonic", lambda: float(next(clock)))
    Listening(tokens, tmp_path, 1)(random_network(context=256), LATE)
    monkeypatch.setattr(training_samples.time, "monotonic", time.monotonic)
    [sample] = told_in(tmp_path)
    new = [note for note in sample["notes"] if note[0] >= sample["seam_seconds"]]
    assert 0 < len(new) < 40
    assert max(note[1] for note in sample["notes"]) < OPENING_SECONDS + training_samples.NEW_SECONDS


# --- what goes wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        InputError("No room."),
        RuntimeError("CUDA out of memory\nTried ..."),
        OSError(28, "full"),
        ValueError(),
        ZeroDivisionError("a fault"),
    ],
    ids=["a sentence", "memory", "disk", "no words", "a fault"],
)
def test_samples_that_fail_are_told_once_and_the_run_goes_on(
    tokens: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(training_samples, "SHORTEST_RUN", 0.0)
    monkeypatch.setattr(training_samples, "SHARE_MEANWHILE", 1e6)
    monkeypatch.setattr(training_samples, "write_picture", fails)
    run = tmp_path / "run"
    config = run_config(max_steps=4, validate_every_steps=2, model={"context": 128})
    result = train(tokens, run, config, listener=Listening(tokens, run, 1))
    assert result["finished"]
    told = capsys.readouterr().err
    assert told.count("Samples are missing: ") == 1
    assert "Tried" not in told


@pytest.mark.usefixtures("_silent")
def test_a_network_that_knows_no_music_yet_is_heard_too(tokens: Path, tmp_path: Path) -> None:
    with torch.no_grad():
        model = random_network(context=32)
        model.head.weight.zero_()
    Listening(tokens, tmp_path, 1)(model, LATE)
    assert len(told_in(tmp_path)) == 1
