"""The table of settings: their names, types, and which of them a project's file may set.

Where values come from and how they are checked is in `settings`.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from swink_agent.approvals.modes import MODES
from swink_agent.core.providers import declared_names
from swink_agent.core.values.value import Value

from ..agent.providers import LOCAL, PROVIDERS, Provider, all_providers, provider_named
from ..errors import SettingsError
from .key_bindings import ACTIONS, KEYS, action_named

STANDARD_TOOLS = ("bash", "read_file", "write_file", "edit_file", "list_dir", "search", "task", "todo")
TOOLS_OF_BASH = ("bash_output", "bash_stop")
"""Tools for background commands, available wherever bash is."""
_ADDRESS = "base_url."
_ALIAS = "aliases."
_ALIAS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Kind: TypeAlias = (
    Literal["text", "choice", "count", "amount", "temperature", "switch", "names", "address"]
    | Literal["alias", "folder", "rules", "hosts", "private", "keys", "command"]
)
InProject: TypeAlias = Literal["free", "stricter", "never"]


class Definition(Value, frozen=True, kw_only=True):
    """One setting. `in_project`: whether a trusted project's file may set it, only tighten it, or neither."""

    name: str
    kind: Kind
    help: str
    variable: str
    default: Any = None
    choices: tuple[str, ...] = ()
    in_project: InProject = "never"
    other_variables: tuple[str, ...] = ()
    may_be_bare: bool = False
    """Whether an address may leave out the scheme."""


def _setting(name: str, kind: Kind, help: str, **options: Any) -> Definition:  # noqa: A002 - the field's name
    return Definition(name=name, kind=kind, help=help, variable=f"SWINK_{name.upper()}", **options)


def _choice(name: str, choices: str, help: str, in_project: InProject = "never") -> Definition:  # noqa: A002 - likewise
    """A setting whose value is one of several words. The first is the default."""
    words = tuple(choices.split())
    return _setting(name, "choice", help, default=words[0], choices=words, in_project=in_project)


def _address_of(provider: Provider) -> Definition:
    return Definition(
        name=f"{_ADDRESS}{provider.name}",
        kind="address",
        help=f"the server to use instead of {provider.name}'s own",
        variable=provider.url_variables[0],
        other_variables=provider.url_variables[1:],
        may_be_bare=provider.has_bare_address,
    )


DEFINITIONS = (
    _setting(
        "model", "text", "provider:model; without it, the first provider with a key, else local", in_project="free"
    ),
    _setting("judge", "text", "provider:model that judges evaluations by rubrics"),
    _choice("thinking", "off minimal low medium high extra_high", "how much reasoning to ask for", "free"),
    _setting(
        "temperature",
        "temperature",
        "randomness of replies, from 0 to 2; not sent to models that do not accept it",
        in_project="free",
    ),
    _setting("max_tokens", "count", "the most tokens in one reply", in_project="stricter"),
    _setting(
        "context_window",
        "count",
        "tokens of the model's window; without it, the known size of the model's window, but at most 100,000",
    ),
    _choice(
        "compaction",
        "summary window",
        "what happens to a conversation that outgrows that: its older part is summarized by the model, or left out",
        "free",
    ),
    _setting("system", "text", "instructions instead of the standard ones", in_project="free"),
    _setting("append_system", "text", "instructions in addition to the standard ones", in_project="free"),
    _setting(
        "tools", "names", "which built-in tools", default=STANDARD_TOOLS, choices=STANDARD_TOOLS, in_project="stricter"
    ),
    _setting(
        "extra_tools", "names", "additional tools, by name: web_fetch, and those of installed packages", default=()
    ),
    _setting(
        "web_search",
        "switch",
        "whether the model may search the web through its provider, which costs extra",
        default=False,
        in_project="stricter",
    ),
    _setting("skills", "switch", "whether the model can read skills", default=True, in_project="stricter"),
    _setting("web_private", "private", "private addresses that web_fetch may reach: 127.0.0.1:8080", default=()),
    _setting("extra_policies", "names", "policies of installed packages, by name, that watch every run", default=()),
    _setting(
        "approve",
        "choice",
        "which calls run without a question: ask (none), smart (harmless ones), auto (those in the sandbox too), all; "
        "with none, no call runs that needs approval; default: auto in a folder you agreed to, else smart",
        default="auto",
        choices=tuple(MODES),
        in_project="stricter",
    ),
    _setting("allow", "rules", "calls that need no question, in addition to harmless ones: bash: pytest *", default=()),
    _setting("deny", "rules", "calls that never run: bash: git push", default=(), in_project="stricter"),
    _choice(
        "sandbox",
        "auto bubblewrap landlock sandbox-exec off",
        "how commands are confined; auto takes the first back end that works, off confines nothing",
    ),
    _setting("network", "switch", "whether commands may use the network", default=False, in_project="stricter"),
    _setting(
        "allow_hosts", "hosts", "hosts that every command may reach unasked: pypi.org, *.example.org:8443", default=()
    ),
    _setting("undo", "switch", "whether checkpoints of the folder are kept, for swink undo", default=True),
    _setting("otel", "switch", "whether runs are reported to the collector in the OTEL_… variables", default=False),
    _setting("sessions", "switch", "whether runs are recorded, so that they can be resumed and searched", default=True),
    _setting("sessions_folder", "folder", "where sessions are kept, instead of the data folder"),
    _choice(
        "check_claims",
        "auto on off",
        "whether an answer that claims work that no tool did is sent back once; auto does so for small models",
        "free",
    ),
    _setting("max_turns", "count", "the most replies in one run", default=50, in_project="stricter"),
    _setting("max_cost", "amount", "cost limit of one run in US dollars", in_project="stricter"),
    _setting("timeout", "amount", "time limit of one run in seconds", in_project="stricter"),
    _choice("output", "text json stream-json", "the format of stdout"),
    _setting("masking", "switch", "whether secrets are masked for the model and in outputs", default=True),
    _setting("unmask", "names", "names of secrets, such as DB_PASSWORD, that are not masked", default=()),
    _choice(
        "theme",
        "auto dark light contrast plain",
        "the colours of the terminal UI; auto follows its background, is dark if that is unknown, plain with NO_COLOR",
    ),
    _setting("motion", "switch", "whether the terminal UI has animations", default=True),
    _choice(
        "notify",
        "auto bell off",
        "how the terminal UI notifies you of a question and the end of a long run: auto rings, sets the title and, "
        "if the terminal is not in focus, sends a desktop notification; bell only rings",
    ),
    _setting("notify_after", "amount", "seconds after which a run counts as long for that", default=20.0),
    _setting(
        "status_line",
        "command",
        "your program that prints the last row of the terminal UI: a list of words, or none",
        default=(),
    ),
    _setting("vim", "switch", "whether the input line of the terminal UI uses vim keys", default=False),
    Definition(
        name="durable.url",
        kind="text",
        help="the store of durable runs: sqlite:///path or postgresql://user@host/database",
        variable="SWINK_DURABLE_URL",
    ),
    _setting("models_dir", "folder", "where local models are kept, instead of the cache folder"),
    *[_address_of(provider) for provider in PROVIDERS if provider.url_variables],
)
"""The settings that always exist. Every installed provider adds one for its address: `all_definitions`."""
_BY_NAME = {definition.name: definition for definition in DEFINITIONS}


