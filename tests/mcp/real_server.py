"""A server written with the package `mcp`, as others write theirs: `python real_server.py` speaks over stdio."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def make() -> Any:
    from mcp.server.mcpserver import Context, Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ToolAnnotations
    from pydantic import BaseModel

    server = MCPServer("real", log_level="ERROR")

    class Point(BaseModel):
        x: int
        y: int = 0

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool()
    def mirror(point: Point, scale: float | None = None) -> Point:
        """Mirrors a point."""
        return Point(x=-point.x, y=-point.y)

    @server.tool()
    def picture() -> Image:
        """Draws."""
        return Image(data=PNG, format="png")

    @server.tool()
    def fail() -> str:
        """Fails."""
        raise ToolError("it did not work")

    @server.tool()
    async def count(ctx: Context, to: int) -> str:  # type: ignore[type-arg]
        """Counts."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to)
        return "counted"

    @server.tool()
    async def grow(ctx: Context) -> str:  # type: ignore[type-arg]
        """Adds a tool."""
        server.add_tool(lambda: "new", name="grown", description="Is new.")
        await ctx.session.send_tool_list_changed()
        return "grown"

    return server


@contextmanager
def over_http(server: Any, **options: Any) -> Iterator[str]:
    """The server behind an address of this machine, in a thread."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            for connection in list(self.server_state.connections):  # from Python 3.12 on it waits for all of them
                connection.transport.abort()
            await super().shutdown(sockets)

    config = uvicorn.Config(server.streamable_http_app(**options), host="127.0.0.1", port=0, log_level="critical")
    web = Server(config)
    thread = threading.Thread(target=web.run)
    thread.start()
    try:
        while not web.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            threading.Event().wait(0.01)
        [listener] = web.servers
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    finally:
        web.should_exit = web.force_exit = True
        thread.join()


def encoded() -> str:
    return base64.b64encode(PNG).decode()


if __name__ == "__main__":
    make().run()
