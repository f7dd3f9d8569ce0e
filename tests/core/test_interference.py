"""Hooks, subscribers and policies may fail in any way, and cannot change a run secretly."""

from __future__ import annotations

import array
import asyncio
import collections
import copy
import dataclasses
import pickle
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentEvent,
    AgentMessage,
    AgentToolResult,
    Approve,
    AssistantMessageEvent,
    Document,
    ErrorKind,
    Extension,
    Grant,
    Inject,
    MessageEnd,
    ModelSpec,
    PolicyContext,
    PreDispatchContext,
    ProposedCall,
    Redactor,
    RunRecord,
    StopReason,
    StreamStart,
    Text,
    ToolApprovalRequested,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    UrlSource,
    encode_event,
    encode_message,
    tool,
)
from swink_agent.core.encoding.codec import decode_message
from swink_agent.core.values.data import as_json
from swink_agent.testing import call, check_events, collect, fail, scripted, text

MODEL = ModelSpec("test", "model")
ENDS: list[type[BaseException]] = [asyncio.CancelledError, GeneratorExit, RuntimeError]


@tool
async def echo(word: str) -> str:
    """Says it again."""
    return word


# -- failing in every way --------------------------------------------------------------------------------------


class RaisingPolicy:
    """Raises in one slot, as a plain or an async function."""

    def __init__(self, slot: str, error: type[BaseException], is_async: bool) -> None:
        def plain(ctx: Any) -> None:
            raise error

        async def later(ctx: Any) -> None:
            raise error

        setattr(self, slot, later if is_async else plain)


def raising(error: type[BaseException], is_async: bool) -> Callable[..., Any]:
    def plain(*_: Any) -> Any:
        raise error

    async def later(*_: Any) -> Any:
        raise error

    return later if is_async else plain


class RaisingStrategy:
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def should_retry(self, error: Exception, attempt: int) -> bool:
        raise self.error

    def delay(self, attempt: int) -> float:
        raise self.error

    def partition(self, calls: Sequence[ToolCall]) -> Sequence[Sequence[int]]:
        raise self.error


class RaisingProvider:
    def __init__(self, hook: Callable[..., Any]) -> None:
        self.poll_steering = self.poll_follow_up = self.put_back = hook


HOOKS: dict[str, Callable[[type[BaseException], bool], dict[str, Any]]] = {
    "system_prompt": lambda error, later: {"system_prompt": raising(error, later)},
    "transform_context": lambda error, later: {"transform_context": raising(error, later)},
    "async_transform_context": lambda error, later: {"async_transform_context": raising(error, later)},
    "convert_to_llm": lambda error, later: {"convert_to_llm": raising(error, later)},
    "get_api_key": lambda error, later: {"get_api_key": raising(error, later)},
    "approve": lambda error, later: {"approve": raising(error, later), "approval_mode": "enabled"},
    "tool_execution": lambda error, later: {"tool_execution": RaisingStrategy(error)},
    "message_provider": lambda error, later: {"message_provider": RaisingProvider(raising(error, later))},
    "retry_strategy": lambda error, later: {
        "retry_strategy": RaisingStrategy(error),
        "stream_fn": scripted(fail("throttled"), text("ok")),
    },
    "sleep": lambda error, later: {
        "sleep": raising(error, later),
        "stream_fn": scripted(fail("throttled"), text("ok")),
    },
    "stream_fn": lambda error, later: {"stream_fn": raising(error, later)},
    **{
        slot: lambda error, later, slot=slot: {"policies": [RaisingPolicy(slot, error, later)]}
        for slot in ("pre_turn", "pre_dispatch", "post_turn", "post_loop")
    },
}


