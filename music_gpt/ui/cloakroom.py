"""A key that a page has got -> the visit of that page, when it is loaded again."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING

from music_gpt.ui import bounds

if TYPE_CHECKING:
    from music_gpt.ui.visit import Visit

ENDING_SECONDS = 3.0
"""How long music may take to end that was composed when its page was left: Gradio ends it."""
LOOK_EVERY_SECONDS = 0.02


class Cloakroom:
    """Keeps visits whose page may be left; only who has the key of one gets at it.

    A browser forgets a page that is loaded again, and Gradio begins a new session with it.
    """

    def __init__(self) -> None:
        self._visits: dict[str, Visit] = {}  # the one that was used last comes last
        self._lock = threading.Lock()

    def hand_in(self, visit: Visit) -> str:
        """Keep a visit, whatever it becomes; its key, which nobody can guess."""
        key = secrets.token_hex(16)
        with self._lock:
            self._visits[key] = visit
        self.tidy()
        return key

    def hand_out(self, key: object) -> Visit | None:
        """The visit with this key, when nothing is composed in it any more; None for a wrong key.

        It stays here: a page that was copied has the same key.
        """
        with self._lock:
            left = self._visits.pop(key, None) if isinstance(key, str) else None
            if left is None:
                return None
            self._visits[str(key)] = left
        patient_until = time.monotonic() + ENDING_SECONDS
        while left.n_under_way and time.monotonic() < patient_until:
            time.sleep(LOOK_EVERY_SECONDS)
        return left

    def tidy(self) -> None:
        """Forget visits until there is room: first those without music, then the oldest."""
        with self._lock:
            by_worth = sorted(self._visits, key=lambda key: self._visits[key].has_music)  # stable
            for key in by_worth[:-1]:
                if len(self._visits) <= bounds.MAX_KEPT_VISITS and self._fits():
                    break
                del self._visits[key]

    def _fits(self) -> bool:
        """Whether all is below the bound; what several visits share counts once."""
        sizes: dict[int, int] = {}
        for visit in self._visits.values():
            for snapshot in visit.kept:
                sizes |= snapshot.sizes
        return sum(sizes.values()) <= bounds.MAX_KEPT_BYTES
