"""The spans and metrics of an instrumented agent, in the real OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from swink_agent import (
    Agent,
    Approve,
    Cost,
    Defer,
    ModelSpec,
    Redactor,
    Reject,
    StreamOptions,
    ToolContext,
    Usage,
    tool,
)
from swink_agent.memory import JsonlSessionStore
from swink_agent.telemetry import instrument
from swink_agent.testing import FakeClock, call, fail, reply, scripted, stall, text

MODEL = "openai:gpt-5"
USED = Usage(input=10, output=5, cache_read=100, cache_write=7, total=122)


class Collected:
    """A tracer and a meter of the real SDK, and what they were told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.measurements = MeterProvider([self.reader])

    @property
    def providers(self) -> dict[str, Any]:
        return {"tracer_provider": self.traces, "meter_provider": self.measurements}

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.spans if span.name == name]
        return span

    def children(self, parent: ReadableSpan) -> list[str]:
        known = parent.get_span_context()
        inside = [span for span in self.spans if span.parent is not None and span.parent.span_id == known.span_id]
        return [span.name for span in sorted(inside, key=lambda span: span.start_time or 0)]

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def collected() -> Iterator[Collected]:
    known = Collected()
    yield known
    known.traces.shutdown()
    known.measurements.shutdown()


@tool
def add(a: int, b: int) -> int:
    return a + b


async def test_a_run_is_one_span_with_its_requests_and_calls_in_it(collected: Collected) -> None:
    stream = scripted(call("add", a=2, b=3), "5", usage=USED, cost=Cost(total=0.25))
    options = StreamOptions(temperature=0.5, max_tokens=100)
    agent = Agent(MODEL, stream_fn=stream, tools=[add], stream_options=options)
    with instrument(agent, name="adder", **collected.providers):
        await agent.prompt("2+3?")
    run = collected.named("invoke_agent adder")
    assert run.kind is SpanKind.INTERNAL
    assert run.parent is None
    assert run.status.status_code is StatusCode.UNSET
    assert dict(run.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "adder",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 234,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 200,
        "gen_ai.usage.cache_creation.input_tokens": 14,
        "swink.cost": 0.5,
    }
    assert collected.children(run) == ["chat gpt-5", "execute_tool add", "chat gpt-5"]
    first, last = [span for span in collected.spans if span.name == "chat gpt-5"]
    assert first.kind is SpanKind.CLIENT
    assert dict(first.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "adder",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.finish_reasons": ("tool_use",),
        "gen_ai.usage.input_tokens": 117,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "gen_ai.usage.cache_creation.input_tokens": 7,
        "swink.cost": 0.25,
    }
    assert (last.attributes or {})["gen_ai.response.finish_reasons"] == ("stop",)
    called = collected.named("execute_tool add")
    assert called.kind is SpanKind.INTERNAL
    assert dict(called.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "adder",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
        "swink.outcome": "ran",
    }


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("gemini", "gcp.gemini"),
        ("bedrock", "aws.bedrock"),
        ("azure", "azure.ai.openai"),
        ("xai", "x_ai"),
        ("mistral", "mistral_ai"),
        ("openai-responses", "openai"),
        ("anthropic", "anthropic"),
        ("my-own", "my-own"),
    ],
)
async def test_providers_have_the_names_of_the_conventions(provider: str, name: str, collected: Collected) -> None:
    agent = Agent(ModelSpec(provider, "m"), stream_fn=scripted("hello"))
    with instrument(agent, **collected.providers):
        await agent.prompt("hi")
    for span in (collected.named("invoke_agent"), collected.named("chat m")):
        assert (span.attributes or {})["gen_ai.provider.name"] == name


