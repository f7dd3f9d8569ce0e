"""A recorded session, gone through again by the standard agent of today: no model is asked, no tool runs.

Owns the agent for that, and its one stand-in for a person, who answers as the recording says. What a replay is, and
what counts as a difference, is in `swink_agent.memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swink_agent.core.types import AgentMessage, AssistantMessage, ModelSpec, PolicyStop, ToolOutcome, extract_text

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
    from swink_agent.memory.recording import Turn

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
            asked.agent = made.agent
            made.agent.tools = [wrap_tool(tool) for tool in made.agent.tools]
            return made.agent

        return await replay(loaded, make_agent)


def ended_by(loaded: LoadedSession, run: int) -> PolicyStop | None:
    """The limit, or another policy, that ended a run when it was recorded; runs are counted from 0."""
    from swink_agent.memory.recording import read_runs  # which counts them as a replay does

    end = read_runs(loaded)[0][run].end
    return None if end is None else end.stopped_by


class _RecordedAnswers:
    """A person who says of each call what was said when it was recorded: yes, with the same changes, or no, for the
    same reason."""

    def __init__(self, loaded: LoadedSession) -> None:
        from swink_agent.memory.recording import read_runs

        self.agent: Agent | None = None
        self._turns: dict[int, list[Turn]] = {}
        """By the position of the reply: ids of calls may recur."""
        for run in read_runs(loaded)[0]:
            for position, (_, expected) in enumerate(run.expected(), run.start):
                if expected.source == "reply":
                    self._turns.setdefault(position, []).append(run.turns[expected.turn])

    def __call__(self, question: ApprovalQuestion) -> ApprovalAnswer:
        from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice

        call_id = question.request.call_id
        turn, index = self._find(call_id)
        if turn is None:
            return ApprovalAnswer(ApprovalChoice.NO, f"nothing is on record of {msgspec.json.encode(call_id).decode()}")
        result, started = turn.results.get(index), turn.started.get(index)
        if result is not None and result.outcome is ToolOutcome.REJECTED:
            return ApprovalAnswer(ApprovalChoice.NO, extract_text(result.content).removeprefix(_REJECTED))
        # What the model was told of a change is in the result.
        return ApprovalAnswer(ApprovalChoice.ONCE, arguments=None if started is None else started.arguments)

    def _find(self, call_id: str) -> tuple[Turn | None, int]:
        """The turn of the reply that is the last message now, and the index of the call in it."""
        messages: Sequence[AgentMessage] = () if self.agent is None else self.agent.messages
        last = messages[-1] if messages else None
        for turn in self._turns.get(len(messages) - 1, ()):
            if isinstance(last, AssistantMessage) and turn.calls == last.tool_calls:
                ids = [call.id for call in turn.calls]
                return (turn, ids.index(call_id)) if call_id in ids else (None, -1)
        return None, -1
