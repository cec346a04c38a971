"""A pianist -> the page: prompt, compose, listen, take away, each visitor with music of their own.

Layout and wiring only: what a click does is in desk.py, what a visitor has in visit.py, and how
the roll looks and sounds in pianoroll.py and the files beside it.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gradio as gr
from gradio.themes.utils.colors import Color

from music_gpt.composing.pianist import MAX_GIVEN_SEED, Pianist
from music_gpt.config.sampling import SAMPLING_PRESETS, SamplingConfig
from music_gpt.errors import InputError
from music_gpt.ui.desk import KINDS, NOTHING, PAGE, Desk, preset_sliders
from music_gpt.ui.door import GuardedBlocks
from music_gpt.ui.pianoroll import BANK, HERE, file_text, piano_roll

HOUR = 3600
PATIENCE_SECONDS = 1
"""How long open connections may take to end when the page is closed."""
ONE_SOUND: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "sound"}
"""Sound files are made one at a time, so that the bound on their bytes holds."""
FILE_FIELD = "#midi-file input[type=file]"

# The roll's whole value stays in the browser; only the selection travels back.
WITH_SELECTION = """
(...inputs) => {
  inputs[1] = document.querySelector("#roll .mg-roll").musicGptRoll.selection();
  return inputs;
}
"""
WITH_SELECTION_AND_SOUND = WITH_SELECTION.replace(
    "  return", '  document.querySelector("#roll .mg-roll").musicGptRoll.expect();\n  return'
)
WITH_SELECTION_FOR_A_FILE = WITH_SELECTION_AND_SOUND.replace("expect", "making")
FOLD = """
<button type="button" aria-expanded="false" aria-controls="advanced">Advanced
  <svg viewBox="0 0 24 24" aria-hidden="true"><path d="m6 9 6 6 6-6"/></svg>
