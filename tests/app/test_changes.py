"""One reading of a run's events: what a reader sees of them."""

from __future__ import annotations

from swink_agent import AssistantMessage, StopReason, Text, Thinking
from swink_agent.app.shown.changes import CUT_OFF, Begun, Changes, Notice
from swink_agent.app.shown.changes import Text as Piece
from swink_agent.core.events import MessageEnd, MessageStart, MessageUpdate
from swink_agent.core.stream import ThinkingDelta


def test_the_text_of_a_reply_that_streamed_only_its_thinking_is_told() -> None:
    whole = AssistantMessage([Thinking("Hm."), Text("Yes.")], stop_reason=StopReason.LENGTH)
    events = (MessageStart(), MessageUpdate(ThinkingDelta(0, "Hm.")), MessageEnd(whole))
    changes = Changes()
    told = [change for event in events for change in changes.of(event)]
    assert told == [Begun(), Piece("thinking", "Hm."), Piece("text", "Yes."), Notice("warning", CUT_OFF)]
