"""The stream function with a scripted engine: no model, no process."""

from __future__ import annotations

import asyncio
import sys
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
from swink_agent.local.worker.engine import EngineError, Finished, Piece, Progress
from swink_agent.local.worker.process import WorkerEngine, Workers
from swink_agent.testing import check_stream_fn

SPEC = ModelSpec("local", "scripted")
HELLO = '{"name": "answer", "arguments": {"text": "Hello there"}}\n</tool_call>'
CALL = '{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}."


def talk(*texts: str, tools: tuple[Any, ...] = ()) -> AgentContext:
    return AgentContext("Be brief.", [UserMessage(text) for text in texts], list(tools))


async def test_text_streams_and_is_counted(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    engine = scripted_engine("It is five.")
    heard: list[Finished] = []
    message = await ask(LocalStreamFn(engine=engine, on_finished=heard.append), talk("2+3?"))
    assert message.content == (Text("It is five."),)
    assert message.stop_reason == StopReason.STOP
    assert message.usage == Usage(input=12, output=4, cache_read=11, total=27)
    assert [finished.output_tokens for finished in heard] == [4]
    (request,) = engine.requests
    assert request.prompt.endswith("user\n2+3?<|im_end|>\n<|im_start|>assistant\n")
    assert request.grammar == ""


async def test_it_keeps_the_rules_of_stream_functions(scripted_engine: Any) -> None:
    context = talk("Weather?", tools=(weather,))
    for reply in (HELLO, CALL, EngineError("broken"), [Progress(1, 2), Piece("{"), Finished(True, 1, 0, 1)]):
        await check_stream_fn(lambda reply=reply: LocalStreamFn(engine=scripted_engine(reply)), context=context)


async def test_a_run_with_a_call_and_an_answer(scripted_engine: Any) -> None:
    engine = scripted_engine(CALL, '{"name": "answer", "arguments": {"text": "Sunny."}}\n</tool_call>')
    agent = Agent(SPEC, tools=[weather], stream_fn=LocalStreamFn(engine=engine))
    result = await agent.prompt("Weather in Rome?")
    assert result.error is None
    assert result.text == "Sunny."
    first, second = engine.requests
    assert first.prompt.endswith("<|im_start|>assistant\n<tool_call>\n")
    assert second.prompt.startswith(first.prompt)
    assert "<tool_response>\nSunny in Rome.\n</tool_response>" in second.prompt
    assert first.prefixes == second.prefixes
    (tools,) = first.prefixes
    assert 0 < tools < len(first.prompt)
    assert "weather(city): " in first.prompt[:tools]


async def test_parts_equal_from_run_to_run_come_first_and_can_be_read_before(
    scripted_engine: Any,
) -> None:
    engine = scripted_engine("", HELLO, HELLO)
    stream_fn = LocalStreamFn(engine=engine)
    await stream_fn.prepare([weather], "Be brief.\n\nToday is Monday.")
    for day in ("Monday", "Tuesday"):
        agent = Agent(SPEC, system_prompt=f"Be brief.\n\nToday is {day}.", tools=[weather], stream_fn=stream_fn)
        assert (await agent.prompt("Hi")).text == "Hello there"
    prepared, monday, tuesday = engine.requests
    assert prepared.max_tokens == 0
    assert prepared.prompt.endswith("\n\nBe brief.")
    assert prepared.prefixes == monday.prefixes == tuesday.prefixes
    assert prepared.prefixes[-1] == len(prepared.prompt)
    assert monday.prompt.startswith(prepared.prompt + "\n\nToday is Monday.")
    assert tuesday.prompt.startswith(prepared.prompt + "\n\nToday is Tuesday.")


async def test_it_works_from_code_that_is_not_async(scripted_engine: Any) -> None:
    engine = scripted_engine(HELLO)
    agent = Agent(SPEC, tools=[weather], stream_fn=LocalStreamFn(engine=engine))
    assert agent.prompt_sync("Hi").text == "Hello there"


async def test_thinking_is_asked_for_by_its_level(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    engine = scripted_engine("<think>\nHm.</think>\n\nFive.", template="<|im_start|> <think>")
    message = await ask(
        LocalStreamFn(engine=engine), talk("?"), model=ModelSpec("local", "m", thinking_level=ThinkingLevel.LOW)
    )
    assert [type(block).__name__ for block in message.content] == ["Thinking", "Text"]
    await ask(LocalStreamFn(engine=engine), talk("?"))
    assert engine.requests[0].prompt.endswith("assistant\n")
    assert engine.requests[1].prompt.endswith("assistant\n<think>\n\n</think>\n\n")


async def test_another_models_template_is_its_own(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    engine = scripted_engine("Hi.", template="{{ other }}")
    await ask(LocalStreamFn(engine=engine), AgentContext("S", [UserMessage("a"), UserMessage("b")]))
    assert engine.requests[0].prompt == "[system]S[user]a\n\nb[assistant]"


async def test_a_failed_engine_is_a_failed_stream(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    states: list[Any] = []
    broken = scripted_engine(EngineError("out of memory"))
    message = await ask(LocalStreamFn(engine=broken, on_state=states.append), talk("?"))
    assert (message.error_kind, message.error_message) == (ErrorKind.STREAM, "out of memory")
    assert [event.state for event in states] == [
        LocalState.LOADING,
        LocalState.READY,
        LocalState.READY,
        LocalState.FAILED,
    ]
    gone = scripted_engine(EngineError("killed by signal 9", is_gone=True))
    assert (await ask(LocalStreamFn(engine=gone), talk("?"))).error_kind == ErrorKind.NETWORK
    never = scripted_engine("x")
    never.load_error = EngineError("no such file")
    assert (await ask(LocalStreamFn(engine=never), talk("?"))).error_message == "no such file"


async def test_a_folder_of_models_that_cannot_be_read_is_a_failed_reply(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    stream_fn = LocalStreamFn("smollm2-135m", cache_dir=tmp_path / ("x" * 300))
    message = await ask(stream_fn, talk("?"))
    assert message.error_kind == ErrorKind.INVALID_REQUEST
    assert "gguf cannot be read: File name too long" in str(message.error_message)


async def test_a_worker_that_dies_in_a_reply_is_asked_again(scripted_engine: Any) -> None:
    class AtOnce:
        def should_retry(self, error: Any, attempt: int) -> bool:
            return attempt == 1 and error.kind == ErrorKind.NETWORK

        def delay(self, attempt: int) -> float:
            return 0.0

    engine = scripted_engine(EngineError("killed", is_gone=True), "Here again.")
    agent = Agent(SPEC, stream_fn=LocalStreamFn(engine=engine), retry_strategy=AtOnce())
    assert (await agent.prompt("Hi")).text == "Here again."


async def test_a_listener_that_fails_costs_nothing(
    scripted_engine: Any, ask: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: object) -> None:
        raise RuntimeError("no terminal")

    message = await ask(LocalStreamFn(engine=scripted_engine("Hi"), on_state=fail), talk("?"))
    assert message.text == "Hi"
    assert "a listener of a local model failed" in caplog.text


async def test_every_state_is_told(tmp_path: Any, ask: Callable[..., Any]) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    command = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
    workers = Workers(lambda settings: WorkerEngine(settings, command=command))
    events: list[Any] = []
    stream_fn = LocalStreamFn(str(model), cache_dir=tmp_path, workers=workers, on_state=events.append)
    assert (await ask(stream_fn, talk("?"))).error_message is None
    assert (await ask(stream_fn, talk("?"))).error_message is None
    await asyncio.to_thread(stream_fn.close)
    assert [event.state for event in events] == [LocalState.LOADING, LocalState.READY, LocalState.UNLOADED]
    assert {event.model for event in events} == {str(model)}


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


async def test_the_oldest_give_way_when_the_window_is_full(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    engine = scripted_engine("ok", window=400)
    old = [UserMessage("old " * 100), AssistantMessage("yes"), UserMessage("older " * 180), AssistantMessage("no")]
    pair = [AssistantMessage([ToolCall("1", "weather", {"city": "x"})]), ToolResultMessage("1", "sunny")]
    context = AgentContext("Be brief.", [*old, UserMessage("the request"), *pair], [])
    message = await ask(LocalStreamFn(engine=engine), context, max_tokens=50)
    assert message.text == "ok"
    sent = engine.requests[-1].prompt
    assert "Be brief." in sent
    assert "the request" in sent
    assert "old old" not in sent
    assert ("<tool_call>" in sent) == ("<tool_response>" in sent) is True


async def test_requests_that_cannot_fit_are_a_typed_overflow(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    engine = scripted_engine("ok", window=400)
    message = await ask(LocalStreamFn(engine=engine), talk("long " * 1_000))
    assert message.error_kind == ErrorKind.CONTEXT_OVERFLOW
    assert "400 tokens" in (message.error_message or "")
    nearly = await ask(LocalStreamFn(engine=engine), talk("long " * 290), max_tokens=100)
    assert nearly.error_kind == ErrorKind.CONTEXT_OVERFLOW, "no room was left for the reply"


async def test_the_reply_has_its_share_of_the_window(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    engine = scripted_engine("ok", window=400)
    await ask(LocalStreamFn(engine=engine), talk("?"))
    await ask(LocalStreamFn(engine=engine), talk("?"), max_tokens=7)
    assert [request.max_tokens for request in engine.requests] == [100, 7]


async def test_a_reply_that_goes_in_circles_is_stopped(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    engine = scripted_engine("over and over and " * 500)
    message = await ask(LocalStreamFn(engine=engine), talk("?"))
    assert message.stop_reason == StopReason.LENGTH
    assert len(message.text) < 600
    assert message.usage.output < 250
    assert engine.is_closed_early


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


async def test_an_invalid_call_is_never_passed_on(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    wrong = '{"name": "code", "arguments": {"code": "abc"}}\n</tool_call>'
    right = '{"name": "code", "arguments": {"code": "ABC"}}\n</tool_call>'
    engine = scripted_engine(wrong, right)
    message = await ask(LocalStreamFn(engine=engine), talk("?", tools=(Patterned(),)))
    assert [call.arguments for call in message.tool_calls] == [{"code": "ABC"}]
    assert [request.temperature > 0 for request in engine.requests] == [False, True]
    assert message.usage.output == sum(len(text) // 3 + 1 for text in (wrong, right))
    cut = [Piece(wrong.removesuffix("</tool_call>")), Finished(True, 1, 0, 9)]
    message = await ask(LocalStreamFn(engine=scripted_engine(cut, right)), talk("?", tools=(Patterned(),)))
    assert [call.arguments for call in message.tool_calls] == [{"code": "ABC"}], "complete, though the reply was cut"
    never = await ask(LocalStreamFn(engine=scripted_engine(wrong)), talk("?", tools=(Patterned(),)))
    assert never.error_kind == ErrorKind.STREAM
    assert "in 3 tries" in (never.error_message or "")
    assert not never.tool_calls


async def test_a_schema_that_cannot_be_met_is_an_invalid_request(scripted_engine: Any, ask: Callable[..., Any]) -> None:
    class Impossible(Patterned):
        parameters_schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}, "required": ["a"]}

    message = await ask(LocalStreamFn(engine=scripted_engine(CALL)), talk("?", tools=(Impossible(),)))
    assert message.error_kind == ErrorKind.INVALID_REQUEST


# -- cancellation --------------------------------------------------------------------------------------------


async def test_cancellation_ends_the_reply_at_once_and_stops_the_engine(
    scripted_engine: Any, promptly: Callable[[float], AbstractContextManager[None]]
) -> None:
    engine = scripted_engine("one two three four five six")
    cancel = CancellationToken()
    events: list[Any] = []
    with ExitStack() as measured:
        async with aclosing(LocalStreamFn(engine=engine)(SPEC, talk("?"), StreamOptions(), cancel)) as stream:  # type: ignore[type-var]
            async for event in stream:
                events.append(event)
                if isinstance(event, TextDelta) and engine.hold.is_set():
                    engine.hold.clear()  # from here on the engine would take for ever
                    asyncio.get_running_loop().call_later(0.01, cancel.cancel)
                    measured.enter_context(promptly(0.1))
    assert isinstance(events[-1], StreamFailed)
    assert events[-1].kind == ErrorKind.ABORTED
    assert engine.is_closed_early


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


async def test_embed_gives_one_vector_per_text(scripted_engine: Any) -> None:
    stream_fn = LocalStreamFn(engine=scripted_engine("x"))
    assert await stream_fn.embed(["a", "bcd"]) == [[1.0], [3.0]]
    assert await stream_fn.embed([]) == []


async def test_a_model_that_nobody_knows_is_refused_before_anything_happens() -> None:
    agent = Agent("local:qwen2.5-codr-1.5b")
    with pytest.raises(LocalModelError, match=r"did you mean qwen2\.5-coder-1\.5b"):
        await agent.prompt("hi")
    assert list(agent.messages) == []
