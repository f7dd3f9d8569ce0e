"""The driver on a real terminal: input arrives quickly and unchanged, and the terminal is restored."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import asyncio, json, os, sys, time
from textual import events
from textual.widgets import Static
from swink_agent.tui.driver import RefusedPaste, TerminalApp, TerminalDriver
from swink_agent.tui.keystrokes import Keystrokes
from swink_agent.tui.composing.completer import Completer
from swink_agent.tui.composing.prompt_history import PromptHistory
from swink_agent.tui.widgets.composer import Composer

class Told(TerminalApp):
    ENABLE_COMMAND_PALETTE = False
    def compose(self):
        yield Static("transcript")
        yield Composer(history=PromptHistory(None), completer=Completer(folder="/"))
    def tell(self, *what):
        os.write(int(sys.argv[1]), json.dumps([*what, time.time()]).encode() + b"\\n")
    def on_mount(self):
        self.query_one(Composer).focus()
        self.call_after_refresh(self.tell, "ready")
    async def on_event(self, event):
        if isinstance(event, events.Key):
            self.tell("key", event.key)
        elif isinstance(event, RefusedPaste):
            self.tell("refused", event.characters)
        elif isinstance(event, events.Paste):
            self.tell("paste", event.text)
        elif isinstance(event, events.MouseDown):
            self.tell("mouse", event.x, event.y)
        await super().on_event(event)
    def on_composer_submitted(self, event):
        self.tell("sent", event.text)
        if event.text == "quit":
            self.exit()
        if event.text == "mouse":
            self.terminal.set_mouse(False)
            self.tell("mouse given")
        if event.text == "flood":
            self.begin_flood()
        if event.text == "away":
            with self.suspend():
                os.write(1, b"-- away --")
            self.tell("back")

    def begin_flood(self):
        # Keeps the event loop busy, and counts its turns from the first byte of Escape to the key.
        turns, begun, feed = [0], [], Keystrokes.feed
        def heard(keystrokes, text):
            begun.append(turns[0])
            return feed(keystrokes, text)
        async def be_busy():
            while True:
                turns[0] += 1
                await asyncio.sleep(0)
        Keystrokes.feed = heard
        self.terminal.on_escape(lambda: self.tell("turns", turns[0] - begun[-1]))
        self.flood = asyncio.create_task(be_busy())
        self.tell("flood")

Told(driver_class=TerminalDriver).run()
"""


class Program:
    """The program in its terminal, what it told, and what it drew."""

    def __init__(self, terminal: int, told: int, process: asyncio.subprocess.Process) -> None:
        self.terminal = terminal
        self.process = process
        self.drawn = b""
        self._told_fd = told
        self._data = b""
        self._news = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(terminal, self._draw)
        loop.add_reader(told, self._hear)

    def _draw(self) -> None:
        try:
            self.drawn += os.read(self.terminal, 65536)
        except OSError:
            asyncio.get_running_loop().remove_reader(self.terminal)
        self._news.set()

    def _hear(self) -> None:
        data = os.read(self._told_fd, 65536)
        self._data += data
        if not data:
            asyncio.get_running_loop().remove_reader(self._told_fd)
        self._news.set()

    @property
    def told(self) -> list[list[Any]]:
        return [json.loads(line) for line in self._data.split(b"\n")[:-1]]

    def kinds(self, kind: str) -> list[Any]:
        return [line[1] for line in self.told if line[0] == kind]

    async def until(self, kind: str, count: int = 1) -> list[Any]:
        """Waits until so many of a kind have been told, and gives the last."""
        async with asyncio.timeout(30):
            while len(found := [line for line in self.told if line[0] == kind]) < count:
                self._news.clear()
                await self._news.wait()
        return found[count - 1]

    async def until_drawn(self, text: bytes) -> None:
        """Waits until that has been written to the terminal."""
        async with asyncio.timeout(30):
            while text not in self.drawn and text not in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", self.drawn):
                self._news.clear()
                await self._news.wait()

    async def type(self, data: bytes) -> None:
        """Writes as fast as it is read, and no faster."""
        os.set_blocking(self.terminal, False)
        loop = asyncio.get_running_loop()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.terminal, rest[:65536]) :]
            except BlockingIOError:
                room = loop.create_future()
                loop.add_writer(self.terminal, lambda room=room: room.done() or room.set_result(None))
                await room
                loop.remove_writer(self.terminal)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.terminal)
        loop.remove_reader(self._told_fd)


@asynccontextmanager
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    terminal, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    told, telling = os.pipe()
    environ = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", PROGRAM, str(telling)],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        pass_fds=(telling,),
        env=environ,
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(telling)
    running = Program(terminal, told, process)
    try:
        await running.until("ready")
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        running.close()
        for fd in (terminal, inner, told):
            os.close(fd)


