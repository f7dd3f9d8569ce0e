"""Asks the model for one reply, with retries, fallbacks, and recovery from a context overflow.

    ask_model         one reply: of the primary model, else of a fallback
    one model         attempts, until one succeeds or nothing more can be done (`_next_step`)
    an attempt        the request, its stream, and the message or the error that results

Owns everything between `MessageStart` and `MessageEnd`. `ask_model` does not raise: a failure becomes a message with
`stop_reason` error or aborted. Secrets are masked in both the error and the message.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from .context.compaction import convert_context, transform_context
from .errors import (
    Aborted,
    AgentError,
    AuthError,
    ContextWindowOverflow,
    ErrorKind,
    FromHook,
    ModelThrottled,
    NetworkError,
    PolicyFailed,
    StreamError,
    as_agent_error,
    described,
    error_of_kind,
    text_of,
)
from .events import MessageRetry, MessageStart, MessageUpdate, ModelFallback
from .run.consulting import consult_before_repetition
from .run.observer import ModelRequest, tell_request
from .run.state import Run
from .secrets.masks import MaskedReply
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
from .types import AgentContext, AssistantMessage, ModelSpec
from .values.value import is_secret_name
from .waits import Interrupted

log = logging.getLogger("swink_agent")
_LINGERING = 1.0  # seconds that a stream gets to end after its terminal event
_AFTER_ABORT = 0.02  # seconds that a stream gets after an abort to end by itself and report its usage
_MOST_PATIENCE = 300.0  # the longest `retry_after` to wait for, if the retry strategy has no `max_retry_after`
_HOW_TO_COMPACT = "give the agent a transform_context, such as SlidingWindow(), that shortens what is sent"
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
            return _failed(run, problem)
        return await _ask_models(run)
    except Interrupted:
        return _failed(run, Aborted())
    except Exception as error:  # what a hook raised is named already; errors of streams are caught where they are read
        return _failed(run, as_agent_error(error, "the request"))
    finally:
        run.assembler = None


async def _ask_models(run: Run) -> AssistantMessage:
    """Asks the primary model, then the fallbacks in order while the error is throttling or a network error."""
    model = run.config.model
    message = await _ask_one_model(run, model, run.config.stream_fn)
    for next_model, next_stream_fn in run.config.fallbacks:
        if not isinstance(run.error, (ModelThrottled, NetworkError)) or not await _may_repeat(run, next_model, message):
            break
        run.accounts.count(message.usage, message.cost)  # of the failed attempt; the last is counted with its message
        run.emit(ModelFallback(model, next_model, str(run.error), message.usage, message.cost))
        model = next_model
        message = await _ask_one_model(run, model, next_stream_fn)
    return message


async def _ask_one_model(run: Run, model: ModelSpec, stream_fn: StreamFn) -> AssistantMessage:
    """Asks one model, as often as it makes sense. `run.error` says whether the reply is a failed one."""
    attempt = 1
    while True:
        assembler = run.assembler = MessageAssembler(model)
        message = await _attempt(run, assembler, stream_fn)
        if run.error is None:
            return message
        again = await _next_step(run, run.error, assembler, attempt)
        if again is None or not await _may_repeat(run, model, message):
            return message
        run.accounts.count(message.usage, message.cost)
        run.assembler = MessageAssembler(model)  # the streamed reply is discarded, even if the wait is aborted
        if again.delay is None:
            run.tell_usage(message.usage, message.cost, "overflow")
            continue
        run.emit(MessageRetry(attempt, str(run.error), again.delay, message.usage, message.cost))
        attempt += 1
        if again.delay or run.is_interrupted:
            with FromHook("sleep"):
                await run.supervisor.call(run.config.sleep, again.delay)


class _Again(Struct, frozen=True):
    """The request is to be repeated, after this many seconds. `None` for the second try after an overflow: no event
    reports another attempt, since the compaction stands for it."""

    delay: float | None


async def _next_step(run: Run, error: AgentError, assembler: MessageAssembler, attempt: int) -> _Again | None:
    """Returns how a failed request is repeated; `None` if it is not."""
    if isinstance(error, ContextWindowOverflow):
        return _Again(None) if await _recover_from_overflow(run) else None
    if run.request is not None and assembler.failure is not None and run.request.goes_on_with_tool(assembler.failure):
        return _Again(0.0)
    if assembler.is_broken or isinstance(error, Aborted):
        return None
    delay = _delay(run, error, attempt)
    return None if delay is None else _Again(delay)


async def _may_repeat(run: Run, model: ModelSpec, failed: AssistantMessage) -> bool:
    """Whether the policies let the turn's request be repeated with this model."""
    run.model = model
    with FromHook("pre_turn_policies"):
        run.stopped_by = await consult_before_repetition(run, failed)
    return run.stopped_by is None