async def test_the_run_is_a_child_of_the_callers_span_and_a_tools_span_is_current_in_it(collected: Collected) -> None:
    seen: dict[str, int] = {}

    @tool
    async def inside(ctx: ToolContext) -> str:
        seen["task"] = trace.get_current_span().get_span_context().span_id
        return "done"

    @tool
    def in_thread() -> str:
        seen["thread"] = trace.get_current_span().get_span_context().span_id
        assert threading.current_thread() is not threading.main_thread()
        return "done"

    agent = Agent(MODEL, stream_fn=scripted(reply(call("inside"), call("in_thread")), "ok"), tools=[inside, in_thread])
    with (
        instrument(agent, **collected.providers),
        collected.traces.get_tracer("app").start_as_current_span("request") as request,
    ):
        await agent.prompt("go")
        assert trace.get_current_span() is request
    run = collected.named("invoke_agent")
    assert run.parent is not None
    assert run.parent.span_id == request.get_span_context().span_id
    assert seen == {
        "task": collected.named("execute_tool inside").get_span_context().span_id,
        "thread": collected.named("execute_tool in_thread").get_span_context().span_id,
    }


@pytest.mark.parametrize("way", ["prompt_stream", "text_stream", "prompt_sync"])
async def test_every_way_to_run_is_reported(way: str, collected: Collected) -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=1), "2"), tools=[add])
    with instrument(agent, **collected.providers):
        if way == "prompt_sync":
            agent.prompt_sync("1+1?")
        else:
            async for _ in getattr(agent, way)("1+1?"):
                pass
    assert collected.children(collected.named("invoke_agent")) == ["chat gpt-5", "execute_tool add", "chat gpt-5"]


async def test_retries_are_events_of_the_request_and_a_fallback_is_another_request(collected: Collected) -> None:
    wasted = Usage(input=3, total=3)
    primary = scripted(fail("throttled", usage=wasted), *[fail("throttled")] * 10)
    other = ModelSpec("anthropic", "claude")
    agent = Agent(
        MODEL,
        stream_fn=primary,
        fallbacks=[(other, scripted("hello", usage=USED))],
        sleep=FakeClock().sleep,
    )
    with instrument(agent, **collected.providers):
        result = await agent.prompt("hi")
    assert result.text == "hello"
    failed, answered = collected.named("chat gpt-5"), collected.named("chat claude")
    assert collected.children(collected.named("invoke_agent")) == ["chat gpt-5", "chat claude"]
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "throttled"
    assert (failed.attributes or {})["gen_ai.usage.input_tokens"] == 3
    assert {event.name for event in failed.events} == {"swink.retry"}
    assert [(event.attributes or {})["attempt"] for event in failed.events] == list(range(1, len(failed.events) + 1))
    assert all((event.attributes or {})["delay"] > 0 for event in failed.events)
    assert answered.status.status_code is StatusCode.UNSET
    assert (collected.named("invoke_agent").attributes or {})["gen_ai.usage.input_tokens"] == 120


async def test_errors_have_their_kind_and_no_text_unless_content_is_wanted(collected: Collected) -> None:
    for content in (False, True):
        agent = Agent(MODEL, stream_fn=scripted(fail("auth", "no such key: of mine")))
        with instrument(agent, content=content, **collected.providers):
            await agent.prompt("hi")
        for name in ("invoke_agent", "chat gpt-5"):
            span = collected.named(name)
            assert span.status.status_code is StatusCode.ERROR
            assert (span.attributes or {})["error.type"] == "auth"
            assert ("of mine" in (span.status.description or "")) is content
        collected.exporter.clear()


async def test_an_aborted_run_ends_all_its_spans(collected: Collected) -> None:
    @tool
    async def wait(ctx: ToolContext) -> str:
        agent.abort()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(MODEL, stream_fn=scripted(call("wait")), tools=[wait])
    with instrument(agent, **collected.providers):
        await agent.prompt("go")
    assert (collected.named("invoke_agent").attributes or {})["error.type"] == "aborted"
    assert (collected.named("execute_tool wait").attributes or {})["error.type"] == "cancelled"


async def test_an_aborted_reply_is_an_aborted_request(collected: Collected) -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply(text("half"), stall())))
    with instrument(agent, **collected.providers):
        async for event in agent.prompt_stream("go"):
            if type(event).__name__ == "MessageUpdate":
                agent.abort()
    assert (collected.named("chat gpt-5").attributes or {})["error.type"] == "aborted"


