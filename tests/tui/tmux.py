"""A real terminal in which the program runs and whose screen can be read: tmux, with its own server.

Owns the terminal and the keys; the tests know what to expect on the screen. Nothing sleeps for a guessed time: `until`
polls the screen, and fails with the last one.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["Tmux"]

_PATIENCE = 40.0
_LOOK_EVERY = 0.03


class Tmux:
    """One window with a program in it, from `start` to `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = 0
        self._started = False

    @property
    def _socket(self) -> Path:
        return self._folder / f"tmux{self._starts}.sock"  # a server that ends may still hold the one before

    @property
    def _log(self) -> Path:
        return self._folder / f"tmux{self._starts}.raw"

    async def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        columns: int = 100,
        rows: int = 30,
        shell: bool = False,
    ) -> None:
        """Runs the command. With `shell` it runs in one, whose prompt is `$ ` and which stays when it ends."""
        self._starts += 1
        # Variables are given by `env`, for a server of tmux hands on its own.
        variables = [f"{name}={value}" for name, value in environ.items()]
        line = "exec " + shlex.join(["env", "-i", *variables, "TERM=tmux-256color", *command])
        if shell:
            line = shlex.join(
                ["env", "-i", *variables, "PS1=$ ", "TERM=tmux-256color", "bash", "--norc", "--noprofile"]
            )
        await self._tmux(
            *("-f", os.devnull, "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(cwd)),
            line,
        )
        self._started = True
        await self._tmux("set-option", "-g", "remain-on-exit", "on")
        await self._tmux("set-option", "-sg", "escape-time", "0")
        await self._tmux("set-option", "-g", "status", "off")
        await self._tmux("pipe-pane", "-o", f"cat >> {shlex.quote(str(self._log))}")
        if shell:
            await self.until("$")
            self._line(shlex.join(command))

    def _line(self, text: str) -> None:
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    # -- keys --------------------------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: Enter, Escape, C-c, M-Enter, S-Tab is BTab, F2."""
        self._run("send-keys", *keys)

    def type(self, text: str) -> None:
        """Text as if typed."""
        self._run("send-keys", "-l", "--", text)

    def paste(self, text: str) -> None:
        """Text as a terminal pastes it, in brackets where the program asked for them."""
        self._run("set-buffer", "-b", "pasted", "--", text)
        self._run("paste-buffer", "-p", "-b", "pasted")

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    # -- the screen --------------------------------------------------------------------------------------------

    def screen(self, *, styled: bool = False, history: bool = False) -> str:
        """What a person sees now; `styled` with colours, `history` with what scrolled off."""
        extra = (["-e"] if styled else []) + (["-S", "-"] if history else [])
        return self._run("capture-pane", "-p", *extra)

    @property
    def raw(self) -> str:
        """Everything that the program wrote."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        return int(self._run("display-message", "-p", "#{pane_pid}").strip())

    @property
    def is_alternate(self) -> bool:
        """Whether the alternate screen is on."""
        return self._run("display-message", "-p", "#{alternate_on}").strip() == "1"

    @property
    def exit_code(self) -> int | None:
        """How the program ended, once it has."""
        shown = self._run("display-message", "-p", "#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|#{pid}")
        dead, code, number, server = shown.strip().split("|")
        if dead == "1" and not (code or number):
            os.kill(int(server), signal.SIGCHLD)  # it may miss that its child has ended while it pipes what that wrote
            return None
        if dead != "1":
            return None
        return int(code) if code else -int(number)

    async def until(self, wanted: str | Callable[[str], bool], *, patience: float = _PATIENCE) -> str:
        """The screen, once it shows this."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            screen = self.screen()
            if wanted in screen if isinstance(wanted, str) else wanted(screen):
                return screen
            if loop.time() > end or self.exit_code is not None:
                raise AssertionError(f"{wanted!r} never showed; the screen is\n{self.screen(history=True)}")
            await asyncio.sleep(_LOOK_EVERY)

    async def until_gone(self, unwanted: str) -> str:
        return await self.until(lambda screen: unwanted not in screen)

    async def until_ended(self) -> int:
        """The exit code."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE
        while (code := self.exit_code) is None:
            if loop.time() > end:
                raise AssertionError(f"it did not end; the screen is\n{self.screen()}")
            await asyncio.sleep(_LOOK_EVERY)
        return code

    def close(self) -> None:
        """Ends the server, and with it the program."""
        if self._started:
            subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], check=False, capture_output=True)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout

    async def _tmux(self, *arguments: str) -> None:
        # Not in this folder's environment: what a user has set for tmux is not part of a test.
        environ = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/", "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-u", "-S", str(self._socket), *arguments), env=environ, stderr=asyncio.subprocess.PIPE
        )
        _, problem = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, problem.decode()
