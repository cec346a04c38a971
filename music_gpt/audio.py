"""Notes in seconds -> sound: 16-bit stereo samples, and WAV, FLAC or MP3 files.

A sampler over the recorded grand in `piano_bank/`: each recording is resampled to the pitch of the
note, looped, and shaped by an envelope. The gain is fixed, so a note is as loud alone as in a
chord, and a soft limiter bends what would clip. `piano_bank/README.md` gives the recipe to other
players (the page follows it in the browser). With a SoundFont, `music_gpt.soundfont` plays in its
place. This module knows nothing of models.
"""

from __future__ import annotations

import errno
import functools
import json
import math
import shutil
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import soundfile

from music_gpt.checking import require, whole
from music_gpt.errors import InputError
from music_gpt.files import as_path, whole_file
from music_gpt.midi.piece import as_piece
from music_gpt.notes import Notes
from music_gpt.soundfont import TAIL_SECONDS, SoundFont, play

if TYPE_CHECKING:
    from music_gpt.midi.piece import PieceLike

SAMPLE_RATE = 44_100
"""Sample rate of the sound in Hz, unless another one is asked for."""
SAMPLE_RATES = 8_000, 192_000
"""Lowest and highest that may be asked for, in Hz."""
MP3_RATES = (32_000, 44_100, 48_000)
"""Those that an MP3 file can have."""
MAX_HOURS = 4
"""Longest sound: 2.5 GB of samples, and a WAV file has to stay below 4 GB."""
BLOCK_SECONDS = 30.0
"""Length of the blocks in which a piece is rendered: bounds the memory, not the result."""
OVERSAMPLE = 4
"""Recordings are held at four times their rate, so that linear interpolation is clean."""
LEAD = 32
"""Samples by which a loop is moved, so that both of its seams have true neighbours."""
SILENT_DB = 96.0
"""A tone that has fallen this far below its level at the loop is over: less than one bit."""
HALF_KEYBOARD = 43.5
"""Semitones from the middle of the piano to its last key."""
RELEASE_DB = 60.0
"""How far the damper takes a tone down within `release_seconds`."""
MAX_TONE_SAMPLES = 32_000_000
"""Resampled tones kept at a time, in samples (256 MB); when full, they are made again."""
FORMATS = {".wav": "WAV", ".flac": "FLAC", ".mp3": "MP3"}
ENDINGS = ".wav, .flac or .mp3"
"""The same in words."""

Floats = npt.NDArray[np.float32]
Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Zone:
    """One recording of the bank and the keys that it serves; README.md explains the fields."""

    file: str
    low: int
    high: int
    root: int
    tune_cents: float
    gain_db: float
    samples: int
    loop_start: int
    loop_end: int
    hold_seconds: float
    decay_db_per_second: float
    release_seconds: float
    shelf_hz: float

    def speed(self, pitch: int) -> float:
        """How much faster than it was recorded the sample plays for `pitch`."""
        return float(2 ** ((pitch - self.root - self.tune_cents / 100) / 12))

    @property
    def seconds(self) -> float:
        """Length of a tone whose key is never let go, until nothing is heard any more."""
        return self.hold_seconds + SILENT_DB / self.decay_db_per_second


@dataclass(frozen=True)
class Bank:
    """All of bank.json."""

    sample_rate: int
    gain_db: float
    velocity_offset: float
    velocity_slope: float
    shelf_db: float
    pan_width: float
    pan_center: float
    limiter_threshold: float
    zones: tuple[Zone, ...]


def decibel(level: float) -> float:
    """The factor that a level in dB stands for.

    >>> decibel(-20.0)
    0.1
    """
    return float(10 ** (level / 20))


@functools.cache
def load_bank() -> Bank:
    """The bank that comes with the package."""
    known: dict[str, Any] = json.loads(_bank_bytes("bank.json"))
    zones = tuple(Zone(**zone) for zone in known.pop("zones"))
    for name in ("format", "version", "source", "licence"):
        known.pop(name)
    return Bank(zones=zones, **known)


def _bank_bytes(name: str) -> bytes:
    return (resources.files("music_gpt") / "piano_bank" / name).read_bytes()


