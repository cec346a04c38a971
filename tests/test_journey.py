"""One note's journey, end to end: a MIDI file, tokens, a trained network, new music, sound."""

from pathlib import Path

import numpy as np
import pytest

import music_gpt
from data_prep.prepare import prepare
from music_gpt.audio import render
from music_gpt.config.model import ModelConfig
from music_gpt.config.preparing import PrepareConfig
from music_gpt.config.training import DataConfig, RunConfig, TrainConfig
from music_gpt.metrics.likelihood import likelihood, ngram_nats_per_token
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.events import decode_ids
from music_gpt.training.run import train

ROOT = Path(__file__).parent.parent
PROMPTS = sorted((ROOT / "music_gpt" / "prompts").glob("*.mid"))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory, demo_corpus: Path) -> Path:
    """The demo corpus as a tokens folder."""
    folder = tmp_path_factory.mktemp("journey") / "tokens"
    prepare(demo_corpus, folder, PrepareConfig(workers=1), progress=False)
    return folder


def test_a_note_is_the_same_after_tokens_and_disk(tokens: Path, demo_corpus: Path) -> None:
    split = Corpus.open(tokens).split("train")
    piece = music_gpt.read_piece(demo_corpus / split.names[0])
    stored = decode_ids(split.piece(0))
    assert len(stored) == int(split.notes[0])
    heard = piece.sounding_notes
    first, last = heard["start"].min(), heard["start"].max()
    assert stored["start"][0] == 0.0
    # the middle of the piece has no silence of ten seconds, so no gap was shortened
    assert stored["start"].max() == pytest.approx(last - first, abs=0.0051)


def test_a_network_learns_and_its_music_is_heard(tokens: Path, tmp_path: Path) -> None:
    config = RunConfig(
        ModelConfig.preset("tiny"),
        DataConfig(batch_size=8),
        train=TrainConfig(max_steps=40, validate_every_steps=40),
    )
    result = train(tokens, tmp_path / "run", config)
    assert result["finished"]
    assert result["nats_per_token"] < 5.6  # ln 390 = 5.97 is where every network starts

    pianist = music_gpt.load(result["checkpoint"])
    take = pianist.continue_piece(PROMPTS[0], seconds=3, seed=1)
    take.write(str(tmp_path / "take.mid"))
    again = music_gpt.read_piece(tmp_path / "take.mid")
    assert again.n_notes > 0
    music_gpt.write_wav(take, tmp_path / "take.wav")
    assert (tmp_path / "take.wav").stat().st_size > 44_100
    sound = render(again.sounding_notes)
    assert 0 < int(np.abs(sound.astype(np.int32)).max()) < 32_768


def test_the_bundled_network_knows_more_than_the_events_before(tokens: Path) -> None:
    corpus = Corpus.open(tokens)
    split = corpus.split("train")
    model, card = load_checkpoint()
    score = likelihood(model, split, max_tokens=8192)
    assert score.nats_per_token < ngram_nats_per_token(split, split) - 0.5
    assert card["licence"] == "CC BY-SA 4.0"


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda path: path.stem)
def test_the_bundled_network_continues_every_opening_and_nothing_is_lost(
    prompt: Path, tmp_path: Path
) -> None:
    composition = music_gpt.load().compose(prompt, seconds=8, seed=5)
    for _ in composition:
        pass
    assert composition.seconds_composed == pytest.approx(8, abs=1)
    assert len(composition.new_notes()) > 3  # a slow piece has few notes
    # nothing hangs and nothing is lost on the way into the file
    take = composition.midi()
    take.write(str(tmp_path / "take.mid"))
    written, notes = music_gpt.read_piece(tmp_path / "take.mid"), composition.notes()
    assert written.warnings == []
    assert [n.tolist()[2:] for n in written.notes] == [n.tolist()[2:] for n in notes]
    assert np.abs(written.notes["start"] - notes["start"]).max() < 0.001
    assert (notes["end"] - notes["start"]).max() < 60
