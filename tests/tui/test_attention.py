"""Notifications for a person who looks elsewhere; text of others in them cannot control the terminal."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from swink_agent.tui.attention import Attention, NotifyMode, notification, title

from .conftest import SpokenModel
from .test_terminal_gone import swink


def called(mode: NotifyMode, text: str, *, is_focused: bool, environ: dict[str, str] | None = None) -> list[str]:
    wrote: list[str] = []
    attention = Attention(mode, wrote.append, wrote.append, is_focused=lambda: is_focused, environ=environ or {})
    attention.call(text)
    attention.calm()
    return wrote


CALM = "\x1b]2;swink\x07"


@pytest.mark.parametrize(
    ("mode", "is_focused", "wrote"),
    [
        ("off", False, []),
        ("bell", False, ["\x07"]),
        ("auto", True, ["\x07", "\x1b]2;swink: done\x07", CALM]),
        (
            "auto",
            False,
            ["\x07", "\x1b]2;swink: done\x07", "\x1b]9;swink: done\x07\x1b]777;notify;swink;done\x07", CALM],
        ),
    ],
)
def test_each_terminal_is_notified_in_its_own_way(mode: NotifyMode, is_focused: bool, wrote: list[str]) -> None:
    assert called(mode, "done", is_focused=is_focused) == wrote


@pytest.mark.table
@pytest.mark.parametrize("text", ["\x1b]52;c;cm0=\x07", "a\x9cb", "x\ny", "\u202eevil", "a;b;c", "x" * 5000, "\udc80"])
def test_nothing_in_a_text_obeys_or_is_without_end(text: str) -> None:
    for sequence in (title(text), notification(text, {})):
        inside = sequence.replace("\x1b]2;", "").replace("\x1b]9;", "").replace("\x1b]777;notify;swink;", "")
        assert all(part.isprintable() for part in inside.replace("\x07", ""))
        assert len(sequence) < 400
        sequence.encode()
    assert notification(text, {}).count(";") == 4


def test_tmux_passes_notifications_on() -> None:
    assert notification("done", {"TMUX": "x"}).startswith("\x1bPtmux;\x1b\x1b]9;swink: done\x07\x1b\\")


FOCUS_IN, FOCUS_OUT = b"\x1b[I", b"\x1b[O"


def of_desktop(text: str) -> bytes:
    return f"\x1b]9;swink: {text}\x07\x1b]777;notify;swink;{text}\x07".encode()


@pytest.mark.sweep
async def test_a_terminal_is_notified_of_questions_and_of_the_end_of_a_long_run(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, SWINK_NOTIFY_AFTER="0.001") as running:
        await running.until(b"\x1b[?1004h")  # it asks for the focus
        await running.until(b"idle")
        # The program reads keys and focus in the order in which they were written: what it does because of the key, it
        # does without the focus. Whoever types is there, so the key comes first.
        os.write(running.terminal, b"go\r" + FOCUS_OUT)
        await model.asked()
        model.call("write_file", path="a.txt", content="x")
        model.finish()
        waits = "waits for you: write_file"
        await running.until(of_desktop(waits))
        first_title = running.drawn.index(b"\x1b]2;")
        assert b"\x1b[22;2t" in running.drawn[:first_title]  # the one that was there is kept
        assert b"\x07" + title(f"swink: {waits}").encode() + of_desktop(waits) in running.drawn
        await running.until(b"yes, once")
        answered = asyncio.create_task(model.asked(2))
        while not answered.done():  # at first no key counts
            os.write(running.terminal, b"n" + FOCUS_OUT)
            await asyncio.wait([answered], timeout=0.3)
        await answered
        await running.until(CALM.encode())
        model.reply("All right.")
        await running.until(of_desktop("done"))
        os.write(running.terminal, FOCUS_IN + b"again\r")
        await model.asked(3)
        await running.until(b"running", behind=b"again")
        model.reply("Once more.")
        await running.until(b"\x07" + title("swink: done").encode(), behind=b"again")
        os.write(running.terminal, b"/quit\r")
        assert await running.process.wait() == 0
        await running.until(b"\x1b[23;2t")
        assert running.drawn.count(of_desktop("done")) == 1
