"""What a run says on stderr while it goes on: tool lines, retries, warnings, progress of a model's download.

Owns how much is said: only errors (quiet), what a person wants to follow (normal; the live part only on a terminal), or
thinking, results and usage as well (verbose). Everything passes the redactor, and nothing of a model's or a tool's text
reaches a terminal with its control characters alive.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

from swink_agent.app.headless import Outcome
from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    ContextCompacted,
    MessageEnd,
    MessageRetry,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
)
from swink_agent.core.redaction import Redactor
from swink_agent.core.stream import TextDelta, ThinkingDelta
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import Thinking, extract_text
from swink_agent.policies.display import safe_display

from .screen import Screen, plain_text

__all__ = ["Loudness", "Reporter", "size_of"]

Loudness: TypeAlias = Literal["quiet", "normal", "verbose"]

_LONGEST_ARGUMENTS = 120
_LONGEST_RESULT = 2000
_STATUS_SECONDS = 0.1
_MOST_TAIL = 400


class Reporter:
    """Listens to a run and tells people about it. `rejection_hint` is said when a call is rejected, once."""

    def __init__(
        self,
        screen: Screen,
        redactor: Redactor,
        loudness: Loudness = "normal",
        *,
        rejection_hint: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._redactor = redactor
        self._loudness = loudness
        self._rejection_hint = rejection_hint
        self._clock = clock
        self._asked: dict[str, str] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._text, self._tail = redactor.stream(), ""
        self._shown_at = 0.0
        self._fetch = _Fetch()

    @property
    def _is_live(self) -> bool:
        return self._screen.is_terminal and self._loudness != "quiet"

    # -- words -------------------------------------------------------------------------------------------------

    def error(self, text: str) -> None:
        """Said however quiet it is to be."""
        self._screen.line(f"{self._screen.style('error', 'red', 'bold')}: {self._safe(text)}")

    def warn(self, text: str) -> None:
        if self._loudness != "quiet":
            self._screen.line(f"{self._screen.style('warning', 'yellow')}: {self._safe(text)}")

    def note(self, text: str) -> None:
        if self._loudness != "quiet":
            self._screen.line(self._screen.style(self._safe(text), "dim"))

    def _safe(self, text: str) -> str:
        return plain_text(self._redactor.redact(text))

    def log_handler(self) -> logging.Handler:
        """A handler for the library's log, whose warnings are warnings here."""
        return _LogHandler(self)

    # -- events ------------------------------------------------------------------------------------------------

    def on_event(self, event: AgentEvent) -> None:
        match event:
            case MessageStart():
                self._tail, self._text = "", self._redactor.stream()
                self._status("waiting for the model …", at_once=True)
            case MessageUpdate(delta=delta):
                self._on_delta(delta)
            case MessageRetry(attempt=attempt, error=error, delay=delay):
                self.warn(f"attempt {attempt} failed, the next is in {delay:.0f} s: {error}")
            case ModelFallback(to_model=model, error=error):
                self.warn(f"going on with {model}: {error}")
            case ContextCompacted(report=report):
                self.note(f"the conversation was shortened by {report.dropped_count} messages")
            case MessageEnd(message=message):
                self._screen.clear()
                if self._loudness == "verbose":
                    self._tell_thoughts([block.thinking for block in message.content if isinstance(block, Thinking)])
            case ToolExecutionStart(call_id=call_id, name=name, arguments=arguments):
                self._running[call_id] = (self._call(name, arguments), self._clock())
                self._status(f"{self._running[call_id][0]} …", at_once=True)
            case ToolApprovalRequested(call_id=call_id, name=name, arguments=arguments):
                self._asked[call_id] = self._call(name, arguments)
            case ToolApprovalResolved(name=name, approved=False) if self._rejection_hint:
                self.warn(f"a call of {safe_display(name, 60)} was not approved: {self._rejection_hint}")
                self._rejection_hint = ""  # once is enough
            case ToolExecutionEnd():
                self._on_tool_end(event)
            case TurnEnd() | AgentEnd():
                self._screen.clear()
            case _:
                pass

    def _on_delta(self, delta: object) -> None:
        if not self._is_live:
            return
        if isinstance(delta, TextDelta):
            self._tail = (self._tail + self._text.feed(delta.delta))[-_MOST_TAIL:]
            width = self._screen.columns - 4
            self._status(f"… {self._tail[-width:]}" if len(self._tail) > width else self._tail or "writing …")
        else:
            self._status("thinking …" if isinstance(delta, ThinkingDelta) else "preparing a call …")

    def _on_tool_end(self, event: ToolExecutionEnd) -> None:
        asked = self._asked.pop(event.call_id, safe_display(event.name, 60))
        shown, start = self._running.pop(event.call_id, (asked, None))
        took = "" if start is None else f" {_seconds(self._clock() - start)}"
        if self._is_live or self._loudness == "verbose":
            mark = self._screen.style("✗", "red") if event.is_error else self._screen.style("✓", "green")
            why = f" {self._screen.style(self._why(event), 'dim')}" if event.is_error else ""
            self._screen.line(f"{mark} {shown}{self._screen.style(took, 'dim')}{why}")
        if self._loudness == "verbose":
            self._tell_result(event.result)
        if self._running:
            self._status(f"{next(iter(self._running.values()))[0]} …", at_once=True)

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        shown = safe_display(self._redactor.redact(summary_of(name, arguments)), _LONGEST_ARGUMENTS)
        return f"{safe_display(name, 60)} {shown}".rstrip()

    def _why(self, event: ToolExecutionEnd) -> str:
        """The line of an error result that says the most: the last of a command's output, the first of any other."""
        lines = extract_text(event.result.content).strip().split("\n")
        return safe_display(self._redactor.redact(lines[-1 if event.name == "bash" else 0]), 160)

    def _tell_result(self, result: AgentToolResult) -> None:
        text = self._safe(extract_text(result.content).rstrip())
        cut = f"{text[:_LONGEST_RESULT]}\n… [{len(text) - _LONGEST_RESULT:,} more characters]"
        for line in (text if len(text) <= _LONGEST_RESULT else cut).split("\n") if text else ():
            self._screen.line(self._screen.style(f"  │ {line}", "dim"))

    def _tell_thoughts(self, thoughts: list[str]) -> None:
        for line in self._safe("\n".join(thoughts)).strip().split("\n") if thoughts else ():
            self._screen.line(self._screen.style(f"  ~ {line}", "dim"))

    def _status(self, text: str, *, at_once: bool = False) -> None:
        now = self._clock()
        if self._is_live and (at_once or now - self._shown_at >= _STATUS_SECONDS):
            self._shown_at = now
            self._screen.status(text)

    # -- the model on this machine -----------------------------------------------------------------------------

    def on_local_state(self, event: Any) -> None:
        """Shows the fetching and loading of a model: a bar on a terminal, a few lines elsewhere. From any thread."""
        state = str(getattr(event.state, "value", event.state))
        if self._loudness == "quiet":
            return
        if state == "fetching":
            text = self._fetch.text(event, self._clock())
            if self._screen.is_terminal:
                self._status(text, at_once=self._fetch.is_new)
            elif self._fetch.is_milestone(event):
                self._screen.line(self._safe(text))
        elif state == "loading":
            self._screen.clear()
            self._status(f"loading {event.model} …", at_once=True)
            if self._loudness == "verbose" and not self._screen.is_terminal:
                self.note(f"loading {event.model} …")
        elif state == "ready" and event.total:
            self._status(f"reading the prompt: {event.done} of {event.total} tokens …")
        else:
            self._screen.clear()

    # -- the end -----------------------------------------------------------------------------------------------

    def finish(self, outcome: Outcome) -> None:
        """What is left to say when the run has ended."""
        self._screen.clear()
        if outcome.error is not None:
            self.error(outcome.error)
        elif not outcome.has_value and not outcome.text.strip():
            self.warn("the model ended without a word")
        if self._loudness == "verbose":
            usage = outcome.usage
            cost = f", ${outcome.cost.total:.4f}" if outcome.cost.total else ""
            cached = f" ({usage.cache_read} cached)" if usage.cache_read else ""
            self.note(
                f"{outcome.model}: {outcome.turns} turns, {outcome.tool_calls} calls, "
                f"{usage.input + usage.cache_read + usage.cache_write} tokens in{cached}, {usage.output} out{cost}, "
                f"{_seconds(outcome.seconds)}"
            )


