"""The proxy of one command: its listener is made in the command's network before the command is let go."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import SandboxError
from ..network.entering import NamespaceHelper, free_port
from ..network.proxy import Proxy, proxy_variables
from ..network.reached import ReachedLog
from ..network.serving import ProxyServer
from ..network.ways_out import WaysOut


class CommandProxy:
    """Serves one command, and notes what it reached."""

    def __init__(self, helper: NamespaceHelper, hosts: Iterable[str], ways_out: WaysOut) -> None:
        self._helper = helper
        self._proxy = Proxy(hosts, resolve=ways_out.resolve, connect=ways_out.connect)
        self._port = free_port()
        self._server: ProxyServer | None = None
        self.log = ReachedLog()
        self.variables = proxy_variables(self._port)

    async def open(self, process: int) -> None:
        """Begins to serve in the network of the process. Raises `SandboxError`."""
        try:
            listener = await self._helper.listen(process, self._port)
        except OSError as error:
            raise SandboxError(f"the command's network cannot be entered: {error}") from error
        self._server = ProxyServer(self._proxy, listener)
        self._server.logs[self.log] = None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
