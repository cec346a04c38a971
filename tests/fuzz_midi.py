"""Bytes that nobody would call music come in -> a piece or one sentence has to go out.

    PYTHONPATH=. python tests/fuzz_midi.py [--inputs 100000] [--seed 0] [--files FOLDER]

A quarter of the inputs are mutations of real files, a quarter files that hypothesis draws event by
event and damages, a quarter bytes with the odds of MIDI, and a quarter are drawn and left whole,
to be compared with what a simple player plays. The same seed tries the same inputs. A fault is told
with its traceback, and its input is written to the folder `--faults`. The tests try a few hundred.
"""

import argparse
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import numpy as np
from hypothesis import strategies as st
from midi_bytes import END_OF_TRACK, SCALE, body, chunk, events_of, file, header, meta, number

from music_gpt.config.preparing import MidiLimits
from music_gpt.errors import InputError
from music_gpt.midi.piece import Piece, midi_bytes, read_piece
from music_gpt.notes import NOTE_DTYPE
from music_gpt.tokens.events import EOS, canonical_notes, decode_ids, encode_notes

DEMO = Path(__file__).parent.parent / "examples" / "demo"
MOST_BYTES = 6_000
"""Larger real files are left out: many small inputs find more than a few large ones."""
HANG_SECONDS = 10.0
BATCH = 500

Row = tuple[float, float, int, int]
"""start and end in seconds, pitch, velocity"""
Input = tuple[bytes, list[Row] | None]
"""A file, and its notes if they are known."""

# ------------------------------------------------------------------------------ what has to hold


def check(data: bytes, expected: list[Row] | None = None) -> bool:
    """Whether `data` gives a piece; asserts all that holds for every piece and every refusal."""
    try:
        piece = read_piece(data)
    except InputError as error:
        refusal = str(error)
    else:
        check_piece(piece)
        check_tracks(piece, data)
        check_ids(piece)
        check_written(piece)
        assert expected is None or sorted(piece.notes.tolist()) == sorted(expected)
        return True
    assert re.fullmatch(r"[A-Z][^\n]*\.", refusal)
    assert refusal.count(". ") == 0
    assert not expected
    return False


def check_piece(piece: Piece) -> None:
    notes, sounding = piece.notes, piece.sounding_notes
    limits = MidiLimits()
    assert 0 < len(notes) == len(sounding) <= limits.max_notes
    assert 0 <= piece.seconds <= limits.max_seconds
    for name in ("start", "pitch", "velocity"):
        assert np.array_equal(notes[name], sounding[name])
    for kind in (notes, sounding):
        assert kind.dtype == NOTE_DTYPE
        assert np.isfinite(kind["start"]).all()
        assert np.isfinite(kind["end"]).all()
        assert (kind["start"] >= 0).all()
        assert (kind["end"] >= kind["start"]).all()
        assert np.array_equal(np.lexsort((kind["pitch"], kind["start"])), np.arange(len(kind)))
        assert (kind["pitch"] < 128).all()
        assert ((kind["velocity"] >= 1) & (kind["velocity"] < 128)).all()
    for pitch in np.unique(sounding["pitch"]):
        one = sounding[sounding["pitch"] == pitch]
        again = one["start"][1:] > one["start"][:-1]
        assert (one["end"][:-1] <= one["start"][1:])[again].all()
    assert all(re.fullmatch(r"[A-Z][^\n]*\.", warning) for warning in piece.warnings)


def check_tracks(piece: Piece, data: bytes) -> None:
    used = [track for track in piece.tracks if track.used]
    assert [track.number for track in piece.tracks] == list(range(len(piece.tracks)))
    assert piece.n_notes <= sum(track.n_notes for track in used)
    assert not any(track.is_drum for track in used)
    assert all(track.name.isprintable() for track in piece.tracks)
    try:
        chosen = read_piece(data, tracks=[track.number for track in used])
    except InputError as error:  # with all that these tracks play it can be longer
        assert "lasts" in str(error)  # noqa: PT017
        return
    assert [track.number for track in chosen.tracks if track.used] == [t.number for t in used]
    assert chosen.n_notes >= piece.n_notes  # a track may change its program in the middle


def check_ids(piece: Piece) -> None:
    ids = encode_notes(piece.sounding_notes, eos=True, max_gap_seconds=10.0)
    assert ids.max() == EOS
    assert np.array_equal(
        decode_ids(ids[1:]), canonical_notes(piece.sounding_notes, max_gap_seconds=10.0)
    )


