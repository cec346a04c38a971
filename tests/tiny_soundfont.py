"""The smallest SoundFont: one looped sine, struck and let go without envelopes but for the release.

Written after the SoundFont 2.04 specification; by default it is an A4 of 440 Hz.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

RATE = 44_100
PERIODS = 440
"""In one second of recording, so that the loop meets itself."""
RELEASE_SECONDS = 0.05
SAMPLE_MODES, RELEASE_VOL_ENV, INSTRUMENT, SAMPLE_ID, KEY_RANGE = 54, 38, 41, 53, 43


def chunk(name: bytes, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return name + struct.pack("<I", len(data)) + data


def listed(name: bytes, *chunks: bytes) -> bytes:
    return chunk(b"LIST", name, *chunks)


def generators(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<Hh", *pair) for pair in (*pairs, (0, 0)))


def soundfont_bytes(
    *,
    presets: tuple[tuple[str, int, int], ...] = (("Sine", 0, 0),),
    level: float = 0.3,
    release_seconds: float = RELEASE_SECONDS,
    keys: tuple[int, int] = (0, 127),
) -> bytes:
    """A file whose presets (name, bank, program) all play the sine, at this peak level."""
    wave = level * np.sin(2 * np.pi * PERIODS / RATE * np.arange(RATE))
    samples = np.rint(32767 * np.concatenate([wave, np.zeros(46)])).astype("<i2")
    release = round(1200 * np.log2(release_seconds))
    name = struct.Struct("<20s")
    rows = [*presets, ("EOP", 0, 0)]
    phdr = b"".join(
        struct.pack("<20sHHH12x", title.encode(), program, bank, i)
        for i, (title, bank, program) in enumerate(rows)
    )
    n = len(presets)
    bags = struct.pack("<HH", 0, 0) + struct.pack("<HH", 3 + (keys != (0, 127)), 0)
    zone = [(SAMPLE_MODES, 1), (RELEASE_VOL_ENV, release), (SAMPLE_ID, 0)]
    if keys != (0, 127):
        zone.insert(0, (KEY_RANGE, keys[0] | keys[1] << 8))
    head = struct.pack("<20sIIIIIBbHH", b"A4", 0, RATE, 0, RATE, RATE, 69, 0, 0, 1)
    pdta = listed(
        b"pdta",
        chunk(b"phdr", phdr),
        chunk(b"pbag", *(struct.pack("<HH", i, 0) for i in range(n + 1))),
        chunk(b"pmod", bytes(10)),
        chunk(b"pgen", generators(*[(INSTRUMENT, 0)] * n)),
        chunk(b"inst", name.pack(b"Sine"), bytes(2), name.pack(b"EOI"), b"\1\0"),
        chunk(b"ibag", bags),
        chunk(b"imod", bytes(10)),
        chunk(b"igen", generators(*zone)),
        chunk(b"shdr", head, name.pack(b"EOS"), bytes(26)),
    )
    info = listed(
        b"INFO",
        chunk(b"ifil", b"\2\0\4\0"),
        chunk(b"isng", b"EMU8000\0"),
        chunk(b"INAM", b"Tiny\0\0"),
    )
    sdta = listed(b"sdta", chunk(b"smpl", samples.tobytes()))
    return chunk(b"RIFF", b"sfbk", info, sdta, pdta)


def write_soundfont(path: Path, **options: object) -> Path:
    path.write_bytes(soundfont_bytes(**options))  # type: ignore[arg-type]
    return path
