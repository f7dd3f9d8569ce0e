"""The agent between and around its runs: construction, state, ways to run it, and the rule of one run at a time."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentEvent,
    AlreadyRunning,
    AssistantMessage,
    Base64Image,
    Cost,
    CustomMessage,
    ErrorKind,
    FileImage,
    Image,
    InvalidContinue,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelSpec,
    NoMessages,
    PolicyContext,
    ProposedCall,
    Reject,
    Stop,
    StopReason,
    StreamError,
    Text,
    ThinkingBudgets,
    ThinkingLevel,
    ToolCall,
    ToolContext,
    ToolExecutionStart,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UrlImage,
    Usage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.testing import FakeClock, call, check_events, collect, fail, names, reply, scripted, stall, text

MODEL = ModelSpec("test", "model")


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool
async def echo(text: str) -> str:
    """Says it again."""
    return text


class Notice(CustomMessage, tag="notice"):
    text: str


def spoken(agent: Agent) -> list[str]:
    """The history as text, one string for each message."""
    return [extract_text(getattr(message, "content", ())) for message in agent.messages]


# -- construction --------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"model": "no-colon"}, ValueError, "provider:model"),
        ({"model": ":model"}, ValueError, "provider:model"),
        ({"model": "provider:"}, ValueError, "provider:model"),
        ({"tools": [add, add]}, ValueError, "'add'"),
        ({"tools": [lambda: None]}, TypeError, "@tool"),
        ({"tools": ["add"]}, TypeError, "not a tool"),
        ({"messages": [42]}, TypeError, "int"),
        ({"messages": [{"role": "user", "content": "hi"}]}, TypeError, "dict"),
        ({"steering_mode": "some"}, ValueError, "one_at_a_time"),
        ({"follow_up_mode": "some"}, ValueError, "one_at_a_time"),
        ({"approval_mode": "sometimes"}, ValueError, "sometimes"),
        ({"tool_execution": "parallel"}, ValueError, "concurrent"),
        ({"policies": [object()]}, TypeError, "not a policy"),
        ({"fallbacks": [("no-colon", None)]}, ValueError, "provider:model"),
    ],
)
def test_a_mistake_in_the_construction_is_named_at_once(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Agent(**{"model": MODEL, "stream_fn": scripted(), **arguments})


def test_a_new_agent_is_idle_and_has_what_it_was_given() -> None:
    agent = Agent("test:model", system_prompt="Be brief.", tools=[add], messages=["hello", Notice("n")])
    assert agent.model == MODEL
    assert agent.thinking_level == ThinkingLevel.OFF
    assert agent.system_prompt == "Be brief."
    assert agent.tools == (add,)
    assert len(agent.messages) == 2
    assert isinstance(agent.messages[0], UserMessage)
    assert agent.messages[1] == Notice("n")
    assert not agent.is_running
    assert agent.streaming_message is None
    assert agent.pending_tool_calls == frozenset()
    assert agent.last_error is None
    assert not agent.has_queued_messages


def test_two_agents_share_nothing_that_can_change() -> None:
    first, second = Agent(MODEL, stream_fn=scripted()), Agent(MODEL, stream_fn=scripted())
    first.messages.append("one")
    first.state["key"] = 1
    first.steer("m")
    assert len(second.messages) == 0
    assert dict(second.state) == {}
    assert not second.has_queued_messages


def test_the_repr_names_the_model_and_the_sizes_and_no_content() -> None:
    agent = Agent(MODEL, system_prompt="secret plan", tools=[add], messages=["secret words"], stream_fn=scripted())
    shown = repr(agent)
    assert "test:model" in shown
    assert "1 tools" in shown
    assert "1 messages" in shown
    assert "running" not in shown
    assert "secret" not in shown


async def test_the_repr_says_when_the_agent_is_running() -> None:
    shown: list[str] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(lambda event: shown.append(repr(agent)))
    await agent.prompt("hi")
    assert all("running" in text for text in shown)
    assert "running" not in repr(agent)


# -- state ---------------------------------------------------------------------------------------------------


async def test_a_model_may_be_of_a_class_of_the_application() -> None:
    class Priced(ModelSpec, frozen=True):
        euros: float = 0

    stream = scripted("hello")
    await Agent(Priced("test", "model", euros=2), stream_fn=stream).prompt("hi")
    assert stream.requests[0].model == Priced("test", "model", euros=2)


@pytest.mark.parametrize("model", ["other:bigger", ModelSpec("other", "bigger")])
async def test_the_next_run_asks_the_model_that_was_assigned(model: str | ModelSpec) -> None:
    stream = scripted("one", "two")
    agent = Agent(MODEL, stream_fn=stream)
    await agent.prompt("first")
    agent.model = model
    result = await agent.prompt("second")
    assert [request.model for request in stream.requests] == [MODEL, ModelSpec("other", "bigger")]
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.provider, last.model_id) == ("other", "bigger")


def test_an_invalid_model_is_refused_and_the_old_one_stays() -> None:
    agent = Agent(MODEL, stream_fn=scripted())
    with pytest.raises(ValueError, match="provider:model"):
        agent.model = "nonsense"
    assert agent.model == MODEL


async def test_the_thinking_level_is_the_models_and_leaves_the_rest_of_it_alone() -> None:
    stream = scripted("ok")
    budgets = ThinkingBudgets({ThinkingLevel.HIGH: 9000})
    agent = Agent(ModelSpec("test", "model", thinking_budgets=budgets), stream_fn=stream)
    agent.thinking_level = "high"
    assert agent.thinking_level is ThinkingLevel.HIGH
    await agent.prompt("hi")
    assert stream.requests[0].model == ModelSpec("test", "model", ThinkingLevel.HIGH, budgets)


def test_an_unknown_thinking_level_is_refused() -> None:
    agent = Agent(MODEL, stream_fn=scripted())
    with pytest.raises(ValueError, match="enormous"):
        agent.thinking_level = "enormous"
    assert agent.thinking_level is ThinkingLevel.OFF


async def test_the_next_run_has_the_tools_and_the_system_prompt_that_were_assigned() -> None:
    stream = scripted("one", call("echo", text="hi"), "done")
    agent = Agent(MODEL, system_prompt="before", stream_fn=stream, tools=[add])
    await agent.prompt("first")
    agent.tools = [echo]
    agent.system_prompt = "after"
    result = await agent.prompt("second")
    assert [tuple(request.context.tools) for request in stream.requests] == [(add,), (echo,), (echo,)]
    assert [request.context.system_prompt for request in stream.requests] == ["before", "after", "after"]
    assert [type(message).__name__ for message in result.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolResultMessage",
        "AssistantMessage",
    ]
    assert spoken(agent)[-2:] == ["hi", "done"]


def test_two_tools_of_one_name_cannot_be_assigned() -> None:
    agent = Agent(MODEL, stream_fn=scripted(), tools=[echo])
    with pytest.raises(ValueError, match="'add'"):
        agent.tools = [add, add]
    assert agent.tools == (echo,)


async def test_a_change_of_model_and_tools_during_a_run_is_for_the_next_one() -> None:
    stream = scripted(call("change"), "one", "two")

    @tool
    async def change() -> str:
        """Changes the agent that runs it."""
        agent.model = "other:model"
        agent.tools = [echo]
        return "changed"

    agent = Agent(MODEL, stream_fn=stream, tools=[change])
    await agent.prompt("first")
    await agent.prompt("second")
    assert [str(request.model) for request in stream.requests] == ["test:model", "test:model", "other:model"]
    assert [tuple(request.context.tools) for request in stream.requests] == [(change,), (change,), (echo,)]


async def test_assigning_the_state_is_refused_or_reaches_the_tools() -> None:
    seen: list[dict[str, Any]] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Looks at the state."""
        seen.append(dict(ctx.state))
        return "seen"

    agent = Agent(MODEL, stream_fn=scripted(call("look"), "ok"), tools=[look])
    try:
        agent.state = {"key": 1}
    except AttributeError:
        return
    await agent.prompt("hi")
    assert seen == [{"key": 1}]