@pytest.mark.table
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_may_raise_what_it_likes_and_the_events_stay_balanced(
    hook: str, error: type[BaseException], is_async: bool
) -> None:
    options = {"stream_fn": scripted(call("echo", word="a"), text("done")), **HOOKS[hook](error, is_async)}
    agent = Agent(MODEL, tools=[echo], **options)
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    async with asyncio.timeout(30):
        result = await agent.prompt("go")
    check_events(seen)
    assert result.stop_reason != StopReason.ABORTED
    assert not agent.is_running
    assert list(agent.messages) == list(result.messages)


@pytest.mark.table
@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("moment", [MessageEnd, ToolExecutionStart, ToolApprovalRequested])
async def test_a_subscriber_may_raise_what_it_likes(error: type[BaseException], moment: type[AgentEvent]) -> None:
    def break_off(event: AgentEvent) -> None:
        if isinstance(event, moment):
            raise error

    agent = Agent(
        MODEL,
        stream_fn=scripted(call("echo", word="a"), text("done")),
        tools=[echo],
        approve=lambda request: True,
        approval_mode="enabled",
    )
    agent.subscribe(break_off)
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    assert (await agent.prompt("go")).text == "done"
    check_events(seen)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_exceptions_that_end_the_program_pass_through_a_subscriber(error: type[BaseException]) -> None:
    def quit_at_once(event: AgentEvent) -> None:
        if isinstance(event, MessageEnd):
            raise error

    agent = Agent(MODEL, stream_fn=scripted("never read"))
    agent.subscribe(quit_at_once)
    with pytest.raises(error):
        asyncio.run(agent.prompt("go"))
    assert not agent.is_running


# -- what was shown is not what is held ------------------------------------------------------------------------


def spoil(arguments: dict[str, Any]) -> None:
    """Changes the arguments if that is possible, and does not mind if it is not."""
    try:
        arguments["word"] = "spoilt"
        arguments["more"] = [1]
    except TypeError:
        pass


async def test_nobody_who_is_shown_the_arguments_changes_what_runs_or_what_is_remembered() -> None:
    given: list[str] = []
    kept: list[dict[str, Any]] = []

    @tool
    async def listen(word: str) -> str:
        """Notes what it is given."""
        given.append(word)
        return word

    class Spoiler:
        def pre_turn(self, ctx: PolicyContext) -> None:
            self.spoil(ctx.messages)

        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            kept.append(ctx.arguments)
            self.spoil(ctx.messages)

        def post_turn(self, ctx: PolicyContext) -> None:
            self.spoil(ctx.messages)

        def spoil(self, messages: Sequence[AgentMessage]) -> None:
            for message in messages:
                for block in getattr(message, "content", ()):
                    if isinstance(block, ToolCall):
                        spoil(block.arguments)

    policy = Spoiler()

    def watch(event: AgentEvent) -> None:
        for arguments in kept:
            spoil(arguments)
        if isinstance(event, (ToolExecutionStart, ToolApprovalRequested)):
            spoil(event.arguments)
        policy.spoil(agent.messages)

    def approve(request: ProposedCall) -> Approve:
        spoil(request.arguments)
        return Approve()

    agent = Agent(
        MODEL,
        stream_fn=scripted(call("listen", word="right"), text("done")),
        tools=[listen],
        approve=approve,
        approval_mode="enabled",
        policies=[policy],
    )
    agent.subscribe(watch)
    events = await collect(agent.prompt_stream("go"))
    assert given == ["right"]
    assert [message.tool_calls[0].arguments for message in agent.messages if getattr(message, "tool_calls", ())] == [
        {"word": "right"}
    ]
    assert next(event.arguments["word"] for event in events if isinstance(event, ToolExecutionStart)) == "right"


def spoil_deeply(value: Any) -> None:
    """Changes everything in it that can be changed."""
    try:
        if isinstance(value, dict):
            for item in list(value.values()):
                spoil_deeply(item)
            value["spoilt"] = True
        elif isinstance(value, list):
            for item in list(value):
                spoil_deeply(item)
            value.append("spoilt")
    except TypeError:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=3), items, max_size=3),
    max_leaves=6,
)


