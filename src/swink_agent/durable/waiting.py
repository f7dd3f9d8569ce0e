"""Calls that wait in a durable run, and their answers, as the run's row keeps them.

A question is identified by the position of its reply and the id of its call: ids recur, and a page that was left open
must not answer a later question. Answers stay in the row; the first for a question counts.

Owns the JSON of both. `core.run.pending` checks which answers fit a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from swink_agent.core.approval import Approve, ApproveWith, PendingCall, Reject
from swink_agent.core.run.pending import Answer, waiting_calls
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import AssistantMessage
from swink_agent.core.values.data import as_json
from swink_agent.core.values.decoders import json_decoder
from swink_agent.core.values.value import Value
from swink_agent.memory import Fold


class Question(Value, frozen=True):
    """A call that waits: `reply` is the position of its reply, `is_once` whether its id occurred once in the run."""

    call: PendingCall
    reply: int
    is_once: bool = True


class GivenAnswer(Value, frozen=True, kw_only=True, omit_defaults=True):
    """An answer, who gave it, and when (by the store's clock, in milliseconds). `token` identifies the request that
    gave it: if the request is repeated, it finds its own answer."""

    kind: str
    arguments: dict[str, Any] | None = None
    note: str = ""
    reason: str = ""
    result: AgentToolResult | None = None
    by: str = ""
    at: int = 0
    token: str = ""

    @property
    def answer(self) -> Answer:
        match self.kind:
            case "approve":
                return Approve()
            case "approve_with":
                return ApproveWith(self.arguments or {}, self.note)
            case "result" if self.result is not None:
                return self.result
            case _:
                return Reject(self.reason)


Answers: TypeAlias = dict[str, dict[str, GivenAnswer]]
"""By the position of the reply, as text, and by the id of the call."""


def given_answer(answer: Answer, *, by: str, token: str) -> GivenAnswer:
    match answer:
        case ApproveWith():
            return GivenAnswer(kind="approve_with", arguments=answer.arguments, note=answer.note, by=by, token=token)
        case Reject():
            return GivenAnswer(kind="reject", reason=answer.reason, by=by, token=token)
        case AgentToolResult():
            return GivenAnswer(kind="result", result=answer, by=by, token=token)
        case Approve() | bool():
            return GivenAnswer(kind="approve", by=by, token=token)


def questions_in(fold: Fold) -> list[Question]:
    """The waiting calls, from the records."""
    messages = fold.messages
    reply, waiting = waiting_calls(messages)
    if reply is None:
        return []
    at = next(index for index in range(len(messages) - 1, -1, -1) if messages[index] is reply)
    position = fold.numbers[at] or 0
    replies = [message for message in messages if type(message) is AssistantMessage]
    counts = Counter(call.id for message in replies for call in message.tool_calls)
    return [
        Question(structs.replace(call, position=position), position, counts[one.call.id] == 1)
        for one in waiting
        for call in one.calls()
    ]


def encoded_questions(questions: Iterable[Question], redactor: Redactor) -> str:
    """The questions without secrets. The call that runs is the one on record, which is masked in the same way."""
    return as_json([structs.replace(one, call=redactor.redact_value(one.call)) for one in questions]).decode()


def decoded_questions(text: str) -> list[Question]:
    return json_decoder(list[Question]).decode(text)


def decoded_answers(text: str) -> Answers:
    return json_decoder(Answers).decode(text) if text != "{}" else {}


def answer_to(question: Question, answers: Answers) -> GivenAnswer | None:
    """The answer that counts for a question. The reply's position is compared first: ids recur."""
    return answers.get(str(question.reply), {}).get(question.call.call_id)


def note_of(question: Question, given: GivenAnswer) -> dict[str, Any]:
    """The data that is recorded of an answer."""
    data: Mapping[str, Any] = msgspec.to_builtins(given)
    fields = {name: value for name, value in data.items() if name != "token"}
    return {"call_id": question.call.call_id, "name": question.call.name, "position": question.reply, **fields}


def still_open(questions: Iterable[Question], answers: Answers) -> tuple[PendingCall, ...]:
    """The calls without an answer."""
    return tuple([question.call for question in questions if answer_to(question, answers) is None])
