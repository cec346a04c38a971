"""One file is the whole model, it runs no code, and a bad one is answered with a sentence."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small import random_network

from music_gpt.errors import InputError
from music_gpt.network import checkpoint
from music_gpt.network.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.tokens.events import vocabulary_hash

CARD = {"sources": {"Musikstücke": "CC0"}, "steps": 3}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "model.safetensors", random_network(), CARD)
    return tmp_path / "model.safetensors"


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> None:
    """Change the metadata and the tensors of a checkpoint."""
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["music_gpt"])
    tensors = load_file(path)
    change(about, tensors)
    path.unlink()
    save_file(tensors, path, metadata={"music_gpt": json.dumps(about)})


def with_config(path: Path, **changes: Any) -> Path:
    rewrite(path, lambda about, _: about["model"].update(changes))
    return path


# --- there and back ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_head": True},
        {"positions": "learned", "head_bias": True},
        {"norm": "post", "activation": "relu", "bias": False},
        {"n_kv_heads": 1, "qk_norm": True},
    ],
    ids=str,
)
def test_a_model_comes_back_with_equal_weights_and_answers(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    model = random_network(**changes)
    save_checkpoint(tmp_path / "a.safetensors", model, CARD)
    loaded, _ = load_checkpoint(tmp_path / "a.safetensors")
    assert loaded.config == model.config
    assert not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    ids = torch.randint(0, 390, (2, 9))
    assert torch.equal(loaded(ids), model(ids))


def test_bfloat16_halves_the_file_and_comes_back_as_rounded_float32(path: Path) -> None:
    model = random_network()
    half = path.with_name("half.safetensors")
    save_checkpoint(half, model, {}, dtype=torch.bfloat16)
    loaded, _ = load_checkpoint(half)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.bfloat16().float())
    assert half.stat().st_size < 0.6 * path.stat().st_size


def test_a_tied_head_is_stored_once_and_tied_again(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.safetensors", random_network(tie_head=True), {})
    assert "head.weight" not in load_file(tmp_path / "a.safetensors")
    loaded, _ = load_checkpoint(tmp_path / "a.safetensors")
    assert loaded.head.weight is loaded.embedding.weight


def test_other_weights_can_be_stored_in_place_of_the_models_own(tmp_path: Path) -> None:
    model, average = random_network(1), random_network(2)
    save_checkpoint(tmp_path / "a.safetensors", model, {}, weights=average.state_dict())
    loaded, _ = load_checkpoint(tmp_path / "a.safetensors")
    assert torch.equal(loaded.head.weight, average.head.weight)


def test_the_card_comes_back_with_the_name_and_checksum_of_the_file(path: Path) -> None:
    _, card = load_checkpoint(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert card == {**CARD, "file": "model.safetensors", "sha256": digest}


def test_the_page_of_the_bundled_network_says_what_its_file_says() -> None:
    script = runpy.run_path(str(checkpoint.BUNDLED_FOLDER / "make_pretrained.py"))
    model, card = load_checkpoint()
    page = (checkpoint.BUNDLED_FOLDER / "README.md").read_text(encoding="utf-8")
    assert script["model_card"](card, model.n_parameters) == page


def test_the_same_model_gives_the_same_bytes(path: Path) -> None:
    again = path.with_name("again.safetensors")
    save_checkpoint(again, random_network(), CARD)
    assert again.read_bytes() == path.read_bytes()


def test_others_may_read_a_checkpoint_as_any_new_file(path: Path) -> None:
    plain = path.with_name("plain")
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode


# --- files that are not ours ------------------------------------------------------------------


def refused(path: Path, match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_missing_checkpoint_is_said_to_be_missing(tmp_path: Path) -> None:
    refused(tmp_path / "none.safetensors", "There is no checkpoint at")
    refused(tmp_path, "There is no checkpoint at")


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 100, 700, 3000, -1])
def test_a_checkpoint_that_was_cut_short_is_refused(path: Path, kept: int) -> None:
    path.write_bytes(path.read_bytes()[:kept])
    refused(path, "not a usable music_gpt checkpoint")


def test_random_bytes_are_refused(path: Path) -> None:
    path.write_bytes(os.urandom(5000))
    refused(path, "not a usable music_gpt checkpoint")


def test_a_head_that_promises_more_than_the_file_holds_is_refused(path: Path) -> None:
    for promised in (2**63 - 1, 2**64 - 1, 10**9):
        path.write_bytes(promised.to_bytes(8, "little") + path.read_bytes()[8:])
        refused(path, "not a usable music_gpt checkpoint")


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_pickle_under_our_name_is_refused_and_not_run(path: Path) -> None:
    mark = path.with_name("ran")
    path.write_bytes(pickle.dumps(Bomb(mark)))
    refused(path, "not a usable music_gpt checkpoint")
    torch.save({"model": Bomb(mark)}, path)
    refused(path, "not a usable music_gpt checkpoint")
    assert not mark.exists()


def test_a_safetensors_file_of_something_else_is_refused(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path)
    refused(path, "it carries no music_gpt card")
    save_file({"weight": torch.zeros(3)}, path, metadata={"music_gpt": "[" * 100_000})
    refused(path, "it carries no music_gpt card")
    save_file({"weight": torch.zeros(3)}, path, metadata={"music_gpt": "[1]"})
    refused(path, "it carries no music_gpt card")


def test_a_card_of_the_wrong_kind_is_refused(path: Path) -> None:
    rewrite(path, lambda about, _: about.update(card=["x"]))
    refused(path, "its card is incomplete")
    rewrite(path, lambda about, _: about.update(card={}, model=7))
    refused(path, "its card is incomplete")


def test_tensors_of_another_shape_are_refused(path: Path) -> None:
    rewrite(path, lambda _, tensors: tensors.update({"head.weight": torch.zeros(390, 17)}))
    refused(path, "its tensors do not fit its configuration")


def test_missing_and_added_tensors_are_refused(path: Path) -> None:
    rewrite(path, lambda _, tensors: tensors.update({"extra": torch.zeros(1)}))
    refused(path, "its tensors do not fit its configuration")
    rewrite(path, lambda _, tensors: [tensors.pop(name) for name in ("extra", "norm.weight")])
    refused(path, "its tensors do not fit its configuration")


def test_weights_that_are_no_numbers_are_refused(path: Path) -> None:
    rewrite(path, lambda _, tensors: tensors["norm.weight"].fill_(torch.nan))
    refused(path, "some of its weights are no numbers")


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 2**40},
        {"d_ff": 10**300},
        {"vocab_size": 2**50},
        {"context": 2**30},
        {"n_layers": 10**8, "d_model": 2, "d_ff": 1, "n_heads": 1, "n_kv_heads": 1},
        {"n_layers": 10**6, "d_model": 2, "d_ff": 1, "n_heads": 1, "n_kv_heads": 1},
        {"d_model": 4096, "n_heads": 1, "n_kv_heads": 1, "context": 65_536},
    ],
    ids=str,
)
def test_a_configuration_that_would_fill_the_memory_is_refused(
    path: Path, changes: dict[str, Any]
) -> None:
    resource = pytest.importorskip("resource", reason="this system cannot bound the memory")
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell how much memory is in use")
    with_config(path, **changes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000, hard))
    try:
        refused(path, "too large to be real|has to be a whole number from")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("changes", [{"n_layers": 1000}, {"d_ff": 10**7}, {"vocab_size": 10**8}])
def test_a_network_that_is_not_in_the_file_is_not_built(
    path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_config(path, **changes)
    monkeypatch.setattr(checkpoint, "GPT", lambda *_: pytest.fail("a network was built"))
    refused(path, "its tensors do not fit its configuration")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"n_layers": "two"}, "n_layers is 'two'"),
        ({"d_model": 16.5}, "d_model is 16.5"),
        ({"n_heads": 0}, "n_heads is 0"),
        ({"norm": "sideways"}, "norm is 'sideways'"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"wheels": 4}, "unknown fields"),
    ],
)
def test_a_configuration_that_makes_no_network_is_refused(
    path: Path, changes: dict[str, Any], why: str
) -> None:
    refused(with_config(path, **changes), why)


def test_a_checkpoint_of_another_vocabulary_is_refused(path: Path) -> None:
    rewrite(path, lambda about, _: about.update(vocabulary_hash=vocabulary_hash()[::-1]))
    refused(path, "another event vocabulary")


def test_a_checkpoint_of_a_newer_version_asks_for_an_update(path: Path) -> None:
    def newer(about: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        about["version"] = 3
        del about["card"]

    rewrite(path, newer)
    refused(path, "version 3, but this program reads versions up to 2; update music_gpt")


def test_of_version_1_only_networks_that_still_compute_the_same_are_read(path: Path) -> None:
    rewrite(path, lambda about, _: about.update(version=1))
    refused(path, "normalised queries and keys in another way")
    with_config(path, qk_norm=False)
    assert not load_checkpoint(path)[0].config.qk_norm


def test_without_a_bundled_checkpoint_the_sentence_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "BUNDLED_FOLDER", tmp_path)
    with pytest.raises(InputError, match="No checkpoint is bundled"):
        load_checkpoint()
    save_checkpoint(tmp_path / "b.safetensors", random_network(), {})
    assert load_checkpoint()[1]["file"] == "b.safetensors"


# --- writing that fails -----------------------------------------------------------------------


def test_a_full_disk_leaves_the_older_checkpoint_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="the disk is full; free some space"):
        save_checkpoint(path, random_network(9), {})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_made_is_named(path: Path) -> None:
    with pytest.raises(InputError, match="a file stands where a folder should be"):
        save_checkpoint(path / "inside" / "a.safetensors", random_network(), {})
    assert load_checkpoint(path)[1]["steps"] == 3


@pytest.mark.parametrize("path", [5, "", b"a"], ids=repr)
def test_what_is_no_path_is_refused_in_a_sentence(path: Any) -> None:
    with pytest.raises(InputError, match="A path is needed, but .* was given"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="A path is needed"):
        save_checkpoint(path, random_network(), {})


def test_a_path_that_is_too_long_is_no_checkpoint() -> None:
    with pytest.raises(InputError, match=r"^There is no checkpoint at a{80}\.\.\.a{40}; give"):
        load_checkpoint("a" * 5000)
