"""The agent in a browser, and for programs over HTTP: `swink web`, and `app` for an application's own agents.

    access.py       access checks: host, origin, token, cookie; and the headers of every answer
    server.py       the aiohttp application: the order of checks, and errors as problem documents
    site.py         one server's parts; routes/ acts on them, and openapi.py describes the routes
    channels.py     sessions with their streams and questions; standard.py and embedded.py open their conversations
    streams.py      events that are kept, and readers that do not delay each other
    pages/          the pages for browsers
    agui.py         the AG-UI protocol

Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
