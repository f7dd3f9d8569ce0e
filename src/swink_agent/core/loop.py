"""The agent loop: runs, turns, and when they end. Read it from the top: each function is below its caller.

    run      AgentStart, turns until nothing is left to do, AgentEnd
    turns    inner loop: another turn while there are tool results or steering to answer
             outer loop: again while post-loop policies or follow-ups give the agent more to do
    a turn   pending messages enter → transforms → pre-turn policies → reply → tools → post-turn policies

A run that brings answers to waiting calls begins with the turn of the reply that made those calls (`deferral`). Any
other run first rejects the calls that wait (`deferral`).

Owns the order of events. `reply` asks the model, `dispatch` runs a batch of tool calls, and `waits` makes an
abort end every wait. Failures of models, tools, hooks and policies are not raised here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from .approval import PendingCall
from .cancel import CancellationToken
from .config import AgentLoopConfig
from .context.context import cannot_continue, default_convert_to_llm, is_answered, is_waiting
from .deferral import Resumption, close_waiting, keep_injected
from .dispatch import dispatch
from .errors import Aborted, AgentError, ErrorKind, NoMessages
from .events import AgentEnd, AgentStart, MessageEnd, RunKind, TurnEnd, TurnEndReason, TurnResumed, TurnStart
from .exchanges import last_exchange
from .journal import Recorder
from .output import Channel, EventStream
from .reply import ask_model, convert_context, register_secrets, transform_context
from .run.announcing import Announcer
from .run.consulting import consult, consult_after_turn
from .run.failures import as_agent_error
from .run.pending import Answer, checked_answers, pending_calls
from .run.state import Run
from .run.transcript import Transcript
from .run.turn import as_toolbox, takes_context
from .stream import prompt_text
from .types import (
    LLM_MESSAGES,
    AgentContext,
    AgentMessage,
    AgentResult,
    AssistantMessage,
    Cost,
    StopReason,
    ToolResultMessage,
    Usage,
    as_messages,
    as_prompts,
)
from .values.value import copy_json
from .waits import Interrupted

log = logging.getLogger("swink_agent")
_NO_USAGE, _NO_COST = Usage(), Cost()


def agent_loop(
    prompts: str | AgentMessage | Sequence[str | AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    cancel: CancellationToken | None = None,
) -> EventStream:
    """Adds the prompts to the context and runs until the agent stops. The context itself is not changed.

    Raises `ValueError` for prompts without any content.
    """
    return _stream_of(as_prompts(prompts), context, config, cancel)


def agent_loop_continue(
    context: AgentContext, config: AgentLoopConfig, cancel: CancellationToken | None = None
) -> EventStream:
    """Runs from the context as it is. Raises `NoMessages` or `InvalidContinue` if there is nothing to answer."""
    if not context.messages:
        raise NoMessages
    if config.message_provider is None and (is_answered(context.messages) or is_waiting(context.messages)):
        raise cannot_continue(context.messages)
    return _stream_of(None, context, config, cancel)


def agent_loop_resume(
    answers: Mapping[str, Answer],
    context: AgentContext,
    config: AgentLoopConfig,
    cancel: CancellationToken | None = None,
) -> EventStream:
    """Acts on answers to calls that wait in the context. When no call waits any longer, the model is asked again.

    The result's messages begin with the results of these calls. Append all messages to the context for the next run.

    Raises `NotPending` for a call that does not wait, `ValueError` for no answers or an ambiguous id, and `TypeError`
    for an answer that does not fit its call.
    """
    return _stream_of(None, context, config, cancel, checked_answers(answers, context.messages))


def _stream_of(
    prompts: tuple[AgentMessage, ...] | None,
    context: AgentContext,
    config: AgentLoopConfig,
    cancel: CancellationToken | None,
    answers: dict[str, Answer] | None = None,
) -> EventStream:
    token = CancellationToken(cancel)
    toolbox = as_toolbox(context.tools)
    if callable(context.system_prompt):
        takes_context(context.system_prompt, "system_prompt")  # raises TypeError for a wrong signature
    if config.deps is None:
        toolbox.check_deps()
    messages: Sequence[AgentMessage] = context.messages
    if not LLM_MESSAGES.issuperset(map(type, messages)):  # raises TypeError for what is not a message
        messages = as_messages(messages if isinstance(messages, str) else list(messages))
    transcript = Transcript(messages)

    async def drive(channel: Channel) -> AgentResult:
        prompt = context.system_prompt
        run = Run(config, transcript, toolbox, prompt, token, channel.push, run_loop, channel, deps=config.deps)
        run.answers = answers
        announcer = Announcer(channel.subscriptions.notify)
        run.announcing = lambda: announcer
        announcer.begin(run.emit, run.supervisor.loop)
        try:
            return await run_loop(run, prompts)
        finally:
            announcer.end()

    return EventStream(drive, token)


# -- the run -------------------------------------------------------------------------------------------------


async def run_loop(run: Run, prompts: tuple[AgentMessage, ...] | None) -> AgentResult:
    """Runs to the end, whatever happens. With `None` for prompts, continues from the history or the run's answers.

    Raises only the `CancelledError` of a task that was cancelled from outside, after `AgentEnd`.
    """
    request = run.request
    kind: RunKind = "resume"
    run.is_waiting = run.answers is not None  # until they are acted on
    if run.answers is None:
        kind = "continue" if prompts is None else "prompt" if request is None else "structured"
    schema = None if request is None else copy_json(request.schema)
    run.emit(AgentStart(run.id, kind, schema, prompts or ()))
    last = run.transcript.history[-1] if len(run.transcript) else None
    starts_with_overflow = isinstance(last, AssistantMessage) and last.error_kind == ErrorKind.CONTEXT_OVERFLOW
    recorder = run.transcript.recorder
    if recorder is not None:
        recorder.redactor = run.redactor
        register_secrets(run, run.config.stream_options)  # before anything that may contain them is written
        recorder.run_started(run.id, kind, schema)
    try:
        try:
            if prompts is not None or run.answers is not None or await _has_something_to_answer(run):
                if run.answers is None and last_exchange(run.transcript.history).pending:
                    close_waiting(run)
                run.transcript.add(prompts or (), "prompt")
                await _run_turns(run, starts_with_overflow)
        except Interrupted:
            pass  # between two turns
        result = None if recorder is None else await _record_end(run, recorder)
    finally:
        run.close()
    result = result or _result_of(run)
    if run.pending:
        run.put_back()
    told = result if result.exception is None else structs.replace(result, exception=None)
    run.emit(AgentEnd(result.messages, result.stopped_by, told))
    if run.supervisor.cancelled_from_outside is not None:
        raise asyncio.CancelledError(*run.supervisor.cancelled_from_outside)
    return result


async def _run_turns(run: Run, overflow: bool) -> None:
    supervisor = run.supervisor
    while run.answers is not None or not supervisor.is_interrupted:
        while run.answers is not None or not supervisor.is_interrupted:
            has_results = await (_run_turn(run, overflow) if run.answers is None else _resume_turn(run, run.answers))
            overflow = False
            if not has_results:
                await supervisor.rest()  # before the last look at the queues: other tasks may still add to them
            if run.stopped_by is not None or run.error is not None or supervisor.is_interrupted or run.is_waiting:
                return
            if (run.has_to_poll or run.steering) and not any(source == "steering" for source, _ in run.pending):
                await run.poll("steering")
            if not has_results and not run.pending:
                break
        if run.config.post_loop_policies:
            await _after_loop(run)
        if run.stopped_by is not None or not (run.pending or await run.poll("follow_up")):
            return


async def _after_loop(run: Run) -> None:
    """Asks the post-loop policies: if they inject messages, the run continues."""
    stop, messages = await consult(run.config.post_loop_policies, "post_loop", run.policy_context(), run.supervisor)
    run.stopped_by = stop
    run.queue("policy", messages)
    await run.supervisor.rest()


# -- one turn ------------------------------------------------------------------------------------------------


async def _run_turn(run: Run, overflow: bool) -> bool:
    """Runs one reply and its tool calls; returns whether there are tool results for the model to see."""
    run.emit(TurnStart(run.turn_index))
    if run.pending:
        run.inject()
    problem = await _prepare(run, overflow)
    if run.stopped_by is not None:
        run.emit(TurnEnd(run.turn_index, None, (), TurnEndReason.STOPPED))
        run.turn_index += 1
        return False
    recorder = run.transcript.recorder
    if problem is None and recorder is not None and not recorder.is_safe(run.state):
        problem = await _refusal(run)

    message = await ask_model(run, problem)
    run.count(message.usage, message.cost)
    run.transcript.add((message,), "reply")
    run.emit(MessageEnd(message))
    if run.channel is not None:
        await run.let_reader_catch_up()

    results: tuple[ToolResultMessage, ...] = ()
    was_steered = False
    if calls := message.tool_calls:
        results, was_steered = await dispatch(run, message, calls)
        run.transcript.add(results, "result")
    return await _end_turn(run, message, results, was_steered)


async def _resume_turn(run: Run, answers: dict[str, Answer]) -> bool:
    """Runs the answered calls of an earlier reply, without asking for a new one; returns the same as `_run_turn`.

    After an abort that came earlier, or while the tools of the turn are made, the answers do not count.
    """
    run.answers, is_too_late = None, run.is_interrupted
    resumption = Resumption(run, answers)
    run.emit(TurnStart(run.turn_index))
    run.emit(TurnResumed(resumption.message, resumption.pending))
    if run.channel is not None:
        await run.let_reader_catch_up()
    if run.turn_tools is not None and not is_too_late:
        try:
            tools = await _ask_for_turn(run, run.turn_tools.function, run.turn_tools.takes_context)
            run.take_tools(run.turn_tools.toolbox_of(tools))
        except Interrupted:
            is_too_late = True
        except Exception as error:
            run.error = as_agent_error(error, "tools")
    if is_too_late or run.error is not None:
        return await _end_turn(run, resumption.message, (), False)
    results, was_steered = await resumption.dispatch()
    return await _end_turn(run, resumption.message, results, was_steered)


async def _end_turn(
    run: Run, message: AssistantMessage, results: tuple[ToolResultMessage, ...], was_steered: bool
) -> bool:
    """Asks the post-turn policies; returns whether there are tool results for the model to see."""
    if run.config.post_turn_policies:
        message, results = await _after_turn(run, message, results)
        run.is_waiting = run.is_waiting and is_waiting(run.transcript.history)  # a policy may replace any result
    if run.is_waiting and run.pending:
        results = keep_injected(run, results)
    run.emit(TurnEnd(run.turn_index, message, results, _reason(run, bool(results), was_steered)))
    run.turn_index += 1
    run.records_of_calls = None
    if run.channel is not None:
        await run.let_reader_catch_up()
    return bool(results)


async def _prepare(run: Run, overflow: bool) -> AgentError | None:
    """Runs transforms, pre-turn policies and conversion; returns the error if the model cannot be asked."""
    run.has_recovered = False
    run.model = run.config.model
    culprit = "system_prompt"
    try:
        prompt = run.system_prompt
        if not isinstance(prompt, str):
            if callable(prompt):
                prompt = await _ask_for_turn(run, prompt, takes_context(prompt, culprit))
            prompt = prompt_text(prompt)
        run.instructions = prompt
        if run.turn_tools is not None:
            culprit = "tools"
            tools = await _ask_for_turn(run, run.turn_tools.function, run.turn_tools.takes_context)
            run.take_tools(run.turn_tools.toolbox_of(tools))
            if run.deps is None:
                run.toolbox.check_deps()
        culprit = "transform_context"
        if run.transforms:
            await transform_context(run, overflow=overflow)
        culprit = "pre_turn_policies"
        if run.config.pre_turn_policies:
            await _before_turn(run)
        culprit = "convert_to_llm"
        if run.config.convert_to_llm is default_convert_to_llm:
            run.transcript.convert_by_default()
        else:
            await convert_context(run)
    except Interrupted:
        return Aborted()
    except Exception as error:
        return as_agent_error(error, culprit)
    return Aborted() if run.is_interrupted else None


async def _ask_for_turn(run: Run, function: Callable[..., Any], takes_context: bool) -> Any:
    """Calls a function of the turn, with the turn's context if it takes one."""
    return await run.supervisor.ask(function, *([run.policy_context()] if takes_context else []))