def check_written(piece: Piece) -> None:
    again = read_piece(midi_bytes(piece.sounding_notes))
    loudest = {(round(n["start"] * 1000), n["pitch"]) for n in piece.sounding_notes}
    assert len(again.notes) == len(loudest)
    assert again.warnings == [] or all("shortened" in warning for warning in again.warnings)


# ------------------------------------------------------------------------ mutations of real files

SPLICES = (
    *(END_OF_TRACK, b"MTrk", b"MThd", b"MTrk\x00\x00\x00\x00", b"\xff" * 6, b"\x80" * 5, bytes(9)),
    *(b"\xf0\xff\x7f", b"\xf7\x02", b"\xff\x01\x8f\xff\xff\x7f", b"\xff\x51\x03\x00\x00\x01"),
    *(b"\xff\x51\x03\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\xb0\x7b\x00", b"\x00\xb0\x78\x00"),
    *(b"\x00\xb0\x40\x7f", b"\x00\x90\x3c\x40", b"\x00\x99\x24\x40", b"\x00\xc0\x30", b"RIFF"),
)


def real_files(folder: Path = DEMO) -> list[bytes]:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".mid", ".midi"))
    return [p.read_bytes() for p in paths if p.stat().st_size <= MOST_BYTES] + odd_files()


def odd_files() -> list[bytes]:
    """Small files of every form that the reader knows."""
    scale, whole = events_of(SCALE), file(events_of(SCALE))
    riff = b"RIFF\x00\x00\x00\x00RMIDdata" + len(whole).to_bytes(4, "little") + whole
    mac = bytes(83) + len(whole).to_bytes(4) + bytes(41) + whole
    patterns = header(2, 3) + 3 * chunk(b"MTrk", body(scale))
    smpte = file(scale, events_of(SCALE, 1), division=0xE728)
    band = file([(0, meta(3, b"a"))], scale, events_of(SCALE, 9), events_of(SCALE, 3))
    return [whole, riff, mac, patterns, smpte, band]


def mutated(sources: list[bytes], draw: random.Random) -> bytes:
    """One of the sources with one to sixteen faults."""
    data = bytearray(draw.choice(sources))
    if draw.random() < 0.3:
        del data[draw.randrange(len(data)) :]
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        at = draw.randrange(len(data) + 1) if draw.random() < 0.7 else draw.randrange(64)
        length = draw.choice([0, 1, 1, 1, 2, 5, 40])
        fault = draw.randrange(5)
        if fault == 0:
            data[at : at + length] = draw.randbytes(length)
        elif fault == 1:
            data[at : at + length] = draw.choice(SPLICES)
        elif fault == 2:
            del data[at : at + length]
        elif fault == 3 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        else:  # a part of another file
            other = draw.choice(sources)
            begin = draw.randrange(len(other))
            data[at:at] = other[begin : begin + draw.choice([4, 30, 300])]
    return bytes(data)


def noise(draw: random.Random) -> bytes:
    """Tracks of bytes that come as often as in MIDI files, or of any bytes."""
    alphabet = draw.choice(
        [
            bytes(range(256)),
            bytes([0, 0, 0, 1, 60, 64, 0x90, 0x80, 0xB0, 64, 127, 0xFF, 0x2F, 0x51, 3, 0xF0, 0xF7]),
            bytes([0, 60, 64, 0x90, 0x91, 0x81, 0xB0, 0xB1, 64, 120, 121, 123, 127, 0xC0, 0x83]),
        ]
    )
    out = header(
        draw.choice([0, 1, 1, 2]), draw.randrange(5), draw.choice([500, 1, 0x7FFF, 0xE728])
    )
    for _ in range(draw.randrange(1, 4)):
        inside = bytes(draw.choices(alphabet, k=draw.randrange(300)))
        out += chunk(b"MTrk", inside, draw.choice([None, None, None, len(inside) + 9, 0]))
    return out


# ----------------------------------------------------------------- files drawn event by event

DELTAS = st.integers(0, 3) | st.integers(0, 1000) | st.sampled_from([127, 128, 16_384, 0x0FFFFFFF])
LOW = st.integers(0, 127)
TEXTS = st.binary(max_size=6)


