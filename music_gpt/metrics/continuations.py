"""A pianist and a split -> continuations of its music beside the real ones, and how far they agree.

A piece is cut at a random onset: what comes before is the prompt, what follows is the real passage.
Several takes continue one prompt, side by side; real passages are as many as takes, so they come
from more places. What agrees perfectly is unknown, so twice as many real passages are halved by
piece, and the one half is compared with the other: the ceiling. Halves of fewer would agree less.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from music_gpt.checking import number, whole
from music_gpt.composing.composition import Composition
from music_gpt.composing.pianist import Pianist
from music_gpt.config.sampling import SamplingConfig
from music_gpt.errors import InputError
from music_gpt.metrics.loops import KINDS, LOOP_EVENTS, LOOP_PITCHES, STUCK_SECONDS, looping
from music_gpt.metrics.statistics import Agreement, Statistics, compare, means, statistics
from music_gpt.midi.piece import cut_notes
from music_gpt.notes import Notes
from music_gpt.tokens.corpus import Split
from music_gpt.tokens.events import FRAMES_PER_SECOND, decode_ids
from music_gpt.tokens.originality import CERTAIN_NOTES, TELLING_NOTES, OriginalityIndex, SharedRun

PROMPT_SECONDS = 15.0
TAKES = 4
"""Takes of one prompt, composed side by side."""
CLOSE_SECONDS = 4.0
"""So much more is composed and left out: a take thins out and closes there, which music that goes
on does not."""
FEWEST_SAMPLES, MOST_SAMPLES = 2 * TAKES, 100_000
FEWEST_SECONDS, MOST_SECONDS = 1.0, 3000.0
CEILING_SEED = 1
"""Of the real passages that are only used for the ceiling."""
_HALF_FRAME = 0.5 / FRAMES_PER_SECOND


# --- passages -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passage:
    """A place in a piece: what comes before it, and what follows; times from 0."""

    piece: int
    """Number of the piece in its split."""
    prompt: Notes
    real: Notes


def passages(
    split: Split, n: int, seconds: float, *, seed: int = 0, prompt_seconds: float = PROMPT_SECONDS
) -> list[Passage]:
    """`n` random places, the same for the same seed: each piece once before any comes again.

    What follows lasts `seconds` and begins with an onset; only what is struck in it is in it.

    Raises:
        InputError: no piece is long enough.
    """
    needed = prompt_seconds + seconds + 1.0
    pieces = np.flatnonzero(split.seconds > needed)
    if not len(pieces):
        raise InputError(
            f"No piece of the {split.name} split lasts {needed:.0f} seconds, which a prompt and "
            f"{seconds:g} seconds after it need; ask for fewer seconds."
        )
    rng = np.random.default_rng(seed)
    rounds = [rng.permutation(pieces) for _ in range(math.ceil(n / len(pieces)))]
    return [
        _passage(split, int(piece), seconds, prompt_seconds, rng)
        for piece in np.concatenate(rounds)[:n]
    ]


def _passage(
    split: Split, piece: int, seconds: float, prompt_seconds: float, rng: np.random.Generator
) -> Passage:
    notes = decode_ids(split.piece(piece))
    last = float(split.seconds[piece]) - seconds
    onsets = notes["start"][(notes["start"] >= prompt_seconds) & (notes["start"] <= last)]
    # music without an onset for so long is rare: then wherever it may be
    place = float(rng.choice(onsets) if len(onsets) else (prompt_seconds + last) / 2) - _HALF_FRAME
    after = notes[notes["start"] >= place]
    prompt = cut_notes(notes, place - prompt_seconds, place)
    return Passage(piece, prompt, cut_notes(after, place, place + seconds))


def continuations(
    pianist: Pianist,
    places: Sequence[Passage],
    seconds: float,
    *,
    takes: int = TAKES,
    seed: int = 0,
    sampling: SamplingConfig | None = None,
) -> Iterator[list[Notes]]:
    """For each place its takes, composed: `seconds` of new music each, times from 0.

    Take t of place p is drawn with seed + p * takes + t.
    """
    settings = asdict(sampling or SamplingConfig())
    for place_number, place in enumerate(places):
        composition = pianist.compose(
            place.prompt,
            seconds=seconds + CLOSE_SECONDS,
            seed=seed + place_number * takes,
            variations=takes,
            **settings,
        )
        for _ in composition:
            pass
        yield [new_music(composition, take, seconds) for take in range(takes)]


def new_music(composition: Composition, take: int, seconds: float) -> Notes:
    """The first `seconds` of what was composed, times from 0."""
    seam = composition.seam_seconds
    return cut_notes(composition.new_notes(take), seam, seam + seconds)


# --- how far they agree -------------------------------------------------------------------------


@dataclass(frozen=True)
class SampleReport:
    """What continuations and real passages have in common."""

    seconds: float
    n_prompts: int
    n_samples: int
    real: dict[str, float]
    """Mean of each statistic that is one number, in the real passages."""
    composed: dict[str, float]
    """The same in the continuations."""
    agreement: dict[str, Agreement]
    """Of the continuations with the real passages."""
    ceiling: dict[str, Agreement]
    """Of real passages with others from other pieces, about as many on either side as takes."""
    loops: dict[str, dict[str, float]]
    """Of the `composed` and of the `real` passages, how many repeat themselves: `loops.KINDS`."""
    originality: dict[str, Any]
    """Empty, or what both share with the training pieces."""
    interrupted: bool
    """Whether Ctrl-C ended it; what had been composed counts."""

    @property
    def overlap(self) -> float:
        """The mean over all statistics."""
        return _mean_overlap(self.agreement)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, NaN as None."""
        rows = {
            name: {
                **({"real": self.real[name]} if name in self.real else {}),
                **({"composed": self.composed[name]} if name in self.composed else {}),
                "overlap": found.overlap,
                "overlap_ceiling": self.ceiling[name].overlap,
                "divergence": found.divergence,
                "divergence_floor": self.ceiling[name].divergence,
            }
            for name, found in self.agreement.items()
        }
        return {
            "samples": self.n_samples,
            "prompts": self.n_prompts,
            "seconds": self.seconds,
            "overlap": _plain(self.overlap),
            "overlap_ceiling": _plain(_mean_overlap(self.ceiling)),
            "statistics": {
                name: {key: _plain(value) for key, value in row.items()}
                for name, row in rows.items()
            },
            "loops": self.loops,
            **({"originality": self.originality} if self.originality else {}),
            "interrupted": self.interrupted,
        }

    def table(self) -> str:
        """For people: a line for each statistic; `to_dict` has all."""
        lines = [
            f"{self.n_samples} continuations of {self.n_prompts} prompts, {self.seconds:g} s each, "
            "and real passages; agreement 1 is the same distribution, and the ceiling is how "
            "far as many real passages agree with others, from other pieces",
            f"{'':24}{'real':>9}{'composed':>10}{'agreement':>11}{'ceiling':>9}",
        ]
        for name, found in self.agreement.items():
            lines.append(
                f"{name.replace('_', ' '):24}{_cell(self.real.get(name), 9)}"
                f"{_cell(self.composed.get(name), 10)}"
                f"{_cell(found.overlap, 11)}{_cell(self.ceiling[name].overlap, 9)}"
            )
        ceiling = _mean_overlap(self.ceiling)
        lines.append(f"{'mean':43}{_cell(self.overlap, 11)}{_cell(ceiling, 9)}")
        return "\n".join([*lines, *self._loop_lines(), *self._originality_lines()])

    def _loop_lines(self) -> Iterator[str]:
        told = (
            f"repeat {LOOP_EVENTS} events or more at once",
            f"repeat {LOOP_PITCHES} pitches or more at once",
            f"are stuck in a figure for {STUCK_SECONDS:g} seconds",
        )
        for kind, what in zip(KINDS, told, strict=True):
            mine, theirs = (self.loops[whose][kind] for whose in ("composed", "real"))
            yield f"{mine:.1%} of the continuations {what}, {theirs:.1%} of the real passages."

    def _originality_lines(self) -> Iterator[str]:
        for whose, label in (("composed", "continuations"), ("real", "real passages")):
            if found := self.originality.get(whose):
                usual, telling = (found[f"share_{n}"] for n in (CERTAIN_NOTES, TELLING_NOTES))
                source = f", with {found['longest_source']}" if found["longest_source"] else ""
                yield (
                    f"{usual:.1%} of the {label} share {CERTAIN_NOTES} different notes in a row or "
                    f"more with the training music, {telling:.1%} {TELLING_NOTES} or more, and the "
                    f"longest run has {found['longest_notes']}{source}."
                )


