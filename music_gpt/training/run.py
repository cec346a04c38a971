"""A tokens folder and a configuration -> a trained network: the run, from check to result.

A run lives in one folder (`music_gpt.training.run_folder`) and survives whatever ends it. Neither
MidiTok nor symusic is imported, so a bare machine with torch, Lightning, numpy and safetensors can
train.
"""

from __future__ import annotations

import gc
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.warnings import PossibleUserWarning

from music_gpt.config.model import MAX_CONTEXT
from music_gpt.config.training import RunConfig
from music_gpt.errors import InputError, argument
from music_gpt.files import locked
from music_gpt.network.checkpoint import load_checkpoint, require_same_arithmetic
from music_gpt.network.growth import grown
from music_gpt.network.model import GPT, resolve_device, use_bf16
from music_gpt.printable import printable_name, shown
from music_gpt.process import say
from music_gpt.tokens.corpus import Corpus, Split
from music_gpt.tokens.data import CropBatches, Windows, loader
from music_gpt.tokens.events import VOCAB_SIZE
from music_gpt.tokens.originality import copy_index, require_whole_index
from music_gpt.training.callback import RunCallback
from music_gpt.training.module import Training
from music_gpt.training.progress import Listener, require_tensorboard
from music_gpt.training.run_folder import (
    BEST_WEIGHTS,
    LAST_WEIGHTS,
    REPORT,
    open_run,
    read_resume_point,
    require_new_run,
)
from music_gpt.training.stopping import StoppedAtOnce

MOST_LENGTHS = MAX_CONTEXT.bit_length()
"""Of passages in one run, each twice as long as the one before."""


def train(
    tokens: str | Path,
    out: str | Path,
    config: RunConfig,
    *,
    resume: bool = False,
    finished_too: bool = False,
    began: float | None = None,
    init_from: str | Path | None = None,
    listener: Listener | None = None,
) -> dict[str, Any]:
    """Train on the tokens folder and write into `out`; returns what was reached, as plain values.

    `resume` goes on where the run in `out` was; if it is finished, that is an error, unless
    `finished_too` asks for what it reached. `began`, for a new run, is when its `max_minutes`
    began, in monotonic seconds; by default they begin with the first step. `init_from` starts from
    the weights of a checkpoint, grown where its network is smaller; `listener` is given the network
    whenever it was measured, as `music_gpt.training_samples.Listening`. Of several processes all
    but the first return an empty dict. Raises `InputError` before the first step for anything that
    cannot work, and `KeyboardInterrupt` when Ctrl-C is pressed twice.
    """
    # 1. what there is: tokens, the run so far, a machine
    run, corpus = Path(out), Corpus.open(tokens)
    pieces = corpus.split("train")
    card = _card(corpus, config, init_from)
    _check_vocabulary(config)
    if config.train.tensorboard:
        require_tensorboard()
    state = read_resume_point(run) if resume else {}
    _check_resume(state, config, card)
    with _quiet_lightning(), ExitStack() as held:
        trainer = make_trainer(config)
        is_first = trainer.is_global_zero
        if is_first and not resume:
            require_new_run(run)
            require_whole_index(corpus.path)
        # 2. the network and its batches
        model = _first_network(config, None if resume else init_from)
        batches = _batches(pieces, config, state, trainer)
        module = Training(model, config, batches.batches_per_epoch)
        if state:
            module.restore(state)
            module.batches_done = batches.first_batch
            torch.set_rng_state(state["rng"])
        if not is_first:  # or all would drop the same activations, and go on with those of step 0
            draws = trainer.global_rank + trainer.world_size * module.step
            torch.manual_seed(config.train.seed + draws)
        finished = module.progress >= 1.0 and not state.get("owes", False)
        if finished and (run / LAST_WEIGHTS).exists() and not finished_too:
            raise InputError(
                f"The run in {shown(run)} is finished; to train longer, give a new folder and "
                f"--init-from {printable_name(run / LAST_WEIGHTS)}."
            )
        # 3. the folder, and the run itself
        if is_first:
            held.enter_context(locked(run, "train"))
            # a step that has still to be measured is logged then
            step = module.step - state.get("owes", False) if resume else None
            open_run(run, config, step=step, finished=finished)
            if not resume:
                copy_index(corpus.path, run)
        validation = _validation(corpus, config, trainer)
        about = _about(corpus, card)
        callback = RunCallback(run, validation, card, state, listener, about, began)
        if not finished:
            _fit(trainer, module, batches, callback)
        if not is_first:
            return {}
        if not callback.finished:  # stopped; or the weights of the end were taken away
            callback.finish(module)
        return _result(run, module, callback, finished=finished or callback.finished)


