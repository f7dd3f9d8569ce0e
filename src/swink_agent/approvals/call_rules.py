"""Rules on calls as a user writes them: `bash: pytest *`, `write_file: src/**`, `edit_file`.

Parses the rules and decides on calls that name a file. `commands/rules` decides on shell commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from swink_agent.core.approval import ProposedCall
from swink_agent.core.policy import PreDispatchContext, Skip
from swink_agent.core.values.several import several_texts
from swink_agent.rendering.escaping import safe_display
from swink_agent.sandbox.network.hosts import Hosts, host_entry

from .commands.rules import COMMAND_TOOLS, STANDARD_DENY, CommandRules, Decision
from .web_hosts import HOST_TOOLS, read_url

_GRAMMAR = "a rule is TOOL or TOOL: PATTERN, such as 'bash: pytest *', 'write_file: src/**' or 'edit_file'"
_TOOL = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_OF_A_SERVER = re.compile(r"mcp__(?:(?!__)[a-z0-9_-]){0,19}[a-z0-9_-]__(?:\*|[\w-]+)", re.ASCII)
"""A tool of an MCP server, or all of its tools. Their names are known only when the server runs."""
_PATH = "path"
_PIECES = re.compile(r"(?:^|(?<=/))\*\*/|\*\*|\*|\?|[^*?]+", re.DOTALL)
_MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
"""The regular expressions for the parts of a path pattern: `*` and `?` stay within a name, `**` does not."""


class CallRules:
    """Rules that allow or deny calls: `CallRules("src", allow=["bash: npm test"], deny=["bash: git push"])`.

    A rule is a tool's name, for all of its calls, or the name, a colon and a pattern; `mcp__git__*` is all tools of the
    MCP server `git`. For a tool that runs commands, the pattern is one of `CommandRules`: `pytest *` is `pytest` with
    any arguments, `npm test` is exactly that command; several commands in a row are allowed if each one is. For
    `web_fetch` it is a host: `docs.python.org`, `*.python.org`, with a port unless that is 80 or 443. For other tools
    it is a path relative to `root`: `*` matches part of a name, `**` folders too. Allow rules compare the path as the
    tool resolved it; deny rules compare it as written and with its links followed. An MCP tool is allowed as
    `mcp__SERVER__TOOL`, also if the agent knows it by another name; if approval is needed, this also denies it.

    Pass the object to `Approvals(calls=…)`, and also to the agent's policies, so that denied calls do not run if no
    approval is needed. A single string is one rule. Immutable. An empty or malformed rule raises `ValueError`.
    """

    name = "call_rules"

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        allow: str | Iterable[str] = (),
        deny: str | Iterable[str] = (),
        tools: str | Collection[str] | None = None,
        command_tools: Mapping[str, str] = COMMAND_TOOLS,
    ) -> None:
        self._root = os.path.realpath(root)
        self._command_tools = dict(command_tools)
        known = None if tools is None else several_texts(tools, "CallRules(tools=…)")
        allowed, denied = several_texts(allow, "CallRules(allow=…)"), several_texts(deny, "CallRules(deny=…)")
        self._allow = [_Rule.parse(text, known, command_tools) for text in allowed]
        self._deny = [_Rule.parse(text, known, command_tools) for text in denied]
        self.commands = CommandRules.standard(
            patterns=[rule.pattern for rule in self._allow if rule.is_command],
            deny=[*STANDARD_DENY, *[rule.pattern.removesuffix(" *") for rule in self._deny if rule.is_command]],
            compound=True,
        )

    def __repr__(self) -> str:
        return f"<CallRules {len(self._allow)} to allow, {len(self._deny)} to deny>"

    @property
    def denied_tools(self) -> frozenset[str]:
        """The tools that are denied with any arguments, by the names in the rules. Agents can be made without them."""
        return frozenset([rule.tool for rule in self._deny if not rule.pattern])

    def denies_tool(self, name: str) -> bool:
        """Whether a tool is denied with any arguments, by its name or with all tools of its MCP server."""
        return any(rule.is_about(name) for rule in self._deny if not rule.pattern)

    def decide(self, request: ProposedCall) -> Decision | None:
        """The decision on the call, or `None` if no rule matches. Command patterns are left to `commands`."""
        reason = self._denial(request.name, request.arguments)
        if reason is not None:
            return Decision("deny", reason)
        if isinstance(request.scope.get("server"), str) and "definition" in request.scope:
            # Of an MCP tool: the server chose the name, which need not begin with the server's.
            if (denied := _of_server(self._deny, request)) is not None:
                return Decision("deny", f"the rule {denied} denies it")
            rule = _of_server(self._allow, request)
        elif request.name in HOST_TOOLS:
            rule = self._match_host(self._allow, request.name, request.arguments.get(HOST_TOOLS[request.name]))
        else:
            # The file that an approval is bound to, as the tool resolved it.
            folder, path = request.scope.get("folder"), request.scope.get(_PATH)
            places = [os.path.join(folder, path)] if isinstance(folder, str) and isinstance(path, str) else []
            rule = self._match(self._allow, request.name, places)
        return None if rule is None else Decision("allow", f"the rule {rule} allows it")

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        """Skips denied calls."""
        reason = self._denial(ctx.name, ctx.arguments)
        return None if reason is None else Skip(reason)

    def _denial(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        if tool in HOST_TOOLS:
            rule = self._match_host(self._deny, tool, arguments.get(HOST_TOOLS[tool]))
        else:
            path = arguments.get(_PATH, "." if tool not in self._command_tools else None)
            rule = self._match(self._deny, tool, self._places(path) if isinstance(path, str) else [], fold=True)
        if rule is not None:
            return f"the rule {rule} denies it"
        command = arguments.get(self._command_tools.get(tool, ""))
        if isinstance(command, str) and (decision := self.commands.decide(command)).verdict == "deny":
            return decision.reason
        return None

    def _places(self, path: str) -> list[str]:
        """Where a path leads: as written, and with its links followed."""
        if "\0" in path:
            return []
        joined = os.path.join(self._root, os.path.expanduser(path))
        return list(dict.fromkeys([os.path.normpath(joined), os.path.realpath(joined)]))

    def _match(self, rules: list[_Rule], tool: str, places: list[str], *, fold: bool = False) -> _Rule | None:
        for rule in rules:
            if rule.is_about(tool) and (
                not rule.pattern
                or (not rule.is_command and any(rule.covers(place, self._root, fold=fold) for place in places))
            ):
                return rule
        return None

    def _match_host(self, rules: list[_Rule], tool: str, url: object) -> _Rule | None:
        """The first rule for the host of a URL. A URL that cannot be read has none; the tool refuses it."""
        try:
            place = read_url(url) if isinstance(url, str) else None
        except ValueError:
            place = None
        for rule in rules:
            if rule.tool == tool and (
                not rule.pattern or (place is not None and Hosts([rule.pattern]).allow(place.host, place.port))
            ):
                return rule
        return None


def _of_server(rules: Iterable[_Rule], request: ProposedCall) -> _Rule | None:
    """The first rule for the tool of an MCP server."""
    server, true_name = request.scope["server"], request.scope.get("tool")
    return next((rule for rule in rules if rule.is_of_server(request.name, server, true_name)), None)


class _Rule(NamedTuple):
    tool: str
    pattern: str
    is_command: bool

    def __str__(self) -> str:
        return f"'{safe_display(f'{self.tool}: {self.pattern}' if self.pattern else self.tool, 120)}'"

    @classmethod
    def parse(cls, text: str, tools: Collection[str] | None, command_tools: Mapping[str, str]) -> _Rule:
        tool, colon, pattern = (part.strip() for part in text.partition(":"))
        shown = safe_display(text, 120)
        is_of_a_server = _OF_A_SERVER.fullmatch(tool) is not None
        if tool.startswith("mcp__") and not is_of_a_server:
            raise ValueError(f"the rule '{shown}' names no tool of an MCP server: mcp__SERVER__TOOL, or mcp__SERVER__*")
        if not is_of_a_server and (not _TOOL.fullmatch(tool) or (tools is not None and tool not in tools)):
            there_are = "" if tools is None else f" (there are {', '.join(tools)})"
            raise ValueError(f"the rule '{shown}' names no tool{there_are}: {_GRAMMAR}")
        if is_of_a_server and colon:
            raise ValueError(
                f"the rule '{shown}' has a pattern, but the meaning of an MCP tool's arguments is not known"
            )
        if colon and not pattern:
            raise ValueError(f"the rule '{shown}' has no pattern after its colon: {_GRAMMAR}")
        is_command = bool(pattern) and tool in command_tools
        if pattern and tool in HOST_TOOLS:
            try:
                return cls(tool, host_entry(pattern), False)
            except ValueError as error:
                raise ValueError(f"the rule '{shown}': {error}") from None
        if pattern and not is_command and (".." in pattern.split("/") or "\0" in pattern):
            raise ValueError(f"the rule '{shown}' has .. in its path: name the folder itself")
        return cls(tool, pattern, is_command)

    def is_about(self, tool: str) -> bool:
        """Whether it is about the tool, as far as the name can tell."""
        return tool.startswith(self.tool[:-1]) if self.tool.endswith("__*") else tool == self.tool

    def is_of_server(self, tool: str, server: str, true_name: object) -> bool:
        """Whether it is about this tool of an MCP server, and not about another tool that is called the same."""
        prefix = f"mcp__{server}__"
        return self.tool in (f"{prefix}{true_name}", f"{prefix}*") or (self.tool == tool and tool.startswith(prefix))

    def covers(self, place: str, root: str, *, fold: bool) -> bool:
        pattern = os.path.expanduser(self.pattern)
        above = "" if os.path.isabs(pattern) else re.escape(root.rstrip("/") + "/")
        pieces = _PIECES.findall(pattern.removeprefix("./"))
        expression = above + "".join(_MEANINGS.get(piece) or re.escape(piece) for piece in pieces)
        return re.fullmatch(expression, place, re.IGNORECASE | re.DOTALL if fold else re.DOTALL) is not None
