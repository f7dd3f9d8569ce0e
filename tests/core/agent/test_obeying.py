"""Delegates obey: the policies of a run are asked about everything that its delegates do, to any depth."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentResult,
    Inject,
    PolicyContext,
    PreDispatchContext,
    Skip,
    Stop,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.policies import Checkpoint, LoopDetection, MaxTurns
from swink_agent.testing import call, scripted

pytestmark = pytest.mark.fast


@tool
def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


class Watching:
    """Notes each slot that it is asked in, with the way to the run, and answers as it is told to."""

    def __init__(self, name: str = "watching", **verdicts: Any) -> None:
        self.name = name
        self.verdicts = verdicts
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        self.runs: dict[str, tuple[str, ...]] = {}
        self.over: list[str] = []

    def _next(self, slot: str, ctx: Any) -> Any:
        self.seen.append((slot, ctx.delegates))
        self.runs[ctx.run_id] = ctx.delegates
        verdict = self.verdicts.get(slot)
        return verdict(ctx) if callable(verdict) else verdict

    def pre_turn(self, ctx: PolicyContext) -> Any:
        return self._next("pre_turn", ctx)

    async def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
        return self._next("pre_dispatch", ctx)

    def post_turn(self, ctx: PolicyContext) -> Any:
        return self._next("post_turn", ctx)

    def post_loop(self, ctx: PolicyContext) -> Any:
        return self._next("post_loop", ctx)

    def run_over(self, run_id: str) -> None:
        self.over.append(run_id)


def team(outer: Any, middle: Any = (), inner: Any = (), *, replies: Any = None, **options: Any) -> tuple[Agent, Any]:
    """An agent whose delegate `lead` has a delegate `clerk`, which pays. Each has its own policies."""
    model = scripted(*(replies or [call("pay", amount=5), "paid it"]))
    clerk = Agent("test:clerk", stream_fn=model, tools=[pay], policies=inner, **options)
    lead = Agent(
        "test:lead",
        stream_fn=scripted(call("clerk", prompt="pay"), "led"),
        tools=[clerk.as_tool("clerk", "Pays.")],
        policies=middle,
    )
    agent = Agent(
        "test:boss",
        stream_fn=scripted(call("lead", prompt="lead"), "done"),
        tools=[lead.as_tool("lead", "Leads.")],
        policies=outer,
    )
    return agent, model


def results(result: AgentResult) -> list[tuple[str, ToolOutcome]]:
    found = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    return [(extract_text(message.content), message.outcome) for message in found]


async def test_every_slot_is_asked_at_every_depth_with_the_way_there() -> None:
    policy = Watching()
    agent, _ = team([policy])
    await agent.prompt("go")
    one = ["pre_turn", "pre_dispatch"]
    rest = ["post_turn", "pre_turn", "post_turn", "post_loop"]
    assert policy.seen == [
        *[(slot, ()) for slot in one],
        *[(slot, ("lead",)) for slot in one],
        *[(slot, ("lead", "clerk")) for slot in (*one, *rest)],
        *[(slot, ("lead",)) for slot in rest],
        *[(slot, ()) for slot in rest],
    ]
    assert policy.over == list(reversed(policy.runs))


async def test_the_delegates_own_policies_come_first_then_outwards() -> None:
    order: list[tuple[str, tuple[str, ...]]] = []

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            if ctx.name == "pay":
                order.append((self.name, ctx.delegates))

    agent, _ = team([Noting("outer")], [Noting("middle")], [Noting("inner")])
    await agent.prompt("go")
    assert order == [("inner", ()), ("middle", ("clerk",)), ("outer", ("lead", "clerk"))]


async def test_a_context_that_a_policy_kept_stays_as_it_was() -> None:
    kept: list[PreDispatchContext] = []

    class Keeping:
        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            kept.append(ctx)

    agent, _ = team([Watching()], [], [Keeping()])
    await agent.prompt("go")
    assert [ctx.delegates for ctx in kept] == [()]


async def test_a_deny_list_of_the_caller_holds_in_delegates() -> None:
    policy = Watching(pre_dispatch=lambda ctx: Skip("no money today") if ctx.name == "pay" else None)
    agent, model = team([policy])
    await agent.prompt("go")
    (denied,) = [message for message in model.requests[1].messages if isinstance(message, ToolResultMessage)]
    assert (extract_text(denied.content), denied.outcome) == ("tool call skipped: no money today", ToolOutcome.SKIPPED)


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_the_caller_can_change_the_arguments_inside(is_replaced: bool) -> None:
    def change(ctx: PreDispatchContext) -> None:
        if ctx.name == "pay":
            if is_replaced:
                ctx.arguments = {"amount": 1}
            else:
                ctx.arguments["amount"] = 1

    agent, model = team([Watching(pre_dispatch=change)])
    await agent.prompt("go")
    (paid,) = [message for message in model.requests[1].messages if isinstance(message, ToolResultMessage)]
    assert extract_text(paid.content) == "paid 1"


async def test_messages_that_the_caller_injects_enter_the_delegate() -> None:
    told = Watching(pre_turn=lambda ctx: Inject("be brief") if ctx.delegates == ("lead", "clerk") else None)
    agent, model = team([told])
    result = await agent.prompt("go")
    users = [message for message in model.requests[0].messages if isinstance(message, UserMessage)]
    assert [extract_text(message.content) for message in users] == ["pay", "be brief"]
    assert "be brief" not in repr(result.messages)


async def test_a_stop_of_the_caller_ends_the_delegate_with_its_name_and_reason() -> None:
    policy = Watching("limit", pre_turn=lambda ctx: Stop("too deep") if len(ctx.delegates) == 2 else None)
    agent, model = team([policy])
    result = await agent.prompt("go")
    assert (result.text, result.stopped_by, model.requests) == ("done", None, [])
    assert results(result) == [("led", ToolOutcome.RAN)]


async def test_a_policy_that_fails_inside_ends_the_delegate_alone() -> None:
    def fails(ctx: PolicyContext) -> None:
        if ctx.delegates == ("lead",):
            raise KeyError("database")

    agent, _ = team([Watching("audit", pre_turn=fails)])
    result = await agent.prompt("go")
    ((said, outcome),) = results(result)
    assert said.startswith("lead failed: policy audit failed in pre_turn, which ends the run")
    assert (outcome, result.text, result.exception) == (ToolOutcome.FAILED, "done", None)


async def test_one_object_that_both_have_is_asked_once() -> None:
    policy = Watching()
    agent, _ = team([policy], [], [policy])
    await agent.prompt("go")
    assert [way for slot, way in policy.seen if slot == "pre_turn"] == [(), ("lead",), (), (), ("lead",), ()]
    assert len(policy.over) == len(set(policy.over)) == 3


async def test_a_policy_for_its_own_run_alone_is_not_asked_about_delegates() -> None:
    policy = Watching()
    policy.own_run_only = True  # type: ignore[attr-defined]
    agent, _ = team([policy])
    await agent.prompt("go")
    assert {way for _, way in policy.seen} == {()}
    assert len(policy.over) == 1
    assert all(kind.own_run_only for kind in (MaxTurns, LoopDetection, Checkpoint))


async def test_a_policy_on_every_request_sees_the_retries_of_delegates() -> None:
    from swink_agent.testing import fail

    class AtOnce:
        def should_retry(self, error: Any, attempt: int) -> bool:
            return True

        def delay(self, attempt: int) -> float:
            return 0.0

    policy = Watching()
    policy.on_every_request = True  # type: ignore[attr-defined]
    agent, _ = team([policy], replies=[fail("network"), "paid"], retry_strategy=AtOnce())
    await agent.prompt("go")
    inside = [slot for slot, way in policy.seen if way == ("lead", "clerk")]
    assert inside == ["pre_turn", "pre_turn", "post_turn", "post_loop"]
