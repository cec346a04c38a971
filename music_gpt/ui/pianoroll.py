"""A dict of plain numbers and note texts -> a piano roll that is seen, played and dragged.

The component is `gr.HTML` with its own template, style and script (the files beside this one):
no build step, and no request to anywhere but the page's own server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gradio as gr

from music_gpt.composing.redoing import LONGEST_SECONDS
from music_gpt.config.prompt import FASTEST, SLOWEST
from music_gpt.config.sampling import CANDIDATES
from music_gpt.errors import InputError
from music_gpt.ui.roll_value import RollValue

HERE = Path(__file__).parent
BANK = HERE.parent / "piano_bank"
"""The recorded piano that the browser plays; a folder with bank.json and FLAC files."""

SCRIPTS = (
    *("player.js", "drawing.js", "recording.js", "keyboard.js"),
    *("handles.js", "changing.js", "playing.js", "looking.js", "pianoroll.js"),
)
"""In the order in which each knows those before it."""
STYLES = ("pianoroll.css", "transport.css", "keyboard.css")
WANTS = ("", "earlier", "later", "continue", "change")
LOST = "The part to continue did not arrive; load the page again."
START = """
const roll = new PianoRoll(element, props, (event) => trigger(event));
watch("value", () => roll.update());
"""


@dataclass(frozen=True)
class Selection:
    """What the visitor has in hand: a part in seconds, to continue or anew, and what is shown."""

    start: float
    end: float
    take: int
    of_prompt: bool = False
    """Whether the prompt is shown, and no take."""
    candidates: Any = CANDIDATES
    """In how many ways the part shall be composed anew, as it was typed."""
    wants: str = ""
    """Other music: `earlier`, `later`, `continue` where the take shall be the prompt, or `change`
    where the prompt shall be changed."""
    version: int | None = None
    """Which music was shown when it was sent; None for what is shown now."""
    given: int | None = None
    """Which prompt shall be changed; None for that of what is shown now."""
    transpose: Any = 0
    """By so many semitones."""
    speed: Any = 100
    """To so many percent of its speed."""


def piano_roll(value: RollValue, **options: Any) -> gr.HTML:
    """A roll that plays; as an input it gives what `read_selection` takes.

    It is no subclass of `gr.HTML`, because Gradio writes a stub file beside the source of each
    component class that is defined.
    """
    return gr.HTML(
        value,
        html_template=file_text("pianoroll.html"),
        css_template="".join(map(file_text, STYLES)),
        js_on_load="".join(map(file_text, SCRIPTS)) + START,
        apply_default_css=False,
        bank_url=bank_address(),
        candidates=CANDIDATES,
        longest_redo=LONGEST_SECONDS,
        slowest=100 * SLOWEST,
        fastest=100 * FASTEST,
        **options,
    )


def read_selection(payload: Any) -> Selection:
    """The selection from what the browser sends; raises `InputError` for anything else.

    Whether there is such a part is for those to say who compose it.

    >>> read_selection({"start": 0, "end": 12.5, "take": 0, "tab": 0}).of_prompt
    True
    """
    try:
        start, end = float(payload["start"]), float(payload["end"])
        take, candidates = int(payload["take"]), payload.get("candidates", CANDIDATES)
        wants, version = payload.get("wants", ""), payload.get("version")
        change = {
            name: payload[name] for name in ("transpose", "speed", "given") if name in payload
        }
    except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
        raise InputError(LOST) from None
    is_number = math.isfinite(start) and math.isfinite(end) and take >= 0
    is_known = wants in WANTS and (version is None or isinstance(version, int))
    if not (is_number and is_known):
        raise InputError(LOST)
    of_prompt = payload.get("tab", 1) == 0
    return Selection(start, end, take, of_prompt, candidates, wants, version, **change)


@cache
def file_text(name: str) -> str:
    """The text of a file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def bank_address() -> str:
    """Where the page finds the piano bank, relative to its own root; empty when there is none."""
    if not (BANK / "bank.json").is_file():
        return ""
    return "gradio_api/file=" + quote(BANK.resolve().as_posix(), safe="/:") + "/"
