"""`swink models`: what can be asked, what it costs, how much it remembers; and the models on this machine."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from swink_agent.app.credentials import Credentials
from swink_agent.app.errors import NoModel, UsageProblem
from swink_agent.app.foreign_code import import_nothing_from_here
from swink_agent.app.models import LOCAL_EXTRA, has_local_extra, prepare_local
from swink_agent.app.providers import all_providers, unusable_providers
from swink_agent.app.settings import load_settings
from swink_agent.app.telling import size_of

from .interrupts import interruptible
from .lazy import also_called, offered
from .reporter import Reporter
from .screen import Screen
from .table import table

if TYPE_CHECKING:
    from swink_agent.core.cancel import CancellationToken
    from swink_agent.local.store import ModelStore

__all__ = ["models"]


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink models                       every model whose provider has a key, and the local ones
  swink models list --all sonnet
  swink models list --json | jq -r '.[].model'
  swink models pull qwen2.5-coder-1.5b
  swink models rm smollm2-135m""",
)
@click.pass_context
def models(ctx: click.Context) -> None:
    """List models with prices and windows; fetch and remove local ones."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_models)


@models.command("list")
@click.argument("words", nargs=-1)
@click.option("-a", "--all", "everything", is_flag=True, help="Also models whose provider has no key here.")
@click.option("--json", "as_json", is_flag=True, help="As a list of objects.")
def list_models(words: tuple[str, ...] = (), everything: bool = False, as_json: bool = False) -> None:
    """List models: window and longest reply in tokens, dollars for a million tokens in and out.

    WORDS are parts of names; only models that have all of them are listed.
    """
    import_nothing_from_here()
    rows = [
        row for row in (*_local_rows(), *_remote_rows()) if all(word.lower() in row["model"].lower() for word in words)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    shown = [row for row in rows if everything or row["available"]]
    if shown:
        head = ("MODEL", "WINDOW", "OUTPUT", "IN $/M", "OUT $/M", "")
        click.echo(table([head, *[_cells(row) for row in shown]], right=(1, 2, 3, 4)))
    hidden = len(rows) - len(shown)
    if hidden:
        click.echo(f"{hidden} more of providers without a key here: --all lists them.", err=True)
    unusable = _unusable(words)
    for problem in unusable:
        Screen(sys.stderr).say("warning: ", problem, "yellow")
    if not rows and not unusable:
        click.echo("No model has such a name.", err=True)
    _tell_disk_use()


def _unusable(words: tuple[str, ...]) -> list[str]:
    """Why the models of installed providers are missing that have these words in their names."""
    # A word may be about the model, which nobody knows of a provider that cannot be loaded.
    asked = [word.lower().partition(":")[0] for word in words]
    return [text for name, text in unusable_providers().items() if not asked or any(word in name for word in asked)]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def tokens(count: int | None) -> str:
        return "-" if count is None else f"{count // 1000}k" if count < 1_000_000 else f"{count / 1_000_000:.3g}M"

    def price(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}" if value >= 0.1 or not value else f"{value:.3f}"

    return (
        row["model"],
        tokens(row["context_window"]),
        tokens(row["output_limit"]),
        price(row["input_price"]),
        price(row["output_price"]),
        row["note"],
    )


def _remote_rows() -> list[dict[str, Any]]:
    from swink_agent.adapters.catalog import ModelCatalog

    credentials = Credentials()
    catalog = ModelCatalog.load()
    rows: list[dict[str, Any]] = []
    for provider in all_providers():
        if provider.keys_of:
            continue
        has_key = credentials.has_key(provider.name) or not provider.needs_key
        for info in catalog.models(provider.name):
            rows.append(
                {
                    "model": str(info),
                    "name": info.name,
                    "available": has_key,
                    "context_window": info.context_window,
                    "output_limit": info.output_limit,
                    "input_price": info.prices.input,
                    "output_price": info.prices.output,
                    "note": "" if has_key else "no key",
                }
            )
    return rows


def _local_rows() -> list[dict[str, Any]]:
    from swink_agent.local.presets import PRESETS

    there = {stored.name for stored in _store().list()}
    rows: list[dict[str, Any]] = []
    for preset in PRESETS:
        size = size_of(preset.size) if preset.size else "size from the hub"
        state = "fetched" if preset.name in there else f"not fetched, {size}"
        rows.append(
            {
                "model": f"local:{preset.name}",
                "name": preset.description,
                "available": has_local_extra(),
                "context_window": preset.context_length,
                "output_limit": None,
                "input_price": 0.0,
                "output_price": 0.0,
                "note": f"{state}; {preset.licence}" if has_local_extra() else f"{state}; needs {LOCAL_EXTRA}",
                "size": preset.size or None,
                "fetched": preset.name in there,
            }
        )
    return rows


def _store() -> ModelStore:
    from swink_agent.local.store import ModelStore

    return ModelStore(load_settings().value("models_dir"))


def _tell_disk_use() -> None:
    store = _store()
    used = store.disk_use()
    if used:
        click.echo(f"{size_of(used)} in {store.folder}", err=True)


@models.command("pull")
@click.argument("name", required=False, shell_complete=offered("local_models"))
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def pull(name: str | None, quiet: bool) -> None:
    """Fetch a model of this machine, or go on with a fetch that was interrupted. Default: the standard one.

    Then the model reads what every run begins with, which is kept next to it: the first answer comes sooner.
    """
    from swink_agent.core.cancel import CancellationToken
    from swink_agent.core.errors import Aborted
    from swink_agent.local.events import LocalModelError
    from swink_agent.local.presets import DEFAULT_MODEL

    screen = Screen(sys.stderr)
    reporter = Reporter(screen, Credentials().redactor(), "quiet" if quiet else "normal")
    cancel = CancellationToken()
    try:
        with interruptible(cancel.cancel, lambda: None):
            name = (name or DEFAULT_MODEL).removeprefix("local:")
            path = _store().fetch(name, reporter.on_local_state, cancel=cancel)
            _prepare(name, reporter, cancel)
    except LocalModelError as error:
        raise NoModel(str(error)) from error
    except Aborted:
        click.echo("stopped; what was done is kept, and the next pull goes on with it", err=True)
        raise click.Abort from None
    finally:
        screen.clear()
    click.echo(str(path))


def _prepare(name: str, reporter: Reporter, cancel: CancellationToken) -> None:
    """Has the model read what every run begins with. That it cannot is no reason to call the fetch a failure."""
    import asyncio

    if not has_local_extra():
        return
    try:
        asyncio.run(prepare_local(name, load_settings(), reporter.on_local_state, cancel))
    except NoModel as error:
        reporter.warn(f"{name} was fetched, but does not run here: {error}")


@models.command("rm")
@click.argument("name", shell_complete=offered("local_models"))
def remove(name: str) -> None:
    """Delete a model of this machine."""
    from swink_agent.local.events import LocalModelError

    try:
        freed = _store().remove(name.removeprefix("local:"))
    except LocalModelError as error:
        raise UsageProblem(str(error)) from error
    if not freed:
        raise UsageProblem(f"{name} is not on this machine")
    click.echo(f"{size_of(freed)} freed.", err=True)


also_called(models, remove, "remove")
