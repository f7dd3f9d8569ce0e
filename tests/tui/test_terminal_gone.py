"""A terminal that stops reading or disappears: the program can still be stopped, and no process is left."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from .conftest import SpokenModel


class Deaf:
    """`swink` at a terminal that is read only until `stop_reading`."""

    def __init__(self, terminal: int, process: asyncio.subprocess.Process) -> None:
        self.terminal = terminal
        self.process = process
        self.drawn = b""
        self._is_closed = False
        asyncio.get_running_loop().add_reader(terminal, self._read)

    def _read(self) -> None:
        try:
            self.drawn += os.read(self.terminal, 65536)
        except OSError:
            self.stop_reading()

    def stop_reading(self) -> None:
        asyncio.get_running_loop().remove_reader(self.terminal)

    def read_again(self) -> None:
        self.drawn = b""
        asyncio.get_running_loop().add_reader(self.terminal, self._read)

    async def until(self, text: bytes, behind: bytes = b"") -> None:
        """Waits until the text was drawn, behind another if there is one to be waited for first."""
        async with asyncio.timeout(40):
            while text not in self.drawn[self.drawn.find(behind) :]:  # noqa: ASYNC110 - a terminal tells nobody
                await asyncio.sleep(0.02)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.stop_reading()
            os.close(self.terminal)


@asynccontextmanager
async def swink(
    place: Path, model: SpokenModel, *arguments: str, stderr: int | None = None, **variables: str
) -> AsyncIterator[Deaf]:
    terminal, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    (place / "work").mkdir()
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "ANTHROPIC_API_KEY": "fake-key",
        "ANTHROPIC_BASE_URL": model.url,
        "SWINK_CONFIG_DIR": str(place / "config"),
        "SWINK_DATA_DIR": str(place / "data"),
        "SSL_CERT_FILE": os.devnull,  # reading the machine's certificates takes long
        **variables,
    }

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "swink_agent", *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner if stderr is None else stderr,
        env=environ,
        cwd=place / "work",
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(inner)
    running = Deaf(terminal, process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        running.close()


async def flood(model: SpokenModel, running: Deaf) -> None:
    """Has the model say more than the terminal takes."""
    await model.asked()
    model.say("# Begun\n\n")
    await running.until(b"Begun")
    running.stop_reading()
    for number in range(300):
        model.say(f"{number} line of **text** that is long enough to be drawn over and over\n\n")
        await asyncio.sleep(0.01)


@pytest.mark.sweep
async def test_a_key_stops_the_run_though_the_terminal_does_not_read(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, "go") as running:
        await flood(model, running)
        os.write(running.terminal, b"\x1b")
        async with asyncio.timeout(60):
            while not model.left:
                model.say("more\n")
                await asyncio.sleep(0.05)
        running.read_again()
        await running.until(b"aborted")


@pytest.mark.sweep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_though_the_terminal_does_not_read(tmp_path: Path, number: signal.Signals) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, "go") as running:
        await flood(model, running)
        running.process.send_signal(number)
        async with asyncio.timeout(60):
            assert await running.process.wait() == 128 + number


@pytest.mark.sweep
async def test_it_ends_when_the_terminal_goes_away(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, "go") as running:
        await flood(model, running)
        running.close()
        async with asyncio.timeout(60):
            assert await running.process.wait() == 128 + signal.SIGHUP


@pytest.mark.sweep
async def test_in_lines_a_signal_ends_it_though_the_terminal_does_not_read(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, "--inline", "go") as running:
        await model.asked()
        model.say("# Begun\n\nAnd more\n\n")
        await running.until(b"Begun")
        running.stop_reading()
        for number in range(300):
            model.say(f"{number} line of **text** that is long enough to fill what a terminal holds\n\n")
        await asyncio.sleep(1)
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await running.process.wait() == 128 + signal.SIGTERM


@pytest.mark.sweep
async def test_it_is_drawn_on_the_terminal_where_errors_go_to_a_file(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, stderr=asyncio.subprocess.DEVNULL) as running:
        await running.until(b"Execute")


@pytest.mark.sweep
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
async def test_the_last_answer_is_left_on_the_screen_in_any_locale(tmp_path: Path, encoding: str) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, "go", PYTHONIOENCODING=encoding) as running:
        await model.asked()
        model.reply("Größe → 漢字 \ud800 done")
        await running.until(b"idle", behind=b"done")  # it was so before the first prompt, too
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await running.process.wait() == 128 + signal.SIGTERM
        await running.until(b"swink --resume")
        left = running.drawn.rpartition(b"\x1b[?1049l")[2].decode()
        assert "Größe → 漢字" in left
        assert "Traceback" not in left
