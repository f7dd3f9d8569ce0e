"""A recorded session as a test case: an agent replays it offline, and the first difference is reported.

Owns `replay`. Neither its module nor its package has that name: importing them would hide the function in
`swink_agent.memory`. `stage` has the stand-ins.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from swink_agent.core.agent.agent import Agent
from swink_agent.core.stream import StreamFn
from swink_agent.core.tool import AgentTool

from ..log.runs import RecordedSession, read_runs
from .divergence import ReplayReport
from .stage import ReplayStage

WrapToolFn: TypeAlias = Callable[[AgentTool], AgentTool]
MakeAgentFn: TypeAlias = Callable[[StreamFn, WrapToolFn], Agent | Awaitable[Agent]]


async def replay(session: RecordedSession, make_agent: MakeAgentFn, *, patience: float = 30.0) -> ReplayReport:
    """Runs a recorded session again, and reports where the agent did something else, if it did.

    `make_agent(stream_fn, wrap_tool)` returns the agent to try, sync or async. No model is asked and no tool runs, even
    if it uses neither argument: the replay replaces both. If nothing happens for `patience` seconds, because a policy
    or an approval waits for a person, that is a divergence too.

    Raises `TypeError` if `make_agent` returns anything but an agent.
    """
    runs, total = read_runs(session)
    stage = ReplayStage(patience)
    made = make_agent(stage, stage.wrap_tool)
    agent: Any = await made if inspect.isawaitable(made) else made
    if not isinstance(agent, Agent):
        what = "None" if agent is None else f"a {type(agent).__name__}"
        raise TypeError(f"make_agent returned {what}, not an Agent")
    stage.take(cast("Agent", agent))
    try:
        for index, run in enumerate(runs):
            await stage.play(index, run)
            if stage.divergence is not None:
                return ReplayReport(divergence=stage.divergence, messages=stage.reached, total=total, runs=index + 1)
    finally:
        stage.give_back()
    return ReplayReport(messages=total, total=total, runs=len(runs))
