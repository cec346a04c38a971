"""Continuations beside the real music: where they come from, and how they are compared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import melody, random_network

from music_gpt.composing.pianist import Pianist
from music_gpt.errors import InputError
from music_gpt.metrics import continuations
from music_gpt.metrics.continuations import (
    CLOSE_SECONDS,
    PROMPT_SECONDS,
    TAKES,
    Passage,
    passages,
    report,
    sample,
)
from music_gpt.notes import Notes
from music_gpt.tokens.corpus import Corpus, CorpusWriter, Split
from music_gpt.tokens.events import canonical_notes, encode_notes
from music_gpt.tokens.originality import INDEX_FILE, IndexWriter, OriginalityIndex

SECONDS = 4.0
PIECES = [melody(seed, 150) for seed in range(5)]  # of 45 seconds
SHORT = melody(9, 50)
MORE_REAL = [Passage(100 + i, PIECES[0], melody(500 + i, 60)) for i in range(24)]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples") / "tokens"
    with (
        CorpusWriter(folder) as writer,
        IndexWriter(writer.another_file(INDEX_FILE)) as index,
    ):
        for split, pieces in (("train", PIECES[:2]), ("test", [SHORT, *PIECES[2:]])):
            for notes in pieces:
                ids, seconds = encode_notes(notes, eos=True), float(np.ptp(notes["end"]))
                writer.add(split, ids, {"file": "a.mid", "notes": len(notes), "seconds": seconds})
                if split == "train":
                    index.add(ids, "a.mid")
        index.finish()
        writer.finish({}, tokenizer="{}")
    return folder


@pytest.fixture(scope="module")
def split(tokens: Path) -> Split:
    return Corpus.open(tokens).split("test")


@pytest.fixture(scope="module")
def pianist() -> Pianist:
    return Pianist(random_network(context=128))


# --- passages -----------------------------------------------------------------------------------


def test_a_passage_is_a_prompt_and_what_follows_it_in_the_piece(split: Split) -> None:
    for place in passages(split, 6, SECONDS):
        prompt, real = place.prompt, place.real
        assert 0 <= prompt["start"].min() < 1.0
        assert PROMPT_SECONDS - 2 < prompt["end"].max() <= PROMPT_SECONDS
        assert real["start"][0] == pytest.approx(0.005)  # an onset, half a frame before it
        assert real["start"].max() < SECONDS
        assert real["end"].max() <= SECONDS + 1e-9
        # together they are a part of the piece: the same pitches in the same order
        whole = canonical_notes(PIECES[place.piece + 1])["pitch"].tolist()
        following = real["pitch"].tolist()
        assert any(
            whole[i : i + len(following)] == following
            for i in range(len(whole) - len(following) + 1)
        )


def test_every_long_piece_comes_once_before_any_comes_again(split: Split) -> None:
    found = [place.piece for place in passages(split, 8, SECONDS)]
    assert set(found) == {1, 2, 3}  # piece 0 is too short
    assert sorted(found[:3]) == sorted(found[3:6]) == [1, 2, 3]


def test_the_seed_says_which_places(split: Split) -> None:
    def prompts(seed: int) -> list[bytes]:
        return [place.prompt.tobytes() for place in passages(split, 4, SECONDS, seed=seed)]

    assert prompts(1) == prompts(1) != prompts(2)


def test_a_split_without_a_long_piece_says_so(split: Split) -> None:
    with pytest.raises(InputError, match="No piece of the test split lasts 76 seconds"):
        passages(split, 1, 60.0)


# --- the comparison -----------------------------------------------------------------------------


def test_music_that_is_the_real_one_agrees_as_the_real_one_does(tokens: Path) -> None:
    real = [Passage(i, PIECES[0], melody(100 + i, 60)) for i in range(24)]
    same = report(real, [melody(200 + i, 60) for i in range(24)], 18.0, more=MORE_REAL)
    fast: list[Notes] = [melody(200 + i, 60) for i in range(24)]
    for notes in fast:
        notes["start"] /= 4
        notes["end"] /= 4
    other = report(real, fast, 18.0, more=MORE_REAL)
    assert same.overlap > 0.75
    assert same.to_dict()["overlap_ceiling"] == pytest.approx(same.overlap, abs=0.05)
    assert other.agreement["note_length"].overlap < 0.2 < same.agreement["note_length"].overlap
    assert other.ceiling == same.ceiling
    assert other.composed["note_length"] == pytest.approx(same.composed["note_length"] / 4)


def test_the_ceiling_compares_as_many_real_passages_as_takes() -> None:
    real = [Passage(i, PIECES[0], melody(100 + i, 60)) for i in range(24)]
    few = [melody(200 + i, 60) for i in range(8)]
    cut_short = report(real, few, 18.0, more=MORE_REAL)
    assert cut_short.ceiling == report(real[:8], few, 18.0, more=MORE_REAL[:8]).ceiling
    assert cut_short.ceiling != report(real, few * 3, 18.0, more=MORE_REAL).ceiling


def test_the_ceiling_is_of_passages_beside_those_that_are_continued(
    pianist: Pianist, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[bytes] = []

    def watched(real: list[Passage], composed: list[Notes], *rest: object, **options: Any) -> Any:
        drawn.extend(place.real.tobytes() for place in [*real, *options["more"]])
        return report(real, composed, *rest, **options)

    monkeypatch.setattr(continuations, "report", watched)
    sample(pianist, split, 8, 1.0)
    assert len(drawn) == 16
    assert len(set(drawn)) > 12


def test_the_halves_share_no_piece() -> None:
    real = [Passage(piece, PIECES[0], melody(i, 20)) for i, piece in enumerate([3, 5, 3, 8, 5, 9])]
    numbers = [{"n": np.array([float(place.piece)])} for place in real]
    first, second = continuations._halves(real, numbers)
    assert [float(found["n"][0]) for found in first] == [3.0, 3.0, 8.0]
    assert [float(found["n"][0]) for found in second] == [5.0, 5.0, 9.0]


def test_borrowed_music_is_told(tokens: Path) -> None:
    index = OriginalityIndex.open(tokens)
    real = [Passage(i, PIECES[0], melody(100 + i, 60)) for i in range(8)]
    composed = [PIECES[1][20:60] if i < 2 else melody(300 + i, 60) for i in range(8)]
    found = report(real, composed, 18.0, more=MORE_REAL, index=index)
    told = found.to_dict()["originality"]
    assert told["composed"]["share_24"] == told["composed"]["share_36"] == 0.25
    assert told["composed"]["longest_notes"] == 40
    assert told["real"] == {
        "share_24": 0.0,
        "share_36": 0.0,
        "mean_notes": 0.0,
        "longest_notes": 0,
        "longest_source": None,
    }
    assert "25.0% of the continuations share 24 different notes" in found.table()


def test_music_that_repeats_itself_is_told_beside_the_real(tokens: Path) -> None:
    real = [Passage(i, PIECES[0], melody(100 + i, 60)) for i in range(8)]
    composed = [np.tile(place.real[:1], 100) if place.piece < 2 else place.real for place in real]
    for notes in composed[:2]:
        notes["start"], notes["end"] = np.arange(100) / 5, np.arange(100) / 5 + 0.1
    found = report(real, composed, 20.0, more=MORE_REAL)
    assert found.to_dict()["loops"]["composed"] == {"events": 0.25, "pitches": 0.25, "stuck": 0.25}
    assert found.to_dict()["loops"]["real"] == {"events": 0.0, "pitches": 0.0, "stuck": 0.0}
    assert (
        "25.0% of the continuations are stuck in a figure for 8 seconds, 0.0% of the real passages."
        in found.table()
    )


def test_a_report_has_every_statistic_in_plain_numbers(tokens: Path) -> None:
    real = [Passage(i, PIECES[0], melody(100 + i, 60)) for i in range(8)]
    found = report(real, [place.real for place in real], 18.0, more=MORE_REAL)
    told = found.to_dict()
    for name, row in told["statistics"].items():
        assert name.replace("_", " ") in found.table()
        assert {"overlap", "overlap_ceiling", "divergence", "divergence_floor"} <= row.keys()
        assert all(value is None or math.isfinite(value) for value in row.values())
    assert told["statistics"]["velocity"]["real"] == told["statistics"]["velocity"]["composed"]
    assert "originality" not in told


# --- composing ----------------------------------------------------------------------------------


def test_samples_are_the_same_on_every_run(pianist: Pianist, split: Split) -> None:
    one, other = (sample(pianist, split, 9, 1.0).to_dict() for _ in range(2))
    assert one == other
    assert (one["samples"], one["prompts"], one["interrupted"]) == (9, 3, False)


def test_a_sample_is_the_take_that_its_seed_gives_without_its_close(
    pianist: Pianist, split: Split
) -> None:
    places = passages(split, 2, 1.0)
    found = list(continuations.continuations(pianist, places, 1.0, seed=5))
    assert [len(takes) for takes in found] == [TAKES, TAKES]
    alone = pianist.compose(places[1].prompt, seconds=1.0 + CLOSE_SECONDS, seed=5 + TAKES + 2)
    for _ in alone:
        pass
    expected = continuations.new_music(alone, 0, 1.0)
    assert found[1][2].tolist() == expected.tolist()
    assert expected["end"].max() <= 1.0 + 1e-9


def test_ctrl_c_keeps_what_was_composed(
    pianist: Pianist, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose, calls = pianist.compose, []

    def interrupted(*args: object, **options: object) -> object:
        calls.append(args)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return compose(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pianist, "compose", interrupted)
    found = sample(pianist, split, 40, 1.0)
    assert found.interrupted
    assert found.n_samples == 2 * TAKES
    calls[:] = [()] * 2
    with pytest.raises(KeyboardInterrupt):  # nothing was there yet
        sample(pianist, split, 40, 1.0)


@pytest.mark.parametrize(("n", "seconds"), [(7, 1.0), (-1, 1.0), (8, 0.5), (8, math.nan)])
def test_too_few_samples_or_seconds_are_refused(
    pianist: Pianist, split: Split, n: int, seconds: float
) -> None:
    with pytest.raises(InputError, match="it has to be"):
        sample(pianist, split, n, seconds)
