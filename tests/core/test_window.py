"""The sliding window in a run: the stable beginning of requests, and the effect of the provider's counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentMessage,
    AssistantMessage,
    Base64Image,
    ContextCompacted,
    CustomMessage,
    Image,
    ModelSpec,
    SlidingWindow,
    StreamDone,
    StreamOptions,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    estimate_tokens,
    extract_text,
    tool,
)
from swink_agent.adapters import AnthropicStreamFn, OpenAiStreamFn
from swink_agent.core.context.window import tokens_per_count
from swink_agent.memory import SummarizingCompactor
from swink_agent.testing import call, check_conversation, scripted
from swink_agent.testing.script import ScriptedStream
from tests.request_bytes import changed_bytes

MODEL = ModelSpec("test", "model")


@tool
def look(number: int) -> str:
    """Looks."""
    return f"{number}:" + f" seen {number} things\n" * 60


# -- the same bytes, turn after turn ---------------------------------------------------------------------------

BUILDERS: list[tuple[Any, ModelSpec]] = [
    (AnthropicStreamFn(api_key="k"), ModelSpec("anthropic", "claude-sonnet-4-6")),
    (OpenAiStreamFn(api_key="k"), ModelSpec("openai", "gpt-4o")),
]


async def long_run(turns: int, **settings: Any) -> ScriptedStream:
    script = scripted(*[call("look", number=number) for number in range(turns)], "done")
    agent = Agent(MODEL, stream_fn=script, tools=[look], system_prompt="Be brief.", max_turns=None, **settings)
    assert (await agent.prompt("Count everything.")).text == "done"
    return script


@pytest.mark.slow
@pytest.mark.parametrize(("builder", "model"), BUILDERS, ids=["anthropic", "openai"])
async def test_between_two_cuts_a_request_is_the_one_before_with_more_behind_it(builder: Any, model: ModelSpec) -> None:
    script = await long_run(300, transform_context=SlidingWindow(20_000))
    mark = b',"cache_control":{"type":"ephemeral"}'  # where a cache may end moves along; what is cached does not change
    bodies = [builder.build(model, each.context, StreamOptions()).body.replace(mark, b"") for each in script.requests]
    again = changed_bytes(bodies)
    closing = 10  # the brackets at the end
    cuts = [position for position, size in enumerate(again) if size > closing]
    assert 3 <= len(cuts) <= 12, "each cut makes room for many turns"
    assert min(second - first for first, second in pairwise(cuts)) >= 20
    changed, sent = sum(again), sum(map(len, bodies))
    assert changed / sent < 0.03, f"{changed:,} of {sent:,} bytes that had been sent before were sent otherwise"


async def test_a_window_that_moved_with_every_turn_would_change_nearly_everything() -> None:
    """The measure can tell: this is what the slack is for."""

    def newest(messages: Sequence[AgentMessage], overflow: bool) -> list[AgentMessage]:
        return [messages[0], *messages[1:][-40:]]

    script = await long_run(100, transform_context=newest)
    builder, model = BUILDERS[1]
    bodies = [builder.build(model, each.context, StreamOptions()).body for each in script.requests]
    again = changed_bytes(bodies)
    assert sum(again) / sum(map(len, bodies)) > 0.5


# -- what the provider counts ----------------------------------------------------------------------------------


def said(reported: int, **fields: Any) -> AssistantMessage:
    return AssistantMessage("well", usage=Usage(reported), timestamp=1, **fields)


def sized(tokens: int) -> UserMessage:
    return UserMessage("x" * (4 * tokens - 16), timestamp=0)


def rate(messages: Sequence[AgentMessage], **known: Any) -> float:
    return tokens_per_count(messages, [estimate_tokens(message) for message in messages], **known)


def test_the_last_report_says_how_much_a_counted_token_really_is() -> None:
    assert rate([sized(1_000)]) == 1.0
    assert rate([sized(1_000), said(2_000)]) == 2.0
    assert rate([sized(1_000), said(2_000), sized(9_000)]) == 2.0, "what came later is not in the report"
    assert rate([sized(1_000), AssistantMessage("well", usage=Usage(500, 9, 600, 900))]) == 2.0, "cached ones count"
    assert rate([sized(1_000), said(2_000)], fixed=1_000) == 1.0, "prompt and tools are in it too"
    assert rate([sized(1_000), said(700)]) == 0.7


def test_one_odd_report_does_no_harm() -> None:
    assert rate([sized(1_000), said(0)]) == 1.0
    assert rate([sized(1_000), said(-5)]) == 1.0
    assert rate([sized(1_000), said(3)]) == 1.0, "nothing is so short"
    assert rate([sized(1_000), said(10**9)]) == 1.0, "and nothing so long"
    assert rate([sized(1_000), said(400)]) == 0.5
    assert rate([sized(1_000), said(6_000)]) == 4.0
    assert rate([said(2_000)]) == 1.0
    failed: Any = AssistantMessage("", usage=Usage(9_000), stop_reason="error", error_message="no")
    assert rate([sized(1_000), said(2_000), failed]) == 2.0, "a failed reply is passed over"


def test_a_report_about_another_context_says_nothing_of_this_one() -> None:
    messages = [sized(1_000), said(2_000), sized(10)]
    assert rate(messages, fresh_from=1) == 2.0
    assert rate(messages, fresh_from=2) == 1.0


def exchanges(number: int) -> list[AgentMessage]:
    return [message for _ in range(number) for message in (sized(100), said(0))]


def test_a_window_goes_by_what_the_provider_counted() -> None:
    messages: list[AgentMessage] = [*exchanges(8), sized(100)]
    counted = estimate_tokens(messages)
    assert SlidingWindow(counted)(messages, False) is None
    dense = [*messages, said(2 * counted), sized(10)]
    kept = SlidingWindow(int(1.5 * counted))(dense, False)
    assert kept is not None, "the provider says that it is twice as much"
    assert 2 * estimate_tokens(kept) <= 1.5 * counted
    sparse = [*messages, said(counted // 2), sized(10)]
    assert SlidingWindow(counted // 3 * 2)(sparse, False) is None, "the provider says that it is half as much"


def test_after_an_overflow_no_report_allows_more_than_the_budget() -> None:
    messages: list[AgentMessage] = [*exchanges(20), said(estimate_tokens(exchanges(20)) // 2), sized(10)]
    kept = SlidingWindow(1_000, overflow_tokens=5_000)(messages, True)
    assert kept is not None
    assert estimate_tokens(kept) <= 1_000


def test_another_models_tokens_do_not_count() -> None:
    def of(model_id: str, reported: int) -> AssistantMessage:
        return said(reported, provider="test", model_id=model_id)

    messages = [sized(1_000), of("small", 2_000), sized(1_000), of("large", 1_000)]
    assert rate(messages) == pytest.approx(0.5, abs=0.01)
    assert rate(messages, model=ModelSpec("test", "small")) == 2.0, "its own last report"
    assert rate(messages, model=ModelSpec("other", "small")) == 1.0
    assert rate([sized(1_000), said(2_000)], model=MODEL) == 2.0, "of whom it is unknown counts"


async def test_a_change_of_models_does_not_let_the_next_one_be_sent_more_than_it_takes() -> None:
    first = Agent(MODEL, stream_fn=(model := Counting("well", rate=0.5)), messages=exchanges(80))
    assert (await first.prompt("go")).text == "well"
    assert model.sizes[0] > 4_000
    sent: list[int] = []
    script = scripted(lambda request: sent.append(estimate_tokens(request.messages)) or "fine")
    second = Agent("test:other", stream_fn=script, messages=first.messages, transform_context=SlidingWindow(5_000))
    assert (await second.prompt("and now?")).text == "fine"
    assert sent[0] <= 5_000


class Counting:
    """A scripted model that counts what it reads, `rate` times what we count."""

    def __init__(self, *replies: Any, rate: float) -> None:
        self.script = scripted(*replies)
        self.rate = rate
        self.sizes: list[int] = []

    async def __call__(self, model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
        self.sizes.append(int(self.rate * estimate_tokens(context.messages)))
        async for event in self.script(model, context, options, cancel):
            if isinstance(event, StreamDone):
                event = msgspec.structs.replace(event, usage=Usage(self.sizes[-1]))
            yield event


async def test_a_context_that_was_just_compacted_is_not_compacted_again_for_old_reports() -> None:
    """The replies that are kept tell the size of what was sent to them, not of what is left of it."""
    model = Counting(*[call("look", number=number) for number in range(60)], "done", "again", rate=2.0)
    agent = Agent(MODEL, stream_fn=model, tools=[look], transform_context=SlidingWindow(12_000))
    cuts: list[AgentEvent] = []
    agent.subscribe(lambda event: cuts.append(event) if isinstance(event, ContextCompacted) else None)
    assert (await agent.prompt("go")).text == "done"
    assert 10_000 < max(model.sizes) <= 12_500, "as the provider counts, give or take a result"
    assert 2 <= len(cuts) <= 10
    assert (await agent.compact()) is not None
    del cuts[:]
    assert (await agent.prompt("and?")).text == "again"
    assert cuts == []


@pytest.mark.parametrize("made", [SlidingWindow, SummarizingCompactor])
async def test_each_message_is_counted_once_however_many_turns_follow(made: Any) -> None:
    counted: list[AgentMessage] = []

    def count(message: AgentMessage) -> int:
        counted.append(message)
        return 10

    script = scripted(*[call("look", number=number) for number in range(20)], "done", "again")
    history = [message for _ in range(2_000) for message in (sized(10), said(0))]
    agent = Agent(
        MODEL, stream_fn=script, tools=[look], messages=history, transform_context=made(max_tokens=50_000, count=count)
    )
    assert (await agent.prompt("go")).text == "done"
    assert (await agent.prompt("and?")).text == "again"
    prompts_and_tools = 22  # what every request holds besides its messages
    assert len(counted) <= len(agent.messages) + prompts_and_tools


# -- on demand -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", [False, True])
def test_first_messages_that_leave_no_room_do_not_stay(overflow: bool) -> None:
    """One that is larger than the window would keep the conversation from ever going on, also when it is resumed."""
    window = SlidingWindow(1_000, overflow_tokens=500)
    huge, refused, small = UserMessage("u" * 40_000), AssistantMessage("too long"), UserMessage("s" * 40)
    later = [UserMessage("and now?")]
    assert window([huge, refused, *later], overflow) == later
    yes = AssistantMessage("yes")  # one, as two may be of different milliseconds
    assert window([huge, refused, small, yes, *later], overflow) == [small, yes, *later]
    pinned = [small, AssistantMessage("yes"), huge, refused, *later]
    assert window(pinned, overflow) == [*pinned[:2], refused, *later], "those that fit stay"
    assert window([small, refused, huge], overflow) is None, "where nothing helps, nothing is lost for it"


async def test_on_demand_a_window_goes_down_to_half_of_what_there_is() -> None:
    agent = Agent(MODEL, stream_fn=scripted(), messages=exchanges(20), transform_context=SlidingWindow())
    before = estimate_tokens(list(agent.messages))
    report = await agent.compact()
    assert report is not None
    assert (report.tokens_before, report.overflow) == (before, False)
    assert before // 4 < report.tokens_after <= before // 2
    assert report.dropped_count > 10
    assert len(agent.messages) == 40, "the history stays as it is"


async def test_a_result_that_is_too_long_is_shortened_on_demand_with_no_message_dropped() -> None:
    long = ToolResultMessage("1", "x" * 40_000, tool_name="look")
    history = [UserMessage("go"), AssistantMessage([ToolCall("1", "look", {"number": 1})]), long]
    seen: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(), messages=history, transform_context=SlidingWindow())
    agent.subscribe(seen.append)
    report = await agent.compact()
    assert report is not None
    assert report.dropped_count == 0
    assert report.tokens_after <= report.tokens_before // 2
    assert seen == [], "an event tells of dropped messages"


# -- results of any kind ---------------------------------------------------------------------------------------

PICTURE = Image(Base64Image("image/png", "aGk="))


def looked(*content: Any) -> list[AgentMessage]:
    """A request, a call, and a result with this in it."""
    blocks = [Text(block) if isinstance(block, str) else block for block in content]
    call = AssistantMessage([ToolCall("1", "look", {"number": 1})], timestamp=0)
    return [UserMessage("go", timestamp=0), call, ToolResultMessage("1", blocks, tool_name="look", timestamp=0)]


def in_bytes(message: AgentMessage) -> int:
    """As the standard agent counts: what is not ASCII is more."""
    return 1 if isinstance(message, CustomMessage) else len(msgspec.json.encode(message.content)) // 3


DENSE_ENDS = ["漢" * 20_000 + "a" * 400_000 + "漢" * 20_000, "\x00" * 20_000 + "a" * 400_000 + "\x00" * 20_000]


@pytest.mark.parametrize("text", [*DENSE_ENDS, "👩‍👩‍👧" * 30_000, "\n" * 200_000], ids=["han", "nul", "emoji", "lines"])
def test_a_result_whose_ends_are_denser_than_its_middle_fits_all_the_same(text: str) -> None:
    for budget in (2_000, 20_000):
        kept = SlidingWindow(budget, count=in_bytes)(looked(text), False)
        assert kept is not None
        assert budget * 0.6 < sum(map(in_bytes, kept)) <= budget
        shown = extract_text(kept[2].content)  # type: ignore[union-attr]
        assert shown.startswith(text[:50])
        assert shown.endswith(text[-50:])


@pytest.mark.table
@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.parametrize("times", [1, 3, 30])
def test_one_huge_result_costs_no_other_message(times: int, overflow: bool) -> None:
    """It is shortened first: a conversation that is short but for it stays whole, and so do the bytes sent before."""
    messages = [*exchanges(15), *looked("<r>" + "x" * 40_000 * times + "</r>")]
    window = SlidingWindow(10_000, overflow_tokens=6_000)
    kept = window(messages, overflow)
    assert kept is not None
    assert kept[:-1] == messages[:-1]
    assert 5_500 <= estimate_tokens(kept) <= (6_000 if overflow else 10_000)
    again = window([*kept, AssistantMessage("so"), *exchanges(3)], False)
    assert (again or kept)[: len(messages) - 1] == messages[:-1], "and the turn after it"


def test_a_huge_result_leaves_the_newest_messages_their_third() -> None:
    messages = [*exchanges(200), *looked("x" * 400_000)]
    kept = SlidingWindow(10_000)(messages, False)
    assert kept is not None
    assert 9_000 <= estimate_tokens(kept) <= 10_000
    assert 2_500 <= estimate_tokens(kept[:-1]) <= 3_333
    assert kept[2:-1] == messages[-len(kept) + 2 : -1], "the newest"
    again = SlidingWindow(10_000)([*kept, AssistantMessage("so"), *exchanges(3)], False)
    assert again is not None
    assert again[: len(kept) - 1] == kept[:-1], "which are not cut again with the next turn"


def test_a_count_may_be_a_fraction() -> None:
    kept = SlidingWindow(2_000, count=lambda message: estimate_tokens(message) / 1.5)(looked("x" * 40_000), False)  # type: ignore[arg-type, return-value]
    assert kept is not None
    assert 2_000 < estimate_tokens(kept) <= 3_000


def test_pictures_of_a_result_are_removed_where_there_is_no_room_for_them() -> None:
    kept = SlidingWindow(20_000)(looked("what it is", *[PICTURE] * 60), False)
    assert kept is not None
    assert estimate_tokens(kept) <= 20_000
    shown = kept[2].content  # type: ignore[union-attr]
    assert 10 <= shown.count(PICTURE) <= 16, "as many as there is room for"
    assert shown[0] == Text(f"what it is\n[… {60 - shown.count(PICTURE)} images left out to save room …]")
    kept = SlidingWindow(8_000)(looked("x" * 40_000, *[PICTURE] * 5), False)
    assert kept is not None
    assert 7_000 < estimate_tokens(kept) <= 8_000
    assert kept[2].content.count(PICTURE) == 5  # type: ignore[union-attr]


def test_pictures_at_the_start_do_not_keep_a_conversation_from_going_on() -> None:
    messages = [*looked(*[PICTURE] * 60), AssistantMessage("seen"), UserMessage("and now?")]
    for overflow in (False, True):
        kept = SlidingWindow(20_000)(messages, overflow)
        assert kept is not None
        assert estimate_tokens(kept) <= 20_000
        assert kept[-1] is messages[-1]


# -- what the user said ----------------------------------------------------------------------------------------


def test_consecutive_user_messages_stay_as_far_as_they_fit() -> None:
    """A document and a question about it: without the one, the other is of no use."""
    document, question = UserMessage("d" * 24_000), UserMessage("what is wrong with it?")
    for behind in ([], [AssistantMessage("let me see"), *looked("x" * 400)[1:]]):
        messages = [*exchanges(50), document, question, *behind]
        kept = SlidingWindow(10_000)(messages, False)
        assert kept is not None
        assert [message in kept for message in (document, question)] == [True, True]
        assert estimate_tokens(kept) <= 10_000
        kept = SlidingWindow(5_000)(messages, False)
        assert kept is not None
        assert [message in kept for message in (document, question)] == [False, True], "it does not fit"
        assert estimate_tokens(kept) <= 5_000


class Notice(CustomMessage, tag="notice_at_the_start"):
    text: str


@pytest.mark.parametrize("keep_first", [0, 1, 2, 3])
def test_invisible_messages_do_not_begin_a_conversation(keep_first: int) -> None:
    turns = [message for number in range(30) for message in (*looked(f"{number}" + "r" * 400), said(0))]
    messages: list[AgentMessage] = [Notice("a"), Notice("b"), Notice("c"), *turns]
    for budget in range(300, 2_000, 70):
        kept = SlidingWindow(budget, keep_first=keep_first)(messages, False)
        assert kept is not None
        sent = [message for message in kept if not isinstance(message, CustomMessage)]
        assert isinstance(sent[0], UserMessage)
        check_conversation(sent)
