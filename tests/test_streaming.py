"""A tokens folder in LitData's chunks holds the same pieces."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from small import tokens_folder

from data_prep.streaming import write_for_streaming
from music_gpt.errors import InputError
from music_gpt.tokens.corpus import Corpus


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tokens_folder(tmp_path / "tokens", {"train": [30, 5, 80], "test": [12]})


# what LitData and its own libraries grumble about is not ours to mend
@pytest.mark.filterwarnings("default")
def test_every_piece_comes_back_from_the_chunks_of_lit_data(tokens: Path, tmp_path: Path) -> None:
    litdata = pytest.importorskip("litdata", reason="needs the extra litdata")
    out = tmp_path / "chunks"
    assert write_for_streaming(tokens, out, chunk_bytes=300) == {"train": 3, "test": 1}
    corpus = Corpus.open(tokens)
    for name in corpus.splits:
        streamed = litdata.StreamingDataset(str(out / name), cache_dir=str(tmp_path / "cache"))
        split = corpus.split(name)
        assert len(streamed) == len(split)
        assert [streamed[i].tolist() for i in range(len(split))] == [
            split.piece(i).tolist() for i in range(len(split))
        ]
    assert len(list((out / "train").glob("*.bin"))) > 1
    assert json.loads((out / "corpus.json").read_text()) == corpus.card


def test_a_folder_that_holds_something_is_not_written_into(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an empty folder"):
        write_for_streaming(tokens, tokens)
    with pytest.raises(InputError, match="no tokens folder"):
        write_for_streaming(tmp_path / "nowhere", tmp_path / "chunks")


def test_without_lit_data_one_is_told_how_to_get_it(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "litdata", None)
    with pytest.raises(InputError, match=r'compat -e "\.\[litdata\]"` first'):
        write_for_streaming(tokens, tmp_path / "chunks")
    assert not (tmp_path / "chunks").exists()
