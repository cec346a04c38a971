"""A key that a page has got -> the music of that page, when it is loaded again."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from music_gpt.ui import bounds

if TYPE_CHECKING:
    from music_gpt.ui.visit import Visit

PATIENCE_SECONDS = 3.0
"""How long music may take to end that was composed when its page was left."""
LOOK_EVERY_SECONDS = 0.02


class Cloakroom:
    """Keeps visits whose page may have been left; only who has the key of one gets at it.

    A browser forgets a page that is loaded again, and Gradio begins a new session with it.
    """

    def __init__(self) -> None:
        self._visits: dict[str, Visit] = {}  # the latest last
        self._lock = threading.Lock()

    def hand_in(self, visit: Visit) -> str:
        """Keep a visit, whatever it becomes; its key, which nobody can guess.

        Who came first is forgotten first when there are too many, or too much music.
        """
        key = secrets.token_hex(16)
        with self._lock:
            self._visits[key] = visit
            while len(self._visits) > 1 and self._is_full():
                del self._visits[next(iter(self._visits))]
        return key

    def _is_full(self) -> bool:
        kept = (snapshot for visit in self._visits.values() for snapshot in visit.kept)
        n_bytes = sum(snapshot.n_bytes for snapshot in kept)
        return len(self._visits) > bounds.MAX_VISITS or n_bytes > bounds.MAX_VISITS_BYTES

    def hand_out(self, key: object) -> Visit | None:
        """A visit that begins with the music of the one with this key; None for a wrong key.

        They share nothing from then on: the page may have been copied, and still be open.
        """
        with self._lock:
            left = self._visits.get(key) if isinstance(key, str) else None
        return None if left is None else _again(left)


def _again(left: Visit) -> Visit:
    """A visit with the same music. What was being composed is waited for: Gradio ends it."""
    patient_until = time.monotonic() + PATIENCE_SECONDS
    while left.n_under_way and time.monotonic() < patient_until:
        time.sleep(LOOK_EVERY_SECONDS)
    return replace(
        left,
        history=left.history.copy(),
        warnings=[],
        stop_asked=False,
        n_under_way=0,
    )
