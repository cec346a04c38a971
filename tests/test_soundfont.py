"""A SoundFont of one's own: what is heard of it, and what is said where it cannot be played."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny_soundfont import RELEASE_SECONDS, soundfont_bytes, write_soundfont

from music_gpt import audio, fluid, soundfont
from music_gpt.errors import InputError
from music_gpt.midi.piece import write_midi
from music_gpt.notes import NOTE_DTYPE, Notes
from music_gpt.soundfont import SoundFont, open_soundfont, require_fluidsynth

RATE = 44_100
HALF_BLOCK = fluid.BLOCK / 2


def notes(*rows: tuple[float, float, int, int]) -> Notes:
    return np.array(list(rows), NOTE_DTYPE)


@pytest.fixture(scope="module")
def fluidsynth() -> None:
    """A test that asks for it needs pyfluidsynth and the FluidSynth library."""
    try:
        require_fluidsynth()
    except InputError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def sine(fluidsynth: None, tmp_path: Path) -> SoundFont:
    return open_soundfont(write_soundfont(tmp_path / "sine.sf2"))


def heard(font: SoundFont, piece: Notes, rate: int = RATE, size: int = RATE) -> soundfont.Floats:
    return np.concatenate(list(soundfont.play(font, piece, rate, size)), axis=1)


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Another program in the place of the one that holds FluidSynth."""
    monkeypatch.setattr(
        soundfont, "_command", lambda words: [sys.executable, "-c", program, *words]
    )


# --- what is heard ------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "key"), [(44_100, 69), (48_000, 57), (22_050, 76), (96_000, 60)])
def test_a_key_sounds_at_its_pitch_at_every_sample_rate(
    sine: SoundFont, rate: int, key: int
) -> None:
    sound = heard(sine, notes((0, 2, key, 90)), rate)[0, : 2 * rate]
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound)), 1 << 20))
    hertz = np.argmax(spectrum) * rate / (1 << 20)
    assert abs(1200 * np.log2(hertz / (440 * 2 ** ((key - 69) / 12)))) < 3


def test_notes_begin_and_end_within_half_a_block_of_their_times(sine: SoundFont) -> None:
    starts = [0.5 + 0.7113 * i for i in range(8)]
    piece = notes(*((start, start + 0.3, 93, 100) for start in starts))
    sounding = np.abs(heard(sine, piece)[0]) > 1e-4
    for start in starts:
        first = round(start * RATE)
        edge = first - 2000 + np.argmax(sounding[first - 2000 : first + 2000])
        # the first samples of a sine are soft
        assert -HALF_BLOCK - 1 <= edge - first <= HALF_BLOCK + 8
        last = round((start + 0.3) * RATE)
        assert sounding[last - 200 : last].any()
        assert not sounding[last + int((RELEASE_SECONDS + 0.01) * RATE) : last + 10_000].any()


def test_the_last_note_rings_out_and_no_longer(fluidsynth: None, tmp_path: Path) -> None:
    font = open_soundfont(write_soundfont(tmp_path / "long.sf2", release_seconds=2.0))
    sound = heard(font, notes((0, 1, 69, 100)))
    assert 2.0 < sound.shape[1] / RATE < 3.3
    at_two = np.abs(sound[:, 2 * RATE : 2 * RATE + 200]).max()
    assert np.abs(sound[:, -200:]).max() < 0.02 * at_two < 1e-4


def test_what_never_dies_away_fades_after_ten_seconds(fluidsynth: None, tmp_path: Path) -> None:
    font = open_soundfont(write_soundfont(tmp_path / "endless.sf2", release_seconds=90.0))
    sound = heard(font, notes((0, 1, 69, 100)))
    assert sound.shape[1] / RATE == pytest.approx(1 + soundfont.TAIL_SECONDS, abs=0.01)
    loudness = [np.abs(part).max() for part in np.array_split(sound[0, -RATE:], 4)]
    assert loudness == sorted(loudness, reverse=True)
    assert np.abs(sound[:, -10:]).max() < 0.01 * loudness[0]


def test_it_is_as_loud_as_the_bundled_piano_however_it_was_recorded(
    fluidsynth: None, tmp_path: Path
) -> None:
    piece = notes(*((2 * i, 2 * i + 1, key, 64) for i, key in enumerate(soundfont.TRIAL_KEYS)))
    usual = (audio.render(piece).astype(float) / 32768) ** 2
    for level in (0.1, 0.9):
        font = open_soundfont(write_soundfont(tmp_path / f"{level}.sf2", level=level))
        played = heard(font, piece).astype(float) ** 2
        assert abs(10 * np.log10(played.mean() / usual.mean())) < 3


def test_the_loudness_that_it_is_given_is_that_of_the_bundled_piano() -> None:
    for key, level in zip(soundfont.TRIAL_KEYS, soundfont.TRIAL_LEVELS, strict=True):
        sound = audio.render(notes((0, 1, key, soundfont.TRIAL_VELOCITY)))[:RATE] / 32768
        assert np.sqrt((sound**2).mean()) == pytest.approx(level, rel=0.02)


