"""Settings: what they are, where each value comes from, and how the user's file is changed.

Defaults, then the user's file, then the project's if the folder is trusted, then the environment, then flags: the last
one that says something wins, and every value knows where it came from. Owns the names, the checks and that order. Who
may be trusted is in `trust`, editing TOML in `toml_file`, and keys are no settings: they are in `credentials`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from swink_agent.core.value import Value

from .errors import SettingsError
from .paths import config_folder, write_whole
from .providers import PROVIDERS
from .toml_file import TomlFile
from .toml_shape import LARGEST as LARGEST_FILE

__all__ = [
    "DEFINITIONS",
    "STANDARD_TOOLS",
    "Definition",
    "Settings",
    "SettingsFile",
    "Sourced",
    "definition_of",
    "load_settings",
    "only_stricter",
    "parse_value",
    "set_value",
    "settings_file",
    "unset_value",
]

STANDARD_TOOLS = ("bash", "read_file", "write_file", "edit_file", "list_dir", "search")
APPROVALS = ("none", "ask", "smart", "all")  # from the strictest on

Kind: TypeAlias = Literal["text", "choice", "count", "amount", "switch", "names", "address", "folder", "rules"]
InProject: TypeAlias = Literal["free", "stricter", "never"]


class Definition(Value, frozen=True, kw_only=True):
    """One setting. `in_project` says whether a trusted folder's file may set it, or only tighten it."""

    name: str
    kind: Kind
    help: str
    variable: str
    default: Any = None
    choices: tuple[str, ...] = ()
    in_project: InProject = "never"
    other_variables: tuple[str, ...] = ()


def _setting(name: str, kind: Kind, help: str, **options: Any) -> Definition:  # noqa: A002 - the field's name
    return Definition(name=name, kind=kind, help=help, variable=f"SWINK_{name.upper()}", **options)


DEFINITIONS = (
    _setting(
        "model", "text", "provider:model; without it, the first provider with a key, else local", in_project="free"
    ),
    _setting(
        "thinking",
        "choice",
        "how much reasoning to ask for",
        default="off",
        choices=("off", "minimal", "low", "medium", "high", "extra_high"),
        in_project="free",
    ),
    _setting(
        "context_window",
        "count",
        "tokens of the model's window; without it, what is known of the model, of which 100,000 are used at most",
    ),
    _setting(
        "compaction",
        "choice",
        "what becomes of a conversation that outgrows that: the model sums up its older part, or that is left out",
        default="summary",
        choices=("summary", "window"),
        in_project="free",
    ),
    _setting("system", "text", "instructions in place of the standard ones", in_project="free"),
    _setting("append_system", "text", "instructions besides the standard ones", in_project="free"),
    _setting(
        "tools", "names", "which built-in tools", default=STANDARD_TOOLS, choices=STANDARD_TOOLS, in_project="stricter"
    ),
    _setting(
        "approve",
        "choice",
        "which calls are asked about: smart asks for what the command rules do not know as harmless",
        default="smart",
        choices=APPROVALS,
        in_project="stricter",
    ),
    _setting("allow", "rules", "calls that need no question, besides the harmless ones: bash: pytest *", default=()),
    _setting("deny", "rules", "calls that never run: bash: git push", default=(), in_project="stricter"),
    _setting(
        "sandbox",
        "choice",
        "how commands are confined; auto takes the first back end that works, off takes the walls away",
        default="auto",
        choices=("auto", "bubblewrap", "landlock", "sandbox-exec", "off"),
    ),
    _setting("network", "switch", "whether commands may use the network", default=False, in_project="stricter"),
    _setting("undo", "switch", "whether copies of what the file tools replace are kept, for swink undo", default=True),
    _setting("sessions", "switch", "whether runs are recorded, so that they can be resumed and searched", default=True),
    _setting("sessions_folder", "folder", "where sessions are kept, in place of the data folder"),
    _setting(
        "check_claims",
        "choice",
        "whether an answer that claims what no tool did is sent back once; auto does it for small models",
        default="auto",
        choices=("auto", "on", "off"),
        in_project="free",
    ),
    _setting("max_turns", "count", "replies in one run", default=50, in_project="stricter"),
    _setting("max_cost", "amount", "US dollars for one run", in_project="stricter"),
    _setting("timeout", "amount", "seconds for one run", in_project="stricter"),
    _setting("output", "choice", "what stdout gets", default="text", choices=("text", "json", "stream-json")),
    _setting("masking", "switch", "whether secrets are masked in what the model and the outputs see", default=True),
    _setting("unmask", "names", "names of secrets, such as DB_PASSWORD, that are not masked", default=()),
    _setting(
        "theme",
        "choice",
        "the colours of the terminal UI; auto is dark, or plain where NO_COLOR is set",
        default="auto",
        choices=("auto", "dark", "light", "contrast", "plain"),
    ),
    _setting("motion", "switch", "whether anything moves in the terminal UI that need not", default=True),
    _setting("models_dir", "folder", "where models of this machine are kept, in place of the cache folder"),
    *[
        Definition(
            name=f"base_url.{provider.name}",
            kind="address",
            help=f"the server to ask in place of {provider.name}'s own",
            variable=provider.url_variable,
            other_variables=provider.other_url_variables,
        )
        for provider in PROVIDERS
        if provider.url_variable
    ],
)
_BY_NAME = {definition.name: definition for definition in DEFINITIONS}


