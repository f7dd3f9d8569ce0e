"""Prints everything that an agent with two tools does, while it does it. The model is scripted: no key, no network."""

from __future__ import annotations

import asyncio

from swink_agent import (
    Agent,
    MessageEnd,
    MessageUpdate,
    TextDelta,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnStart,
    extract_text,
    tool,
)
from swink_agent.testing import call, scripted, text

FORECAST = {"Oslo": "snow", "Cairo": "sun"}


@tool
def weather(city: str) -> str:
    """Looks up the weather.

    Args:
        city: The city's English name.
    """
    if city not in FORECAST:
        raise KeyError(f"no forecast for {city}")
    return FORECAST[city]


@tool
async def count_down(ctx: ToolContext, start: int = 3) -> str:
    """Counts down, reporting on the way."""
    for number in range(start, 0, -1):
        ctx.update(f"{number}…")
        await asyncio.sleep(0)
    return "lift-off"


MODEL = scripted(
    [text("Let me look that up. "), call("weather", city="Oslo"), call("weather", city="Atlantis"), call("count_down")],
    text("It snows in Oslo, there is no forecast for Atlantis, and the rocket has started.", deltas=12),
)


async def main() -> None:
    agent = Agent("scripted:demo", system_prompt="Be brief.", tools=[weather, count_down], stream_fn=MODEL)
    async for event in agent.prompt_stream("What is the weather in Oslo and Atlantis? Then launch the rocket."):
        match event:
            case TurnStart():
                print(f"── turn {event.turn_index}")
            case MessageUpdate(delta=TextDelta()):
                print(event.delta.delta, end="", flush=True)
            case MessageEnd():
                print()
            case ToolExecutionStart():
                print(f"   → {event.name} {event.arguments}")
            case ToolExecutionUpdate():
                print(f"     {event.name}: {extract_text(event.update.content)}")
            case ToolExecutionEnd():
                print(f"   {'✗' if event.is_error else '✓'} {event.name}: {extract_text(event.result.content)}")
            case _:
                pass


if __name__ == "__main__":
    asyncio.run(main())
