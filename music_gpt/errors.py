"""What a person can mend -> one sentence that says how: the error that every module raises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from music_gpt.printable import printable_text

OURS = ("music_gpt", "data_prep")
_ARGUMENT = re.compile("\ue000(.*?)\ue001")
"""The name of an argument in a sentence, between two characters of private use."""


class InputError(ValueError):
    """Something that was given is not usable, and the person who gave it can mend it.

    The message is one sentence that says what happened, what is allowed, and what to do next.
    The command line prints it and exits 2, the page shows it as a notice; every other exception
    is a fault of the program and keeps its traceback.
    """

    def __init__(self, sentence: str) -> None:
        self._marked = printable_text(sentence)  # whatever it names, it is one line
        super().__init__(_ARGUMENT.sub(r"\1", self._marked))

    def with_flags(self, flags: Mapping[str, str]) -> str:
        """The sentence for who typed flags: they stand in place of the names of `argument`.

        >>> fault = InputError(f"{argument('a + b')} is 2; leave out {argument('c')}, of c=3.mid.")
        >>> fault.with_flags({"a": "--a", "b": "--b", "c": "--c"})
        '--a + --b is 2; leave out --c, of c=3.mid.'
        >>> str(fault)
        'a + b is 2; leave out c, of c=3.mid.'
        """

        def typed(found: re.Match[str]) -> str:
            return re.sub(r"\w+", lambda name: flags.get(name[0], name[0]), found[1])

        return _ARGUMENT.sub(typed, self._marked)


def argument(name: str) -> str:
    """The name of an argument (or several, with signs between them) for the sentence of an error.

    Python has it as it stands; the command line puts its flag there.
    """
    return f"\ue000{name}\ue001"


def install(extra: str = "fast") -> str:
    """What installs the package with an extra, in its checkout, in any shell.

    >>> install("litdata")
    'pip install -c constraints.txt --config-settings editable_mode=compat -e ".[litdata]"'
    """
    return f'pip install -c constraints.txt --config-settings editable_mode=compat -e ".[{extra}]"'


def words_of(error: BaseException) -> str:
    r"""What an error says in its first line; its name too, where it is none of ours.

    >>> words_of(RuntimeError("there is no a::b\nin this library"))
    'RuntimeError: there is no a::b'
    """
    said = next(iter(str(error).splitlines()), "")
    return said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"


@contextmanager
def library_faults(
    *kinds: type[Exception], way_out: str = "`music-gpt doctor` says what to do"
) -> Iterator[None]:
    """Raise `InputError` where a library in this block is missing or does not fit.

    kinds: what such a library raises there. A fault in a module of ours stays what it is.
    """
    try:
        yield
    except kinds as error:
        if _is_ours(error):
            raise
        raise InputError(
            f"A library is missing or broken ({words_of(error)}); {way_out}."
        ) from error


def _is_ours(error: Exception) -> bool:
    if isinstance(error, ImportError):
        return (error.name or "").split(".")[0] in OURS
    if isinstance(error, SyntaxError):
        return _is_in_our_folders(Path(error.filename or ""))
    place, trace = Path(), error.__traceback__
    while trace is not None:
        place, trace = Path(trace.tb_frame.f_code.co_filename), trace.tb_next
    return _is_in_our_folders(place)


def _is_in_our_folders(place: Path) -> bool:
    return any(place.is_relative_to(Path(__file__).parents[1] / name) for name in OURS)
