"""The errors that a caller can act on.

    AgentError
    ├── ContextWindowOverflow(model)               the input is longer than the model's window
    ├── ModelThrottled(message, retry_after)       the provider limits the rate of requests
    ├── NetworkError(message)                      the connection or the provider's server failed
    ├── AuthError(message)                         the key is missing or was refused
    ├── ContentFiltered(message)                   the provider filtered the reply, or the model refused
    ├── StreamError(message, kind)                 any other failure of a stream function
    ├── StructuredOutputFailed(attempts, last_error)
    ├── PolicyStopped(policy, reason)              a policy ended the run
    ├── PolicyFailed(policy, slot)                 a policy raised, so that the run ended
    ├── UnknownProvider(provider)                  no adapter for it is installed
    ├── ProviderMismatch(model, provider)          the stream function belongs to another provider
    ├── MissingDeps(tool, deps_type)               a tool needs dependencies, and the run has none
    ├── AlreadyRunning                             the agent is already running
    ├── NoMessages                                 there is no history to continue
    ├── InvalidContinue                            the history has nothing to answer, and no message is queued
    ├── NotPending(call_ids)                       the calls do not wait for an answer
    └── Aborted                                    the run was cancelled
    ToolError(message)                             raised by a tool: becomes its error result

Defines the tree, the `PolicyStop` that some errors hold, and which error a failure becomes: that of a provider by its
`ErrorKind`, that of a hook by its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .values.checks import check_number
from .values.value import Choice, Value


class ErrorKind(Choice):
    """The kinds of failure that a caller may need to distinguish."""

    THROTTLED = "throttled"
    NETWORK = "network"
    CONTEXT_OVERFLOW = "context_overflow"
    AUTH = "auth"
    CONTENT_FILTERED = "content_filtered"
    INVALID_REQUEST = "invalid_request"
    ABORTED = "aborted"
    STREAM = "stream"


class AgentError(Exception):
    """The base of the library's own errors. Pickling keeps all fields."""

    kind: ErrorKind | None = None

    def __init__(self, *arguments: object) -> None:  # without it, `inspect.signature` fails for the class
        super().__init__(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class ContextWindowOverflow(AgentError):
    """The provider refused the input because it is longer than the model's context window."""

    kind = ErrorKind.CONTEXT_OVERFLOW

    def __init__(self, model: str, message: str = "") -> None:
        super().__init__(
            message
            or f"the conversation does not fit the context window of {model}: "
            "compact it with transform_context, then continue_loop()"
        )
        self.model = model


class _StandardError(AgentError):
    """An error with a standard message."""

    standard_message = ""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.standard_message if message is None else message)


class _PassingError(_StandardError):
    """An error after which a retry may succeed; `retry_after` is the wait in seconds that was asked for, if any."""

    def __init__(self, message: str = "", *, model: str = "", retry_after: float | None = None) -> None:
        super().__init__(message or None)
        self.model = model
        self.retry_after = retry_after


class ModelThrottled(_PassingError):
    """The provider limits the rate of requests; `retry_after` is the wait in seconds that it asked for, if any."""

    kind = ErrorKind.THROTTLED
    standard_message = "the provider throttled the request"


class NetworkError(_PassingError):
    """The connection failed, or the provider's server did."""

    kind = ErrorKind.NETWORK
    standard_message = "the connection to the provider failed"


class AuthError(AgentError):
    """The key is missing or was refused."""

    kind = ErrorKind.AUTH


class ContentFiltered(AgentError):
    """The provider's filter stopped the reply, or the model refused."""

    kind = ErrorKind.CONTENT_FILTERED


class StreamError(AgentError):
    """A failure not worth retrying: a rejected request, a broken event sequence, a stream function that raised."""

    kind = ErrorKind.STREAM

    def __init__(self, message: str = "the stream failed", *, kind: ErrorKind = ErrorKind.STREAM) -> None:
        super().__init__(message)
        self.kind = kind


class PolicyStop(Value, frozen=True, gc=False):
    """The policy that ended the run, and its reason."""

    whole_fields = frozenset({"reason"})

    policy: str
    reason: str


class StructuredOutputFailed(AgentError):
    """The model gave no valid answer in all its attempts. If a policy ends the run before, that is `PolicyStopped`."""

    def __init__(self, attempts: int, last_error: str, stopped_by: PolicyStop | None = None) -> None:
        super().__init__(f"no valid structured output after {attempts} attempt{'s' * (attempts != 1)}: {last_error}")
        self.attempts = attempts
        self.last_error = last_error
        self.stopped_by = stopped_by
        """The policy that ended the run, in errors that earlier versions stored."""


class PolicyStopped(AgentError):
    """A policy ended the run."""

    def __init__(self, policy: str, reason: str = "") -> None:
        super().__init__(f"policy {policy} stopped the run" + (f": {reason}" if reason else ""))
        self.policy = policy
        self.reason = reason


