"""A page with a slow fake pianist, and visitors who look at it in a real Chromium.

A visitor's test fails when the page asks anything of another machine or complains in the console.
"""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from visitor import Visitor

from music_gpt.midi.piece import make_notes, write_midi

ROOT = Path(__file__).parent.parent.parent
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--autoplay-policy=no-user-gesture-required",
]
WINDOW: dict[str, Any] = {"accept_downloads": True, "viewport": {"width": 1280, "height": 860}}


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Address of the page, served by a process of its own on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    places = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    server = subprocess.Popen(
        [sys.executable, Path(__file__).parent / "serve.py", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": places, "PYTHONUNBUFFERED": "1"},
    )
    said = []
    assert server.stdout is not None
    for line in server.stdout:
        said.append(line)
        if "The page is open at" in line:
            break
    else:
        pytest.fail("The page did not start:\n" + "".join(said))
    log = threading.Thread(target=lambda: said.extend(server.stdout or ()), daemon=True)
    log.start()
    yield f"http://127.0.0.1:{port}/"
    server.terminate()
    server.wait(20)
    log.join(5)
    server.stdout.close()
    assert "Traceback" not in "".join(said), "".join(said)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started once."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: install the package of that name to run this")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def desk(browser: Browser) -> Iterator[BrowserContext]:
    """A window as on a desk; its pages share what they have loaded, and nothing else."""
    context = browser.new_context(**WINDOW)
    yield context
    context.close()


@pytest.fixture
def visit(browser: Browser, desk: BrowserContext, url: str) -> Iterator[Callable[..., Visitor]]:
    """Opens the page as somebody new; options are those of a browser context.

    Who comes while another is there gets a window of their own: of two pages in one window Chromium
    hardly draws the one behind when the machine is busy, and a click waits until it is drawn.
    """
    visitors: list[Visitor] = []

    def arrive(**options: Any) -> Visitor:
        options = options or (WINDOW if visitors else {})
        context = browser.new_context(**options) if options else desk
        visitors.append(Visitor(context.new_page(), url))
        return visitors[-1]

    yield arrive
    for visitor in visitors:
        visitor.page.close()
        if visitor.page.context is not desk:
            visitor.page.context.close()
    assert [complaint for visitor in visitors for complaint in visitor.complaints] == []


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    """A scale of 24 notes in 12 seconds."""
    path = tmp_path / "my own scale.mid"
    write_midi(make_notes([(0.5 * i, 0.5 * i + 0.5, 60 + i, 40 + 3 * i) for i in range(24)]), path)
    return path
