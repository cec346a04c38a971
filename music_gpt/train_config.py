"""A YAML file and a tokens folder -> a trained and measured model, within so many minutes.

    python -m music_gpt.train_config configs/maestro.yaml --tokens TOKENS --out OUT --max-minutes 9

The way to train on a bare machine: it needs torch, Lightning (which brings PyYAML and tqdm), numpy
and safetensors, but neither MIDI libraries nor the parser of `music-gpt`. The minutes are those of
the whole program: reading, compiling, training, and scoring the validation and test splits. A knob
is changed as with `music-gpt train`: --train.devices 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from music_gpt.config.training import RunConfig
from music_gpt.errors import InputError
from music_gpt.files import whole_file
from music_gpt.printable import shown
from music_gpt.process import exit_code, interrupted, print_out
from music_gpt.settings import SECTIONS, read_settings, read_yaml, run_config

if TYPE_CHECKING:  # torch takes seconds
    from music_gpt.metrics.likelihood import Likelihood
    from music_gpt.tokens.corpus import Split

EVALUATION_SHARE = 0.08
"""Of all minutes, those kept for scoring; if they are too few, a part of each split is scored."""
TRIAL_TOKENS = 16_384
"""Tokens that are scored to see how quickly it goes, once a first window lets them be hoped for."""
USED_SHARE = 0.8
"""Of the time that is left, as much as the scoring is planned to take: speeds vary."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run with these words (default: those of the process); returns the exit code."""
    began = time.monotonic()

    def work() -> None:
        result = run(_arguments(argv), began)
        if result:  # of several processes the first one speaks
            print_out(json.dumps(result, indent=1) + "\n")

    return exit_code(work)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m music_gpt.train_config", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("config", type=Path, help="YAML file; see configs/")
    parser.add_argument("--tokens", type=Path, required=True, help="tokens folder")
    parser.add_argument("--out", type=Path, required=True, help="folder of this run")
    parser.add_argument("--max-minutes", type=float, help="minutes for all; default: the file's")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--init-from", type=Path, help="checkpoint to start from")
    known, rest = parser.parse_known_args(argv)
    known.knobs = dict(zip(rest[::2], rest[1::2], strict=False))
    if len(rest) % 2 or not all(name.startswith("--") and "." in name for name in known.knobs):
        parser.error(f"not understood: {' '.join(rest)}; a knob is as --train.devices 2")
    return known


def read_config(file: Path, knobs: dict[str, str], max_minutes: float | None = None) -> RunConfig:
    """The run in a YAML file, with knobs as {"--model.n_layers": "2"} changed."""
    settings = read_settings(file, set())
    for flag, value in knobs.items():
        section, name = flag.removeprefix("--").split(".", 1)
        known = (
            {f.name for f in dataclasses.fields(SECTIONS[section])} if section in SECTIONS else ()
        )
        if name not in known:
            raise InputError(
                f"There is no setting {flag}; the settings are those in {shown(file.parent)}."
            )
        settings.setdefault(section, {})[name] = read_yaml(flag, value)
    if max_minutes is not None:
        settings.setdefault("train", {})["max_minutes"] = max_minutes
    return run_config(settings)


def run(args: argparse.Namespace, began: float) -> dict[str, Any]:
    """Train, score, write evaluation.json; returns what that holds, on other ranks than 0 nothing.

    began: when the minutes began to count, on the monotonic clock.
    """
    config = read_config(args.config, args.knobs, args.max_minutes)
    minutes = config.train.max_minutes
    # takes seconds: after what may be refused
    from music_gpt.training.run_folder import EVALUATION
    from music_gpt.training_samples import train_and_listen

    result = train_and_listen(
        args.tokens,
        args.out,
        for_training(config),
        resume=args.resume,
        finished_too=not (args.out / EVALUATION).exists(),  # it may have ended while it was scored
        began=began,
        init_from=args.init_from,
    )
    if not result:
        return {}
    if result["stopped_by"]:  # also where only the scoring is left
        told = f"Stopped after {result['steps']:,} steps; --resume goes on."
        raise interrupted(result["stopped_by"], told)
    until = began + 60 * minutes if minutes else math.inf
    result |= {"evaluation": evaluate(args.tokens, Path(result["checkpoint"]), config, until)}
    # of a run that went on, what came before has only its training counted
    result["minutes_in_all"] = max(result["minutes"], round((time.monotonic() - began) / 60, 2))
    with whole_file(args.out / EVALUATION) as beside:
        beside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def for_training(config: RunConfig) -> RunConfig:
    """The run with the minutes that are for training and all that comes before it.

    Only what is fixed by the settings bounds it, so a run that is resumed is finished when it was.
    """
    minutes = config.train.max_minutes * (1 - EVALUATION_SHARE)
    settings = dataclasses.replace(config.train, max_minutes=minutes)
    return dataclasses.replace(config, train=settings)


def evaluate(
    tokens: Path, checkpoint: Path, config: RunConfig, until: float
) -> dict[str, dict[str, Any]]:
    """The likelihood of the validation and test splits under a checkpoint.

    Where the time up to `until` (monotonic seconds) is too short for all tokens, as many are scored
    as it is enough for, spread evenly over the split; `tokens` tells how many.
    """
    from music_gpt.metrics.likelihood import likelihood
    from music_gpt.network.checkpoint import load_checkpoint
    from music_gpt.network.model import resolve_device, use_bf16
    from music_gpt.tokens.corpus import Corpus

    device = resolve_device(config.train.device)
    corpus, model = Corpus.open(tokens), load_checkpoint(checkpoint)[0].to(device)
    how: dict[str, Any] = {
        "bf16": use_bf16(config.train.precision, device),
        "batch_size": config.data.batch_size,
    }
    scorable = (name for name in ("validation", "test") if name in corpus.splits)
    names = [name for name in scorable if corpus.split(name).n_targets]
    found: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(names):

        def scored(split: Split, max_tokens: int) -> Likelihood:
            return likelihood(model, split, max_tokens=max_tokens, **how)

        found[name] = _in_time(scored, corpus.split(name), until, 1 / (len(names) - i)).to_dict()
    return found


def _in_time(
    scored: Callable[[Split, int], Likelihood], split: Split, until: float, share: float
) -> Likelihood:
    """What `scored(split, max_tokens)` gives of as much as this share of the time is enough for.

    A window gives a first idea of the speed, a trial a better one, where there is time for it.
    """
    affordable = 1.0
    for most in (1, TRIAL_TOKENS, split.n_targets):
        n_tokens = int(min(affordable, most))
        start = time.monotonic()
        found = scored(split, n_tokens if n_tokens < split.n_targets else 0)  # 0: all of them
        now = time.monotonic()
        affordable = found.n_tokens / (now - start) * USED_SHARE * share * (until - now)
        if found.n_tokens >= min(affordable, split.n_targets):
            break
    return found


if __name__ == "__main__":
    sys.exit(main())
