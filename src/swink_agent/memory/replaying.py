"""A recorded session as a test case: an agent goes through it again, offline, and the first difference is reported.

Owns the one function, whose name its module cannot have: that would take its place in the room. What happens on the way
is in `stage`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from swink_agent.core.agent import Agent
from swink_agent.core.stream import StreamFn
from swink_agent.core.tool import AgentTool

from .divergence import ReplayReport
from .recording import RecordedSession, read_runs
from .stage import ReplayStage

__all__ = ["MakeAgentFn", "WrapToolFn", "replay"]

WrapToolFn: TypeAlias = Callable[[AgentTool], AgentTool]
MakeAgentFn: TypeAlias = Callable[[StreamFn, WrapToolFn], Agent | Awaitable[Agent]]


async def replay(session: RecordedSession, make_agent: MakeAgentFn, *, patience: float = 30.0) -> ReplayReport:
    """Runs a recorded session again, and says where the agent went another way, if it did.

    `make_agent(stream_fn, wrap_tool)` gives the agent to try, sync or async. No model is asked and no tool is run, even
    if it uses neither of the two: what the agent has is replaced. A replay in which nothing happens for `patience`
    seconds, since a policy or an approval waits for somebody, is a divergence too.

    Raises `TypeError` if `make_agent` gives something else than an agent.
    """
    runs, total = read_runs(session)
    stage = ReplayStage(patience)
    made = make_agent(stage.stream, stage.wrap_tool)
    agent: Any = await made if inspect.isawaitable(made) else made
    if not isinstance(agent, Agent):
        what = "None" if agent is None else f"a {type(agent).__name__}"
        raise TypeError(f"make_agent returned {what}, not an Agent")
    stage.take(agent)
    for index, run in enumerate(runs):
        await stage.play(index, run)
        if stage.divergence is not None:
            return ReplayReport(divergence=stage.divergence, messages=stage.reached, total=total, runs=index + 1)
    return ReplayReport(messages=total, total=total, runs=len(runs))
