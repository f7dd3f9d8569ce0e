"""Documents where a model takes none: one that came since the last reply is refused, an older one becomes a note.

So a person who attaches a document learns that it does not arrive, and a document in a history never keeps a model from
continuing the conversation. Owns which documents are new, and the words. Adapters ask it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..types import AgentMessage, Document, ToolResultMessage, UserMessage
from .context import answered


def new_document(messages: Sequence[AgentMessage]) -> Document | None:
    """Returns the first document that came since the last reply, also if that failed and is not among the messages."""
    for position in range(answered(messages), len(messages)):
        message = messages[position]
        if type(message) is UserMessage or type(message) is ToolResultMessage:
            for block in message.content:
                if type(block) is Document:
                    return block
    return None


def refused_document(who: str, document: Document) -> str:
    """Says that a provider or model does not take the document, and what to do."""
    return (
        f"{who} takes no documents, so {document.shown_name!r} was not sent: leave it out, or choose a model that "
        "takes documents"
    )


def document_note(document: Document) -> str:
    """Returns what a model reads instead of the document."""
    return f"[document {document.shown_name} left out: this model takes no documents]"
