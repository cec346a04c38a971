"""A network in training -> what it would play: the openings of some pieces, gone on with.

Each time, the same openings and seeds: what is heard to change is the network. The samples are MIDI
files, pictures and, where soundfile is installed, sound. They take a small share of the run (at
its end some seconds, if that is more), and nothing that goes wrong with them ends it.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from music_gpt.composing.composition import Composition
from music_gpt.composing.pianist import Pianist
from music_gpt.config.training import RunConfig
from music_gpt.errors import library_faults, words_of
from music_gpt.files import plain_errors, remove_unfinished, whole_file
from music_gpt.midi.piece import cut_notes, write_midi
from music_gpt.network.model import GPT
from music_gpt.notes import Notes
from music_gpt.report.picture import write_picture
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.events import decode_ids
from music_gpt.training.progress import Moment, tell
from music_gpt.training.run_folder import SAMPLES
from music_gpt.training.run_report import SAMPLES_LIST

OPENING_SECONDS, NEW_SECONDS = 8.0, 12.0
OPENING_TOKENS = 2000
"""So many ids hold an opening, however dense."""
SEED = 7
SHARE, SHARE_MEANWHILE = 0.02, 0.01
"""Time for samples as a share of the training so far: in all, and before the end."""
LONGEST = 20.0
"""Most seconds for the samples of one step."""
FIRST_COST = 2.0
"""Seconds that samples are thought to take; where that cut them off, they take twice as long the
next time, and come half as often."""
LAST_SECONDS, SHORTEST_RUN = 8.0, 5.0
"""Seconds that all samples may take in any case, of a run that is no shorter than this."""
LAST_SHARE = 0.1
"""Where the clock bounds a run, the last samples are planned for no more of it than this."""
COMPOSING = 0.6
"""Share of this time in which to compose; the rest is for pictures and sound."""


def train_and_listen(
    tokens: str | Path,
    out: str | Path,
    config: RunConfig,
    *,
    resume: bool = False,
    finished_too: bool = False,
    began: float | None = None,
    init_from: str | Path | None = None,
) -> dict[str, Any]:
    """`training.run.train`, with samples where it is measured: options and errors are its own."""
    with library_faults(ImportError, RuntimeError):  # or a torchvision of another build raises this
        from music_gpt.training.run import train  # Lightning takes seconds
    listener = Listening(tokens, out, config.train.samples)
    return train(
        tokens,
        out,
        config,
        resume=resume,
        finished_too=finished_too,
        began=began,
        init_from=init_from,
        listener=listener,
    )


class Listening:
    """Writes samples when a training is measured; `n_samples` of them each time."""

    def __init__(self, tokens: str | Path, run: str | Path, n_samples: int) -> None:
        self.tokens, self.run, self.n_samples = Path(tokens), Path(run), n_samples
        self._openings: list[tuple[str, str, Notes]] = []
        self._spent, self._cost = 0.0, FIRST_COST
        self._said: set[str] = set()

    def __call__(self, model: GPT, moment: Moment) -> None:
        """Let the network play, if its turn has come."""
        allowed = self._allowed(moment)
        if not allowed:
            return
        began = time.monotonic()
        try:
            cut_off = self._play(model, moment.step, began + COMPOSING * allowed)
            self._cost = min(2 * self._cost, LONGEST) if cut_off else self._cost
        except Exception as error:  # no sample is worth the end of a run
            self._say("missing", f"Samples are missing: {words_of(error)}")
        took = time.monotonic() - began
        self._spent, self._cost = self._spent + took, max(self._cost, took)

    def last_seconds(self, limit_seconds: float) -> float:
        """How long the last samples may take, of a run that has so many seconds in all."""
        if not self.n_samples or limit_seconds < SHORTEST_RUN:
            return 0.0
        longest = min(max(SHARE * limit_seconds, LAST_SECONDS), LONGEST)
        return min(longest, max(LAST_SHARE * limit_seconds, FIRST_COST))

    def _allowed(self, moment: Moment) -> float:
        """Seconds that samples may take now; 0 where it is not their turn."""
        if not self.n_samples:
            return 0.0
        if moment.is_last:
            rest = max(SHARE * moment.seconds, LAST_SECONDS) - self._spent
            # earlier ones may have taken longer than they might, as the last measurement may have
            rest = max(min(rest, moment.seconds_left), FIRST_COST)
            return min(rest, LONGEST) if moment.seconds >= SHORTEST_RUN else 0.0
        rest = min(SHARE_MEANWHILE * moment.seconds - self._spent, LONGEST)
        return rest if rest >= min(self._cost, LONGEST) else 0.0

    def _play(self, model: GPT, step: int, deadline: float) -> bool:
        """Write the samples of this step; whether the time was too short for them."""
        self._openings = self._openings or openings(Corpus.open(self.tokens), self.n_samples)
        folder, pianist = self.run / SAMPLES / f"step-{step}", Pianist(model)
        with plain_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        told, cut_off = [], False
        for number, (title, split, notes) in enumerate(self._openings, 1):
            now = time.monotonic()
            until = now + (deadline - now) / (len(self._openings) - number + 1)
            composition = pianist.compose(notes, seconds=NEW_SECONDS, seed=SEED)
            cut_off |= not _compose(composition, until)
            if len(composition.new_notes()):
                told.append({"title": title, "split": split})
                told[-1] |= self._write(composition, folder / str(number), title)
        with whole_file(folder / SAMPLES_LIST) as beside:
            beside.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")
        return cut_off

    def _write(self, composition: Composition, path: Path, title: str) -> dict[str, Any]:
        """The files of one sample, and what the report tells of it."""
        notes, seam = composition.notes(), composition.seam_seconds
        write_midi(notes, path.with_suffix(".mid"), text=title)
        write_picture(notes, path.with_suffix(".png"), composed=(seam, math.inf))
        files = {"MIDI": f"{path.name}.mid", "picture": f"{path.name}.png"}
        if self._write_sound(notes, path.with_suffix(".mp3")):
            files["sound"] = f"{path.name}.mp3"
        rounded = [(round(s, 3), round(e, 3), p, v) for s, e, p, v in notes.tolist()]
        return {"seam_seconds": seam, "files": files, "notes": rounded}

    def _write_sound(self, notes: Notes, path: Path) -> bool:
        try:
            from music_gpt.audio import write_audio
        except (ImportError, OSError):  # the library, or what it needs of the system
            self._say("silent", "Samples come without sound: soundfile is not installed.")
            return False
        write_audio(notes, path)
        return True

    def _say(self, matter: str, text: str) -> None:
        """Say it above the progress bar, once for each matter."""
        if matter not in self._said:
            tell(text)
        self._said.add(matter)


def openings(corpus: Corpus, n: int) -> list[tuple[str, str, Notes]]:
    """Title, split and first seconds of `n` pieces: of the validation split where there is one."""
    has_music = "validation" in corpus.splits and corpus.split("validation").n_targets
    name = "validation" if has_music else "train"
    split = corpus.split(name)
    chosen = np.unique(np.linspace(0, split.n_pieces, n, endpoint=False).astype(int)).tolist()
    return [
        (
            _title(split.records[i]),
            name,
            cut_notes(decode_ids(split.piece(i)[:OPENING_TOKENS]), 0.0, OPENING_SECONDS),
        )
        for i in chosen
    ]


def _title(record: dict[str, Any]) -> str:
    file = Path(str(record["file"])).stem
    return f"{record['composer']}: {file}" if record.get("composer") else file


def _compose(composition: Composition, until: float) -> bool:
    """Compose up to this moment of the clock at most; whether the music was finished."""
    for _ in composition:
        if time.monotonic() > until:
            composition.close()
            return False
    return True
