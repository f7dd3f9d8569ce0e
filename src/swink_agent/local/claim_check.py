"""`ClaimCheck`: sends an answer back once if it claims something that no tool did.

Collects the evidence: which calls can have changed something, which only looked, which numbers a tool showed.
`claim_words` decides what a sentence asks for or claims. `swink_agent.policies` exports the class too.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from swink_agent.core.approval import READS_ONLY
from swink_agent.core.policy import Inject, PolicyContext
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    StopReason,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.several import several_texts

from . import claim_words as words
from .prompt.text import succeeded

_LONGEST_REMINDER = 200
_LONGEST_REQUEST, _LONGEST_ANSWER = 4_000, 8_000
"""Characters that are searched: a longer request is not a small task, and the patterns would be slow."""
_MOST_RUNS = 4_096
_PASTED = re.compile(r"```|<stdin>|(?:\n[^\n]*){8}")


class ClaimCheck:
    """Sends an answer back, at most once a run, if it claims more than the tools did; meant for small models.

    It recognises three kinds of answer, in English. First, the user asked for a change and the answer claims that it
    was made, or explains how to make it, but no tool that can change anything succeeded. Second, the user asked about
    files and no tool was called. Third, if one of the tools runs commands: the user asked about files or for a
    computation, and no tool showed any of the numbers in the answer. A short message tells the model so; it may then do
    the work, or report that it was not done.

    `changing` are the tools that change things, `looking` those that only look; if a list is empty, that kind of answer
    is not checked. A tool in neither list supports every claim. `commands` are the tools among `changing` that take a
    shell's `command`: a command that could only read has changed nothing. One string is one tool. The object
    remembers only which runs it has sent back, so agents can share it.
    """

    name = "claim_check"
    __slots__ = ("_commands", "_sent_back", "changing", "looking")

    def __init__(
        self,
        *,
        changing: str | Iterable[str] = ("edit_file", "write_file", "bash"),
        looking: str | Iterable[str] = ("read_file", "search", "list_dir"),
        commands: str | Iterable[str] = ("bash",),
    ) -> None:
        self.changing = several_texts(changing, "ClaimCheck(changing=…)")
        self.looking = several_texts(looking, "ClaimCheck(looking=…)")
        shells = several_texts(commands, "ClaimCheck(commands=…)")
        self._commands = tuple([name for name in shells if name in self.changing])
        self._sent_back: deque[str] = deque(maxlen=_MOST_RUNS)
        """Ids of runs. Bounded, because a policy without `pre_turn` is not told when a run is over."""

    def __repr__(self) -> str:
        return f"ClaimCheck(changing={self.changing!r}, looking={self.looking!r})"

    def post_loop(self, ctx: PolicyContext) -> Inject | None:
        """Checks the answer with which the run would end."""
        run = None if ctx.run_id in self._sent_back else _Run.of(ctx)
        complaint = "" if run is None else self._complaint(run)
        if not complaint:
            return None
        self._sent_back.append(ctx.run_id)
        return Inject(complaint)

    def _complaint(self, run: _Run) -> str:
        """The message for the model; empty if the answer may pass."""
        if self.changing and self._claims_too_much(run):
            way_out = f"Do it now with {_or(self.changing)}, or say plainly that it was not done."
            return f"Nothing was changed: no tool did it. {run.reminder}{way_out}"
        if self.looking and self._was_guessed(run):
            way_out = f"Look it up with {_or((*self.looking, *self._commands))}, then answer from what you see."
            return f"You did not look: no tool was called. {run.reminder}{way_out}"
        if self._commands and self._has_new_number(run):
            ways = [f"compute it with {_or(self._commands)}"]
            ways += [f"look further with {_or(self.looking)}"] if self.looking else []
            ordered = ways if words.asks_for_number(run.request) else ways[::-1]
            return f"No tool showed that number: {', or '.join(ordered)}. {run.reminder}Then answer."
        return ""

    # -- the three kinds -------------------------------------------------------------------------------------

    def _claims_too_much(self, run: _Run) -> bool:
        changes = [made for made in run.made if self._may_change(made)]
        claims = words.change_claims(run.answer) if words.asks_for_change(run.request) else []
        if not claims:
            explains_how = words.orders_change(run.request) and not words.declines(run.answer) and not run.is_pasted
            return explains_how and not changes
        named = {name for sentence in claims for name in words.file_names(sentence)}
        return not any(made.concerns(named) for made in changes)

    def _was_guessed(self, run: _Run) -> bool:
        if run.made or run.is_pasted or not words.asks_about_files(run.request):
            return False
        # The model can know files that an earlier run has seen, but not one that is named here for the first time.
        return not run.has_earlier_results or any(name not in run.earlier for name in words.file_names(run.request))

    def _has_new_number(self, run: _Run) -> bool:
        if not run.made or not (words.asks_for_number(run.request) or words.asks_about_files(run.request)):
            return False
        given = words.numbers_in(run.request)
        said = words.numbers_in(run.answer) - given
        return bool(said) and not any(made.shows(said) for made in run.made)

    def _may_change(self, made: _Made) -> bool:
        return made.call.name not in self.looking and not (made.call.name in self._commands and made.reads_only)


class _Made(NamedTuple):
    """A call that succeeded, the text of its result, and whether it ran so that it could only read."""

    call: ToolCall
    result: str
    reads_only: bool

    def concerns(self, names: set[str]) -> bool:
        """Whether the call may be about these files; true without names."""
        text, command = _written(self.call), self.call.arguments.get("command")
        if not names or (isinstance(command, str) and ("*" in command or "?" in command)):
            return True
        return any(name in text or name in self.result for name in names)

    def shows(self, numbers: set[str]) -> bool:
        return bool(numbers & (words.numbers_in(self.result) | words.numbers_in(_written(self.call))))


class _Run(NamedTuple):
    """The request, calls and answer of the current run, and the conversation before it."""

    request: str
    is_pasted: bool
    """Whether the request contains the text that it is about."""
    answer: str
    made: tuple[_Made, ...]
    has_earlier_results: bool
    earlier: str

    @property
    def reminder(self) -> str:
        """Repeats the request if it is short: a small model has forgotten it by now."""
        request = " ".join(self.request.split())
        return f"The request was: {request!r}. " if len(request) <= _LONGEST_REMINDER else ""

    @classmethod
    def of(cls, ctx: PolicyContext) -> _Run | None:
        """The run, if it ends in an answer."""
        start = _start(ctx.messages, ctx.turn_index)
        earlier, messages = ctx.messages[:start], ctx.messages[start:]
        last = next((message for message in reversed(messages) if type(message) is AssistantMessage), None)
        if last is None or last.stop_reason != StopReason.STOP or last.tool_calls or not last.text.strip():
            return None
        request = "\n".join([extract_text(message.content) for message in messages if type(message) is UserMessage])
        return cls(
            request=request[:_LONGEST_REQUEST],
            is_pasted=len(request) > _LONGEST_REQUEST or _PASTED.search(request) is not None,
            answer=last.text[:_LONGEST_ANSWER],
            made=tuple([_made(call, result) for call, result in succeeded(messages)]),
            has_earlier_results=any(type(message) is ToolResultMessage for message in earlier),
            earlier="\n".join([_text(message) for message in earlier]),
        )


def _start(messages: Sequence[AgentMessage], turns: int) -> int:
    """The position where the run begins: at the user's messages before its first reply."""
    position = len(messages)
    while position and turns:
        position -= 1
        turns -= type(messages[position]) is AssistantMessage
    while position and type(messages[position - 1]) is UserMessage:
        position -= 1
    return position


def _text(message: AgentMessage) -> str:
    calls = [_written(call) for call in message.tool_calls] if type(message) is AssistantMessage else []
    return "\n".join([extract_text(getattr(message, "content", ())), *calls])


def _written(call: ToolCall) -> str:
    return msgspec.json.encode(call.arguments).decode()


def _made(call: ToolCall, result: ToolResultMessage) -> _Made:
    details = cast("dict[str, Any]", result.details) if isinstance(result.details, dict) else {}  # pyright: ignore[reportUnknownMemberType]
    return _Made(call, extract_text(result.content), details.get(READS_ONLY) is True)


def _or(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
