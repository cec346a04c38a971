"""A folder of MIDI files comes in -> how fast and in how much memory it becomes tokens goes out.

    python benchmarks/prepare.py FOLDER [--files 36] [--scale 1000 10000 100000] [--kills 10]

The peers read the same files to the same vocabulary on one thread: pretty_midi with a plain Python
loop over its notes, as most public code has it, and MidiTok's own `MIDILike`. Then the whole folder
is prepared in processes of its own. `--scale` measures memory on so many small files, which are
made of the real ones with changed notes; `--kills` kills a run at random instants and compares what
the next one makes of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pretty_midi
from measuring import compare, midi_files, plain_midi_like

from music_gpt.midi.piece import midi_bytes, read_piece
from music_gpt.notes import Notes
from music_gpt.tokens.events import EOS, NOTE_OFF, TIME_SHIFT, VELOCITY, encode_notes

RUN = """
import json, pathlib, re, resource, sys, time
from data_prep.prepare import prepare
from music_gpt.config.preparing import PrepareConfig
began = time.monotonic()
report = prepare(sys.argv[1], sys.argv[2], PrepareConfig(workers=int(sys.argv[3])), progress=False)
uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
status = pathlib.Path("/proc/self/status")  # ru_maxrss remembers what started this process
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1] if status.exists() else 0
print(json.dumps({
    "wall": time.monotonic() - began,
    "cpu": sum(use.ru_utime + use.ru_stime for use in uses),
    "peak_mb": [(int(peak) or uses[0].ru_maxrss) / 1024, uses[1].ru_maxrss / 1024],
    "pieces": report["pieces"], "tokens": sum(s["tokens"] for s in report["splits"].values()),
    "splits": report["splits"],
}))
"""


def main() -> None:
    """Read the arguments, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=36, help="files for the comparison with peers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scale", type=int, nargs="*", default=[], help="measure memory")
    parser.add_argument("--kills", type=int, default=0, help="kill so many runs")
    options = parser.parse_args()
    paths = midi_files(options.folder, options.files, options.seed)
    if not paths:
        parser.error(f"{options.folder} holds no MIDI files")
    print_ratios(paths, options.repeats)
    print_whole(options.folder, options.workers)
    for n in options.scale:
        print_scale(paths, n, options.workers, options.seed)
    if options.kills:
        print_kills(options.folder, options.kills, options.workers, options.seed)


# --- one core against the peers -----------------------------------------------------------------


def print_ratios(paths: list[Path], repeats: int) -> None:
    """Notes a second from file to ids, and the ratios to both peers."""
    n_notes = sum(read_piece(path).n_notes for path in paths)
    peer = plain_midi_like()

    def ours() -> object:
        return [encode_notes(read_piece(path).sounding_notes, eos=True) for path in paths]

    print(f"{len(paths)} files, {n_notes:,} notes, one core, processor time:")
    compare("MIDI file -> ids", ours, lambda: [*map(plain_ids, paths)], n_notes, repeats, "a loop")
    compare("MIDI file -> ids", ours, lambda: [*map(peer.encode, paths)], n_notes, repeats)


def plain_ids(path: Path) -> list[int]:
    """The same events by pretty_midi and a plain loop; 390 ids, pedal applied."""
    score = pretty_midi.PrettyMIDI(str(path))
    notes = [note for piano in score.instruments for note in _with_pedal(piano)]
    events = [(note.start, 1, note.pitch, note.velocity) for note in notes]
    events += [(note.end, 0, note.pitch, 0) for note in notes]
    ids, now, velocity = [EOS], 0, -1
    for seconds, is_on, pitch, loudness in sorted(events):
        wait = round(seconds * 100) - now
        now += wait
        while wait > 0:
            ids.append(TIME_SHIFT + min(wait, 100) - 1)
            wait -= 100
        if is_on and loudness // 4 != velocity:
            velocity = loudness // 4
            ids.append(VELOCITY + velocity)
        ids.append(pitch if is_on else NOTE_OFF + pitch)
    return [*ids, EOS]


def _with_pedal(piano: pretty_midi.Instrument) -> Iterator[pretty_midi.Note]:
    """The notes, each held until the pedal goes up or its key is struck again."""
    moves = [(c.time, c.value >= 64) for c in piano.control_changes if c.number == 64]
    strikes: dict[int, list[float]] = {}
    for note in piano.notes:
        strikes.setdefault(note.pitch, []).append(note.start)
    moves.sort()
    for note in sorted(piano.notes, key=lambda note: note.end):
        while len(moves) > 1 and moves[1][0] <= note.end:
            moves.pop(0)
        if moves and moves[0][0] <= note.end and moves[0][1]:
            release = next((time for time, down in moves if not down), note.end)
            again = next((s for s in strikes[note.pitch] if s > note.start), release)
            note.end = max(note.end, min(release, again))
        yield note


