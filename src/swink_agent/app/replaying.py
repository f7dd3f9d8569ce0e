"""A recorded session, gone through again by the standard agent of today: no model is asked, no tool runs.

Owns the agent for that, and its one stand-in for a person, who answers as the recording says. What a replay is, and
what counts as a difference, is in `swink_agent.memory`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swink_agent.core.journal import MessageAdded, ToolStarted
from swink_agent.core.types import ModelSpec, PolicyStop, ToolOutcome, ToolResultMessage, extract_text

from .agent import AgentOptions, standard_agent
from .credentials import Credentials
from .settings import Settings
from .trust import Project

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
    from swink_agent.core.agent import Agent
    from swink_agent.core.stream import StreamFn
    from swink_agent.core.tool import AgentTool
    from swink_agent.memory import LoadedSession, ReplayReport

__all__ = ["ended_by", "replay_session"]

_REJECTED = "tool call rejected: "


async def replay_session(
    loaded: LoadedSession, settings: Settings, credentials: Credentials, folder: Path, project: Project | None = None
) -> ReplayReport:
    """The report of the standard agent in a folder, with the settings of today."""
    from swink_agent.memory import replay  # on use, as is the stage behind it

    asked = _RecordedAnswers(loaded)
    with ExitStack() as open_agents:

        def make_agent(stream_fn: StreamFn, wrap_tool: Callable[[AgentTool], AgentTool]) -> Agent:
            options = AgentOptions(
                settings=settings,
                credentials=credentials,
                folder=folder,
                project=project,
                ask=asked,
                stream_fn=stream_fn,
                model=loaded.info.model or ModelSpec("recorded", "replies"),
            )
            made = open_agents.enter_context(standard_agent(options))
            made.agent.tools = [wrap_tool(tool) for tool in made.agent.tools]
            return made.agent

        return await replay(loaded, make_agent)


def ended_by(loaded: LoadedSession, run: int) -> PolicyStop | None:
    """The limit, or another policy, that ended a run when it was recorded; runs are counted from 0."""
    from swink_agent.memory.recording import read_runs  # which counts them as a replay does

    end = read_runs(loaded)[0][run].end
    return None if end is None else end.stopped_by


class _RecordedAnswers:
    """Says yes to the calls that ran when they were recorded, and no to the others, for the same reason."""

    def __init__(self, loaded: LoadedSession) -> None:
        self._started: set[str] = set()
        self._reasons: dict[str, str] = {}
        for record in loaded.records():
            match record.entry:
                case ToolStarted(call_id=call_id):
                    self._started.add(call_id)
                case MessageAdded(message=ToolResultMessage(outcome=ToolOutcome.REJECTED) as message):
                    self._reasons[message.tool_call_id] = extract_text(message.content).removeprefix(_REJECTED)
                case _:
                    pass

    def __call__(self, question: ApprovalQuestion) -> ApprovalAnswer:
        from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice

        call_id = question.request.call_id
        if call_id in self._reasons:  # ids may recur, and a no is the answer that needs its words
            return ApprovalAnswer(ApprovalChoice.NO, self._reasons[call_id])
        if call_id in self._started:
            return ApprovalAnswer(ApprovalChoice.ONCE)
        return ApprovalAnswer(ApprovalChoice.NO, f"nothing is on record of {msgspec.json.encode(call_id).decode()}")