@given(arguments=st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_changes_to_arguments_stay_with_their_author(arguments: dict[str, Any]) -> None:
    wanted = copy.deepcopy(arguments)
    got: list[dict[str, Any]] = []

    class Takes:
        name = label = description = "takes"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = True

        def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
            spoil_deeply(arguments)
            return {"in": ["here"]}

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
            got.append(copy.deepcopy(arguments))
            spoil_deeply(arguments)
            assert ctx.grant is not None
            spoil_deeply(ctx.grant.arguments)
            spoil_deeply(ctx.grant.scope)
            return AgentToolResult.text("taken")

    class Partition:
        def partition(self, calls: Sequence[ToolCall]) -> Sequence[Sequence[int]]:
            spoil_deeply(calls[0].arguments)
            return [[0]]

    def approve(request: ProposedCall) -> Approve:
        spoil_deeply(request.arguments)
        spoil_deeply(request.scope)
        return Approve()

    def watch(event: AgentEvent) -> None:
        for name in ("arguments", "scope"):
            spoil_deeply(getattr(event, name, None))
        for message in getattr(event, "messages", ()):
            for block in message.content:
                spoil_deeply(getattr(block, "arguments", None))

    record, events = RunRecord(), list[AgentEvent]()
    model = scripted(call("takes", **arguments), text("done"))
    agent = Agent(MODEL, stream_fn=model, tools=[Takes()], approve=approve, tool_execution=Partition())
    for subscriber in (watch, record.feed, events.append, watch):
        agent.subscribe(subscriber)
    assert asyncio.run(agent.prompt("go")).error is None
    (reply,) = [message for message in agent.messages if getattr(message, "tool_calls", ())]
    held = reply.tool_calls[0].arguments  # type: ignore[union-attr]
    assert got == [wanted]
    assert [held, record.calls[0].arguments] == [wanted, wanted]
    assert record.calls[0].grant == Grant("takes", wanted, {"in": ["here"]})
    # Nobody changed them, so all who are shown them are shown the same object: nothing is copied.
    shown = [event.arguments for event in events if isinstance(event, SHOWING)]
    assert len(shown) == 3
    assert all(arguments is held for arguments in [*shown, record.calls[0].arguments])


SHOWING = (ToolApprovalRequested, ToolExecutionStart, ToolExecutionEnd)


LONG: dict[str, Callable[[], AgentToolResult]] = {
    "text": lambda: detailed("x" * 100_000),
    "bytes": lambda: detailed(b"x" * 100_000),
    "a bytearray": lambda: detailed(bytearray(100_000)),
    "strings": lambda: detailed([f"line {number}" for number in range(10_000)]),
    "keys": lambda: detailed({f"key {number}": number for number in range(10_000)}),
    "a tuple of sets": lambda: detailed(({str(number) for number in range(10_000)},)),
    "numbers": lambda: detailed([0] * 100_000),
    "rows": lambda: detailed([{"name": "a", "age": 7} for _ in range(1000)]),
    "dataclasses": lambda: detailed([Row(str(number)) for number in range(1000)]),
    "structs": lambda: detailed([ModelSpec("test", str(number)) for number in range(1000)]),
    "itself": lambda: detailed(itself()),
    "texts": lambda: AgentToolResult([Text(f"line {number}") for number in range(1000)], {"told": Told()}),
    "other data": lambda: AgentToolResult(
        [Extension("rows", {"rows": [f"line {number}" for number in range(1000)]})], {"told": Told()}
    ),
}


@dataclasses.dataclass
class Row:
    name: str


class Told:
    """Notes the threads that read it."""

    threads: ClassVar[list[int]] = []

    def __str__(self) -> str:
        self.threads.append(threading.get_ident())
        return "told"


def itself() -> list[Any]:
    items: list[Any] = []
    items += [items] * 10
    return items


def detailed(data: object) -> AgentToolResult:
    return AgentToolResult.text("drawn", details={"picture": data, "told": Told()})


@pytest.mark.parametrize("what", [*LONG, "little"])
async def test_long_texts_are_masked_in_a_thread(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Told, "threads", [])

    @tool
    async def draw() -> AgentToolResult:
        """Draws a picture."""
        return LONG[what]() if what in LONG else detailed({"rows": [[1, 2.5, None, "name"]] * 10})

    agent = Agent(MODEL, stream_fn=scripted(call("draw"), "ok"), tools=[draw])
    assert (await agent.prompt("go")).error is None
    assert Told.threads
    assert (threading.get_ident() in Told.threads) == (what not in LONG)


async def test_details_that_fail_at_everything_do_not_make_the_result_an_error() -> None:
    @dataclasses.dataclass
    class Measured:
        values: array.array[float]
        before: Any = None

        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

        def __copy__(self) -> Any:
            raise RuntimeError("it cannot be copied")

        def __str__(self) -> str:
            raise RuntimeError("it cannot be shown")

        __repr__ = __str__
        __hash__ = None  # type: ignore[assignment]

    held = Measured(array.array("d", [1.5]), Measured(array.array("d", [0.5])))

    @tool
    async def measure(ctx: ToolContext) -> AgentToolResult:
        """Measures."""
        ctx.update(AgentToolResult.text("measuring", details=held))
        return AgentToolResult.text("measured", details={"held": held, "in": [{"another": held}]})

    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(call("measure"), text("done")), tools=[measure])
    agent.subscribe(events.append)
    assert (await agent.prompt("go")).error is None
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert (result.content, result.is_error) == ((Text("measured"),), False)
    assert b'{"held":{"values":"array(' in encode_message(result)
    assert [b"measuring" in encode_event(event) for event in events if isinstance(event, ToolExecutionUpdate)] == [True]


