"""Replays a recorded session with the current standard agent: no model is asked, no tool runs.

Questions to the user are answered as in the recording. Replays and their differences are defined in
`swink_agent.memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swink_agent.core.types import AgentMessage, AssistantMessage, ModelSpec, ToolOutcome

from ..agent.standard import AgentOptions, standard_agent
from ..keys.credentials import Credentials
from ..settings.settings import Settings
from ..trust.trust import Project

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
    from swink_agent.core.agent.agent import Agent
    from swink_agent.core.stream import StreamFn
    from swink_agent.core.tool import AgentTool
    from swink_agent.memory import LoadedSession, ReplayReport
    from swink_agent.memory.log.runs import StoredRun


async def replay_session(
    loaded: LoadedSession, settings: Settings, credentials: Credentials, folder: Path, project: Project | None = None
) -> ReplayReport:
    """The report of a replay with the standard agent in a folder, with the current settings."""
    from swink_agent.memory import replay  # on use

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


class _RecordedAnswers:
    """Answers each question as the recording does: yes with the same changes, or no with the same reason."""

    def __init__(self, loaded: LoadedSession) -> None:
        self.agent: Agent | None = None
        self._turns: dict[int, list[tuple[StoredRun, int]]] = {}
        """By the position of the reply: ids of calls may recur."""
        for run in loaded.fold.runs:
            behind = [added for added in run.added if added.replaces is None]
            for position, added in enumerate(behind, run.start):
                if added.source == "reply":
                    self._turns.setdefault(position, []).append((run, added.turn))

    def __call__(self, question: ApprovalQuestion) -> ApprovalAnswer:
        from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice

        call_id = question.request.call_id
        found = self._find(call_id)
        if found is None:
            return ApprovalAnswer(ApprovalChoice.NO, f"there is no record of {msgspec.json.encode(call_id).decode()}")
        run, turn, index = found
        call, started = run.record.turns[turn].calls[index], run.turns[turn].started.get(index)
        if call.outcome is ToolOutcome.REJECTED:
            return ApprovalAnswer(ApprovalChoice.NO, call.reason)
        arguments = None if started is None else started.arguments
        if call.note:
            arguments = call.arguments
        return ApprovalAnswer(ApprovalChoice.ONCE, call.note, arguments)

    def _find(self, call_id: str) -> tuple[StoredRun, int, int] | None:
        """The run, the turn of the reply that is the last message now, and the index of the call in it."""
        messages: Sequence[AgentMessage] = () if self.agent is None else self.agent.messages
        last = messages[-1] if messages else None
        for run, turn in self._turns.get(len(messages) - 1, ()):
            calls = run.turns[turn].calls
            if isinstance(last, AssistantMessage) and calls == last.tool_calls:
                ids = [call.id for call in calls]
                return (run, turn, ids.index(call_id)) if call_id in ids else None
        return None
