"""`swink help` and `swink version`: the same as `--help` and `--version`."""

from __future__ import annotations

import click


def tell_version() -> None:
    from swink_agent import __version__

    click.echo(f"swink {__version__}")


@click.command(
    "help",
    epilog="""\b
Examples:
  swink help
  swink help sessions
  swink help sessions export""",
)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of swink, or of one of its commands."""
    found = ctx.find_root()
    for word in words:
        group = found.command
        if not isinstance(group, click.Group):
            found.fail(f"{found.command_path} has no subcommands: leave {word!r} out.")
        name, command, _ = group.resolve_command(found, [word])
        assert command is not None  # otherwise it would have raised
        found = click.Context(command, parent=found, info_name=name)
    click.echo(found.get_help())


@click.command(
    "version",
    epilog="""\b
Examples:
  swink version""",
)
def version_command() -> None:
    """Print the version."""
    tell_version()
