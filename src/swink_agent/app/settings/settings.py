"""Settings: where each value comes from, and how the user's file is changed.

The order is: defaults, the user's file, the project's file if the folder is trusted, the environment, flags. The last
source that sets a value wins, and every value has its source. The table is in `definitions`, trust in `trust`, editing
TOML in `toml_file`. Keys are not settings: they are in `keys.credentials`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from swink_agent.approvals.modes import MODES
from swink_agent.core.values.value import Value

from ..errors import SettingsError
from .definitions import (
    DEFINITIONS,
    STANDARD_TOOLS,
    Definition,
    alias_of,
    bound_action,
    definition_in_file,
    definition_of,
)
from .hook_tables import HookSettings, notes_on_project, read_hooks
from .key_bindings import KEYS, KeyMap, action_named, conflict_in, read_key
from .mcp_servers import ServerSettings, expanded, joined_servers, read_servers
from .paths import changing, config_folder, write_whole
from .toml_file import LARGEST as LARGEST_FILE
from .toml_file import TomlFile

_FLAGS = {"allow_hosts": "--allow-host"}
"""Options with another name than their settings."""


class SourcedValue(Value, frozen=True):
    """A value and a description of its source."""

    value: Any
    source: str
    problem: str = ""
    """Why the value cannot be used. Only the part of the program that needs the value fails."""
    project: str = ""
    """The file of a trusted folder that sets it, if one does."""
    is_flag: bool = False
    """Whether it was given on the command line."""


class SettingsFile(Value, frozen=True):
    """The checked contents of one file, with the line of each key."""

    path: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    problems: Mapping[str, str] = {}
    """Invalid addresses, each with the reason: they disable one provider, not the program."""
    servers: Mapping[str, ServerSettings] = {}
    """The MCP servers by name."""
    hooks: Mapping[str, HookSettings] = {}
    """The hooks by name."""

    def source(self, name: str) -> str:
        return f"{self.path}:{self.lines.get(name, 1)}"


class Settings:
    """All settings, each with its source. `notes` are messages for the user about how they were combined."""

    def __init__(
        self,
        values: Mapping[str, SourcedValue],
        notes: Iterable[str] = (),
        *,
        environ: Mapping[str, str] | None = None,
        servers: Mapping[str, ServerSettings] | None = None,
        hooks: Iterable[HookSettings] = (),
    ) -> None:
        self._values = dict(values)
        self._servers = dict(servers or {})
        self.hooks = tuple(hooks)
        """The user's hooks, in the order of the file."""
        self._environ: Mapping[str, str] = {} if environ is None else environ
        self.notes = tuple(notes)

    def __getitem__(self, name: str) -> SourcedValue:
        """Raises `SettingsError` for an unknown name. Installed providers are looked up now."""
        if name not in self._values:
            definition = definition_of(name)
            found = _in_environment(definition, self._environ)
            self._values[name] = found or SourcedValue(definition.default, "default")
        return self._values[name]

    def value(self, name: str) -> Any:
        return self[name].value

    def replaced(self, name: str, item: SourcedValue) -> Settings:
        """The same settings with another value for one of them."""
        values = {**self._values, name: item}
        return Settings(values, self.notes, environ=self._environ, servers=self._servers, hooks=self.hooks)

    def aliases(self) -> dict[str, SourcedValue]:
        """The aliases, each with the model or the other alias that it refers to."""
        return {alias: item for name, item in self._values.items() if (alias := alias_of(name)) is not None}

    def bindings(self) -> dict[str, SourcedValue]:
        """The keys that the user gave to actions of the terminal UI, by the name of the action."""
        found = {action: item for name, item in self._values.items() if (action := bound_action(name)) is not None}
        return {action: item for action, item in found.items() if item.source != "default"}

    def key_map(self) -> KeyMap:
        """The actions of the keys in the terminal UI."""
        return KeyMap({action: item.value for action, item in self.bindings().items()})

    def servers(self) -> tuple[list[ServerSettings], list[str]]:
        """The MCP servers with values from the environment filled in, and these values, which are secret."""
        found = [expanded(server, self._environ) for server in self._servers.values()]
        return [server for server, _ in found], [secret for _, secrets in found for secret in secrets]

    def items(self) -> Iterable[tuple[str, SourcedValue]]:
        return self._values.items()


def settings_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The path of the user's own settings file, which may not exist."""
    return config_folder(environ) / "config.toml"


