"""Weights of other programs: the same logits here, and no code of theirs runs."""

import json
import math
import os
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from music_gpt.cli.main import main
from music_gpt.errors import InputError
from music_gpt.network import foreign
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.network.foreign import import_weights

N_HEADS, WIDTH, LENGTH = 2, 16, 40


# --- the networks of the two programs, in plain torch and under their names -----------------------


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class BookAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("bias", torch.ones(LENGTH, LENGTH).tril()[None, None])

    def forward(self, x: Tensor) -> Tensor:
        n_time, d_head = x.shape[1], WIDTH // N_HEADS
        q, k, v = (
            part.view(len(x), n_time, N_HEADS, d_head).transpose(1, 2)
            for part in self.c_attn(x).split(WIDTH, dim=2)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(d_head)
        scores = scores.masked_fill(self.bias[:, :, :n_time, :n_time] == 0, -math.inf)
        mixed = (scores.softmax(3) @ v).transpose(1, 2).reshape(x.shape)
        return self.c_proj(mixed)


class BookBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = BookAttention()
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "c_proj": nn.Linear(4 * WIDTH, WIDTH)}
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](tanh_gelu(self.mlp["c_fc"](self.ln_2(x))))


class BookNetwork(nn.Module):
    """Chapter 14 of "Learn Generative AI with PyTorch"."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(390, WIDTH),
                "wpe": nn.Embedding(LENGTH, WIDTH),
                "h": nn.ModuleList(BookBlock() for _ in range(3)),
                "ln_f": nn.LayerNorm(WIDTH),
            }
        )
        self.lm_head = nn.Linear(WIDTH, 390, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        t = self.transformer
        x = t["wte"](ids) + t["wpe"](torch.arange(ids.shape[1]))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


class Sines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        place = torch.arange(LENGTH).float()[:, None]
        angle = place * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000) / WIDTH))
        self.register_buffer("pe", torch.stack((angle.sin(), angle.cos()), 2).flatten(1)[:, None])


class MusicTransformer(nn.Module):
    """MusicTransformer-Pytorch without relative positions: torch's encoder, post-norm, ReLU."""

    def __init__(self, *, relative: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(390, WIDTH)
        self.positional_encoding = Sines()
        layer = nn.TransformerEncoderLayer(WIDTH, N_HEADS, 24, dropout=0.0)
        encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.transformer = nn.ModuleDict({"encoder": encoder})
        self.Wout = nn.Linear(WIDTH, 390)
        if relative:
            attention = encoder.layers[0].self_attn
            attention.Er = nn.Parameter(torch.rand(LENGTH, WIDTH // N_HEADS))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids).transpose(0, 1)
        x = x + self.positional_encoding.pe[: len(x)]
        mask = nn.Transformer.generate_square_subsequent_mask(len(x))
        return self.Wout(self.transformer["encoder"](x, mask)).transpose(0, 1)


PROGRAMS = {"chapter14": BookNetwork, "music-transformer": MusicTransformer}


def shaken(network: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network.eval()


# --- what comes in --------------------------------------------------------------------------------


@pytest.mark.parametrize("old_format", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize("source", PROGRAMS)
def test_an_imported_network_gives_the_logits_of_its_program(
    tmp_path: Path, source: str, old_format: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = shaken(PROGRAMS[source]())
    file, out = tmp_path / "weights.pth", tmp_path / "made" / "net.safetensors"
    torch.save(theirs.state_dict(), file, _use_new_zipfile_serialization=not old_format)
    words = ["import", "--from", source, str(file), "--out", str(out), "--heads", str(N_HEADS)]
    assert main([*words, "--json"]) == 0
    assert "velocity before every note" in json.loads(capsys.readouterr().out)["note"]
    model, card = load_checkpoint(out)
    assert card["imported_from"]["program"] == source
    ids = torch.randint(0, 390, (2, LENGTH))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids), rtol=0, atol=1e-5)
        assert (model(ids) - model(ids.flip(0))).abs().max() > 0.1  # they do depend on the ids


def test_relative_positions_are_told_to_be_missing_here(tmp_path: Path) -> None:
    torch.save(MusicTransformer(relative=True).state_dict(), tmp_path / "rpr.pickle")
    with pytest.raises(InputError, match="relative positions .* without --rpr"):
        import_weights(tmp_path / "rpr.pickle", "music-transformer", N_HEADS)


@pytest.mark.parametrize("source", PROGRAMS)
@pytest.mark.parametrize(
    "change",
    [
        lambda state: {},
        lambda state: {name: t for name, t in state.items() if ".0." not in name},
        lambda state: {name: t for name, t in state.items() if not name.endswith("bias")},
        lambda state: {name: t.mT if t.ndim == 2 else t for name, t in state.items()},
        lambda state: {**state, "one.more": torch.zeros(3)},
        lambda state: {name: t.flatten() for name, t in state.items()},
        lambda state: {name: torch.zeros(()) for name in state},
    ],
    ids=["empty", "a block is missing", "no biases", "turned", "more", "flat", "single numbers"],
)
def test_the_weights_of_another_network_are_one_sentence(
    tmp_path: Path, source: str, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    torch.save(change(PROGRAMS[source]().state_dict()), tmp_path / "weights.pth")
    with pytest.raises(InputError, match=f"no network of {source}"):
        import_weights(tmp_path / "weights.pth", source, N_HEADS)


def test_a_number_of_heads_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    torch.save(BookNetwork().state_dict(), tmp_path / "weights.pth")
    with pytest.raises(InputError, match="divisor of d_model"):
        import_weights(tmp_path / "weights.pth", "chapter14", 5)


# --- files that ask for more than they hold -------------------------------------------------------

in_both_formats = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])


def refused_unread(path: Path, monkeypatch: pytest.MonkeyPatch, sentence: str) -> None:
    """The file is refused in a sentence, and nothing is made of what it holds."""
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the tensors were made"))
    with pytest.raises(InputError, match=sentence):
        import_weights(path, "chapter14", N_HEADS)


def repacked(
    path: Path, change: Callable[[str, bytes], bytes], kind: int = zipfile.ZIP_STORED
) -> None:
    """Change the records of a file that torch.save wrote."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, record in records.items():
            archive.writestr(name, change(name, record))


@in_both_formats
@pytest.mark.parametrize(
    "more",
    [
        {"transformer.wte.weight": torch.zeros(1).expand(10**5, 10**4)},
        dict.fromkeys("abcdefghijkl", torch.zeros(9000)),
        {key: torch.zeros(9000).expand(1 + i, 9000) for i, key in enumerate("abcdefg")},
    ],
    ids=["one number as 4 GB", "one tensor under many names", "one memory seen often"],
)
def test_tensors_larger_than_their_file_make_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Tensor], zipped: bool
) -> None:
    state = {**BookNetwork().state_dict(), **more}
    torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    monkeypatch.setattr(foreign, "GPT", lambda *_: pytest.fail("a network was built"))
    with pytest.raises(InputError, match="more than its .* bytes"):
        import_weights(tmp_path / "a.pth", "chapter14", N_HEADS)


def test_an_old_file_that_promises_more_memory_than_it_holds_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"x": torch.zeros(255)}, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    old, promised = pickle.dumps(255, 2)[2:-1], pickle.dumps(2**31 - 1, 2)[2:-1]
    whole = (tmp_path / "a.pth").read_bytes()
    assert old in whole
    (tmp_path / "a.pth").write_bytes(whole.replace(old, promised))
    refused_unread(tmp_path / "a.pth", monkeypatch, "more than its .* bytes")


def test_an_archive_that_unpacks_to_more_than_it_is_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({**BookNetwork().state_dict(), "x": torch.zeros(10**6)}, tmp_path / "a.pth")
    repacked(tmp_path / "a.pth", lambda _, record: record, zipfile.ZIP_DEFLATED)
    refused_unread(tmp_path / "a.pth", monkeypatch, "more than its .* bytes")


def test_memory_that_was_cut_short_is_not_read_beyond_its_end(tmp_path: Path) -> None:
    torch.save(BookNetwork().state_dict(), tmp_path / "a.pth")
    repacked(tmp_path / "a.pth", lambda name, r: r[:16] if name.endswith("data/0") else r)
    with pytest.raises(InputError, match="torch.save"):
        import_weights(tmp_path / "a.pth", "chapter14", N_HEADS)


class Hog:
    """Unpickled, it takes as many bytes as it is told to, for torch allows it to."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (10**12,)


@in_both_formats
@pytest.mark.parametrize(
    "thing",
    [Hog(), torch.empty(10**6, 10**6, device="meta"), torch.zeros(2, 2).to_sparse()],
    ids=["bytes", "without memory", "sparse"],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_what_takes_memory_and_is_no_weight_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thing: Any, zipped: bool
) -> None:
    state = {**BookNetwork().state_dict(), "x": thing}
    torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    refused_unread(tmp_path / "a.pth", monkeypatch, "nothing else is read")


def test_the_last_part_of_an_old_file_is_looked_through_like_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({}, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    whole, last = (tmp_path / "a.pth").read_bytes(), pickle.dumps([], protocol=2)
    assert whole.endswith(last)
    (tmp_path / "a.pth").write_bytes(whole.removesuffix(last) + pickle.dumps(Hog(), protocol=2))
    refused_unread(tmp_path / "a.pth", monkeypatch, "nothing else is read")


def test_a_pickle_that_asks_for_a_huge_memo_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pth").write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    refused_unread(tmp_path / "a.pth", monkeypatch, "nothing else is read")


def test_a_network_larger_than_its_weights_is_not_built(tmp_path: Path) -> None:
    state = BookNetwork().state_dict()
    state["transformer.wte.weight"] = torch.zeros(1, 60_000)  # its attention would take 43 GB
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(InputError, match="its shapes do not fit"):
        import_weights(tmp_path / "a.pth", "chapter14", N_HEADS)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300], ids=str)
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    state = {name: tensor.double() for name, tensor in BookNetwork().state_dict().items()}
    state["lm_head.weight"][3, 3] = value
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(InputError, match="weights that are no finite numbers"):
        import_weights(tmp_path / "a.pth", "chapter14", N_HEADS)


class Bomb:
    """What a hostile pickle does when it is opened."""

    def __init__(self, crater: Path) -> None:
        self._crater = crater

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._crater),)


