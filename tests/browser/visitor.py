"""A page of a browser -> somebody who looks at the roll, fills in the form and keeps pictures."""

from pathlib import Path
from typing import Any

from playwright.sync_api import FloatRect, Locator, Page

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
PATIENCE_MS = 60_000
FIELD = "#midi-file input[type=file]"
GRADIO_UPLOAD = "Method not implemented."
"""Gradio's own warning, twice for each uploaded file: its progress bar closes a stream, and the
stream of its client can only say that it has no such method."""
GRADIO_LEAVES = {
    "AbortError: signal is aborted without reason",
    "Unexpected error Connection errored out.",
}
"""What it says when a page is left while music is composed."""


def box_of(locator: Locator) -> FloatRect:
    """Where something is on the page, in its pixels."""
    box = locator.bounding_box()
    assert box is not None
    return box


class Visitor:
    """A page in a browser window of its own."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._url = url
        self._unheard = {GRADIO_UPLOAD}
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", self._watch)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("console", self._listen)

    def _watch(self, request: Any) -> None:
        if not request.url.startswith((self._url, "data:", "blob:")):
            self.complaints.append(f"request to {request.url}")

    def _listen(self, message: Any) -> None:
        told = message.text.partition("\n")[0].strip()
        if message.type in ("error", "warning") and told not in self._unheard:
            self.complaints.append(f"console: {message.text}")

    def open(self) -> "Visitor":
        """Load the page and wait for the first example and the piano."""
        self.page.goto(self._url)
        self.wait("state.notes > 0 && state.bank != 'waiting'")
        return self

    def reload(self) -> None:
        """Load the page again; Gradio complains of the streams that end with the page."""
        self._unheard |= GRADIO_LEAVES
        self.page.reload()

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

    def type(self, label: str, number: float) -> None:
        """Fill in a field below the roll."""
        field = self.page.get_by_label(label)
        field.fill(str(number))
        field.press("Tab")

    def seed(self, text: str) -> None:
        """Fill in the seed, behind the fold."""
        field = self.page.locator("#advanced").get_by_label("Seed")
        if not field.is_visible():
            self.page.get_by_role("button", name="Advanced").click()
        field.fill(text)

    def compose(self) -> None:
        """Press Compose."""
        self.page.click("#compose")

    def photograph(self, name: str) -> None:
        """Keep a picture of the whole page."""
        ARTEFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)