async def _refusal(run: Run) -> AgentError | None:
    """Waits until everything so far is durable, since the model is asked only then; returns the error, if any."""
    if run.refusal is None:
        try:
            await run.make_durable()
        except Interrupted:
            return Aborted()
        except Exception as error:
            run.refusal = as_agent_error(error, "the journal")
    return run.refusal


async def _before_turn(run: Run) -> None:
    """Asks the pre-turn policies; messages that they inject enter this turn."""
    context = run.policy_context(request_tokens=run.most_request_tokens() if run.has_reserving_policies else 0)
    run.stopped_by, messages = await consult(run.config.pre_turn_policies, "pre_turn", context, run.supervisor)
    run.queue("policy", messages)
    run.inject()


async def _after_turn(
    run: Run, message: AssistantMessage, results: tuple[ToolResultMessage, ...]
) -> tuple[AssistantMessage, tuple[ToolResultMessage, ...]]:
    """Asks the post-turn policies; returns the turn's message and results, which they may have replaced."""
    context = run.policy_context(message, results)
    try:
        stop, messages, turn = await consult_after_turn(run.config.post_turn_policies, context, run.supervisor)
        if stop is not None and run.request is not None:
            # Another policy stopped the run before the request saw the reply: an answer in it still counts.
            await run.supervisor.ask(run.request.hear, turn.message, last_words=True)
    except Interrupted:
        return message, results
    if run.stopped_by is None and run.error is None and not run.is_interrupted:
        run.stopped_by = stop
    run.queue("policy", messages)
    if turn is context:
        return message, results
    for old, new in zip((message, *results), (turn.message or message, *turn.tool_results), strict=True):
        if new is not old:
            run.transcript.replace(old, new)
    return turn.message or message, turn.tool_results


