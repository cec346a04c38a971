"""Logits of what may follow -> one event for each take: temperatures, filters, the draw.

The letters in the shape comments: B takes side by side, V events in the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from music_gpt.arrays import Floats, Ints, Mask
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.tokens.events import EOS, NOTE_OFF, NOTE_ON, TIME_SHIFT, VELOCITY

Logits = npt.NDArray[np.float32]

NEAR_TIE = 1e-4
"""Logits that lie closer may be in another order in another engine or batch, whose float32 sums
run in another order (measured: 4e-6 apart); then the whole window is computed once more."""


def two_stage(logits: Floats, sampling: SamplingConfig) -> Floats:
    """Log probabilities (B, V) where some kinds of event have a temperature of their own.

    The kind is drawn at `temperature`, and the event within its kind at the temperature of that:
    P(event) = P(kind) P(event | kind), where P(kind) is what softmax(logits / temperature) gives to
    all its events together, and P(event | kind) is the softmax of their logits over their own
    temperature. Kinds are onsets (pitch_temperature), waits (time_temperature), velocities
    (velocity_temperature), and the rest, which keeps `temperature`. Filters come after it.

    >>> sampling = SamplingConfig(temperature=1.0, pitch_temperature=0.5)
    >>> three = np.full((1, 390), -np.inf)
    >>> three[0, [60, 64, 256]] = np.log([1, 2, 3])  # two pitches, and a wait
    >>> np.exp(two_stage(three, sampling)[0, [60, 64, 256]]).round(3)  # 1 : 4, and half for both
    array([0.1, 0.4, 0.5])
    """
    heat = sampling.temperature
    with np.errstate(over="ignore"):
        found: Floats = _log_softmax(logits / heat)
        for first, end, own in _own_temperatures(sampling):
            rows = np.flatnonzero(np.isfinite(logits[:, first:end].max(1)))
            total = _log_sum(found[rows, first:end])  # of the kind, (rows, 1)
            found[rows, first:end] = total + _log_softmax(logits[rows, first:end] / own)
    return found


def _own_temperatures(sampling: SamplingConfig) -> list[tuple[int, int, float]]:
    """First id of a kind, the id after its last, and its own temperature, where it has one.

    At temperature 0 none has: the likeliest event is taken.
    """
    if sampling.temperature == 0:
        return []
    owns = (
        (NOTE_ON, NOTE_OFF, sampling.pitch_temperature),
        (TIME_SHIFT, VELOCITY, sampling.time_temperature),
        (VELOCITY, EOS, sampling.velocity_temperature),
    )
    return [kind for kind in owns if kind[2] not in (0, sampling.temperature)]


def _of_one_temperature(logits: Floats, sampling: SamplingConfig) -> tuple[Floats, SamplingConfig]:
    """Logits (B, V) that are drawn at one temperature as these are at several, and how."""
    if not _own_temperatures(sampling):
        return logits, sampling
    return two_stage(logits, sampling), replace(sampling, temperature=1.0)


def _log_sum(logits: Floats) -> Floats:
    highest = logits.max(1, keepdims=True)
    total: Floats = highest + np.log(np.exp(logits - highest).sum(1, keepdims=True))
    return total


def _log_softmax(logits: Floats) -> Floats:
    return logits - _log_sum(logits)


def survivors(logits: Floats, sampling: SamplingConfig) -> tuple[Floats, Floats]:
    """What min-p, then top-k, then top-p leave of `logits` (B, V), in two bounds, each (B).

    All logits from the first bound up may be drawn. The second is the greatest value that is left
    out: rounding could move an event that is so close to it across. It is infinite where the
    probabilities themselves come too close to top_p.

    >>> quarter, half = math.log(0.25), math.log(0.5)
    >>> sampling = SamplingConfig(1.0, top_p=0.4, min_p=0.0)
    >>> lowest, border = survivors(np.array([[quarter, half, quarter]]), sampling)
    >>> lowest == half, border == quarter
    (array([ True]), array([ True]))
    """
    lowest = border = np.full(len(logits), -np.inf)
    if sampling.temperature == 0:  # the likeliest event is left by every filter
        return lowest, border
    if sampling.min_p > 0:
        lowest = border = logits.max(1) + sampling.temperature * math.log(sampling.min_p)
    if 0 < sampling.top_k < logits.shape[1]:
        kth = logits.shape[1] - sampling.top_k
        ordered = np.partition(logits, (kth - 1, kth), axis=1)
        lowest = np.maximum(lowest, ordered[:, kth])
        border = np.maximum(border, ordered[:, kth - 1])
    if sampling.top_p < 1:
        last, following = _nucleus(logits, lowest, sampling)
        lowest, border = np.maximum(lowest, last), np.maximum(border, following)
    return lowest, border


def _nucleus(logits: Floats, lowest: Floats, sampling: SamplingConfig) -> tuple[Floats, Floats]:
    """The least logit (B) of the likeliest events that hold top_p, and the one that follows it."""
    ordered = -np.sort(-logits, axis=1)  # (B, V)
    with np.errstate(over="ignore"):
        weights = np.exp((ordered - ordered[:, :1]) / sampling.temperature)
    weights[ordered < lowest[:, None]] = 0.0
    weights /= weights.sum(1, keepdims=True)
    before = np.cumsum(weights, axis=1) - weights
    n_inside = ((before < sampling.top_p) & (weights > 0)).sum(1)  # at least the first
    in_doubt = (np.abs(before - sampling.top_p) < NEAR_TIE / 10) & (weights > NEAR_TIE / 10)
    rows = np.arange(len(ordered))
    following = ordered[rows, np.minimum(n_inside, ordered.shape[1] - 1)]
    return ordered[rows, n_inside - 1], np.where(in_doubt.any(1), np.inf, following)


def draw(logits: Floats, sampling: SamplingConfig, noise: Floats) -> tuple[Ints, Mask]:
    """One event for each take, and whether logits that differ by `NEAR_TIE` would give it as well.

    logits: (B, V), -inf for what is not allowed. noise: (B, V), drawn from Gumbel's distribution:
    the largest of logits + temperature * noise is a sample of softmax(logits / temperature), and at
    temperature 0 it is the likeliest event. Raises `InputError` if the network gives no numbers.
    """
    if not all(map(math.isfinite, logits.max(1).tolist())):
        raise InputError(
            "The network gives no numbers for what comes next; its checkpoint is damaged, so use "
            "another one."
        )
    near = NEAR_TIE
    if owns := _own_temperatures(sampling):
        near /= min(sampling.temperature, *(own for *_, own in owns))
    logits, sampling = _of_one_temperature(logits, sampling)
    lowest, border = survivors(logits, sampling)
    scores = logits + sampling.temperature * noise
    scores[logits < lowest[:, None] - near] = -np.inf  # leaves what rounding could let through
    rows, ids = np.arange(len(scores)), scores.argmax(1)
    drawn = logits[rows, ids]
    if (drawn < lowest).any():  # only rounding could have let it through
        ids = np.where(logits < lowest[:, None], -np.inf, scores).argmax(1)
        drawn = logits[rows, ids]
    best = scores[rows, ids]
    scores[rows, ids] = -np.inf
    sure = (best - scores.max(1) > near) & (drawn - border > near)
    return ids, sure


def probabilities(logits: Floats, sampling: SamplingConfig) -> Floats:
    """How likely `draw` is to take each event, (B, V), with `logits` (B, V) as it has them.

    >>> sampling = SamplingConfig(temperature=1.0, min_p=0.5)
    >>> probabilities(np.log([[3.0, 3.0, 1.0]]), sampling).round(3)
    array([[0.5, 0.5, 0. ]])
    """
    if sampling.temperature == 0:
        likeliest: Floats = np.eye(logits.shape[1])[logits.argmax(1)]
        return likeliest
    logits, sampling = _of_one_temperature(logits, sampling)
    lowest, _ = survivors(logits, sampling)
    kept = np.where(logits < lowest[:, None], -np.inf, logits)
    return np.exp(_log_softmax(kept / sampling.temperature))


def surprise(logits: Logits, ids: Ints) -> Floats:
    """Nats (B) by which a network with these logits (B, V) is surprised by `ids` (B).

    >>> surprise(np.zeros((1, 4), np.float32), np.array([2])) == np.log([4.0])
    array([ True])
    """
    exact = logits.astype(np.float64)
    nats: Floats = _log_sum(exact)[:, 0] - exact[np.arange(len(ids)), ids]
    return nats
