"""The history, its context and its conversation while they grow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from swink_agent import (
    AgentMessage,
    AssistantMessage,
    CustomMessage,
    LlmMessage,
    StopReason,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from swink_agent.core.exchanges import repair_pairs
from swink_agent.core.run.transcript import Transcript


class Notice(CustomMessage, tag="notice"):
    text: str


def ask(text: str = "q") -> UserMessage:
    return UserMessage(text, timestamp=0)


def say(text: str = "r", *calls: str, **fields: Any) -> AssistantMessage:
    blocks: list[Any] = [Text(text)] if text else []
    return AssistantMessage([*blocks, *[ToolCall(name, "look") for name in calls]], timestamp=1, **fields)


def answer(name: str) -> ToolResultMessage:
    return ToolResultMessage(name, "seen", tool_name="look", timestamp=2)


def failed(text: str = "") -> AssistantMessage:
    return say(text, stop_reason=StopReason.ERROR, error_message="busy")


def sent(transcript: Transcript) -> Sequence[LlmMessage]:
    """What the next request would hold."""
    transcript.convert_by_default()
    return transcript.conversation()


# -- the history -----------------------------------------------------------------------------------------------


def test_the_history_is_every_message_in_order() -> None:
    messages: list[AgentMessage] = [ask(), Notice("n"), say()]
    transcript = Transcript(messages)
    transcript.add([ask("q2")])
    assert transcript.history == [*messages, ask("q2")]
    assert len(transcript) == 4
    assert transcript.since(2) == (say(), ask("q2"))
    assert messages == [ask(), Notice("n"), say()]


def test_a_view_of_the_history_stays_as_it_was_taken() -> None:
    transcript = Transcript([ask()])
    history, context = transcript.history, transcript.context
    transcript.add([say()])
    transcript.adopt([say()])
    assert history == [ask()]
    assert context == [ask()]


def test_a_message_of_this_turn_can_be_replaced() -> None:
    old, new = say("old"), say("new")
    transcript = Transcript([ask(), say("old")])
    sent(transcript)
    before = transcript.history
    transcript.add([old])
    transcript.replace(old, new)
    assert transcript.history == [ask(), say("old"), new]
    assert transcript.history[2] is new
    assert before == [ask(), say("old")]
    assert sent(transcript) == [ask(), say("old"), new]


def test_a_message_is_replaced_in_a_context_that_was_compacted_too() -> None:
    old, new = say("old"), say("new")
    transcript = Transcript([ask("one"), say(), ask("two")])
    transcript.adopt(transcript.context[2:])
    transcript.add([old])
    transcript.replace(old, new)
    assert transcript.history[-1] is new
    assert sent(transcript) == [ask("two"), new]


# -- the context -----------------------------------------------------------------------------------------------


def test_a_compaction_changes_what_is_sent_from_then_on_and_not_the_history() -> None:
    messages: list[AgentMessage] = [ask("one"), say("first"), ask("two")]
    transcript = Transcript(messages)
    assert sent(transcript) == messages
    assert transcript.adopt(messages[2:])
    assert sent(transcript) == [ask("two")]
    transcript.add([say("second"), ask("three")])
    assert sent(transcript) == [ask("two"), say("second"), ask("three")]
    assert transcript.history == [*messages, say("second"), ask("three")]
    assert transcript.context == [ask("two"), say("second"), ask("three")]


def test_a_transform_that_gives_back_what_it_got_changes_nothing() -> None:
    transcript = Transcript([ask(), say()])
    first = sent(transcript)
    assert not transcript.adopt(list(transcript.context))
    assert transcript.unconverted() == []
    assert sent(transcript) == first


def test_a_context_may_hold_messages_that_were_never_in_the_history() -> None:
    transcript = Transcript([ask("one"), say(), ask("two")])
    summary = ask("so far: one")
    assert transcript.adopt([summary, transcript.context[2]])
    assert sent(transcript) == [summary, ask("two")]
    assert transcript.history == [ask("one"), say(), ask("two")]


# -- the conversation ------------------------------------------------------------------------------------------


def test_each_message_is_converted_once() -> None:
    transcript = Transcript([ask("one")])
    assert transcript.unconverted() == [ask("one")]
    transcript.convert([ask("ONE")])
    transcript.add([say(), Notice("n")])
    assert transcript.unconverted() == [say(), Notice("n")]
    transcript.convert([say()])
    assert transcript.unconverted() == []
    assert transcript.conversation() == [ask("ONE"), say()]


def test_custom_messages_are_not_sent() -> None:
    assert sent(Transcript([Notice("n"), ask(), Notice("n")])) == [ask()]


def test_a_view_of_what_was_sent_stays_as_it_was_sent() -> None:
    transcript = Transcript([ask(), say("", "a")])
    first = sent(transcript)
    before = list(first)
    transcript.add([answer("a"), say(), ask("q2")])
    second = sent(transcript)
    transcript.adopt([ask("only this")])
    sent(transcript)
    assert first == before
    assert second == [ask(), say("", "a"), answer("a"), say(), ask("q2")]


def test_a_call_without_a_result_is_answered_before_it_is_sent() -> None:
    transcript = Transcript([ask(), say("", "a", "b"), answer("b"), ask("q2")])
    results = [message for message in sent(transcript) if isinstance(message, ToolResultMessage)]
    assert [(result.tool_call_id, result.is_error) for result in results] == [("a", True), ("b", False)]
    assert transcript.history == [ask(), say("", "a", "b"), answer("b"), ask("q2")]


def test_a_result_that_comes_late_takes_its_place() -> None:
    transcript = Transcript([ask(), say("", "a")])
    assert len(sent(transcript)) == 3
    transcript.add([ask("q2"), answer("a")])
    assert sent(transcript) == [ask(), say("", "a"), answer("a"), ask("q2")]


def test_the_model_is_asked_again_for_a_reply_that_failed_and_not_to_go_on_from_it() -> None:
    transcript = Transcript([ask(), failed("half"), failed()])
    assert sent(transcript) == [ask()]


def test_a_reply_that_failed_is_sent_once_something_follows_it() -> None:
    transcript = Transcript([ask(), failed("half")])
    first = list(sent(transcript))
    transcript.add([ask("q2")])
    assert sent(transcript) == [*first, failed("half"), ask("q2")]


def test_a_failed_reply_that_said_nothing_is_never_sent() -> None:
    transcript = Transcript([ask(), failed()])
    sent(transcript)
    transcript.add([say("second try"), ask("q2")])
    assert sent(transcript) == [ask(), say("second try"), ask("q2")]


@pytest.mark.table
@pytest.mark.parametrize(
    "messages",
    [
        [ask(), say("", "a", "b"), answer("a"), answer("b")],
        [ask(), say("", "a"), answer("a"), answer("a"), ask()],
        [ask(), answer("a"), say("", "a"), ask()],
        [ask(), say("", "a"), say("", "a"), answer("a"), ask()],
        [ask(), say(""), ask()],
        [ask(), failed("half"), ask(), failed(), ask()],
        [ask(), say("", "a", "a"), answer("a"), ask()],
    ],
    ids=["whole", "answered twice", "answered early", "one id twice", "empty", "failures", "one id in one message"],
)
def test_incremental_requests_equal_complete_ones(messages: list[Any]) -> None:
    growing = Transcript()
    for message in messages:
        growing.add([message])
        sent(growing)
    assert list(sent(growing)) == repair_pairs(messages)
    assert list(sent(Transcript(messages))) == repair_pairs(messages)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_failure_does_not_change_what_was_sent_before_it(order: str) -> None:
    transcript = Transcript([ask(), say("", "a", "b"), *[answer(name) for name in order], ask()])
    first = list(sent(transcript))
    transcript.add([failed("half"), ask("q2")])
    assert list(sent(transcript))[: len(first)] == first


# -- its cost --------------------------------------------------------------------------------------------------


def calls_made(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called while `work` is done."""
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize(
    "beginning",
    [[ask()], [ask(), say("", "lost"), ask()], [ask(), failed("half"), ask()], [answer("orphan"), ask(), say("")]],
    ids=["whole", "a call lost", "a failure", "an orphan"],
)
def test_a_turn_costs_the_same_however_long_the_history(beginning: list[AgentMessage]) -> None:
    transcript = Transcript(beginning)
    costs: list[int] = []
    for number in range(400):
        name = f"call_{number}"
        transcript.add([say("", name), answer(name), ask()])
        costs.append(calls_made(lambda: sent(transcript)))
    assert len(sent(transcript)) > 1_200
    assert min(costs[-10:]) <= max(costs[5:15])  # the least: a finalizer that runs meanwhile makes calls too
