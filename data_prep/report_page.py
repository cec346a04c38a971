"""the report and the notes of some pieces -> one page of HTML that needs nothing else.

Styles and pictures stand inside, nothing is fetched, and the same report gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from data_prep.drawing import BLACK_KEYS, bars, piano_roll
from music_gpt.events import velocity_value
from music_gpt.notes import Notes

MOST_NAMES = 200
"""Most names in a list; report.json has all."""
MOST_PAIRS = 20
MOST_COMPOSERS = 24
PAGE_STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #ffffff; --ink: #22201c;
  --faint: #6f6a60; --line: #e4dfd5; --train: #2f6f8f; --validation: #c07d23; --test: #8d4a78;
  --black-key: #174a63; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --card: #1e2125; --ink: #ebe8e2;
  --faint: #9a968d; --line: #34383d; --train: #6fb4d6; --validation: #e0a65a; --test: #cc8fba;
  --black-key: #3f86a8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 80px; }
h1 { font-size: 30px; letter-spacing: -0.01em; margin: 0 0 4px; }
h2 { font-size: 20px; margin: 52px 0 4px; }
h3 { font-size: 15px; margin: 0 0 10px; }
p { margin: 0 0 16px; color: var(--faint); max-width: 68ch; }
.tiles, .charts { display: grid; gap: 14px; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); margin: 26px 0 14px; }
.charts { grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr));
  margin-top: 14px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 16px 18px; min-width: 0; }
.tile b { display: block; font-size: 26px; font-weight: 650; letter-spacing: -0.02em;
  font-variant-numeric: tabular-nums; }
.tile span, small { color: var(--faint); font-size: 13px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--faint); font-size: 11px; }
.bar { fill: var(--train); } .bar:hover { opacity: 0.75; }
.black { fill: var(--black-key); }
.axis, .octave { stroke: var(--line); fill: none; }
.note { fill: var(--train); }
.shade0 { opacity: 0.4; } .shade1 { opacity: 0.6; } .shade2 { opacity: 0.8; }
.validation .note { fill: var(--validation); } .test .note { fill: var(--test); }
.share { display: flex; height: 14px; border-radius: 7px; overflow: hidden; gap: 2px;
  margin: 4px 0 12px; }
.share i { min-width: 3px; }
i.train, b.train { background: var(--train); } i.test, b.test { background: var(--test); }
i.validation, b.validation { background: var(--validation); }
b.dot { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 500; color: var(--faint); }
th, td { padding: 5px 14px 5px 0; border-top: 1px solid var(--line); vertical-align: top; }
tr:first-child > th { border-top: 0; }
td.name { width: 46%; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.name { overflow-wrap: anywhere; min-width: 11em; }
.composers { display: grid; gap: 5px 12px;
  grid-template-columns: fit-content(60%) 1fr max-content;
  align-items: center; font-size: 14px; }
.composers div { height: 12px; border-radius: 3px; background: var(--train); min-width: 2px; }
details { border-top: 1px solid var(--line); padding: 8px 0; }
details:first-of-type { border-top: 0; }
summary { cursor: pointer; } summary b { font-variant-numeric: tabular-nums; }
.names { margin: 8px 0 4px; padding-left: 20px; font-size: 14px; color: var(--faint); }
.names strong { color: var(--ink); font-weight: 500; overflow-wrap: anywhere; }
.roll { margin-top: 12px; } .roll h3 { font-weight: 500; overflow-wrap: anywhere; }
@media (max-width: 480px) { main { padding: 24px 14px 60px; } }
@media print { body { background: none; } .card { break-inside: avoid; } }
"""