def _first_network(config: RunConfig, init_from: str | Path | None) -> GPT:
    """The network of a new run: with random weights, or grown from those of a checkpoint."""
    torch.manual_seed(config.train.seed)
    if init_from is None:
        return GPT(config.model)
    return grown(load_checkpoint(init_from)[0], config.model)


def _batches(
    split: Split, config: RunConfig, state: Mapping[str, Any], trainer: pl.Trainer
) -> CropBatches:
    """The batches of this process, from where the run is."""
    return CropBatches(
        split,
        config.model.context,
        config.data,
        seed=config.train.seed,
        rank=trainer.global_rank,
        n_ranks=trainer.world_size,
        first_batch=_batches_done(state, config, trainer.world_size),
    )


def _fit(
    trainer: pl.Trainer, module: Training, batches: CropBatches, callback: RunCallback
) -> None:
    """Train until the callback ends it; `KeyboardInterrupt` when Ctrl-C is pressed twice."""
    trainer.callbacks.append(callback)  # type: ignore[attr-defined] # Lightning's own list
    if module.config.train.compile:
        # with the loss: the logits are then made and read in one go
        module.nats = torch.compile(module.nats, dynamic=False)
    on_cuda = trainer.strategy.root_device.type == "cuda"
    source = loader(batches, module.config.data.workers, pin=on_cuda)
    try:
        with (
            callback.watching(),
            _frozen_objects(),
            _quick_products(trainer),
            _all_compiled(module),
        ):
            trainer.fit(module, source)
    except StoppedAtOnce:
        raise KeyboardInterrupt(
            f"Stopped at once; --resume goes on from the last saved point in {shown(callback.run)}."
        ) from None


@contextmanager
def _quick_products(trainer: pl.Trainer) -> Iterator[None]:
    """Let a GPU take TF32 for the products beside those in bf16: nothing is lost by it."""
    before = torch.get_float32_matmul_precision()
    if trainer.strategy.root_device.type == "cuda" and trainer.precision == "bf16-mixed":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _all_compiled(module: Training) -> Iterator[None]:
    """Let every length of passages be compiled: from the ninth shape on torch compiles no more."""
    if not module.config.train.compile:
        yield
        return
    import torch._dynamo.config as dynamo  # takes seconds

    with dynamo.patch(recompile_limit=max(dynamo.recompile_limit, MOST_LENGTHS)):
        yield


@contextmanager
def _frozen_objects() -> Iterator[None]:
    """Spare the garbage collector the libraries' objects: looking through them takes 0.2 s."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Leave the terminal to the progress bar: Lightning's own lines say nothing to a person."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # advice, as on more loader processes: a batch takes a thousandth of a CPU's step
        warnings.simplefilter("ignore", PossibleUserWarning)
        # Lightning 2.6 walks trees in the way that torch 2.13 calls deprecated
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        yield


def make_trainer(config: RunConfig) -> pl.Trainer:
    """Lightning's Trainer with nothing of its own left on: no bars, loggers or checkpoints."""
    device = resolve_device(config.train.device)
    several = config.train.devices * config.train.num_nodes > 1
    return pl.Trainer(
        accelerator={"cuda": "gpu"}.get(device, device),
        devices=config.train.devices,
        num_nodes=config.train.num_nodes,
        strategy="ddp" if several else "auto",
        precision="bf16-mixed" if use_bf16(config.train.precision, device) else "32-true",
        max_epochs=1,
        max_steps=-1,
        accumulate_grad_batches=config.train.accumulate,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )


