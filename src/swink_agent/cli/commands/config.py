"""`swink config`: shows settings with their sources, changes one value at a time, and trusts a folder's settings."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, cast

import click

from swink_agent.app.agent.approval_modes import mode_here
from swink_agent.app.agent.models import named_model, settings_problems
from swink_agent.app.errors import UsageProblem
from swink_agent.app.settings.definitions import alias_of, all_definitions, definition_of
from swink_agent.app.settings.paths import beneath_home
from swink_agent.app.settings.settings import (
    Settings,
    SourcedValue,
    load_settings,
    set_value,
    settings_file,
    unset_value,
    without_login,
)
from swink_agent.app.trust.folder_rules import FolderRules, WorkedFolders, project_root
from swink_agent.app.trust.trust import Project, TrustStore, find_project
from swink_agent.approvals.display import safe_display
from swink_agent.core.secrets.redaction import Redactor

from ..process.groups import Group, offered
from ..screen.screen import Screen, say_json, table, write_answer


@click.group(
    cls=Group,
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
    """Show and change settings; trust a folder's own settings.

    Values come from the defaults, your file, a trusted folder's .swink/config.toml, SWINK_ variables and flags. The
    last of these that sets a value wins.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


def _load() -> tuple[Settings, Project | None]:
    project = find_project(Path.cwd(), TrustStore())
    files = None if project is None else project.settings_files
    return load_settings(project=files, kept=FolderRules().setting(Path.cwd())), project


def _with_mode(settings: Settings) -> Settings:
    """The settings with the mode of approvals that is on in this folder, if none was set."""
    mode = mode_here(settings, Path.cwd())
    if settings["approve"].source != "default":
        return settings
    return settings.replaced("approve", SourcedValue(mode.mode, f"default: {mode.why}" if mode.why else "default"))


def _shown(name: str, value: Any) -> str:
    return "-" if value is None else safe_display(_masked(_plain(name, value)), 100)


def _masked(value: Any) -> Any:
    """The value with secrets masked, such as the login in an address."""
    if isinstance(value, tuple):
        return [_masked(item) for item in cast("tuple[Any, ...]", value)]
    return Redactor().redact(without_login(value)) if isinstance(value, str) else value


