"""A name that people use -> the module where it lives, imported when the name is first used.

So `import music_gpt` costs milliseconds: torch comes with `load`, and nothing here brings
Lightning or Gradio.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from music_gpt.audio import write_wav
    from music_gpt.composing.pianist import Pianist, load
    from music_gpt.config.model import ModelConfig
    from music_gpt.errors import InputError
    from music_gpt.midi.piece import Piece, read_piece
    from music_gpt.network.model import GPT
    from music_gpt.tokens.originality import originality
    from music_gpt.tokens.tokenizer import PerformanceTokenizer

# the one thing that is done at import: ONNX Runtime tells its makers that it is used, and leaves a
# name for the machine in the home folder, unless this is there before anybody imports it
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

__version__ = "0.1.0"

__all__ = [
    "GPT",
    "InputError",
    "ModelConfig",
    "PerformanceTokenizer",
    "Pianist",
    "Piece",
    "__version__",
    "load",
    "originality",
    "read_piece",
    "write_wav",
]

_HOME_OF = {
    "GPT": "network.model",
    "InputError": "errors",
    "ModelConfig": "config.model",
    "PerformanceTokenizer": "tokens.tokenizer",
    "Pianist": "composing.pianist",
    "Piece": "midi.piece",
    "load": "composing.pianist",
    "originality": "tokens.originality",
    "read_piece": "midi.piece",
    "write_wav": "audio",
}


def __getattr__(name: str) -> Any:
    """The public `name`, imported from its module at the first use (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
