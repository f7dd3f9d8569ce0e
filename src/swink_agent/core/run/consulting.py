"""Asks policies, in order. The first stop wins. A policy that fails is logged and ignored, except before a dispatch,
where it skips the call.

`policy` defines what a policy gets and may answer; `loop` and `dispatch` decide when policies are asked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from msgspec import structs

from ..config import AgentLoopConfig
from ..policy import (
    Inject,
    PolicyContext,
    PostLoopPolicy,
    PostTurnPolicy,
    PreDispatchContext,
    PreDispatchPolicy,
    PreTurnPolicy,
    Skip,
    Stop,
)
from ..types import AgentMessage, AssistantMessage, PolicyStop, ToolResultMessage
from ..waits import Supervisor, call

log = logging.getLogger("swink_agent")


def tell_run_over(config: AgentLoopConfig, run_id: str) -> None:
    """Calls `run_over` of the policies that have it, once for each policy."""
    slots = config.pre_turn_policies, config.pre_dispatch_policies, config.post_turn_policies, config.post_loop_policies
    for policy in {id(policy): policy for slot in slots for policy in slot}.values():
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
    """Returns the first stop, or the messages to inject."""
    messages: list[AgentMessage] = []
    for policy in policies:
        answer = _answer(policy, slot, context)
        if answer is None:  # the usual answer, which needs no coroutine
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
    """Returns the first stop, or the messages to inject, and the turn with the policies' replacements."""
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


def _answer(policy: object, slot: Literal["pre_turn", "post_turn", "post_loop"], context: PolicyContext) -> object:
    """Returns the policy's answer, or an awaitable of it; `None` if it fails."""
    try:
        return call(getattr(policy, slot), context)
    except Exception:
        log.exception("policy %s failed and is ignored", _name(policy))
        return None


async def _verdict(
    policy: object, answer: object, supervisor: Supervisor, *, last_words: bool = False
) -> Stop | Inject | None:
    """Waits for the policy's verdict; returns `None` if it fails or answers something else."""
    try:
        verdict = await supervisor.settle(answer, last_words=last_words)
    except Exception:
        log.exception("policy %s failed and is ignored", _name(policy))
        return None
    if verdict is None or isinstance(verdict, (Stop, Inject)):
        return verdict
    log.error("policy %s answered %r, which is not a verdict here, and is ignored", _name(policy), verdict)
    return None


async def consult_before_dispatch(
    policies: Sequence[PreDispatchPolicy], context: PreDispatchContext, supervisor: Supervisor
) -> tuple[PolicyStop | Skip | None, list[AgentMessage]]:
    """Returns the first stop or skip, and the messages to inject. A policy that fails skips the call."""
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
                return Skip(
                    f"policy {_name(policy)} answered {type(verdict).__name__}, which is not a verdict"
                ), messages
        if not isinstance(context.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a policy may assign anything
            return Skip(f"policy {_name(policy)} set arguments that are not a dict"), messages
    return None, messages


def _name(policy: object) -> str:
    name = getattr(policy, "name", None)
    return name if isinstance(name, str) and name else type(policy).__name__
