"""Measures the CPU seconds of the terminal UI in a real pseudo-terminal, against a server on loopback.

    python -m bench.tui [--quick] [--check]

A loop of plain Python is timed in the same run (`calibration`), so that figures of two machines can be compared. The
server streams markdown, 250 chunks a second. It works only on Linux: the CPU time of a process is read from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from swink_agent.core.journal import MessageAdded
from swink_agent.core.types import AssistantMessage, Text, ToolCall, ToolResultMessage, UserMessage
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import LoopbackServer
from swink_agent.testing.servers import ReceivedRequest

from .__main__ import print_table

CHUNKS, RATE = 5_000, 250
MESSAGES = 500
KEYS = 40
COLUMNS, ROWS = 120, 40
FLOODS = {
    "a flood": ("", ""),
    "a flood of words": ("", "word and another word that says nothing much at all, "),
    "a flood of code": (
        "```python\n",
        "def part(value: int):\n    return f'{value:,}' if value > 3 else 'none'\n",
    ),
    "a flood of lists": ("", "- one thing, then *another*, with `a few` more words so that a line has to be wrapped\n"),
    "a flood of paragraphs": (
        "",
        "The *quick* brown fox jumps over the **lazy** dog, and `the_dog()` does not mind.\n\n",
    ),
}
"""How each begins, and what is said again and again; "" is the usual Markdown."""
LIMITS = {
    "first key echoed (s)": 0.9,
    "streaming, per 1,000 chunks (s)": 0.8,
    "streaming at 500 messages (x)": 1.1,
    **{f"Esc under {flood} (s)": 0.1 for flood in FLOODS},
    "memory at 500 messages (MB)": 110.0,
    "40 keys at 500 messages (s)": 0.2,
    "idle (%)": 0.3,
    "resuming 500 messages (s more)": 0.3,
    "screen cleared after the start": 0.0,
    "written per streamed KB (KB)": 40.0,
}
PROSE = """\
## Part {number}

