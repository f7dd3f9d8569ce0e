"""What the records of a session add up to, record by record."""

from __future__ import annotations

from typing import Any

from swink_agent import (
    AssistantMessage,
    CustomMessage,
    StopReason,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
    pending_calls,
)
from swink_agent.core.journal import (
    CallFacts,
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    RunEnded,
    RunStarted,
    ToolStarted,
)
from swink_agent.core.run.pending import Pending
from swink_agent.memory import Fold


class Notice(CustomMessage, tag="notice"):
    text: str


def folded(*entries: Any) -> Fold:
    fold = Fold()
    for number, entry in enumerate(entries):
        fold.add(number, entry)
    return fold


ASKED = MessageAdded(UserMessage("go"), "prompt")
CALLED = MessageAdded(AssistantMessage([ToolCall("a", "look")], usage=Usage(output=3)), "reply")
WAITS = ToolResultMessage(
    "a", "it waits", True, Pending("approval", {}).as_details(), "look", outcome=ToolOutcome.PENDING
)
DEFERRED = MessageAdded(WAITS, "result", 0, CallFacts(0.0, "asked", is_started=False))
ENDED = RunEnded("one", StopReason.TOOL_USE, Usage(output=3))


def test_an_answered_call_that_started_is_lost_after_a_crash_whatever_follows_it() -> None:
    notice = MessageAdded(Notice("n"), "policy")
    entries = (RunStarted("one"), ASKED, CALLED, DEFERRED, notice, ENDED, RunStarted("two", "resume"))
    assert len(pending_calls(folded(*entries).messages)) == 1

    crashed = folded(*entries, ToolStarted(0, "a", "look"))
    assert pending_calls(crashed.messages) == ()
    assert [one.outcome for one in crashed.messages if isinstance(one, ToolResultMessage)] == [ToolOutcome.LOST]

    told = MessageAdded(ToolResultMessage("a", "seen", tool_name="look"), "result", 0, CallFacts(1.0))
    answered = folded(*entries, ToolStarted(0, "a", "look"), told)
    assert answered.messages[2] == told.message
    assert [call.outcome for run in answered.runs for call in run.record.calls] == [
        ToolOutcome.PENDING,
        ToolOutcome.RAN,
    ]


def test_a_reply_that_a_damaged_record_replaces_by_another_kind_stays() -> None:
    fold = folded(RunStarted("one"), ASKED, CALLED, MessageReplaced(2, UserMessage("no reply")))
    assert fold.messages[1] == CALLED.message
    assert fold.runs[0].record.turns[0].reply == CALLED.message


def test_usage_of_a_run_counts_once_whether_it_ended_or_not() -> None:
    begun = (RunStarted("one"), ASKED, CALLED)
    spent = CallFacts(1.0, usage=Usage(output=10))
    told = MessageAdded(ToolResultMessage("a", "seen", tool_name="look"), "result", 0, spent)
    assert folded(*begun).usage == Usage(output=3)
    assert folded(*begun, ENDED).usage == Usage(output=3)
    assert folded(*begun, told, ENDED, RunStarted("two")).usage == Usage(output=13)
    assert folded(*begun, told, HistoryCut(()), RunStarted("two")).usage == Usage(output=13)


def test_runs_that_are_forgotten_still_count() -> None:
    fold = folded(RunStarted("one"), ASKED, CALLED, ENDED)
    fold.forget_runs()
    assert (fold.runs, fold.usage, fold.count) == ([], Usage(output=3), 3)
