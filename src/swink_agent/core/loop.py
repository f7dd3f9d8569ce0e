"""The agent loop: runs, turns, and when they end. Read it from the top: each function is below its caller.

    run      AgentStart, turns until nothing is left to do, AgentEnd
    turns    inner loop: another turn while there are tool results or steering to answer
             outer loop: again while post-loop policies or follow-ups give the agent more to do
    a turn   pending messages enter → transforms → pre-turn policies → reply → tools → post-turn policies

A run that brings answers to waiting calls begins with the turn of the reply that made those calls (`deferral`). Any
other run first rejects the calls that wait (`deferral`).

Owns the order of events, and the limit of turns. `reply` asks the model, `dispatch` runs a batch of tool calls, and
`waits` makes an abort end every wait. Failures of models, tools, hooks and policies are not raised here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from .cancel import CancellationToken
from .config import AgentLoopConfig
from .context.compaction import convert_context, transform_context
from .context.context import cannot_continue, is_answered, is_waiting
from .deferral import AnsweredTurn, close_waiting, keep_injected
from .dispatch import dispatch
from .errors import Aborted, AgentError, ErrorKind, FromHook, NoMessages, PolicyFailed, as_agent_error
from .events import AgentEnd, AgentStart, MessageEnd, RunKind, TurnEnd, TurnEndReason, TurnResumed, TurnStart
from .exchanges import last_exchange
from .output import Channel, EventStream
from .reply import ask_model, register_secrets
from .run.announcing import Announcer
from .run.consulting import consult_after_loop, consult_after_turn, consult_before_turn, tell_run_over
from .run.pending import Answer, check_new_arguments, checked_answers, pending_calls
from .run.state import Resumption, Run, RunSetup
from .run.transcript import Transcript
from .run.turn import TurnTools, as_toolbox, takes_context
from .stream import prompt_text
from .types import (
    AgentContext,
    AgentMessage,
    AgentResult,
    AssistantMessage,
    PolicyStop,
    StopReason,
    ToolResultMessage,
    as_messages,
    as_prompts,
)
from .values.value import copy_json
from .waits import Interrupted

log = logging.getLogger("swink_agent")


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
    checked = checked_answers(answers, context.messages)
    check_new_arguments(checked, context.messages, as_toolbox(context.tools))
    return _stream_of(None, context, config, cancel, checked)


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
    messages = as_messages(context.messages if isinstance(context.messages, str) else list(context.messages))
    setup, transcript = RunSetup(config, toolbox, context.system_prompt, config.deps), Transcript(messages)

    async def drive(channel: Channel) -> AgentResult:
        announcer = Announcer(channel.subscriptions.notify)
        run = Run(
            setup,
            transcript,
            token,
            channel.push,
            run_loop,
            channel=channel,
            answers=answers,
            announcing=lambda: announcer,
        )
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
    if prompts and run.masks is not None:
        prompts = tuple(run.entered_messages(prompts))
    _start(run, prompts)
    result: AgentResult | None = None
    try:
        try:
            starts_with_overflow = _has_overflowed(run)
            if run.error is None and await _enter(run, prompts):
                await _run_turns(run, starts_with_overflow)
        except Interrupted:
            pass  # between two turns
        result = await _record_end(run)
    finally:
        tell_run_over(run)
        run.close()
    result = result or _result_of(run)
    run.inbox.put_back()
    run.emit(AgentEnd(result.messages, result.stopped_by, replace(result, exception=None, history=())))
    if run.supervisor.cancelled_from_outside is not None:
        raise asyncio.CancelledError(*run.supervisor.cancelled_from_outside)
    return result if run.request is None else run.request.as_told(result)


def _start(run: Run, prompts: tuple[AgentMessage, ...] | None) -> None:
    """Reports and records that the run begins."""
    kind: RunKind = "structured" if run.request is not None else "prompt"
    if prompts is None:
        kind = "continue" if run.answers is None else "resume"
    schema = None if run.request is None else copy_json(run.request.schema)
    run.emit(AgentStart(run.id, kind, schema, prompts or ()))
    recorder = run.transcript.recorder
    if recorder is not None:
        recorder.redactor = run.redactor
        register_secrets(run, run.config.stream_options)  # before anything that may contain them is written
        recorder.run_started(run.id, kind, schema)


def _has_overflowed(run: Run) -> bool:
    """Whether the last run ended because its context was too long."""
    last = run.transcript.history[-1] if len(run.transcript) else None
    return isinstance(last, AssistantMessage) and last.error_kind == ErrorKind.CONTEXT_OVERFLOW


async def _enter(run: Run, prompts: tuple[AgentMessage, ...] | None) -> bool:
    """Brings the prompts into the history; returns whether there is anything to do. Calls that wait are rejected,
    unless the run brings answers."""
    if run.answers is not None:
        return True
    if prompts is None and not await _has_something_to_answer(run):
        return False
    if last_exchange(run.transcript.history).pending:
        close_waiting(run)
    run.transcript.add(prompts or (), "prompt")
    return True


async def _has_something_to_answer(run: Run) -> bool:
    """Whether a run that continues has something to answer: the history, or queued messages."""
    history = run.transcript.history
    if not is_answered(history) and not is_waiting(history):
        return True
    if await run.inbox.poll("steering") or await run.inbox.poll("follow_up"):
        return True
    run.error = cannot_continue(history)
    return False


async def _run_turns(run: Run, overflow: bool) -> None:
    """Runs one turn after another until the agent stops."""
    while not run.is_interrupted or run.answers is not None:
        if run.resumption is not None and run.resumption.answers is not None:
            has_results = await _resume_turn(run, run.resumption)
        else:
            if not _may_ask_again(run):
                return
            has_results = await _run_turn(run, overflow)
            overflow = False
        if not await _goes_on(run, has_results):
            return


def _may_ask_again(run: Run) -> bool:
    """Whether the run may ask the model in one more turn. If not, it is stopped. The turn of a resumed reply asks no
    model, so it does not count."""
    most = run.config.max_turns
    if most is None or run.turn_index - (run.resumption is not None) < most:
        return True
    had = "its one turn" if most == 1 else f"its {most} turns"
    run.stopped_by = PolicyStop("max_turns", f"the run has had {had}: give it more with max_turns, or prompt again")
    return False


async def _goes_on(run: Run, has_results: bool) -> bool:
    """Whether another turn follows: there are tool results or messages to answer, or somebody gives the agent more to
    do."""
    if not has_results and not run.is_ending:
        await run.supervisor.yield_once()  # before the last look at the queues: other tasks may still add to them
    if run.is_ending:
        return False
    if not run.inbox.has_taken_steering:
        await run.inbox.poll("steering")
    if has_results or run.inbox.taken:
        return True
    if run.config.post_loop_policies:
        try:
            run.stopped_by, messages = await consult_after_loop(run)
        except PolicyFailed as error:
            run.error = error
            return False
        run.inbox.add("policy", messages)
        await run.supervisor.yield_once()
    return run.stopped_by is None and (bool(run.inbox.taken) or await run.inbox.poll("follow_up"))


# -- one turn ------------------------------------------------------------------------------------------------


async def _run_turn(run: Run, overflow: bool) -> bool:
    """Asks the model for one reply, and runs its tool calls; returns whether there are results for the model to see."""
    run.emit(TurnStart(run.turn_index))
    run.inject()
    problem = run.error or await _prepare(run, overflow)
    if run.stopped_by is not None:
        run.emit(TurnEnd(run.turn_index, None, (), TurnEndReason.STOPPED))
        run.turn_index += 1
        return False
    message = await ask_model(run, problem or await _refusal(run))
    run.accounts.count(message.usage, message.cost)
    run.transcript.add((message,), "reply")
    run.emit(MessageEnd(message))
    await run.let_reader_catch_up()
    results, was_steered = await dispatch(run, message, message.tool_calls)
    run.transcript.add(results, "result")
    return await _end_turn(run, message, results, was_steered)


async def _prepare(run: Run, overflow: bool) -> AgentError | None:
    """Runs everything that comes before the request; returns the error if the model cannot be asked."""
    run.has_recovered = False
    run.model = run.config.model
    try:
        with FromHook("system_prompt") as hook:
            prompt = run.setup.system_prompt
            if callable(prompt):
                prompt = await _ask_for_turn(run, prompt, takes_context(prompt, "system_prompt"))
            run.instructions = prompt_text(prompt)
            hook.name = "tools"
            await _take_tools(run)
            hook.name = "transform_context"
            await transform_context(run, overflow=overflow)
            hook.name = "pre_turn_policies"
            run.stopped_by, messages = await consult_before_turn(run)
            if messages:
                run.inbox.add("policy", messages)
                run.inject()
                if run.error is not None:
                    return run.error
            hook.name = "convert_to_llm"
            await convert_context(run)
    except Interrupted:
        return Aborted()
    except AgentError as error:
        return error
    return Aborted() if run.is_interrupted else None


async def _take_tools(run: Run) -> None:
    """Gives the run the tools of this turn, if a function of the turn makes them."""
    turn_tools = run.setup.tools
    if isinstance(turn_tools, TurnTools):
        tools = await _ask_for_turn(run, turn_tools.function, turn_tools.takes_context)
        run.take_tools(turn_tools.toolbox_of(tools))
        if run.deps is None:
            run.toolbox.check_deps()


async def _ask_for_turn(run: Run, function: Callable[..., Any], takes_context: bool) -> Any:
    """Calls a function of the turn, with the turn's context if it takes one."""
    return await run.supervisor.call(function, *([run.policy_context()] if takes_context else []))


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


