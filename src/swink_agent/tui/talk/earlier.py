"""An earlier part of a conversation, as blocks.

Owns what is known here beyond `transcript.blocks_of`: in which words calls are told, and which messages are commands
that the person ran.
"""

from __future__ import annotations

from collections.abc import Sequence

from swink_agent.app.telling import summary_of
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, AssistantMessage, UserMessage, extract_text

from ..transcript import Block, UserBlock, blocks_of
from .shell import FROM_SHELL, is_from_shell

__all__ = ["shown_history"]


def shown_history(messages: Sequence[AgentMessage], redactor: Redactor) -> tuple[list[Block], str]:
    """The blocks of a history, and the last answer in it, masked."""
    blocks = blocks_of(messages, redact=redactor.redact, summary_of=summary_of)
    for block in blocks:
        if isinstance(block, UserBlock) and block.position is not None:
            message = messages[block.position]
            if isinstance(message, UserMessage) and is_from_shell(extract_text(message.content)):
                block.label = FROM_SHELL
    said = (message.text.strip() for message in reversed(messages) if isinstance(message, AssistantMessage))
    return blocks, redactor.redact(next((text for text in said if text), ""))
