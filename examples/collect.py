"""A corpus folder and its list of licences -> examples/demo and examples/SOURCES.tsv.

    python examples/collect.py CORPORA_FOLDER LICENCES.tsv

CORPORA_FOLDER holds `mutopia-piano` and `openscore-lieder`; LICENCES.tsv names path, source and
licence of each file in its first three columns. Only public-domain and CC0 files are copied: any
other licence ends the script.
"""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from pathlib import Path

FREE = {"Public Domain", "CC0 1.0"}
SOURCE_NAMES = {
    "mutopia-piano": "Mutopia Project",
    "openscore-lieder": "OpenScore Lieder Corpus",
}
HERE = Path(__file__).parent

# Short pieces by many hands, each piece once; longer works come as single movements.
CHOSEN = """\
mutopia-piano/FrobergerJJ__Suite7__Suite7-1.mid | Johann Jakob Froberger | Suite VII in E minor, Allemande
mutopia-piano/FischerJKF__Fischer_EratoPraeludium.mid | Johann Kaspar Ferdinand Fischer | Erato, Praeludium
mutopia-piano/RameauJP__tambourin.mid | Jean-Philippe Rameau | Tambourin
mutopia-piano/HandelGF__Aylesford__03-gavotte.mid | George Frideric Handel | Gavotte (Aylesford pieces)
mutopia-piano/HandelGF__Aylesford__08-preludio.mid | George Frideric Handel | Preludio (Aylesford pieces)
mutopia-piano/BachJS__BWV775__bach-invention-04.mid | Johann Sebastian Bach | Invention No. 4, BWV 775
mutopia-piano/BachJS__BWV779__bach-invention-08.mid | Johann Sebastian Bach | Invention No. 8, BWV 779
mutopia-piano/BachJS__BWV784__bach-invention-13.mid | Johann Sebastian Bach | Invention No. 13, BWV 784
mutopia-piano/BachJS__BWV846__wtk1-prelude1.mid | Johann Sebastian Bach | Prelude in C major, BWV 846
mutopia-piano/ScarlattiD__ds_sonate_c.mid | Domenico Scarlatti | Sonata in C major
mutopia-piano/BendaJA__Benda_SonateG3.mid | Georg Anton Benda | Sonata in G major, third movement
mutopia-piano/HaydnFJ__HOB-XVI-27__hob-xvi-27-ii-menuet-trio.mid | Joseph Haydn | Sonata Hob. XVI:27, Menuet
mutopia-piano/ClementiM__O36__sonatina-1.mid | Muzio Clementi | Sonatina Op. 36 No. 1
mutopia-piano/MozartWA__KV331__KV331_1_1_tema.mid | Wolfgang Amadeus Mozart | Sonata K. 331, Theme
mutopia-piano/MozartWA__KV453a__k453a__k453a-lys__k453a.mid | Wolfgang Amadeus Mozart | Little Funeral March, K. 453a
mutopia-piano/MozartWA__KV574__k574.mid | Wolfgang Amadeus Mozart | Gigue, K. 574
mutopia-piano/BeethovenLv__WoO59__fur_Elise_WoO59.mid | Ludwig van Beethoven | Für Elise, WoO 59
mutopia-piano/BeethovenLv__O2__LVB_Sonate_02no1_3.mid | Ludwig van Beethoven | Sonata Op. 2 No. 1, third movement
mutopia-piano/BeethovenLv__O79__LVB_Sonate_79_3.mid | Ludwig van Beethoven | Sonata Op. 79, third movement
mutopia-piano/KuhlauF__O20__sonatine-1-andante.mid | Friedrich Kuhlau | Sonatina Op. 20 No. 1, Andante
mutopia-piano/SchubertF__D780__MomentsNo3.mid | Franz Schubert | Moment musical D. 780 No. 3
mutopia-piano/CzernyC__O840__op840-5__op840-5-lys__czerny-op840-5.mid | Carl Czerny | Study Op. 840 No. 5
mutopia-piano/SchumannR__O15__SchumannOp15No01.mid | Robert Schumann | Of Foreign Lands and Peoples, Op. 15 No. 1
mutopia-piano/SchumannR__O15__SchumannOp15No07.mid | Robert Schumann | Träumerei, Op. 15 No. 7
mutopia-piano/Mendelssohn-BartholdyF__O102__SongWW_opus102no3.mid | Felix Mendelssohn | Song without Words Op. 102 No. 3
mutopia-piano/Mendelssohn-BartholdyF__O85__LiederOhneWorte_-_Op85_No1.mid | Felix Mendelssohn | Song without Words Op. 85 No. 1
openscore-lieder/Hensel,_Fanny__6_Lieder,_Op.1__3_Warum_sind_denn_die_Rosen_so_blass.mid | Fanny Hensel | Warum sind denn die Rosen so blass, Op. 1 No. 3
openscore-lieder/Hensel,_Fanny__6_Lieder,_Op.1__6_Gondellied.mid | Fanny Hensel | Gondellied, Op. 1 No. 6
openscore-lieder/Lang,_Josephine__3_Lieder,_Op.8__3_Ewige_Nähe.mid | Josephine Lang | Ewige Nähe, Op. 8 No. 3
openscore-lieder/Chaminade,_Cécile_____Berceuse.mid | Cécile Chaminade | Berceuse
mutopia-piano/ChopinFF__O28__Chop-28-6__Chop-28-6-lys__chopin_prelude_op28_no6.mid | Frédéric Chopin | Prelude Op. 28 No. 6
mutopia-piano/BurgmullerJFF__O100__25EF-02.mid | Friedrich Burgmüller | L'Arabesque, Op. 100 No. 2
mutopia-piano/BurgmullerJFF__O100__25EF-15.mid | Friedrich Burgmüller | Ballade, Op. 100 No. 15
mutopia-piano/BrahmsJ__O39__waltz-op39-15.mid | Johannes Brahms | Waltz Op. 39 No. 15
mutopia-piano/TchaikovskyPI__O39__01MorningPrayer.mid | Pyotr Ilyich Tchaikovsky | Morning Prayer, Op. 39 No. 1
mutopia-piano/TchaikovskyPI__O39__16OldFrenchSong.mid | Pyotr Ilyich Tchaikovsky | Old French Song, Op. 39 No. 16
mutopia-piano/GriegE__O73__7-MountaineersSong.mid | Edvard Grieg | The Mountaineer's Song, Op. 73 No. 7
mutopia-piano/SatieE__gymnopedie_1.mid | Erik Satie | Gymnopédie No. 1
mutopia-piano/SousaJP__ElCapitanMarch.mid | John Philip Sousa | El Capitan
mutopia-piano/TurpinT__turpin.mid | Tom Turpin | The St. Louis Rag
mutopia-piano/ScriabinA__O11__Scriabin_prelude_op11no1.mid | Alexander Scriabin | Prelude Op. 11 No. 1
"""  # noqa: E501  (a table reads best with one piece a line)


