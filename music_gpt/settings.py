"""A YAML file of settings -> names and values that exist, and the run that they describe.

Needs PyYAML and nothing else, so that a bare machine reads the files in `configs/`, too.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped] # a part of Lightning's and jsonargparse's own needs

from music_gpt.config.model import ModelConfig
from music_gpt.config.training import DataConfig, OptimConfig, RunConfig, TrainConfig
from music_gpt.errors import InputError
from music_gpt.files import read_text

SECTIONS = {"model": ModelConfig, "data": DataConfig, "optim": OptimConfig, "train": TrainConfig}
"""Part of a YAML file -> its knobs."""
MAX_BYTES = 1 << 20
"""Of a YAML file; ours have a thousandth of it."""


def read_settings(file: Path, known: set[str]) -> dict[str, Any]:
    """What the YAML file says; `InputError` unless it holds settings of `train` by their names.

    known: names that may stand in it beside the sections.
    """
    told = "see `music-gpt train --help` and configs/"
    if not os.path.lexists(file):
        raise InputError(f"--config: there is no file '{file}' of settings; {told}.")
    text = read_text(file, MAX_BYTES, "a YAML file")
    try:
        settings = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f" in line {where.line + 1}"
        raise InputError(f"--config: {file} is no valid YAML{line}; {told}.") from error
    _check_names(f"{file}", settings, known | set(SECTIONS))
    for name, config in SECTIONS.items():
        if name in settings:
            knobs = {f.name for f in dataclasses.fields(config)}
            _check_names(f"{file}: {name}", settings[name], knobs)
    return dict(settings)


def _check_names(where: str, settings: object, known: set[str]) -> None:
    told = "see `music-gpt train --help`"
    if not isinstance(settings, dict):
        raise InputError(f"{where} has to hold names with values, but it is {settings!r}; {told}.")
    for name in settings:
        if name not in known:
            raise InputError(f"{where} has {name!r}, but there is no such setting; {told}.")


def run_config(settings: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """The run that settings describe; what they leave out keeps its default.

    >>> run_config({"model": {"n_layers": 2}}).model.n_layers
    2
    """
    return RunConfig(**{name: part(**settings.get(name, {})) for name, part in SECTIONS.items()})
