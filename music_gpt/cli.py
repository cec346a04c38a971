"""Words on the command line -> an exit code: the door of `music-gpt`.

Exit code 0, or 2 with one sentence on standard error for what a person can mend, or 130 after
Ctrl-C. Next to nothing is imported here, so that Ctrl-C in the first second is met, too; the work
is done in `music_gpt.verbs`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from music_gpt.errors import InputError

EXIT_MENDABLE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run `music-gpt` with these words (default: those of the process); returns the exit code."""
    try:
        from music_gpt.verbs import run  # a second, in which Ctrl-C may come

        run(argv)
    except InputError as error:
        print(f"music-gpt: {error}", file=sys.stderr)
        return EXIT_MENDABLE
    except KeyboardInterrupt as interrupt:
        print(f"music-gpt: {str(interrupt) or 'Interrupted.'}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