# -- the history ---------------------------------------------------------------------------------------------


async def test_the_history_can_be_appended_to_and_the_model_sees_it() -> None:
    stream = scripted("ok")
    agent = Agent(MODEL, stream_fn=stream)
    agent.messages.append("a string")
    agent.messages.append(AssistantMessage("a reply"))
    agent.messages.extend(["two", UserMessage("more")])
    await agent.prompt("now")
    assert spoken(agent) == ["a string", "a reply", "two", "more", "now", "ok"]
    assert list(stream.requests[0].messages) == agent.messages[:5]


async def test_the_history_can_be_cleared_and_assigned() -> None:
    stream = scripted("one", "two", "three")
    agent = Agent(MODEL, stream_fn=stream)
    await agent.prompt("first")
    agent.messages.clear()
    assert agent.messages == []
    await agent.prompt("second")
    assert spoken(agent) == ["second", "two"]
    agent.messages = [UserMessage("other"), AssistantMessage("life")]
    await agent.prompt("third")
    assert spoken(agent) == ["other", "life", "third", "three"]
    assert [len(request.messages) for request in stream.requests] == [1, 1, 3]


async def test_the_history_can_be_edited_like_a_list() -> None:
    stream = scripted("ok")
    agent = Agent(MODEL, stream_fn=stream, messages=["a", "b", "c"])
    agent.messages.insert(0, "start")
    agent.messages[1] = UserMessage("A")
    del agent.messages[2]
    agent.messages += ["d"]
    assert spoken(agent) == ["start", "A", "c", "d"]
    agent.messages[1:3] = ["x"]
    popped = agent.messages.pop()
    assert isinstance(popped, UserMessage)
    assert popped.content == (Text("d"),)
    await agent.prompt("go")
    assert spoken(agent) == ["start", "x", "go", "ok"]
    assert len(stream.requests[0].messages) == 3


async def test_messages_that_are_added_with_plus_do_not_undo_a_compaction() -> None:
    stream = scripted(text("one"), text("two"))
    agent = Agent(
        MODEL,
        stream_fn=stream,
        messages=["a", "b", "c"],
        transform_context=lambda messages, overflow: messages[-1:] if len(messages) > 3 else None,
    )
    await agent.prompt("d")
    agent.messages += ["e"]
    assert len(agent.messages) == 6
    await agent.continue_loop()
    assert [extract_text(getattr(message, "content", ())) for message in stream.requests[-1].messages] == [
        "d",
        "one",
        "e",
    ]


def test_a_history_taken_once_stays_live() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    messages = agent.messages
    result = agent.prompt_sync("hi")
    assert messages == list(result.messages)
    assert len(messages) == 2
    assert messages[-1] is result.messages[-1]


