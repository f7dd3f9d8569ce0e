"""For tests of agents: scripted models, checkers, servers, fakes and a clock. Public, and what this project tests with.

agent = Agent("any:model", stream_fn=scripted(call("add", a=2, b=3), text("5")), tools=[add])
events = await collect(agent.prompt_stream("2+3?"))
check_events(events)
"""

from typing import TYPE_CHECKING

from ._exports import *  # at once: several have the names of their modules, which would else take their places

if not TYPE_CHECKING:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
