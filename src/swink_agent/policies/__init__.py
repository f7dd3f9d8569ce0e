"""Policies: ready-made objects for `Agent(policies=[…])`, each in its own file and usable alone.

Limits (`Budget`, `MaxTurns`, `MaxDuration`, `LoopDetection`), what calls may be made (`AllowList`, `DenyList`,
`WorkspaceOnly`), what may be read and said (`PromptGuard`, `PiiRedactor`, `ContentFilter`, `ClaimCheck`), what is kept
(`AuditLog`, `Checkpoint`); `recommended` is a sensible set of them. And what people are asked: `Approvals`, with
`CommandRules` for the commands and `CallRules` for other calls that need no asking. Importing this module loads none of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .recommended import recommended  # now, for it has the name of its module, which would else take its place

if TYPE_CHECKING:
    from swink_agent.core.redaction import Redactor

    from .allow_list import AllowList
    from .approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion, Approvals, SessionTrust
    from .audit import AuditLog
    from .budget import Budget, WorstCaseFn
    from .call_rules import CallRules
    from .checkpoint import Checkpoint, SavedConversation
    from .claim_check import ClaimCheck
    from .command_rules import CommandRules, Decision
    from .content_filter import ContentFilter
    from .deny_list import DenyList
    from .display import safe_display
    from .loop_detection import LoopDetection
    from .max_duration import MaxDuration
    from .max_turns import MaxTurns
    from .pii import PII_KINDS, PiiRedactor
    from .prompt_guard import PromptGuard
    from .workspace_only import WorkspaceOnly

_HOMES = {
    "PII_KINDS": ".pii",
    "AllowList": ".allow_list",
    "ApprovalAnswer": ".approvals",
    "ApprovalChoice": ".approvals",
    "ApprovalQuestion": ".approvals",
    "Approvals": ".approvals",
    "AuditLog": ".audit",
    "Budget": ".budget",
    "CallRules": ".call_rules",
    "Checkpoint": ".checkpoint",
    "ClaimCheck": ".claim_check",
    "CommandRules": ".command_rules",
    "ContentFilter": ".content_filter",
    "Decision": ".command_rules",
    "DenyList": ".deny_list",
    "LoopDetection": ".loop_detection",
    "MaxDuration": ".max_duration",
    "MaxTurns": ".max_turns",
    "PiiRedactor": ".pii",
    "PromptGuard": ".prompt_guard",
    "Redactor": "swink_agent.core.redaction",
    "SavedConversation": ".checkpoint",
    "SessionTrust": ".approvals",
    "WorkspaceOnly": ".workspace_only",
    "WorstCaseFn": ".budget",
    "safe_display": ".display",
}

__all__ = [
    "PII_KINDS",
    "AllowList",
    "ApprovalAnswer",
    "ApprovalChoice",
    "ApprovalQuestion",
    "Approvals",
    "AuditLog",
    "Budget",
    "CallRules",
    "Checkpoint",
    "ClaimCheck",
    "CommandRules",
    "ContentFilter",
    "Decision",
    "DenyList",
    "LoopDetection",
    "MaxDuration",
    "MaxTurns",
    "PiiRedactor",
    "PromptGuard",
    "Redactor",
    "SavedConversation",
    "SessionTrust",
    "WorkspaceOnly",
    "WorstCaseFn",
    "recommended",
    "safe_display",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