</button>
"""
MADE = '() => document.querySelector("#roll .mg-roll").musicGptRoll.made()'
SAVE = """
(file) => {
  document.querySelector("#roll .mg-roll").musicGptRoll.made();
  if (!file || !file.url) return;
  const link = document.createElement("a");
  link.href = file.url;
  link.download = file.orig_name || "";
  link.click();
}
"""

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


def build_page(pianist: Pianist) -> gr.Blocks:
    """The page as Gradio blocks; `launch_options` says how to serve it.

    Every visitor has a `Visit` of their own, so two at once never meet.
    """
    desk = Desk(pianist)
    with GuardedBlocks(
        title="music-gpt", analytics_enabled=False, delete_cache=(HOUR, HOUR), fill_width=True
    ) as blocks:
        page: GuardedBlocks = blocks
        first = desk.arrive()
        visit = gr.State(first, time_to_live=12 * HOUR)
        gr.HTML(
            file_text("header.html"),
            html_template="${value}",
            js_on_load=file_text("header.js"),
            apply_default_css=False,
            elem_id="masthead",
        )
        with gr.Row(elem_id="studio"):
            with gr.Column(elem_id="prompt-card", elem_classes="card"):
                file, tracks, example = prompt_card(desk)
            with gr.Column(elem_id="roll-card", elem_classes="card"):
                roll = piano_roll(first.roll, elem_id="roll", file_field=FILE_FIELD)
                with gr.Row(elem_id="actions"):
                    go = gr.Button("Compose", variant="primary", elem_id="compose")
                    stop = gr.Button("Stop, keep the music", visible=False, elem_id="stop")
                    saves = [
                        gr.Button(word, interactive=False, elem_classes="save") for word in KINDS
                    ]
                ready = gr.DownloadButton(visible=False)
            with gr.Column(elem_id="wish-card", elem_classes="card"):
                wish = wish_card()
        gr.HTML(file_text("footer.html"), apply_default_css=False, elem_id="colophon")

        private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        page.load(desk.keep, visit, visit, **private)
        example.input(desk.choose, [visit, example], [roll, tracks], **private)
        file.upload(desk.drop, [visit, file], [roll, example, file, tracks], **private)
        tracks.input(desk.take_tracks, [visit, tracks], roll, trigger_mode="always_last", **private)
        buttons = [go, stop, *saves]
        composed = go.click(
            desk.compose,
            [visit, roll, *wish],
            [roll, *buttons],
            js=WITH_SELECTION_AND_SOUND,
            trigger_mode="once",
            concurrency_limit=PAGE.composers,
            concurrency_id="pianist",
            **private,
        )
        composed.failure(desk.recover, visit, [roll, *buttons], **private)
        stop.click(desk.stop, visit, queue=False, **private)
        for button, suffix in zip(saves, KINDS.values(), strict=True):
            saved = button.click(
                partial(desk.save, suffix),
                [visit, roll],
                ready,
                js=WITH_SELECTION_FOR_A_FILE,
                **({} if suffix == ".mid" else ONE_SOUND),
                **private,
            )
            saved.success(None, ready, js=SAVE, **private)
            saved.failure(None, js=MADE, **private)
        add_endpoints(desk, wish)
    page.queue(max_size=PAGE.line, default_concurrency_limit=4)
    return page


def prompt_card(desk: Desk) -> tuple[gr.File, gr.CheckboxGroup, gr.Radio]:
    """Where the music to be continued comes from."""
    gr.HTML(heading(1, "Prompt", "What should be continued?"), apply_default_css=False)
    file = gr.File(
        label="MIDI file",
        show_label=False,
        file_types=[".mid", ".midi"],
        height=76,
        elem_id="midi-file",
    )
    tracks = gr.CheckboxGroup(
        label="Tracks of the file to use", visible=False, elem_id="tracks", type="value"
    )
    choices = [(example.label, key) for key, example in desk.examples.items()]
    example = gr.Radio(
        [*choices, ("Start from nothing", NOTHING)],
        value=next(iter(desk.examples), NOTHING),
        label="or take an opening",
        elem_id="examples",
    )
    return file, tracks, example


def wish_card() -> list[Any]:
    """The form: its fields in the order of `Desk.compose`."""
    gr.HTML(heading(2, "Compose", "How should it go on?"), apply_default_css=False)
    usual = SamplingConfig()
    seconds = gr.Slider(
        PAGE.min_seconds, PAGE.max_seconds, 30, step=5, label="Length in seconds", buttons=[]
    )
    variations = gr.Slider(1, PAGE.max_variations, 1, step=1, label="Variations", buttons=[])
    preset = gr.Dropdown(
        [(name.capitalize(), name) for name in SAMPLING_PRESETS],
        value="balanced",
        label="Character",
        elem_id="preset",
    )
    temperature = gr.Slider(
        0.5, 1.5, usual.temperature, step=0.01, label="Temperature: calm to daring", buttons=[]
    )
    # no gr.Accordion: it makes its fields when it is opened, and they forget what is typed then
    gr.HTML(
        html_template=FOLD,
        js_on_load=file_text("fold.js"),
        apply_default_css=False,
        elem_id="unfold",
    )
    with gr.Column(elem_id="advanced", elem_classes="folded"):
        seed = gr.Textbox(
            "",
            label="Seed",
            placeholder="random",
            max_lines=1,
            max_length=len(str(MAX_GIVEN_SEED)),
            info="The same seed gives the same music.",
        )
        top_k = gr.Slider(
            0,
            100,
            usual.top_k,
            step=1,
            label="Top-k",
            buttons=[],
            info="Draw from the k likeliest events; 0 for all.",
        )
        top_p = gr.Slider(
            0.05,
            1,
            usual.top_p,
            step=0.01,
            label="Top-p",
            buttons=[],
            info="Draw from the likeliest events that hold this probability together.",
        )
        min_p = gr.Slider(
            0,
            0.5,
            usual.min_p,
            step=0.005,
            label="Min-p",
            buttons=[],
            info="Leave out events below this share of the likeliest one.",
        )
    sliders = [temperature, top_k, top_p, min_p]
    preset.input(preset_sliders, preset, sliders, api_visibility="private", show_progress="hidden")
    return [seconds, variations, *sliders, seed]


def add_endpoints(desk: Desk, wish: list[Any]) -> None:
    """The two public endpoints, /generate and /render; all others are private."""
    with gr.Column(visible=False):
        prompt, music = (
            gr.File(label="MIDI file"),
            gr.File(label="MIDI files", file_count="multiple"),
        )
        score, sound = gr.File(label="MIDI file"), gr.File(label="WAV file")
        trigger = gr.Button()
    trigger.click(
        desk.generate,
        [prompt, *wish],
        music,
        api_name="generate",
        concurrency_limit=PAGE.composers,
        concurrency_id="pianist",
    )
    trigger.click(desk.render, score, sound, api_name="render", **ONE_SOUND)


def heading(number: int, title: str, question: str) -> str:
    """The head of a card."""
    return f'<h2 class="step"><b>{number}</b>{title}<span>{question}</span></h2>'


def launch_options(
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    share: bool = False,
    auth: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Arguments of `gr.Blocks.launch` for this page: everything from the page's own server."""
    return {
        "server_name": host,
        "server_port": port,
        "share": share,
        "auth": auth,
        "quiet": True,
        "max_file_size": PAGE.max_file_bytes,
        "allowed_paths": [str(BANK.resolve())],
        "favicon_path": str(HERE / "icon.svg"),
        "theme": theme(),
        "css": file_text("page.css"),
        "footer_links": [],
        "run_history": False,
        "enable_monitoring": False,
        "ssr_mode": False,
        "pwa": False,
        "mcp_server": False,
    }


def launch(
    pianist: Pianist,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    share: bool = False,
    auth: tuple[str, str] | None = None,
) -> None:
    """Serve the page until it is interrupted.

    Args:
        pianist: who composes.
        host: address to listen on; 0.0.0.0 lets other machines in.
        port: port to listen on.
        share: whether to open a public link through Gradio's tunnel.
        auth: name and password that visitors have to give.

    Raises:
        InputError: the port is taken.
    """
    options = launch_options(host=host, port=port, share=share, auth=auth)
    page = None
    try:
        with an_interrupt_from(signal.SIGTERM):
            page = build_page(pianist)
            page.launch(**options, prevent_thread_lock=True)
            sys.stderr.write(f"The page is open at {page.local_url} (Ctrl-C closes it).\n")
            while True:
                time.sleep(1)
    except KeyboardInterrupt:
        sys.stderr.write("The page is closed.\n")
    except OSError as error:  # what Gradio raises when it cannot listen there
        raise InputError(
            f"The page cannot be served at {host}:{port}: the port is in use, or the address is "
            "not one of this machine; choose another port or host."
        ) from error
    finally:
        if page is not None:
            close(page)


def close(page: gr.Blocks) -> None:
    """End the server, music under way or not, and remove the files that it has kept."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it tells who is cut off
    server = page.server
    if server is not None:
        server.config.timeout_graceful_shutdown = PATIENCE_SECONDS
    page.close(verbose=False)


@contextmanager
def an_interrupt_from(number: signal.Signals) -> Iterator[None]:
    """Let a signal end the program as Ctrl-C does, so that it tidies up behind it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)
