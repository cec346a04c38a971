"""Bounds on what the page offers -> how much one visitor may ask of the machine."""

from __future__ import annotations

MIN_SECONDS, MAX_SECONDS = 5.0, 300.0
"""Shortest and longest piece of new music that can be asked for."""
MAX_VARIATIONS = 8
"""Most takes that are composed at once."""
DEFAULT_PROMPT_SECONDS = 40.0
"""How much of the end of a prompt is continued until the handles are moved."""
MAX_EARLIER = 8
"""Earlier compositions that a visitor can go back to."""
MAX_EARLIER_NOTES = 1_000_000
"""Most notes in all of them together."""
BYTES_OF_NOTE = 60
"""About what a note takes in memory: 24 in an array, and the text that the roll is given."""
MAX_KEPT_VISITS, MAX_KEPT_BYTES = 64, 400_000_000
"""Visits that are kept for those who load their page again, and about what they take in memory."""
COMPOSERS = 2
"""Visitors whose music is composed at the same time; the others wait in a line."""
LINE = 16
"""Visitors that may wait; the next one is told to come back."""
MAX_FILE_BYTES = 4_000_000
"""Largest MIDI file that can be dropped."""
MAX_NOTES = 50_000
"""Most notes in a dropped file."""
MAX_SOUND_SECONDS = 1200.0
"""Longest music that is made into sound: as a WAV file it is a fifth of the shelf."""
MAX_SHELF_BYTES = 1_000_000_000
"""Most bytes of files that wait to be fetched; beyond it the oldest go."""
