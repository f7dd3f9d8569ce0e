"""The tables `[mcp.servers.NAME]` of a settings file: MCP servers whose tools the agent has.

Checks the tables, also for keys that a trusted project may not set, and fills in secrets from the environment. Starting
servers is in `agent.servers`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from swink_agent.core.values.value import Value
from swink_agent.mcp.naming import check_env, check_headers, check_server_name

from ..errors import SettingsError
from .tables import SWITCH, Kind, Kinds, are_texts, checked_table, is_number

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_BEGIN = "${"
_BACK_ENDS = ("auto", "bubblewrap", "landlock", "sandbox-exec", "off")
_OF_A_PROJECT = frozenset({"command", "args", "env", "cwd", "url", "headers", "tools", "enabled"})
_OF_A_PROCESS = ("args", "env", "cwd", "network", "write", "sandbox")


class ServerSettings(Value, frozen=True, kw_only=True):
    """One server, as a file describes it."""

    hidden_fields = frozenset({"env", "headers"})

    name: str
    source: str
    """The file and the line of its table."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    tools: tuple[str, ...] | None = None
    """The server's own names of the tools to use; `None` for all."""
    network: bool = False
    write: tuple[str, ...] = ()
    sandbox: str = "auto"
    timeout: float = 120.0
    start_timeout: float = 30.0
    trust_annotations: bool = False
    enabled: bool = True
    keys: tuple[str, ...] = ()
    """The keys that the file sets."""
    problem: str = ""
    """Why the enabled server is not used."""

    @property
    def transport(self) -> str:
        return "stdio" if self.command else "http"

    @property
    def target(self) -> str:
        """The command line, or the address without login and query, which may contain a key."""
        if self.command:
            return " ".join([self.command, *self.args])
        return re.sub(r"(://)[^\s/@]*@|\?.*", r"\1", self.url)


def read_servers(path: str, tables: object, line_of: Callable[[str], int]) -> dict[str, ServerSettings]:
    """The servers of a file. `tables` is its table `mcp`. Raises `SettingsError` with the file and the line."""

    def refuse(key: str, problem: str) -> SettingsError:
        return SettingsError(f"{path}, line {line_of(key)}: {key}{problem}")

    if not isinstance(tables, dict):
        raise refuse("mcp", " must be a table: [mcp.servers.NAME]")
    for key in cast("dict[str, Any]", tables):
        if key != "servers":
            raise refuse(f"mcp.{key}", " is not a setting; only [mcp.servers.NAME] is")
    servers = cast("dict[str, Any]", tables).get("servers", {})
    if not isinstance(servers, dict):
        raise refuse("mcp.servers", " must be a table: [mcp.servers.NAME]")
    found: dict[str, ServerSettings] = {}
    for name, table in cast("dict[str, Any]", servers).items():
        place = f"mcp.servers.{name}"
        try:
            check_server_name(name)
        except ValueError as error:
            raise refuse(place, f" cannot be used: {error}") from error
        values = checked_table(table, place, refuse, kinds=SERVER_KEYS, noun="server", needs="command or url")
        for key, check_texts in _TABLES.items():
            try:
                check_texts(values.get(key, {}))
            except ValueError as error:
                raise refuse(f"{place}.{key}", f": {error}") from None
        if ("command" in values) == ("url" in values):
            raise refuse(place, " has command and url: give one" if "url" in values else " needs command or url")
        for key in _OF_A_PROCESS if "url" in values else ("headers",):
            if key in values:
                raise refuse(f"{place}.{key}", f" cannot be used with {'url' if 'url' in values else 'command'}")
        found[name] = ServerSettings(name=name, source=f"{path}:{line_of(place)}", keys=tuple(values), **values)
    return found


