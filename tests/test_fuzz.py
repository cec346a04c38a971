"""Some hundreds of damaged, random and whole files: a piece or one sentence, and nothing else."""

import random

import pytest
from fuzz_midi import Row, check, midi_files, mutated, noise, real_files, whole_files
from hypothesis import given, settings

N_INPUTS = 300
"""Of each kind; `python tests/fuzz_midi.py` tries a hundred thousand."""


def test_a_mutated_file_gives_a_piece_or_a_refusal_and_nothing_else() -> None:
    sources, draw = real_files(), random.Random(1)
    n_pieces = sum(check(mutated(sources, draw)) for _ in range(N_INPUTS))
    assert n_pieces > N_INPUTS / 2


def test_noise_gives_a_piece_or_a_refusal_and_nothing_else() -> None:
    draw = random.Random(2)
    n_pieces = sum(check(noise(draw)) for _ in range(N_INPUTS))
    assert n_pieces > N_INPUTS / 2


@settings(max_examples=N_INPUTS)
@given(midi_files())
def test_a_damaged_file_gives_a_piece_or_a_refusal_and_nothing_else(data: bytes) -> None:
    check(data)


@settings(max_examples=N_INPUTS)
@given(whole_files())
def test_a_whole_file_has_the_notes_that_a_simple_player_plays(
    whole: tuple[bytes, list[Row]],
) -> None:
    check(*whole)


def test_the_player_to_compare_with_is_not_always_silent() -> None:
    counts = []

    @settings(max_examples=50)
    @given(whole_files())
    def count(whole: tuple[bytes, list[Row]]) -> None:
        counts.append(len(whole[1]))

    count()
    assert max(counts) > 3


def test_check_notices_a_wrong_note() -> None:
    with pytest.raises(AssertionError):
        check(real_files()[-1], [(0.0, 1.0, 60, 64)])
