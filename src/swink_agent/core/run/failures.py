"""Turns a failure into an error of the run and an assistant message, and masks secrets in both.

`reply` decides when a request is repeated.
"""

from __future__ import annotations

from typing import cast

import msgspec

from ..errors import AgentError, ErrorKind, StreamError, error_of_kind
from ..stream import MessageAssembler, StreamFailed
from ..types import AssistantMessage
from .state import Run

_MOST_PATIENCE = 300.0  # the longest `retry_after` to wait for, if the retry strategy has no `max_retry_after`
_HOW_TO_COMPACT = "give the agent a transform_context, such as SlidingWindow(), that shortens what is sent"


def error_in(run: Run, message: AssistantMessage, failure: StreamFailed) -> AgentError:
    """Returns the error of a failed reply. Only the error adds advice: the message keeps the provider's words."""
    is_unhelped = message.error_kind is ErrorKind.CONTEXT_OVERFLOW and not run.config.has_transform
    return error_of_kind(
        message.error_kind,
        f"{failure.message} ({_HOW_TO_COMPACT})" if is_unhelped else failure.message,
        model=message.model_id,
        retry_after=failure.retry_after,
    )


def failed(run: Run, error: AgentError) -> AssistantMessage:
    """Returns the message for a failure outside the stream, with the content and usage before it."""
    run.error = error
    assembler = run.assembler or MessageAssembler(run.config.model)
    return assembler.failed(StreamFailed(run.redactor.redact(str(error)), error.kind or ErrorKind.STREAM))


def explained(run: Run, failure: StreamFailed) -> StreamFailed:
    """Returns the failure without secrets (a provider may repeat the key that it refuses), and with a valid
    `retry_after` or none. If the wait is too long, the message mentions it. After an abort the kind is aborted."""
    advised, message = failure.retry_after, run.redactor.redact(failure.message)
    if run.is_interrupted:  # a call that is cut off may fail in any way
        return msgspec.structs.replace(failure, message=message, kind=ErrorKind.ABORTED, retry_after=None)
    if advised is not None and not (type(advised) in (int, float) and advised == advised):
        advised = None  # not a number, or NaN
    if advised is not None and advised > (most := patience(run)):
        message += f" (the provider asks to wait {advised:,.0f} s, and max_retry_after is {most:,.0f} s)"
    if message == failure.message and advised is failure.retry_after:
        return failure
    return msgspec.structs.replace(failure, message=message, retry_after=advised)


def masked_cause(run: Run, error: Exception) -> Exception | None:
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
            link.__notes__ = [run.redactor.redact(str(note)) for note in cast("list[object]", notes)]
        left += [other for other in (link.__cause__, link.__context__) if other is not None]
        if isinstance(link, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", link).exceptions
    return error


def _mask_text(run: Run, error: BaseException) -> bool:
    """Masks the text of the exception; returns `False` if the text still has a secret."""
    shown = _said(error)
    if run.redactor.redact(shown) == shown:
        return True
    error.args = tuple([run.redactor.redact(str(part)) for part in error.args])
    shown = _said(error)
    return run.redactor.redact(shown) == shown


def as_agent_error(error: Exception, culprit: str) -> AgentError:
    """Returns a hook's exception as an error of the run."""
    if isinstance(error, AgentError):
        return error
    wrapped = StreamError(f"{culprit} failed: {described(error)}")
    wrapped.__cause__ = error
    return wrapped


def described(error: Exception) -> str:
    said = _said(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _said(error: BaseException) -> str:
    """Returns the text of an exception, empty if `str` fails."""
    try:
        return str(error)
    except Exception:
        return ""


def patience(run: Run) -> float:
    """Returns the longest `retry_after`, in seconds, that the run waits for."""
    most: object = getattr(run.config.retry_strategy, "max_retry_after", _MOST_PATIENCE)
    return float(most) if isinstance(most, (int, float)) else _MOST_PATIENCE
