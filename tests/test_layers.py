"""The reading order of the house is the import order: read from the sources with `ast`."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "music_gpt"

READING_ORDER = [
    *("printable", "errors", "process", "arrays", "files", "folders", "checking", "keys"),
    *("config.model", "config.training", "config.preparing", "config.sampling"),
    "config.prompt",
    *("settings", "hashing", "notes"),
    *("report.html", "report.drawing", "report.figures", "report.picture"),
    *("midi.files", "midi.mending", "midi.timing", "midi.piece", "midi.changing"),
    *("tokens.events", "tokens.tokenizer", "tokens.card", "tokens.corpus"),
    *("tokens.originality", "tokens.data"),
    *("network.attention", "network.model", "network.growth", "network.checkpoint"),
    *("network.hugging_face", "network.foreign", "network.onnx_graph", "network.packed"),
    "network.inside",
    *("training.optimizer", "training.module", "training.peak_flops", "training.run_folder"),
    *("training.run_report", "training.stopping", "training.clock", "training.ending"),
    "training.scoring",
    *("training.progress", "training.callback", "training.run"),
    *("generation.takes", "generation.rates", "generation.bias", "generation.drift"),
    *("generation.grammar", "generation.sampler"),
    *("generation.decoding", "generation.cuda_engine", "generation.onnx_engine"),
    "generation.engines",
    *("composing.prompt", "composing.provenance", "composing.composition", "composing.redoing"),
    *("composing.insight", "composing.pianist"),
    *("metrics.loops", "metrics.statistics", "metrics.continuations", "metrics.likelihood"),
    *("fluid", "soundfont", "audio", "training_samples", "ui", "doctor", "train_config"),
    *("cli.parsing", "cli.words", "cli.composing", "cli.judging", "cli.verbs", "cli.main"),
]
"""One note's journey. A module imports only from those before it; `ui` is one step of it."""

SCRIPT_OF = {"piano_bank": "audio", "pretrained": "cli.main"}
"""Folder of data -> the step that reads it, and that the script which made the data belongs to."""

DOORS = {
    "symusic": {"midi.piece", "tokens.tokenizer"},
    "pretty_midi": {"midi.piece"},
    "miditok": {"tokens.tokenizer"},
    # what it calls: the module, the callback and its scoring; and what calls it: the run
    "pytorch_lightning": {
        "training.module",
        "training.scoring",
        "training.callback",
        "training.run",
    },
    "gradio": {"ui"},
    "soundfile": {"audio"},
    "fluidsynth": {"fluid"},
    "safetensors": {"network.checkpoint", "network.hugging_face"},
    "onnx": {"network.onnx_graph"},
    "onnxruntime": {"generation.onnx_engine"},
    "jsonargparse": {
        f"cli.{step}" for step in ("parsing", "words", "composing", "judging", "verbs")
    },
}
"""Outside library -> the only steps that import it while the program runs."""

SOURCES = sorted(PACKAGE.rglob("*.py"))


def step_of(path: Path) -> str:
    """The step of the journey that a file belongs to: `midi/piece.py` -> midi.piece."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return step_named([SCRIPT_OF.get(parts[0], ".".join(parts))])


def step_named(names: list[str]) -> str:
    """The step that holds the dotted name: of a folder that is one step, whatever lies in it."""
    first, *rest = ".".join(names).split(".")
    return first if first in READING_ORDER else ".".join([first, *rest[:1]])


def imports(path: Path, *, of_types: bool = True) -> Iterator[str]:
    """Dotted names that a file imports anywhere, or only those it imports when it runs."""
    todo: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relative to itself"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += [*(node.body if of_types else []), *node.orelse]
        else:
            todo += ast.iter_child_nodes(node)


def steps_imported(path: Path) -> set[str]:
    """The steps of the journey that a file imports from, each from its own module."""
    names = (name.split(".") for name in imports(path))
    return {
        step_named(parts[1:]) for parts in names if parts[0] == "music_gpt" and len(parts) > 1
    } - {"__version__"}


MODULES = [path for path in SOURCES if path.name != "__init__.py" or path.parent.name == "ui"]
by_name = pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))


@by_name
def test_every_module_has_its_place_in_the_reading_order(path: Path) -> None:
    assert step_of(path) in READING_ORDER


@by_name
def test_a_module_imports_only_from_those_above_it(path: Path) -> None:
    above = READING_ORDER[: READING_ORDER.index(step_of(path))]
    if step_of(path) == "ui":
        above = [*above, "ui"]
    assert steps_imported(path) <= set(above)


@by_name
def test_an_outside_library_comes_in_by_its_door_only(path: Path) -> None:
    libraries = {name.split(".")[0] for name in imports(path, of_types=False)}
    strays = {name for name in libraries & set(DOORS) if step_of(path) not in DOORS[name]}
    assert strays == set()


@by_name
def test_the_first_line_says_what_comes_in_and_what_goes_out(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert docstring is not None
    assert re.search(r" <?-> ", docstring.splitlines()[0])


@by_name
def test_a_docstring_names_a_bound_that_is_a_constant_of_its_module(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assigned = (node.value for node in tree.body if isinstance(node, ast.Assign))
    parts = (part for value in assigned for part in ast.walk(value))
    constants = {p.value for p in parts if isinstance(p, ast.Constant) and type(p.value) is not str}
    holders = (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef)))
    prose = " ".join(ast.get_docstring(holder) or "" for holder in holders)
    bounds = re.findall(r"\b[\d.]*\d to ([\d,.]*\d)\b", prose)
    assert [high for high in bounds if float(high.replace(",", "")) in constants] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "data_prep").rglob("*.py")), ids=lambda path: path.name
)
def test_the_preparation_uses_the_package_up_to_the_index_of_the_corpus(path: Path) -> None:
    known = READING_ORDER[: READING_ORDER.index("tokens.originality") + 1]
    assert steps_imported(path) <= set(known)


def loaded_after(statement: str) -> set[str]:
    """The top-level modules that a fresh Python holds after `statement`."""
    program = (
        f"import sys\n{statement}\n"
        "print(*{name.split('.')[0] for name, module in sys.modules.items() if module})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_importing_the_package_brings_no_library_with_it() -> None:
    assert loaded_after("import music_gpt").isdisjoint({*DOORS, "torch", "numpy"})


def test_the_command_line_imports_next_to_nothing_before_it_can_be_interrupted() -> None:
    loaded = loaded_after("import music_gpt.cli.main")
    assert loaded.isdisjoint({*DOORS, "torch", "numpy", "yaml", "docstring_parser"})


def test_composing_needs_neither_lightning_nor_gradio() -> None:
    loaded = loaded_after("import music_gpt.generation.decoding, music_gpt.composing.pianist")
    assert loaded.isdisjoint({"pytorch_lightning", "lightning", "gradio"})


def test_the_public_names_are_those_of_their_modules() -> None:
    import music_gpt

    for name in music_gpt.__all__:
        assert getattr(music_gpt, name) is not None
    assert set(music_gpt.__all__) <= set(dir(music_gpt))
    with pytest.raises(AttributeError, match="no attribute 'symphony'"):
        music_gpt.symphony  # noqa: B018
