"""Tools: a shell, files and search, for an agent that works in a folder.

The file tools cannot leave the folder, the shell is confined by `swink_agent.sandbox`. Importing this module loads none
of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
