"""Ctrl-C, SIGTERM and SIGHUP -> a wish to stop, granted between steps or batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from music_gpt.process import TERMINATION_SIGNALS


class StoppedAtOnce(BaseException):
    """Ctrl-C was pressed twice. Not a KeyboardInterrupt: on one, Lightning ends the program."""


class StopSignals:
    """Holds the signals for a while, and remembers which one came."""

    def __init__(self) -> None:
        self.received = ""
        """Name of the signal, empty while none has come."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold Ctrl-C and SIGHUP in this block (SIGTERM from `take` on); then all is as it was.

        A SIGHUP that is ignored, as under nohup, stays so; a SIGINT does not: what a script runs in
        its background begins with one.
        """
        old = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERMINATION_SIGNALS)}
        for number, handler in old.items():
            is_ignored = number != signal.SIGINT and handler is signal.SIG_IGN
            if number != signal.SIGTERM and not is_ignored:
                self.take(number)
        try:
            yield
        finally:
            for number, handler in old.items():
                if _in_main_thread() and handler is not None:
                    signal.signal(number, handler)

    def take(self, number: signal.Signals) -> None:
        """Hold this signal, whoever held it before."""
        if _in_main_thread():
            signal.signal(number, self.on_signal)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal; the second Ctrl-C raises `StoppedAtOnce`."""
        if self.received and number == signal.SIGINT:
            raise StoppedAtOnce
        self.received = signal.Signals(number).name


def _in_main_thread() -> bool:
    """Whether signals can be held here: Python lets only its main thread do so."""
    return threading.current_thread() is threading.main_thread()
