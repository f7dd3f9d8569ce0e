"""What a person should hear when a conversation opens, and what a model on this machine is about before it answers.

Owns the words. Storing keys is in `keys`, fetching and reading in `swink_agent.local`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from swink_agent.app.telling import FetchProgress
from swink_agent.core.cancel import call_in

from .open_agent import OpenAgent

__all__ = ["LocalProgress", "first_words", "short_folder"]

Kind: TypeAlias = Literal["info", "warning", "error", "welcome"]

_LOCAL_BY_DEFAULT = (
    "No key is set, so the model on this machine answers: {model}. Its first answer takes long: the model is fetched, "
    "and then reads its instructions; Esc stops that. #key adds the key of a provider, /model chooses another model."
)
_HELP = "#help lists keys and commands."


def short_folder(folder: Path) -> str:
    """The folder as people write it, with `~` for their home."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}".removesuffix("/.") if folder.is_relative_to(home) else str(folder)


def first_words(opened: OpenAgent, *, is_first: bool = True) -> list[tuple[str, Kind]]:
    """What there is to say of an agent and its session before anything is asked."""
    made, session, project = opened.made, opened.session, opened.opening.project
    words: list[tuple[str, Kind]] = []
    model = made.agent.model
    is_by_default = model.provider == "local" and made.model_source.startswith("no key is set")
    if is_first:
        place = short_folder(opened.opening.folder)
        hello = _LOCAL_BY_DEFAULT.format(model=model.model_id) if is_by_default else f"{model} in {place}."
        words.append((f"{hello} {_HELP}", "welcome"))
        for warning in made.warnings:
            words.append((warning, "warning"))
    if session.warning:
        words.append((session.warning, "warning"))
    if session.came_from:
        words.append(
            (f"the session was begun in {session.came_from}, stays listed there, and goes on in this folder", "info")
        )
    if is_first and project is not None and (unused := project.what_is_unused):
        words.append((f"{unused}; look at it: swink config trust", "info"))
    return words


class LocalProgress:
    """The states of a model on this machine, as one line; empty when there is nothing to wait for."""

    def __init__(self, clock: Callable[[], float], *, on_change: Callable[[], None]) -> None:
        self.text = ""
        self._clock = clock
        self._on_change = on_change
        self._fetch: FetchProgress | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()

    def open(self) -> None:
        """Hears from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # a thread has none of what a front end draws by

    def hear(self, event: Any) -> None:
        """Takes an event of the model, from any thread."""
        if self._loop is not None:
            call_in(self._loop, self._context.run, self._take, event)

    def clear(self) -> None:
        """There is nothing to wait for any more."""
        if self.text:
            self.text = ""
            self._on_change()

    def _take(self, event: Any) -> None:
        text = self._told(event)
        if text != self.text:
            self.text = text
            self._on_change()

    def _told(self, event: Any) -> str:
        state = str(getattr(event.state, "value", event.state))
        if state == "fetching":
            self._fetch = self._fetch or FetchProgress()
            return self._fetch.text(event, self._clock())
        self._fetch = None
        if state == "loading":
            return f"loading {event.model} …"
        if state == "ready" and event.total:
            return f"reading the prompt: {event.done:,} of {event.total:,} tokens"
        return ""
