"""For tests of agents: scripted models, checkers, servers, fakes and a clock. This project's own tests use them too.

agent = Agent("any:model", stream_fn=scripted(call("add", a=2, b=3), text("5")), tools=[add])
events = await collect(agent.prompt_stream("2+3?"))
check_events(events)
"""

from typing import TYPE_CHECKING

from ._exports import *  # eagerly, since some names equal those of their modules, which would hide them

if not TYPE_CHECKING:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
