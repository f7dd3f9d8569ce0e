"""The program as a process, with its own folder, home and environment."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from swink_agent.cli import main
from swink_agent.testing import FakeProvider

from ..warm import SWINK, WarmProcess, WarmStarts, open_warm_starts
from .emulator import Emulator

KEY = "fake-key"


HINT = re.compile(r"note: to continue later: (swink -p.* --resume ([0-9a-f-]+))\n")
"""The beginning of the hint how to continue a recorded run."""


class Done:
    """How a process ended."""

    def __init__(self, code: int, stdout: bytes, stderr: bytes) -> None:
        self.code = code
        self.stdout = stdout.decode()
        self.stderr = stderr.decode()

    @property
    def session(self) -> str:
        """The session that the hint names."""
        found = HINT.search(self.stderr)
        assert found is not None, self
        return found[2]

    @property
    def complaints(self) -> str:
        """stderr without the hint how to continue."""
        return HINT.sub("", self.stderr)

    def __repr__(self) -> str:
        return f"<exit {self.code}\n{self.stdout}\n--\n{self.stderr}>"


ENVIRON = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    # Reading the machine's certificates takes a fifth of a start, and no test here uses TLS.
    "SSL_CERT_FILE": os.devnull,
}


class Swink:
    """Runs `swink` in `folder`. `provider` is the fake of Anthropic."""

    def __init__(self, folder: Path, home: Path, warm: WarmStarts | None = None) -> None:
        self.folder = folder
        self.home = home
        self.environ: dict[str, str] = {
            **ENVIRON,
            "HOME": str(home),
            "SWINK_CONFIG_DIR": str(home / "config"),
            "SWINK_MODELS_DIR": str(home / "models"),
            "SWINK_SANDBOX": "off",  # trying one takes as long as all else in a short run
        }
        self.warm = warm
        self.packages: list[str] = []
        """Folders with installed packages, besides those of this Python."""

    def use(self, provider: FakeProvider) -> None:
        self.environ |= {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": provider.key}

    def confine(self) -> None:
        """Makes it try a sandbox, as it does by default."""
        del self.environ["SWINK_SANDBOX"]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "swink_agent", *arguments]

    async def start(
        self,
        *arguments: str,
        stdin: int = asyncio.subprocess.DEVNULL,
        stdout: int = asyncio.subprocess.PIPE,
        stderr: int = asyncio.subprocess.PIPE,
        environ: Mapping[str, str] | None = None,
        anew: bool = False,
    ) -> Any:
        """A process in its own session: it has no terminal, and only it gets signals that are sent to it.

        With `anew`, it shares nothing with others: Python starts, and loads what it needs.
        """
        surroundings = {**self.environ, **(environ or {})}
        if self.warm and not anew and self.warm.can_start_with(surroundings):
            return await self.warm.open(
                *(SWINK, arguments, self.folder, surroundings),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                path=self.packages,
            )
        return await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            cwd=self.folder,
            env=surroundings | ({"PYTHONPATH": ":".join(self.packages)} if self.packages else {}),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    async def __call__(
        self, *arguments: str, stdin: bytes | None = None, environ: Mapping[str, str] | None = None, **options: Any
    ) -> Done:
        """Runs it to its end."""
        given = asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE
        process = await self.start(*arguments, stdin=given, environ=environ, **options)
        stdout, stderr = await asyncio.wait_for(process.communicate(stdin), 50)
        assert process.returncode is not None
        return Done(process.returncode, stdout or b"", stderr or b"")


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStarts | None]:
    with open_warm_starts({**ENVIRON, "HOME": os.devnull}) as starts:
        yield starts


@pytest.fixture
def swink(tmp_path: Path, warm: WarmStarts | None) -> Swink:
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir(exist_ok=True)
    home.mkdir()
    return Swink(folder, home, warm)


@pytest.fixture
def refused(swink: Swink, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line with which a command line is refused: exit code 2, nothing on stdout, and nothing recorded.

    The command runs in this process, for such rows are many. No provider can be reached.
    """

    sessions = swink.home / ".local/share/swink-agent/sessions"

    def call(*arguments: str, **environ: str) -> str:
        before = sorted(sessions.glob("*.jsonl"))
        with monkeypatch.context() as patch:
            for name in set(os.environ) - {"PYTEST_CURRENT_TEST"}:
                patch.delenv(name)
            for name, value in {**swink.environ, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9", **environ}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "path", list(sys.path))  # commands take folders out of it
            patch.chdir(swink.folder)
            code = main(arguments)
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(swink.folder)):
                del sys.modules[name]
        stdout, stderr = capfd.readouterr()
        assert (code, stdout) == (2, ""), stderr
        assert re.fullmatch(r"error: [^\n]+\n", stderr), stderr
        assert sorted(sessions.glob("*.jsonl")) == before
        return stderr.removeprefix("error: ").rstrip("\n")

    return call


