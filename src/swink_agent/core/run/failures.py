"""What becomes of a failure: an error of the run, the message that it leaves, and no secret in either.

Owns those three. When a request is made again is in `reply`.
"""

from __future__ import annotations

from typing import cast

import msgspec

from ..errors import AgentError, ErrorKind, StreamError, error_of_kind
from ..stream import MessageAssembler, StreamFailed
from ..types import AssistantMessage
from .state import Run

__all__ = ["as_agent_error", "error_in", "explained", "failed", "masked_cause", "patience", "told"]

_MOST_PATIENCE = 300.0
"""The longest wait on a provider's advice, for a retry strategy that does not say."""
_HOW_TO_COMPACT = "give the agent a transform_context, such as SlidingWindow(), that shortens what is sent"


def error_in(run: Run, message: AssistantMessage, failure: StreamFailed) -> AgentError:
    """The error that a failed reply stands for. What helps is said in it alone: the message is the provider's word."""
    is_unhelped = message.error_kind is ErrorKind.CONTEXT_OVERFLOW and not run.config.has_transform
    return error_of_kind(
        message.error_kind,
        f"{failure.message} ({_HOW_TO_COMPACT})" if is_unhelped else failure.message,
        model=message.model_id,
        retry_after=failure.retry_after,
    )


def failed(run: Run, error: AgentError) -> AssistantMessage:
    """The message that a failure outside the stream leaves, with what was streamed, and used, before it."""
    run.error = error
    assembler = run.assembler or MessageAssembler(run.config.model)
    return assembler.failed(StreamFailed(run.redactor.redact(str(error)), error.kind or ErrorKind.STREAM))


def explained(run: Run, failure: StreamFailed) -> StreamFailed:
    """The failure without secrets, as a provider may repeat the key that it refuses; and with the time to wait that it
    asks for, as a number or not at all, told if it is too long to be waited for."""
    advised, message = failure.retry_after, run.redactor.redact(failure.message)
    if advised is not None and not (type(advised) in (int, float) and advised == advised):
        advised = None  # no number, or the one that is none
    if advised is not None and advised > (most := patience(run)):
        message += f" (the provider asks to wait {advised:,.0f} s, and max_retry_after is {most:,.0f} s)"
    if message == failure.message and advised is failure.retry_after:
        return failure
    return msgspec.structs.replace(failure, message=message, retry_after=advised)


def masked_cause(run: Run, error: Exception) -> Exception | None:
    """The exception, with no secret in its text or in those that came with it; `None` if one insists on showing it."""
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
    """Masks what the exception says of itself; `False` if it says it all the same."""
    shown = _said(error)
    if run.redactor.redact(shown) == shown:
        return True
    error.args = tuple([run.redactor.redact(str(part)) for part in error.args])
    shown = _said(error)
    return run.redactor.redact(shown) == shown


def as_agent_error(error: Exception, culprit: str) -> AgentError:
    """A hook's exception as an error of the run."""
    if isinstance(error, AgentError):
        return error
    wrapped = StreamError(f"{culprit} failed: {told(error)}")
    wrapped.__cause__ = error
    return wrapped


def told(error: Exception) -> str:
    said = _said(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _said(error: BaseException) -> str:
    """The text of an exception; nothing for one that has none to show."""
    try:
        return str(error)
    except Exception:
        return ""


def patience(run: Run) -> float:
    """How long a provider may ask to be waited for; what a strategy says that is no number is passed over."""
    most: object = getattr(run.config.retry_strategy, "max_retry_after", _MOST_PATIENCE)
    return float(most) if isinstance(most, (int, float)) else _MOST_PATIENCE
