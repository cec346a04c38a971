"""What made a take <-> a line of text in its MIDI file: by it the file can be made again.

The line is JSON: seed, settings, checkpoint, and what the network heard of the prompt. So a file
that holds its prompt needs nothing beside it; one that leaves the prompt out knows it by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from music_gpt.arrays import Ints
from music_gpt.composing.prompt import Prompt
from music_gpt.config.model import MAX_CONTEXT
from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError, argument
from music_gpt.generation.grammar import Start
from music_gpt.midi.files import read_file, unpack
from music_gpt.midi.piece import read_piece
from music_gpt.notes import NOTE_DTYPE, struck_within
from music_gpt.printable import shown
from music_gpt.tokens.events import FRAMES_PER_SECOND, N_PITCHES, N_VELOCITIES, PAD

MARK = "music-gpt "
_MOST_BYTES = 8 * MAX_CONTEXT
"""Of what was heard, unpacked: a hostile file must cost little."""
ALL_NEW = (0.0, math.inf)
"""From which second to which a take was composed that has no prompt."""
_LAST_FRAME = round(MidiLimits().max_seconds * FRAMES_PER_SECOND)


def settings_text(settings: Mapping[str, Any]) -> str:
    """What goes into a MIDI file as a text event: all that made the take, as one line of JSON.

    >>> settings_text({"seed": 7})
    'music-gpt {"seed": 7}'
    """
    return f"{MARK}{json.dumps(dict(settings), sort_keys=True, ensure_ascii=False)}"


def read_recipe(path: str | Path) -> dict[str, Any]:
    """The settings in a MIDI file; `InputError` where it holds none, or not those of a take."""
    settings = _settings_in(read_file(path, MidiLimits()))
    if settings is None:
        raise InputError(
            f"{shown(path)} does not tell how it was made, or no longer; give a MIDI file as "
            "music-gpt wrote it."
        )
    if not isinstance(settings.get("seed"), int) or "prompt_sha256" not in settings:
        raise InputError(
            f"{shown(path)} does not tell all that made it: an older music-gpt wrote it, or it "
            "holds a part that was redone; redo that part once more, in one candidate with the "
            "seed that was told."
        )
    return settings


def _settings_in(data: bytes) -> dict[str, Any] | None:
    """The settings in the bytes of a MIDI file, if it holds any."""
    data = unpack(data, MidiLimits())
    place = data.find(f"{MARK}{{".encode())
    text = data[place + len(MARK) :].decode("utf-8", "replace") if place >= 0 else ""
    try:
        return dict(json.JSONDecoder().raw_decode(text)[0])
    except (ValueError, RecursionError):
        return None


def composed_part(data: bytes) -> tuple[float, float] | None:
    """From which second to which the music in a MIDI file was composed; None for all, or unknown.

    The rest is the prompt or, where a part was redone, what stood around it.
    """
    settings = _settings_in(data) or {}
    redone, heard = settings.get("redo"), settings.get("prompt_heard")
    if isinstance(redone, list) and len(redone) == 2 and all(type(n) is float for n in redone):
        return redone[0], redone[1]
    if not isinstance(heard, str):
        return None
    try:
        seam = _start("the file", heard).seam / FRAMES_PER_SECOND
    except InputError:  # what is damaged tells nothing
        return None
    return (seam, math.inf) if seam > 0 else None


def new_part(data: bytes) -> tuple[float, float] | None:
    """As `composed_part`, but `ALL_NEW` for a take without a prompt; None for other music."""
    settings = _settings_in(data) or {}
    all_is_new = "seed" in settings and "redo" not in settings
    return composed_part(data) or (ALL_NEW if all_is_new else None)


# --- the prompt ---------------------------------------------------------------------------------


def prompt_settings(start: Start, *, include_prompt: bool) -> dict[str, str | None]:
    """What the settings of a take tell of its prompt: its hash and, if it is in the file, all."""
    plain = _plain(start)
    heard = base64.b64encode(zlib.compress(plain, 9)).decode()
    return {
        "prompt_sha256": hashlib.sha256(plain).hexdigest(),
        "prompt_heard": heard if include_prompt else None,
    }


def _plain(start: Start) -> bytes:
    onsets = sorted(start.onsets.items())
    parts = [list(start.context), start.frame, start.seam, start.velocity, onsets]
    return json.dumps(parts).encode()


def prompt_from_file(path: str | Path, settings: Mapping[str, Any]) -> Prompt:
    """The prompt whose continuation is in the file, from the file alone.

    Raises:
        InputError: the file does not hold its prompt, or it was changed.
    """
    if not isinstance(settings.get("prompt_heard"), str):
        raise InputError(
            f"{shown(path)} was written without its prompt; give the prompt that it continues, "
            f"with {argument('prompt')}."
        )
    start = _start(path, settings["prompt_heard"])
    check_prompt(start, settings, f"What {shown(path)} holds of its prompt")
    if not start.seam:
        return Prompt(np.zeros(0, NOTE_DTYPE), start)
    seam = start.seam / FRAMES_PER_SECOND
    sounding = read_piece(path).sounding_notes
    notes = sounding[struck_within(sounding, (0.0, seam))]
    notes["end"] = np.minimum(notes["end"], seam)
    place = {int(pitch): i for i, pitch in enumerate(notes["pitch"])}
    if not place.keys() >= start.onsets.keys():
        raise InputError(
            f"{shown(path)} was changed: notes of its prompt are gone; give the prompt with "
            f"{argument('prompt')}."
        )
    return Prompt(notes, start, {pitch: place[pitch] for pitch in start.onsets})


def _start(path: str | Path, heard: str) -> Start:
    try:
        plain = zlib.decompressobj().decompress(base64.b64decode(heard), _MOST_BYTES)
        context, frame, seam, velocity, onsets = json.loads(plain)
        pitch, onset = np.array(onsets, np.int64).reshape(-1, 2).T
        ids = np.array(context, np.int64)
        whole = all(type(n) is int for n in (frame, seam, velocity))
        if (
            whole
            and ids.ndim == 1
            and len(ids)
            and _all_within(ids, 0, PAD - 1)
            and _all_within(pitch, 0, N_PITCHES - 1)
            and _all_within(onset, 0, frame)
            and 0 <= frame <= seam <= _LAST_FRAME
            and -1 <= velocity < N_VELOCITIES
        ):
            sounding = dict(zip(pitch.tolist(), onset.tolist(), strict=True))
            return Start(ids.tolist(), frame, seam, velocity, sounding)
    except (ValueError, TypeError, OverflowError, zlib.error, RecursionError):
        pass
    raise InputError(
        f"What {shown(path)} holds of its prompt is damaged; give the prompt with "
        f"{argument('prompt')}."
    )


def _all_within(numbers: Ints, least: int, most: int) -> bool:
    return bool(((numbers >= least) & (numbers <= most)).all())


def check_prompt(start: Start, settings: Mapping[str, Any], what: str) -> None:
    """Raise `other_prompt` unless the network heard this when the take was made."""
    if prompt_settings(start, include_prompt=False)["prompt_sha256"] != settings["prompt_sha256"]:
        raise other_prompt(what)


def other_prompt(what: str) -> InputError:
    """The refusal of what is not the prompt of a take; `what` it is."""
    return InputError(
        f"{what} is not what this take goes on from; give the prompt with which it was made."
    )
