"""The folder of a run -> report.html: how it went, what it plays, and all that it was made of.

The page holds its pictures and styles; only the sound of the samples lies beside it, in `samples/`.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from music_gpt.files import whole_file
from music_gpt.notes import NOTE_DTYPE
from music_gpt.report.drawing import Curve, curves, piano_roll
from music_gpt.report.html import charts, page, rounded, table, tiles
from music_gpt.training.run_folder import REPORT, SAMPLES, Measurement, read_log

SAMPLES_LIST = "samples.json"
"""What is told of the samples of one step: a list of objects with title, split, seam_seconds, files
(kind -> name) and notes (start, end, pitch, velocity)."""
STYLE = """
.settings { display: grid; gap: 14px; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(230px, 100%), 1fr)); }
.settings td, .settings th { font-size: 13px; padding: 3px 8px 3px 0; }
.settings td.name { min-width: 0; width: auto; overflow-wrap: normal; }
.key { display: inline-block; width: 14px; height: 3px; margin: 0 6px 3px 0; }
h3 .key { margin-left: 14px; }
.roll .play { display: flex; gap: 18px; align-items: center; margin-top: 12px; font-size: 14px;
  flex-wrap: wrap; }
audio { height: 34px; width: min(420px, 100%); }
"""


def write_report(run: Path, about: Mapping[str, Any]) -> None:
    """Write the report of what is in `run` now.

    `about` tells what the folder does not: `state` (a sentence), `config`, `parameters`, `device`,
    `devices`, `tokens` (name of the folder), `splits`, `sources`, `licences` and `init_from`, all
    as plain values, each of which may be missing. Raises `InputError` if it cannot be written.
    """
    with whole_file(run / REPORT) as beside:
        beside.write_text(report_page(run, about), encoding="utf-8")


def report_page(run: Path, about: Mapping[str, Any]) -> str:
    """The page: the same for the same folder and `about`."""
    rows = read_log(run)
    sections = [
        _head(run, rows, about),
        _curves(rows),
        _samples(run),
        _tokens(about),
        _settings(about.get("config", {})),
    ]
    return page(f"Training of {escape(run.resolve().name)}", sections, STYLE)


def _head(run: Path, rows: Sequence[Measurement], about: Mapping[str, Any]) -> str:
    scored = _comparable(rows)
    figures = [
        (
            _three(_least(row.validation_nats_per_token for row in scored)),
            "nats/token on validation",
        ),
        (_two(_least(row.validation_nats_per_note for row in scored)), "nats/note on validation"),
        *_amounts(rows, about),
        (rounded(about["parameters"]) if "parameters" in about else "", "parameters"),
    ]
    return (
        f"<h1>Training of {escape(run.resolve().name)}</h1>"
        f"<p>{escape(about.get('state', ''))} {escape(_made_on(about))}</p>"
        + tiles((figure, name) for figure, name in figures if figure)
    )


def _comparable(rows: Sequence[Measurement]) -> list[Measurement]:
    """The rows that were validated on as many tokens as the last one; older logs do not tell it."""
    scored = [row for row in rows if not math.isnan(row.validation_nats_per_token)]
    known = [row for row in scored if not math.isnan(row.validation_tokens)]
    if not known:
        return scored
    return [row for row in known if row.validation_tokens == known[-1].validation_tokens]


def _amounts(rows: Sequence[Measurement], about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the run took: tokens, passes over the corpus, and how quickly it went."""
    if not rows:
        return []
    in_corpus = about.get("splits", {}).get("train", {}).get("tokens", 0)
    passes = (
        f"tokens seen, {rows[-1].tokens / in_corpus:.2g} passes" if in_corpus else "tokens seen"
    )
    speed = _median(row.tokens_per_second for row in rows)
    mfu = _median(row.mfu for row in rows)
    return [
        (_thousands(rows[-1].tokens), passes),
        ("" if math.isnan(speed) else f"{speed:,.0f}", "tokens/s"),
        ("" if math.isnan(mfu) else _percent(mfu), "model FLOPs utilisation"),
    ]


def _made_on(about: Mapping[str, Any]) -> str:
    device, n = about.get("device", ""), about.get("devices", 1)
    place = {"cpu": "a CPU", "mps": "the GPU of a Mac"}.get(device, f"one {device}")
    begun = f", begun with the weights of {about['init_from']}" if about.get("init_from") else ""
    return f"Trained on {place if n == 1 else f'{n} × {device}'}{begun}." if device else ""


def _curves(rows: Sequence[Measurement]) -> str:
    if len(rows) < 2:
        return ""
    names = '<i class="key train"></i>training<i class="key validation"></i>validation'
    tokens, minutes = [float(row.tokens) for row in rows], [row.minutes for row in rows]
    loss = [("train", "train_nats_per_token"), ("validation", "validation_nats_per_token")]

    def drawn(
        columns: Iterable[tuple[str, str]],
        told: Callable[[float], str],
        x: Sequence[float] = tokens,
        told_x: Callable[[float], str] = _thousands,
        *,
        from_zero: bool = False,
    ) -> str:
        lines = [Curve(kind, x, [getattr(row, name) for row in rows]) for kind, name in columns]
        caption = " and ".join(name.replace("_", " ") for _, name in columns)
        return curves(lines, caption, told_x, told, from_zero=from_zero)

    def alone(kind: str, name: str, told: Callable[[float], str]) -> str:
        return drawn([(kind, name)], told, from_zero=True)

    drawings = [
        (f"Nats/token by tokens seen {names}", drawn(loss, _two)),
        (f"Nats/token by minutes {names}", drawn(loss, _two, minutes, _minutes_told)),
        ("Nats/note on validation", drawn([("validation", "validation_nats_per_note")], _two)),
        ("Learning rate, share of its peak", alone("train", "learning_rate_factor", _percent)),
        ("Norm of the gradient, before clipping", alone("train", "gradient_norm", _two)),
        ("Tokens/s", alone("train", "tokens_per_second", _thousands)),
        ("Model FLOPs utilisation", alone("train", "mfu", _percent)),
    ]
    return charts((name, svg) for name, svg in drawings if "<path" in svg)


