"""A pianist -> the page: prompt, compose, listen, take away, each visitor with music of their own.

Layout and wiring only: what a click does is in desk.py, what a visitor has in visit.py, and how
the roll looks and sounds in pianoroll.py and the files beside it.
"""

from __future__ import annotations

import html
import inspect
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components.api_component import Api

from music_gpt.composing.pianist import Pianist
from music_gpt.config.sampling import SAMPLING_PRESETS
from music_gpt.errors import InputError, argument
from music_gpt.process import termination_interrupts
from music_gpt.soundfont import SoundFont
from music_gpt.ui import bounds
from music_gpt.ui.desk import NOTHING, STOP_COMPOSING, Desk, idle
from music_gpt.ui.door import GuardedBlocks
from music_gpt.ui.form import (
    ADVANCED,
    CALL,
    FORM,
    PRESET_MOVES,
    SIMPLE,
    make_field,
    preset_values,
)
from music_gpt.ui.inside import inside_view
from music_gpt.ui.pianoroll import BANK, HERE, file_text, piano_roll
from music_gpt.ui.saving import KINDS
from music_gpt.ui.theme import theme

PORT = 7860
"""On which the page is served unless told otherwise."""
HOUR, WEEK = 3600, 7 * 24 * 3600
CLOSING_SECONDS = 1
"""How long open connections may take to end when the page is closed."""
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
AT_ONCE: dict[str, Any] = {"queue": False, **PRIVATE}
"""What is quick does not wait in the line of those whose music is composed."""
ONE_FILE: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "file"}
"""Sound and pictures are made one at a time, so that the bound on their bytes holds."""
COMPOSERS: dict[str, Any] = {"concurrency_limit": bounds.COMPOSERS, "concurrency_id": "pianist"}
SAVED_SOUND = " What is saved as sound is played by {}; the page itself plays the bundled piano."
STYLES = ("page.css", "prompt.css", "wish.css", "actions.css")
"""The page, and the parts of it from top to bottom."""
FILE_FIELD = "#midi-file input[type=file]"

# a tab of the browser keeps the key of its visit, as long as it is open; some browsers keep nothing
KEEP = """({ key }) => {
  try { sessionStorage.setItem("music-gpt", key); } catch { return; }
}"""
KNOWN = """(visit) => {
  let key = null;
  try { key = sessionStorage.getItem("music-gpt"); } catch { /* it is a new visit */ }
  return [visit, { key }];
}"""
ROLL = 'document.querySelector("#roll .mg-roll").musicGptRoll'
INSIDE = 'document.querySelector("#inside .mg-inside").musicGptInside'
ASKED = f"(visit) => [visit, {INSIDE}.asked()]"
MADE = f"() => {ROLL}.made()"
SAVE = f"(file) => {ROLL}.save(file)"
TELL = f"(told) => {ROLL}.tell(told)"
FOLD = """
<button type="button" aria-expanded="false" aria-controls="advanced">Advanced
  <svg viewBox="0 0 24 24" aria-hidden="true"><path d="m6 9 6 6 6-6"/></svg>
</button>
"""
JSON_TYPES = {float: "number", int: "integer", bool: "boolean", str: "string"}


# --- the page -----------------------------------------------------------------------------------


@dataclass
class Widgets:
    """What is on the page and takes part in something."""

    visit: gr.State
    roll: gr.HTML
    inside: gr.HTML
    go: gr.Button
    redo: gr.Button
    stop: gr.Button
    saves: list[gr.Button]

    @property
    def shown(self) -> list[Any]:
        """What changes while music is composed: the roll and the buttons below it."""
        return [self.roll, self.go, self.redo, self.stop, *self.saves]


