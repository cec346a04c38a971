"""How music is drawn from a network -> `SamplingConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from music_gpt.checking import check_fields, number, require, whole
from music_gpt.keys import scale

ONNX_ENGINES = ("onnx", "onnx-int8")
"""Those of ONNX Runtime, which run a file; auto tries the last one first."""
ENGINES = ("auto", "torch", "cuda", *ONNX_ENGINES)
"""What can run a network (`music_gpt.generation.engines`)."""
CANDIDATES = 8
"""In how many ways a part of a piece is composed anew, unless told; the best is taken. With the
bundled network a part of four seconds then takes about one."""
MAX_TEMPERATURE = 10
"""At it, the likeliest event is hardly likelier than the others."""


@dataclass(frozen=True)
class SamplingConfig:
    """How the next event is drawn."""

    temperature: float = 0.95
    """Divides the logits; 0 takes the likeliest event always and ignores the seed."""
    top_k: int = 0
    """Draw from the k likeliest events only; 0 for all."""
    top_p: float = 1.0
    """Draw from the likeliest events that together hold this probability; 1 for all."""
    min_p: float = 0.001
    """Leave out events less likely than this share of the likeliest one; 0 for none."""
    max_wait_seconds: float = 4.0
    """Longest wait in a row; the grammar mask forbids more."""
    max_note_seconds: float = 20.0
    """Longest note; the grammar mask ends it there."""
    release_after_seconds: float = 2.5
    """Notes that sound longer become ever likelier to be released."""
    time_temperature: float = 0.0
    """Temperature of the lengths of waits alone; 0 takes `temperature`."""
    pitch_temperature: float = 0.0
    """Temperature of the choice of pitches alone; 0 takes `temperature`."""
    velocity_temperature: float = 0.0
    """Temperature of the choice of velocities alone; 0 takes `temperature`."""
    key: str = ""
    """Key that the music keeps to, softly, as C, a, Bb, F# minor or Fis-Moll; empty for any."""
    key_strength: float = 2.0
    """Nats by which a note outside the scale of `key` becomes less likely."""
    density: float = 0.0
    """Notes per second to lean to, softly; 0 leans to none."""
    density_strength: float = 2.0
    """Nats by which onsets and waits move, at most, where the density is far off."""

    def __post_init__(self) -> None:
        check_fields(self, ("temperature",), number, 0, MAX_TEMPERATURE)
        check_fields(self, ("top_k",), whole, 0)
        check_fields(self, ("top_p",), number, 0, 1, above=True)
        check_fields(self, ("min_p",), number, 0, 1, below=True)
        check_fields(self, ("max_wait_seconds",), number, 0.01, 60)
        check_fields(self, ("max_note_seconds", "release_after_seconds"), number, 0.1, 120)
        for name in ("time_temperature", "pitch_temperature", "velocity_temperature"):
            if getattr(self, name) != 0:
                check_fields(self, (name,), number, 0.05, MAX_TEMPERATURE)
        known = isinstance(self.key, str) and (not self.key or scale(self.key) is not None)
        require(known, "key", self.key, "a key, as C, a, Bb, F# minor or Fis-Moll, or empty")
        check_fields(self, ("density",), number, 0, 60)
        check_fields(self, ("key_strength", "density_strength"), number, 0, 10)


SAMPLING_PRESETS = {
    "faithful": SamplingConfig(temperature=0.92),
    "balanced": SamplingConfig(),
    "adventurous": SamplingConfig(temperature=1.0),
}
"""A musician's words -> how the next event is drawn; docs/sampling.md has what was measured."""