async def _resume_turn(run: Run, resumption: Resumption) -> bool:
    """Runs the answered calls of an earlier reply, without asking for a new one; returns the same as `_run_turn`.

    After an abort that came earlier, or while the tools of the turn are made, the answers do not count.
    """
    is_too_late = run.is_interrupted
    turn = AnsweredTurn(run, resumption)
    run.emit(TurnStart(run.turn_index))
    run.emit(TurnResumed(turn.message, turn.pending))
    await run.let_reader_catch_up()
    if not is_too_late:
        try:
            with FromHook("tools"):
                await _take_tools(run)
        except Interrupted:
            is_too_late = True
        except AgentError as error:
            run.error = error
    if is_too_late or run.error is not None:
        return await _end_turn(run, turn.message, (), False)
    results, was_steered = await turn.dispatch()
    return await _end_turn(run, turn.message, results, was_steered)


async def _end_turn(
    run: Run, message: AssistantMessage, results: tuple[ToolResultMessage, ...], was_steered: bool
) -> bool:
    """Asks the post-turn policies; returns whether there are tool results for the model to see."""
    if run.config.post_turn_policies or run.request is not None:
        message, results = await _after_turn(run, message, results)
        run.is_waiting = run.is_waiting and is_waiting(run.transcript.history)  # a policy may replace any result
    if run.is_waiting and run.inbox.taken:
        results = keep_injected(run, results)
    run.emit(TurnEnd(run.turn_index, message, results, _reason(run, bool(results), was_steered)))
    run.turn_index += 1
    run.records_of_calls = None
    await run.let_reader_catch_up()
    return bool(results)