async def _recover_from_overflow(run: Run) -> bool:
    """Runs the transforms, at most once per turn; returns whether to repeat the request."""
    if run.has_recovered:
        return False
    run.has_recovered = True
    with FromHook("transform_context") as hook:
        if await transform_context(run, overflow=True) is None:
            return False
        hook.name = "convert_to_llm"
        await convert_context(run)
    return True


def _delay(run: Run, error: AgentError, attempt: int) -> float | None:
    """Returns the seconds to wait before the next attempt; `None` for no further attempt."""
    strategy, advised = run.config.retry_strategy, getattr(error, "retry_after", None)
    try:
        if not strategy.should_retry(error, attempt):
            return None
        if advised is None:
            return max(0.0, strategy.delay(attempt))
        return max(0.0, advised) if advised <= _patience(run) else None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        log.exception("the retry strategy failed: the error is not retried")
        return None


def _patience(run: Run) -> float:
    """Returns the longest `retry_after`, in seconds, that the run waits for."""
    most: object = getattr(run.config.retry_strategy, "max_retry_after", _MOST_PATIENCE)
    return float(most) if isinstance(most, (int, float)) else _MOST_PATIENCE


# -- one attempt ---------------------------------------------------------------------------------------------


async def _attempt(run: Run, assembler: MessageAssembler, stream_fn: StreamFn) -> AssistantMessage:
    """Sends one request; returns the reply, and sets `run.error` to the error of a failed one."""
    context, options = await _request(run, assembler.model, stream_fn)
    cause: Exception | None = None
    try:
        await run.supervisor.call(_read, run, assembler, stream_fn, context, options, grace=_AFTER_ABORT)
    except Exception as error:
        if run.masks is not None and error is run.masks.failure:
            raise
        model = assembler.model
        if isinstance(error, TimeoutError) and assembler.is_finished:
            log.warning("the stream function of %s did not end with its terminal event, and was closed", model)
        else:
            log.warning("the stream function of %s raised instead of ending with StreamFailed", model, exc_info=True)
            assembler.fail(StreamFailed(f"the stream function raised {described(error)}"))
            cause = _masked_cause(run, error)
    if run.is_interrupted and not assembler.is_finished:
        raise Interrupted
    if assembler.failure is not None:
        assembler.failure = _explained(run, assembler.failure)
    if run.masks is not None and run.masks.failure is not None:
        raise run.masks.failure
    message = assembler.message()  # a reply without a terminal event becomes a failure
    run.error = None if assembler.failure is None else _error_in(run, message, assembler.failure)
    if run.error is not None:
        run.error.__cause__ = cause
    return message


async def _request(run: Run, model: ModelSpec, stream_fn: StreamFn) -> tuple[AgentContext, StreamOptions]:
    """Returns what a request to this model consists of. Raises `StreamError` if there is nothing to send."""
    options, tools = run.config.stream_options, run.toolbox.tools
    if model.provider != run.config.model.provider:
        # The key, headers and extra fields are for the primary's provider only.
        options = replace(options, api_key=None, headers={}, extra={})
    if run.config.get_api_key is not None:
        try:
            key = await run.supervisor.call(run.config.get_api_key, model.provider)
            options = options if key is None else replace(options, api_key=key)
        except Exception as error:
            raise AuthError(f"get_api_key failed for {model.provider}: {described(error)}") from error
    register_secrets(run, options)
    conversation = run.transcript.conversation()
    if run.transcript.is_blank:
        raise StreamError(_NOTHING_TO_SEND, kind=ErrorKind.INVALID_REQUEST)
    if run.request is not None:
        with FromHook("native_schema"):
            options, tools = run.request.asked_of(model, stream_fn, options, tools)
    context = AgentContext(run.instructions, conversation, tools)
    if run.observers:
        failure = None if run.error is None else run.error.kind
        tell_request(run.observers, ModelRequest(run.id, model, context, options, run.own_redactor, failure))
    return context, options


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
    context: AgentContext,
    options: StreamOptions,
) -> None:
    """Reads the stream. Contains the innermost loop, which runs for every delta."""
    channel, supervisor = run.channel, run.supervisor
    stream: Any = None
    reply = None if run.masks is None else MaskedReply(run.masks)
    is_open = True
    is_ending = False
    try:
        stream = stream_fn(assembler.model, context, options, run.cancel)
        if not hasattr(stream, "__anext__"):  # an async function that returns an iterator
            stream = await cast("Awaitable[AsyncIterator[AssistantMessageEvent]]", stream)
        if reply is not None:
            stream = reply.events(stream)
        async for event in stream:
            if is_ending and type(event) not in _ENDS:
                return
            if assembler.feed(event):
                delta: Any = event
                run.emit(MessageUpdate(delta))
                if channel is not None and channel.is_full:
                    await channel.room()
            elif assembler.is_finished:
                if assembler.failure is not None or supervisor.is_interrupted:
                    return
                supervisor.limit(_LINGERING)  # the stream must end now: another event breaks the reply
            if supervisor.is_interrupted:
                is_ending = True  # end events are still read: the last one has the usage
        is_open = False
    finally:
        if is_open and (close := getattr(stream, "aclose", None)) is not None:
            await close()
        if reply is not None:
            _finish_masked(run, assembler, reply)


