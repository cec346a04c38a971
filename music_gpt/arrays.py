"""A file that numpy wrote -> its arrays, checked before they are believed; and names for arrays.

Such a file may be damaged, or come from anywhere: no array is larger than what there is of it.
"""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint16]
"""Ids of events, one axis."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_DAMAGE = (
    *(EOFError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError, MemoryError),
    *(SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What Python's zipfile and numpy's reader of headers raise for bytes that are not theirs."""


def read_array(data: bytes) -> npt.NDArray[Any]:
    """The array, which cannot be written to, in bytes that `numpy.save` wrote.

    Raises `ValueError` for all else, and for a header that claims more than follows it.

    >>> file = io.BytesIO()
    >>> np.save(file, np.arange(3))
    >>> read_array(file.getvalue()).tolist()
    [0, 1, 2]
    """
    file = io.BytesIO(data)
    try:
        np.lib.format.read_magic(file)
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file)
        if in_columns and len(shape) > 1:
            raise ValueError("its columns lie one after the other")
        return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)
    except _DAMAGE as error:
        raise ValueError("these bytes are no array of numpy's") from error


def read_arrays(file: BinaryIO, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names in an open file that `numpy.savez` wrote.

    It packs nothing, so what is packed is refused: it could grow without bounds. Raises
    `ValueError` unless all of them are there, with the checksums that they had.
    """
    n_bytes = file.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.getinfo(f"{name}.npy") for name in names}
            if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
                raise ValueError
            if sum(member.file_size for member in members.values()) > n_bytes:
                raise ValueError
            return {name: read_array(archive.read(member)) for name, member in members.items()}
    except _DAMAGE as error:
        raise ValueError("the file holds other arrays, or is damaged") from error
