"""Dependencies: every line is right, also for the strictest checkers."""

# pyright: strict

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, assert_type

from swink_agent import (
    Agent,
    AgentLoopConfig,
    AgentResult,
    AgentTool,
    AgentToolResult,
    ModelSpec,
    PolicyContext,
    PreDispatchContext,
    Skip,
    StreamOptions,
    ToolContext,
    Usage,
    tool,
)
from swink_agent.testing import scripted


class Named:
    name = "ann"


@dataclass
class Shop(Named):
    town: str = "Ulm"


@tool
def visit(ctx: ToolContext[Shop], item: str) -> str:
    assert_type(ctx.deps, Shop)
    assert_type(ctx.model, ModelSpec)
    assert_type(ctx.usage, Usage)
    assert_type(ctx.turn_index, int)
    return f"{item} in {ctx.deps.town}, {len(ctx.messages)}"


@tool(requires_approval=True)
async def greet(ctx: ToolContext[Named]) -> str:
    return ctx.deps.name


@tool
def add(a: int, b: int = 0) -> int:
    return a + b


@tool
async def follow(path: str, *, ctx: ToolContext) -> str:
    return path + ctx.call_id


@tool
def perhaps(ctx: ToolContext[Shop | None]) -> str:
    return "closed" if ctx.deps is None else ctx.deps.town


class Cart:
    @tool
    def put(self, ctx: ToolContext[Shop], item: str) -> int:
        return len(item) + len(ctx.deps.town)

    @tool
    async def take(self, item: str) -> str:
        return item


class Written:
    """A tool that is a class."""

    name = label = description = "written"
    parameters_schema: dict[str, Any] = {}
    requires_approval = False

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Named], /) -> AgentToolResult:
        return AgentToolResult.text(ctx.deps.name)


def instructions(ctx: PolicyContext[Shop]) -> str:
    return f"You sell in {ctx.deps.town}."


async def slow_instructions(ctx: PolicyContext[Named]) -> str:
    return ctx.deps.name


def tools_of(ctx: PolicyContext[Shop]) -> Sequence[AgentTool[Shop]]:
    return [visit, add] if ctx.deps.town else []


async def tools_later(ctx: PolicyContext[Shop]) -> list[AgentTool[Shop]]:
    return [visit, greet]


def same_tools() -> list[AgentTool[Named]]:
    return [greet]


@tool
def bare(ctx: ToolContext, item: str) -> str:
    return item + str(ctx.deps.town)


class Placed(Protocol):
    town: str


@tool
def place(ctx: ToolContext[Placed]) -> str:
    return ctx.deps.town


def made(deps: Shop | None = None) -> Agent[Shop]:
    return Agent("any:model", tools=[visit, add], deps=deps)


cart = Cart()
for_shops: AgentTool[Shop] = visit
for_shops = cart.put
for_shops = greet
for_shops = add
for_shops = Written()
assert_type(visit(ToolContext(deps=Shop()), "tea"), str)
assert_type(cart.put(ToolContext(deps=Shop()), item="tea"), int)

agent = Agent[Shop](
    "any:model",
    tools=[visit, greet, add, follow, perhaps, cart.put, cart.take, Written(), bare, place],
    system_prompt=instructions,
    deps=Shop(),
)
assert_type(agent, Agent[Shop])
Agent[Shop]("any:model", tools=[visit], system_prompt=lambda ctx: f"For {ctx.deps.town}.")
Agent[Shop]("any:model", tools=tools_of, system_prompt=slow_instructions)
Agent[Shop]("any:model", tools=tools_later, system_prompt=lambda: "Be brief.")
Agent[Shop]("any:model", tools=same_tools)
Agent[Shop]("any:model", tools=lambda ctx: [visit] if ctx.turn_index else [add])
Agent[Shop]("any:model", deps=None)
Agent[None]("any:model", tools=[add])
Agent[Shop | None]("any:model", tools=[perhaps, add])

plain = Agent("any:model")
assert_type(plain, Agent)
with_tools = Agent("any:model", tools=[add, follow], system_prompt="Be brief.")
with_prompt = Agent("any:model", system_prompt=lambda: "Be brief.")
inferred = Agent("any:model", tools=[visit, greet, add], deps=Shop())
their_tools = [visit, add, greet, cart.put]
Agent[Shop]("any:model", tools=their_tools)
Agent("any:model", tools=their_tools)
kept: Agent = agent
several: list[Agent] = [agent, plain, with_tools, inferred]


class Manners:
    def pre_dispatch(self, ctx: PreDispatchContext[Shop]) -> Skip | None:
        return None if ctx.deps.town else Skip("nowhere")

    def pre_turn(self, ctx: PolicyContext[Shop]) -> None:
        assert_type(ctx.deps, Shop)


Agent[Shop]("any:model", policies=[Manners()])
AgentLoopConfig(model=ModelSpec("any", "model"), stream_fn=scripted(), deps=Shop())


def use(some: Agent, tools: Sequence[AgentTool]) -> Awaitable[AgentResult]:
    return some.prompt("hello", tools=tools, deps=3)


async def run() -> None:
    assert_type(await agent.prompt("hello", deps=Shop(), model="any:other", tools=[visit]), AgentResult)
    async for _ in agent.prompt_stream("hello", system_prompt=instructions, stream_options=StreamOptions()):
        pass
    agent.prompt_sync("hello", deps=Shop(), images=())
    await agent.continue_loop(deps=Shop())
    agent.continue_loop_stream(tools=tools_of)
    agent.continue_loop_sync(model=ModelSpec("any", "model"))
    assert_type(await agent.structured_output("hello", Shop, deps=Shop()), Shop)
    assert_type(agent.structured_output_sync("hello", {"type": "object"}, 2, deps=Shop()), Any)
    with agent.override(stream_fn=scripted("hi"), deps=Shop(), tools=[greet]):
        await agent.prompt("hello")
    await plain.prompt("hello", deps="anything")
    await use(agent, [add, visit])
    Agent[Shop]("any:model", tools=[agent.as_tool("shop", "Sells."), plain.as_tool("other", "Helps."), add])
    agent.tools = [visit]
    agent.system_prompt = instructions
