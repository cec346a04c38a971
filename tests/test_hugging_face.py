"""A network that goes out to transformers computes there what it computes here."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small import random_network

from music_gpt.cli.main import main
from music_gpt.errors import InputError
from music_gpt.network.checkpoint import save_checkpoint
from music_gpt.network.hugging_face import as_transformers, export_for_transformers

PLAIN = {"qk_norm": False}
PEER = "transformers is not installed; it is no dependency, only a peer to compare with"


@pytest.mark.filterwarnings("ignore")  # its warnings are its own
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_kv_heads": 1, "activation": "relu"},
        {"tie_head": True},
        {"qkv_bias": False},
        {"bias": False},
        PLAIN,
        {**PLAIN, "n_kv_heads": 1},
        {**PLAIN, "activation": "relu"},
        {**PLAIN, "tie_head": True},
        {**PLAIN, "qkv_bias": False},
        {**PLAIN, "bias": False},
        {**PLAIN, "positions": "learned"},
        {**PLAIN, "positions": "learned", "tie_head": True, "activation": "relu"},
        {**PLAIN, "positions": "learned", "bias": False},
        {"vocab_size": 65},
    ],
    ids=str,
)
@torch.no_grad()
def test_transformers_loads_the_folder_and_gives_the_same_logits(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    transformers = pytest.importorskip("transformers", reason=PEER)
    model = random_network(**changes)
    export_for_transformers(model, {}, tmp_path)
    peer, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.randint(0, model.config.vocab_size, (2, 30))
    torch.testing.assert_close(peer.eval()(ids).logits, model(ids), rtol=0, atol=1e-4)
    assert (peer.generation_config.eos_token_id == 388) == (model.config.vocab_size == 390)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"norm": "post"}, "norm post"),
        ({"positions": "learned"}, "qk_norm"),
        ({"head_bias": True}, "head_bias"),
        ({**PLAIN, "positions": "learned", "n_kv_heads": 1}, "fewer key/value heads"),
    ],
    ids=str,
)
def test_a_network_that_has_no_place_in_transformers_is_one_sentence(
    changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        as_transformers(random_network(**changes))


def test_the_folder_explains_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, out = tmp_path / "net.safetensors", tmp_path / "made" / "folder"
    save_checkpoint(checkpoint, random_network(), {"name": "etude", "licence": "CC BY-SA 4.0"})
    words = ["export", "--checkpoint", str(checkpoint), "--out", str(out), "--json"]
    assert main(words) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert files == sorted(path.name for path in out.iterdir())
    assert json.loads((out / "miditok.json").read_text())["config"]["num_velocities"] == 32
    assert json.loads((out / "music_gpt.json").read_text())["card"]["name"] == "etude"
    read_me = (out / "README.md").read_text()
    assert "license: cc-by-sa-4.0" in read_me
    assert "# etude" in read_me


def test_what_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert main(["export", "--out", str(tmp_path / "file")]) == 2
    assert "stands where a folder should be" in capsys.readouterr().err
    assert main(["export", "--format", "onnx", "--out", str(tmp_path / "net.txt")]) == 2
    assert "has to end in .onnx" in capsys.readouterr().err