@pytest.mark.parametrize("wrong", [42, {"role": "user"}, None])
def test_only_messages_enter_the_history(wrong: Any) -> None:
    agent = Agent(MODEL, stream_fn=scripted(), messages=["kept"])
    changes: list[Callable[[], object]] = [
        lambda: agent.messages.append(wrong),
        lambda: agent.messages.insert(0, wrong),
        lambda: agent.messages.__setitem__(0, wrong),
        lambda: setattr(agent, "messages", [wrong]),
    ]
    for change in changes:
        with pytest.raises(TypeError):
            change()
    assert spoken(agent) == ["kept"]


CHANGES: list[Callable[[Agent], object]] = [
    lambda agent: agent.messages.append("x"),
    lambda agent: agent.messages.extend(["x"]),
    lambda agent: agent.messages.insert(0, "x"),
    lambda agent: agent.messages.clear(),
    lambda agent: agent.messages.pop(),
    lambda agent: agent.messages.__setitem__(0, UserMessage("x")),
    lambda agent: agent.messages.__delitem__(0),
    lambda agent: setattr(agent, "messages", []),
    lambda agent: agent.reset(),
]


async def test_the_history_belongs_to_the_run_that_goes_on() -> None:
    refusals: list[type[BaseException]] = []

    @tool
    async def meddle() -> str:
        """Tries everything."""
        for change in CHANGES:
            try:
                change(agent)
            except AlreadyRunning as error:
                refusals.append(type(error))
        return f"{len(agent.messages)} messages, the first is {spoken(agent)[0]}"

    agent = Agent(MODEL, stream_fn=scripted(call("meddle"), "ok"), tools=[meddle])
    result = await agent.prompt("hi")
    assert refusals == [AlreadyRunning] * len(CHANGES)
    assert spoken(agent) == ["hi", "", "2 messages, the first is hi", "ok"]
    assert agent.messages == list(result.messages)


async def test_the_history_can_be_changed_as_soon_as_the_end_is_read() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    async for event in agent.prompt_stream("hi"):
        if type(event).__name__ == "AgentEnd":
            agent.messages.clear()
    assert agent.messages == []


async def test_the_history_after_is_the_history_before_and_the_runs_messages() -> None:
    stream = scripted(call("add", a=1, b=2), "3", fail("auth"), reply("half", stall()))
    agent = Agent(MODEL, stream_fn=stream, tools=[add], messages=["earlier", AssistantMessage("yes")])
    agent.subscribe(lambda event: agent.abort() if is_delta(event, "half") else None)
    for prompt in ("1+2?", "fails", "is aborted"):
        before = list(agent.messages)
        result = await agent.prompt(prompt)
        assert list(agent.messages) == before + list(result.messages)
        assert len(result.messages) >= 2


def is_delta(event: AgentEvent, content: str) -> bool:
    return isinstance(event, MessageUpdate) and event.delta.delta == content


# -- prompts -------------------------------------------------------------------------------------------------


async def test_a_prompt_is_a_string_a_message_or_a_list_of_either() -> None:
    stream = scripted("1", "2", "3")
    agent = Agent(MODEL, stream_fn=stream)
    await agent.prompt("string")
    await agent.prompt(UserMessage("message"))
    await agent.prompt(["one", Notice("not sent"), UserMessage("two")])
    assert [len(request.messages) for request in stream.requests] == [1, 3, 6]
    assert [type(m).__name__ for m in agent.messages[4:]] == [
        "UserMessage",
        "Notice",
        "UserMessage",
        "AssistantMessage",
    ]


async def test_images_follow_the_text_of_the_prompt(tmp_path: Path) -> None:
    stream = scripted("nice", "nice")
    agent = Agent(MODEL, stream_fn=stream)
    (tmp_path / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    inline, linked = Base64Image("image/png", "aGk="), UrlImage("https://a.example/b.png")
    local = FileImage(str(tmp_path / "c.png"))
    result = await agent.prompt("look", images=[Image(inline), linked, local])
    first = result.messages[0]
    assert isinstance(first, UserMessage)
    assert first.content == (Text("look"), Image(inline), Image(linked), Image(local))
    assert stream.requests[0].messages[0] is first
    events = await collect(agent.prompt_stream("again", images=[linked]))
    assert names(events)[-1] == "AgentEnd"
    second = agent.messages[2]
    assert isinstance(second, UserMessage)
    assert second.content == (Text("again"), Image(linked))


@pytest.mark.parametrize(
    ("prompt", "images"),
    [
        (["one", "two"], [UrlImage("https://a.example/b.png")]),
        (UserMessage("one"), [UrlImage("https://a.example/b.png")]),
        ("one", ["https://a.example/b.png"]),
        (42, []),
        ([42], []),
    ],
)
async def test_a_prompt_that_cannot_be_is_refused_and_leaves_the_agent_idle(prompt: Any, images: Any) -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    with pytest.raises(TypeError):
        await agent.prompt(prompt, images=images)
    with pytest.raises(TypeError):
        agent.prompt_stream(prompt, images=images)
    assert not agent.is_running
    assert agent.messages == []
    assert (await agent.prompt("fine")).text == "ok"


SCRIPT = """
from swink_agent import Agent, tool
from swink_agent.testing import call, scripted

@tool
def add(a: int, b: int) -> int:
    return a + b

agent = Agent("test:model", stream_fn=scripted(call("add", a=2, b=3), "five", "again"), tools=[add])
assert agent.prompt_sync("2+3?").text == "five"
assert agent.prompt_sync("and?").text == "again"
assert not agent.is_running
assert len(agent.messages) == 6
"""


@pytest.mark.slow
def test_prompt_sync_in_a_script_runs_and_lets_the_script_end() -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_prompt_sync_in_a_thread() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=2, b=3), "five"), tools=[add])
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(agent.prompt_sync("2+3?").text))
    thread.start()
    thread.join(10)
    assert texts == ["five"]


