"""Painting directly onto the terminal: little is written, and the screen equals a full redraw."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

COLUMNS, ROWS = 120, 40
STREAMED = 25_000
PROGRAM = """
import asyncio, random, sys
from textual.screen import ModalScreen
from textual.widgets import Static
from swink_agent import ToolOutcome
from swink_agent.tui.driver import TerminalApp, TerminalDriver
from swink_agent.tui.themes import THEMES
from swink_agent.tui.transcript import NoticeBlock, ReplyBlock, ToolBlock, Transcript, UserBlock
from swink_agent.tui.widgets import call_timers
from swink_agent.tui.widgets.transcript_view import TranscriptView

call_timers.FOLD_AFTER = 1e6  # by hand alone
PROSE = '''## Part %d

The *quick* brown fox jumps over the **lazy** dog, and `the_dog()` does not mind; 漢字 e\u0301 🙂 with [a link](https://e.com).

- one thing, then another, with a few more words so that a line has to be wrapped somewhere near its end, as they do

```python
def part(value: int) -> str:
    return f"{value:,}" if value > 7 else "none"
```

| name | value |
|------|-------|
| a    | %d |

'''

class Covering(ModalScreen):
    CSS = "Covering { align: center middle; } Static { width: 40; height: 5; }"
    def compose(self):
        yield Static("a dialog\\n" * 5)

