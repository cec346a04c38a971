"""A port -> the page on it, with the fake pianist: `python serve.py 7900`."""

import sys

from fake_pianist import FakePianist

from music_gpt.ui.page import build_page, launch_options

if __name__ == "__main__":
    page = build_page(FakePianist(pace=6.0))  # type: ignore[arg-type]
    page.launch(**launch_options(port=int(sys.argv[1])))
