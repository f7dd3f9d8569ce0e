"""Turns events into spans and metrics: `invoke_agent`, and in it `chat` and `execute_tool`.

The span of a request is made when the request ends, with the recorded times: nothing can be nested in it, and one call
of the SDK sets all attributes. The spans of a run and of a tool are open while they run, because others are nested in
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field
from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from swink_agent.core import events
from swink_agent.core.errors import ErrorKind
from swink_agent.core.run.observer import ModelRequest
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AssistantMessage, Cost, ModelSpec, StopReason, ToolOutcome, Usage

from .conventions import AGENT_SECONDS, REQUEST_SECONDS, TOKENS, provider_name

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import TracerProvider

_SCOPE = "swink_agent"
_OTHER = "_OTHER"
_LONGEST_NAME = 200
_API = ("opentelemetry.trace", "opentelemetry.metrics")
"""The modules of the API, whose own providers do nothing. An SDK's are elsewhere."""


class Instruments:
    """The tracer and the histograms, and whether content is reported."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, content: bool
    ) -> None:
        from swink_agent import __version__

        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self.tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        meter = metrics.get_meter(_SCOPE, __version__, meter_provider)
        self.content = content

        def histogram(name: str, unit: str, description: str, boundaries: list[float]) -> Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries)

        tokens = "Number of input and output tokens used."
        self.tokens = histogram("gen_ai.client.token.usage", "{token}", tokens, TOKENS)
        request = "GenAI operation duration."
        self.request_seconds = histogram("gen_ai.client.operation.duration", "s", request, REQUEST_SECONDS)
        run = "Duration of one run of an agent."
        self.agent_seconds = histogram("gen_ai.invoke_agent.duration", "s", run, AGENT_SECONDS)
        call = "Duration of one tool call."
        self.tool_seconds = histogram("gen_ai.execute_tool.duration", "s", call, REQUEST_SECONDS)

    @property
    def has_sdk(self) -> bool:
        """Whether spans or measurements are used: the API's own providers do nothing with them."""
        providers = (
            self._tracer_provider or trace.get_tracer_provider(),
            self._meter_provider or metrics.get_meter_provider(),
        )
        return not all(type(one).__module__.startswith(_API) for one in providers)

    def begin(
        self, name: str | None, run_id: str, model: ModelSpec, session: str | None, redactor: Redactor | None
    ) -> RunSpan | None:
        """Begins the span of a run, inside the caller's current span; `None` if the process has no SDK."""
        if not self.has_sdk:
            return None
        return RunSpan(self, name, run_id, model, session, redactor, otel_context.get_current())


class _Request(Struct):
    """The current request: one model, with all its attempts."""

    model: ModelSpec
    began: int = field(default_factory=time.time_ns)
    request: ModelRequest | None = None
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    retries: list[tuple[int, dict[str, Any]]] = []

    def gave_up(self, usage: Usage, cost: Cost) -> None:
        """Adds the usage and cost of one attempt."""
        self.usage += usage
        self.cost += cost