async def test_prompt_sync_inside_a_running_event_loop() -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=2, b=3), "five", "six"), tools=[add])
    agent.subscribe(events.append)
    assert agent.prompt_sync("2+3?").text == "five"
    check_events(events)
    assert (await agent.prompt("and in this loop?")).text == "six"


# -- continuing ----------------------------------------------------------------------------------------------

FAILED = AssistantMessage("half", stop_reason=StopReason.ERROR, error_message="no", error_kind=ErrorKind.NETWORK)
ABORTED = AssistantMessage("", stop_reason=StopReason.ABORTED, error_message="no", error_kind=ErrorKind.ABORTED)
CALL = AssistantMessage([ToolCall("c", "add", {"a": 1, "b": 2})], stop_reason=StopReason.TOOL_USE)
RESULT = ToolResultMessage("c", "3", tool_name="add")

WAYS_TO_CONTINUE: dict[str, Callable[[Agent], Awaitable[object]]] = {
    "continue_loop": lambda agent: agent.continue_loop(),
    "continue_loop_stream": lambda agent: collect(agent.continue_loop_stream()),
    "continue_loop_sync": lambda agent: asyncio.to_thread(agent.continue_loop_sync),
}


async def test_an_empty_history_cannot_be_continued() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    for continue_it in WAYS_TO_CONTINUE.values():
        with pytest.raises(NoMessages):
            await continue_it(agent)
    agent.follow_up("queued")
    for continue_it in WAYS_TO_CONTINUE.values():
        with pytest.raises(NoMessages):
            await continue_it(agent)
    assert not agent.is_running
    assert agent.has_queued_messages


@pytest.mark.parametrize("tail", [[], [FAILED], [ABORTED, FAILED]], ids=["none", "failed", "two failed"])
async def test_after_the_assistants_last_word_there_is_nothing_to_continue(tail: list[AssistantMessage]) -> None:
    stream = scripted("ok")
    agent = Agent(MODEL, stream_fn=stream, messages=["hi", AssistantMessage("hello"), *tail])
    for continue_it in WAYS_TO_CONTINUE.values():
        with pytest.raises(InvalidContinue):
            await continue_it(agent)
    assert not agent.is_running
    assert stream.requests == []
    assert len(agent.messages) == 2 + len(tail)


@pytest.mark.table
@pytest.mark.parametrize(
    "history",
    [
        ["hi"],
        ["hi", FAILED],
        ["hi", ABORTED, FAILED],
        ["hi", CALL, RESULT],
        ["hi", CALL, RESULT, ABORTED],
        ["hi", AssistantMessage("hello"), "and?", FAILED],
    ],
)
async def test_unanswered_messages_are_continued_and_failed_replies_do_not_count(history: Any) -> None:
    for continue_it in WAYS_TO_CONTINUE.values():
        stream = scripted("answer")
        agent = Agent(MODEL, stream_fn=stream, messages=history, tools=[add])
        await continue_it(agent)
        assert len(stream.requests) == 1
        assert len(agent.messages) == len(history) + 1
        assert spoken(agent)[-1] == "answer"


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_queued_messages_continue_a_finished_conversation(queue: str) -> None:
    stream = scripted("answer")
    agent = Agent(MODEL, stream_fn=stream, messages=["hi", AssistantMessage("hello")])
    getattr(agent, queue)("more")
    events = await collect(agent.continue_loop_stream())
    check_events(events)
    assert names(events) == [
        "AgentStart",
        "TurnStart",
        "MessagesInjected",
        "MessageStart",
        "MessageUpdate",
        "MessageEnd",
        "TurnEnd",
        "AgentEnd",
    ]
    assert spoken(agent) == ["hi", "hello", "more", "answer"]
    assert not agent.has_queued_messages


async def test_a_message_provider_with_nothing_to_say_does_not_make_a_continuation_valid() -> None:
    class Silence:
        def poll_steering(self) -> list[UserMessage]:
            return []

        async def poll_follow_up(self) -> list[UserMessage]:
            return []

    stream = scripted("answer")
    agent = Agent(MODEL, stream_fn=stream, messages=["hi", AssistantMessage("hello")], message_provider=Silence())
    with pytest.raises(InvalidContinue):
        (await agent.continue_loop()).raise_for_error()
    assert stream.requests == []
    assert spoken(agent) == ["hi", "hello"]


async def test_a_failed_prompt_is_answered_by_continuing() -> None:
    stream = scripted(fail("auth"), "at last")
    agent = Agent(MODEL, stream_fn=stream)
    assert (await agent.prompt("hi")).stop_reason == StopReason.ERROR
    result = await agent.continue_loop()
    assert result.text == "at last"
    assert len(result.messages) == 1
    assert [len(request.messages) for request in stream.requests] == [1, 1]


# -- one run at a time ---------------------------------------------------------------------------------------

WAYS_TO_RUN: dict[str, Callable[[Agent], Awaitable[object]]] = {
    "prompt": lambda agent: agent.prompt("second"),
    "prompt_stream": lambda agent: collect(agent.prompt_stream("second")),
    "prompt_sync": lambda agent: asyncio.to_thread(agent.prompt_sync, "second"),
    "structured_output": lambda agent: agent.structured_output("second", {"type": "object"}),
    **WAYS_TO_CONTINUE,
}


