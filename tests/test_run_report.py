"""The report of a run: all that there is, on a page that needs nothing else but its sounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small import run_config, tokens_folder
from test_report import Page

from music_gpt.config.training import RunConfig
from music_gpt.training.callback import RunCallback
from music_gpt.training.run import train
from music_gpt.training.run_folder import Measurement, append_row
from music_gpt.training.run_report import report_page

ABOUT = {
    "state": "Finished after 40 steps and 2.0 minutes.",
    "config": RunConfig().to_dict(),
    "parameters": 19_300_000,
    "device": "NVIDIA H200",
    "devices": 2,
    "tokens": "mine",
    "splits": {"train": {"pieces": 3, "tokens": 500, "notes": 120, "seconds": 7200.0}},
    "sources": {"mutopia": {"pieces": 3, "tokens": 500, "licences": ["CC0"]}},
    "licences": {"CC0": {"pieces": 3}},
    "init_from": "old.safetensors",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run <A&B> of three measurements, with the samples of two steps."""
    run = tmp_path / "A&B"
    run.mkdir()
    append_row(run, Measurement(20, 1.0, 400, 3.0, 2.8, 11.2, 1.0, 0.5, 9000.0, 0.25))
    append_row(run, Measurement(30, 1.5, 700, 2.5, 2.6, 10.4, 0.5, 0.6, 9100.0, 0.26))
    append_row(run, Measurement(40, 2.0, 1000, 2.4, 2.7, 10.8, 0.1, 0.4, 9200.0, 0.27))
    for step in (20, 40):
        folder = run / "samples" / f"step-{step}"
        folder.mkdir(parents=True)
        sample = {
            "title": "Clara <Schumann>",
            "split": "validation",
            "seam_seconds": 1.0,
            "files": {"MIDI": "1.mid", "picture": "1.png", "sound": "1.mp3"},
            "notes": [[0.0, 1.0, 60, 64], [1.0, 2.0, 62, 64]],
        }
        (folder / "samples.json").write_text(json.dumps([sample]))
    return run


def test_the_page_is_whole_and_fetches_only_what_lies_beside_it(run: Path) -> None:
    page = Page(report_page(run, ABOUT))
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert page.fetched == [
        "href=samples/step-20/",
        *("src=samples/step-40/1.mp3", "href=samples/step-40/1.mid", "href=samples/step-40/1.png"),
    ]
    assert "http" not in report_page(run, ABOUT)


def test_the_page_tells_the_figures_the_settings_and_where_the_tokens_come_from(run: Path) -> None:
    text = " ".join(Page(report_page(run, ABOUT)).text)
    for told in (
        "Training of A&B",
        "Finished after 40 steps and 2.0 minutes. Trained on 2 × NVIDIA H200, begun with the "
        "weights of old.safetensors.",
        *("2.600", "10.40", "26%", "19.3 M", "tokens seen, 2 passes"),
        *("From the folder mine.", "mutopia", "CC0", "2.0"),
        "131,072",
        "Clara <Schumann>",
        "What it plays after 40 steps",
    ):
        assert told in text


def test_every_curve_has_its_picture(run: Path) -> None:
    html = report_page(run, ABOUT)
    assert html.count("<svg") == 7 + 1
    assert html.count('class="curve train"') == 6
    assert html.count('class="curve validation"') == 3
    assert "note new" in html


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    page = Page(report_page(tmp_path, {}))
    assert page.open == []
    assert page.tags.count("svg") == 0
    for step in (20, 40):
        append_row(tmp_path, Measurement(step, 1.0 * step, 400, 3.0, tokens_per_second=9.0))
    html = report_page(tmp_path, {})
    assert html.count("<svg") == 3  # the loss by tokens and by minutes, and the speed
    assert "utilisation" not in html
    assert "on validation" not in html


def test_a_figure_of_fewer_tokens_is_not_compared_with_one_of_more(tmp_path: Path) -> None:
    for step, nats, tokens in ((20, 2.9, 900), (30, 1.5, 100), (40, 2.7, 900), (50, 2.8, 900)):
        row = Measurement(step, 1.0, 400, 3.0, nats, 4 * nats, validation_tokens=tokens)
        append_row(tmp_path, row)
    html = report_page(tmp_path, {})
    assert "<b>2.700</b><span>nats/token on validation</span>" in html
    assert "<b>10.80</b><span>nats/note on validation</span>" in html


def test_rows_that_lack_a_speed_do_not_hide_the_others(tmp_path: Path) -> None:
    append_row(tmp_path, Measurement(20, 1.0, 400, 3.0))
    assert "tokens/s" not in report_page(tmp_path, {})
    append_row(tmp_path, Measurement(40, 2.0, 800, 2.5, tokens_per_second=9000.0, mfu=0.25))
    html = report_page(tmp_path, {})
    assert "<b>9,000</b><span>tokens/s</span>" in html
    assert "<b>25%</b><span>model FLOPs utilisation</span>" in html
    assert "nan" not in html


def test_the_page_is_written_at_each_measurement_and_says_where_the_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_folder(tmp_path / "tokens", {"train": [60], "validation": [40]})
    run, after_step, seen = tmp_path / "run", RunCallback._after_step, dict[int, str]()

    def wrapped(self: RunCallback, trainer: Any, module: Any) -> None:
        if module.step == 3:
            self.signals.received = "SIGTERM"
        after_step(self, trainer, module)
        if (run / "report.html").exists():
            seen[module.step] = (run / "report.html").read_text()

    config = run_config(max_steps=6, validate_every_steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "_after_step", wrapped)
        train(tokens, run, config)
    assert "Going on: measured after 2 steps" in seen[2]
    assert "Stopped by SIGTERM after 3 steps" in seen[3]
    assert "50% of the run; --resume goes on." in seen[3]
    result = train(tokens, run, config, resume=True)
    page = Path(result["report"]).read_text()
    assert "Finished after 6 steps" in page
    assert "From the folder tokens." in page
