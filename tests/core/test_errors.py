"""The errors: one tree, fields instead of texts to parse, and safe to send to another process."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from swink_agent import (
    Aborted,
    AgentError,
    AlreadyRunning,
    AuthError,
    ContentFiltered,
    ContextWindowOverflow,
    ErrorKind,
    InvalidContinue,
    ModelThrottled,
    NetworkError,
    NoMessages,
    NotPending,
    PolicyFailed,
    StreamError,
    StructuredOutputFailed,
    ToolError,
)
from swink_agent.core.errors import error_of_kind


class Quota(AgentError):
    """An application's own error, with arguments that it needs."""

    def __init__(self, team: str, limit: int) -> None:
        super().__init__(f"{team} has used its {limit} requests")
        self.team = team
        self.limit = limit


ERRORS: list[AgentError] = [
    AgentError("anything"),
    ContextWindowOverflow("claude-sonnet-4-6"),
    ModelThrottled("slow down", model="claude-sonnet-4-6", retry_after=1.5),
    NetworkError("gone", model="claude-sonnet-4-6"),
    AuthError("no key"),
    ContentFiltered("refused"),
    StreamError("broken"),
    StreamError("bad request", kind=ErrorKind.INVALID_REQUEST),
    StructuredOutputFailed(3, "x: not an integer"),
    AlreadyRunning(),
    NoMessages(),
    InvalidContinue(),
    NotPending(["call_1"]),
    Aborted(),
    PolicyFailed("audit", "post_turn"),
    Quota("red", 5),
]


def test_every_error_says_something_and_is_one_of_ours() -> None:
    for error in ERRORS:
        assert isinstance(error, AgentError)
        assert len(str(error)) > 1


def test_a_tool_error_is_for_the_model_and_not_for_the_caller() -> None:
    assert not issubclass(ToolError, AgentError)
    assert str(ToolError("the file is locked")) == "the file is locked"


def test_every_error_survives_pickling_and_copying_with_its_fields() -> None:
    for error in ERRORS:
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(other) is type(error)
            assert str(other) == str(error)
            assert other.args == error.args
            assert vars(other) == vars(error)
            assert other.kind == error.kind


def test_a_note_on_an_error_survives_too() -> None:
    error = NetworkError("gone")
    error.add_note("while reading the catalog")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while reading the catalog"]


def test_the_errors_have_the_fields_that_a_caller_acts_on() -> None:
    assert ContextWindowOverflow("model-x").model == "model-x"
    assert "model-x" in str(ContextWindowOverflow("model-x"))
    throttled = ModelThrottled(model="model-x", retry_after=2.5)
    assert (throttled.model, throttled.retry_after) == ("model-x", 2.5)
    assert ModelThrottled().retry_after is None
    failed = StructuredOutputFailed(4, "no answer")
    assert (failed.attempts, failed.last_error) == (4, "no answer")
    assert "no answer" in str(failed)


def test_an_error_of_usage_says_what_to_do_instead() -> None:
    assert "wait_for_idle" in str(AlreadyRunning())
    assert "prompt" in str(NoMessages())
    assert "prompt" in str(InvalidContinue())


KINDS: dict[ErrorKind, type[AgentError]] = {
    ErrorKind.THROTTLED: ModelThrottled,
    ErrorKind.NETWORK: NetworkError,
    ErrorKind.CONTEXT_OVERFLOW: ContextWindowOverflow,
    ErrorKind.AUTH: AuthError,
    ErrorKind.CONTENT_FILTERED: ContentFiltered,
    ErrorKind.INVALID_REQUEST: StreamError,
    ErrorKind.ABORTED: Aborted,
    ErrorKind.STREAM: StreamError,
}


def test_each_kind_of_failure_has_its_error() -> None:
    for kind in ErrorKind:
        for given in (kind, kind.value):
            error = error_of_kind(given, "what happened", model="model-x", retry_after=3.0)
            assert type(error) is KINDS[kind]
            assert "what happened" in str(error)
            assert error.kind == kind


def test_the_providers_advice_is_kept() -> None:
    for kind in (ErrorKind.THROTTLED, ErrorKind.NETWORK):
        error: Any = error_of_kind(kind, "busy", model="model-x", retry_after=3.0)
        assert (error.model, error.retry_after) == ("model-x", 3.0)


def test_an_unknown_kind_is_a_stream_error() -> None:
    for kind in (None, "weather", ""):
        error = error_of_kind(kind, "what happened", model="model-x")
        assert type(error) is StreamError
        assert error.kind == ErrorKind.STREAM
