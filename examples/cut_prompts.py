"""A corpus folder and its list of licences -> music_gpt/prompts: five openings and their list.

    python examples/cut_prompts.py CORPORA_FOLDER LICENCES.tsv

The arguments are those of `collect.py`. Each opening ends where a phrase does, in seconds of the
score's own tempo.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from collect import FREE, SOURCE_NAMES, licences, plain_name
from music_gpt.midi.piece import cut_notes, read_piece, write_midi

PROMPTS = Path(__file__).parent.parent / "music_gpt" / "prompts"

# Scores with dynamics and both hands where they could be had; `seconds` is where a phrase ends, and
# early enough that the bundled network hears the opening from its head.
OPENINGS = [
    # path, composer, title, seconds
    ("SatieE__gymnopedie_1.mid", "Erik Satie", "Gymnopédie No. 1", 35.95),
    (
        "ChopinFF__O66__chopin_fantaisie-impromptu.mid",
        "Frédéric Chopin",
        "Fantaisie-Impromptu, Op. 66",
        11.42,
    ),
    (
        "BurgmullerJFF__O100__25EF-02.mid",
        "Friedrich Burgmüller",
        "L'Arabesque, Op. 100 No. 2",
        14.95,
    ),
    ("SchumannR__O15__SchumannOp15No07.mid", "Robert Schumann", "Träumerei, Op. 15 No. 7", 34.6),
    ("JoplinS__entertainer.mid", "Scott Joplin", "The Entertainer", 19.58),
]


def main(corpora: Path, table: Path) -> None:
    """Cut the openings and write `prompts.json` beside them."""
    known = licences(table)
    PROMPTS.mkdir(exist_ok=True)
    rows = []
    for file, composer, title, seconds in OPENINGS:
        path = f"mutopia-piano/{file}"
        source, licence = known[path]
        if licence not in FREE:
            sys.exit(f"{path} is under {licence}; choose public-domain and CC0 files only.")
        name = plain_name(composer, title)
        piece = read_piece(corpora / path)
        write_midi(cut_notes(piece.sounding_notes, 0, seconds), PROMPTS / name)
        rows.append(
            {
                "file": name,
                "title": title,
                "composer": composer,
                "source": SOURCE_NAMES[source],
                "licence": licence,
            }
        )
    text = json.dumps(rows, ensure_ascii=False, indent=2)
    (PROMPTS / "prompts.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