def report_page(report: Mapping[str, Any], rolls: Sequence[Notes]) -> str:
    """The page; `rolls` are the notes of the pieces that `report` calls its samples."""
    sections = [
        _head(report),
        _splits(report["splits"]),
        _charts(report["histograms"]),
        _composers(report["composers"]),
        _left_out(report),
        _mended(report["mended"]),
        _leaks(report),
        _rolls(report["samples"], rolls),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Corpus report</title><style>{PAGE_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def _head(report: Mapping[str, Any]) -> str:
    splits = report["splits"].values()
    hours = sum(split["hours"] for split in splits)
    tiles = [
        (f"{report['pieces']:,}", "pieces"),
        (f"{report['compositions']:,}", "compositions"),
        (f"{hours:,.1f}", "hours of music"),
        (_rounded(sum(split["notes"] for split in splits)), "notes"),
        (_rounded(sum(split["tokens"] for split in splits)), "tokens"),
        (f"{len(report['left_out']):,}", "files left out"),
    ]
    boxes = "".join(f'<div class="card tile"><b>{a}</b><span>{b}</span></div>' for a, b in tiles)
    found, kept = report["midi_files"], report["pieces"]
    if kept == found:
        told = f"All {found:,} MIDI files that were found are in the corpus."
    else:
        told = (
            f"Of {found:,} MIDI files that were found, {kept:,} are in the corpus, and each of the "
            "others has its reason below."
        )
    return f'<h1>Corpus report</h1><p>{told}</p><div class="tiles">{boxes}</div>'


def _splits(splits: Mapping[str, Mapping[str, Any]]) -> str:
    columns = ("pieces", "compositions", "hours", "notes", "tokens")
    shares = "".join(
        f'<i class="{name}" style="flex:{split["tokens"]}" title="{name}"></i>'
        for name, split in splits.items()
    )
    rows = [
        [f'<b class="dot {name}"></b>{name}', *(_told(split[column]) for column in columns)]
        for name, split in splits.items()
    ]
    return (
        f'<div class="card"><h3>Splits</h3><div class="share">{shares}</div>'
        f"{_table(('', *columns), rows)}</div>"
    )


def _charts(histograms: Mapping[str, Any]) -> str:
    pitches, bins = histograms["notes_on_pitch"], histograms["notes_in_velocity_bin"]
    pitch_titles = [f"pitch {p}: {_notes(n)}" for p, n in enumerate(pitches)]
    velocities = [int(velocity_value(number)) for number in range(len(bins))]
    velocity_titles = [
        f"velocity {v - 2} to {min(v + 1, 127)}: {_notes(n)}"
        for v, n in zip(velocities, bins, strict=True)
    ]
    charts = [
        ("Length of the pieces", _pieces_chart(histograms["seconds"], _clock)),
        ("Notes a second", _pieces_chart(histograms["notes_per_second"], str)),
        (
            "Pitches",
            bars(
                pitches,
                pitch_titles,
                {p: f"C{p // 12 - 1}" for p in range(0, 128, 12)},
                "Notes by pitch",
                ["black" if p % 12 in BLACK_KEYS else "" for p in range(128)],
            ),
        ),
        (
            "Velocities",
            bars(
                bins,
                velocity_titles,
                {i: str(velocities[i] - 2) for i in range(0, 32, 4)},
                "Notes by velocity",
            ),
        ),
    ]
    boxes = "".join(f'<div class="card"><h3>{name}</h3>{svg}</div>' for name, svg in charts)
    return f'<div class="charts">{boxes}</div>'


def _pieces_chart(histogram: Mapping[str, list[int]], told: Any) -> str:
    edges, counts = histogram["from"], histogram["pieces"]
    names = [told(edge) for edge in edges]
    titles = [
        f"{low} to {high}: {n:,} {_plural(n, 'piece')}"
        for low, high, n in zip(names, [*names[1:], "any"], counts, strict=True)
    ]
    step = 1 + len(edges) // 12
    return bars(counts, titles, dict(list(enumerate(names))[::step]), "Pieces")


def _composers(composers: Mapping[str, int]) -> str:
    if not composers:
        return ""
    shown = list(composers.items())[:MOST_COMPOSERS]
    most = max(composers.values())
    rows = "".join(
        f'<span>{escape(name)}</span><div style="width:{100 * n / most:.1f}%"></div>'
        f'<span class="number">{n:,}</span>'
        for name, n in shown
    )
    rest = len(composers) - len(shown)
    more = f"<p><small>and {rest:,} more in report.json</small></p>" if rest else ""
    box = f'<div class="card"><div class="composers">{rows}</div>{more}</div>'
    return f"<h2>Composers</h2><p>Pieces of each.</p>{box}"


def _left_out(report: Mapping[str, Any]) -> str:
    lists = []
    for kind, count in report["left_out_counts"].items():
        files = [
            (left["name"], left["reason"]) for left in report["left_out"] if left["kind"] == kind
        ]
        lists.append(_fold(f"<b>{count:,}</b> {escape(kind)}", files, count))
    others = ", ".join(
        f"{n:,} {escape(suffix) or 'without a suffix'}"
        for suffix, n in report["other_files"].items()
    )
    told = f"<p>Files that are no MIDI: {others}.</p>" if others else ""
    if not lists:
        return f"<h2>Left out</h2><p>Every MIDI file is in the corpus.</p>{told}"
    box = f'<div class="card">{"".join(lists)}</div>'
    return f"<h2>Left out</h2><p>Each file with its reason.</p>{told}{box}"


def _mended(mended: Mapping[str, list[str]]) -> str:
    if not mended:
        return ""
    by_remark: dict[str, list[tuple[str, str]]] = {}
    for name, remarks in mended.items():
        for remark in remarks:
            by_remark.setdefault(remark, []).append((name, ""))
    ordered = sorted(by_remark.items(), key=lambda item: (-len(item[1]), item[0]))
    lists = [
        _fold(f"<b>{len(files):,}</b> {escape(remark)}", files, len(files))
        for remark, files in ordered[:MOST_NAMES]
    ]
    return (
        "<h2>Mended and simplified</h2><p>These files are in the corpus, with something mended, "
        f'shortened or passed over.</p><div class="card">{"".join(lists)}</div>'
    )


def _leaks(report: Mapping[str, Any]) -> str:
    across, twins = report["most_similar_across_splits"], report["same_recordings"]
    parts = [
        "<h2>Leaks</h2><p>Pieces are compared by the turns of their melody and bass, whatever the "
        "key, the tempo, the file name and the length. Pieces of one composition lie in one split "
        "unless a list puts them elsewhere.</p>"
    ]
    if across:
        parts.append(_pairs("The most similar pieces in two splits", across))
    else:
        parts.append('<div class="card"><h3>No piece is like one in another split.</h3></div>')
    if twins:
        parts.append("<br>" + _pairs("Files that hold the same recording, whole or in part", twins))
    return "".join(parts)


def _pairs(title: str, pairs: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{pair['similarity']:.0%}",
            *(
                f'<b class="dot {pair[f"{end}_split"]}" title="{pair[f"{end}_split"]}"></b>'
                f"{escape(pair[end])}"
                for end in ("first", "second")
            ),
        ]
        for pair in pairs[:MOST_PAIRS]
    ]
    rest = len(pairs) - len(rows)
    more = f"<p><small>and {rest:,} more in report.json</small></p>" if rest else ""
    table = _table(("in common", "one", "the other"), rows, names_from=1)
    return f'<div class="card"><h3>{title}</h3>{table}{more}</div>'


def _rolls(samples: Sequence[Mapping[str, str]], rolls: Sequence[Notes]) -> str:
    boxes = "".join(
        f'<div class="card roll {sample["split"]}"><h3><b class="dot {sample["split"]}"></b>'
        f"{escape(sample['file'])}</h3>{piano_roll(notes, sample['file'])}</div>"
        for sample, notes in zip(samples, rolls, strict=True)
    )
    return (
        f"<h2>{_some(len(rolls))}, drawn at random</h2>"
        f"<p>The first minute of each, as it sounds with the pedal.</p>{boxes}"
    )


def _fold(summary: str, files: Sequence[tuple[str, str]], n: int) -> str:
    """A list to open: names and what is said of them."""
    items = "".join(
        f"<li><strong>{escape(name)}</strong>{f' – {escape(reason)}' if reason else ''}</li>"
        for name, reason in files[:MOST_NAMES]
    )
    more = f"<li>and {n - MOST_NAMES:,} more in report.json</li>" if n > MOST_NAMES else ""
    return f'<details><summary>{summary}</summary><ul class="names">{items}{more}</ul></details>'


def _table(head: Iterable[str], rows: Sequence[Sequence[str]], *, names_from: int = -1) -> str:
    """Numbers in all columns but the first, or but those from `names_from` on."""

    def cells(row: Iterable[str], tag: str) -> Iterator[str]:
        for i, cell in enumerate(row):
            text = i >= names_from if names_from >= 0 else i == 0
            yield f'<{tag} class="{"name" if text else "number"}">{cell}</{tag}>'

    lines = [f"<tr>{''.join(cells(head, 'th'))}</tr>"]
    lines += [f"<tr>{''.join(cells(row, 'td'))}</tr>" for row in rows]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _clock(seconds: int) -> str:
    """60 -> 1 min, 90 -> 1.5 min."""
    return f"{seconds} s" if seconds < 60 else f"{seconds / 60:g} min"


def _told(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def _rounded(n: int) -> str:
    """35651034 -> 35.7 M, which fits into a tile."""
    return f"{n / 1e6:,.1f} M" if n >= 1e6 else f"{n:,}"


def _notes(n: int) -> str:
    return f"{n:,} {_plural(n, 'note')}"


def _plural(n: int, word: str) -> str:
    return word if n == 1 else f"{word}s"


def _some(n: int) -> str:
    return "One piece" if n == 1 else f"{n} pieces"
