"""The public names of this package, one line each, with their modules. `core/lazy.py` reads this list."""

from .errors import McpError as McpError
from .server import McpServer as McpServer
from .tool import McpTool as McpTool