def _bytes(*parts: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(bytes)


CHANNEL_MESSAGES = st.one_of(
    _bytes(st.integers(0x90, 0x92), st.integers(60, 62), LOW),
    _bytes(st.integers(0x80, 0x82), st.integers(60, 62), LOW),
    _bytes(st.integers(0x80, 0xBF), LOW, LOW),
    _bytes(st.integers(0xB0, 0xB2), st.sampled_from([64, 120, 121, 123, 126]), LOW),
    _bytes(st.integers(0xD0, 0xDF), LOW),
    _bytes(st.integers(0xE0, 0xEF), LOW, LOW),
)
PROGRAMS, PIANOS = (_bytes(st.integers(0xC0, 0xCF), st.integers(0, n)) for n in (127, 7))
TEMPOS, NEAR_TEMPOS = (
    st.integers(0, n).map(lambda tempo: meta(0x51, tempo.to_bytes(3))) for n in (0xFFFFFF, 900_000)
)
OTHER_MESSAGES = st.one_of(
    st.builds(meta, st.integers(0, 127).filter(lambda kind: kind not in (0x2F, 0x51)), TEXTS),
    TEXTS.map(lambda text: b"\xf0" + number(len(text)) + text),
    TEXTS.map(lambda text: b"\xf7" + number(len(text)) + text),
    st.sampled_from([b"\xf8", b"\xfa", b"\xf2\x01\x02", b"\xf1\x05"]),
)
Moves = list[tuple[int, bytes]]
"""Deltas and messages."""


def moves(
    deltas: st.SearchStrategy[int], *messages: st.SearchStrategy[bytes]
) -> st.SearchStrategy[Moves]:
    return st.lists(st.tuples(deltas, st.one_of(*messages)), min_size=1, max_size=30)


def serialised(track: Moves, *, running: bool) -> bytes:
    """The inside of a track without its end mark; `running` leaves repeated status bytes out."""
    out, status = b"", -1
    for delta, message in track:
        is_channel = message[0] < 0xF0
        repeated = running and is_channel and message[0] == status
        out += number(delta) + (message[1:] if repeated else message)
        status = message[0] if is_channel else status
    return out


FAR_MOVES = moves(DELTAS, CHANNEL_MESSAGES, PROGRAMS, TEMPOS, OTHER_MESSAGES)
NEAR_MOVES = moves(st.integers(0, 700), CHANNEL_MESSAGES, PIANOS, NEAR_TEMPOS, OTHER_MESSAGES)
"""Of a piece in which nothing is too long and all is piano."""


@st.composite
def tracks(draw: st.DrawFn) -> bytes:
    """A track chunk, often with a fault in its frame."""
    inside = serialised(draw(FAR_MOVES), running=draw(st.booleans()))
    inside += draw(st.sampled_from([b"\x00" + END_OF_TRACK] * 4 + [b"", b"\x00\xff\x2f"]))
    lengths = [None] * 6 + [0, len(inside) + 1, max(len(inside) - 1, 0), 0xFFFFFFFF]
    tag = draw(st.sampled_from([b"MTrk"] * 8 + [b"MTrj", b"mtrk", b"XFIH"]))
    junk = draw(st.sampled_from([b""] * 6 + [b"\x00", b"\x85\x00\xf7", b"MT"]))
    return chunk(tag, inside, draw(st.sampled_from(lengths))) + junk


@st.composite
def midi_files(draw: st.DrawFn) -> bytes:
    """A whole file out of tracks, wrapped, cut and damaged in ways that hypothesis can shrink."""
    body_of_file = b"".join(draw(st.lists(tracks(), min_size=1, max_size=4)))
    division = draw(st.sampled_from([1, 96, 500, 0x7FFF, 0xE728, 0xE250, 0]))
    data = header(draw(st.sampled_from([0, 1, 2, 9])), draw(st.integers(0, 5)), division)
    data += body_of_file
    length = len(data).to_bytes(4, "little")
    data = draw(st.sampled_from([b""] * 6 + [b"\n", b"RIFF\0\0\0\0RMIDdata" + length])) + data
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    return data[: len(data) - draw(st.sampled_from([0, 0, 0, 0, 1, 3, 4, 30]))]


@st.composite
def whole_files(draw: st.DrawFn) -> tuple[bytes, list[Row]]:
    """A correct file of type 1, and its notes as a simple player plays them."""
    parts = draw(st.lists(NEAR_MOVES, min_size=1, max_size=3))
    insides = (serialised(part, running=draw(st.booleans())) for part in parts)
    chunks = (chunk(b"MTrk", inside + b"\x05" + END_OF_TRACK) for inside in insides)
    return header(1, len(parts)) + b"".join(chunks), played(parts)


def played(parts: list[Moves]) -> list[Row]:
    """The keys as one player plays all tracks at once, event by event; each ends 5 ticks late."""
    score = []
    for part, part_moves in enumerate(parts):
        ticks = np.cumsum([delta for delta, _ in part_moves] + [5]).tolist()
        messages = [message for _, message in part_moves] + [b"\xff" + bytes([part])]
        score += [(tick, part, message) for tick, message in zip(ticks, messages, strict=True)]
    now, passed, tempo, rows = 0, 0, 500_000, list[Row]()  # `passed` counts microseconds / 500
    down: dict[tuple[int, int, int], deque[tuple[int, int, int]]] = defaultdict(deque)

    def row(start: int, pitch: int, velocity: int) -> Row:
        return start / 5e8, passed / 5e8, pitch, velocity

    def end_all(are_meant: Callable[[int, int], bool]) -> None:
        for (part, channel, pitch), queue in down.items():
            if are_meant(part, channel):
                rows.extend(row(at, pitch, v) for tick, at, v in queue if tick < now)
                queue.clear()

    for tick, part, message in sorted(score, key=lambda event: event[0]):
        passed, now = passed + (tick - now) * tempo, tick
        kind, channel = message[0] >> 4, message[0] & 15
        queue = down[part, channel, message[1]] if len(message) > 1 and channel != 9 else deque()
        if kind == 9 and message[2]:
            queue.append((now, passed, message[2]))
        elif kind in (8, 9) and queue:
            _, at, velocity = queue.popleft()
            rows.append(row(at, message[1], velocity))
        elif kind == 0xB and message[1] in (120, *range(123, 128)):
            end_all(lambda _, its, channel=channel: its == channel)  # type: ignore[misc]
        elif message[:3] == b"\xff\x51\x03":
            tempo = int.from_bytes(message[3:]) or tempo
        elif kind == 0xF and len(message) == 2 and message[0] == 0xFF:
            end_all(lambda its, _, part=part: its == part)  # type: ignore[misc]
    return rows


def drawn(files: st.SearchStrategy[Input], seed: int, n_inputs: int) -> Iterator[Input]:
    """What hypothesis draws for a seed."""
    found: list[Input] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=n_inputs,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(files)
    def collect(one: Input) -> None:
        found.append(one)

    collect()
    yield from found


# ------------------------------------------------------------------------------------ the script


def inputs(n_inputs: int, seed: int, sources: list[bytes]) -> Iterator[tuple[str, Input]]:
    """Kind of each input and the input, in batches of the kinds by turns."""
    makers: dict[str, Callable[[int, int], Iterator[Input]]] = {
        "mutated": lambda batch, n: (
            (mutated(sources, random.Random(f"{seed} {batch} {i}")), None) for i in range(n)
        ),
        "damaged": lambda batch, n: drawn(
            st.tuples(midi_files(), st.none()), hash((seed, batch)), n
        ),
        "noise": lambda batch, n: (
            (noise(random.Random(f"{seed} {batch} {i}")), None) for i in range(n)
        ),
        "whole": lambda batch, n: drawn(whole_files(), hash((seed, batch)), n),
    }
    n_left, batch = n_inputs, 0
    while n_left > 0:
        kind = list(makers)[batch % len(makers)]
        for one in makers[kind](batch, min(BATCH, n_left)):
            n_left -= 1
            yield kind, one
        batch += 1


def _hung(*_: object) -> None:
    raise TimeoutError(f"An input took more than {HANG_SECONDS} seconds of the processor.")


def main() -> None:
    """Try the inputs; the exit code is 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=Path, default=DEMO, help="Folder of real MIDI files.")
    parser.add_argument("--faults", type=Path, default=Path("faults"), help="Folder to write.")
    args = parser.parse_args()
    signal.signal(signal.SIGVTALRM, _hung)
    tried, pieces, faults, slowest = Counter[str](), Counter[str](), Counter[str](), 0.0
    for kind, (data, expected) in inputs(args.inputs, args.seed, real_files(args.files)):
        tried[kind] += 1
        since = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS)
        try:
            pieces[kind] += check(data, expected)
        except Exception:  # every kind of fault is what this is looking for
            told = traceback.format_exc()
            place = "".join(told.splitlines(keepends=True)[-4:])
            faults[place] += 1
            if faults[place] == 1:
                args.faults.mkdir(exist_ok=True)
                (args.faults / f"{len(faults)}.mid").write_bytes(data)
                sys.stderr.write(f"{len(faults)}.mid: {told}\n")
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        slowest = max(slowest, time.process_time() - since)
        if tried.total() % 5000 == 0:
            sys.stderr.write(f"{tried.total():,} inputs, {faults.total()} faults\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for kind in tried:
        sys.stdout.write(f"{kind}: {tried[kind]:,} inputs, {pieces[kind]:,} of them pieces\n")
    sys.stdout.write(
        f"{tried.total():,} inputs, {faults.total()} faults of {len(faults)} kinds; the slowest "
        f"took {slowest:.2f} s, and the process reached {peak:.0f} MB\n"
    )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
