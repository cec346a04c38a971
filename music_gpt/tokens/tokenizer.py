"""A piece comes in -> MidiTok's sequence of the 390 events goes out, and a symusic Score back.

The arithmetic is numpy in `music_gpt.tokens.events`, whose names stand here too; this module puts
the face of MidiTok on it, so that people who know MidiTok save, load, encode, decode and check with
its own calls. Importing it costs seconds, for MidiTok; `music_gpt.tokens.events` has the ids
without it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from miditok import MIDILike, TokenizerConfig, TokSequence
from miditok.utils import merge_same_program_tracks
from symusic import Note, Tempo, Track
from symusic.core import ScoreQuarter, ScoreSecond, ScoreTick

from music_gpt.errors import InputError
from music_gpt.midi.piece import Piece, as_piece
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.tokens.events import (
    EOS,
    FRAMES_PER_SECOND,
    N_SHIFTS,
    N_VELOCITIES,
    NOTE_OFF,
    NOTE_ON,
    PAD,
    TIME_SHIFT,
    VELOCITY,
    VOCAB_SIZE,
    canonical_notes,
    count_notes,
    decode_ids,
    duration_frames,
    encode_notes,
    shift_velocity_ids,
    sounding_after,
    stretch_ids,
    token_names,
    transpose_ids,
    velocity_bin,
    velocity_in_force,
    velocity_value,
    vocabulary_hash,
)

__all__ = [
    "EOS",
    "FRAMES_PER_SECOND",
    "NOTE_OFF",
    "NOTE_ON",
    "N_SHIFTS",
    "N_VELOCITIES",
    "PAD",
    "TIME_SHIFT",
    "VELOCITY",
    "VOCAB_SIZE",
    "PerformanceTokenizer",
    "canonical_notes",
    "count_notes",
    "decode_ids",
    "duration_frames",
    "encode_notes",
    "shift_velocity_ids",
    "sounding_after",
    "stretch_ids",
    "token_names",
    "tokenizer_json",
    "transpose_ids",
    "velocity_bin",
    "velocity_in_force",
    "velocity_value",
    "vocabulary_hash",
]

_SCORES = (ScoreTick, ScoreQuarter, ScoreSecond)
ONE_BEAT_A_SECOND = 60
"""Tempo of decoded scores: with 100 ticks to the beat, a tick is a frame of 10 ms."""

_GRAMMAR = {
    "NoteOn": {"NoteOn", "Velocity", "TimeShift"},
    "NoteOff": {"NoteOff", "NoteOn", "Velocity", "TimeShift", "EOS", "PAD"},
    "TimeShift": {"TimeShift", "NoteOff", "NoteOn", "Velocity"},
    "Velocity": {"NoteOn"},
    "EOS": {"Velocity", "NoteOn", "NoteOff", "TimeShift", "EOS", "PAD"},
    "PAD": {"PAD", "EOS"},
}
"""Type of an event -> types that may follow it. EOS also heads a piece; PAD fills either end."""


class PerformanceTokenizer(MIDILike):  # type: ignore[misc]  # MidiTok ships no types
    """MidiTok's MIDI-like tokenizer with exactly the 390 events, in the order of their ids.

    Unlike MidiTok's own it follows tempo changes and the sustain pedal, mends damaged files and
    plays one note of a pitch at a time; its vocabulary is fixed.

    Args:
        tokenizer_config: none, or the one that `PerformanceTokenizer().config` is.
        params: path of a file that `save` wrote; it may hold a trained BPE model.

    Raises:
        InputError: the configuration is one of another tokenizer.

    >>> tokenizer = PerformanceTokenizer()
    >>> len(tokenizer), tokenizer["NoteOn_60"], tokenizer["EOS_None"]
    (390, 60, 388)
    >>> score = tokenizer.decode([371, 60, 305, 188])
    >>> tokenizer.encode(score).ids
    [371, 60, 305, 188]
    """

    def __init__(
        self,
        tokenizer_config: TokenizerConfig | None = None,
        params: str | Path | None = None,
    ) -> None:
        super().__init__(tokenizer_config or _config(), params)
        if self.config != _config() or list(self.vocab) != token_names():
            raise InputError(
                "The settings are those of another tokenizer, and the 390 events have no others; "
                "use PerformanceTokenizer() without a configuration."
            )
        self.one_token_stream = True  # one sequence for the whole piece, not one for each track

    # MidiTok's hooks, in the order in which it calls them

    def _tweak_config_before_creating_voc(self) -> None:
        super()._tweak_config_before_creating_voc()
        if not self.vocab:  # MidiTok adds its own, in another order, only if there is none
            for name in token_names():
                self.add_to_vocab(name, special_token=name in self.config.special_tokens)

    def _create_token_types_graph(self) -> dict[str, set[str]]:
        return {kind: set(followers) for kind, followers in _GRAMMAR.items()}

    def _add_special_tokens_to_types_graph(self) -> None:
        """The graph has them: MidiTok would let EOS stand anywhere and nothing follow it."""

    def encode(
        self,
        score: Any,
        encode_ids: bool = True,
        no_preprocess_score: bool = False,
        attribute_controls_indexes: None = None,
    ) -> TokSequence:
        """The events of a symusic Score, path, bytes, PrettyMIDI, array of notes or `Piece`.

        Args:
            score: the music; files are mended and read by the rules of `music_gpt.midi.piece`.
            encode_ids: whether a trained BPE model, if there is one, shortens the ids.
            no_preprocess_score: MidiTok's; reading twice changes nothing here.
            attribute_controls_indexes: MidiTok's; the 390 events have none.

        Raises:
            InputError: there is no piano music in it.
        """
        sequence = self._score_to_tokens(score)
        if encode_ids and self.is_trained:
            self.encode_token_ids(sequence)
        return sequence

    def preprocess_score(self, score: Any) -> ScoreTick:
        """The music as the events can tell it: 10 ms a tick, one piano track, pedal applied."""
        return _score_from_notes(canonical_notes(_sounding_notes(score)))

    def _score_to_tokens(self, score: Any, attribute_controls_indexes: None = None) -> TokSequence:
        ids = encode_notes(_sounding_notes(score)).tolist()
        return TokSequence(ids=ids, tokens=self._ids_to_tokens(ids))

    def decode(
        self,
        tokens: TokSequence | Sequence[int] | npt.NDArray[np.integer],
        programs: list[tuple[int, bool]] | None = None,
        output_path: str | Path | None = None,
    ) -> ScoreTick:
        """The music of any ids as a Score of one piano track, one tick a frame of 10 ms.

        Args:
            tokens: a sequence, or ids as a list, an array or a tensor of one axis.
            programs: MidiTok's; everything is a piano here.
            output_path: a MIDI file to write (MidiTok itself would make a folder of that name).
        """
        if len(tokens) == 0:  # MidiTok would take an empty list for one of no tracks
            tokens = TokSequence()
        score: ScoreTick = super().decode(tokens)
        if output_path is not None:
            Path(output_path).parent.mkdir(parents=True, exist_ok=True)
            score.dump_midi(output_path)
        return score

    def _tokens_to_score(self, tokens: TokSequence, programs: object = None) -> ScoreTick:
        # names are always those of the 390 events; ids may be missing, or shortened by a BPE model
        has_plain_ids = len(tokens.ids) > 0 and not tokens.are_ids_encoded
        plain = tokens.ids if has_plain_ids else self._tokens_to_ids(tokens.tokens)
        return _score_from_notes(decode_ids(plain))

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> TokSequence | ScoreTick:
        """Encode music, decode ids; a path to a `.json` file of tokens is decoded."""
        if isinstance(obj, (str, Path)) and Path(obj).suffix == ".json":
            obj = self.load_tokens(obj)
        is_notes = isinstance(obj, np.ndarray) and obj.dtype == NOTE_DTYPE
        is_music = isinstance(obj, (*_SCORES, Piece, str, Path, bytes))
        if is_music or is_notes or hasattr(obj, "instruments"):
            return self.encode(obj, *args, **kwargs)
        return self.decode(obj, *args, **kwargs)

    def _tokens_errors(self, tokens: list[str]) -> int:
        return count_errors(self._tokens_to_ids(tokens))


def tokenizer_json() -> str:
    """The text of the file that `PerformanceTokenizer().save` writes: from it MidiTok loads it."""
    return json.dumps(PerformanceTokenizer().to_dict(), indent=4)


def count_errors(ids: npt.ArrayLike) -> int:
    """Number of events that the rules do not allow where they stand, at most one each.

    Wrong are: a type that may not follow (see the grammar above), a NoteOn of a pitch that sounds,
    a NoteOff of one that does not, a NoteOn that is never ended, a Velocity that is in force
    already, and a shift after one of less than a second. MidiTok's `tokens_errors` is this number
    over the length.

    >>> count_errors([371, 60, 305, 188]), count_errors([371, 60, 305]), count_errors([188, 60])
    (0, 1, 2)
    """
    array = np.asarray(ids, np.int64)
    kind = np.searchsorted([NOTE_OFF, TIME_SHIFT, VELOCITY, EOS, PAD], array, side="right")
    is_shift = (array >= TIME_SHIFT) & (array < VELOCITY)
    goes_on = is_shift & (array < VELOCITY - 1)  # though less than the longest shift
    wrong = _badly_paired(array)
    wrong[1:] |= ~_MAY_FOLLOW[kind[:-1], kind[1:]] | (goes_on[:-1] & is_shift[1:])
    # a velocity is told twice if the same is told before it in the same piece
    told = np.flatnonzero((array >= VELOCITY) & (array < EOS))
    piece = np.cumsum(array == EOS)[told]
    wrong[told[1:]] |= (np.diff(array[told]) == 0) & (np.diff(piece) == 0)
    return int(wrong.sum())


_MAY_FOLLOW = np.array([[b in followers for b in _GRAMMAR] for followers in _GRAMMAR.values()])
"""(type, next type) -> whether the grammar has it, both in the order of the ids."""


def _badly_paired(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where a NoteOn meets its own pitch or is never ended, or a NoteOff ends nothing."""
    wrong = np.zeros(len(ids), bool)
    notes = np.flatnonzero(ids < TIME_SHIFT)
    order = notes[np.argsort((ids[notes] & 127).astype(np.uint8), kind="stable")]
    if len(order) == 0:
        return wrong
    pitch, on = ids[order] & 127, ids[order] < NOTE_OFF
    first = np.concatenate([[True], pitch[1:] != pitch[:-1]])
    sounds = np.concatenate([[False], on[:-1]]) & ~first  # just before the event
    last = np.concatenate([first[1:], [True]])
    wrong[order] = (on == sounds) | (on & last)
    return wrong