def sample(
    pianist: Pianist,
    split: Split,
    n: int,
    seconds: float = 30.0,
    *,
    index: OriginalityIndex | None = None,
    sampling: SamplingConfig | None = None,
    progress: bool = False,
) -> SampleReport:
    """Compose `n` continuations of random prompts of `split`, and compare them with its music.

    Everything is drawn with fixed seeds, so the same checkpoint and settings give the same report.
    Ctrl-C ends it early, with the continuations that are there.

    Args:
        pianist: composes.
        split: where prompts and real passages come from.
        n: continuations, from 8 up; 200 tell something.
        seconds: of music in each.
        index: of the training pieces, to tell originality.
        sampling: how events are drawn.
        progress: show a bar.

    Raises:
        InputError: `n` or `seconds` is out of range, or no piece is long enough.
    """
    require_samples(split, n, seconds)
    real = passages(split, n, seconds)
    prompts, more = real[::TAKES], passages(split, n, seconds, seed=CEILING_SEED)
    composed, interrupted = list[Notes](), False
    bar = tqdm(total=n, desc="compose", unit="take", file=sys.stderr, disable=not progress)
    try:
        with bar:
            for takes in continuations(pianist, prompts, seconds, sampling=sampling):
                composed += takes[: n - len(composed)]
                bar.update(len(takes))
    except KeyboardInterrupt:
        interrupted = True
        if len(composed) < FEWEST_SAMPLES:
            raise
    return report(real, composed, seconds, more=more, index=index, interrupted=interrupted)