def build_page(pianist: Pianist, soundfont: SoundFont | None = None) -> gr.Blocks:
    """The page as Gradio blocks; `launch_options` says how to serve it.

    Every visitor has a `Visit` of their own, so two at once never meet. What is saved as sound is
    played by `soundfont`, if there is one.
    """
    desk = Desk(pianist, soundfont)
    with GuardedBlocks(
        title="music-gpt", analytics_enabled=False, delete_cache=(HOUR, HOUR), fill_width=True
    ) as blocks:
        page: GuardedBlocks = blocks
        plain_html("header.html", "masthead", js="header.js")
        with gr.Row(elem_id="studio"):
            with gr.Column(elem_id="prompt-card", elem_classes="card"):
                sources = prompt_card(desk)
            with gr.Column(elem_id="roll-card", elem_classes="card"):
                widgets = roll_card(desk)
            with gr.Column(elem_id="wish-card", elem_classes="card"):
                wish, preset = wish_card()
        network = html.escape(str(pianist.card.get("file", "")))
        sound = "" if soundfont is None else SAVED_SOUND.format(html.escape(soundfont.path.name))
        plain_html("footer.html", "colophon", network=network or "one without a file", sound=sound)
        wire_arrival(page, desk, widgets, *sources[1:], [*wish, preset])
        wire_prompt(desk, widgets, *sources)
        wire_composing(desk, widgets, wish, *sources[1:])
        wire_saving(desk, widgets)
        wire_looking(desk, widgets)
        add_endpoints(desk)
    page.queue(max_size=bounds.LINE, default_concurrency_limit=4)
    return page


def plain_html(name: str, elem_id: str, js: str | None = None, **words: str) -> None:
    """A file of this folder, its `{words}` filled in, and the script that belongs to it."""
    gr.HTML(
        file_text(name).format(**words) if words else file_text(name),
        html_template="${value}",
        js_on_load=file_text(js) if js else None,
        apply_default_css=False,
        elem_id=elem_id,
    )


def heading(number: int, title: str, question: str) -> None:
    """The head of a card."""
    words = f'<h2 class="step"><b>{number}</b>{title}<span>{question}</span></h2>'
    gr.HTML(words, apply_default_css=False)


def prompt_card(desk: Desk) -> tuple[gr.File, gr.CheckboxGroup, gr.Radio]:
    """Where the music to be continued comes from."""
    heading(1, "Prompt", "What should be continued?")
    file = gr.File(
        label="MIDI file",
        show_label=False,
        file_types=[".mid", ".midi"],
        height=76,
        elem_id="midi-file",
    )
    plain_html("play.html", "play-it", js="play.js")
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


def roll_card(desk: Desk) -> Widgets:
    """What is seen, heard and taken away."""
    first = desk.arrive()
    roll = piano_roll(
        first.shown.roll, elem_id="roll", file_field=FILE_FIELD, compares=desk.newness.is_known
    )
    with gr.Row(elem_id="actions"):
        go = gr.Button("Compose", variant="primary", elem_id="compose")
        redo = gr.Button("Compose this part anew", variant="primary", elem_id="redo")
        stop = gr.Button(STOP_COMPOSING, visible=False, elem_id="stop")
        saves = [gr.Button(word, interactive=False, elem_classes="save") for word in KINDS]
    inside = inside_view(elem_id="inside")
    # Gradio counts from when the page was loaded
    return Widgets(gr.State(first, time_to_live=WEEK), roll, inside, go, redo, stop, saves)


def wish_card() -> tuple[list[Any], gr.Dropdown]:
    """The form: its fields in the order of `FORM`, and the character, which moves some of them."""
    heading(2, "Compose", "How should it go on?")
    fields = {name: make_field(name) for name in SIMPLE[:2]}
    preset = gr.Dropdown(
        [(name.capitalize(), name) for name in SAMPLING_PRESETS],
        value="balanced",
        label="Character",
        elem_id="preset",
    )
    fields |= {name: make_field(name) for name in SIMPLE[2:]}
    # no gr.Accordion: it makes its fields when it is opened, and they forget what is typed then
    gr.HTML(
        html_template=FOLD,
        js_on_load=file_text("fold.js"),
        apply_default_css=False,
        elem_id="unfold",
    )
    with gr.Column(elem_id="advanced", elem_classes="folded"):
        fields |= {name: make_field(name) for name in ADVANCED}
    preset.input(preset_values, preset, [fields[name] for name in PRESET_MOVES], **AT_ONCE)
    return [fields[name] for name in FORM], preset


