"""Turns changes and messages into the notifications that an editor shows.

A call is shown with its kind, its title, the file that it is about, and its diff. Pure; `session` sends. Everything
given here is masked.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast

from acp import helpers
from acp.schema import AgentMessageChunk, AgentThoughtChunk, ToolCallLocation

from swink_agent.app.shown.changes import (
    Begun,
    Call,
    Change,
    Delegate,
    Discarded,
    Notice,
    Stopped,
    Text,
    delegate_words,
)
from swink_agent.core import types
from swink_agent.rendering.checklist import todo_of
from swink_agent.rendering.escaping import safe_display

Kind: TypeAlias = Literal["read", "edit", "search", "execute", "think", "fetch", "other"]
_KINDS: dict[str, Kind] = {
    "read_file": "read",
    "list_dir": "read",
    "skill": "read",
    "search": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "bash": "execute",
    "bash_output": "read",
    "bash_stop": "execute",
    "task": "think",
    "todo": "think",
    "web_fetch": "fetch",
}
_LONGEST_TITLE = 200
_FENCES = re.compile("`{3,}")
_SUBJECTS = ("command", "path", "pattern", "url", "prompt", "name", "id")


class SessionUpdates:
    """The notifications of one session's runs. If a later turn uses the id of a call again, that is a new call."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: set[str] = set()
        self._message = _new_id()

    def of(self, change: Change) -> Iterator[Any]:
        """The notifications for a change, in order."""
        match change:
            case Begun():
                self._known.clear()
                self._message = _new_id()
            case Text(kind=kind, piece=piece):
                yield _chunk(kind, piece, self._message)
            case Discarded(why=why, had_text=had_text):
                if had_text:
                    yield _chunk("text", f"\n\n[the text before this was discarded: {why}]\n\n", self._message)
                else:
                    yield from self.of(Notice("warning", why))
                self._message = _new_id()
            case Call():
                yield from self._call(change)
            case Delegate(call_id=call_id, progress=progress):
                yield helpers.update_tool_call(call_id, content=_words(delegate_words(progress)))
            case Notice(kind=kind, words=words):
                mark = "" if kind == "info" else f"{kind}: "
                told = f"{mark}\n{fenced(words)}" if "\n" in words else f"{mark}{words}"  # columns, as in a terminal
                yield _chunk("text", f"\n\n{told.lstrip()}\n\n", _new_id())
            case Stopped(kind=kind, why=why):
                if kind == "policy":  # an abort is the user's, an error is the answer to the prompt
                    yield from self.of(Notice("warning", why))

    def _call(self, call: Call) -> Iterator[Any]:
        if call.id not in self._known:
            self._known.add(call.id)
            yield shown_call(call.id, call.name, call.arguments, self._folder)
        match call.state:
            case "running" if call.words:
                yield helpers.update_tool_call(call.id, content=_words(call.words))
            case "running":
                yield helpers.update_tool_call(call.id, status="in_progress", raw_input=call.arguments)
            case "waiting":
                words = f"it waits for an answer: {call.words}" if call.words else "it waits for an answer"
                yield helpers.update_tool_call(call.id, content=_words(words))
            case "done" | "failed" if call.result is not None:
                result, is_error = call.result, call.state == "failed"
                yield from _ended(call.id, call.name, result.content, result.details, self._folder, is_error)
            case _:
                pass


def shown_call(call_id: str, name: str, arguments: dict[str, Any], folder: str) -> Any:
    return helpers.start_tool_call(
        call_id,
        title_of(name, arguments),
        kind=_KINDS.get(name, "other"),
        status="pending",
        locations=_locations(arguments, folder),
        raw_input=arguments,
    )


def title_of(name: str, arguments: dict[str, Any]) -> str:
    """One line with the tool's name and the main argument of the call."""
    subject = next((arguments[key] for key in _SUBJECTS if isinstance(arguments.get(key), str)), "")
    return safe_display(f"{name} {subject}".strip(), _LONGEST_TITLE)


