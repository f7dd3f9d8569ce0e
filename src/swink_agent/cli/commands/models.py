"""`swink models`: lists the models with prices and context windows, and manages the models on this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swink_agent.app.agent.models import LOCAL_EXTRA, has_local_extra, named_model, prepare_local
from swink_agent.app.agent.providers import LOCAL, all_providers, provider_named, unusable_providers
from swink_agent.app.errors import NoModel, UsageProblem
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.telling import size_of
from swink_agent.app.settings.settings import load_settings
from swink_agent.app.trust.foreign_code import import_nothing_from_here
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted

from ..process.groups import Group, also_called, offered
from ..process.interrupts import interruptible
from ..prompt.reporter import Reporter
from ..screen.screen import Screen, say_json, table

if TYPE_CHECKING:
    from swink_agent.core.values.model_info import ModelInfo
    from swink_agent.local.weights.store import ModelStore


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink models                       models of providers with a key, and local ones
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
@click.option("-a", "--all", "everything", is_flag=True, help="Also list models of providers without a key.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def list_models(words: tuple[str, ...] = (), everything: bool = False, as_json: bool = False) -> None:
    """List models: window and longest reply in tokens, dollars for a million tokens in and out.

    Only models whose names contain all WORDS are listed.
    """
    from swink_agent.adapters.catalog import ModelCatalog

    import_nothing_from_here()
    rows = [
        row
        for row in (*_alias_rows(), *_local_rows(), *_remote_rows())
        if all(word.lower() in row["model"].lower() for word in words)
    ]
    # A word may be part of a model's name, and the names are unknown if the provider cannot be loaded.
    asked = [word.lower().partition(":")[0] for word in words]
    broken = unusable_providers().items()
    unusable = [text for name, text in broken if not asked or any(word in name for word in asked)]
    if not rows and not unusable:
        near = ModelCatalog.load().nearest(" ".join(words))
        hint = f"did you mean {' or '.join(near)}?" if near else "swink models list --all lists every model"
        raise UsageProblem(f"no model has {' and '.join(map(repr, words))} in its name; {hint}")
    if as_json:
        say_json(rows)
        return
    shown = [row for row in rows if everything or row["available"]]
    if shown:
        head = ("MODEL", "WINDOW", "OUTPUT", "IN $/M", "OUT $/M", "")
        click.echo(table([head, *[_cells(row) for row in shown]], right=(1, 2, 3, 4)))
    hidden = len(rows) - len(shown)
    if hidden and not shown:
        click.echo(
            f"No model is ready: {hidden} are of providers without a key here (--all lists them). "
            "Store a key with: swink keys set PROVIDER",
            err=True,
        )
    elif hidden:
        click.echo(f"{hidden} more of providers without a key here: --all lists them.", err=True)
    for problem in unusable:
        Screen(sys.stderr).say("warning: ", problem, "yellow")
    store = _store()
    if used := store.disk_use():
        click.echo(f"{size_of(used)} in {store.folder}", err=True)


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


def _row(
    model: str, name: str, *, info: ModelInfo | None = None, available: bool = True, note: str = ""
) -> dict[str, Any]:
    """A model as an object of `--json`."""
    return {
        "model": model,
        "name": name,
        "available": available,
        "context_window": None if info is None else info.context_window,
        "output_limit": None if info is None else info.output_limit,
        "input_price": None if info is None else info.prices.input,
        "output_price": None if info is None else info.prices.output,
        "note": note,
    }


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
            rows.append(_row(str(info), info.name, info=info, available=has_key, note="" if has_key else "no key"))
    return rows


def _alias_rows() -> list[dict[str, Any]]:
    """The aliases in the settings, with the facts about their models."""
    from swink_agent.adapters.catalog import ModelCatalog

    settings = load_settings()
    credentials = Credentials()
    rows: list[dict[str, Any]] = []
    for alias, item in settings.aliases().items():
        try:
            model = named_model(alias, settings.aliases())
        except UsageProblem as error:
            rows.append({**_row(alias, alias, note=f"cannot be used: {error}"), "stands_for": item.value})
            continue
        info = None if model.provider == LOCAL else ModelCatalog.load().find(model)
        known = None if model.provider == LOCAL else provider_named(model.provider)
        has_key = known is None or not known.needs_key or credentials.has_key(model.provider)
        note = f"alias of {model}" + ("" if has_key else "; no key")
        rows.append({**_row(alias, alias, info=info, note=note), "stands_for": str(model)})
    return rows


def _local_rows() -> list[dict[str, Any]]:
    from swink_agent.local.weights.presets import PRESETS

    there = {stored.name for stored in _store().list()}
    rows: list[dict[str, Any]] = []
    for preset in PRESETS:
        size = size_of(preset.size) if preset.size else "size from the hub"
        state = "fetched" if preset.name in there else f"not fetched, {size}"
        note = f"{state}; {preset.licence}" if has_local_extra() else f"{state}; needs {LOCAL_EXTRA}"
        row = _row(f"local:{preset.name}", preset.description, available=has_local_extra(), note=note)
        row |= {"context_window": preset.context_length, "input_price": 0.0, "output_price": 0.0}
        rows.append({**row, "size": preset.size or None, "fetched": preset.name in there})
    return rows


def _store() -> ModelStore:
    from swink_agent.local.weights.store import ModelStore

    return ModelStore(load_settings().value("models_dir"))


@models.command("pull")
@click.argument("name", required=False, shell_complete=offered("local_models"))
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
def pull(name: str | None, quiet: bool) -> None:
    """Fetch a local model, or continue an interrupted fetch. Default: the standard model.

    Then the model reads the beginning of every run and its state is stored, so that the first answer comes sooner.
    """
    from swink_agent.local.events import LocalModelError
    from swink_agent.local.weights.presets import DEFAULT_MODEL

    name = named_model(f"{LOCAL}:{DEFAULT_MODEL if name is None else name.removeprefix('local:')}").model_id
    screen = Screen(sys.stderr)
    reporter = Reporter(screen, Credentials().redactor(), "quiet" if quiet else "normal")
    cancel = CancellationToken()
    path: Path | None = None
    try:
        with interruptible(cancel.cancel, lambda: None):
            path = _store().fetch(name, reporter.on_local_state, cancel=cancel)
            _prepare(name, reporter, cancel)
    except LocalModelError as error:
        raise NoModel(str(error)) from error
    except Aborted:
        kept = "the fetched part is kept, and the next pull continues"
        if path is not None:
            kept = f"{name} is fetched and can be used; its first answer takes longer"
        click.echo(f"stopped; {kept}", err=True)
        raise click.Abort from None
    finally:
        screen.clear()
    click.echo(str(path))


def _prepare(name: str, reporter: Reporter, cancel: CancellationToken) -> None:
    """Lets the model read the beginning of every run. If that fails, the fetch still succeeds."""
    if not has_local_extra():
        return
    try:
        asyncio.run(prepare_local(name, load_settings(), reporter.on_local_state, cancel))
    except NoModel as error:
        reporter.warn(f"{name} was fetched, but does not run here: {error}")


@models.command("rm")
@click.argument("name", shell_complete=offered("local_models"))
def remove(name: str) -> None:
    """Delete a local model."""
    from swink_agent.local.events import LocalModelError

    try:
        freed = _store().remove(name.removeprefix("local:"))
    except LocalModelError as error:
        raise UsageProblem(str(error)) from error
    if not freed:
        raise UsageProblem(f"{name} is not on this machine: swink models list local shows which are")
    click.echo(f"{size_of(freed)} freed.", err=True)


also_called(models, remove, "remove")
