"""The keys that music is in, and how its notes are called there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from music_gpt.keys import PITCH_CLASSES, find_key, pitch_name, spelling
from music_gpt.midi.piece import read_piece

DEMO = Path(__file__).parent.parent / "examples" / "demo"
KEYS = {
    "bach_prelude-in-c-major-bwv-846": ("C", False),
    "beethoven_fur-elise-woo-59": ("A", True),
    "brahms_waltz-op-39-no-15": ("G♯", False),
    "chopin_prelude-op-28-no-6": ("B", True),
    "mozart_sonata-k-331-theme": ("A", False),
    "schubert_moment-musical-d-780-no-3": ("F", True),
    "satie_gymnopedie-no-1": ("D", False),
    "froberger_suite-vii-in-e-minor-allemande": ("E", True),
}


@pytest.mark.parametrize(("name", "tonic", "minor"), [(n, *key) for n, key in KEYS.items()])
def test_a_piece_is_heard_in_the_key_that_it_was_written_in(
    name: str, tonic: str, minor: bool
) -> None:
    notes = read_piece(DEMO / f"{name}.mid").sounding_notes
    seconds = np.bincount(notes["pitch"] % 12, notes["end"] - notes["start"], minlength=12)
    assert find_key(seconds.tolist()) == (PITCH_CLASSES.index(tonic), minor)


SCALES = {
    "C D E F G A B": "C♯ E♭ F♯ G♯ B♭",
    "E♭ F G A♭ B♭ C D": "D♭ E♭ G♭ A♭ B♭",
    "D E F♯ G A B C♯": "C♯ D♯ F♯ G♯ A♯",
    "G A B♭ C D E♭ F♯": "C♯ E♭ F♯ A♭ B♭",
    "C♯ D♯ E F♯ G♯ A B♯": "C♯ D♯ F♯ G♯ A♯",
    "B♭ C D♭ E♭ F G♭ A": "D♭ E♭ G♭ A♭ B♭",
}


@pytest.mark.parametrize(("written", "black"), SCALES.items())
def test_the_black_keys_of_a_scale_are_called_as_they_are_written_in_it(
    written: str, black: str
) -> None:
    weights = [5.0, 2.0, 3.0, 2.5, 4.0, 2.0, 2.0]  # tonic and fifth lead
    shares = [0.0] * 12
    for note, weight in zip(written.split(), weights, strict=True):
        letter = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}[note[0]]
        shares[(letter + note.count("♯") - note.count("♭")) % 12] = weight
    names = spelling(shares)
    assert [names[key] for key in (1, 3, 6, 8, 10)] == black.split()


def test_every_name_lies_in_the_octave_of_its_key_of_the_piano() -> None:
    letters = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
    for tonic in range(12):
        for minor in (False, True):
            third, sixth = (3, 8) if minor else (4, 9)
            weights = {0: 5.0, 2: 2.0, third: 3.0, 5: 2.0, 7: 4.0, sixth: 2.0, 11: 2.0}
            shares = [weights.get((pitch_class - tonic) % 12, 0.0) for pitch_class in range(12)]
            assert find_key(shares) == (tonic, minor)
            for pitch_class, name in enumerate(spelling(shares)):
                assert letters[name[0]] + name.count("♯") - name.count("♭") == pitch_class


def test_music_without_a_key_is_told_in_sharps() -> None:
    assert find_key([0.0] * 12) is None
    assert spelling([1.0] * 12) == PITCH_CLASSES
    assert pitch_name(70, spelling([0.0] * 12)) == "A♯4"
