"""Model Context Protocol: tools of other programs for an agent, and an agent's tools for other programs.

Importing this module loads none of it. The extra `mcp` is needed when a server starts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
