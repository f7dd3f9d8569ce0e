"""For any conversation, the reduced one can be sent, fits, and keeps the messages that must stay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    AgentMessage,
    AssistantMessage,
    Base64Image,
    CustomMessage,
    Image,
    ModelSpec,
    SlidingWindow,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    estimate_tokens,
)
from swink_agent.core.context.window import last_exchange, pair_boundary
from swink_agent.memory import SummarizingCompactor
from swink_agent.memory.compaction.summary_text import is_summary
from swink_agent.testing import check_conversation, scripted, truncated

MODEL = ModelSpec("test", "model")
OFTEN = settings(max_examples=100, deadline=None)

sizes = st.integers(0, 40) | st.integers(0, 9_000) | st.just(60_000)
reports = st.integers(0, 5_000) | st.just(10**12) | st.just(-1)


class Notice(CustomMessage, tag="notice_in_a_window"):
    text: str = "for people"


PICTURE = Image(Base64Image("image/png", "aGk="))
texts = st.builds(
    lambda start, size, middle: start * (size // 7) + middle * size + start * (size // 7),
    st.sampled_from("x漢\0é\n"),
    sizes,
    st.sampled_from("a漢"),
)


def in_bytes(message: AgentMessage) -> int:
    """As the standard agent counts: what is not ASCII is more, and pictures cost."""
    if isinstance(message, CustomMessage):
        return 0
    images = sum(isinstance(block, Image) for block in message.content)
    others = [block for block in message.content if not isinstance(block, Image)]
    return 6 + 1_600 * images + len(msgspec.json.encode(others)) // 3


@st.composite
def mixed_conversations(draw: st.DrawFn) -> list[AgentMessage]:
    """Requests in one message or several, with pictures; results of any density with pictures; messages for people."""
    messages: list[AgentMessage] = [Notice()] * draw(st.integers(0, 2))
    number = 0
    for _ in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            pictures = [PICTURE] * draw(st.integers(0, 1))
            messages.append(UserMessage([Text(f"request {number} " + "u" * draw(sizes)), *pictures], timestamp=0))
        for _ in range(draw(st.integers(0, 3))):
            ids = draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(1, 3))]
            messages.append(AssistantMessage([Text("so:"), *[ToolCall(each, "look") for each in ids]], timestamp=0))
            for each in draw(st.permutations(ids)):
                content = [Text(draw(texts)), *[PICTURE] * draw(st.sampled_from([0, 0, 1, 9]))]
                messages.append(ToolResultMessage(each, content, tool_name="look", timestamp=0))
                messages += [Notice()] * draw(st.integers(0, 1))
        messages += [AssistantMessage("answer", timestamp=0)] * draw(st.integers(0, 1))
    return messages


def sent_of(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    return [message for message in messages if not isinstance(message, CustomMessage)]


@OFTEN
@given(mixed_conversations(), st.integers(1_000, 40_000), st.integers(0, 4), st.booleans(), st.booleans())
def test_any_history_can_be_sent_and_only_what_must_stay_can_be_too_much(
    messages: list[AgentMessage], budget: int, keep_first: int, overflow: bool, by_bytes: bool
) -> None:
    count = in_bytes if by_bytes else estimate_tokens
    kept = SlidingWindow(budget, keep_first=keep_first, count=count)(messages, overflow)
    if kept is None:
        return
    sent = sent_of(kept)
    check_conversation(sent)
    assert isinstance(sent[0], UserMessage), "no provider takes one that begins with a reply"
    newest = next(message for message in reversed(messages) if isinstance(message, UserMessage))
    assert newest in kept
    results = [message for message in sent if isinstance(message, ToolResultMessage)]
    first = [message for message in messages[: pair_boundary(messages, keep_first)] if message in kept]
    needed = [newest, *first, *messages[last_exchange(messages) :]]
    least = sum(count(message) for message in needed if not isinstance(message, ToolResultMessage))
    assert sum(map(count, kept)) <= max(budget, least + 250 * len(results))
    assert sum(map(count, kept)) < sum(map(count, messages))


@OFTEN
@given(mixed_conversations(), st.integers(2_000, 40_000), st.integers(0, 10_000), st.booleans(), st.booleans())
def test_the_summary_of_any_history_can_be_sent_with_what_must_stay(
    messages: list[AgentMessage], budget: int, keep_recent: int, overflow: bool, by_bytes: bool
) -> None:
    count = in_bytes if by_bytes else estimate_tokens
    script = scripted("a summary")
    compactor = SummarizingCompactor(MODEL, budget, keep_recent, script, count=count)
    kept = asyncio.run(compactor(messages, overflow))  # type: ignore[arg-type]
    if kept is None:
        return
    sent = sent_of(kept)
    check_conversation(sent)
    assert isinstance(sent[0], UserMessage)
    newest = next(message for message in reversed(messages) if isinstance(message, UserMessage))
    assert newest in kept
    assert sum(map(count, kept)) < sum(map(count, messages)) + 50 * len(script.requests)


@st.composite
def conversations(draw: st.DrawFn) -> list[AgentMessage]:
    """Requests, each with calls and results of any size before its answer; it may end in the middle of the work."""
    messages: list[AgentMessage] = []
    number = 0
    for _ in range(draw(st.integers(1, 6))):
        messages.append(UserMessage(f"request {len(messages)} " + "u" * draw(sizes), timestamp=0))
        for _ in range(draw(st.integers(0, 4))):
            ids = [f"call_{number + offset}" for offset in range(draw(st.integers(1, 3)))]
            number += len(ids)
            usage = Usage(draw(reports))
            calls = [Text("so: " + "a" * draw(st.integers(0, 40))), *[ToolCall(each, "look") for each in ids]]
            messages.append(AssistantMessage(calls, usage=usage, timestamp=0))
            messages += [ToolResultMessage(each, "r" * draw(sizes), tool_name="look", timestamp=0) for each in ids]
        if draw(st.booleans()):
            messages.append(AssistantMessage("answer", usage=Usage(draw(reports)), timestamp=0))
    return messages


def as_before(message: AgentMessage) -> Any:
    """What is kept of a message in any case."""
    return message.tool_call_id if isinstance(message, ToolResultMessage) else message


@OFTEN
@given(conversations(), st.integers(1, 20_000), st.integers(1, 30_000), st.integers(0, 4), st.booleans())
def test_the_rest_of_a_history_can_be_sent_and_has_what_must_stay(
    messages: list[AgentMessage], budget: int, overflow_tokens: int, keep_first: int, overflow: bool
) -> None:
    window = SlidingWindow(budget, overflow_tokens=overflow_tokens, keep_first=keep_first)
    assert window.overflow_tokens <= budget
    kept = window(messages, overflow)
    if kept is None:
        return
    check_conversation(kept)  # type: ignore[arg-type]
    outline, whole = [as_before(message) for message in kept], [as_before(message) for message in messages]
    remaining = iter(whole)
    assert all(message in remaining for message in outline), "in their order, and nothing else"
    if budget < 1_000 or estimate_tokens(messages[: pair_boundary(messages, keep_first)]) <= budget:
        assert outline[:keep_first] == whole[:keep_first]
    assert outline[-1] == whole[-1]
    newest = next(message for message in reversed(messages) if isinstance(message, UserMessage))
    assert newest in kept
    assert estimate_tokens(kept) < estimate_tokens(messages)


@OFTEN
@given(conversations(), st.integers(1_000, 20_000), st.booleans())
def test_only_what_must_stay_can_exceed_the_budget(messages: list[AgentMessage], budget: int, overflow: bool) -> None:
    plain = [
        AssistantMessage(message.content, timestamp=0) if isinstance(message, AssistantMessage) else message
        for message in messages
    ]
    kept = SlidingWindow(budget, keep_first=0)(plain, overflow) or plain
    if not overflow and kept is plain:
        return
    newest = next(message for message in reversed(plain) if isinstance(message, UserMessage))
    shortest = 300 * sum(isinstance(message, ToolResultMessage) for message in kept)
    assert estimate_tokens(kept) <= max(budget, estimate_tokens(newest) + shortest + 200)


@OFTEN
@given(conversations(), st.integers(500, 20_000))
def test_a_cut_history_fits_and_is_not_cut_again(messages: list[AgentMessage], budget: int) -> None:
    plain: list[AgentMessage] = [
        AssistantMessage(message.content, timestamp=0) if isinstance(message, AssistantMessage) else message
        for message in messages
    ]
    window = SlidingWindow(budget)
    kept = window(plain, False)
    if kept is not None and estimate_tokens(kept) <= budget:
        assert window(kept, False) is None


outcomes = st.sampled_from(["a summary", "word " * 3_000, "", "cut"])


@OFTEN
@given(conversations(), st.integers(500, 20_000), st.integers(0, 10_000), st.booleans(), outcomes)
def test_a_summarized_history_can_be_sent_and_has_what_must_stay(
    messages: list[AgentMessage], budget: int, keep_recent: int, overflow: bool, outcome: str
) -> None:
    script = scripted(*[truncated(outcome * 9) if outcome == "cut" else outcome] * 2)
    compactor = SummarizingCompactor(MODEL, budget, keep_recent, script)
    kept = asyncio.run(compactor(messages, overflow))  # type: ignore[arg-type]
    if kept is None:
        return
    assert len(script.requests) <= 1
    if not script.requests or outcome in ("", "cut"):
        assert not any(map(is_summary, kept))
    elif outcome == "a summary":
        assert is_summary(kept[0])
    check_conversation(kept)  # type: ignore[arg-type]
    rest = [as_before(message) for message in kept if not is_summary(message)]
    remaining = iter([as_before(message) for message in messages])
    assert all(message in remaining for message in rest), "in their order, and nothing else"
    assert rest[-1] == as_before(messages[-1])
    assert next(message for message in reversed(messages) if isinstance(message, UserMessage)) in kept