@functools.cache
def _zone(pitch: int) -> Zone:
    """The recording that serves `pitch`."""
    return next(zone for zone in load_bank().zones if zone.low <= pitch <= zone.high)


@functools.cache
def _gains(pitch: int, velocity: int) -> tuple[np.float32, np.float32, np.float32]:
    """Factors of the left and the right channel, and the share of the high partials that is left.

    Loudness follows the square of the velocity, soft notes are darker, and the keyboard is
    spread a little from left to right.
    """
    bank = load_bank()
    loudness = (bank.velocity_offset + bank.velocity_slope * velocity) ** 2
    gain = loudness * decibel(bank.gain_db + _zone(pitch).gain_db)
    side = min(1.0, max(-1.0, (pitch - bank.pan_center) / HALF_KEYBOARD)) * bank.pan_width
    angle = (side + 1) * math.pi / 4
    brilliance = decibel(bank.shelf_db * (1 - velocity / 127))
    return (
        np.float32(gain * math.cos(angle)),
        np.float32(gain * math.sin(angle)),
        np.float32(brilliance),
    )


@functools.cache
def _wave(zone: Zone) -> Floats:
    """The recording at `OVERSAMPLE` times its rate, split in low and high partials: (2, n)."""
    with (resources.files("music_gpt") / "piano_bank" / zone.file).open("rb") as file:
        samples, rate = soundfile.read(file, dtype="float32")
    size = 1 << (len(samples) + 1024).bit_length()  # room for the low-pass to ring
    spectrum = np.fft.rfft(samples, size).astype(np.complex64) * np.float32(OVERSAMPLE)
    low_pass = 1 / (1 + 1j * np.fft.rfftfreq(size, 1 / rate) / zone.shelf_hz)
    low = spectrum * low_pass.astype(np.complex64)
    both = np.fft.irfft(np.stack([low, spectrum - low]), size * OVERSAMPLE)
    wave: Floats = both[:, : len(samples) * OVERSAMPLE].astype(np.float32)
    return wave


def _resample(zone: Zone, pitch: int, sample_rate: int, first: int, stop: int) -> Floats:
    """Samples `first` to `stop` of the tone of `pitch`, low and high partials: (2, n)."""
    step = OVERSAMPLE * load_bank().sample_rate * zone.speed(pitch) / sample_rate
    begin = OVERSAMPLE * (zone.loop_start + LEAD)
    length = OVERSAMPLE * (zone.loop_end - zone.loop_start)
    at = np.arange(first, stop) * step
    looped = at[np.searchsorted(at, begin) :]
    looped[:] = begin + (looped - begin) % length
    whole = at.astype(np.int64)
    wave, part = _wave(zone), (at - whole).astype(np.float32)
    # take is ten times as fast as wave[:, whole]
    left, right = np.take(wave, whole, axis=1), np.take(wave, whole + 1, axis=1)
    tone: Floats = left + part * (right - left)
    held = max(first, int(zone.hold_seconds * sample_rate))
    fallen_db = zone.decay_db_per_second * (np.arange(held, stop) / sample_rate - zone.hold_seconds)
    fallen_db = np.maximum(fallen_db, 0)
    tone[:, held - first :] *= (10 ** (-fallen_db / 20)).astype(np.float32)
    return tone


