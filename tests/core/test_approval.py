"""Nothing that needs approval runs without it."""

from __future__ import annotations

import threading
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentToolResult,
    ApprovalMode,
    Approve,
    ApproveWith,
    Defer,
    Grant,
    ModelSpec,
    PreDispatchContext,
    ProposedCall,
    Reject,
    Skip,
    Stop,
    ToolApprovalRequest,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    TurnEnd,
    extract_text,
    tool,
)
from swink_agent.core.values.value import Value
from swink_agent.testing import call, check_events, collect, names, scripted, text

MODEL = ModelSpec("test", "model")
ran: list[str] = []
ENDLESS: dict[str, Any] = {"path": []}
ENDLESS["path"].append(ENDLESS)


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


class Foreseeing:
    """A tool that refuses what it has not been shown, and says so before anybody is asked."""

    name = label = description = "foreseeing"
    requires_approval = True
    parameters_schema: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}

    def foresee(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult | None:
        assert ctx.conversation is not None
        if arguments["path"] == "broken":
            raise RuntimeError("a bug")
        known = ctx.conversation.memory.setdefault("known", set())
        if arguments["path"] in known:
            return None
        known.add(arguments["path"])
        return AgentToolResult.error("not seen yet")

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        ran.append(arguments["path"])
        return AgentToolResult.text("done")


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


@pytest.mark.table
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (False, "tool call rejected"),
        (Reject(), "tool call rejected"),
        (Reject("not on a Sunday"), "tool call rejected: not on a Sunday"),
        (None, "tool call rejected: the approval callback answered NoneType, which is not an approval"),
        ("yes", "tool call rejected: the approval callback answered str, which is not an approval"),
        (1, "tool call rejected: the approval callback answered int, which is not an approval"),
        (
            ApproveWith([]),  # type: ignore[arg-type]
            "tool call rejected: the arguments in the callback's ApproveWith are a list, and not a dict",
        ),
        (
            ApproveWith(ENDLESS),
            "tool call rejected: the approval callback answered arguments that are nested deeper than 128 levels",
        ),
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


@pytest.mark.parametrize("kind", [Defer, Reject])
async def test_an_answer_with_a_reason_that_is_not_text_is_a_rejection(kind: Any) -> None:
    events, (result,) = await run(lambda _: kind(3), [call("write", path="a")])
    assert result == "tool call rejected: the approval callback failed: TypeError"
    assert not ran
    assert names(events)[-1] == "AgentEnd"


@pytest.mark.parametrize("answer", [True, Approve()])
async def test_a_yes_lets_it_run(answer: Any) -> None:
    _, (result,) = await run(lambda _: answer, [call("write", path="a")])
    assert result == "wrote a"


async def test_approval_with_other_arguments_runs_those_and_keeps_the_models_own() -> None:
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


async def test_the_model_is_told_what_was_made_of_its_call() -> None:
    note = "the user left the rest out"
    _, (result,) = await run(lambda _: ApproveWith({"path": "copy"}, note), [call("write", path="a")])
    assert result == f"wrote copy\n{note}"


async def test_a_note_beside_the_result_shows_no_secret() -> None:
    secret = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    _, (result,) = await run(lambda _: ApproveWith({"path": "copy"}, f"not {secret}"), [call("write", path="a")])
    assert "wrote copy" in result
    assert secret not in result


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


async def test_changes_to_its_request_by_a_callback_have_no_effect() -> None:
    def approve(request: ToolApprovalRequest) -> bool:
        request.arguments["path"] = "elsewhere"
        return True

    await run(approve, [call("write", path="a")])
    assert ran == ["a"]


def test_a_request_and_a_grant_show_no_values_inside_other_values_either() -> None:
    class Holder(Value, frozen=True):
        items: tuple[Any, ...]

    held = Holder((ToolApprovalRequest("1", "login", {"with": "hunter2"}), Grant("login", {"with": "hunter2"})))
    assert "hunter2" not in repr(held)
    assert "with: …" in repr(held)


def test_the_request_shows_no_values() -> None:
    request = ToolApprovalRequest("id", "bash", {"command": "curl -H 'Authorization: Bearer sk-1'", "timeout": 3})
    assert repr(request) == "ProposedCall(call_id='id', name='bash', arguments={command: …, timeout: …})"
    assert "sk-1" not in str(request)


class Press:
    """A tool that acts somewhere, and checks that it may right before it does."""

    name, label, description, requires_approval = "press", "Press", "Presses a button.", True
    parameters_schema = {"type": "object", "properties": {"button": {"type": "string"}}}

    def __init__(self) -> None:
        self.folder = "/here"
        self.pressed: list[str] = []
        self.grants: list[Grant | None] = []

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"folder": self.folder}

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        self.grants.append(ctx.grant)
        if ctx.grant is not None and not ctx.grant.covers(self.name, arguments, self.approval_scope(arguments)):
            return AgentToolResult.error("not what was approved")
        self.pressed.append(arguments["button"])
        return AgentToolResult.text("pressed")


