"""`ClaimCheck`: an answer that claims what no tool did is sent back, once.

Owns what counts as backed: which calls can have changed something, which were a look, which numbers were seen. What
the sentences say is judged in `_claims`. It is read off the history each time, so nothing is remembered between turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

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

from ._claims import (
    asks_about_files,
    asks_for_change,
    asks_for_number,
    change_claims,
    declines,
    file_names,
    numbers_in,
    orders_change,
)

__all__ = ["ClaimCheck"]

_UNCHANGED, _UNSEEN, _UNSHOWN = "Nothing was changed:", "You did not look:", "No tool showed that number:"
_LONGEST_REMINDER = 200
_LONGEST_REQUEST, _LONGEST_ANSWER = 4_000, 8_000
"""Characters that are judged: what is longer is not a small task, and patterns take their time with it."""
_PASTED = re.compile(r"```|<stdin>|(?:\n[^\n]*){8}")
_SEPARATORS = re.compile(r"\|\||&&|[|;\n]")


class ClaimCheck:
    """Sends an answer back, at most once a run, that says more than the run can back; meant for small models.

    Three kinds are recognised, in English: a change was asked for, and the answer says that it was made or tells how
    to make it, but no tool that can change anything succeeded; a question about files was answered without any look;
    and, if one of the tools runs commands, the answer to such a question, or to one where something has to be computed,
    has numbers of which no tool showed one. The model is told so in one sentence; it may do it, or say that it did not.

    `changing` are the tools that change things, `looking` those that only look; without any of a kind, that kind of
    answer is not checked. A tool that is in neither list backs every claim. `commands` are the tools among them whose
    `command` is a shell's: one that is known to only read has changed nothing. One string names one tool. Nothing is
    remembered, so the object can be shared.
    """

    name = "claim_check"
    __slots__ = ("_commands", "changing", "looking")

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

    def __repr__(self) -> str:
        return f"ClaimCheck(changing={self.changing!r}, looking={self.looking!r})"

    def post_loop(self, ctx: PolicyContext) -> Inject | None:
        """Looks at the answer with which the run would end."""
        run = _Run.of(ctx)
        if run is None or run.was_told:
            return None
        if self.changing and self._claims_too_much(run):
            told = f"{_UNCHANGED} no tool did it. {run.reminder}"
            return Inject(f"{told}Do it now with {_or(self.changing)}, or say plainly that it was not done.")
        if self.looking and self._was_guessed(run):
            tools = _or((*self.looking, *self._commands))
            return Inject(
                f"{_UNSEEN} no tool was called. {run.reminder}Look it up with {tools}, then answer from what you see."
            )
        if self._commands and self._has_new_number(run):
            ways = [f"compute it with {_or(self._commands)}"]
            ways += [f"look further with {_or(self.looking)}"] if self.looking else []
            ordered = ways if asks_for_number(run.request) else ways[::-1]
            return Inject(f"{_UNSHOWN} {', or '.join(ordered)}. {run.reminder}Then answer.")
        return None

    # -- the three kinds -------------------------------------------------------------------------------------

    def _claims_too_much(self, run: _Run) -> bool:
        changes = [made for made in run.made if self._may_change(made.call)]
        claims = change_claims(run.answer) if asks_for_change(run.request) else []
        if not claims:
            told_how = orders_change(run.request) and not declines(run.answer) and not run.is_pasted
            return told_how and not changes
        named = {name for sentence in claims for name in file_names(sentence)}
        return not any(made.concerns(named) for made in changes)

    def _was_guessed(self, run: _Run) -> bool:
        if run.made or run.is_pasted or not asks_about_files(run.request):
            return False
        # What an earlier run has seen can be known. What is named here for the first time cannot.
        return not run.has_earlier_results or any(name not in run.earlier for name in file_names(run.request))

    def _has_new_number(self, run: _Run) -> bool:
        if not run.made or not (asks_for_number(run.request) or asks_about_files(run.request)):
            return False
        given = numbers_in(run.request)
        said = numbers_in(run.answer) - given
        return bool(said) and not any(made.shows(said) for made in run.made)

    def _may_change(self, call: ToolCall) -> bool:
        if call.name in self.looking:
            return False
        return call.name not in self._commands or not _only_reads(call.arguments.get("command"))


class _Made(NamedTuple):
    """A call that succeeded, and what it gave."""

    call: ToolCall
    result: str

    def concerns(self, names: set[str]) -> bool:
        """Whether it can have to do with these files; without any, it can."""
        text, command = _written(self.call), self.call.arguments.get("command")
        if not names or (isinstance(command, str) and ("*" in command or "?" in command)):
            return True
        return any(name in text or name in self.result for name in names)

    def shows(self, numbers: set[str]) -> bool:
        return bool(numbers & (numbers_in(self.result) | numbers_in(_written(self.call))))


class _Run(NamedTuple):
    """What was asked, done and answered in the current run, and what came before it."""

    request: str
    is_pasted: bool
    """Whether the request brings what it is about with it."""
    answer: str
    made: tuple[_Made, ...]
    was_told: bool
    has_earlier_results: bool
    earlier: str

    @property
    def reminder(self) -> str:
        """The request again, where it is short: a small model has lost sight of it by now."""
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
        said = [extract_text(message.content) for message in messages if type(message) is UserMessage]
        asked = [text for text in said if not text.startswith((_UNCHANGED, _UNSEEN, _UNSHOWN))]
        request = "\n".join(asked)
        return cls(
            request=request[:_LONGEST_REQUEST],
            is_pasted=len(request) > _LONGEST_REQUEST or _PASTED.search(request) is not None,
            answer=last.text[:_LONGEST_ANSWER],
            made=tuple(_made(messages)),
            was_told=len(asked) < len(said),
            has_earlier_results=any(type(message) is ToolResultMessage for message in earlier),
            earlier="\n".join([_text(message) for message in earlier]),
        )


def _start(messages: Sequence[AgentMessage], turns: int) -> int:
    """Where the run begins: at what was asked before the first of its replies."""
    position = len(messages)
    while position and turns:
        position -= 1
        turns -= type(messages[position]) is AssistantMessage
    while position and type(messages[position - 1]) is UserMessage:
        position -= 1
    return position


def _made(messages: Sequence[AgentMessage]) -> Iterable[_Made]:
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if type(message) is AssistantMessage:
            calls.update((call.id, call) for call in message.tool_calls)
        elif type(message) is ToolResultMessage and not message.is_error and message.tool_call_id in calls:
            yield _Made(calls[message.tool_call_id], extract_text(message.content))


def _text(message: AgentMessage) -> str:
    calls = [_written(call) for call in message.tool_calls] if type(message) is AssistantMessage else []
    return "\n".join([extract_text(getattr(message, "content", ())), *calls])


def _written(call: ToolCall) -> str:
    return msgspec.json.encode(call.arguments).decode()


def _only_reads(command: Any) -> bool:
    """Whether it is a command, or several of them, known to only read. What cannot be told may do more."""
    from swink_agent.approvals.commands.rules import CommandRules

    if not isinstance(command, str) or ">" in command:
        return False
    rules = CommandRules.standard()
    return all(rules.decide(part.strip()).verdict == "allow" for part in _SEPARATORS.split(command))


def _or(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
