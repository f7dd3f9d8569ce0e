"""The history of an agent, and the messages that are sent to the model.

There are three lists: the history (which transforms never change), the context (the messages that the transforms kept)
and the conversation (the messages that are sent). Each message is converted once, and no list is copied or rebuilt from
one turn to the next unless something in it changed. The rules for pairs are in `exchanges`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..context.context import SentMessages, Snapshot
from ..exchanges import is_sendable, repair_pairs
from ..journal import MessageSource, Recorder
from ..secrets.redaction import Redactor
from ..types import LLM_MESSAGES, AgentMessage, AssistantMessage, LlmMessage, UserMessage, is_blank


class Transcript:
    """One history, its context, and its conversation."""

    def __init__(self, messages: Iterable[AgentMessage] = ()) -> None:
        self.memory: dict[Any, Any] = {}
        """Data that tools store about this conversation. Another history starts with an empty one."""
        self.redactor: Redactor | None = None
        """Masks secrets if the agent has no redactor. It is kept, so that placeholders are the same in all runs."""
        self.recorder: Recorder | None = None  # records changes of this history, if a journal is attached
        self.fresh_from = 0
        """How many messages the transforms left in the context. The usage of a reply among them does not measure it."""
        self.counted: tuple[Callable[[AgentMessage], int], tuple[AgentMessage, ...], tuple[int, ...]] | None = None
        """The last token counts: the counter, the messages and the tokens of each. A turn counts only new messages."""
        self.covered: tuple[AgentMessage, int] | None = None
        """The newest summary in the context, and how many messages of the history it replaces."""
        self._history = list(messages)
        self._context = self._history  # the same list, until a transform changes the context
        self._restart()

    def _restart(self) -> None:
        """Discards the conversion, since the context has changed."""
        self._converted = 0
        self._llm: list[LlmMessage] = []
        self._sent = self._llm  # the same list, until a repair makes a new one
        self._answered = 0  # how many of the sent messages came before a failed reply, which is not sent itself
        self._checked = 0  # how many of the converted messages are in `_sent`, repaired or unchanged

    def own_redactor(self) -> Redactor:
        """Returns the redactor for an agent without one: it knows the secrets of the current environment."""
        if self.redactor is None:
            self.redactor = Redactor()
        else:
            self.redactor.learn_environment(os.environ)
        return self.redactor

    # -- history -----------------------------------------------------------------------------------------------

    @property
    def history(self) -> Snapshot[AgentMessage]:
        """The history as it is now."""
        return Snapshot(self._history)

    def __len__(self) -> int:
        return len(self._history)

    def add(self, messages: Sequence[AgentMessage], source: MessageSource = "given") -> None:
        """Adds messages at the end. Results are recorded as they come, one by one, and not here."""
        if self.recorder is not None and source != "result":
            self.recorder.added(messages, source)
        self._history.extend(messages)
        if self._context is not self._history:
            self._context.extend(messages)

    def since(self, start: int) -> tuple[AgentMessage, ...]:
        return tuple(self._history[start:])

    def replace(self, old: AgentMessage, new: AgentMessage) -> None:
        """Replaces `old`, a message of this turn that is not converted yet, by `new`."""
        if self.recorder is not None:
            self.recorder.replaced(old, new)
        shared = self._context is self._history
        self._history = _replaced(self._history, old, new)
        if shared:
            self._context = self._history
        else:
            self._context = _replaced(self._context, old, new)

    def take_place(self, position: int, pending: AgentMessage, new: AgentMessage) -> None:
        """Replaces the pending result by a recorded one: at this position of the history, and wherever it is in the
        context. It may be converted already, so the conversion starts again."""
        shared = self._context is self._history
        old = self._history[position]
        history = list(self._history)  # a new list, since snapshots of this one keep the old message
        history[position] = new
        self._history = history
        self._context = history if shared else _replaced(_replaced(self._context, pending, new), old, new)
        if self.recorder is not None:
            self.recorder.forget(old)
            self.recorder.forget(pending)
        self._restart()

    # -- context -----------------------------------------------------------------------------------------------

    @property
    def context(self) -> Snapshot[AgentMessage]:
        """The messages that the transforms kept or made."""
        return Snapshot(self._context)

    @property
    def is_compacted(self) -> bool:
        """Whether the context differs from the history."""
        return self._context is not self._history

    def adopt(self, messages: Sequence[AgentMessage]) -> bool:
        """Makes the transforms' messages the context from now on; returns whether that changed it."""
        if len(messages) == len(self._context) and all(
            new is old for new, old in zip(messages, self._context, strict=True)
        ):
            return False
        self._context = list(messages)
        self.fresh_from = len(self._context)
        self._restart()
        return True

    # -- conversation ------------------------------------------------------------------------------------------

    def unconverted(self) -> list[AgentMessage]:
        """The messages of the context that have not been converted yet."""
        return self._context[self._converted :]

    def convert_by_default(self) -> None:
        """Converts the unconverted messages as `default_convert_to_llm` would."""
        fresh: list[Any] = self._context[self._converted :]
        if not LLM_MESSAGES.issuperset(map(type, fresh)):
            fresh = [message for message in fresh if type(message) in LLM_MESSAGES]
        self._llm += fresh
        self._converted = len(self._context)

    def convert(self, messages: Iterable[LlmMessage]) -> None:
        """Adds the converted form of the unconverted messages."""
        self._llm.extend(messages)
        self._converted = len(self._context)

    @property
    def is_blank(self) -> bool:
        """Whether all messages that `conversation` returned last are without content."""
        # If the last message is not the user's, the conversation is not blank.
        return not self._sent or (type(self._sent[-1]) is UserMessage and is_blank(self._sent))

    def conversation(self) -> Snapshot[LlmMessage]:
        """Returns the messages to send now: a valid conversation. The next one begins with the same messages."""
        if not self._extend_in_order():
            self._repair()
        return SentMessages(self._sent, self._answered) if self._answered else Snapshot(self._sent)

    def _extend_in_order(self) -> bool:
        """Adds the new messages if they are valid as they are; returns whether they were."""
        fresh = self._llm[self._checked :]
        if not is_sendable(fresh):
            return False
        if self._sent is not self._llm:
            self._sent.extend(fresh)
        self._checked = len(self._llm)
        return True

    def _repair(self) -> None:
        """Rebuilds the conversation. It does not end with a failed reply: the model is asked again."""
        end = len(self._llm)
        while end and type(last := self._llm[end - 1]) is AssistantMessage and last.is_failed:
            end -= 1
        repaired = repair_pairs(self._llm[:end])
        if self._sent is self._llm:
            self._sent = self._llm[: self._checked]
        if self._sent != repaired[: len(self._sent)]:
            self._sent = []  # a new list: snapshots of the old one stay as they are
        self._sent.extend(repaired[len(self._sent) :])
        self._checked = end
        newest = 0
        while newest < end and type(self._llm[end - newest - 1]) is not AssistantMessage:
            newest += 1
        self._answered = max(0, len(repaired) - newest) if newest < end else 0


def _replaced(messages: list[AgentMessage], old: AgentMessage, new: AgentMessage) -> list[AgentMessage]:
    """Returns a new list, since snapshots of this one keep the old message."""
    replaced = list(messages)
    for position in range(len(replaced) - 1, -1, -1):
        if replaced[position] is old:
            replaced[position] = new
            break
    return replaced
