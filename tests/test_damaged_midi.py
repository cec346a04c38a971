"""Damaged MIDI files give what is whole in them, and say so; what is none is refused."""

import gzip
from collections.abc import Callable

import pytest
from fuzz_midi import real_files
from midi_bytes import SCALE, body, chunk, events_of, file, header, press, release, tempo, track
from midi_rows import WHOLE, rows, seconds, warned

from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.midi.piece import read_piece

INSIDE = body(events_of(SCALE))


def test_a_file_cut_in_the_middle_of_an_event_gives_its_whole_notes_and_says_how_many() -> None:
    cut = body(events_of(SCALE)[:8], ended=False) + b"\x32\x90\x43"
    piece = read_piece(header() + chunk(b"MTrk", cut, len(INSIDE)))
    assert rows(piece.notes) == seconds(SCALE[:4])
    assert piece.warnings[0] == "The file is damaged; 4 notes were read."


def test_every_cut_of_a_file_gives_a_beginning_of_its_notes_or_a_refusal() -> None:
    for length in range(len(WHOLE)):
        try:
            piece = read_piece(WHOLE[:length])
        except InputError:
            assert length < 45  # before the first note is heard
        else:
            pitches = piece.notes["pitch"].tolist()
            assert pitches == [pitch for _, _, pitch, _ in SCALE][: len(pitches)]
            assert warned(piece, "damaged")


MENDED = {
    "no end mark": header() + chunk(b"MTrk", body(events_of(SCALE), ended=False)),
    "length too long": header() + chunk(b"MTrk", INSIDE, len(INSIDE) + 1000),
    "length too short": header() + chunk(b"MTrk", INSIDE, 20),
    "length zero": header() + chunk(b"MTrk", INSIDE, 0),
    "bytes before the header": b"\r\n\r\n" + WHOLE,
    "damaged tag of the header": b"M\x00hd" + WHOLE[4:],
    "damaged tag of the header in a wrapper": b"RIFF\0\0\0\0RMIDdata\0\0\0\0MThe" + WHOLE[4:],
    "damaged tag of a track": header() + chunk(b"MTr\xeb", INSIDE),
    "damaged tag of a later track": header(1, 2)
    + track(events_of(SCALE[:3]))
    + chunk(b"MTr\xeb", body(events_of(SCALE[3:]))),
    "no length": header() + b"MTrk" + INSIDE,
    "length of 2 GB": header() + chunk(b"MTrk", INSIDE, 0x7FFFFFFF),
    "length of 4 GB": header() + chunk(b"MTrk", INSIDE, 0xFFFFFFFF),
    "stray bytes between tracks": header(1, 2)
    + track(events_of(SCALE[:3]))
    + b"\x85\x85\x00\x01\x02\xf7\x40"
    + track(events_of(SCALE[3:])),
}
UNDAMAGED = {
    "chunks of unknown kinds": header()
    + chunk(b"XFIH", b"abcd")
    + WHOLE[14:]
    + chunk(b"XFKM", b"x"),
    "longer header": chunk(b"MThd", WHOLE[8:14] + b"\x00\x01") + WHOLE[14:],
    "header length of 0": chunk(b"MThd", WHOLE[8:14], 0) + WHOLE[14:],
    "header length of 7": chunk(b"MThd", WHOLE[8:14], 7) + WHOLE[14:],
    "endless header length": chunk(b"MThd", WHOLE[8:14], 0xFFFFFFFF) + WHOLE[14:],
    "more tracks than the header tells": header(1, 1)
    + track(events_of(SCALE[:3]))
    + track(events_of(SCALE[3:])),
    "an empty track": header(1, 2) + track([]) + WHOLE[14:],
    "bytes behind the last track": WHOLE + bytes(5),
    "a second file behind the first": WHOLE + WHOLE,
    "RIFF": b"RIFF\x00\x00\x00\x00RMIDLIST\x04\x00\x00\x00INFOdata"
    + len(WHOLE).to_bytes(4, "little")
    + WHOLE
    + b"\x00LIST\x04\x00\x00\x00INFO",
    "RIFF that tells no length": b"RIFF\0\0\0\0RMIDdata\0\0\0\0" + WHOLE,
    "RIFF that ends too early": b"RIFF\0\0\0\0RMIDdata\x10\0\0\0" + WHOLE,
    "MacBinary": bytes(83) + len(WHOLE).to_bytes(4) + bytes(41) + WHOLE + bytes(100),
}


@pytest.mark.parametrize("fault", MENDED)
def test_a_fault_around_the_notes_costs_no_note_and_is_told(fault: str) -> None:
    piece = read_piece(MENDED[fault])
    assert rows(piece.notes) == seconds(SCALE)
    assert len(piece.warnings) == 1


@pytest.mark.parametrize("form", UNDAMAGED)
def test_an_unusual_but_whole_file_is_read_without_a_word(form: str) -> None:
    piece = read_piece(UNDAMAGED[form])
    assert rows(piece.notes) == seconds(SCALE)
    assert piece.warnings == []


TENS = [(10 * i, 10 * i + 10, 10 + i, 10) for i in range(20)]
"""Notes of which many bytes are 10, which is a line end in a text."""