def _config() -> TokenizerConfig:
    """The settings under which MidiTok's own checks and sizes are those of the 390 events."""
    return TokenizerConfig(
        pitch_range=(0, 127),  # both included
        beat_res={(0, 1): FRAMES_PER_SECOND},  # a beat is a second
        num_velocities=N_VELOCITIES,
        special_tokens=["EOS", "PAD"],
        encode_ids_split="no",  # there are no bars at which a BPE model could split
        use_pitchdrum_tokens=False,
        use_time_signatures=False,
    )


def _sounding_notes(music: Any) -> Notes:
    """The sounding notes of anything that holds music, symusic's scores among them."""
    if not isinstance(music, _SCORES):
        return as_piece(music).sounding_notes
    if music.note_num() == 0:
        return np.zeros(0, NOTE_DTYPE)
    # symusic writes each track on a channel of its own, but a pedal holds its whole channel
    joined = music.copy()
    merge_same_program_tracks(joined.tracks)
    return as_piece(joined.dumps_midi()).sounding_notes


def _score_from_notes(notes: Notes) -> ScoreTick:
    """Canonical notes on a grid of 10 ms a tick."""
    start, end = (
        np.rint(notes[name] * FRAMES_PER_SECOND).astype(np.int32) for name in ("start", "end")
    )
    tempo: Any = Tempo(0, ONE_BEAT_A_SECOND)  # symusic's types do not know what its makers make
    piano: Any = Track(name="piano", program=0, is_drum=False)
    piano.notes = Note.from_numpy(
        time=start,
        duration=end - start,
        pitch=notes["pitch"].astype(np.int8),
        velocity=notes["velocity"].astype(np.int8),
        ttype="tick",
    )
    score = ScoreTick(FRAMES_PER_SECOND)
    score.tempos.append(tempo)
    score.tracks.append(piano)
    return score
