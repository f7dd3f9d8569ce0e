"""The stream function with a scripted model: its worker process is `fake_llama`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentContext,
    AssistantMessage,
    CancellationToken,
    ErrorKind,
    ModelSpec,
    StopReason,
    StreamFailed,
    StreamOptions,
    Text,
    TextDelta,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    tool,
)
from swink_agent.local import LocalModelError, LocalState, LocalStreamFn, ModelStore
from swink_agent.local.worker.engine import Engine, Workers
from swink_agent.local.worker.values import Finished
from swink_agent.testing import check_stream_fn

SPEC = ModelSpec("local", "scripted")
HELLO = '{"name": "answer", "arguments": {"text": "Hello there"}}\n</tool_call>'
CALL = '{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
NO_MEMORY = {"error": {"message": "out of memory", "type": "server_error"}}
KILLED = {"kill": 9}


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}."


def talk(*texts: str, tools: tuple[Any, ...] = ()) -> AgentContext:
    return AgentContext("Be brief.", [UserMessage(text) for text in texts], list(tools))


async def test_text_streams_and_is_counted(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    model = scripted("It is five.")
    heard: list[Finished] = []
    message = await ask(model.stream_fn(on_finished=heard.append), talk("2+3?"))
    assert message.content == (Text("It is five."),)
    assert message.stop_reason == StopReason.STOP
    assert message.usage == Usage(input=12, output=4, cache_read=11, total=27)
    assert [finished.output_tokens for finished in heard] == [4]
    (request,) = model.requests
    assert request.prompt.endswith("user\n2+3?<|im_end|>\n<|im_start|>assistant\n")
    assert request.grammar == ""


async def test_it_keeps_the_rules_of_stream_functions(scripted: Callable[..., Any]) -> None:
    context = talk("Weather?", tools=(weather,))
    for reply in (HELLO, CALL, [NO_MEMORY], ["{", {"end": "length", "usage": [1, 0, 1]}]):
        model = scripted(reply)
        await check_stream_fn(model.stream_fn, context=context)


async def test_a_run_with_a_call_and_an_answer(scripted: Callable[..., Any]) -> None:
    model = scripted(CALL, '{"name": "answer", "arguments": {"text": "Sunny."}}\n</tool_call>')
    agent = Agent(SPEC, tools=[weather], stream_fn=model.stream_fn())
    result = await agent.prompt("Weather in Rome?")
    assert result.error is None
    assert result.text == "Sunny."
    first, second = model.requests
    assert first.prompt.endswith("<|im_start|>assistant\n<tool_call>\n")
    assert second.prompt.startswith(first.prompt)
    assert "<tool_response>\nSunny in Rome.\n</tool_response>" in second.prompt
    (tools,) = [asked.prompt for asked in model.asked if not asked.max_tokens]
    assert first.prompt.startswith(tools)
    assert "weather(city): " in tools


async def test_parts_equal_from_run_to_run_come_first_and_can_be_read_before(
    scripted: Callable[..., Any],
) -> None:
    model = scripted(HELLO)
    stream_fn = model.stream_fn()
    await stream_fn.prepare([weather], "Be brief.\n\nToday is Monday.")
    for day in ("Monday", "Tuesday"):
        agent = Agent(SPEC, system_prompt=f"Be brief.\n\nToday is {day}.", tools=[weather], stream_fn=stream_fn)
        assert (await agent.prompt("Hi")).text == "Hello there"
    tools, prepared, again, monday, tuesday = [asked.prompt for asked in model.asked]
    assert prepared.startswith(tools)
    assert prepared == again
    assert prepared.endswith("\n\nBe brief.")
    assert [asked.max_tokens > 0 for asked in model.asked] == [False] * 3 + [True] * 2
    assert monday.startswith(prepared + "\n\nToday is Monday.")
    assert tuesday.startswith(prepared + "\n\nToday is Tuesday.")


async def test_it_works_from_code_that_is_not_async(scripted: Callable[..., Any]) -> None:
    model = scripted(HELLO)
    agent = Agent(SPEC, tools=[weather], stream_fn=model.stream_fn())
    assert agent.prompt_sync("Hi").text == "Hello there"


async def test_thinking_is_asked_for_by_its_level(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    model = scripted("<think>\nHm.</think>\n\nFive.", template="<|im_start|> <think>")
    message = await ask(model.stream_fn(), talk("?"), model=ModelSpec("local", "m", thinking_level=ThinkingLevel.LOW))
    assert [type(block).__name__ for block in message.content] == ["Thinking", "Text"]
    await ask(model.stream_fn(), talk("?"))
    assert model.requests[0].prompt.endswith("assistant\n")
    assert model.requests[1].prompt.endswith("assistant\n<think>\n\n</think>\n\n")


async def test_another_models_template_is_its_own(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    model = scripted("Hi.", template="{{ other }}")
    await ask(model.stream_fn(), AgentContext("S", [UserMessage("a"), UserMessage("b")]))
    assert model.requests[0].prompt == "[system]S[user]a\n\nb[assistant]"


async def test_a_failed_request_is_a_failed_stream(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    states: list[Any] = []
    message = await ask(scripted([NO_MEMORY]).stream_fn(on_state=states.append), talk("?"))
    assert message.error_kind == ErrorKind.STREAM
    assert message.error_message == "llama.cpp refused the request: out of memory"
    assert [event.state for event in states] == [
        LocalState.LOADING,
        LocalState.READY,
        LocalState.READY,
        LocalState.FAILED,
    ]
    assert (await ask(scripted([KILLED]).stream_fn(), talk("?"))).error_kind == ErrorKind.NETWORK
    never = scripted("x")
    never.workers = Workers(lambda settings: Engine(settings, command=("/nowhere/python",)))
    assert "cannot be started" in (await ask(never.stream_fn(), talk("?"))).error_message


async def test_a_folder_of_models_that_cannot_be_read_is_a_failed_reply(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    stream_fn = LocalStreamFn("smollm2-135m", cache_dir=tmp_path / ("x" * 300))
    message = await ask(stream_fn, talk("?"))
    assert message.error_kind == ErrorKind.INVALID_REQUEST
    assert "gguf cannot be read: File name too long" in str(message.error_message)


async def test_a_worker_that_dies_in_a_reply_is_asked_again(scripted: Callable[..., Any]) -> None:
    class AtOnce:
        def should_retry(self, error: Any, attempt: int) -> bool:
            return attempt == 1 and error.kind == ErrorKind.NETWORK

        def delay(self, attempt: int) -> float:
            return 0.0

    model = scripted([KILLED], "Here again.")
    agent = Agent(SPEC, stream_fn=model.stream_fn(), retry_strategy=AtOnce())
    assert (await agent.prompt("Hi")).text == "Here again."


async def test_a_listener_that_fails_costs_nothing(
    scripted: Callable[..., Any], ask: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: object) -> None:
        raise RuntimeError("no terminal")

    message = await ask(scripted("Hi").stream_fn(on_state=fail), talk("?"))
    assert message.text == "Hi"
    assert "a listener of a local model failed" in caplog.text


async def test_every_state_is_told(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    model = scripted(["Hi", {"end": "stop"}])
    events: list[Any] = []
    stream_fn = model.stream_fn(on_state=events.append)
    for _ in range(2):
        assert (await ask(stream_fn, talk("?"))).error_message is None
    await asyncio.to_thread(stream_fn.close)
    expected = [LocalState.LOADING, *[LocalState.READY] * 3, LocalState.UNLOADED]
    assert [event.state for event in events] == expected
    assert {event.model for event in events} == {str(model.file)}


async def test_a_fetch_tells_its_progress_and_stops_with_the_call(tmp_path: Any, ask: Callable[..., Any]) -> None:
    """The source never ends by itself: the call's end is what ends it."""
    stopped = threading.Event()

    class Endless:
        name = "endless"

        def has(self, preset: Any) -> bool:
            return True

        def fetch(self, preset: Any, staging: Any, report: Any, cancel: CancellationToken) -> Any:
            report(1, 100, "begun")
            while not cancel.is_cancelled:
                time.sleep(0.005)
            stopped.set()
            raise Aborted("cancelled")

    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    store = ModelStore(tmp_path, sources=[Endless()])
    stream_fn = LocalStreamFn(store=store, on_state=lambda event: loop.call_soon_threadsafe(begun.set))
    task = asyncio.ensure_future(ask(stream_fn, talk("?"), model=ModelSpec("local", "smollm2-135m")))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await asyncio.to_thread(stopped.wait, 30)


