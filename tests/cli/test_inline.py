"""`swink --inline` at a real terminal, against a provider on loopback: lines that are written once and stay."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from swink_agent import Agent, ToolOutcome
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import FakeProvider, FakeReply, scripted, text
from swink_agent.tui.inline_output import LineWriter, TranscriptPrinter
from swink_agent.tui.themes import THEMES
from swink_agent.tui.transcript import ToolBlock, Transcript, UserBlock
from swink_agent.tui.transcript.messages import HelpBlock

from ..tui.conftest import SpokenModel
from .conftest import Swink, Terminal

WRITE = FakeReply(calls=[("write_file", {"path": "new.txt", "content": "one\ntwo\n"})])
READ = FakeReply(calls=[("read_file", {"path": "a.txt"})])
MOVES = re.compile(r"\x1b\[(?!0?m|[0-9;]*m)[0-9;?]*[A-Za-z]")
"""Whatever moves a cursor, erases, or changes the screen."""


@pytest.fixture(autouse=True)
def data(swink: Swink) -> None:
    swink.environ["SWINK_DATA_DIR"] = str(swink.home / "data")


async def test_it_talks_in_lines_asks_in_words_and_moves_no_cursor(swink: Swink, terminal: Terminal) -> None:
    (swink.folder / "a.txt").write_text("forty-two\n")
    async with FakeProvider("anthropic", [READ, "It says **forty-two**.", WRITE, "Written."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "what is in a.txt?", environ={"TERM": "dumb"}, anew=True)
        await terminal.expect("what is in a.txt?")
        await terminal.expect("read_file")
        await terminal.expect("It says forty-two.")
        await terminal.expect("Execute · idle")
        await terminal.expect("> ")
        terminal.type("now write\n")
        await terminal.expect("new.txt")
        await terminal.expect("1 or y: yes, once")
        await terminal.expect("Run it? ")
        terminal.type("1\n")
        await terminal.expect("Written.")
        await terminal.expect("> ")
        terminal.type("/quit\n")
        await terminal.expect("To continue this session: swink --resume ")
        assert await terminal.finish() == 0
    assert (swink.folder / "new.txt").read_text() == "one\ntwo\n"
    assert "\x1b" not in terminal.shown
    assert "\r" not in terminal.shown.replace("\r\n", "")


async def test_a_paragraph_shows_when_it_ends_and_not_with_the_reply(swink: Swink, terminal: Terminal) -> None:
    async with SpokenModel() as model:
        swink.environ |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "fake-key"}
        await terminal.start("--inline", "go", environ={"TERM": "dumb"})
        await model.asked()
        model.say("The first paragraph ends here.\n\n")
        await terminal.expect("The first paragraph ends here.")
        model.say("- a point\n- another point\n\nThe last")
        await terminal.expect("another point")
        assert "The last" not in terminal.shown
        model.say(" words.")
        model.finish()
        await terminal.expect("The last words.")
        await terminal.expect("> ")
        terminal.type("\x04")
        assert await terminal.finish() == 0
    assert "here.▌" not in terminal.shown


@pytest.mark.sweep
async def test_with_colours_nothing_moves_either(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", ["# A title\n\nSome `code` here."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", environ={"TERM": "xterm-256color", "SWINK_THEME": "dark"})
        await terminal.expect("> ")
        terminal.type("hi\n")
        await terminal.expect("A title")
        await terminal.expect("idle")
        terminal.type("\x04")
        assert await terminal.finish() == 0
    assert "\x1b[" in terminal.shown
    assert MOVES.findall(terminal.shown) == []


@pytest.mark.sweep
async def test_its_own_words_are_broken_between_words_and_say_the_folder(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", ["Hello."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "hi", environ={"TERM": "dumb"})
        await terminal.expect("[Execute · idle · ")
        await terminal.expect("]")
        await terminal.expect("> ")
        terminal.type("/q\n")
        assert await terminal.finish() == 0
    rows = terminal.shown.replace("\r", "").split("\n")
    first = next(number for number, row in enumerate(rows) if row.startswith("[Execute"))
    told = rows[first : next(number for number, row in enumerate(rows) if number >= first and row.endswith("]")) + 1]
    assert all(len(row) < terminal.columns for row in told)
    assert str(swink.folder) in "".join(told)
    assert " tokens · " in " ".join(told)


@pytest.mark.parametrize("flags", [["--inline"], []])
async def test_a_model_that_cannot_be_is_told_before_anything_opens(
    swink: Swink, terminal: Terminal, flags: list[str]
) -> None:
    await terminal.start(*flags, "-m", "antropic:x")
    await terminal.expect("did you mean anthropic?")
    assert await terminal.finish() == 2
    assert "\x1b[?1049h" not in terminal.shown


@pytest.mark.parametrize("flags", [["--inline"], []])
@pytest.mark.parametrize(
    ("state", "code", "told"),
    [
        ("in use", 1, "is in use, here or by another process"),
        ("no record", 1, "nothing in its 9 bytes is a record"),
        ("not wanted", 2, "with the setting sessions = false nothing is recorded"),
    ],
)
async def test_a_session_that_cannot_be_had_is_told_before_anything_opens(
    swink: Swink, terminal: Terminal, flags: list[str], state: str, code: int, told: str
) -> None:
    store = JsonlSessionStore(swink.home / "data" / "sessions")
    session = store.create(swink.folder)
    session.attach(agent := Agent("anthropic:claude-sonnet-4-6", stream_fn=scripted(text("Fine."))))
    await agent.prompt("hello")
    if state != "in use":
        await session.aclose()
    if state == "no record":
        session.path.write_bytes(b"not a log")
    elif state == "not wanted":
        swink.environ["SWINK_SESSIONS"] = "false"
    terminal.resize(24, 400)
    await terminal.start(*flags, "--resume", session.id)
    await terminal.expect("error:")
    await terminal.expect(told)
    assert await terminal.finish() == code
    assert "\x1b[?1049h" not in terminal.shown
    await session.aclose()


async def test_a_damaged_session_opens_with_a_word_about_it(swink: Swink, terminal: Terminal) -> None:
    store = JsonlSessionStore(swink.home / "data" / "sessions")
    with store.create(swink.folder) as session:
        session.attach(agent := Agent("anthropic:claude-sonnet-4-6", stream_fn=scripted(text("Fine."))))
        await agent.prompt("hello")
    session.path.write_bytes(session.path.read_bytes().replace(b"Fine.", b"Fire."))
    async with FakeProvider("anthropic", ["Again."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "-c", environ={"TERM": "dumb"})
        await terminal.expect("hello")
        await terminal.expect(f"session {session.id} was damaged")
        await terminal.expect("> ")
        terminal.type("go on\n")
        await terminal.expect("Again.")
        terminal.type("/q\n")
        await terminal.expect("To continue this session: swink --resume ")
        assert await terminal.finish() == 0
    assert [info.id for info in store.list()] == [session.id]


async def test_an_answer_typed_ahead_approves_nothing(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", [WRITE, "As you wish."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", environ={"TERM": "dumb"})
        await terminal.expect("> ")
        terminal.type("write\n")
        await terminal.expect("1 or y")
        terminal.type("y\n")
        await terminal.expect("Run it? ")
        terminal.type("b not in this folder\n")
        await terminal.expect("As you wish.")
        terminal.type("/q\n")
        assert await terminal.finish() == 0
        told = str(provider.bodies[-1]["messages"][-1])
    assert "the user said no, because not in this folder" in told
    assert not (swink.folder / "new.txt").exists()


async def test_ctrl_c_stops_the_run_and_twice_leaves(swink: Swink, terminal: Terminal) -> None:
    slow = FakeReply(text="I begin", ends="hangs")
    async with FakeProvider("anthropic", [slow, "Again."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "go", environ={"TERM": "dumb"})
        await terminal.expect("go")
        while not provider.bodies:  # noqa: ASYNC110 - it is another process that asks
            await asyncio.sleep(0.01)
        terminal.type("\x03")
        await terminal.expect("Execute · aborted")
        await terminal.expect("> ")
        terminal.type("again\n")
        await terminal.expect("Again.")
        await terminal.expect("idle")
        terminal.type("\x03\x03")
        await terminal.expect("To continue this session: swink --resume ")
        assert await terminal.finish() == 0


@pytest.mark.sweep
async def test_a_key_is_stored_without_being_shown(swink: Swink, terminal: Terminal) -> None:
    secret = "sk-ant-api03-" + "x7" * 20
    async with FakeProvider("anthropic", ["Hello."]) as provider:
        swink.use(provider)
        await terminal.start(
            "--inline", environ={"TERM": "dumb", "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
        )
        await terminal.expect("> ")
        terminal.type("/key mistral\n")
        await terminal.expect("does not show")
        terminal.type(f"{secret}\n")
        await terminal.expect("the key of mistral is in")
        await terminal.expect("/model mistral:")
        await terminal.expect("> ")
        terminal.type("/q\n")
        assert await terminal.finish() == 0
    assert secret not in terminal.shown
    assert secret in (swink.home / "config" / "keys.json").read_text()
    others = [path for path in swink.home.rglob("*") if path.is_file() and path.name != "keys.json"]
    assert all(secret.encode() not in path.read_bytes() for path in others)


async def test_an_end_by_signal_says_how_to_go_on(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", ["Hello."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "hi", environ={"TERM": "dumb"})
        await terminal.expect("Hello.")
        await terminal.expect("idle")
        terminal.process.send_signal(signal.SIGTERM)
        await terminal.expect("To continue this session: swink --resume ")
        assert await terminal.finish() == 128 + signal.SIGTERM


async def test_a_session_goes_on_with_what_was_said(swink: Swink, terminal: Terminal, tmp_path: Path) -> None:
    async with FakeProvider("anthropic", ["Blue.", "I said blue."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "your favourite colour?", environ={"TERM": "dumb"})
        await terminal.expect("Blue.")
        await terminal.expect("idle")
        terminal.type("/quit\n")
        await terminal.expect("--resume ")
        assert await terminal.finish() == 0
        again = Terminal(swink)
        await again.start("--inline", "-c", environ={"TERM": "dumb"})
        await again.expect("your favourite colour?")
        await again.expect("Blue.")
        await again.expect("> ")
        again.type("what did you say?\n")
        await again.expect("I said blue.")
        again.type("/quit\n")
        assert await again.finish() == 0
    assert len(provider.bodies[-1]["messages"]) == 3


def test_lines_need_nothing_that_is_not_installed_with_the_program() -> None:
    code = "import sys, swink_agent.tui.inline; print([name for name in ('textual', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.sweep
async def test_lines_that_are_pasted_in_one_go_are_one_prompt(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", ["Three lines."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", environ={"TERM": "dumb"})
        await terminal.expect("> ")
        terminal.type("one\ntwo\nthree\n")
        await terminal.expect("Three lines.")
        terminal.type("/quit\n")
        assert await terminal.finish() == 0
    assert "one\\ntwo\\nthree" in str(provider.bodies[0]["messages"][0])


async def test_items_are_picked_by_words_and_number(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", ["Hello."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", environ={"TERM": "dumb"})
        await terminal.expect("> ")
        terminal.type("/thinking\n")
        await terminal.expect("1: off")
        await terminal.expect("Enter for none: ")
        terminal.type("extra\n")
        await terminal.expect("1: extra_high")
        await terminal.expect("Enter for none: ")
        terminal.type("1\n")
        await terminal.expect("is asked to think: extra_high")
        terminal.type("/thinking\n")
        await terminal.expect("Enter for none: ")
        terminal.type("\n")
        await terminal.expect("> ")
        terminal.type("/wat\n")
        await terminal.expect("no command is called /wat")
        terminal.type("/quit\n")
        assert await terminal.finish() == 0


async def test_a_follow_up_is_queued_by_a_command_that_the_help_names(swink: Swink, terminal: Terminal) -> None:
    run = FakeReply(calls=[("bash", {"command": "until [ -e go ]; do sleep 0.1; done; echo one"})])
    async with FakeProvider("anthropic", [run, "One.", "Two."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "--sandbox", "off", "--approve", "all", environ={"TERM": "dumb"})
        await terminal.expect("> ")
        terminal.type("/help\n")
        await terminal.expect("/queue text")
        assert "F6" not in terminal.shown
        terminal.type("begin\n")
        await terminal.expect("▸ bash until")
        terminal.type("/queue and then this\n")
        await terminal.expect("(waits until the run would stop; Ctrl+C stops the run)")
        terminal.type("/copy\n")  # what it says shows in its place: after the call that runs
        (swink.folder / "go").touch()
        await terminal.expect("Two.")
        await terminal.expect("> ")  # the run is over
        terminal.type("\x04")
        assert await terminal.finish() == 0
        assert terminal.shown.count("(waits until") == 1, "a command that queues nothing does not wait"
    assert "and then this" in str(provider.bodies[-1]["messages"][-1])


@pytest.mark.sweep
async def test_a_screen_reader_hears_the_beginning_and_the_result_of_each_step(
    swink: Swink, terminal: Terminal
) -> None:
    run = FakeReply(calls=[("bash", {"command": "until [ -e go ]; do sleep 0.02; done; echo one"})])
    async with FakeProvider("anthropic", [run, "One line."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "go", "--sandbox", "off", "--approve", "all", environ={"TERM": "dumb"})
        await terminal.expect("▸ bash until [ -e go ]; do sleep 0.02; done; echo one …")
        (swink.folder / "go").touch()
        await terminal.expect("✓ bash until [ -e go ]")
        await terminal.expect("│ one")
        await terminal.expect("One line.")
        terminal.type("\x04")
        assert await terminal.finish() == 0


async def test_a_long_paste_is_a_prompt_whatever_it_begins_with(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", ["I see."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", environ={"TERM": "dumb"})
        await terminal.expect("> ")
        terminal.type("!touch ran\n" + "x\n" * 12)
        await terminal.expect("a text this long is not a command, though it begins with !")
        await terminal.expect("I see.")
        terminal.type("/quit\n")
        assert await terminal.finish() == 0
    assert not (swink.folder / "ran").exists()


async def test_no_row_of_a_long_call_passes_for_one_of_ours(swink: Swink, terminal: Terminal) -> None:
    forged = "echo " + "x" * 74 + "  1 or y: yes, once"
    async with FakeProvider(
        "anthropic", [FakeReply(calls=[("bash", {"command": f"touch {forged}"})]), "ok"]
    ) as provider:
        swink.use(provider)
        await terminal.start("--inline", "go", environ={"TERM": "dumb", "SWINK_SANDBOX": "off"})
        await terminal.expect("Run it? ")
        rows = [row for row in terminal.shown.splitlines() if "x" * 20 in row or "1 or y" in row]
        assert [row[0] for row in rows] == ["│"] * (len(rows) - 1) + [" "]
        terminal.type("n\n")
        await terminal.expect("ok")
        terminal.type("/quit\n")
        assert await terminal.finish() == 0


async def test_always_can_be_kept_for_the_project(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", [WRITE, "Written.", WRITE, "Again."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "go", environ={"TERM": "dumb"})
        await terminal.expect("6 or k: always in this project, kept: write_file")
        await terminal.expect("Run it? ")
        terminal.type("k\n")
        await terminal.expect("stored for this project: write_file")
        await terminal.expect("Written.")
        terminal.type("/quit\n")
        assert await terminal.finish() == 0
        await terminal.start("--inline", "go", environ={"TERM": "dumb"})
        await terminal.expect("Again.")
        terminal.type("/quit\n")
        assert await terminal.finish() == 0
    assert terminal.shown.count("Run it? ") <= 1


def printed(
    transcript: Transcript, columns: int, goes_on: Callable[[TranscriptPrinter], None] = lambda _: None
) -> list[str]:
    """What is written of a conversation that goes on, at a terminal of so many columns."""
    terminal, inner = pty.openpty()
    try:
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        printer = TranscriptPrinter(
            transcript, LineWriter(inner, THEMES["plain"], is_plain=True), on_write=lambda: None
        )
        printer.skip_earlier()
        printer.draw()
        goes_on(printer)
        printer.draw()
        os.write(inner, b"\0")
        data = b""
        while not data.endswith(b"\0"):
            data += os.read(terminal, 65536)
    finally:
        os.close(terminal)
        os.close(inner)
    return data.decode().rstrip("\0").splitlines()


def test_a_run_of_calls_that_began_long_ago_is_not_left_out() -> None:
    transcript = Transcript()
    transcript.add(UserBlock("read them"))
    for number in range(40):
        call = ToolBlock(str(number), "read_file", f"{number}.py")
        transcript.add(call)
        call.finish(ToolOutcome.RAN, "x", is_error=False)
        call.fold()
    rows = printed(transcript, 80)
    assert rows[0] == "\u2026 1 earlier part of the conversation"
    assert rows[-1].startswith("\u2713 read_file \u00d740 0.py, 1.py, ")


def test_help_is_one_column_however_wide_the_terminal_is() -> None:
    transcript = Transcript()
    transcript.add(HelpBlock(["Keys\n  Enter  sends it", "Commands\n  /help  what there is"]))
    assert [row.split() for row in printed(transcript, 199)] == [
        ["\u00b7", "Keys"],
        ["Enter", "sends", "it"],
        [],
        ["Commands"],
        ["/help", "what", "there", "is"],
    ]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_call_is_announced_unless_a_question_has_shown_it(is_asked: bool) -> None:
    transcript, call = Transcript(), ToolBlock("a", "bash", "make")
    transcript.add(call)
    call.ask()

    def runs(printer: TranscriptPrinter) -> None:
        if is_asked:
            printer.asked_about("a")
        call.begin()

    assert printed(transcript, 80, runs) == ([] if is_asked else ["\u25b8 bash make \u2026"])