def load_settings(
    *,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
    project: SettingsFile | Sequence[SettingsFile] | None = None,
    path: Path | None = None,
    kept: SourcedValue | None = None,
) -> Settings:
    """Combines all sources. `flags` are by setting name; `None` means not given. Raises `SettingsError`.

    `project` is the file of a trusted folder, or of several nested ones, the outermost first. For settings that protect
    the user, the strictest value wins, for all others the innermost. `kept` are the rules that the user has allowed in
    this folder.
    """
    values = {item.name: SourcedValue(item.default, "default") for item in DEFINITIONS}
    notes: list[str] = []
    user = read_file(path or settings_file(environ))
    if user is not None:
        values |= {name: SourcedValue(value, user.source(name)) for name, value in user.values.items()}
        values |= {name: SourcedValue(None, user.source(name), problem) for name, problem in user.problems.items()}
    if kept is not None and kept.value:
        allow = definition_of("allow")
        checked = SourcedValue(check(allow, list(kept.value), kept.source), kept.source)
        values["allow"] = _joined(allow, values["allow"], checked)
    projects = (project,) if isinstance(project, SettingsFile) else tuple(project or ())
    for file in projects:
        _add_project(values, file, notes)
        notes += notes_on_project(file.hooks)
    servers = joined_servers({} if user is None else user.servers, [(file.path, file.servers) for file in projects])
    for definition in [definition_of(name, item.source) for name, item in values.items() if alias_of(name) is None]:
        given = _in_environment(definition, environ)
        if given is not None:
            values[definition.name] = _joined(definition, values[definition.name], given)
    for name, value in (flags or {}).items():
        if value is not None:
            flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
            definition = definition_of(name)
            checked = parse_value(definition, value, flag) if isinstance(value, str) else check(definition, value, flag)
            values[name] = _joined(definition, values[name], SourcedValue(checked, f"flag {flag}", is_flag=True))
    hooks = () if user is None else user.hooks.values()
    return Settings(values, notes, environ=environ, servers=servers, hooks=hooks)


def _in_environment(definition: Definition, environ: Mapping[str, str]) -> SourcedValue | None:
    """The value from the environment, from the first of the setting's variables that is set."""
    for variable in (definition.variable, *definition.other_variables):
        if text := environ.get(variable):
            source = f"environment {variable}"
            try:
                return SourcedValue(parse_value(definition, text, variable), source)
            except SettingsError as error:
                if definition.kind != "address":
                    raise
                return SourcedValue(None, source, str(error))
    return None


def _joined(definition: Definition, before: SourcedValue, given: SourcedValue) -> SourcedValue:
    """The new value, or, for rules and hosts, the old and the new ones together."""
    if definition.kind not in ("rules", "hosts") or not before.value:
        return given
    return SourcedValue(tuple(dict.fromkeys((*before.value, *given.value))), f"{before.source}, {given.source}")


# -- files ---------------------------------------------------------------------------------------------------


def read_file(path: Path) -> SettingsFile | None:
    """The contents of the file, or `None` if it does not exist. Raises `SettingsError` with the file and the line."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_file(str(path), data)


def parse_file(path: str, data: bytes) -> SettingsFile:
    """The settings in the content of a file. Raises `SettingsError`."""
    if len(data) > LARGEST_FILE:
        raise SettingsError(f"{path} is larger than {LARGEST_FILE} bytes: that is not a settings file")
    try:
        file = TomlFile(data.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    found = file.lines()
    if "aliases" in file.values:
        place = f"{path}, line {found.get('aliases', 1)}"
        raise SettingsError(f'{place}: aliases must be a table of short names: aliases.fast = "provider:model"')
    lines = {name: found.get(name, 1) for name in file.values}
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    tables, of_hooks = file.table("mcp"), file.table("hooks")
    servers = {} if tables is None else read_servers(path, tables, file.line_near)
    hooks = {} if of_hooks is None else read_hooks(path, of_hooks, file.line_near)
    for name, value in file.values.items():
        if name.startswith(("mcp.", "hooks.")):
            continue
        place = f"{path}, line {lines[name]}"
        definition = definition_in_file(name, place)
        try:
            values[name] = check(definition, value, place)
        except SettingsError as error:
            if definition.kind != "address":
                raise
            problems[name] = str(error)
    _refuse_circles(path, values, lines)
    bound = {action: value for name, value in values.items() if (action := bound_action(name)) is not None}
    if conflict := conflict_in(bound):
        name = f"{KEYS}{conflict[0]}"
        raise SettingsError(f"{path}, line {lines.get(name, 1)}: {name}: {conflict[1]}")
    return SettingsFile(path, values, lines, problems, servers, hooks)


def _refuse_circles(path: str, values: Mapping[str, Any], lines: Mapping[str, int]) -> None:
    """Raises `SettingsError` for an alias that refers to itself, directly or through others."""
    aliases = {alias: (name, value) for name, value in values.items() if (alias := alias_of(name)) is not None}
    for first, (name, value) in aliases.items():
        way = [first]
        while value in aliases and value not in way:
            way.append(value)
            value = aliases[value][1]
        if value == first:
            circle = " -> ".join([*way, first])
            raise SettingsError(f"{path}, line {lines[name]}: {name} refers to itself: {circle}")


def set_value(name: str, text: str, *, path: Path) -> Any:
    """Sets one value in the user's file without changing the rest, and returns it. Raises `SettingsError`."""
    value: Any = parse_value(definition_of(name), text, name)
    stored: object = list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
    _edit(path, lambda file, _: file.with_value(name, stored))
    return cast("Any", value)


