"""The commands for sessions: list, name, resume, fork, export, reset, compact.

The session is recorded all the time, so `/rename` only names it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs import sessions
from swink_agent.app.runs.sessions import SessionProblem, WantedSession, open_store, session_problems
from swink_agent.app.runs.telling import age, number_of
from swink_agent.app.settings.paths import beneath_home, write_whole
from swink_agent.core.types import AssistantMessage, UserMessage, extract_text
from swink_agent.rendering.cells import cut
from swink_agent.rendering.escaping import safe_display, safe_line

from ..front import PickItem, PreviewLine

if TYPE_CHECKING:
    from swink_agent.core.events import CompactionReport
    from swink_agent.memory import SessionInfo
    from swink_agent.memory.sessions.store import ExportFormat

    from ..conversation import Conversation
    from ..runner import State

_MOST_LISTED = 20
_LONGEST_TITLE = 100
_PREVIEWED = 12
_ENDINGS: dict[ExportFormat, str] = {"html": ".html", "markdown": ".md", "json": ".json", "atif": ".atif.json"}
_FORMATS: dict[str, ExportFormat] = {**{name: name for name in _ENDINGS}, "htm": "html", "md": "markdown"}


async def _listed(conversation: Conversation) -> list[SessionInfo]:
    """Returns the sessions of this folder that have messages, the newest first."""

    def read() -> list[SessionInfo]:
        with session_problems():
            store = open_store(conversation.opening.settings)
            return [info for info in store.list(conversation.opening.folder.resolve()) if info.messages]

    return await asyncio.to_thread(read)


async def recent_sessions(conversation: Conversation, most: int) -> list[tuple[str, str, str]]:
    """Returns the last sessions of this folder except the open one: id, title, and age with number of messages.

    The list is empty if this conversation is not recorded, or sessions cannot be read.
    """
    if not conversation.opening.options.session.is_kept:
        return []
    here = _open_id(conversation)

    def read() -> list[SessionInfo]:
        store = open_store(conversation.opening.settings)
        return store.list(conversation.opening.folder.resolve(), limit=most + 5)

    try:
        with session_problems():
            found = await asyncio.to_thread(read)
    except (SessionProblem, UsageProblem):
        return []
    return [
        (info.id, cut(safe_display(_title(conversation, info)), 60), _detail(info))
        for info in found
        if info.messages and info.id != here
    ][:most]


def _open_id(conversation: Conversation) -> str | None:
    info = None if conversation.opened is None else conversation.opened.session.info
    return None if info is None else info.id


def _title(conversation: Conversation, info: SessionInfo) -> str:
    return conversation.redact(info.title or "(no title)")


def _detail(info: SessionInfo) -> str:
    """The age, the number of messages, and the number of calls that wait for an answer."""
    waiting = f", {info.pending} waiting" if info.pending else ""
    return f"{age(info.updated)}, {number_of(info.messages, 'message')}{waiting}"


async def list_sessions(conversation: Conversation, rest: str) -> None:
    found = await _listed(conversation)
    if not found:
        conversation.notice("this folder has no session yet")
        return
    everywhere = await asyncio.to_thread(sessions.session_ids, sessions.sessions_folder(conversation.opening.settings))
    short = sessions.short_ids([info.id for info in found], everywhere)
    here = _open_id(conversation)
    rows = [
        f"{'▸' if info.id == here else ' '} {short[info.id]}  {age(info.updated):>6}  {info.messages:>4}  "
        f"{safe_display(_title(conversation, info), _LONGEST_TITLE)}"
        for info in found[:_MOST_LISTED]
    ]
    more = f"\n  … and {len(found) - _MOST_LISTED} more: /resume searches them" if len(found) > _MOST_LISTED else ""
    conversation.notice("\n".join(rows) + more)


async def rename(conversation: Conversation, rest: str) -> None:
    opened = conversation.opened
    info = None if opened is None else opened.session.info
    if opened is None or info is None:
        raise UsageProblem("this conversation is not recorded, so there is nothing to name")
    if rest:
        try:
            opened.session.rename(opened.redactor.redact(rest))
        except ValueError as error:
            raise UsageProblem(str(error)) from error
        await asyncio.to_thread(opened.session.flush)
    named = f" as “{opened.redactor.redact(rest)}”" if rest else ""
    conversation.notice(f"session {info.id} is saved{named}; sessions always are")


async def resume(conversation: Conversation, rest: str) -> None:
    """`/resume [id|title]`: continues a session, by the beginning of its id, its title, or from a list with preview."""
    _refuse_without_record(conversation)
    found = await _listed(conversation)
    if rest:
        titled = (info.id for info in found if info.title.casefold() == rest.casefold())
        await _continue(conversation, next(titled, rest))
        return
    here = _open_id(conversation)
    items = [PickItem(info.id, _title(conversation, info), _detail(info)) for info in found if info.id != here]
    if not items:
        conversation.notice("this folder has no other session")
        return
    wanted = await conversation.front.pick("Continue which session?", items, _previewer(conversation))
    if wanted is not None and not conversation.is_running:
        await _continue(conversation, wanted)


def _refuse_without_record(conversation: Conversation) -> None:
    if not conversation.opening.options.session.is_kept:
        raise UsageProblem(
            "with --no-session nothing is recorded, but a continued session must be: start again without that flag"
        )


def _previewer(conversation: Conversation):
    def read(session_id: str) -> Sequence[PreviewLine]:
        with session_problems():
            messages = open_store(conversation.opening.settings).load(session_id).messages
        lines: list[PreviewLine] = []
        for message in messages[-_PREVIEWED:]:
            if isinstance(message, (UserMessage, AssistantMessage)) and (
                text := conversation.redact(extract_text(message.content)).strip()
            ):
                mark = "> " if isinstance(message, UserMessage) else "  "
                is_dim = not isinstance(message, UserMessage)
                lines += [PreviewLine(mark + safe_line(line, 400), is_dim) for line in text.split("\n")[:4]]
        return lines

    async def preview(session_id: str) -> Sequence[PreviewLine]:
        try:
            return await asyncio.to_thread(read, session_id)
        except (UsageProblem, SessionProblem):
            return []

    return preview


async def _continue(conversation: Conversation, session_id: str) -> None:
    folder = sessions.sessions_folder(conversation.opening.settings)
    (wanted,) = await asyncio.to_thread(sessions.session_ids, folder, [session_id])
    if wanted == _open_id(conversation):
        conversation.notice("that session is already open")
        return
    await conversation.switch(WantedSession(id=wanted))


async def reset(conversation: Conversation, rest: str) -> None:
    """`/reset`: begins a new session; the old one stays recorded."""
    before = conversation.opened
    info = None if before is None else before.session.info
    is_kept = conversation.opening.options.session.is_kept
    model = None if before is None else before.agent.model
    await conversation.switch(WantedSession(is_kept=is_kept), model=model)
    kept = f"; /resume {info.id} continues the previous one" if info is not None and info.messages else ""
    conversation.notice(f"a new conversation{kept}")


async def fork(conversation: Conversation, rest: str) -> None:
    opened = conversation.opened
    if opened is None or not len(opened.agent.messages):
        raise UsageProblem("there is nothing to fork yet: the conversation is empty")

    def copy() -> str:
        session_id = opened.session.flush()
        if session_id is None:
            raise UsageProblem("this conversation is not recorded, so it cannot be forked")
        with session_problems(), open_store(opened.opening.settings).fork(session_id) as session:
            return session.id

    before = opened.session.info
    await conversation.switch(WantedSession(id=await asyncio.to_thread(copy)))
    old = "" if before is None else f"; /resume {before.id} continues the original"
    conversation.notice(f"this is a fork{old}")


async def export(conversation: Conversation, rest: str) -> None:
    """`/export [html|markdown|json|atif] [file]`: writes the session to a new file."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise UsageProblem(f"{rest[:60]!r} cannot be read: {error}") from error
    chosen = _FORMATS.get(words[0].lower()) if words else None
    if chosen is not None:
        words = words[1:]
    if len(words) > 1:
        known = ", ".join(_ENDINGS)
        raise UsageProblem(f"/export takes a format ({known}) and one file, in quotes if it has spaces")
    if chosen is None and words and not set(words[0]) & set("./"):
        raise UsageProblem(
            f"there is no format {words[0][:40]!r}: html, markdown, json or atif; a file name needs its ending"
        )
    opened = conversation.opened
    info = None if opened is None else opened.session.info
    if opened is None or info is None or not info.messages:
        raise UsageProblem("there is nothing to export: nothing is recorded yet")
    name = words[0] if words else ""
    kind = chosen or _FORMATS.get(name.rpartition(".")[2].lower(), "markdown")
    path = await asyncio.to_thread(_write, conversation, name or f"swink-{info.id}{_ENDINGS[kind]}", kind)
    conversation.notice(f"the session is in {path}")


