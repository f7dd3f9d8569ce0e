"""Measures what telemetry adds to a run with one tool call, without an SDK and with one.

python -m bench.telemetry [--quick] [--check]

Each figure is the CPU time of this process, the minimum of several repeats in turns. `by hand` is the cost of the same
spans and measurements, with the same attributes, written by hand against the same SDK without an agent.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, set_span_in_context

from swink_agent import Agent, Usage, tool
from swink_agent.telemetry import instrument
from swink_agent.testing import call, scripted

RUNS = 200
USED = Usage(input=100, output=20, total=120)


@tool
async def add(a: int, b: int) -> int:
    return a + b


def runs(prepare: Callable[[Agent], Any]) -> Callable[[], float]:
    """Seconds for one run with one tool call."""

    async def go() -> float:
        agents = [
            Agent("openai:gpt-5", stream_fn=scripted(call("add", a=2, b=3), "5", usage=USED), tools=[add])
            for _ in range(RUNS)
        ]
        for agent in agents:
            prepare(agent)
        gc.collect()
        start = time.process_time()
        for agent in agents:
            await agent.prompt("2+3?")
        return (time.process_time() - start) / RUNS

    return lambda: asyncio.run(go())


def by_hand(traces: TracerProvider, measurements: MeterProvider) -> Callable[[], float]:
    """Seconds for the spans and measurements of one such run."""
    tracer = traces.get_tracer("hand")
    meter = measurements.get_meter("hand")
    tokens, asked, ran, called = [
        meter.create_histogram(f"hand.{name}") for name in ("tokens", "asked", "ran", "called")
    ]
    model = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}

    def chat(inside: Any) -> None:
        measured = {"gen_ai.operation.name": "chat", **model}
        for kind, count in (("input", 100), ("output", 20)):
            tokens.record(count, {**measured, "gen_ai.token.type": kind})
        asked.record(0.1, measured)
        attributes = {
            **measured,
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.response.finish_reasons": ("stop",),
        }
        tracer.start_span("chat gpt-5", inside, SpanKind.CLIENT, attributes).end()

    def one() -> None:
        run = tracer.start_span("invoke_agent", None, SpanKind.INTERNAL, {"gen_ai.operation.name": "x", **model})
        inside = set_span_in_context(run)
        chat(inside)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "add",
            "gen_ai.tool.call.id": "call_1",
            "gen_ai.tool.type": "function",
        }
        span = tracer.start_span("execute_tool add", inside, SpanKind.INTERNAL, attributes)
        span.set_attribute("swink.outcome", "ran")
        called.record(0.1, {"gen_ai.tool.name": "add", "gen_ai.tool.type": "function"})
        span.end()
        chat(inside)
        run.set_attributes({"gen_ai.usage.input_tokens": 200, "gen_ai.usage.output_tokens": 40, **model})
        ran.record(0.1, {})
        run.end()

    def go() -> float:
        gc.collect()
        start = time.process_time()
        for _ in range(RUNS):
            one()
        return (time.process_time() - start) / RUNS

    return go


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer goes")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is missed")
    arguments = parser.parse_args()
    traces, measurements = TracerProvider(), MeterProvider([InMemoryMetricReader()])
    traces.add_span_processor(SpanProcessor())  # which keeps nothing: the cost of an exporter is not ours
    kinds = [
        runs(lambda agent: None),
        runs(instrument),
        runs(lambda agent: instrument(agent, tracer_provider=traces, meter_provider=measurements)),
        by_hand(traces, measurements),
    ]
    best = [float("inf")] * len(kinds)
    for _ in range(5 if arguments.quick else 15):
        best = [min(known, go()) for known, go in zip(best, kinds, strict=True)]
    plain, without, with_one, hand = best
    rows = [
        ("no SDK, against a run without telemetry", without / plain, 1.3),
        ("with an SDK, what it adds against the same by hand", (with_one - plain) / hand, 2.0),
    ]
    print(f"a run with one tool call: {plain * 1e6:.0f} µs; its spans and measurements by hand: {hand * 1e6:.0f} µs")
    for name, ratio, limit in rows:
        print(f"{name}: {ratio:.2f} (at most {limit:g})")
    return int(arguments.check and any(ratio > limit for _, ratio, limit in rows))


if __name__ == "__main__":
    sys.exit(main())
