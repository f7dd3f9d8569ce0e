"""Approvals: what may run unasked, and how a call is shown to the person who is asked about the others.

`Approvals` is what an agent is given as `approve`; `CommandRules` says which shell commands need no asking,
`CallRules` which other calls; `safe_display` shows text that somebody else wrote. Importing this module loads none of
them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