def replayed(messages: Sequence[types.AgentMessage], folder: str) -> Iterator[Any]:
    """The notifications for a history."""
    for message in messages:
        message_id = _new_id()
        if isinstance(message, types.UserMessage):
            yield from said(message, message_id)
        elif isinstance(message, types.AssistantMessage):
            for block in message.content:
                if isinstance(block, types.Text):
                    yield _chunk("text", block.text, message_id)
                elif isinstance(block, types.Thinking):
                    yield _chunk("thinking", block.thinking, message_id)
                elif isinstance(block, types.ToolCall):
                    yield shown_call(block.id, block.name, block.arguments, folder)
        elif isinstance(message, types.ToolResultMessage):
            call_id, name = message.tool_call_id, message.tool_name
            yield from _ended(call_id, name, message.content, message.details, folder, message.is_error)


def said(message: types.UserMessage, message_id: str) -> Iterator[Any]:
    """The notifications for a message of the user."""
    for block in message.content:
        if isinstance(block, types.Text):
            content: Any = helpers.text_block(block.text)
        elif isinstance(block, types.Image) and isinstance(block.source, types.Base64Source):
            content = helpers.image_block(block.source.data, block.source.media_type)
        elif isinstance(block, types.Document):
            content = helpers.text_block(f"[{block.name or 'a document'}]")
        else:
            continue
        chunk = helpers.update_user_message(content)
        chunk.message_id = message_id
        yield chunk


def fenced(text: str) -> str:
    """The text in a fence that is longer than any in it."""
    longest = max([len(found) for found in _FENCES.findall(text)], default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _chunk(kind: Literal["text", "thinking"], text: str, message_id: str) -> Any:
    content = helpers.text_block(text)
    if kind == "thinking":
        return AgentThoughtChunk(session_update="agent_thought_chunk", content=content, message_id=message_id)
    return AgentMessageChunk(session_update="agent_message_chunk", content=content, message_id=message_id)


def _new_id() -> str:
    return secrets.token_hex(8)


def _ended(
    call_id: str, name: str, content: Sequence[types.UserBlock], details: Any, folder: str, is_error: bool
) -> Iterator[Any]:
    """The end of a call, and its list of things to do, if it has one, as the editor's plan."""
    if is_error:
        yield helpers.update_tool_call(call_id, status="failed", content=_content(content))
        return
    change = change_of(details, folder)
    yield helpers.update_tool_call(
        call_id, status="completed", content=_content(content) if change is None else [change]
    )
    if (items := todo_of(name, details)) is not None:
        entries: list[Any] = []
        for item in items:
            status = "completed" if item.status == "done" else item.status
            entries.append(helpers.plan_entry(item.text, status=status))
        yield helpers.update_plan(entries)


def _words(text: str) -> list[Any]:
    return [helpers.tool_content(helpers.text_block(text))]


def _content(content: Sequence[types.UserBlock]) -> list[Any]:
    parts: list[Any] = []
    for block in content:
        if isinstance(block, types.Text):
            parts += _words(block.text)
        elif isinstance(block, types.Image) and isinstance(block.source, types.Base64Source):
            parts.append(helpers.tool_content(helpers.image_block(block.source.data, block.source.media_type)))
    return parts


def change_of(details: Any, folder: str) -> Any:
    """The diff of a write, if the details have the new text and the path; else `None`."""
    if not isinstance(details, dict):
        return None
    known = cast("dict[str, Any]", details)
    old, new, path = (known.get(name) for name in ("old", "new", "path"))
    if not isinstance(new, str) or not isinstance(path, str):
        return None
    before = old if isinstance(old, str) and not known.get("is_new") else None
    return helpers.tool_diff_content(os.path.join(folder, path), new, before)


def _locations(arguments: dict[str, Any], folder: str) -> list[ToolCallLocation] | None:
    path = arguments.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    line = arguments.get("offset")
    number = line if isinstance(line, int) and not isinstance(line, bool) and line > 0 else None
    return [ToolCallLocation(path=os.path.normpath(os.path.join(folder, path)), line=number)]
