"""What a click and a call from a program do, without a browser."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
from visiting import BAND, FIRST, PIANIST, SCALE, steps, values_of

from music_gpt.cli import verbs
from music_gpt.cli.composing import add_generate
from music_gpt.composing.pianist import Pianist
from music_gpt.config.model import ModelConfig
from music_gpt.midi.piece import make_notes, piece_from_notes, read_piece, write_midi
from music_gpt.network.model import GPT
from music_gpt.process import TERMINATION_SIGNALS
from music_gpt.soundfont import SoundFont
from music_gpt.ui import bounds
from music_gpt.ui import visit as visits
from music_gpt.ui.desk import NOTHING, Desk, idle
from music_gpt.ui.form import CALL
from music_gpt.ui.page import build_page, launch_options
from music_gpt.ui.pianoroll import HERE
from music_gpt.ui.shelf import PREFIX, Shelf
from music_gpt.ui.visit import Visit, Wish

ROOT = Path(__file__).parents[2]


GOOD = [None, *(default for _, default in CALL.values())]
"""What /generate takes: the prompt and the words of `CALL`."""


DESK = Desk(PIANIST)
"""Its files go when it goes."""


def call(prompt: Path | None = None, **words: Any) -> list[str]:
    """The files that /generate gives for these words."""
    values = {name: default for name, (_, default) in CALL.items()} | {"seconds": 5} | words
    return DESK.generate(None if prompt is None else str(prompt), *values.values())


def run_apart(work: Coroutine[Any, Any, Any]) -> Any:
    """Run `work` in a thread of its own: the browser's tests keep a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    async def build() -> gr.Blocks:
        return build_page(PIANIST)

    return run_apart(build())  # outside of a loop Gradio makes one that nobody closes


def test_only_what_takes_long_or_has_notices_waits_in_the_line(page: gr.Blocks) -> None:
    served = [fn for fn in page.fns.values() if fn.fn is not None]  # not by the browser alone
    quick = {fn.name for fn in served if not fn.queue}
    assert quick >= {"come_in", "choose", "browse", "idle", "recover", "stop"}
    waiting = {fn.name for fn in served if fn.queue}
    save, generate = "fn", "handler"
    assert waiting == {
        *("compose", "redo", "drop", "take_tracks", "look"),
        save,
        generate,
        "render",
    }


def ask(page: gr.Blocks, endpoint: str, values: list[Any]) -> Any:
    """What Gradio makes of the values of a call, before the handler gets them."""
    (function,) = [fn for fn in page.fns.values() if fn.api_name == endpoint]
    return run_apart(page.preprocess_data(function, values, None))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        *(("song.mid", "has to be a file"), ({"path": "\0"}, "has to be a file")),
        *(({"path": "http://127.0.0.1/song.mid"}, "has to be a file"), ([1], "a file")),
        ({"path": "song.mid"}, "not the form"),
    ],
)
def test_a_bad_file_of_a_call_is_answered_with_a_sentence_and_without_a_traceback(
    page: gr.Blocks, value: Any, sentence: str
) -> None:
    with pytest.raises(gr.Error, match=sentence) as caught:
        ask(page, "generate", [value, *GOOD[1:]])
    assert not caught.value.print_exception


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        *(({"seconds": value}, "seconds is .* a number") for value in ("x", [1], True, 10**400)),
        *(({"seconds": value}, "number from 5 to 300") for value in (301, float("nan"))),
        *(({"variations": value}, "variations is .* whole") for value in (1.5, 0, float("nan"))),
        *(({"top_k": value}, "top_k is .* whole number") for value in (float("nan"), 0.5, -1)),
        *(({"end": value}, "end is .* true or false") for value in ("yes", 1)),
        ({"tracks": "0"}, "give a prompt"),
        ({"transpose": 3}, "give a prompt"),
        *(({"transpose": value}, "transpose is .* whole") for value in (25, 0.5, float("nan"))),
        *(({"speed": value}, "speed is .* from 0.25 to 4") for value in (0, 5, float("nan"))),
        ({"preset": "wild"}, "preset is 'wild', .* faithful, balanced or adventurous"),
        ({"key": "H"}, "key is 'H'"),
        ({"seed": "9" * 5000}, "seed is '999"),
    ],
)
def test_a_bad_word_of_a_call_is_answered_with_a_sentence_and_without_a_traceback(
    words: dict[str, Any], sentence: str
) -> None:
    desk = Desk(Pianist(GPT(replace(ModelConfig.preset("tiny"), context=64))))
    values = {name: default for name, (_, default) in CALL.items()} | words
    with pytest.raises(gr.Error, match=sentence) as caught:
        desk.generate(None, *values.values())
    assert not caught.value.print_exception
    assert len(str(caught.value)) < 600


