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
from typing import Any, TextIO, cast

from music_gpt.errors import InputError
from music_gpt.printable import printable_text

EXIT_MENDABLE = 2
TERMINATION_SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""What asks a program to end, as Ctrl-C does: a system that shuts down, a terminal that is closed,
which Windows does not tell in this way."""


class Terminated(KeyboardInterrupt):
    """One of the `TERMINATION_SIGNALS` came: it ends what Ctrl-C ends, with a code of its own."""

    def __init__(self, sentence: str = "", number: int = signal.SIGTERM) -> None:
        super().__init__(sentence)
        self.number = number


def interrupted(signal_name: str | None, sentence: str) -> KeyboardInterrupt:
    """What to raise for work that this signal has ended, so that its code is told."""
    for number in TERMINATION_SIGNALS:
        if number.name == signal_name:
            return Terminated(sentence, number)
    return KeyboardInterrupt(sentence)


def leave_termination_to_the_parent() -> None:
    """Let a process that works for another one go on where a signal reaches both from a terminal.

    The parent ends it when all is tidied up, by SIGTERM if need be.
    """
    for number in (signal.SIGINT, *TERMINATION_SIGNALS):
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a program; returns its exit code.

    0, or 2 with one sentence on standard error for what a person can mend, or 128 and the number of
    the signal: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP. Meanwhile a standard error
    that nobody can read ends nothing.
    """
    with _forgiving_stderr(), termination_interrupts() as came:
        try:
            work()
        except InputError as error:
            say(f"music-gpt: {error}")
            return EXIT_MENDABLE
        except KeyboardInterrupt as interrupt:
            say(f"music-gpt: {str(interrupt) or 'Interrupted.'}")
            own = interrupt.number if isinstance(interrupt, Terminated) else signal.SIGINT
            return 128 + (came[0] if came else own)
        return 0


@contextmanager
def termination_interrupts() -> Iterator[list[int]]:
    """The `TERMINATION_SIGNALS` raise `Terminated` in this block, and Ctrl-C what it always does.

    All are put into the list. What is held or ignored, as SIGHUP is under nohup, is left so.
    """
    came: list[int] = []
    process = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() != process:  # a forked worker is not asked to tidy up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        # a logout sends two, and a window may be closed after Ctrl-C: the second kind may not break
        # off the tidying up
        is_echo = bool(came) and number not in came
        came.append(number)
        if not is_echo:
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number=number)

    in_main_thread = threading.current_thread() is threading.main_thread()
    usual: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler}
    usual |= dict.fromkeys(TERMINATION_SIGNALS, signal.SIG_DFL)
    taken = [n for n in usual if in_main_thread and signal.getsignal(n) is usual[n]]
    for number in taken:
        signal.signal(number, end)
    try:
        yield came
    finally:
        for number in taken:
            signal.signal(number, usual[number])


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
