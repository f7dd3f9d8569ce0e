"""The standard agent as a tool for clients of `swink mcp serve`.

It takes a prompt and, to continue, a session id. It returns an answer and the session id. A client reaches only the
sessions of the folder that is served, by their whole ids, and no error tells it of others.
"""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any

from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import Text

from ..errors import ApplicationError, ExitCode, UsageProblem
from ..runs.headless import HeadlessRun, Outcome
from ..runs.sessions import WantedSession, is_of_folder
from .open_agent import OpenAgent
from .opening import Opening


class ServedAgent:
    """Each call runs the standard agent once. No user is asked: the rules and the mode of approvals decide."""

    name = "agent"
    label = "Agent"
    description = (
        "Gives a task to an agent that works in this folder with its own tools and model. It answers with its last "
        "message, and with the id of its session: give that id to go on there."
    )
    requires_approval = False

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self.parameters_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "minLength": 1, "description": "The task, or what to do next."},
                "session": {"type": ["string", "null"], "description": "The session to continue; none for a new one."},
            },
            "required": ["prompt"],
            "additionalProperties": False,
        }

    def __repr__(self) -> str:
        return f"<tool agent in {self._opening.folder}>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        """Runs the prompt to its end. A cancelled call interrupts the run."""
        opening = asyncio.ensure_future(asyncio.to_thread(self._open, arguments.get("session")))
        try:
            opened = await asyncio.shield(opening)
        except ApplicationError as error:
            raise ToolError(str(error)) from error
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unused)
            raise
        made = opened.made
        run = HeadlessRun(made.agent, timeout=self._opening.settings.value("timeout"), prepare=made.prepare)
        try:
            outcome = await run.run(arguments["prompt"])
        except asyncio.CancelledError:
            run.interrupt()
            raise
        finally:
            await asyncio.shield(_closed(opened))
        return _result(outcome, opened.session.id)

    def _open(self, session: str | None) -> OpenAgent:
        """The agent with a new session, or that of the client. Raises `ApplicationError`."""
        if session is not None and not is_of_folder(self._opening.settings, session, self._opening.folder):
            raise UsageProblem("there is no such session")
        return OpenAgent.open(self._opening, {}, WantedSession(id=session))


def _close_unused(opening: asyncio.Future[OpenAgent]) -> None:
    """Closes an agent and its session that were opened although the call was cancelled meanwhile."""
    if not opening.cancelled() and opening.exception() is None:
        Thread(target=opening.result().close, daemon=True).start()


async def _closed(opened: OpenAgent) -> None:
    await opened.made.finish()
    await asyncio.to_thread(opened.close)


def _result(outcome: Outcome, session: str | None) -> AgentToolResult:
    is_done = outcome.exit_code == ExitCode.DONE
    text = outcome.text if is_done else "\n".join(part for part in (outcome.text, _why(outcome)) if part)
    structured = {"text": outcome.text, "session": session, "stop_reason": str(outcome.stop_reason)}
    return AgentToolResult((Text(text or "(no answer)"),), {"structured": structured}, not is_done)


def _why(outcome: Outcome) -> str:
    if outcome.error:
        return f"the run failed: {outcome.error}"
    if outcome.pending:
        return "calls wait for an answer: swink --resume answers them"
    if outcome.stopped_by is not None:
        return f"the run was stopped: {outcome.stopped_by.reason}"
    return f"the run ended early: {outcome.stop_reason}"
