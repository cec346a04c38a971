"""Knobs: what is wrong is told in one sentence that names the knob and says what is allowed."""

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from music_gpt.config.model import N_EVENTS, PRESETS, ModelConfig
from music_gpt.config.preparing import MidiLimits, PrepareConfig
from music_gpt.config.sampling import SAMPLING_PRESETS, SamplingConfig
from music_gpt.config.training import DataConfig, OptimConfig, RunConfig, TrainConfig
from music_gpt.errors import InputError
from music_gpt.tokens.events import VOCAB_SIZE

KNOBS = [
    ModelConfig,
    DataConfig,
    OptimConfig,
    TrainConfig,
    MidiLimits,
    PrepareConfig,
    SamplingConfig,
]

# (class, field, values that must not pass, what the sentence says is allowed)
BAD: list[tuple[type, str, list[Any], str]] = [
    (ModelConfig, "n_layers", [0, -1, 2.0, "6", None, True, 1001, 10**30], "from 1 to 1,000"),
    (ModelConfig, "d_model", [0, -512, 512.0, "512", None], "a whole number of 1 or more"),
    (ModelConfig, "d_ff", [0, 0.5, [2048]], "a whole number of 1 or more"),
    (ModelConfig, "n_heads", [0, 8.0], "a whole number of 1 or more"),
    (ModelConfig, "n_heads", [7, 1024], "a divisor of d_model (512)"),
    (ModelConfig, "n_kv_heads", [0, "8"], "a whole number of 1 or more"),
    (ModelConfig, "n_kv_heads", [3, 16], "a divisor of n_heads (8)"),
    (ModelConfig, "context", [0, 1, -5, 2048.0, 131_073], "from 2 to 131,072"),
    (ModelConfig, "vocab_size", [0, 390.0], "a whole number of 1 or more"),
    (ModelConfig, "norm", ["Pre", "rms", "", None, ["pre"]], "has to be pre or post."),
    (ModelConfig, "activation", ["swish", None], "has to be gelu or relu."),
    (ModelConfig, "positions", ["sinusoidal", 0], "has to be rope or learned."),
    (ModelConfig, "bias", ["no", 0, None], "true or false"),
    (ModelConfig, "qkv_bias", ["no"], "true or false"),
    (ModelConfig, "head_bias", ["no"], "true or false"),
    (ModelConfig, "final_norm", [1], "true or false"),
    (ModelConfig, "tie_head", [1], "true or false"),
    (ModelConfig, "qk_norm", ["no"], "true or false"),
    (ModelConfig, "zero_init", [[]], "true or false"),
    (ModelConfig, "init_std", [-0.1, 2, math.nan, "0.02"], "a number from 0 to 1"),
    (
        ModelConfig,
        "dropout",
        [-0.1, 1, 1.5, math.nan, "0.1"],
        "a number of at least 0 and below 1",
    ),
    (DataConfig, "batch_size", [0, -1, 1.5, "8"], "a whole number of 1 or more"),
    (DataConfig, "transpose", [-1, 13, 1.5], "a whole number from 0 to 12"),
    (DataConfig, "stretch", [-0.1, 0.6, math.nan, math.inf, "0.1"], "a number from 0 to 0.5"),
    (DataConfig, "velocity_bins", [-1, 9, 0.5], "a whole number from 0 to 8"),
    (DataConfig, "workers", [-1, 65, None], "a whole number from 0 to 64"),
    (DataConfig, "first_context", [-1, 1.5, None, 10**6], "a whole number from 0 to 131,072"),
    (DataConfig, "context_warmup", [-0.1, 1.1, math.nan], "a number from 0 to 1"),
    (OptimConfig, "optimizer", ["adam", "Muon", None], "has to be muon or adamw."),
    (OptimConfig, "muon_lr", [0, -0.02, math.nan, math.inf, "0.02"], "a number above 0"),
    (OptimConfig, "muon_momentum", [-0.1, 1, math.nan], "a number of at least 0 and below 1"),
    (OptimConfig, "adamw_lr", [0, -1e-3, None], "a number above 0"),
    (OptimConfig, "betas", [0.9, (0.9,), "ab", None, {}], "two numbers"),
    (OptimConfig, "weight_decay", [-0.01, math.nan, math.inf], "a number of 0 or more"),
    (OptimConfig, "weight_decay_schedule", ["cosine", 0, None], "has to be constant or linear."),
    (OptimConfig, "warmup_steps", [-1, 0.5, "100"], "a whole number of 0 or more"),
    (OptimConfig, "schedule", ["constant", None], "has to be linear or cosine."),
    (OptimConfig, "cooldown", [-0.1, 1.1, math.nan], "a number from 0 to 1"),
    (OptimConfig, "final_lr", [-0.1, 1.1, "0"], "a number from 0 to 1"),
    (OptimConfig, "clip", [0, -1, math.inf], "a number above 0"),
    (OptimConfig, "ema", [-0.1, 1.0, math.nan], "a number of at least 0 and below 1"),
    (TrainConfig, "max_steps", [-1, 1.5, "10", True], "a whole number of 0 or more"),
    (TrainConfig, "epochs", [-1, math.nan, math.inf, "1"], "a number of 0 or more"),
    (TrainConfig, "epochs", [0.0], "above 0 where neither max_steps nor max_minutes"),
    (TrainConfig, "max_minutes", [-1, math.nan, math.inf], "a number of 0 or more"),
    (TrainConfig, "accumulate", [0, 1.5, True], "a whole number of 1 or more"),
    (TrainConfig, "validate_every_steps", [0, -1, 0.5], "a whole number of 1 or more"),
    (TrainConfig, "validate_tokens", [-1, 0.5], "a whole number of 0 or more"),
    (TrainConfig, "samples", [-1, 4, 1.5, True], "a whole number from 0 to 3"),
    (TrainConfig, "tensorboard", [1, "true"], "true or false"),
    (TrainConfig, "save_every_minutes", [0, -1, math.nan, math.inf], "a number above 0"),
    (TrainConfig, "precision", ["fp16", "bf16-mixed", None], "has to be auto, bf16 or fp32."),
    (TrainConfig, "device", ["gpu", "tpu", None], "has to be auto, cpu, cuda or mps."),
    (TrainConfig, "devices", [0, "auto", -1], "a whole number of 1 or more"),
    (TrainConfig, "num_nodes", [0, 1.0], "a whole number of 1 or more"),
    (TrainConfig, "compile", ["no", 1], "true or false"),
    (TrainConfig, "seed", [-1, 1.5, 2**53, "1"], "a whole number from 0 to"),
    (MidiLimits, "max_bytes", [0, -1, math.nan, 1e6, "1"], "a whole number of 1 or more"),
    (MidiLimits, "max_events", [0, -1, math.nan], "a whole number of 1 or more"),
    (MidiLimits, "max_notes", [0, -1, math.nan], "a whole number of 1 or more"),
    (MidiLimits, "max_seconds", [0, -1.0, math.inf], "a number above 0"),
    (PrepareConfig, "workers", [-1, 257, 1.5], "a whole number from 0 to 256"),
    (PrepareConfig, "validation", [-0.1, 0.6, math.nan, "0.1"], "a number from 0 to 0.5"),
    (PrepareConfig, "test", [-0.1, 0.6, None], "a number from 0 to 0.5"),
    (PrepareConfig, "seed", [-1, 0.5, 2**53], "a whole number from 0 to"),
    (PrepareConfig, "split_by", [5, None, ["a.csv"]], "the path of a file, or empty"),
    (PrepareConfig, "sources", [5, True], "the path of a file, or empty"),
    (PrepareConfig, "min_notes", [0, 1.5, "32"], "a whole number of 1 or more"),
    (PrepareConfig, "min_seconds", [-1, math.nan, math.inf], "a number of 0 or more"),
    (PrepareConfig, "min_pitches", [0, None], "a whole number of 1 or more"),
    (PrepareConfig, "max_notes_per_second", [0, -1, math.nan, "60"], "a number above 0"),
    (PrepareConfig, "max_outside_keys", [-0.1, 1.1, math.nan], "a number from 0 to 1"),
    (PrepareConfig, "min_velocity_spread", [-1, 65, "3"], "a number from 0 to 64"),
    (PrepareConfig, "max_regularity", [-0.1, 1.1, None], "a number from 0 to 1"),
    (PrepareConfig, "max_gap_seconds", [0, 0.9, math.nan, 1e300], "a number from 1 to 3,600"),
    (SamplingConfig, "temperature", [-0.1, 10.1, math.nan, math.inf, "1"], "a number from 0 to 10"),
    (SamplingConfig, "top_k", [-1, 1.5, "5", True], "a whole number of 0 or more"),
    (SamplingConfig, "top_p", [0, -0.1, 1.1, math.nan], "a number above 0 and at most 1"),
    (SamplingConfig, "min_p", [-0.1, 1, math.nan], "a number of at least 0 and below 1"),
    (SamplingConfig, "max_wait_seconds", [0, 61, math.nan], "a number from 0.01 to 60"),
    (SamplingConfig, "max_note_seconds", [0, 121, math.inf], "a number from 0.1 to 120"),
    (SamplingConfig, "release_after_seconds", [0, 121, math.nan], "a number from 0.1 to 120"),
    (SamplingConfig, "time_temperature", [-1, 0.01, 11, math.nan], "a number from 0.05 to 10"),
    (SamplingConfig, "pitch_temperature", [-1, 0.01, 11, "1"], "a number from 0.05 to 10"),
    (SamplingConfig, "velocity_temperature", [-1, 0.01, 11], "a number from 0.05 to 10"),
    (
        SamplingConfig,
        "key",
        ["H", "C dorian", 5, None],
        "a key, as C, a, Bb, F# minor or Fis-Moll, or e",
    ),
    (SamplingConfig, "key_strength", [-1, 11, math.nan], "a number from 0 to 10"),
    (SamplingConfig, "density", [-1, 61, math.nan], "a number from 0 to 60"),
    (SamplingConfig, "density_strength", [-1, 11, "2"], "a number from 0 to 10"),
]


