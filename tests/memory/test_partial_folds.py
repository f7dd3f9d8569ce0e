"""A list's partial reading (a summary and the records after it) gives the same as all records, in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AssistantMessage,
    CompactionReport,
    Cost,
    ModelSpec,
    StopReason,
    Text,
    ToolCall,
    ToolOutcome,
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
from swink_agent.core.run.pending import Pending, pending_calls
from swink_agent.memory import JsonlSessionStore
from swink_agent.memory.log.fold import Fold
from swink_agent.memory.log.records import (
    LabelAdded,
    NoteAdded,
    RecordEntry,
    TitleChanged,
    UnknownMessage,
    UnknownRecord,
)
from swink_agent.testing import scripted

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


def waiting(index: int) -> ToolResultMessage:
    return ToolResultMessage(IDS[index], "", details=Pending("external", {}).as_details(), outcome=ToolOutcome.PENDING)


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
    few.map(lambda index: MessageAdded(waiting(index), "result", index)),
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
    fold, partial = Fold(), Fold(Fold().summary())
    for number, (entry, at, is_asked) in enumerate(steps, 1):
        fold.add(number, entry, at)
        partial.add(number, entry, at)
        assert fold.pending == len(pending_calls(fold.messages))
        if not is_asked or fold.is_open:  # no summary is written while a call waits
            continue
        if not partial.needs_all:
            assert partial.summary() == fold.summary()
            assert partial.count == len(fold.messages)
        partial = Fold(fold.summary())


@settings(max_examples=300)
@given(steps=steps)
def test_counting_comes_to_what_the_fold_comes_to(steps: list[tuple[RecordEntry, int, bool]]) -> None:
    check_counted(steps)


@pytest.mark.sweep
@settings(max_examples=5_000)
@given(steps=steps)
def test_counting_comes_to_what_the_fold_comes_to_for_long(steps: list[tuple[RecordEntry, int, bool]]) -> None:
    check_counted(steps)


def test_a_session_keeps_a_cost_without_tokens_and_cached_tokens_alone(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    usage, cost = Usage(cache_read=500), Cost(total=0.25)
    for replies, used, paid in (("ab", Usage(), cost), ("cd", usage, Cost())):
        with store.create() as session:
            agent = Agent("test:model", stream_fn=scripted(*replies, usage=used, cost=paid))
            session.attach(agent)
            agent.prompt_sync("go")
            agent.prompt_sync("again")
            kept = session.id
        listed = next(info for info in store.list() if info.id == kept)
        assert (listed.usage, listed.cost) == (used + used, paid + paid)
        assert (agent.total_usage, agent.total_cost) == (used + used, paid + paid)