def add_hosts(hosts: Sequence[str], *, path: Path) -> None:
    """Adds hosts to `allow_hosts` in the user's file, without changing the rest. Raises `SettingsError`."""

    def added(file: TomlFile, user: SettingsFile | None) -> str:
        before = () if user is None else user.values.get("allow_hosts", ())
        return file.with_value("allow_hosts", list(dict.fromkeys((*before, *hosts))))

    _edit(path, added)


def unset_value(name: str, *, path: Path) -> bool:
    """Removes one value from the user's file. Returns whether it was there. Raises `SettingsError`."""
    definition_of(name)
    before = read_file(path)
    if before is None or name not in {**before.values, **before.problems}:
        return False
    _edit(path, lambda file, _: file.without(name))
    return True


def _edit(path: Path, change: Callable[[TomlFile, SettingsFile | None], str]) -> None:
    try:
        with changing(path):
            user = read_file(path)  # a file with a mistake must be fixed by hand first
            text = path.read_bytes().decode() if path.exists() else ""  # as bytes: Windows line ends stay
            changed = change(TomlFile(text), user).encode()
            parse_file(str(path), changed)  # never writes a file that could not be read again, such as one too large
            write_whole(path, changed, mode=0o644)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error


# -- a trusted project's file --------------------------------------------------------------------------------


def _add_project(values: dict[str, SourcedValue], project: SettingsFile, notes: list[str]) -> None:
    for name, value in {**project.problems, **project.values}.items():
        place = project.source(name)
        definition = definition_in_file(name, place)
        if definition.in_project == "never":
            notes.append(f"{place}: a project may not set {name}, so it is not used; it belongs in your own settings")
            continue
        if definition.in_project == "stricter":
            stricter = _stricter(name, values[name].value, value)
            if stricter != value and definition.kind != "rules":
                above = values[name].project
                whose = f"in {above}, which is used" if above else "in your own settings, which are used"
                notes.append(f"{place}: {name} is looser there than {whose}")
            if stricter == values[name].value:
                continue
            value = stricter
        values[name] = SourcedValue(value, place, project=project.path)


def only_stricter(file: SettingsFile) -> SettingsFile:
    """The file with only the settings that a project may tighten."""
    kept = {
        name: value
        for name, value in file.values.items()
        if definition_in_file(name, file.source(name)).in_project == "stricter"
    }
    return SettingsFile(file.path, kept, file.lines)


def _stricter(name: str, mine: Any, theirs: Any) -> Any:
    if name == "approve":
        return min(mine, theirs, key=list(MODES).index)
    if name == "tools":
        return tuple([tool for tool in mine if tool in theirs])
    if name == "deny":
        return tuple(dict.fromkeys((*mine, *theirs)))
    return theirs if mine is None else min(mine, theirs)


# -- values --------------------------------------------------------------------------------------------------


_ON, _OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def parse_value(definition: Definition, text: str, place: str) -> Any:
    """Parses a value from text, as in the environment and on the command line. Raises `SettingsError`."""
    text = text.strip()
    is_none = text.lower() == "none"
    value: object = text
    match definition.kind:
        case "count" | "amount" | "temperature":
            with suppress(ValueError):
                value = int(text) if definition.kind == "count" else float(text)
        case "switch":
            value = True if text.lower() in _ON else False if text.lower() in _OFF else text
        case "names" | "private" | "keys":
            value = [] if is_none else [name.strip() for name in text.split(",") if name.strip()]
        case "command":
            try:
                value = [] if is_none else shlex.split(text)
            except ValueError as error:
                raise SettingsError(f"{place}: {definition.name} is not a command: {error}") from error
        case "hosts":
            value = [] if is_none else [host for host in re.split(r"[\s,]+", text) if host]
        case "rules":
            rules = [rule.strip() for line in text.splitlines() for rule in line.split(";")]
            value = [rule for rule in rules if rule and rule.lower() != "none"]
        case _:
            pass
    return check(definition, value, place)


def check(definition: Definition, value: object, place: str) -> Any:
    """The value, if it is valid. Raises `SettingsError`, which describes the valid values."""
    fits, wanted = _fit(definition, value)
    if not fits:
        is_its_name = place.lstrip("-").replace("-", "_") == definition.name
        where = place if is_its_name else f"{place}: {definition.name}"
        raise SettingsError(f"{where} cannot be {_shown(value)}: it must be {wanted}")
    try:
        return _used(definition, value)
    except ValueError as error:
        where = f"{place}: {definition.name}" if definition.kind == "keys" else place
        raise SettingsError(f"{where}: {error}") from error


