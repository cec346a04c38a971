"""The pieces that ship with the project: free to pass on, named one by one, and readable."""

import csv
import json
from pathlib import Path

import pytest

from music_gpt.composing.prompt import hear
from music_gpt.config.sampling import SamplingConfig
from music_gpt.midi.piece import read_piece
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.tokens.events import EOS

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "demo"
PROMPTS = ROOT / "music_gpt" / "prompts"
FREE = {"Public Domain", "CC0 1.0"}

SOURCES = list(
    csv.DictReader(
        (ROOT / "examples" / "SOURCES.tsv").read_text("utf-8").splitlines(), delimiter="\t"
    )
)
OPENINGS = json.loads((PROMPTS / "prompts.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("rows", "folder"), [(SOURCES, DEMO), (OPENINGS, PROMPTS)], ids=["demo", "prompts"]
)
def test_every_shipped_piece_is_named_once_and_free(
    rows: list[dict[str, str]], folder: Path
) -> None:
    assert sorted(row["file"] for row in rows) == sorted(path.name for path in folder.glob("*.mid"))
    assert {row["licence"] for row in rows} <= FREE
    assert all(row["title"] and row["composer"] and row["source"] for row in rows)


def test_no_piece_stands_twice_in_the_demo_corpus() -> None:
    assert len({(row["composer"], row["title"]) for row in SOURCES}) == len(SOURCES)


@pytest.mark.parametrize("row", SOURCES, ids=lambda row: row["file"])
def test_a_demo_piece_reads_without_a_repair(row: dict[str, str]) -> None:
    piece = read_piece(DEMO / row["file"])
    assert piece.warnings == []
    assert piece.n_notes > 100


@pytest.mark.parametrize("row", OPENINGS, ids=lambda row: row["file"])
def test_an_opening_is_long_enough_to_set_a_mood_and_starts_at_once(row: dict[str, str]) -> None:
    piece = read_piece(PROMPTS / row["file"])
    assert piece.warnings == []
    assert 11 < piece.seconds < 40
    assert piece.notes["start"][0] < 0.1
    assert (piece.notes["end"] - piece.notes["start"]).min() > 0.02  # no stub of the next phrase


@pytest.mark.parametrize("row", OPENINGS, ids=lambda row: row["file"])
def test_the_bundled_network_hears_an_opening_from_its_head(row: dict[str, str]) -> None:
    context = load_checkpoint()[0].config.context
    piece = read_piece(PROMPTS / row["file"])
    heard = hear(piece, context, None, SamplingConfig.max_wait_seconds)
    assert heard.warnings == []
    assert heard.start.context[0] == EOS  # which stands at the head of a piece
    assert len(heard.notes) == piece.n_notes
