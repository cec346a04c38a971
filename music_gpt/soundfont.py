"""A SoundFont and notes in seconds -> samples: what FluidSynth plays, before the limiter.

A person's own .sf2 or .sf3 file in place of the bundled piano. `music_gpt.fluid` plays it in a
process of its own; this module looks at the file before, starts that process and ends it, and says
in a sentence what is wrong. Needs the extra `soundfont` and the FluidSynth library.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from music_gpt import fluid
from music_gpt.checking import whole
from music_gpt.errors import InputError, argument, install
from music_gpt.files import as_path, opened
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.printable import shown

RATES = 8_000, 96_000
"""Lowest and highest sample rate of FluidSynth, in Hz."""
TAIL_SECONDS = 10.0
"""How long the last note may ring out."""
FADE_SECONDS = 1.0
"""How long what still rings then takes to fade."""
TRIAL_SECONDS = 120
"""How long FluidSynth may take to load a SoundFont and play a few notes on it."""
TRIAL_RATE = 44_100
"""Sample rate of the trial, in Hz."""
TRIAL_KEYS = (36, 48, 60, 72, 84)
TRIAL_VELOCITY = 64
TRIAL_LEVELS = (0.01763, 0.0157, 0.01341, 0.01101, 0.00777)
"""How loud the bundled piano plays these keys, for a second each: root mean square."""
GAINS = 0.05, 20.0
"""Least and most by which a SoundFont is made as loud as the bundled piano."""
MAX_BYTES = 2**32 + 7
"""As large as a RIFF file can be."""
MAX_PRESETS = 1 << 16
"""Most instruments of a file: each has a bank and a program of its own."""
ENDED_FROM_OUTSIDE = {signal.SIGTERM, *(getattr(signal, n, -1) for n in ("SIGKILL", "SIGHUP"))}
LAST_OWN_CODE = 255
"""Exit codes beyond it, on Windows, and below 0, elsewhere, tell that a process died."""
HEAD, PRESET = struct.Struct("<4sI"), struct.Struct("<20sHH14x")
"""Of a chunk, and of an instrument in the chunk `phdr` (SoundFont 2.04, 7.2)."""

GIVE = "an .sf2 or .sf3 file"
LIBRARY_FROM = "`apt install libfluidsynth3` (Debian, Ubuntu) or `brew install fluid-synth` (macOS)"
LIBRARY = (
    "The FluidSynth library, which plays SoundFonts, is missing; install it with "
    f"{LIBRARY_FROM}, or leave out {argument('soundfont')}."
)
Floats = npt.NDArray[np.float32]
Events = npt.NDArray[np.int32]


@dataclass(frozen=True)
class SoundFont:
    """A SoundFont that FluidSynth plays, as `open_soundfont` has found out."""

    path: Path
    instrument: str
    """Its name in the file."""
    bank: int
    program: int
    gain: float = 1.0
    """What makes it as loud as the bundled piano."""

    def __str__(self) -> str:
        return f"{self.instrument} of {shown(self.path)}"


def open_soundfont(path: str | Path) -> SoundFont:
    """Find out whether FluidSynth plays this file, and how loud it is.

    The piano of a General MIDI file is taken (bank 0, program 0), else the first instrument. Raises
    `InputError` where the file, pyfluidsynth or the FluidSynth library is missing, and where the
    file is no SoundFont or FluidSynth cannot play it.
    """
    path = as_path(path)
    bank, program, name = min(_instruments(path))
    path = path.resolve()  # /dev/stdin is another file for the process that plays
    font = SoundFont(path, name or f"Instrument {program}", bank, program)
    levels = _trial(font)
    if not any(levels):
        raise InputError(f"{font} plays no note between C2 and C6; give {GIVE} with a piano.")
    pairs = zip(TRIAL_LEVELS, levels, strict=True)
    gain = float(np.median([usual / level for usual, level in pairs if level]))
    return SoundFont(path, font.instrument, bank, program, min(max(gain, GAINS[0]), GAINS[1]))


def require_fluidsynth() -> None:
    """Raise `InputError` unless pyfluidsynth and the FluidSynth library are there."""
    _require_parts(_run([], b"").returncode)


def play(
    font: SoundFont, notes: Notes, sample_rate: int, size: int
) -> Generator[Floats, None, None]:
    """What FluidSynth plays, in blocks of `size` samples: (2, n), left and right.

    Notes begin and end at whole blocks of `fluid.BLOCK` samples, so at most half of one early or
    late. The last one rings out for up to `TAIL_SECONDS`. When the iterator is
    closed, the process ends. Raises `InputError` at once for a sample rate that FluidSynth does not
    have, and later where FluidSynth breaks off.
    """
    sample_rate = whole("sample_rate", sample_rate, *RATES)
    if not font.path.is_file():
        raise InputError(f"{shown(font.path)} is no longer there; put it back, or give {GIVE}.")
    events = note_events(notes, sample_rate)
    return _blocks(font, events, sample_rate, size)


def note_events(notes: Notes, sample_rate: int) -> Events:
    """Rows of block, key and velocity (0 where the key is let go), in the order of time.

    A key that is struck again is let go before, and sounds for a block at least. Of notes that
    strike one key at the same time the loudest stays.

    >>> notes = np.array([(0.0, 0.5, 60, 80), (0.25, 1.0, 60, 90)], NOTE_DTYPE)
    >>> note_events(notes, 6400).tolist()
    [[0, 60, 80], [25, 60, 0], [25, 60, 90], [100, 60, 0]]
    """
    pitch = np.minimum(notes["pitch"], 127).astype(np.int64)
    velocity = np.clip(notes["velocity"], 1, 127).astype(np.int64)
    start, end = (np.rint(notes[f] * (sample_rate / fluid.BLOCK)) for f in ("start", "end"))
    order = np.lexsort([velocity, start, pitch])
    pitch, velocity, start, end = (each[order] for each in (pitch, velocity, start, end))
    struck_again = np.append(np.where(np.diff(pitch) == 0, start[1:], np.inf), np.inf)
    kept = struck_again > start
    end = np.maximum(np.minimum(end, struck_again), start + 1)
    strikes = np.stack([start, pitch, velocity], axis=1)[kept]
    releases = np.stack([end, pitch, np.zeros_like(pitch)], axis=1)[kept]
    events = np.concatenate([releases, strikes])
    return events[np.argsort(events[:, 0], kind="stable")].astype(np.int32)


# --- the file ---------------------------------------------------------------------------------


def _instruments(path: Path) -> list[tuple[int, int, str]]:
    """Bank, program and name of each instrument in a SoundFont; `InputError` for another file."""
    if path.suffix.lower() == ".sfz":
        raise InputError(
            f"{shown(path)} is an SFZ file, which FluidSynth does not play; give {GIVE}."
        )
    with opened(path, MAX_BYTES, GIVE) as file:
        n_bytes = os.fstat(file.fileno()).st_size
        if file.read(4) != b"RIFF" or file.read(8)[4:] != b"sfbk":
            raise InputError(f"{shown(path)} is no SoundFont; give {GIVE}.")
        try:
            rows = _preset_rows(file, n_bytes)
        except (struct.error, ValueError, KeyError):
            raise _damaged(path) from None
    found = [(bank, program, _name(name)) for name, program, bank in rows]
    if not found:
        raise InputError(f"{shown(path)} holds no instrument; give {GIVE} with a piano.")
    return found


def _preset_rows(file: BinaryIO, n_bytes: int) -> list[tuple[bytes, int, int]]:
    """Name, program and bank of each instrument; `ValueError` or `KeyError` where it is cut."""
    file.seek(0)
    lists = dict(_chunks(file, 12, 8 + HEAD.unpack(file.read(8))[1], n_bytes))
    begin, size = lists[b"pdta"]
    begin, size = dict(_chunks(file, begin, begin + size, n_bytes))[b"phdr"]
    if size % PRESET.size or not size <= MAX_PRESETS * PRESET.size:
        raise ValueError("not a whole number of instruments")
    file.seek(begin)
    return list(PRESET.iter_unpack(file.read(size)))[:-1]  # the last row only ends the list


def _chunks(
    file: BinaryIO, begin: int, end: int, n_bytes: int
) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Name, and place and size of what is in it, of each chunk: of a list, the name of the list."""
    if end > n_bytes:
        raise ValueError("it is cut")
    while begin < end:
        file.seek(begin)
        name, size = HEAD.unpack(file.read(HEAD.size))
        begin += HEAD.size
        if begin + size > end:
            raise ValueError("a chunk is longer than what it lies in")
        is_list = name == b"LIST" and size >= 4
        yield (file.read(4), (begin + 4, size - 4)) if is_list else (name, (begin, size))
        begin += size  # no padding: FluidSynth knows none, and sf3 files with odd chunks have none