def test_every_file_of_the_page_is_sent_with_it(page: gr.Blocks) -> None:
    sent = launch_options()["css"]
    for block in page.blocks.values():
        if isinstance(block, gr.HTML):
            parts = (block.value, block.html_template, block.css_template, block.js_on_load)
            sent += "\n".join(part for part in parts if isinstance(part, str))
    files = [path for kind in ("css", "js", "html") for path in HERE.glob(f"*.{kind}")]
    assert len(files) > 12
    parts = {path.name: re.split("{network}|{sound}", path.read_text("utf-8")) for path in files}
    assert [name for name in parts if any(part not in sent for part in parts[name])] == []


def test_good_values_of_a_call_reach_the_handler(page: gr.Blocks) -> None:
    assert ask(page, "generate", GOOD) == GOOD


def test_a_call_takes_the_words_of_the_command_line(page: gr.Blocks) -> None:
    (verb,) = [flags for name, flags, _ in [add_generate()] if name == "generate"]
    flags = {action.dest for action in verb._actions}
    apart = {"help", "out", "checkpoint", "engine", "again", "json"}
    assert set(CALL) | {"prompt"} == {flag.replace("-", "_") for flag in flags} - apart
    told = page.get_api_info()["named_endpoints"]["/generate"]["parameters"]
    assert [word["parameter_name"] for word in told] == ["prompt", *CALL]
    assert all(word["parameter_has_default"] for word in told)


def test_a_call_chooses_tracks_a_part_a_key_and_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "band.mid"
    path.write_bytes(BAND)
    (file,) = call(path, tracks="Flute", seed=3)
    assert Path(file).name == "band-take-1-seed-3.mid"
    assert read_piece(file).notes["pitch"][0] == 90
    write_midi(SCALE, tmp_path / "scale.mid")
    (file,) = call(tmp_path / "scale.mid", prompt_seconds=2, prompt_end_seconds=4, seed=3)
    assert list(read_piece(file).notes["pitch"][:4]) == [64, 65, 66, 67]
    (file,) = call(tmp_path / "scale.mid", transpose=-3.0, speed=2, prompt_end_seconds=3, seed=3)
    assert Path(file).name == "scale-down-3-200-percent-take-1-seed-3.mid"
    notes = read_piece(file).notes[:12]
    assert notes["pitch"].tolist() == [57 + i for i in range(12)]
    assert notes["start"] == pytest.approx(0.25 * np.arange(12))
    files = call(variations=2, rank=True, seed=3)  # the last is the likeliest
    assert [Path(file).name for file in files] == [
        "music-take-1-seed-4.mid",
        "music-take-2-seed-3.mid",
    ]


def test_a_call_with_too_few_values_is_answered_with_a_sentence(page: gr.Blocks) -> None:
    with pytest.raises(gr.Error, match="not the form"):
        ask(page, "generate", GOOD[:3])


def test_render_without_a_file_is_answered_with_a_sentence() -> None:
    with pytest.raises(gr.Error, match="no MIDI file to play") as caught:
        Desk(PIANIST).render(None)
    assert not caught.value.print_exception


def test_sound_and_pictures_are_made_for_one_caller_at_a_time(page: gr.Blocks) -> None:
    sounds = [fn for fn in page.fns.values() if fn.concurrency_id == "file"]
    assert len(sounds) == 6  # three kinds, pictures, all takes, and the endpoint
    assert all(fn.concurrency_limit == 1 for fn in sounds)


