"""The output of an agent: a value of a type that every run gives, or the text of the last reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentResult,
    ApproveWith,
    Defer,
    PolicyContext,
    PolicyStopped,
    Stop,
    StructuredOutputFailed,
    ToolResultMessage,
    extract_text,
    tool,
)
from swink_agent.testing import call, check_events, collect, fail, scripted

pytestmark = pytest.mark.fast
MODEL = "test:model"


@dataclass
class Invoice:
    number: int
    total: float


GIVEN = {"number": 7, "total": 9.5}
ANSWER = call("final_answer", **GIVEN)
INVOICE = Invoice(7, 9.5)


async def streamed(agent: Agent[Any, Any], **given: Any) -> AgentResult[Any]:
    stream = agent.prompt_stream("go", **given)
    check_events(await collect(stream))
    return await stream.result()


async def went_on(agent: Agent[Any, Any], **given: Any) -> AgentResult[Any]:
    return await agent.continue_loop(messages=["go"], **given)


async def went_on_streamed(agent: Agent[Any, Any], **given: Any) -> AgentResult[Any]:
    return await agent.continue_loop_stream(messages=["go"], **given).result()


WAYS: dict[str, Any] = {
    "prompt": lambda agent, **given: agent.prompt("go", **given),
    "prompt_stream": streamed,
    "continue_loop": went_on,
    "continue_loop_stream": went_on_streamed,
}


@pytest.mark.parametrize("is_of_agent", [True, False])
@pytest.mark.parametrize("way", WAYS)
async def test_a_run_gives_the_converted_value(way: str, is_of_agent: bool) -> None:
    model = scripted("no", ANSWER)
    agent: Agent[Any, Any] = Agent(MODEL, stream_fn=model, output=Invoice if is_of_agent else None)
    result = await WAYS[way](agent, **({} if is_of_agent else {"output": Invoice}))
    assert (result.output, result.value, result.has_value) == (INVOICE, GIVEN, True)
    assert (result.stopped_by, result.exception) == (None, None)
    assert result.raise_for_error() is result


@pytest.mark.parametrize("way", ["prompt_sync", "continue_loop_sync"])
def test_code_that_is_not_async_gets_it_too(way: str) -> None:
    agent = Agent(MODEL, stream_fn=scripted(ANSWER), output=Invoice)
    result = agent.prompt_sync("go") if way == "prompt_sync" else agent.continue_loop_sync(messages=["go"])
    assert result.output == INVOICE


async def test_an_agent_gives_a_new_value_in_every_run() -> None:
    other = call("final_answer", number=8, total=1)
    agent = Agent[None, Invoice](MODEL, stream_fn=scripted(ANSWER, other), output=Invoice)
    assert [(await agent.prompt("go")).output.number for _ in range(2)] == [7, 8]
    assert (await agent.replaced(stream_fn=scripted(ANSWER)).prompt("go")).output == INVOICE


async def test_without_a_type_or_with_text_the_output_is_the_last_text() -> None:
    assert (await Agent(MODEL, stream_fn=scripted("hello")).prompt("go")).output == "hello"
    assert (await Agent(MODEL, stream_fn=scripted("hello"), output=str).prompt("go")).output == "hello"
    agent = Agent(MODEL, stream_fn=scripted("hello"), output=Invoice)
    assert (await agent.prompt("go", output=str)).output == "hello"


async def test_a_schema_gives_json() -> None:
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    agent = Agent(MODEL, stream_fn=scripted(call("final_answer", number=7)), output=schema)
    assert (await agent.prompt("go")).output == {"number": 7}


async def test_attempts_that_fail_are_an_error_of_the_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(*["no"] * 9), output=Invoice)
    events = await collect(stream := agent.prompt_stream("go"))
    check_events(events)
    result = await stream.result()
    assert isinstance(result.exception, StructuredOutputFailed)
    assert (result.exception.attempts, result.stopped_by, result.error) == (4, None, str(result.exception))
    assert agent.last_error == result.error
    with pytest.raises(StructuredOutputFailed):
        _ = result.output


class Stopping:
    name = "stopping"

    def pre_turn(self, ctx: PolicyContext) -> Stop:
        return Stop("no more")


@pytest.mark.parametrize("output", [None, Invoice])
async def test_the_output_of_a_run_that_was_stopped_or_failed_raises(output: Any) -> None:
    stopped = await Agent(MODEL, stream_fn=scripted("x"), policies=[Stopping()], output=output).prompt("go")
    with pytest.raises(PolicyStopped, match="no more"):
        _ = stopped.output
    failed = await Agent(MODEL, stream_fn=scripted(fail("auth", "no key")), output=output).prompt("go")
    with pytest.raises(Exception, match="no key"):
        _ = failed.output


@tool
def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def paying(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(
        MODEL,
        stream_fn=scripted(call("pay", amount=1), *replies),
        tools=[pay],
        approve=lambda request: Defer(),
        approval_mode="enabled",
        **options,
    )


async def test_a_run_that_waits_has_no_output_and_resume_remembers_that_of_the_agent() -> None:
    agent = paying(ANSWER, output=Invoice)
    waiting = await agent.prompt("go")
    with pytest.raises(StructuredOutputFailed, match="waits for an answer about these calls: pay"):
        _ = waiting.output
    assert (await agent.resume({waiting.pending[0].call_id: True})).output == INVOICE


async def test_a_type_for_one_run_is_given_again_to_resume() -> None:
    agent = paying("just text")
    waiting = await agent.prompt("go", output=Invoice)
    assert (await agent.resume({waiting.pending[0].call_id: True})).output == "just text"
    agent = paying(ANSWER)
    waiting = await agent.prompt("go", output=Invoice)
    assert (await agent.resume({waiting.pending[0].call_id: True}, output=Invoice)).output == INVOICE


async def test_as_a_tool_such_an_agent_gives_the_json_of_its_value() -> None:
    clerk = Agent(MODEL, stream_fn=scripted(ANSWER), output=Invoice)
    agent = Agent(
        MODEL, stream_fn=scripted(call("clerk", prompt="read it"), "ok"), tools=[clerk.as_tool("clerk", "Reads.")]
    )
    result = await agent.prompt("go")
    (answer,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (extract_text(answer.content), answer.is_error) == ('{"number":7,"total":9.5}', False)


async def test_a_value_of_a_delegate_that_fails_is_an_error_result() -> None:
    clerk = Agent(MODEL, stream_fn=scripted(*["no"] * 4), output=Invoice)
    agent = Agent(
        MODEL, stream_fn=scripted(call("clerk", prompt="read it"), "ok"), tools=[clerk.as_tool("clerk", "Reads.")]
    )
    result = await agent.prompt("go")
    (answer,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert extract_text(answer.content).startswith("clerk failed: no valid structured output after 4 attempts")


async def test_a_stream_of_text_takes_no_type() -> None:
    agent: Any = Agent(MODEL, stream_fn=scripted("hello"), output=Invoice)
    assert await collect(agent.text_stream("go")) == ["hello"]
    with pytest.raises(TypeError, match="output"):
        agent.text_stream("go", output=Invoice)


async def test_a_type_that_json_cannot_represent_is_refused_at_once() -> None:
    with pytest.raises(TypeError):
        Agent(MODEL, stream_fn=scripted(), output=Agent)
    model = scripted("x")
    with pytest.raises(TypeError):
        await Agent(MODEL, stream_fn=model).prompt("go", output=Agent)
    assert not model.requests


# -- answers with arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1])
async def test_new_arguments_that_do_not_fit_are_refused_and_the_call_waits_on(depth: int) -> None:
    agent = paying("paid")
    if depth:
        agent = Agent(MODEL, stream_fn=scripted(call("desk", prompt="x"), "ok"), tools=[agent.as_tool("desk", "Pays.")])
    waiting = await agent.prompt("go")
    call_id = waiting.pending[0].call_id
    for wrong in ({}, {"amount": "many"}):
        with pytest.raises(ValueError, match=r"the arguments for the call .* of pay do not fit"):
            await agent.resume({call_id: ApproveWith(wrong)})
    assert agent.pending == waiting.pending
    assert (await agent.resume({call_id: ApproveWith({"amount": 2})})).pending == ()


# -- models for tests ------------------------------------------------------------------------------------------


async def test_a_stream_function_that_names_its_model_stands_for_a_model() -> None:
    agent = Agent(scripted("own"))
    assert str(agent.model) == "scripted:model"
    assert (await agent.prompt("go")).output == "own"
    assert (await agent.prompt("go", model=scripted("of the run"))).output == "of the run"
    with agent.override(model=scripted("of the override")):
        assert (await agent.prompt("go", model=scripted("never"))).output == "of the override"
    agent.model = scripted("another")
    assert (await agent.prompt("go")).output == "another"


async def test_a_fallback_may_be_a_stream_function_alone() -> None:
    agent = Agent(scripted(fail("throttled", retry_after=10_000)), fallbacks=[scripted("from the other")])
    assert (await agent.prompt("go")).output == "from the other"


def test_a_model_that_is_a_stream_function_takes_no_other() -> None:
    with pytest.raises(TypeError, match="without stream_fn"):
        Agent(scripted("x"), stream_fn=scripted("y"))
