"""The formats of stdout: the answer, one JSON object, or every event as a line. Secrets are masked in all of them.

The caller provides `write`. If it raises `OSError`, `stream-json` ends the run through `on_closed`, since nothing more
can be written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from swink_agent.core.approval import PendingCall
from swink_agent.core.encoding.codec import encode_event
from swink_agent.core.events import AgentEvent
from swink_agent.core.secrets.redaction import Redactor

from .headless import Outcome

WriteFn: TypeAlias = Callable[[str], None]


class Output:
    """Receives the events and the outcome of a run. This base class writes nothing before the run is over."""

    def __init__(self, write: WriteFn, redactor: Redactor) -> None:
        self._write = write
        self._redactor = redactor
        self.error: OSError | None = None

    def on_event(self, event: AgentEvent) -> None:
        pass

    def finish(self, outcome: Outcome) -> None:
        raise NotImplementedError

    def _put(self, text: str) -> None:
        try:
            if text:
                self._write(text)
        except OSError as error:
            self.error = error


class OneOutcome:
    """An output that accepts only the first outcome, and no event after it. For any thread."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._lock = threading.RLock()  # a failed write ends the run, which sends more events
        self._is_finished = False
        self.error: OSError | None = None

    def on_event(self, event: AgentEvent) -> None:
        with self._lock:
            if not self._is_finished:
                self._output.on_event(event)
                self.error = self._output.error

    def finish(self, outcome: Outcome) -> None:
        with self._lock:
            if not self._is_finished:
                self._is_finished = True
                self._output.finish(outcome)
                self.error = self._output.error


class TextOutput(Output):
    """Writes the answer, or nothing if there is none; with a schema, its value as JSON."""

    def finish(self, outcome: Outcome) -> None:
        if outcome.has_value:
            text = _pretty(self._redactor.redact_value(outcome.value))
        elif outcome.is_answer:
            text = self._redactor.redact(outcome.text)
        else:
            return
        self._put(text if text.endswith("\n") else text + "\n" * bool(text))


class JsonOutput(Output):
    """Writes one object at the end, however the run ended."""

    def finish(self, outcome: Outcome) -> None:
        self._put(_pretty(self._redactor.redact_value(summary(outcome))) + "\n")


class StreamJsonOutput(Output):
    """Writes each event when it happens, as the library encodes it: `decode_event` reads it back.

    The last line is the outcome: the object of `JsonOutput` with the type `result`.
    """

    def __init__(self, write: WriteFn, redactor: Redactor, on_closed: Callable[[], None]) -> None:
        super().__init__(write, redactor)
        self._events = redactor.events()
        self._on_closed = on_closed

    def on_event(self, event: AgentEvent) -> None:
        for masked in self._events.feed(event):
            self._put_line(encode_event(masked))

    def finish(self, outcome: Outcome) -> None:
        for masked in self._events.finish():
            self._put_line(encode_event(masked))
        self._put_line(msgspec.json.encode(self._redactor.redact_value({"type": "result", **summary(outcome)})))

    def _put_line(self, line: bytes) -> None:
        if self.error is None:
            self._put(line.decode() + "\n")
            if self.error is not None:
                self._on_closed()


def output_for(format_name: str, write: WriteFn, redactor: Redactor, on_closed: Callable[[], None]) -> Output:
    match format_name:
        case "json":
            return JsonOutput(write, redactor)
        case "stream-json":
            return StreamJsonOutput(write, redactor, on_closed)
        case _:
            return TextOutput(write, redactor)


def summary(outcome: Outcome) -> dict[str, Any]:
    """The outcome as the one object of `--output json`."""
    stop = outcome.stopped_by
    fields: dict[str, Any] = {
        "text": outcome.text,
        "exit_code": int(outcome.exit_code),
        "error": outcome.error,
        "error_kind": None if outcome.error_kind is None else outcome.error_kind.value,
        "stop_reason": outcome.stop_reason.value,
        "stopped_by": None if stop is None else {"policy": stop.policy, "reason": stop.reason},
        "model": None if outcome.model is None else str(outcome.model),
        "served_models": list(outcome.served_models),
        "usage": msgspec.to_builtins(outcome.usage),
        "cost": msgspec.to_builtins(outcome.cost),
        "turns": outcome.turns,
        "tool_calls": outcome.tool_calls,
        "rejected": [
            {"tool": call.tool, "arguments": call.arguments, "reason": call.reason} for call in outcome.rejected
        ],
        "pending": [_waiting(call) for call in outcome.pending],
        "seconds": round(outcome.seconds, 3),
        "value": outcome.value,
        "session": outcome.session,
    }
    return fields


def _waiting(call: PendingCall) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(call)
    del fields["position"]  # only durable runs have it
    return fields


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
