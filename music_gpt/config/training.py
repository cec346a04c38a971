"""How a network is trained -> `RunConfig`, checked: one whole run, as the files in `configs/`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from music_gpt.checking import MAX_JSON_INTEGER, check_choices, check_fields, number, require, whole
from music_gpt.config.model import MAX_CONTEXT, ModelConfig
from music_gpt.errors import argument

MAX_TRANSPOSE = 12
"""An octave: farther off, a piece is another one."""
MAX_SAMPLES = 3
"""A report is looked through, and each sample takes seconds of the training."""


@dataclass(frozen=True)
class DataConfig:
    """How crops of the training pieces become batches."""

    batch_size: int = 8
    """Crops in one batch on one device."""
    transpose: int = 3
    """Largest transposition in semitones, up and down; 0 leaves the pitch alone."""
    stretch: float = 0.05
    """Largest change of tempo: the factors lie from 1 - stretch to 1 + stretch; 0 for none."""
    velocity_bins: int = 2
    """Largest shift of all velocities of a crop, in the 32 bins; 0 leaves them alone."""
    workers: int = 0
    """Processes that prepare batches; 0 does it in the training process."""
    first_context: int = 0
    """Tokens of a crop that the network sees at once when the run begins, doubled again and again
    until it sees the whole crop; 0 shows it whole from the start."""
    context_warmup: float = 0.5
    """First share of the run in which the network sees less than the whole crop."""

    def __post_init__(self) -> None:
        check_fields(self, ("batch_size",), whole, 1)
        check_fields(self, ("transpose",), whole, 0, MAX_TRANSPOSE)
        check_fields(self, ("stretch",), number, 0, 0.5)
        check_fields(self, ("velocity_bins",), whole, 0, 8)
        check_fields(self, ("workers",), whole, 0, 64)
        check_fields(self, ("first_context",), whole, 0, MAX_CONTEXT)
        check_fields(self, ("context_warmup",), number, 0, 1)


@dataclass(frozen=True)
class OptimConfig:
    """How the weights move."""

    optimizer: Literal["muon", "adamw"] = "muon"
    """Muon on the hidden matrices and AdamW on the rest, or AdamW on everything."""
    muon_lr: float = 0.02
    """Peak learning rate of Muon."""
    muon_momentum: float = 0.95
    """Momentum of Muon."""
    adamw_lr: float = 2e-3
    """Peak learning rate of AdamW."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's averaging constants."""
    weight_decay: float = 0.05
    """Weight decay on hidden matrices; embeddings, biases and norms have none."""
    weight_decay_schedule: Literal["constant", "linear"] = "constant"
    """Whether the weight decay stays, or falls in a line to 0 at the end of the run."""
    warmup_steps: int = 100
    """Steps over which the learning rate rises from 0."""
    schedule: Literal["linear", "cosine"] = "linear"
    """Form of the cool-down."""
    cooldown: float = 0.5
    """Last share of the run over which the learning rate falls."""
    final_lr: float = 0.02
    """Learning rate at the end, as a share of the peak."""
    clip: float = 1.0
    """Largest norm of the gradient; longer ones are scaled down to it."""
    ema: float = 0.0
    """Constant of the moving average of the weights that is evaluated and kept; 0 for none."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_fields(self, ("muon_lr", "adamw_lr", "clip"), number, 0, above=True)
        check_fields(self, ("muon_momentum", "ema"), number, 0, 1, below=True)
        pair = isinstance(self.betas, tuple | list) and len(self.betas) == 2
        require(pair, "betas", self.betas, "two numbers")
        first, second = (number("betas", beta, 0, 1, below=True) for beta in self.betas)
        object.__setattr__(self, "betas", (first, second))
        check_fields(self, ("weight_decay",), number, 0)
        check_fields(self, ("warmup_steps",), whole, 0)
        check_fields(self, ("cooldown", "final_lr"), number, 0, 1)


@dataclass(frozen=True)
class TrainConfig:
    """How long a run lasts, what it writes and on what it runs."""

    max_steps: int = 0
    """Steps after which the run ends; 0 leaves the end to `epochs` or `max_minutes`."""
    epochs: float = 1.0
    """Passes over the training split, where neither max_steps nor max_minutes bounds the run."""
    max_minutes: float = 0.0
    """Minutes of training within which the run ends, cooled down, its last measurement, samples and
    checkpoint included; 0 for no such bound."""
    accumulate: int = 1
    """Batches of whose gradients a step takes the mean."""
    validate_every_steps: int = 500
    """Steps between two measurements on the validation split."""
    validate_tokens: int = 131_072
    """Tokens of the validation split that such a measurement reads, spread evenly; 0 for all."""
    save_every_minutes: float = 3.0
    """Minutes between two checkpoints to resume from."""
    samples: int = 3
    """Openings of validation pieces that `music-gpt train` lets the network continue where it is
    measured; they take about 2 % of the time, and a run of less than five seconds has none."""
    tensorboard: bool = False
    """Whether the log is also written for TensorBoard, which has to be installed."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """bf16 autocast where the machine has it (auto), always, or never."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train."""
    devices: int = 1
    """Number of devices or, on a CPU, of processes."""
    num_nodes: int = 1
    """Number of machines."""
    compile: bool = False
    """Whether torch.compile is used; it pays on a GPU."""
    seed: int = 1
    """Seed of the initial weights and of the order of the crops."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_fields(self, ("max_minutes", "epochs"), number, 0)
        check_fields(self, ("max_steps", "validate_tokens"), whole, 0)
        ends = bool(self.max_steps or self.max_minutes or self.epochs)
        bounds = f"{argument('max_steps')} nor {argument('max_minutes')}"
        allowed = f"above 0 where neither {bounds} says when the run ends"
        require(ends, "epochs", self.epochs, allowed)
        counts = ("accumulate", "validate_every_steps", "devices", "num_nodes")
        check_fields(self, counts, whole, 1)
        check_fields(self, ("samples",), whole, 0, MAX_SAMPLES)
        check_fields(self, ("save_every_minutes",), number, 0, above=True)
        check_fields(self, ("seed",), whole, 0, MAX_JSON_INTEGER)


@dataclass(frozen=True)
class RunConfig:
    """One whole training run: what one YAML file in `configs/` holds."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        first, context = self.data.first_context, self.model.context
        times, rest = divmod(context, first or context)
        halved = rest == 0 and times.bit_count() == 1
        allowed = f"0, or the context ({context:,}) halved again and again"
        require(halved, "first_context", first, allowed)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dicts, for checkpoints and logs."""
        return dataclasses.asdict(self)
