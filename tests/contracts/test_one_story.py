"""Every front end tells every fact of the same story, however it draws it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from html import unescape
from tempfile import TemporaryFile
from typing import Any

import ag_ui.core

from swink_agent import Agent, SlidingWindow, tool
from swink_agent.acp.updates import SessionUpdates
from swink_agent.app.runs.headless import HeadlessRun, Outcome
from swink_agent.app.runs.output import output_for
from swink_agent.app.shown.changes import Changes, Notice
from swink_agent.app.talk.delegates import is_streamed
from swink_agent.cli.prompt.reporter import Reporter
from swink_agent.cli.screen.screen import Screen
from swink_agent.core.approval import Approve, Reject
from swink_agent.core.events import AgentEvent, AgentStart, DelegateEvent, MessageUpdate
from swink_agent.core.record import RunRecord
from swink_agent.core.retry import DefaultRetryStrategy
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.policies import LoopDetection
from swink_agent.testing import call, fail, reply, scripted, text, think, truncated
from swink_agent.tui.inline_output import LineWriter, TranscriptPrinter
from swink_agent.tui.terminal_view import TerminalView
from swink_agent.tui.themes import theme_for
from swink_agent.tui.transcript.line import plain
from swink_agent.web.agui import Translation
from swink_agent.web.channels import SessionChannel
from swink_agent.web.pages.live_run import Live
from swink_agent.web.standard import WebView

SHIPS = ("Anna", "Berta")
FACTS = {
    "text": "Let me look at the harbour.",
    "thinking": "Perhaps the ships are gone",
    "call": "look",
    "result": "three ships",
    "delegate": "count",
    "allowed": "sank Anna",
    "rejected": "not on a Sunday",
    "discarded": "attempt 1 failed",
    "fallback": "scripted:second",
    "compaction": "the conversation was shortened by",
    "policy": "loop_detection",
    "cut off": "cut off at the",
    "error": "the model is on holiday",
    "warning": "the disk is full, so this conversation is not recorded",
}
FOLDED = {"thinking": "thought · 1 line", "delegate": "▸ 1 call"}
AS_DATA = {
    "cut off": '"stop_reason":"length"',
    "discarded": '"type":"message_retry","attempt":1,"error":"scripted network failure"',
    "fallback": '"type":"model_fallback"',
    "compaction": '"type":"context_compacted"',
}


@tool
def look(where: str) -> str:
    """Looks."""
    return f"three ships at {where}"


@tool(requires_approval=True)
def sink(name: str) -> str:
    """Sinks a ship."""
    return f"sank {name}"


@tool
def count() -> str:
    """Counts."""
    return "three"


class Story:
    """Runs: one in which everything happens, and others that a policy stops, whose reply is cut off, and that fail."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.outcomes: list[tuple[int, Outcome]] = []
        """Each with the number of the events until then."""

    async def tell(self) -> Story:
        clerk = Agent("scripted:clerk", stream_fn=scripted(call("count"), "There are three."), tools=[count])

        async def approve(request: Any) -> Any:
            return Reject("not on a Sunday") if request.arguments.get("name") == "Berta" else Approve()

        first = scripted(
            [think("Perhaps the ships are gone."), text("Let me look at the harbour."), call("look", where="the quay")],
            reply("Half of an answ", fail("network")),
            [text("I ask."), call("clerk", prompt="Count the ships"), *[call("sink", name=one) for one in SHIPS]],
            *[fail("throttled", "too many of you")] * 2,
        )
        many = Agent(
            "scripted:first",
            stream_fn=first,
            fallbacks=[("scripted:second", scripted("Three ships are there."))],
            tools=[look, sink, clerk.as_tool("clerk", "Counts.")],
            approve=approve,
            retry_strategy=DefaultRetryStrategy(max_attempts=2, base_delay=0),
            transform_context=SlidingWindow(400),
            messages=["word " * 400, "word " * 400],
        )
        await self._run(many)
        again = [[call("look", where="the quay")] for _ in range(12)]
        await self._run(Agent("scripted:m", stream_fn=scripted(*again), tools=[look], policies=[LoopDetection()]))
        await self._run(Agent("scripted:m", stream_fn=scripted(truncated("Once upon a time there were three ships."))))
        failing = scripted(fail("invalid_request", "the model is on holiday"))
        await self._run(Agent("scripted:m", stream_fn=failing))
        return self

    async def _run(self, agent: Agent) -> None:
        run = HeadlessRun(agent)
        with agent.subscribe(self.events.append):
            outcome = await run.run("Which ships are there?")
        self.outcomes.append((len(self.events), outcome))


