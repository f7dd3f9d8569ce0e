"""Policies: ready-made objects for `Agent(policies=[…])`, each in its own file and usable alone.

Limits (`Budget`, `MaxTurns`, `MaxDuration`, `LoopDetection`), what calls may be made (`AllowList`, `DenyList`,
`WorkspaceOnly`), what may be read and said (`PromptGuard`, `PiiRedactor`, `ContentFilter`, `ClaimCheck`), what is kept
(`AuditLog`, `Checkpoint`); `recommended` is a sensible set of them. What people are asked is in
`swink_agent.approvals`, whose names can be had here too. Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    from .recommended import recommended as recommended  # now: it has its module's name, which else takes its place

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
