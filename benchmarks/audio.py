"""A piece -> how much faster than real time it becomes sound, here and in pretty_midi.

    python benchmarks/audio.py [piece.mid]

Without a file it takes a made-up piece of two minutes, ten notes a second. `pretty_midi`'s
`synthesize` is the peer that installs with pip alone: one sine wave a note, one channel.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from music_gpt import audio
from music_gpt.midi import piece as midi
from music_gpt.notes import NOTE_DTYPE


def made_up_piece() -> midi.Piece:
    """Two minutes of random notes between A1 and C7, 0.1 to 3 s long."""
    dice = np.random.default_rng(1)
    notes = np.zeros(1200, NOTE_DTYPE)
    notes["start"] = np.arange(1200) / 10
    notes["end"] = notes["start"] + dice.uniform(0.1, 3, 1200)
    notes["pitch"] = dice.integers(33, 97, 1200)
    notes["velocity"] = dice.integers(30, 100, 1200)
    return midi.piece_from_notes(notes)


def best_seconds(task: Callable[[], object], repeats: int = 3) -> float:
    """Shortest time that `task` took."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print both speeds and their ratio."""
    piece = midi.as_piece(sys.argv[1]) if len(sys.argv) > 1 else made_up_piece()
    peer = midi.to_pretty_midi(piece.sounding_notes)
    start = time.perf_counter()
    audio.render(piece.sounding_notes)
    first = time.perf_counter() - start  # reads and prepares the bank
    ours = best_seconds(lambda: audio.render(piece.sounding_notes))
    theirs = best_seconds(lambda: peer.synthesize(fs=audio.SAMPLE_RATE), repeats=1)
    print(f"{piece.seconds:.0f} s of music, {piece.n_notes} notes, {audio.SAMPLE_RATE} Hz")
    print(f"render (piano, stereo)            {piece.seconds / ours:7.0f} x real time")
    print(f"render, first call in a process   {piece.seconds / first:7.0f} x real time")
    print(f"pretty_midi.synthesize (sines)    {piece.seconds / theirs:7.0f} x real time")
    print(f"ratio                             {theirs / ours:7.1f}")


if __name__ == "__main__":
    main()
