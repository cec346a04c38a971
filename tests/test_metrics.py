"""The figures: each equals what a few plain lines count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small import ONE_TOKEN, folder_of_ids, random_network, split_of, tokens_folder

from music_gpt.errors import InputError
from music_gpt.metrics.likelihood import (
    likelihood,
    ngram,
    ngram_nats_per_token,
    sliding_nats_per_token,
)
from music_gpt.network.model import GPT
from music_gpt.tokens.corpus import Corpus, Split
from music_gpt.tokens.events import PAD, VOCAB_SIZE

T = 32


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("metrics") / "tokens"
    return Corpus.open(tokens_folder(folder, {"train": [70, 50], "test": [40, 2, 31]}))


@pytest.fixture(scope="module")
def split(corpus: Corpus) -> Split:
    return corpus.split("test")


@pytest.fixture(scope="module")
def model() -> GPT:
    return random_network()


def log_probabilities(model: GPT, ids: Sequence[int]) -> torch.Tensor:
    """Of each token after the first, read alone: (N - 1, V)."""
    with torch.no_grad():
        return model(torch.tensor([list(ids[:-1])]))[0].log_softmax(-1)


def plain_scores(model: GPT, split: Split, window: int) -> tuple[float, int, int]:
    """Nats, hits and targets, one window at a time."""
    nats, hits, n = 0.0, 0, 0
    for i in range(split.n_pieces):
        ids = split.piece(i).astype(int).tolist()
        for start in range(0, len(ids) - 1, window):
            part = ids[start : start + window + 1]
            scores = log_probabilities(model, part)
            for place, target in enumerate(part[1:]):
                nats -= float(scores[place, target])
                hits += int(scores[place].argmax()) == target
                n += 1
    return nats, hits, n


# --- likelihood -------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [T, 7, 1])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_likelihood_is_that_of_every_token_counted_one_by_one(
    model: GPT, split: Split, window: int, batch_size: int
) -> None:
    found = likelihood(model, split, window=window, batch_size=batch_size)
    nats, hits, n = plain_scores(model, split, window)
    assert found.n_tokens == n == split.n_tokens - split.n_pieces
    assert found.window == window
    assert found.nats_per_token == pytest.approx(nats / n, rel=1e-5)
    assert found.accuracy == hits / n
    assert found.nats_per_note == pytest.approx(nats / split.n_notes, rel=1e-5)
    assert found.nats_per_second == pytest.approx(nats / split.n_seconds, rel=1e-5)


def test_without_a_window_the_context_of_the_network_is_taken(model: GPT, split: Split) -> None:
    assert likelihood(model, split) == likelihood(model, split, window=T)


def test_a_network_that_knows_nothing_has_the_logarithm_of_390(split: Split) -> None:
    found = likelihood(random_network_of_zeros(), split)
    assert found.nats_per_token == pytest.approx(math.log(390), rel=1e-6)
    assert sliding_nats_per_token(random_network_of_zeros(), split) == pytest.approx(math.log(390))


def random_network_of_zeros() -> GPT:
    model = random_network()
    torch.nn.init.zeros_(model.head.weight)
    return model


def test_a_part_of_the_split_is_scored_and_counted_as_a_part(model: GPT, split: Split) -> None:
    whole, part = (
        likelihood(model, split, window=8),
        likelihood(model, split, window=8, max_tokens=100),
    )
    assert 60 < part.n_tokens <= 100
    ratio = whole.nats_per_note / whole.nats_per_token
    assert part.nats_per_note / part.nats_per_token == pytest.approx(ratio)


def test_bf16_gives_nearly_the_same_figure(model: GPT, split: Split) -> None:
    exact, rough = likelihood(model, split), likelihood(model, split, bf16=True)
    assert rough.nats_per_token != exact.nats_per_token
    assert rough.nats_per_token == pytest.approx(exact.nats_per_token, rel=0.02)


def test_scoring_leaves_gradients_as_they_were(model: GPT, split: Split) -> None:
    likelihood(model, split)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("bf16", [False, True])
def test_a_network_in_training_is_scored_without_dropout_and_trains_on(
    split: Split, bf16: bool
) -> None:
    model = random_network(dropout=0.5)
    plain = likelihood(model.eval(), split, bf16=bf16)
    model.train()
    assert likelihood(model, split, bf16=bf16) == plain
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("window", [0, -1, T + 1])
def test_a_window_that_the_network_does_not_have_is_refused(
    model: GPT, split: Split, window: int
) -> None:
    for figure in (likelihood, sliding_nats_per_token):
        with pytest.raises(InputError, match=f"window is {window}, but .* from 1 to {T}"):
            figure(model, split, window=window)


def test_a_network_for_text_cannot_score_music(split: Split) -> None:
    with pytest.raises(InputError, match="knows 65 tokens.*trained on music"):
        likelihood(random_network(vocab_size=65), split)


def test_a_split_of_pieces_of_one_token_cannot_be_scored(model: GPT, tmp_path: Path) -> None:
    split = Corpus.open(folder_of_ids(tmp_path, {"test": 3 * [ONE_TOKEN]})).split("test")
    for figure in (likelihood, sliding_nats_per_token):
        with pytest.raises(
            InputError, match="No piece of the test split .* nothing to predict; run"
        ):
            figure(model, split)


@pytest.mark.parametrize("window", [T, 7, 2, 1])
def test_the_sliding_figure_gives_each_token_half_a_window_of_past(
    model: GPT, split: Split, window: int
) -> None:
    stride = max(window // 2, 1)
    nats = []
    for i in range(split.n_pieces):
        ids = split.piece(i).astype(int).tolist()
        scored = start = 0
        while scored < len(ids) - 1:
            part = ids[start : start + window + 1]
            scores = log_probabilities(model, part)
            for place, target in enumerate(part[1:]):
                if start + place >= scored:
                    nats.append(-float(scores[place, target]))
            scored, start = start + len(part) - 1, start + stride
    assert len(nats) == split.n_tokens - split.n_pieces
    for batch_size in (1, 4):
        found = sliding_nats_per_token(model, split, window=window, batch_size=batch_size)
        assert found == pytest.approx(np.mean(nats), rel=1e-5)


# --- n-grams ----------------------------------------------------------------------------------


def plain_ngram(train: Sequence[Sequence[int]], past: Sequence[int], target: int) -> float:
    """Interpolated Witten-Bell, from the counts of each order; `past` may begin with padding."""
    probability = 1 / VOCAB_SIZE
    for n in range(len(past) + 1):
        own = list(past[len(past) - n :])
        followers: Counter[int] = Counter()
        for ids in train:
            padded = [PAD] * len(past) + list(ids)
            for place in range(len(past) + 1, len(padded)):
                if padded[place - n : place] == own:
                    followers[padded[place]] += 1
        seen, kinds = sum(followers.values()), len(followers)
        if seen:
            probability = (followers[target] + kinds * probability) / (seen + kinds)
    return probability


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_ngram_is_that_of_a_plain_count(corpus: Corpus, order: int) -> None:
    train, test = corpus.split("train"), corpus.split("test")
    pieces = [train.piece(i).astype(int).tolist() for i in range(train.n_pieces)]
    ids = test.piece(0)[:25]
    found = ngram(train, order)(ids)
    padded = [PAD] * order + ids.astype(int).tolist()
    expected = [
        plain_ngram(pieces, padded[i : i + order], padded[i + order]) for i in range(1, len(ids))
    ]
    assert found.tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_probabilities_of_an_ngram_sum_to_one(corpus: Corpus, order: int) -> None:
    train = corpus.split("train")
    probability = ngram(train, order)
    seen, unseen = train.piece(0)[:10], np.array([PAD, 127, 255, 0], np.uint16)
    for past in (seen, seen[:1], unseen):
        of_each = [
            probability(np.append(past, np.uint16(target)))[-1] for target in range(VOCAB_SIZE)
        ]
        assert sum(of_each) == pytest.approx(1.0)
        assert min(of_each) > 0


def test_the_ngram_figure_is_the_mean_over_all_targets(corpus: Corpus) -> None:
    train, test = corpus.split("train"), corpus.split("test")
    probability = ngram(train, 2)
    each = np.concatenate([probability(test.piece(i)) for i in range(test.n_pieces)])
    assert ngram_nats_per_token(train, test) == pytest.approx(-np.log(each).mean())


def test_an_ngram_learns_from_its_past() -> None:
    def split(*pieces: list[int]) -> Any:
        ids = [np.array(piece, np.uint16) for piece in pieces]
        n_tokens = sum(map(len, ids))
        return SimpleNamespace(n_pieces=len(ids), n_tokens=n_tokens, piece=lambda i: ids[i])

    circle = split([1, 2, 3] * 50)
    figures = [ngram_nats_per_token(circle, circle, order=order) for order in (0, 1, 2)]
    assert figures[0] == pytest.approx(math.log(3), abs=0.1)
    assert max(figures[1:]) < 0.2


def test_fewer_than_no_tokens_cannot_be_scored(tmp_path: Path) -> None:
    split = split_of(tmp_path / "tokens", [20])
    for score in (likelihood, sliding_nats_per_token):
        with pytest.raises(InputError, match="max_tokens is -1, .*of 0 or more"):
            score(random_network(), split, max_tokens=-1)