def joined_servers(
    user: Mapping[str, ServerSettings], projects: Iterable[tuple[str, Mapping[str, ServerSettings]]]
) -> dict[str, ServerSettings]:
    """All servers by name: the user's, then those of trusted projects, the innermost last.

    A user's server has priority over a project's. Each of `projects` is the path of a file and its servers. A server
    of a project is unusable if it sets a key that projects may not set.
    """
    found: dict[str, ServerSettings] = {}
    for path, servers in projects:
        folder = Path(path).parent.parent
        found |= {name: _of_a_project(server, folder) for name, server in servers.items()}
    return {**user, **{name: server for name, server in found.items() if name not in user}}


def expanded(server: ServerSettings, environ: Mapping[str, str]) -> tuple[ServerSettings, tuple[str, ...]]:
    """The server with each `${NAME}` in `env` and `headers` filled in, and these values, which are secret.

    Its `problem` names the variables that are not set.
    """
    used: dict[str, str] = {}
    missing: dict[str, None] = {}

    def put_in(found: re.Match[str]) -> str:
        name = found[1]
        if not environ.get(name):
            missing[name] = None
            return ""
        used[name] = environ[name]
        return used[name]

    env = {name: _VARIABLE.sub(put_in, value) for name, value in server.env.items()}
    headers = {name: _VARIABLE.sub(put_in, value) for name, value in server.headers.items()}
    problem = server.problem
    if missing and not problem:
        names = " and ".join(missing)
        problem = f"{names} {'is' if len(missing) == 1 else 'are'} not set in the environment"
    if not problem:
        try:  # also with the values
            check_env(env)
            check_headers(headers)
        except ValueError as error:
            problem = str(error)
    return structs.replace(server, env=env, headers=headers, problem=problem), tuple(used.values())


def _of_a_project(server: ServerSettings, folder: Path) -> ServerSettings:
    others = [key for key in server.keys if key not in _OF_A_PROJECT]
    texts = [server.command, server.url, server.cwd or "", *server.args, *(server.tools or ())]
    texts += [*server.env.values(), *server.headers.values()]
    problem = ""
    if others:
        problem = f"a project may not set {' and '.join(others)}: that belongs in your own settings"
    elif any(_BEGIN in value for value in texts):
        problem = "a project may not take values from the environment (${…}): that belongs in your own settings"
    cwd = str(folder) if server.cwd is None else os.path.realpath(folder / server.cwd)
    real = os.path.realpath(folder)
    if not problem and server.cwd is not None and cwd != real and not cwd.startswith(real.rstrip(os.sep) + os.sep):
        problem = "its cwd is not in the project's folder"
    return structs.replace(server, cwd=cwd if server.command else None, problem=problem)


# -- values ----------------------------------------------------------------------------------------------------------


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _are_folders(value: object) -> bool:
    return are_texts(value) and all(map(_is_text, cast("list[object]", value)))


def _is_table_of_texts(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    texts = cast("dict[str, object]", value).values()
    return all(isinstance(item, str) and _BEGIN not in _VARIABLE.sub("", item) for item in texts)


def _is_address(value: object) -> bool:
    from swink_agent.adapters.addresses import address_problem  # on use: most settings have no server

    return isinstance(value, str) and not address_problem(value)


_SECONDS: Kind = (lambda value: is_number(value) and 0 < value < 86_400 * 365), "a number of seconds, above 0"
SERVER_KEYS: Kinds = {
    "command": (_is_text, "the program to start"),
    "args": (are_texts, "a list of texts"),
    "env": (_is_table_of_texts, "a table of texts, with ${NAME} for a variable"),
    "cwd": (_is_text, "a folder"),
    "url": (_is_address, "an http:// or https:// address"),
    "headers": (_is_table_of_texts, "a table of texts, with ${NAME} for a variable"),
    "tools": (are_texts, "a list of tools, by the server's own names"),
    "network": SWITCH,
    "write": (_are_folders, "a list of folders"),
    "sandbox": (lambda value: value in _BACK_ENDS, f"one of {', '.join(_BACK_ENDS)}"),
    "timeout": _SECONDS,
    "start_timeout": _SECONDS,
    "trust_annotations": SWITCH,
    "enabled": SWITCH,
}


_TABLES: dict[str, Callable[[Mapping[str, str]], None]] = {"env": check_env, "headers": check_headers}
