"""A click group that loads a subcommand when it is called.

It has the name and the first line of help of each subcommand, so that `--help`, completion and a typing mistake load
none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from importlib import import_module
from typing import Any

import click

_WHOLE = 1000
"""More characters than the first sentence of a command's help has."""


class Number(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - it takes one from click 8.4 on
    """A number within limits. A wrong one is answered with `wanted`; unlike with click's, the help has no formula.

    `is_open`: it must be more than `least`.
    """

    name = "number"

    def __init__(
        self, least: float, most: float | None = None, *, is_whole: bool = True, is_open: bool = False
    ) -> None:
        self._least, self._most, self._is_whole, self._is_open = least, most, is_whole, is_open

    @property
    def wanted(self) -> str:
        noun = "a whole number" if self._is_whole else "a number"
        if self._most is not None:
            return f"{noun} from {self._least:g} to {self._most:g}"
        return f"{noun} above {self._least:g}" if self._is_open else f"{noun}, {self._least:g} or more"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = int(value) if self._is_whole else float(value)
        except ValueError:
            number = math.nan
        is_within = self._least <= number <= (math.inf if self._most is None else self._most)
        if not is_within or (self._is_open and number == self._least):
            shown = repr(value) if math.isnan(number) else value
            self.fail(f"{shown} is not {self.wanted}", param, ctx)
        return number


def offered(name: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Returns a function that offers candidates of this kind. It loads `completion.candidates` when a shell asks."""

    def offer(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        from ..completion.candidates import completions

        return completions(name, ctx, incomplete)

    return offer


def takes(written: str, help: str, offers: str = "", **options: Any) -> Callable[[Any], Any]:  # noqa: A002 - as click's
    """An option with a value. `written` has its names, as `click.option` takes them, and the value's name in the help.

    `offers` is the kind of candidates for completion.
    """
    *names, metavar = written.split()
    if offers:
        options["shell_complete"] = offered(offers)
    return click.option(*names, metavar=metavar, help=help, **options)


def picks(name: str, choices: str, help: str) -> Callable[[Any], Any]:  # noqa: A002 - as click's
    """An option whose value is one of several words."""
    return click.option(name, type=click.Choice(choices.split()), help=help)


def also_called(group: click.Group, command: click.Command, name: str) -> None:
    """Gives a command a second name. The help lists only the first."""
    other = copy(command)
    other.hidden = True
    group.add_command(other, name)


class Group(click.Group):
    """A group whose help has the whole first sentence of each command; click cuts it to one row."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class LazyGroup(click.Group):
    """A group whose commands are modules. `commands_by_name` maps a name to `module:attribute` and a line of help.

    The modules are named from `swink_agent.cli`. `sections` are the titles of parts of the help, each with the names of
    its options.
    """

    def __init__(
        self,
        *arguments: Any,
        commands_by_name: Mapping[str, tuple[str, str]],
        sections: Mapping[str, str],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.commands_by_name = dict(commands_by_name)
        self.sections = dict(sections)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_by_name:
            return None
        module, _, attribute = self.commands_by_name[cmd_name][0].partition(":")
        return getattr(import_module(f"swink_agent.cli.{module}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in self.commands_by_name and not name.startswith("-"):
            from swink_agent.core.texts.likeness import close_names

            near = close_names(name, self.commands_by_name, n=1)
            hint = (
                f'did you mean {near[0]}? To ask the agent that: swink -p "…"'
                if near
                else 'swink -p "…" asks the agent'
            )
            shown = "".join(character if character.isprintable() else "?" for character in name[:60])
            ctx.fail(f"swink has no command {shown!r}; {hint}")
        return super().resolve_command(ctx, args)

    def described(self) -> list[tuple[str, str]]:
        """The names of the commands, each with its line of help."""
        return [(name, text) for name, (_, text) in self.commands_by_name.items()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        rows = {option.name: row for option in self.get_params(ctx) if (row := option.get_help_record(ctx)) is not None}
        parts = [(title, [rows.pop(name) for name in names.split()]) for title, names in self.sections.items()]
        for title, part in (*parts, ("Other options", list(rows.values()))):
            with formatter.section(title):
                formatter.write_dl(part)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.described())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        commands = [CompletionItem(name, help=text) for name, text in self.described() if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
