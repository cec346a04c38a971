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
        self._handed_out: set[str] = set()  # keys of visits that go on as others
        self._lock = threading.RLock()  # a generator may be collected anywhere, and uses its visit

    def hand_in(self, visit: Visit) -> str:
        """Keep a visit that comes or is used, and forget others; its key, which nobody can guess.

        First those go whose music another visit has, and those without music, then those that were
        not used for longest.
        """
        with self._lock:
            visit.key = visit.key or secrets.token_hex(16)
            self._visits.pop(visit.key, None)
            self._visits[visit.key] = visit
            self._handed_out.discard(visit.key)
            for key in sorted(list(self._visits)[:-1], key=self._is_worth_much):
                if len(self._visits) <= bounds.MAX_KEPT_VISITS and self._fits():
                    break
                self._visits.pop(key, None)
                self._handed_out.discard(key)
        return visit.key

    def _is_worth_much(self, key: str) -> bool:
        return key not in self._handed_out and self._visits[key].has_music

    def hand_out(self, key: object) -> Visit | None:
        """The visit with this key, when nothing is composed in it any more; None for a wrong key.

        It stays here: a page that was copied has the same key.
        """
        with self._lock:
            if not isinstance(key, str) or key not in self._visits:
                return None
            left = self._visits[key]
            self._handed_out.add(key)
        patient_until = time.monotonic() + ENDING_SECONDS
        while left.n_under_way and time.monotonic() < patient_until:
            time.sleep(LOOK_EVERY_SECONDS)
        return left

    def _fits(self) -> bool:
        """Whether all is below the bound; what several visits share counts once."""
        sizes: dict[int, int] = {}
        for visit in list(self._visits.values()):
            for snapshot in visit.kept:
                sizes |= snapshot.sizes
        return sum(sizes.values()) <= bounds.MAX_KEPT_BYTES
