"""Writes the parts of the reference that come from the code: settings, variables, commands, errors, public names.

Owns the Markdown of those parts. A page of docs/reference asks for one with a comment, `<!-- generated: settings -->`;
`site_hooks.py` puts it there when the site is built, so that no page can differ from the code. To read one without
building the site:

    python scripts/reference.py settings
    python scripts/reference.py api swink_agent.memory
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click

SOURCE = Path(__file__).parents[1] / "src"
PARTS: dict[str, Callable[..., str]] = {}
"""The parts by name. A part with an argument is asked for as `<!-- generated: api swink_agent.memory -->`."""
READ_FIRST = {"swink_agent.core.agent.agent"}
"""Modules that come first on their page; the others are in alphabetical order."""
PROJECT_MAY = {"free": "set it", "stricter": "make it stricter", "never": "no"}
VALUES = {
    "text": "a text",
    "count": "a whole number, 1 or more",
    "amount": "a number above 0",
    "temperature": "a number from 0 to 2",
    "switch": "`true`, `false`",
    "names": "a list of names",
    "address": "`http://` or `https://` and a host",
    "folder": "a folder",
    "rules": "a list of [rules](../cli.md#rules)",
    "hosts": "a list of [hosts](../builtin-tools.md#hosts-by-name)",
    "private": "a list of addresses, each with a port",
    "command": "a list of words",
}
"""The values of a setting by its kind, unless it has a list of choices."""


def part(function: Callable[..., str]) -> Callable[..., str]:
    PARTS[function.__name__.replace("_", "-")] = function
    return function


def generated(request: str) -> str:
    """Returns the Markdown for the words of a comment, such as `api swink_agent.memory`."""
    name, *arguments = request.split()
    if name not in PARTS:
        raise LookupError(f"{name!r} is not a generated part; there are {', '.join(PARTS)}")
    return PARTS[name](*arguments)


def table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _code(*names: str) -> str:
    return ", ".join(f"`{name}`" for name in names)


# -- settings and variables --------------------------------------------------------------------------------------


@part
def settings() -> str:
    """The table of all settings."""
    from swink_agent.app.settings.definitions import DEFINITIONS

    rows = [
        [
            _code(item.name),
            item.help,
            _values(item),
            _default(item.default),
            PROJECT_MAY[item.in_project],
        ]
        for item in DEFINITIONS
    ]
    rows.append(["`aliases.NAME`", "a short name for a model", "`provider:model`", "none", PROJECT_MAY["never"]])
    return table(["Setting", "What it sets", "Values", "Default", "A project's file may"], rows)


@part
def hook_settings() -> str:
    """The keys of a table `[hooks.NAME]`."""
    from swink_agent.app.settings.hook_tables import HOOK_KEYS

    return table(["Key", "Value"], [[_code(key), words] for key, (_, words) in HOOK_KEYS.items()])


@part
def server_settings() -> str:
    """The keys of a table `[mcp.servers.NAME]`."""
    from swink_agent.app.settings.mcp_servers import SERVER_KEYS

    return table(["Key", "Value"], [[_code(key), words] for key, (_, words) in SERVER_KEYS.items()])


@part
def key_settings() -> str:
    """The keys of the table `[keys]`: actions of the terminal UI."""
    from swink_agent.app.settings.key_bindings import ACTIONS

    rows = [[_code(action.name), action.help, _code(*action.keys)] for action in ACTIONS]
    return table(["Action", "What it does", "Usual keys"], rows)


def _values(item: Any) -> str:
    if not item.choices:
        return VALUES[item.kind]
    return f"{'a list of ' if item.kind == 'names' else ''}{_code(*item.choices)}"


def _default(value: Any) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return _code(*value)
    return _code(str(value).lower() if isinstance(value, bool) else str(value))


@part
def setting_variables() -> str:
    """The environment variables that set a setting."""
    from swink_agent.app.settings.definitions import DEFINITIONS

    rows = [[_code(item.variable, *item.other_variables), _code(item.name)] for item in DEFINITIONS]
    return table(["Variable", "Setting"], rows)


@part
def provider_variables() -> str:
    """The environment variables of the providers, and their standard models."""
    from swink_agent.adapters.registry import PROVIDERS

    rows = [
        [
            _code(provider.name),
            _code(*provider.key_variables, *provider.credential_variables),
            _code(*provider.url_variables),
            _code(provider.default_model) if provider.default_model else "",
        ]
        for provider in PROVIDERS
    ]
    return table(["Provider", "Key", "Address", "Standard model"], rows)


# -- the command line --------------------------------------------------------------------------------------------


def commands() -> Iterator[click.Context]:
    """Every command of `swink` that its help shows, each behind the group that it belongs to."""
    from swink_agent.cli.root import swink

    def visit(command: click.Command, name: str, parent: click.Context | None) -> Iterator[click.Context]:
        ctx = click.Context(command, info_name=name, parent=parent)
        yield ctx
        if isinstance(command, click.Group):
            for inner_name in command.list_commands(ctx):
                inner = command.get_command(ctx, inner_name)
                if inner is not None and not inner.hidden:
                    yield from visit(inner, inner_name, ctx)

    yield from visit(swink, "swink", None)


@part
def command_line() -> str:
    """Every command with its usage and its options."""
    return "\n\n".join(_command(ctx) for ctx in commands())


def _command(ctx: click.Context) -> str:
    command = ctx.command
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    about = (command.help or command.get_short_help_str()).replace("\b", "").strip()
    lines = [f"{'###' if ctx.parent else '##'} {ctx.command_path}", f"```text\n{usage}\n```", inspect.cleandoc(about)]
    records = [
        record
        for option in command.get_params(ctx)
        if isinstance(option, click.Option) and (record := option.get_help_record(ctx))
    ]
    if records:
        lines.append(table(["Option", "What it does"], [[_code(name), text] for name, text in records]))
    if command.epilog:
        epilog = re.sub(r"\n{3,}", "\n\n", inspect.cleandoc(command.epilog.replace("\b", "")))
        lines.append(f"```text\n{epilog}\n```")
    return "\n\n".join(lines)


# -- public names ------------------------------------------------------------------------------------------------


def packages() -> list[str]:
    """The packages that users import from: `swink_agent`, and those directly in it that have a list of names."""
    lists = [SOURCE / "swink_agent/_exports.py", *sorted((SOURCE / "swink_agent").glob("*/_exports.py"))]
    return [".".join(path.parent.relative_to(SOURCE).parts) for path in lists]


@cache
def public_names(package: str) -> dict[str, str]:
    """The public names of a package, each with the full name of the object where it is defined."""
    parents = package.split(".")
    found: dict[str, str] = {}
    for node in ast.parse(SOURCE.joinpath(*parents, "_exports.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            around = parents[: len(parents) + 1 - node.level] if node.level else []
            module = ".".join([*around, *([node.module] if node.module else [])])
            found |= {alias.asname or alias.name: _definition(module, alias.name) for alias in node.names}
    own = ast.parse(SOURCE.joinpath(*parents, "__init__.py").read_text(encoding="utf-8")).body
    functions = [node.name for node in own if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return found | {name: f"{package}.{name}" for name in functions if not name.startswith("_")}


def _definition(module: str, name: str) -> str:
    """The full name of what a module has under a name, which it may have taken over from another list."""
    is_list = SOURCE.joinpath(*module.split("."), "_exports.py").exists()
    return public_names(module)[name] if is_list and name in public_names(module) else f"{module}.{name}"


@cache
def home_of(definition: str) -> str:
    """The package whose page describes an object: the one that it is defined in, else the first that lists it."""
    listed = [package for package in packages() if definition in public_names(package).values()]
    inside = ".".join(definition.split(".")[:2])
    return inside if inside in listed else listed[0]


@part
def api(package: str) -> str:
    """The public names of a package, by the module that defines them; those of other packages as links."""
    here: dict[str, list[str]] = {}
    elsewhere: list[str] = []
    for name, definition in public_names(package).items():
        if home_of(definition) == package:
            here.setdefault(definition.rpartition(".")[0], []).append(definition)
        else:
            elsewhere.append(f"[`{name}`][{definition}]")
    lines: list[str] = []
    for module, definitions in sorted(here.items(), key=lambda item: (item[0] not in READ_FIRST, item[0])):
        lines.append(f"## {module.removeprefix('swink_agent.')}")
        lines += [f"::: {definition}{_options_of(definition)}" for definition in sorted(definitions, key=_line_of)]
    if elsewhere:
        lines.append("## From other packages")
        lines.append(f"These names can be imported from `{package}` too: {', '.join(elsewhere)}.")
    return "\n\n".join(lines)


def _options_of(origin: str) -> str:
    """Options for an object: what a class has from a private one, which has no entry, is shown with the class."""
    module, _, name = origin.rpartition(".")
    has_private_base = re.search(rf"^class {name}\(_", _source_of(module), re.MULTILINE)
    return "\n    options:\n      inherited_members: true" if has_private_base else ""


def _line_of(origin: str) -> int:
    """Where an object is defined in its file, so that a page follows the source."""
    module, _, name = origin.rpartition(".")
    match = re.search(rf"^(?:class|def|async def) {name}\b|^{name}\b", _source_of(module), re.MULTILINE)
    return match.start() if match else 0


def _source_of(module: str) -> str:
    path = SOURCE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path.read_text(encoding="utf-8")


# -- errors ------------------------------------------------------------------------------------------------------


def exceptions() -> dict[str, type[BaseException]]:
    """Every public exception, by the name that it is imported by; the shortest, if there are several."""
    found: dict[type[BaseException], str] = {}
    for package in packages():
        for name in public_names(package):
            value = getattr(import_module(package), name)
            if inspect.isclass(value) and issubclass(value, BaseException):
                found.setdefault(value, f"{package}.{name}")
    return {name: value for value, name in found.items()}


@part
def errors() -> str:
    """Every public exception with what it is, and what it can be caught as."""
    rows = [
        [f"[`{name}`][{value.__module__}.{value.__qualname__}]", _bases(value), _first_sentence(value)]
        for name, value in exceptions().items()
    ]
    return table(["Exception", "Is a", "When"], rows)


def _bases(value: type[BaseException]) -> str:
    bases = [base for base in value.__mro__[1:] if base not in (Exception, BaseException, object)]
    others = [base.__name__ for base in bases if not base.__name__.startswith("_")]
    return _code(*others) if others else "`Exception`"


def _first_sentence(value: type) -> str:
    text = inspect.cleandoc(value.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(generated(" ".join(sys.argv[1:])) + "\n")
