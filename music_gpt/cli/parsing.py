"""Words and YAML files -> settings that were checked, or one sentence that says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace

from music_gpt.errors import InputError
from music_gpt.settings import read_settings

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
        read_settings(Path(cfg_path), {action.dest.split(".")[0] for action in self._actions})
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
