"""What a browser or a program sent -> values of the promised form, or one sentence.

Whatever is wrong with the values is a caller's mistake: it is answered, and leaves no traceback
in the log of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from music_gpt.checking import short
from music_gpt.errors import InputError

FORM = (
    "What was sent has not the form that this endpoint takes; `Client(address).view_api()` of the "
    "package gradio_client tells the form."
)


class GuardedBlocks(gr.Blocks):
    """Gradio's blocks, which answer what they cannot read with a sentence."""

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], *rest: Any, **options: Any
    ) -> Any:
        """Check the files, then let Gradio turn them into what the handler takes."""
        try:
            check_files(block_fn.inputs, inputs)
            return await super().preprocess_data(block_fn, inputs, *rest, **options)
        except InputError as error:
            raise sentence(error) from None
        except gr.Error as error:
            error.print_exception = False
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError):
            raise sentence(InputError(FORM)) from None


def sentence(error: InputError) -> gr.Error:
    """The error as callers get it: its sentence, no traceback on the server."""
    return gr.Error(str(error), print_exception=False)


def check_files(fields: Sequence[Any], values: Sequence[Any]) -> None:
    """Raise `InputError` for the first value that is not what its field of files takes."""
    for field, value in zip(fields, values, strict=False):  # Gradio counts them itself
        if isinstance(field, gr.File):
            check_file(field, value)


def check_file(field: gr.File, value: object) -> None:
    """Raise `InputError` unless `value` is nothing, or a file that was sent here."""
    path = value.get("path") if isinstance(value, dict) else None
    if value is None or (isinstance(path, str) and "\0" not in path and "://" not in path):
        return
    raise InputError(
        f"{field.label} is {short(path or value)}, but it has to be a file; send one with "
        "`gradio_client.handle_file`."
    )