@pytest.mark.table
@pytest.mark.parametrize("way", WAYS_TO_RUN)
async def test_a_second_run_is_refused_and_the_first_goes_on(way: str) -> None:
    stream = scripted(reply("half ", stall()))
    agent = Agent(MODEL, stream_fn=stream)
    first = agent.prompt_stream("first")
    while not isinstance(await anext(first), MessageUpdate):
        pass
    with pytest.raises(AlreadyRunning):
        await WAYS_TO_RUN[way](agent)
    assert agent.is_running
    agent.abort()
    result = await first.result()
    assert result.text == "half "
    assert result.stop_reason == StopReason.ABORTED
    assert len(stream.requests) == 1


async def test_a_second_stream_is_refused_when_it_is_made_not_when_it_is_read() -> None:
    agent = Agent(MODEL, stream_fn=scripted(stall()))
    first = agent.prompt_stream("first")
    with pytest.raises(AlreadyRunning):
        agent.prompt_stream("second")
    with pytest.raises(AlreadyRunning):
        agent.continue_loop_stream()
    await first.aclose()
    assert not agent.is_running


async def test_prompt_sync_in_the_loop_of_the_running_agent_is_refused() -> None:
    refused: list[bool] = []

    @tool
    async def nest() -> str:
        """Prompts the agent that runs it."""
        with pytest.raises(AlreadyRunning):
            agent.prompt_sync("inner")
        refused.append(True)
        return "refused"

    agent = Agent(MODEL, stream_fn=scripted(call("nest"), "ok"), tools=[nest])
    assert (await agent.prompt("outer")).text == "ok"
    assert refused == [True]


async def test_of_many_prompts_at_once_one_runs() -> None:
    stream = scripted(*["ok"] * 8, suspend=True)
    agent = Agent(MODEL, stream_fn=stream)
    outcomes = await asyncio.gather(*[agent.prompt(str(n)) for n in range(8)], return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["AgentResult"] + ["AlreadyRunning"] * 7
    assert spoken(agent) == ["0", "ok"]


# -- while it runs -------------------------------------------------------------------------------------------


async def test_is_running_from_the_first_event_to_the_last() -> None:
    running: list[bool] = []
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=1), "2"), tools=[add])
    agent.subscribe(lambda event: running.append(agent.is_running))
    assert not agent.is_running
    await agent.prompt("hi")
    assert set(running) == {True}
    assert not agent.is_running


async def test_the_streaming_message_is_the_reply_so_far() -> None:
    seen: list[tuple[str, str | None]] = []

    def look(event: AgentEvent) -> None:
        message = agent.streaming_message
        seen.append((type(event).__name__, None if message is None else message.text))

    agent = Agent(MODEL, stream_fn=scripted(text("abcdef", deltas=3)))
    agent.subscribe(look)
    await agent.prompt("hi")
    assert [item for item in seen if item[0] == "MessageUpdate"] == [
        ("MessageUpdate", "ab"),
        ("MessageUpdate", "abcd"),
        ("MessageUpdate", "abcdef"),
    ]
    assert {text for name, text in seen if name in ("AgentStart", "TurnStart", "TurnEnd", "AgentEnd")} == {None}
    assert agent.streaming_message is None


async def test_the_streaming_message_starts_again_with_a_retry() -> None:
    seen: list[str] = []

    def look(event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate) and agent.streaming_message is not None:
            seen.append(agent.streaming_message.text)

    stream = scripted(reply("wrong", fail("network")), text("right", deltas=2))
    agent = Agent(MODEL, stream_fn=stream, sleep=FakeClock().sleep)
    agent.subscribe(look)
    await agent.prompt("hi")
    assert seen == ["wrong", "rig", "right"]


async def test_the_pending_tool_calls_are_those_that_run() -> None:
    both = asyncio.Event()
    seen: list[frozenset[str]] = []

    @tool
    async def first() -> str:
        """Waits for the second."""
        await both.wait()
        seen.append(agent.pending_tool_calls)
        return "1"

    @tool
    async def second() -> str:
        """Comes after the first."""
        both.set()
        return "2"

    replies = [call("first").with_id("a") + call("second").with_id("b"), "ok"]
    agent = Agent(MODEL, stream_fn=scripted(*replies), tools=[first, second])
    after: list[frozenset[str]] = []
    agent.subscribe(lambda event: after.append(agent.pending_tool_calls) if isinstance(event, TurnEnd) else None)
    await agent.prompt("hi")
    assert len(seen) == 1
    assert "a" in seen[0]
    assert seen[0] <= {"a", "b"}
    assert after == [frozenset(), frozenset()]
    assert agent.pending_tool_calls == frozenset()


async def test_no_call_is_pending_after_an_abort() -> None:
    @tool
    async def wait() -> str:
        """Waits for ever."""
        agent.abort()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(MODEL, stream_fn=scripted(call("wait")), tools=[wait])
    await agent.prompt("hi")
    assert agent.pending_tool_calls == frozenset()
    assert agent.streaming_message is None


