"""The part of a history that is sent to a model: estimates, the sliding window, pairs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentMessage,
    AssistantMessage,
    Base64Image,
    ContextCompacted,
    CustomMessage,
    Image,
    LlmMessage,
    ModelSpec,
    SlidingWindow,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UrlImage,
    UserMessage,
    default_convert_to_llm,
    estimate_tokens,
)
from swink_agent.core.context.context import Snapshot
from swink_agent.core.exchanges import repair_pairs
from swink_agent.testing import check_events, collect, scripted


class Notice(CustomMessage, tag="notice"):
    text: str


def ask(text: str) -> UserMessage:
    return UserMessage(text, timestamp=0)


def say(text: str, *calls: str, **fields: Any) -> AssistantMessage:
    blocks: list[Any] = [Text(text)] if text else []
    return AssistantMessage([*blocks, *[ToolCall(name, "look") for name in calls]], timestamp=1, **fields)


def answer(name: str, text: str = "seen") -> ToolResultMessage:
    return ToolResultMessage(name, text, tool_name="look", timestamp=2)


def missing(name: str) -> tuple[str, bool]:
    return (name, True)


def outline(messages: Sequence[LlmMessage]) -> list[Any]:
    """Messages as a test wants to read them: texts, calls in a list, results as id and whether it is an error."""
    lines: list[Any] = []
    for message in messages:
        match message:
            case ToolResultMessage():
                lines.append((message.tool_call_id, message.is_error))
            case AssistantMessage() if message.tool_calls:
                lines.append([call.id for call in message.tool_calls])
            case _:
                lines.append("".join(block.text for block in message.content if isinstance(block, Text)))
    return lines


# -- estimates -------------------------------------------------------------------------------------------------


def test_an_estimate_of_many_is_the_sum_of_the_estimates() -> None:
    messages = [ask("hello"), say("well", "a"), answer("a")]
    assert estimate_tokens(messages) == sum(estimate_tokens(message) for message in messages)
    assert estimate_tokens(message for message in messages) == estimate_tokens(tuple(messages))
    assert estimate_tokens([]) == 0


def test_four_characters_are_about_one_token() -> None:
    for message in (ask("x" * 4_000), say("x" * 4_000), answer("a", "x" * 4_000)):
        assert 1_000 <= estimate_tokens(message) <= 1_050


def test_everything_that_is_sent_counts() -> None:
    nothing = estimate_tokens(AssistantMessage([]))
    long = "x" * 400
    for block in (
        Thinking(long),
        Thinking("", long),
        ToolCall("1", "look", {"a": long}),
        ToolCall("1", "look", {}, long),
    ):
        assert estimate_tokens(AssistantMessage([block])) >= nothing + 100


def test_a_picture_costs_the_same_however_large_its_data() -> None:
    small, large = Image(Base64Image("image/png", "aGk=")), Image(Base64Image("image/png", "x" * 1_000_000))
    linked = Image(UrlImage("u"))
    assert estimate_tokens(UserMessage([small])) == estimate_tokens(UserMessage([large]))
    assert estimate_tokens(UserMessage([linked])) > estimate_tokens(UserMessage([])) + 100


def test_messages_that_reach_no_model_cost_nothing() -> None:
    assert estimate_tokens(Notice("x" * 10_000)) == 0
    assert estimate_tokens([Notice("x" * 10_000), ask("a")]) == estimate_tokens(ask("a"))


def test_custom_messages_are_left_out_and_others_are_sent_unchanged() -> None:
    assert default_convert_to_llm(Notice("a")) is None
    for message in (ask("a"), say("b"), answer("c")):
        assert default_convert_to_llm(message) is message


# -- the sliding window ----------------------------------------------------------------------------------------


def exchange(number: int) -> list[AgentMessage]:
    """A question, two calls, their results, and an answer."""
    a, b = f"{number}a", f"{number}b"
    return [ask(f"q{number}" + "x" * 40), say("", a, b), answer(a), answer(b), say(f"r{number}" + "x" * 40)]


HISTORY: list[AgentMessage] = [ask("the task"), *[message for number in range(8) for message in exchange(number)]]
WHOLE = estimate_tokens(HISTORY)


def test_a_history_that_fits_is_left_alone() -> None:
    assert SlidingWindow(WHOLE)(HISTORY, False) is None
    assert SlidingWindow(1)([], False) is None
    assert SlidingWindow(1)([], True) is None


def test_the_oldest_messages_go_first_and_the_task_stays() -> None:
    kept = SlidingWindow(WHOLE // 2, keep_first=1)(HISTORY, False)
    assert kept is not None
    assert kept[0] is HISTORY[0]
    assert kept[1:] == HISTORY[-(len(kept) - 1) :]
    assert 1 < len(kept) < len(HISTORY)


def test_a_full_window_is_halved_so_that_requests_begin_alike_for_many_turns() -> None:
    window, context, cuts = SlidingWindow(1_000), list(HISTORY), 0
    for number in range(100):
        context += exchange(number)
        kept = window(context, False)
        if kept is not None:
            cuts += 1
            assert 300 < estimate_tokens(kept) <= 500
            context = kept
    assert 2 <= cuts <= 15, "each cut makes room for many turns"
    assert context[:2] == HISTORY[:2]


def test_the_newest_request_stays_however_much_came_after_it() -> None:
    history = [ask("first"), say("hello"), ask("the request"), *[m for n in range(20) for m in exchange(n)[1:]]]
    for budget in (40, 80, 160, 320):
        for overflow in (False, True):
            kept = SlidingWindow(budget)(history, overflow)
            assert kept is not None
            assert history[2] in kept
            assert kept[-1] is history[-1]
            assert repair_pairs(kept) == kept  # type: ignore[arg-type]


def test_long_results_are_shortened_before_anything_is_left_out_and_the_newest_last() -> None:
    history: list[AgentMessage] = [ask("the task")]
    for number in range(5):
        history += [say("", str(number)), answer(str(number), f"<{number}>" + "x" * 8_000 + f"</{number}>")]
    kept = SlidingWindow(9_000)(history, False)
    assert kept is not None
    assert len(kept) == len(history)
    assert estimate_tokens(kept) <= 9_000
    assert kept[-1] is history[-1], "the newest is whole"
    for number in range(4):
        text = kept[2 + 2 * number].content[0].text  # type: ignore[union-attr]
        assert text.startswith(f"<{number}>x")
        assert text.endswith(f"x</{number}>")
        assert "characters left out to save room" in text
    assert SlidingWindow(9_000)(kept, False) is None


def test_long_results_are_shortened_and_short_ones_beside_them_stay() -> None:
    calls = say("", "a", "b", "c")
    history = [ask("the task"), calls, answer("a", "x" * 400_000), answer("b", "fine"), answer("c", "y" * 400_000)]
    for overflow in (False, True):
        kept = SlidingWindow(4_000)(history, overflow)
        assert kept is not None
        assert kept[:2] == history[:2]
        assert kept[3] is history[3]
        assert 2_000 < estimate_tokens(kept) <= 4_000
        assert [message.tool_call_id for message in kept[2:]] == ["a", "b", "c"]  # type: ignore[union-attr]


def test_tokens_are_counted_as_the_application_says() -> None:
    seen: list[AgentMessage] = []

    def count(message: AgentMessage) -> int:
        seen.append(message)
        return 10

    assert SlidingWindow(10 * len(HISTORY), count=count)(HISTORY, False) is None
    assert seen == HISTORY
    kept = SlidingWindow(100, count=count)(HISTORY, False)
    assert kept is not None
    assert kept == [*HISTORY[:2], HISTORY[-5], HISTORY[-1]], "the anchor, the request, and no half of a pair"


@pytest.mark.parametrize(
    ("keep_first", "overflow"), [(0, False), (1, False), (1, True), (2, True), (3, False), (7, True)]
)
def test_the_cut_never_separates_a_call_from_its_result(keep_first: int, overflow: bool) -> None:
    for budget in range(1, WHOLE + 2):
        kept = SlidingWindow(budget, overflow_tokens=budget, keep_first=keep_first)(HISTORY, overflow)
        messages: Sequence[Any] = HISTORY if kept is None else kept
        assert repair_pairs(messages) == list(messages)
        assert messages[:keep_first] == HISTORY[:keep_first]
        assert isinstance(messages[-1], AssistantMessage)


def test_the_cut_keeps_a_pair_together_also_when_a_custom_message_stands_between() -> None:
    pair = [say("x" * 40, "z"), Notice("still looking"), answer("z")]
    history = [ask("the task"), *exchange(0), *pair, ask("and now?")]
    for budget in range(1, estimate_tokens(history) + 1):
        kept = SlidingWindow(budget)(history, False) or history
        assert (pair[0] in kept) == (pair[2] in kept), budget


def test_the_budget_is_kept_wherever_the_anchor_and_the_last_exchange_fit_into_it() -> None:
    least = estimate_tokens([*HISTORY[:2], HISTORY[-5], HISTORY[-1]])
    for budget in range(least, WHOLE):
        kept = SlidingWindow(budget)(HISTORY, False)
        assert kept is not None
        assert estimate_tokens(kept) <= budget


def test_something_is_sent_however_small_the_budget() -> None:
    history = [ask("the task"), *exchange(0), ask("x" * 10_000), say("", "z"), answer("z", "short")]
    kept = SlidingWindow(10, keep_first=1)(history, False)
    assert kept == [history[0], *history[-3:]]


def test_the_budget_after_an_overflow_is_never_above_the_usual_one() -> None:
    for overflow_tokens, budget in ((50_000, WHOLE // 2), (WHOLE // 2, WHOLE // 2), (WHOLE // 4, WHOLE // 4)):
        window = SlidingWindow(WHOLE, overflow_tokens=overflow_tokens)
        assert window.overflow_tokens <= WHOLE
        kept = window(HISTORY, True)
        assert kept is not None, "also when the provider counts more tokens than we do"
        assert budget // 2 < estimate_tokens(kept) <= budget


def test_a_window_that_was_cut_is_not_cut_again() -> None:
    for budget in range(60, WHOLE, 7):
        kept = SlidingWindow(budget)(HISTORY, False)
        assert kept is not None
        assert SlidingWindow(budget)(kept, False) is None


def test_the_messages_given_are_not_changed() -> None:
    history = list(HISTORY)
    SlidingWindow(50)(history, False)
    SlidingWindow(50)(history, True)
    assert history == HISTORY


def test_a_window_that_makes_no_sense_is_refused() -> None:
    for settings in ({"max_tokens": 0}, {"max_tokens": 9, "overflow_tokens": 0}, {"max_tokens": 9, "keep_first": -1}):
        with pytest.raises(ValueError, match="SlidingWindow"):
            SlidingWindow(**settings)


async def test_a_window_compacts_what_an_agent_sends_and_not_what_it_remembers() -> None:
    script = scripted("short", "shorter")
    agent = Agent(ModelSpec("test", "model"), stream_fn=script, messages=HISTORY, transform_context=SlidingWindow(100))
    events = await collect(agent.prompt_stream("and now?"))
    check_events(events)
    (compacted,) = [event for event in events if isinstance(event, ContextCompacted)]
    sent = script.requests[0].messages
    assert estimate_tokens(sent) <= 100
    assert compacted.report.dropped_count == len(HISTORY) + 1 - len(sent)
    assert compacted.report.tokens_before > 100 >= compacted.report.tokens_after
    assert agent.messages[: len(HISTORY)] == HISTORY


# -- pairs -----------------------------------------------------------------------------------------------------


def test_a_conversation_that_is_whole_is_left_alone() -> None:
    messages: list[Any] = [ask("q"), say("", "a", "b"), answer("a"), answer("b"), say("r"), ask("q2")]
    assert repair_pairs(messages) == messages
    assert repair_pairs([]) == []


REPAIRS: dict[str, tuple[list[LlmMessage], list[Any]]] = {
    "a call without a result": ([ask("q"), say("", "a")], ["q", ["a"], missing("a")]),
    "one call of two without a result": (
        [say("", "a", "b"), answer("b"), ask("q")],
        [["a", "b"], missing("a"), ("b", False), "q"],
    ),
    "a result without a call": ([ask("q"), answer("a"), say("r")], ["q", "r"]),
    "a result for another call": ([say("", "a"), answer("z")], [["a"], missing("a")]),
    "a result given twice": ([say("", "a"), answer("a", "first"), answer("a", "second")], [["a"], ("a", False)]),
    "a result before its call": ([answer("a"), say("", "a")], [["a"], missing("a")]),
    "a result behind a question": ([say("", "a"), ask("q"), answer("a")], [["a"], ("a", False), "q"]),
    "results in another order": (
        [say("", "a", "b"), answer("b"), answer("a")],
        [["a", "b"], ("a", False), ("b", False)],
    ),
    "an id that is used again": (
        [say("", "a"), answer("a"), say("", "a"), answer("a")],
        [["a"], ("a", False), ["a"], ("a", False)],
    ),
    "an id that is used again, first without a result": (
        [say("", "a"), say("", "a"), answer("a")],
        [["a"], missing("a"), ["a"], ("a", False)],
    ),
    "an assistant message with nothing in it": ([ask("q"), AssistantMessage([]), ask("q2")], ["q", "q2"]),
    "an assistant message with an empty text": ([ask("q"), AssistantMessage("")], ["q"]),
    "an empty message between a call and its result": (
        [say("", "a"), AssistantMessage([]), answer("a")],
        [["a"], ("a", False)],
    ),
    "a failed message that said something": (
        [ask("q"), say("half", stop_reason=StopReason.ERROR), ask("q2")],
        ["q", "half", "q2"],
    ),
    "a failed message that said nothing": ([ask("q"), say("", stop_reason=StopReason.ABORTED), ask("q2")], ["q", "q2"]),
}


@pytest.mark.table
@pytest.mark.parametrize("case", REPAIRS)
def test_a_broken_conversation_is_mended(case: str) -> None:
    messages, expected = REPAIRS[case]
    before = list(messages)
    assert outline(repair_pairs(messages)) == expected
    assert messages == before


def test_mended_messages_are_not_changed_again() -> None:
    for messages, _ in REPAIRS.values():
        once = repair_pairs(iter(messages))
        assert repair_pairs(once) == once
        assert repair_pairs(messages) == once


def test_a_result_that_was_made_up_says_so_and_names_the_tool() -> None:
    made_up = repair_pairs([say("", "a")])[1]
    assert isinstance(made_up, ToolResultMessage)
    assert (made_up.tool_call_id, made_up.tool_name, made_up.is_error) == ("a", "look", True)
    assert made_up.timestamp == 1  # that of its call: mended again tomorrow, it is the same message
    assert made_up.content


def test_the_first_of_two_results_is_the_one_that_counts() -> None:
    repaired = repair_pairs([say("", "a"), answer("a", "first"), answer("a", "second")])
    assert repaired[1] == answer("a", "first")


def test_a_signed_thought_is_something_to_send() -> None:
    thought = AssistantMessage([Thinking("hm", "signature")])
    assert repair_pairs([ask("q"), thought]) == [ask("q"), thought]


# -- snapshots -------------------------------------------------------------------------------------------------


def test_a_snapshot_does_not_see_what_comes_later() -> None:
    growing = [1, 2, 3]
    snapshot = Snapshot(growing)
    growing.append(4)
    assert len(snapshot) == 3
    assert list(snapshot) == [1, 2, 3]
    assert 4 not in snapshot


def test_a_snapshot_is_read_like_a_tuple() -> None:
    growing = list(range(5))
    snapshot = Snapshot(growing)
    growing.append(5)
    assert (snapshot[0], snapshot[-1]) == (0, 4)
    assert snapshot[1:3] == (1, 2)
    assert snapshot[-2:] == (3, 4)
    assert snapshot[::-1] == (4, 3, 2, 1, 0)
    assert list(reversed(snapshot)) == [4, 3, 2, 1, 0]
    for index in (5, -6):
        with pytest.raises(IndexError):
            snapshot[index]


def test_a_snapshot_equals_whatever_holds_the_same_messages() -> None:
    snapshot = Snapshot([1, 2])
    assert snapshot == [1, 2] == snapshot
    assert snapshot == (1, 2)
    assert snapshot == Snapshot([1, 2])
    assert snapshot != [1, 2, 3]
    assert snapshot != [1, 3]
    assert snapshot != "12"
    assert hash(snapshot) == hash(Snapshot([1, 2]))


def test_a_snapshot_can_be_pickled() -> None:
    growing: list[Any] = [ask("a"), say("b", "c")]
    snapshot = Snapshot(growing)
    growing.append(ask("later"))
    copy = pickle.loads(pickle.dumps(snapshot))
    assert copy == snapshot
    assert len(copy) == 2
