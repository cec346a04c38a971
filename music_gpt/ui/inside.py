"""A dict of plain numbers and words -> what the network expected, and looked at, under the roll."""

from __future__ import annotations

from typing import Any

import gradio as gr

from music_gpt.ui.pianoroll import file_text

START = """
const inside = new InsideView(element, props, () => trigger("input"));
watch("value", () => inside.update());
"""


def inside_view(**options: Any) -> gr.HTML:
    """What the network expected at an event that is pressed in the roll, and what it looked at.

    Its value is that of `music_gpt.ui.explain`; as an input it gives what `read_asked` takes.
    """
    return gr.HTML(
        {},
        html_template=file_text("inside.html"),
        css_template=file_text("inside.css"),
        js_on_load=file_text("inside.js") + START,
        apply_default_css=False,
        **options,
    )
