"""Subcommands that are loaded when they are called.

Owns a click group that knows its commands by name and first line of help, so that `--help`, completion and a typing
mistake load none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import click

__all__ = ["LazyGroup", "also_called", "offered"]


def offered(name: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """The function of `completing` with that name, loaded when a shell asks."""

    def offer(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        from . import completing

        return getattr(completing, name)(ctx, parameter, incomplete)

    return offer


def also_called(group: click.Group, command: click.Command, name: str) -> None:
    """Another name for a command, for who expects that one; the help lists the first alone."""
    other = copy(command)
    other.hidden = True
    group.add_command(other, name)


class LazyGroup(click.Group):
    """A group whose commands are modules. `commands_by_name` maps a name to `module:attribute` and a line of help."""

    def __init__(self, *arguments: Any, commands_by_name: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands_by_name = dict(commands_by_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_by_name:
            return None
        from importlib import import_module

        module, _, attribute = self.commands_by_name[cmd_name][0].partition(":")
        return getattr(import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in self.commands_by_name and not name.startswith("-"):
            from swink_agent.core.texts.likeness import close_names

            near = close_names(name, self.commands_by_name, n=1)
            hint = f"Did you mean {near[0]}?" if near else 'To ask the agent something: swink -p "…"'
            shown = "".join(character if character.isprintable() else "?" for character in name[:60])
            ctx.fail(f"No command is called {shown!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.commands_by_name.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.commands_by_name.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
