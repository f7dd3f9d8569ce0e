"""Dependencies of the wrong type: one mistake in each line that ends in `# wrong`, and none elsewhere."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass

from swink_agent import Agent, AgentTool, PolicyContext, ToolContext, tool


@dataclass
class Shop:
    town: str = "Ulm"


class Corner(Shop): ...


@dataclass
class Bank:
    number: int = 1


@tool
def visit(ctx: ToolContext[Shop]) -> str:
    return ctx.deps.name  # wrong


@tool
def round_the_corner(ctx: ToolContext[Corner]) -> str:
    return ctx.deps.town


@tool(requires_approval=True)
async def pay(ctx: ToolContext[Bank], amount: int) -> int:
    return amount + ctx.deps.number


class Teller:
    @tool
    def ask(self, ctx: ToolContext[Bank], text: str) -> str:
        return f"{text} {ctx.deps.town}"  # wrong


def of_shops(ctx: PolicyContext[Shop]) -> str:
    return ctx.deps.number  # wrong


def of_banks(ctx: PolicyContext[Bank]) -> str:
    return str(ctx.deps.number)


def bank_tools(ctx: PolicyContext[Bank]) -> list[AgentTool[Bank]]:
    return [pay]


pay(ToolContext(deps=Bank()), "much")  # wrong
pay(ToolContext(deps=Shop()), 1)  # wrong
for_shops: AgentTool[Shop] = pay  # wrong
Agent[Shop]("any:model", tools=[visit, pay])  # wrong
Agent[Shop]("any:model", tools=[Teller().ask])  # wrong
Agent[Shop]("any:model", tools=[round_the_corner])  # wrong
Agent[Shop]("any:model", tools=bank_tools)  # wrong
Agent[Shop]("any:model", system_prompt=of_banks)  # wrong
Agent[Shop]("any:model", deps=Bank())  # wrong
Agent[Shop]("any:model", tools=visit)  # wrong
Agent[Shop]("any:model", system_prompt=lambda ctx: ctx.deps.nowhere)  # wrong for pyright
their_tools = [visit, pay]
Agent[Shop]("any:model", tools=their_tools)  # wrong

agent = Agent[Shop]("any:model", tools=[visit])
agent.tools = [pay]  # wrong
agent.override(deps=Bank())  # wrong
Agent[Bank]("any:model", tools=[agent.as_tool("shop", "Sells.")])  # wrong
agent.override(streem_fn=None)  # wrong


async def run() -> None:
    await agent.prompt("hello", deps=Bank())  # wrong
    await agent.prompt("hello", tools=[pay])  # wrong
    await agent.prompt("hello", system_prompt=of_banks)  # wrong
    await agent.prompt("hello", dep=Shop())  # wrong
    agent.prompt_sync("hello", model=3)  # wrong
    agent.prompt_stream("hello", deps=Bank())  # wrong
    await agent.continue_loop(deps=Bank())  # wrong
    await agent.structured_output("hello", Bank, deps=Bank())  # wrong
    await agent.structured_run("hello", Bank, deps=Bank())  # wrong
    agent.text_stream("hello", deps=Bank())  # wrong
