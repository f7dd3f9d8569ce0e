"""What a shell offers for a half-typed word: files, folders, models, providers, tools, settings, sessions.

Nothing is loaded before a shell asks. How each shell is answered is in `scripts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = [
    "answers",
    "files",
    "folders",
    "local_models",
    "models",
    "providers",
    "results",
    "rules",
    "sessions",
    "setting_values",
    "settings",
    "tools",
]


def files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    return [CompletionItem(incomplete, type="dir")]


def models(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Models as `provider:model`: local ones, those of providers with a key, and all once a provider is named."""
    from swink_agent.adapters.catalog import ModelCatalog
    from swink_agent.app.agent.providers import all_providers
    from swink_agent.app.errors import ApplicationError
    from swink_agent.app.keys.credentials import Credentials

    names = [*_aliases(), *[f"local:{name}" for name in _presets()]]
    credentials, catalog = Credentials(), ModelCatalog.load()
    for provider in all_providers():
        try:
            has_key = credentials.has_key(provider.name) or not provider.needs_key
            is_wanted = incomplete.startswith(provider.name[:1]) or has_key
        except ApplicationError:  # unreadable keys are reported by other commands
            is_wanted = False
        if is_wanted:
            names += [f"{provider.name}:{info.model_id}" for info in catalog.models(provider.account)]
    return _beginning(names, incomplete)


def local_models(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    return _beginning(_presets(), incomplete)


def providers(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Providers that a key can be kept for."""
    from swink_agent.app.agent.providers import all_providers

    return _beginning([item.account for item in all_providers() if item.key_variables], incomplete)


def tools(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Completes the last of several names separated by commas."""
    from swink_agent.app.settings.settings import STANDARD_TOOLS

    before, comma, _ = incomplete.rpartition(",")
    given = before.split(",")
    names = [name for name in STANDARD_TOOLS if name not in given]
    return _beginning([f"{before}{comma}{name}" for name in ([*names, "none"] if not comma else names)], incomplete)


def rules(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from swink_agent.app.settings.settings import STANDARD_TOOLS

    return _beginning(STANDARD_TOOLS, incomplete)


def sessions(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Ids of sessions, from the names of their files. No file is opened."""
    from swink_agent.app.errors import ApplicationError
    from swink_agent.app.runs.sessions import session_ids, sessions_folder
    from swink_agent.app.settings.settings import load_settings

    try:
        return _beginning(session_ids(sessions_folder(load_settings())), incomplete)
    except ApplicationError:  # the command itself reports what is wrong
        return []


def answers(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Yes and no to the calls that wait in the session named before. Only that file is read."""
    from swink_agent.app.errors import ApplicationError
    from swink_agent.app.runs.sessions import open_store, session_problems
    from swink_agent.app.settings.settings import load_settings
    from swink_agent.core.pending import pending_calls

    wanted = ctx.params.get("resume")
    if not wanted:
        return []
    try:
        with session_problems():
            pending = pending_calls(open_store(load_settings()).load(wanted).messages)
    except ApplicationError:  # the command itself reports what is wrong
        return []
    given = [
        f"{call.call_id}={answer}"
        for call in pending
        for answer in (("no",) if call.kind == "external" else ("yes", "no"))
    ]
    return _beginning(given, incomplete)


def results(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Ids of results in the named store, or the default one. A path is completed as a path."""
    from swink_agent.app.evals.evaluation import results_folder
    from swink_agent.evals import EvalStore

    if "/" in incomplete or incomplete.startswith("."):
        return files(ctx, parameter, incomplete)
    store = EvalStore(ctx.params.get("store") or results_folder())
    return _beginning([info.id for info in store.list()], incomplete)


def settings(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from swink_agent.app.settings.definitions import all_definitions

    return [CompletionItem(item.name, help=item.help) for item in all_definitions() if item.name.startswith(incomplete)]


def setting_values(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """The values of the setting named before."""
    from swink_agent.app.settings.definitions import DEFINITIONS

    definition = next((item for item in DEFINITIONS if item.name == ctx.params.get("name")), None)
    if definition is None:
        return []
    match definition.kind:
        case "choice":
            return _beginning(definition.choices, incomplete)
        case "switch":
            return _beginning(("true", "false"), incomplete)
        case "names" if definition.name == "tools":
            return tools(ctx, parameter, incomplete)
        case "names":
            return _extras(definition.name, incomplete)
        case "rules":
            return rules(ctx, parameter, incomplete)
        case "folder":
            return folders(ctx, parameter, incomplete)
        case _:
            return models(ctx, parameter, incomplete) if definition.name == "model" else []


def _extras(setting: str, incomplete: str) -> list[Any]:
    """Completes the last of several names of what installed packages offer for the setting."""
    from swink_agent.app.trust.extras import installed_extras

    if setting not in ("extra_tools", "extra_policies"):
        return []
    before, comma, _ = incomplete.rpartition(",")
    names = [extra.name for extra in installed_extras("tool" if setting == "extra_tools" else "policy")]
    return _beginning([f"{before}{comma}{name}" for name in names if name not in before.split(",")], incomplete)


def _aliases() -> list[str]:
    from swink_agent.app.errors import ApplicationError
    from swink_agent.app.settings.settings import load_settings

    try:
        return list(load_settings().aliases())
    except ApplicationError:  # the command itself reports what is wrong
        return []


def _presets() -> list[str]:
    from swink_agent.local.weights.presets import PRESETS

    return [preset.name for preset in PRESETS]


def _beginning(words: Iterable[str], incomplete: str) -> list[Any]:
    return [CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(incomplete)]