async def _after_turn(
    run: Run, message: AssistantMessage, results: tuple[ToolResultMessage, ...]
) -> tuple[AssistantMessage, tuple[ToolResultMessage, ...]]:
    """Asks the post-turn policies; returns the turn's message and results, which they may have replaced."""
    context = run.policy_context(message, results)
    try:
        end, messages, turn = await consult_after_turn(run, context)
        if end is not None and run.request is not None:
            # Another policy stopped the run before the request saw the reply: an answer in it still counts.
            await run.supervisor.call(run.request.hear, turn.message, after_abort=True)
    except Interrupted:
        return message, results
    if run.stopped_by is None and run.error is None and not run.is_interrupted:
        if isinstance(end, PolicyFailed):
            run.error = end
        else:
            run.stopped_by = end
    run.inbox.add("policy", messages)
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


# -- the end of a run ----------------------------------------------------------------------------------------


async def _record_end(run: Run) -> AgentResult | None:
    """Records how the run ended and waits for the journal. An aborted run waits only until its deadline.

    Returns the recorded result, which an abort during the wait no longer changes; `None` if nothing is recorded, or if
    it may not be durable.
    """
    recorder = run.transcript.recorder
    if recorder is None:
        return None
    result = _result_of(run)
    recorder.run_ended(run.id, result)
    try:
        await run.make_durable(after_abort=True)
    except Interrupted:
        log.info("the run was aborted before its last entries were known to be durable")
    except Exception as error:
        run.error = run.error or as_agent_error(error, "the journal")
    else:
        return result
    return None


def _result_of(run: Run) -> AgentResult:
    messages = run.transcript.since(run.start)
    if run.resumption is not None:
        history = run.transcript.history
        messages = (*[history[position] for position in run.resumption.replaced_positions], *messages)
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
    return AgentResult(
        messages=messages,
        stop_reason=stop_reason,
        usage=run.accounts.usage,
        cost=run.accounts.cost,
        error=None if run.error is None else run.entered_error(run.error),
        exception=run.error,
        stopped_by=run.stopped_by,
        error_kind=None if run.error is None else run.error.kind,
        value=None if run.request is None else run.request.given,
        has_value=run.request is not None and run.request.has_value,
        delegated_usage=run.accounts.delegated_usage,
        delegated_cost=run.accounts.delegated_cost,
        pending=pending_calls(run.transcript.history) if run.is_waiting else (),
        history=run.transcript.since(0),
    )