# --- whole runs ---------------------------------------------------------------------------------


def run(midi: Path, out: Path, workers: int) -> dict[str, object]:
    """Prepare in a process of its own, and what it took."""
    words = [sys.executable, "-c", RUN, str(midi), str(out), str(workers)]
    began = time.monotonic()
    done = subprocess.run(  # noqa: S603 - it runs this very program
        words, check=True, capture_output=True, text=True, env=_environment()
    )
    return {**json.loads(done.stdout), "with_start": time.monotonic() - began}


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}


def print_whole(folder: Path, workers: int) -> None:
    """Seconds for the folder, read for the first time and once more."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "tokens"
        for path in midi_files(folder, 0, 0):
            path.read_bytes()  # so that the disk is not measured
        print(f"{folder.name} on {workers} processes, start of Python included:")
        for what in ("first run", "second run"):
            took = run(folder, out, workers)
            print(
                f"{what:31} {took['with_start']:.1f} s, {took['cpu']:.1f} s of processor time, "
                f"{took['pieces']:,} pieces, {took['tokens']:,} tokens"
            )


def print_scale(paths: list[Path], n: int, workers: int, seed: int) -> None:
    """Peak memory on `n` small files."""
    with tempfile.TemporaryDirectory() as scratch:
        midi, began = Path(scratch) / "midi", time.monotonic()
        write_variants(paths, midi, n, seed)
        made = time.monotonic() - began
        took = run(midi, Path(scratch) / "tokens", workers)
        of_parent, of_worker = took["peak_mb"]  # type: ignore[misc]
        print(
            f"{n:>7,} files ({made:.0f} s to make) {of_parent:.0f} MB, {of_worker:.0f} MB in each "
            f"reading process, {took['with_start']:.0f} s, {took['cpu']:.0f} s of processor time, "
            f"{took['pieces']:,} pieces"
        )


def write_variants(paths: list[Path], folder: Path, n: int, seed: int) -> None:
    """`n` small MIDI files: parts of real ones, moved, stretched and with some changed notes.

    Ten variants of a part differ in every tenth note, so there are compositions to be found.
    """
    rng = np.random.default_rng(seed)
    pieces = [read_piece(path).notes for path in paths]
    for i in range(n):
        if i % 10 == 0:
            whole = pieces[int(rng.integers(len(pieces)))]
            first = int(rng.integers(max(1, len(whole) - 120)))
            part = _shuffled(whole[first : first + 120], rng)
        subfolder = folder / f"{i // 1000:04d}"
        subfolder.mkdir(parents=True, exist_ok=True)
        (subfolder / f"{i:07d}.mid").write_bytes(midi_bytes(_changed(part, rng)))


def _shuffled(notes: Notes, rng: np.random.Generator) -> Notes:
    """The same rhythm with its pitches in another order: a piece that nobody else has."""
    part = notes.copy()
    part["pitch"] = rng.permutation(part["pitch"])
    part["end"] -= part["start"].min()
    part["start"] -= part["start"].min()
    return part


def _changed(notes: Notes, rng: np.random.Generator) -> Notes:
    variant, stretch = notes.copy(), float(rng.uniform(0.9, 1.1))
    variant["start"] *= stretch
    variant["end"] *= stretch
    wrong = rng.random(len(variant)) < 0.1
    moved = variant["pitch"].astype(int) + np.where(wrong, rng.integers(-3, 4, len(variant)), 0)
    variant["pitch"] = np.clip(moved, 21, 108)
    return variant


# --- killed runs --------------------------------------------------------------------------------


def print_kills(folder: Path, n: int, workers: int, seed: int) -> None:
    """Kill `n` runs, each at its own random instant, and let another one finish."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole"
        seconds = float(run(folder, whole, workers)["with_start"])  # type: ignore[arg-type]
        expected, same = content(whole), 0
        for number, instant in enumerate(sorted(rng.uniform(0, seconds, n))):
            out = Path(scratch) / f"killed-{number}"
            words = [sys.executable, "-c", RUN, str(folder), str(out), str(workers)]
            process = subprocess.Popen(  # noqa: S603 - it runs this very program
                words, stdout=subprocess.DEVNULL, env=_environment()
            )
            time.sleep(float(instant))
            process.send_signal(signal.SIGKILL)
            process.wait()
            kept = len(list(out.glob(".music-gpt-cache/*/*.npz")))
            run(folder, out, workers)
            same += content(out) == expected
            print(f"killed after {instant:5.2f} of {seconds:.2f} s, {kept} chunks were kept")
        print(f"{same} of {n} folders have the same bytes as the one of an unbroken run")


def content(out: Path) -> dict[str, str]:
    """Checksum of each file but those of the cache."""
    files = (path for path in out.iterdir() if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


if __name__ == "__main__":
    main()