def test_a_file_is_handed_out_from_where_it_lies(page: gr.Blocks) -> None:
    shelf = Shelf()
    path = shelf.path("a.mid")
    path.write_bytes(b"music")
    (function,) = [fn for fn in page.fns.values() if fn.api_name == "render"]
    (sent,), *_ = run_apart(page.postprocess_data(function, [str(path)], None))
    assert sent["path"] == str(path)


def test_every_shipped_example_can_be_continued() -> None:
    desk, visit = Desk(PIANIST), Visit()
    assert len(desk.examples) == 5
    for key in desk.examples:
        value, _ = desk.choose(visit, key)
        assert value["state"] == "prompt"
        assert value["end"] - value["start"] > 10
        assert steps(visit, Wish(5.0), value["end"])[-1]["seam"] > 10


def dropped(data: bytes, folder: Path) -> tuple[Desk, Visit, Any, Any]:
    """The roll and the list of tracks after a file was dropped."""
    desk, visit, path = Desk(PIANIST), Visit(), folder / "band.mid"
    path.write_bytes(data)
    value, example, field, tracks = desk.drop(visit, str(path))
    assert (example, field) == (None, None)
    path.unlink()  # Gradio removes it after some time
    return desk, visit, value, tracks


def test_the_tracks_of_a_dropped_file_are_listed_without_its_drums(tmp_path: Path) -> None:
    _, _, value, tracks = dropped(BAND, tmp_path)
    lines = [(line.replace("\xa0", " "), number) for line, number in tracks["choices"]]
    assert lines == [("Flute · pipe, 1 note", 0), ("Left hand · piano, 1 note", 1)]
    assert (tracks["value"], tracks["visible"]) == ([1], True)
    assert value["prompt"] == "0,2000,40,64;"
    assert value["status"] == (
        "Only the piano is read; other instruments are left out. Drums are left out."
    )


def test_another_choice_of_tracks_is_shown_and_composed_from(tmp_path: Path) -> None:
    desk, visit, before, _ = dropped(BAND, tmp_path)
    value = desk.take_tracks(visit, [0])
    assert value["prompt"] == "0,2000,90,64;"
    assert value["version"] != before["version"]
    assert (value["name"], value["status"]) == ("band", "")
    steps(visit, Wish(5.0), 2.0)
    assert visit.shown.takes[0].notes["pitch"][0] == 90
    assert desk.take_tracks(visit, [0, 1])["prompt"] == "0,2000,40,64;0,2000,90,64;"


def test_no_track_at_all_is_answered_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    desk, visit, before, _ = dropped(BAND, tmp_path)
    value = desk.take_tracks(visit, [])
    assert value["version"] == before["version"]
    assert value["status"] == "No track is chosen; choose among 0 (Flute), 1 (Left hand)."
    assert told == [value["status"]]


def test_a_fault_meanwhile_leaves_what_is_composed_and_its_stop_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    desk, visit, *_ = dropped(BAND, tmp_path)
    composing = desk.compose(visit, FIRST | {"end": 2.0}, *values_of(seconds=60.0))
    next(composing)
    (tmp_path / "wrong.mid").write_bytes(b"no music")
    assert desk.drop(visit, str(tmp_path / "wrong.mid"))[0] == gr.skip()
    assert desk.take_tracks(visit, []) == gr.skip()
    assert len(told) == 2
    assert set(map(str, idle(visit))) == {str(gr.skip())}
    composing.close()
    assert idle(visit)[0] == gr.update(visible=True)


def test_a_file_with_one_track_leaves_nothing_to_choose(tmp_path: Path) -> None:
    write_midi(SCALE, tmp_path / "scale.mid")
    _, visit, _, tracks = dropped((tmp_path / "scale.mid").read_bytes(), tmp_path)
    assert (tracks["choices"], tracks["visible"], visit.shown.source.file) == ([], False, b"")
    _, tracks = Desk(PIANIST).choose(visit, NOTHING)
    assert tracks["visible"] is False


