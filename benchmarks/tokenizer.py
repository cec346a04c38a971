"""A folder of MIDI files comes in -> how fast and how faithful the 390 events are goes out.

    python benchmarks/tokenizer.py FOLDER [--files 50] [--repeats 5]

The peer is MidiTok's own `MIDILike` with the same vocabulary, in the same process and on one
thread; the runs alternate, and the medians count. It reads neither tempo changes nor the pedal.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measuring import compare, midi_files, plain_midi_like
from symusic import Score

from music_gpt.errors import InputError
from music_gpt.midi.piece import read_piece
from music_gpt.notes import Notes
from music_gpt.tokens.events import FRAMES_PER_SECOND, canonical_notes, decode_ids, encode_notes
from music_gpt.tokens.tokenizer import PerformanceTokenizer


def main() -> None:
    """Read the arguments, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=50, help="files to take; 0 for all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="changes which files are taken")
    options = parser.parse_args()
    paths = midi_files(options.folder, options.files, options.seed)
    if not paths:
        parser.error(f"{options.folder} holds no MIDI files")
    pieces = dict(_pieces(paths))
    print_round_trip(list(pieces.values()))
    print_speed(list(pieces), list(pieces.values()), options.repeats)


def _pieces(paths: list[Path]) -> Iterator[tuple[Path, Notes]]:
    for path in paths:
        try:
            yield path, read_piece(path).sounding_notes
        except InputError as error:
            print(f"left out: {path.name}: {error}")


def print_round_trip(pieces: list[Notes]) -> None:
    """How much of the music comes back from the ids."""
    n_notes = n_lost = n_doubles = n_canonical = n_tokens = 0
    worst = longest = 0.0
    for notes in pieces:
        ids = encode_notes(notes)
        decoded = decode_ids(ids)
        onset = notes["start"] - notes["start"].min()
        n_notes, n_tokens = n_notes + len(notes), n_tokens + len(ids)
        n_lost += len(notes) - len(decoded)
        frame = np.rint(onset * FRAMES_PER_SECOND)
        n_doubles += len(notes) - len(np.unique(_on_one_line(notes["pitch"], frame)))
        n_canonical += bool(np.array_equal(decoded, canonical_notes(notes)))
        worst = max(worst, _largest_distance(notes["pitch"], onset, decoded))
        longest = max(longest, float(onset.max()))
    print(f"pieces                          {len(pieces):,} (longest {longest / 60:.0f} min)")
    print(f"notes                           {n_notes:,}")
    print(f"tokens                          {n_tokens:,} ({n_tokens / n_notes:.2f} a note)")
    print(f"notes lost                      {n_lost:,}, of them doubles in a frame {n_doubles:,}")
    print(f"largest error of an onset       {1000 * worst:.3f} ms")
    print(f"decoded = canonical             {n_canonical:,} of {len(pieces):,} pieces")


def _on_one_line(pitch: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Pitch and time as one number, pitches far from each other."""
    return pitch * 1e7 + time


def _largest_distance(pitch: np.ndarray, onset: np.ndarray, decoded: Notes) -> float:
    """Seconds between an onset and the nearest decoded one of its pitch, at most."""
    told = np.sort(_on_one_line(decoded["pitch"], decoded["start"]))
    asked = _on_one_line(pitch, onset)
    after = np.minimum(np.searchsorted(told, asked), len(told) - 1)
    before = np.maximum(after - 1, 0)
    return float(np.minimum(np.abs(told[after] - asked), np.abs(told[before] - asked)).max())


def print_speed(paths: list[Path], pieces: list[Notes], repeats: int) -> None:
    """Notes a second and the ratio to the peer, from notes in memory and from files."""
    ours = PerformanceTokenizer()
    peer = plain_midi_like()
    scores = [Score(path) for path in paths]
    ids = [encode_notes(notes) for notes in pieces]
    peer_tokens = [peer.encode(score) for score in scores]
    n_notes = sum(len(notes) for notes in pieces)
    compare(
        "notes in memory -> ids",
        lambda: [encode_notes(notes) for notes in pieces],
        lambda: [peer.encode(score) for score in scores],
        n_notes,
        repeats,
    )
    compare(
        "ids -> notes in memory",
        lambda: [decode_ids(one) for one in ids],
        lambda: [peer.decode(one) for one in peer_tokens],
        n_notes,
        repeats,
    )
    compare(
        "MIDI file -> ids",
        lambda: [encode_notes(read_piece(path).sounding_notes) for path in paths],
        lambda: [peer.encode(path) for path in paths],
        n_notes,
        repeats,
    )
    compare(
        "MIDI file -> MidiTok's sequence",
        lambda: [ours.encode(path) for path in paths],
        lambda: [peer.encode(path) for path in paths],
        n_notes,
        repeats,
    )


if __name__ == "__main__":
    main()
