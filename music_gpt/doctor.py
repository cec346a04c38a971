"""A machine and what is installed on it -> what works there, and what to do about what does not.

A check does the thing itself where that takes seconds: it composes, makes sound, asks for a port.
Nothing of it stays behind but what the first composition always leaves in the user's cache.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from music_gpt import __version__
from music_gpt.errors import InputError, install, words_of

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from music_gpt.network.model import GPT

COMPOSED_SECONDS, HEARD_SECONDS = 5.0, 10.0
"""Music that is composed, and heard before, to find out how fast that is."""
LITTLE_BYTES = 2_000_000_000
"""Less room than this on the disk is told of: checkpoints and what they go on from need some."""
GIB = 2**30
WIDTH = 11
"""Of the column of subjects."""

Read: TypeAlias = "Callable[[], tuple[GPT, dict[str, Any]]]"
"""Gives the network and the card of a checkpoint."""
Told = tuple[str, str]
"""How a thing is, and what to do to have it better, or an empty text."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    told: str
    """How it is: a sentence, or a part of one."""
    remedy: str = ""
    """What to do to have it, or have it better; empty where `told` says so, or all is well."""
    is_fault: bool = False
    """Whether it is needed and does not work."""

    def line(self) -> str:
        """For people: with a mark where something is broken, and what to do on a line of its own.

        >>> print(Finding("page", "port 7860 is taken", "`music-gpt app --port 7861`").line())
          page       port 7860 is taken
                     to do: `music-gpt app --port 7861`
        """
        line = f"{'!' if self.is_fault else ' '} {self.subject:{WIDTH}}{self.told}"
        return f"{line}\n{'':{WIDTH + 2}}to do: {self.remedy}" if self.remedy else line


def findings(checkpoint: str | None = None, engine: str = "auto") -> Iterator[Finding]:
    """Look at one thing after the other, in the order in which music needs them.

    checkpoint: the one to look at and to compose with; None for the bundled one. engine: what runs
    it, as for `music_gpt.load`.
    """
    try:
        Path.cwd()
    except OSError:  # libraries end the program there
        yield Finding("machine", "this folder is gone", "go to another one", is_fault=True)
        return
    read = cache(partial(_read, checkpoint))  # once, unless it cannot be read
    looks: dict[str, Callable[[], Told]] = {
        "machine": machine,
        "packages": packages,
        "PyTorch": pytorch,
        "training": training,
        "network": partial(network, read),
        "composing": partial(composing, read, engine),
        "sound": sound,
        "page": page,
    }
    for subject, look in looks.items():
        try:
            told, remedy = look()
        except InputError as error:
            yield Finding(subject, str(error), is_fault=True)
        except (Exception, SystemExit) as error:  # what a damaged library raises is up to it
            yield Finding(subject, f"broken: {words_of(error)}", cure_of(error), is_fault=True)
        else:
            yield Finding(subject, told, remedy)


# --- what is looked at; each raises where it is broken --------------------------------------------


def machine() -> Told:
    """Python, processors, memory and room."""
    free, memory = shutil.disk_usage(".").free, memory_bytes()
    told = [
        f"music-gpt {__version__}, Python {platform.python_version()}",
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        *([f"{memory / GIB:.0f} GiB of memory"] if memory else []),
        f"{free / GIB:.0f} GiB free on the disk",
    ]
    return ", ".join(told), "make room on the disk" if free < LITTLE_BYTES else ""


def packages() -> Told:
    """Whether all that is needed is installed, and new enough."""
    needed = requirements()
    wrong = [fault for each in needed if (fault := why_not(each))]
    if wrong:
        raise InputError(f"{'; '.join(wrong)}; in the checkout, run `{install()}`.")
    return f"all {len(needed)} that are needed are there, and new enough", ""


def pytorch() -> Told:
    """What PyTorch computes on."""
    import torch

    from music_gpt.network.model import resolve_device, use_bf16

    device = resolve_device("auto")
    try:
        float(torch.ones(2, device=device).sum())
    except RuntimeError as error:  # that GPU is none for which it was built, or it is out of order
        raise InputError(
            f"PyTorch {torch.__version__} does not compute on the GPU here ({words_of(error)}); "
            "install the build that fits it, or set CUDA_VISIBLE_DEVICES to -1 and do without."
        ) from error
    bf16 = ", in bf16" if use_bf16("auto", device) else ""
    return f"{torch.__version__} on {where(device)}{bf16}", idle_gpu(device)


def training() -> Told:
    """Whether a training can begin."""
    import music_gpt.training.run  # noqa: F401 - the import is the check

    return f"PyTorch Lightning {metadata.version('pytorch-lightning')}", ""


def network(read: Read) -> Told:
    """The checkpoint."""
    model, card = read()
    return f"{card['file']}, {model.n_parameters / 1e6:.1f} M parameters", ""


