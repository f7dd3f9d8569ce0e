"""The approval of tool calls: the request, the answers, and the call that waits for a later one.

Owns the request and the answers. Asking is done in `dispatch`, before any tool of the batch starts; `pending` finds the
calls of a history that wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import msgspec

from .values.value import Choice, Value, show, show_arguments
from .values.value import WithReason as _WithReason


class ApprovalMode(Choice):
    """Which calls are asked about."""

    ENABLED = "enabled"
    """Every tool."""
    SMART = "smart"
    """Those that say `requires_approval`; the specification's name for `WHERE_REQUIRED`."""
    BYPASSED = "bypassed"
    """None."""

    WHERE_REQUIRED = SMART
    """The same, by a name that is not that of the mode of `Approvals` in which rules answer for a person."""


class ProposedCall(Value, frozen=True):
    """The call to decide on, which `approve` is given; the event that it was asked about is `ToolApprovalRequested`.

    Its repr names the arguments but shows no values: a secret may be in any of them.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    scope: dict[str, Any] = {}
    """Where and how the tool says that it would run: the folder and the sandbox of a command, say."""
    delegates: tuple[str, ...] = ()
    """The tools on the way to the delegate that proposes the call, the outermost first; empty for the agent itself."""

    def __repr__(self) -> str:
        shown = show_arguments(self.arguments)
        return f"ProposedCall(call_id={show(self.call_id)}, name={show(self.name)}, arguments={shown})"


ToolApprovalRequest: TypeAlias = ProposedCall
"""The specification's name for it."""

PendingKind: TypeAlias = Literal["approval", "external"]


class PendingCall(Value, frozen=True):
    """A call that waits for an answer, perhaps in another process. It is JSON: store it, send it, show it.

    `approval`: a person or a rule must decide whether it runs. `external`: the application runs it and gives the
    result. Its repr names the arguments but shows no values.
    """

    call_id: str
    """The key of its answer in `resume`. A call in a delegate has the ids of the calls on the way before its own."""
    name: str
    arguments: dict[str, Any]
    kind: PendingKind = "approval"
    reason: str = ""
    """Why it waits, in the words of `Defer`."""
    scope: dict[str, Any] = {}
    """Where and how the tool says that it would run."""
    delegates: tuple[str, ...] = ()
    """The tools on the way to a delegate that made the call, outermost first."""
    position: int | None = None
    """The position of the reply in the log of a durable run; `None` elsewhere."""

    def __repr__(self) -> str:
        shown = show_arguments(self.arguments)
        call = f"call_id={show(self.call_id)}, name={show(self.name)}, arguments={shown}"
        return f"PendingCall({call}, kind={self.kind!r})"


class Grant(Value, frozen=True):
    """What was approved: this tool, with these arguments, in this scope, and nothing else.

    A tool that needs approval calls `covers` directly before it acts, and refuses anything that changed since the
    question.
    """

    name: str
    arguments: dict[str, Any]
    scope: dict[str, Any] = {}
    reads_only: bool = False
    """Whether rules approved a command because all of its programs only read.

    Another call of the same reply may put a program of the same name where the command would find it first. The tool
    that runs the command therefore looks for programs only where commands cannot write.
    """

    def __repr__(self) -> str:
        return f"Grant(name={show(self.name)}, arguments={show_arguments(self.arguments)})"

    def covers(self, name: str, arguments: dict[str, Any], scope: dict[str, Any]) -> bool:
        """Whether that is exactly what was approved: as JSON, in which `1`, `1.0` and `true` are three things."""
        return _canonical(name, arguments, scope) == _canonical(self.name, self.arguments, self.scope)


def _canonical(name: str, arguments: dict[str, Any], scope: dict[str, Any]) -> bytes:
    return msgspec.json.encode((name, arguments, scope), order="sorted")


class Approve(Value, frozen=True):
    """Run it as it is.

    `reads_only` becomes that of the `Grant`. It is not part of the answer, so equality and repr ignore it.
    """

    reads_only: bool = False

    def __repr__(self) -> str:
        return "Approve()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Approve)

    def __hash__(self) -> int:
        return hash(Approve)


class ApproveWith(Value, frozen=True):
    """Run it with these arguments instead; pre-dispatch policies see them first.

    Its own call is what the model sees in the history, so `note` tells it, behind the result, what was made of it.
    """

    arguments: dict[str, Any]
    note: str = ""


class Reject(_WithReason, frozen=True):
    """Do not run it; the model reads the reason."""


class Defer(_WithReason, frozen=True):
    """Answer later, perhaps in another process: the run ends, and the call waits for `resume`.

    `reason` says why. People see it with the `PendingCall`.
    """


Approval: TypeAlias = Approve | ApproveWith | Reject
ApproveFn: TypeAlias = Callable[[ProposedCall], Approval | Defer | bool | Awaitable[Approval | Defer | bool]]