def _plain(name: str, value: Any) -> str:
    """The value in the form that `set` accepts."""
    if isinstance(value, tuple):
        kind = definition_of(name).kind
        if kind == "command":
            return shlex.join(cast("tuple[str, ...]", value)) or "none"
        between = "; " if kind == "rules" else ","
        return between.join(cast("tuple[str, ...]", value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


@config.command("show")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(as_json: bool = False) -> None:
    """Show every setting, its value and its source. Values that cannot be used are reported on stderr."""
    settings, project = _load()
    settings = _with_mode(settings)
    everything = {definition.name: settings[definition.name] for definition in all_definitions()}
    everything |= {f"aliases.{alias}": item for alias, item in settings.aliases().items()}
    everything |= {f"keys.{action}": item for action, item in settings.bindings().items()}
    problems = settings_problems(settings, everything)
    if as_json:
        shown: dict[str, Any] = {}
        for name, item in everything.items():
            problem = {"problem": problems[name]} if name in problems else {}
            shown[name] = {"value": _masked(item.value), "source": item.source, **problem}
        for hook in settings.hooks:
            shown[f"hooks.{hook.name}"] = {"value": _masked(hook.summary), "source": hook.source}
        say_json(shown)
        return
    rows = [
        (name, "cannot be used" if item.problem else _shown(name, item.value), item.source)
        for name, item in everything.items()
        if not name.startswith("base_url.") or item.value is not None or item.problem
    ]
    rows += [(f"hooks.{hook.name}", safe_display(_masked(hook.summary), 100), hook.source) for hook in settings.hooks]
    click.echo(table(rows))
    screen = Screen(sys.stderr)
    for problem in problems.values():
        screen.say("warning: ", problem, "yellow")
    for note in settings.notes:
        screen.say("note: ", note)
    if project is not None and (text := project.what_is_unused):
        screen.say("note: ", f"{text}: swink config trust")


@config.command("get")
@click.argument("name", shell_complete=offered("settings"))
def get(name: str) -> None:
    """Print one value, with secrets masked."""
    definition_of(name)
    settings = _load()[0]
    if (alias := alias_of(name)) is not None and alias not in settings.aliases():
        raise UsageProblem(f"no alias is called {alias}; swink config set {name} PROVIDER:MODEL creates one")
    item = (_with_mode(settings) if name == "approve" else settings)[name]
    if item.problem:
        raise UsageProblem(item.problem)
    plain = "" if item.value is None else _plain(name, item.value)
    shown = _masked(plain)
    write_answer(f"{shown}\n")
    if shown != plain:
        click.echo(f"note: a secret in the value is masked; the full value is set in {item.source}", err=True)


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=offered("settings"))
@click.argument("value", shell_complete=offered("setting_values"))
def set_(name: str, value: str) -> None:
    """Set one value in your own settings file."""
    if name == "model" or name.startswith("aliases."):
        named_model(value, load_settings().aliases())  # raises `UsageProblem`, with suggestions
    path = settings_file()
    stored = set_value(name, value, path=path)
    click.echo(f"{name} = {_shown(name, stored)} in {path}", err=True)
    used = _load()[0][name]
    if used.value != stored:
        click.echo(f"note: the value in use here is {_shown(name, used.value)}, from {used.source}", err=True)


@config.command("unset")
@click.argument("name", shell_complete=offered("settings"))
def unset(name: str) -> None:
    """Remove one value from your own settings file."""
    path = settings_file()
    if not unset_value(name, path=path):
        raise UsageProblem(f"{name} is not set in {path}")
    click.echo(f"{name} is no longer set in {path}", err=True)


@config.command("path")
def path_() -> None:
    """Print the path of your own settings file."""
    click.echo(str(settings_file()))


@config.command("trust")
@click.argument("given", metavar="[FOLDER]", default=".", shell_complete=offered("folders"))
@click.option("--remove", is_flag=True, help="Remove the trust.")
@click.option("--list", "list_all", is_flag=True, help="List the trusted folders.")
@click.option("-y", "--yes", is_flag=True, help="Show the files, and do not ask.")
def trust(given: str, remove: bool, list_all: bool, yes: bool) -> None:
    """Trust a folder: its .swink/config.toml, AGENTS.md, skills and commands are used from now on.

    They are shown first, with the lines that would not be used, and you are asked. A file that changes must be trusted
    again. A folder's settings can be stricter than your own, never looser.
    """
    store = TrustStore()
    folder = beneath_home(given, "config trust")
    if not list_all and not (given and folder.is_dir()):
        raise UsageProblem(f"{given or 'an empty text'} is not a folder that can be trusted")
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


@config.command("allowed")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@click.option("--remove", metavar="RULE", help="Remove this rule.")
@click.option("--remove-all", is_flag=True, help="Remove all rules of the project.")
def allowed(folder: Path, remove: str | None, remove_all: bool) -> None:
    """List or remove the calls that you allowed for a project when you were asked."""
    rules = FolderRules()
    root = safe_display(project_root(folder))
    if remove is not None or remove_all:
        if not rules.remove(folder, None if remove_all else remove):
            raise UsageProblem(f"no such rule is stored for {root}: swink config allowed lists them")
        click.echo(f"It is no longer allowed in {root}.", err=True)
        return
    kept = rules.rules(folder)
    if not kept:
        click.echo(f"No call is always allowed in {root}.", err=True)
    for rule in kept:
        write_answer(f"{safe_display(rule, None) if sys.stdout.isatty() else rule}\n")


@config.command("work")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@click.option(
    "--no", "is_no", is_flag=True, help="Answer no: you are asked about calls there, and not about the folder again."
)
@click.option("--remove", is_flag=True, help="Remove your answer.")
@click.option("--list", "list_all", is_flag=True, help="List the folders, each with yes or no.")
def work(folder: Path, is_no: bool, remove: bool, list_all: bool) -> None:
    """Let commands and edits in a folder run unasked, in the sandbox and with checkpoints.

    This also applies to the folders beneath, but not to other repositories in them. The terminal UI asks the same
    question once.
    """
    folders = WorkedFolders()
    if list_all:
        answers = folders.folders()
        if not answers:
            click.echo("No folder has an answer yet; swink config work says yes for this one.", err=True)
        for place, answer in answers.items():
            shown = safe_display(place, None) if sys.stdout.isatty() else place
            write_answer(f"{'yes' if answer else 'no '} {shown}\n")
        return
    shown = safe_display(str(folder.resolve()))
    has_changed = folders.keep(folder, None if remove else not is_no)
    if remove:
        if not has_changed:
            raise UsageProblem(f"there is no answer for {shown}")
        click.echo(f"The answer for {shown} is removed.", err=True)
    elif is_no:
        click.echo(f"In {shown} you are asked about calls.", err=True)
    else:
        click.echo(f"In {shown} commands and edits run unasked, in the sandbox and with checkpoints.", err=True)