async def test_changes_to_the_details_of_a_result_stay_out_of_the_history() -> None:
    kept: dict[str, Any] = {"seen": [1]}

    @tool
    def look() -> AgentToolResult:
        """Looks, and keeps what it reports."""
        return AgentToolResult.text("seen", details=kept)

    def watch(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd):
            spoil_deeply(event.result.details)

    agent = Agent(MODEL, stream_fn=scripted(call("look"), text("done")), tools=[look])
    agent.subscribe(watch)
    await agent.prompt("go")
    spoil_deeply(kept)
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.details == {"seen": [1]}


class Box:
    """An object with its own data."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)

    def __eq__(self, other: object) -> bool:
        return type(other) is Box and self.items == other.items

    __hash__ = object.__hash__


class Bag(Box):
    """An object that is equal only to itself."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Part(msgspec.Struct):
    items: list[Any]


@dataclasses.dataclass(frozen=True)
class Slice:
    items: list[Any]

    __hash__ = object.__hash__


OTHER_DATA: dict[str, Callable[[], Any]] = {
    "a set": lambda: {1},
    "a set in a tuple": lambda: ({1}, [2]),
    "an object": lambda: Box(1),
    "an object in a list": lambda: [{"in": Box({1})}],
    "an object in a set": lambda: {Box(1)},
    "an object in a frozenset": lambda: frozenset([(Box(1),)]),
    "a dataclass": lambda: Slice([Box(1)]),
    "a struct": lambda: Part([{1}]),
    "a bytearray": lambda: bytearray(b"1"),
    "an array": lambda: array.array("i", [1]),
    "a deque": lambda: collections.deque([{1}]),
    "its own mapping": lambda: collections.ChainMap({"in": [1]}),
    "an object that is equal only to itself": lambda: Bag(1),
}