async def test_the_question_names_the_place_and_the_tool_gets_the_approved_one() -> None:
    press, asked = Press(), list[ToolApprovalRequest]()

    def approve(request: ToolApprovalRequest) -> bool:
        asked.append(request)
        return True

    agent = Agent(MODEL, stream_fn=scripted(call("press", button="red"), text("ok")), tools=[press], approve=approve)
    await agent.prompt("go")
    assert asked[0].scope == {"folder": "/here"}
    assert press.grants == [Grant("press", {"button": "red"}, {"folder": "/here"})]
    assert press.pressed == ["red"]


class InTwoSteps:
    """A callback with a part that takes time, which writes down what happened in which thread."""

    def __init__(self, press: Press) -> None:
        self.press = press
        self.steps: list[tuple[str, bool]] = []

    def step(self, name: str) -> None:
        self.steps.append((name, threading.current_thread() is threading.main_thread()))

    def prepare_approval(self, request: ProposedCall) -> Any:
        self.step(f"prepare {request.scope['folder']}")
        request.arguments["button"] = "changed"  # a copy: it changes nothing

        async def answer() -> bool:
            self.step("answer")
            return True

        return answer

    async def __call__(self, request: ProposedCall) -> bool:
        self.step("called")
        return False


async def pressed(approve: Any, press: Press) -> list[AgentEvent]:
    agent = Agent(MODEL, stream_fn=scripted(call("press", button="red"), text("ok")), tools=[press], approve=approve)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    return events


async def test_a_callback_prepares_its_answer_in_the_thread_that_found_the_scope() -> None:
    press = Press()
    approve = InTwoSteps(press)
    await pressed(approve, press)
    assert approve.steps == [("prepare /here", False), ("answer", True)]
    assert press.pressed == ["red"]


async def test_a_preparation_that_fails_is_a_no() -> None:
    class Failing(InTwoSteps):
        def prepare_approval(self, request: ProposedCall) -> Any:
            raise OSError("the disk")

    press = Press()
    approve = Failing(press)
    events = await pressed(approve, press)
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert end.reason == "the approval callback failed: OSError"
    assert (press.pressed, approve.steps) == ([], [])


async def test_a_subclass_that_is_called_in_its_own_way_is_called() -> None:
    class Strict(InTwoSteps):
        async def __call__(self, request: ProposedCall) -> bool:
            return await super().__call__(request)

    press = Press()
    approve = Strict(press)
    await pressed(approve, press)
    assert (press.pressed, approve.steps) == ([], [("called", True)])


async def test_a_subclass_can_add_the_preparation() -> None:
    class Slow:
        async def __call__(self, request: ProposedCall) -> bool:
            raise AssertionError("the subclass prepares its answer")

    class Prepared(Slow):
        threads: ClassVar[list[threading.Thread]] = []

        def prepare_approval(self, request: ProposedCall) -> Any:
            self.threads.append(threading.current_thread())
            return lambda: True

    press = Press()
    await pressed(Prepared(), press)
    assert press.pressed == ["red"]
    assert threading.main_thread() not in Prepared.threads


async def test_without_a_prepared_answer_a_callback_is_called() -> None:
    class Unprepared(InTwoSteps):
        def prepare_approval(self, request: ProposedCall) -> Any:
            return None

    press = Press()
    approve = Unprepared(press)
    await pressed(approve, press)
    assert (press.pressed, approve.steps) == ([], [("called", True)])


async def test_a_mixin_that_is_called_before_the_preparation_is_called() -> None:
    class Logged:
        async def __call__(self, request: ProposedCall) -> bool:
            return await super().__call__(request)  # type: ignore[misc]

    class Strict(Logged, InTwoSteps): ...

    press = Press()
    approve = Strict(press)
    await pressed(approve, press)
    assert (press.pressed, approve.steps) == ([], [("called", True)])


async def test_a_stand_in_that_has_every_attribute_is_called() -> None:
    press = Press()
    approve = Mock(return_value=True)
    await pressed(approve, press)
    assert press.pressed == ["red"]
    assert approve.call_args.args[0].scope == {"folder": "/here"}


async def test_without_a_scope_a_callback_is_called() -> None:
    class Plain(Press):
        approval_scope = None  # type: ignore[assignment]

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
            raise AssertionError

    press = Plain()
    approve = InTwoSteps(press)
    await pressed(approve, press)
    assert approve.steps == [("called", True)]


async def test_a_scope_that_changed_after_the_yes_is_not_what_was_approved() -> None:
    press = Press()

    def approve(request: ToolApprovalRequest) -> bool:
        press.folder = "/elsewhere"
        return True

    agent = Agent(MODEL, stream_fn=scripted(call("press", button="red"), text("ok")), tools=[press], approve=approve)
    await agent.prompt("go")
    assert press.pressed == []


async def test_approval_with_other_arguments_is_a_grant_of_those() -> None:
    press = Press()
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("press", button="red"), text("ok")),
        tools=[press],
        approve=lambda request: ApproveWith({"button": "green"}),
    )
    await agent.prompt("go")
    assert press.grants == [Grant("press", {"button": "green"}, {"folder": "/here"})]
    assert press.pressed == ["green"]


