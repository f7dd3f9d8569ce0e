"""The approval of tool calls: the request, the answers, and a call that waits for a later answer.

Defines these values, and the names of the arguments and scope fields that tools and approvals share. `approving` asks,
before any tool of the batch starts; `run/pending` finds the waiting calls of a history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import msgspec

from .values.data import as_json_data
from .values.value import Choice, Value, show, show_arguments
from .values.value import WithReason as _WithReason

ACCESS, REASON = "access", "reason"
"""The arguments with which a command asks for more than its sandbox gives; `ACCESS` is also in the scope."""
LONGEST_REASON = 500
READS_ONLY = "reads_only"
"""The field of a scope that is set if the call can run so that it only reads."""
RUNS = "runs"
"""The field of a scope that is set if a program runs the file, or reads it as settings, by itself. A person decides.
It has the `name`, the `program` and `when` that is."""
UNKEPT = "unkept"
"""The field of a scope that is set if no checkpoint can be kept now, so that the call could not be taken back."""


class ApprovalMode(Choice):
    """Which calls need approval."""

    ENABLED = "enabled"
    """All calls."""
    SMART = "smart"
    """Calls of tools with `requires_approval`; the specification's name for `WHERE_REQUIRED`."""
    BYPASSED = "bypassed"
    """No calls."""

    WHERE_REQUIRED = SMART
    """The same as `SMART`. The mode `smart` of `Approvals` is another one, in which rules answer for a person."""


class ProposedCall(Value, frozen=True):
    """The call that `approve` must decide on. The event for the question is `ToolApprovalRequested`.

    The repr names the arguments but does not show their values, which may contain secrets.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    scope: dict[str, Any] = {}
    """Where and how the call would run, as the tool describes it: for example the folder and sandbox of a command."""
    delegates: tuple[str, ...] = ()
    """The tools that lead to the delegate that proposes the call, outermost first; empty for the agent itself."""

    def __repr__(self) -> str:
        shown = show_arguments(self.arguments)
        return f"ProposedCall(call_id={show(self.call_id)}, name={show(self.name)}, arguments={shown})"


ToolApprovalRequest: TypeAlias = ProposedCall
"""The specification's name for `ProposedCall`."""

PendingKind: TypeAlias = Literal["approval", "external"]


class PendingCall(Value, frozen=True):
    """A call that waits for an answer, perhaps in another process. It is JSON: store it, send it, show it.

    `approval`: a person or a rule must decide whether it runs. `external`: the application runs it and gives the
    result. The repr names the arguments but does not show their values.
    """

    call_id: str
    """The key of its answer in `resume`. In a delegate, the ids of the calls that lead to it come before its own, each
    followed by `/`."""
    name: str
    arguments: dict[str, Any]
    kind: PendingKind = "approval"
    reason: str = ""
    """The `reason` of the `Defer`."""
    scope: dict[str, Any] = {}
    """Where and how the call would run, as the tool describes it."""
    delegates: tuple[str, ...] = ()
    """The tools that lead to the delegate that made the call, outermost first; empty for the agent itself."""
    position: int | None = None
    """The position of the reply in the log of a durable run; `None` elsewhere."""

    def __repr__(self) -> str:
        shown = show_arguments(self.arguments)
        call = f"call_id={show(self.call_id)}, name={show(self.name)}, arguments={shown}"
        return f"PendingCall({call}, kind={self.kind!r})"


class Grant(Value, frozen=True):
    """What was approved: this tool, with these arguments, in this scope, and nothing else.

    A tool that needs approval calls `covers` directly before it acts, and refuses the call if anything changed since
    the question.
    """

    name: str
    arguments: dict[str, Any]
    scope: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Grant(name={show(self.name)}, arguments={show_arguments(self.arguments)})"

    @property
    def reads_only(self) -> bool:
        """Whether the call was approved because it only reads: then the tool must not let it do more."""
        return self.scope.get(READS_ONLY) is True

    def covers(self, name: str, arguments: dict[str, Any], scope: dict[str, Any]) -> bool:
        """Whether this is exactly what was approved. Compares JSON, in which `1`, `1.0` and `true` are different.

        `READS_ONLY` and `UNKEPT` are not compared: the first is an order to the tool, and the second may have changed
        since without harm.
        """
        return _canonical(name, arguments, scope) == _canonical(self.name, self.arguments, self.scope)


def _canonical(name: str, arguments: dict[str, Any], scope: dict[str, Any]) -> bytes:
    place = {key: value for key, value in scope.items() if key not in (READS_ONLY, UNKEPT)}
    return msgspec.json.encode((name, arguments, place), order="sorted")


class Approve(Value, frozen=True):
    """Run the call as it is.

    `reads_only`: because it only reads; the scope of the `Grant` then has `READS_ONLY`, and otherwise not. It is not
    part of the answer, so equality and repr ignore it.
    """

    reads_only: bool = False

    def __repr__(self) -> str:
        return "Approve()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Approve)

    def __hash__(self) -> int:
        return hash(Approve)


class ApproveWith(Value, frozen=True):
    """Run the call with these arguments instead; pre-dispatch policies see them first.

    The history shows the model its original call, so `note` explains the change. It is added after the result.
    """

    arguments: dict[str, Any]
    note: str = ""


def scope_as_approved(scope: dict[str, Any], answer: Approve | ApproveWith) -> dict[str, Any]:
    """The scope of the grant: it has `READS_ONLY` if and only if the answer says so."""
    rest = {key: value for key, value in scope.items() if key != READS_ONLY}
    return as_json_data({**rest, READS_ONLY: True} if isinstance(answer, Approve) and answer.reads_only else rest)


class Reject(_WithReason, frozen=True):
    """Do not run the call; the model reads the reason."""


class Defer(_WithReason, frozen=True):
    """Answer later, perhaps in another process: the run ends, and the call waits for `resume`.

    `reason` is shown to people with the `PendingCall`.
    """


Approval: TypeAlias = Approve | ApproveWith | Reject
ApproveFn: TypeAlias = Callable[[ProposedCall], Approval | Defer | bool | Awaitable[Approval | Defer | bool]]
