"""The README is true: its commands and its Python run, in their order, in one folder."""

import itertools
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import music_gpt
from music_gpt.network.checkpoint import load_checkpoint

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
NEEDED = ("examples/demo", "configs", "music_gpt/prompts", "music_gpt/pretrained")
"""What the commands of the README read from the checkout."""


def blocks(language: str) -> list[str]:
    """The code blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.M | re.S)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what a reader of the README has, and nothing else."""
    folder = tmp_path_factory.mktemp("readme")
    for name in NEEDED:
        shutil.copytree(ROOT / name, folder / name)
    return folder


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the README with this Python's music_gpt, in seconds for its minutes."""
    command = [
        re.sub(r"^\d+$", "0.05", word) if was == "--max-minutes" else word
        for was, word in itertools.pairwise(command)
    ]
    words = [sys.executable, "-m", "music_gpt.cli.main", *command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)


def test_every_command_is_one_of_ours() -> None:
    assert {shlex.split(line)[0] for line in COMMANDS} == {"make", "music-gpt"}
    verbs = {shlex.split(line)[1] for line in COMMANDS if line.startswith("music-gpt")}
    making, training = {"generate", "render", "redo"}, {"prepare", "train", "evaluate"}
    assert verbs == making | training | {"export", "originality"}


@pytest.mark.parametrize("target", re.findall(r"`?make (app|test|check)`?", README))
def test_every_target_of_make_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), flags=re.M)


def test_the_commands_and_the_python_run_one_after_the_other(folder: Path) -> None:
    for line in COMMANDS:
        if line.startswith("music-gpt"):
            done = run(shlex.split(line), folder)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
    for block in blocks("python"):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
    takes = folder / "takes"
    for name in ("take.mid", "demo.mid", "continuation.mid"):
        assert music_gpt.read_piece(takes / name).n_notes > 0
    assert (takes / "same.mid").read_bytes() == (takes / "take.mid").read_bytes()
    for name in ("take.wav", "continuation.wav"):
        assert (takes / name).stat().st_size > 100_000
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    left = {path.name for path in folder.iterdir()} - {Path(name).parts[0] for name in NEEDED}
    assert [name for name in left if f"/{name}/" not in ignored] == []


def test_every_file_it_names_exists() -> None:
    named = re.findall(r"`([\w/.-]+/[\w.-]*\.?\w+)`|\]\((\w[\w/.-]+)\)", README)
    paths = {path for pair in named for path in pair if path}
    made = {path for path in paths if path.split("/")[0] in ("tokens", "runs", "takes", "tests")}
    roots = (ROOT, ROOT / "music_gpt")
    missing = {path for path in paths - made if not any((root / path).exists() for root in roots)}
    assert missing == set()


def test_the_table_of_configs_tells_their_real_sizes() -> None:
    rows = re.findall(r"\| `(\w+\.yaml)` \| (\d) blocks, (\d+)/(\d+) \|", README)
    assert {row[0] for row in rows} == {"tiny.yaml", "small.yaml", "default.yaml"}
    for name, n_layers, d_model, d_ff in rows:
        model = yaml.safe_load((ROOT / "configs" / name).read_text("utf-8"))["model"]
        shape = {"n_layers": int(n_layers), "d_model": int(d_model), "d_ff": int(d_ff)}
        assert shape == {key: model[key] for key in shape}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_figures_of_the_bundled_network_are_those_of_its_card(split: str) -> None:
    score = load_checkpoint()[1][split]
    figures = [
        f"{split}, {score['tokens'] / 1e6:.2f} M tokens",
        f"{score['nats_per_token']:.3f}",
        f"{score['nats_per_note']:.2f}",
        f"{score['sliding_nats_per_token']:.3f}",
        f"{score['ngram_nats_per_token']:.3f}",
    ]
    assert f"| {' | '.join(figures)} |" in README