@pytest.mark.parametrize(
    ("config", "name", "value", "allowed"),
    [
        pytest.param(config, name, value, allowed, id=f"{config.__name__}.{name}={value!r:.12}")
        for config, name, values, allowed in BAD
        for value in values
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(
    config: type, name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(InputError) as caught:
        config(**{name: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} is {value!r}, but it has to be ")
    assert allowed in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_every_knob_that_has_limits_is_tried_above() -> None:
    tried = {(config, name) for config, name, _, _ in BAD}
    assert tried == {(c, f.name) for c in KNOBS for f in dataclasses.fields(c)}


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (ModelConfig, {"n_layers": 1000, "context": 131_072}),
        (ModelConfig, {"dropout": 0}),
        (ModelConfig, {"d_model": 15, "n_heads": 3, "n_kv_heads": 1, "positions": "learned"}),
        (DataConfig, {"transpose": 0, "stretch": 0, "velocity_bins": 0}),
        (DataConfig, {"transpose": 12, "stretch": 0.5, "velocity_bins": 8, "workers": 64}),
        (OptimConfig, {"betas": (0.0, 0.999), "warmup_steps": 0, "cooldown": 0, "final_lr": 1}),
        (TrainConfig, {"epochs": 0, "max_steps": 1}),
        (TrainConfig, {"epochs": 0, "max_minutes": 0.1}),
        (TrainConfig, {"epochs": 0.01, "seed": 2**53 - 1}),
        (PrepareConfig, {"validation": 0.0, "test": 0.0}),
        (SamplingConfig, {"temperature": 0, "top_p": 1, "min_p": 0}),
    ],
)
def test_the_limits_themselves_are_allowed(config: type, values: dict[str, Any]) -> None:
    made = config(**values)
    assert {name: getattr(made, name) for name in values} == values


@pytest.mark.parametrize("betas", [(0.9, 1.0), (-1, 0.9), ("a", "b"), (True, 0.9)], ids=str)
def test_each_of_the_two_constants_of_adamw_is_checked(betas: Any) -> None:
    with pytest.raises(InputError, match="^betas is .* a number of at least 0 and below 1.$"):
        OptimConfig(betas=betas)


def test_a_value_that_has_thousands_of_digits_is_told_in_a_short_sentence() -> None:
    for value in (10**400, 10**5000, "9" * 5000, [[9] * 5000] * 5000, {"a": {"b": {"c": {}}}}):
        with pytest.raises(InputError, match="^n_layers is .*from 1 to 1,000.$") as caught:
            ModelConfig(n_layers=value)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 150


def test_rotary_positions_need_an_even_head() -> None:
    with pytest.raises(InputError, match=r"d_model / n_heads is 5, but it has to be even"):
        ModelConfig(d_model=15, n_heads=3, n_kv_heads=3)


def test_a_split_that_leaves_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(InputError, match=r"validation \+ test is 1.0, but it has to be below 1"):
        PrepareConfig(validation=0.5, test=0.5)


def test_a_configuration_cannot_be_changed_behind_its_checks() -> None:
    for config in KNOBS:
        field = dataclasses.fields(config)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config(), field, -1)


def test_a_changed_copy_is_checked_again() -> None:
    with pytest.raises(InputError, match="n_layers is 0"):
        dataclasses.replace(ModelConfig(), n_layers=0)


def test_the_vocabulary_is_that_of_the_events() -> None:
    assert ModelConfig().vocab_size == N_EVENTS == VOCAB_SIZE == 390


# --- presets ----------------------------------------------------------------------------------


def test_the_default_preset_is_the_6_block_network_of_512_and_2048() -> None:
    c = ModelConfig.preset("default")
    assert c == ModelConfig()
    assert (c.n_layers, c.d_model, c.d_ff, c.n_heads, c.context) == (6, 512, 2048, 8, 2048)
    assert (c.norm, c.activation, c.positions, c.d_head) == ("pre", "gelu", "rope", 64)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("chapter14", {"n_layers": 6, "d_model": 512, "positions": "learned", "norm": "pre"}),
        ("chapter14", {"activation": "gelu", "bias": True, "qkv_bias": True, "vocab_size": 390}),
        ("text-3x256", {"n_layers": 3, "d_model": 256, "d_ff": 1024, "vocab_size": 10_600}),
        ("lecture", {"activation": "relu", "norm": "pre", "qkv_bias": False, "bias": True}),
        ("original-2017", {"activation": "relu", "norm": "post", "d_model": 512, "d_ff": 2048}),
        ("small", {"n_layers": 4, "d_model": 256, "d_ff": 1024, "n_heads": 4}),
    ],
)
def test_a_preset_has_the_shape_of_its_source(name: str, facts: dict[str, Any]) -> None:
    c = ModelConfig.preset(name)
    assert {key: getattr(c, key) for key in facts} == facts