class Sourced(Value, frozen=True):
    """A value and where it came from, in words."""

    value: Any
    source: str
    problem: str = ""
    """Why the value that stands there cannot be used, where that stops only what it is for."""
    project: str = ""
    """The file of a trusted folder that says it, if one does."""


class SettingsFile(Value, frozen=True):
    """What one file says, checked, with the line of each key."""

    path: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    problems: Mapping[str, str] = {}
    """Addresses that are none, each with what is wrong: they stop one provider, not the program."""

    def source(self, name: str) -> str:
        return f"{self.path}:{self.lines.get(name, 1)}"


class Settings:
    """All settings, each with its source. `notes` are what a user should hear about how they came together."""

    def __init__(self, values: Mapping[str, Sourced], notes: Iterable[str] = ()) -> None:
        self._values = dict(values)
        self.notes = tuple(notes)

    def __repr__(self) -> str:
        changed = [name for name, item in self._values.items() if item.source != "default"]
        return f"<Settings, set: {', '.join(changed) or 'none'}>"

    def __getitem__(self, name: str) -> Sourced:
        return self._values[name]

    def value(self, name: str) -> Any:
        return self._values[name].value

    def items(self) -> Iterable[tuple[str, Sourced]]:
        """In the order of the definitions."""
        return self._values.items()


def settings_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's own settings file, whether it is there or not."""
    return config_folder(environ) / "config.toml"


def load_settings(
    *,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
    project: SettingsFile | Sequence[SettingsFile] | None = None,
    path: Path | None = None,
) -> Settings:
    """Everything together. `flags` are by setting name; one that is `None` was not given. Raises `SettingsError`.

    `project` is the file of a trusted folder, or of several that lie in each other, the outermost first: of what guards
    the user, the strictest holds, and of all else the innermost.
    """
    values = {item.name: Sourced(item.default, "default") for item in DEFINITIONS}
    notes: list[str] = []
    user = read_file(path or settings_file(environ))
    if user is not None:
        values |= {name: Sourced(value, user.source(name)) for name, value in user.values.items()}
        values |= {name: Sourced(None, user.source(name), problem) for name, problem in user.problems.items()}
    for file in (project,) if isinstance(project, SettingsFile) else project or ():
        _add_project(values, file, notes)
    for definition in DEFINITIONS:
        for variable in (definition.variable, *definition.other_variables):
            if text := environ.get(variable):
                given = _from_environment(definition, text, variable)
                values[definition.name] = _joined(definition, values[definition.name], given)
                break
    for name, value in (flags or {}).items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            definition = _BY_NAME[name]
            checked = parse_value(definition, value, flag) if isinstance(value, str) else check(definition, value, flag)
            values[name] = _joined(definition, values[name], Sourced(checked, f"flag {flag}"))
    return Settings(values, notes)