async def test_calls_that_never_started_have_a_span_with_their_outcome(collected: Collected) -> None:
    @tool(requires_approval=True)
    def delete() -> str:
        return "gone"

    stream = scripted(reply(call("delete"), call("unknown"), call("add", a="x")), "ok")
    agent = Agent(MODEL, stream_fn=stream, tools=[delete, add], approve=lambda request: Reject("not today"))
    with instrument(agent, **collected.providers):
        await agent.prompt("go")
    outcomes = {
        span.name: (span.attributes or {})["swink.outcome"]
        for span in collected.spans
        if span.name.startswith("execute_tool")
    }
    assert outcomes == {
        "execute_tool delete": "rejected",
        "execute_tool unknown": "unknown_tool",
        "execute_tool add": "invalid",
    }
    assert "gen_ai.execute_tool.duration" not in collected.metrics()


async def test_names_and_ids_of_calls_are_masked_and_bounded(collected: Collected) -> None:
    secret = "canary-of-the-spans-0815"
    named = tool(name=f"get_{secret}")(lambda: "x")
    made_up = call(f"{secret} \ud800{'x' * 100_000}").with_id(f"{secret}{'y' * 100_000}")
    agent = Agent(
        MODEL, stream_fn=scripted(call(named.name) + made_up, "done"), tools=[named], redactor=Redactor([secret])
    )
    with instrument(agent, **collected.providers):
        await agent.prompt("go")
    calls = [span for span in collected.spans if span.name.startswith("execute_tool ")]
    assert len(calls) == 2
    [measured] = collected.metrics()["gen_ai.execute_tool.duration"]
    texts = [value for span in calls for value in (span.name, *(span.attributes or {}).values())]
    for text_of_it in map(str, [*texts, *measured.attributes.values()]):
        assert secret not in text_of_it
        assert len(text_of_it.encode()) <= 300
    names = [(span.attributes or {})["gen_ai.tool.name"] for span in calls]
    assert measured.attributes["gen_ai.tool.name"] in names


async def test_a_delegates_run_is_nested_in_the_call_that_runs_it(collected: Collected) -> None:
    seen: list[int] = []

    @tool
    def look() -> str:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return "seen"

    inner = Agent("anthropic:claude", stream_fn=scripted(call("look"), "found"), tools=[look])
    outer = Agent(MODEL, stream_fn=scripted(call("helper", prompt="look"), "ok"), tools=[inner.as_tool("helper", "h")])
    with instrument(outer, name="main", **collected.providers):
        await outer.prompt("go")
    run = collected.named("invoke_agent main")
    assert collected.children(run) == ["chat gpt-5", "execute_tool helper", "chat gpt-5"]
    assert collected.children(collected.named("execute_tool helper")) == ["invoke_agent helper"]
    inside = collected.named("invoke_agent helper")
    assert collected.children(inside) == ["chat claude", "execute_tool look", "chat claude"]
    assert (inside.attributes or {})["gen_ai.request.model"] == "claude"
    assert seen == [collected.named("execute_tool look").get_span_context().span_id]


async def test_a_delegate_that_waits_leaves_no_span_open(collected: Collected) -> None:
    @tool(requires_approval=True)
    def delete() -> str:
        return "gone"

    inner = Agent("anthropic:claude", stream_fn=scripted(call("delete")), tools=[delete])
    outer = Agent(
        MODEL,
        stream_fn=scripted(call("helper", prompt="x")),
        tools=[inner.as_tool("helper", "h")],
        approve=lambda request: Defer(),
    )
    with instrument(outer, **collected.providers):
        result = await outer.prompt("go")
    assert len(result.pending) == 1
    assert (collected.named("execute_tool helper").attributes or {})["swink.outcome"] == "pending"
    assert collected.named("execute_tool helper").status.status_code is StatusCode.UNSET


async def test_the_session_is_the_conversation(collected: Collected, tmp_path: Any) -> None:
    agent = Agent(MODEL, stream_fn=scripted("hello"))
    with JsonlSessionStore(tmp_path).create() as session:
        session.attach(agent)
        with instrument(agent, **collected.providers):
            await agent.prompt("hi")
        known = session.id
    assert {(span.attributes or {})["gen_ai.conversation.id"] for span in collected.spans} == {known}