def _fit(definition: Definition, value: object) -> tuple[bool, str]:
    """Whether the value has the form of the setting, and that form in words."""
    is_text = isinstance(value, str) and bool(value.strip())
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")
    items: list[object] = list(cast("Sequence[object]", value)) if isinstance(value, (list, tuple)) else [None]
    texts = [item for item in items if isinstance(item, str)]
    are_texts, choices = len(texts) == len(items), definition.choices
    match definition.kind:
        case "text" if definition.name in ("system", "append_system"):
            return isinstance(value, str), "a text"
        case "text":
            return is_text, "a non-empty text"
        case "choice":
            return value in choices, f"one of {', '.join(choices)}"
        case "count":
            return isinstance(number, int) and number >= 1, "a whole number, 1 or more"
        case "amount":
            return 0 < number < 1e300, "a number above 0"  # TOML allows larger whole numbers, which do not fit a float
        case "temperature":
            return 0 <= number <= 2, "a number from 0 to 2"
        case "switch":
            return isinstance(value, bool), "true or false"
        case "names":
            are_known = are_texts and all(name in choices if choices else name.strip() for name in texts)
            return are_known, f"a list of {', '.join(choices) or 'names'}, or none"
        case "address":
            return isinstance(value, str) and _is_address(definition, value), "an http:// or https:// address"
        case "alias":
            return is_text, "a model: provider:model"
        case "folder":
            return is_text, "a folder"
        case "rules":
            return are_texts, "a list of rules, such as 'bash: pytest *'"
        case "command":
            is_command = are_texts and not any("\0" in word for word in texts)
            return is_command and (not texts or bool(texts[0].strip())), "a list: a program and its arguments"
        case "keys":
            return are_texts or isinstance(value, str), "a key, such as 'ctrl+x', or a list of keys"
        case "hosts":
            return are_texts, "a list of hosts, such as 'pypi.org'"
        case "private":
            return are_texts, "a list of addresses, such as '127.0.0.1:8080'"


def _used(definition: Definition, value: Any) -> Any:
    """The value as the program uses it. Raises `ValueError` for a value of the right form that is not valid."""
    match definition.kind:
        case "amount" | "temperature":
            return float(value)
        case "command":
            return tuple(value)
        case "keys":
            action = action_named(definition.name.removeprefix(KEYS))
            assert action is not None
            given: list[str] = [value] if isinstance(value, str) else value
            return tuple(dict.fromkeys([read_key(key, action) for key in given]))
        case "hosts" if value:
            from swink_agent.sandbox.network.hosts import host_entry  # on use: most settings have none

            return tuple(dict.fromkeys(map(host_entry, value)))
        case "private" if value:
            from swink_agent.tools.web.fetching import private_address  # on use: few settings have any

            for address in value:
                private_address(address)
        case "rules" if value:
            from swink_agent.approvals import CallRules

            allow, deny = (value, ()) if definition.name == "allow" else ((), value)
            CallRules(os.sep, tools=_tools_in(value), allow=allow, deny=deny)
        case _:
            pass
    are_several = definition.kind in ("names", "rules", "private", "hosts")
    return tuple(dict.fromkeys(value)) if are_several else value


def _tools_in(rules: Iterable[str]) -> Sequence[str]:
    """The tools that rules may name: the built-in ones and, if a rule names another, those of installed packages."""
    named = {rule.partition(":")[0].strip() for rule in rules if not rule.lstrip().startswith("mcp__")}
    if named <= set(STANDARD_TOOLS):
        return STANDARD_TOOLS
    from ..trust.extras import installed_extras

    return (*STANDARD_TOOLS, *[extra.name for extra in installed_extras("tool")])


def _is_address(definition: Definition, text: str) -> bool:
    """Whether the text is a valid address of a server. Ollama's variable may leave out the scheme."""
    from swink_agent.adapters.addresses import address_problem  # on use: most settings have none

    is_bare = definition.may_be_bare and "://" not in text
    return not address_problem(f"http://{text}" if is_bare else text)


_LOGIN = re.compile(r"(://)[^\s/@]++@")


def without_login(text: str) -> str:
    """The text with the login in each address masked, which may be a password."""
    return _LOGIN.sub(r"\1[redacted]@", text)


def _shown(value: object) -> str:
    """A value as the user may have written it."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = f"'{without_login(value)}'"
        case list() | tuple():
            text = ", ".join(_shown(item) for item in cast("list[object]", value)) or "an empty list"
        case dict():
            text = "a table"
        case _:
            text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