# -- the window ----------------------------------------------------------------------------------------------


async def test_the_oldest_give_way_when_the_window_is_full(
    scripted: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    model = scripted("ok", window=400)
    old = [UserMessage("old " * 100), AssistantMessage("yes"), UserMessage("older " * 180), AssistantMessage("no")]
    pair = [AssistantMessage([ToolCall("1", "weather", {"city": "x"})]), ToolResultMessage("1", "sunny")]
    context = AgentContext("Be brief.", [*old, UserMessage("the request"), *pair], [])
    message = await ask(model.stream_fn(), context, max_tokens=50)
    assert message.text == "ok"
    sent = model.requests[-1].prompt
    assert "Be brief." in sent
    assert "the request" in sent
    assert "old old" not in sent
    assert ("<tool_call>" in sent) == ("<tool_response>" in sent) is True


async def test_requests_that_cannot_fit_are_a_typed_overflow(
    scripted: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    model = scripted("ok", window=400)
    message = await ask(model.stream_fn(), talk("long " * 1_000))
    assert message.error_kind == ErrorKind.CONTEXT_OVERFLOW
    assert "400 tokens" in (message.error_message or "")
    nearly = await ask(model.stream_fn(), talk("long " * 290), max_tokens=100)
    assert nearly.error_kind == ErrorKind.CONTEXT_OVERFLOW, "no room was left for the reply"


async def test_the_reply_has_its_share_of_the_window(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    model = scripted("ok", window=400)
    await ask(model.stream_fn(), talk("?"))
    await ask(model.stream_fn(), talk("?"), max_tokens=7)
    assert [request.max_tokens for request in model.requests] == [100, 7]


async def test_a_reply_that_goes_in_circles_is_stopped(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    model = scripted([*["over and ", "over and "] * 500, {"wait": True}])
    message = await ask(model.stream_fn(), talk("?"))
    assert message.stop_reason == StopReason.LENGTH
    assert len(message.text) < 600
    assert message.usage.output < 250
    await model.closed_early()


# -- schemas that a grammar cannot hold ----------------------------------------------------------------------


class Patterned:
    name = label = "code"
    description = "Takes a code."
    parameters_schema = {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}$"}},
        "required": ["code"],
    }
    requires_approval = False

    async def execute(self, arguments: dict[str, Any], ctx: Any) -> Any: ...


async def test_an_invalid_call_is_never_passed_on(scripted: Callable[..., Any], ask: Callable[..., Any]) -> None:
    wrong = '{"name": "code", "arguments": {"code": "abc"}}\n</tool_call>'
    right = '{"name": "code", "arguments": {"code": "ABC"}}\n</tool_call>'
    model = scripted(wrong, right)
    message = await ask(model.stream_fn(), talk("?", tools=(Patterned(),)))
    assert [call.arguments for call in message.tool_calls] == [{"code": "ABC"}]
    assert [request.temperature > 0 for request in model.requests] == [False, True]
    assert message.usage.output == sum(len(text) // 3 + 1 for text in (wrong, right))
    cut = [wrong.removesuffix("</tool_call>"), {"end": "length", "usage": [1, 0, 9]}]
    message = await ask(scripted(cut, right).stream_fn(), talk("?", tools=(Patterned(),)))
    assert [call.arguments for call in message.tool_calls] == [{"code": "ABC"}], "complete, though the reply was cut"
    never = await ask(scripted(wrong).stream_fn(), talk("?", tools=(Patterned(),)))
    assert never.error_kind == ErrorKind.STREAM
    assert "in 3 tries" in (never.error_message or "")
    assert not never.tool_calls


async def test_a_schema_that_cannot_be_met_is_an_invalid_request(
    scripted: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    class Impossible(Patterned):
        parameters_schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}, "required": ["a"]}

    message = await ask(scripted(CALL).stream_fn(), talk("?", tools=(Impossible(),)))
    assert message.error_kind == ErrorKind.INVALID_REQUEST


# -- cancellation --------------------------------------------------------------------------------------------


async def test_cancellation_ends_the_reply_at_once_and_stops_the_server(
    scripted: Callable[..., Any], promptly: Callable[[float], AbstractContextManager[None]]
) -> None:
    model = scripted(["one ", "two ", {"wait": True}])
    cancel = CancellationToken()
    events: list[Any] = []
    with ExitStack() as measured:
        async with aclosing(model.stream_fn()(SPEC, talk("?"), StreamOptions(), cancel)) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, TextDelta) and event.delta == "two ":
                    asyncio.get_running_loop().call_later(0.01, cancel.cancel)
                    measured.enter_context(promptly(0.1))
    assert isinstance(events[-1], StreamFailed)
    assert events[-1].kind == ErrorKind.ABORTED
    await model.closed_early()


# -- models --------------------------------------------------------------------------------------------------


async def test_a_model_that_is_not_there_is_named_with_the_cure(tmp_path: Any, ask: Callable[..., Any]) -> None:
    stream_fn = LocalStreamFn(cache_dir=tmp_path, fetch=False)
    unknown = await ask(stream_fn, talk("?"), model=ModelSpec("local", "qwen2.5-coder-1.5"))
    assert unknown.error_kind == ErrorKind.INVALID_REQUEST
    assert "did you mean qwen2.5-coder-1.5b?" in (unknown.error_message or "")
    missing = await ask(stream_fn, talk("?"), model=ModelSpec("local", "smollm2-135m"))
    assert "swink models pull smollm2-135m" in (missing.error_message or "")
    no_file = await ask(stream_fn, talk("?"), model=ModelSpec("local", "/nowhere/model.gguf"))
    assert "/nowhere/model.gguf cannot be read" in (no_file.error_message or "")
    with pytest.raises(LocalModelError, match="swink models pull"):
        await stream_fn.embed(["x"], "smollm2-135m")


async def test_embed_gives_one_vector_per_text(scripted: Callable[..., Any]) -> None:
    stream_fn = scripted("x").stream_fn()
    assert [first for first, _ in await stream_fn.embed(["a", "bcd"])] == [1.0, 3.0]
    assert await stream_fn.embed([]) == []


async def test_a_model_that_nobody_knows_is_refused_before_anything_happens() -> None:
    agent = Agent("local:qwen2.5-codr-1.5b")
    with pytest.raises(LocalModelError, match=r"did you mean qwen2\.5-coder-1\.5b"):
        await agent.prompt("hi")
    assert list(agent.messages) == []
