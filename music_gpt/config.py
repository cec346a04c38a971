"""Numbers that a person may turn -> frozen dataclasses that have been checked.

Every knob stands here once, in the order of the YAML files in `configs/`, with a sentence under it
and its check in `__post_init__`. This module knows nothing of torch, MIDI or files.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from music_gpt.errors import InputError
from music_gpt.keys import scale

MAX_LAYERS, MAX_CONTEXT = 1000, 131_072
"""Bounds on what the weights in a file do not bound: a hostile checkpoint must cost little."""
MAX_SEED = 2**63 - 1
N_EVENTS = 390
"""Size of the event vocabulary: a fact of `music_gpt.tokens.tokenizer`, not a knob."""
FROM_ONE, FROM_ZERO = "a whole number from 1 up", "a whole number, 0 or more"
POSITIVE, BELOW_ONE = "a number above 0", "at least 0 and below 1"
"""What is allowed, in the words of the sentences."""
ENGINES = ("auto", "torch", "onnx", "onnx-int8")
"""What can run a network (`music_gpt.generation.engines`)."""


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise `InputError` with one sentence unless `condition` holds."""
    if not condition:
        raise InputError(f"{name} is {value!r}, but it has to be {allowed}.")


def _take_plain_numbers(config: Any) -> None:
    """Make numbers of other kinds, as numpy's, Python's own: they go into JSON and into files."""
    for knob in dataclasses.fields(config):
        value = getattr(config, knob.name)
        if _is_number(value, numbers.Real):
            plain = int(value) if isinstance(value, numbers.Integral) else float(value)
            object.__setattr__(config, knob.name, plain)  # the dataclass is frozen


def _check(config: object, name: str, condition: bool, allowed: str) -> None:
    """`_require` for the field `name` of a configuration."""
    _require(condition, name, getattr(config, name), allowed)


def _check_each(
    config: object, names: Iterable[str], holds: Callable[[Any], bool], allowed: str
) -> None:
    """`_check` for several fields of one kind."""
    for name in names:
        _check(config, name, holds(getattr(config, name)), allowed)


def _check_choices(config: Any) -> None:
    """Check the fields that are a `Literal` or a bool: what they may be stands in their type."""
    for name, kind in get_type_hints(type(config)).items():
        if kind is bool:
            _check(config, name, isinstance(getattr(config, name), bool), "true or false")
        elif get_origin(kind) is Literal:
            *others, last = map(repr, get_args(kind))
            allowed = f"{', '.join(others)} or {last}"
            _check(config, name, getattr(config, name) in get_args(kind), allowed)


def _finite(value: object) -> bool:
    return _is_number(value, (int, float)) and abs(cast(float, value)) < math.inf


def _within(value: object, low: float, high: float = math.inf) -> bool:
    return _finite(value) and low <= cast(float, value) <= high


def _positive(value: object) -> bool:
    return _finite(value) and cast(float, value) > 0


def _below_one(value: object) -> bool:
    return _finite(value) and 0 <= cast(float, value) < 1


def _whole(value: object, low: int, high: float = math.inf) -> bool:
    return _is_number(value, int) and low <= cast(int, value) <= high


def _from_one(value: object) -> bool:
    return _whole(value, 1)


def _from_zero(value: object) -> bool:
    return _whole(value, 0)


def _require_seed(value: object) -> None:
    _require(_whole(value, 0, MAX_SEED), "seed", value, f"a whole number from 0 to {MAX_SEED}")


