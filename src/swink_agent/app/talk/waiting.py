"""Asks about the calls of a session that wait for an answer, and reports those that cannot be answered here.

`Conversation` then continues with the answers. Answers on the command line are in `app.runs.answers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from swink_agent.app.runs.answers import Answers, missing_tool, named
from swink_agent.core.approval import Defer, PendingCall
from swink_agent.core.cancel import CancellationToken, unless_cancelled

from ..agent.open_agent import OpenAgent

_OUTSIDE = "it runs outside: its application gives the result with `agent.resume`"
_MISSING = "there is no tool {tool} here: its application continues the session with `agent.resume`"
_LATER = "/answer asks about it"


class WaitingCalls:
    """The calls of an agent that wait. Create it in a thread: rules read the disk."""

    def __init__(self, opened: OpenAgent) -> None:
        pending = opened.agent.pending
        self._opened = opened
        self._obstacles = {call.call_id: _obstacle(call, opened) for call in pending}
        self.askable = [call for call in pending if not self._obstacles[call.call_id]]
        """The calls that a user can approve here."""

    def named(self, pending: Sequence[PendingCall]) -> str:
        """Lists the calls that still wait, each with the way to answer it."""
        redactor = self._opened.redactor
        rows = [f"{named(call, redactor)}; {self._obstacles.get(call.call_id) or _LATER}" for call in pending]
        count = "a call waits" if len(rows) == 1 else f"{len(rows)} calls wait"
        return "\n".join([f"{count} for an answer; a new prompt rejects all calls that wait:", *rows])

    async def ask_in_turn(self, calls: Sequence[PendingCall], waiting: CancellationToken) -> Answers:
        """Returns the user's answers; a call without one keeps waiting. Raises `Aborted` if `waiting` is cancelled."""
        answers: Answers = {}
        for call in calls:
            answer = await unless_cancelled(waiting, self._opened.made.approvals.ask_later(call))
            if not isinstance(answer, Defer):
                answers[call.call_id] = answer
        return answers


def given_up(count: int) -> str:
    """The notice that a prompt rejects the calls that wait."""
    calls = "the call that waited is" if count == 1 else f"the {count} calls that waited are"
    return f"{calls} rejected, because the conversation continues without an answer"


def _obstacle(call: PendingCall, opened: OpenAgent) -> str:
    """Returns why a call cannot be approved here; empty if it can."""
    if call.kind == "external":
        return _OUTSIDE
    if tool := missing_tool(call, opened.made):
        return _MISSING.format(tool=tool)
    denial = opened.made.approvals.denial(call)
    return f"it cannot be approved here: {denial}" if denial else ""
