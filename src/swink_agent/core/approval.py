"""Who may say yes to a tool call, and how.

Owns the request and the three answers. Asking is done in `dispatch`, before any tool of the batch starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, TypeAlias

from .value import Value, show, show_arguments

__all__ = ["Approval", "ApprovalMode", "Approve", "ApproveFn", "ApproveWith", "Reject", "ToolApprovalRequest"]


class ApprovalMode(StrEnum):
    """Which calls are asked about."""

    ENABLED = "enabled"
    """Every tool."""
    SMART = "smart"
    """Those that say `requires_approval`."""
    BYPASSED = "bypassed"
    """None."""


class ToolApprovalRequest(Value, frozen=True):
    """The call to decide on. Its repr names the arguments but shows no values: a secret may be in any of them."""

    call_id: str
    name: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        shown = show_arguments(self.arguments)
        return f"ToolApprovalRequest(call_id={show(self.call_id)}, name={show(self.name)}, arguments={shown})"


class Approve(Value, frozen=True):
    """Run it as it is."""


class ApproveWith(Value, frozen=True):
    """Run it with these arguments instead; pre-dispatch policies see them first."""

    arguments: dict[str, Any]


class Reject(Value, frozen=True):
    """Do not run it; the model is told why."""

    reason: str = ""


Approval: TypeAlias = Approve | ApproveWith | Reject
ApproveFn: TypeAlias = Callable[[ToolApprovalRequest], Approval | bool | Awaitable[Approval | bool]]
