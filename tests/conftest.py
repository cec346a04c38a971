"""What every test stands on: one thread, no network, the same random examples on every run."""

import os

# Before torch is imported: the suite shares its cores with whatever else the machine does, and
# several threads on the small networks of the tests cost more than they give.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Nothing that a test starts may ask the internet for anything.
os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_OFFLINE="1")

import signal
from pathlib import Path

import hypothesis
import pytest

# A shell that starts the suite in the background lets it ignore Ctrl-C, and nohup lets it ignore
# SIGHUP. Some tests send these, and what a test starts would ignore them, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No deadline: how fast this machine is at the moment decides nothing.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def demo_corpus() -> Path:
    """The folder of short public-domain pieces in `examples`."""
    return ROOT / "examples" / "demo"


@pytest.fixture
def midi(tmp_path: Path) -> Path:
    """A folder of twelve made-up pieces."""
    from midi_folders import write_folder  # which brings the package: most tests do without

    return write_folder(tmp_path / "midi", range(12))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Files for engines go into a folder of this run of the tests."""
    os.environ["MUSIC_GPT_CACHE"] = str(tmp_path_factory.mktemp("cache"))
