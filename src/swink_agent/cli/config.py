"""`swink config`: settings with their sources, one value at a time, and trust in a folder's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import click

from swink_agent.app.definitions import all_definitions
from swink_agent.app.errors import UsageProblem
from swink_agent.app.models import named_model
from swink_agent.app.settings import (
    Definition,
    Settings,
    definition_of,
    load_settings,
    set_value,
    settings_file,
    unset_value,
)
from swink_agent.app.trust import Project, TrustStore, find_project
from swink_agent.approvals.display import safe_display

from .lazy import offered
from .screen import Screen, write_answer
from .table import table

__all__ = ["config"]


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink config
  swink config set model anthropic:claude-sonnet-4-6
  swink config set tools read_file,list_dir,search
  swink config unset model
  swink config trust ~/src/my-project""",
)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Show and change settings; trust a folder's own.

    Defaults, your file, a trusted folder's .swink/config.toml, SWINK_ variables and flags follow each other: the last
    one that says something wins.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


def _load() -> tuple[Settings, Project | None]:
    project = find_project(Path.cwd(), TrustStore())
    return load_settings(project=None if project is None else project.settings_files), project


def _shown(name: str, value: Any) -> str:
    return "-" if value is None else safe_display(_plain(name, value), 100)


def _plain(name: str, value: Any) -> str:
    """As it could be given to `set`."""
    if isinstance(value, tuple):
        between = "; " if definition_of(name).kind == "rules" else ","
        return between.join(cast("tuple[str, ...]", value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


@config.command("show")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(as_json: bool = False) -> None:
    """Show every setting, its value and where that comes from."""
    settings, project = _load()
    everything = {definition.name: settings[definition.name] for definition in all_definitions()}
    if as_json:
        click.echo(
            json.dumps(
                {name: {"value": item.value, "source": item.source} for name, item in everything.items()}, indent=2
            )
        )
        return
    rows = [
        (name, _shown(name, item.value), item.source)
        for name, item in everything.items()
        if not name.startswith("base_url.") or item.value is not None
    ]
    click.echo(table(rows))
    screen = Screen(sys.stderr)
    for note in settings.notes:
        screen.say("note: ", note)
    if project is not None and (text := project.what_is_unused):
        screen.say("note: ", f"{text}: swink config trust")


@config.command("get")
@click.argument("name", shell_complete=offered("settings"))
def get(name: str) -> None:
    """Print one value."""
    definition_of(name)
    value = _load()[0].value(name)
    write_answer("\n" if value is None else f"{_plain(name, value)}\n")


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=offered("settings"))
@click.argument("value", shell_complete=offered("setting_values"))
def set_(name: str, value: str) -> None:
    """Set one value in your own settings file."""
    if name == "model":
        named_model(value)  # raises `UsageProblem`, with what may have been meant
    path = settings_file()
    stored = set_value(name, value, path=path)
    click.echo(f"{name} = {_shown(name, stored)} in {path}", err=True)
    _tell_what_wins(definition_of(name), stored)


def _tell_what_wins(definition: Definition, stored: Any) -> None:
    item = _load()[0][definition.name]
    if item.value != stored:
        click.echo(f"note: here it is {_shown(definition.name, item.value)}, by {item.source}", err=True)


@config.command("unset")
@click.argument("name", shell_complete=offered("settings"))
def unset(name: str) -> None:
    """Take one value out of your own settings file."""
    path = settings_file()
    if not unset_value(name, path=path):
        raise UsageProblem(f"{name} is not set in {path}")
    click.echo(f"{name} is no longer set in {path}", err=True)


@config.command("path")
def path_() -> None:
    """Print the path of your own settings file."""
    click.echo(str(settings_file()))


@config.command("trust")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@click.option("--remove", is_flag=True, help="Take trust away again.")
@click.option("--list", "list_all", is_flag=True, help="List the trusted folders.")
@click.option("-y", "--yes", is_flag=True, help="Show, and do not ask.")
def trust(folder: Path, remove: bool, list_all: bool, yes: bool) -> None:
    """Trust a folder: its .swink/config.toml and its AGENTS.md are used from now on.

    Both are shown first, with the lines that would not count, and you are asked. When the settings file changes, it has
    to be trusted again. A folder's settings can be stricter than your own, never looser.
    """
    store = TrustStore()
    if list_all:
        for place in store.folders():
            write_answer(f"{safe_display(place, None) if sys.stdout.isatty() else place}\n")
    elif remove:
        if not store.distrust(folder):
            raise UsageProblem(f"{folder.resolve()} is not trusted")
        click.echo(f"{safe_display(str(folder.resolve()))} is no longer trusted.", err=True)
    else:
        from .trusting import trust_folder

        if not trust_folder(folder, is_sure=yes):
            click.get_current_context().exit(1)
