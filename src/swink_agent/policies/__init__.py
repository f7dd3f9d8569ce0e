"""Policies: ready-made objects for `Agent(policies=[…])`, each usable alone.

    limits/    how much a run may use: Budget, MaxTurns, MaxDuration, LoopDetection
    calls/     which calls may run: AllowList, DenyList, WorkspaceOnly
    texts/     what the model may read and write: PromptGuard, PiiRedactor, ContentFilter
    records/   what is written to disk: AuditLog, Checkpoint

`recommended` returns a sensible set of them. Also exported here: the names of `swink_agent.approvals`, and `ClaimCheck`
of `swink_agent.local`. Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    from .recommended import recommended as recommended  # now: the module of the same name would hide it later

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
