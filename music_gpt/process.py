"""The work of a program -> its exit code: the signals that end it, the streams it tells it on.

Next to nothing is imported here, so that Ctrl-C in the first second of a program is met, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO, cast

from music_gpt.errors import InputError
from music_gpt.printable import printable_text

EXIT_MENDABLE = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM came: it ends what Ctrl-C ends, with a code of its own."""


def interrupted(signal_name: str | None, sentence: str) -> KeyboardInterrupt:
    """What to raise for work that this signal has ended, so that its code is told."""
    return (Terminated if signal_name == "SIGTERM" else KeyboardInterrupt)(sentence)


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a program; returns its exit code.

    0, or 2 with one sentence on standard error for what a person can mend, or 130 after Ctrl-C and
    143 after SIGTERM. Meanwhile a standard error that nobody can read ends nothing.
    """
    with _forgiving_stderr(), sigterm_interrupts() as came:
        try:
            work()
        except InputError as error:
            say(f"music-gpt: {error}")
            return EXIT_MENDABLE
        except KeyboardInterrupt as interrupt:
            say(f"music-gpt: {str(interrupt) or 'Interrupted.'}")
            terminated = came or isinstance(interrupt, Terminated)
            return EXIT_TERMINATED if terminated else EXIT_INTERRUPTED
        return 0


@contextmanager
def sigterm_interrupts() -> Iterator[list[int]]:
    """SIGTERM raises `Terminated` in this block and is put into the list; unless it is held."""
    came: list[int] = []
    process = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() != process:  # a forked worker is not asked to tidy up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        came.append(number)
        raise Terminated

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield came
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# --- what is told -----------------------------------------------------------------------------


def say(text: str) -> None:
    """Lines for people, to standard error; nothing in them moves the cursor."""
    sys.stderr.write("\n".join(map(printable_text, text.split("\n"))) + "\n")


def print_out(text: str) -> None:
    """Write a result to standard output; `InputError` where that cannot be.

    What its encoding lacks is written as a backslash and a number.
    """
    if sys.stdout is None:
        raise InputError("Nothing can be printed: standard output is closed; open it.")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        reason = (error.strerror or str(error)).lower()
        raise InputError(
            f"Nothing can be printed to standard output ({reason}), but all else is done; let it "
            "go to another place."
        ) from error


class _Forgiving:
    """A stream that is written to as long as that can be."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or not."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, or not."""
        self._try(self._stream.flush)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            _give_up(self._stream)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextmanager
def _forgiving_stderr() -> Iterator[None]:
    """Progress and remarks that cannot be told do not end the work that they tell of."""
    _fill_closed()
    with contextlib.ExitStack() as held:
        if sys.stderr is None:  # it was closed before the program began
            nowhere = held.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stream = _Forgiving(nowhere if sys.stderr is None else sys.stderr)
        held.enter_context(contextlib.redirect_stderr(cast(TextIO, stream)))
        yield


def _fill_closed() -> None:
    """Let standard streams that are closed lead nowhere.

    Else the next file that is opened takes the number, and a library's remark goes into the music.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def _give_up(stream: TextIO) -> None:
    """Let the stream lead nowhere: what still waits in it would be complained of at the end."""
    with contextlib.suppress(OSError, ValueError):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