def test_seventy_keys_at_once_do_not_clip(sine: SoundFont, tmp_path: Path) -> None:
    chord = notes(*((0, 2, key, 127) for key in range(30, 100)))
    assert np.abs(heard(sine, chord)).max() > 1
    audio.write_audio(chord, tmp_path / "chord.wav", soundfont=sine)
    sound = soundfile.read(tmp_path / "chord.wav", dtype="int16")[0].astype(int)
    assert 0.9 * 32767 < np.abs(sound).max() < 32767


def test_blocks_of_any_length_give_the_same_sound(sine: SoundFont) -> None:
    piece = notes((0, 1, 60, 80), (0.3, 2, 40, 100), (1.9999, 2, 75, 60))
    whole = heard(sine, piece)
    np.testing.assert_array_equal(heard(sine, piece, size=1000), whole)


def test_the_first_instrument_is_taken_where_none_is_a_piano(
    fluidsynth: None, tmp_path: Path
) -> None:
    presets = (("Drums", 128, 0), ("Organ", 0, 19), ("Harp", 0, 46))
    font = open_soundfont(write_soundfont(tmp_path / "other.sf2", presets=presets))
    assert str(font) == f"Organ of {tmp_path}/other.sf2"
    assert np.abs(heard(font, notes((0, 1, 69, 100)))).max() > 0.01


def test_who_stops_listening_ends_fluidsynth(
    sine: SoundFont, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*words: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*words, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(soundfont.subprocess, "Popen", start)
    sound = soundfont.play(sine, notes((0, 3600, 60, 80)), RATE, RATE)
    next(sound)
    assert started[0].poll() is None
    sound.close()
    assert started[0].poll() is not None


def test_music_gpt_render_plays_a_file_on_it(
    sine: SoundFont, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from music_gpt.cli.main import main

    write_midi(notes((0, 1, 69, 80)), tmp_path / "a.mid")
    words = ["render", tmp_path / "a.mid", "--out", tmp_path / "a.flac", "--soundfont", sine.path]
    assert main(list(map(str, words))) == 0
    assert f"1.0 seconds of music, played by Sine of {sine.path}." in capfd.readouterr().err
    sound = soundfile.read(tmp_path / "a.flac")[0][:, 0]
    assert len(sound) / RATE == pytest.approx(1 + RELEASE_SECONDS, abs=0.05)
    assert np.argmax(np.abs(np.fft.rfft(sound[:RATE]))) == pytest.approx(440, abs=1)


# --- which keys are struck when -------------------------------------------------------------------


def test_a_key_that_is_struck_again_is_let_go_before() -> None:
    piece = notes((0, 2, 60, 80), (0, 2, 64, 70), (1, 3, 60, 90))
    events = soundfont.note_events(piece, 64_000).tolist()
    assert events[:2] == [[0, 60, 80], [0, 64, 70]]
    assert events[2:4] == [[1000, 60, 0], [1000, 60, 90]]
    assert events[4:] == [[2000, 64, 0], [3000, 60, 0]]


def test_of_two_notes_at_once_on_one_key_the_louder_is_heard_to_its_end() -> None:
    piece = notes((0, 1, 60, 90), (0, 2, 60, 80), (1, 1, 72, 50))
    events = soundfont.note_events(piece, 64_000).tolist()
    assert events == [[0, 60, 90], [1000, 60, 0], [1000, 72, 50], [1001, 72, 0]]


# --- what is wrong --------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.sf2 cannot be read: .* give an \.sf2 or \.sf3"):
        open_soundfont(tmp_path / "no.sf2")
    with pytest.raises(InputError, match="it is a folder"):
        open_soundfont(tmp_path)


def test_a_file_of_another_kind_is_no_soundfont(tmp_path: Path) -> None:
    for name, data in (("a.sf2", b"MThd" + bytes(99)), ("b.sf3", b""), ("c.wav", b"RIFF1234WAVE")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=f"{name} is no SoundFont; give an .sf2 or .sf3 file"):
            open_soundfont(tmp_path / name)


def test_an_sfz_file_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.sfz").write_text("<region> sample=a.wav")
    with pytest.raises(InputError, match="SFZ file, which FluidSynth does not play; give an .sf2"):
        open_soundfont(tmp_path / "a.sfz")


def test_a_soundfont_without_instruments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no instrument"):
        open_soundfont(write_soundfont(tmp_path / "empty.sf2", presets=()))


def test_a_soundfont_that_is_cut_anywhere_is_refused_before_it_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundfont, "_run", lambda *_: pytest.fail("it was played"))
    data = soundfont_bytes()
    for n_bytes in (12, 13, 100, 50_000, len(data) - 300, len(data) - 1):
        (tmp_path / "cut.sf2").write_bytes(data[:n_bytes])
        with pytest.raises(InputError, match=r"cut\.sf2 is damaged or cut"):
            open_soundfont(tmp_path / "cut.sf2")


def test_damage_never_ends_this_process(fluidsynth: None, tmp_path: Path) -> None:
    data, dice = soundfont_bytes(), np.random.default_rng(3)
    refusals = 0
    for _ in range(15):
        hurt = np.frombuffer(data, np.uint8).copy()
        hurt[dice.integers(len(data) - 700, len(data), 20)] ^= dice.integers(1, 256, 20, np.uint8)
        (tmp_path / "hurt.sf2").write_bytes(hurt.tobytes())
        try:
            open_soundfont(tmp_path / "hurt.sf2")
        except InputError as refusal:
            refusals += str(refusal).endswith(".")
    assert refusals > 5


def test_a_soundfont_that_plays_nothing_is_refused(fluidsynth: None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plays no note between C2 and C6"):
        open_soundfont(write_soundfont(tmp_path / "high.sf2", keys=(100, 110)))


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (f"raise SystemExit({fluid.NO_BINDING})", r"run `pip install .*\[soundfont\]"),
        (
            f"raise SystemExit({fluid.NO_LIBRARY})",
            r"apt install libfluidsynth3.*brew install.*leave out soundfont\.",
        ),
        (f"raise SystemExit({fluid.NOT_LOADED})", "is damaged or cut"),
        ("import os; os.abort()", "is damaged or cut"),
        ("import time; time.sleep(60)", "has not loaded .*a.sf2 within 0.3 seconds; give another"),
    ],
)
def test_what_fluidsynth_lacks_or_dies_of_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, sentence: str
) -> None:
    stand_in(monkeypatch, program)
    if "sleep" in program:
        monkeypatch.setattr(soundfont, "TRIAL_SECONDS", 0.3)
    with pytest.raises(InputError, match=sentence):
        open_soundfont(write_soundfont(tmp_path / "a.sf2"))


