"""Words and YAML files -> settings that were checked, or one sentence that says what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace

from music_gpt.checking import choice, require
from music_gpt.errors import InputError
from music_gpt.process import print_out
from music_gpt.settings import SECTIONS, read_section, read_settings

_PLAIN_WORDS = (
    (r"a <class 'int'>", "a whole number"),
    (r"a <class 'float'>", "a number"),
    (r"a number(\. Got value: -?\.?(?:inf|nan)\b)", r"a number that is finite\1"),
    (r"a <class '(\w+)'>", r"a value of type \1"),
    (r"--(\w+): Unable to load config '(.*?)' - .*", r"--\1: there is no file '\2' of settings"),
    (r"a typing\.Literal\[(.*?)\]", r"one of \1"),
    (r"\. Got value: ", ", but got "),
)
"""What the parser says -> what it means to a person."""


class Parser(ArgumentParser):
    """A parser whose complaints are one sentence."""

    verb = ""
    """The verb that was asked for, where the parser of all verbs complains of it."""
    flags: Mapping[str, str] = {}
    """The flags of this verb, by the names that Python has for what they give."""

    @property
    def prog(self) -> str:
        """What is typed before the flags: `music-gpt train`."""
        return self._prog

    @prog.setter
    def prog(self, words: str) -> None:
        self._prog = words.replace(" [options]", "")  # jsonargparse has them before the verb

    def own_flags(self) -> dict[str, str]:
        """What a person types, by its name in Python: prompt_end_seconds -> --prompt-end."""
        typed = {
            action.dest: max(action.option_strings, key=len, default=action.dest)
            for action in self._actions
        }
        return {dest.split(".")[-1]: flag for dest, flag in typed.items()} | typed

    def refuse_empty(self, given: Namespace) -> None:
        """Raise `InputError` where a name or a text is empty that has to be something."""
        for action in self._actions:
            # of no tracks, the reader of the file says which there are
            if given.get(action.dest) == "" != action.default and action.dest != "tracks":
                way_out = "give a value" if action.required else "give a value, or leave it out"
                raise InputError(f"{self.own_flags()[action.dest]} is empty; {way_out}.")

    def parse_path(self, cfg_path: Any, *args: Any, **kwargs: Any) -> Namespace:
        """A file of settings, once it has been looked through."""
        settings = read_settings(Path(cfg_path), self._known())
        for switch in (action.dest for action in self._actions if action.nargs == 0):
            value = settings.get(switch, False)
            require(isinstance(value, bool), switch, value, "true or false")
        found: Namespace = self.parse_string(json.dumps(settings, default=str), *args, **kwargs)
        return found

    def _get_values(self, action: Any, arg_strings: Any) -> Any:
        """What the words after a flag stand for; files are opened by us alone."""
        value = super()._get_values(action, arg_strings)
        if isinstance(value, str) and action.dest == "config":
            read_settings(Path(value), self._known())
        return read_section(action.dest, value) if action.dest in SECTIONS else value

    def _check_value(self, action: Any, value: Any) -> None:
        """Whether a word is one of those that may follow a flag."""
        if action.choices is None or isinstance(action.choices, Mapping):  # the latter: verbs
            super()._check_value(action, value)
        else:
            choice(action.dest, value, action.choices)

    def _known(self) -> set[str]:
        """The names that may stand in a file of settings; another such file is none of them."""
        return {action.dest.split(".")[0] for action in self._actions} - {"config"}

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the `InputError` behind a complaint, or the complaint in plain words."""
        while ex is not None and not isinstance(ex, InputError):
            ex = ex.__cause__ or ex.__context__  # type: ignore[assignment]
        if ex is not None:
            raise ex
        sentence = " ".join(message.split()).rstrip(".")
        sentence = re.sub(r'Parser key "([^"]+)"', lambda key: self._typed(key[1]), sentence)
        head, required, names = sentence.partition("are required: ")
        sentence = head + required + ", ".join(map(self._typed, names.split(", ")))
        for pattern, plain in _PLAIN_WORDS:
            sentence = re.sub(pattern, plain, sentence)
        help_words = f"{self.prog} {self.verb}".strip()
        sentence = re.sub(r"(\S{200})\S{60,}", r"\1...", sentence)  # who types as much, knows it
        raise InputError(f"{sentence}; see `{help_words} --help`.")

    def _typed(self, key: str) -> str:
        """What a person types for the key of a setting."""
        return self.flags.get(key.removeprefix(f"{self.verb}."), key)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help."""
        print_out(message)
