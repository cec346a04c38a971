"""A bundled pianist -> the page at http://127.0.0.1:7860: `python app.py`.

`music-gpt app` opens the same page and takes options; this file is also what a Space starts.
"""

from __future__ import annotations

import music_gpt
from music_gpt.ui import launch

if __name__ == "__main__":
    launch(music_gpt.load())
