"""Note events on standard input -> samples on standard output: FluidSynth in a process of its own.

FluidSynth is a program in C, and a SoundFont may be damaged or hostile: whatever happens then ends
this process only. `music_gpt.soundfont` starts it, as a file, so nothing of music_gpt is imported.

    python -P fluid.py [SOUNDFONT BANK PROGRAM SAMPLE_RATE TAIL_BLOCKS]

An event is three native 32-bit integers: the block of `BLOCK` samples before which it happens, the
key, and its velocity, or 0 where the key is let go. The samples are native 32-bit floats, left and
right in turn. Without words it only tells, by its exit code, whether FluidSynth is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

BLOCK = 64
"""Samples that FluidSynth computes at a time; a note can begin and end only between two blocks."""
EVENT = "=3i"
NO_BINDING, NO_LIBRARY, NOT_LOADED = 3, 4, 5
"""Exit codes: pyfluidsynth is missing, the library is, or it does not take the SoundFont."""
GAIN = 0.5
"""Far above the level at which FluidSynth lets a voice go because nobody would hear it."""
MOST_BLOCKS = 512
"""Blocks that are written at a time."""
TAIL_STEP = 8
"""Blocks after which it is looked whether a voice still sounds."""
POLYPHONY = 1024
MEMORY_BYTES = 8 << 30
"""What the process may take: twice the largest SoundFont."""
SETTINGS: dict[str, Any] = {
    "synth.polyphony": POLYPHONY,
    "synth.reverb.active": 0,  # the room is that of the recording, as with the bundled piano
    "synth.chorus.active": 0,
    "synth.dynamic-sample-loading": 1,  # only what this instrument needs is read
    "synth.lock-memory": 0,
}


def main(words: list[str]) -> int:
    """Play the events; returns the exit code."""
    for name in ("SIGINT", "SIGHUP"):  # of a terminal, which reach all: who started this ends it
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    _bound_memory()
    out = _own_output()
    if importlib.util.find_spec("fluidsynth") is None:
        return NO_BINDING
    try:
        import fluidsynth
    except (ImportError, OSError, AttributeError):  # it is not there, or is for another machine
        return NO_LIBRARY
    if not words:
        return 0
    path, *numbers = words
    bank, program, sample_rate, tail_blocks = map(int, numbers)
    events = list(struct.iter_unpack(EVENT, sys.stdin.buffer.read()))
    synth = fluidsynth.Synth(GAIN, sample_rate, 16, **SETTINGS)
    font = fluidsynth.fluid_synth_sfload(synth.synth, os.fsencode(path), 0)
    if font < 0 or synth.program_select(0, font, bank, program) != fluidsynth.FLUID_OK:
        return NOT_LOADED
    _play(_Player(fluidsynth, synth, out), events, tail_blocks)
    return 0


def _bound_memory() -> None:
    """A file that claims to hold endless samples is refused by the system."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _own_output() -> BinaryIO:
    """Standard output for the samples alone: what libraries print goes to standard error."""
    own = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return own


class _Player:
    """FluidSynth, block by block."""

    def __init__(self, fluidsynth: Any, synth: Any, out: BinaryIO) -> None:
        self._synth, self._out = synth, out
        self._samples = (ctypes.c_float * (2 * BLOCK * MOST_BLOCKS))()
        pointer, number = ctypes.c_void_p, ctypes.c_int
        # pyfluidsynth itself takes only 16-bit samples, which clip
        self._write_float = fluidsynth.cfunc(
            "fluid_synth_write_float",
            number,
            ("synth", pointer, 1),
            ("len", number, 1),
            ("lbuf", pointer, 1),
            ("loff", number, 1),
            ("lincr", number, 1),
            ("rbuf", pointer, 1),
            ("roff", number, 1),
            ("rincr", number, 1),
        )

    def strike(self, key: int, velocity: int) -> None:
        """Strike a key, or let it go where the velocity is 0."""
        if velocity:
            self._synth.noteon(0, key, velocity)
        else:
            self._synth.noteoff(0, key)

    def sounds(self) -> bool:
        """Whether any voice is still heard."""
        return bool(self._synth.get_active_voice_count())

    def go_on(self, n_blocks: int) -> None:
        """Write the sound of so many blocks."""
        while n_blocks > 0:
            now = min(n_blocks, MOST_BLOCKS)
            samples = self._samples
            self._write_float(self._synth.synth, BLOCK * now, samples, 0, 2, samples, 1, 2)
            left = memoryview(samples).cast("B")[: 8 * BLOCK * now]
            while left:  # a pipe may take only a part
                left = left[self._out.write(left) :]
            n_blocks -= now


def _play(player: _Player, events: list[tuple[Any, ...]], tail_blocks: int) -> None:
    """The events in their order, and what rings on for up to `tail_blocks`."""
    now = 0
    for block, key, velocity in events:
        player.go_on(block - now)
        now = block
        player.strike(key, velocity)
    end = now + tail_blocks
    while now < end and player.sounds():
        step = min(TAIL_STEP, end - now)
        player.go_on(step)
        now += step


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
