"""What becomes of what one played on the page: it is the prompt, or it is kept."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from seated import send_and_wait, sit_down, told, use
from visitor import Visitor

pytestmark = pytest.mark.browser
Visit = Callable[..., Visitor]


def test_what_is_played_while_a_take_is_shown_becomes_the_prompt(visit: Visit) -> None:
    visitor = visit().open()
    visitor.wish(**{"Length in seconds": 5})
    visitor.page.click("#compose")
    visitor.wait("state.state == 'done' && state.tab == 1 && !state.playing")
    before = visitor.state
    sit_down(visitor)
    visitor.page.get_by_role("button", name="Cancel").click()
    assert visitor.wait("state.played === null")["position"] == before["position"]
    assert visitor.page.get_by_role("button", name="Play", exact=True).is_enabled()
    sit_down(visitor)
    visitor.page.keyboard.press("a", delay=50)
    state = use(visitor)
    assert (state["tab"], state["notes"], state["played"]) == (0, 1, None)
    visitor.page.click("#compose")
    visitor.wait("state.state == 'done' && state.newNotes[0] > 3")


def test_what_was_played_is_kept_where_other_music_is_chosen_meanwhile(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    for letter in "ad":
        visitor.page.keyboard.press(letter, delay=50)
    visitor.page.get_by_label("Träumerei").check()
    state = visitor.wait("state.name.startsWith('Träumerei')")
    assert (state["played"], state["notes"] > 10) == (None, True)
    expect(visitor.page.locator(".mg-status")).to_contain_text("What you played is kept")
    visitor.page.get_by_role("button", name="Play it yourself").click()
    visitor.wait("state.played == 2")
    visitor.page.wait_for_timeout(1500)
    visitor.page.keyboard.press("g", delay=50)
    state = use(visitor)
    assert state["notes"] == 3
    assert state["end"] < 2  # the break is none in the music
    sit_down(visitor)  # what was used is not there again


def test_what_was_played_is_kept_where_the_page_refuses_it(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    visitor.page.keyboard.press("a", delay=30)
    visitor.page.evaluate("document.querySelector('#midi-file input[type=file]').remove()")
    visitor.page.get_by_role("button", name="Use as prompt").click()
    expect(told(visitor)).to_have_text("The page is still reading a file; try again.")
    assert visitor.page.get_by_role("button", name="Use as prompt").is_enabled()
    assert visitor.state["played"] == 1
    visitor.page.get_by_role("button", name="Cancel").click()
    assert visitor.page.evaluate("document.activeElement.textContent.trim()") == "Play it yourself"


def test_an_answer_that_comes_late_takes_nothing_that_is_played(visit: Visit) -> None:
    visitor = visit().open()
    held = send_and_wait(visitor)
    for name in ("Use as prompt", "Start over", "Cancel"):
        assert visitor.page.get_by_role("button", name=name).is_disabled()
    visitor.page.keyboard.press("d", delay=50)
    assert visitor.state["played"] == 1  # nothing is recorded that would be lost
    assert visitor.page.evaluate("document.activeElement.className") == "mg-played-keys"
    held[0].continue_()
    visitor.wait("state.name == 'My playing' && state.notes == 1")
    focused = visitor.page.evaluate("document.activeElement.textContent.trim()")
    assert focused == "Play it yourself"


def test_what_was_sent_is_kept_where_other_music_comes_instead(visit: Visit) -> None:
    visitor = visit().open()
    held = send_and_wait(visitor)
    visitor.page.get_by_label("Träumerei").check()
    visitor.wait("state.name.startsWith('Träumerei') && state.played === null")
    visitor.page.get_by_role("button", name="Play it yourself").click()
    visitor.wait("state.played == 1")
    held[0].continue_()
    visitor.wait("state.name == 'My playing' && state.played === null")
    sit_down(visitor)  # it is the prompt: nothing is left to be kept


def test_the_browser_asks_before_what_was_played_is_left(visit: Visit) -> None:
    visitor = sit_down(visit().open())
    asked: list[str] = []
    visitor.page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    visitor.page.keyboard.press("a", delay=50)
    visitor.reload()
    assert asked == ["beforeunload"]
    visitor.wait("state.notes > 0 && state.bank != 'waiting'")
    sit_down(visitor)
    visitor.page.keyboard.press("a", delay=50)
    use(visitor)
    visitor.reload()
    visitor.wait("state.name == 'My playing'")
    assert asked == ["beforeunload"]
