"""For tests of agents: scripted models, checkers, servers, fakes and a clock. Public, and what this project tests with.

agent = Agent("any:model", stream_fn=scripted(call("add", a=2, b=3), text("5")), tools=[add])
events = await collect(agent.prompt_stream("2+3?"))
check_events(events)
"""

from .check_conversation import check_conversation
from .check_events import check_events
from .check_replay import assert_replays, assert_replays_sync
from .check_stream_fn import check_stream_fn
from .clock import FakeClock
from .collect import collect, names
from .fakes import FakeFailure, FakeProvider, FakeReply
from .script import Request, ScriptedStream, call, fail, reply, scripted, stall, text, think, truncated
from .servers import LoopbackServer

__all__ = [
    "FakeClock",
    "FakeFailure",
    "FakeProvider",
    "FakeReply",
    "LoopbackServer",
    "Request",
    "ScriptedStream",
    "assert_replays",
    "assert_replays_sync",
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
