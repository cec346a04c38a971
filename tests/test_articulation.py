"""From the second minute on notes sound as long as a take likes: they do not grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from odd_engines import MadEngine, take_ids

from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation import drift
from music_gpt.generation.drift import LENGTH_NATS, Articulation
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.notes import Notes
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, VOCAB_SIZE, decode_ids

RELEASE = NOTE_OFF + 60


def played(articulation: Articulation, seconds: int, *tenths: int) -> np.ndarray:
    """Strike a note each second that sounds for so many tenths, in each take: the bias after it."""
    for _ in range(seconds):
        articulation.advance(np.full(len(tenths), 60))
        for tenth in range(10):
            ends = np.array([tenth == length for length in tenths])
            articulation.advance(np.where(ends, RELEASE, VELOCITY))
            articulation.advance(np.full(len(tenths), TIME_SHIFT + 9))
    return lean_of(articulation, len(tenths))


def lean_of(articulation: Articulation, n_takes: int) -> np.ndarray:
    found = np.zeros((n_takes, VOCAB_SIZE))
    articulation.lean(found, np.full(n_takes, True))
    return found


def test_in_its_first_minute_a_take_has_the_articulation_it_likes() -> None:
    articulation = Articulation(2)
    assert not played(articulation, 30, 2, 9).any()
    assert not played(articulation, 29, 9, 2).any()


def test_later_releases_become_likelier_while_notes_are_longer_than_in_that_minute() -> None:
    articulation = Articulation(3)
    played(articulation, 61, 4, 4, 4)
    same, longer, shorter = found = played(articulation, 120, 4, 9, 1)
    assert abs(same[RELEASE]) < 0.1
    assert longer[RELEASE] == LENGTH_NATS
    assert shorter[RELEASE] == pytest.approx(-LENGTH_NATS)
    assert not np.delete(found, np.s_[NOTE_OFF:TIME_SHIFT], axis=1).any()
    assert (lean_of(articulation.pick([1]), 1) == lean_of(articulation, 3)[1:2]).all()


def test_notes_that_are_as_long_but_fewer_are_let_be() -> None:
    articulation = Articulation(1)
    played(articulation, 61, 4)
    for _ in range(120):
        played(articulation, 1, 4)
        articulation.advance(np.array([TIME_SHIFT + 99]))
    assert np.abs(lean_of(articulation, 1)).max() < 0.1


def test_what_sounds_at_the_seam_counts() -> None:
    """Two notes of the prompt are held through the first minute and end with it."""
    held, without = Articulation(1, sounding=2), Articulation(1)
    for articulation in (held, without):
        played(articulation, 61, 4)
    for pitch in (64, 67):
        held.advance(np.array([NOTE_OFF + pitch]))
    for articulation in (held, without):
        played(articulation, 120, 4)
    assert abs(lean_of(without, 1)[0, RELEASE]) < 0.1
    assert lean_of(held, 1)[0, RELEASE] == pytest.approx(-LENGTH_NATS)  # a fifth as long, now


def test_a_grammar_hands_on_what_sounds_at_the_seam() -> None:
    chord = Start(
        context=[VELOCITY + 9, 60, 64, TIME_SHIFT + 99], frame=100, seam=100, onsets={60: 0, 64: 0}
    )
    grammar = Grammar(chord, Ending.after(100, 600.0), SamplingConfig(), 1)
    beside = Articulation(1, sounding=2)
    for _ in range(61):  # two notes are held, and a third comes each second
        for id_ in (72, TIME_SHIFT + 49, NOTE_OFF + 72, TIME_SHIFT + 49):
            grammar.advance(np.array([id_]))
            beside.advance(np.array([id_]))
    for pitch in (60, 64):
        grammar.advance(np.array([NOTE_OFF + pitch]))
        beside.advance(np.array([NOTE_OFF + pitch]))
    for _ in range(30):
        for id_ in (72, TIME_SHIFT + 49, NOTE_OFF + 72, TIME_SHIFT + 49):
            grammar.advance(np.array([id_]))
            beside.advance(np.array([id_]))
    lean = lean_of(beside, 1)[0, RELEASE]
    assert lean < -0.5
    assert grammar.bias()[0, RELEASE] == lean


@pytest.mark.parametrize("n_notes", [0, 5])
def test_a_first_minute_of_few_notes_sets_no_length(n_notes: int) -> None:
    articulation = Articulation(1)
    played(articulation, n_notes, 4)
    for _ in range(61 - n_notes):
        articulation.advance(np.array([TIME_SHIFT + 99]))
    assert not played(articulation, 120, 9).any()


def test_a_few_notes_tell_nothing_of_how_long_they_are() -> None:
    """As long as those of the first minute, but one in ten seconds: some only just struck."""
    articulation, found = Articulation(1), []
    played(articulation, 61, 4)
    for _ in range(20):
        articulation.advance(np.array([60]))
        found.append(lean_of(articulation, 1)[0, RELEASE])
        for id_ in (TIME_SHIFT + 39, RELEASE, *[TIME_SHIFT + 99] * 9, TIME_SHIFT + 59):
            articulation.advance(np.array([id_]))
            found.append(lean_of(articulation, 1)[0, RELEASE])
    assert np.abs(found[len(found) // 2 :]).max() == 0.0
    assert np.abs(found).max() < 0.6


def test_near_the_end_the_articulation_leans_no_more() -> None:
    articulation, found = Articulation(1), np.zeros((1, VOCAB_SIZE))
    played(articulation, 61, 2)
    assert played(articulation, 60, 8).any()
    articulation.lean(found, np.array([False]))
    assert not found.any()


class LingeringEngine(MadEngine):
    """A network that lets go the less, the more it has struck: left to itself its notes grow."""

    context = 4096

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        logits = super().logits(ids)
        logits[TIME_SHIFT:VELOCITY] = 4.0 - np.abs(np.log(np.arange(1, 101) / 20)) * 4
        logits[NOTE_OFF:TIME_SHIFT] += 4.0 - len(ids) / 1200
        logits[EOS] = -20.0
        return logits


def sounding(takes: list[Notes], first: float, last: float) -> float:
    """Notes that sound at once, in the mean between two times."""
    lengths = [np.clip(t["end"], first, last) - np.clip(t["start"], first, last) for t in takes]
    return float(np.mean([length.sum() for length in lengths])) / (last - first)


def test_a_network_whose_notes_grow_is_kept_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = SamplingConfig(temperature=1.0, min_p=0.0)

    def growth() -> float:
        ids = take_ids(LingeringEngine(spread=1.0), 180.0, (1, 2), sampling)
        takes = [decode_ids(one) for one in ids]
        return sounding(takes, 120, 170) / sounding(takes, 10, 60)

    kept = growth()
    monkeypatch.setattr(drift, "LENGTH_NATS", 0.0)
    left = growth()
    assert kept < 1.4
    assert left > 1.2 * kept