# --- what a click does --------------------------------------------------------------------------


def with_selection(first: str = "") -> str:
    """A script before a click is sent: the roll may do something first, and tells its selection.

    The roll's whole value stays in the browser.
    """
    does = f"{ROLL}.{first}(); " if first else ""
    return f"(...inputs) => {{ {does}inputs[1] = {ROLL}.selection(); return inputs; }}"


def wire_arrival(
    page: gr.Blocks,
    desk: Desk,
    widgets: Widgets,
    tracks: gr.CheckboxGroup,
    example: gr.Radio,
    form: list[Any],
) -> None:
    """A page that is loaded again shows the music that it had, and how it was asked for."""
    roll, *buttons = widgets.shown
    key = gr.JSON(visible=False)
    loaded = page.load(
        desk.come_in,
        [widgets.visit, key],
        [widgets.visit, key, roll, example, tracks, *buttons, *form],
        js=KNOWN,
        **AT_ONCE,
    )
    loaded.success(None, key, js=KEEP, **PRIVATE)
    compare(desk, widgets, loaded)


def wire_prompt(
    desk: Desk, widgets: Widgets, file: gr.File, tracks: gr.CheckboxGroup, example: gr.Radio
) -> None:
    """What is to be continued is chosen, or what was there before is shown again."""
    visit, (roll, *buttons) = widgets.visit, widgets.shown
    browse: dict[str, Any] = {
        "fn": desk.browse,
        "inputs": [visit, roll],
        "outputs": [roll, example, tracks, *buttons],
        "js": with_selection(),
        **AT_ONCE,
    }
    browsed = roll.input(trigger_mode="once", **browse)
    roll.submit(trigger_mode="multiple", **browse)  # the roll asks for one change at a time
    compare(desk, widgets, browsed)
    last: dict[str, Any] = {"trigger_mode": "always_last", **PRIVATE}
    for chosen in (
        example.input(desk.choose, [visit, example], [roll, tracks], **AT_ONCE),
        file.upload(desk.drop, [visit, file], [roll, example, file, tracks], **PRIVATE),
        tracks.input(desk.take_tracks, [visit, tracks], roll, **last),
    ):
        chosen.success(idle, visit, buttons, **AT_ONCE)  # there is nothing to save yet


def wire_composing(
    desk: Desk,
    widgets: Widgets,
    wish: list[Any],
    tracks: gr.CheckboxGroup,
    example: gr.Radio,
) -> None:
    """Music is composed, on or anew; a page of before a new start shows another prompt then."""
    for button, handler in ((widgets.go, desk.compose), (widgets.redo, desk.redo)):
        composed = button.click(
            handler,
            [widgets.visit, widgets.roll, *wish],
            widgets.shown,
            js=with_selection("expect"),
            trigger_mode="once",
            **COMPOSERS,
            **PRIVATE,
        )
        composed.failure(desk.recover, widgets.visit, widgets.shown, **AT_ONCE)
        composed.success(desk.source, widgets.visit, [example, tracks], **AT_ONCE)
        compare(desk, widgets, composed)
    widgets.stop.click(desk.stop, widgets.visit, **AT_ONCE)


def compare(desk: Desk, widgets: Widgets, shown: Any) -> None:
    """After the event `shown`, takes are compared with the training music, if it is known."""
    if desk.newness.is_known:
        shared = gr.JSON(visible=False)
        compared = shown.success(desk.compare, widgets.visit, shared, **AT_ONCE)
        compared.success(None, shared, js=TELL, **PRIVATE)


