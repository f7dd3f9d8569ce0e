"""A program with one mistake in each line that ends in `# wrong`, and none elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import swink_agent
import swink_agent.tools
from swink_agent import Agent, StreamOptions, tool
from swink_agent import Agnet  # wrong
from swink_agent.adapters import AnthropicStreamFunction  # wrong
from swink_agent.local import LocalStreamFunction  # wrong
from swink_agent.memory import Sesion  # wrong
from swink_agent.policies import MaxTurn  # wrong
from swink_agent.sandbox import open_sandbx  # wrong
from swink_agent.testing import scriptd  # wrong

swink_agent.Agnet  # wrong
swink_agent.tools.Bash  # wrong


@tool
def add(a: int, b: int = 0) -> int:
    return a + b


@tool(requires_approval=True)
async def fetch(url: str) -> bytes:
    return url.encode()


@tool
async def watch(path: str) -> AsyncIterator[str]:
    yield path


class Shop:
    @tool
    def price(self, item: str) -> float:
        return 1.0

    @tool
    async def offers(self, item: str) -> AsyncIterator[float]:
        yield self.price(item)

    @tool
    @classmethod
    def opened(cls, at: str) -> str:
        return at


class Empty: ...


shop = Shop()
add("x")  # wrong
add()  # wrong
add(1, c=2)  # wrong
sum_of: str = add(1)  # wrong
shop.price(1)  # wrong
shop.offers(1)  # wrong
Shop.opened(1)  # wrong
watch(1)  # wrong
tool(3)  # wrong
tool(requires_aproval=True)  # wrong


async def use() -> None:
    text: str = await fetch("there")  # wrong
    await fetch(1)  # wrong


Agent("any:model", tools=[Empty()])  # wrong
Agent("any:model", policies=[Empty()])  # wrong
Agent("any:model", policies=[Agent])  # wrong
Agent("any:model", policies=["max_turns"])  # wrong
StreamOptions(transport="pigeon")  # wrong
