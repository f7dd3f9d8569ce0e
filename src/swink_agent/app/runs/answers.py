"""Answers to calls that wait: how a user writes them, and how the calls are shown.

    CALL=yes            approves the call
    CALL=no: reason     rejects it, and the model reads the reason

The standard agent neither defers calls nor runs them outside, but other applications do, and their sessions can be
continued here. Waiting calls and the effect of an answer are in `swink_agent.core`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from swink_agent.approvals.display import safe_display
from swink_agent.core.approval import Approve, ApproveWith, PendingCall, Reject
from swink_agent.core.secrets.redaction import Redactor

from ..errors import UsageProblem
from .telling import summary_of

if TYPE_CHECKING:
    from ..agent.standard import StandardAgent

Answers: TypeAlias = "dict[str, Approve | ApproveWith | Reject]"

_ANSWER = re.compile(r"(yes)|no(?:\s*:\s*(.*))?", re.IGNORECASE | re.DOTALL)
_FORM = "an answer is CALL=yes, CALL=no or 'CALL=no: reason'"
_LONGEST, _LONGEST_ID = 200, 120
OUTSIDE = (
    "the application that made a call that runs outside must give its result (`agent.resume`). Here you can only "
    "reject it: --answer 'CALL=no: reason'"
)
"""How external calls are answered."""


def check_form(texts: Sequence[str]) -> None:
    """Raises `UsageProblem` for a text that is not an answer to any call."""
    for text in texts:
        if not any(_readings(text)):
            raise UsageProblem(f"{_quoted(text)} is not an answer: {_FORM} (--answer)")


def answers_for(texts: Sequence[str], pending: Sequence[PendingCall]) -> Answers:
    """Returns the answers in the texts, by call. If one is wrong, raises `UsageProblem`, and no answer counts."""
    check_form(texts)
    waiting = {call.call_id: call for call in pending}
    answers: Answers = {}
    for text in texts:
        # An id may contain "=", so the ids of the waiting calls decide where it ends.
        readings = list(_readings(text))
        call_id, answer = next((reading for reading in readings if reading[0] in waiting), readings[0])
        call = waiting.get(call_id)
        if call is None:
            raise UsageProblem(f"the call {_quoted(call_id)} does not wait for an answer: {_those(pending)} (--answer)")
        if call_id in answers:
            raise UsageProblem(f"the call {_quoted(call_id)} has two answers: leave one out (--answer)")
        if call.kind == "external" and isinstance(answer, Approve):
            raise UsageProblem(
                f"the call {_quoted(call_id)} of {safe_display(call.name, 60)} runs outside, so it cannot be approved: "
                "its application gives the result with `resume`; here it can be rejected (--answer)"
            )
        answers[call_id] = answer
    return answers


def _readings(text: str) -> Iterator[tuple[str, Approve | Reject]]:
    """Yields the possible ids at the beginning of the text, each with the answer that follows."""
    position = text.find("=")
    while position >= 0:
        found = _ANSWER.fullmatch(text[position + 1 :].strip())
        if found is not None and position > 0:
            yield text[:position], Approve() if found[1] else Reject((found[2] or "").strip() or "the user said no")
        position = text.find("=", position + 1)


def _those(pending: Sequence[PendingCall]) -> str:
    if not pending:
        return "none of this session does"
    shown = ", ".join([safe_display(call.call_id, _LONGEST_ID) for call in pending[:5]])
    return f"{shown}{', …' if len(pending) > 5 else ''} {'does' if len(pending) == 1 else 'do'}"


def _quoted(text: str) -> str:
    return repr(safe_display(text, 80))


# -- rules ---------------------------------------------------------------------------------------------------


def check_approved(answers: Answers, pending: Sequence[PendingCall], made: StandardAgent) -> list[str]:
    """Raises `UsageProblem` if a rule forbids a call that is approved. Returns warnings for the user.

    The rules read the disk.
    """
    warnings: list[str] = []
    for call in pending:
        if not isinstance(answers.get(call.call_id), Approve):
            continue
        denial = made.approvals.denial(call)
        if denial is not None:
            raise UsageProblem(f"the call {_quoted(call.call_id)} cannot be approved here: {denial} (--answer)")
        if missing := missing_tool(call, made):
            warnings.append(f"the call {_quoted(call.call_id)} cannot run here: there is no tool {_quoted(missing)}")
    return warnings


def missing_tool(call: PendingCall, made: StandardAgent) -> str:
    """The tool that the call needs and the agent lacks; empty if the agent has it.

    Tools of a configured MCP server are assumed to exist: the server may not be running yet.
    """
    needed = call.delegates[0] if call.delegates else call.name
    servers = () if made.servers is None else made.servers.settings
    if any(needed.startswith(f"mcp__{item.name}__") for item in servers):
        return ""
    return "" if needed in {tool.name for tool in made.agent.tools} else needed


# -- words ---------------------------------------------------------------------------------------------------


def named(call: PendingCall, redactor: Redactor) -> str:
    """A waiting call on one line: its id, its tool and arguments, and what it waits for."""
    way = "".join([f"{safe_display(name, 60)} > " for name in call.delegates])
    what = safe_display(redactor.redact(summary_of(call.name, call.arguments)), _LONGEST)
    waits = "for its result from outside" if call.kind == "external" else "for an approval"
    reason = safe_display(redactor.redact(call.reason), _LONGEST) if call.reason else ""
    called = f"{way}{safe_display(call.name, 60)} {what}".rstrip()
    return f"{safe_display(call.call_id, None)}: {called} (waits {waits}{f': {reason}' if reason else ''})"


def how_to_answer(pending: Sequence[PendingCall], session_id: str, *, cwd: str | None = None) -> str:
    """The command line that approves all calls that can be approved here; empty if there are none."""
    where = f" -C {shlex.quote(cwd)}" if cwd else ""
    given = [shlex.quote(f"{call.call_id}=yes") for call in pending if call.kind == "approval"]
    return f"swink -p{where} --resume {session_id} --answer {' --answer '.join(given)}" if given else ""
