"""Dialogs: picking, confirming, secrets, searching, and the list of waiting calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Static

from swink_agent.tui.composing.matching import PickItem, matching
from swink_agent.tui.widgets.bars import WaitingMessages
from swink_agent.tui.widgets.confirm import Confirm
from swink_agent.tui.widgets.picker import Picker
from swink_agent.tui.widgets.search_bar import SearchBar
from swink_agent.tui.widgets.secret_input import SecretInput


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.results: list[str | None] = []
        self.heard: list[object] = []
        self.bar = SearchBar()
        self.chips = WaitingMessages()

    def compose(self) -> ComposeResult:
        yield Static()
        yield self.bar
        yield self.chips

    def on_search_bar_typed(self, event: SearchBar.Typed) -> None:
        self.heard.append(event.query)

    def on_search_bar_stepped(self, event: SearchBar.Stepped) -> None:
        self.heard.append(event.step)

    def on_search_bar_closed(self) -> None:
        self.heard.append("closed")

    def screen_text(self) -> str:
        return "\n".join(strip.text for strip in self.screen._compositor.render_strips())


async def shown(
    screen: ModalScreen[str | None], *keys: str, then: Callable[[Host, Pilot[None]], Awaitable[None]] | None = None
) -> Host:
    host = Host()
    async with host.run_test(size=(110, 30)) as pilot:
        host.push_screen(screen, host.results.append)
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        if then is not None:
            await then(host, pilot)
            await pilot.pause()
    return host


async def results_of(make: Callable[[], ModalScreen[str | None]], table: Iterable[Sequence[str]]) -> list[str | None]:
    """What a dialog gives for each row of keys, in one program."""
    host = Host()
    async with host.run_test(size=(110, 30)) as pilot:
        for keys in table:
            host.push_screen(make(), host.results.append)
            await pilot.pause()
            await pilot.press(*keys)
            await pilot.pause()
    return host.results


PLAN = [("later", "switch only"), ("yes", "carry it out"), ("edit", "edit it first")]


async def test_enter_y_and_1_take_what_is_proposed_and_escape_declines() -> None:
    table: list[tuple[list[str], str | None]] = [
        (["enter"], "yes"),
        (["y"], "yes"),
        (["1"], "yes"),
        (["2"], "later"),
        (["l"], "later"),
        (["e"], "edit"),
        (["down", "enter"], "later"),
        (["up", "enter"], "edit"),
        (["escape"], None),
        (["n"], None),
    ]
    results = await results_of(lambda: Confirm("Carry the plan out?", PLAN, "yes"), [keys for keys, _ in table])
    assert results == [result for _, result in table]


async def test_y_takes_what_is_proposed_whatever_it_is_called() -> None:
    assert (await shown(Confirm("Go?", [("go", "go"), ("stay", "stay")], "go"), "x", "y")).results == ["go"]


async def test_a_dialog_is_answered_once_however_fast_keys_come() -> None:
    async def hasty(host: Host, pilot: Pilot[None]) -> None:
        for make in (lambda: Confirm("Go?", PLAN, "yes"), lambda: Picker("Which?", ITEMS), lambda: SecretInput("Key?")):
            host.push_screen(make(), host.results.append)
            await pilot.pause()
            for _ in range(3):
                assert host.focused is not None
                host.focused.post_message(events.Key("enter", "\r"))
            await pilot.pause()
            await pilot.pause()
        assert len(host.screen_stack) == 2

    host = await shown(Confirm("Stay?", PLAN, "later"), then=hasty)
    assert host.results == ["yes", ITEMS[0].key, None]


async def test_a_question_of_somebody_elses_words_shows_no_escapes() -> None:
    async def look(host: Host, pilot: Pilot[None]) -> None:
        assert "Delete \\u{1b}[2J?" in host.screen_text()

    await shown(Confirm("Delete \x1b[2J?", PLAN), then=look)


async def test_a_secret_is_given_and_never_drawn() -> None:
    async def look(host: Host, pilot: Pilot[None]) -> None:
        assert "sk-" not in host.screen_text()
        assert "sk-" not in host.export_screenshot()
        host.screen.focused.post_message(events.Paste("-pasted\n"))  # type: ignore[union-attr]
        await pilot.pause()
        assert "pasted" not in host.screen_text()
        await pilot.press("enter")

    host = await shown(SecretInput("The key"), *"sk-12x", "backspace", then=look)
    assert host.results == ["sk-12-pasted"]


async def test_no_secret_is_nothing() -> None:
    table = [["escape"], ["a", "escape"], ["enter"], ["a", "ctrl+u", "enter"]]
    assert await results_of(lambda: SecretInput("The key"), table) == [None] * len(table)


ITEMS = [PickItem(str(number), f"Fix the test {number}", f"{number} h ago") for number in range(300)]


async def test_one_of_many_is_picked_by_typing_and_by_keys() -> None:
    table: list[tuple[list[str], str | None]] = [
        (["enter"], "0"),
        (["down", "down", "up", "enter"], "1"),
        ([*"test 42", "enter"], "42"),
        ([*"zzz", "enter", "escape"], None),
        (["escape"], None),
        (["up", "enter"], "0"),
    ]
    results = await results_of(lambda: Picker("Resume", ITEMS), [keys for keys, _ in table])
    assert results == [result for _, result in table]


async def test_a_page_down_moves_a_page_and_what_is_chosen_stays_in_view() -> None:
    async def look(host: Host, pilot: Pilot[None]) -> None:
        assert "Fix the test 0" not in host.screen_text()
        await pilot.press("enter")

    host = await shown(Picker("Resume", ITEMS), "pagedown", "pagedown", "pagedown", then=look)
    assert int(host.results[0] or 0) > 40


class Span(NamedTuple):
    text: str
    role: str


class Line(NamedTuple):
    spans: Sequence[Span]


async def test_the_chosen_item_is_looked_at_and_those_passed_over_are_not() -> None:
    looked: list[str] = []

    async def preview(key: str) -> list[Line]:
        looked.append(key)
        if key == "1":
            raise OSError("gone")
        return [Line([Span(f"a look at {key}", "text")])]

    async def look(host: Host, pilot: Pilot[None]) -> None:
        for _ in range(300):
            if "a look at 3" in host.screen_text():
                break
            await asyncio.sleep(0.01)
            await pilot.pause()
        assert "a look at 3" in host.screen_text()
        await pilot.press("up", "up")
        for _ in range(300):
            if "1" in looked:
                break
            await asyncio.sleep(0.01)
        await pilot.pause()
        assert "a look at" not in host.screen_text()
        await pilot.press("escape")

    await shown(Picker("Resume", ITEMS, preview), "down", "down", "down", then=look)
    assert "2" not in looked[:1]


def test_every_word_must_be_there_and_letters_in_order_are_the_last_resort() -> None:
    items = [PickItem("a", "Write the docs", "today"), PickItem("b", "Fix a test", "yesterday")]
    assert [item.key for item in matching(items, "TEST yester")] == ["b"]
    assert [item.key for item in matching(items, "day")] == ["a", "b"]
    assert [item.key for item in matching(items, "wtdcs")] == ["a"]
    assert matching(items, "zz") == []


async def test_the_search_bar_says_what_is_looked_for_and_steps() -> None:
    host = Host()
    async with host.run_test() as pilot:
        host.bar.open()
        await pilot.pause()
        await pilot.press(*"ab", "enter", "up")
        host.bar.tell(2, 12)
        await pilot.pause()
        assert "2 of 12" in host.screen_text()
        await pilot.press("escape")
        await pilot.pause()
        assert host.heard == ["a", "ab", 1, -1, "closed"]
        assert not host.bar.display
        host.bar.open()
        await pilot.press("x")
        await pilot.pause()
        assert host.heard[-1] == "x"  # what was looked for is selected, and typed over


async def test_waiting_calls_have_a_row_each_and_the_first_of_many_give_way() -> None:
    host = Host()
    async with host.run_test() as pilot:
        assert not host.chips.display
        host.chips.show([("steer", "use the\nother \x1b[31mfile"), ("follow_up", "then commit")])
        await pilot.pause()
        text = host.screen_text()
        assert "steering  use the⏎other \\u{1b}[31mfile" in text
        assert "next  then commit" in text
        host.chips.show([("follow_up", f"number {number}") for number in range(5)])
        await pilot.pause()
        assert host.chips.size.height == 3
        text = host.screen_text()
        assert "2 more before it" in text
        assert "number 4" in text
        assert "number 1" not in text
        host.chips.show([])
        await pilot.pause()
        assert not host.chips.display
