"""For tests of agents: scripted models, checkers, and a fake clock. Public, and used by this project's own tests.

agent = Agent("any:model", stream_fn=scripted(call("add", a=2, b=3), text("5")), tools=[add])
events = await collect(agent.prompt_stream("2+3?"))
check_events(events)
"""

from .check_conversation import check_conversation
from .check_events import check_events
from .check_stream_fn import check_stream_fn
from .clock import FakeClock
from .collect import collect, names
from .script import Request, ScriptedStream, call, fail, reply, scripted, stall, text, think, truncated

__all__ = [
    "FakeClock",
    "Request",
    "ScriptedStream",
    "call",
    "check_conversation",
    "check_events",
    "check_stream_fn",
    "collect",
    "fail",
    "names",
    "reply",
    "scripted",
    "stall",
    "text",
    "think",
    "truncated",
]
