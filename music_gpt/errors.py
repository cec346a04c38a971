"""What a person can mend -> one sentence that says how: the error that every module raises."""

from __future__ import annotations

from music_gpt.printable import printable_text


class InputError(ValueError):
    """Something that was given is not usable, and the person who gave it can mend it.

    The message is one sentence that says what happened, what is allowed, and what to do next.
    The command line prints it and exits 2, the page shows it as a notice; every other exception
    is a fault of the program and keeps its traceback.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(printable_text(sentence))  # whatever it names, it is one line


def install(extra: str = "fast") -> str:
    """What installs the package with an extra, in its checkout, in any shell.

    >>> install("litdata")
    'pip install -c constraints.txt --config-settings editable_mode=compat -e ".[litdata]"'
    """
    return f'pip install -c constraints.txt --config-settings editable_mode=compat -e ".[{extra}]"'


def words_of(error: Exception) -> str:
    r"""What an error says in its first line; its name too, where it is none of ours.

    >>> words_of(RuntimeError("there is no a::b\nin this library"))
    'RuntimeError: there is no a::b'
    """
    said = next(iter(str(error).splitlines()), "")
    return said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"


def broken_library(error: Exception) -> Exception:
    """What to raise where a library cannot be imported, because it is missing or does not fit.

    That is the error itself where it is our own module that cannot be imported.
    """
    if str(getattr(error, "name", "") or "").startswith(("music_gpt", "data_prep")):
        return error
    return InputError(
        f"A library is missing or broken ({words_of(error)}); `music-gpt doctor` says what to do."
    )
