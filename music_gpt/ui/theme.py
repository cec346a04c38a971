"""Some colours -> the look of the page, in light and dark: warm paper and one accent."""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils.colors import Color

CORAL = Color(
    c50="#fff4ee",
    c100="#ffe4d6",
    c200="#fec7ad",
    c300="#fca17a",
    c400="#f67a4c",
    c500="#e05e2f",
    c600="#c74a1e",
    c700="#a53b18",
    c800="#843219",
    c900="#6b2c19",
    c950="#3a140a",
    name="coral",
)


def theme() -> gr.themes.Base:
    """Warm paper and one accent; the font comes with Gradio and is served by the page itself."""
    plex = gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700))
    return gr.themes.Base(
        primary_hue=CORAL,
        neutral_hue="stone",
        radius_size="lg",
        text_size="md",
        font=(plex, "ui-sans-serif", "system-ui", "sans-serif"),
        font_mono=("ui-monospace", "Consolas", "monospace"),
    ).set(
        body_background_fill="#f7f5f1",
        body_background_fill_dark="#151417",
        body_text_color="#26221e",
        body_text_color_dark="#ece8e2",
        body_text_color_subdued="#6f675e",
        body_text_color_subdued_dark="#a39c94",
        block_background_fill="#ffffff",
        block_background_fill_dark="#1d1c20",
        border_color_primary="#e4dfd7",
        border_color_primary_dark="#35333a",
        input_background_fill="#ffffff",
        input_background_fill_dark="#242328",
        input_border_color="#dcd6cc",
        input_border_color_dark="#3b3940",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_500",
        button_primary_text_color="#ffffff",
        slider_color="*primary_600",
        slider_color_dark="*primary_400",
    )