class PolicyFailed(AgentError):
    """A policy raised, or answered what is not a verdict, so the run ended. What it raised is the cause.

    `slot` is where: `pre_turn`, `post_turn`, `post_loop`, or `mask`. A failing mask has no cause, since that may hold
    the text.
    """

    def __init__(self, policy: str, slot: str, why: str = "") -> None:
        super().__init__(f"policy {policy} failed in {slot}, which ends the run" + (f": {why}" if why else ""))
        self.policy = policy
        self.slot = slot


class UnknownProvider(AgentError, LookupError):
    """There is no adapter for the model's provider."""

    def __init__(self, provider: str, message: str = "") -> None:
        super().__init__(message or f"no provider {provider!r}")
        self.provider = provider


class ProviderMismatch(AgentError, ValueError):
    """The model belongs to one provider, and the stream function to another."""

    def __init__(self, model: str, provider: str) -> None:
        super().__init__(
            f"{model} cannot be asked through a stream function of {provider}: make the agent without stream_fn, so "
            f"that each model uses the adapter of its own provider, or name a model of {provider}"
        )
        self.model = model
        self.provider = provider


class MissingDeps(AgentError):
    """A tool needs dependencies of a type, and the run has none."""

    def __init__(self, tool: str, deps_type: str) -> None:
        super().__init__(
            f"the tool {tool!r} needs deps of the type {deps_type}, and this run has none: give deps=… to the run or "
            f"to the agent, or let the tool take a ToolContext[{deps_type} | None]"
        )
        self.tool = tool
        self.deps_type = deps_type


class AlreadyRunning(_StandardError):
    """The agent is in a run; a second run, or a change of its history, has to wait."""

    standard_message = "the agent is running: steer() or follow_up() it, or wait_for_idle() first"


class NoMessages(_StandardError):
    """There is no history to continue from."""

    standard_message = "the history is empty: there is nothing to continue, prompt() instead"


class InvalidContinue(_StandardError):
    """The last message is a complete assistant message, or calls wait for an answer, and no message is queued."""

    standard_message = "the last message is a reply and nothing is queued: prompt() or follow_up() instead"


class NotPending(AgentError, LookupError):
    """These calls do not wait for an answer: they are unknown, or already have a result."""

    def __init__(self, call_ids: str | Iterable[str], message: str = "") -> None:
        self.call_ids = (call_ids,) if isinstance(call_ids, str) else tuple(call_ids)
        names = ", ".join(map(repr, self.call_ids))
        ids = "ids" if len(self.call_ids) > 1 else "id"
        super().__init__(message or f"no call waits under the {ids} {names}: agent.pending lists the calls that wait")


class Aborted(_StandardError):
    """The run was cancelled."""

    kind = ErrorKind.ABORTED
    standard_message = "the run was aborted"


class ToolError(Exception):
    """Raise it in a tool to give the model an error result with exactly this text.

    With `retry_after`, in seconds, a tool that has `retries` is called again after that time.
    """

    def __init__(self, *arguments: object, retry_after: float | None = None) -> None:
        super().__init__(*arguments)
        if retry_after is not None:  # the text of a header, for instance
            check_number("ToolError.retry_after", retry_after, "a number of seconds, or None")
            if not retry_after < math.inf:
                raise ValueError(f"ToolError.retry_after must be a finite number of seconds, not {retry_after}")
        self.retry_after = retry_after


def error_of_kind(
    kind: ErrorKind | str | None, message: str, *, model: str, retry_after: float | None = None
) -> AgentError:
    """Returns the error for a stream's failure; an unknown kind is a `StreamError`."""
    match kind:
        case ErrorKind.THROTTLED | ErrorKind.NETWORK:
            passing = ModelThrottled if kind == ErrorKind.THROTTLED else NetworkError
            return passing(message, model=model, retry_after=retry_after)
        case ErrorKind.CONTEXT_OVERFLOW:
            return ContextWindowOverflow(model, message)
        case ErrorKind.INVALID_REQUEST:
            return StreamError(message, kind=ErrorKind.INVALID_REQUEST)
        case ErrorKind.AUTH:
            return AuthError(message)
        case ErrorKind.CONTENT_FILTERED:
            return ContentFiltered(message)
        case ErrorKind.ABORTED:
            return Aborted(message)
        case _:
            return StreamError(message)


class FromHook:
    """Within its block, an exception of a hook becomes an error that names the hook. An `AgentError` stays.

    If the block calls several hooks, it assigns the `name` of the next one.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> FromHook:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, AgentError):
            raise as_agent_error(error, self.name) from error


def as_agent_error(error: Exception, hook: str) -> AgentError:
    """Returns what a hook raised as an error of the run, which names the hook."""
    if isinstance(error, AgentError):
        return error
    wrapped = StreamError(f"{hook} failed: {described(error)}")
    wrapped.__cause__ = error
    return wrapped


def described(error: Exception) -> str:
    """Returns the type and the text of an exception."""
    said = text_of(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def text_of(error: BaseException) -> str:
    """Returns the text of an exception, empty if `str` fails."""
    try:
        return str(error)
    except Exception:
        return ""


def _rebuild(error_type: type[AgentError], args: tuple[Any, ...], state: dict[str, Any]) -> AgentError:
    error = error_type.__new__(error_type, *args)
    error.args = args
    error.__dict__.update(state)
    return error
