"""Words and YAML files -> settings that were checked, or one sentence that says what is wrong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import yaml  # type: ignore[import-untyped] # a part of jsonargparse's own needs
from jsonargparse import ArgumentParser, Namespace

from music_gpt.config import DataConfig, ModelConfig, OptimConfig, TrainConfig
from music_gpt.errors import InputError

SECTIONS = {"model": ModelConfig, "data": DataConfig, "optim": OptimConfig, "train": TrainConfig}
"""Part of a YAML file -> its knobs."""

_PLAIN_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r'Parser key "([^".]+)":', lambda found: f"--{found[1].replace('_', '-')}:"),
    (r'Parser key "([^"]+)":', r"--\1:"),
    (r"a <class 'int'>", "a whole number"),
    (r"a <class 'float'>", "a number"),
    (r"a number(\. Got value: -?\.?(?:inf|nan)\b)", r"a number that is finite\1"),
    (r"a <class '(\w+)'>", r"a value of type \1"),
    (r"--(\w+): Unable to load config '(.*?)' - .*", r"--\1: there is no file '\2' of settings"),
    (r"a typing\.Literal\[(.*?)\]", r"one of \1"),
    (r"\. Got value: ", ", but got "),
    (r"(are required:|,) \w+\.(\w+)", r"\1 \2"),
)
"""What the parser says -> what it means to a person."""


class Parser(ArgumentParser):
    """A parser whose complaints are one sentence."""

    verb = ""
    """The verb that was asked for, where the parser of all verbs complains of it."""

    def parse_path(self, cfg_path: Any, *args: Any, **kwargs: Any) -> Namespace:
        """A file of settings, once it has been looked through."""
        _check_settings(Path(cfg_path), {action.dest.split(".")[0] for action in self._actions})
        found: Namespace = super().parse_path(cfg_path, *args, **kwargs)
        return found

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the `InputError` behind a complaint, or the complaint in plain words."""
        while ex is not None and not isinstance(ex, InputError):
            ex = ex.__cause__ or ex.__context__  # type: ignore[assignment]
        if ex is not None:
            raise InputError(" ".join(str(ex).split()))
        sentence = " ".join(message.split()).rstrip(".")
        for pattern, plain in _PLAIN_WORDS:
            sentence = re.sub(pattern, plain, sentence)
        help_words = f"{self.prog.replace(' [options]', '')} {self.verb}".strip()
        raise InputError(f"{sentence}; see `{help_words} --help`.")


def _check_settings(file: Path, known: set[str]) -> None:
    """Raise `InputError` unless the YAML file holds settings of `train` under their names."""
    told = "see `music-gpt train --help` and configs/"
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"--config: {file} is no text in UTF-8; give a YAML file.") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f" in line {where.line + 1}"
        raise InputError(f"--config: {file} is no valid YAML{line}; {told}.") from error
    _check_names(file, "", settings, known)
    for name, config in SECTIONS.items():
        if name in settings:
            _check_names(file, name, settings[name], {f.name for f in dataclasses.fields(config)})


def _check_names(file: Path, section: str, settings: object, known: set[str]) -> None:
    where, told = f"{file}: {section}".rstrip(": "), "see `music-gpt train --help`"
    if not isinstance(settings, dict):
        raise InputError(f"{where} has to hold names with values, but it is {settings!r}; {told}.")
    for name in settings:
        if name not in known:
            raise InputError(f"{where} has {name!r}, but there is no such setting; {told}.")