def composing(read: Read, engine: str) -> Told:
    """How fast the network composes."""
    from music_gpt.composing.pianist import Pianist
    from music_gpt.generation.engines import NEEDED, OPENINGS, choose_engine

    model, card = read()
    pianist = Pianist(model, card, engine=choose_engine(model, card["sha256"], engine))
    music = pianist.compose(
        min(OPENINGS.glob("*.mid")), seconds=COMPOSED_SECONDS, prompt_seconds=HEARD_SECONDS, seed=1
    )
    with closing(music):
        for _ in music:
            pass
    told = (
        f"{music.settings()['engine']}, {music.tokens_per_second:,.0f} tokens/s, "
        f"{music.times_real_time:.1f}× real time"
    )
    is_slow = engine == "auto" and not all(map(find_spec, NEEDED))
    return told, f"`{install()}` makes it several times as fast" if is_slow else ""


def sound() -> Told:
    """Whether the piano sounds, and each kind of file can be written."""
    import numpy as np  # here, so that one that is broken is told of

    from music_gpt.audio import FORMATS, render, write_audio
    from music_gpt.notes import NOTE_DTYPE

    note = np.array([(0.0, 0.5, 60, 80)], NOTE_DTYPE)
    if not render(note).any():
        raise InputError("The sampled piano is silent; take the checkout or the package anew.")
    with tempfile.TemporaryDirectory(prefix="music-gpt-") as folder:
        for suffix in FORMATS:
            write_audio(note, Path(folder) / f"note{suffix}")
    fonts, to_do = soundfonts()
    return f"the piano sounds, in {', '.join(FORMATS.values())}; {fonts}", to_do


def page() -> Told:
    """Whether the page can be served."""
    from music_gpt.ui.page import PORT

    told = f"Gradio {metadata.version('gradio')}; port {PORT} is"
    if is_free(PORT):
        return f"{told} free", ""
    return f"{told} taken", f"`music-gpt app --port {PORT + 1}` serves it at another"


def _read(checkpoint: str | None) -> tuple[GPT, dict[str, Any]]:
    from music_gpt.network.checkpoint import load_checkpoint

    return load_checkpoint(checkpoint)


# --- their parts ----------------------------------------------------------------------------------


def where(device: str) -> str:
    """What a device is called."""
    import torch

    if device != "cuda":
        return {"cpu": "the CPU", "mps": "Apple's GPU"}[device]
    driver = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    return f"{torch.cuda.get_device_name()}, {driver}"


def idle_gpu(device: str) -> str:
    """What to do where there is an NVIDIA GPU that PyTorch does not compute on."""
    import torch

    if device != "cpu" or shutil.which("nvidia-smi") is None:
        return ""
    if torch.version.cuda is None:
        return "for the NVIDIA GPU here, install PyTorch's build with CUDA, as pytorch.org tells"
    return "PyTorch finds no NVIDIA GPU; look what `nvidia-smi` and CUDA_VISIBLE_DEVICES say"


def soundfonts() -> Told:
    """Whether SoundFonts play; what to do where only the library of pyfluidsynth is missing."""
    from music_gpt.soundfont import LIBRARY_FROM, require_fluidsynth

    if find_spec("fluidsynth") is None:
        return "no SoundFonts, for which there is the extra soundfont", ""
    try:
        require_fluidsynth()
    except InputError:
        to_do = f"to play SoundFonts, install the FluidSynth library: {LIBRARY_FROM}"
        return "no SoundFonts", to_do
    return "SoundFonts play, too", ""


def requirements() -> list[Requirement]:
    """What the package needs on this machine, without its extras."""
    try:
        lines = metadata.requires("music_gpt") or []
    except metadata.PackageNotFoundError:
        raise InputError(
            f"music_gpt is not installed; in its checkout, run `{install()}`."
        ) from None
    from packaging.requirements import Requirement  # here, so that its lack is told, too

    every = [Requirement(line) for line in lines]
    return [each for each in every if each.marker is None or each.marker.evaluate({"extra": ""})]


def why_not(needed: Requirement) -> str:
    """What is wrong with a package that is needed; empty where nothing is.

    >>> from packaging.requirements import Requirement
    >>> why_not(Requirement("numpy>=2")), why_not(Requirement("no-such-package>=1"))
    ('', 'no-such-package is not installed')
    """
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"{needed.name} is not installed"
    if needed.specifier.contains(version, prereleases=True):
        return ""
    return f"{needed.name} is {version}, but {needed.specifier} is needed"


def memory_bytes() -> int:
    """Of the whole machine; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def is_free(port: int) -> bool:
    """Whether a page could listen there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        if os.name == "posix":  # elsewhere this would share a port that is taken
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def cure_of(error: BaseException) -> str:
    """What to do about a library that raises this; empty where nobody can know.

    torchvision comes with LitData, and what looks for it fails beside a torch of another build.
    """
    if "operator torchvision::" in str(error):
        return "`pip uninstall torchvision`, which is of another build than torch and is not needed"
    if isinstance(error, ModuleNotFoundError):
        return f"in the checkout, run `{install()}`"
    if isinstance(error, ImportError) and error.name:
        top = error.name.split(".")[0]
        try:
            package = metadata.packages_distributions().get(top, [top])[0]
        except (OSError, ValueError):  # another package is damaged, too
            package = top
        return f"in the checkout, run `pip install -c constraints.txt --force-reinstall {package}`"
    return ""
