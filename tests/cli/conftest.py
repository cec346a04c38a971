"""What the verbs are tried on: tokens, a checkpoint and MIDI files, all small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from calls import Said
from small import melody, random_network, tokens_folder

from music_gpt.cli import main as cli
from music_gpt.midi.piece import write_midi
from music_gpt.network.checkpoint import save_checkpoint


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "tokens"
    return tokens_folder(folder, {"train": [90, 70], "validation": [40], "test": [30]})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "model.safetensors"
    save_checkpoint(path, random_network(context=512), {})
    return path


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*words: object) -> Said:
        capfd.readouterr()
        code = cli.main([str(word) for word in words])
        return Said(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def midi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("midi")
    for seed in range(6):
        write_midi(melody(seed, 60), folder / f"piece-{seed}.mid")
    (folder / "broken.mid").write_bytes(b"not music")
    return folder
