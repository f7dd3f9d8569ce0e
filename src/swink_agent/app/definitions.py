"""The settings: their names, what each is, and which of them a folder's own file may set.

Owns the table, and finding a setting by its name. Where a value comes from, and whether it is one, is in `settings`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from swink_agent.core.values.value import Value

from .errors import SettingsError
from .providers import PROVIDERS, Provider, all_providers, provider_named

__all__ = [
    "APPROVALS",
    "DEFINITIONS",
    "STANDARD_TOOLS",
    "Definition",
    "all_definitions",
    "definition_in_file",
    "definition_of",
]

STANDARD_TOOLS = ("bash", "read_file", "write_file", "edit_file", "list_dir", "search")
_ADDRESS = "base_url."
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
    may_be_bare: bool = False
    """Of an address: whether it may leave out the scheme."""


def _setting(name: str, kind: Kind, help: str, **options: Any) -> Definition:  # noqa: A002 - the field's name
    return Definition(name=name, kind=kind, help=help, variable=f"SWINK_{name.upper()}", **options)


def _address_of(provider: Provider) -> Definition:
    return Definition(
        name=f"{_ADDRESS}{provider.name}",
        kind="address",
        help=f"the server to ask in place of {provider.name}'s own",
        variable=provider.url_variables[0],
        other_variables=provider.url_variables[1:],
        may_be_bare=provider.has_bare_address,
    )


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
    _setting("extra_tools", "names", "tools of installed packages, by name, that the agent has besides", default=()),
    _setting("extra_policies", "names", "policies of installed packages, by name, that watch every run", default=()),
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
    *[_address_of(provider) for provider in PROVIDERS if provider.url_variables],
)
"""The settings that are always there. Every installed provider adds the address to ask it at: `all_definitions`."""
_BY_NAME = {definition.name: definition for definition in DEFINITIONS}


# -- finding one ---------------------------------------------------------------------------------------------


def all_definitions() -> list[Definition]:
    """Every setting, those of installed providers among them."""
    others = [item for item in all_providers() if f"{_ADDRESS}{item.name}" not in _BY_NAME and item.url_variables]
    return [*DEFINITIONS, *[_address_of(provider) for provider in others]]


def definition_of(name: str, place: str = "") -> Definition:
    """The setting of that name. Raises `SettingsError` that says which is meant."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.startswith(_ADDRESS):
        installed = provider_named(name.removeprefix(_ADDRESS))
        if installed is not None and installed.url_variables:
            return _address_of(installed)
    from swink_agent.core.texts.likeness import close_names

    names = [definition.name for definition in all_definitions()] if name.startswith(_ADDRESS) else list(_BY_NAME)
    near = close_names(name, names)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
    raise SettingsError(f"{place + ': ' if place else ''}no setting is called {name}; {hint}")


def definition_in_file(name: str, place: str) -> Definition:
    """The setting of that name for reading a file, which may be anybody's: no package is loaded because it names one.

    Of the address of an installed provider, only that it is an address is known then. Raises `SettingsError`.
    """
    if name not in _BY_NAME and name.startswith(_ADDRESS):
        from swink_agent.core.providers import declared_names

        if name.removeprefix(_ADDRESS) in declared_names():
            return Definition(name=name, kind="address", help="", variable="", may_be_bare=True)
    return definition_of(name, place)
