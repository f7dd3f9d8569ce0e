"""A session as a document for people and programs: Markdown, one HTML page, JSON, or an ATIF trajectory.

Each is a function from plain values to a string; nothing is read, fetched or written. Their building blocks are in
`swink_agent.rendering`. Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