class _Fetch:
    """The progress of one download."""

    def __init__(self) -> None:
        self.is_new = True
        self._start: tuple[float, int] | None = None
        self._milestone = -1

    def text(self, event: Any, now: float) -> str:
        self.is_new = self._start is None
        start, done_at_start = self._start = self._start or (now, event.done)
        head = f"fetching {event.model}"
        if not event.total:
            return f"{head}: {event.message or size_of(event.done)}"
        share = event.done / event.total
        filled = int(share * 20)
        speed = (event.done - done_at_start) / (now - start) if now > start else 0.0
        left = f", {_seconds((event.total - event.done) / speed)} left" if speed > 0 else ""
        return f"{head} [{'█' * filled}{'░' * (20 - filled)}] {share:.0%} of {size_of(event.total)}{left}"

    def is_milestone(self, event: Any) -> bool:
        """Whether a line for a log is due: at the start, and every tenth."""
        reached = int(10 * event.done / event.total) if event.total else 0
        is_due, self._milestone = reached > self._milestone, max(reached, self._milestone)
        return is_due


class _LogHandler(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self._reporter.warn(record.getMessage())  # a traceback is of no use to a user, and may hold anything


def summary_of(name: str, arguments: dict[str, Any]) -> str:
    """What a call is about, in a few words: its command, its path, what it looks for."""
    match name:
        case "bash":
            return str(arguments.get("command", ""))
        case "search":
            wanted = [arguments.get(key) for key in ("pattern", "glob", "path")]
            return " ".join(str(item) for item in wanted if item)
        case _ if isinstance(arguments.get("path"), str):
            return cast("str", arguments["path"])
        case _:
            return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def size_of(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
