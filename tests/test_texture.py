"""From the second minute on as many notes sound at once as a take likes: its notes do not grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from odd_engines import MadEngine, take_ids

from music_gpt.config.sampling import SamplingConfig
from music_gpt.generation import bias
from music_gpt.generation.bias import TEXTURE_NATS, Texture
from music_gpt.generation.grammar import Ending, Grammar, Start
from music_gpt.notes import Notes
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, VOCAB_SIZE, decode_ids

RELEASE = NOTE_OFF + 60


def held(texture: Texture, seconds: int, *n_notes: int) -> np.ndarray:
    """Let so many notes sound in each take, for whole seconds, then none: the bias before that."""
    for beat in range(max(n_notes)):
        texture.advance(np.array([60 if beat < n else VELOCITY for n in n_notes]))
    for _ in range(seconds):
        texture.advance(np.full(len(n_notes), TIME_SHIFT + 99))
    found = lean_of(texture, len(n_notes))
    for beat in range(max(n_notes)):
        texture.advance(np.array([RELEASE if beat < n else VELOCITY for n in n_notes]))
    return found


def lean_of(texture: Texture, n_takes: int) -> np.ndarray:
    found = np.zeros((n_takes, VOCAB_SIZE))
    texture.lean(found, np.full(n_takes, True))
    return found


def test_in_its_first_minute_a_take_has_the_texture_it_likes() -> None:
    texture = Texture(2)
    assert not held(texture, 20, 1, 9).any()
    assert not held(texture, 30, 9, 1).any()


def test_later_releases_become_likelier_while_more_notes_sound_than_in_that_minute() -> None:
    texture = Texture(3)
    held(texture, 60, 4, 4, 4)
    same, thick, thin = found = held(texture, 120, 4, 9, 1)
    assert abs(same[RELEASE]) < 0.1
    assert thick[RELEASE] == TEXTURE_NATS
    assert thin[RELEASE] == -TEXTURE_NATS
    assert not np.delete(found, np.s_[NOTE_OFF:TIME_SHIFT], axis=1).any()
    assert (lean_of(texture.pick([1]), 1) == lean_of(texture, 3)[1:2]).all()


def test_what_sounds_at_the_seam_counts() -> None:
    silent, chord = (Texture(1, sounding=n) for n in (0, 3))
    for texture in (silent, chord):
        held(texture, 60, 1)
    assert chord._takes[0].own == pytest.approx(silent._takes[0].own + 3)
    assert Grammar(CHORD, Ending.after(100, 60.0), SamplingConfig(), 1)._texture._takes[0].sounding


CHORD = Start(
    context=[VELOCITY + 9, 60, 64, TIME_SHIFT + 99], frame=100, seam=100, onsets={60: 0, 64: 0}
)


def test_near_the_end_the_texture_leans_no_more() -> None:
    texture, found = Texture(1), np.zeros((1, VOCAB_SIZE))
    held(texture, 60, 2)
    assert held(texture, 60, 8).any()
    texture.lean(found, np.array([False]))
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
    monkeypatch.setattr(bias, "TEXTURE_NATS", 0.0)
    left = growth()
    assert kept < 1.4
    assert left > 1.2 * kept
