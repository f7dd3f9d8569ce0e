"""Approvals: which calls may run unasked, and how the others are shown to the person who is asked.

Give `Approvals` to an agent as `approve`. `CommandRules` decides which shell commands need no question, `CallRules`
which other calls; `safe_display` makes foreign text safe to show. Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
