"""Reports a run on stderr: tool calls, the model's text between them, retries, warnings.

Shows only errors (quiet), also calls, texts and warnings (normal; the live part only on a terminal), or also thinking,
results and usage (verbose). All text is redacted. Each row begins with a mark: `✓` and `✗` for a call, `│` for its
output, `»` for the model's text, `~` for its thinking, `┆` for the rest of our own messages. The line that shows the
current activity is in `screen.live`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from swink_agent.app.runs.answers import OUTSIDE, named
from swink_agent.app.runs.headless import Outcome
from swink_agent.app.runs.telling import FetchProgress, number_of, seconds, shortening_of, summary_of
from swink_agent.app.shown.changes import why_discarded
from swink_agent.app.shown.other_models import OtherModels
from swink_agent.approvals.access import access_of, what_opens
from swink_agent.approvals.display import safe_display
from swink_agent.core import events
from swink_agent.core.approval import PendingCall, ProposedCall
from swink_agent.core.events import AgentEvent, DelegateEvent, MessageUpdate, ToolApprovalRequested, ToolExecutionEnd
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import TextDelta, ThinkingDelta
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import AssistantMessage, Thinking, extract_text
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.cells import cell_width, cut, cut_middle
from swink_agent.rendering.escaping import safe_line

from ..screen.live import LiveLine
from ..screen.screen import FOLLOWING, Screen

Loudness: TypeAlias = Literal["quiet", "normal", "verbose"]

_OUTPUT, _THOUGHT, _WORDS = "  │ ", "  ~ ", "» "
_LONGEST_ARGUMENTS = 120
_LONGEST_RESULT = 2000
_MOST_ROWS = 60
_LAST_LINES = 8
_LAST_TEXT = 16 * 1024
_LONGEST_WHY = 400


class Reporter:
    """Listens to a run and reports it.

    `rejection_hint` says why nobody can be asked. Every call that is not approved is then named, the hint once.
    """

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
        self._nobody_answers = bool(rejection_hint)
        self.mode_note = ""
        """The mode of approvals and the reason for it. Shown once, before the first call that needs approval."""
        self._clock = clock
        self._live = LiveLine(screen, redactor, clock, is_on=screen.is_terminal and loudness != "quiet")
        self._unsaid = ""
        self._has_told = False
        self._decided: frozenset[str] = frozenset()
        """The calls that the user answered before the run."""
        self._others = OtherModels()
        self._asked: dict[str, ToolApprovalRequested] = {}
        """The calls that wait for approval, if nobody can be asked."""
        self._fetch = FetchProgress()

    @property
    def _is_followed(self) -> bool:
        return self._screen.is_watched and self._loudness != "quiet"

    # -- words -------------------------------------------------------------------------------------------------

    def error(self, text: str) -> None:
        """Shown even if quiet."""
        self._screen.say("error: ", self._redactor.redact(text), "red", "bold", most=_MOST_ROWS)

    def warn(self, text: str) -> None:
        if self._loudness != "quiet":
            self._screen.say("warning: ", self._redactor.redact(text), "yellow", most=_MOST_ROWS)

    def note(self, text: str) -> None:
        if self._loudness != "quiet":
            self._screen.say("note: ", self._redactor.redact(text), "dim", most=_MOST_ROWS)

    def offer(self, text: str, *commands: str) -> None:
        """A note with a command to copy, which is never broken across rows.

        Shows the first command on the same row if it fits, else the first that fits on its own row, else the last.
        """
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
        """A handler that shows warnings of the library's log as our warnings."""
        return _LogHandler(self)

    def hear_log(self, name: str = "swink_agent") -> None:
        """Shows warnings of a log as ours until the process ends."""
        logging.getLogger(name).addHandler(self.log_handler())

    @contextmanager
    def hearing_log(self) -> Generator[None]:
        """Inside the block, shows warnings of the library's log as ours, and hides asyncio's log about tasks."""
        handlers = {"swink_agent": self.log_handler(), "asyncio": logging.NullHandler()}
        for name, handler in handlers.items():
            logging.getLogger(name).addHandler(handler)
        try:
            yield
        finally:
            for name, handler in handlers.items():
                logging.getLogger(name).removeHandler(handler)

    # -- events ------------------------------------------------------------------------------------------------

    def on_event(self, event: AgentEvent) -> None:
        if (other := self._others.of(event)) is not None:
            self.warn(other)
        match event:
            case MessageUpdate(delta=TextDelta(delta=text)):
                self._live.write(text)
            case MessageUpdate(delta=delta):
                self._live.wait("thinking …" if isinstance(delta, ThinkingDelta) else "preparing a call …")
            case events.MessageStart():
                self._decided = frozenset()  # ids may recur
                self._tell_words()
                self._live.wait("waiting for the model …")
            case events.MessageRetry() | events.ModelFallback():
                self.warn(why_discarded(event))
            case events.ContextCompacted(report=report):
                self.note(shortening_of(report))
            case events.MessageEnd(message=message):
                self._on_message(message)
            case events.ToolExecutionStart(call_id=call_id, name=name, arguments=arguments):
                self._live.start(call_id, self._call(name, arguments))
            case events.ToolExecutionUpdate(call_id=call_id, update=update):
                self._live.hear(call_id, extract_text(update.content))
            case ToolApprovalRequested():
                self._live.stop()
                if self._nobody_answers:
                    self._asked[event.call_id] = event
                if self.mode_note:
                    self.note(self.mode_note)
                    self.mode_note = ""
            case events.TurnResumed(pending=pending):
                self._decided |= frozenset([call.call_id for call in pending])
            case events.ToolApprovalResolved(call_id=call_id) if call_id in self._decided:
                pass  # the user's own answer
            case events.ToolApprovalResolved() if (asked := self._asked.pop(event.call_id, None)) is not None:
                if not event.approved:
                    self._tell_refused(asked)
            case events.ToolCallDeferred(call_id=call_id):
                self._live.end(call_id)
            case ToolExecutionEnd():
                self._on_tool_end(event)
            case DelegateEvent():
                self._on_delegate(event)
            case events.TaskEnded(id=task_id, exit_code=code):
                how = "was stopped" if code is None else f"ended with exit code {code}"
                self.note(f"the background command {task_id} {how}")
            case events.TurnEnd() | events.AgentEnd():
                self._live.stop()
            case _:
                pass

    def _on_delegate(self, event: DelegateEvent) -> None:
        """Shows the calls of a delegate in the live line of its call. Retries and approvals get rows like the run's."""
        inner = event.event
        while isinstance(inner, DelegateEvent):
            inner = inner.event
        match inner:
            case events.ToolExecutionStart(name=name, arguments=arguments):
                self._live.hear(event.call_id, f"{self._call(name, arguments)}\n")
            case events.MessageRetry() | events.ModelFallback() | events.TurnResumed():
                self.on_event(inner)
            case ToolApprovalRequested() | events.ToolApprovalResolved():
                self.on_event(inner)
            case _:
                pass

    def _tell_refused(self, asked: ToolApprovalRequested) -> None:
        """Names a call that nobody could be asked about, and what it would have opened."""
        access = access_of(ProposedCall(asked.call_id, asked.name, asked.arguments, asked.scope))
        wanted = "" if access is None else f" (it asks for {what_opens(access)})"
        why, self._rejection_hint = self._rejection_hint, ""  # once is enough
        self.warn(f"{self._call(asked.name, asked.arguments)}{wanted} was not approved{why and f': {why}'}")

    def _on_message(self, message: AssistantMessage) -> None:
        self._live.stop()
        if self._loudness == "verbose":
            thoughts = [block.thinking for block in message.content if isinstance(block, Thinking)]
            if text := self._redactor.redact("\n".join(thoughts)).strip():
                self._screen.rows(_THOUGHT, text, "dim")
        self._unsaid = message.text
        if message.tool_calls:
            self._tell_words()

    def _tell_words(self) -> None:
        """Shows the model's text before its calls. Its last text is the answer and is not shown here."""
        text, self._unsaid = self._redactor.redact(self._unsaid).strip(), ""
        if text and (self._is_followed or self._loudness == "verbose"):
            self._has_told = True
            self._screen.rows(_WORDS, text, most=200)

    def _on_tool_end(self, event: ToolExecutionEnd) -> None:
        shown = self._call(event.name, event.arguments or {})
        took = f" {seconds(event.seconds)}" if event.seconds else ""  # 0.0 if it never started
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
        """Whether the row of the call already shows the whole result: a one-line error."""
        text = extract_text(event.result.content).strip()
        is_line = "\n" not in text and len(text) <= _LONGEST_WHY
        return event.is_error and is_line and not _is_command(event.result)

    def _tell_call(self, shown: str, took: str, why: str, *, is_error: bool) -> None:
        """Shows a call in one row of any width. The reason of a failure goes beneath if it does not fit."""
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
        if not _is_command(event.result):
            return [], self._redactor.redact(text.split("\n", 1)[0])
        how = _how_it_ended(event.result.details)
        lines = self._redactor.redact(text[-_LAST_TEXT:]).replace("\r\n", "\n").split("\n")
        return [line for line in lines if line.strip() and line != f"[{how}]"][-_LAST_LINES:], how

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
        """Writes an empty line between the report and an answer on the same terminal."""
        self._live.stop()
        if self._is_followed and self._has_told:
            self._screen.line("")

    def finish(self, outcome: Outcome) -> None:
        self._live.stop()
        if not outcome.is_answer and not outcome.has_value:
            self._tell_words()  # not an answer, but the user may want to read it
        if outcome.error is not None:
            self.error(outcome.error)
        elif outcome.pending:
            self._tell_waiting(outcome.pending)
        elif not outcome.has_value and not outcome.text.strip():
            self.warn("the model ended without an answer")
        if self._loudness == "verbose":
            usage = outcome.usage
            cost = f", {dollars(outcome.cost.amount)}" if outcome.cost.amount else ""
            cached = f" ({usage.cache_read} cached)" if usage.cache_read else ""
            told = (
                f"{outcome.model}: {number_of(outcome.turns, 'turn')}, {number_of(outcome.tool_calls, 'call')}, "
                f"{usage.input + usage.cache_read + usage.cache_write} tokens in{cached}, {usage.output} out{cost}, "
                f"{seconds(outcome.seconds)}"
            )
            self._screen.say("", told, following=FOLLOWING)

    def _tell_waiting(self, pending: Sequence[PendingCall]) -> None:
        """Lists the calls that wait, and explains how to answer calls that cannot be approved here."""
        if self._loudness == "quiet":
            return
        for call in pending:
            self._screen.say("waiting: ", named(call, self._redactor), "yellow", most=_MOST_ROWS)
        if any(call.kind == "external" for call in pending):
            self.note(OUTSIDE)


def _is_command(result: AgentToolResult) -> bool:
    """Whether it is the result of a command that ran."""
    details: object = result.details
    return isinstance(details, dict) and "exit_code" in details


def _how_it_ended(details: dict[str, Any]) -> str:
    """A few words from a command's details. The result's text may contain more."""
    code, name = details["exit_code"], details.get("signal")
    if code is None:
        return "timed out" if details.get("timed_out") else "cancelled" if details.get("cancelled") else "ended"
    return f"exit code {code}: killed by {name}" if name else f"exit code {code}"


class _LogHandler(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self._reporter.warn(record.getMessage())  # a traceback does not help a user, and may contain anything
