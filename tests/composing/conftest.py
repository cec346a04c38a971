"""A pianist with a small network."""

import pytest
from playing import CONTEXT
from small import small_pianist

from music_gpt.composing.pianist import Pianist


@pytest.fixture(scope="module")
def pianist() -> Pianist:
    return small_pianist(CONTEXT)
