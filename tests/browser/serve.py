"""A port -> the page on it, with the fake pianist: `python serve.py 7900`."""

import sys

from fake_pianist import FakePianist

from music_gpt.ui import launch

if __name__ == "__main__":
    launch(FakePianist(pace=3.0), port=int(sys.argv[1]))  # type: ignore[arg-type]