def _reason(run: Run, has_results: bool, was_steered: bool) -> TurnEndReason:
    if run.error is not None:
        return TurnEndReason.ABORTED if isinstance(run.error, Aborted) else TurnEndReason.ERROR
    if run.stopped_by is not None:
        return TurnEndReason.STOPPED
    if run.is_interrupted:
        return TurnEndReason.ABORTED
    if was_steered:
        return TurnEndReason.STEERING_INTERRUPT
    if run.is_waiting:
        return TurnEndReason.PENDING
    return TurnEndReason.TOOLS_EXECUTED if has_results else TurnEndReason.COMPLETE


# -- the ends of a run ---------------------------------------------------------------------------------------


async def _has_something_to_answer(run: Run) -> bool:
    """Whether a run that continues has something to answer: the history, or queued messages."""
    if not is_answered(run.transcript.history) and not is_waiting(run.transcript.history):
        return True
    if await run.poll("steering") or await run.poll("follow_up"):
        return True
    run.error = cannot_continue(run.transcript.history)
    return False


async def _record_end(run: Run, recorder: Recorder) -> AgentResult | None:
    """Records how the run ended and waits for the journal. An aborted run waits only until its deadline.

    Returns the recorded result, which an abort during the wait no longer changes; `None` if it may not be durable.
    """
    result = _result_of(run)
    recorder.run_ended(run.id, result)
    try:
        await run.make_durable(last_words=True)
    except Interrupted:
        log.info("the run was aborted before its last entries were known to be durable")
    except Exception as error:
        run.error = run.error or as_agent_error(error, "the journal")
    else:
        return result
    return None


