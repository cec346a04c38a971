"""The fields of the form, or the words of a call -> a wish: each stands once, here.

Fields have the names that their numbers have on the command line, so one reading serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import gradio as gr

from music_gpt.checking import choice, number, require, whole
from music_gpt.composing.pianist import MAX_GIVEN_SEED
from music_gpt.config.prompt import FASTEST, SLOWEST, PromptChange
from music_gpt.config.sampling import SAMPLING_PRESETS, SamplingConfig
from music_gpt.ui import bounds
from music_gpt.ui.pianoroll import Selection
from music_gpt.ui.visit import Wish

USUAL = SamplingConfig()
SEED_DIGITS = len(str(MAX_GIVEN_SEED))
TONICS = {
    "major": ("C", "Db", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B"),
    "minor": ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "G#", "A", "Bb", "B"),
}
"""As the key with the fewer accidentals is called."""
KEYS = [("Any", ""), *((f"{t} {m}", f"{t} {m}") for m, tonics in TONICS.items() for t in tonics)]


@dataclass(frozen=True)
class Slider:
    """A number of the form: its bounds and step, its value at first, and what is said of it."""

    low: float
    high: float
    value: float
    step: float
    label: str
    info: str | None = None


SLIDERS = {
    "seconds": Slider(bounds.MIN_SECONDS, bounds.MAX_SECONDS, 30, 5, "Length in seconds"),
    "variations": Slider(1, bounds.MAX_VARIATIONS, 1, 1, "Variations"),
    "density": Slider(
        0, 20, USUAL.density, 0.5, "Notes per second", "The music leans to so many; 0: to none."
    ),
    "temperature": Slider(
        0.5, 1.5, USUAL.temperature, 0.01, "Temperature", "Low is calm, high is daring."
    ),
    **{
        f"{part}_temperature": Slider(
            0, 1.5, getattr(USUAL, f"{part}_temperature"), 0.05, f"{word} temperature", told
        )
        for part, word, told in (
            ("pitch", "Pitch", "Of which notes are struck; 0: the temperature above."),
            ("time", "Rhythm", "Of when they are struck; 0: the temperature above."),
            ("velocity", "Velocity", "Of how loud they are; 0: the temperature above."),
        )
    },
    "top_k": Slider(
        0, 100, USUAL.top_k, 1, "Top-k", "Choose among so many of the likeliest events; 0: all."
    ),
    "top_p": Slider(
        0.05,
        1,
        USUAL.top_p,
        0.01,
        "Top-p",
        "Choose among the likeliest events that have this probability together; 1: all.",
    ),
    "min_p": Slider(
        0,
        0.5,
        USUAL.min_p,
        0.001,
        "Min-p",
        "Leave out events less likely than this share of the likeliest one; 0: none.",
    ),
}
SIMPLE = ("seconds", "variations", "key", "end")
ADVANCED = ("seed", *[name for name in SLIDERS if name not in SIMPLE])
FORM = (*SIMPLE, *ADVANCED)
"""The fields in the order in which their values come to the handlers."""
KNOBS = {knob.name: type(knob.default) for knob in fields(SamplingConfig)}
PRESET_MOVES = tuple(name for name in FORM if name in KNOBS and name not in ("key", "density"))
"""What a character sets; key and density are the visitor's own."""

CALL: dict[str, tuple[type, Any]] = {
    "tracks": (str, None),
    "prompt_seconds": (float, None),
    "prompt_end_seconds": (float, None),
    **{knob.name: (type(knob.default), knob.default) for knob in fields(PromptChange)},
    "seconds": (float, Wish.seconds),
    "variations": (int, Wish.variations),
    "rank": (bool, False),
    "preset": (str, "balanced"),
    "seed": (int, None),
    "end": (bool, Wish.end),
    "continuation_only": (bool, False),
    **{name: (kind, None) for name, kind in KNOBS.items()},
}
"""Words of a call -> kind and default, as of `music-gpt generate`; None leaves it to the preset."""