class Terminal:
    """`swink` at its own terminal: its screen, and keys for it."""

    def __init__(self, swink: Swink) -> None:
        self._swink = swink
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._more = asyncio.Event()
        self._read_to = 0
        self._is_over = False
        self.master = self.slave = -1
        self.process: asyncio.subprocess.Process | WarmProcess
        self.rows, self.columns = 24, 100

    def resize(self, rows: int, columns: int) -> None:
        """Resizes the window, now or when it opens."""
        self.rows, self.columns = rows, columns
        if self.slave >= 0:
            fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def start(
        self, *arguments: str, environ: Mapping[str, str] | None = None, anew: bool = False, **streams: int
    ) -> None:
        """Opens the terminal and starts the program there; with `anew`, as a process that shares nothing."""
        self.master, self.slave = pty.openpty()
        self._is_over = False
        self.resize(self.rows, self.columns)
        self.settings = termios.tcgetattr(self.slave)
        os.set_blocking(self.master, False)
        asyncio.get_running_loop().add_reader(self.master, self._read)
        variables = {**self._swink.environ, "TERM": "xterm", **(environ or {})}
        stdout, stderr = streams.get("stdout", self.slave), streams.get("stderr", self.slave)
        warm = self._swink.warm
        stdin = streams.get("stdin", self.slave)
        is_usual = stdin == self.slave and stdout >= 0 and stderr >= 0
        if warm and not anew and is_usual and warm.can_start_with(variables):
            given = self.slave, stdout, stderr
            self.process = await warm.start(SWINK, arguments, self._swink.folder, variables, given)
            return
        self.process = await asyncio.create_subprocess_exec(
            *self._swink.command(*arguments),
            cwd=self._swink.folder,
            env=variables,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0),
        )

    def _read(self) -> None:
        try:
            self.shown += self._decoder.decode(os.read(self.master, 65536))
        except OSError:
            self._is_over = True
            asyncio.get_running_loop().remove_reader(self.master)
        self._more.set()

    async def expect(self, text: str) -> None:
        """Waits until the text appears after the previously expected one."""
        while (found := self.shown.find(text, self._read_to)) < 0:
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), 40)
            except TimeoutError:
                raise AssertionError(f"{text!r} did not show after {self.shown[self._read_to :]!r}") from None
        self._read_to = found + len(text)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    async def finish(self) -> int:
        """The exit code; `shown` is complete then."""
        code = await asyncio.wait_for(self.process.wait(), 30)
        self.left_settings = termios.tcgetattr(self.slave)
        os.close(self.slave)
        while not self._is_over:  # some systems do not tell, and what a program leaves behind may keep its terminal
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), 1)
            except TimeoutError:
                break
        asyncio.get_running_loop().remove_reader(self.master)
        os.close(self.master)
        return code

    @property
    def window(self) -> Emulator:
        """The screen as a person sees it."""
        window = Emulator(self.columns)
        window.feed(self.shown)
        return window

    @property
    def lines(self) -> list[str]:
        """The text that is left after all erasing, without colours."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.shown)
        return [line.rsplit("\r\x1b[K", 1)[-1].strip("\r") for line in plain.split("\n")]


@pytest.fixture
def terminal(swink: Swink) -> Terminal:
    return Terminal(swink)
