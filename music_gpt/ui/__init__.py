"""A pianist -> the page in the browser where people play with it."""

from music_gpt.ui.page import build_page, launch

__all__ = ["build_page", "launch"]
