"""Infers data that sessions of earlier versions lack. Their format is version 1 too, but some fields are missing.

In this version, `RunStarted` has the kind and the schema of a run, `RunEnded` its `error_kind` and value, and results
have `CallFacts`: a run that has them needs nothing from here. User messages have an `origin`; one without it gets it
here, if its text has the exact form of an earlier version. A text of that form that the user wrote in this version is
stored with an empty origin. This is the only module that knows how earlier versions worded their messages: no other
code may read prose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, cast

from msgspec import structs

from swink_agent.core.errors import ErrorKind
from swink_agent.core.journal import ContextReplaced, MessageAdded, MessageReplaced
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    StopReason,
    Text,
    ToolOutcome,
    ToolResultMessage,
    UserBlock,
    UserMessage,
    extract_text,
)

if TYPE_CHECKING:
    from .records import RecordEntry
    from .runs import StoredRun

_ANSWER = re.compile(r"final_answer_*")
"""The name of the library's tool that takes a structured output."""
_REMINDER = re.compile(f"Answer by calling the tool ({_ANSWER.pattern}), not in text")
_REJECTED = "tool call rejected: "
OLD_ABORT = "the run was aborted"
"""The reason of a call that was rejected because the run was aborted while a person was asked about it."""
_FORMS = (
    ("shell", "<user_shell_command>\n$ ", "\n</user_shell_command>\nI ran this myself, for you to see."),
    (
        "summary",
        "[Summary of the earlier conversation. A model wrote it to save room: it is a record, not a request.]",
        "[End of the summary]",
    ),
)
"""The start and the end of the messages that the user did not write, by origin."""
_STARTS = tuple([start for _, start, _ in _FORMS])
_BY_THE_TOOL = frozenset({ToolOutcome.RAN, ToolOutcome.FAILED, ToolOutcome.INVALID})
"""Outcomes that only calls of existing tools have."""


def old_answer_tools(run: StoredRun, own: Collection[str]) -> frozenset[str]:
    """The tools of the run that may have taken a structured output: the agent itself has no tool of that name."""
    names = [call.name for turn in run.turns for call in turn.calls]
    return frozenset([name for name in names if _ANSWER.fullmatch(name) and name not in own])


def old_answer_tool(run: StoredRun, own: Collection[str]) -> str | None:
    """The tool that took the structured output, if it is certain that the run was asked for one."""
    if run.end is not None and run.end.stopped_by is not None and _ANSWER.fullmatch(run.end.stopped_by.policy):
        return run.end.stopped_by.policy
    possible = old_answer_tools(run, own)
    for turn in run.turns:
        for message in turn.messages("policy"):
            if isinstance(message, UserMessage) and (asked := _REMINDER.match(extract_text(message.content))):
                return asked[1]
        # Once people are asked or calls start, every call of a missing tool has its result.
        is_screened = turn.started or any(one.outcome is ToolOutcome.REJECTED for one in turn.results.values())
        for index, result in turn.results.items():
            if result.tool_name in possible:
                is_there = turn.calls[index].partial_json is None and result.outcome in _BY_THE_TOOL
                if is_there or (is_screened and result.outcome is ToolOutcome.CANCELLED):
                    return result.tool_name
    return None


def old_interruption(run: StoredRun, turn: int) -> Literal["steering", "aborted", "tool"]:
    """Why calls of this turn were cancelled: the run continued with a steering message, ended, or neither."""
    if turn + 1 == len(run.turns):
        return "aborted" if run.ends_early else "steering"
    return "steering" if run.turns[turn + 1].messages("steering") else "tool"


def old_rejection(result: ToolResultMessage | None) -> str:
    """The reason of a rejected call, from the sentence that the model was sent."""
    return "" if result is None else extract_text(result.content).removeprefix(_REJECTED)


def old_note(content: Sequence[UserBlock]) -> str:
    """The note to the model from a person who changed the arguments: a text block after the tool's output."""
    last = content[-1] if len(content) > 1 else None
    return last.text[1:] if isinstance(last, Text) and last.text.startswith("\n") else ""


def with_origins(entries: Iterable[RecordEntry]) -> list[RecordEntry]:
    """The entries as they are read: with the origins of their user messages, which earlier versions did not write."""
    # Every record that is read comes here, most of them a `MessageAdded` that stays as it is.
    return [
        entry if type(entry) is MessageAdded and not _apparent_origin(entry.message) else _with_messages(entry, _read)
        for entry in entries
    ]


def with_stated_origins(entry: RecordEntry) -> RecordEntry:
    """The entry as it is written, with its messages as `with_stated_origin` returns them."""
    return _with_messages(entry, with_stated_origin)


def with_stated_origin(message: AgentMessage) -> AgentMessage:
    """The message as it is written: a user's text that has the form of a command or a summary gets an empty origin, so
    that no reader infers one."""
    is_apparent = _apparent_origin(message) and cast("UserMessage", message).origin is None
    return structs.replace(message, origin="") if is_apparent else message


def _with_messages(entry: RecordEntry, change: Callable[[AgentMessage], AgentMessage]) -> RecordEntry:
    if type(entry) is MessageAdded or type(entry) is MessageReplaced:
        message = change(entry.message)
        return entry if message is entry.message else structs.replace(entry, message=message)
    if type(entry) is ContextReplaced:
        return structs.replace(entry, parts=tuple([p if isinstance(p, int) else change(p) for p in entry.parts]))
    return entry


def _read(message: AgentMessage) -> AgentMessage:
    if not (origin := _apparent_origin(message)):
        return message
    stated = cast("UserMessage", message).origin
    return structs.replace(message, origin=origin if stated is None else stated or None)


def _apparent_origin(message: AgentMessage) -> str:
    """What the text of a user message looks like; empty for any other message."""
    if type(message) is not UserMessage or len(message.content) != 1:
        return ""
    block = message.content[0]
    if type(block) is not Text or not block.text.startswith(_STARTS):
        return ""
    return next((form for form, start, end in _FORMS if block.text.startswith(start) and block.text.endswith(end)), "")


def kind_of_old_error(stop_reason: StopReason, messages: Sequence[AgentMessage]) -> ErrorKind | None:
    """The kind of the error that ended a run."""
    if stop_reason is StopReason.ABORTED:
        return ErrorKind.ABORTED
    last = messages[-1] if messages else None
    return last.error_kind if isinstance(last, AssistantMessage) else None