async def test_a_tool_that_would_refuse_anyway_is_not_asked_about() -> None:
    class Choosy(Press):
        def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
            raise ToolError("there is no such button")

    asked = list[ToolApprovalRequest]()
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("press", button="blue"), text("ok")),
        tools=[Choosy()],
        approve=lambda request: bool(asked.append(request)),
    )
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert asked == []
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert end.result == AgentToolResult.error("there is no such button")


async def test_a_call_that_nobody_was_asked_about_has_no_grant() -> None:
    press = Press()
    agent = Agent(
        MODEL, stream_fn=scripted(call("press", button="red"), text("ok")), tools=[press], approval_mode="bypassed"
    )
    await agent.prompt("go")
    assert press.grants == [None]


async def test_a_tool_that_cannot_say_where_it_would_act_is_granted_nothing_that_it_does() -> None:
    class Lost(Press):
        def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
            if not self.grants:
                raise OSError("no folder")
            return super().approval_scope(arguments)

    lost = Lost()
    agent = Agent(
        MODEL, stream_fn=scripted(call("press", button="red"), text("ok")), tools=[lost], approve=lambda request: True
    )
    await agent.prompt("go")
    assert lost.pressed == []


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "arguments", "scope"),
    [
        ("Press", {"n": 1}, {"f": "/"}),
        ("press", {"n": 1.0}, {"f": "/"}),
        ("press", {"n": True}, {"f": "/"}),
        ("press", {"n": "1"}, {"f": "/"}),
        ("press", {"n": 1, "m": None}, {"f": "/"}),
        ("press", {"n": 1}, {"f": "/x"}),
        ("press", {"n": 1}, {}),
    ],
)
def test_a_grant_covers_nothing_but_what_was_approved(
    name: str, arguments: dict[str, Any], scope: dict[str, Any]
) -> None:
    grant = Grant("press", {"n": 1, "a": [1, {"b": 2}]}, {"f": "/", "s": "x"})
    assert grant.covers("press", {"a": [1, {"b": 2}], "n": 1}, {"s": "x", "f": "/"})
    assert not grant.covers(name, {"a": [1, {"b": 2}], **arguments}, {"s": "x", **scope} if scope else {})


async def test_nobody_is_asked_about_a_call_that_the_tool_foresees_to_refuse() -> None:
    asked: list[Any] = []

    def approve(request: ToolApprovalRequest) -> bool:
        asked.append(request.arguments["path"])
        return True

    again = call("foreseeing", path="a")
    stream = scripted([again, call("foreseeing", path="broken")], again, text("ok"))
    agent = Agent(MODEL, stream_fn=stream, tools=[Foreseeing()], approve=approve)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    ends = [(event.call_id, event.is_error) for event in events if isinstance(event, ToolExecutionEnd)]
    assert [is_error for _, is_error in ends] == [True, False, False]
    assert (asked, ran) == (["broken", "a"], ["broken", "a"])


async def test_notes_of_tools_about_a_conversation_go_with_it() -> None:
    seen: list[tuple[int, int]] = []

    @tool
    async def count(ctx: ToolContext) -> str:
        """Counts."""
        assert ctx.conversation is not None
        memory = ctx.conversation.memory
        memory["calls"] = memory.get("calls", 0) + 1
        seen.append((memory["calls"], len(ctx.conversation)))
        return "counted"

    once, twice = call("count"), [call("count"), call("count")]

    def agent() -> Agent:
        stream = scripted(twice, once, text("ok"), once, text("ok"), once, text("ok"), once, text("ok"))
        return Agent(MODEL, stream_fn=stream, tools=[count])

    first = agent()
    await first.prompt("go")
    assert seen == [(1, 2), (2, 2), (3, 5)]  # the same length for all calls of a reply
    await agent().prompt("go")  # another conversation with the same tool
    assert seen[3:] == [(1, 2), (2, 2), (3, 5)]
    await first.prompt("go on")
    assert seen[-1][0] == 4
    first.reset()
    await first.prompt("anew")
    assert seen[-1] == (1, 2)
    first.messages = [*first.messages]
    await first.prompt("from a copy")
    assert seen[-1][0] == 1
    assert first.state == {}


def test_the_names_of_the_specification_are_those_of_today() -> None:
    assert ToolApprovalRequest is ProposedCall
    assert ApprovalMode.SMART is ApprovalMode.WHERE_REQUIRED
    assert ApprovalMode("smart") is ApprovalMode("where_required") is ApprovalMode.SMART
    assert [mode.value for mode in ApprovalMode] == ["enabled", "smart", "bypassed"]


def test_a_yes_for_reading_alone_is_a_yes() -> None:
    """Callers compare answers, and show them: how the tool looks for programs is no part of the answer."""
    assert Approve(reads_only=True) == Approve()
    assert {Approve(reads_only=True), Approve()} == {Approve()}
    assert repr(Approve(reads_only=True)) == "Approve()"
    assert Approve() != Reject()
