"""What a listener would notice: pitch, time, loudness, clicks, the pedal, and files that play."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import numpy.typing as npt
import pretty_midi
import pytest
import soundfile

from music_gpt import audio
from music_gpt.errors import InputError
from music_gpt.notes import NOTE_DTYPE, Notes

RATE = audio.SAMPLE_RATE
BANK_FOLDER = Path(audio.__file__).parent / "piano_bank"


def notes(*rows: tuple[float, float, int, int]) -> Notes:
    return np.array(list(rows), NOTE_DTYPE)


def level_db(sound: npt.NDArray[np.int16]) -> float:
    return float(10 * np.log10((sound.astype(float) ** 2).mean() + 1e-9))


def sounding_pitch_cents(sound: npt.NDArray[np.int16], key: int) -> float:
    """Distance from the equal-tempered key, partials 1 to 4 weighted by their energy."""
    wave = sound.astype(float).mean(axis=1)[RATE // 10 :]
    power = np.abs(np.fft.rfft(wave * np.hanning(len(wave)), 1 << 19)) ** 2
    partial = np.fft.rfftfreq(1 << 19, 1 / RATE) / (440 * 2 ** ((key - 69) / 12))
    near = [np.flatnonzero(np.abs(partial / k - 1) < 0.04) for k in range(1, 5)]
    peaks = np.array([where[np.argmax(power[where])] for where in near])
    cents = 1200 * np.log2(partial[peaks] / np.arange(1, 5))
    return float(np.average(cents, weights=power[peaks]))


@pytest.mark.parametrize("key", [*range(21, 109, 6), 60, 108])
def test_each_key_sounds_within_five_cents_of_its_pitch(key: int) -> None:
    assert abs(sounding_pitch_cents(audio.render(notes((0, 1.5, key, 100))), key)) < 5


@pytest.mark.parametrize("sample_rate", [16_000, 48_000])
def test_the_sample_rate_changes_neither_the_pitch_nor_the_length(sample_rate: int) -> None:
    usual = audio.render(notes((0, 1, 69, 100)))
    other = audio.render(notes((0, 1, 69, 100)), sample_rate=sample_rate)
    assert len(other) / sample_rate == pytest.approx(len(usual) / RATE, abs=1e-3)
    spectrum = np.abs(np.fft.rfft(other[:, 0].astype(float), 1 << 18))
    assert np.argmax(spectrum) * sample_rate / (1 << 18) == pytest.approx(440, abs=1)


@pytest.mark.parametrize("key", range(21, 109, 3))
def test_a_note_is_heard_within_two_milliseconds_of_its_start(key: int) -> None:
    loudness = np.abs(audio.render(notes((0.5, 1, key, 90))).astype(int)).max(axis=1)
    start = RATE // 2
    assert not loudness[:start].any()
    assert np.argmax(loudness > 0.05 * loudness.max()) - start < 0.002 * RATE


def test_silence_between_notes_is_exactly_zero() -> None:
    sound = audio.render(notes((0, 0.5, 60, 127), (3, 3.5, 72, 1)))
    assert not sound[RATE : 3 * RATE].any()
    assert sound[3 * RATE :].any()


def test_a_note_is_as_loud_in_company_as_it_is_alone() -> None:
    alone = audio.render(notes((0, 0.5, 60, 30)))
    loud_later = [(2 + 0.01 * i, 3.0, 40 + i, 127) for i in range(50)]
    together = audio.render(notes((0, 0.5, 60, 30), *loud_later))
    np.testing.assert_array_equal(together[: len(alone)], alone)


def test_two_soft_notes_add_up() -> None:
    first, second = audio.render(notes((0, 1, 60, 50))), audio.render(notes((0, 1, 67, 50)))
    both, n = audio.render(notes((0, 1, 60, 50), (0, 1, 67, 50))), min(len(first), len(second))
    assert np.abs(both[:n].astype(int) - first[:n] - second[:n]).max() <= 1


def test_seventy_keys_at_once_do_not_clip() -> None:
    sound = audio.render(notes(*((0, 2, key, 127) for key in range(30, 100)))).astype(int)
    assert 0.9 * 32767 < np.abs(sound).max() < 32767


def test_harder_is_louder_and_brighter() -> None:
    def brightness(sound: npt.NDArray[np.int16]) -> float:
        power = np.abs(np.fft.rfft(sound[:RATE, 0].astype(float))) ** 2
        return float(power[2000:].sum() / power.sum())

    sounds = [audio.render(notes((0, 1, 48, velocity))) for velocity in (20, 50, 80, 110)]
    levels, colours = [level_db(s) for s in sounds], [brightness(s) for s in sounds]
    assert levels == sorted(levels)
    assert 15 < levels[-1] - levels[0] < 30
    assert colours == sorted(colours)


def test_neighbouring_keys_are_about_as_loud_as_each_other() -> None:
    levels = [level_db(audio.render(notes((0, 1, key, 80)))[: RATE // 2]) for key in range(21, 109)]
    assert np.abs(np.diff(levels)).max() < 5
    assert max(levels) - min(levels) < 20


def test_the_bass_sounds_from_the_left_and_the_treble_from_the_right() -> None:
    low, high = (audio.render(notes((0, 1, key, 80))) for key in (24, 100))
    assert 1 < level_db(low[:, 0]) - level_db(low[:, 1]) < 6
    assert 1 < level_db(high[:, 1]) - level_db(high[:, 0]) < 6


@pytest.mark.parametrize("key", range(24, 109, 7))
def test_a_note_ends_without_a_click(key: int) -> None:
    """After the damper falls, no step is larger than those of the ringing string."""
    steps = np.abs(np.diff(audio.render(notes((0, 0.4, key, 120)))[:, 0].astype(int)))
    end = int(0.4 * RATE)
    assert steps[end - 2 :].max() <= 1.1 * steps[end - 4000 : end].max() + 2


@pytest.mark.parametrize("key", [30, 60, 84])
def test_a_long_note_keeps_its_pitch_in_the_loop_and_only_fades(key: int) -> None:
    zone = audio._zone(key)
    sound = audio.render(notes((0, 9, key, 127)))
    seconds = zone.hold_seconds / zone.speed(key) + 0.5
    cents = sounding_pitch_cents(sound[int(seconds * RATE) : int((seconds + 2) * RATE)], key)
    levels = [level_db(sound[int(t * RATE) : int((t + 1) * RATE)]) for t in np.arange(0, 9, 1.5)]
    assert abs(cents) < 8
    assert levels == sorted(levels, reverse=True)


def test_damped_strings_stop_and_the_undamped_top_rings_on() -> None:
    middle, top = (audio.render(notes((0, 0.05, key, 110))) for key in (60, 93))
    assert 0.2 < len(middle) / RATE < 0.5
    assert len(top) / RATE > 1
    kept = audio.render(notes((0, 1, 93, 110)))
    part = slice(int(0.05 * RATE), int(0.15 * RATE))
    assert level_db(kept[part]) - level_db(top[part]) < 6


def test_the_length_is_the_end_of_the_last_note_and_its_release() -> None:
    assert len(audio.render(notes((0, 2, 60, 80)))) / RATE == pytest.approx(2.3, abs=0.06)
    assert len(audio.render(notes((0, 60, 108, 80)))) / RATE == pytest.approx(60, abs=0.01)


def test_blocks_of_any_length_give_the_same_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = notes((0, 1, 60, 80), (0.3, 4, 40, 100), (1.9999, 2, 75, 60), (3, 3.5, 60, 90))
    whole = audio.render(piece)
    for seconds in (0.1, 0.37, 2.0):
        monkeypatch.setattr(audio, "BLOCK_SECONDS", seconds)
        np.testing.assert_array_equal(audio.render(piece), whole)


def test_a_full_store_of_tones_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = notes(*((0.1 * i, 0.1 * i + 2, 40 + 7 * i % 45, 80) for i in range(40)))
    whole = audio.render(piece)
    monkeypatch.setattr(audio, "MAX_TONE_SAMPLES", 10 * RATE)
    np.testing.assert_array_equal(audio.render(piece), whole)


def test_the_order_of_the_notes_does_not_matter() -> None:
    piece = notes((0, 1, 60, 80), (1, 2, 62, 80), (2, 3, 64, 80))
    np.testing.assert_array_equal(audio.render(piece[::-1]), audio.render(piece))


def test_every_pitch_and_velocity_of_midi_can_be_played() -> None:
    for key in range(128):
        assert level_db(audio.render(notes((0, 0.1, key, max(1, key))))) > 0


def test_the_pedal_is_honoured(tmp_path: Path) -> None:
    def played(pedal: bool) -> npt.NDArray[np.int16]:
        midi, piano = pretty_midi.PrettyMIDI(), pretty_midi.Instrument(0)
        piano.notes = [pretty_midi.Note(80, 60, 0, 0.5), pretty_midi.Note(80, 72, 3, 3.5)]
        if pedal:
            values = ((0.1, 127), (2.5, 0))
            piano.control_changes = [pretty_midi.ControlChange(64, v, t) for t, v in values]
        midi.instruments = [piano]
        audio.write_wav(midi, tmp_path / "piece.wav")
        return soundfile.read(tmp_path / "piece.wav", dtype="int16")[0]

    during, after = slice(RATE, 2 * RATE), slice(int(2.9 * RATE), 3 * RATE)
    assert played(pedal=True)[during].any()
    assert not played(pedal=True)[after].any()
    assert not played(pedal=False)[during].any()


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "WAV"])
def test_a_written_file_plays_again_at_its_length(tmp_path: Path, suffix: str) -> None:
    piece = notes((0, 1, 60, 80), (0.5, 2, 67, 90))
    path = tmp_path / f"piece.{suffix}"
    audio.write_audio(piece, path)
    sound, rate = soundfile.read(path, dtype="int16")
    wanted = audio.render(piece)
    assert rate == RATE
    assert sound.shape == wanted.shape
    if suffix == "mp3":  # lossy
        assert level_db(sound - wanted) < level_db(wanted) - 25
    else:
        np.testing.assert_array_equal(sound, wanted)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_same_piece_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a.flac", "b.flac"):
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / name, sample_rate=22_050)
    assert (tmp_path / "a.flac").read_bytes() == (tmp_path / "b.flac").read_bytes()


@pytest.mark.parametrize("name", ["piece.ogg", "piece", "piece.mid"])
def test_another_suffix_is_refused_with_the_allowed_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.wav, \.flac or \.mp3"):
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / name)


def test_a_piece_without_notes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no notes"):
        audio.render(notes())


@pytest.mark.parametrize("end", [4 * 3600 + 1, np.inf, np.nan])
def test_a_piece_of_many_hours_is_refused_before_it_takes_memory(end: float) -> None:
    with pytest.raises(InputError, match="up to 4 hours"):
        audio.render(notes((0, 1, 60, 80), (1, end, 60, 80)))


@pytest.mark.parametrize("sample_rate", [0, 7_999, 192_001, 44_100.0])
def test_an_unusable_sample_rate_is_refused(sample_rate: int) -> None:
    with pytest.raises(InputError, match="sample_rate is .* from 8,000 to 192,000"):
        audio.render(notes((0, 1, 60, 80)), sample_rate=sample_rate)


def test_an_mp3_at_an_odd_rate_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sample_rate is 96000, .* 32000, 44100, 48000"):
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / "a.mp3", sample_rate=96_000)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its folder does not exist; make it") as refusal:
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / "nowhere" / "a.wav")
    assert ".part" not in str(refusal.value)


def test_a_folder_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.wav").mkdir()
    with pytest.raises(InputError, match="it is a folder; give the name of a file"):
        audio.write_audio(notes((0, 1, 60, 80)), tmp_path / "a.wav")
    assert [file.name for file in tmp_path.iterdir()] == ["a.wav"]


@pytest.mark.skipif(sys.platform == "win32", reason="a file size limit stands in for a full disk")
@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3"])
def test_a_full_disk_leaves_the_old_file_as_it_was(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"old")
    script = f"""
        import resource, signal
        import numpy as np
        from music_gpt import audio, errors, notes
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            audio.write_audio(np.array([(0, 9, 40, 100)], notes.NOTE_DTYPE), {str(path)!r})
        except errors.InputError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "the disk is full; free some space" in answer.stdout
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_bank_covers_every_key_once_and_its_files_are_what_it_says() -> None:
    bank = json.loads((BANK_FOLDER / "bank.json").read_text())
    keys = [key for zone in bank["zones"] for key in range(zone["low"], zone["high"] + 1)]
    assert keys == list(range(128))
    for zone in bank["zones"]:
        file = soundfile.info(BANK_FOLDER / zone["file"])
        assert (file.samplerate, file.channels) == (bank["sample_rate"], 1)
        assert file.frames == zone["samples"] >= zone["loop_end"] + audio.LEAD
        assert 0 < zone["loop_start"] < zone["loop_end"]
    assert {zone["file"] for zone in bank["zones"]} == {f.name for f in BANK_FOLDER.glob("*.flac")}


