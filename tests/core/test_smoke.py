from swink_agent import Agent, tool
from swink_agent.testing import call, check_events, collect, names, scripted, text


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def test_a_turn_with_a_tool_and_a_turn_with_text() -> None:
    agent = Agent("a:b", stream_fn=scripted(call("add", a=2, b=3), text("5")), tools=[add])
    events = await collect(agent.prompt_stream("2+3?"))
    check_events(events)
    assert names(events) == [
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
        "MessageEnd",
        "TurnEnd",
        "AgentEnd",
    ]
