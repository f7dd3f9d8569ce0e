"""The messages of an earlier conversation as blocks, drawn when they are looked at.

Owns which result belongs to which call. Making the blocks costs next to nothing: text is masked and laid out when a
block is first seen or searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    FileImage,
    Image,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    UrlImage,
    UserMessage,
    extract_text,
)

from .block import Block
from .messages import UserBlock
from .parts import LONG, Cutter
from .reply import ReplyBlock, Stopped
from .tool import ToolBlock

__all__ = ["blocks_of"]


def blocks_of(
    messages: Sequence[AgentMessage],
    *,
    redact: Callable[[str], str],
    summary_of: Callable[[str, dict[str, Any]], str] | None = None,
    first: int = 0,
) -> list[Block]:
    """The blocks of a history; `first` is the position of the first message. An application's own messages have none.

    `summary_of` says in a few words what a call is about; without it, its first argument that is a text does.
    """
    blocks: list[Block] = []
    waiting: dict[str, ToolBlock] = {}
    for position, message in enumerate(messages, first):
        if type(message) is UserMessage:
            blocks.append(_prompt(message, position, redact))
        elif type(message) is AssistantMessage:
            # Ids of calls may recur: a result belongs to the reply that it follows.
            for block in waiting.values():
                block.finish(ToolOutcome.LOST, "", is_error=True)
                block.fold()
            waiting = {}
            if any(type(block) in (Text, Thinking) for block in message.content) or message.is_failed:
                blocks += _reply(message, redact)
            for call in message.tool_calls:
                block = ToolBlock(call.id, call.name, redact(_summary(call, summary_of)))
                waiting[call.id] = block
                blocks.append(block)
        elif type(message) is ToolResultMessage:
            block = waiting.pop(message.tool_call_id, None)
            if block is None:
                block = ToolBlock(message.tool_call_id, message.tool_name, "")
                blocks.append(block)
            _settle(block, message, redact)
    for block in waiting.values():
        block.finish(ToolOutcome.NEVER_RAN, "", is_error=True)
        block.fold()
    return blocks


def _summary(call: ToolCall, summary_of: Callable[[str, dict[str, Any]], str] | None) -> str:
    if summary_of is not None and not call.is_incomplete:
        return summary_of(call.name, call.arguments)
    if call.is_incomplete:
        return call.partial_json or ""
    return next((value for value in call.arguments.values() if isinstance(value, str) and value.strip()), "")


def _prompt(message: UserMessage, position: int, redact: Callable[[str], str]) -> UserBlock:
    text = extract_text(message.content)
    images = [_image_name(block) for block in message.content if type(block) is Image]
    block = UserBlock(text, images=images, position=position)
    block.restore_with(lambda: block.set_content(redact(text), [redact(image) for image in images]))
    return block


def _image_name(image: Image) -> str:
    if isinstance(image.source, FileImage):
        return image.source.path
    return image.source.url if isinstance(image.source, UrlImage) else "image"


def _reply(message: AssistantMessage, redact: Callable[[str], str]) -> list[ReplyBlock]:
    stopped: Stopped = ""
    if message.is_failed:
        stopped = "aborted" if message.stop_reason == StopReason.ABORTED else "error"
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
    """In parts, which have to be known at once: a secret may go over the end of one, so all of it is masked first."""
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


def _settle(block: ToolBlock, message: ToolResultMessage, redact: Callable[[str], str]) -> None:
    given: object = message.details
    details = cast("Mapping[str, Any]", given) if isinstance(given, dict) else None

    def fill() -> None:
        block.finish(
            message.outcome, redact(extract_text(message.content)), is_error=message.is_error, details=_masked()
        )

    def _masked() -> Mapping[str, Any] | None:
        if details is None:
            return None
        return {key: redact(value) if isinstance(value, str) else value for key, value in details.items()}

    block.finish(message.outcome, "", is_error=message.is_error)
    block.fold()
    block.restore_with(fill)
