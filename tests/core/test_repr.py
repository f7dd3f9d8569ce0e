"""The repr of values in logs: short, and without secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import Any

import pytest

from swink_agent import (
    AgentContext,
    AgentEnd,
    AgentLoopConfig,
    AgentMessage,
    AgentResult,
    AgentToolResult,
    ApproveWith,
    AssistantMessage,
    AssistantMessageEvent,
    Base64Image,
    CancellationToken,
    Cost,
    CustomMessage,
    Extension,
    Image,
    ModelSpec,
    PolicyContext,
    PolicyStop,
    PreDispatchContext,
    ProposedCall,
    Reject,
    Skip,
    Stop,
    StopReason,
    StreamError,
    StreamOptions,
    Text,
    Thinking,
    ToolApprovalRequested,
    ToolCall,
    ToolContext,
    ToolExecutionStart,
    ToolResultMessage,
    Usage,
    UserMessage,
    tool,
)

SECRET = "sk-live-0123456789"
SHORT = 400


async def silent(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[AssistantMessageEvent]:
    return
    yield


@tool
def look(where: str) -> str:
    """Looks."""
    return where


def snapshot(**fields: Any) -> PolicyContext:
    return PolicyContext(**{"turn_index": 0, "messages": (), "usage": Usage(), "cost": Cost(), "state": {}, **fields})


# -- secrets ---------------------------------------------------------------------------------------------------


def test_the_key_and_the_headers_never_show() -> None:
    options = StreamOptions(
        api_key=SECRET, headers={"Authorization": SECRET, "X-Team": SECRET}, extra={"password": SECRET, "seed": SECRET}
    )
    config = AgentLoopConfig(model=ModelSpec("p", "m"), stream_fn=silent, stream_options=options)
    for value in (options, config):
        for shown in (repr(value), str(value), f"{value}"):
            assert SECRET not in shown
    assert "api_key" in repr(options)


SECRET_NAMES = [
    "api_key",
    "apikey",
    "apiKey",
    "api-key",
    "X-API-Key",
    "OPENAI_API_KEY",
    "access_key",
    "accessKeyId",
    "Authorization",
    "bearer",
    "cookie",
    "Set-Cookie",
    "credentials",
    "password",
    "passwd",
    "passphrase",
    "private_key",
    "private-key",
    "client_secret",
    "token",
    "access-token",
]


def test_an_argument_whose_name_looks_like_a_secret_is_hidden_at_any_depth() -> None:
    shown: list[str] = []
    for name in SECRET_NAMES:
        arguments = {"where": "here", name: SECRET, "nested": [{"deeper": {name: [SECRET]}}]}
        values = (
            ToolCall("1", "look", arguments),
            ToolExecutionStart("1", "look", arguments),
            ToolApprovalRequested("1", "look", arguments),
            ApproveWith(arguments),
            AgentToolResult("a", details=arguments),
            Extension("x", arguments),
        )
        shown.extend(repr(value) for value in values)
    assert [text for text in shown if SECRET in text] == []
    assert all("here" in text for text in shown)


def test_secrets_in_the_state_of_a_policy_are_hidden_whatever_mapping_holds_it() -> None:
    for state in ({"api_key": SECRET}, MappingProxyType({"api_key": SECRET})):
        assert SECRET not in repr(snapshot(state=state))


def test_secrets_in_details_are_hidden_whatever_mapping_holds_them() -> None:
    assert SECRET not in repr(ToolResultMessage("1", "a", details=MappingProxyType({"password": SECRET})))


def test_an_approval_request_names_the_arguments_and_shows_no_value() -> None:
    request = ProposedCall("call_1", "run_command", {"command": SECRET, "env": {"HOME": SECRET}})
    shown = repr(request)
    assert SECRET not in shown
    for word in ("call_1", "run_command", "command", "env"):
        assert word in shown


def test_calls_seen_by_a_policy_show_no_value() -> None:
    context = PreDispatchContext(snapshot(state={"note": SECRET}), "call_1", "run_command", {"command": SECRET})
    assert SECRET not in repr(context)
    assert "command" in repr(context)


def test_a_tool_context_does_not_show_the_state() -> None:
    assert SECRET not in repr(ToolContext("call_1", state={"note": SECRET}))


# -- length ----------------------------------------------------------------------------------------------------

HUGE = "x" * 100_000
CYCLE: dict[str, Any] = {"name": "cycle"}
CYCLE["self"] = [CYCLE, CYCLE]
MANY: list[AgentMessage] = [UserMessage(f"message {number}") for number in range(5_000)]


HUGE_VALUES: list[object] = [
    Text(HUGE),
    Thinking(HUGE, HUGE),
    ToolCall(HUGE, HUGE, {HUGE: HUGE}, HUGE),
    Image(Base64Image("image/png", HUGE)),
    Extension("x", HUGE.encode()),
    UserMessage(HUGE),
    AssistantMessage([Text(HUGE)] * 100, error_message=HUGE),
    ToolResultMessage(HUGE, HUGE, details=[HUGE] * 100),
    ToolResultMessage("1", "a", details=CYCLE),
    ToolExecutionStart("1", "look", {f"argument_{number}": HUGE for number in range(1_000)}),
    AgentContext(HUGE, MANY, [look] * 100),
    AgentEnd(tuple(MANY)),
    AgentResult(tuple(MANY), StopReason.ERROR, error=HUGE, exception=StreamError(HUGE)),
    snapshot(messages=MANY, state={f"key_{number}": HUGE for number in range(1_000)}),
    StreamOptions(session_id=HUGE, tool_choice=HUGE),
    ProposedCall(HUGE, "look", {"where": 1}),
    ProposedCall("1", HUGE, {"where": 1}),
    ProposedCall("1", "look", {HUGE: 1}),
    ProposedCall("1", "look", {f"argument_{number}": 1 for number in range(1_000)}),
    PreDispatchContext(snapshot(), "1", HUGE, {}),
    PreDispatchContext(snapshot(), "1", "look", {f"argument_{number}": 1 for number in range(1_000)}),
]


def test_a_repr_is_short_however_much_the_value_holds() -> None:
    shown = [(type(value).__name__, repr(value)) for value in HUGE_VALUES]
    assert [f"{name}: {len(text)}" for name, text in shown if len(text) > SHORT] == []
    assert all(text.startswith(name) for name, text in shown)


class Raw(CustomMessage, tag="raw"):
    data: bytes


def test_bytes_are_counted_and_not_shown() -> None:
    shown = repr(Raw(b"secret bytes"))
    assert "secret" not in shown
    assert "12" in shown


def test_a_long_text_shows_its_beginning() -> None:
    assert "The quick brown fox" in repr(UserMessage("The quick brown fox " + HUGE))


def test_a_small_value_shows_what_it_holds() -> None:
    shown = repr(ToolCall("call_1", "look", {"where": "here", "depth": 2}))
    for word in ("ToolCall", "call_1", "look", "where", "here", "depth", "2"):
        assert word in shown


def test_tools_and_tokens_show_what_they_are() -> None:
    assert "look" in repr(look)
    token = CancellationToken()
    active = repr(token)
    token.cancel()
    assert repr(token) != active


# -- hostile contents ------------------------------------------------------------------------------------------


class ComparesToSomethingVague:
    """Answers a comparison as an array does: with something that is neither true nor false."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return Vague()


