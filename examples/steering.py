"""Steers an agent while it works, and gives it more to do afterwards."""

from __future__ import annotations

import asyncio

from swink_agent import (
    Agent,
    AgentEvent,
    MessagesInjected,
    ToolExecutionEnd,
    ToolExecutionStart,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.testing import call, scripted, text


@tool
async def look_around() -> str:
    """Looks at the task."""
    return "there is a lot to paint"


@tool
async def paint(colour: str) -> str:
    """Paints the garage, which takes an hour."""
    await asyncio.sleep(3600)
    return f"painted it {colour}"


@tool(on_steer="finish")
async def wash_brushes() -> str:
    """Washes the brushes. Steering does not interrupt it, because dried brushes are ruined."""
    await asyncio.sleep(0.1)
    return "clean"


MODEL = scripted(
    [call("look_around"), call("paint", colour="red"), call("wash_brushes")],
    text("All right, green it will be."),
    text("Here is the bill."),
)


async def main() -> None:
    agent = Agent("scripted:demo", tools=[look_around, paint, wash_brushes], stream_fn=MODEL)

    def show(event: AgentEvent) -> None:
        match event:
            case ToolExecutionStart(name="paint"):
                agent.steer("Wait! Green, not red.")  # from any thread, at any time
            case ToolExecutionEnd():
                print(f"{event.name}: {extract_text(event.result.content)}")
            case MessagesInjected(messages=(UserMessage(content=content),)):
                print(f"[{event.source}] {extract_text(content)}")
            case _:
                pass

    agent.subscribe(show)
    agent.follow_up("What do I owe you?")
    result = await agent.prompt("Paint the garage red.")
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
