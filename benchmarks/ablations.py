"""A tokens folder comes in -> a table of what each choice of the recipe is worth goes out.

    python benchmarks/ablations.py TOKENS --out runs/ablations [--only NAME ...] [--steps N]

Every row is one training of the same small network (4 blocks, 256/1024, context 512) on as many
tokens, with one thing changed against the first row; what counts is the likelihood of the
validation split in windows of 512. A row that was interrupted goes on where it was, a row that is
done is not trained again, so the table can be filled over many evenings. One thread, because on a
shared machine two are slower than one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import music_gpt.tokens.data
import music_gpt.training.optimizer
from music_gpt.arrays import Ids
from music_gpt.config.model import ModelConfig
from music_gpt.config.training import DataConfig, OptimConfig, RunConfig, TrainConfig
from music_gpt.files import whole_file
from music_gpt.training.run import train
from music_gpt.training.run_folder import LAST

PARTS = ("model", "data", "optim", "train")
STEPS = 800
"""Steps of 8 crops of 512 tokens: 3.3 M tokens."""


@dataclass(frozen=True)
class Row:
    """One training of the table: what is changed against the base."""

    name: str
    what: str
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    optim: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    velocity_head: bool = True
    qkv_apart: bool = True
    base: str = ""
    """The row that it is compared with; empty for the first, or that of the same seed."""

    @property
    def flags(self) -> str:
        """The changes against the base, as flags of `music-gpt train`."""
        parts = {part: getattr(self, part) for part in PARTS}
        flags = [
            f"--{p}.{k} {str(v).lower()}" for p, knobs in parts.items() for k, v in knobs.items()
        ]
        only_here = not (self.velocity_head and self.qkv_apart)
        return " ".join([*flags, "(only in this script)"] if only_here else flags)


PLAIN = {"stretch": 0.0, "velocity_bins": 0}

ROWS = [
    Row("base", "the recipe: the defaults, and short passages for half of the run"),
    Row("seed-2", "another seed: what chance is worth", train={"seed": 2}),
    Row("transposition", "transposition only", data=PLAIN),
    Row("no-augmentation", "no augmentation", data=PLAIN | {"transpose": 0}),
    Row("warmup-0.2", "short passages for a fifth of the run only", data={"context_warmup": 0.2}),
    Row("whole-context", "the whole context from the first step", data={"first_context": 0}),
    Row("gpt2-spread", "matrices begin with GPT-2's spread, 0.02", model={"init_std": 0.02}),
    Row("no-qk-norm", "queries and keys as they are", model={"qk_norm": False}),
    Row("adamw", "AdamW on everything, 2e-3", optim={"optimizer": "adamw"}),
    Row("adamw-1e-3", "the same, 1e-3", optim={"optimizer": "adamw", "adamw_lr": 1e-3}),
    Row("learned", "learned absolute positions", model={"positions": "learned"}),
    Row("relu", "ReLU", model={"activation": "relu"}),
    Row("kv-1", "one key/value head for four query heads", model={"n_kv_heads": 1}),
    Row("ema", "moving average of the weights, 0.99", optim={"ema": 0.99}),
    Row("plain-crops", "crops without the velocity in force at their head", velocity_head=False),
    Row("no-zero-init", "output projections not started at zero", model={"zero_init": False}),
    Row("muon-0.01", "half the learning rate of Muon", optim={"muon_lr": 0.01}),
    Row("muon-0.03", "one and a half times the learning rate of Muon", optim={"muon_lr": 0.03}),
    Row("no-bias", "no biases", model={"bias": False}),
    Row("kv-1-seed-2", "one key/value head, seed 2", model={"n_kv_heads": 1}, train={"seed": 2}),
    Row("no-qk-norm-seed-2", "no QK-norm, seed 2", model={"qk_norm": False}, train={"seed": 2}),
    Row("ema-seed-2", "moving average, seed 2", optim={"ema": 0.99}, train={"seed": 2}),
    Row("plain-crops-seed-2", "plain crops, seed 2", train={"seed": 2}, velocity_head=False),
]


def on_top_of(base: Row, name: str, what: str, **changes: Any) -> Row:
    """A row that changes another row of the script, not the base."""
    knobs = {part: {**getattr(base, part), **changes.get(part, {})} for part in PARTS}
    flags = {name: value for name, value in changes.items() if name not in PARTS}
    return dataclasses.replace(base, name=name, what=what, base=base.name, **knobs, **flags)


EARLY = Row(
    "early",
    "GPT-2's spread, the whole context at once, Muon on queries, keys and values as one matrix",
    model={"qk_norm": False, "init_std": 0.02},
    data={"first_context": 0},
    qkv_apart=False,
)
AS_ONE = Row(
    "qkv-as-one",
    "no QK-norm, and Muon takes queries, keys and values as one matrix",
    model={"qk_norm": False},
    qkv_apart=False,
)
ONE_SECOND = on_top_of(AS_ONE, "one-seed-2", "another seed", train={"seed": 2})
ADAMW_8E3 = {"adamw_lr": 8e-3}
ROWS += [
    EARLY,
    on_top_of(EARLY, "early-kv-1", "one key/value head", model={"n_kv_heads": 1}),
    on_top_of(EARLY, "early-qk-norm", "QK-norm", model={"qk_norm": True}),
    on_top_of(EARLY, "early-adamw-8e-3", "AdamW's part at 8e-3", optim=ADAMW_8E3),
    on_top_of(EARLY, "early-spread", "a spread of 0.06", model={"init_std": 0.06}),
    on_top_of(
        EARLY,
        "early-spread-8e-3",
        "the same, and AdamW's part at 8e-3",
        model={"init_std": 0.06},
        optim=ADAMW_8E3,
    ),
    on_top_of(
        EARLY,
        "early-short",
        "the same spread, and short passages first",
        model={"init_std": 0.06},
        data={"first_context": 64},
    ),
    AS_ONE,
    on_top_of(AS_ONE, "one-transposition", "transposition only", data=PLAIN),
    on_top_of(AS_ONE, "one-no-augmentation", "no augmentation", data=PLAIN | {"transpose": 0}),
    on_top_of(AS_ONE, "one-relu", "ReLU", model={"activation": "relu"}),
    on_top_of(AS_ONE, "one-learned", "learned absolute positions", model={"positions": "learned"}),
    on_top_of(AS_ONE, "one-adamw", "AdamW on everything, 2e-3", optim={"optimizer": "adamw"}),
    on_top_of(
        AS_ONE,
        "one-adamw-1e-3",
        "the same, 1e-3",
        optim={"optimizer": "adamw", "adamw_lr": 1e-3},
    ),
    on_top_of(AS_ONE, "one-ema", "a moving average of the weights, 0.99", optim={"ema": 0.99}),
    on_top_of(AS_ONE, "one-plain-crops", "no velocity at the head of crops", velocity_head=False),
    on_top_of(AS_ONE, "one-kv-1", "one key/value head", model={"n_kv_heads": 1}),
    on_top_of(AS_ONE, "one-qk-norm", "QK-norm", model={"qk_norm": True}),
    Row(
        "kv-1-no-qk-norm",
        "one key/value head, no QK-norm",
        model={"n_kv_heads": 1, "qk_norm": False},
    ),
    ONE_SECOND,
    on_top_of(ONE_SECOND, "one-transposition-seed-2", "transposition only, seed 2", data=PLAIN),
    on_top_of(
        ONE_SECOND,
        "one-no-augmentation-seed-2",
        "no augmentation, seed 2",
        data=PLAIN | {"transpose": 0},
    ),
    on_top_of(ONE_SECOND, "one-relu-seed-2", "ReLU, seed 2", model={"activation": "relu"}),
    on_top_of(ONE_SECOND, "one-ema-seed-2", "moving average, seed 2", optim={"ema": 0.99}),
    on_top_of(ONE_SECOND, "one-plain-crops-seed-2", "plain crops, seed 2", velocity_head=False),
    on_top_of(ONE_SECOND, "one-kv-1-seed-2", "one key/value head, seed 2", model={"n_kv_heads": 1}),
    Row(
        "kv-1-no-qk-norm-seed-2",
        "one key/value head, no QK-norm, seed 2",
        model={"n_kv_heads": 1, "qk_norm": False},
        train={"seed": 2},
    ),
]
"""The rows of `docs/ablations.md` beside those of the recipe as it is now."""


def config_of(row: Row, steps: int) -> RunConfig:
    """The whole configuration of a row."""
    shape = {"n_layers": 4, "d_model": 256, "d_ff": 1024, "n_heads": 4, "n_kv_heads": 4}
    model = ModelConfig(**shape, context=512)
    training = TrainConfig(
        max_steps=steps,
        validate_every_steps=steps,
        validate_tokens=524_288,
        save_every_minutes=2,
        device="cpu",
    )
    return RunConfig(
        dataclasses.replace(model, **row.model),
        dataclasses.replace(DataConfig(batch_size=8, first_context=64), **row.data),
        dataclasses.replace(OptimConfig(), **row.optim),
        dataclasses.replace(training, **row.train),
    )


def cut_plain_crop(piece: Ids, start: int, n_tokens: int) -> Ids:
    """A crop as it stands in the piece: its first notes have no velocity until one is told."""
    return np.array(piece[start : start + n_tokens])


@contextmanager
def put_in_place(row: Row) -> Iterator[None]:
    """Put plain crops, or plain matrices for Muon, in the place of the real ones where a row asks.

    Neither is a knob: nobody wants them.
    """
    crop, rows = music_gpt.tokens.data.cut_crop, music_gpt.training.optimizer.rows_of_qkv
    if not row.velocity_head:
        music_gpt.tokens.data.cut_crop = cut_plain_crop
    if not row.qkv_apart:
        music_gpt.training.optimizer.rows_of_qkv = lambda _: {}
    try:
        yield
    finally:
        music_gpt.tokens.data.cut_crop = crop
        music_gpt.training.optimizer.rows_of_qkv = rows


def measure(row: Row, tokens: Path, out: Path, steps: int) -> dict[str, Any]:
    """Train a row to its end, or read what it gave."""
    run = out / row.name
    done = run / "result.json"
    if done.exists():
        kept: dict[str, Any] = json.loads(done.read_text())
        return kept
    with put_in_place(row):
        resume = (run / LAST).exists()
        result = train(tokens, run, config_of(row, steps), resume=resume)
    if not result["finished"]:
        raise SystemExit(f"{row.name} was stopped; the same command goes on with it.")
    kept = {key: result[key] for key in ("nats_per_token", "tokens", "minutes")}
    with whole_file(done) as beside:
        beside.write_text(json.dumps(kept, indent=1))
    return kept


def table(results: dict[str, dict[str, Any]]) -> str:
    """The rows that are done, as Markdown."""
    lines = [
        "| row | what is changed | flags | nats/token | against the base |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for row in ROWS:
        if row.name in results:
            value, base = results[row.name]["nats_per_token"], results.get(base_of(row))
            against = f"{value - base['nats_per_token']:+.3f}" if base else ""
            flags = f"`{row.flags}`" if row.flags else ""
            lines.append(f"| {row.name} | {row.what} | {flags} | {value:.3f} | {against} |")
    return "\n".join(lines) + "\n"


def base_of(row: Row) -> str:
    """The row that another is compared with: of the second seed, that of the same seed."""
    if row.base:
        return row.base
    return "seed-2" if row.name != "seed-2" and row.train.get("seed") == 2 else "base"


def main() -> None:
    """Read the arguments, train what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--only", nargs="*", default=[row.name for row in ROWS], help="in order")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, dict[str, Any]] = {}
    rows = {row.name: row for row in ROWS}
    for name in options.only:
        results[name] = measure(rows[name], options.tokens, options.out, options.steps)
        print(f"{name}: {results[name]}", flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
