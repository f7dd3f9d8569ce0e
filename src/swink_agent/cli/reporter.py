"""What a run says on stderr while it goes on: tool lines, what the model says between them, retries, warnings.

Owns how much is said: only errors (quiet), what a person wants to follow (normal; the live part only on a terminal), or
thinking, results and usage as well (verbose). Everything passes the redactor. Each row begins with a mark that tells
whose it is: `✓` and `✗` a call, `│` what it printed, `»` the model's own words, `~` its thoughts, `┆` more of a message
of ours. The line of what is going on is in `live`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from swink_agent.app.headless import Outcome
from swink_agent.app.telling import FetchProgress, seconds, shortening_of, summary_of
from swink_agent.approvals.display import safe_display
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
    ToolExecutionUpdate,
    TurnEnd,
)
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import TextDelta, ThinkingDelta
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import AssistantMessage, Thinking, extract_text
from swink_agent.rendering.cells import cell_width, cut, cut_middle
from swink_agent.rendering.escaping import safe_line

from .live import LiveLine
from .screen import FOLLOWING, Screen

__all__ = ["Loudness", "Reporter"]

Loudness: TypeAlias = Literal["quiet", "normal", "verbose"]

_OUTPUT, _THOUGHT, _WORDS = "  │ ", "  ~ ", "» "
_LONGEST_ARGUMENTS = 120
_LONGEST_RESULT = 2000
_MOST_ROWS = 60
_LAST_LINES = 8
_LAST_TEXT = 16 * 1024
_LONGEST_WHY = 400


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
        self._started: dict[str, tuple[str, float]] = {}
        self._live = LiveLine(screen, redactor, clock, is_on=screen.is_terminal and loudness != "quiet")
        self._unsaid = ""
        self._has_told = False
        self._fetch = FetchProgress()

    @property
    def _is_followed(self) -> bool:
        return self._screen.is_watched and self._loudness != "quiet"

    # -- words -------------------------------------------------------------------------------------------------

    def error(self, text: str) -> None:
        """Said however quiet it is to be."""
        self._screen.say("error: ", self._redactor.redact(text), "red", "bold", most=_MOST_ROWS)

    def warn(self, text: str) -> None:
        if self._loudness != "quiet":
            self._screen.say("warning: ", self._redactor.redact(text), "yellow", most=_MOST_ROWS)

    def note(self, text: str) -> None:
        if self._loudness != "quiet":
            self._screen.say("note: ", self._redactor.redact(text), "dim", most=_MOST_ROWS)

    def offer(self, text: str, *commands: str) -> None:
        """A note with a command to copy, which is never broken: the first in the same row, else on one of its own the
        first that fits, else the last."""
        if self._loudness == "quiet":
            return
        width = self._screen.width
        if width is None or cell_width(f"note: {text} {commands[0]}") <= width:
            self.note(f"{text} {commands[0]}")
            return
        self.note(text)
        fitting = next((command for command in commands if cell_width(command) + 2 <= width), commands[-1])
        self._screen.line(f"  {safe_display(self._redactor.redact(fitting), None)}")

    def log_handler(self) -> logging.Handler:
        """A handler for the library's log, whose warnings are warnings here."""
        return _LogHandler(self)

    # -- events ------------------------------------------------------------------------------------------------

    def on_event(self, event: AgentEvent) -> None:
        match event:
            case MessageStart():
                self._tell_words()
                self._live.wait("waiting for the model …")
            case MessageUpdate(delta=TextDelta(delta=text)):
                self._live.write(text)
            case MessageUpdate(delta=delta):
                self._live.wait("thinking …" if isinstance(delta, ThinkingDelta) else "preparing a call …")
            case MessageRetry(attempt=attempt, error=error, delay=delay):
                self.warn(f"attempt {attempt} failed, the next is in {delay:.0f} s: {error}")
            case ModelFallback(to_model=model, error=error):
                self.warn(f"going on with {model}: {error}")
            case ContextCompacted(report=report):
                self.note(shortening_of(report))
            case MessageEnd(message=message):
                self._on_message(message)
            case ToolExecutionStart(call_id=call_id, name=name, arguments=arguments):
                shown = self._call(name, arguments)
                self._started[call_id] = (shown, self._clock())
                self._live.start(call_id, shown)
            case ToolExecutionUpdate(call_id=call_id, update=update):
                self._live.hear(call_id, extract_text(update.content))
            case ToolApprovalRequested(call_id=call_id, name=name, arguments=arguments):
                self._live.stop()
                self._asked[call_id] = self._call(name, arguments)
            case ToolApprovalResolved(name=name, approved=False) if self._rejection_hint:
                self.warn(f"a call of {safe_display(name, 60)} was not approved: {self._rejection_hint}")
                self._rejection_hint = ""  # once is enough
            case ToolExecutionEnd():
                self._on_tool_end(event)
            case TurnEnd() | AgentEnd():
                self._live.stop()
            case _:
                pass

    def _on_message(self, message: AssistantMessage) -> None:
        self._live.stop()
        if self._loudness == "verbose":
            thoughts = [block.thinking for block in message.content if isinstance(block, Thinking)]
            if text := self._redactor.redact("\n".join(thoughts)).strip():
                self._screen.rows(_THOUGHT, text, "dim")
        self._unsaid = message.text
        # Calls that never start are told too: skipped by a policy, of an unknown tool, with invalid arguments.
        self._asked = {call.id: self._call(call.name, call.arguments) for call in message.tool_calls}
        if message.tool_calls:
            self._tell_words()

    def _tell_words(self) -> None:
        """What the model said on its way. The last of it is the answer, and not for here."""
        text, self._unsaid = self._redactor.redact(self._unsaid).strip(), ""
        if text and (self._is_followed or self._loudness == "verbose"):
            self._has_told = True
            self._screen.rows(_WORDS, text, most=200)

    def _on_tool_end(self, event: ToolExecutionEnd) -> None:
        asked = self._asked.pop(event.call_id, safe_display(event.name, 60))
        shown, start = self._started.pop(event.call_id, (asked, None))
        took = "" if start is None else f" {seconds(self._clock() - start)}"
        self._live.end(event.call_id)
        if self._is_followed or self._loudness == "verbose":
            output, why = self._failure(event) if event.is_error else ([], "")
            self._tell_call(shown, took, why, is_error=event.is_error)
            if self._loudness != "verbose":
                for line in output:
                    row = cut(_OUTPUT + safe_line(line, _LONGEST_RESULT), self._screen.width or _LONGEST_RESULT)
                    self._screen.line(self._screen.style(row, "dim"))
        if self._loudness == "verbose" and not self._is_told(event):
            self._tell_result(event.result)

    @staticmethod
    def _is_told(event: ToolExecutionEnd) -> bool:
        """Whether the row of the call has said all of the result: why it failed, in a line."""
        details = event.result.details
        text = extract_text(event.result.content).strip()
        is_line = "\n" not in text and len(text) <= _LONGEST_WHY
        return event.is_error and is_line and not (isinstance(details, dict) and "exit_code" in details)

    def _tell_call(self, shown: str, took: str, why: str, *, is_error: bool) -> None:
        """One row for a call, however narrow the window. Why it failed stands beneath it where it has no room."""
        self._has_told = True
        mark = self._screen.style("✗", "red") if is_error else self._screen.style("✓", "green")
        why = safe_display(why, _LONGEST_WHY)
        width, below = self._screen.width, ""
        if width is not None:
            room = width - 2 - len(took)
            beside = cell_width(why) + 1 if why else 0
            if beside > room // 2 and cell_width(shown) + beside > room:
                why, below, beside = "", why, 0
            shown = cut_middle(shown, room - beside)
            took = cut(took, width - 2)
        told = f"{mark} {shown}{self._screen.style(took, 'dim')}"
        self._screen.line(f"{told} {self._screen.style(why, 'dim')}" if why else told)
        if below:
            self._screen.rows(_OUTPUT, below, "dim", most=4)

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        shown = safe_display(self._redactor.redact(summary_of(name, arguments)), _LONGEST_ARGUMENTS)
        return f"{safe_display(name, 60)} {shown}".rstrip()

    def _failure(self, event: ToolExecutionEnd) -> tuple[list[str], str]:
        """The last lines of a command's output, and how it ended; of any other error, its first line."""
        text = extract_text(event.result.content).strip()
        details = event.result.details
        if not isinstance(details, dict) or "exit_code" not in details:
            return [], self._redactor.redact(text.split("\n", 1)[0])
        lines = self._redactor.redact(text[-_LAST_TEXT:]).replace("\r\n", "\n").split("\n")
        *lines, last = [line for line in lines if line.strip()] or [""]
        if last.startswith("[") and last.endswith("]"):
            return lines[-_LAST_LINES:], last[1:-1]
        return [*lines, last][-_LAST_LINES:], "failed"

    def _tell_result(self, result: AgentToolResult) -> None:
        text = self._redactor.redact(extract_text(result.content).rstrip())
        cut_text = f"{text[:_LONGEST_RESULT]}\n… [{len(text) - _LONGEST_RESULT:,} more characters]"
        if text:
            self._screen.rows(_OUTPUT, text if len(text) <= _LONGEST_RESULT else cut_text, "dim")

    # -- the model on this machine -----------------------------------------------------------------------------

    def on_local_state(self, event: Any) -> None:
        """Shows the fetching and loading of a model: a bar on a terminal, a few lines elsewhere. From any thread."""
        state = str(getattr(event.state, "value", event.state))
        if self._loudness == "quiet":
            return
        if state == "fetching":
            text = self._fetch.text(event, self._clock())
            if self._screen.is_terminal:
                self._live.show(text, at_once=self._fetch.is_new)
            elif self._fetch.is_milestone(event):
                self._screen.say("", self._redactor.redact(text))
        elif state == "loading":
            self._screen.clear()
            self._live.show(f"loading {event.model} …", at_once=True)
            if self._loudness == "verbose" and not self._screen.is_terminal:
                self.note(f"loading {event.model} …")
        elif state == "ready" and event.total:
            self._live.show(f"reading the prompt: {event.done} of {event.total} tokens …")
        else:
            self._screen.clear()

    # -- the end -----------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """An empty line between what was told and an answer on the same terminal."""
        self._live.stop()
        if self._is_followed and self._has_told:
            self._screen.line("")

    def finish(self, outcome: Outcome) -> None:
        """What is left to say when the run has ended."""
        self._live.stop()
        if not outcome.is_answer and not outcome.has_value:
            self._tell_words()  # they are no answer, and yet somebody may want to read them
        if outcome.error is not None:
            self.error(outcome.error)
        elif not outcome.has_value and not outcome.text.strip():
            self.warn("the model ended without a word")
        if self._loudness == "verbose":
            usage = outcome.usage
            cost = f", ${outcome.cost.total:.4f}" if outcome.cost.total else ""
            cached = f" ({usage.cache_read} cached)" if usage.cache_read else ""
            told = (
                f"{outcome.model}: {outcome.turns} turns, {outcome.tool_calls} calls, "
                f"{usage.input + usage.cache_read + usage.cache_write} tokens in{cached}, {usage.output} out{cost}, "
                f"{seconds(outcome.seconds)}"
            )
            self._screen.say("", told, following=FOLLOWING)


class _LogHandler(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self._reporter.warn(record.getMessage())  # a traceback is of no use to a user, and may hold anything