def test_a_fault_of_ours_is_not_laid_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "raise ValueError('a fault')")
    with pytest.raises(RuntimeError, match="ended with code 1"):
        open_soundfont(write_soundfont(tmp_path / "a.sf2"))


def test_where_fluidsynth_breaks_off_no_half_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import os; os.write(1, bytes(80_003)); os.abort()")
    font = SoundFont(write_soundfont(tmp_path / "a.sf2"), "Piano", 0, 0)
    with pytest.raises(InputError, match="is damaged or cut"):
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / "a.wav", soundfont=font)
    assert list(tmp_path.iterdir()) == [font.path]


def test_a_file_that_is_gone_and_a_process_that_was_ended_are_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    font = SoundFont(write_soundfont(tmp_path / "a.sf2"), "Piano", 0, 0)
    with pytest.raises(InputError, match="was ended while it played .signal 15.; try again"):
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / "a.wav", soundfont=font)
    font.path.unlink()
    with pytest.raises(InputError, match=r"a.sf2 is no longer there; put it back"):
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / "a.wav", soundfont=font)
    assert list(tmp_path.iterdir()) == []


def test_a_sample_rate_that_fluidsynth_lacks_is_refused(tmp_path: Path) -> None:
    font = SoundFont(tmp_path / "a.sf2", "Piano", 0, 0)
    with pytest.raises(InputError, match="sample_rate is 192000, .* from 8,000 to 96,000"):
        audio.write_audio(
            notes((0, 1, 60, 80)), tmp_path / "a.wav", sample_rate=192_000, soundfont=font
        )


def test_the_process_says_what_is_missing(tmp_path: Path) -> None:
    """A module that stands for pyfluidsynth in a process of its own."""

    def code(text: str | None) -> int:
        (tmp_path / "fluidsynth.py").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "fluidsynth.py").write_text(text)
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        # -S: nothing that is installed is seen
        command = [sys.executable, "-S", "-P", fluid.__file__]
        return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=False).returncode

    assert code(None) == fluid.NO_BINDING
    assert code("raise ImportError('Could not find the FluidSynth library.')") == fluid.NO_LIBRARY
    assert code("raise OSError('wrong ELF class')") == fluid.NO_LIBRARY
    assert code("print('found at libfluidsynth.so.3')") == 0


@pytest.mark.parametrize("verb", ["render", "app"])
def test_the_verbs_refuse_it_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    verb: str,
) -> None:
    from music_gpt.cli.main import main
    from music_gpt.composing import pianist

    monkeypatch.setattr(audio, "write_audio", lambda *_, **__: pytest.fail("sound was made"))
    monkeypatch.setattr(pianist, "load", lambda *_, **__: pytest.fail("a network was read"))
    (tmp_path / "a.sf2").write_bytes(b"no music")
    write_midi(notes((0, 1, 69, 80)), tmp_path / "a.mid")
    words = {"render": ["render", tmp_path / "a.mid", "--out", tmp_path / "a.wav"], "app": ["app"]}
    assert main([*map(str, words[verb]), "--soundfont", str(tmp_path / "a.sf2")]) == 2
    said = capfd.readouterr().err
    assert said == f"music-gpt: {tmp_path}/a.sf2 is no SoundFont; give an .sf2 or .sf3 file.\n"
    assert not (tmp_path / "a.wav").exists()