class _Tones:
    """Tones by pitch, as long as they were needed so far."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._tones: dict[int, Floats] = {}

    def get(self, pitch: int, n: int) -> Floats:
        """The first `n` samples, or some more, of the tone of `pitch`: (2, >= n)."""
        tone = self._tones.get(pitch, np.zeros((2, 0), np.float32))
        known = tone.shape[1]
        if known < n:
            kept = sum(other.shape[1] for other in self._tones.values())
            if kept + n > MAX_TONE_SAMPLES:
                self._tones.clear()
            zone = _zone(pitch)
            more = _resample(zone, pitch, self.sample_rate, known, n + self.sample_rate // 2)
            tone = self._tones[pitch] = np.concatenate([tone, more], axis=1)
        return tone


@functools.cache
def _release(n: int) -> Floats:
    """The fall of a damped tone over `n` samples, from 1 to 0."""
    floor = decibel(-RELEASE_DB)
    fall = np.exp(np.log(floor) * np.arange(n) / n)
    curve: Floats = ((fall - floor) / (1 - floor)).astype(np.float32)
    return curve


@dataclass(frozen=True)
class _Plan:
    """Notes as whole samples, in the order in which they sound."""

    start: npt.NDArray[np.int64]  # the hammer strikes
    end: npt.NDArray[np.int64]  # the damper falls
    stop: npt.NDArray[np.int64]  # nothing is left
    pitch: npt.NDArray[np.int64]
    velocity: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        """Length of the sound in samples."""
        return int(max(self.stop.max(), self.end.max()))


def _plan(notes: Notes, sample_rate: int) -> _Plan:
    """Check the notes and place them in samples; raises `InputError` as `render` says."""
    sample_rate = whole("sample_rate", sample_rate, *SAMPLE_RATES)
    if len(notes) == 0:
        raise InputError("This piece contains no notes, so there is nothing to hear; add some.")
    notes = notes[np.argsort(notes["start"], kind="stable")]
    longest = notes["end"].max()
    if not longest <= MAX_HOURS * 3600 or not notes["start"].min() >= 0:  # nan is refused, too
        raise InputError(
            f"This piece ends after {longest / 3600:.4g} hours, but sound is made for up to "
            f"{MAX_HOURS} hours from time 0; cut the piece."
        )
    pitch = np.minimum(notes["pitch"], 127).astype(np.int64)
    start, end = (np.rint(notes[f] * sample_rate).astype(np.int64) for f in ("start", "end"))
    zones = [_zone(key) for key in range(128)]
    longest_tone = np.array([int(z.seconds * sample_rate) for z in zones])[pitch]
    release = np.array([int(z.release_seconds * sample_rate) for z in zones])[pitch]
    end = np.maximum(end, start)
    stop = np.minimum(end + release, start + longest_tone)
    velocity = np.clip(notes["velocity"], 1, 127).astype(np.int64)
    return _Plan(start, end, stop, pitch, velocity)


def _mix(plan: _Plan, tones: _Tones, first: int, last: int) -> Floats:
    """What sounds from sample `first` to `last`, before the limiter: (2, last - first)."""
    mix = np.zeros((2, last - first), np.float32)
    for i in np.flatnonzero((plan.start < last) & (plan.stop > first)):
        start, end, stop = int(plan.start[i]), int(plan.end[i]), int(plan.stop[i])
        pitch, velocity = int(plan.pitch[i]), int(plan.velocity[i])
        a, b = max(start, first), min(stop, last)
        tone = tones.get(pitch, b - start)[:, a - start : b - start]
        left, right, brilliance = _gains(pitch, velocity)
        sound = tone[0] + brilliance * tone[1]
        if b > end:
            c = max(a, end)
            release = int(_zone(pitch).release_seconds * tones.sample_rate)
            sound[c - a :] *= _release(release)[c - end : b - end]
        mix[0, a - first : b - first] += left * sound
        mix[1, a - first : b - first] += right * sound
    return mix


def _limit(mix: Floats) -> Pcm:
    """Bend peaks above the threshold so that they stay below 1, and round: (n, 2) int16.

    What lies below the threshold is not touched, and silence stays exactly 0.
    """
    threshold = load_bank().limiter_threshold
    size = np.abs(mix)
    if size.max() > threshold:
        over = np.maximum(size - threshold, 0) / (1 - threshold)
        np.copyto(
            mix, np.copysign(threshold + (1 - threshold) * over / (1 + over), mix), where=over > 0
        )
    mix *= 32767
    return np.ascontiguousarray(np.rint(mix, out=mix).astype(np.int16).T)


def _block_samples(sample_rate: int) -> int:
    return max(1, int(BLOCK_SECONDS * sample_rate))


def _blocks(plan: _Plan, sample_rate: int) -> Generator[Pcm, None, None]:
    """The sound in blocks of `BLOCK_SECONDS`: int16 arrays of shape (n, 2), whatever their length
    the same sound.
    """
    size, total = _block_samples(sample_rate), plan.total
    tones = _Tones(sample_rate)
    for first in range(0, total, size):
        yield _limit(_mix(plan, tones, first, min(first + size, total)))


def render(notes: Notes, *, sample_rate: int = SAMPLE_RATE) -> Pcm:
    """The sound of `notes`: int16 samples of shape (n, 2), left and right.

    `notes` is a structured array of `music_gpt.notes.NOTE_DTYPE`, in seconds, with the pedal
    applied (`Piece.sounding_notes`). The last note rings out: n is its end plus up to 1.5 s. The
    result depends on the notes alone, and each note is as loud as it would be by itself. Raises
    `InputError` when there are no notes, when they end after `MAX_HOURS`, and for a sample rate
    outside `SAMPLE_RATES`.
    """
    plan = _plan(notes, sample_rate)
    sound, done = np.empty((plan.total, 2), np.int16), 0
    for block in _blocks(plan, sample_rate):
        sound[done : done + len(block)] = block
        done += len(block)
    return sound


def write_audio(
    piece: PieceLike,
    path: str | Path,
    *,
    sample_rate: int = SAMPLE_RATE,
    soundfont: SoundFont | None = None,
) -> None:
    """Write the sound of a piece to `path`, whose suffix says how: .wav, .flac or .mp3.

    `piece` is anything that `music_gpt.midi.piece.as_piece` takes, and `soundfont` what
    `music_gpt.soundfont.open_soundfont` returns; None is the bundled piano. The file appears whole
    or not at all. Raises `InputError` for another suffix, for what `render` and
    `music_gpt.soundfont.play` refuse, and when the file cannot be written.
    """
    path, kind = as_path(path), sound_format(path)
    notes = as_piece(piece).sounding_notes
    plan = _plan(notes, sample_rate)
    if soundfont is None:
        total, blocks = plan.total, _blocks(plan, sample_rate)
    else:
        total = int(plan.end.max()) + int(TAIL_SECONDS * sample_rate)
        blocks = _played(soundfont, notes, sample_rate)
    with closing(blocks), whole_file(path) as beside:
        _make_room(beside, 4 * total if kind == "WAV" else 0)
        _encode(blocks, beside, kind, sample_rate)


def _played(soundfont: SoundFont, notes: Notes, sample_rate: int) -> Generator[Pcm, None, None]:
    """What FluidSynth plays, through the limiter of the bundled piano."""
    with closing(play(soundfont, notes, sample_rate, _block_samples(sample_rate))) as blocks:
        for block in blocks:
            yield _limit(block)


def sound_format(path: str | Path) -> str:
    """WAV, FLAC or MP3, as the suffix of `path` says; `InputError` for another suffix."""
    path = as_path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"Sound cannot be written to {path.name!r}; end the name in {ENDINGS}.")
    return FORMATS[path.suffix.lower()]


def write_wav(piece: PieceLike, path: str | Path) -> None:
    """`write_audio` at the usual rate: the suffix of `path` says the format, .wav among others."""
    write_audio(piece, path)


def _encode(blocks: Iterator[Pcm], path: Path, kind: str, sample_rate: int) -> None:
    """Stream the blocks into a file; raises `OSError` when fewer samples arrive than were sent."""
    rates = ", ".join(map(str, MP3_RATES))
    fits = kind != "MP3" or sample_rate in MP3_RATES
    require(fits, "sample_rate", sample_rate, f"one of {rates} in an MP3 file")
    sent = 0
    # libsndfile maps 0.4 to 192 kbit/s; its own choice is 320
    options = {"bitrate_mode": "CONSTANT", "compression_level": 0.4} if kind == "MP3" else {}
    try:
        with soundfile.SoundFile(path, "w", sample_rate, 2, format=kind, **options) as file:
            for block in blocks:
                # libsndfile 1.2.2 turns stereo int16 into noise on its way to MP3; floats arrive
                file.write(block / np.float32(32768) if kind == "MP3" else block)
                sent += len(block)
        arrived = soundfile.info(path).frames
    except soundfile.LibsndfileError as error:  # it hides what the system said
        raise OSError(errno.ENOSPC, str(error)) from error
    if arrived != sent:
        raise OSError(errno.ENOSPC, "only a part of the sound was taken")


def _make_room(path: Path, n_bytes: int) -> None:
    """Make the file, and raise `OSError` at once where its folder has no room for so many bytes."""
    path.touch()
    if shutil.disk_usage(path.parent).free < n_bytes:
        raise OSError(errno.ENOSPC, "the sound is larger than the room that is left")