def _samples(run: Path) -> str:
    steps = sorted(_steps(run))
    shown = next(((step, told) for step in reversed(steps) if (told := _told(run, step))), None)
    if shown is None:
        return ""
    last, (split, cards) = shown
    earlier = [step for step in steps if step < last]
    links = ", ".join(
        f'<a href="{SAMPLES}/step-{step}/">{step:,}</a>' for step in reversed(earlier)
    )
    return (
        f"<h2>What it plays after {last:,} steps</h2><p>"
        f'<i class="key train"></i>Openings of pieces of the {escape(split)} split, and '
        '<i class="key validation"></i>how it goes on.'
        f"{f' Earlier: after {links} steps.' if links else ''}</p>{cards}"
    )


def _steps(run: Path) -> Iterator[int]:
    for file in run.glob(f"{SAMPLES}/step-*/{SAMPLES_LIST}"):
        number = file.parent.name.removeprefix("step-")
        if number.isdecimal():
            yield int(number)


def _told(run: Path, step: int) -> tuple[str, str] | None:
    """Split and cards of the samples of a step; None where there are none, or they are damaged."""
    folder = f"{SAMPLES}/step-{step}"
    try:
        samples = json.loads((run / folder / SAMPLES_LIST).read_text(encoding="utf-8"))
        return str(samples[0]["split"]), "".join(_sample(folder, sample) for sample in samples)
    except (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError):
        return None


def _sample(folder: str, told: Mapping[str, Any]) -> str:
    notes = np.array([tuple(note) for note in told["notes"]], NOTE_DTYPE)
    roll = piano_roll(
        notes,
        told["title"],
        seconds=max(float(notes["end"].max()), 1.0),
        seam_seconds=told["seam_seconds"],
    )
    files = {kind: f"{folder}/{quote(name)}" for kind, name in told["files"].items()}
    sound = files.pop("sound", None)
    player = f'<audio controls preload="metadata" src="{sound}"></audio>' if sound else ""
    links = "".join(f'<a href="{path}">{escape(kind)}</a>' for kind, path in files.items())
    return (
        f'<div class="card roll"><h3>{escape(told["title"])}</h3>{roll}'
        f'<div class="play">{player}{links}</div></div>'
    )


def _tokens(about: Mapping[str, Any]) -> str:
    parts = []
    if about.get("splits"):
        rows = [
            [
                f'<b class="dot {name}"></b>{name}',
                f"{split['pieces']:,}",
                f"{split['seconds'] / 3600:,.1f}",
                f"{split['notes']:,}",
                f"{split['tokens']:,}",
            ]
            for name, split in about["splits"].items()
        ]
        parts.append(table(("", "pieces", "hours", "notes", "tokens"), rows))
    if about.get("sources"):
        rows = [
            [escape(str(name)), _count(source, "pieces"), _count(source, "tokens")]
            for name, source in about["sources"].items()
        ]
        parts.append(table(("source", "pieces", "tokens"), rows))
    if about.get("licences"):
        parts.append(f"<p><br>Licences: {escape(', '.join(map(str, about['licences'])))}.</p>")
    if not parts:
        return ""
    boxes = "".join(f'<div class="card">{part}</div>' for part in parts[:2])
    rest = "".join(parts[2:])
    name = f"From the folder {escape(about['tokens'])}." if "tokens" in about else ""
    return f'<h2>The tokens</h2><p>{name}</p><div class="charts">{boxes}</div>{rest}'


def _count(source: Any, name: str) -> str:
    count = source.get(name) if isinstance(source, Mapping) else None
    return "" if count is None else f"{count:,}"


def _settings(config: Mapping[str, Mapping[str, Any]]) -> str:
    boxes = "".join(
        f'<div class="card"><h3>{escape(section)}</h3>'
        + table((), [[_breakable(name), escape(_value(v))] for name, v in knobs.items()])
        + "</div>"
        for section, knobs in config.items()
    )
    told = "<p>config.yaml beside this page; <code>music-gpt train --config</code> reads it.</p>"
    return f'<h2>Settings</h2>{told}<div class="settings">{boxes}</div>' if boxes else ""


def _breakable(name: str) -> str:
    return escape(name).replace("_", "_<wbr>")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _least(values: Iterable[float]) -> float:
    return min((value for value in values if not math.isnan(value)), default=math.nan)


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def _three(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.3f}"


def _two(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.2f}"


def _percent(number: float) -> str:
    return f"{number:.0%}"


def _thousands(number: float) -> str:
    """1912345 -> 1.912 M: four digits are enough for a speed."""
    for power, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= power:
            return f"{number / power:.4g}{unit}"
    return f"{number:.0f}"


def _minutes_told(number: float) -> str:
    return f"{number:.3g} min"
