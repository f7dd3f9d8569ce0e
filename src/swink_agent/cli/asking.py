"""Asking a person at the terminal before a tool runs.

Owns the question on `/dev/tty` and the key that answers it, whatever stdin and stdout are. Only a key that was pressed
after the question was shown counts, and only one that means yes is a yes. What there is to ask is in
`policies.approvals`.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import threading
from collections.abc import Callable
from typing import Any

from swink_agent.policies.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion

from .screen import Screen

__all__ = ["TerminalAsk"]

TERMINAL = "/dev/tty"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")


class TerminalAsk:
    """Puts questions to whoever sits at the terminal. `open` gives `None` where there is none."""

    def __init__(self, descriptor: int, screen: Screen, redact: Callable[[str], str]) -> None:
        self._descriptor = descriptor
        self._screen = screen
        self._redact = redact
        self._settings: list[Any] | None = None
        self._lock = threading.Lock()

    @classmethod
    def open(cls, screen: Screen, redact: Callable[[str], str], path: str = TERMINAL) -> TerminalAsk | None:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        if not os.isatty(descriptor):
            os.close(descriptor)
            return None
        return cls(descriptor, screen, redact)

    def close(self) -> None:
        self.restore()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def __call__(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Shows the call and waits for a key. A run that is aborted meanwhile takes the question back."""
        self._screen.clear()
        choices = _keys_of(question)
        self._write(f"\n{self._redact(question.display)}\n")
        for warning in question.warnings:
            self._write(self._screen.style(f"  ! {warning}", "red", "bold") + "\n")
        self._write(self._screen.style(f"  {question.why}", "dim") + "\n")
        while True:
            key = await self._key(f"{_offer(question)} ", {*choices, "v"})
            if key != "v":
                break
            self._write(f"\n{self._redact(question.render())}\n")
        choice = choices.get(key, ApprovalChoice.NO)
        self._write(f"{key or 'no answer'}\n")
        return ApprovalAnswer(choice, "" if choice != ApprovalChoice.NO else "the user said no")

    def restore(self) -> None:
        """Gives the terminal back as it was. Safe to call again, and from a signal handler."""
        settings, self._settings = self._settings, None
        if settings is not None:
            import termios

            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, settings)
            except (OSError, termios.error):
                pass

    async def _key(self, offer: str, wanted: set[str]) -> str:
        """The first wanted key; nothing if the terminal goes away. In a thread, which a byte in a pipe ends early."""
        ending, end = os.pipe()
        reading = asyncio.get_running_loop().run_in_executor(None, self._read_key, offer, wanted, ending)
        try:
            return await asyncio.shield(reading)
        finally:
            os.write(end, b"x")
            while not reading.done():  # it ends at once, and must, before its descriptors do
                try:
                    await asyncio.wait([reading])
                except asyncio.CancelledError:
                    continue
            os.close(ending)
            os.close(end)

    def _read_key(self, offer: str, wanted: set[str], ending: int) -> str:
        import termios
        import tty

        descriptor = self._descriptor
        try:
            self._settings = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor, termios.TCSAFLUSH)  # what was typed before the question is no answer to it
            self._write(offer)
            while ending not in (ready := select.select([descriptor, ending], [], [])[0]):
                typed = os.read(descriptor, 1024) if ready else b""
                key = _pressed(typed)
                if not typed or key == "\x04":
                    return ""
                if key in wanted:
                    return key
        except (OSError, termios.error):
            return ""
        finally:
            self.restore()
        return ""

    def _write(self, text: str) -> None:
        try:
            data = text.encode("utf-8", "replace")
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            pass


def _pressed(typed: bytes) -> str:
    """The key that was pressed, perhaps with Enter or a cursor key; of a text that was pasted, nothing."""
    text = _SEQUENCE.sub("", typed.decode(errors="replace")).strip().lower()
    return text if len(text) == 1 else ""


def _keys_of(question: ApprovalQuestion) -> dict[str, ApprovalChoice]:
    keys = {"y": ApprovalChoice.ONCE, "t": ApprovalChoice.SESSION_TOOL, "p": ApprovalChoice.SESSION_PREFIX}
    offered = {key: choice for key, choice in keys.items() if choice in question.choices}
    return {**offered, "n": ApprovalChoice.NO}


def _offer(question: ApprovalQuestion) -> str:
    name = question.display.split("\n", 1)[0].split(" ", 1)[0]
    words = ["[y]es", "[n]o"]
    if ApprovalChoice.SESSION_TOOL in question.choices:
        words.append(f"every [t]ime {name}")
    if ApprovalChoice.SESSION_PREFIX in question.choices:
        words.append(f"every command with this [p]refix: {question.prefix}")
    return f"Run it? {', '.join(words)}, [v]iew all:"
