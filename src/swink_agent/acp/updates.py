"""Turns events and messages into the notifications that an editor shows.

A call is shown with its kind, its title, the file that it is about, and its diff. Pure; `editor_agent` sends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast

from acp import helpers
from acp.schema import ToolCallLocation

from swink_agent.app.runs.telling import seconds
from swink_agent.core import events, types
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import TextDelta, ThinkingDelta
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
_SUBJECTS = ("command", "path", "pattern", "url", "prompt", "name", "id")


class SessionUpdates:
    """The notifications of one session's runs. If a later turn uses the id of a call again, that is a new call."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: set[str] = set()

    def of(self, event: events.AgentEvent) -> Iterator[Any]:
        """The notifications for an event, in order."""
        match event:
            case events.MessageUpdate(delta=TextDelta() as delta):
                yield helpers.update_agent_message_text(delta.delta)
            case events.MessageUpdate(delta=ThinkingDelta() as delta):
                yield helpers.update_agent_thought_text(delta.delta)
            case events.MessageRetry():
                yield _discarded(
                    f"attempt {event.attempt} failed, the next is in {seconds(round(event.delay, 1))}: {event.error}"
                )
            case events.ModelFallback():
                yield _discarded(f"continuing with {event.to_model}: {event.error}")
            case events.MessageEnd():
                self._known.clear()
                for call in event.message.tool_calls:
                    yield self._begun(call.id, call.name, call.arguments)
            case events.ToolApprovalRequested() | events.ToolExecutionStart() | events.ToolExecutionEnd():
                if event.call_id not in self._known:
                    yield self._begun(event.call_id, event.name, event.arguments or {})
                if isinstance(event, events.ToolExecutionStart):
                    yield helpers.update_tool_call(event.call_id, status="in_progress", raw_input=event.arguments)
                elif isinstance(event, events.ToolExecutionEnd):
                    result = event.result
                    yield from _ended(
                        event.call_id, event.name, result.content, result.details, self._folder, event.is_error
                    )
            case events.ToolExecutionUpdate():
                yield helpers.update_tool_call(event.call_id, content=_content(event.update.content))
            case _:
                pass

    def _begun(self, call_id: str, name: str, arguments: dict[str, Any]) -> Any:
        self._known.add(call_id)
        return shown_call(call_id, name, arguments, self._folder)


def _discarded(why: str) -> Any:
    """Ends the text of a failed attempt, which is not part of the answer."""
    return helpers.update_agent_message_text(f"\n\n[the text before this was discarded: {why}]\n\n")


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


def replayed(messages: Sequence[types.AgentMessage], folder: str, redactor: Redactor) -> Iterator[Any]:
    """The notifications for a history. It is masked again: it may be older than the masking, or than a secret."""
    for message in map(redactor.redact_message, messages):
        if isinstance(message, types.UserMessage):
            for block in message.content:
                if isinstance(block, types.Text):
                    yield helpers.update_user_message_text(block.text)
                elif isinstance(block, types.Image) and isinstance(block.source, types.Base64Source):
                    yield helpers.update_user_message(helpers.image_block(block.source.data, block.source.media_type))
        elif isinstance(message, types.AssistantMessage):
            for block in message.content:
                if isinstance(block, types.Text):
                    yield helpers.update_agent_message_text(block.text)
                elif isinstance(block, types.Thinking):
                    yield helpers.update_agent_thought_text(block.thinking)
                elif isinstance(block, types.ToolCall):
                    yield shown_call(block.id, block.name, block.arguments, folder)
        elif isinstance(message, types.ToolResultMessage):
            call_id, name = message.tool_call_id, message.tool_name
            yield from _ended(call_id, name, message.content, message.details, folder, message.is_error)


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


def _content(content: Sequence[types.UserBlock]) -> list[Any]:
    parts: list[Any] = []
    for block in content:
        if isinstance(block, types.Text):
            parts.append(helpers.tool_content(helpers.text_block(block.text)))
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
