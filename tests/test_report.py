"""The report tells what became of each file, in JSON and on a page that needs nothing else."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import melody

from data_prep.prepare import prepare
from data_prep.report_page import report_page
from music_gpt.config.preparing import PrepareConfig
from music_gpt.midi.piece import write_midi

VOID = {"meta", "br", "wbr", "rect", "path", "link", "img"}


class Page(HTMLParser):
    """What a page holds: its text, its tags, and what it would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    midi = tmp_path_factory.mktemp("midi")
    for seed in range(14):
        write_midi(melody(seed, 150), midi / f"piece <{seed}> & more.mid")
    write_midi(melody(50, 10), midi / "a few notes.mid")
    (midi / "noise.mid").write_bytes(b"no music")
    (midi / "composers.tsv").write_text(
        "path\tsource\tcomposer\n"
        + "".join(f"piece <{i}> & more.mid\tmine\tClara Schumann\n" for i in range(3))
        + "piece <3> & more.mid\tmine\tFanny Hensel\n"
    )
    out = tmp_path_factory.mktemp("corpus") / "out"
    config = PrepareConfig(workers=1, sources=str(midi / "composers.tsv"))
    prepare(midi, out, config, progress=False)
    return out


@pytest.fixture(scope="module")
def report(out: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((out / "report.json").read_text())
    return told


@pytest.fixture(scope="module")
def page(out: Path) -> Page:
    return Page((out / "report.html").read_text())


def test_the_page_is_whole_and_fetches_nothing(page: Page) -> None:
    assert page.open == []
    assert page.fetched == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not any("http" in text or "url(" in text or "@import" in text for text in page.text)


def test_the_page_names_every_file_that_was_left_out_and_why(
    page: Page, report: dict[str, Any]
) -> None:
    text = " ".join(page.text)
    assert len(report["left_out"]) == 2
    for left in report["left_out"]:
        assert left["name"] in text
        assert left["reason"] in text


def test_names_with_marks_of_html_are_shown_as_they_are(page: Page, report: dict[str, Any]) -> None:
    for sample in report["samples"]:
        assert sample["file"] in page.text


def test_ten_pieces_are_drawn(page: Page, report: dict[str, Any]) -> None:
    assert len({sample["file"] for sample in report["samples"]}) == 10
    assert page.tags.count("svg") == 4 + 10


def test_the_histograms_count_every_piece_and_every_note(report: dict[str, Any]) -> None:
    histograms = report["histograms"]
    notes = sum(split["notes"] for split in report["splits"].values())
    assert sum(histograms["seconds"]["pieces"]) == report["pieces"] == 14
    assert sum(histograms["notes_per_second"]["pieces"]) == 14
    assert sum(histograms["notes_on_pitch"]) == notes
    assert sum(histograms["notes_in_velocity_bin"]) == notes
    lowest = np.flatnonzero(histograms["notes_on_pitch"])[0]
    assert lowest == min(int(melody(seed, 150)["pitch"].min()) for seed in range(14))


def test_composers_come_by_their_number_of_pieces(page: Page, report: dict[str, Any]) -> None:
    assert list(report["composers"].items()) == [("Clara Schumann", 3), ("Fanny Hensel", 1)]
    assert "Clara Schumann" in page.text


def test_a_passage_that_lies_in_two_splits_is_told_with_its_length_and_both_pieces(
    tmp_path: Path,
) -> None:
    midi = tmp_path / "midi"
    midi.mkdir()
    quoted, own = melody(1, 300), melody(2, 300)
    passage = quoted[100:180].copy()
    shift = float(own["start"][-1]) + 5 - float(passage["start"][0])
    for edge in ("start", "end"):
        passage[edge] += shift
    write_midi(quoted, midi / "quoted.mid")
    write_midi(np.concatenate([own, passage]), midi / "quoting.mid")
    write_midi(melody(3, 300), midi / "another.mid")
    (tmp_path / "mine.csv").write_text("path,split\nquoted.mid,train\nquoting.mid,test\n")
    config = PrepareConfig(workers=1, split_by=str(tmp_path / "mine.csv"))
    report = prepare(midi, tmp_path / "out", config, progress=False)
    (run,) = report["longest_runs_across_splits"]
    assert (run["first"], run["first_split"]) == ("quoted.mid", "train")
    assert (run["second"], run["second_split"]) == ("quoting.mid", "test")
    assert 70 < run["different_notes"] <= 82  # the pedal and the edges may cost a few
    assert run["second_seconds"] > run["first_seconds"] > 0
    text = " ".join(Page((tmp_path / "out" / "report.html").read_text()).text)
    assert "The longest runs of notes in two splits" in text
    assert "quoting.mid" in text


def test_a_seed_draws_other_pieces(out: Path, tmp_path: Path, report: dict[str, Any]) -> None:
    midi = tmp_path / "midi"
    midi.mkdir()
    for seed in range(14):
        write_midi(melody(seed, 150), midi / f"piece <{seed}> & more.mid")
    config = PrepareConfig(workers=1, seed=1)
    drawn = prepare(midi, tmp_path / "out", config, progress=False)["samples"]
    assert {d["file"] for d in drawn} != {s["file"] for s in report["samples"]}


def test_a_corpus_of_one_piece_has_a_page_too() -> None:
    report = {
        "midi_files": 1,
        "pieces": 1,
        "compositions": 1,
        "splits": {
            "train": {"pieces": 1, "compositions": 1, "tokens": 4, "notes": 1, "hours": 0.1}
        },
        "left_out_counts": {},
        "left_out": [],
        "mended": {},
        "other_files": {},
        "stray_rows": [],
        "composers": {},
        "histograms": {
            "seconds": {"from": [0], "pieces": [1]},
            "notes_per_second": {"from": [0], "pieces": [1]},
            "notes_on_pitch": [0] * 127 + [1],
            "notes_in_velocity_bin": [1] + [0] * 31,
        },
        "most_similar_across_splits": [],
        "longest_runs_across_splits": [],
        "same_recordings": [],
        "samples": [{"file": "a.mid", "split": "train"}],
    }
    page = Page(report_page(report, [melody(1, 1)]))
    assert "Every MIDI file is in the corpus." in page.text
    assert "One piece, drawn at random" in page.text