@pytest.mark.table
@pytest.mark.parametrize("what", OTHER_DATA)
async def test_details_are_json_in_events_in_the_history_and_after_reading(what: str) -> None:
    own = OTHER_DATA[what]()
    wanted = msgspec.json.decode(as_json({"in": own}))

    @tool
    def look(ctx: ToolContext) -> AgentToolResult:
        """Looks, and keeps what it reports."""
        ctx.update(AgentToolResult.text("looking", details={"in": own}))
        return AgentToolResult([Extension("mine", own)], details={"in": own})

    shown: list[object] = []

    def watch(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd):
            shown.append(event.result.details)
            spoil_deeply(event.result.details)
        if isinstance(event, ToolExecutionUpdate):
            shown.append(event.update.details)
            spoil_deeply(event.update.details)

    agent = Agent(MODEL, stream_fn=scripted(call("look"), text("done")), tools=[look])
    agent.subscribe(watch)
    assert (await agent.prompt("go")).error is None
    spoil_deeply(own)
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.details == wanted
    assert result.content == (Extension("mine", wanted["in"]),)
    assert shown == [wanted, wanted]
    assert decode_message(encode_message(result)) == result
    assert pickle.loads(pickle.dumps(result)) == result
    spoil_deeply(copy.deepcopy(result).details)
    assert result.details == wanted


@pytest.mark.table
@pytest.mark.parametrize("what", OTHER_DATA)
async def test_changed_arguments_are_json_for_all_who_see_them(what: str) -> None:
    mine = {"in": OTHER_DATA[what]()}
    wanted, seen = msgspec.json.decode(as_json(mine)), list[object]()

    class Takes:
        name = label = description = "takes"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = True

        def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
            seen.append(arguments)
            spoil_deeply(arguments)
            return {}

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
            seen.append(copy.deepcopy(arguments))
            spoil_deeply(arguments)
            return AgentToolResult.text("taken")

    class Rewrites:
        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            ctx.arguments = mine

    def approve(request: ProposedCall) -> Approve:
        seen.append(copy.deepcopy(request.arguments))
        spoil_deeply(request.arguments)
        spoil_deeply(mine)
        return Approve()

    def watch(event: AgentEvent) -> None:
        if isinstance(event, (ToolApprovalRequested, ToolExecutionStart)):
            seen.append(event.arguments)
            spoil_deeply(event.arguments)

    agent = Agent(
        MODEL, stream_fn=scripted(call("takes"), text("done")), tools=[Takes()], policies=[Rewrites()], approve=approve
    )
    agent.subscribe(watch)
    assert (await agent.prompt("go")).error is None
    assert seen == [wanted] * 5


async def test_the_data_of_a_block_is_masked_and_kept_as_it_was() -> None:
    own, secret = {"in": [1], "is": "k2mPx4Wt7LrBq8vZ"}, "k2mPx4Wt7LrBq8vZ"
    reported = AgentToolResult([Extension("mine", own), Document(UrlSource("https://example.com"), secret)])

    @tool
    def look(ctx: ToolContext) -> AgentToolResult:
        """Looks, and keeps what it reports."""
        ctx.update(reported)
        return reported

    seen: list[bytes] = []

    def watch(event: AgentEvent) -> None:
        seen.append(encode_event(event))
        if isinstance(event, ToolExecutionEnd):
            spoil_deeply(event.result.content[0].data)  # type: ignore[union-attr]

    redactor = Redactor([secret], environment={})
    agent = Agent(MODEL, stream_fn=scripted(call("look"), text("done")), tools=[look], redactor=redactor)
    agent.subscribe(watch)
    await agent.prompt("go")
    spoil_deeply(own)
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.content[0] == Extension("mine", {"in": [1], "is": redactor.redact(secret)})
    assert not [event for event in seen if secret.encode() in event]


async def test_a_policy_that_keeps_the_arguments_it_set_cannot_change_them_later() -> None:
    given: list[str] = []
    mine: dict[str, Any] = {"word": "mine"}

    @tool
    async def listen(word: str) -> str:
        """Notes what it is given."""
        given.append(word)
        return word

    class Rewrites:
        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            ctx.arguments = mine

    def approve(request: ProposedCall) -> bool:
        assert request.arguments == {"word": "mine"}
        mine["word"] = "not what was approved"
        return True

    agent = Agent(
        MODEL,
        stream_fn=scripted(call("listen", word="x"), text("done")),
        tools=[listen],
        approve=approve,
        approval_mode="enabled",
        policies=[Rewrites()],
    )
    await agent.prompt("go")
    assert given == ["mine"]