def _write(conversation: Conversation, name: str, kind: ExportFormat) -> Path:
    opened = conversation.opened
    path = conversation.opening.folder / beneath_home(name, "/export")
    session_id = None if opened is None else opened.session.flush()
    if opened is None or session_id is None:
        raise UsageProblem("this conversation is not recorded, so it cannot be exported")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageProblem(f"{path} {'is a folder' if path.is_dir() else 'is in a folder that does not exist'}")
    if path.exists():
        raise UsageProblem(f"{path} exists already: name another file")
    with session_problems():
        text = open_store(opened.opening.settings).export(session_id, kind)
    try:
        write_whole(path, text.encode("utf-8", "replace"), mode=0o600)
    except OSError as error:
        raise SessionProblem(f"{path} cannot be written: {error.strerror or error}") from error
    return path


async def compact(conversation: Conversation, rest: str) -> None:
    """`/compact [instructions]`: summarizes the conversation, as work that the user can stop."""
    opened = conversation.opened
    if opened is None or not len(opened.agent.messages):
        raise UsageProblem("there is nothing to summarize yet")

    async def work() -> State:
        report = await opened.agent.compact(rest or None)
        if report is not None and not report.is_told:  # otherwise its event did it
            conversation.usage.shrink(report)
        conversation.notice(compaction_words(report))
        return "idle"

    conversation.begin(work())


def compaction_words(report: CompactionReport | None) -> str:
    """What `/compact` tells about what it did."""
    if report is None:
        return "nothing in the conversation can be shortened yet"
    return f"about {report.tokens_before:,} tokens became {report.tokens_after:,}; the history itself is kept"