async def test_the_last_error_is_that_of_the_last_run() -> None:
    stream = scripted(fail("auth", "bad key"), "fine", reply("half", stall()), "fine again")
    agent = Agent(MODEL, stream_fn=stream)
    during: list[str | None] = []
    agent.subscribe(lambda event: during.append(agent.last_error) if isinstance(event, MessageStart) else None)
    agent.subscribe(lambda event: agent.abort() if is_delta(event, "half") else None)
    result = await agent.prompt("1")
    assert agent.last_error == result.error == "bad key"
    await agent.prompt("2")
    assert agent.last_error is None
    result = await agent.prompt("3")
    assert isinstance(result.exception, Aborted)
    assert agent.last_error == result.error
    await agent.prompt("4")
    assert agent.last_error is None
    assert during == [None] * 4


async def test_the_last_error_names_a_cancelled_task() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    started = asyncio.Event()
    agent.subscribe(lambda event: started.set() if isinstance(event, MessageUpdate) else None)
    task = asyncio.create_task(agent.prompt("hi"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agent.last_error == str(Aborted())
    assert not agent.is_running
    assert spoken(agent) == ["hi", "half"]


# -- aborts --------------------------------------------------------------------------------------------------


async def test_an_abort_with_nothing_to_abort_does_nothing() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.abort()
    assert (await agent.prompt("hi")).stop_reason == StopReason.STOP
    agent.abort()
    assert agent.last_error is None


async def test_an_abort_is_for_one_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    agent.subscribe(lambda event: agent.abort() if is_delta(event, "half") else None)
    first = await agent.prompt("1")
    second = await agent.prompt("2")
    assert (first.stop_reason, first.text) == (StopReason.ABORTED, "half")
    assert (second.stop_reason, second.text) == (StopReason.STOP, "whole")


@pytest.mark.parametrize("moment", [TurnStart, MessageStart])
async def test_the_model_is_not_asked_after_an_abort(moment: type[AgentEvent]) -> None:
    stream = scripted("ok")
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=stream)
    agent.subscribe(events.append)
    agent.subscribe(lambda event: agent.abort() if isinstance(event, moment) else None)
    result = await agent.prompt("hi")
    check_events(events)
    assert result.stop_reason == StopReason.ABORTED
    assert stream.requests == []


async def test_an_abort_when_the_reply_has_failed_does_not_hide_the_failure() -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(fail("invalid_request", "no such model")))
    agent.subscribe(events.append)
    agent.subscribe(lambda event: agent.abort() if isinstance(event, MessageEnd) else None)
    result = await agent.prompt("hi")
    check_events(events)
    assert isinstance(result.exception, StreamError)
    assert result.error == "no such model"


async def test_an_aborted_turn_is_not_also_stopped_by_a_policy() -> None:
    class OneTurn:
        def post_turn(self, ctx: PolicyContext) -> Stop:
            return Stop("one turn is enough")

    @tool
    async def wait() -> str:
        """Waits for ever."""
        agent.abort()
        await asyncio.Event().wait()
        return "never"

    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(call("wait")), tools=[wait], policies=[OneTurn()])
    agent.subscribe(events.append)
    result = await agent.prompt("hi")
    assert result.stop_reason == StopReason.ABORTED
    check_events(events)


async def test_an_abort_inside_a_policy_that_stops_the_run_leaves_one_reason_for_its_end() -> None:
    class Both:
        def post_turn(self, ctx: PolicyContext) -> Stop:
            agent.abort()
            return Stop("and that is that")

    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"), policies=[Both()])
    agent.subscribe(events.append)
    result = await agent.prompt("hi")
    assert (result.stop_reason, result.stopped_by) == (StopReason.ABORTED, None)
    check_events(events)


async def test_nobody_is_asked_for_approval_after_an_abort() -> None:
    asked: list[str] = []

    def approve(request: ProposedCall) -> bool:
        asked.append(request.call_id)
        agent.abort()
        return True

    @tool(requires_approval=True)
    async def danger() -> str:
        """Does what cannot be undone."""
        raise AssertionError("it was aborted")

    events: list[AgentEvent] = []
    stream = scripted(call("danger").with_id("a") + call("danger").with_id("b"))
    agent = Agent(MODEL, stream_fn=stream, tools=[danger], approve=approve)
    agent.subscribe(events.append)
    result = await agent.prompt("hi")
    check_events(events)
    assert result.stop_reason == StopReason.ABORTED
    assert not any(isinstance(event, ToolExecutionStart) for event in events)
    assert asked == ["a"]


async def test_an_abort_while_a_request_for_approval_is_shown_asks_nobody() -> None:
    asked: list[str] = []

    def approve(request: ProposedCall) -> Reject:
        asked.append(request.call_id)
        return Reject()

    agent = Agent(
        MODEL, stream_fn=scripted(call("echo", text="x")), tools=[echo], approve=approve, approval_mode="enabled"
    )
    agent.subscribe(lambda event: agent.abort() if type(event).__name__ == "ToolApprovalRequested" else None)
    result = await agent.prompt("hi")
    assert result.stop_reason == StopReason.ABORTED
    assert asked == []


async def test_an_async_policy_sees_the_aborted_turn_even_if_a_tool_was_slow_to_end() -> None:
    seen: list[str] = []
    released = asyncio.Event()

    class Watch:
        async def post_turn(self, ctx: PolicyContext) -> None:
            seen.append("turn")

    @tool
    async def stubborn() -> str:
        """Does not end when it is cancelled."""
        agent.abort()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                pass
        return "late"

    agent = Agent(MODEL, stream_fn=scripted(call("stubborn")), tools=[stubborn], policies=[Watch()])
    result = await agent.prompt("hi")
    released.set()
    await asyncio.sleep(0)
    assert result.stop_reason == StopReason.ABORTED
    assert seen == ["turn"]


