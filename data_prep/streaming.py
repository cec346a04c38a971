"""a tokens folder -> the same pieces in LitData's chunks, to stream them from object storage.

For a corpus that is larger than the disk of the machine that trains. Needs the extra `litdata`:
the README says how to install it. After copying the folder to storage, each piece is read so:

    from litdata import StreamingDataset
    pieces = StreamingDataset("s3://bucket/corpus/train", shuffle=True)
    pieces[0]    # array of uint16: EOS, the events of the piece, EOS
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from music_gpt.errors import InputError, install
from music_gpt.files import plain_errors
from music_gpt.printable import shown
from music_gpt.tokens.card import CARD
from music_gpt.tokens.corpus import PIECES, TOKENIZER, Corpus, Split

CHUNK_BYTES = 64_000_000
"""LitData's own advice: large enough to fetch at full speed, small enough to begin soon."""


def write_for_streaming(
    tokens: str | Path, out: str | Path, *, workers: int = 1, chunk_bytes: int = CHUNK_BYTES
) -> dict[str, int]:
    """Write each split of the tokens folder below `out`, and beside them the card of the corpus.

    Returns the number of pieces of each split; piece i of a split keeps its number. Raises
    `InputError` if LitData is not installed, `tokens` is no tokens folder, or `out` holds files.
    """
    tokens, out = Path(tokens), Path(out)
    corpus = Corpus.open(tokens)
    require_streaming(out)
    from litdata import optimize

    pieces = {name: len(corpus.split(name)) for name in corpus.splits}
    for name, n_pieces in pieces.items():
        optimize(
            functools.partial(_piece, str(tokens.resolve()), name),
            list(range(n_pieces)),
            output_dir=str(out / name),
            chunk_bytes=chunk_bytes,
            num_workers=min(workers, n_pieces),
            reorder_files=False,
            start_method="spawn",
            verbose=False,
        )
    for name in (CARD, TOKENIZER, PIECES):
        shutil.copyfile(tokens / name, out / name)
    return pieces


def require_streaming(out: str | Path) -> None:
    """Raise `InputError` unless LitData is installed and `out` is a folder that is new or empty."""
    out = Path(out)
    with plain_errors(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(
                f"{shown(out)} exists and is not an empty folder; choose a new one for LitData."
            )
    if importlib.util.find_spec("litdata") is None:
        raise InputError(f"LitData is not installed; run `{install('litdata')}` first.")


@functools.lru_cache(maxsize=1)
def _open_split(tokens: str, name: str) -> Split:
    return Corpus.open(tokens).split(name)


def _piece(tokens: str, name: str, i: int) -> npt.NDArray[np.uint16]:
    """One piece, in a process of LitData's."""
    return np.array(_open_split(tokens, name).piece(i))