def test_an_unknown_preset_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="preset is 'huge', but .* default, small") as caught:
        ModelConfig.preset("huge")
    for name in PRESETS:
        assert name in str(caught.value)


# --- plain values -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_survives_json(name: str) -> None:
    config = ModelConfig.preset(name)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_fields_that_are_not_given_keep_their_defaults() -> None:
    assert ModelConfig.from_dict({"n_layers": 2}) == ModelConfig(n_layers=2)


def test_an_unknown_field_names_itself_and_a_newer_version() -> None:
    expected = "unknown fields (n_experts, window); it was written by a newer version, so update"
    with pytest.raises(InputError, match=re.escape(expected)):
        ModelConfig.from_dict({"n_layers": 2, "window": 64, "n_experts": 8})


@pytest.mark.parametrize("first", [3, 100, 4096, 96])
def test_the_first_context_is_the_context_halved_again_and_again(first: int) -> None:
    with pytest.raises(InputError, match=r"first_context is .* halved again and again"):
        RunConfig(data=DataConfig(first_context=first))
    assert RunConfig(data=DataConfig(first_context=2048)).data.first_context == 2048
    assert RunConfig(data=DataConfig(first_context=1)).data.first_context == 1


def test_bad_values_from_a_file_are_checked_like_any_other() -> None:
    with pytest.raises(InputError, match="d_model is '512'"):
        ModelConfig.from_dict({"d_model": "512"})


def test_a_run_is_nested_plain_values() -> None:
    run = RunConfig().to_dict()
    assert list(run) == ["model", "data", "optim", "train"]
    assert run["model"] == ModelConfig().to_dict()
    assert json.loads(json.dumps(run))["train"]["seed"] == TrainConfig().seed


def test_numbers_of_numpy_are_numbers_and_become_plain_ones() -> None:
    sampling = SamplingConfig(temperature=np.float32(1), top_k=np.int64(5))  # type: ignore[arg-type]
    assert sampling == SamplingConfig(temperature=1.0, top_k=5)
    assert json.dumps(dataclasses.asdict(sampling))
    with pytest.raises(InputError, match="top_k is 2.5"):
        SamplingConfig(top_k=np.float64(2.5))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="top_k is True"):
        SamplingConfig(top_k=True)


def test_the_presets_go_from_calm_to_daring_and_the_middle_is_the_default() -> None:
    assert list(SAMPLING_PRESETS) == ["faithful", "balanced", "adventurous"]
    heats = [preset.temperature for preset in SAMPLING_PRESETS.values()]
    assert heats == sorted(set(heats))
    assert SAMPLING_PRESETS["balanced"] == SamplingConfig()
