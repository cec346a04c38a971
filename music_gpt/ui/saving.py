"""Takes -> files to take away, each of its kind, on a shelf; bounded in bytes and seconds."""

from __future__ import annotations

import re
import unicodedata
import zipfile
from pathlib import Path

from music_gpt import audio
from music_gpt.composing.provenance import settings_text
from music_gpt.config.prompt import AS_GIVEN, PromptChange
from music_gpt.errors import InputError
from music_gpt.midi.piece import midi_bytes
from music_gpt.notes import Notes
from music_gpt.report.picture import picture_bytes
from music_gpt.soundfont import SoundFont
from music_gpt.ui import bounds
from music_gpt.ui.history import Snapshot
from music_gpt.ui.roll_value import Take, length
from music_gpt.ui.shelf import Shelf

SOUND_BYTES = int((bounds.MAX_SOUND_SECONDS + 60) * audio.SAMPLE_RATE * 4)
"""The largest sound file: two channels of 16 bits, and some seconds for the last tone."""

LONGEST_NAME = 60
"""Letters of the name of the music in that of a file."""
KINDS = {
    "MIDI": ".mid",
    "WAV": ".wav",
    "FLAC": ".flac",
    "MP3": ".mp3",
    "Picture": ".png",
    "All takes": ".zip",
}
"""What can be taken away: words on the buttons, and the endings of the files."""
ONLY_MIDI = (
    "The takes last {minutes:.1f} minutes together, and the page makes sound of up to {most:g}, so "
    "the archive holds them as MIDI and pictures only."
)


def write_take(
    shelf: Shelf, music: Snapshot, take: Take, suffix: str, soundfont: SoundFont | None = None
) -> Path:
    """A take as a file of this kind."""
    name = stem(music, take) + suffix
    if suffix in audio.FORMATS:
        return write_sound(shelf, take.notes, name, soundfont)
    data = take_bytes(take) if suffix == ".mid" else take_picture(take)
    path = shelf.path(name, room=len(data))
    path.write_bytes(data)
    return path


def write_all(
    shelf: Shelf, music: Snapshot, soundfont: SoundFont | None = None
) -> tuple[Path, list[str]]:
    """Each take as MIDI, as a picture and, unless they are too long together, as FLAC: one archive.

    With it come sentences on what is not in there.
    """
    seconds = sum(length(take.notes) for take in music.takes)
    told = []
    if seconds > bounds.MAX_SOUND_SECONDS:
        told = [ONLY_MIDI.format(minutes=seconds / 60, most=bounds.MAX_SOUND_SECONDS / 60)]
    path = shelf.path(
        f"{plain_name(music.name)}-{len(music.takes)}-takes.zip", room=2 * SOUND_BYTES
    )
    with zipfile.ZipFile(path, "w") as archive:
        for take in music.takes:
            archive.writestr(f"{stem(music, take)}.mid", take_bytes(take))
            archive.writestr(f"{stem(music, take)}.png", take_picture(take))
            if told:
                continue
            sound = path.with_name("take.flac")
            try:
                audio.write_audio(take.notes, sound, soundfont=soundfont)
            except InputError as error:  # what is no sound can be taken away all the same
                told = [f"The archive holds MIDI and pictures only. {error}"]
                continue
            archive.write(sound, f"{stem(music, take)}.flac")
            sound.unlink()
    return path, told


def write_sound(shelf: Shelf, notes: Notes, name: str, soundfont: SoundFont | None = None) -> Path:
    """Notes as a sound file called `name`; raises `InputError` where they last too long."""
    seconds = length(notes)
    if seconds > bounds.MAX_SOUND_SECONDS:
        raise InputError(
            f"This music lasts {seconds / 60:.1f} minutes, but the page makes sound of up to "
            f"{bounds.MAX_SOUND_SECONDS / 60:g}; take a shorter part, or turn the MIDI file into "
            "sound with `music-gpt render`."
        )
    path = shelf.path(name, room=SOUND_BYTES)
    audio.write_audio(notes, path, soundfont=soundfont)
    return path


def stem(music: Snapshot, take: Take) -> str:
    """The name of a take's files, without their endings."""
    return file_stem(music.name, take.name, take.settings.get("seed"), music.change)


def take_bytes(take: Take) -> bytes:
    """A take as a MIDI file, with what made it."""
    return midi_bytes(take.notes, text=settings_text(take.settings) if take.settings else None)


def take_picture(take: Take) -> bytes:
    """The piano roll of a take, with what is new in the colour that it has on the page."""
    return picture_bytes(take.notes, composed=(take.first, take.last))


def file_stem(name: str, take: str, seed: int | None, change: PromptChange = AS_GIVEN) -> str:
    """A name that tells the prompt, the take and the seed, safe on every file system.

    change: by which the prompt became what is continued.

    >>> file_stem("Prélude / Op. 28", "take-1", 7, PromptChange(-3, 1.2))
    'prelude-op-28-down-3-120-percent-take-1-seed-7'
    """
    words = [plain_name(name)]
    if change.transpose:
        words.append(f"{'up' if change.transpose > 0 else 'down'}-{abs(change.transpose)}")
    if change.speed != 1:
        words.append(f"{100 * change.speed:.4g}-percent".replace(".", "-"))
    return "-".join([*words, take, *([] if seed is None else [f"seed-{seed}"])])


def plain_name(name: str) -> str:
    """The small letters and digits of a name, joined by hyphens: of a long one both ends.

    >>> plain_name("a" * 100 + ", continued 12") == "a" * 40 + "-" + "aaaa-continued-12"
    True
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(plain) > LONGEST_NAME:
        plain = f"{plain[: LONGEST_NAME - 20].strip('-')}-{plain[-17:].strip('-')}"
    return plain or "music"
