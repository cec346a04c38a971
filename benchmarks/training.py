"""A tokens folder comes in -> likelihood and speed of ours beside the peers' goes out.

    python benchmarks/training.py TOKENS --out runs/peers [--steps 800] [--rounds 5] [--json FILE]

Every way trains a network of one size (4 blocks of 256/1024, 4 heads) on one CPU thread, with the
arithmetic that `--train.precision auto` chooses here, on equally many tokens in steps of one size:

ours       `music_gpt.training.run.train` with the recipe of `configs/`: short passages first; for
           the speed the whole context at once, as the others have it
chapter14  the recipe of chapter 14 of "Learn Generative AI with PyTorch" in a plain loop: the first
           2,048 tokens of each file, Adam at 1e-4, learned positions, dropout 0.1, no augmentation
trainer    GPT2LMHeadModel under the Trainer of transformers, all at its defaults (AdamW at 5e-5
           that falls in a line, dropout 0.1), on the whole corpus cut into blocks
bare       our network, optimiser, batches and schedule in a plain loop: what Lightning costs

Likelihoods are those of the same windows of the validation split, in which every target counts.
Speeds are those of the wall clock, in short segments of each way in turns, of which the medians
count; no way validates or saves in them. What is measured is kept in --out, and the same command
goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm

from music_gpt.config.model import ModelConfig
from music_gpt.config.training import RunConfig
from music_gpt.files import whole_file
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.network.model import GPT, token_nats, use_bf16
from music_gpt.settings import run_config
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.data import CropBatches, Windows
from music_gpt.tokens.events import PAD, VOCAB_SIZE
from music_gpt.training.callback import LOG_EVERY_STEPS
from music_gpt.training.optimizer import MuonAdamW, lr_factor, weight_decay_factor
from music_gpt.training.run import train
from music_gpt.training.run_folder import LAST, LAST_WEIGHTS, LOG

CHAPTER_TOKENS = 2048
"""Tokens of each file that the chapter's code reads."""
SHAPE = {"n_layers": 4, "d_model": 256, "d_ff": 1024, "n_heads": 4, "n_kv_heads": 4}
BF16 = use_bf16("auto", "cpu")

Network = Callable[[Tensor], Tensor]
"""Ids (B, T) -> logits (B, T, V)."""


@dataclass(frozen=True)
class Task:
    """What every way is given."""

    tokens: Path
    out: Path
    context: int
    batch_size: int
    validation_tokens: int
    first_context: int = 0
    """Of our way: see `DataConfig`."""

    @property
    def corpus(self) -> Corpus:
        """The opened tokens folder."""
        return Corpus.open(self.tokens)

    @property
    def step_tokens(self) -> int:
        """Tokens in a step."""
        return self.batch_size * self.context

    def config(self, steps: int) -> RunConfig:
        """Our recipe, at this size."""
        return run_config(
            {
                "model": {**SHAPE, "context": self.context},
                "data": {"batch_size": self.batch_size, "first_context": self.first_context},
                "train": {
                    "max_steps": steps,
                    "validate_every_steps": steps,
                    "validate_tokens": self.step_tokens,  # scored afterwards, as all ways are
                    "device": "cpu",
                },
            }
        )


@dataclass
class Run:
    """What a training gave: the network, and the second segment of its steps."""

    network: Network
    tokens_per_second: float
    loss: float
    """Mean over the segment, to tell whether two ways do the same."""


# --- the ways ---------------------------------------------------------------------------------


def ours(task: Task, steps: int, run: Path) -> Run:
    """The training of the package; goes on with a run that was stopped."""
    if not (run / LAST_WEIGHTS).exists():
        resume = (run / LAST).exists()
        result = train(task.tokens, run, task.config(steps), resume=resume)
        if not result["finished"]:
            raise SystemExit("Stopped; the same command goes on.")
    with (run / LOG).open(newline="") as file:
        row = list(csv.DictReader(file))[1]
    model, _ = load_checkpoint(run / LAST_WEIGHTS)
    return Run(model, float(row["tokens_per_second"]), float(row["train_nats_per_token"]))


def bare(task: Task, steps: int, _: Path) -> Run:
    """The same without Lightning."""
    config = task.config(steps)
    torch.manual_seed(config.train.seed)
    model = GPT(config.model)
    optimizer = MuonAdamW(model, config.optim)
    split, seed = task.corpus.split("train"), config.train.seed

    def prepare(step: int) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), config.optim.clip)
        progress = step / steps
        optimizer.scale(
            lr=lr_factor(config.optim, step, progress),
            weight_decay=weight_decay_factor(config.optim, progress),
        )

    batches = iter(CropBatches(split, task.context, config.data, seed=seed))
    return _loop("bare", task, steps, model, optimizer, batches, prepare)


