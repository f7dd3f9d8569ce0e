"""Nothing that needs approval runs without it."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    Approve,
    ApproveWith,
    ModelSpec,
    PreDispatchContext,
    Reject,
    Skip,
    Stop,
    ToolApprovalRequest,
    TurnEnd,
    extract_text,
    tool,
)
from swink_agent.testing import call, check_events, collect, names, scripted, text

MODEL = ModelSpec("test", "model")
ran: list[str] = []


@tool(requires_approval=True)
async def write(path: str) -> str:
    """Writes."""
    ran.append(path)
    return f"wrote {path}"


@tool
async def read(path: str) -> str:
    """Reads."""
    ran.append(path)
    return f"read {path}"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def run(approve: Any, calls: list[Any], **options: Any) -> tuple[list[AgentEvent], list[str]]:
    agent = Agent(MODEL, stream_fn=scripted(calls, text("ok")), tools=[read, write], approve=approve, **options)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    turn = next(event for event in events if isinstance(event, TurnEnd))
    return events, [extract_text(result.content) for result in turn.tool_results]


async def test_smart_mode_asks_for_the_tools_that_say_so() -> None:
    asked: list[str] = []

    def approve(request: ToolApprovalRequest) -> bool:
        asked.append(request.name)
        return True

    events, _ = await run(approve, [call("read", path="a"), call("write", path="b")])
    assert asked == ["write"]
    assert names(events)[6:11] == [
        "ToolApprovalRequested",
        "ToolApprovalResolved",
        "ToolExecutionStart",
        "ToolExecutionStart",
        "ToolExecutionEnd",
    ]


async def test_enabled_mode_asks_for_every_tool_and_bypassed_for_none() -> None:
    asked: list[str] = []

    def approve(request: ToolApprovalRequest) -> bool:
        asked.append(request.name)
        return True

    calls = [call("read", path="a"), call("write", path="b")]
    await run(approve, calls, approval_mode="enabled")
    assert asked == ["read", "write"]
    await run(approve, calls, approval_mode="bypassed")
    assert asked == ["read", "write"]
    assert sorted(ran) == ["a", "a", "b", "b"]


async def test_a_tool_that_needs_approval_with_nobody_to_ask_does_not_run() -> None:
    _, (result,) = await run(None, [call("write", path="a")])
    assert result.startswith("tool call rejected")
    assert not ran


async def test_calls_are_asked_about_in_order_and_before_any_runs() -> None:
    order: list[str] = []

    def approve(request: ToolApprovalRequest) -> bool:
        order.append(f"{request.arguments['path']} with {len(ran)} run")
        return True

    await run(approve, [call("write", path="a"), call("read", path="b"), call("write", path="c")])
    assert order == ["a with 0 run", "c with 0 run"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (False, "tool call rejected"),
        (Reject(), "tool call rejected"),
        (Reject("not on a Sunday"), "tool call rejected: not on a Sunday"),
        (None, "tool call rejected: the approval callback answered NoneType, which is no approval"),
        ("yes", "tool call rejected: the approval callback answered str, which is no approval"),
        (1, "tool call rejected: the approval callback answered int, which is no approval"),
        (ApproveWith([]), "tool call rejected"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_anything_but_a_clear_yes_is_a_no(answer: Any, told: str, is_async: bool) -> None:
    async def later(_: ToolApprovalRequest) -> Any:
        return answer

    _, (result,) = await run(later if is_async else lambda _: answer, [call("write", path="a")])
    assert result.startswith(told)
    assert not ran


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_callback_that_raises_is_a_rejection(is_async: bool) -> None:
    def fails(_: ToolApprovalRequest) -> bool:
        raise RuntimeError("the dialog crashed")

    async def fails_later(_: ToolApprovalRequest) -> bool:
        raise RuntimeError("the dialog crashed")

    events, (result,) = await run(fails_later if is_async else fails, [call("write", path="a")])
    assert "approval callback failed" in result
    assert not ran
    assert "ToolApprovalResolved" in names(events)


@pytest.mark.parametrize("answer", [True, Approve()])
async def test_a_yes_lets_it_run(answer: Any) -> None:
    _, (result,) = await run(lambda _: answer, [call("write", path="a")])
    assert result == "wrote a"


async def test_approval_with_other_arguments_runs_those_and_keeps_the_models_own_in_the_history() -> None:
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("write", path="/etc/passwd"), text("ok")),
        tools=[write],
        approve=lambda _: ApproveWith({"path": "copy"}),
    )
    events = await collect(agent.prompt_stream("go"))
    assert ran == ["copy"]
    assert agent.messages[1].tool_calls[0].arguments == {"path": "/etc/passwd"}  # type: ignore[union-attr]
    (start,) = [event for event in events if type(event).__name__ == "ToolExecutionStart"]
    assert start.arguments == {"path": "copy"}  # type: ignore[union-attr]


async def test_changed_arguments_pass_the_policies_again() -> None:
    class NoSecrets:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
            self.seen.append(dict(ctx.arguments))
            return Skip("secret") if ctx.arguments["path"] == "secret" else None

    policy = NoSecrets()
    _, (result,) = await run(lambda _: ApproveWith({"path": "secret"}), [call("write", path="a")], policies=[policy])
    assert policy.seen == [{"path": "a"}, {"path": "secret"}]
    assert result == "tool call skipped: secret"
    assert not ran


async def test_a_stop_on_changed_arguments_ends_the_run_and_runs_nothing() -> None:
    class Strict:
        def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
            return Stop("too far") if ctx.arguments["path"] == "x" else None

    events, results = await run(
        lambda _: ApproveWith({"path": "x"}), [call("read", path="a"), call("write", path="b")], policies=[Strict()]
    )
    assert all("too far" in result for result in results)
    assert not ran
    assert events[-1].stopped_by.reason == "too far"  # type: ignore[union-attr]


async def test_changed_arguments_are_validated() -> None:
    _, (result,) = await run(lambda _: ApproveWith({"path": 7}), [call("write", path="a")])
    assert "invalid arguments for write" in result
    assert not ran


async def test_what_a_callback_does_to_its_request_changes_nothing() -> None:
    def approve(request: ToolApprovalRequest) -> bool:
        request.arguments["path"] = "elsewhere"
        return True

    await run(approve, [call("write", path="a")])
    assert ran == ["a"]


def test_the_request_shows_no_values() -> None:
    request = ToolApprovalRequest("id", "bash", {"command": "curl -H 'Authorization: Bearer sk-1'", "timeout": 3})
    assert repr(request) == "ToolApprovalRequest(call_id='id', name='bash', arguments={command: …, timeout: …})"
    assert "sk-1" not in str(request)