The *quick* brown fox jumps over the **lazy** dog, and `the_dog()` does not mind; see [the docs](https://example.com/{number}).

- one thing, then another, with a few more words so that a line has to be wrapped somewhere near its end, as they do
- and a second
  1. nested

```python
def part_{number}(value: int) -> str:
    # what a model writes all day
    return f"{{value:,}}" if value > {number} else "none"
```

| name | value |
|------|-------|
| a    | {number} |

> A quotation, at last.

"""


def calibration() -> float:
    """CPU seconds of a loop of plain Python, the least of five goes."""

    def go() -> float:
        start = time.process_time()
        total = 0
        words: dict[str, int] = {}
        for number in range(400_000):
            words[str(number % 97)] = number
            total += len(words)
        return time.process_time() - start

    return min(go() for _ in range(5))


# -- the server ----------------------------------------------------------------------------------------------


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def chunks(count: int, unit: str = "") -> list[str]:
    """Markdown, or the `unit` again and again, in pieces of about a token each."""
    text = unit * (5 * count // max(len(unit), 1))
    text = text or "".join([PROSE.format(number=number) for number in range(count // 60)])
    return [text[start : start + 5] for start in range(0, 5 * count, 5)]


def delta(piece: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})


async def begin_reply(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    writer.write(event("message_start", message=message))
    writer.write(event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
    await writer.drain()


class Model:
    """A model that says `replies` in turn: so many chunks, at a pace."""

    def __init__(self, *replies: int) -> None:
        self._replies = list(replies)
        self.done = asyncio.Event()

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        count = self._replies.pop(0)
        await begin_reply(writer)
        start = time.monotonic()
        for number, piece in enumerate([*chunks(count), "THE-END"]):
            writer.write(delta(piece))
            await writer.drain()
            ahead = start + number / RATE - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
        writer.write(event("content_block_stop", index=0))
        writer.write(event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": count}))
        writer.write(event("message_stop"))
        await writer.drain()
        self.done.set()


class Flood:
    """A model that sends chunks as fast as they are read, until the connection is closed."""

    def __init__(self, kind: str) -> None:
        self._start, self._unit = FLOODS[kind]
        self.begun = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await begin_reply(writer)
        data = b"".join([delta(piece) for piece in chunks(3_000, self._unit)])
        writer.write(delta(self._start))
        self.begun.set()
        try:
            while True:
                for start in range(0, len(data), 8192):
                    writer.write(data[start : start + 8192])
                    await writer.drain()
        finally:
            self.closed.set()


# -- the program ---------------------------------------------------------------------------------------------


class Program:
    """`swink` in a pseudo-terminal of its own."""

    def __init__(self, home: Path, url: str) -> None:
        self._home = home
        self._url = url
        self._seen = bytearray()
        self._more = asyncio.Event()
        self._keys = 0
        self.written = 0
        """Bytes that the terminal was sent."""

    async def start(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self._home),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "SWINK_CONFIG_DIR": str(self._home / "config"),
            "SWINK_DATA_DIR": str(self._home / "data"),
            "ANTHROPIC_BASE_URL": self._url,
            "ANTHROPIC_API_KEY": "fake-key",
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "swink_agent", *arguments),
            cwd=self._home / "work",
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 1 << 20)
            self._seen += data
            self.written += len(data)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._master)
        self._more.set()

    async def until(self, wanted: bytes, since: int = 0, patience: float = 60) -> None:
        async with asyncio.timeout(patience):
            while self._seen.find(wanted, since) < 0:
                self._more.clear()
                await self._more.wait()

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def key(self) -> None:
        """One key, until it shows: each time another letter, of an alphabet that nothing else here uses."""
        letter = chr(0x10A0 + self._keys % 38)
        self._keys += 1
        since = len(self._seen)
        self.send(letter)
        await self.until(letter.encode(), since)

    async def usable(self) -> None:
        await self.until(b"idle")
        await self.key()

    @property
    def size(self) -> int:
        return len(self._seen)

    @property
    def cleared(self) -> int:
        """How often the screen was cleared after the first frame."""
        return self._seen.count(b"\x1b[2J", self._seen.find(b"idle"))

    def cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def precise_cpu(self) -> float:
        """Seconds of CPU, to the microsecond (Linux)."""
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def memory(self) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1000
        raise ValueError("no VmRSS")

    async def rest(self) -> float:
        """Waits until the process does nothing for half a second; its CPU then."""
        before = -1.0
        while (now := self.cpu()) != before:
            before = now
            await asyncio.sleep(0.5)
        return now

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), 10)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)


@asynccontextmanager
async def running(home: Path, model: Model | Flood, *arguments: str) -> AsyncIterator[Program]:
    async with LoopbackServer(model) as server:
        program = Program(home, server.url)
        await program.start(*arguments)
        try:
            yield program
        finally:
            await program.end()


# -- what is measured ----------------------------------------------------------------------------------------


def record(home: Path) -> str:
    """A session of 500 messages as agents have them; its id."""
    store = JsonlSessionStore(home / "data" / "sessions", sync=False)
    with store.create(cwd=home / "work") as session:
        log = session.log
        for number in range(MESSAGES // 4):
            log.record(MessageAdded(UserMessage(f"Question {number}: what about this?"), "prompt"))
            call = ToolCall(f"call_{number}", "read_file", {"path": f"part_{number}.py"})
            log.record(MessageAdded(AssistantMessage([Text("I look."), call]), "reply"))
            lines = "\n".join([f"line {line} of part {number}" for line in range(20)])
            log.record(MessageAdded(ToolResultMessage(f"call_{number}", lines, tool_name="read_file"), "result", 0))
            log.record(MessageAdded(AssistantMessage(PROSE.format(number=number)), "reply"))
        return session.id


async def streaming(program: Program, model: Model, count: int) -> float:
    """CPU seconds per 1,000 chunks."""
    await program.rest()
    before, since = program.cpu(), program.size
    program.written = 0
    program.send("\r")
    await asyncio.wait_for(model.done.wait(), 30 + 2 * count / RATE)
    await program.until(b"idle", since)
    after = await program.rest()
    return (after - before) / count * 1000


async def escaping(home: Path, flood: str) -> float:
    """CPU seconds from Esc to the end of the request, while text comes as fast as it is read."""
    model = Flood(flood)
    async with running(home, model) as program:
        await program.usable()
        program.send("\r")
        await asyncio.wait_for(model.begun.wait(), 30)
        await asyncio.sleep(1)
        before = program.precise_cpu()
        program.send("\x1b")
        await asyncio.wait_for(model.closed.wait(), 30)
        return program.precise_cpu() - before


async def measure(home: Path, count: int, repeats: int, say: Callable[[str], None]) -> dict[str, float]:
    figures: dict[str, float] = {}
    starts: list[tuple[float, float]] = []
    for _ in range(repeats):
        async with running(home, Model()) as program:
            await program.usable()
            first = program.cpu()
            starts.append((first, await program.rest()))
    figures["first key echoed (s)"] = min(first for first, _ in starts)
    figures["until rest (s)"] = min(after for _, after in starts)
    say("started")
    model = Model(count)
    async with running(home, model) as program:
        await program.usable()
        await program.rest()
        idle = program.cpu()
        seconds = 10.0 if repeats > 2 else 5.0
        await asyncio.sleep(seconds)
        figures["idle (%)"] = 100 * (program.cpu() - idle) / seconds
        fresh = await streaming(program, model, count)
        cleared = program.cleared
        figures["written per streamed KB (KB)"] = program.written / (5 * count)
    figures["streaming, per 1,000 chunks (s)"] = fresh
    say("streamed")
    for flood in FLOODS:
        seen = [await escaping(home, flood) for _ in range(2 * repeats + 1)]
        figures[f"Esc under {flood} (s)"] = median(seen)
    say("stopped")
    session = record(home)
    resumed: list[tuple[float, float]] = []
    for _ in range(repeats):
        async with running(home, Model(), "--resume", session) as program:
            await program.usable()
            resumed.append((program.cpu(), await program.rest()))
    figures["resuming 500 messages (s more)"] = min(after for _, after in resumed) - figures["until rest (s)"]
    model = Model(count)
    async with running(home, model, "--resume", session) as program:
        await program.usable()
        before = await program.rest()
        for _ in range(KEYS):
            await program.key()
        figures["40 keys at 500 messages (s)"] = program.cpu() - before
        long = await streaming(program, model, count)
        figures["streaming at 500 messages (x)"] = long / fresh
        figures["memory at 500 messages (MB)"] = program.memory()
        figures["screen cleared after the start"] = float(cleared + program.cleared)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer chunks and repeats")
    parser.add_argument("--check", action="store_true", help="exit 1 if a figure is over its limit")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "work").mkdir()
        count, repeats = (1_000, 2) if chosen.quick else (CHUNKS, 4)
        figures = asyncio.run(measure(home, count, repeats, lambda text: print(text, file=sys.stderr)))
    rows = [
        [name, f"{value:.2f}", f"{LIMITS[name]:g}" if name in LIMITS else ""] for name, value in sorted(figures.items())
    ]
    rows.append(["calibration (s)", f"{calibration():.3f}", ""])
    print_table([["what", "seen", "at most"], *rows])
    over = [name for name, limit in LIMITS.items() if figures[name] > limit]
    for name in over:
        print(f"over its limit: {name}", file=sys.stderr)
    return int(chosen.check and bool(over))


if __name__ == "__main__":
    sys.exit(main())
