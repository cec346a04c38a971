"""SoundFont with ogg samples (sf3) -> bank.json and FLAC files: the piano of this package.

Source: the preset "Yamaha Grand Piano" of FluidR3Mono_GM.sf3, MIT licence (LICENCE.txt beside this
file holds the whole text). On Debian and Ubuntu the file comes with

    apt-get install fluidr3mono-gm-soundfont
    python music_gpt/piano_bank/make_bank.py

The same SoundFont and the same versions of libsndfile and numpy give the same bytes again. Only
pitch, loudness and edges are mended here; README.md beside this file explains each field of
bank.json for people who write another player. It needs numpy and soundfile, nothing of music_gpt.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

SOUNDFONT = Path("/usr/share/sounds/sf3/FluidR3Mono_GM.sf3")
SOUNDFONT_SHA256 = "cda013d8c370a48ae8dad271e761078d2e77455488dabdedbfbe5fc76a38c682"
INSTRUMENT = "Yamaha Grand Piano"
HERE = Path(__file__).resolve().parent

# generators of the SoundFont 2.04 specification, section 8.1.2
KEY_RANGE, SAMPLE_ID, ROOT_KEY = 43, 53, 58

FADE_IN = 16
"""Samples over which a recording rises from zero, so that it starts without a click."""
AFTER_LOOP = 64
"""Samples kept after the loop that repeat its head: resamplers look a little ahead."""

Samples = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """One zone of the instrument: a recording and the keys that it serves."""

    low: int
    high: int
    root: int
    loop_start: int
    loop_end: int
    rate: int
    samples: Samples  # (n,), mono, -1 to 1


def chunks(data: bytes, at: int, end: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of each RIFF chunk between two places, lists unfolded."""
    while at + 8 <= end:
        name, size = struct.unpack_from("<4sI", data, at)
        if name in (b"RIFF", b"LIST"):
            yield from chunks(data, at + 12, at + 8 + size)
        else:
            yield name.decode("ascii"), data[at + 8 : at + 8 + size]
        at += 8 + size
        # chunks are padded to even places, except after the ogg data of this family of files
        at += size % 2 == 1 and at < end and data[at] == 0


def generators(gen: bytes, bags: list[tuple[int, int]], bag: int) -> dict[int, int]:
    """Generator number -> its 16 bits, for one zone."""
    first, last = bags[bag][0], bags[bag + 1][0]
    return dict(struct.unpack_from("<HH", gen, 4 * i) for i in range(first, last))


def read_instrument(data: bytes, name: str) -> list[Recording]:
    """The zones of the instrument `name`, from low to high."""
    part = dict(chunks(data, 0, len(data)))
    instruments = list(struct.iter_unpack("<20sH", part["inst"]))
    bags = list(struct.iter_unpack("<HH", part["ibag"]))
    headers = list(struct.iter_unpack("<20sIIIIIBbHH", part["shdr"]))
    number = [i[0].rstrip(b"\0").decode("latin-1") for i in instruments].index(name)
    zones = [
        generators(part["igen"], bags, bag)
        for bag in range(instruments[number][1], instruments[number + 1][1])
    ]
    found = [
        read_zone(zone, headers[zone[SAMPLE_ID]], part["smpl"])
        for zone in zones
        if SAMPLE_ID in zone
    ]
    return sorted(found, key=lambda recording: recording.low)


def read_zone(zone: dict[int, int], header: tuple[Any, ...], sample_data: bytes) -> Recording:
    """Decode one recording; in an sf3 file the header's start and end are byte positions."""
    _, start, end, loop_start, loop_end, _, root, _, _, _ = header
    samples, rate = soundfile.read(io.BytesIO(sample_data[start:end]))
    low, high = zone[KEY_RANGE] & 255, zone[KEY_RANGE] >> 8
    return Recording(low, high, zone.get(ROOT_KEY, root), loop_start, loop_end, int(rate), samples)


def tidy(recording: Recording) -> Recording:
    """Cut the silence before the hammer, fade in, and end shortly after the loop."""
    wave = recording.samples
    first = int(np.argmax(np.abs(wave) > 0.03 * np.abs(wave).max()))
    cut = max(0, first - FADE_IN)
    loop = wave[recording.loop_start : recording.loop_end]
    wave = np.concatenate([wave[cut : recording.loop_end], np.resize(loop, AFTER_LOOP)])
    wave[:FADE_IN] *= np.arange(FADE_IN) / FADE_IN
    return replace(
        recording,
        loop_start=recording.loop_start - cut,
        loop_end=recording.loop_end - cut,
        samples=wave,
    )