# -- finding one ---------------------------------------------------------------------------------------------


def all_definitions() -> list[Definition]:
    """Every setting, including those of installed providers."""
    others = [item for item in all_providers() if f"{_ADDRESS}{item.name}" not in _BY_NAME and item.url_variables]
    return [*DEFINITIONS, *[_address_of(provider) for provider in others]]


def definition_of(name: str, place: str = "") -> Definition:
    """The setting of that name. Raises `SettingsError` with a suggestion."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.startswith(_ALIAS):
        return _alias(name, place)
    if name.startswith(KEYS):
        return _binding(name, place)
    if name.startswith(_ADDRESS):
        installed = provider_named(name.removeprefix(_ADDRESS))
        if installed is not None and installed.url_variables:
            return _address_of(installed)
    for table, header in (("mcp", "[mcp.servers.NAME]"), ("hooks", "[hooks.NAME]")):
        if name == table or name.startswith(f"{table}."):
            raise SettingsError(f"{place + ': ' if place else ''}{name} must be edited by hand: {header} in the file")
    from swink_agent.core.texts.likeness import which_name

    names = [definition.name for definition in all_definitions()] if name.startswith(_ADDRESS) else list(_BY_NAME)
    if name == _ALIAS.rstrip("."):
        hint = f"write {_ALIAS}NAME, such as {_ALIAS}fast"
    elif name == KEYS.rstrip("."):
        hint = f"write {KEYS}ACTION, such as {KEYS}search"
    else:
        hint = which_name(name, [*names, f"{_ALIAS}NAME"])
    raise SettingsError(f"{place + ': ' if place else ''}no setting is called {name or repr(name)}; {hint}")


def alias_of(name: str) -> str | None:
    """The alias that the setting of that name defines, or `None`."""
    return name.removeprefix(_ALIAS) if name.startswith(_ALIAS) else None


def _alias(name: str, place: str) -> Definition:
    """The setting that defines an alias for a model. Raises `SettingsError` for an ambiguous name."""
    alias = name.removeprefix(_ALIAS)
    problem = ""
    if not _ALIAS_NAME.fullmatch(alias):
        problem = "a short name for a model has letters, digits, '-', '_' and '.'"
    elif alias in {LOCAL, *[provider.name for provider in PROVIDERS]} or alias in declared_names():
        problem = f"{alias} is the name of a provider: choose another name"
    if problem:
        raise SettingsError(f"{place + ': ' if place else ''}{name} cannot be set: {problem}")
    return Definition(name=name, kind="alias", help="a short name for a model", variable="")


def bound_action(name: str) -> str | None:
    """The action whose keys the setting of that name gives, or `None`."""
    return name.removeprefix(KEYS) if name.startswith(KEYS) else None


def _binding(name: str, place: str) -> Definition:
    """The setting that gives an action of the terminal UI its keys. Raises `SettingsError` for an unknown action."""
    action = action_named(name.removeprefix(KEYS))
    if action is not None:
        return Definition(name=name, kind="keys", help=action.help, variable="", default=action.keys)
    from swink_agent.core.texts.likeness import which_name

    hint = which_name(name, [f"{KEYS}{known.name}" for known in ACTIONS])
    raise SettingsError(f"{place + ': ' if place else ''}{name} is not a setting: no action has that name; {hint}")


def definition_in_file(name: str, place: str) -> Definition:
    """The setting of that name in a file. The file may come from anyone, so no package is loaded for it.

    So for the address of an installed provider only the type is known. Raises `SettingsError`.
    """
    if name not in _BY_NAME and name.startswith(_ADDRESS) and name.removeprefix(_ADDRESS) in declared_names():
        return Definition(name=name, kind="address", help="", variable="", may_be_bare=True)
    return definition_of(name, place)
