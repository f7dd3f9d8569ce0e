"""Asks the model for one reply, with retries, fallbacks, and recovery from a context overflow.

Owns everything between `MessageStart` and `MessageEnd`. `ask_model` does not raise: a failure becomes a message with
`stop_reason` error or aborted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from operator import is_
from typing import Any, cast

import msgspec.structs

from .config import GetApiKeyFn
from .context.compaction import CompactionContext
from .context.context import estimate_tokens, start_of_waiting
from .errors import (
    Aborted,
    AgentError,
    AuthError,
    ContextWindowOverflow,
    ErrorKind,
    ModelThrottled,
    NetworkError,
    StreamError,
)
from .events import (
    CompactionReport,
    ContextCompacted,
    MessageRetry,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    UsageAdded,
    UsageSource,
)
from .run.consulting import consult
from .run.failures import as_agent_error, described, error_in, explained, failed, masked_cause, patience
from .run.observer import ModelRequest, tell_request
from .run.state import Run
from .stream import (
    AssistantMessageEvent,
    MessageAssembler,
    StreamFailed,
    StreamFn,
    StreamOptions,
    TextEnd,
    ThinkingEnd,
    ToolCallEnd,
)
from .types import (
    LLM_MESSAGES,
    AgentContext,
    AgentMessage,
    AssistantMessage,
    Cost,
    CustomMessage,
    LlmMessage,
    ModelSpec,
    Usage,
)
from .values.checks import a_kind
from .values.value import is_secret_name
from .waits import Interrupted, as_exception

log = logging.getLogger("swink_agent")
_LINGERING = 1.0  # seconds that a stream gets to end after its terminal event
_LAST_WORD = 0.02  # seconds that a stream gets after an abort to end by itself and report its usage
_NOTHING_TO_SEND = (
    "there is nothing to ask the model: no message with content is left for it. Messages of an application's own types "
    "reach it only through convert_to_llm, and transform_context must leave at least one message"
)
_ENDS = frozenset({TextEnd, ThinkingEnd, ToolCallEnd, StreamFailed})


async def ask_model(run: Run, problem: AgentError | None) -> AssistantMessage:
    """Returns the reply to the current conversation; a failed one if there is already a `problem`."""
    run.emit(MessageStart())
    try:
        if problem is not None:
            return failed(run, problem)
        message = await _ask_one_model(run, run.config.model, run.config.stream_fn)
        return message if run.error is None else await _ask_the_others(run, message)
    except Interrupted:
        return failed(run, Aborted())
    except Exception as error:  # a hook failed; errors of stream functions are caught where they are read
        return failed(run, as_agent_error(error, "a hook"))
    finally:
        run.assembler = None


async def _ask_the_others(run: Run, message: AssistantMessage) -> AssistantMessage:
    """Asks the fallback models, one after another, while the error is throttling or a network error."""
    model = run.config.model
    for next_model, next_stream_fn in run.config.fallbacks:
        if not isinstance(run.error, (ModelThrottled, NetworkError)):
            break
        if not await _may_call_again(run, next_model, message):
            break
        run.count(message.usage, message.cost)  # of the failed attempt; the last one is counted with its message
        run.emit(ModelFallback(model, next_model, str(run.error), message.usage, message.cost))
        model = next_model
        message = await _ask_one_model(run, model, next_stream_fn)
    return message


async def _ask_one_model(run: Run, model: ModelSpec, stream_fn: StreamFn) -> AssistantMessage:
    """Asks one model, with the retries of the retry strategy, and once more if a compaction follows an overflow."""
    supervisor, attempt = run.supervisor, 1
    while True:
        assembler = run.assembler = MessageAssembler(model)
        options = run.config.stream_options
        if model.provider != run.config.model.provider:
            # The key, headers and extra fields are for the primary's provider only.
            options = msgspec.structs.replace(options, api_key=None, headers={}, extra={})
        if run.config.get_api_key is not None:
            options = await _with_api_key(options, run.config.get_api_key, run, model)
        if options.api_key is not None or options.headers:
            register_secrets(run, options)
        conversation = run.transcript.conversation()
        if run.transcript.is_blank:
            raise StreamError(_NOTHING_TO_SEND, kind=ErrorKind.INVALID_REQUEST)
        tools = run.toolbox.tools
        if run.request is not None:
            options, tools = run.request.asked_of(model, stream_fn, options, tools)
        context = AgentContext(run.instructions, conversation, tools)
        if run.observers:
            failure = None if run.error is None else run.error.kind
            tell_request(run.observers, ModelRequest(run.id, model, context, options, run.own_redactor, failure))
        reading = _read(run, assembler, stream_fn, model, context, options)
        cause: Exception | None = None
        try:
            await supervisor.wait_for(supervisor.spawn(reading), reading, grace=_LAST_WORD)
        except Exception as error:
            log.warning("the stream function of %s raised instead of ending with StreamFailed", model, exc_info=True)
            assembler.fail(StreamFailed(f"the stream function raised {described(error)}"))
            cause = masked_cause(run, error)
        if supervisor.is_interrupted and not assembler.is_finished:
            raise Interrupted
        if assembler.failure is not None:
            assembler.failure = explained(run, assembler.failure)
        message = assembler.message()  # a reply without a terminal event becomes a failure
        if assembler.failure is None:
            run.error = None
            return message
        run.error = error = error_in(run, message, assembler.failure)
        error.__cause__ = cause
        delay: float | None = None
        if isinstance(error, ContextWindowOverflow):
            if not await _recover_from_overflow(run):
                return message
        elif run.request is not None and run.request.goes_on_with_tool(assembler.failure):
            delay, attempt = 0.0, attempt + 1
        else:
            is_final = assembler.is_broken or isinstance(error, Aborted)
            delay = None if is_final else _delay(run, error, attempt)
            if delay is None:
                return message
            attempt += 1
        if not await _may_call_again(run, model, message):
            return message
        run.count(message.usage, message.cost)  # of the failed attempt; the last one is counted with its message
        run.assembler = MessageAssembler(model)  # the streamed reply is discarded, even if the wait is aborted
        if delay is None:
            _report_usage(run, message.usage, message.cost, "overflow")
        else:
            run.emit(MessageRetry(attempt - 1, str(error), delay, message.usage, message.cost))
            if delay or run.is_interrupted:
                await supervisor.ask(run.config.sleep, delay)


def _report_usage(run: Run, usage: Usage, cost: Cost, source: UsageSource) -> None:
    """Reports usage that the run has counted and no other event contains."""
    if usage != Usage() or cost != Cost():
        run.emit(UsageAdded(usage, cost, source))


def register_secrets(run: Run, options: StreamOptions) -> None:
    """Registers the secrets of a request with the redactor."""
    if options.api_key is not None:
        run.redactor.learn(options.api_key, "API key")
    for name, value in options.headers.items():
        if is_secret_name(name):
            for part in (value, value.partition(" ")[2]):  # also without the scheme, as in "Bearer …"
                run.redactor.learn(part, name)


async def _read(
    run: Run,
    assembler: MessageAssembler,
    stream_fn: StreamFn,
    model: ModelSpec,
    context: AgentContext,
    options: StreamOptions,
) -> None:
    """Reads the stream, then wakes the run. Contains the innermost loop, which runs for every delta."""
    feed, emit, channel, supervisor = assembler.feed, run.emit, run.channel, run.supervisor
    stream: Any = None
    is_open = True
    is_ending = False
    try:
        stream = stream_fn(model, context, options, run.cancel)
        if not hasattr(stream, "__anext__"):  # an async function that returns an iterator
            stream = await cast("Awaitable[AsyncIterator[AssistantMessageEvent]]", stream)
        async for event in stream:
            if is_ending and type(event) not in _ENDS:
                return
            if feed(event):
                delta: Any = event
                emit(MessageUpdate(delta))
                if channel is not None and channel.is_full:
                    await channel.room()
            elif assembler.is_finished:
                if assembler.failure is None and not supervisor.is_interrupted:
                    is_open = not await _ends(stream, assembler)
                return
            if supervisor.is_interrupted:
                is_ending = True  # end events are still read: the last one has the usage
        is_open = False
    finally:
        try:
            if is_open and (close := getattr(stream, "aclose", None)) is not None:
                await close()
        finally:
            supervisor.wake()


async def _ends(stream: AsyncIterator[AssistantMessageEvent], assembler: MessageAssembler) -> bool:
    """Whether the stream ends after its terminal event. Another event breaks the reply."""
    try:
        async with asyncio.timeout(_LINGERING):
            assembler.feed(await anext(stream))
    except StopAsyncIteration:
        return True
    except TimeoutError:
        log.warning("the stream function did not end with its terminal event, and was closed")
    return False


# -- the hooks around a call ---------------------------------------------------------------------------------


async def transform_context(
    run: Run, *, overflow: bool, compaction: CompactionContext | None = None
) -> CompactionReport | None:
    """Runs the transforms, which change the context that is sent from now on; returns a report, or `None` for no
    change."""
    if not run.config.has_transform:
        return None
    if compaction is None:
        compaction = CompactionContext(run)
    report: CompactionReport | None = None
    try:
        report = await _transformed(run, overflow, compaction)
    finally:
        compaction.close()
        if report is None or not report.is_told:
            _report_usage(run, compaction.usage, compaction.cost, "compaction")
    return report


async def _transformed(run: Run, overflow: bool, compaction: CompactionContext) -> CompactionReport | None:
    config, given = run.config, run.transcript.context
    # Calls wait only in a compaction on demand: any other run has closed or answered them.
    until = start_of_waiting(given) if compaction.is_on_demand else len(given)
    waiting = given[until:]
    start: Sequence[AgentMessage] = given[:until] if waiting else given
    messages = start
    # On demand, a transform must remove something, so it is called as after an overflow.
    must_shrink = overflow or compaction.is_on_demand
    with compaction.at_work():
        for transform in (config.async_transform_context, config.transform_context):
            if transform is not None:
                returned = await run.supervisor.ask(transform, list(messages), must_shrink)
                if returned is not None and not _are_same(returned, messages):
                    messages = _checked(returned)
                    compaction.fresh_from = len(messages)
    if messages is start:
        return None
    messages = [*messages, *waiting] if waiting else messages
    dropped, before, after = max(0, len(given) - len(messages)), estimate_tokens(given), estimate_tokens(messages)
    spent = compaction.usage, compaction.cost
    report = CompactionReport(dropped, before, after, overflow, *spent, compaction.has_summary)
    if not run.transcript.adopt(messages):
        return None
    if run.transcript.recorder is not None:
        run.transcript.recorder.context_replaced(messages, report)
    if report.is_told:
        run.emit(ContextCompacted(report))
    return report


def _are_same(some: Any, others: Sequence[AgentMessage]) -> bool:
    return hasattr(some, "__len__") and len(some) == len(others) and all(map(is_, some, others))


def _checked(returned: object) -> Sequence[AgentMessage]:
    """Returns the messages that a transform returned. Raises `TypeError` if they are not a list of messages."""
    if not isinstance(returned, Sequence) or isinstance(returned, (str, bytes)):
        raise TypeError(f"it returned {a_kind(returned)}, which is not a list of messages")
    for item in cast("Sequence[object]", returned):
        if type(item) not in LLM_MESSAGES and not isinstance(item, CustomMessage):
            raise TypeError(f"it returned a list with {a_kind(item)}, which is not a message")
    return cast("Sequence[AgentMessage]", returned)


async def compact_on_demand(run: Run, instructions: str | None) -> CompactionReport | None:
    """Runs the transforms alone, for `Agent.compact`. Raises an `AgentError`, such as `Aborted`."""
    run.instructions = run.system_prompt if isinstance(run.system_prompt, str) else ""
    compaction = CompactionContext(run, is_on_demand=True, instructions=instructions)
    if run.transcript.recorder is not None:
        run.transcript.recorder.redactor = run.redactor
    report: CompactionReport | None = None
    problem: AgentError | None = None
    try:
        report = await transform_context(run, overflow=False, compaction=compaction)
        if report is not None:
            await run.make_durable()
    except Interrupted:
        problem = Aborted()
    except Exception as error:
        problem = as_agent_error(error, "transform_context")
    finally:
        run.close()
        if report is None:
            _record_use(run, compaction)
    if run.supervisor.cancelled_from_outside is not None:
        raise asyncio.CancelledError(*run.supervisor.cancelled_from_outside)
    if problem is not None:
        raise problem
    return report


def _record_use(run: Run, compaction: CompactionContext) -> None:
    """Records the usage of a compaction that removed nothing, since no end of a run reports it."""
    transcript = run.transcript
    if transcript.recorder is not None and (compaction.usage != Usage() or compaction.cost != Cost()):
        size = estimate_tokens(transcript.context)
        report = CompactionReport(0, size, size, usage=compaction.usage, cost=compaction.cost)
        transcript.recorder.context_replaced(transcript.context if transcript.is_compacted else (), report)


async def convert_context(run: Run) -> None:
    """Converts the new messages of the context. Raises `TypeError` if the hook returns what is not a message."""
    convert, converted = run.config.convert_to_llm, list[LlmMessage]()
    for message in run.transcript.unconverted():
        try:
            answer = convert(message)
        except BaseException as error:
            raise as_exception(error) from error
        if answer is message:  # by far the most frequent answer, and not an awaitable
            converted.append(cast("LlmMessage", answer))
        elif (llm_message := await run.supervisor.settle(answer)) is not None:
            converted.append(llm_message)
    if not LLM_MESSAGES.issuperset(map(type, converted)):
        wrong = next(message for message in converted if type(message) not in LLM_MESSAGES)
        raise TypeError(
            f"it returned {a_kind(wrong)}, which is not a message for a model: return a UserMessage, an "
            "AssistantMessage or a ToolResultMessage, or None to leave the message out"
        )
    run.transcript.convert(converted)


async def _with_api_key(options: StreamOptions, get_api_key: GetApiKeyFn, run: Run, model: ModelSpec) -> StreamOptions:
    try:
        key = await run.supervisor.ask(get_api_key, model.provider)
        return options if key is None else msgspec.structs.replace(options, api_key=key)
    except Exception as error:
        raise AuthError(f"get_api_key failed for {model.provider}: {described(error)}") from error


async def _may_call_again(run: Run, model: ModelSpec, failed: AssistantMessage) -> bool:
    """Whether the policies with `every_call` let the turn's request be repeated."""
    run.model = model
    policies = [policy for policy in run.config.pre_turn_policies if getattr(policy, "every_call", False)]
    if policies:
        try:
            context = run.policy_context(failed, request_tokens=run.most_request_tokens())
        except Exception as error:
            problem = as_agent_error(error, "pre_turn_policies")
            raise problem from problem.__cause__
        run.stopped_by, _ = await consult(policies, "pre_turn", context, run.supervisor)
    return run.stopped_by is None


async def _recover_from_overflow(run: Run) -> bool:
    """Runs the transforms, at most once per turn; returns whether to repeat the request."""
    if run.has_recovered:
        return False
    run.has_recovered = True
    culprit = "transform_context"
    try:
        if await transform_context(run, overflow=True) is None:
            return False
        culprit = "convert_to_llm"
        await convert_context(run)
    except Exception as error:
        problem = as_agent_error(error, culprit)
        raise problem from problem.__cause__
    return True


def _delay(run: Run, error: AgentError, attempt: int) -> float | None:
    """Returns the seconds to wait before the next attempt; `None` for no further attempt."""
    strategy, advised = run.config.retry_strategy, getattr(error, "retry_after", None)
    try:
        if not strategy.should_retry(error, attempt):
            return None
        if advised is None:
            return max(0.0, strategy.delay(attempt))
        return max(0.0, advised) if advised <= patience(run) else None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        log.exception("the retry strategy failed: the error is not retried")
        return None
