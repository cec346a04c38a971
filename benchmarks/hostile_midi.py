"""Hostile MIDI files come in -> seconds and megabytes that each costs go out.

    python benchmarks/hostile_midi.py [--only WORDS]

Each kind of file is full of one thing, as large as one of the limits allows, and is read in a
process of its own: seconds are of the processor, megabytes are what the process grew by. The last
line gives the worst of each, and the exit code is 1 if they are beyond the bounds.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import tempfile
from argparse import RawTextHelpFormatter
from collections.abc import Callable
from pathlib import Path

from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.midi.mending import read_events
from music_gpt.midi.timing import is_press

MOST_SECONDS, MOST_MEGABYTES = 1.0, 200.0
SAMPLE_BYTES = 50_000
"""Enough to count how many events and notes a kind of file holds in a byte."""
JUST_BELOW = 0.98
READER = """
import re, sys, time
from pathlib import Path
from music_gpt.errors import InputError
from music_gpt.midi.piece import midi_bytes, make_notes, read_piece

def peak():  # of this process image; getrusage would count that of the parent
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

read_piece(midi_bytes(make_notes([(0, 1, 60, 64)])))
before, since = peak(), time.process_time()
try:
    told = f"{read_piece(sys.argv[1]).n_notes:,} notes"
except InputError as error:
    told = str(error)
