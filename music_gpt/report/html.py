"""Parts of a report -> one page of HTML that needs nothing else: the look that all reports share.

Styles and pictures stand inside and nothing is fetched; light or dark is what the reader's screen
is. The module knows neither what is reported nor where the page goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

STYLE = """
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
h1 { font-size: 30px; letter-spacing: -0.01em; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 52px 0 4px; }
h3 { font-size: 15px; margin: 0 0 10px; }
p { margin: 0 0 16px; color: var(--faint); max-width: 68ch; }
a { color: var(--train); }
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
.axis, .octave { stroke: var(--line); fill: none; }
.curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.curve.train { stroke: var(--train); } .curve.validation { stroke: var(--validation);
  stroke-width: 2.2; }
circle { fill: transparent; } circle.train:hover { fill: var(--train); }
circle.validation:hover { fill: var(--validation); }
text.end { text-anchor: end; } text.middle { text-anchor: middle; }
.note { fill: #5d7099; } .note.new { fill: #d4552a; }
.shade0 { opacity: 0.4; } .shade1 { opacity: 0.6; } .shade2 { opacity: 0.8; }
b.train, i.train { background: var(--train); } b.test, i.test { background: var(--test); }
b.validation, i.validation { background: var(--validation); }
b.dot { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 500; color: var(--faint); }
th, td { padding: 5px 14px 5px 0; border-top: 1px solid var(--line); vertical-align: top; }
tr:first-child > * { border-top: 0; }
td.name { width: 46%; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.name { overflow-wrap: anywhere; min-width: 11em; }
.roll { margin-top: 12px; } .roll h3 { font-weight: 500; overflow-wrap: anywhere; }
@media (max-width: 480px) { main { padding: 24px 14px 60px; } }
@media print { body { background: none; } .card { break-inside: avoid; } }
"""


def page(title: str, sections: Iterable[str], style: str = "") -> str:
    """The whole page; empty sections are left out, and `style` is added to what reports share."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}{style}</style></head>\n<body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def tiles(figures: Iterable[tuple[str, str]]) -> str:
    """Figures with what they are, side by side: the first thing that is read.

    >>> tiles([("19.3 M", "parameters")]).count("<b>19.3 M</b><span>parameters</span>")
    1
    """
    boxes = "".join(f'<div class="card tile"><b>{a}</b><span>{b}</span></div>' for a, b in figures)
    return f'<div class="tiles">{boxes}</div>'


def charts(drawings: Iterable[tuple[str, str]]) -> str:
    """Drawings under their names, two in a row where there is room."""
    boxes = "".join(f'<div class="card"><h3>{name}</h3>{svg}</div>' for name, svg in drawings)
    return f'<div class="charts">{boxes}</div>'


def table(head: Iterable[str], rows: Sequence[Sequence[str]], *, names_from: int = -1) -> str:
    """Numbers in all columns but the first, or but those from `names_from` on; `head` may be ()."""

    def cells(row: Iterable[str], tag: str) -> Iterator[str]:
        for i, cell in enumerate(row):
            text = i >= names_from if names_from >= 0 else i == 0
            yield f'<{tag} class="{"name" if text else "number"}">{cell}</{tag}>'

    top = "".join(cells(head, "th"))
    lines = [f"<tr>{top}</tr>"] if top else []
    lines += [f"<tr>{''.join(cells(row, 'td'))}</tr>" for row in rows]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def rounded(number: float) -> str:
    """35651034 -> 35.7 M, which fits into a tile.

    >>> rounded(35651034), rounded(812)
    ('35.7 M', '812')
    """
    return f"{number / 1e6:,.1f} M" if number >= 1e6 else f"{number:,}"
