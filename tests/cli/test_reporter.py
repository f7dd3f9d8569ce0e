"""The output on stderr, on a terminal and elsewhere, verbose and quiet."""

from __future__ import annotations

import io
import logging
import re
from typing import Any

import pytest

from swink_agent import Agent, DefaultRetryStrategy, PreDispatchContext, Skip, tool
from swink_agent.app.runs.headless import HeadlessRun
from swink_agent.app.runs.telling import size_of, summary_of
from swink_agent.cli.prompt.reporter import Reporter
from swink_agent.cli.screen.screen import Screen
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.local.events import LocalModelEvent, LocalState
from swink_agent.rendering.escaping import safe_text
from swink_agent.testing import call, fail, scripted, text, think

from .emulator import Emulator

SECRET = "canary-of-the-reporter-0815"


def plain(shown: str) -> str:
    """With placeholders cut down to what all of them have."""
    return re.sub(r"\[redacted:[^\]]*\]", "[redacted]", shown)


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@tool
def look(where: str) -> str:
    """Looks."""
    if where == "nowhere":
        raise ValueError("there is nothing\nmore on this")
    return f"seen {where} {SECRET}\x1b[2J"


def made(*, terminal: bool = True, loudness: Any = "normal", clock: Any = None) -> tuple[Reporter, Stream]:
    stream = Stream(terminal)
    ticks = iter(range(10_000))
    screen = Screen(stream, colours=False, width=lambda: 60, live=terminal)
    return Reporter(screen, Redactor([SECRET]), loudness, clock=clock or (lambda: float(next(ticks)))), stream


async def told(*replies: Any, **options: Any) -> str:
    reporter, stream = made(**options)
    strategy = DefaultRetryStrategy(base_delay=0)
    agent = Agent("any:model", stream_fn=scripted(*replies), tools=[look], retry_strategy=strategy)
    with agent.subscribe(reporter.on_event):
        reporter.finish(await HeadlessRun(agent).run("go"))
    return stream.getvalue()


def left(shown: str) -> list[str]:
    """The lines that stay when all the erasing is done."""
    return [line.rsplit("\r\x1b[K", 1)[-1] for line in shown.split("\n")]


CALLS = [call("look", where="here") + call("look", where="nowhere"), text("Seen.", deltas=3)]


async def test_a_terminal_gets_a_line_for_each_call_and_a_line_that_does_not_stay() -> None:
    shown = await told(*CALLS)
    lines = left(shown)
    assert re.fullmatch(r"✓ look where='here' \d+ ms", lines[0])
    assert re.fullmatch(r"✗ look where='nowhere' \d+ ms ValueError: there is nothing", lines[1])
    assert lines[2:] == [""]
    for status in ("waiting for the model …", "look where='here' …", "See"):
        assert status in shown


async def test_a_delegate_shows_what_it_does_in_the_live_line_and_its_call_in_a_row() -> None:
    inner = Agent("any:model", stream_fn=scripted(call("look", where="below"), text("seen")), tools=[look])
    agent = Agent(
        "any:model",
        stream_fn=scripted(call("research", prompt="the cellar"), text("Done.")),
        tools=[inner.as_tool("research", "Looks.")],
    )
    reporter, stream = made()
    with agent.subscribe(reporter.on_event):
        await agent.prompt("go")
    shown = plain(stream.getvalue())
    assert "look where='below'" in shown
    rows = left(stream.getvalue())
    assert rows[1:] == [""]
    assert rows[0].startswith("✓ research the cellar")


async def test_a_call_that_never_started_is_told_with_what_it_was_about() -> None:
    class Once:
        def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
            return Skip("not that") if ctx.turn_index == 0 else None

    reporter, stream = made()
    replies = [call("look", where="here"), call("look", path="x"), call("hear", what="it"), text("Well.")]
    agent = Agent("any:model", stream_fn=scripted(*replies), tools=[look], policies=[Once()])
    with agent.subscribe(reporter.on_event):
        reporter.finish(await HeadlessRun(agent).run("go"))
    lines = left(stream.getvalue())
    assert lines[0] == "✗ look where='here' tool call skipped: not that"
    assert lines[1] == "✗ look x"  # why stands beneath it, as it is long
    assert "✗ hear what='it' unknown tool 'hear'; available: look" in lines


async def test_elsewhere_nothing_is_live() -> None:
    assert await told(*CALLS, terminal=False) == ""
    assert await told(*CALLS, loudness="quiet") == ""


async def test_verbose_tells_thoughts_results_and_usage_anywhere() -> None:
    shown = await told(think("hm") + call("look", where="here"), text("Seen."), terminal=False, loudness="verbose")
    thought, called, result, usage, end = shown.split("\n")
    assert thought == "  ~ hm"
    assert called.startswith("✓ look where='here' ")
    assert plain(result) == "  │ seen here [redacted]\\u{1b}[2J"
    assert usage.startswith("any:model: 2 turns, 1 call, 0 tokens in, 0 out, ")
    assert end == ""


async def test_retries_and_failures_are_told_unless_it_is_to_be_quiet() -> None:
    shown = await told(fail("network", "reset"), fail("invalid_request", f"bad {SECRET}"), terminal=False)
    assert plain(shown) == "warning: attempt 1 failed, the next is in 0 ms: reset\nerror: bad [redacted]\n"
    quiet = await told(fail("network", "reset"), fail("invalid_request", "bad"), loudness="quiet")
    assert quiet == "error: bad\n"