print(time.process_time() - since, peak() - before, told, sep="\\t")
"""


PRESS = b"\x00\x90\x3c\x40"


def head(kind: int = 1, n_tracks: int = 1) -> bytes:
    """A header with 500 ticks a quarter note."""
    return b"MThd\x00\x00\x00\x06" + b"".join(n.to_bytes(2) for n in (kind, n_tracks, 500))


def filled(unit: bytes, n_bytes: int) -> bytes:
    """As many whole units as fit."""
    return unit * (n_bytes // len(unit))


def one_track(unit: bytes, *, first: bytes = b"") -> Callable[[int], bytes]:
    """A file of one track: a note as long as the piece, and then nothing but one unit."""

    def build(n_bytes: int) -> bytes:
        body = PRESS + first + filled(unit, n_bytes - 30 - len(first)) + b"\x01\xff\x2f\x00"
        return head() + b"MTrk" + len(body).to_bytes(4) + body

    return build


def many_tracks(events: bytes, kind: int = 1) -> Callable[[int], bytes]:
    """A file full of small tracks."""
    body = events + b"\x00\xff\x2f\x00"
    unit = b"MTrk" + len(body).to_bytes(4) + body
    return lambda n_bytes: head(kind, 65535) + filled(unit, n_bytes - 14)


def behind_a_header(unit: bytes) -> Callable[[int], bytes]:
    """A header, and then the unit over and over."""
    return lambda n_bytes: head() + filled(unit, n_bytes - 14)


def nested_riff(n_bytes: int) -> bytes:
    """Wrapper in wrapper in wrapper."""
    inner = one_track(b"\x00\x90\x3c\x40\x00\x3c\x00")(1000)
    return filled(b"RIFF\xff\xff\xff\x7fRMIDdata\xff\xff\xff\x7f", n_bytes - 1000) + inner


def patterns(n_bytes: int) -> bytes:
    """A file of type 2: one pattern of tempo events, and 999 of one note."""
    note = b"\x00\x90\x3c\x40\x01\x3c\x00\x00\xff\x2f\x00"
    small = (b"MTrk" + len(note).to_bytes(4) + note) * 999
    return (
        head(2, 1000)
        + one_track(b"\x00\xff\x51\x03\x07\xa1\x20")(n_bytes - len(small))[14:]
        + small
    )


PEDAL = b"\x01\xb0\x40\x7f"
STRIKES = b"".join(bytes((0, 0x90, p, 64, 1, p, 0)) for p in range(128))
KINDS: dict[str, Callable[[int], bytes]] = {
    "presses": one_track(b"\x00\x90\x3c\x40"),
    "presses in running status": one_track(b"\x00\x3c\x40"),
    "notes": one_track(STRIKES),
    "notes and pedal": one_track(b"\x01\x90\x3d\x40\x01\x3d\x00" + PEDAL * 3),
    "notes and silence": one_track(b"\x01\x90\x3d\x40\x00\xb0\x7b\x00\x00\x78\x00"),
    "releases in running status": one_track(b"\x01\x3c\x00"),
    "events of two bytes": one_track(b"\x00\x00", first=b"\x00\xc0\x00"),
    "program changes on 16 channels": one_track(
        bytes(b for c in range(16) for b in (0, 192 | c, c))
    ),
    "pedal": one_track(b"\x01\x40\x7f\x01\x40\x00", first=b"\x00\xb0\x40\x7f"),
    "all notes off": one_track(b"\x01\x7b\x00", first=b"\x00\xb0\x40\x7f"),
    "tempos": one_track(b"\x01\xff\x51\x03\x07\xa1\x20"),
    "track names": one_track(b"\x00\xff\x03\x01a"),
    "empty texts": one_track(b"\x00\xff\x01\x00"),
    "system exclusive": one_track(b"\x00\xf0\x00"),
    "system messages": one_track(b"\x00\xf8"),
    "times of 75 hours": one_track(b"\xff\xff\xff\x7f\x90\x3c\x40\xff\xff\xff\x7f\x3c\x00"),
    "one endless time": one_track(b"\x80"),
    "times that are too long": one_track(b"\x80" * 40 + b"\x00\x90\x3c\x40"),
    "data without a status": one_track(b"\x00\x3c"),
    "data bytes above 127": one_track(b"\x00\x90\xff\xff"),
    "lengths beyond the end": one_track(b"\x00\xff\x01\xff\xff\xff\x7f"),
    "line ends and a lost track": lambda n_bytes: (
        head(1, 2) + one_track(b"\x00\x90\x0d\x0a")(n_bytes)[14:]
    ),
    "zeros": one_track(b"\x00"),
    "bytes of 255": one_track(b"\xff"),
    "empty tracks": many_tracks(b""),
    "tracks of one note": many_tracks(b"\x00\x90\x3c\x40\x01\x3c\x00"),
    "tracks with names": many_tracks(b"\x00\xff\x03\x05piano\x00\x90\x3c\x40\x01\x3c\x00"),
    "tracks of one drum": many_tracks(b"\x00\x99\x3c\x40\x01\x3c\x00"),
    "patterns of one note": many_tracks(b"\x00\x90\x3c\x40\x01\x3c\x00", kind=2),
    "patterns of no length": many_tracks(b"", kind=2),
    "patterns beside many tempos": patterns,
    "track tags": behind_a_header(b"MTrk"),
    "tracks of no length": behind_a_header(b"MTrk\x00\x00\x00\x00"),
    "tracks with false lengths": behind_a_header(b"MTrk\x7f\xff\xff\xff"),
    "tracks inside tracks": behind_a_header(b"MTrk\x00\x00\x00\x01\x00\x90\x3c\x40"),
    "chunks of unknown kinds": behind_a_header(b"ABCD\x00\x00\x00\x00"),
    "damaged track tags": behind_a_header(b"MTrj\x00\x00\x00\x04\x00\xff\x2f\x00"),
    "headers": behind_a_header(head()),
    "header tags": lambda n_bytes: filled(b"MThd", n_bytes),
    "wrappers": nested_riff,
    "nothing but zeros": bytes,
    "a text": lambda n_bytes: ("MThd" + "\u0090" * (n_bytes // 2 - 2)).encode(),
    "packed zeros": lambda n_bytes: gzip.compress(bytes(20 * n_bytes)),
    "packed notes": lambda n_bytes: gzip.compress(one_track(STRIKES)(n_bytes)),
}


def sizes(build: Callable[[int], bytes], limits: MidiLimits) -> list[int]:
    """Bytes of the largest file, and of those that just keep to the limits of events and notes."""
    table = read_events(build(SAMPLE_BYTES), limits.max_events) if is_midi(build) else None
    found = {limits.max_bytes}
    if table is not None:
        counts = ((len(table.tick), limits.max_events), (is_press(table).sum(), limits.max_notes))
        found |= {int(SAMPLE_BYTES * most / n * JUST_BELOW) for n, most in counts if n}
    return sorted(size for size in found if SAMPLE_BYTES < size <= limits.max_bytes)


def is_midi(build: Callable[[int], bytes]) -> bool:
    """Whether the reader finds a header with a time base."""
    try:
        read_events(build(SAMPLE_BYTES), sys.maxsize)
    except InputError:
        return False
    return True


def cost(data: bytes, path: Path) -> tuple[float, float, str]:
    """Seconds and megabytes that reading takes, and what came of it."""
    path.write_bytes(data)
    command = [sys.executable, "-c", READER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    seconds, megabytes, told = done.stdout.rstrip("\n").split("\t")
    return float(seconds), float(megabytes), told


def main() -> None:
    """Read the files of each kind and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="Only kinds with these words.")
    only = parser.parse_args().only
    worst = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        for kind, build in KINDS.items():
            for size in sizes(build, MidiLimits()) if only in kind else ():
                seconds, megabytes, told = cost(build(size), Path(folder, "hostile.mid"))
                print(f"{seconds:5.2f} s {megabytes:4.0f} MB  {kind}, {size:,} bytes: {told[:60]}")
                worst = [max(worst[0], seconds), max(worst[1], megabytes)]
    print(f"{worst[0]:5.2f} s {worst[1]:4.0f} MB  the worst")
    if worst[0] > MOST_SECONDS or worst[1] > MOST_MEGABYTES:
        sys.exit(f"More than {MOST_SECONDS:g} s or {MOST_MEGABYTES:g} MB.")


if __name__ == "__main__":
    main()
