"""A trained checkpoint and its tokens folder -> the bundled checkpoint with its model card.

    python music_gpt/pretrained/make_pretrained.py runs/NAME/best.safetensors --tokens DIR

It scores the weights as they are stored (bf16) on the whole validation and test splits, by the
protocol of `music-gpt evaluate`, writes the file and README.md, removes the one before, and lays
the index of the training music beside it, by which the page tells what a take has from there.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from music_gpt.config.preparing import PrepareConfig
from music_gpt.metrics.likelihood import likelihood, mean_nats_of, ngram, sliding_nats_per_token
from music_gpt.network.checkpoint import load_checkpoint, save_checkpoint
from music_gpt.network.model import use_bf16
from music_gpt.process import say
from music_gpt.tokens.corpus import Corpus
from music_gpt.tokens.originality import copy_index

FOLDER = Path(__file__).parent
LICENCE = "CC BY-SA 4.0"


def main() -> None:
    """Read the command line, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tokens", type=Path, required=True, help="the whole corpus")
    parser.add_argument("--name", default="piano", help="name of the file")
    parser.add_argument("--history", default="", help="how it was trained, in a sentence")
    parser.add_argument("--commit", default="", help="commit of the code that trained it")
    args = parser.parse_args()

    corpus = Corpus.open(args.tokens)
    model, card = load_checkpoint(args.checkpoint)
    card = {key: card[key] for key in card if key not in ("file", "sha256")}
    card |= {"name": args.name, "licence": LICENCE, "history": args.history, "commit": args.commit}
    card |= {"sources": corpus.card["sources"], "licences": corpus.card["licences"]}
    card["prepared"] = prepared_with(corpus.card["settings"])
    out = FOLDER / f"{args.name}.safetensors"
    with tempfile.TemporaryDirectory() as folder:  # what is scored is what is stored
        stored = Path(folder) / out.name
        save_checkpoint(stored, model, card, dtype=torch.bfloat16)
        model, _ = load_checkpoint(stored)
    bf16, plain = use_bf16("auto", "cpu"), ngram(corpus.split("train"), order=2)
    for name in ("validation", "test"):
        split = corpus.split(name)
        card[name] = likelihood(model, split, bf16=bf16, progress=True).to_dict()
        card[name]["ngram_nats_per_token"] = round(mean_nats_of(plain, split), 4)
        sliding = sliding_nats_per_token(model, split, bf16=bf16, progress=True)
        card[name]["sliding_nats_per_token"] = round(sliding, 4)
    save_checkpoint(out, model, card, dtype=torch.bfloat16)
    for old in set(FOLDER.glob("*.safetensors")) - {out}:
        old.unlink()
    copy_index(args.tokens, FOLDER)
    (FOLDER / "README.md").write_text(model_card(card, model.n_parameters), encoding="utf-8")
    say(f"{out}: {card['validation']}")


def prepared_with(settings: dict[str, Any]) -> str:
    """The command that made the tokens folder, with the flags that are not as usual.

    >>> prepared_with({"validation": 0.05, "seed": 0, "sources": "list.tsv"})
    'music-gpt prepare --validation 0.05 --sources list.tsv'
    """
    usual = asdict(PrepareConfig())
    changed = {name: value for name, value in settings.items() if value != usual.get(name)}
    flags = [f" --{name.replace('_', '-')} {value}" for name, value in changed.items()]
    return "music-gpt prepare" + "".join(flags)


def model_card(card: dict[str, Any], n_parameters: int) -> str:
    """The text of README.md: what people ask of a checkpoint before they use it."""
    shape = card["config"]["model"]
    sources = "\n".join(
        f"| {name} | {source['pieces']:,} | {source['tokens']:,} | {_licences(source)} |"
        for name, source in card["sources"].items()
    )
    scores = "\n".join(
        f"| {name} | {s['tokens']:,} | **{s['nats_per_token']:.3f}** | {s['nats_per_note']:.2f} | "
        f"{s['accuracy']:.3f} | {s['sliding_nats_per_token']:.3f} | "
        f"{s['ngram_nats_per_token']:.3f} |"
        for name, s in ((name, card[name]) for name in ("validation", "test"))
    )
    return f"""# The bundled checkpoint: {card["name"]}.safetensors

Made by `music_gpt/pretrained/make_pretrained.py`; this page and the metadata of the file say the
same. Licence of the weights: **{card["licence"]}** (attribution in `NOTICE`).

**Network.** {shape["n_layers"]} blocks, {shape["d_model"]}/{shape["d_ff"]},
{shape["n_heads"]} heads, context {shape["context"]:,} events, {n_parameters:,} parameters, stored
in bf16.

**Training.** {card["history"]}
{card["steps"]:,} steps, {card["tokens_seen"]:,} tokens, {card["minutes"]} minutes in the last
run{_at(card["commit"])}. `config` in the metadata is its whole configuration.

**Data.** MIDI files that may be used so; splits by composition{_by(card.get("prepared"))}.

| source | pieces | tokens | licences |
| --- | ---: | ---: | --- |
{sources}

**Figures.** Whole splits, non-overlapping windows of {card["validation"]["window"]:,} events; the
last columns are a window that slides by half, and an order-2 n-gram of the same training split.

| split | tokens | nats/token | nats/note | accuracy | sliding | n-gram |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{scores}

**Limits.** Solo piano, mostly of the 18th to early 20th century, as played on rolls, sequenced by
hand, transcribed, or rendered from scores. It knows no bars, keys or words and holds no form over
minutes. Like any network it can repeat what it was trained on.
"""


def _licences(source: dict[str, Any]) -> str:
    short = {
        licence.replace("Creative Commons Attribution-ShareAlike", "CC BY-SA")
        .replace("Creative Commons Attribution", "CC BY")
        .replace(" (Unported)", "")
        .replace(" International", "")
        for licence in source["licences"]
    }
    return ", ".join(sorted(short))


def _by(command: str | None) -> str:
    return f" (`{command}`)" if command else ""  # earlier cards do not tell it


def _at(commit: str) -> str:
    return f", at commit {commit}" if commit else ""


if __name__ == "__main__":
    main()