def _check_vocabulary(config: RunConfig) -> None:
    if config.model.vocab_size < VOCAB_SIZE:
        raise InputError(
            f"{argument('vocab_size')} is {config.model.vocab_size:,}, but the tokens are "
            f"{VOCAB_SIZE} events of music; leave it at its default."
        )


def _check_resume(state: Mapping[str, Any], config: RunConfig, card: Mapping[str, Any]) -> None:
    """Raise `InputError` if the run cannot go on with this configuration and these tokens."""
    if not state:
        return
    same_parts = state["config"]["optim"]["optimizer"] == config.optim.optimizer
    if state["config"]["model"] != config.model.to_dict() or not same_parts:
        raise InputError(
            "The run was started with another network or optimizer than the configuration says; "
            "resume it with its own config.yaml, or start a new run with --init-from."
        )
    require_same_arithmetic("The run", state.get("version", 1), state["config"]["model"])
    if state["tokens_sha256"] != card["tokens_sha256"]:
        raise InputError(
            "The tokens folder is not the one that the run was started with; give that folder, or "
            "start a new run with --init-from."
        )


def _batches_done(state: Mapping[str, Any], config: RunConfig, n_ranks: int) -> int:
    """Batches of this size, on so many processes, that hold what the run has seen."""
    if not state:
        return 0
    data, machine = state["config"]["data"], state["config"]["train"]
    old_ranks = machine["devices"] * machine["num_nodes"]
    crops = state["batches_done"] * data["batch_size"] * old_ranks
    return int(crops // (config.data.batch_size * n_ranks))


def _card(corpus: Corpus, config: RunConfig, init_from: str | Path | None) -> dict[str, Any]:
    """What every checkpoint of this run says about where it comes from."""
    return {
        "tokens_sha256": corpus.tokens_sha256,
        "sources": corpus.card.get("sources", {}),
        "licences": corpus.card.get("licences", {}),
        "training_tokens": corpus.card["splits"]["train"]["tokens"],
        "config": config.to_dict(),
        "init_from": None if init_from is None else printable_name(Path(init_from).name),
    }


def _about(corpus: Corpus, card: Mapping[str, Any]) -> dict[str, Any]:
    """What the report says besides: all of the card, and what the tokens folder holds."""
    amounts = ("pieces", "tokens", "notes", "seconds")
    splits = {
        name: {amount: split[amount] for amount in amounts}
        for name, split in corpus.card["splits"].items()
    }
    return {**card, "tokens": printable_name(corpus.path.resolve().name), "splits": splits}


def _validation(corpus: Corpus, config: RunConfig, trainer: pl.Trainer) -> Windows | None:
    """What of the validation split this process scores; None, and a word, where there is none."""
    split = corpus.split("validation") if "validation" in corpus.splits else None
    if split is None or split.n_targets == 0:
        lacks = "no validation split" if split is None else "no token to predict for validation"
        if trainer.is_global_zero:
            say(
                f"The tokens folder has {lacks}: the best checkpoint is chosen by the training "
                "loss."
            )
        return None
    return Windows(
        split,
        config.model.context,
        config.data.batch_size,
        n_tokens=config.train.validate_tokens,
        rank=trainer.global_rank,
        n_ranks=trainer.world_size,
    )


def _result(
    run: Path, module: Training, callback: RunCallback, *, finished: bool
) -> dict[str, Any]:
    """What was reached; without `validation_tokens`, `nats_per_token` are those of the training.

    A signal that came after all was measured is told as well: the run is finished all the same.
    `minutes` are those of the log and of the last measurement and its samples, so they tell what
    the run took, as `max_minutes` bounds it.
    """
    best = run / BEST_WEIGHTS
    return {
        "run": str(run),
        "finished": finished,
        "stopped_by": callback.stop_reason or callback.signals.received or None,
        "steps": module.step,
        "tokens": module.tokens,
        "minutes": round(module.seconds / 60, 2),
        "nats_per_token": None if math.isnan(callback.measured) else round(callback.measured, 4),
        "validation_tokens": callback.measured_tokens or None,
        "report": str(run / REPORT),
        "checkpoint": str(best if best.exists() else run / LAST_WEIGHTS),
    }
