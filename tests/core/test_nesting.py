"""Data that is nested very deeply, or that contains itself: the run continues, and the data is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    ApproveWith,
    Extension,
    ModelSpec,
    StopReason,
    Text,
    ToolCall,
    ToolContext,
    ToolExecutionUpdate,
    ToolOutcome,
    ToolResultMessage,
)
from swink_agent.core.calls import not_an_object
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import (
    MessageAssembler,
    StreamDone,
    StreamStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from swink_agent.core.types import extract_text
from swink_agent.core.values.nesting import DEEPEST, as_text, is_too_deep, kept_shallow
from swink_agent.core.values.value import copy_json
from swink_agent.testing import call, scripted, text

DEPTHS = [DEEPEST + 1, 450, 700, 5_000, 100_000]


def nested(depth: int, *, in_dicts: bool = False, leaf: Any = "the leaf") -> Any:
    """Data of so many levels."""
    value: Any = leaf
    for _ in range(depth):
        value = {"k": value} if in_dicts else [value]
    return value


class Gives:
    """A tool that gives a result, or reports one before it does."""

    name = label = "give"
    description = "Gives what it has."
    parameters_schema: dict[str, Any] = {"type": "object"}
    requires_approval = False

    def __init__(self, result: AgentToolResult, update: AgentToolResult | None = None) -> None:
        self.result, self.update = result, update

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        if self.update is not None:
            ctx.update(self.update)
        return self.result


def result_in(agent: Agent) -> ToolResultMessage:
    (found,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    return found


# -- details -------------------------------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("in_dicts", [False, True])
def test_deep_details_do_not_cost_the_result_that_they_belong_to(depth: int, in_dicts: bool) -> None:
    tree = nested(depth, in_dicts=in_dicts)
    agent = Agent(
        "test:model",
        stream_fn=scripted(call("give"), text("done")),
        tools=[Gives(AgentToolResult.text("two files", {"path": "a.py", "tree": tree}))],
    )

    assert agent.prompt_sync("go").text == "done"

    result = result_in(agent)
    assert (extract_text(result.content), result.is_error, result.outcome) == ("two files", False, ToolOutcome.RAN)
    assert result.details["path"] == "a.py"
    shown = result.details["tree"]
    assert shown.startswith(f"[nested deeper than {DEEPEST - 1} levels] ")
    assert ("the leaf" in shown) == (depth < 10_000), "all of it, unless that is very much"


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("depth", DEPTHS)
def test_deep_details_of_an_approved_call_and_of_updates_are_survived(depth: int) -> None:
    deep = AgentToolResult.text("part", nested(depth))
    agent = Agent(
        "test:model",
        stream_fn=scripted(call("give"), text("done")),
        tools=[Gives(AgentToolResult([Text("x"), Extension("mine", nested(depth))], nested(depth)), deep)],
        approval_mode="enabled",
        approve=lambda _: ApproveWith({}, note="Mind the gap."),
    )
    updates: list[AgentToolResult] = []
    agent.subscribe(lambda event: updates.append(event.update) if isinstance(event, ToolExecutionUpdate) else None)

    assert agent.prompt_sync("go").text == "done"

    assert [type(update.details) for update in updates] == [str]
    result = result_in(agent)
    assert (result.content[0], result.content[-1]) == (Text("x"), Text("\nMind the gap."))
    assert isinstance(result.details, str)
    extension = result.content[1]
    assert isinstance(extension, Extension)
    assert isinstance(extension.data, str)


def test_details_that_hold_themselves_are_shown_as_far_as_they_go() -> None:
    circle: dict[str, Any] = {}
    circle["both"] = [circle, circle]
    agent = Agent(
        "test:model", stream_fn=scripted(call("give"), text("done")), tools=[Gives(AgentToolResult("ok", circle))]
    )

    assert agent.prompt_sync("go").text == "done"

    assert result_in(agent).details["both"].startswith(f'[nested deeper than {DEEPEST - 1} levels] [{{"both":[')


def test_a_secret_in_what_is_shown_as_text_is_masked() -> None:
    agent = Agent(
        "test:model",
        stream_fn=scripted(call("give"), text("done")),
        tools=[Gives(AgentToolResult("ok", nested(700, leaf="it is sk-abcdefgh12345678")))],
        redactor=Redactor(["sk-abcdefgh12345678"]),
    )

    agent.prompt_sync("go")

    assert "it is [" in result_in(agent).details
    assert "sk-abcdefgh12345678" not in result_in(agent).details


# -- arguments and state -------------------------------------------------------------------------------------


def deep_call(depth: int) -> str:
    return '{"x":' * depth + "1" + "}" * depth


def assembled(arguments: str) -> ToolCall:
    """The call that comes of these arguments, as a provider streams them."""
    assembler = MessageAssembler(ModelSpec("test", "model"))
    for event in (StreamStart(), ToolCallStart(0, "c1", "give"), ToolCallDelta(0, arguments), ToolCallEnd(0)):
        assembler.feed(event)
    assembler.feed(StreamDone(StopReason.TOOL_USE))
    (block,) = assembler.message().content
    assert isinstance(block, ToolCall)
    return block


@pytest.mark.parametrize("depth", DEPTHS)
def test_arguments_that_are_nested_too_deep_go_back_to_the_model(depth: int) -> None:
    block = assembled(deep_call(depth))

    assert block.is_incomplete
    assert f"they are nested deeper than {DEEPEST} levels; send" in not_an_object(deep_call(depth))


def test_arguments_that_are_as_deep_as_may_be_are_taken() -> None:
    assert assembled(deep_call(DEEPEST)).arguments
    shortest = '{"":' + "[" * DEEPEST + "]" * DEEPEST + "}"
    assert assembled(shortest).is_incomplete, "however few characters it takes"
    assert assembled('{"x":"' + "[{" * 2_000 + '"}').arguments, "brackets in a text are no levels"


@pytest.mark.parametrize("depth", [450, 700])
def test_a_call_with_deep_arguments_is_refused_and_the_run_goes_on(depth: int) -> None:
    agent = Agent(
        "test:model",
        stream_fn=scripted(call("give", x=nested(depth, in_dicts=True)), text("done")),
        tools=[Gives(AgentToolResult.text("ok"))],
    )

    assert agent.prompt_sync("go").text == "done"

    result = result_in(agent)
    assert result.outcome == ToolOutcome.INVALID
    assert f"nested deeper than {DEEPEST} levels" in extract_text(result.content)


class Looks:
    """A policy, for which the state is copied."""

    def pre_turn(self, context: Any) -> None:
        json.dumps(sorted(context.state))


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("depth", DEPTHS)
def test_deep_state_does_not_affect_a_run_without_a_session(depth: int) -> None:
    agent = Agent("test:model", stream_fn=scripted(text("done")), policies=[Looks()])
    agent.state["tree"] = nested(depth)

    assert agent.prompt_sync("go").text == "done"


# -- the parts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_dicts", [False, True])
def test_the_limit_is_where_it_is_said_to_be(in_dicts: bool) -> None:
    assert not is_too_deep(nested(DEEPEST, in_dicts=in_dicts))
    assert is_too_deep(nested(DEEPEST + 1, in_dicts=in_dicts))
    shallow = nested(DEEPEST, in_dicts=in_dicts)
    assert kept_shallow(shallow) is shallow


def test_text_that_shows_data_is_json_where_the_data_are() -> None:
    data = {"a": [1, 2.5, None, True, "é\n"], "b": {}, "c": [[]], "d": ("x",)}
    assert json.loads(as_text(data).partition("] ")[2]) == json.loads(json.dumps(data))
    assert as_text({1: {"a set"}, "e": ValueError("x"), "s": Text("hi")}).endswith(
        '{"1":["a set"],"e":"x","s":{"text":"hi"}}'
    )


@pytest.mark.parametrize("depth", [3, 700, 20_000])
def test_a_copy_of_deep_data_is_another_of_the_same(depth: int) -> None:
    original = nested(depth, in_dicts=True, leaf=[1, "x"])

    one, other = original, copy_json(original)
    for _ in range(depth):
        assert one is not other
        assert list(one) == list(other) == ["k"]
        one, other = one["k"], other["k"]
    assert one is not other
    assert one == other == [1, "x"]


def test_a_secret_deep_down_is_masked_in_the_text_that_shows_it() -> None:
    shown = Redactor(["sk-abcdefgh12345678"]).redact_value(nested(5_000, leaf={"a": "sk-abcdefgh12345678"}))
    assert isinstance(shown, str)
    assert '"a":"[redacted:' in shown