# -- one id for a run ------------------------------------------------------------------------------------------


async def test_policies_and_tools_know_their_run_by_one_id_that_no_other_run_has() -> None:
    seen: list[list[str]] = []

    class Watches:
        def pre_turn(self, ctx: PolicyContext) -> None:
            seen[-1].append(ctx.run_id)

        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            seen[-1].append(ctx.run_id)

        def post_turn(self, ctx: PolicyContext) -> Inject | None:
            seen[-1].append(ctx.run_id)
            return None

    class Asks:
        name = label = description = "ask"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = False

        async def execute(self, arguments: dict[str, Any], ctx: Any) -> Any:
            seen[-1].append(ctx.run_id)
            return "noted"

    for _ in range(50):
        seen.append([])
        model = scripted(call("ask"), text("done"))
        await Agent(MODEL, stream_fn=model, tools=[Asks()], policies=[Watches()]).prompt("go")
    assert {len(ids) for ids in seen} == {6}
    assert all(len(set(ids)) == 1 and len(ids[0]) >= 16 for ids in seen)
    assert len({ids[0] for ids in seen}) == 50


async def test_arguments_of_a_policy_that_hold_themselves_are_not_run() -> None:
    endless: dict[str, Any] = {}
    endless["word"] = endless

    class Endless:
        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            ctx.arguments = endless

    seen: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(call("echo", word="a"), "done"), tools=[echo], policies=[Endless()])
    agent.subscribe(seen.append)
    assert (await agent.prompt("go")).text == "done"
    check_events(seen)
    assert [message.outcome for message in agent.messages if isinstance(message, ToolResultMessage)] == ["skipped"]


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


async def test_an_exception_that_cannot_be_shown_is_the_cause_all_the_same() -> None:
    async def model(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        raise WithoutText
        yield

    result = await Agent(MODEL, stream_fn=model).prompt("go")
    assert result.exception is not None
    assert isinstance(result.exception.__cause__, WithoutText)
    assert "WithoutText" in str(result.error)


def _with_a_context(key: str) -> None:
    try:
        raise ValueError(key)
    except ValueError:
        raise KeyError("no such model") from OSError("no such file")


def _with_a_note(key: str) -> None:
    error = ValueError("refused")
    error.add_note(f"it was asked with {key}")
    raise error


def _with_a_group(key: str) -> None:
    raise ExceptionGroup("both failed", [ValueError("one"), ExceptionGroup("rest", [KeyError(key)])])


@pytest.mark.parametrize("fails", [_with_a_context, _with_a_note, _with_a_group])
async def test_no_part_of_the_cause_shows_a_secret(fails: Callable[[str], None]) -> None:
    key = "kJ8s-92mXq-71LpZ-aa04"

    async def model(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        fails(key)
        yield StreamStart()

    result = await Agent(MODEL, stream_fn=model, redactor=Redactor([key])).prompt("go")
    assert result.exception is not None
    assert result.exception.__cause__ is not None
    left: list[BaseException | None] = [result.exception]
    while left:
        error = left.pop()
        if error is not None:
            assert key not in "".join(traceback.format_exception(error))
            left += [error.__cause__, error.__context__]


async def test_the_error_of_a_stream_function_that_raised_has_the_exception_as_its_cause() -> None:
    class Own(Exception):
        pass

    async def model(*_: Any) -> Any:
        raise Own("no good")
        yield

    result = await Agent(MODEL, stream_fn=model).prompt("go")
    assert result.exception is not None
    assert isinstance(result.exception.__cause__, Own)
    assert result.exception.kind == ErrorKind.STREAM