def wire_saving(desk: Desk, widgets: Widgets) -> None:
    """The take that is shown is taken away, or all of them."""
    ready = gr.DownloadButton(visible=False)
    for button, suffix in zip(widgets.saves, KINDS.values(), strict=True):
        saved = button.click(
            partial(desk.save, suffix),
            [widgets.visit, widgets.roll],
            ready,
            js=with_selection("making"),
            **({} if suffix == ".mid" else ONE_FILE),
            **PRIVATE,
        )
        saved.success(None, ready, js=SAVE, **PRIVATE)
        saved.failure(None, js=MADE, **PRIVATE)


def wire_looking(desk: Desk, widgets: Widgets) -> None:
    """What goes on in the network at an event that is pressed; of several in a row, at the last."""
    widgets.inside.input(
        desk.look,
        [widgets.visit, widgets.inside],
        widgets.inside,
        js=ASKED,
        trigger_mode="always_last",
        concurrency_limit=1,  # each takes up to half a second of all cores
        concurrency_id="look",
        **PRIVATE,
    )


def add_endpoints(desk: Desk) -> None:
    """The two public endpoints, /generate and /render; all others are private."""
    with gr.Column(visible=False):
        prompt = gr.File(label="MIDI file")
        words = [
            Api(default, {"type": JSON_TYPES[kind]}, name) for name, (kind, default) in CALL.items()
        ]
        music = gr.File(label="MIDI files", file_count="multiple")
        score, sound = gr.File(label="MIDI file"), gr.File(label="WAV file")
        trigger = gr.Button()
    trigger.click(
        with_words(desk.generate), [prompt, *words], music, api_name="generate", **COMPOSERS
    )
    trigger.click(desk.render, score, sound, api_name="render", **ONE_FILE)


def with_words(generate: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The handler with a signature that tells the words of `CALL` to those who call it."""

    def handler(prompt: str | None = None, *values: Any) -> list[str]:
        return generate(prompt, *values)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"prompt": None, **{name: default for name, (_, default) in CALL.items()}}
    handler.__doc__ = generate.__doc__
    handler.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind, default=default) for name, default in defaults.items()]
    )
    return handler


# --- the server ---------------------------------------------------------------------------------


def launch_options(
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
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
        "max_file_size": bounds.MAX_FILE_BYTES,
        "allowed_paths": [str(BANK.resolve())],
        "favicon_path": str(HERE / "icon.svg"),
        "theme": theme(),
        "css": "\n".join(map(file_text, STYLES)),
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
    soundfont: SoundFont | None = None,
    host: str = "127.0.0.1",
    port: int = PORT,
    share: bool = False,
    auth: tuple[str, str] | None = None,
) -> None:
    """Serve the page until it is interrupted.

    Args:
        pianist: who composes.
        soundfont: what plays the sound that is saved; None for the bundled piano.
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
        with termination_interrupts():
            page = build_page(pianist, soundfont)
            page.launch(**options, prevent_thread_lock=True)
            sys.stderr.write(f"The page is open at {page.local_url} (Ctrl-C closes it).\n")
            while True:
                time.sleep(1)
    except KeyboardInterrupt:
        sys.stderr.write("The page is closed.\n")
    except OSError as error:  # what Gradio raises when it cannot listen there
        raise InputError(
            f"The page cannot be served at {host}:{port}: the port is in use, or the address is "
            "not one of this machine; choose another "
            f"{argument('port')} or {argument('host')}."
        ) from error
    finally:
        if page is not None:
            close(page)


def close(page: gr.Blocks) -> None:
    """End the server, music under way or not, and remove the files that it has kept."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it tells who is cut off
    server = getattr(page, "server", None)  # none where the page could not be served
    if server is not None:
        server.config.timeout_graceful_shutdown = CLOSING_SECONDS
    page.close(verbose=False)
