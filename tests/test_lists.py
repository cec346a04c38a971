"""Lists beside a corpus: splits and sources by the names of the files, or a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from endless import ENDLESS, make_endless
from midi_folders import changed, music, run, split_of, write_folder

from music_gpt.config.preparing import PrepareConfig
from music_gpt.errors import InputError
from music_gpt.midi.piece import write_midi
from music_gpt.tokens.corpus import Corpus


@pytest.mark.parametrize(
    "name", ["/a/piece 00.mid", "../a/piece 00.mid", "C:\\a\\piece 00.mid", "\0", "", "a" * 9999]
)
def test_a_table_that_names_files_elsewhere_does_no_harm(
    midi: Path, tmp_path: Path, name: str
) -> None:
    table = f"split,midi_filename\ntest,{name}\ntest,a/../b/piece 01.mid\n"
    (midi / "maestro-v9.csv").write_text(table)
    run(midi, tmp_path / "out", PrepareConfig(workers=1, validation=0, test=0))
    assert [file for file, split in split_of(tmp_path / "out").items() if split == "test"] == [
        "b/piece 01.mid"
    ]


def test_a_table_in_a_folder_tells_of_the_files_there(tmp_path: Path) -> None:
    write_folder(tmp_path / "midi" / "below", range(4))
    table = tmp_path / "midi" / "below" / "maestro-v9.csv"
    table.write_text("split,midi_filename\ntest,b/piece 01.mid\n")
    run(tmp_path / "midi", tmp_path / "out", PrepareConfig(workers=1, validation=0, test=0))
    assert split_of(tmp_path / "out")["below/b/piece 01.mid"] == "test"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
@pytest.mark.parametrize("which", ["maestro", "split_by", "sources"])
@pytest.mark.parametrize("what", ENDLESS)
def test_a_list_that_never_ends_is_not_waited_for(
    midi: Path, tmp_path: Path, which: str, what: str
) -> None:
    table = midi / "maestro-v9.csv" if which == "maestro" else tmp_path / "list"
    make_endless(table, what)
    knobs = {} if which == "maestro" else {which: str(table)}
    with pytest.raises(InputError, match=f"{table} cannot be read: it .*; give a UTF-8 text"):
        run(midi, tmp_path / "out", PrepareConfig(workers=1, **knobs))


def test_maestros_own_split_is_kept(midi: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(midi).as_posix() for path in midi.rglob("*.mid"))
    wanted = {name: ("train", "validation", "test")[i % 3] for i, name in enumerate(names)}
    lines = [f'Franz Liszt,"A title, with comma",{s},2018,{n}' for n, s in wanted.items()]
    header = "canonical_composer,canonical_title,split,year,midi_filename"
    (midi / "maestro-v9.csv").write_text("\n".join([header, *lines]) + "\n")
    run(midi, tmp_path / "out")
    assert split_of(tmp_path / "out") == wanted
    card = Corpus.open(tmp_path / "out").card
    assert list(card["licences"]) == ["CC BY-NC-SA 4.0"]
    assert card["sources"]["maestro-v9"]["pieces"] == 12


def test_a_list_of_ones_own_fixes_the_split_of_a_composition(midi: Path, tmp_path: Path) -> None:
    write_midi(changed(music(0), semitones=2), midi / "copy.mid")
    (tmp_path / "mine.csv").write_text("path,split\na/piece 00.mid,val\n")
    config = PrepareConfig(workers=1, test=0, validation=0, split_by=str(tmp_path / "mine.csv"))
    run(midi, tmp_path / "out", config)
    splits = split_of(tmp_path / "out")
    assert splits.pop("a/piece 00.mid") == splits.pop("copy.mid") == "validation"
    assert set(splits.values()) == {"train"}


def test_rows_that_name_no_file_are_told(midi: Path, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("path,split\n./a/piece 00.mid,val\nA/piece 02.mid,test\n")
    report = run(midi, tmp_path / "out", PrepareConfig(workers=1, split_by=str(table)))
    assert split_of(tmp_path / "out")["a/piece 00.mid"] == "validation"
    [sentence] = report["stray_rows"]
    assert sentence.startswith(f"1 of 2 rows of {table} name no file here: 'A/piece 02.mid'")
    assert "A/piece 02.mid" in (tmp_path / "out" / "report.html").read_text()


def test_a_list_of_sources_is_copied_to_each_piece_and_summed(midi: Path, tmp_path: Path) -> None:
    table = tmp_path / "sources.tsv"
    table.write_text(
        "# path\tsource\tlicence\ttier\tkind\n"
        "a/piece 00.mid\tmutopia\tPublic Domain\tA\tscore\n"
        "a/piece 02.mid\tmutopia\tCC0\tA\tscore\n"
    )
    run(midi, tmp_path / "out", PrepareConfig(workers=1, sources=str(table)))
    corpus = Corpus.open(tmp_path / "out")
    records = [record for name in corpus.splits for record in corpus.split(name).records]
    of = {record["file"]: record for record in records}
    assert of["a/piece 02.mid"]["licence"] == "CC0"
    assert of["a/piece 02.mid"]["kind"] == "score"
    assert of["b/piece 01.mid"]["source"] == ""
    mutopia = corpus.card["sources"]["mutopia"]
    assert (mutopia["pieces"], mutopia["licences"]) == (2, ["CC0", "Public Domain"])


def test_rows_of_maestros_own_that_contradict_each_other_are_refused(
    midi: Path, tmp_path: Path
) -> None:
    rows = ["split,midi_filename", "test,a/piece 00.mid", "test,./a/piece 00.mid"]
    (midi / "maestro-v9.csv").write_text("\n".join(rows))
    run(midi, tmp_path / "out")
    assert split_of(tmp_path / "out")["a/piece 00.mid"] == "test"
    (midi / "maestro-v9.csv").write_text("\n".join([*rows, "train,a/piece 00.mid"]))
    with pytest.raises(InputError, match="maestro-v9.csv tells two things of .*leave one"):
        run(midi, tmp_path / "out")


def test_rows_on_sources_that_contradict_each_other_are_refused(midi: Path, tmp_path: Path) -> None:
    table = tmp_path / "sources.tsv"
    table.write_text("path\tlicence\na/piece 00.mid\tCC0\na/piece 00.mid\tGPL\n")
    with pytest.raises(InputError, match="two things of 'a/piece 00.mid', 'CC0' and 'GPL'"):
        run(midi, tmp_path / "out", PrepareConfig(workers=1, sources=str(table)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,split\n", "no column 'path'"),
        ("path,split\na/piece 00.mid,best\n", "says split 'best'"),
        ("path,split\na/piece 00.mid\n", "says split ''"),
        ('path,split\n"abc', "is no table .* in line 2"),
        ("path,split,split\na/piece 00.mid,test,train\n", "two columns 'split'"),
        (
            "path,split\na/piece 00.mid,test\na/piece 00.mid,train\n",
            "two things of .*, 'test' and 'train'",
        ),
        ("path,split\nmidi/a/piece 00.mid,test\n", "No row of the list .* names a MIDI file"),
        (f"path,split\n{'a' * 200_000},train\n", "is no table"),
    ],
    ids=range(8),
)
def test_a_list_that_cannot_be_used_is_refused(
    text: str, said: str, midi: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        run(midi, tmp_path / "out", PrepareConfig(split_by=str(tmp_path / "mine.csv")))
    with pytest.raises(InputError, match="cannot be read"):
        run(midi, tmp_path / "out", PrepareConfig(split_by=str(tmp_path / "nowhere.csv")))