def licences(table: Path) -> dict[str, tuple[str, str]]:
    """Path -> (source, licence), from the first three columns of `table`."""
    rows = (line.split("\t") for line in table.read_text("utf-8").splitlines())
    return {row[0]: (row[1], row[2]) for row in rows if len(row) >= 3}


def plain_name(composer: str, title: str) -> str:
    """A file name of lower-case ASCII letters: `chopin_prelude-op-28-no-6.mid`."""
    parts = []
    for text in (composer.split()[-1], title):
        ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        parts.append(re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-"))
    return "_".join(parts) + ".mid"


def main(corpora: Path, table: Path) -> None:
    """Copy the chosen pieces and write down where each comes from."""
    known = licences(table)
    lines = ["file\ttitle\tcomposer\tsource\tlicence"]
    (HERE / "demo").mkdir(exist_ok=True)
    for row in CHOSEN.splitlines():
        path, composer, title = row.split(" | ")
        source, licence = known[path]
        if licence not in FREE:
            sys.exit(f"{path} is under {licence}; choose public-domain and CC0 files only.")
        name = plain_name(composer, title)
        shutil.copyfile(corpora / path, HERE / "demo" / name)
        lines.append(f"{name}\t{title}\t{composer}\t{SOURCE_NAMES[source]}\t{licence}")
    (HERE / "SOURCES.tsv").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