# -- idleness and reset --------------------------------------------------------------------------------------


async def test_waiting_for_an_idle_agent_returns_at_once() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    await agent.wait_for_idle()
    await agent.prompt("hi")
    await agent.wait_for_idle()
    assert not agent.is_running
    assert len(agent.messages) == 2


async def test_many_can_wait_for_the_end_of_a_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(stall()))
    stream = agent.prompt_stream("hi")
    waiting = [asyncio.create_task(agent.wait_for_idle()) for _ in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    agent.abort()
    await asyncio.gather(*waiting)
    assert not agent.is_running
    assert (await stream.result()).stop_reason == StopReason.ABORTED


def test_another_thread_with_a_loop_of_its_own_can_wait_for_the_end() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    streaming, waiting = threading.Event(), threading.Event()
    agent.subscribe(lambda event: streaming.set() if isinstance(event, MessageUpdate) else None)
    order: list[str] = []

    async def wait() -> None:
        task = asyncio.create_task(agent.wait_for_idle())
        await asyncio.sleep(0)
        waiting.set()
        await task
        order.append("idle" if not agent.is_running else "still running")

    runner = threading.Thread(target=lambda: agent.prompt_sync("hi"))
    waiter = threading.Thread(target=lambda: asyncio.run(wait()))
    runner.start()
    assert streaming.wait(10)
    waiter.start()
    assert waiting.wait(10)
    order.append("abort")
    agent.abort()
    waiter.join(10)
    runner.join(10)
    assert order == ["abort", "idle"]
    assert not runner.is_alive()
    assert not waiter.is_alive()


async def test_reset_puts_everything_back_as_it_was_made() -> None:
    seen: list[AgentEvent] = []
    stream = scripted(fail("auth"), "after")
    agent = Agent(
        ModelSpec("test", "model", ThinkingLevel.LOW),
        system_prompt="first",
        tools=[add],
        messages=["start"],
        stream_fn=stream,
        state={"count": [1]},
    )
    agent.subscribe(seen.append)
    agent.steer("s")
    await agent.prompt("hi")
    agent.follow_up("f")
    agent.model, agent.thinking_level, agent.system_prompt, agent.tools = "other:model", "high", "second", [echo]
    agent.state["count"].append(2)
    agent.state["more"] = True

    agent.reset()

    assert agent.model == ModelSpec("test", "model", ThinkingLevel.LOW)
    assert agent.system_prompt == "first"
    assert agent.tools == (add,)
    assert spoken(agent) == ["start"]
    assert dict(agent.state) == {"count": [1]}
    assert agent.last_error is None
    assert not agent.has_queued_messages
    seen.clear()
    await agent.prompt("again")
    check_events(seen)
    assert spoken(agent) == ["start", "again", "after"]


async def test_reset_can_be_repeated() -> None:
    agent = Agent(MODEL, stream_fn=scripted("1", "2"), messages=["start"], state={"list": []})
    for expected in ("1", "2"):
        agent.state["list"].append("x")
        assert (await agent.prompt("hi")).text == expected
        agent.reset()
        assert dict(agent.state) == {"list": []}
        assert spoken(agent) == ["start"]


# -- the whole of it -----------------------------------------------------------------------------------------


async def test_every_way_to_run_reports_the_same_events() -> None:
    async def events_of(run: Callable[[Agent], Awaitable[object]]) -> list[str]:
        events: list[AgentEvent] = []
        stream = scripted(call("add", a=1, b=2), reply("a", fail("network")), "3")
        agent = Agent(MODEL, stream_fn=stream, tools=[add], messages=["1+2?"], sleep=FakeClock().sleep)
        agent.subscribe(events.append)
        await run(agent)
        check_events(events)
        return names(events)

    expected = [
        "AgentStart",
        "TurnStart",
        "MessageStart",
        "MessageUpdate",
        "MessageEnd",
        "ToolExecutionStart",
        "ToolExecutionEnd",
        "TurnEnd",
        "TurnStart",
        "MessageStart",
        "MessageUpdate",
        "MessageRetry",
        "MessageUpdate",
        "MessageEnd",
        "TurnEnd",
        "AgentEnd",
    ]
    assert await events_of(lambda agent: agent.prompt("hi")) == expected
    assert await events_of(lambda agent: collect(agent.prompt_stream("hi"))) == expected
    assert await events_of(lambda agent: agent.prompt_stream("hi").result()) == expected
    assert await events_of(lambda agent: asyncio.to_thread(agent.prompt_sync, "hi")) == expected
    assert await events_of(lambda agent: agent.continue_loop()) == expected
    assert await events_of(lambda agent: collect(agent.continue_loop_stream())) == expected
    assert await events_of(lambda agent: asyncio.to_thread(agent.continue_loop_sync)) == expected


LEAVINGS: dict[str, Callable[[Agent], Any]] = {}


def _leaving(function: Callable[[Agent], Any]) -> Callable[[Agent], Any]:
    LEAVINGS[function.__name__.strip("_").replace("_", " ")] = function
    return function


@_leaving
async def _break(agent: Agent) -> None:
    async for _ in agent.prompt_stream("go"):
        break


@_leaving
async def _break_while_the_stream_is_held(agent: Agent) -> Any:
    stream = agent.prompt_stream("go")
    async for _ in stream:
        break
    return stream


@_leaving
async def _an_exception(agent: Agent) -> None:
    with suppress(KeyError):
        async for _ in agent.prompt_stream("go"):
            raise KeyError


@_leaving
async def _a_dropped_stream(agent: Agent) -> None:
    stream = agent.prompt_stream("go")
    await anext(stream)
    del stream


@_leaving
async def _a_cancelled_reader(agent: Agent) -> None:
    has_begun = asyncio.Event()

    async def read() -> None:
        async for event in agent.prompt_stream("go"):
            if isinstance(event, MessageUpdate):
                has_begun.set()

    await _cancelled(asyncio.create_task(read()), has_begun)


@_leaving
async def _a_cancelled_reader_of_single_events(agent: Agent) -> Any:
    has_begun = asyncio.Event()
    stream = agent.prompt_stream("go")

    async def read() -> None:
        while True:
            if isinstance(await anext(stream), MessageUpdate):
                has_begun.set()

    await _cancelled(asyncio.create_task(read()), has_begun)
    return stream


async def _cancelled(reader: asyncio.Task[None], has_begun: asyncio.Event) -> None:
    await has_begun.wait()
    reader.cancel()
    await asyncio.wait([reader])


@pytest.mark.table
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("how", LEAVINGS)
async def test_a_prompt_directly_after_a_stream_was_left_waits_for_its_end(how: str, is_stream: bool) -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("so") + stall(), "second"))
    held = await LEAVINGS[how](agent)
    result = await (agent.prompt_stream("again").result() if is_stream else agent.prompt("again"))
    assert result.text == "second"
    replies = [message.stop_reason for message in agent.messages if isinstance(message, AssistantMessage)]
    assert replies == [StopReason.ABORTED, StopReason.STOP]
    del held


