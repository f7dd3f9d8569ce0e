"""`swink keys`: the keys of providers, set without being shown, listed masked."""

from __future__ import annotations

import os
import sys

import click

from swink_agent.app.credentials import Credentials
from swink_agent.app.errors import UsageProblem
from swink_agent.app.providers import all_providers

from .lazy import also_called, offered
from .table import table

__all__ = ["keys"]

_LONGEST_KEY = 16 * 1024


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink keys set anthropic            asks for the key, and shows nothing
  pass show openai | swink keys set openai
  swink keys list
  swink keys remove openai""",
)
@click.pass_context
def keys(ctx: click.Context) -> None:
    """Keep the keys of providers: set, list, remove.

    A key in the environment comes first, then the system's keyring, then a file that only you can read.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_keys)


@keys.command("set")
@click.argument("provider", shell_complete=offered("providers"))
@click.option(
    "--store", type=click.Choice(["keyring", "file"]), help="Where to keep it. Default: keyring if there is one."
)
def set_key(provider: str, store: str | None) -> None:
    """Keep a key: typed without echo, or read from stdin. Never an argument, which others could see."""
    credentials = Credentials()
    providers = list(all_providers())
    known = [item.account for item in providers if item.key_variables]
    if provider not in known and provider not in [item.name for item in providers]:
        click.echo(
            f"{provider} is none of {', '.join(dict.fromkeys(known))}; the key is kept under that name.", err=True
        )
    where = credentials.set(
        provider, _read_key(provider), "keyring" if store == "keyring" else "file" if store else None
    )
    click.echo(f"The key of {provider} is in {where}.", err=True)
    variable = credentials.in_environment(provider)
    if variable:
        click.echo(f"{variable} is set as well, and comes first.", err=True)


def _read_key(provider: str) -> str:
    if sys.stdin is not None and sys.stdin.isatty():  # closed by the caller
        return click.prompt(f"Key of {provider}", hide_input=True, err=True)
    data = os.read(0, _LONGEST_KEY)
    while len(data) < _LONGEST_KEY and (piece := os.read(0, _LONGEST_KEY)):
        data += piece
    try:
        return data.decode()
    except UnicodeDecodeError:  # its text would quote the key
        raise UsageProblem("what came on stdin is no key: it is not text") from None


@keys.command("list")
def list_keys() -> None:
    """List the keys that would be used, masked, and where each comes from."""
    rows = Credentials().listing()
    if not rows:
        click.echo("No key is set. Keep one with: swink keys set anthropic", err=True)
        return
    click.echo(table(rows))


@keys.command("remove")
@click.argument("provider", shell_complete=offered("providers"))
def remove_key(provider: str) -> None:
    """Forget a key that was kept here."""
    credentials = Credentials()
    if not credentials.remove(provider):
        raise UsageProblem(f"no key of {provider} is kept here")
    click.echo(f"The key of {provider} is gone.", err=True)
    variable = credentials.in_environment(provider)
    if variable:
        click.echo(f"{variable} still holds one, in the environment.", err=True)


also_called(keys, remove_key, "rm")
