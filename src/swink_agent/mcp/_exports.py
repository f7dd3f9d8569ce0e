"""The public names of this package, one line each, with their modules. `core/lazy.py` reads this list."""

from .errors import McpError as McpError
from .server import McpServer as McpServer
from .serving import as_mcp_server as as_mcp_server
from .serving import serve_stdio as serve_stdio
from .tool import McpTool as McpTool