class RunSpan:
    """The spans of one run and of its delegates' runs."""

    def __init__(
        self,
        instruments: Instruments,
        name: str | None,
        run_id: str,
        model: ModelSpec,
        session: str | None,
        redactor: Redactor | None,
        parent: Context,
    ) -> None:
        self.run_id = run_id
        self._instruments = instruments
        self._model = model
        self._session = session
        self._whose: dict[str, Any] = {"gen_ai.agent.name": name} if name else {}
        self._common = self._whose if session is None else {**self._whose, "gen_ai.conversation.id": session}
        """The attributes of all spans of the run."""
        self._began = time.time_ns()
        self._request: _Request | None = None
        self._given_up: tuple[_Request, int, str] | None = None
        """The request to a model that a fallback replaced, the time of that, and its error."""
        self._redactor = redactor  # the agent's; a request brings the one of the run
        self._calls: dict[str, list[tuple[Span, int]]] = {}
        """The open spans of tools, with the times of their starts, by the ids of their calls."""
        self._delegates: dict[str, RunSpan] = {}
        self._is_over = False
        self._span = instruments.tracer.start_span(
            f"invoke_agent {name}" if name else "invoke_agent",
            parent,
            SpanKind.INTERNAL,
            {"gen_ai.operation.name": "invoke_agent", **self._common, **_model_of(model)},
            start_time=self._began,
        )
        self._is_recording = self._span.is_recording()
        self._inside = trace.set_span_in_context(self._span, parent)

    def find(self, run_id: str) -> RunSpan | None:
        """Returns the run with this id: this one, or one of a delegate."""
        if run_id == self.run_id:
            return self
        return next(filter(None, [inner.find(run_id) for inner in self._delegates.values()]), None)

    def take(self, event: events.AgentEvent) -> None:
        """Follows the run by one event."""
        take = self.takers.get(type(event))
        if take is not None:
            take(self, event)

    def _begin_request(self, event: events.MessageStart) -> None:
        self._request = _Request(self._model)

    def _count_overflow(self, event: events.UsageAdded) -> None:
        if event.source == "overflow" and self._request is not None:
            self._request.gave_up(event.usage, event.cost)

    def _compacted(self, event: events.ContextCompacted) -> None:
        names = ("dropped_count", "tokens_before", "tokens_after", "overflow")
        self._span.add_event("swink.compaction", {name: getattr(event.report, name) for name in names})

    # -- requests --------------------------------------------------------------------------------------------------

    def asked(self, request: ModelRequest) -> None:
        """Records a request to a model."""
        self._redactor = request.redactor_fn()
        self._report_given_up(request.failure)
        if self._request is not None:
            self._request.request = request
            self._request.model = self._model = request.model

    def _retry(self, event: events.MessageRetry) -> None:
        request = self._request
        if request is not None:
            request.gave_up(event.usage, event.cost)
            request.retries.append((time.time_ns(), {"attempt": event.attempt, "delay": event.delay}))

    def _fall_back(self, event: events.ModelFallback) -> None:
        request = self._request
        if request is None:
            return
        request.gave_up(event.usage, event.cost)
        self._given_up = (request, time.time_ns(), event.error)
        self._request = _Request(event.to_model)

    def _report_given_up(self, kind: ErrorKind | None) -> None:
        """Reports the request to a model that a fallback replaced. `kind` comes from the fallback's request."""
        if self._given_up is not None:
            (request, ended, words), self._given_up = self._given_up, None
            self._report(request, None, _kind(kind), words, ended)

    def _end_request(self, event: events.MessageEnd) -> None:
        message = event.message
        self._report_given_up(None)
        request, self._request = self._request, None
        if request is None:
            return
        request.gave_up(message.usage, message.cost)
        error = "aborted" if message.stop_reason is StopReason.ABORTED else _kind(message.error_kind)
        self._report(request, message, error if message.is_failed else None, message.error_message)

    def _report(
        self,
        request: _Request,
        message: AssistantMessage | None,
        error: str | None,
        words: str | None,
        ended: int | None = None,
    ) -> None:
        """Makes the span and the measurements of a request that is over."""
        instruments, model = self._instruments, request.model
        ended = time.time_ns() if ended is None else ended
        usage = request.usage
        measured = {"gen_ai.operation.name": "chat", **_model_of(model)}
        read = usage.input + usage.cache_read + usage.cache_write
        for kind, count in (("input", read), ("output", usage.output)):
            if count:
                instruments.tokens.record(count, {**measured, "gen_ai.token.type": kind})
        failed = measured if error is None else {**measured, "error.type": error}
        instruments.request_seconds.record((ended - request.began) / 1e9, failed)
        if not self._is_recording:
            return
        attributes = {**self._common, **failed, **_spent(usage, request.cost)}
        if message is not None:
            attributes["gen_ai.response.finish_reasons"] = (str(message.stop_reason),)
        if request.request is not None:
            options = request.request.options
            if options.max_tokens is not None:
                attributes["gen_ai.request.max_tokens"] = options.max_tokens
            if options.temperature is not None:
                attributes["gen_ai.request.temperature"] = float(options.temperature)
        if instruments.content:
            attributes.update(self._content(request, message))
        span = instruments.tracer.start_span(
            f"chat {model.model_id}", self._inside, SpanKind.CLIENT, attributes, start_time=request.began
        )
        for when, told in request.retries:
            span.add_event("swink.retry", told, when)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, self._words(words)))
        span.end(ended)

    def _content(self, request: _Request, message: AssistantMessage | None) -> dict[str, Any]:
        from .content import as_attribute, input_messages, output_messages, system_instructions

        redactor = self._mask()
        content: dict[str, Any] = {}
        if request.request is not None:
            context = request.request.context
            content["gen_ai.input.messages"] = as_attribute(input_messages(context.messages), redactor)
            if isinstance(context.system_prompt, str) and context.system_prompt:
                instructions = system_instructions(context.system_prompt)
                content["gen_ai.system_instructions"] = as_attribute(instructions, redactor)
        if message is not None:
            content["gen_ai.output.messages"] = as_attribute(output_messages(message), redactor)
        return content

    # -- tool calls ------------------------------------------------------------------------------------------------

    def around(self, call_id: str) -> AbstractContextManager[object]:
        """Makes the span of a running call the current one."""
        spans = self._calls.get(call_id)
        if not spans:
            return nullcontext()
        return trace.use_span(spans[-1][0], record_exception=False, set_status_on_exception=False)

    def _begin_call(self, event: events.ToolExecutionStart) -> None:
        self._calls.setdefault(event.call_id, []).append(self._start_call(event.call_id, event.name))

    def _retry_call(self, event: events.ToolExecutionRetry) -> None:
        if event.call_id in self._calls:
            told = {"attempt": event.attempt, "delay": event.delay}
            self._calls[event.call_id][-1][0].add_event("swink.retry", told)

    def _defer_call(self, event: events.ToolCallDeferred) -> None:
        for span, _ in self._calls.pop(event.call_id, ()):
            span.set_attribute("swink.outcome", str(ToolOutcome.PENDING))
            span.end()

    def _start_call(self, call_id: str, name: str) -> tuple[Span, int]:
        began = time.time_ns()
        name = self._name(name)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            **self._common,
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": self._name(call_id),
            "gen_ai.tool.type": "function",
        }
        start = self._instruments.tracer.start_span
        return start(f"execute_tool {name}", self._inside, SpanKind.INTERNAL, attributes, start_time=began), began

    def _end_call(self, event: events.ToolExecutionEnd) -> None:
        spans = self._calls.get(event.call_id)
        is_started = bool(spans)
        span, began = spans.pop(0) if spans else self._start_call(event.call_id, event.name)
        if not spans:
            self._calls.pop(event.call_id, None)
        ended = time.time_ns()
        error = None if event.outcome is ToolOutcome.RAN else str(event.outcome)
        if is_started:
            measured = {"gen_ai.tool.name": self._name(event.name), "gen_ai.tool.type": "function", **self._whose}
            if error is not None:
                measured["error.type"] = error
            self._instruments.tool_seconds.record((ended - began) / 1e9, measured)
        if not self._is_recording:
            return
        span.set_attribute("swink.outcome", str(event.outcome))
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, self._words(event.reason)))
        if self._instruments.content:
            from .content import as_attribute, tool_result

            redactor = self._mask()
            if event.arguments is not None:
                span.set_attribute("gen_ai.tool.call.arguments", as_attribute(event.arguments, redactor))
            result = as_attribute(tool_result(event.result.content), redactor)
            span.set_attribute("gen_ai.tool.call.result", result)
        span.end(ended)

    def _take_inside(self, event: events.DelegateEvent) -> None:
        """Follows the run of a delegate, which is nested in the call that runs it."""
        inner = event.event
        if type(inner) is events.AgentStart:
            spans = self._calls.get(event.call_id)
            parent = self._inside if not spans else trace.set_span_in_context(spans[-1][0], self._inside)
            whose = self._model, self._session, self._redactor
            self._delegates[event.call_id] = RunSpan(
                self._instruments, self._name(event.name), inner.run_id, *whose, parent
            )
            return
        run = self._delegates.get(event.call_id)
        if run is not None:
            run.take(inner)
            if type(inner) is events.AgentEnd:
                del self._delegates[event.call_id]

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, event: events.AgentEnd) -> None:
        result = event.result
        error: str | None = None
        if result is not None and result.stop_reason is StopReason.ABORTED:
            error = "aborted"
        elif result is not None and result.error is not None:
            error = _kind(result.error_kind)
        if result is not None and self._is_recording:
            # The model is set again: the run may have used another one than the agent's.
            self._span.set_attributes({**_spent(result.usage, result.cost), **_model_of(self._model)})
        self._close(error, None if result is None else result.error)

    def break_off(self) -> None:
        """Ends every open span of a run that is no longer followed."""
        self._close(None, None)

    def _close(self, error: str | None, words: str | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._report_given_up(None)
        for run in self._delegates.values():
            run.break_off()
        for span, _ in [one for spans in self._calls.values() for one in spans]:
            span.end()
        self._delegates.clear()
        self._calls.clear()
        ended = time.time_ns()
        measured = self._whose
        if error is not None:
            measured = {**self._whose, "error.type": error}
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR, self._words(words)))
        self._instruments.agent_seconds.record((ended - self._began) / 1e9, measured)
        self._span.end(ended)

    def _words(self, words: str | None) -> str | None:
        """Returns the text of an error, masked; `None` if content is not reported."""
        if not words or not self._instruments.content:
            return None
        from .content import as_attribute

        return as_attribute(words, self._mask())

    def _name(self, name: str) -> str:
        """A name or an id that a model, a provider or a server chose: masked, then cut, without half characters."""
        return self._mask().redact(name)[:_LONGEST_NAME].encode(errors="replace").decode()

    def _mask(self) -> Redactor:
        if self._redactor is None:
            self._redactor = Redactor()
        return self._redactor

    takers: ClassVar[dict[type, Callable[[RunSpan, Any], None]]] = {
        events.MessageStart: _begin_request,
        events.MessageRetry: _retry,
        events.UsageAdded: _count_overflow,
        events.ModelFallback: _fall_back,
        events.MessageEnd: _end_request,
        events.ContextCompacted: _compacted,
        events.ToolExecutionStart: _begin_call,
        events.ToolExecutionRetry: _retry_call,
        events.ToolExecutionEnd: _end_call,
        events.ToolCallDeferred: _defer_call,
        events.DelegateEvent: _take_inside,
        events.AgentEnd: _end,
    }
    """The handlers by type of event. A table, because a `match` would try the types one after another."""


def _model_of(model: ModelSpec) -> dict[str, Any]:
    return {"gen_ai.provider.name": provider_name(model.provider), "gen_ai.request.model": model.model_id}


def _kind(kind: ErrorKind | None) -> str:
    return _OTHER if kind is None else str(kind)


def _spent(usage: Usage, cost: Cost) -> dict[str, Any]:
    """Returns usage and cost. In the conventions, input includes cached tokens; in `Usage.input` it does not."""
    spent: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output,
    }
    if usage.cache_read:
        spent["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
    if usage.cache_write:
        spent["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write
    if cost.amount:
        spent["swink.cost"] = cost.amount
    return spent