class Vague:
    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


class CannotBeShown:
    def __repr__(self) -> str:
        raise RuntimeError("no repr today")


@pytest.mark.parametrize(
    "details", [ComparesToSomethingVague(), CannotBeShown(), 10**5_000], ids=["vague", "no repr", "long number"]
)
def test_a_repr_never_raises_because_of_what_a_tool_put_into_details(details: object) -> None:
    for value in (
        ToolResultMessage("1", "a", details=details),
        AgentToolResult("a", details),
        Extension("x", {"data": [details]}),
    ):
        assert repr(value).startswith(type(value).__name__)


def test_the_reason_of_a_stop_is_shown_whole_up_to_some_sentences() -> None:
    reason = "a request of at most 4,000 tokens does not fit into what is left of the budget of 1,000; " * 2
    for value in (PolicyStop("budget", reason), Stop(reason), Skip(reason), Reject(reason)):
        assert f"reason={reason!r}" in repr(value)
    assert f"error_message={reason!r}" in repr(AssistantMessage("", error_message=reason))
    assert len(repr(PolicyStop("budget", reason * 100))) < 120


def test_rich_shows_no_more_of_a_value_than_its_repr_does() -> None:
    options = StreamOptions(api_key=SECRET, headers={"Authorization": SECRET}, max_tokens=5)
    request = ProposedCall("1", "send", {"body": SECRET}, {})
    for value in (options, request, AgentLoopConfig(model=MODEL, stream_fn=_nobody, stream_options=options)):
        assert SECRET not in repr(value.__rich_repr__())
    assert "max_tokens" in repr(options.__rich_repr__())
    rich = pytest.importorskip("rich.pretty")
    assert (
        rich.pretty_repr(options).replace("\n", "").replace(" ", "")
        == "StreamOptions(max_tokens=5,api_key=…,headers=…)"
    )
    assert SECRET not in rich.pretty_repr([request, {"options": options}])


SECRET = "sk-not-to-be-seen-anywhere-1234"
MODEL = ModelSpec("test", "model")


async def _nobody(*_: object) -> AsyncIterator[AssistantMessageEvent]:
    raise AssertionError
    yield