class Viewer(TerminalApp):
    CSS = "TranscriptView { height: 1fr; } Static { height: 1; }"
    def __init__(self):
        super().__init__(driver_class=TerminalDriver)
        self.transcript = Transcript()
        self.view = TranscriptView(self.transcript, THEMES["dark"])
        self.view.set_motion(True)
        self.view.set_painter(self.paint)
        self.bar = Static("a bar")
    def compose(self):
        yield self.view
        yield self.bar
    def on_ready(self):
        self.work = asyncio.create_task(self.go())
    async def drawn(self):
        self.view.scroll_rows(0)
        done = asyncio.Event()
        self.call_after_refresh(done.set)
        await done.wait()
    def mark(self, name):
        self.terminal.write(f"\\x1b]777;{name}\\x07")
    async def go(self):
        try:
            await getattr(self, sys.argv[1])(*sys.argv[2:])
        finally:
            self.exit()
    async def stream(self, size):
        reply = ReplyBlock()
        self.transcript.add(reply)
        text = "".join([PROSE % (number, number) for number in range(int(size) // 300)])[:int(size)]
        await self.drawn()
        self.mark("begin")
        for start in range(0, len(text), 50):
            reply.append_text(text[start : start + 50])
            self.view.scroll_rows(0)  # a frame for each: as many as there are when nothing else goes on
        reply.finish()
        await self.drawn()
        self.mark("end")
    async def beneath(self, what):
        if what == "dialog":
            self.push_screen(Covering())
        else:
            self.notify("a dialog\\n" * 5, timeout=1e6)
        reply = ReplyBlock()
        self.transcript.add(reply)
        await self.drawn()
        for number in range(30):
            reply.append_text(PROSE % (number, number))
            self.view.scroll_rows(0)
            await self.drawn()
            self.mark(f"grown{number}")
        await asyncio.sleep(0.04)
        await self.drawn()
        self.mark("painted")
        self.refresh(layout=True)
        await self.drawn()
        self.mark("whole")
    async def anything(self, seed, steps):
        chance = random.Random(int(seed))
        replies, calls = [], []
        def begin():
            replies.append(ReplyBlock(label=chance.choice(["", "PLAN"])))
            self.transcript.add(replies[-1])
        def call():
            block = ToolBlock("id", "bash", "make all " * chance.randint(0, 9))
            calls.append(block)
            self.transcript.add(block)
            block.begin()
        def say():
            if not replies or replies[-1].is_finished:
                begin()
            text = PROSE % (chance.randint(0, 99), chance.randint(0, 99))
            replies[-1].append_text(text[: chance.randint(1, len(text))] + chance.choice(["", "\\n\\n"]))
        def end():
            if replies:
                replies[-1].finish(chance.choice(["", "aborted"]))
            for block in calls:
                if not block.is_finished:
                    block.finish(ToolOutcome.RAN, "out\\n" * chance.randint(0, 12), is_error=False, seconds=1.0)
        def fold():
            for block in calls:
                block.fold()
        ways = [
            say, say, say, say, begin, call, end, fold,
            lambda: [block.hear("more output\\n") for block in calls[-1:] if not block.is_finished],
            lambda: self.transcript.add(UserBlock("a question\\nof two lines")),
            lambda: self.view.scroll_rows(chance.choice([-1, -3, -7, -30, 1, 2, 5, 9])),
            lambda: self.view.scroll_pages(chance.choice([-1, 1])),
            lambda: self.view.follow(),
            lambda: self.view.select_tool(-1),
            lambda: self.view.toggle_selected(),
            lambda: self.view.clear_selection(),
            lambda: self.view.search(chance.choice(["fox", "none"])),
            lambda: self.view.end_search(),
            lambda: setattr(self.bar.styles, "height", chance.randint(1, 4)),
        ]
        for number in range(int(steps)):
            for _ in range(chance.randint(1, 5)):
                chance.choice(ways)()
                if chance.random() < 0.5:
                    self.view.scroll_rows(0)
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            await self.drawn()
            await asyncio.sleep(0.04)  # frames that wait for their time, on a busy machine too
            await self.drawn()
            self.mark(f"painted{number}")
            self.refresh(layout=True)
            await self.drawn()
            self.mark(f"whole{number}")

Viewer().run()
"""
_SEQUENCE = re.compile(r"\x1b\[(\??[\d;>]*)([A-Za-z@`])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[<>=78]|[\r\n]")


class Screen:
    """As much of a terminal as it takes: places, styles, regions, and lines that are deleted and inserted."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[(" ", "")] * columns for _ in range(rows)]
        self.marks: dict[str, tuple[list[str], list[list[tuple[str, str]]], int]] = {}
        self._x = self._y = 0
        self._style = ""
        self._region = (0, rows)

    def feed(self, text: str) -> None:
        at = 0
        for found in _SEQUENCE.finditer(text):
            self._write(text[at : found.start()])
            at = found.end()
            if found.group().startswith("\x1b]777;"):
                rows = ["".join([letter for letter, _ in row]) for row in self.cells]
                name = found.group()[6:-1]
                self.marks[name] = (rows, [list(row) for row in self.cells], len(text[: found.end()].encode()))
            elif found.group(2):
                self._obey(found.group(1), found.group(2))

    def _write(self, text: str) -> None:
        for letter in text:
            if unicodedata.combining(letter) and self._x:
                before, style = self.cells[self._y][self._x - 1]
                self.cells[self._y][self._x - 1] = (before + letter, style)
                continue
            wide = unicodedata.east_asian_width(letter) in "WF"
            for part in (letter, "")[: 1 + wide]:
                if self._x < self.columns:
                    self.cells[self._y][self._x] = (part, self._style)
                    self._x += 1

    def _obey(self, given: str, command: str) -> None:
        if given.startswith(("?", ">")):
            return
        numbers = [int(number or 0) for number in given.split(";")]
        if command == "m":
            self._style = "" if given in ("", "0") else self._style + given
        elif command == "H":
            self._y = min(max(numbers[0], 1), self.rows) - 1
            self._x = max(numbers[1] if len(numbers) > 1 else 1, 1) - 1
        elif command == "r":
            self._region = (numbers[0] - 1, numbers[1]) if len(numbers) > 1 else (0, self.rows)
            self._x = self._y = 0
        elif command in "LM":
            first, last = self._region
            assert first <= self._y < last
            for _ in range(max(numbers[0], 1)):
                gone, new = (self._y, last - 1) if command == "M" else (last - 1, self._y)
                del self.cells[gone]
                self.cells.insert(new, [(" ", "erased")] * self.columns)


@asynccontextmanager
async def drawn(tmp_path: Path, *arguments: str) -> AsyncIterator[str]:
    """All that the program wrote to a terminal that reads it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    os.set_blocking(master, False)
    written = bytearray()
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            written.extend(os.read(master, 1 << 20))
        except OSError:
            loop.remove_reader(master)

    loop.add_reader(master, read)
    environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    environ.pop("NO_COLOR", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *arguments), cwd=tmp_path, env=environ, stdin=slave, stdout=slave, stderr=slave
    )
    try:
        async with asyncio.timeout(120):
            assert await process.wait() == 0, bytes(written[-2000:])
        await asyncio.sleep(0.05)  # the last of it is on its way
        yield written.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        loop.remove_reader(master)
        os.close(slave)
        os.close(master)


@pytest.mark.sweep
async def test_a_stream_of_25_kilobytes_takes_less_than_a_megabyte_to_draw(tmp_path: Path) -> None:
    async with drawn(tmp_path, "stream", str(STREAMED)) as text:
        screen = Screen(COLUMNS, ROWS)
        screen.feed(text)
    size = screen.marks["end"][2] - screen.marks["begin"][2]
    assert STREAMED < size < 1_000_000
    assert "Part" in "".join(screen.marks["end"][0])


@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 20), *[pytest.param(seed, 60, marks=pytest.mark.sweep) for seed in (0, 1, 2, 3)]]
)
async def test_the_terminal_shows_what_a_drawing_of_all_of_it_would(tmp_path: Path, seed: int, steps: int) -> None:
    different: list[int] = []
    for _ in range(3):  # on a busy machine a frame may come between the two looks
        async with drawn(tmp_path, "anything", str(seed), str(steps)) as text:
            screen = Screen(COLUMNS, ROWS)
            screen.feed(text)
        assert len(screen.marks) == 2 * steps
        pairs = [(screen.marks[f"painted{number}"], screen.marks[f"whole{number}"]) for number in range(steps)]
        different = [number for number, (painted, whole) in enumerate(pairs) if painted[:2] != whole[:2]]
        if not different:
            break
    assert not different
    assert re.search(r"\x1b\[\d+M", text), "rows were moved up"
    assert re.search(r"\x1b\[\d+L", text), "and down"


@pytest.mark.parametrize("what", ["dialog", "notification"])
async def test_windows_over_the_conversation_stay_in_sight_while_it_grows(tmp_path: Path, what: str) -> None:
    async with drawn(tmp_path, "beneath", what) as text:
        screen = Screen(COLUMNS, ROWS)
        screen.feed(text)
    rows, _, _ = screen.marks["painted"]
    covered = [screen.marks[f"grown{number}"][0] for number in range(15, 30)]
    assert [len([row for row in seen if "a dialog" in row]) for seen in covered] == [5] * len(covered)
    assert any("part(value" in row for row in rows)
    assert rows == screen.marks["whole"][0]
