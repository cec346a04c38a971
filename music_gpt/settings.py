"""A YAML file of settings -> names and values that exist, and the run that they describe.

Needs PyYAML and nothing else, so that a bare machine reads the files in `configs/`, too.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped] # a part of Lightning's and jsonargparse's own needs

from music_gpt.checking import short
from music_gpt.config.model import ModelConfig
from music_gpt.config.training import DataConfig, OptimConfig, RunConfig, TrainConfig
from music_gpt.errors import InputError
from music_gpt.files import read_text
from music_gpt.printable import shown

SECTIONS = {"model": ModelConfig, "data": DataConfig, "optim": OptimConfig, "train": TrainConfig}
"""Part of a YAML file -> its knobs."""
MAX_BYTES, MAX_DEPTH = 1 << 20, 8
"""Bounds on a YAML file; ours have a thousandth of the bytes, and half of the levels."""


def read_settings(file: Path, known: set[str]) -> dict[str, Any]:
    """What the YAML file says; `InputError` unless it holds settings of `train` by their names.

    known: names that may stand in it beside the sections. The sections have to make a run of their
    own, whatever flags change in it.
    """
    settings = _read_file("--config", file)
    _check_names(shown(file), settings, known | set(SECTIONS))
    for name in SECTIONS:
        if name in settings:
            _check_names(f"{shown(file)}: {name}", settings[name], _knobs(name))
    try:
        run_config(settings)
    except InputError as error:
        raise InputError(f"{shown(file)}: {error}") from error
    return dict(settings)


def read_section(name: str, given: str) -> dict[str, Any]:
    """What is given for a whole section: the YAML file of that name, or the YAML itself.

    Raises `InputError` unless it holds knobs of the section by their names.

    >>> read_section("model", "{n_layers: 2}")
    {'n_layers': 2}
    """
    flag, inline = f"--{name}", ":" in given and not os.path.lexists(given)
    knobs = read_yaml(flag, given) if inline else _read_file(flag, Path(given))
    _check_names(flag if inline else f"{flag}: {shown(given)}", knobs, _knobs(name))
    return dict(knobs)


def _read_file(flag: str, file: Path) -> Any:
    """What a YAML file says, for the flag that names it."""
    if not os.path.lexists(file):
        told = "see `music-gpt train --help` and configs/"
        raise InputError(f"{flag}: there is no file '{shown(file)}' of settings; {told}.")
    text = read_text(file, MAX_BYTES, "a YAML file")
    return read_yaml(f"{flag}: {shown(file)}", text)


def _knobs(section: str) -> set[str]:
    return {field.name for field in dataclasses.fields(SECTIONS[section])}


def read_yaml(where: str, text: str) -> Any:
    """What plain YAML says; `InputError`, which calls it `where`, for anything else.

    Numbers are as in YAML 1.2:

    >>> read_yaml("a flag", "[1e-3, 0.9]")
    [0.001, 0.9]
    """
    try:
        return _Loader(text).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + 1}"
        why = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise InputError(
            f"{where} is no valid YAML{line} ({' '.join(why.split())}); see "
            "`music-gpt train --help` and configs/."
        ) from error


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """YAML of a few levels, where a name stands once and nothing stands for something else."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _refusal("nothing may refer to another place with *", event)
        if self.depth == MAX_DEPTH:
            raise _refusal(f"more than {MAX_DEPTH} levels", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if (name := str(key.value)) in names:
                raise _refusal(f"{short(name)} stands there twice", key)
            names.add(name)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:  # as of a 99th of a month
            kind = node.tag.rpartition(":")[2]
            raise _refusal(f"{short(node.value)} cannot be read as {kind}", node) from error


_Loader.add_implicit_resolver(  # in YAML 1.1, which PyYAML reads, 1e-3 is a text
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _refusal(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def _check_names(where: str, settings: object, known: set[str]) -> None:
    told = "see `music-gpt train --help`"
    if not isinstance(settings, dict):
        raise InputError(
            f"{where} has to hold names with values, but it is {short(settings)}; {told}."
        )
    for name in settings:
        if name not in known:
            raise InputError(f"{where} has {short(name)}, but there is no such setting; {told}.")


def run_config(settings: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """The run that settings describe; what they leave out keeps its default.

    >>> run_config({"model": {"n_layers": 2}}).model.n_layers
    2
    """
    return RunConfig(**{name: part(**settings.get(name, {})) for name, part in SECTIONS.items()})