def measured_cents(recording: Recording) -> float:
    """How far the recording sounds above its root key, in cents.

    Strings are stiff, so each partial is a little sharp of the one below, by up to 10 cents in
    the bass. What is heard lies between the average of partials 1 to 4, weighted by energy, and
    the fundamental, unless that is too weak to be heard.
    """
    rate, wanted = recording.rate, 440 * 2 ** ((recording.root - 69) / 12)
    part = recording.samples[rate // 10 : rate // 10 + 2 * rate]
    size = 1 << 20
    power = np.abs(np.fft.rfft(part * np.hanning(len(part)), size)) ** 2
    hertz = np.fft.rfftfreq(size, 1 / rate)
    cents, weights = [], []
    for partial in range(1, 5):
        near = np.flatnonzero(np.abs(hertz / (partial * wanted) - 1) < 0.035)
        if len(near):
            peak = near[np.argmax(power[near])]
            cents.append(1200 * np.log2(hertz[peak] / (partial * wanted)))
            weights.append(power[peak])
    average = float(np.average(cents, weights=weights))
    audible = weights[0] > 0.01 * max(weights)
    return (average + float(cents[0])) / 2 if audible else average


def loudness_db(recording: Recording) -> float:
    """A-weighted level of the first 0.4 s in dB (IEC 61672-1 gives the weighting)."""
    part = recording.samples[: int(0.4 * recording.rate)]
    power = np.abs(np.fft.rfft(part)) ** 2
    f2 = np.fft.rfftfreq(len(part), 1 / recording.rate) ** 2
    weight = 12194**2 * f2**2 / ((f2 + 20.6**2) * (f2 + 12194**2))
    weight /= np.sqrt((f2 + 107.7**2) * (f2 + 737.9**2))
    return float(10 * np.log10((power * weight**2).sum()))


def even_gains_db(recordings: list[Recording]) -> list[float]:
    """Gain of each recording in dB that takes it to a smooth curve over the keyboard.

    The recordings were normalised by their peaks, which leaves steps of up to 6 dB from one
    zone to the next. The curve is a parabola through all of them.
    """
    keys = [recording.root for recording in recordings]
    levels = [loudness_db(recording) for recording in recordings]
    wanted = np.polyval(np.polyfit(keys, levels, 2), keys)
    return [round(float(gain), 2) for gain in wanted - levels]


def card(recording: Recording, gain_db: float) -> dict[str, Any]:
    """The entry of one recording in bank.json."""
    key, rate = recording.root, recording.rate
    damped = key <= 90  # the strings above have no dampers in a grand piano
    return {
        "file": f"key{key:03d}.flac",
        "low": recording.low,
        "high": recording.high,
        "root": key,
        "tune_cents": round(measured_cents(recording), 2),
        "gain_db": gain_db,
        "samples": len(recording.samples),
        "loop_start": recording.loop_start,
        "loop_end": recording.loop_end,
        "hold_seconds": round(recording.loop_start / rate, 4),
        # the aftersound of a string: about 25 s for 60 dB in the bass, 3 s at the top
        "decay_db_per_second": round(max(2.4, 3.0 * 2 ** ((key - 45) / 22)), 2),
        "release_seconds": round(0.35 - 0.1 * (key - 26) / 64, 3) if damped else 1.5,
        # above the first partials, so that a soft treble note keeps its fundamental
        "shelf_hz": round(max(500.0, 1.5 * 440 * 2 ** ((key - 69) / 12)), 1),
    }


def bank(recordings: list[Recording]) -> dict[str, Any]:
    """All of bank.json."""
    # Dannenberg, "The Interpretation of MIDI Velocity" (ICMC 2006): the root of the amplitude
    # grows linearly with velocity; here from velocity 1 to 127 by 40 dB.
    offset = 127 / (126 * 10 ** (40 / 40)) - 1 / 126
    gains = even_gains_db(recordings)
    return {
        "format": "music-gpt piano bank",
        "version": 1,
        "source": f"FluidR3Mono_GM.sf3 ({SOUNDFONT_SHA256}), {INSTRUMENT}",
        "licence": "MIT, see LICENCE.txt",
        "sample_rate": recordings[0].rate,
        # the loudest of 22 MAESTRO performances then peaks at 0.75 of full scale
        "gain_db": -6.0,
        "velocity_offset": round(offset, 6),
        "velocity_slope": round((1 - offset) / 127, 8),
        "shelf_db": -15.0,
        "pan_width": 0.3,
        "pan_center": 64.5,
        "limiter_threshold": 0.7,
        "zones": [card(*both) for both in zip(recordings, gains, strict=True)],
    }


def make_bank(soundfont: Path, folder: Path) -> dict[str, Any]:
    """Write the FLAC files and bank.json into `folder`; returns what bank.json holds."""
    data = soundfont.read_bytes()
    if hashlib.sha256(data).hexdigest() != SOUNDFONT_SHA256:
        raise SystemExit(f"{soundfont} is not the FluidR3Mono_GM.sf3 of Debian's 2.315-7.")
    recordings = [tidy(recording) for recording in read_instrument(data, INSTRUMENT)]
    recordings[0] = replace(recordings[0], low=0)  # MIDI has 128 keys, a piano 88
    recordings[-1] = replace(recordings[-1], high=127)
    contents = bank(recordings)
    for recording, zone in zip(recordings, contents["zones"], strict=True):
        pcm = np.rint(recording.samples * 32767).clip(-32768, 32767).astype(np.int16)
        soundfile.write(
            folder / zone["file"], pcm, recording.rate, subtype="PCM_16", compression_level=1.0
        )
    (folder / "bank.json").write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    return contents


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the piano bank from FluidR3Mono_GM.sf3.")
    parser.add_argument("--soundfont", type=Path, default=SOUNDFONT)
    parser.add_argument("--out", type=Path, default=HERE, help="folder that takes the files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    make_bank(options.soundfont, options.out)
