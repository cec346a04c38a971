"""What a person can mend -> one sentence that says how: the error that every module raises.

Next to nothing is imported here, so that Ctrl-C in the first second of a program is met, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

EXIT_MENDABLE = 2
EXIT_INTERRUPTED = 130


class InputError(ValueError):
    """Something that was given is not usable, and the person who gave it can mend it.

    The message is one sentence that says what happened, what is allowed, and what to do next.
    The command line prints it and exits 2, the page shows it as a notice; every other exception
    is a fault of the program and keeps its traceback.
    """


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a program; returns its exit code.

    0, or 2 with one sentence on standard error for what a person can mend, or 130 after Ctrl-C.
    """
    try:
        work()
    except InputError as error:
        sys.stderr.write(f"music-gpt: {error}\n")
        return EXIT_MENDABLE
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"music-gpt: {str(interrupt) or 'Interrupted.'}\n")
        return EXIT_INTERRUPTED
    return 0
