"""Makes the lines of a session's file: each record is masked, then written.

Owns which fields of an entry are masked, and the writing to the open log. `core.secrets.messages` masks messages, and
the agent's redactor knows the secrets.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from swink_agent.core.journal import (
    CallFacts,
    ContextReplaced,
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    ModelChanged,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.core.secrets.messages import hold_text, masked_data, masked_message, with_fields
from swink_agent.core.secrets.redaction import SHORTEST_TEXT, Redactor
from swink_agent.core.types import AgentMessage, AssistantMessage, CustomMessage, ToolCall
from swink_agent.core.values.nesting import DEEPEST, is_too_deep, kept_shallow

from .records import RecordEntry, SessionStarted, UnknownMessage, fill_line

_NOTHING_SAID = frozenset({HistoryCut, ModelChanged})

# Types are compared by `type(x) is T`, as in `core.types`, and the most frequent come first: this is done for every
# record of every run.


def may_need_masking(entry: RecordEntry) -> bool:
    """Whether the entry may hold a secret. A quick check with false positives. Above all it rules out replies whose
    calls hold no text, and the starts of calls, which are half of a busy agent's records."""
    if type(entry) is MessageAdded:
        message = entry.message
        if type(message) is not AssistantMessage or message.error_message is not None:
            return True
        for block in message.content:
            if type(block) is not ToolCall or block.partial_json is not None or hold_text(block.arguments):
                return True
            if len(block.name) >= SHORTEST_TEXT:
                return True
        return False
    if type(entry) is ToolStarted:
        return entry.arguments is not None or entry.facts is not None
    if type(entry) is RunStarted:
        return entry.schema is not None
    return type(entry) not in _NOTHING_SAID


def masked(entry: RecordEntry, redactor: Redactor) -> RecordEntry:
    """The entry without the secrets that the redactor knows; the same object if it holds none."""
    kind = type(entry)
    if isinstance(entry, (MessageAdded, MessageReplaced)):
        message = _message(entry.message, redactor)
        if isinstance(entry, MessageAdded) and entry.facts is not None:
            return with_fields(entry, message=message, facts=_facts(entry.facts, redactor))
        return entry if message is entry.message else structs.replace(entry, message=message)
    if isinstance(entry, ToolStarted):
        arguments = None if entry.arguments is None else masked_data(entry.arguments, redactor)
        facts = None if entry.facts is None else _facts(entry.facts, redactor)
        return with_fields(entry, arguments=arguments, facts=facts)
    if isinstance(entry, RunStarted):
        return entry if entry.schema is None else with_fields(entry, schema=masked_data(entry.schema, redactor))
    if kind in _NOTHING_SAID:
        return entry
    if isinstance(entry, StateChanged):
        return with_fields(entry, state=redactor.redact_value(entry.state))
    if isinstance(entry, SessionStarted):
        return with_fields(entry, title=redactor.redact(entry.title), metadata=redactor.redact_value(entry.metadata))
    if isinstance(entry, ContextReplaced):
        parts = [part if isinstance(part, int) else _message(part, redactor) for part in entry.parts]
        return with_fields(entry, parts=tuple(parts))
    return redactor.redact_value(entry)


def _facts(facts: CallFacts, redactor: Redactor) -> CallFacts:
    """The facts of a call. Reason and note were masked before they were recorded."""
    scope = None if facts.scope is None else masked_data(facts.scope, redactor)
    arguments = None if facts.arguments is None else masked_data(facts.arguments, redactor)
    return with_fields(facts, scope=scope, arguments=arguments)


def _message(message: AgentMessage, redactor: Redactor) -> AgentMessage:
    if isinstance(message, CustomMessage) and is_too_deep(message, DEEPEST + 1):
        return _in_parts(message, redactor)
    return masked_message(message, redactor)


def _in_parts(message: AgentMessage, redactor: Redactor) -> UnknownMessage:
    """A custom message that is nested too deep to be written as it is. Its class may not accept the shortened value, so
    it is written like a message of an unknown class, and read as its own class again if possible."""
    config = message.__struct_config__
    names = zip(message.__struct_encode_fields__, message.__struct_fields__, strict=True)
    fields = {name: kept_shallow(getattr(message, attribute)) for name, attribute in names}
    return UnknownMessage(redactor.redact_value({str(config.tag_field): config.tag, **fields}))


class LineWriter:
    """Writes to one log. Used by one thread at a time."""

    def __init__(self, append: Callable[[bytearray], int]) -> None:
        self._append = append
        self._line = bytearray()
        """The line that is being written. The buffer is reused for the next line."""

    def write(self, number: int, at: int, entry: RecordEntry, redactor: Redactor | None) -> None:
        """Writes one record with one write. Raises if it is not written completely."""
        if redactor is not None and may_need_masking(entry):
            entry = masked(entry, redactor)
        line = self._line
        fill_line(line, number, at, entry)
        taken = self._append(line)
        if taken != len(line):
            raise OSError(f"only {taken} of {len(line)} bytes were written")
