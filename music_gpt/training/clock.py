"""The clock of the machine -> the time in which this process ran: a pause of it is left out.

A process is paused where it is stopped (Ctrl-Z, SIGSTOP) or its machine sleeps. A step may take as
long as it likes, as one that compiles does: a thread that wakes every second tells the two apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TICK_SECONDS = 1.0
PAUSE_SECONDS = 10.0
"""Where nothing of the process ran for longer than this, it was paused."""


class RunningClock:
    """Tells seconds from an arbitrary moment on, as `time.monotonic` does, but without pauses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen, self._paused = time.monotonic(), 0.0

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Watch for pauses in this block; outside, whatever lies between two looks may be one."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(TICK_SECONDS):
                self.seconds()

        self.seconds()
        thread = threading.Thread(target=tick, name="clock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def seconds(self) -> float:
        """The time now."""
        with self._lock:
            now = time.monotonic()
            gap = now - self._seen
            self._seen = now
            self._paused += gap if gap > PAUSE_SECONDS else 0.0
            return now - self._paused