def _is_number(value: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # to Python, True is an int


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the decoder. The defaults are the 6-block 512/2048 network, 19.3 M parameters."""

    n_layers: int = 6
    """Number of decoder blocks."""
    d_model: int = 512
    """Width of the residual stream."""
    d_ff: int = 2048
    """Width inside the feed-forward part of a block."""
    n_heads: int = 8
    """Number of attention (query) heads; each is d_model / n_heads wide."""
    n_kv_heads: int = 8
    """Number of key/value heads; fewer than n_heads is grouped-query attention."""
    context: int = 2048
    """Longest sequence in tokens that the network is trained on."""
    vocab_size: int = N_EVENTS
    """Number of token ids; 390 for music, other values only for the historical text preset."""
    norm: Literal["pre", "post"] = "pre"
    """Where LayerNorm stands: before each part (GPT-2) or after each sum (the paper of 2017)."""
    final_norm: bool = False
    """Whether one more LayerNorm follows the last block of `post`; `pre` always has it."""
    activation: Literal["gelu", "relu"] = "gelu"
    """Nonlinearity of the feed-forward part; gelu is the tanh form."""
    positions: Literal["rope", "learned"] = "rope"
    """Rotary positions in attention (base 10,000), or a learned table of absolute positions."""
    bias: bool = True
    """Whether linear layers and LayerNorms carry a bias."""
    qkv_bias: bool = True
    """Whether the query, key and value projections carry a bias; needs `bias` to have an effect."""
    head_bias: bool = False
    """Whether the output head carries a bias."""
    tie_head: bool = False
    """Whether the output head shares the matrix of the token embedding."""
    qk_norm: bool = False
    """Whether queries and keys are RMS-normalised per head; breaks the Hugging Face mapping."""
    zero_init: bool = True
    """Whether the last projection of each residual part starts at zero."""
    init_std: float = 0.0
    """Standard deviation of the matrices of the blocks at the start; 0 for 1 / sqrt(inputs)."""
    dropout: float = 0.0
    """Share of activations dropped after the embedding and after each residual part."""

    def __post_init__(self) -> None:
        _take_plain_numbers(self)
        sizes = ("d_model", "d_ff", "n_heads", "n_kv_heads", "vocab_size")
        _check_each(self, sizes, _from_one, FROM_ONE)
        for name, low, high in (("n_layers", 1, MAX_LAYERS), ("context", 2, MAX_CONTEXT)):
            value = getattr(self, name)
            allowed = f"a whole number from {low} to {high:,}"
            _require(_whole(value, low, high), name, value, allowed)
        _check_choices(self)
        _check(
            self,
            "n_heads",
            self.d_model % self.n_heads == 0,
            f"a divisor of d_model ({self.d_model})",
        )
        _check(
            self,
            "n_kv_heads",
            self.n_heads % self.n_kv_heads == 0,
            f"a divisor of n_heads ({self.n_heads})",
        )
        _require(
            self.positions != "rope" or self.d_head % 2 == 0,
            "d_model / n_heads",
            self.d_head,
            "even for rotary positions",
        )
        _check(self, "init_std", _within(self.init_std, 0, 1), "between 0 and 1")
        _check_each(self, ["dropout"], _below_one, BELOW_ONE)

    @property
    def d_head(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.n_heads

    @classmethod
    def preset(cls, name: str) -> ModelConfig:
        """The network called `name`; raises `InputError` with the known names for another one.

        >>> ModelConfig.preset("small").n_layers
        4
        """
        if name not in PRESETS:
            raise InputError(f"There is no preset {name!r}; use one of {', '.join(PRESETS)}.")
        return PRESETS[name]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """From the plain dict inside a checkpoint; unknown fields raise `InputError`."""
        config: ModelConfig = _from_dict(cls, values, "model configuration")
        return config

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for the metadata of a checkpoint."""
        return dataclasses.asdict(self)


def _from_dict(cls: Any, values: dict[str, Any], what: str) -> Any:
    unknown = sorted(set(values) - {f.name for f in dataclasses.fields(cls)})
    if unknown:
        raise InputError(
            f"The {what} has unknown fields ({', '.join(unknown)}); it was written by a newer "
            "version, so update music_gpt."
        )
    return cls(**values)


PRESETS: dict[str, ModelConfig] = {
    "default": ModelConfig(),
    "small": ModelConfig(n_layers=4, d_model=256, d_ff=1024, n_heads=4, n_kv_heads=4, context=1024),
    "tiny": ModelConfig(n_layers=2, d_model=64, d_ff=256, n_heads=2, n_kv_heads=2, context=256),
    # chapter 14 of "Learn Generative AI with PyTorch": GPT-2 blocks over the 390 events
    "chapter14": ModelConfig(positions="learned", zero_init=False, init_std=0.02, dropout=0.1),
    # the text network of the same book: 3 blocks over a vocabulary of 10,600 words
    "text-3x256": ModelConfig(
        n_layers=3,
        d_model=256,
        d_ff=1024,
        n_heads=4,
        n_kv_heads=4,
        context=128,
        vocab_size=10_600,
        positions="learned",
        zero_init=False,
        init_std=0.02,
        dropout=0.1,
    ),
    # the network of Karpathy's lecture "Let's build GPT": ReLU, heads without bias
    "lecture": ModelConfig(
        n_layers=6,
        d_model=384,
        d_ff=1536,
        n_heads=6,
        n_kv_heads=6,
        context=256,
        vocab_size=65,
        positions="learned",
        activation="relu",
        qkv_bias=False,
        head_bias=True,
        zero_init=False,
        init_std=0.02,
        dropout=0.2,
    ),
    # "Attention is all you need", decoder blocks without the cross-attention
    "original-2017": ModelConfig(
        norm="post",
        activation="relu",
        positions="learned",
        zero_init=False,
        init_std=0.02,
        dropout=0.1,
    ),
}


@dataclass(frozen=True)
class DataConfig:
    """How crops of the training pieces become batches."""

    batch_size: int = 8
    """Crops in one batch on one device."""
    transpose: int = 3
    """Largest transposition in semitones, up and down; 0 leaves the pitch alone."""
    stretch: float = 0.05
    """Largest change of tempo: five factors from 1 - stretch to 1 + stretch; 0 for none."""
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
        _take_plain_numbers(self)
        for name, low, high, allowed in (
            ("batch_size", 1, math.inf, FROM_ONE),
            ("first_context", 0, MAX_CONTEXT, f"a whole number between 0 and {MAX_CONTEXT:,}"),
            ("transpose", 0, 12, "a whole number between 0 and 12"),
            ("velocity_bins", 0, 8, "a whole number between 0 and 8"),
            ("workers", 0, 64, "a whole number between 0 and 64"),
        ):
            value = getattr(self, name)
            _require(_whole(value, low, high), name, value, allowed)
        _check(self, "stretch", _within(self.stretch, 0, 0.5), "between 0 and 0.5")
        _check(self, "context_warmup", _within(self.context_warmup, 0, 1), "between 0 and 1")


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
        _take_plain_numbers(self)
        _check_choices(self)
        _check_each(self, ("muon_lr", "adamw_lr", "clip"), _positive, POSITIVE)
        _check_each(self, ("muon_momentum", "ema"), _below_one, BELOW_ONE)
        _check(
            self,
            "betas",
            isinstance(self.betas, (tuple, list))
            and len(self.betas) == 2
            and all(map(_below_one, self.betas)),
            "two numbers, at least 0 and below 1",
        )
        _check(self, "weight_decay", _within(self.weight_decay, 0), "0 or more")
        _check_each(self, ["warmup_steps"], _from_zero, FROM_ZERO)
        for name in ("cooldown", "final_lr"):
            _check(self, name, _within(getattr(self, name), 0, 1), "between 0 and 1")


@dataclass(frozen=True)
class TrainConfig:
    """How long a run lasts, what it writes and on what it runs."""

    max_steps: int = 0
    """Steps after which the run ends; 0 leaves the end to `epochs` or `max_minutes`."""
    epochs: float = 1.0
    """Passes over the training split, where neither max_steps nor max_minutes bounds the run."""
    max_minutes: float = 0.0
    """Minutes of training after which the run ends, cooled down; 0 for no such bound."""
    accumulate: int = 1
    """Batches whose gradients are summed before a step."""
    validate_every_steps: int = 500
    """Steps between two measurements on the validation split."""
    validate_tokens: int = 131_072
    """Tokens of the validation split that such a measurement reads, spread evenly; 0 for all."""
    save_every_minutes: float = 3.0
    """Minutes between two checkpoints to resume from."""
    samples: int = 3
    """Openings of validation pieces, 0 to 3, that `music-gpt train` lets the network continue where
    it is measured; they take about 2 % of the time, and a run of seconds has none."""
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
        _take_plain_numbers(self)
        _check_choices(self)
        for name in ("max_minutes", "epochs"):
            _check(self, name, _within(getattr(self, name), 0), "0 or more")
        _check_each(self, ("max_steps", "validate_tokens"), _from_zero, FROM_ZERO)
        _check(
            self,
            "epochs",
            bool(self.max_steps or self.max_minutes or self.epochs),
            "above 0 where neither max_steps nor max_minutes says when the run ends",
        )
        counts = ("accumulate", "validate_every_steps", "devices", "num_nodes")
        _check_each(self, counts, _from_one, FROM_ONE)
        _require_seed(self.seed)
        _check(self, "samples", _whole(self.samples, 0, 3), "a whole number from 0 to 3")
        _check_each(self, ["save_every_minutes"], _positive, POSITIVE)


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
        _require(
            rest == 0 and times.bit_count() == 1,
            "first_context",
            first,
            f"0, or the context ({context:,}) halved again and again",
        )

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dicts, for checkpoints and logs."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class MidiLimits:
    """Bounds on one MIDI file, so that a hostile one costs little."""

    max_bytes: int = 10_000_000
    """Largest file in bytes; an hour of concert takes a tenth of it."""
    max_events: int = 1_000_000
    """Most events of any kind in one file; a note takes two, and its pedal may take as many."""
    max_notes: int = 200_000
    """Most notes in one file."""
    max_seconds: float = 36_000.0
    """Longest piece in seconds, after long gaps were shortened."""

    def __post_init__(self) -> None:
        _take_plain_numbers(self)
        _check_each(self, [f.name for f in dataclasses.fields(self)], _positive, POSITIVE)


@dataclass(frozen=True)
class PrepareConfig:
    """How a folder of MIDI files becomes a tokens folder."""

    workers: int = 0
    """Processes that read and encode; 0 takes one for each core."""
    validation: float = 0.1
    """Share of the compositions that goes to the validation split."""
    test: float = 0.1
    """Share of the compositions that goes to the test split."""
    seed: int = 0
    """Changes which compositions go where."""
    min_notes: int = 32
    """Pieces with fewer notes are left out."""
    min_seconds: float = 5.0
    """Pieces that last less are left out."""
    min_pitches: int = 4
    """Pieces with fewer different pitches are left out."""
    max_notes_per_second: float = 60.0
    """Pieces with more notes a second, on average, are left out."""
    max_outside_keys: float = 0.1
    """Pieces with a greater share of notes beyond a piano's 88 keys (21 to 108) are left out."""
    min_velocity_spread: float = 0.0
    """Pieces whose velocities (0 to 127) have a smaller standard deviation are left out; 0, the
    default, keeps scores in one velocity, and 3 leaves them out."""
    max_regularity: float = 1.0
    """Pieces with a greater share of machine-exact distances between onsets are left out; 1, the
    default, keeps quantised scores, and 0.9 leaves them out."""
    max_gap_seconds: float = 10.0
    """Longer silences inside a piece are shortened to this."""
    split_by: str = ""
    """CSV file with the columns path and split that fixes the split of the pieces named in it."""
    sources: str = ""
    """TSV file with the columns path, source, licence, kind and composer, all but the first
    optional, copied to pieces.jsonl."""

    def __post_init__(self) -> None:
        _take_plain_numbers(self)
        _check(self, "workers", _whole(self.workers, 0, 256), "a whole number between 0 and 256")
        for name in ("validation", "test"):
            _check(self, name, _within(getattr(self, name), 0, 0.5), "between 0 and 0.5")
        _require(
            self.validation + self.test < 1,
            "validation + test",
            self.validation + self.test,
            "below 1, so that something is left to train on",
        )
        _check_each(self, ("min_notes", "min_pitches"), _from_one, FROM_ONE)
        highest = {"max_outside_keys": 1, "max_regularity": 1, "min_velocity_spread": 64}
        for name, most in highest.items():
            _check(self, name, _within(getattr(self, name), 0, most), f"between 0 and {most}")
        _check_each(self, ["max_notes_per_second"], _positive, POSITIVE)
        _check(self, "min_seconds", _within(self.min_seconds, 0), "0 or more")
        _require_seed(self.seed)
        in_range = _within(self.max_gap_seconds, 1, 3600)
        _check(self, "max_gap_seconds", in_range, "between 1 and 3600")


@dataclass(frozen=True)
class SamplingConfig:
    """How the next event is drawn."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the likeliest event always and ignores the seed."""
    top_k: int = 0
    """Draw from the k likeliest events only; 0 for all."""
    top_p: float = 1.0
    """Draw from the likeliest events that together hold this probability; 1 for all."""
    min_p: float = 0.005
    """Leave out events less likely than this share of the likeliest one; 0 for none."""
    max_wait_seconds: float = 4.0
    """Longest wait in a row; the grammar mask forbids more."""
    max_note_seconds: float = 20.0
    """Longest note; the grammar mask ends it there."""
    release_after_seconds: float = 2.5
    """Notes that sound longer become ever likelier to be released."""
    time_temperature: float = 0.0
    """Own temperature of which wait, once it is a wait; 0 for `temperature`."""
    pitch_temperature: float = 0.0
    """Own temperature of which pitch, once one is struck; 0 for `temperature`."""
    velocity_temperature: float = 0.0
    """Own temperature of which velocity, once one is told; 0 for `temperature`."""
    key: str = ""
    """Key that the music keeps to, softly, as C, a, Bb or F# minor; empty for any."""
    key_strength: float = 2.0
    """Nats by which a note outside the scale of `key` becomes less likely."""
    density: float = 0.0
    """Notes per second that are aimed at, softly; 0 for as many as come."""
    density_strength: float = 2.0
    """Nats by which onsets and waits move, at most, where the density is far off."""

    def __post_init__(self) -> None:
        _take_plain_numbers(self)
        _check(self, "temperature", _within(self.temperature, 0, 10), "between 0 and 10")
        _check_each(self, ["top_k"], _from_zero, FROM_ZERO)
        _check(self, "top_p", _finite(self.top_p) and 0 < self.top_p <= 1, "above 0 and at most 1")
        _check_each(self, ["min_p"], _below_one, BELOW_ONE)
        in_range = _within(self.max_wait_seconds, 0.01, 60)
        _check(self, "max_wait_seconds", in_range, "between 0.01 and 60")
        for name in ("max_note_seconds", "release_after_seconds"):
            _check(self, name, _within(getattr(self, name), 0.1, 120), "between 0.1 and 120")
        for name in ("time_temperature", "pitch_temperature", "velocity_temperature"):
            value = getattr(self, name)
            in_range = value == 0 or _within(value, 0.05, 10)
            _check(self, name, in_range, "0 or between 0.05 and 10")
        known = isinstance(self.key, str) and (not self.key or scale(self.key) is not None)
        _check(self, "key", known, "a key, as C, a, Bb or F# minor, or empty")
        _check(self, "density", _within(self.density, 0, 60), "between 0 and 60")
        for name in ("key_strength", "density_strength"):
            _check(self, name, _within(getattr(self, name), 0, 10), "between 0 and 10")


SAMPLING_PRESETS = {
    "faithful": SamplingConfig(temperature=0.95),
    "balanced": SamplingConfig(),
    "adventurous": SamplingConfig(temperature=1.05),
}
"""A musician's words -> how the next event is drawn; docs/sampling.md has what was measured."""


@dataclass(frozen=True)
class PageConfig:
    """What the page offers, and how much one visitor may ask of the machine."""

    min_seconds: float = 5.0
    """Shortest piece of new music that can be asked for."""
    max_seconds: float = 300.0
    """Longest piece of new music that can be asked for."""
    max_variations: int = 8
    """Most takes that are composed at once."""
    default_prompt_seconds: float = 40.0
    """How much of the end of a prompt is continued until the handles are moved."""
    composers: int = 2
    """Visitors whose music is composed at the same time; the others wait in a line."""
    line: int = 16
    """Visitors that may wait; the next one is told to come back."""
    max_file_bytes: int = 4_000_000
    """Largest MIDI file that can be dropped."""
    max_notes: int = 50_000
    """Most notes in a dropped file."""
    max_sound_seconds: float = 1200.0
    """Longest music that is made into sound: 212 MB as a WAV file."""
    max_shelf_bytes: int = 1_000_000_000
    """Most bytes of files that wait to be fetched; beyond it the oldest go."""

    def __post_init__(self) -> None:
        _take_plain_numbers(self)
        _check_each(self, [f.name for f in dataclasses.fields(self)], _positive, POSITIVE)
        _check(
            self,
            "min_seconds",
            self.min_seconds <= self.max_seconds,
            f"at most max_seconds ({self.max_seconds:g})",
        )
