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
