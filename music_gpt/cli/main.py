"""Words on the command line -> an exit code: the door of `music-gpt`.

The work is done in `music_gpt.cli.verbs`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from music_gpt.errors import install, library_faults
from music_gpt.process import exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Run `music-gpt` with these words (default: those of the process); returns the exit code."""

    def work() -> None:
        # what a broken library raises is up to it, and without these there is no doctor
        again = f"in the checkout, run `{install()} --force-reinstall`"
        with library_faults(Exception, way_out=again):
            from music_gpt.cli.verbs import run  # a second, in which Ctrl-C may come
        run(argv)

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