def chapter14(task: Task, steps: int, _: Path) -> Run:
    """The chapter's recipe, but that dropout leaves the attention weights alone."""
    torch.manual_seed(1)
    network = {"positions": "learned", "zero_init": False, "init_std": 0.02, "dropout": 0.1}
    model = GPT(ModelConfig(**SHAPE, context=task.context, **network))  # type: ignore[arg-type]
    split = task.corpus.split("train")
    heads = [split.piece(i)[: CHAPTER_TOKENS + 1] for i in range(split.n_pieces)]
    crops = [
        ids[start : start + task.context + 1]
        for ids in heads
        for start in range(0, max(len(ids) - 1, 1), task.context)
    ]
    rows = np.full((len(crops), task.context + 1), PAD, dtype=np.int64)
    for row, crop in zip(rows, crops, strict=True):
        row[: len(crop)] = crop

    def batches() -> Iterator[Tensor]:
        rng = np.random.default_rng(1)
        while True:
            order = rng.permutation(len(rows))
            for first in range(0, len(order) - task.batch_size + 1, task.batch_size):
                yield torch.from_numpy(rows[order[first : first + task.batch_size]])

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return _loop(
        "chapter14", task, steps, model, optimizer, batches(),
        lambda _: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    )  # fmt: skip


def _loop(
    name: str,
    task: Task,
    steps: int,
    model: GPT,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Tensor],
    prepare: Callable[[int], object],
) -> Run:
    """The plain loop; `prepare` clips and sets the learning rate before the step of that number."""
    model.train()
    losses, clock = [], list[float]()
    for step in tqdm(range(steps), name, leave=False):
        if step in (LOG_EVERY_STEPS, 2 * LOG_EVERY_STEPS):
            clock.append(time.monotonic())
        batch = next(batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
            nats, count = token_nats(model(batch[:, :-1]), batch[:, 1:], PAD)
            loss = nats / count.clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        prepare(step)
        optimizer.step()
        losses.append(float(loss))
    clock.append(time.monotonic())
    segment = losses[LOG_EVERY_STEPS : 2 * LOG_EVERY_STEPS]
    speed = len(segment) * task.step_tokens / (clock[1] - clock[0])
    return Run(model.eval(), speed, statistics.fmean(segment))


class Blocks(Dataset[dict[str, Tensor]]):
    """All tokens of a split in a row, cut into blocks, as the examples of transformers do it."""

    def __init__(self, shards: list[np.ndarray], context: int) -> None:
        ids = np.concatenate(shards)
        self.rows = ids[: len(ids) // context * context].reshape(-1, context)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        ids = torch.from_numpy(self.rows[number].astype(np.int64))
        return {"input_ids": ids, "labels": ids}


def trainer(task: Task, steps: int, run: Path) -> Run:
    """GPT-2 of transformers under its Trainer."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    from transformers.trainer_callback import TrainerCallback

    clock: dict[int, float] = {}

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (LOG_EVERY_STEPS, 2 * LOG_EVERY_STEPS):
                clock[state.global_step] = time.monotonic()

    torch.manual_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB_SIZE,
            n_positions=task.context,
            n_embd=SHAPE["d_model"],
            n_layer=SHAPE["n_layers"],
            n_head=SHAPE["n_heads"],
            n_inner=SHAPE["d_ff"],
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    arguments = TrainingArguments(
        output_dir=str(run),
        max_steps=steps,
        per_device_train_batch_size=task.batch_size,
        bf16=BF16,
        use_cpu=True,
        seed=1,
        save_strategy="no",
        report_to="none",
        dataloader_pin_memory=False,
        disable_tqdm=False,
    )
    blocks = Blocks(task.corpus.split("train").shards, task.context)
    Trainer(model, arguments, train_dataset=blocks, callbacks=[Clock()]).train()
    model.eval()
    seconds = clock[2 * LOG_EVERY_STEPS] - clock[LOG_EVERY_STEPS]
    speed = LOG_EVERY_STEPS * task.step_tokens / seconds
    return Run(lambda ids: model(ids).logits, speed, float("nan"))


WAYS: dict[str, Callable[[Task, int, Path], Run]] = {
    "ours": ours,
    "bare": bare,
    "chapter14": chapter14,
    "trainer": trainer,
}
TRAINED = ("ours", "chapter14", "trainer")


# --- the measurements -------------------------------------------------------------------------


def measure_speeds(task: Task, rounds: int, steps: int) -> list[dict[str, float]]:
    """Tokens a second of every way, round by round; each segment is a fresh, short training."""
    kept = task.out / "speed.json"
    done: list[dict[str, float]] = json.loads(kept.read_text()) if kept.exists() else []
    for number in range(len(done), rounds):
        began, row, losses = time.monotonic(), {}, {}
        for name in itertools.islice(itertools.cycle(WAYS), number, number + len(WAYS)):
            folder = task.out / f"segment-{name}"
            shutil.rmtree(folder, ignore_errors=True)
            run = WAYS[name](task, 2 * LOG_EVERY_STEPS, folder)
            row[name], losses[name] = round(run.tokens_per_second, 1), run.loss
            shutil.rmtree(folder, ignore_errors=True)
        difference = abs(losses["ours"] - losses["bare"])
        assert difference < 1e-3, f"ours and the bare loop learn differently: {losses}"
        done.append(row)
        _write(kept, done)
        seconds = (time.monotonic() - began) * (rounds - len(done))
        seconds += sum(  # scoring is the forward half of a step: about a third of its time
            steps * task.step_tokens / row[name] + task.validation_tokens / (3 * row[name])
            for name in TRAINED
            if not (task.out / f"{name}.json").exists()
        )
        print(f"round {len(done)} of {rounds}: {row}; all takes {seconds / 60:.0f} minutes more")
    return done


def measure_likelihood(task: Task, name: str, steps: int) -> dict[str, float]:
    """Train one way to its end and score it, or read what that gave."""
    kept = task.out / f"{name}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    began = time.monotonic()
    run = WAYS[name](task, steps, task.out / name)
    minutes = (time.monotonic() - began) / 60
    split = task.corpus.split("validation")
    windows = Windows(split, task.context, task.batch_size, n_tokens=task.validation_tokens)
    result = {
        "nats_per_token": round(_nats_per_token(run.network, windows), 4),
        "tokens": steps * task.step_tokens,
        "minutes": round(minutes, 2),
    }
    _write(kept, result)
    print(f"{name}: {result}")
    return result


def _nats_per_token(network: Network, windows: Windows) -> float:
    total, targets = 0.0, 0
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=BF16):
        for batch in tqdm(windows, "validation", leave=False):
            nats, count = token_nats(network(batch[:, :-1]), batch[:, 1:], PAD)
            total, targets = total + float(nats), targets + int(count)
    return total / targets


def _write(path: Path, value: Any) -> None:
    with whole_file(path) as beside:
        beside.write_text(json.dumps(value, indent=1) + "\n")


def summary(
    speeds: list[dict[str, float]], likelihoods: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Medians and ratios; a ratio is that of two segments of one round."""

    def ratio(name: str) -> float:
        return statistics.median(row["ours"] / row[name] for row in speeds)

    best = likelihoods["ours"]["nats_per_token"]
    ways: dict[str, dict[str, float]] = {}
    for name in WAYS:
        ways[name] = {
            "tokens_per_second": round(statistics.median(row[name] for row in speeds)),
            "ours_is_times_as_fast": round(ratio(name), 3),
        }
        if name in likelihoods:
            worse = round(likelihoods[name]["nats_per_token"] - best, 4)
            ways[name] |= {**likelihoods[name], "worse_than_ours": worse}
    return {
        "lightning_overhead_percent": round(100 * (1 / ratio("bare") - 1), 2),
        "ways": ways,
        "bf16": BF16,
        "rounds": len(speeds),
    }


def main() -> None:
    """Read the arguments, measure what is missing, print the figures."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of what is measured")
    parser.add_argument("--steps", type=int, default=800, help="length of the trainings")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=8, help="crops in a step")
    parser.add_argument(
        "--validation-tokens", type=int, default=524_288, help="tokens that are scored"
    )
    parser.add_argument(
        "--first-context", type=int, default=64, help="tokens of our way's first passages"
    )
    parser.add_argument("--rounds", type=int, default=5, help="segments of each way")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.steps < 2 * LOG_EVERY_STEPS:
        parser.error(f"--steps has to be at least {2 * LOG_EVERY_STEPS}")
    try:
        import accelerate  # noqa: F401
    except ImportError:
        parser.error("the Trainer of transformers needs accelerate: pip install accelerate")
    torch.set_num_threads(1)
    task = Task(
        options.tokens,
        options.out,
        options.context,
        options.batch_size,
        options.validation_tokens,
        options.first_context,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    asked = dataclasses.asdict(task) | {"steps": options.steps, "out": ""}
    asked["tokens"] = task.corpus.tokens_sha256
    kept = options.out / "asked.json"
    if kept.exists() and json.loads(kept.read_text()) != asked:
        parser.error(f"{options.out} holds figures of other settings; give another --out")
    _write(kept, asked)
    whole = dataclasses.replace(task, first_context=0)
    speeds = measure_speeds(whole, options.rounds, options.steps)
    likelihoods = {name: measure_likelihood(task, name, options.steps) for name in TRAINED}
    figures = summary(speeds, likelihoods)
    for name, way in figures["ways"].items():
        nats = f"; {way['nats_per_token']:.3f} nats/token" if "tokens" in way else ""
        speed = f"{way['tokens_per_second']:8,} tokens/s"
        print(f"{name:10} {speed}, ours {way['ours_is_times_as_fast']:.2f} times as fast{nats}")
    print(f"Lightning costs {figures['lightning_overhead_percent']:.1f} % of the time.")
    if options.json:
        _write(options.json, figures)


if __name__ == "__main__":
    main()
