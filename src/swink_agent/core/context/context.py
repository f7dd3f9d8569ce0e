"""Functions of messages: snapshots, whether a history is answered, token counts, and texts for models that do not take
documents.

The history of a run is in `run/transcript`, and `exchanges` pairs its calls and results; `window` keeps it within a
budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import eq
from typing import Any, TypeVar, cast, overload

import msgspec

from ..errors import InvalidContinue
from ..exchanges import last_exchange
from ..run.pending import pending_calls
from ..types import (
    AgentMessage,
    AssistantMessage,
    Base64Source,
    CustomMessage,
    Document,
    Image,
    LlmMessage,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from ..values.data import as_json
from ..values.value import show

M = TypeVar("M")


class Snapshot(Sequence[M]):
    """The first messages of a list that only grows: a snapshot of a history without copying it.

    It is equal to any list, tuple or snapshot with the same messages.
    """

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[M]) -> None:
        self._messages = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[M, ...]: ...
    def __getitem__(self, index: int | slice) -> M | tuple[M, ...]:
        if isinstance(index, slice):
            return tuple(self._messages[position] for position in range(*index.indices(self._length)))
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._messages[position]

    def __iter__(self) -> Iterator[M]:
        return islice(self._messages, self._length)

    def __reversed__(self) -> Iterator[M]:
        return islice(reversed(self._messages), len(self._messages) - self._length, None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Snapshot, list, tuple)):
            return NotImplemented
        theirs = cast("Sequence[Any]", other)
        return len(theirs) == self._length and all(map(eq, self, theirs))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return show(self[:4] if self._length > 4 else tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Snapshot, (list(self),))


class SentMessages(Snapshot[M]):
    """Messages that are sent after a failed reply, which is not among them. The first `answered` came before it."""

    __slots__ = ("answered",)

    def __init__(self, messages: list[M], answered: int) -> None:
        super().__init__(messages)
        self.answered = answered


def answered(messages: Sequence[AgentMessage]) -> int:
    """How many of the messages came before the last reply. A failed reply that is not among them counts too."""
    for position in range(len(messages) - 1, -1, -1):
        if type(messages[position]) is AssistantMessage:
            return max(position, failed_before(messages))
    return failed_before(messages)


def failed_before(messages: Sequence[AgentMessage]) -> int:
    """How many of the messages came before a failed reply that is not among them."""
    return cast("int", getattr(messages, "answered", 0))


def default_convert_to_llm(message: AgentMessage) -> LlmMessage | None:
    """Returns the message unchanged, or `None` for an application's own message."""
    return None if isinstance(message, CustomMessage) else message


def is_answered(messages: Sequence[AgentMessage]) -> bool:
    """Whether the history is empty or ends with a reply without calls; failed replies do not count."""
    for message in reversed(messages):
        if not (isinstance(message, AssistantMessage) and message.is_failed):
            return isinstance(message, AssistantMessage) and not message.tool_calls
    return True


def is_waiting(messages: Sequence[AgentMessage]) -> bool:
    """Whether one of the results at the end of the history is pending: its call waits for an answer."""
    last = last_exchange(messages)
    return bool(last.pending) and not last.is_left


def cannot_continue(messages: Sequence[AgentMessage]) -> InvalidContinue:
    """Returns the error for a history that has nothing to answer: it names the calls that wait, if there are any."""
    if not is_waiting(messages):
        return InvalidContinue()
    calls = ", ".join([f"{call.call_id!r} ({call.name})" for call in pending_calls(messages)])
    return InvalidContinue(f"calls wait for an answer: {calls}; resume() with answers, or prompt() to continue without")


def start_of_waiting(messages: Sequence[AgentMessage]) -> int:
    """The position of the reply whose calls wait; the number of messages if no call waits."""
    position = len(messages)
    if is_waiting(messages):
        for message in reversed(messages):
            position -= 1
            if type(message) is AssistantMessage:
                return position
    return len(messages)


# -- size ----------------------------------------------------------------------------------------------------

_IMAGE_TOKENS = 1_200
_MESSAGE_TOKENS = 4
_MOST_IMAGE_TOKENS = 6000
_LEAST_OF_A_DOCUMENT, _MOST_OF_A_DOCUMENT = 20_000, 300_000
_PAGE_BYTES = 40_000
_PAGE_TOKENS = 2_000
_UNKNOWN_PAGES = 5
_MOST_PAGES = 100


def estimate_tokens(messages: AgentMessage | Iterable[AgentMessage]) -> int:
    """Estimates tokens at four characters each: for budgets and gauges, not for billing."""
    if isinstance(messages, (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)):
        return _estimate(messages)
    return sum(_estimate(message) for message in messages)


def _estimate(message: AgentMessage) -> int:
    if isinstance(message, CustomMessage):
        return 0  # it does not reach a model
    characters = 0
    tokens = _MESSAGE_TOKENS
    for block in message.content:
        match block:
            case Text():
                characters += len(block.text)
            case Thinking():
                characters += len(block.thinking) + len(block.signature or "")
            case ToolCall():
                characters += len(block.name) + (len(block.partial_json or "") or json_size(block.arguments))
            case Image():
                tokens += _IMAGE_TOKENS
            case Document():
                tokens += document_tokens(block)
            case _:
                pass
    return tokens + (characters + 3) // 4


def document_tokens(document: Document) -> int:
    """Estimates the tokens of a PDF by its size: counting its pages would mean parsing it."""
    source = document.source
    pages = -(-len(source.data) * 3 // 4 // _PAGE_BYTES) if type(source) is Base64Source else _UNKNOWN_PAGES
    return min(max(pages, 1), _MOST_PAGES) * _PAGE_TOKENS


def most_tokens(message: AgentMessage) -> int:
    """The most tokens that a message can have: a token of text is at least a byte."""
    if isinstance(message, CustomMessage):
        return json_size(message)  # it may be converted to a message of about this size
    attached = sum(
        _MOST_IMAGE_TOKENS if isinstance(block, Image) else _most_document_tokens(block.source)
        for block in message.content
        if isinstance(block, (Image, Document))
    )
    others = [block for block in message.content if not isinstance(block, (Image, Document))]
    return sum(map(json_size, others)) + attached + 4 * _MESSAGE_TOKENS


def json_size(value: object) -> int:
    """The bytes of a value as JSON. What JSON does not have counts as its text."""
    try:
        return len(msgspec.json.encode(value))
    except Exception:
        return len(as_json(value))


def _most_document_tokens(source: Source) -> int:
    """Returns a bound by the size: a PDF's text is compressed, but most of a large PDF is pictures and fonts."""
    size = len(source.data) if type(source) is Base64Source else _MOST_OF_A_DOCUMENT
    return min(max(size, _LEAST_OF_A_DOCUMENT), _MOST_OF_A_DOCUMENT)


def new_document(messages: Sequence[AgentMessage]) -> Document | None:
    """Returns the first document after the last reply. A failed reply that is not among the messages counts too."""
    for position in range(answered(messages), len(messages)):
        message = messages[position]
        if type(message) is UserMessage or type(message) is ToolResultMessage:
            for block in message.content:
                if type(block) is Document:
                    return block
    return None


def refused_document(who: str, document: Document) -> str:
    """Returns the error text for a document that a provider or model does not take."""
    return (
        f"{who} takes no documents, so {document.shown_name!r} was not sent: leave it out, or choose a model that "
        "takes documents"
    )


def document_note(document: Document) -> str:
    """Returns the text that a model gets instead of the document."""
    return f"[document {document.shown_name} left out: this model takes no documents]"
