"""What is counted while a session is written is what its records come to, in whatever order they come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from swink_agent import (
    AssistantMessage,
    CompactionReport,
    Cost,
    ModelSpec,
    StopReason,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from swink_agent.core.journal import (
    ContextReplaced,
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    ModelChanged,
    RunEnded,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.memory.fold import Fold
from swink_agent.memory.records import LabelAdded, NoteAdded, RecordEntry, TitleChanged, UnknownMessage, UnknownRecord
from swink_agent.memory.tally import FlatRecords, SummaryCounter

IDS = ("a", "b", "c")
few = st.integers(0, 2)
usages = st.builds(lambda n: Usage(input=n, output=2 * n, total=3 * n), few)
costs = st.builds(lambda n: Cost(input=0.5 * n, total=0.5 * n), few)


def reply(words: list[str], calls: int, usage: Usage, cost: Cost, is_failed: bool) -> AssistantMessage:
    stop_reason = StopReason.ERROR if is_failed else StopReason.STOP
    content = [*map(Text, words), *[ToolCall(call_id, "act") for call_id in IDS[:calls]]]
    return AssistantMessage(content, usage=usage, cost=cost, stop_reason=stop_reason)


replies = st.builds(
    reply, st.lists(st.sampled_from(["said", ""]), max_size=2), st.integers(0, 3), usages, costs, st.booleans()
)
results = st.builds(lambda index: (index, ToolResultMessage(IDS[index], "done")), few)
numbers = st.lists(st.integers(1, 40), max_size=12).map(tuple)
users = st.builds(UserMessage, st.sampled_from(["hello", "", "another"]))
entries: st.SearchStrategy[Any] = st.one_of(
    st.builds(MessageAdded, replies, st.just("reply")),
    st.builds(MessageAdded, replies, st.just("reply")),
    st.builds(MessageAdded, users, st.sampled_from(["prompt", "steering", "given"])),
    results.map(lambda result: MessageAdded(result[1], "result", result[0])),
    results.map(lambda result: MessageAdded(result[1], "result", result[0])),
    results.map(lambda result: MessageAdded(result[1], "result")),
    results.map(lambda result: MessageAdded(result[1], "given")),
    st.builds(MessageAdded, replies, st.just("given")),
    st.sampled_from(
        [
            MessageAdded(UnknownMessage({"role": "aside"}), "policy"),
            MessageAdded(UnknownMessage({"role": "tool_result"}), "result", 1),
            RunStarted("run"),
            TitleChanged("a title"),
            TitleChanged(""),
            ModelChanged(ModelSpec("test", "other")),
            StateChanged({"n": 1}),
            LabelAdded("here", 0),
            NoteAdded("mood"),
            UnknownRecord("telepathy"),
            ToolStarted(0, "a", "act"),
        ]
    ),
    st.builds(RunEnded, st.just("run"), st.just(StopReason.STOP), usages, costs),
    st.builds(MessageReplaced, st.integers(1, 40), st.one_of(users, replies)),
    st.builds(HistoryCut, numbers),
    st.builds(
        ContextReplaced,
        numbers,
        st.one_of(st.none(), st.builds(lambda u, c: CompactionReport(1, 2, 1, False, u, c), usages, costs)),
    ),
)
steps = st.lists(st.tuples(entries, st.integers(0, 99), st.booleans()), max_size=40)
"""Each with its time, and whether somebody asks what it all comes to behind it."""


def check_counted(steps: list[tuple[RecordEntry, int, bool]]) -> None:
    fold, counter, uncounted = Fold(), SummaryCounter(Fold().summary(), is_open=False), FlatRecords()
    for number, (entry, at, is_asked) in enumerate(steps, 1):
        fold.add(number, entry, at)
        uncounted += [number, at, entry]
        if not is_asked:
            continue
        if counter.is_sure:
            counter.count(uncounted)
        uncounted.clear()
        if not counter.is_sure:
            counter = SummaryCounter(fold.summary(), is_open=fold.is_open)  # as the log does
            continue
        assert counter.is_open == fold.is_open
        if not fold.is_open:  # no summary is written while a call waits
            assert counter.summary() == fold.summary()
            assert structs.asdict(counter.summary())["messages"] == len(fold.messages)


@settings(max_examples=300)
@given(steps=steps)
def test_counting_comes_to_what_the_fold_comes_to(steps: list[tuple[RecordEntry, int, bool]]) -> None:
    check_counted(steps)


@pytest.mark.sweep
@settings(max_examples=5_000)
@given(steps=steps)
def test_counting_comes_to_what_the_fold_comes_to_for_long(steps: list[tuple[RecordEntry, int, bool]]) -> None:
    check_counted(steps)
