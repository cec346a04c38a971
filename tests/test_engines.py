"""What runs a network: each engine computes what torch computes, and none is taken on trust."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from odd_engines import FAST, MadEngine
from small import random_network

from music_gpt.composing.pianist import load
from music_gpt.config.model import ModelConfig
from music_gpt.errors import InputError
from music_gpt.generation import engines
from music_gpt.generation.decoding import TorchEngine
from music_gpt.generation.engines import check_engine, choose_engine, opening_windows
from music_gpt.network.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.network.model import GPT

for package in engines.NEEDED:
    pytest.importorskip(package, reason=FAST)

from music_gpt.generation import onnx_engine  # noqa: E402 - where they are not, all is skipped
from music_gpt.network import onnx_graph  # noqa: E402 - as above

SHAPE = {"d_model": 32, "d_ff": 48, "n_heads": 2, "n_kv_heads": 2}
CONFIGS: list[dict[str, Any]] = [
    {},
    {"n_kv_heads": 1},
    {"qk_norm": False},
    {"qk_norm": False, "n_kv_heads": 1},
    {"positions": "learned"},
    {"norm": "post", "activation": "relu"},
    {"norm": "post", "final_norm": True},
    {"bias": False},
    {"qkv_bias": False, "head_bias": True},
    {"tie_head": True},
]


def some_network(**changes: Any) -> GPT:
    return random_network(**{**SHAPE, **changes})


def in_onnx(model: GPT, *, int8: bool = False) -> onnx_engine.OnnxEngine:
    file = onnx_graph.onnx_bytes(model, int8=int8)
    return onnx_engine.OnnxEngine(file, model.config, "onnx-int8" if int8 else "onnx")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSIC_GPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engines, "MOST_NATS_WORSE", 0.1)  # networks of random weights are rough
    return tmp_path / "cache"


# --- the same arithmetic ------------------------------------------------------------------------


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_onnx_gives_the_logits_of_torch(changes: dict[str, Any]) -> None:
    model = some_network(**changes)
    ids = np.random.default_rng(0).integers(0, 390, 30)
    with torch.inference_mode():
        plain = model(torch.from_numpy(ids[None]))[0].numpy()
    assert np.abs(in_onnx(model).window_logits(ids.tolist()) - plain).max() < 1e-4


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_8_bits_change_the_logits_little(changes: dict[str, Any]) -> None:
    model = some_network(**changes)
    ids = np.random.default_rng(0).integers(0, 390, 30)
    with torch.inference_mode():
        plain = model(torch.from_numpy(ids[None]))[0].numpy()
    error = in_onnx(model, int8=True).window_logits(ids.tolist()) - plain
    assert 0.0 < error.std() < 0.05 * plain.std()


def test_a_block_of_weights_is_rounded_to_its_own_127th() -> None:
    matrix = np.random.default_rng(1).normal(size=(3, 70)).astype(np.float32)
    matrix[1, 32:64] = 0.0
    numbers, scales = onnx_graph.blocks_of_8_bits(matrix)
    assert numbers.shape == (3, 3, 32)
    again = ((numbers.astype(np.float32) - 128) * scales[..., None]).reshape(3, -1)[:, :70]
    assert np.abs(again - matrix).max() <= 0.5001 * scales.max()
    assert not again[1, 32:64].any()


def test_the_bundled_network_in_8_bits_predicts_the_openings_nearly_as_well(cache: Path) -> None:
    model, card = load_checkpoint()
    engine = choose_engine(model, card["sha256"], threads=1)
    assert engine.name == "onnx-int8"
    (told,) = cache.glob("*.json")
    measured = json.loads(told.read_text())
    assert abs(measured["nats_worse"]) < 0.01
    assert measured["tokens"] > 500


def test_onnx_in_full_precision_predicts_as_well_as_torch() -> None:
    model = some_network()
    measured = check_engine(in_onnx(model), model)
    assert abs(measured["nats_worse"]) < 1e-5
    assert measured["same_among_others"]


# --- the choice ---------------------------------------------------------------------------------


def test_each_engine_can_be_asked_for_by_name(cache: Path) -> None:
    model = some_network()
    names = [choose_engine(model, "5eed", name, threads=1).name for name in ("torch", "onnx")]
    assert names == ["torch", "onnx"]
    with pytest.raises(
        InputError, match="engine is 'abacus', .* auto, torch, cuda, onnx or onnx-int8"
    ):
        choose_engine(model, "5eed", "abacus")


def test_threads_are_tried_with_the_network_that_composes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def fastest_threads(model: object) -> int:
        tried.append(model)
        return 1

    monkeypatch.setattr(engines, "fastest_threads", fastest_threads)
    engine = choose_engine(some_network(), "5eed", "torch")
    assert isinstance(engine, TorchEngine)
    assert tried == [engine.model]


def test_an_engine_that_predicts_worse_is_not_chosen_by_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "MOST_NATS_WORSE", -1.0)
    assert choose_engine(some_network(), "5eed", threads=1).name == "torch"


def test_an_engine_whose_takes_depend_on_the_others_is_not_chosen_by_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = onnx_engine.OnnxDecoder.step

    def step(self: onnx_engine.OnnxDecoder, ids: np.ndarray) -> np.ndarray:
        return honest(self, ids) + np.float32(0.01 * len(ids))

    monkeypatch.setattr(onnx_engine.OnnxDecoder, "step", step)
    assert choose_engine(some_network(), "5eed", threads=1).name == "torch"


def test_an_engine_that_breaks_down_over_this_network_is_not_chosen_by_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(*_: object) -> None:
        raise onnx_engine.CANNOT_RUN[0]("this machine lacks what it takes")

    monkeypatch.setattr(onnx_engine.OnnxDecoder, "step", step)
    assert choose_engine(some_network(), "5eed", threads=1).name == "torch"


def test_the_check_notices_a_network_that_is_another() -> None:
    model = some_network()
    assert check_engine(MadEngine(), model, opening_windows(32))["nats_worse"] > 1.0
    assert check_engine(TorchEngine(model), model)["nats_worse"] == pytest.approx(0.0, abs=1e-6)


def test_a_network_that_has_no_onnx_file_runs_in_torch(cache: Path) -> None:
    for positions, d_model, why in (
        ("rope", 16, "heads are 8 wide, and only multiples of 16"),
        ("learned", 24, "heads are 12 wide, and only multiples of 8"),
    ):
        model = some_network(d_model=d_model, positions=positions)
        assert choose_engine(model, positions, threads=1).name == "torch"
        with pytest.raises(InputError, match=why):
            choose_engine(model, positions, "onnx")
    large = ModelConfig(n_layers=200, d_model=1024, d_ff=4096)
    assert onnx_graph.why_not(large) == "it is larger than such a file can be"


def test_without_the_extra_the_engine_is_torch(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "NEEDED", ("onnx", "a_package_that_nobody_has"))
    assert choose_engine(some_network(), "5eed", threads=1).name == "torch"
    with pytest.raises(InputError, match=r"not installed; install them with `pip install .*fast"):
        choose_engine(some_network(), "5eed", "onnx")


def test_the_threads_of_an_engine_are_tried(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[int]] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(engines, "quickest", lambda choices, *_: tried.append(choices) or 2)
    choose_engine(some_network(), "5eed", "onnx")
    assert tried == [[1, 2]]


# --- the cache ----------------------------------------------------------------------------------


def test_files_and_what_was_measured_are_made_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = choose_engine(some_network(), "5eed", threads=1)
    assert first.name == "onnx-int8"
    assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".onnx"]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it is there already")

    monkeypatch.setattr(onnx_graph, "onnx_bytes", never)
    monkeypatch.setattr(engines, "check_engine", never)
    again = choose_engine(some_network(), "5eed", threads=1)
    assert np.array_equal(first.logits([388, 360, 60]), again.logits([388, 360, 60]))


def test_another_version_of_the_engine_is_measured_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_engine(some_network(), "5eed", threads=1)
    monkeypatch.setattr(onnx_engine, "VERSION", "99.0")
    choose_engine(some_network(), "5eed", threads=1)
    (told,) = cache.glob("*.json")
    assert json.loads(told.read_text())["onnxruntime"] == "99.0"


@pytest.mark.parametrize("content", [b"", b"no ONNX file", b"\x08\x0a" * 50], ids=repr)
def test_a_damaged_file_in_the_cache_is_made_anew(cache: Path, content: bytes) -> None:
    choose_engine(some_network(), "5eed", threads=1)
    (file,) = cache.glob("*.onnx")
    file.write_bytes(content)
    (told,) = cache.glob("*.json")
    for damaged in (False, True):
        if damaged:
            told.write_bytes(content)
        assert choose_engine(some_network(), "5eed", threads=1).name == "onnx-int8"


def test_a_cache_that_cannot_be_written_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MUSIC_GPT_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(engines, "MOST_NATS_WORSE", 0.1)
    assert choose_engine(some_network(), "5eed", threads=1).name == "onnx-int8"


def test_the_cache_lies_where_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSIC_GPT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert engines.cache_folder() == Path("/somewhere/music_gpt")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert engines.cache_folder() == Path.home() / ".cache" / "music_gpt"


# --- the pianist --------------------------------------------------------------------------------


def test_a_take_tells_its_engine_and_can_be_made_again(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_checkpoint(path, some_network(context=64), {})
    for name in ("torch", "onnx", "onnx-int8"):
        takes = [
            load(path, engine=name, threads=1).compose(seconds=2, seed=5, variations=n)
            for n in (1, 3)
        ]
        for take in takes:
            for _ in take:
                pass
        assert takes[0].settings()["engine"] == name
        assert np.array_equal(takes[0].new_notes(), takes[1].new_notes())


def test_nothing_but_our_own_cache_is_left_in_the_home_of_who_composes(tmp_path: Path) -> None:
    script = (
        "import music_gpt.training.run; pianist = music_gpt.load(engine='onnx-int8');"
        "pianist.continue_piece(seconds=1, seed=1)"
    )
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "", "MUSIC_GPT_CACHE": ""}
    inherited = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=inherited | own,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    left = {str(path.relative_to(tmp_path).parent) for path in tmp_path.rglob("*.*")}
    assert left == {".", ".cache/music_gpt"}  # the first: .cache itself