def _name(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("latin-1").strip()


def _damaged(path: Path) -> InputError:
    return InputError(f"{shown(path)} is damaged or cut: FluidSynth cannot play it; take it anew.")


# --- the process ------------------------------------------------------------------------------

_NO = subprocess.DEVNULL
"""Where FluidSynth's remarks go: our sentences take their place."""


def _command(words: list[str]) -> list[str]:
    """-P: a file of that folder is never taken for a module of Python's."""
    return [sys.executable, "-P", str(Path(fluid.__file__)), *words]


def _words(font: SoundFont, sample_rate: int) -> list[str]:
    numbers = font.bank, font.program, sample_rate, _tail_blocks(sample_rate)
    return [str(font.path), *map(str, numbers)]


def _run(words: list[str], events: bytes) -> subprocess.CompletedProcess[bytes]:
    """The process, run to its end, within `TRIAL_SECONDS`."""
    return subprocess.run(  # noqa: S603 - a file of ours, and no shell
        _command(words),
        input=events,
        stdout=subprocess.PIPE,
        stderr=_NO,
        timeout=TRIAL_SECONDS,
        check=False,
    )


def _tail_blocks(sample_rate: int) -> int:
    return int(TAIL_SECONDS * sample_rate) // fluid.BLOCK


def _trial(font: SoundFont) -> list[float]:
    """How loud each of `TRIAL_KEYS` is, alone for a second, where the bundled piano is at
    `TRIAL_LEVELS`; 0 for a key that is not there.
    """
    rows = [(2.0 * i, 2.0 * i + 1, key, TRIAL_VELOCITY) for i, key in enumerate(TRIAL_KEYS)]
    events = note_events(np.array(rows, NOTE_DTYPE), TRIAL_RATE)
    try:
        done = _run(_words(font, TRIAL_RATE), events.tobytes())
    except subprocess.TimeoutExpired:
        raise InputError(
            f"FluidSynth has not loaded {shown(font.path)} within {TRIAL_SECONDS} seconds; give "
            "another SoundFont."
        ) from None
    _check(done.returncode, font)
    sound = np.frombuffer(done.stdout, np.float32).reshape(-1, 2)
    if not np.isfinite(sound).all():
        raise _damaged(font.path)
    seconds = (sound[2 * i * TRIAL_RATE :][:TRIAL_RATE] for i in range(len(TRIAL_KEYS)))
    return [float(np.sqrt((second.astype(float) ** 2).mean())) for second in seconds]


def _blocks(
    font: SoundFont, events: Events, sample_rate: int, size: int
) -> Generator[Floats, None, None]:
    """What the process plays, as loud as the bundled piano."""
    end = (int(events[-1, 0]) + _tail_blocks(sample_rate)) * fluid.BLOCK
    with _started(_words(font, sample_rate), events) as process:
        assert process.stdout is not None
        for first in itertools.count(0, size):
            data = process.stdout.read(8 * size)
            if not data:
                break
            data = data[: len(data) // 8 * 8]  # it may have broken off anywhere
            sound = np.frombuffer(data, np.float32).reshape(-1, 2).T * np.float32(font.gain)
            yield _faded(np.nan_to_num(sound), end - first, int(FADE_SECONDS * sample_rate))
        _check(process.wait(), font)


@contextmanager
def _started(words: list[str], events: Events) -> Iterator[subprocess.Popen[bytes]]:
    """The process, which has the events; it is gone when the block ends, however."""
    command, pipe = _command(words), subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=_NO) as process:  # noqa: S603
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(events.tobytes())
            yield process
        finally:
            process.kill()


def _check(code: int, font: SoundFont) -> None:
    """Raise `InputError` where FluidSynth refuses the file, or dies of it.

    Any other end of the process is a fault of ours: a `RuntimeError`.
    """
    _require_parts(code)
    if -code in ENDED_FROM_OUTSIDE:
        raise InputError(f"FluidSynth was ended while it played (signal {-code}); try again.")
    if code == fluid.NOT_LOADED or code < 0 or code > LAST_OWN_CODE:
        raise _damaged(font.path)
    if code:
        raise RuntimeError(f"{Path(fluid.__file__).name} ended with code {code}")


def _require_parts(code: int) -> None:
    """Raise `InputError` where the process ended with this code because FluidSynth is missing."""
    if code == fluid.NO_BINDING:
        raise InputError(
            f"pyfluidsynth, which plays SoundFonts, is not installed; run `{install('soundfont')}`,"
            f" or leave out {argument('soundfont')}."
        )
    if code == fluid.NO_LIBRARY:
        raise InputError(LIBRARY)


def _faded(sound: Floats, end: int, n: int) -> Floats:
    """The sound, of which the last `n` samples before sample `end` fade to nothing.

    >>> _faded(np.ones((1, 4), np.float32), 5, 2).tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    >>> _faded(np.ones((1, 4), np.float32), 4, 4).tolist()
    [[1.0, 0.75, 0.5, 0.25]]
    """
    left = end - np.arange(sound.shape[1])
    return sound * np.clip(left / n, 0, 1).astype(np.float32)
