"""`swink keys`: stores the keys of providers without showing them, and lists them masked."""

from __future__ import annotations

import os
import sys

import click

from swink_agent.app.errors import UsageProblem
from swink_agent.app.keys.credentials import Credentials, Store

from ..process.groups import Group, also_called, offered, picks
from ..screen.screen import table

_LONGEST_KEY = 16 * 1024


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink keys set anthropic            asks for the key, without showing it
  pass show openai | swink keys set openai
  swink keys list
  swink keys remove openai""",
)
@click.pass_context
def keys(ctx: click.Context) -> None:
    """Set, list and remove the keys of providers.

    A key in the environment has priority. Keys are stored in the system's keyring, else in a file that only you can
    read.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_keys)


@keys.command("set", context_settings={"allow_extra_args": True})
@click.argument("provider", shell_complete=offered("providers"))
@picks("--store", "keyring file", "Where to store it. Default: the keyring, if one works.")
@click.pass_context
def set_key(ctx: click.Context, provider: str, store: Store | None) -> None:
    """Store a key, typed without echo or read from stdin. It cannot be an argument, which others could see."""
    credentials = Credentials()
    credentials.check_name(provider)
    if ctx.args:  # most likely the key itself, so it is not repeated
        raise UsageProblem(
            "a key is not an argument: other users can see it, and the shell keeps it in its history; "
            f"write swink keys set {provider}, and type the key when it is asked for, or pipe it in"
        )
    where = credentials.set(provider, read_key(provider), store)
    click.echo(f"The key of {provider} is in {where}.", err=True)
    variable = credentials.in_environment(provider)
    if variable:
        click.echo(f"{variable} is set as well, and has priority.", err=True)


def read_key(provider: str) -> str:
    """The key that the user types without echo, or that stdin contains. Raises `UsageProblem`."""
    if sys.stdin.isatty():
        return click.prompt(f"Key of {provider}", hide_input=True, err=True)
    data = os.read(0, _LONGEST_KEY)
    while len(data) < _LONGEST_KEY and (piece := os.read(0, _LONGEST_KEY)):
        data += piece
    try:
        return data.decode()
    except UnicodeDecodeError:  # the error's text would quote the key
        raise UsageProblem("stdin does not contain a key: it is not text") from None


@keys.command("list")
def list_keys() -> None:
    """List the keys that would be used, masked, and where each comes from."""
    rows = Credentials().listing()
    if not rows:
        click.echo("No key is set. Store one with: swink keys set anthropic", err=True)
        return
    click.echo(table(rows))


@keys.command("remove")
@click.argument("provider", shell_complete=offered("providers"))
def remove_key(provider: str) -> None:
    """Remove a stored key."""
    credentials = Credentials()
    if not credentials.remove(provider):
        credentials.check_name(provider)
        raise UsageProblem(f"no key of {provider} is stored; swink keys list shows the keys")
    click.echo(f"The key of {provider} is removed.", err=True)
    variable = credentials.in_environment(provider)
    if variable:
        click.echo(f"{variable} still holds one in the environment.", err=True)


also_called(keys, remove_key, "rm")