def _from_environment(definition: Definition, text: str, variable: str) -> Sourced:
    source = f"environment {variable}"
    try:
        return Sourced(parse_value(definition, text, variable), source)
    except SettingsError as error:
        if definition.kind != "address":
            raise
        return Sourced(None, source, str(error))


def _joined(definition: Definition, before: Sourced, given: Sourced) -> Sourced:
    """What is given now: in the place of what was there, or, of rules, together with it."""
    if definition.kind != "rules" or not before.value:
        return given
    return Sourced(tuple(dict.fromkeys((*before.value, *given.value))), f"{before.source}, {given.source}")


# -- files ---------------------------------------------------------------------------------------------------


def read_file(path: Path) -> SettingsFile | None:
    """What the file says, or `None` if there is none. Raises `SettingsError` naming the file and the line."""
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
        raise SettingsError(f"{path} is larger than {LARGEST_FILE} bytes: that is no settings file")
    try:
        file = TomlFile(data.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    found = file.lines()
    lines = {name: found.get(name, 1) for name in file.values}
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, value in file.values.items():
        place = f"{path}, line {lines[name]}"
        definition = definition_of(name, place)
        try:
            values[name] = check(definition, value, place)
        except SettingsError as error:
            if definition.kind != "address":
                raise
            problems[name] = str(error)
    return SettingsFile(path, values, lines, problems)


def set_value(name: str, text: str, *, path: Path) -> Any:
    """Sets one value in the user's file, keeping all else in it as it is, and returns it. Raises `SettingsError`."""
    value: Any = parse_value(definition_of(name), text, name)
    stored: object = list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
    _edit(path, lambda file: file.with_value(name, stored))
    return cast("Any", value)


def unset_value(name: str, *, path: Path) -> bool:
    """Takes one value out of the user's file; says whether it was there. Raises `SettingsError`."""
    definition_of(name)
    before = read_file(path)
    if before is None or name not in {**before.values, **before.problems}:
        return False
    _edit(path, lambda file: file.without(name))
    return True


def _edit(path: Path, change: Callable[[TomlFile], str]) -> None:
    read_file(path)  # a file with a mistake in it is mended by hand first
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        write_whole(path, change(TomlFile(text)), mode=0o644)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error


# -- a trusted project's file --------------------------------------------------------------------------------


def _add_project(values: dict[str, Sourced], project: SettingsFile, notes: list[str]) -> None:
    for name, value in {**project.problems, **project.values}.items():
        definition, place = _BY_NAME[name], project.source(name)
        if definition.in_project == "never":
            notes.append(
                f"{place}: a project may not set {name}, so that is not used; it belongs into your own settings"
            )
            continue
        if definition.in_project == "stricter":
            stricter = _stricter(name, values[name].value, value)
            if stricter != value and definition.kind != "rules":
                above = values[name].project
                whose = f"in {above}, so that holds" if above else "in your own settings, so yours holds"
                notes.append(f"{place}: {name} is looser there than {whose}")
            if stricter == values[name].value:
                continue
            value = stricter
        values[name] = Sourced(value, place, project=project.path)


def only_stricter(file: SettingsFile) -> SettingsFile:
    """The file with nothing but what can only tighten."""
    kept = {name: value for name, value in file.values.items() if _BY_NAME[name].in_project == "stricter"}
    return SettingsFile(file.path, kept, file.lines)


def _stricter(name: str, mine: Any, theirs: Any) -> Any:
    """The one of two values that allows less."""
    if name == "approve":
        return min(mine, theirs, key=APPROVALS.index)
    if name == "tools":
        return tuple([tool for tool in mine if tool in theirs])
    if name == "deny":
        return tuple(dict.fromkeys((*mine, *theirs)))
    return theirs if mine is None else min(mine, theirs)


# -- values --------------------------------------------------------------------------------------------------


def definition_of(name: str, place: str = "") -> Definition:
    """The setting of that name. Raises `SettingsError` that says which is meant."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    from swink_agent.core.likeness import close_names

    near = close_names(name, _BY_NAME)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_BY_NAME)}"
    raise SettingsError(f"{place + ': ' if place else ''}no setting is called {name}; {hint}")


_ON, _OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def parse_value(definition: Definition, text: str, place: str) -> Any:
    """A value from text, as the environment and the command line have it. Raises `SettingsError`."""
    text = text.strip()
    match definition.kind:
        case "count" | "amount":
            try:
                number: object = int(text) if definition.kind == "count" else float(text)
            except ValueError:
                number = text
            return check(definition, number, place)
        case "switch":
            word = text.lower()
            return check(definition, True if word in _ON else False if word in _OFF else text, place)
        case "names":
            names = () if text.lower() == "none" else [name.strip() for name in text.split(",") if name.strip()]
            return check(definition, list(names), place)
        case "rules":
            rules = [rule.strip() for line in text.splitlines() for rule in line.split(";")]
            return check(definition, [rule for rule in rules if rule and rule.lower() != "none"], place)
        case _:
            return check(definition, text, place)


def check(definition: Definition, value: object, place: str) -> Any:
    """The value, if it is one that the setting can have. Raises `SettingsError` that says what it can be."""
    fits, wanted = _fit(definition, value)
    if not fits:
        where = "" if place == definition.name else f"{place}: "
        raise SettingsError(f"{where}{definition.name} cannot be {_shown(value)}: it is {wanted}")
    if definition.kind == "rules":
        _check_rules(definition, cast("list[str]", value), place)
    if definition.kind in ("names", "rules"):
        return tuple(dict.fromkeys(cast("list[str]", value)))
    return float(cast("float", value)) if definition.kind == "amount" else value


def _fit(definition: Definition, value: object) -> tuple[bool, str]:
    match definition.kind:
        case "text":
            may_be_empty = definition.name in ("system", "append_system")
            return isinstance(value, str) and (bool(value.strip()) or may_be_empty), "a text"
        case "choice":
            return value in definition.choices, f"one of {', '.join(definition.choices)}"
        case "count":
            return isinstance(value, int) and not isinstance(value, bool) and value >= 1, "a whole number, 1 or more"
        case "amount":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return is_number and 0 < cast("float", value) < float("inf"), "a number above 0"
        case "switch":
            return isinstance(value, bool), "true or false"
        case "names":
            known = isinstance(value, (list, tuple)) and all(
                isinstance(name, str) and (name in definition.choices or (not definition.choices and name.strip()))
                for name in cast("list[object]", value)
            )
            return known, f"a list of {', '.join(definition.choices) or 'names'}, or none"
        case "address":
            return isinstance(value, str) and _is_address(definition, value), "an http:// or https:// address"
        case "folder":
            return isinstance(value, str) and bool(value.strip()), "a folder"
        case "rules":
            fits = isinstance(value, (list, tuple)) and all(
                isinstance(rule, str) for rule in cast("list[object]", value)
            )
            return fits, "a list of rules, such as 'bash: pytest *'"


def _check_rules(definition: Definition, rules: list[str], place: str) -> None:
    if not rules:
        return
    from swink_agent.policies import CallRules

    try:
        is_allowing = definition.name == "allow"
        CallRules(os.sep, tools=STANDARD_TOOLS, allow=rules if is_allowing else (), deny=() if is_allowing else rules)
    except ValueError as error:
        raise SettingsError(f"{place}: {error}") from error


def _is_address(definition: Definition, text: str) -> bool:
    """Whether it can be a server's; Ollama's own variable may leave out the scheme."""
    from swink_agent.adapters._addresses import address_problem  # on use: most have none

    is_bare = definition.name == "base_url.ollama" and "://" not in text
    return not address_problem(f"http://{text}" if is_bare else text)


def _shown(value: object) -> str:
    """A value as the user may have written it."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = f"'{value}'"
        case list() | tuple():
            text = ", ".join(_shown(item) for item in cast("list[object]", value)) or "an empty list"
        case dict():
            text = "a table"
        case _:
            text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