async def test_silence_of_the_model_is_told() -> None:
    assert await told(text(""), terminal=False) == "warning: the model ended without an answer\n"


async def test_a_secret_never_shows_in_the_live_line_however_it_is_split() -> None:
    shown = await told(text(f"the key is {SECRET} and so on and on", deltas=30))
    assert SECRET not in shown
    assert "canary-of" not in shown


def test_the_librarys_warnings_are_ours() -> None:
    reporter, stream = made(terminal=False)
    handler = reporter.log_handler()
    handler.handle(logging.LogRecord("swink_agent", logging.WARNING, "", 0, "odd %s\x1b[2J", (SECRET,), None))
    assert plain(stream.getvalue()) == "warning: odd [redacted]\\u{1b}[2J\n"


# -- the model on this machine -------------------------------------------------------------------------------


def fetch(done: int, total: int = 1000, message: str = "") -> LocalModelEvent:
    return LocalModelEvent(LocalState.FETCHING, "tiny", message, done, total)


def test_a_download_is_a_bar_on_a_terminal() -> None:
    reporter, stream = made()
    for done in (0, 500, 1000):
        reporter.on_local_state(fetch(done))
    reporter.on_local_state(LocalModelEvent(LocalState.LOADING, "tiny"))
    reporter.on_local_state(LocalModelEvent(LocalState.READY, "tiny", done=10, total=40))
    reporter.on_local_state(LocalModelEvent(LocalState.READY, "tiny"))
    shown = stream.getvalue()
    assert "fetching tiny [██████████░░░░░░░░░░] 50% of 1 kB, " in shown
    assert "loading tiny …" in shown
    assert "reading the prompt: 10 of 40 tokens …" in shown
    assert left(shown) == [""]


def test_a_download_is_a_few_lines_in_a_log_and_none_when_quiet() -> None:
    reporter, stream = made(terminal=False)
    reporter.on_local_state(fetch(0, 0, "asking the hub"))
    for done in range(0, 1001, 7):
        reporter.on_local_state(fetch(done))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "fetching tiny: asking the hub"
    assert len(lines) <= 12
    quiet, nothing = made(loudness="quiet")
    quiet.on_local_state(fetch(10))
    assert nothing.getvalue() == ""


# -- small things --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "summary"),
    [
        ("bash", {"command": "ls -l", "timeout": 3}, "ls -l"),
        ("read_file", {"path": "a/b", "offset": 3}, "a/b"),
        ("search", {"pattern": "x+", "glob": "*.py"}, "x+ *.py"),
        ("other", {"a": 1, "b": "c"}, "a=1, b='c'"),
    ],
)
def test_a_call_is_told_in_a_few_words(name: str, arguments: dict[str, Any], summary: str) -> None:
    assert summary_of(name, arguments) == summary


def test_sizes_are_told_as_people_say_them() -> None:
    assert [size_of(n) for n in (0, 999, 98_362_432, 1_117_320_768)] == ["0 B", "999 B", "98 MB", "1.1 GB"]


def test_text_for_a_terminal_keeps_lines_and_loses_tricks() -> None:
    assert safe_text("a\r\nb\tc é 漢\x1b]0;x\x07\u202e\u200b") == "a\nb\tc é 漢\\u{1b}]0;x\\u{7}\\u{202e}\\u{200b}"


def test_a_status_line_never_wraps_and_comes_back_after_a_line() -> None:
    stream = Stream(True)
    screen = Screen(stream, colours=False, width=lambda: 20, live=True)
    screen.status("漢" * 30)
    screen.line("kept")
    screen.clear()
    assert stream.getvalue() == "漢" * 9 + "\r\x1b[Kkept\n" + "漢" * 9 + "\r\x1b[K"


def test_a_status_line_in_a_window_that_was_made_narrower_goes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XTERM_VERSION", raising=False)
    stream, width = Stream(True), 60
    screen = Screen(stream, colours=False, width=lambda: width, live=True)
    screen.status("x" * 50)
    width = 20
    screen.line("kept")
    assert stream.getvalue() == "x" * 50 + "\r\x1b[2A\x1b[Jkept\n" + "x" * 19


async def test_a_call_takes_one_row_at_any_width_and_says_below_why_it_failed() -> None:
    for width in (10, 20, 40, 80, 200):
        stream = Stream(True)
        screen = Screen(stream, colours=False, width=lambda width=width: width, live=True)
        reporter = Reporter(screen, Redactor([]))
        agent = Agent("any:model", stream_fn=scripted(call("look", where="漢字 " * 40), *CALLS), tools=[look])
        with agent.subscribe(reporter.on_event):
            await agent.prompt("go")
        window = Emulator(width)
        window.feed(stream.getvalue())
        assert window.wrapped == []
        rows = [row for row in window.rows if row]
        assert [row[0] for row in rows if row[0] in "✓✗"] == ["✓", "✓", "✗"]
        assert width == 10 or "nothing" in "".join(rows)


async def test_text_before_a_failure_is_reported_though_it_is_not_an_answer() -> None:
    shown = await told(text("Half of it") + fail("invalid_request", "bad"))
    assert left(shown) == ["» Half of it", "error: bad", ""]


def test_a_closed_stream_does_not_cause_a_failure() -> None:
    stream = Stream(True)
    screen = Screen(stream, colours=False)
    stream.close()
    screen.line("x")
    screen.status("y")
    assert stream.closed
