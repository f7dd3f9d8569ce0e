"""A program without type errors. Each `assert_type` checks the inferred type of a name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypedDict, assert_type

import swink_agent.policies as policies
from swink_agent import (
    Agent,
    AgentResult,
    AgentTool,
    Cost,
    FunctionTool,
    Inject,
    Policy,
    PolicyContext,
    PreDispatchContext,
    Redactor,
    Skip,
    SlidingWindow,
    Stop,
    StreamFn,
    StructuredResult,
    ToolContext,
    extract_text,
    recommended,
    tool,
)
from swink_agent.adapters import stream_fn_for
from swink_agent.approvals import CallRules
from swink_agent.core.entries import JournalEntry
from swink_agent.core.secrets.masking import masked
from swink_agent.local import provider
from swink_agent.memory import AsyncSessionStore, JsonlSessionStore, SessionStore, SqlSessionStore, export_html
from swink_agent.memory.log.fold import Fold
from swink_agent.memory.sessions.session import past_of
from swink_agent.policies import (
    AllowList,
    AuditLog,
    Budget,
    Checkpoint,
    ClaimCheck,
    ContentFilter,
    DenyList,
    LoopDetection,
    MaxDuration,
    MaxTurns,
    PiiRedactor,
    PromptGuard,
    WorkspaceOnly,
)
from swink_agent.sandbox import open_sandbox
from swink_agent.testing import ModelRequest, assert_replays, names, scripted
from swink_agent.tools import standard_tools

anything: list[object] = [stream_fn_for, provider, export_html, open_sandbox, scripted, standard_tools, policies.Budget]
assert_type(names([]), list[str])


@tool
def add(a: int, b: int = 0) -> int:
    return a + b


@tool(requires_approval=True)
async def fetch(url: str, *, ctx: ToolContext) -> bytes:
    return url.encode() + ctx.call_id.encode()


@tool
async def watch(path: str) -> AsyncIterator[str]:
    yield path


@tool
def count(to: int) -> Iterator[int]:
    yield to


class Shop:
    kept = add

    @tool
    def price(self, item: str) -> float:
        return self.price(item) + 1

    @tool(name="buy_it")
    async def buy(self, item: str, number: int = 1) -> list[str]:
        return [item] * number

    @tool
    async def offers(self, item: str) -> AsyncIterator[float]:
        yield self.price(item)

    @tool
    @staticmethod
    def tax(amount: float) -> float:
        return amount

    @tool
    @classmethod
    def opened(cls, at: str) -> str:
        return at


class Corner(Shop): ...


shop = Shop()
assert_type(add(1), int)
assert_type(add(a=1, b=2), int)
assert_type(shop.price("tea"), float)
assert_type(Shop.price(shop, "tea"), float)
assert_type(Corner().price("tea"), float)
assert_type(shop.tax(1.5), float)
assert_type(Shop.tax(1.5), float)
assert_type(shop.opened("noon"), str)
assert_type(Corner.opened("noon"), str)
assert_type(shop.kept(1), int)
assert_type(add.name, str)
summing: Callable[[int, int], int] = add


async def use() -> None:
    assert_type(await fetch("there", ctx=ToolContext()), bytes)
    assert_type(await shop.buy("tea", number=2), list[str])
    async for text in watch("here"):
        assert_type(text, str)
    async for price in shop.offers("tea"):
        assert_type(price, float)
    for number in count(3):
        assert_type(number, int)


def describe(some: FunctionTool) -> str:
    some(1, "anything", at="all")
    return some.description


describe(add)
describe(shop.price)
some_tools = [add, fetch, watch, count, shop.price, shop.buy, shop.offers, shop.tax, Shop.opened]
as_protocol: AgentTool = shop.price


class Patience:
    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        return Stop("enough") if ctx.turn_index > 3 else None


class Manners:
    async def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        return None if ctx.arguments.get("please") else Skip("say please")

    def post_loop(self, ctx: PolicyContext) -> Inject:
        return Inject("say thanks")


mine: list[Policy] = [Patience(), Manners(), *recommended(".")]


def agent(rules: CallRules, claims: ClaimCheck, checkpoint: Checkpoint, content: ContentFilter) -> Agent:
    built_in: list[Policy] = [
        AllowList(["add"]),
        DenyList(["rm"]),
        AuditLog("audit"),
        Budget(max_cost=1.0),
        LoopDetection(),
    ]
    return Agent(
        "any:model",
        tools=some_tools,
        policies=[
            *mine,
            *built_in,
            rules,
            claims,
            checkpoint,
            content,
            MaxDuration(1),
            MaxTurns(1),
            PiiRedactor(),
            PromptGuard(),
            WorkspaceOnly("."),
        ],
    )


def answer(request: ModelRequest) -> str:
    return extract_text(request.messages[-1].content)


class Point(TypedDict):
    x: int


def near(point: Point) -> None: ...


async def near_by(point: Point) -> None: ...


async def values() -> None:
    agent = Agent("any:model")
    found = await agent.structured_run("where?", Point, validate=near)
    assert_type(found, StructuredResult[Point])
    assert_type(found.value, Point)
    assert_type(found.cost, Cost)
    assert_type(agent.structured_run_sync("where?", {"type": "object"}).value, Any)
    assert_type(agent.structured_output_sync({"call_1": True}, Point, 2, validate=[near, near_by]), Point)
    assert_type((await agent.structured_stream("where?", Point).result()).value, Point)
    async for piece in agent.text_stream("hello"):
        assert_type(piece, str)
    assert_type(await agent.text_stream("hello", model="any:other").result(), AgentResult)


class Kept:
    """A journal, from which an agent can go on."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.number = 0

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        self.number += 1
        self.fold.add(self.number, entry if redactor is None else masked(entry, redactor))
        return self.number

    async def durable(self) -> None: ...


def make_agent(stream_fn: StreamFn, wrap_tool: Callable[[AgentTool], AgentTool]) -> Agent:
    made = Agent("any:model", stream_fn=stream_fn, tools=[wrap_tool(add)], transform_context=SlidingWindow(1_000))
    made.attach_journal(journal, past_of(journal))
    return made


stores: list[SessionStore] = [JsonlSessionStore("sessions"), SqlSessionStore("sessions.db")]


async def go_on(store: SessionStore) -> None:
    async with await AsyncSessionStore(store).create(metadata={"user": "ann"}, id="order-17") as session:
        session.attach(make_agent(scripted(answer), lambda tool: tool))
    assert_type(store.load(session.id).labels[0].position, int)
    assert_type(store.list(metadata={"user": "ann"})[0].id, str)
    await assert_replays(session.path, make_agent)


journal = Kept()