def in_a_transcript(story: Story) -> TerminalView:
    view, record = TerminalView(), RunRecord()
    view.notice(FACTS["warning"], "warning")
    for number, event in enumerate(story.events, 1):
        if type(event) is MessageUpdate or (type(event) is DelegateEvent and is_streamed(event)):
            view.hear(event)
        else:
            record = RunRecord() if type(event) is AgentStart else record
            record.feed(event)
            view.on_event(event, record)
        for at, outcome in story.outcomes:
            if at == number and outcome.error_kind is not None:
                view.notice(outcome.error or "", "error")  # as the conversation does
    return view


def in_the_terminal(story: Story) -> str:
    blocks = in_a_transcript(story).transcript.blocks
    for block in blocks:
        block.toggle()
    return "\n".join([plain(line.spans) for block in blocks for line in block.lines(200)])


def in_lines(story: Story) -> str:
    view = in_a_transcript(story)
    with TemporaryFile() as file:
        printer = TranscriptPrinter(
            view.transcript, LineWriter(file.fileno(), theme_for("plain", {}), is_plain=True), on_write=lambda: None
        )
        printer.draw()
        file.seek(0)
        return file.read().decode()


def with_p(output: str) -> Callable[[Story], str]:
    """What `swink -p` writes to stderr and stdout."""

    def told(story: Story) -> str:
        errors, written = io.StringIO(), io.StringIO()
        reporter = Reporter(Screen(errors, colours=False, width=lambda: 200, live=True), Redactor(), "verbose")
        writer = output_for(output, written.write, Redactor(), lambda: None)
        reporter.warn(FACTS["warning"])
        before = 0
        for at, outcome in story.outcomes:
            for event in story.events[before:at]:
                reporter.on_event(event)
            reporter.finish(outcome)
            writer.finish(outcome)
            before = at
        return errors.getvalue() + written.getvalue()

    return told


def on_a_channel(story: Story) -> SessionChannel:
    async def never(*_: Any) -> Any:
        raise AssertionError

    channel = SessionChannel("s", never)
    channel.page = Live(channel)
    WebView(channel).notice(FACTS["warning"], "warning")
    for event in story.events:
        channel.on_event(event)
    return channel


def over_the_api(story: Story) -> str:
    return "\n".join([event.data.decode() for event in on_a_channel(story).log.events_after(0)])


def in_the_browser(story: Story) -> str:
    return "\n".join([unescape(str(json.loads(event.data))) for event in on_a_channel(story).page.log.events_after(0)])


def over_agui(story: Story) -> str:
    told: list[Any] = []
    run = Translation(ag_ui.core, "t", "r")
    for event in on_a_channel(story).log.events_after(0):
        if run.is_over:
            run = Translation(ag_ui.core, "t", "r")
        told += run.translate(event.name, event.data)
    return "\n".join([event.model_dump_json() for event in told])


def in_an_editor(story: Story) -> str:
    changes, updates = Changes(), SessionUpdates("/work")
    told = list(updates.of(Notice("warning", FACTS["warning"])))
    told += [update for event in story.events for change in changes.of(event) for update in updates.of(change)]
    error = next(outcome.error for _, outcome in story.outcomes if outcome.error_kind is not None)
    return "\n".join([*[update.model_dump_json() for update in told], error or ""])  # an error answers the prompt


FRONTS: dict[str, tuple[Callable[[Story], str], dict[str, str]]] = {
    "terminal": (in_the_terminal, {}),
    "inline": (in_lines, FOLDED),
    "-p": (with_p("text"), {}),
    "-p as JSON": (with_p("json"), {}),
    "browser": (in_the_browser, {}),
    "API": (over_the_api, AS_DATA),
    "AG-UI": (over_agui, {}),
    "editor": (in_an_editor, {}),
}
"""Each with the facts that it tells in other words."""


async def test_every_front_end_tells_every_fact() -> None:
    story = await Story().tell()
    missing: list[tuple[str, str]] = []
    for name, (tell, others) in FRONTS.items():
        told = tell(story)
        missing += [(name, fact) for fact, words in {**FACTS, **others}.items() if words not in told]
        assert "Half of an answI" not in told, name  # what was discarded is never joined to what follows
    assert missing == []
