"""A yes or no before something is done that cannot be taken back.

Owns the one question that commands ask. Questions about the calls of an agent are in `asking`.
"""

from __future__ import annotations

import click

__all__ = ["confirm"]


def confirm(question: str) -> None:
    """Asks on stderr, and goes on after a yes alone. Raises `click.Abort`, with the cursor in a new row."""
    try:
        is_wanted = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # Ctrl+C and Ctrl+D leave the cursor behind the question
        raise
    if not is_wanted:
        raise click.Abort
