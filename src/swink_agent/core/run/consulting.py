"""Asks the policies of a run, in order. The first stop wins. A policy that fails ends the run, unless it is optional;
before a dispatch it skips the call.

Owns which policies are asked, those of the runs that called this one included. `policy` defines what a policy gets and
may answer; `loop` and `dispatch` decide when.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import structs

from ..errors import PolicyFailed, described
from ..policy import Inject, PolicyContext, PreDispatchContext, Skip, Stop, name_of
from ..types import AgentMessage, AssistantMessage, PolicyStop, ToolResultMessage
from ..values.checks import a_kind
from .state import Run

_Slot: TypeAlias = Literal["pre_turn", "post_turn", "post_loop"]

log = logging.getLogger("swink_agent")


def sees_every_request(policy: object) -> bool:
    """Whether a policy is asked again before each repetition of a request, and about the requests of transforms."""
    return bool(getattr(policy, "on_every_request", False))


class OfCaller:
    """A policy of a run that called this one, directly or through other delegates. It is asked as this run's own are,
    with the way to this run in the context."""

    def __init__(self, policy: Any, delegates: tuple[str, ...]) -> None:
        self.policy = policy
        self.delegates = delegates
        """The tools on the way from the run whose policy it is, the outermost first."""
        self.name = name_of(policy)
        self.on_every_request = sees_every_request(policy)
        self.optional = _is_optional(policy)

    def pre_turn(self, ctx: PolicyContext) -> Any:
        return self.policy.pre_turn(structs.replace(ctx, delegates=self.delegates))

    def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
        seen = ctx.seen_through(self.delegates)
        verdict = self.policy.pre_dispatch(seen)
        if inspect.isawaitable(verdict):
            return self._awaited(verdict, seen, ctx)
        ctx.arguments = seen.arguments
        return verdict

    async def _awaited(self, verdict: Awaitable[Any], seen: PreDispatchContext, ctx: PreDispatchContext) -> Any:
        answer = await verdict
        ctx.arguments = seen.arguments
        return answer

    def post_turn(self, ctx: PolicyContext) -> Any:
        return self.policy.post_turn(structs.replace(ctx, delegates=self.delegates))

    def post_loop(self, ctx: PolicyContext) -> Any:
        return self.policy.post_loop(structs.replace(ctx, delegates=self.delegates))

    def run_over(self, run_id: str) -> None:
        run_over = getattr(self.policy, "run_over", None)
        if run_over is not None:
            run_over(run_id)


def with_those_of_caller(own: Sequence[Any], callers: Iterable[Any], tool: str) -> tuple[Any, ...]:
    """Returns the policies of one slot in a delegate's run: its own, then those of the run that calls it by this tool,
    and of the runs around that. A policy that is there already is asked once, and one for its own run alone is not."""
    policies, known = list(own), {id(policy) for policy in own}
    for policy in callers:
        given, way = (policy.policy, policy.delegates) if isinstance(policy, OfCaller) else (policy, ())
        if id(given) not in known and not getattr(given, "own_run_only", False):
            policies.append(OfCaller(given, (*way, tool)))
    return tuple(policies)


def tell_run_over(run: Run) -> None:
    """Calls `run_over` of the policies that have it, once for each policy."""
    config = run.config
    slots = config.pre_turn_policies, config.pre_dispatch_policies, config.post_turn_policies, config.post_loop_policies
    for policy in {id(getattr(policy, "policy", policy)): policy for slot in slots for policy in slot}.values():
        run_over = getattr(policy, "run_over", None)
        if run_over is not None:
            try:
                run_over(run.id)
            except Exception:
                log.exception("policy %s failed when the run was over", name_of(policy))


async def consult_before_turn(run: Run) -> tuple[PolicyStop | None, list[AgentMessage]]:
    """Returns the first stop, or the messages to inject into this turn."""
    policies = run.config.pre_turn_policies
    if not policies:
        return None, []
    tokens = run.most_request_tokens() if any(map(sees_every_request, policies)) else 0
    return await _consult(run, policies, "pre_turn", run.policy_context(request_tokens=tokens))


async def consult_before_repetition(run: Run, failed: AssistantMessage) -> PolicyStop | None:
    """Returns the first stop of the policies that are asked before each repetition of a request."""
    policies = [policy for policy in run.config.pre_turn_policies if sees_every_request(policy)]
    if not policies:
        return None
    context = run.policy_context(failed, request_tokens=run.most_request_tokens())
    return (await _consult(run, policies, "pre_turn", context))[0]


async def consult_after_loop(run: Run) -> tuple[PolicyStop | None, list[AgentMessage]]:
    """Returns the first stop, or the messages with which the run goes on."""
    policies = run.config.post_loop_policies
    return await _consult(run, policies, "post_loop", run.policy_context()) if policies else (None, [])


async def _consult(
    run: Run, policies: Sequence[object], slot: _Slot, context: PolicyContext
) -> tuple[PolicyStop | None, list[AgentMessage]]:
    messages: list[AgentMessage] = []
    for policy in policies:
        verdict = await _verdict(run, policy, slot, context)
        if isinstance(verdict, Stop):
            return PolicyStop(name_of(policy), run.entered(verdict.reason)), []
        if verdict is not None:
            messages.extend(verdict.messages)
    return None, messages


async def consult_after_turn(
    run: Run, context: PolicyContext
) -> tuple[PolicyStop | PolicyFailed | None, list[AgentMessage], PolicyContext]:
    """Returns the first stop or failure, or the messages to inject, and the turn with the policies' replacements."""
    messages: list[AgentMessage] = []
    policies: Sequence[Any] = run.config.post_turn_policies
    if run.request is not None:
        policies = (*policies, run.request)  # last: once it has a value, it stops the run
    for policy in policies:
        try:
            verdict = await _verdict(run, policy, "post_turn", context, after_abort=True)
        except PolicyFailed as error:
            return error, [], context
        if isinstance(verdict, Stop):
            return PolicyStop(name_of(policy), run.entered(verdict.reason)), [], context
        for message in () if verdict is None else verdict.messages:
            replaced = _replaced(context, message)
            if replaced is not None:
                context = replaced
            elif not isinstance(message, (AssistantMessage, ToolResultMessage)):
                messages.append(message)
            else:
                log.error("policy %s injected %r, which replaces nothing of the turn", name_of(policy), message)
    return None, messages, context