def test_the_bank_states_its_source_and_licence() -> None:
    assert "FluidR3Mono" in json.loads((BANK_FOLDER / "bank.json").read_text())["source"]
    assert "Permission is hereby granted" in (BANK_FOLDER / "LICENCE.txt").read_text()


def make_bank_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bank_script", BANK_FOLDER / "make_bank.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bank_script"] = module
    spec.loader.exec_module(module)
    return module


def test_the_script_makes_the_same_bank_again(tmp_path: Path) -> None:
    script = make_bank_module()
    if not script.SOUNDFONT.exists():
        pytest.skip("the Debian package fluidr3mono-gm-soundfont is not installed")
    script.make_bank(script.SOUNDFONT, tmp_path)
    assert (tmp_path / "bank.json").read_bytes() == (BANK_FOLDER / "bank.json").read_bytes()
    for made in tmp_path.glob("*.flac"):
        there, here = (
            soundfile.read(f / made.name, dtype="int16") for f in (tmp_path, BANK_FOLDER)
        )
        # another libsndfile may decode ogg, or pack FLAC, a last bit differently
        assert np.abs(there[0].astype(int) - here[0]).max() <= 1


def test_the_script_refuses_another_soundfont(tmp_path: Path) -> None:
    (tmp_path / "other.sf3").write_bytes(b"RIFF")
    with pytest.raises(SystemExit, match="is not the FluidR3Mono_GM"):
        make_bank_module().make_bank(tmp_path / "other.sf3", tmp_path)


def test_a_piece_of_endless_time_is_refused_in_a_short_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends after 2\.778e\+296 hours") as refusal:
        audio.write_wav(notes((0, 1e300, 60, 80)), tmp_path / "a.wav")
    assert len(str(refusal.value)) < 150
    with pytest.raises(InputError, match="A path is needed"):
        audio.write_wav(notes((0, 1, 60, 80)), None)  # type: ignore[arg-type]


def test_a_sound_for_which_there_is_no_room_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio, "_mix", lambda *_: pytest.fail("sound was made"))
    monkeypatch.setattr(audio.shutil, "disk_usage", lambda _: SimpleNamespace(free=100_000))
    with pytest.raises(InputError, match="the disk is full; free some space"):
        audio.write_wav(notes((0, 1, 60, 80)), tmp_path / "a.wav")
    assert not list(tmp_path.iterdir())