async def test_metrics_have_the_buckets_of_the_conventions(collected: Collected) -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2), "3", usage=USED), tools=[add])
    with instrument(agent, name="adder", **collected.providers):
        await agent.prompt("go")
    points = collected.metrics()
    assert set(points) == {
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
        "gen_ai.invoke_agent.duration",
        "gen_ai.execute_tool.duration",
    }
    by_type = {point.attributes["gen_ai.token.type"]: point for point in points["gen_ai.client.token.usage"]}
    assert (by_type["input"].sum, by_type["input"].count) == (234, 2)
    assert by_type["output"].sum == 10
    assert by_type["input"].explicit_bounds[:3] == (1, 4, 16)
    assert by_type["input"].explicit_bounds[-1] == 67108864
    [asked] = points["gen_ai.client.operation.duration"]
    assert asked.explicit_bounds == pytest.approx([0.01 * 2**n for n in range(14)])
    assert dict(asked.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
    }
    [run] = points["gen_ai.invoke_agent.duration"]
    assert run.explicit_bounds == (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
    assert dict(run.attributes) == {"gen_ai.agent.name": "adder"}
    [ran] = points["gen_ai.execute_tool.duration"]
    assert dict(ran.attributes) == {
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "adder",
    }


CONTENT = {
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
}


@pytest.mark.parametrize(
    ("content", "variable", "is_there"),
    [
        (True, None, True),
        (False, "true", False),
        (None, None, False),
        (None, "true", True),
        (None, "SPAN_ONLY", True),
        (None, "span_and_event", True),
        (None, "event_only", False),
        (None, "false", False),
    ],
)
async def test_content_is_there_only_on_request(
    content: bool | None, variable: str | None, is_there: bool, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(name, variable)
    agent = Agent(MODEL, system_prompt="Be brief.", stream_fn=scripted(call("add", a=1, b=2), "3"), tools=[add])
    with instrument(agent, content=content, **collected.providers):
        await agent.prompt("1+2?")
    there = {key for span in collected.spans for key in span.attributes or {}} & CONTENT
    assert there == (CONTENT if is_there else set())


async def test_content_has_the_form_of_the_conventions_is_masked_and_then_cut(collected: Collected) -> None:
    @tool
    def read(path: str) -> str:
        return "the secret is hunter2hunter2" + "x" * 100_000

    agent = Agent(
        MODEL,
        system_prompt="Never say hunter2hunter2.",
        stream_fn=scripted(call("read", path="hunter2hunter2"), "hunter2hunter2 it is"),
        tools=[read],
        redactor=Redactor(["hunter2hunter2"]),
    )
    with instrument(agent, content=True, **collected.providers):
        await agent.prompt("read hunter2hunter2")
    first = next(span for span in collected.spans if span.name == "chat gpt-5").attributes or {}
    assert [message["role"] for message in json.loads(str(first["gen_ai.input.messages"]))] == ["user"]
    [said] = json.loads(str(first["gen_ai.output.messages"]))
    assert (said["role"], said["finish_reason"]) == ("assistant", "tool_call")
    assert said["parts"][0]["name"] == "read"
    assert json.loads(str(first["gen_ai.system_instructions"]))[0]["type"] == "text"
    for span in collected.spans:
        for key, value in (span.attributes or {}).items():
            assert "hunter2hunter2" not in str(value), key
            if key in CONTENT:
                assert len(str(value).encode()) <= 64 * 1024
    result = (collected.named("execute_tool read").attributes or {})["gen_ai.tool.call.result"]
    assert len(str(result)) == 64 * 1024


async def test_twice_is_refused_and_removing_ends_it(collected: Collected) -> None:
    agent = Agent(MODEL, stream_fn=scripted("one", "two"))
    first = instrument(agent, **collected.providers)
    with pytest.raises(ValueError, match="instrumented already"):
        instrument(agent, **collected.providers)
    await agent.prompt("1")
    first.remove()
    first.remove()
    await agent.prompt("2")
    assert [span.name for span in collected.spans] == ["chat gpt-5", "invoke_agent"]
    with instrument(agent, **collected.providers):
        pass


async def test_removing_it_during_a_run_ends_the_open_spans(collected: Collected) -> None:
    @tool
    def stop() -> str:
        watching.remove()
        return "removed"

    agent = Agent(MODEL, stream_fn=scripted(call("stop"), "ok"), tools=[stop])
    watching = instrument(agent, **collected.providers)
    result = await agent.prompt("go")
    assert result.text == "ok"
    assert {span.name for span in collected.spans} == {"invoke_agent", "chat gpt-5", "execute_tool stop"}


async def test_no_failure_of_it_changes_a_run(collected: Collected, caplog: pytest.LogCaptureFixture) -> None:
    broken = ""

    class Broken(TracerProvider):
        def get_tracer(self, *arguments: Any, **options: Any) -> Any:
            known = super().get_tracer(*arguments, **options)

            class Tracer:
                def start_span(self, name: str, *arguments: Any, **options: Any) -> Any:
                    if name.startswith(broken):
                        raise RuntimeError("the tracer is broken")
                    return known.start_span(name, *arguments, **options)

            return Tracer()

    caplog.set_level(logging.CRITICAL, "swink_agent.telemetry")
    for name in ("invoke_agent", "chat", "execute_tool"):
        broken = name
        agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2), "3"), tools=[add])
        with instrument(agent, tracer_provider=Broken(), meter_provider=collected.measurements):
            result = await agent.prompt("go")
        assert result.text == "3"
        assert result.error is None


