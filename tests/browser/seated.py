"""A visitor who sits at the keys of the page, and what becomes of what is played there."""

from typing import Any

from playwright.sync_api import Locator, Route, expect
from visitor import Visitor


def sit_down(visitor: Visitor) -> Visitor:
    visitor.page.get_by_role("button", name="Play it yourself").click()
    visitor.wait("state.played === 0")
    return visitor


def key(visitor: Visitor, pitch: int) -> Locator:
    return visitor.page.locator(f".mg-key[data-pitch='{pitch}']")


def told(visitor: Visitor) -> Locator:
    return visitor.page.locator(".mg-played-told")


def use(visitor: Visitor) -> dict[str, Any]:
    visitor.page.get_by_role("button", name="Use as prompt").click()
    return visitor.wait("state.name == 'My playing'")


def send_and_wait(visitor: Visitor) -> list[Route]:
    """Play a note and use it as prompt; the answer comes once the route that comes is continued."""
    held: list[Route] = []
    visitor.page.route("**/upload*", lambda route: held.append(route))
    sit_down(visitor)
    visitor.page.keyboard.press("a", delay=50)
    visitor.page.get_by_role("button", name="Use as prompt").click()
    expect(told(visitor)).to_have_text("Reading what you played …")
    return held