def make_field(name: str) -> gr.components.Component:
    """The field of the form with this name."""
    if name == "key":
        return gr.Dropdown(KEYS, value="", label="Key", elem_id="key")
    if name == "end":
        return gr.Checkbox(
            False,
            label="Let it find an ending of its own",
            info="Somewhat before or after that length.",
            elem_id="ending",
        )
    if name == "seed":
        return gr.Textbox(
            "",
            label="Seed",
            placeholder="random",
            max_lines=1,
            max_length=SEED_DIGITS,
            info="The same seed gives the same music.",
        )
    it = SLIDERS[name]
    return gr.Slider(
        it.low, it.high, it.value, step=it.step, label=it.label, info=it.info, buttons=[]
    )


def preset_values(name: str) -> list[Any]:
    """Where a character puts the fields `PRESET_MOVES`.

    >>> preset_values("faithful") < preset_values("adventurous")
    True
    """
    knobs = asdict(SAMPLING_PRESETS[name])
    return [knobs[moved] for moved in PRESET_MOVES]


def filled(values: Sequence[Any]) -> list[Any]:
    """What shows these values of `FORM` again, and the character that they belong to, if any."""
    if not values:
        return [gr.skip()] * (len(FORM) + 1)
    told = dict(zip(FORM, values, strict=True))
    moved = [told[name] for name in PRESET_MOVES]
    preset = next((name for name in SAMPLING_PRESETS if preset_values(name) == moved), None)
    return [gr.update(value=value) for value in (*values, preset)]


def read_wish(values: Mapping[str, Any]) -> Wish:
    """The wish that is told by these names and values; what is not among them is as usual.

    Raises `InputError` for what is out of bounds.

    >>> read_wish({"seconds": 5, "top_k": 3.0, "seed": " 7 "}).seed
    7
    """
    knobs = {name: values[name] for name in KNOBS if name in values}
    if "top_k" in knobs:
        knobs["top_k"] = as_whole(knobs["top_k"])
    seconds, variations = (values.get(n, getattr(Wish, n)) for n in ("seconds", "variations"))
    return Wish(
        number("seconds", seconds, bounds.MIN_SECONDS, bounds.MAX_SECONDS),
        whole("variations", as_whole(variations), 1, bounds.MAX_VARIATIONS),
        read_seed(values.get("seed")),
        values.get("end") is True,
        SamplingConfig(**knobs),
    )


def read_change(asked: Selection) -> PromptChange:
    """How the prompt shall be changed; raises `InputError` for what is out of bounds."""
    percent = number("speed in percent", asked.speed, 100 * SLOWEST, 100 * FASTEST)
    return PromptChange(as_whole(asked.transpose), percent / 100)


def read_call(values: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a call, where knobs that are not given are those of its preset.

    Raises `InputError` for words that are no text, or neither true nor false; numbers are left to
    those who use them.
    """
    words = {name: CALL[name][1] if value is None else value for name, value in values.items()}
    for name, (kind, usual) in CALL.items():
        if kind is bool:
            require(isinstance(words[name], bool), name, words[name], "true or false")
        elif kind is str and words[name] is not usual:
            require(isinstance(words[name], str), name, words[name], "a text")
    preset = SAMPLING_PRESETS[choice("preset", words["preset"], SAMPLING_PRESETS)]
    given = {name: value for name, value in words.items() if value is not None or name not in KNOBS}
    return {**asdict(preset), **given}


def as_whole(value: Any) -> Any:
    """A number without a fraction as an int, whatever a browser makes of it.

    >>> as_whole(2.0), as_whole(2.5)
    (2, 2.5)
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_seed(given: object) -> int | None:
    """The number in the seed field, or None when it is empty.

    >>> read_seed(" 42 "), read_seed(""), read_seed(7)
    (42, None, 7)
    """
    text = given.strip() if isinstance(given, str) else given
    if text is None or text == "":
        return None
    if isinstance(text, str) and text.isdecimal() and len(text) <= SEED_DIGITS:
        text = int(text)
    return whole("seed", text, 0, MAX_GIVEN_SEED)
