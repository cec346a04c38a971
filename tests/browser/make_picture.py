"""The bundled pianist -> a picture of the page: `python tests/browser/make_picture.py page.png`.

Träumerei is continued twice, by 20 seconds in two variations, and the last of them is shown.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import sync_playwright
from visitor import Visitor, box_of

ROOT = Path(__file__).parents[2]
SECONDS, SEEDS = 20, ("3", "12")
PATIENCE_SECONDS = 180


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for(url: str) -> None:
    """Return when somebody answers at `url`."""
    for _ in range(2 * PATIENCE_SECONDS):
        try:
            urlopen(url).close()
        except URLError:
            time.sleep(0.5)
        else:
            return
    raise SystemExit(f"Nobody answers at {url}.")


def compose(visitor: Visitor) -> None:
    """What a visitor does until there is something to look at."""
    visitor.open()
    visitor.page.get_by_label("Träumerei").check()
    visitor.wait("state.name.startsWith('Träumerei')")
    visitor.wish(**{"Length in seconds": SECONDS, "Variations": 2})
    for number, seed in enumerate(SEEDS, 1):
        visitor.seed(seed)
        visitor.compose()
        state = visitor.wait(f"state.state == 'done' && state.place.endsWith('/ {number}')")
    visitor.page.get_by_role("button", name="Advanced").click()
    if state["playing"]:
        visitor.page.get_by_label("Pause").click()
    visitor.page.get_by_role("tab", name="2").click()
    surface = visitor.page.locator(".mg-surface")
    box = box_of(surface)
    share = (state["seam"] + SECONDS / 2) / state["end"]
    surface.click(position={"x": box["width"] * share, "y": 40})
    visitor.page.mouse.move(2, 2)
    visitor.wait("state.position > state.seam")


def main(picture: Path) -> None:
    """Serve the page, look at it in Chromium, and write what is seen."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]
    from conftest import CHROMIUM, FLAGS

    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    words = [sys.executable, "-m", "music_gpt.cli.main", "app", "--port", str(port)]
    server = subprocess.Popen(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        wait_for(url)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
            compose(Visitor(page, url))
            page.wait_for_timeout(500)  # transitions of the buttons
            picture.parent.mkdir(exist_ok=True)
            page.screenshot(path=picture, full_page=True)
            browser.close()
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
