"""Policies: objects that watch a run at four points and may stop it, add to it, or skip a call.

Owns the verdicts, what a policy is shown, and the rule for running several: in order, the first stop wins, one
that fails is logged and passed over, except before a dispatch, where it skips the call. When they run is in `loop`
and `dispatch`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import structs
from msgspec.structs import force_setattr

from .run.supervisor import Supervisor, call
from .types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    ModelSpec,
    PolicyStop,
    ToolResultMessage,
    Usage,
    as_messages,
)
from .values.value import Value, show, show_arguments

__all__ = [
    "Inject",
    "Policy",
    "PolicyContext",
    "PostLoopPolicy",
    "PostTurnPolicy",
    "PreDispatchContext",
    "PreDispatchPolicy",
    "PreTurnPolicy",
    "Skip",
    "Stop",
    "Verdict",
    "consult",
    "consult_after_turn",
    "consult_before_dispatch",
    "tell_run_over",
]

log = logging.getLogger("swink_agent")


class Stop(Value, frozen=True):
    """End the run."""

    reason: str = ""


class Skip(Value, frozen=True):
    """Do not make this call; the model is told why. Before a dispatch only."""

    reason: str = ""


class Inject(Value, frozen=True):
    """Add messages: to this turn before the model is asked, else to the next.

    After a turn, an assistant message with the same tool calls as the turn's own replaces that one instead, and a
    tool result for one of the turn's calls replaces that result: before the model, or anyone who reads the history,
    sees it. Policies that follow see the replacement, and it stands even if one of them stops the run.
    """

    messages: tuple[AgentMessage, ...]

    if TYPE_CHECKING:

        def __init__(self, messages: str | AgentMessage | Sequence[str | AgentMessage]) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "messages", as_messages(self.messages))


Verdict: TypeAlias = Stop | Skip | Inject | None


class PolicyContext(Value, frozen=True, kw_only=True):
    """What a policy sees: a snapshot, taken when the slot is reached.

    `messages` is the committed history; `usage` and `cost` are the run's so far; `state` is a copy of the agent's.
    `message` and `tool_results` are there after a turn. `run_id` is the same in all slots of one run and in its tools
    (`ToolContext.run_id`), and no other run ever has it. `request_tokens`, before a call and only for policies with
    `every_call`, is the most that the request can hold: what the provider counted last time, and one token for each
    byte that is new.
    """

    turn_index: int
    messages: Sequence[AgentMessage]
    usage: Usage
    cost: Cost
    state: Mapping[str, Any]
    message: AssistantMessage | None = None
    tool_results: tuple[ToolResultMessage, ...] = ()
    model: ModelSpec = ModelSpec("", "")
    max_tokens: int | None = None
    request_tokens: int = 0
    run_id: str = ""


class PreDispatchContext:
    """What a policy sees of one tool call. Assign `arguments` to change what the tool will get.

    `is_final_answer` says that the call gives the value of a `structured_output`, to the library's own tool. It is no
    name that decides this: a tool that merely calls itself `final_answer` is a tool like any other.
    """

    __slots__ = (
        "arguments",
        "call_id",
        "cost",
        "is_final_answer",
        "messages",
        "name",
        "run_id",
        "state",
        "turn_index",
        "usage",
    )

    def __init__(
        self,
        snapshot: PolicyContext,
        call_id: str,
        name: str,
        arguments: dict[str, Any],
        is_final_answer: bool = False,
    ) -> None:
        self.turn_index = snapshot.turn_index
        self.messages = snapshot.messages
        self.usage = snapshot.usage
        self.cost = snapshot.cost
        self.state = snapshot.state
        self.run_id = snapshot.run_id
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.is_final_answer = is_final_answer

    def __repr__(self) -> str:
        return f"PreDispatchContext(name={show(self.name)}, arguments={show_arguments(self.arguments)})"


class PreTurnPolicy(Protocol):
    """Runs before the model is asked.

    One that has `every_call = True` is asked again before each repetition of the turn's request: a retry, a fallback,
    the second try after an overflow. `ctx.message` is then the attempt that failed; a stop ends the turn with that.
    What a transform asks a model comes to it as a run of its own, `post_turn` included; a stop refuses that alone.
    One that sets something aside for a call may have `run_over(run_id)`, called when the run is over, however it ended.
    """

    def pre_turn(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


class PreDispatchPolicy(Protocol):
    """Runs once per tool call, for the whole batch before anyone is asked for approval."""

    def pre_dispatch(self, ctx: PreDispatchContext, /) -> Verdict | Awaitable[Verdict]: ...


class PostTurnPolicy(Protocol):
    """Runs when a turn has its message and its results, also if it failed or was aborted."""

    def post_turn(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


class PostLoopPolicy(Protocol):
    """Runs when the agent would stop, before follow-ups are looked for."""

    def post_loop(self, ctx: PolicyContext, /) -> Verdict | Awaitable[Verdict]: ...


Policy: TypeAlias = PreTurnPolicy | PreDispatchPolicy | PostTurnPolicy | PostLoopPolicy
"""What `Agent(policies=[…])` takes: an object with one or more of the four slots. It is asked in all that it has."""


def tell_run_over(policies: Sequence[PreTurnPolicy], run_id: str) -> None:
    """Tells the policies that want to know that the run is over."""
    for policy in policies:
        run_over = getattr(policy, "run_over", None)
        if run_over is not None:
            try:
                run_over(run_id)
            except Exception:
                log.exception("policy %s failed when the run was over", _name(policy))


async def consult(
    policies: Sequence[PreTurnPolicy] | Sequence[PostLoopPolicy],
    slot: Literal["pre_turn", "post_loop"],
    context: PolicyContext,
    supervisor: Supervisor,
) -> tuple[PolicyStop | None, list[AgentMessage]]:
    """The first stop, if any, and the messages to inject if none."""
    messages: list[AgentMessage] = []
    for policy in policies:
        answer = _answer(policy, slot, context)
        if answer is None:  # as nearly all of them, and it takes no coroutine to hear that
            continue
        verdict = await _verdict(policy, answer, supervisor)
        if isinstance(verdict, Stop):
            return PolicyStop(_name(policy), verdict.reason), []
        if verdict is not None:
            messages.extend(verdict.messages)
    return None, messages


async def consult_after_turn(
    policies: Sequence[PostTurnPolicy], context: PolicyContext, supervisor: Supervisor
) -> tuple[PolicyStop | None, list[AgentMessage], PolicyContext]:
    """The first stop, if any, the messages to inject if none, and the turn as the policies' replacements left it."""
    messages: list[AgentMessage] = []
    for policy in policies:
        answer = _answer(policy, "post_turn", context)
        if answer is None:
            continue
        verdict = await _verdict(policy, answer, supervisor, last_words=True)
        if isinstance(verdict, Stop):
            return PolicyStop(_name(policy), verdict.reason), [], context
        for message in () if verdict is None else verdict.messages:
            replaced = _replaced(context, message)
            if replaced is not None:
                context = replaced
            elif not isinstance(message, (AssistantMessage, ToolResultMessage)):
                messages.append(message)
            else:
                log.error("policy %s injected %r, which replaces nothing of the turn", _name(policy), message)
    return None, messages, context


