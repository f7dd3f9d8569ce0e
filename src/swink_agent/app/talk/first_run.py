"""The notices that open a conversation, the progress line of a local model, and the handler for logged warnings."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from swink_agent.app.runs.telling import FetchProgress
from swink_agent.core.cancel import call_in
from swink_agent.rendering.escaping import safe_line

from ..agent.open_agent import OpenAgent
from .front import NoticeKind

_LOCAL_BY_DEFAULT = (
    "No key is set, so the model on this machine answers: {model}. Its first answer takes long: the model is fetched, "
    "and then reads its instructions; Esc stops that. /key adds the key of a provider, /model chooses another model."
)
_HELP = "/help lists keys and commands."
_KEYS = "{send} sends \u00b7 Esc stops \u00b7 @ names a file"
_LONGEST_HEAD = 4096


def short_folder(folder: Path) -> str:
    """Returns the folder as people write it, with `~` for the home folder."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}".removesuffix("/.") if folder.is_relative_to(home) else str(folder)


def branch_of(folder: Path) -> str:
    """Returns the Git branch of the folder, read from the files in `.git`; empty if there is no current branch."""
    try:
        git = next((place / ".git" for place in (folder, *folder.parents) if (place / ".git").exists()), None)
        if git is None:
            return ""
        if git.is_file():  # in a worktree, `.git` is a file that names the real folder
            with git.open(encoding="utf-8", errors="replace") as file:
                git = git.parent / file.read(_LONGEST_HEAD).strip().removeprefix("gitdir: ")
        with (git / "HEAD").open(encoding="utf-8", errors="replace") as file:
            head = file.read(_LONGEST_HEAD).strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def first_words(opened: OpenAgent, *, is_first: bool = True) -> list[tuple[str, NoticeKind]]:
    """Returns the notices about an agent and its session before the first prompt."""
    made, session, project = opened.made, opened.session, opened.opening.project
    words: list[tuple[str, NoticeKind]] = []
    model = made.agent.model
    is_by_default = model.provider == "local" and not made.has_chosen_model
    if is_first:
        place = short_folder(opened.opening.folder)
        branch = branch_of(opened.opening.folder)
        where = f"{place}, on the branch {safe_line(branch, 80)}" if branch else place
        hello = f"{_LOCAL_BY_DEFAULT.format(model=model.model_id)}\n{where}" if is_by_default else f"{model} in {where}"
        note = f"\n{made.approval_mode.note}" if made.approval_mode.note else ""
        keys = _KEYS.format(send=opened.opening.settings.key_map().shown("send") or "a key")
        words.append((f"{hello}. {_HELP}\n{keys}{note}", "welcome"))
        for warning in made.warnings:
            words.append((warning, "warning"))
    if session.warning:
        words.append((session.warning, "warning"))
    if place := session.came_from:
        words.append((f"the session began in {place} and stays listed there; it continues in this folder", "info"))
    if is_first and project is not None and (unused := project.what_is_unused):
        words.append((f"{unused}; /trust shows it and asks", "info"))
    return words


def _caller_of_this_loop() -> Callable[..., None]:
    """Returns a function that calls others in the running event loop, in the current context, from any thread."""
    return partial(call_in, asyncio.get_running_loop(), contextvars.copy_context().run)


class LocalProgress:
    """Describes in one line what a local model is doing; empty when there is nothing to wait for."""

    def __init__(self, clock: Callable[[], float], *, on_change: Callable[[], None]) -> None:
        self.text = ""
        self.phase = ""
        """What the text is about: one fetch, one start or one prompt. It stays while only the figures change."""
        self._clock = clock
        self._on_change = on_change
        self._fetch: FetchProgress | None = None
        self._call: Callable[..., None] | None = None

    def open(self) -> None:
        """Reports in the running event loop from now on."""
        self._call = _caller_of_this_loop()

    def hear(self, event: Any) -> None:
        """Takes an event from the local model. May be called in any thread."""
        if self._call is not None:
            self._call(self._take, event)

    def clear(self) -> None:
        if self.text:
            self.text = ""
            self._on_change()

    def _take(self, event: Any) -> None:
        state = str(getattr(event.state, "value", event.state))
        text = self._line(event, state)
        if text != self.text:
            self.text, self.phase = text, f"{state} {event.model}"
            self._on_change()

    def _line(self, event: Any, state: str) -> str:
        if state == "fetching":
            self._fetch = self._fetch or FetchProgress()
            return self._fetch.text(event, self._clock())
        self._fetch = None
        if state == "loading":
            return f"loading {event.model} …"
        if state == "ready" and event.total:
            return f"reading the prompt: {event.done:,} of {event.total:,} tokens"
        return ""


class LibraryWarnings(logging.Handler):
    """Calls `tell` in the event loop for every warning that the library logs in any thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._call: Callable[..., None] | None = None

    def open(self) -> None:
        self._call = _caller_of_this_loop()
        logging.getLogger("swink_agent").addHandler(self)

    def close(self) -> None:
        logging.getLogger("swink_agent").removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        if self._call is not None:  # the message only: a traceback does not help the user and may contain secrets
            self._call(self._tell, record.getMessage())
