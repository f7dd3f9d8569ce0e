"""Asks the policies of a run, in order. The first stop wins. A policy that fails is logged and ignored, except before a
dispatch, where it skips the call.

Owns which policies are asked. `policy` defines what a policy gets and may answer; `loop` and `dispatch` decide when.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import structs

from ..policy import Inject, PolicyContext, PreDispatchContext, Skip, Stop
from ..types import AgentMessage, AssistantMessage, PolicyStop, ToolResultMessage
from .state import Run

_Slot: TypeAlias = Literal["pre_turn", "post_turn", "post_loop"]

log = logging.getLogger("swink_agent")


def sees_every_request(policy: object) -> bool:
    """Whether a policy is asked again before each repetition of a request, and about the requests of transforms."""
    return bool(getattr(policy, "every_call", False))


def tell_run_over(run: Run) -> None:
    """Calls `run_over` of the policies that have it, once for each policy."""
    config = run.config
    slots = config.pre_turn_policies, config.pre_dispatch_policies, config.post_turn_policies, config.post_loop_policies
    for policy in {id(policy): policy for slot in slots for policy in slot}.values():
        run_over = getattr(policy, "run_over", None)
        if run_over is not None:
            try:
                run_over(run.id)
            except Exception:
                log.exception("policy %s failed when the run was over", _name(policy))


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
            return PolicyStop(_name(policy), verdict.reason), []
        if verdict is not None:
            messages.extend(verdict.messages)
    return None, messages


async def consult_after_turn(
    run: Run, context: PolicyContext
) -> tuple[PolicyStop | None, list[AgentMessage], PolicyContext]:
    """Returns the first stop, or the messages to inject, and the turn with the policies' replacements."""
    messages: list[AgentMessage] = []
    for policy in run.config.post_turn_policies:
        verdict = await _verdict(run, policy, "post_turn", context, after_abort=True)
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
    """Returns the policy's verdict; `None` if it fails or answers something else."""
    try:
        verdict: object = await run.supervisor.call(getattr(policy, slot), context, after_abort=after_abort)
    except Exception:
        log.exception("policy %s failed and is ignored", _name(policy))
        return None
    if verdict is None or isinstance(verdict, (Stop, Inject)):
        return verdict
    log.error("policy %s answered %r, which is not a verdict here, and is ignored", _name(policy), verdict)
    return None


async def consult_before_dispatch(
    run: Run, context: PreDispatchContext
) -> tuple[PolicyStop | Skip | None, list[AgentMessage]]:
    """Returns the first stop or skip, and the messages to inject. A policy that fails skips the call."""
    messages: list[AgentMessage] = []
    for policy in run.config.pre_dispatch_policies:
        try:
            verdict: object = await run.supervisor.call(policy.pre_dispatch, context)
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
                answer = type(verdict).__name__
                return Skip(f"policy {_name(policy)} answered {answer}, which is not a verdict"), messages
        if not isinstance(context.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a policy may assign anything
            return Skip(f"policy {_name(policy)} set arguments that are not a dict"), messages
    return None, messages


def _name(policy: object) -> str:
    name = getattr(policy, "name", None)
    return name if isinstance(name, str) and name else type(policy).__name__
