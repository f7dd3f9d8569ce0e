"""Code of installed packages: tools and policies that the user's settings turn on by name.

They are entry points of the groups `swink_agent.tools` and `swink_agent.policies`. An installed package is loaded only
if `extra_tools` or `extra_policies` names it, and a project's file may not set these. If a named tool or policy is
missing, the run stops: a missing policy must not go unnoticed. Nothing is imported from a folder that the agent works
in: see `foreign_code`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from swink_agent.core.machine.extras import MissingExtra
from swink_agent.core.tool import AgentTool
from swink_agent.core.values.value import Value

from ..errors import UsageProblem
from ..settings.definitions import STANDARD_TOOLS, TOOLS_OF_BASH
from .foreign_code import why_not_loaded

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from swink_agent.core.policy import Policy

ExtraKind: TypeAlias = Literal["tool", "policy"]
GROUPS: dict[ExtraKind, str] = {"tool": "swink_agent.tools", "policy": "swink_agent.policies"}
_SETTINGS: dict[ExtraKind, str] = {"tool": "extra_tools", "policy": "extra_policies"}
WEB_FETCH = "web_fetch"
_SLOTS = ("pre_turn", "pre_dispatch", "post_turn", "post_loop")


class Extra(Value, frozen=True):
    """An installed tool or policy, with its package."""

    name: str
    package: str


def lacks_packages(extra: Extra) -> bool:
    """Whether it is the library's own, and its optional packages are not installed."""
    from swink_agent.tools.web.converting import CONVERTER

    return extra.name == WEB_FETCH and find_spec(CONVERTER) is None


def installed_extras(kind: ExtraKind) -> list[Extra]:
    """The installed tools or policies, by name. Nothing is loaded."""
    own = [Extra(WEB_FETCH, "swink-agent")] if kind == "tool" else []
    return own + [Extra(point.name, _package(point)) for point in _points(kind)]


def extra_tools(
    names: Sequence[str], folder: Path, *, denied: Collection[str] = (), private: Sequence[str] = ()
) -> list[AgentTool]:
    """The tools of these names for a folder, except denied ones. Raises `UsageProblem`.

    An entry point is an `AgentTool`, or a callable that takes the folder and returns one. Its name must be the tool's.
    `web_fetch` is the library's own tool, which may reach the `private` addresses.
    """
    tools: list[AgentTool] = []
    for name in names:
        if name in (*STANDARD_TOOLS, *TOOLS_OF_BASH):
            raise UsageProblem(f"extra_tools names {name}, which is a built-in tool: use the setting tools instead")
        if name in denied:
            continue
        if name == WEB_FETCH:
            tools.append(_web_fetch(private))
            continue
        point = _chosen("tool", name)
        found = _loaded("tool", point)
        if not _is_tool(found):
            found = _made("tool", point, found, folder)
        if not _is_tool(found):
            raise _unusable("tool", point, f"it is not a tool but {found!r}")
        if found.name != name:
            raise _unusable(
                "tool", point, f"its tool is called {found.name!r}: an entry point must have the name of its tool"
            )
        tools.append(found)
    return tools


def _web_fetch(private: Sequence[str]) -> AgentTool:
    from swink_agent.tools import WebFetchTool  # on use: few runs fetch anything

    try:
        return WebFetchTool(private)
    except ValueError as error:
        raise UsageProblem(f"the setting web_private cannot be used: {error}") from error
    except MissingExtra as error:
        raise UsageProblem(f"extra_tools names {WEB_FETCH}, which cannot be used: {error}") from error


def extra_policies(names: Sequence[str], folder: Path) -> list[Policy]:
    """New policies of these names for a folder. Raises `UsageProblem`.

    An entry point is a callable that takes the folder and returns the policy.
    """
    policies: list[Policy] = []
    for name in names:
        point = _chosen("policy", name)
        found = _made("policy", point, _loaded("policy", point), folder)
        if not any(callable(getattr(found, slot, None)) for slot in _SLOTS):
            raise _unusable("policy", point, f"it is not a policy but {found!r}: it has none of {', '.join(_SLOTS)}")
        policies.append(cast("Policy", found))
    return policies


# -- one of them ---------------------------------------------------------------------------------------------


def _points(kind: ExtraKind) -> list[EntryPoint]:
    from importlib.metadata import entry_points  # on use: reading what is installed takes milliseconds

    return sorted(entry_points(group=GROUPS[kind]), key=lambda point: (point.name, _package(point)))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value.partition(":")[0]


def _chosen(kind: ExtraKind, name: str) -> EntryPoint:
    """The entry point of that name. There must be exactly one."""
    points = _points(kind)
    found = [point for point in points if point.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        packages = " and ".join(dict.fromkeys([_package(point) for point in found]))
        raise UsageProblem(f"{_SETTINGS[kind]} names {name}, which several packages have: {packages}; uninstall one")
    from swink_agent.core.texts.likeness import which_name

    hint = which_name(name, [extra.name for extra in installed_extras(kind)])
    raise UsageProblem(f"{_SETTINGS[kind]} names {name}, but no installed package has a {kind} of that name; {hint}")


def _loaded(kind: ExtraKind, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # loading runs another package's code, which may raise anything
        reason = why_not_loaded(point, error, _remedy(kind))
        raise UsageProblem(f"{_named(kind, point)} cannot be used: {reason}") from error


def _made(kind: ExtraKind, point: EntryPoint, make: Any, folder: Path) -> Any:
    if not callable(make):
        raise _unusable(kind, point, f"{make!r} cannot be called with a folder")
    try:
        return make(folder)
    except Exception as error:  # likewise
        raise _unusable(kind, point, repr(error)) from error


def _is_tool(found: Any) -> bool:
    return not isinstance(found, type) and all(
        hasattr(found, part) for part in ("name", "description", "parameters_schema", "execute")
    )


def _unusable(kind: ExtraKind, point: EntryPoint, reason: str) -> UsageProblem:
    return UsageProblem(f"{_named(kind, point)} cannot be used: {reason[:300]}; {_remedy(kind)}")


def _named(kind: ExtraKind, point: EntryPoint) -> str:
    return f"the {kind} {point.name} of the package {_package(point)}"


def _remedy(kind: ExtraKind) -> str:
    return f"fix the package, or remove it from the setting {_SETTINGS[kind]}"
