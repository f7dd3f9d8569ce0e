"""Policies: objects that watch a run at four points and may stop it, add to it, or skip a call.

Owns the verdicts, what a policy is shown, and the rule for running several: in order, the first stop wins, one
that fails is logged and passed over, except before a dispatch, where it skips the call. When they run is in `loop`
and `dispatch`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec.structs import force_setattr

from .supervisor import Supervisor
from .types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    PolicyStop,
    ToolResultMessage,
    Usage,
    as_messages,
)
from .value import Value, show, show_arguments

__all__ = [
    "Inject",
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
    "consult_before_dispatch",
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

    After a turn, an assistant message with the same tool calls as the turn's own replaces that one instead.
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
    `message` and `tool_results` are there after a turn.
    """

    turn_index: int
    messages: Sequence[AgentMessage]
    usage: Usage
    cost: Cost
    state: Mapping[str, Any]
    message: AssistantMessage | None = None
    tool_results: tuple[ToolResultMessage, ...] = ()


class PreDispatchContext:
    """What a policy sees of one tool call. Assign `arguments` to change what the tool will get."""

    __slots__ = ("arguments", "call_id", "cost", "messages", "name", "state", "turn_index", "usage")

    def __init__(self, snapshot: PolicyContext, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        self.turn_index = snapshot.turn_index
        self.messages = snapshot.messages
        self.usage = snapshot.usage
        self.cost = snapshot.cost
        self.state = snapshot.state
        self.call_id = call_id
        self.name = name
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"PreDispatchContext(name={show(self.name)}, arguments={show_arguments(self.arguments)})"


class PreTurnPolicy(Protocol):
    """Runs before the model is asked."""

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


async def consult(
    policies: Sequence[PreTurnPolicy] | Sequence[PostTurnPolicy] | Sequence[PostLoopPolicy],
    slot: Literal["pre_turn", "post_turn", "post_loop"],
    context: PolicyContext,
    supervisor: Supervisor,
    *,
    last_words: bool = False,
) -> tuple[PolicyStop | None, list[AgentMessage]]:
    """The first stop, if any, and the messages to inject if none."""
    messages: list[AgentMessage] = []
    for policy in policies:
        try:
            verdict: object = await supervisor.settle(getattr(policy, slot)(context), last_words=last_words)
        except Exception:
            log.exception("policy %s failed and is passed over", _name(policy))
            continue
        match verdict:
            case None:
                pass
            case Stop():
                return PolicyStop(_name(policy), verdict.reason), []
            case Inject():
                messages.extend(verdict.messages)
            case _:
                log.error(
                    "policy %s answered %r, which is no verdict here, and is passed over",
                    _name(policy),
                    verdict,
                )
    return None, messages


async def consult_before_dispatch(
    policies: Sequence[PreDispatchPolicy], context: PreDispatchContext, supervisor: Supervisor
) -> tuple[PolicyStop | Skip | None, list[AgentMessage]]:
    """The first stop or skip, if any, and the messages to inject. A policy that fails skips the call."""
    messages: list[AgentMessage] = []
    for policy in policies:
        try:
            verdict: object = await supervisor.settle(policy.pre_dispatch(context))
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