async def test_without_an_sdk_nothing_is_reported_and_the_run_is_the_same() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2), "3"), tools=[add])
    with instrument(agent):
        assert (await agent.prompt("go")).text == "3"


async def test_a_compaction_is_an_event_of_the_run(collected: Collected) -> None:
    agent = Agent(
        MODEL,
        stream_fn=scripted("one", "two"),
        transform_context=lambda messages, overflow: messages[-1:] if len(messages) > 1 else None,
    )
    await agent.prompt("1")
    with instrument(agent, **collected.providers):
        await agent.prompt("2")
    [event] = collected.named("invoke_agent").events
    assert event.name == "swink.compaction"
    assert (event.attributes or {})["dropped_count"] == 2


async def test_content_that_json_cannot_express_loses_no_span(collected: Collected) -> None:
    @tool
    def half() -> str:
        return "half a character: \ud800"

    agent = Agent(MODEL, tools=[half], stream_fn=scripted(call("half"), "ok"))
    with instrument(agent, content=True, **collected.providers):
        assert (await agent.prompt("and here: \udcff")).text == "ok"
    assert [span.name for span in collected.spans] == ["chat gpt-5", "execute_tool half", "chat gpt-5", "invoke_agent"]
    attributes = collected.spans[0].attributes
    assert attributes is not None
    assert "and here" in str(attributes["gen_ai.input.messages"])


async def test_arguments_of_a_resumed_call_are_masked_by_the_agents_redactor(collected: Collected) -> None:
    @tool(requires_approval=True)
    def send(text: str) -> str:
        return "sent"

    model = scripted(call("send", text="say zanzibar-77-quartz"), "ok")
    redactor = Redactor("zanzibar-77-quartz", environment={})
    agent = Agent(MODEL, tools=[send], approve=lambda _: Defer("later"), redactor=redactor, stream_fn=model)
    with instrument(agent, content=True, **collected.providers):
        [waiting] = (await agent.prompt("go")).pending
        await agent.resume({waiting.call_id: Approve()})
    reported = [span for span in collected.spans if span.name == "execute_tool send"][-1].attributes
    assert reported is not None
    assert "say [redacted" in str(reported["gen_ai.tool.call.arguments"])


async def test_runs_apart_that_go_on_at_once_have_their_own_spans(collected: Collected) -> None:
    inner = Agent(MODEL, stream_fn=scripted("helped", "helped"))
    model = scripted(lambda request: call("help", prompt="please") if request.turn == 0 else "done")
    agent = Agent(MODEL, stream_fn=model, tools=[inner.as_tool("help", "Helps.")])
    with instrument(agent, name="main", **collected.providers):
        await asyncio.gather(agent.prompt("a", messages=()), agent.prompt("b", messages=()))
    runs = [span for span in collected.spans if span.name == "invoke_agent main"]
    assert [collected.children(run) for run in runs] == [["chat gpt-5", "execute_tool help", "chat gpt-5"]] * 2
    calls = [span for span in collected.spans if span.name == "execute_tool help"]
    assert [collected.children(span) for span in calls] == [["invoke_agent help"]] * 2