def in_utf8(data: bytes) -> bytes:
    return data.decode("latin-1").encode("utf-8")


def with_line_ends(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("transfer", [in_utf8, with_line_ends])
def test_a_file_that_was_transferred_as_text_is_read_as_it_was(
    transfer: Callable[[bytes], bytes],
) -> None:
    for whole in [file(events_of(TENS)), *real_files()]:
        if (changed := transfer(whole)) != whole:
            piece = read_piece(changed)
            assert piece.notes.tolist() == read_piece(whole).notes.tolist()
            assert warned(piece, "transfer as text")


def test_line_ends_that_are_music_stay_as_they_are() -> None:
    fives = [(0, 13, 13, 10), (13, 26, 13, 10)]
    data = file(events_of(fives))
    assert b"\r\n" in data
    assert rows(read_piece(data).notes) == seconds(fives)
    assert rows(read_piece(data[:-4]).notes) == seconds(fives)  # no end mark, but nothing to mend


@pytest.mark.parametrize("n_lost", [0, 9])
def test_a_packed_file_is_read_and_a_cut_one_as_far_as_it_goes(n_lost: int) -> None:
    packed = gzip.compress(file(events_of(TENS)))
    piece = read_piece(packed[: len(packed) - n_lost])
    assert rows(piece.notes) == seconds(TENS)[: piece.n_notes]
    assert piece.n_notes == 20 or warned(piece, "is damaged")


def test_a_packed_file_is_not_unpacked_beyond_the_limit() -> None:
    limits = MidiLimits(max_bytes=10_000)
    with pytest.raises(InputError, match=r"more than the 10,000 bytes that are allowed; give"):
        read_piece(gzip.compress(file(events_of(SCALE)) + bytes(20_000)), limits=limits)


def test_a_data_byte_above_127_costs_at_most_its_note() -> None:
    events = [(0, press(60)), (100, release(60)), (200, b"\x90\x3e\xff"), (300, release(62))]
    piece = read_piece(file([*events, (400, press(64)), (500, release(64))]))
    assert rows(piece.notes)[0] == (0.0, 0.1, 60, 64)
    assert rows(piece.notes)[-1] == (0.4, 0.5, 64, 64)
    assert warned(piece, "damaged")


def test_a_lost_track_is_noticed() -> None:
    assert warned(read_piece(header(1, 3) + track(events_of(SCALE))), "damaged")


def test_data_without_a_status_are_skipped() -> None:
    piece = read_piece(header() + chunk(b"MTrk", b"\x00\x3c\x40" + INSIDE))
    assert piece.notes["pitch"].tolist() == [pitch for _, _, pitch, _ in SCALE]
    assert warned(piece, "damaged")


def test_a_track_of_no_length_costs_the_others_nothing() -> None:
    piece = read_piece(header(1, 2) + chunk(b"MTrk", b"") + WHOLE[14:])
    assert rows(piece.notes) == seconds(SCALE)
    assert piece.warnings == ["A track has no end mark; it ends with its last event."]


def test_a_type_2_file_of_one_pattern_is_read_like_any_other() -> None:
    piece = read_piece(header(2, 1) + track(events_of(SCALE)))
    assert rows(piece.notes) == seconds(SCALE)
    assert piece.warnings == []


def test_patterns_of_a_type_2_file_follow_each_other_each_at_its_own_tempo() -> None:
    note = events_of([(0, 1000, 60, 64)])
    data = header(2, 3) + track(note) + track([(0, tempo(250_000)), *note]) + track(note)
    piece = read_piece(data)
    assert rows(piece.notes) == [(0.0, 1.0, 60, 64), (1.0, 1.5, 60, 64), (1.5, 2.5, 60, 64)]
    assert warned(piece, "one after the other")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "empty"),
        (b"<html><title>404 not found</title></html>", "not a MIDI file"),
        (b"ID3\x03\x00" + b"\xff\xfb\x90\x00" + bytes(400), "not a MIDI file"),
        (b"MThd\x00\x00\x00\x06\x00\x01", "ends inside its header"),
        (WHOLE[14:], "lost its header"),
        (WHOLE[8:], "lost its header"),
        (bytes(14) + WHOLE[14:], "lost its header"),
        (header(0, 1, 0) + WHOLE[14:], "no time base"),
        (header(0, 1, 0xE700) + WHOLE[14:], "no time base"),
        (header(0, 1, 0x8001) + WHOLE[14:], "no time base"),
        (b"\x1f\x8b\x08" + bytes(40), "the packing is damaged"),
        (gzip.compress(b"music"), "not a MIDI file"),
        (WHOLE.decode("utf-8", "replace").encode("utf-8"), "saved as text"),
    ],
    ids=[
        "0 bytes",
        "web page",
        "mp3",
        "only a header",
        "no header",
        "half a header",
        "a header of zeros",
        "0 ticks",
        "0 SMPTE ticks",
        "no frame rate",
        "broken gzip",
        "gzip of a text",
        "saved as UTF-8",
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as refusal:
        read_piece(data)
    assert str(refusal.value).count(". ") == 0


@pytest.mark.parametrize("path", ["no such file.mid", ".", "a\0b.mid", "n" * 5000])
def test_a_path_that_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="give a MIDI file"):
        read_piece(path)
