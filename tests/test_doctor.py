"""What is told of an installation: that it works, or what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from music_gpt import doctor, soundfont
from music_gpt.errors import InputError, install
from music_gpt.network import checkpoint
from music_gpt.network.checkpoint import load_checkpoint
from music_gpt.ui.page import PORT

ROOT = Path(__file__).parent.parent


def test_all_that_is_needed_works_here(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str | None] = []

    def read(path: str | None) -> Any:
        reads.append(path)
        return load_checkpoint(path)

    monkeypatch.setattr(checkpoint, "load_checkpoint", read)
    found = {finding.subject: finding for finding in doctor.findings(engine="torch")}
    order = "machine packages PyTorch training network composing sound page"
    assert list(found) == order.split()
    assert [finding for finding in found.values() if finding.is_fault] == []
    assert metadata.version("torch") in found["PyTorch"].told
    assert found["network"].told == "piano.safetensors, 3.4 M parameters"
    told = r"torch, [\d,]+ tokens/s, [\d.]+× real time"
    assert re.fullmatch(told, found["composing"].told)
    assert reads == [None]  # once for both
    assert "in WAV, FLAC, MP3; " in found["sound"].told
    assert "SoundFonts" in found["sound"].told


def test_what_is_broken_hides_nothing_of_what_comes_after_it(tmp_path: Path) -> None:
    (tmp_path / "torn.safetensors").write_bytes(b"half a file")
    found = {each.subject: each for each in doctor.findings(str(tmp_path / "torn.safetensors"))}
    assert [subject for subject in found if found[subject].is_fault] == ["network", "composing"]
    assert "torn.safetensors" in found["network"].told
    assert found["page"].told


def test_a_library_that_raises_what_it_likes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> doctor.Told:
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(doctor, "training", fail)
    (broken,) = [each for each in doctor.findings(engine="torch") if each.is_fault]
    assert broken.told == "broken: RuntimeError: operator torchvision::nms does not exist"
    assert broken.remedy.startswith("`pip uninstall torchvision`")


def test_the_doctor_goes_on_where_a_library_ends_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave() -> doctor.Told:
        raise SystemExit("bye")

    def damaged() -> dict[str, list[str]]:
        raise UnicodeDecodeError("utf-8", b"", 0, 1, "no text")

    monkeypatch.setattr(doctor, "sound", leave)
    found = {each.subject: each for each in doctor.findings(engine="torch")}
    assert found["sound"].told == "broken: SystemExit: bye"
    assert not found["page"].is_fault
    monkeypatch.setattr(metadata, "packages_distributions", damaged)
    assert doctor.cure_of(ImportError("no symbol", name="gradio._x")).endswith("gradio`")


@pytest.mark.skipif(os.name == "nt", reason="a folder that is in use cannot be removed there")
def test_in_a_folder_that_is_gone_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (gone,) = doctor.findings()
    assert (gone.subject, gone.remedy, gone.is_fault) == ("machine", "go to another one", True)


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (ModuleNotFoundError("No module named 'torchvision'", name="torchvision"), f"{install()}`"),
        (ImportError("no symbol", name="yaml._yaml"), "--force-reinstall PyYAML`"),
        (ImportError("no symbol", name="nobodys"), "--force-reinstall nobodys`"),
        (ImportError("no symbol"), ""),
        (RuntimeError("out of order"), ""),
    ],
)
def test_what_cures_a_library_depends_on_what_it_lacks(error: Exception, cure: str) -> None:
    assert doctor.cure_of(error).lower().endswith(cure.lower())
    assert bool(doctor.cure_of(error)) is bool(cure)


@pytest.mark.parametrize(
    ("needed", "wrong"),
    [
        ("numpy>=2", ""),
        ("numpy>=999", f"numpy is {metadata.version('numpy')}, but >=999 is needed"),
        ("no-such-thing", "no-such-thing is not installed"),
    ],
)
def test_a_package_is_there_missing_or_too_old(needed: str, wrong: str) -> None:
    assert doctor.why_not(Requirement(needed)) == wrong


def test_packages_that_are_missing_are_named_with_what_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = "no-such-thing>=1; python_version >= '3'"
    lines = ["numpy>=999", here, "elsewhere; python_version < '3'", "never; extra == 'fast'"]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    with pytest.raises(InputError, match="numpy is .*no-such-thing is not installed; in the"):
        doctor.packages()
    assert [each.name for each in doctor.requirements()] == ["numpy", "no-such-thing"]


def test_a_package_that_is_not_installed_at_all_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    with pytest.raises(InputError, match="music_gpt is not installed"):
        doctor.requirements()


def test_without_onnx_runtime_composing_says_how_to_be_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert (
        doctor.composing(load_checkpoint, "auto")[1]
        == f"`{install()}` makes it several times as fast"
    )
    assert doctor.composing(load_checkpoint, "torch")[1] == ""


def test_a_port_that_is_taken_is_told_with_another() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert not doctor.is_free(other.getsockname()[1])
    assert doctor.is_free(0)


@pytest.mark.parametrize("is_free", [True, False])
def test_the_page_is_served_at_another_port_where_its_own_is_taken(
    is_free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(doctor, "is_free", lambda port: asked.append(port) or is_free)
    told, remedy = doctor.page()
    assert asked == [PORT]
    assert told.endswith("free" if is_free else "taken")
    assert remedy == ("" if is_free else f"`music-gpt app --port {PORT + 1}` serves it at another")


@pytest.mark.parametrize(("free", "remedy"), [(10**9, "make room on the disk"), (10**11, "")])
def test_little_room_on_the_disk_is_told(
    free: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert doctor.machine()[1] == remedy


def test_a_gpu_that_pytorch_does_not_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    driver: list[str] = []
    monkeypatch.setattr(shutil, "which", lambda name: name if name in driver else None)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert doctor.idle_gpu("cpu") == ""
    driver.append("nvidia-smi")
    assert doctor.idle_gpu("cpu").startswith("for the NVIDIA GPU here, install PyTorch's build")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert doctor.idle_gpu("cpu").startswith("PyTorch finds no NVIDIA GPU; look")
    assert doctor.idle_gpu("cuda") == ""


def test_a_gpu_that_does_not_compute_is_told_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: object, **how: object) -> None:
        raise RuntimeError("no kernel image is available for execution on the device")

    monkeypatch.setattr(torch, "ones", fail)
    with pytest.raises(InputError, match="no kernel image .*CUDA_VISIBLE_DEVICES to -1"):
        doctor.pytorch()


def test_a_torchvision_of_another_build_stops_a_training_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    fault = "raise RuntimeError('operator torchvision::nms does not exist')"
    (tmp_path / "torchvision" / "__init__.py").write_text(fault)
    (tmp_path / "torchvision-9.dist-info").mkdir()
    about = "Metadata-Version: 2.1\nName: torchvision\nVersion: 9.0\n"
    (tmp_path / "torchvision-9.dist-info" / "METADATA").write_text(about)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "music_gpt.cli.main", *words],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
            capture_output=True,
            text=True,
            timeout=300,
        )

    trained = run("train", "--tokens", "none", "--out", str(tmp_path / "run"))
    assert trained.returncode == 2
    assert trained.stderr.count("\n") == 1
    assert trained.stderr.endswith("; `music-gpt doctor` says what to do.\n")
    looked = run("doctor", "--json", "--engine", "torch")
    assert looked.returncode == 2
    (broken,) = [each for each in json.loads(looked.stdout)["findings"] if each["is_fault"]]
    assert broken["subject"] == "training"
    assert "pip uninstall torchvision" in broken["remedy"]


def test_a_finding_is_one_line_and_its_remedy_another() -> None:
    assert doctor.Finding("page", "port 1 is free").line() == "  page       port 1 is free"
    broken = doctor.Finding("page", "port 1 is taken", "take 2", is_fault=True)
    assert broken.line() == "! page       port 1 is taken\n             to do: take 2"


def test_a_missing_library_is_told_only_to_those_who_asked_for_soundfonts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> None:
        raise InputError("The FluidSynth library is missing.")

    monkeypatch.setattr(soundfont, "require_fluidsynth", missing)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert doctor.sound()[1] == ""
    monkeypatch.setattr(doctor, "find_spec", lambda name: SimpleNamespace(name=name))
    assert "`apt install libfluidsynth3`" in doctor.sound()[1]
    monkeypatch.setattr(soundfont, "require_fluidsynth", lambda: None)
    assert doctor.soundfonts() == ("SoundFonts play, too", "")