async def test_a_stream_that_is_still_read_keeps_the_agent() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("so") + stall()))
    stream = agent.prompt_stream("go")
    await anext(stream)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.005):
            while True:
                await anext(stream)
    with pytest.raises(AlreadyRunning):  # a reader with a time limit may come back
        await agent.prompt("again")
    await stream.aclose()


async def test_an_agent_knows_what_all_its_runs_used() -> None:
    usage, cost = Usage(1, 2, total=3), Cost(total=0.25)
    seen: list[Cost] = []
    agent = Agent(MODEL, stream_fn=scripted("a", "b", usage=usage, cost=cost))
    agent.subscribe(lambda event: seen.append(agent.total_cost) if isinstance(event, TurnEnd) else None)
    assert (agent.total_usage, agent.total_cost) == (Usage(), Cost())
    await agent.prompt("go")
    agent.reset()
    agent.messages = ["other"]
    async for _ in agent.prompt_stream("again"):
        pass
    assert seen == [cost, cost + cost]  # the run that goes on counts as far as it has come
    assert (agent.total_usage, agent.total_cost) == (usage + usage, cost + cost)


async def test_a_run_whose_task_was_cancelled_counts_too() -> None:
    cost = Cost(total=0.25)
    waits = asyncio.Event()

    @tool
    async def wait() -> str:
        waits.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(MODEL, stream_fn=scripted(call("wait"), cost=cost), tools=[wait])
    task = asyncio.create_task(agent.prompt("go"))
    await waits.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert agent.total_cost == cost


def test_copies_of_a_history_are_lists() -> None:
    agent = Agent(MODEL, stream_fn=scripted("a"), messages=["hi"])
    kept = list(agent.messages)
    copies = (
        copy.copy(agent.messages),
        agent.messages.copy(),
        copy.deepcopy(agent.messages),
        pickle.loads(pickle.dumps(agent.messages)),
    )
    agent.prompt_sync("more")
    assert all(type(other) is list and other == kept for other in copies)


# -- an agent made from another ------------------------------------------------------------------------------


async def test_an_agent_like_another_has_its_parts_and_leaves_it_alone() -> None:
    class Quiet:
        def post_turn(self, ctx: Any) -> None:
            return None

    policy = Quiet()
    agent = Agent(
        "test:model",
        system_prompt="Be brief.",
        tools=[add],
        stream_fn=scripted(text("from the first")),
        fallbacks=[("test:other", scripted())],
        policies=[policy],
        get_api_key=lambda provider: "key",
        steering_mode="all",
        state={"seen": [1]},
        messages=["before"],
    )
    agent.steer("later")
    heard: list[object] = []
    agent.subscribe(heard.append)

    other = agent.replaced(stream_fn=scripted(text("from the other")), system_prompt="Be long.")

    assert (await other.prompt("go")).text == "from the other"
    other.state["seen"].append(2)
    assert (other.system_prompt, other.tools, other.model) == ("Be long.", agent.tools, agent.model)
    assert other.config.post_turn_policies == (policy,)
    assert (other.config.fallbacks, other.config.get_api_key) == ((), None)
    assert (len(other.messages), list(agent.messages), agent.state) == (3, [*agent.messages[:1]], {"seen": [1]})
    assert agent.has_queued_messages
    assert not other.has_queued_messages
    assert heard == []
    assert agent.config.get_api_key is not None
    assert (await agent.replaced().prompt("go")).text == "from the first"


def test_a_similar_agent_takes_given_policies_and_refuses_unknown_arguments() -> None:
    class Quiet:
        def post_turn(self, ctx: Any) -> None:
            return None

    old, new = Quiet(), Quiet()
    agent = Agent("test:model", stream_fn=scripted(), policies=[old])

    assert agent.replaced(policies=[new]).config.post_turn_policies == (new,)
    with pytest.raises(TypeError, match="streem_fn"):
        agent.replaced(streem_fn=scripted())