def _replaced(context: PolicyContext, message: AgentMessage) -> PolicyContext | None:
    """Returns the turn with the message instead of its reply or result, if the message can replace one of them."""
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


async def _verdict(
    run: Run, policy: object, slot: _Slot, context: PolicyContext, *, after_abort: bool = False
) -> Stop | Inject | None:
    """Returns the policy's verdict. Raises `PolicyFailed` if it fails or answers something else; an optional one is
    logged then, and has no verdict."""
    try:
        verdict: object = await run.supervisor.call(getattr(policy, slot), context, after_abort=after_abort)
        if verdict is None or isinstance(verdict, (Stop, Inject)):
            return verdict
        raise TypeError(f"it answered {a_kind(verdict)}, which is not a verdict here")
    except Exception as error:
        if _is_optional(policy):
            log.exception("policy %s failed in %s, and is ignored since it is optional", name_of(policy), slot)
            return None
        raise PolicyFailed(name_of(policy), slot, described(error)) from error


async def consult_before_dispatch(
    run: Run, context: PreDispatchContext
) -> tuple[PolicyStop | Skip | None, list[AgentMessage]]:
    """Returns the first stop or skip, and the messages to inject. A policy that fails skips the call."""
    messages: list[AgentMessage] = []
    for policy in run.config.pre_dispatch_policies:
        try:
            verdict: object = await run.supervisor.call(policy.pre_dispatch, context)
        except Exception as error:
            log.exception("policy %s failed: the call of %s is skipped", name_of(policy), context.name)
            return Skip(f"policy {name_of(policy)} failed: {type(error).__name__}"), messages
        match verdict:
            case None:
                pass
            case Stop():
                return PolicyStop(name_of(policy), run.entered(verdict.reason)), []
            case Skip():
                return Skip(verdict.reason or f"policy {name_of(policy)} skipped it"), messages
            case Inject():
                messages.extend(verdict.messages)
            case _:
                answer = type(verdict).__name__
                return Skip(f"policy {name_of(policy)} answered {answer}, which is not a verdict"), messages
        if not isinstance(context.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a policy may assign anything
            return Skip(f"policy {name_of(policy)} set arguments that are not a dict"), messages
    return None, messages


def _is_optional(policy: object) -> bool:
    return bool(getattr(policy, "optional", False))
