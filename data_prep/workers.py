"""Lists of files -> a function of each, in several processes that nothing can hang or bring down.

Knows nothing of music: it hands lists out, few at a time, and gives the results as they come.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import ModuleType
from typing import Generic, TypeVar

from music_gpt.errors import InputError
from music_gpt.process import leave_termination_to_the_parent

_CANNOT_START = (
    "The processes that read the files cannot start; look for a full memory, or set workers to 1."
)
WAITING_EACH = 2
"""Lists given to a process at a time: it never waits for the next one, and few are held."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers(Generic[Item, Result]):
    """`work` for each list of items, in `n_processes` processes (1: in this one).

    If an item ends its process, it is found by working on the suspects one by one, and `crashed`
    gives its result.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Result],
        crashed: Callable[[Item], Result],
        n_processes: int,
    ) -> None:
        self.work = work
        self.crashed = crashed
        self.n_processes = n_processes

    def run(self, lists: Iterable[list[Item]], n_lists: int) -> Iterator[Result]:
        """The results, in the order in which they are done."""
        if self.n_processes == 1 or n_lists <= 2:  # starting processes would take longer
            yield from map(self.work, lists)
            return
        waiting, broken = iter(lists), True
        while broken:
            running: dict[Future[Result], list[Item]] = {}
            try:
                yield from self._run_pool(waiting, running, min(self.n_processes, n_lists))
                broken = False
            except BrokenProcessPool:  # an item has killed its process: find out which
                yield from self._one_by_one([item for items in running.values() for item in items])

    def _run_pool(
        self,
        waiting: Iterator[list[Item]],
        running: dict[Future[Result], list[Item]],
        n_processes: int,
    ) -> Iterator[Result]:
        """Move lists from `waiting` through `running`; only few run, so memory stays bounded."""
        with _pool(n_processes) as pool:
            for items in waiting:
                # in `running` it is not lost if the pool is found broken
                running[future := Future[Result]()] = items
                running[_submit(pool, self.work, items)] = items
                del running[future]
                while len(running) >= WAITING_EACH * n_processes:
                    yield from _done(running)
            while running:
                yield from _done(running)

    def _one_by_one(self, suspects: list[Item]) -> Iterator[Result]:
        waiting = suspects[::-1]
        while waiting:
            with _pool(1) as pool:
                try:
                    _submit(pool, len, []).result()
                except BrokenProcessPool:
                    raise InputError(_CANNOT_START) from None
                try:
                    while waiting:
                        yield _submit(pool, self.work, [waiting[-1]]).result()
                        waiting.pop()
                except BrokenProcessPool:
                    yield self.crashed(waiting.pop())


def _done(running: dict[Future[Result], list[Item]]) -> Iterator[Result]:
    """The results that there are, once there is one."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        result = future.result()
        del running[future]
        yield result


def _pool(n_processes: int) -> ProcessPoolExecutor:
    """Fresh processes, the same on every system, that hold no lock of a thread of this one."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n_processes, mp_context=context, initializer=_begin_process)


def _submit(
    pool: ProcessPoolExecutor, work: Callable[[list[Item]], Result], items: list[Item]
) -> Future[Result]:
    with _without_main():  # the pool starts its processes when it is given something to do
        return pool.submit(work, items)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from running the script that was started once more in each of them.

    Nothing of it is needed there, and it would have to guard itself with `if __name__ == ...`.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin_process() -> None:
    leave_termination_to_the_parent()  # which lets us finish
    parent = multiprocessing.parent_process()
    if parent is not None:
        # a parent that is killed cannot tell its children to stop
        threading.Thread(target=_end_with, args=(parent.join,), daemon=True).start()


def _end_with(join: Callable[[], None]) -> None:
    join()
    os._exit(1)
