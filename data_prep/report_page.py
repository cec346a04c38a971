"""the report and the notes of some pieces -> one page of HTML that needs nothing else.

The same report gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from music_gpt.notes import Notes
from music_gpt.report.drawing import BLACK_KEYS, bars, piano_roll
from music_gpt.report.html import charts, page, rounded, table, tiles
from music_gpt.tokens.events import velocity_value

MOST_NAMES = 200
"""Most names in a list; report.json has all."""
MOST_PAIRS = 20
MOST_COMPOSERS = 24
STYLE = """
.black { fill: var(--black-key); }
.validation .note { fill: var(--validation); } .test .note { fill: var(--test); }
.share { display: flex; height: 14px; border-radius: 7px; overflow: hidden; gap: 2px;
  margin: 4px 0 12px; }
.share i { min-width: 3px; }
.composers { display: grid; gap: 5px 12px;
  grid-template-columns: fit-content(60%) 1fr max-content;
  align-items: center; font-size: 14px; }
.composers div { height: 12px; border-radius: 3px; background: var(--train); min-width: 2px; }
details { border-top: 1px solid var(--line); padding: 8px 0; }
details:first-of-type { border-top: 0; }
summary { cursor: pointer; } summary b { font-variant-numeric: tabular-nums; }
.names { margin: 8px 0 4px; padding-left: 20px; font-size: 14px; color: var(--faint); }
.names strong { color: var(--ink); font-weight: 500; overflow-wrap: anywhere; }
"""
"""What the page has beyond the look that all reports share."""


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
    return page("Corpus report", sections, STYLE)


def _head(report: Mapping[str, Any]) -> str:
    splits = report["splits"].values()
    hours = sum(split["hours"] for split in splits)
    figures = [
        (f"{report['pieces']:,}", "pieces"),
        (f"{report['compositions']:,}", "compositions"),
        (f"{hours:,.1f}", "hours of music"),
        (rounded(sum(split["notes"] for split in splits)), "notes"),
        (rounded(sum(split["tokens"] for split in splits)), "tokens"),
        (f"{len(report['left_out']):,}", "files left out"),
    ]
    found, kept = report["midi_files"], report["pieces"]
    if kept == found:
        told = f"All {found:,} MIDI files that were found are in the corpus."
    else:
        told = (
            f"Of {found:,} MIDI files that were found, {kept:,} are in the corpus, and each of the "
            "others has its reason below."
        )
    return f"<h1>Corpus report</h1><p>{told}</p>{tiles(figures)}"


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
        f"{table(('', *columns), rows)}</div>"
    )


def _charts(histograms: Mapping[str, Any]) -> str:
    pitches, bins = histograms["notes_on_pitch"], histograms["notes_in_velocity_bin"]
    pitch_titles = [f"pitch {p}: {_notes(n)}" for p, n in enumerate(pitches)]
    velocities = [int(velocity_value(number)) for number in range(len(bins))]
    velocity_titles = [
        f"velocity {v - 2} to {min(v + 1, 127)}: {_notes(n)}"
        for v, n in zip(velocities, bins, strict=True)
    ]
    drawings = [
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
    return charts(drawings)


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
    told += "".join(f"<p>{escape(sentence)}</p>" for sentence in report["stray_rows"])
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
    runs = report["longest_runs_across_splits"]
    parts = [
        "<h2>Leaks</h2><p>Pieces are compared by the turns of their melody and bass and by their "
        "notes in a row, whatever the key, the tempo, the file name and the length. Pieces of one "
        "composition lie in one split, and a file of several with each of them, unless a list puts "
        "them elsewhere.</p>"
    ]
    if across:
        parts.append(_pairs("The most similar pieces in two splits", across))
    else:
        parts.append('<div class="card"><h3>No piece is like one in another split.</h3></div>')
    if runs:
        parts.append("<br>" + _runs(runs))
    if twins:
        parts.append("<br>" + _pairs("Files that hold the same recording, whole or in part", twins))
    return "".join(parts)


def _pairs(title: str, pairs: Sequence[Mapping[str, Any]]) -> str:
    rows = [[f"{pair['similarity']:.0%}", *_ends(pair)] for pair in pairs[:MOST_PAIRS]]
    rest = len(pairs) - len(rows)
    more = f"<p><small>and {rest:,} more in report.json</small></p>" if rest else ""
    pairs_table = table(("in common", "one", "the other"), rows, names_from=1)
    return f'<div class="card"><h3>{title}</h3>{pairs_table}{more}</div>'


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    rows = [[f"{run['different_notes']:,}", f"{run['seconds']:.1f}", *_ends(run)] for run in runs]
    return (
        '<div class="card"><h3>The longest runs of notes in two splits</h3><p><small>In any key '
        "and tempo; a figure that repeats itself counts once.</small></p>"
        f"{table(('notes', 'seconds', 'one', 'the other'), rows, names_from=2)}</div>"
    )


def _ends(pair: Mapping[str, Any]) -> list[str]:
    """The two pieces of a pair, each with the colour of its split."""
    return [
        f'<b class="dot {pair[f"{end}_split"]}" title="{pair[f"{end}_split"]}"></b>'
        f"{escape(pair[end])}"
        for end in ("first", "second")
    ]


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


def _clock(seconds: int) -> str:
    """60 -> 1 min, 90 -> 1.5 min."""
    return f"{seconds} s" if seconds < 60 else f"{seconds / 60:g} min"


def _told(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def _notes(n: int) -> str:
    return f"{n:,} {_plural(n, 'note')}"


def _plural(n: int, word: str) -> str:
    return word if n == 1 else f"{word}s"


def _some(n: int) -> str:
    return "One piece" if n == 1 else f"{n} pieces"
