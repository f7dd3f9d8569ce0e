"""The tables `[hooks.NAME]` of the user's settings file: programs that `swink` runs at certain moments of a run.

Hooks in a project's file are not used. Running hooks is in `agent.hooks`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, cast, get_args

from swink_agent.core.values.value import Value

from ..errors import SettingsError
from .tables import SWITCH, Kinds, are_texts, checked_table, is_number

HookEvent: TypeAlias = Literal["run_start", "waits", "run_end", "before_tool", "after_tool"]
_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
_OF_A_TOOL: tuple[HookEvent, ...] = ("waits", "before_tool", "after_tool")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SECONDS = 30.0


class HookSettings(Value, frozen=True, kw_only=True):
    """One hook, as the file describes it."""

    name: str
    source: str
    """The file and the line of its table."""
    event: HookEvent
    command: tuple[str, ...]
    """The program and its arguments. There is no shell; `~/` is the home folder."""
    tools: tuple[str, ...] = ()
    """Patterns of the tools that it runs for, where `*` matches any characters; none means all."""
    timeout: float = _SECONDS
    enabled: bool = True

    def is_for(self, event: HookEvent, tool: str = "") -> bool:
        """Whether it runs at this event, for this tool."""
        if not self.enabled or self.event != event:
            return False
        return not self.tools or any(fnmatchcase(tool, pattern) for pattern in self.tools)

    @property
    def argv(self) -> list[str]:
        """The command line, with `~/` expanded."""
        return [os.path.expanduser(word) if word.startswith("~/") else word for word in self.command]

    @property
    def summary(self) -> str:
        tools = f" of {', '.join(self.tools)}" if self.tools else ""
        return f"{self.event}{tools}: {' '.join(self.command)}{'' if self.enabled else ' (off)'}"


def read_hooks(path: str, tables: object, line_of: Callable[[str], int]) -> dict[str, HookSettings]:
    """The hooks of a file. `tables` is its table `hooks`. Raises `SettingsError` with the file and the line."""

    def refuse(key: str, problem: str) -> SettingsError:
        return SettingsError(f"{path}, line {line_of(key)}: {key}{problem}")

    if not isinstance(tables, dict):
        raise refuse("hooks", " must have a table for each hook: [hooks.NAME]")
    found: dict[str, HookSettings] = {}
    for name, table in cast("dict[str, Any]", tables).items():
        place = f"hooks.{name}"
        if not _NAME.fullmatch(name):
            raise refuse(place, " cannot be used: a hook's name has 1 to 40 letters, digits, '-' and '_'")
        values = checked_table(table, place, refuse, kinds=HOOK_KEYS, noun="hook", needs="event and command")
        for key in ("event", "command"):
            if key not in values:
                raise refuse(place, f" needs {key}: {HOOK_KEYS[key][1]}")
        if "tools" in values and values["event"] not in _OF_A_TOOL:
            raise refuse(f"{place}.tools", f" cannot be used with {values['event']}")
        found[name] = HookSettings(name=name, source=f"{path}:{line_of(place)}", **values)
    return found


def notes_on_project(hooks: Mapping[str, HookSettings]) -> list[str]:
    """Messages for the user about hooks in a project's file. They are not used."""
    why = "so it is not used; it belongs in your own settings"
    return [f"{hook.source}: a project may not set hooks.{hook.name}, {why}" for hook in hooks.values()]


# -- values ----------------------------------------------------------------------------------------------------------


HOOK_KEYS: Kinds = {
    "event": (lambda value: value in _EVENTS, f"one of {', '.join(_EVENTS)}"),
    "command": (
        lambda value: are_texts(value) and bool(value) and bool(value[0].strip()),
        'a list: the program, then its arguments, such as ["notify-send", "done"]',
    ),
    "tools": (lambda value: are_texts(value) and bool(value), 'a list of tools, such as ["bash", "mcp__git__*"]'),
    "timeout": (lambda value: is_number(value) and 0 < value <= 3600, "a number of seconds, above 0, at most 3600"),
    "enabled": SWITCH,
}
