"""The composer while a person types."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static

from swink_agent.tui.composing.completer import Completer
from swink_agent.tui.composing.prompt_history import PromptHistory
from swink_agent.tui.widgets.completion_list import CompletionList
from swink_agent.tui.widgets.composer import Composer
from swink_agent.tui.widgets.draft_view import DraftView


class Command(NamedTuple):
    name: str
    help: str


COMMANDS = (Command("/quit", "leave"), Command("/model", "another model"), Command("/help", "what there is"))


class Host(App[None]):
    CSS = "Static { height: 1fr; }"

    def __init__(self, folder: Path, history: PromptHistory | None = None) -> None:
        super().__init__()
        self.heard: list[tuple[str, ...]] = []
        self.images: list[tuple[str, ...]] = []
        self.commands: list[bool] = []
        self.keys: list[str] = []
        self.composer = Composer(
            history=history or PromptHistory(None), completer=Completer(commands=COMMANDS, folder=folder)
        )

    def compose(self) -> ComposeResult:
        yield Static()
        yield self.composer

    def on_mount(self) -> None:
        self.composer.focus()

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        self.heard.append(("sent", event.text))
        self.images.append(event.images)
        self.commands.append(event.may_be_command)

    def on_composer_queued(self, event: Composer.Queued) -> None:
        self.heard.append(("queued", event.text))

    def on_composer_took_back(self) -> None:
        self.heard.append(("took back",))

    def on_key(self, event: events.Key) -> None:
        self.keys.append(event.key)

    @property
    def view(self) -> DraftView:
        return self.query_one(DraftView)

    @property
    def offered(self) -> list[str]:
        return [item.label for item in self.query_one(CompletionList).items]


Steps = Callable[[Host, Pilot[None]], Awaitable[None]]


async def with_host(tmp_path: Path, steps: Steps, history: PromptHistory | None = None, **options: Any) -> Host:
    host = Host(tmp_path, history)
    async with host.run_test(**options) as pilot:
        await pilot.pause()
        await steps(host, pilot)
        await pilot.pause()
    return host


async def paste(host: Host, pilot: Pilot[None], text: str) -> None:
    host.view.post_message(events.Paste(text))
    await pilot.pause()


async def until(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_so():
            return
        await asyncio.sleep(0.01)
        await pilot.pause()
    raise AssertionError("it did not come to that")


async def test_enter_sends_and_other_enters_make_lines(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"one", "shift+enter", *"two", "alt+enter", *"three", "ctrl+j", *"four")
        assert host.view.size.height == 4
        await pilot.press("enter")
        assert host.view.draft.is_empty
        await pilot.pause()
        assert host.view.size.height == 1
        await pilot.press("enter", "space", "enter")

    host = await with_host(tmp_path, steps)
    assert host.heard == [("sent", "one\ntwo\nthree\nfour")]


async def test_while_something_runs_enter_steers_tab_queues_and_up_takes_back(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.composer.show_run(True, "Execute")
        await pilot.press(*"now", "enter", *"later", "tab")
        host.composer.chips = 1
        await pilot.press("up", "a", "up")

    host = await with_host(tmp_path, steps)
    assert host.heard == [("sent", "now"), ("queued", "later"), ("took back",)]


async def test_tab_does_nothing_while_nothing_runs(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"text", "tab")
        assert host.composer.text == "text"
        assert host.focused is host.view

    assert (await with_host(tmp_path, steps)).heard == []


async def test_keys_that_are_others_business_are_left_to_them(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "pageup", "shift+left", "shift+right", "f2", "ctrl+f", "home", "end", "shift+tab")

    host = await with_host(tmp_path, steps)
    assert host.keys == ["escape", "pageup", "shift+left", "shift+right", "f2", "ctrl+f", "home", "end", "shift+tab"]


async def test_a_paste_never_sends_and_a_long_one_is_folded_until_it_is_opened(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await paste(host, pilot, "one\rtwo\n")
        assert host.heard == []
        assert host.composer.text == "one\ntwo\n"
        await paste(host, pilot, "line\n" * 42)
        assert host.view.size.height == 3
        assert host.composer.text == "one\ntwo\n" + "line\n" * 42
        assert "[pasted 42 lines #1]" in shown(host)
        await pilot.press("backspace")
        assert host.composer.text == "one\ntwo\n"
        await pilot.press("ctrl+z", "ctrl+o")
        assert "pasted" not in shown(host)
        assert host.view.size.height == 10
        await pilot.press("enter")

    host = await with_host(tmp_path, steps)
    assert host.heard == [("sent", "one\ntwo\n" + "line\n" * 41 + "line")]


def shown(host: Host) -> str:
    return "\n".join(host.view.render_line(y).text for y in range(host.view.size.height))


async def test_a_pasted_picture_is_attached_and_text_beside_it_is_text(tmp_path: Path) -> None:
    picture = tmp_path / "a cat.png"
    picture.write_bytes(b"x")

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await paste(host, pilot, f"'{picture}' ")
        await until(pilot, lambda: host.composer.images == (str(picture),))
        await pilot.press("space", *"what is it", "enter")
        await pilot.pause()
        await paste(host, pilot, "/nowhere/dog.png")
        await until(pilot, lambda: host.composer.text == "/nowhere/dog.png")

    host = await with_host(tmp_path, steps)
    assert host.heard == [("sent", "[image #1: a cat.png] what is it")]
    assert host.images == [(str(picture),)]


async def test_a_key_right_behind_a_paste_does_not_overtake_it(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"x")

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.view.post_message(events.Paste("cat.png"))
        host.view.post_message(events.Key("x", "x"))
        host.view.post_message(events.Key("enter", "\r"))
        await until(pilot, lambda: bool(host.heard))

    host = await with_host(tmp_path, steps)
    assert host.heard == [("sent", "[image #1: cat.png]x")]


async def test_up_and_down_walk_the_history_and_come_back_to_the_draft(tmp_path: Path) -> None:
    history = PromptHistory(None)
    for text in ["oldest", "two\nlines", "newest"]:
        history.add(text)

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"draft", "up")
        seen = [host.composer.text]
        for key in ["up", "up", "up", "down", "down", "down"]:
            await pilot.press(key)
            seen.append(host.composer.text)
        # Through the two lines of an entry, then beyond it.
        assert seen == ["newest", "two\nlines", "two\nlines", "oldest", "two\nlines", "newest", "draft"]

    await with_host(tmp_path, steps, history)


async def test_sent_prompts_are_in_the_history_and_lines_with_keys_are_not(tmp_path: Path) -> None:
    history = PromptHistory(None, lambda text: text.replace("sk-secret", "[masked]"))

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.composer.set_text("use sk-secret")
        await pilot.press("enter")
        host.composer.set_text("/key openai sk-other")
        await pilot.press("escape", "enter")

    host = await with_host(tmp_path, steps, history)
    assert host.heard == [("sent", "use sk-secret"), ("sent", "/key openai sk-other")]
    assert history.entries() == ["use [masked]"]


async def test_control_r_searches_and_escape_brings_the_draft_back(tmp_path: Path) -> None:
    history = PromptHistory(None)
    for text in ["fix the tests", "write docs", "run the tests"]:
        history.add(text)

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"draft", "ctrl+r", *"tes")
        assert host.composer.text == "run the tests"
        assert "tes" in str(host.view.border_title)
        await pilot.press("ctrl+r")
        assert host.composer.text == "fix the tests"
        await pilot.press("escape")
        assert host.composer.text == "draft"
        assert host.keys == []
        await pilot.press("escape")
        assert host.keys == ["escape"]
        await pilot.press("ctrl+r", *"docs", "enter")
        assert host.composer.text == "write docs"
        assert host.heard == []
        await pilot.press("enter")

    host = await with_host(tmp_path, steps, history)
    assert host.heard == [("sent", "write docs")]


async def test_commands_are_offered_chosen_and_taken(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press("/")
        await pilot.pause()
        assert host.offered == ["/quit", "/model", "/help"]
        await pilot.press("down", "tab")
        assert host.composer.text == "/model "
        await pilot.pause()
        assert host.offered == []
        await pilot.press("ctrl+u", *"/qu")
        await pilot.pause()
        await pilot.press("enter")
        assert host.composer.text == "/quit "
        assert host.heard == []
        await pilot.press("enter")

    host = await with_host(tmp_path, steps)
    assert host.heard == [("sent", "/quit")]


async def test_a_command_that_is_all_there_is_sent_at_once(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"/quit")
        await pilot.pause()
        assert host.offered == ["/quit"]
        await pilot.press("enter")

    assert (await with_host(tmp_path, steps)).heard == [("sent", "/quit")]


async def test_escape_closes_what_is_offered_and_nothing_else(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"/q")
        await pilot.pause()
        await pilot.press("escape")
        assert host.keys == []
        await pilot.press("u")
        await pilot.pause()
        assert host.offered == []
        await pilot.press("escape")
        assert host.keys == ["escape"]
        await pilot.press("ctrl+u", "/")
        await pilot.pause()
        assert host.offered == ["/quit", "/model", "/help"]

    await with_host(tmp_path, steps)


async def test_files_are_offered_behind_an_at_sign(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "my main.py").write_text("")

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"see @main")
        await until(pilot, lambda: host.offered == ["src/my main.py"])
        await pilot.press("enter", *"please")
        assert host.composer.text == 'see @"src/my main.py" please'
        await pilot.press("ctrl+u", *"@src")
        await until(pilot, lambda: "src/" in host.offered)
        await pilot.press("tab")
        assert host.composer.text == "@src/"  # more can be typed behind a folder
        await until(pilot, lambda: "src/my main.py" in host.offered)

    await with_host(tmp_path, steps)


async def test_the_mouse_places_the_cursor_and_selects(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"hello wide 漢字 world")
        await pilot.click(DraftView, offset=(4 + 6, 1))
        assert host.view.draft.cursor == 6
        await pilot.mouse_down(DraftView, offset=(4 + 6, 1))
        await pilot.hover(DraftView, offset=(4 + 10, 1))
        await pilot.mouse_up(DraftView, offset=(4 + 10, 1))
        assert host.composer.selected_text == "wide"
        await pilot.press("x")
        assert host.composer.text == "hello x 漢字 world"

    await with_host(tmp_path, steps)


async def test_it_grows_to_ten_rows_and_then_scrolls_with_the_cursor_in_view(tmp_path: Path) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        for number in range(14):
            await pilot.press(*str(number), "ctrl+j")
        await pilot.pause()
        assert host.view.size.height == 10
        assert shown(host).split()[:1] == ["5"]
        await pilot.press("ctrl+home")
        await pilot.pause()
        assert "0" in shown(host).splitlines()[0]

    await with_host(tmp_path, steps)


async def test_a_key_repaints_its_row_and_lays_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"first line", "ctrl+j", "a")
        await pilot.pause()
        drawn: list[int] = []
        laid: list[object] = []
        render_line = DraftView.render_line
        monkeypatch.setattr(DraftView, "render_line", lambda view, y: (drawn.append(y), render_line(view, y))[1])
        monkeypatch.setattr(type(host.screen), "_refresh_layout", lambda *args, **kinds: laid.append(args))
        for key in "bcd":
            await pilot.press(key)
            await pilot.pause()
        assert set(drawn) == {1}
        assert laid == []

    await with_host(tmp_path, steps)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("width", [12, 20, 60, 200])
async def test_it_is_drawn_at_any_width(tmp_path: Path, width: int) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.composer.set_text("漢字 and \u202e hidden things, a long word: " + "x" * 80)
        host.composer.attach("/x/" + "long" * 20 + ".png")
        await pilot.pause()
        await pilot.resize_terminal(max(width // 2, 10), 20)
        await pilot.pause()
        strips = [host.view.render_line(y) for y in range(host.view.size.height)]
        assert {strip.cell_length for strip in strips} == {host.view.size.width}

    await with_host(tmp_path, steps, size=(width, 20))


LONG = "!touch ran\n" + "x\n" * 11


async def test_only_a_sign_that_was_typed_or_is_in_sight_begins_a_command(tmp_path: Path) -> None:
    table: list[tuple[list[str], bool]] = [
        ([LONG], False),
        (["\n" + LONG], False),
        (["!", *"ls "], True),
        (["!", LONG], True),
        (["!touch ran"], True),
        (["!touch ran\nx"], True),
        (["!" + "x" * 3000], False),
        (["!" + "x" * 3000, "KEY:ctrl+home"], True),
        ([LONG, "KEY:home", "!"], True),
        ([LONG, "KEY:ctrl+o"], False),
        ([LONG, "KEY:ctrl+o", "KEY:ctrl+home"], True),
        (["/help", "KEY:shift+enter", *["KEY:a", "KEY:shift+enter"] * 12], False),
        ([*["KEY:!", "KEY:l", "KEY:shift+enter"], *["KEY:a", "KEY:shift+enter"] * 12], True),
    ]

    async def work(host: Host, pilot: Pilot[None]) -> None:
        for number, (steps, may_be_command) in enumerate(table):
            for step in steps:
                if step.startswith("KEY:"):
                    await pilot.press({"!": "exclamation_mark"}.get(step[4:], step[4:]))
                elif len(step) == 1 and step.isprintable():
                    await pilot.press({"!": "exclamation_mark"}.get(step, step))
                else:
                    await paste(host, pilot, step)
            await pilot.press("enter")
            await pilot.pause()
            assert (number, host.commands[number:]) == (number, [may_be_command])

    await with_host(tmp_path, work, size=(80, 30))


async def test_a_long_prompt_of_the_history_is_not_a_command_before_its_start_shows(tmp_path: Path) -> None:
    history = PromptHistory(None)
    history.add("!touch ran\n" + "x\n" * 30 + "end")

    async def work(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press("up", "enter")
        await pilot.press("up", "ctrl+home", "enter")

    host = await with_host(tmp_path, work, history, size=(80, 30))
    assert host.commands == [False, True]


async def test_prompts_back_from_the_queue_are_commands_only_in_sight(tmp_path: Path) -> None:
    async def work(host: Host, pilot: Pilot[None]) -> None:
        for text in (LONG * 3, "!ls"):
            host.composer.give_back(text)
            await pilot.press("enter")

    host = await with_host(tmp_path, work, size=(80, 30))
    assert host.commands == [False, True]


async def test_a_folded_paste_holds_no_control_characters(tmp_path: Path) -> None:
    async def work(host: Host, pilot: Pilot[None]) -> None:
        await paste(host, pilot, "a\x1b[2J\x07b\n" * 12)
        await pilot.press("enter")

    host = await with_host(tmp_path, work)
    assert host.heard == [("sent", "\n".join(["a[2Jb"] * 12))]