def _finish_masked(run: Run, assembler: MessageAssembler, reply: MaskedReply) -> None:
    """Adds the beginning of a line that was cut off, and gives a value in text as the model gave it."""
    if run.assembler is not assembler:
        return  # the run went on without this stream
    if run.request is not None:
        run.request.given_text = "".join(reply.given)
    if not assembler.is_finished:
        with suppress(PolicyFailed):  # the run sees it in its masks
            for delta in reply.rest():
                if assembler.feed(delta):
                    run.emit(MessageUpdate(delta))


# -- failures ------------------------------------------------------------------------------------------------


def _error_in(run: Run, message: AssistantMessage, failure: StreamFailed) -> AgentError:
    """Returns the error of a failed reply. Only the error adds advice: the message keeps the provider's words."""
    is_unhelped = message.error_kind is ErrorKind.CONTEXT_OVERFLOW and not run.config.has_transform
    return error_of_kind(
        message.error_kind,
        f"{failure.message} ({_HOW_TO_COMPACT})" if is_unhelped else failure.message,
        model=message.model_id,
        retry_after=failure.retry_after,
    )


def _failed(run: Run, error: AgentError) -> AssistantMessage:
    """Returns the message for a failure outside the stream, with the content and usage before it."""
    run.error = error
    assembler = run.assembler or MessageAssembler(run.config.model)
    return assembler.failed(StreamFailed(run.entered_error(error), error.kind or ErrorKind.STREAM))


def _explained(run: Run, failure: StreamFailed) -> StreamFailed:
    """Returns the failure without secrets (a provider may repeat the key that it refuses), and with a valid
    `retry_after` or none. If the wait is too long, the message mentions it. After an abort the kind is aborted."""
    advised, message = failure.retry_after, run.entered(failure.message)
    if run.is_interrupted:  # a call that is cut off may fail in any way
        return replace(failure, message=message, kind=ErrorKind.ABORTED, retry_after=None)
    if advised is not None and not (type(advised) in (int, float) and advised == advised):
        advised = None  # not a number, or NaN
    if advised is not None and advised > (most := _patience(run)):
        message += f" (the provider asks to wait {advised:,.0f} s, and max_retry_after is {most:,.0f} s)"
    if message == failure.message and advised is failure.retry_after:
        return failure
    return replace(failure, message=message, retry_after=advised)


def _masked_cause(run: Run, error: Exception) -> Exception | None:
    """Masks secrets in the exception and those chained to it; returns `None` if one of them cannot be masked."""
    left: list[BaseException] = [error]
    seen: set[int] = set()
    while left:
        link = left.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        if not _mask_text(run, link):
            return None
        notes = getattr(link, "__notes__", None)
        if isinstance(notes, list):
            link.__notes__ = [run.entered(str(note)) for note in cast("list[object]", notes)]
        left += [other for other in (link.__cause__, link.__context__) if other is not None]
        if isinstance(link, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", link).exceptions
    return error


def _mask_text(run: Run, error: BaseException) -> bool:
    """Masks the text of the exception; returns `False` if the text still has a secret."""
    shown = text_of(error)
    if run.entered(shown) == shown:
        return True
    error.args = tuple([run.entered(str(part)) for part in error.args])
    shown = text_of(error)
    return run.entered(shown) == shown
