"""Candidates for the completion of a word: files, folders, models, providers, tools, settings, sessions, skills,
custom commands, MCP servers.

Nothing is loaded before a shell asks. The shells' formats are in `scripts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from swink_agent.app.trust.trust import Project

Candidates: TypeAlias = Iterable[str | CompletionItem]


def completions(kind: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The candidates of a kind below that begin with `incomplete`; none after an error, which the command reports."""
    from swink_agent.app.errors import ApplicationError

    try:
        found = [*_KINDS[kind](ctx, incomplete)]
    except ApplicationError:
        return []
    words = dict.fromkeys([word for word in found if isinstance(word, str) and word.startswith(incomplete)])
    items = [item for item in found if not isinstance(item, str) and item.value.startswith(incomplete)]
    return [*map(CompletionItem, words), *items]


def _files(ctx: click.Context, incomplete: str) -> Candidates:
    return [CompletionItem(incomplete, type="file")]


def _folders(ctx: click.Context, incomplete: str) -> Candidates:
    return [CompletionItem(incomplete, type="dir")]


def _models(ctx: click.Context, incomplete: str) -> Candidates:
    """Aliases, local models, and models of providers with a key or whose name begins with the typed letter."""
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
    return names


def _providers(ctx: click.Context, incomplete: str) -> Candidates:
    """Providers whose keys can be stored."""
    from swink_agent.app.agent.providers import all_providers

    return [item.account for item in all_providers() if item.key_variables]


def _tools(ctx: click.Context, incomplete: str) -> Candidates:
    """Completes the last of several names separated by commas."""
    from swink_agent.app.settings.settings import STANDARD_TOOLS

    return _last_of([*STANDARD_TOOLS] if "," in incomplete else [*STANDARD_TOOLS, "none"], incomplete)


def _rules(ctx: click.Context, incomplete: str) -> Candidates:
    from swink_agent.app.settings.settings import STANDARD_TOOLS

    return STANDARD_TOOLS


def _sessions(ctx: click.Context, incomplete: str) -> Candidates:
    """Ids of sessions, from the names of their files. No file is opened."""
    from swink_agent.app.runs.sessions import session_ids, sessions_folder
    from swink_agent.app.settings.settings import load_settings

    return session_ids(sessions_folder(load_settings()))


def _answers(ctx: click.Context, incomplete: str) -> Candidates:
    """Yes and no to the waiting calls of the session after `--resume`. Only its file is read."""
    from swink_agent.app.runs.sessions import open_store, session_problems
    from swink_agent.app.settings.settings import load_settings
    from swink_agent.core.run.pending import pending_calls

    wanted = ctx.params.get("resume")
    if not wanted:
        return []
    with session_problems():
        pending = pending_calls(open_store(load_settings()).load(wanted).messages)
    return [
        f"{call.call_id}={answer}"
        for call in pending
        for answer in (("no",) if call.kind == "external" else ("yes", "no"))
    ]


def _results(ctx: click.Context, incomplete: str) -> Candidates:
    """Ids of results in the named store, or the default one. A path is completed as a path."""
    from swink_agent.app.evals.evaluation import results_folder
    from swink_agent.evals import EvalStore

    if "/" in incomplete or incomplete.startswith("."):
        return _files(ctx, incomplete)
    return [info.id for info in EvalStore(ctx.params.get("store") or results_folder()).list()]


def _settings(ctx: click.Context, incomplete: str) -> Candidates:
    from swink_agent.app.settings.definitions import all_definitions

    return [CompletionItem(item.name, help=item.help) for item in all_definitions()]


def _mcp_servers(ctx: click.Context, incomplete: str) -> Candidates:
    """The servers of the settings, each with its command line or address. None is started."""
    from swink_agent.app.settings.settings import load_settings

    project = _project(ctx)
    found, _ = load_settings(project=None if project is None else project.settings_files).servers()
    return [CompletionItem(server.name, help=server.target[:60]) for server in found]


def _skills(ctx: click.Context, incomplete: str) -> Candidates:
    from swink_agent.app.agent.skills import usable_skills

    return [CompletionItem(one.name, help=one.summary) for one in usable_skills(_project(ctx))]


def _prompt_commands(ctx: click.Context, incomplete: str) -> Candidates:
    from swink_agent.app.agent.prompt_commands import prompt_commands

    return [CompletionItem(one.name, help=one.description) for one in prompt_commands(_project(ctx)).values()]


def _project(ctx: click.Context) -> Project | None:
    """The project of the folder after `-C`, or of the current folder."""
    from swink_agent.app.trust.trust import TrustStore, find_project

    return find_project(Path(ctx.params.get("cwd") or ".").absolute(), TrustStore())


def _setting_values(ctx: click.Context, incomplete: str) -> Candidates:
    """The values of the setting that the line names."""
    from swink_agent.app.settings.definitions import DEFINITIONS

    definition = next((item for item in DEFINITIONS if item.name == ctx.params.get("name")), None)
    if definition is None:
        return []
    match definition.kind:
        case "choice":
            return definition.choices
        case "switch":
            return ("true", "false")
        case "names" if definition.name == "tools":
            return _tools(ctx, incomplete)
        case "names" if definition.name in ("extra_tools", "extra_policies"):
            from swink_agent.app.trust.extras import installed_extras

            kind = "tool" if definition.name == "extra_tools" else "policy"
            return _last_of([extra.name for extra in installed_extras(kind)], incomplete)
        case "rules":
            return _rules(ctx, incomplete)
        case "folder":
            return _folders(ctx, incomplete)
        case _:
            return _models(ctx, incomplete) if definition.name == "model" else []


def _last_of(names: Iterable[str], incomplete: str) -> list[str]:
    """Completes the last of several names separated by commas."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name not in before.split(",")]


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


_KINDS: dict[str, Callable[[click.Context, str], Candidates]] = {
    "answers": _answers,
    "files": _files,
    "folders": _folders,
    "local_models": lambda ctx, incomplete: _presets(),
    "mcp_servers": _mcp_servers,
    "models": _models,
    "prompt_commands": _prompt_commands,
    "providers": _providers,
    "results": _results,
    "rules": _rules,
    "sessions": _sessions,
    "setting_values": _setting_values,
    "settings": _settings,
    "skills": _skills,
    "tools": _tools,
}