def require_samples(split: Split, n: int, seconds: float) -> None:
    """Raise `InputError` unless so many continuations of this length can be compared with it."""
    whole("samples", n, FEWEST_SAMPLES, MOST_SAMPLES)
    number("sample_seconds", seconds, FEWEST_SECONDS, MOST_SECONDS)
    passages(split, 1, seconds)


def report(
    real: Sequence[Passage],
    composed: Sequence[Notes],
    seconds: float,
    *,
    more: Sequence[Passage],
    index: OriginalityIndex | None = None,
    interrupted: bool = False,
) -> SampleReport:
    """Compare continuations, `TAKES` of a prompt, with real passages of the same length.

    more: other real passages, which are only used for the ceiling.
    """
    of_real, of_more = (
        [statistics(place.real, seconds) for place in places] for places in (real, more)
    )
    of_composed, n = [statistics(notes, seconds) for notes in composed], len(composed)
    return SampleReport(
        seconds=seconds,
        n_prompts=math.ceil(n / TAKES),
        n_samples=n,
        real=means(of_real),
        composed=means(of_composed),
        agreement=compare(of_real, of_composed),
        ceiling=compare(*_halves([*real[:n], *more[:n]], [*of_real[:n], *of_more[:n]])),
        loops={"composed": _loop_rates(composed), "real": _loop_rates([p.real for p in real])},
        originality={} if index is None else _originality(index, real, composed),
        interrupted=interrupted,
    )


def _loop_rates(music: Sequence[Notes]) -> dict[str, float]:
    rates = np.mean([looping(notes) for notes in music], axis=0)
    return {kind: round(float(rate), 4) for kind, rate in zip(KINDS, rates, strict=True)}


def _halves(
    real: Sequence[Passage], of_real: Sequence[Statistics]
) -> tuple[list[Statistics], list[Statistics]]:
    """The real passages in two parts that share no piece, unless there is only one."""
    pieces = list(dict.fromkeys(place.piece for place in real))
    first = set(pieces[::2])
    if len(pieces) == 1:
        return list(of_real[::2]), list(of_real[1::2])
    parts: tuple[list[Statistics], list[Statistics]] = [], []
    for place, found in zip(real, of_real, strict=True):
        parts[place.piece not in first].append(found)
    return parts


def _originality(
    index: OriginalityIndex, real: Sequence[Passage], composed: Sequence[Notes]
) -> dict[str, Any]:
    """How many share long runs with the training pieces, and the longest."""
    runs = {
        "composed": [index.longest_run(notes) for notes in composed],
        "real": [index.longest_run(place.real) for place in real],
    }
    told = {whose: _longest_runs(found) for whose, found in runs.items()}
    return {"exact": index.training is not None, **told}


def _longest_runs(runs: Sequence[SharedRun | None]) -> dict[str, Any]:
    lengths = [0 if run is None else run.different_notes for run in runs]
    longest = runs[int(np.argmax(lengths))]
    return {
        **{
            f"share_{least}": round(float(np.mean([n >= least for n in lengths])), 4)
            for least in (CERTAIN_NOTES, TELLING_NOTES)
        },
        "mean_notes": round(float(np.mean(lengths)), 2),
        "longest_notes": max(lengths),
        "longest_source": None if longest is None else longest.source,
    }


def _mean_overlap(found: dict[str, Agreement]) -> float:
    return float(np.nanmean([agreement.overlap for agreement in found.values()]))


def _plain(number: float) -> float | None:
    return round(number, 4) if math.isfinite(number) else None


def _cell(number: float | None, width: int) -> str:
    return " " * width if number is None else f"{number:{width}.2f}"
