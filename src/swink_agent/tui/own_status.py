"""The user's own status line: one line that the user's program prints from facts that it gets as JSON.

Owns when the program runs, for how long, how much it may print, and how its line is escaped. It runs when a fact has
changed, at most once a second and never twice at the same time, in a thread. The screen never waits for it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from swink_agent.app.agent.own_program import OwnProgram
from swink_agent.rendering.escaping import safe_display

if TYPE_CHECKING:
    from swink_agent.app.talk.conversation import Conversation
    from swink_agent.app.talk.options import TalkOptions

_INTERVAL = 1.0
"""Least seconds between two starts."""
_PATIENCE = 2.0
"""Seconds after which the program is killed."""
_MOST_PRINTED = 64 * 1024
_LONGEST_LINE = 500
_LONGEST_REASON = 200
_STYLES = re.compile(r"\x1b\[[0-9;:]*m")
_UNIMPORTANT = ("seconds",)
"""Facts that change all the time. The program is not run again for them alone."""


class StatusProblem(Exception):
    """The program gave no line; the message is the reason."""


class OwnStatus:
    """Runs the program when facts change, and keeps its last line.

    `outside` returns the folders that commands may write; a program in one of them is not started. `on_change` is
    called in the event loop when the line has changed, `on_problem` only for the first failure, with the reason.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        outside: Callable[[], Sequence[str]],
        redact: Callable[[str], str],
        on_change: Callable[[], None],
        on_problem: Callable[[str], None],
        environ: Mapping[str, str] = os.environ,
        interval: float = _INTERVAL,
        patience: float = _PATIENCE,
    ) -> None:
        self._argv = [os.path.expanduser(word) for word in argv]
        self._outside = outside
        self._redact = redact
        self._on_change = on_change
        self._on_problem = on_problem
        self._environ = environ
        self._interval = interval
        self._patience = patience
        self.text = ""
        """The last line; "" if there is none, so that the usual status is shown."""
        self._told: dict[str, Any] | None = None
        self._next: Mapping[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._program: OwnProgram | None = None
        self._began = -self._interval
        self._has_complained = False
        self._is_closed = False

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Takes the current facts and returns at once. If one of them has changed, the program runs soon."""
        known = {name: value for name, value in facts.items() if name not in _UNIMPORTANT}
        if known == self._told or self._is_closed:
            return
        self._told, self._next = known, facts
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def settled(self) -> str:
        """Waits for the program and returns the line for the last facts."""
        while self._task is not None:
            await asyncio.wait([self._task])
        return self.text

    def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        if self._program is not None:
            self._program.give_up()

    async def _work(self) -> None:
        try:
            while self._next is not None:
                await asyncio.sleep(self._began + self._interval - time.monotonic())
                facts, self._next = self._next, None
                self._began = time.monotonic()
                await self._run(facts)
        finally:
            self._task = None

    async def _run(self, facts: Mapping[str, Any]) -> None:
        given = msgspec.json.encode(facts) + b"\n"
        try:
            line = await asyncio.to_thread(self._line, given)
        except StatusProblem as problem:
            line = ""
            if not self._has_complained and not self._is_closed:
                self._has_complained = True
                self._on_problem(self._redact(f"status_line ({self._argv[0]}): {problem}"))
        if line != self.text and not self._is_closed:
            self.text = line
            self._on_change()

    def _line(self, given: bytes) -> str:
        program = self._program = OwnProgram(
            self._argv,
            timeout=self._patience,
            outside=self._outside,
            environ=self._environ,
            stderr=subprocess.PIPE,
            most_kept=_MOST_PRINTED,
        )
        if self._is_closed:
            program.give_up()
        try:
            end = program.run(given)
        except OSError as error:
            why = error.strerror or error
            raise StatusProblem(f"{error.filename or 'it'} cannot be started: {why}") from None
        if end.code is None:
            is_much = len(end.text) + len(end.errors) >= _MOST_PRINTED - 1
            much, late = f"it printed more than {_MOST_PRINTED // 1024} KB", f"it took more than {self._patience:g} s"
            raise StatusProblem(much if is_much else late)
        if end.code:
            first = f": {_shown(end.errors)}" if end.errors else ""
            raise StatusProblem(f"it ended with exit code {end.code}{first}"[:_LONGEST_REASON])
        return self._redact(_shown(end.text))


def _shown(text: str) -> str:
    """Returns the first line without colours, with all other control characters escaped."""
    return safe_display(_STYLES.sub("", text.partition("\n")[0]).strip(), _LONGEST_LINE)


def own_status(
    options: TalkOptions, talk: Conversation, on_change: Callable[[], None], environ: Mapping[str, str]
) -> OwnStatus | None:
    """Returns the status line that the settings name; `None` if they name none."""
    argv: tuple[str, ...] = options.opening.settings.value("status_line")
    if not argv:
        return None
    return OwnStatus(
        argv,
        outside=lambda: talk.opening.writable,
        redact=talk.redact,
        on_change=on_change,
        on_problem=lambda text: talk.notice(f"{text}; the usual status is shown", "warning"),
        environ=environ,
    )


def status_facts(talk: Conversation, columns: int) -> dict[str, Any]:
    """Returns the facts for the program. Later versions may add names; existing names keep their meaning."""
    info = None if talk.opened is None else talk.opened.session.info
    done = sum([item.status == "done" for item in talk.todo])
    return {
        "version": 1,
        "folder": str(talk.opening.folder),
        "branch": talk.branch,
        "session": None if info is None else {"id": info.id, "title": info.title},
        "model": talk.model,
        "mode": talk.mode.lower(),
        "state": talk.state,
        "approve": talk.approve,
        "tokens": talk.usage.tokens,
        "cost": talk.usage.dollars,
        "fill": round(talk.usage.fill, 4),
        "window": talk.usage.estimate[1],
        "turn": talk.usage.turns,
        "seconds": round(talk.elapsed, 1),
        "hosts": list(talk.hosts),
        "tasks": len(talk.tasks),
        "todo": {"done": done, "total": len(talk.todo)},
        "columns": columns,
    }