def _result_of(run: Run) -> AgentResult:
    messages = run.transcript.since(run.start)
    if run.places:
        history = run.transcript.history
        messages = (*[history[position] for position in run.places], *messages)
    if run.is_interrupted and run.error is None and run.stopped_by is None:
        run.error = Aborted()
    if isinstance(run.error, Aborted):
        stop_reason = StopReason.ABORTED
    elif run.error is not None:
        stop_reason = StopReason.ERROR
    elif run.is_waiting and run.stopped_by is None:
        stop_reason = StopReason.TOOL_USE
    else:
        replies = (message for message in reversed(messages) if type(message) is AssistantMessage)
        last = next(replies, None)
        stop_reason = StopReason.STOP if last is None else last.stop_reason
    pending: tuple[PendingCall, ...] = ()
    if run.is_waiting:
        pending = pending_calls(run.transcript.history)
    return AgentResult(
        messages=messages,
        stop_reason=stop_reason,
        usage=run.usage,
        cost=run.cost,
        error=None if run.error is None else run.redactor.redact(str(run.error)),
        exception=run.error,
        stopped_by=run.stopped_by,
        error_kind=None if run.error is None else run.error.kind,
        value=None if run.request is None else run.request.given,
        has_value=run.request is not None and run.request.has_value,
        delegated_usage=_NO_USAGE if run.delegations is None else run.delegations.usage,
        delegated_cost=_NO_COST if run.delegations is None else run.delegations.cost,
        pending=pending,
    )
