"""Words on the command line -> an exit code: the door of `music-gpt`.

The work is done in `music_gpt.cli.verbs`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from music_gpt.errors import InputError, broken_library, install, words_of
from music_gpt.process import exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Run `music-gpt` with these words (default: those of the process); returns the exit code."""

    def work() -> None:
        try:
            from music_gpt.cli.verbs import run  # a second, in which Ctrl-C may come
        except Exception as error:  # what a broken library raises is up to it
            if broken_library(error) is error:
                raise
            raise InputError(  # without it there is no doctor
                "A library of the command line is missing or broken "
                f"({words_of(error)}); in the checkout, run `{install()} --force-reinstall`."
            ) from error
        run(argv)

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
