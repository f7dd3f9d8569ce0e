"""Turns the messages of an earlier conversation into blocks.

Making the blocks costs little: text is masked and laid out when a block is first seen or searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from swink_agent.core import types
from swink_agent.core.events import MessageEnd, ToolExecutionEnd
from swink_agent.core.record import RunRecord
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import AgentMessage, AssistantMessage, Text, Thinking, ToolOutcome, extract_text
from swink_agent.rendering.checklist import TODO, todo_of

from .block import Block
from .messages import UserBlock
from .parts import LONG, Cutter
from .reply import ReplyBlock, Stopped
from .tool import ToolBlock


def blocks_of(
    messages: Sequence[AgentMessage],
    *,
    redact: Callable[[str], str],
    summary_of: Callable[[str, dict[str, Any]], str] | None = None,
) -> list[Block]:
    """Returns the blocks of a history; an application's own messages have none.

    `summary_of` summarizes a call in a few words; without it, the first text among the call's arguments is the summary.
    """
    blocks: list[Block] = []
    replies = [position for position, message in enumerate(messages) if type(message) is AssistantMessage]
    ends = dict(zip(replies, [*replies[1:], len(messages)], strict=False))
    for position, message in enumerate(messages):
        if type(message) is types.UserMessage:
            blocks.append(_prompt(message, position, redact))
        elif type(message) is AssistantMessage:
            if any(type(block) in (Text, Thinking) for block in message.content) or message.is_failed:
                blocks += _reply(message, redact)
            end = ends[position]
            open_outcome = ToolOutcome.NEVER_RAN if end == len(messages) else ToolOutcome.LOST
            blocks += _calls(message, messages[position + 1 : end], open_outcome, redact, summary_of)
        elif type(message) is types.ToolResultMessage and (not replies or position < replies[0]):
            blocks += _calls(None, [message], ToolOutcome.LOST, redact, summary_of)
    return blocks


def _calls(
    reply: AssistantMessage | None,
    following: Sequence[AgentMessage],
    open_outcome: ToolOutcome,
    redact: Callable[[str], str],
    summary_of: Callable[[str, dict[str, Any]], str] | None,
) -> list[ToolBlock]:
    """Returns the calls of a reply with their results from the following messages, as `RunRecord` pairs them."""
    record = RunRecord()
    if reply is not None:
        record.feed(MessageEnd(reply))
    for message in following:
        if type(message) is types.ToolResultMessage:
            result = AgentToolResult(message.content, message.details, message.is_error)
            record.feed(
                ToolExecutionEnd(message.tool_call_id, message.tool_name, result, message.is_error, message.outcome)
            )
    written = () if reply is None else reply.tool_calls
    blocks: list[ToolBlock] = []
    for number, call in enumerate(record.calls):
        summary = redact(_summary(written[number], summary_of)) if number < len(written) else ""
        block = ToolBlock(call.id, call.name, summary)
        if call.outcome is None or call.result is None:
            block.finish(open_outcome, "", is_error=True)
        else:
            _fill_later(block, call.outcome, call.result, redact)
        block.fold()
        blocks.append(block)
    return blocks


def _summary(call: types.ToolCall, summary_of: Callable[[str, dict[str, Any]], str] | None) -> str:
    if summary_of is not None and not call.is_incomplete:
        return summary_of(call.name, call.arguments)
    if call.is_incomplete:
        return call.partial_json or ""
    return next((value for value in call.arguments.values() if isinstance(value, str) and value.strip()), "")


def _prompt(message: types.UserMessage, position: int, redact: Callable[[str], str]) -> UserBlock:
    text = extract_text(message.content)
    images = [_name(block) for block in message.content if type(block) is types.Image or type(block) is types.Document]
    block = UserBlock(text, images=images, position=position)
    block.restore_with(lambda: block.set_content(redact(text), [redact(image) for image in images]))
    return block


def _name(block: types.Image | types.Document) -> str:
    if type(block) is types.Document and block.name:
        return block.shown_name
    if isinstance(block.source, types.FileSource):
        return block.source.path
    if isinstance(block.source, types.UrlSource):
        return block.source.url
    return "image" if type(block) is types.Image else "document"


def _reply(message: AssistantMessage, redact: Callable[[str], str]) -> list[ReplyBlock]:
    stopped: Stopped = ""
    if message.is_failed:
        stopped = "aborted" if message.stop_reason == types.StopReason.ABORTED else "error"
    parts = [block for block in message.content if type(block) in (Text, Thinking)]
    if sum([len(part.text) for part in parts if type(part) is Text]) > LONG:
        return _long_reply(message, stopped, redact)
    reply = ReplyBlock()

    def fill() -> None:
        for part in parts:
            if type(part) is Text:
                reply.append_text(redact(part.text))
            elif type(part) is Thinking:
                reply.append_thinking(redact(part.thinking))
        reply.finish(stopped, _error_in(message, stopped, redact))

    reply.estimate_size(sum([len(part.text) for part in parts if type(part) is Text]))
    reply.is_finished = True
    reply.restore_with(fill)
    return [reply]


def _long_reply(message: AssistantMessage, stopped: Stopped, redact: Callable[[str], str]) -> list[ReplyBlock]:
    """Cuts a long reply into parts at once. The whole text is masked first: a secret may cross the end of a part."""
    replies = [ReplyBlock()]
    cutter = Cutter()
    for part in message.content:
        if type(part) is Thinking:
            replies[-1].append_thinking(redact(part.thinking))
        elif type(part) is Text:
            for piece in cutter.feed(redact(part.text)):
                if piece.seam:
                    replies[-1].finish()
                    replies.append(ReplyBlock(seam=piece.seam, fence=piece.fence))
                replies[-1].append_text(piece.text)
    replies[-1].finish(stopped, _error_in(message, stopped, redact))
    return replies


def _error_in(message: AssistantMessage, stopped: Stopped, redact: Callable[[str], str]) -> str:
    return redact(message.error_message or "") if stopped == "error" else ""


def _fill_later(block: ToolBlock, outcome: ToolOutcome, result: AgentToolResult, redact: Callable[[str], str]) -> None:
    """Finishes the call now, and masks its output when the block is first seen."""
    given: object = result.details
    details: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, dict) else {}

    def fill() -> None:
        masked = {key: redact(value) if isinstance(value, str) else value for key, value in details.items()}
        if items := todo_of(block.name, details):
            masked[TODO] = [{"text": redact(item.text), "status": item.status} for item in items]
        block.finish(outcome, redact(extract_text(result.content)), is_error=result.is_error, details=masked or None)

    block.finish(outcome, "", is_error=result.is_error)
    block.restore_with(fill)