@pytest.mark.sweep
async def test_a_signal_to_go_on_without_a_stop_of_ours_begins_anew_and_not_twice(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        await running.type(b"kept")
        await running.until_drawn(b"kept")
        running.process.send_signal(signal.SIGCONT)
        await running.until_drawn(b"\x1b[?1049l")
        running.drawn = running.drawn[running.drawn.index(b"\x1b[?1049l") :]
        await running.until_drawn(b"\x1b[?7l")  # the last of what a start writes
        assert running.drawn.count(b"\x1b[?1049h") == running.drawn.count(b"\x1b[?1049l") == 1
        await running.type(b" and more\r")
        assert (await running.until("sent"))[1] == "kept and more"


@pytest.mark.sweep
async def test_an_alt_enter_that_comes_in_two_pieces_is_one(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        for tries in range(10):
            start = time.monotonic()
            await running.type(b"one\x1b")
            await running.type(b"\rtwo\r")
            are_near = time.monotonic() - start < 0.03
            sent = (await running.until("sent", 2 * tries + 1))[1]
            if are_near or sent != "one":
                break
            await running.until("sent", 2 * tries + 2)  # a busy machine held us up: those were two keys
        assert sent in ("one\ntwo", "one\rtwo")
        assert "alt+enter" in running.kinds("key")


async def test_escape_alone_is_told_at_once(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        waits: list[float] = []
        while len(waits) < 5 or (min(waits) >= 0.1 and len(waits) < 20):
            start = time.time()
            await running.type(b"\x1b")
            heard = await running.until("key", len(waits) + 1)
            assert heard[1] == "escape"
            waits.append(heard[2] - start)
        assert min(waits) < 0.1


async def test_the_loop_waits_for_escape_and_then_does_nothing_else_first(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        await running.type(b"flood\r")
        await running.until("flood")
        for count in range(1, 4):
            await running.type(b"\x1b")
            assert (await running.until("turns", count))[1] < 10  # without the wait they are thousands
            assert (await running.until("key", 6 + count))[1] == "escape"


async def test_keys_and_pastes_arrive_unchanged_and_the_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        await running.type(b"\x1b[200~one\rtwo\x1b[31m\x1b[201~")
        assert (await running.until("paste"))[1] == "one\rtwo\x1b[31m"
        await running.type(b"x\r")
        assert (await running.until("sent"))[1] == "one\ntwo[31mx"
        assert len(running.kinds("sent")) == 1
        await running.type(b"one\x1b\rtwo\x1b[13;2uthree\x1b[27;2;13~four\x1b[13;3ufive\nsix\r")
        assert (await running.until("sent", 2))[1] == "one\ntwo\nthree\nfour\nfive\nsix"
        await running.type(b"a\xff\xfe\xc3b\r")  # which is not text
        sent = (await running.until("sent", 3))[1]
        assert sent.startswith("a")
        assert sent.endswith("b")
        await running.type(b"quit\r")
        async with asyncio.timeout(60):
            assert await running.process.wait() == 0
        for mode in (b"\x1b[?1049l", b"\x1b[<u", b"\x1b[>4;0m", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[?1006l"):
            await running.until_drawn(mode)


@pytest.mark.sweep
async def test_a_paste_of_fifty_megabytes_is_refused_while_keys_are_taken(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        start = time.monotonic()
        await running.type(b"\x1b[200~" + b"x" * 50_000_000 + b"\x1b[201~")
        assert (await running.until("refused"))[1] == 50_000_000
        await running.type(b"still here\r")
        assert (await running.until("sent"))[1] == "still here"
        assert time.monotonic() - start < 25
        await running.until_drawn(b"50,000,000")


@pytest.mark.sweep
async def test_control_c_ends_a_paste_whose_end_was_lost(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        await running.type(b"\x1b[200~half")
        await asyncio.sleep(1.2)
        await running.type(b"\x03")
        assert (await running.until("paste"))[1] == "half"
        assert (await running.until("key"))[1] == "ctrl+c"


@pytest.mark.sweep
async def test_the_mouse_is_taken_and_can_be_given_back(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        await running.type(b"\x1b[<0;5;3M\x1b[<0;5;3m")
        assert (await running.until("mouse"))[1:3] == [4, 2]
        assert b"\x1b[?1003h" not in running.drawn  # not every movement
        await running.type(b"mouse\r")
        await running.until("mouse given")
        await running.until_drawn(b"\x1b[?1000l")


@pytest.mark.sweep
async def test_keys_are_read_again_after_the_terminal_was_given_away(tmp_path: Path) -> None:
    async with program(tmp_path) as running:
        for number in (1, 2):
            await running.type(b"away\r")
            await running.until("back", number)
        await running.type(b"here\r")
        assert (await running.until("sent", 3))[1] == "here"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the processor time from /proc")
@pytest.mark.sweep
async def test_nothing_runs_while_nothing_is_typed(tmp_path: Path) -> None:
    def used(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    async with program(tmp_path) as running:
        await running.type(b"a")
        await running.until("key")
        await asyncio.sleep(0.5)
        best = 100
        for _ in range(3):
            before = used(running.process.pid)
            await asyncio.sleep(1)
            best = min(best, used(running.process.pid) - before)
        assert best <= 1  # hundredths of a second
