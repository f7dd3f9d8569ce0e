"""Which result answers which call."""

from __future__ import annotations

from itertools import product
from operator import is_

import pytest

from swink_agent import AssistantMessage, LlmMessage, StopReason, ToolCall, ToolOutcome, ToolResultMessage, UserMessage
from swink_agent.core.exchanges import Exchange, exchanges, is_sendable, last_exchange, repair_pairs


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage([ToolCall(one, "look") for one in ids])


def told(call_id: str, text: str = "seen") -> ToolResultMessage:
    return ToolResultMessage(call_id, text, tool_name="look")


def waits(call_id: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, "waits", True, tool_name="look", outcome=ToolOutcome.PENDING)


@pytest.mark.table
@pytest.mark.parametrize(
    ("ids", "results", "expected"),
    [
        ("ab", [told("b"), told("a")], [1, 0]),
        ("a", [told("z")], [None]),
        ("a", [told("a", "one"), told("a", "two")], [0, None]),
        ("a", [waits("a"), told("a")], [0, 0]),
        ("aa", [told("a", "one"), told("a", "two")], [0, 1]),
        ("aa", [waits("a"), told("a")], [0, 1]),
        ("aa", [waits("a"), waits("a"), told("a")], [0, 1, 0]),
    ],
    ids=["order", "no call", "twice", "pending", "one id", "one id, one waits", "one id, both wait"],
)
def test_a_result_answers_the_first_open_call_with_its_id(
    ids: str, results: list[ToolResultMessage], expected: list[int | None]
) -> None:
    exchange = Exchange(asks(*ids))
    assert [exchange.place(result) for result in results] == expected


def test_a_result_with_a_known_index_answers_only_that_call() -> None:
    exchange = Exchange(asks("a", "a", "b"))
    assert exchange.place(told("a"), 1) == 1
    assert exchange.place(told("a"), 2) is None
    assert exchange.place(told("a"), 3) is None
    assert exchange.place(told("a"), -1) is None
    assert (exchange.missing, exchange.pending) == ([0, 2], [])


def test_calls_with_one_id_in_one_reply_are_sent_with_their_own_results() -> None:
    messages: list[LlmMessage] = [asks("a", "a"), told("a", "one"), told("a", "two")]
    assert repair_pairs(messages) == messages


@pytest.mark.parametrize("length", [1, 2, 3])
def test_messages_can_be_sent_if_a_repair_leaves_them_as_they_are(length: int) -> None:
    kinds: list[LlmMessage] = [asks("a"), asks("a", "a", "b"), AssistantMessage(""), AssistantMessage("done")]
    failed = AssistantMessage("half", stop_reason=StopReason.ERROR)
    kinds += [failed, UserMessage("go on"), told("a"), waits("a"), told("b")]
    for messages in product(kinds, repeat=length):
        repaired = repair_pairs(messages)
        is_left = len(repaired) == len(messages) and all(map(is_, repaired, messages))
        assert is_sendable(messages) == (is_left and failed not in messages), messages


def test_an_exchange_ends_with_the_next_reply_and_passes_over_empty_ones() -> None:
    first, second, empty, question = asks("a"), asks("a"), AssistantMessage(""), UserMessage("go on")
    found = exchanges([question, first, empty, told("a"), second, waits("a")])
    assert [one.reply for one in found] == [None, first, second]
    assert [one.others for one in found] == [[question], [empty], []]
    assert [one.pending for one in found] == [[], [], [0]]


def test_a_call_no_longer_waits_once_the_user_goes_on() -> None:
    history = [UserMessage("go"), asks("a"), waits("a")]
    assert not last_exchange(history).is_left
    left = last_exchange([*history, UserMessage("more")])
    assert (left.pending, left.is_left) == ([0], True)
    assert last_exchange([*history, AssistantMessage("")]).pending == []
    assert last_exchange([waits("a")]).pending == []
