"""The tokens folder: what is written is what is read, and what is wrong is said."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from music_gpt.errors import InputError
from music_gpt.tokens.corpus import Corpus, CorpusWriter, Split
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
    card = json.loads((folder / "corpus.json").read_text())
    (folder / "corpus.json").write_text(json.dumps({**card, **changes}))


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


def test_a_changed_index_is_found_by_its_checksum(folder: Path) -> None:
    index = np.load(folder / "index-train.npy")
    index["notes"][0] += 1
    np.save(folder / "index-train.npy", index)
    with pytest.raises(InputError, match=r"index-train\.npy"):
        Corpus.open(folder).verify()


def test_a_shard_that_is_cut_short_is_named_when_the_folder_is_opened(folder: Path) -> None:
    shard = folder / "train-00000.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(InputError, match=r"train-00000\.bin"):
        Corpus.open(folder)


def test_an_index_that_points_outside_its_shard_is_refused(folder: Path) -> None:
    index = np.load(folder / "index-train.npy")
    index["start"][-1] += 10
    np.save(folder / "index-train.npy", index)
    with pytest.raises(InputError, match=r"index-train\.npy"):
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
        {"files": {"../../secret": "0"}},
    ],
    ids=str,
)
def test_a_card_without_its_parts_is_called_damaged(folder: Path, change: dict[str, Any]) -> None:
    edit_card(folder, **change)
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


@pytest.mark.parametrize("shard", [{"tokens": "x"}, {"tokens": 0}, {"file": "../train-00000.bin"}])
def test_a_shard_that_cannot_be_one_is_called_damaged(folder: Path, shard: dict[str, Any]) -> None:
    splits = json.loads((folder / "corpus.json").read_text())["splits"]
    splits["test"]["shards"][0] |= shard
    edit_card(folder, splits=splits)
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


def test_a_card_of_endless_brackets_is_called_damaged(folder: Path) -> None:
    (folder / "corpus.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"corpus\.json .* is not what was written"):
        Corpus.open(folder)


def test_a_folder_without_a_card_is_called_unfinished(folder: Path) -> None:
    (folder / "corpus.json").unlink()
    with pytest.raises(InputError, match="no finished corpus"):
        Corpus.open(folder)


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tokens folder"):
        Corpus.open(tmp_path / "nowhere")


def test_a_split_that_is_not_there_is_answered_with_those_that_are(folder: Path) -> None:
    with pytest.raises(InputError, match="no split 'validation', only train, test"):
        Corpus.open(folder).split("validation")
