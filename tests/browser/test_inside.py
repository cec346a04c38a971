"""Looking inside the network, in a real browser: each test is something that a visitor does."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect
from visitor import Visitor, box_of

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]
DOOR = "document.querySelector('.mg-inside')?.musicGptInside"


def inside(visitor: Visitor, condition: str) -> dict[str, Any]:
    """What is shown of the inside, once a condition on its `state` holds."""
    visitor.page.wait_for_function(
        f"() => {{ const state = {DOOR}?.state(); return state && ({condition}); }}"
    )
    state: dict[str, Any] = visitor.page.evaluate(f"{DOOR}.state()")
    return state


def open_inside(visitor: Visitor) -> dict[str, Any]:
    """Unfold it, and wait for the first event."""
    visitor.page.get_by_role("button", name="Look inside").click()
    return inside(visitor, "state.shown")


def place_of_note(visitor: Visitor, number: int) -> dict[str, float]:
    """Where a note of what is shown is on the roll, in its pixels."""
    roll = "document.querySelector('.mg-roll').musicGptRoll"
    place: dict[str, float] = visitor.page.evaluate(f"{roll}.placeOf({number})")
    return place


def test_a_note_that_is_pressed_tells_what_was_expected_there(visit: Visit) -> None:
    visitor = visit().open()
    open_inside(visitor)
    position = visitor.state["position"]
    note = place_of_note(visitor, 9)
    visitor.page.locator(".mg-surface").click(position={"x": note["x"], "y": note["y"]})
    value = inside(visitor, f"state.value.seconds == {note['seconds']}")["value"]
    page = visitor.page
    expect(page.locator(".mi-said b")).to_have_text(value["said"])
    expect(page.locator(".mi-chance")).to_contain_text("The network gave it")
    assert page.locator(".mi-expected li").count() == len(value["expected"])
    assert page.locator(".mi-depths li").count() == len(value["depths"])
    expect(page.locator(".mi-expected li[data-marked=true]")).to_contain_text(value["said"])
    assert visitor.state["position"] == position  # a note that is pressed moves no playhead
    visitor.photograph("inside")


def test_arrows_lead_from_event_to_event(visit: Visit) -> None:
    visitor = visit().open()
    first = open_inside(visitor)["value"]
    visitor.page.get_by_role("button", name="The event after").click()
    inside(visitor, f"state.value.place == {first['place'] + 1}")
    visitor.page.get_by_role("button", name="The event before").click()
    again = inside(visitor, f"state.value.place == {first['place']}")["value"]
    assert again["said"] == first["said"]
    for _ in range(6):  # quicker than answers come
        visitor.page.get_by_role("button", name="The event after").click()
    inside(visitor, f"state.value.place == {first['place'] + 6}")


def test_other_arrows_lead_from_note_to_note(visit: Visit) -> None:
    visitor = visit().open()
    first = open_inside(visitor)["value"]
    visitor.page.get_by_role("button", name="The note after").click()
    second = inside(visitor, f"state.value.place == {first['noteAfter']}")["value"]
    assert second["chosen"].startswith("n,")
    visitor.page.keyboard.press("ArrowLeft")
    again = inside(visitor, f"state.value.place == {second['noteBefore']}")["value"]
    assert again["place"] == first["place"]


def test_a_head_that_is_chosen_glows_in_the_roll(visit: Visit) -> None:
    visitor = visit().open()
    picture = "document.querySelector('.mg-notes').toDataURL()"
    drawn = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    visitor.page.evaluate(drawn)
    plain = visitor.page.evaluate(picture)
    open_inside(visitor)
    heads = visitor.page.get_by_role("radio", name="Block")
    assert heads.count() == 4
    visitor.page.evaluate(drawn)
    before = visitor.page.evaluate(picture)
    heads.nth(2).click()
    assert inside(visitor, "true")["head"] == "2.1"
    visitor.page.evaluate(drawn)
    assert visitor.page.evaluate(picture) != before
    visitor.page.keyboard.press("ArrowRight")
    assert inside(visitor, "true")["head"] == "2.2"
    assert visitor.page.locator(".mi-looked li").count() > 0
    visitor.page.get_by_role("button", name="Look inside").click()  # and all is as before
    visitor.page.evaluate(drawn)
    visitor.page.wait_for_function(f"(plain) => {picture} === plain", arg=plain)
    surface = visitor.page.locator(".mg-surface")
    surface.click(position={"x": box_of(surface)["width"] / 2, "y": 60})
    assert visitor.state["position"] > 0


def test_on_a_phone_what_glows_in_the_roll_is_seen_beside_the_heads(visit: Visit) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    visitor = visit(**phone).open()
    copy = visitor.page.locator(".mi-copy")
    picture = "document.querySelector('.mi-copy').toDataURL()"
    open_inside(visitor)
    heads = visitor.page.get_by_role("radio", name="Block")
    heads.nth(0).tap()
    expect(copy).to_have_attribute("aria-label", "Block 1, head 1: what was looked at")
    box, head = box_of(copy), box_of(heads.nth(3))
    assert box["height"] > 80
    assert 0 < box["y"] - head["y"] < 200
    visitor.page.wait_for_function("document.querySelector('.mi-copy').width > 300")
    visitor.page.wait_for_timeout(100)
    before = visitor.page.evaluate(picture)
    heads.nth(3).tap()
    visitor.page.wait_for_function(f"(before) => {picture} !== before", arg=before)
    visitor.photograph("inside-phone")


def test_on_a_phone_it_is_seen_beside_the_heads_while_music_plays_too(visit: Visit) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    visitor = visit(**phone).open()
    visitor.page.get_by_label("Play", exact=True).tap()
    visitor.wait("state.playing")
    open_inside(visitor)
    picture = "(selector) => document.querySelector(selector).toDataURL()"
    blank = """(() => {
      const canvas = document.createElement('canvas');
      const { width, height } = document.querySelector('.mi-copy');
      return Object.assign(canvas, { width, height }).toDataURL();
    })()"""
    visitor.page.wait_for_function(f"({picture})('.mi-copy') !== {blank}")
    visitor.page.wait_for_function("document.querySelector('.mi-copy').width > 300")
    copy, roll = (visitor.page.evaluate(picture, canvas) for canvas in (".mi-copy", ".mg-notes"))
    assert visitor.state["playing"]
    assert copy != roll  # in the roll nothing has faded


def test_new_music_is_looked_at_when_it_has_come(visit: Visit) -> None:
    visitor = visit().open()
    open_inside(visitor)
    visitor.wish(**{"Length in seconds": 5, "Variations": 2})
    visitor.compose()
    visitor.wait("state.state == 'composing'")
    assert not inside(visitor, "!state.shown")["value"]
    expect(visitor.page.locator(".mi-told")).to_contain_text("Music is being composed")
    seam = visitor.wait("state.state == 'done'")["seam"]
    inside(visitor, f"state.shown && state.value.take == 0 && state.value.seconds >= {seam} - 0.01")
    visitor.page.get_by_role("tab", name="Variation 2").click()
    inside(visitor, "state.shown && state.value.take == 1")


def test_where_there_is_no_music_it_says_what_to_do(visit: Visit) -> None:
    visitor = visit().open()
    visitor.page.get_by_text("Start from nothing").click()
    visitor.wait("state.state == 'empty'")
    visitor.page.get_by_role("button", name="Look inside").click()
    expect(visitor.page.locator(".mi-told")).to_contain_text("Press a note in the roll")
    assert visitor.page.locator(".mi-found").is_hidden()
    visitor.page.locator("#examples label").nth(1).click()
    inside(visitor, "state.shown")


@pytest.mark.parametrize("width", [390, 960, 1280])
def test_what_is_inside_stays_within_its_card(visit: Visit, width: int) -> None:
    visitor = visit(viewport={"width": width, "height": 844}, has_touch=width < 600).open()
    open_inside(visitor)
    card = box_of(visitor.page.locator("#roll-card"))
    for part in visitor.page.locator(".mi-found button, .mi-found li, .mi-found p").all():
        box = box_of(part)
        assert box["x"] >= card["x"]
        assert box["x"] + box["width"] <= card["x"] + card["width"]
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == width
    visitor.photograph(f"inside-{width}")
