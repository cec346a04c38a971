"""The tokens folder: what is written is what is read, and what is wrong is said."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from music_gpt.errors import InputError
from music_gpt.tokens.card import CARD, card_sha256
from music_gpt.tokens.corpus import Corpus, CorpusWriter, Split, sha256_of
from music_gpt.tokens.events import EOS, vocabulary_hash


def piece(seed: int, length: int = 40) -> np.ndarray[Any, Any]:
    body = np.random.default_rng(seed).integers(0, EOS, length, dtype=np.uint16)
    return np.concatenate([[EOS], body, [EOS]]).astype(np.uint16)


def write(folder: Path, *, shard_tokens: int = 100) -> Path:
    with CorpusWriter(folder, shard_tokens=shard_tokens) as writer:
        for i in range(5):
            record = {"file": f"{i}.mid", "notes": 10 + i, "seconds": 2.5}
            writer.add("train" if i < 4 else "test", piece(i), record)
        writer.finish({"sources": {"mine": {}}}, tokenizer='{"a": 1}')
    return folder


def edit_card(folder: Path, **changes: Any) -> None:
    """Change the card as someone would who means ill: its checksum is right."""
    card = json.loads((folder / "corpus.json").read_text()) | changes
    with contextlib.suppress(AttributeError, TypeError):
        card["files"][CARD] = card_sha256(card)
    (folder / "corpus.json").write_text(json.dumps(card))


def edit_index(folder: Path, **columns: Any) -> None:
    """Change columns of the index of the train split, and its checksum in the card."""
    index = np.load(folder / "index-train.npy")
    for name, values in columns.items():
        index[name] = values
    np.save(folder / "index-train.npy", index)
    splits = json.loads((folder / "corpus.json").read_text())["splits"]
    splits["train"]["index_sha256"] = sha256_of(folder / "index-train.npy")
    edit_card(folder, splits=splits)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "tokens")


def test_every_piece_comes_back_as_it_was_written(folder: Path) -> None:
    corpus = Corpus.open(folder)
    train, test = corpus.split("train"), corpus.split("test")
    assert [train.piece(i).tolist() for i in range(4)] == [piece(i).tolist() for i in range(4)]
    assert test.piece(0).tolist() == piece(4).tolist()
    assert train.piece(0).dtype == np.uint16
    assert corpus.card["sources"] == {"mine": {}}
    corpus.verify()


def test_the_counts_of_a_split_are_those_of_its_pieces(folder: Path) -> None:
    train = Corpus.open(folder).split("train")
    assert (train.n_pieces, train.n_tokens, train.n_notes) == (4, 4 * 42, 10 + 11 + 12 + 13)
    assert train.n_seconds == 10.0
    assert train.names == ["0.mid", "1.mid", "2.mid", "3.mid"]
    assert [record["number"] for record in train.records] == [0, 1, 2, 3]


def test_no_piece_lies_across_two_shards(folder: Path) -> None:
    train = Corpus.open(folder).split("train")
    assert train.shard.tolist() == [0, 0, 1, 1]
    assert [len(shard) for shard in train.shards] == [84, 84]


def test_ids_lie_on_disk_as_little_endian_numbers_of_two_bytes(folder: Path) -> None:
    data = (folder / "test-00000.bin").read_bytes()
    assert data == piece(4).astype("<u2").tobytes()


def test_the_same_pieces_give_the_same_bytes(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one"), write(tmp_path / "other")
    assert {p.name: p.read_bytes() for p in one.iterdir()} == {
        p.name: p.read_bytes() for p in other.iterdir()
    }


def test_writing_again_leaves_no_shard_of_the_corpus_before(folder: Path) -> None:
    write(folder, shard_tokens=1000)
    assert sorted(p.name for p in folder.glob("*.bin")) == ["test-00000.bin", "train-00000.bin"]
    Corpus.open(folder).verify()


def test_a_split_that_is_sent_to_another_process_carries_no_tokens(folder: Path) -> None:
    train = Corpus.open(folder).split("train")
    sent = pickle.dumps(train)
    there: Split = pickle.loads(sent)
    assert there.piece(2).tolist() == piece(2).tolist()
    assert len(sent) < 1500


def test_the_vocabulary_hash_is_that_of_the_events(folder: Path) -> None:
    assert Corpus.open(folder).card["vocabulary_hash"] == vocabulary_hash()


def test_an_interrupted_writer_leaves_the_corpus_before_as_it_was(folder: Path) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with CorpusWriter(folder) as writer:
        writer.add("train", piece(9), {"notes": 1, "seconds": 1.0})
        # it ends without `finish`, as it does when something is raised
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_changed_token_is_found_by_its_checksum(folder: Path) -> None:
    shard = folder / "train-00001.bin"
    data = bytearray(shard.read_bytes())
    data[10] ^= 1
    shard.write_bytes(data)
    with pytest.raises(InputError, match=r"train-00001\.bin .* is not what was written"):
        Corpus.open(folder).verify()


def test_a_shard_that_is_cut_short_is_named_when_the_folder_is_opened(folder: Path) -> None:
    shard = folder / "train-00000.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(InputError, match=r"train-00000\.bin"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    "columns",
    [
        {"start": [0, 42, 0, 52]},
        {"start": [0, 42, 0, 2**64 - 8]},
        {"start": [0, 42, 0, 84]},
        {"shard": [0, 0, 1, 2]},
        {"length": [42, 42, 84, 0]},
        {"length": [42, 42, 42, 41]},
        {"notes": [10, 11, 12, 14]},
        {"seconds": [1, 1, 1, np.nan]},
        {"seconds": [1, 1, 1, -1]},
    ],
    ids=str,
)
def test_an_index_that_cannot_be_right_is_refused(folder: Path, columns: dict[str, Any]) -> None:
    edit_index(folder)
    Corpus.open(folder)
    edit_index(folder, **columns)
    with pytest.raises(InputError, match=r"index-train\.npy .* is not what was written"):
        Corpus.open(folder)


def test_an_index_that_was_changed_is_refused_before_it_is_used(folder: Path) -> None:
    index = np.load(folder / "index-train.npy")
    index["seconds"] += 1
    np.save(folder / "index-train.npy", index)
    with pytest.raises(InputError, match=r"index-train\.npy"):
        Corpus.open(folder)


@pytest.mark.parametrize("shape", [2**40, 2**62, -1, 3])
def test_an_index_that_claims_another_size_is_refused(folder: Path, shape: int) -> None:
    file = folder / "index-train.npy"
    head, rest = file.read_bytes().split(b"(4,)")
    claim = f"({shape},)".encode()
    file.write_bytes(head + claim + rest[len(claim) - 4 :])
    splits = json.loads((folder / "corpus.json").read_text())["splits"]
    splits["train"] |= {"index_sha256": sha256_of(file), "pieces": abs(shape)}
    edit_card(folder, splits=splits)
    with pytest.raises(InputError, match=r"is not what was written"):
        Corpus.open(folder)


@pytest.mark.parametrize("name", ["corpus.json", "index-train.npy", "train-00000.bin"])
def test_a_huge_file_in_place_of_another_is_not_read(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with (folder / name).open("wb") as file:
        file.truncate(1 << 40)  # it takes no room on the disk
    with pytest.raises(InputError, match=f"{name} .* is not what was written"):
        Corpus.open(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
@pytest.mark.parametrize("name", ["corpus.json", "index-train.npy", "train-00000.bin"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=f"{name}.* is missing"):
        Corpus.open(folder)


def test_an_index_that_is_not_one_is_refused(folder: Path) -> None:
    (folder / "index-train.npy").write_bytes(b"\x93NUMPY nonsense")
    with pytest.raises(InputError, match=r"index-train\.npy"):
        Corpus.open(folder)


def test_a_corpus_in_another_vocabulary_is_refused_with_what_to_do(folder: Path) -> None:
    edit_card(folder, vocabulary_hash="0" * 64)
    with pytest.raises(InputError, match=r"another vocabulary .* run `music-gpt prepare` again"):
        Corpus.open(folder)


def test_a_corpus_of_another_version_is_refused_with_what_to_do(folder: Path) -> None:
    edit_card(folder, version=99)
    with pytest.raises(InputError, match="format version 99"):
        Corpus.open(folder)


def test_the_card_of_something_else_is_refused(folder: Path) -> None:
    (folder / "corpus.json").write_text("[1, 2]")
    with pytest.raises(InputError, match="not the card of a tokens folder"):
        Corpus.open(folder)
    (folder / "corpus.json").write_text("{")
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"splits": 5},
        {"splits": {"train": 5}},
        {"splits": {"train": {"pieces": 4, "index_sha256": "0"}}},
        {"splits": {"../train": {"pieces": 1, "index_sha256": "0", "shards": []}}},
        {"files": ["a"]},
        {"files": {"../../secret": "0" * 64}},
        {"files": {"pieces.jsonl": 5}},
        {"files": 10**30},
    ],
    ids=str,
)
def test_a_card_without_its_parts_is_called_damaged(folder: Path, change: dict[str, Any]) -> None:
    edit_card(folder, **change)
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    "shard",
    [
        *({"tokens": n} for n in ("x", 0, -42, 42.0, True, [42], 10**30, 41, None)),
        *({"file": name} for name in ("../test-00000.bin", "test-00001.bin", "train-00000.bin", 5)),
        {"sha256": "0"},
        {"sha256": None},
    ],
    ids=str,
)
def test_a_shard_that_cannot_be_one_is_called_damaged(folder: Path, shard: dict[str, Any]) -> None:
    splits = json.loads((folder / "corpus.json").read_text())["splits"]
    splits["test"]["shards"][0] |= shard
    edit_card(folder, splits=splits)
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    "field",
    [
        *({"pieces": n} for n in (0, -1, 1.0, "1", [1], 10**30, None, {})),
        *({"notes": n} for n in (-1, "14", [14], 10**30)),
        *({"seconds": n} for n in (-1, "2.5", [2.5], float("nan"), float("inf"))),
        *({"tokens": n} for n in (0, 41, "42", 10**30)),
        {"index_sha256": "0"},
        *({"shards": shards} for shards in ([], {}, "", [[]], 5, [5], [{}] * 20_000)),
    ],
    ids=lambda field: str(field)[:40],
)
def test_a_split_that_cannot_be_one_is_called_damaged(folder: Path, field: dict[str, Any]) -> None:
    splits = json.loads((folder / "corpus.json").read_text())["splits"]
    splits["test"] |= field
    edit_card(folder, splits=splits)
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


def test_more_files_than_can_be_open_are_told_in_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(np, "memmap", refuse)
    with pytest.raises(InputError, match=r"train-00000.bin cannot be read \(Too many open files"):
        Corpus.open(folder)


def test_a_byte_of_the_card_that_changes_what_it_says_is_noticed(folder: Path) -> None:
    whole = (folder / "corpus.json").read_bytes()
    said = json.loads(whole)
    unnoticed = []
    for place in range(0, len(whole), 29):
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        (folder / "corpus.json").write_bytes(changed)
        try:
            Corpus.open(folder).verify()
            if json.loads(changed) != said:
                unnoticed.append(place)
        except InputError:
            pass
    assert unnoticed == []


def test_the_card_of_an_older_folder_has_no_checksum_and_is_read(folder: Path) -> None:
    card = json.loads((folder / "corpus.json").read_text())
    del card["files"]["corpus.json"]
    (folder / "corpus.json").write_text(json.dumps(card))
    assert Corpus.open(folder).verify()["files"] == 7


def test_a_card_of_endless_brackets_is_called_damaged(folder: Path) -> None:
    (folder / "corpus.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-3],
        lambda lines: [*lines[:-1], lines[-1][:-9]],
        lambda lines: [lines[0], *lines],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: ["[]", *lines[1:]],
        lambda lines: ["5", *lines[1:]],
        lambda lines: ["[" * 100_000, *lines[1:]],
        lambda lines: ["{}", *lines[1:]],
        lambda lines: [" " * 3_000_000 + lines[0], *lines[1:]],
        lambda lines: ["\udce9", *lines[1:]],
        lambda lines: ['{"split": "train", "number": [0]}', *lines[1:]],
        lambda lines: ["1" * 5_000, *lines[1:]],
    ],
    ids=range(12),
)
def test_pieces_that_were_cut_or_changed_are_called_damaged(
    folder: Path, change: Callable[[list[str]], list[str]]
) -> None:
    lines = (folder / "pieces.jsonl").read_text().splitlines()
    text = "\n".join(change(lines)) + "\n"
    (folder / "pieces.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"pieces\.jsonl .* is not what was written"):
        _ = Corpus.open(folder).split("train").names


def test_a_name_with_an_odd_line_end_in_it_stays_one_name(tmp_path: Path) -> None:
    names = ["a\u2028b.mid", "c\x85d.mid", "e\x0bf.mid"]
    with CorpusWriter(tmp_path / "tokens") as writer:
        for name in names:
            writer.add("train", piece(0), {"file": name, "notes": 1, "seconds": 1.0})
        writer.finish({}, tokenizer="{}")
    assert Corpus.open(tmp_path / "tokens").split("train").names == names


def test_a_folder_without_a_card_is_called_unfinished(folder: Path) -> None:
    (folder / "corpus.json").unlink()
    with pytest.raises(InputError, match="no finished corpus"):
        Corpus.open(folder)


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    for name in ("nowhere", "a" * 300, "a\0b"):
        with pytest.raises(InputError, match="no tokens folder"):
            Corpus.open(tmp_path / name)


def test_a_split_that_is_not_there_is_answered_with_those_that_are(folder: Path) -> None:
    with pytest.raises(InputError, match="no split 'validation', only train, test"):
        Corpus.open(folder).split("validation")
