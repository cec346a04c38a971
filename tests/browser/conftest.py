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
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).parent.parent.parent
ARTEFACTS = ROOT / "artefacts"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--autoplay-policy=no-user-gesture-required",
]
PATIENCE_MS = 30_000


class Visitor:
    """A page in a browser window of its own."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._url = url
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", self._watch)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("console", self._listen)

    def _watch(self, request: Any) -> None:
        if not request.url.startswith((self._url, "data:", "blob:")):
            self.complaints.append(f"request to {request.url}")

    def _listen(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text}")

    def open(self) -> "Visitor":
        """Load the page and wait for the first example and the piano."""
        self.page.goto(self._url)
        self.wait("state.notes > 0 && state.bank != 'waiting'")
        return self

    @property
    def state(self) -> dict[str, Any]:
        """What the roll shows and plays."""
        door = "document.querySelector('.mg-roll').musicGptRoll"
        state: dict[str, Any] = self.page.evaluate(f"{door}.state()")
        return state

    def wait(self, condition: str) -> dict[str, Any]:
        """Wait until an expression of the roll's `state` holds."""
        door = "document.querySelector('.mg-roll')?.musicGptRoll"
        self.page.wait_for_function(
            f"() => {{ const state = {door}?.state(); return state && ({condition}); }}"
        )
        return self.state

    def wish(self, **numbers: float) -> None:
        """Fill in fields of the form by their labels."""
        for label, number in numbers.items():
            field = self.page.get_by_label(f"number input for {label}", exact=False)
            field.fill(str(number))
            field.press("Tab")

    def seed(self, text: str) -> None:
        """Fill in the seed, behind the fold."""
        field = self.page.locator("#advanced").get_by_label("Seed")
        if not field.is_visible():
            self.page.locator("#advanced > button").click()
        field.fill(text)

    def compose(self) -> None:
        """Press Compose."""
        self.page.click("#compose")

    def photograph(self, name: str) -> None:
        """Keep a picture of the whole page."""
        ARTEFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Address of the page, served by a process of its own on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, Path(__file__).parent / "serve.py", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    said = []
    assert server.stdout is not None
    for line in server.stdout:
        said.append(line)
        if "Running on local URL" in line:
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
    context = browser.new_context(accept_downloads=True, viewport={"width": 1280, "height": 860})
    yield context
    context.close()


@pytest.fixture
def visit(browser: Browser, desk: BrowserContext, url: str) -> Iterator[Callable[..., Visitor]]:
    """Opens the page as somebody new; options are those of a browser context."""
    visitors: list[Visitor] = []

    def arrive(**options: Any) -> Visitor:
        context = browser.new_context(**options) if options else desk
        visitors.append(Visitor(context.new_page(), url))
        return visitors[-1]

    yield arrive
    for visitor in visitors:
        visitor.page.close()
        if visitor.page.context is not desk:
            visitor.page.context.close()
    assert [complaint for visitor in visitors for complaint in visitor.complaints] == []