def test_code_in_a_file_does_not_run(tmp_path: Path) -> None:
    file, crater = tmp_path / "weights.pth", tmp_path / "crater"
    torch.save({"transformer.wte.weight": Bomb(crater)}, file)
    with pytest.raises(InputError, match="nothing else is read"):
        import_weights(file, "chapter14")
    assert not crater.exists()


@pytest.mark.parametrize(
    "content", [b"", b"music", b"PK\x03\x04" + b"\0" * 60, b"\x80\x02."], ids=repr
)
def test_a_file_that_is_none_of_weights_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(InputError, match="torch.save"):
        import_weights(tmp_path / "weights.pth", "chapter14")


def test_a_file_cut_short_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save(BookNetwork().state_dict(), file)
    whole = file.read_bytes()
    for share in (0.1, 0.5, 0.99):
        file.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(InputError, match="torch.save"):
            import_weights(file, "chapter14")


def test_more_than_weights_is_refused(tmp_path: Path) -> None:
    torch.save(OrderedDict(model={"a": torch.zeros(2)}, epoch=3), tmp_path / "run.pth")
    with pytest.raises(InputError, match="state_dict\\(\\) alone"):
        import_weights(tmp_path / "run.pth", "chapter14")


def test_a_file_that_is_missing_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        import_weights(tmp_path / "none.pth", "chapter14")
    with pytest.raises(InputError, match="source is 'somewhere', .* chapter14 or music-transf"):
        import_weights(tmp_path / "none.pth", "somewhere")
    assert main(["import", "--from", "chapter14", "x.pth", "--out", "x.pth"]) == 2
    assert "has to end in .safetensors" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pth")
    for path in (tmp_path / "pipe.pth", "/dev/zero"):
        with pytest.raises(InputError, match="cannot be read: it is no regular file"):
            import_weights(path, "chapter14")