def test_what_the_file_said_is_not_said_again_when_it_is_composed_from(tmp_path: Path) -> None:
    _, visit, _, _ = dropped(BAND, tmp_path)
    model = GPT(replace(ModelConfig.preset("tiny"), context=64))
    list(visits.compose(visit, Pianist(model), Wish(5.0), 0.0, 2.0))
    assert visit.warnings == []
    wish = visit.shown.takes[0].settings
    assert (wish["tracks"], wish["prompt_seconds"], wish["prompt_end_seconds"]) == ([1], None, None)
    list(visits.compose(visit, Pianist(model), Wish(5.0), 0.5, 1.5))
    wish = visit.shown.takes[0].settings
    assert (wish["prompt_seconds"], wish["prompt_end_seconds"]) == (1.0, 1.5)


def test_from_nothing_there_is_no_prompt() -> None:
    desk, visit = Desk(PIANIST), Visit()
    assert desk.choose(visit, NOTHING)[0]["state"] == "empty"
    assert steps(visit, Wish(5.0))[-1]["seam"] == 0.0


def test_the_page_is_for_this_machine_unless_told_otherwise() -> None:
    options = launch_options()
    assert options["server_name"] == "127.0.0.1"
    assert options["server_port"] == verbs._add_app()[1].get_default("port")
    assert options["share"] is False
    assert options["max_file_size"] == bounds.MAX_FILE_BYTES


def test_nothing_that_the_page_is_made_of_comes_from_elsewhere() -> None:
    import music_gpt.ui

    folder = Path(music_gpt.ui.__file__).parent
    texts = [p.read_text("utf-8") for p in folder.iterdir() if p.suffix in (".js", ".css", ".html")]
    assert len(texts) >= 7
    strange = [
        line for text in texts for line in text.splitlines() if "//" in line and "http" in line
    ]
    assert all("http://www.w3.org/2000/svg" in line for line in strange)


def test_a_long_prompt_is_continued_from_its_end() -> None:
    visit = Visit()
    notes = make_notes([(i, i + 1, 60, 64) for i in range(100)])
    value = visit.show_prompt(piece_from_notes(notes), "Long")
    assert (value["start"], value["end"]) == (60.0, 100.0)
    assert np.isclose(value["promptSeconds"], 100.0)


def test_a_port_in_use_is_told_in_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = (
            "from fake_pianist import FakePianist\n"
            "from music_gpt.process import exit_code\n"
            "from music_gpt.ui import launch\n"
            f"raise SystemExit(exit_code(lambda: launch(FakePianist(), port={port})))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            cwd=ROOT / "tests",
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"music-gpt: The page cannot be served at 127.0.0.1:{port}: the port is in use, or the "
        "address is not one of this machine; choose another port or host.\n"
    )


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A page in a process of its own, with a folder for its files; it listens already."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = (
        "from fake_pianist import FakePianist\n"
        "from music_gpt.ui import launch\n"
        f"launch(FakePianist(), port={port})"
    )
    server = subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT / "tests",
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        start_new_session=True,
        # tests that run in the background of a shell would hand on that Ctrl-C is to be ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert server.stdout is not None
    try:
        said = server.stdout.readline()
        assert said == f"The page is open at http://127.0.0.1:{port}/ (Ctrl-C closes it).\n"
        yield server
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, *TERMINATION_SIGNALS])
def test_a_page_says_where_it_is_and_that_it_is_closed_and_leaves_nothing_behind(
    running: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    assert list(tmp_path.glob(f"{PREFIX}{running.pid}-*"))
    running.send_signal(number)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert said == "The page is closed.\n"
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


async def built(soundfont: SoundFont | None = None) -> gr.Blocks:
    return build_page(PIANIST, soundfont)


def test_the_page_says_which_soundfont_plays_what_is_saved(tmp_path: Path) -> None:
    harp = SoundFont(tmp_path / "harp<1>.sf2", "Harp", 0, 0)
    words = str(run_apart(built(harp)).config)
    assert "played by harp&lt;1&gt;.sf2; the page itself plays the bundled piano" in words
    assert "bundled piano" not in str(run_apart(built()).config)