def _replaced(context: PolicyContext, message: AgentMessage) -> PolicyContext | None:
    """The turn with the message in the place of its own reply or result, if it can take it."""
    if isinstance(message, AssistantMessage) and context.message is not None:
        if message.tool_calls == context.message.tool_calls:
            return structs.replace(context, message=message)
    elif isinstance(message, ToolResultMessage):
        results = list(context.tool_results)
        for position, result in enumerate(results):
            if result.tool_call_id == message.tool_call_id:
                results[position] = message
                return structs.replace(context, tool_results=tuple(results))
    return None


def _answer(policy: object, slot: Literal["pre_turn", "post_turn", "post_loop"], context: PolicyContext) -> object:
    """What the policy answers, or the promise of it; one that fails says nothing."""
    try:
        return call(getattr(policy, slot), context)
    except Exception:
        log.exception("policy %s failed and is passed over", _name(policy))
        return None


async def _verdict(
    policy: object, answer: object, supervisor: Supervisor, *, last_words: bool = False
) -> Stop | Inject | None:
    """What the policy says, once it has said it; one that fails or says something else says nothing."""
    try:
        verdict = await supervisor.settle(answer, last_words=last_words)
    except Exception:
        log.exception("policy %s failed and is passed over", _name(policy))
        return None
    if verdict is None or isinstance(verdict, (Stop, Inject)):
        return verdict
    log.error("policy %s answered %r, which is no verdict here, and is passed over", _name(policy), verdict)
    return None


async def consult_before_dispatch(
    policies: Sequence[PreDispatchPolicy], context: PreDispatchContext, supervisor: Supervisor
) -> tuple[PolicyStop | Skip | None, list[AgentMessage]]:
    """The first stop or skip, if any, and the messages to inject. A policy that fails skips the call."""
    messages: list[AgentMessage] = []
    for policy in policies:
        try:
            verdict: object = call(policy.pre_dispatch, context)
            if verdict is not None:
                verdict = await supervisor.settle(verdict)
        except Exception as error:
            log.exception("policy %s failed: the call of %s is skipped", _name(policy), context.name)
            return Skip(f"policy {_name(policy)} failed: {type(error).__name__}"), messages
        match verdict:
            case None:
                pass
            case Stop():
                return PolicyStop(_name(policy), verdict.reason), []
            case Skip():
                return Skip(verdict.reason or f"policy {_name(policy)} skipped it"), messages
            case Inject():
                messages.extend(verdict.messages)
            case _:
                return Skip(f"policy {_name(policy)} answered {type(verdict).__name__}, which is no verdict"), messages
        if not isinstance(context.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a policy may assign anything
            return Skip(f"policy {_name(policy)} set arguments that are no dict"), messages
    return None, messages


def _name(policy: object) -> str:
    name = getattr(policy, "name", None)
    return name if isinstance(name, str) and name else type(policy).__name__
