"""Flags that are named in messages, help and documents exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from swink_agent.cli.root import swink

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "swink_agent"
PACKAGES = ("app", "cli", "tui", "local", "evals", "memory", "core", "policies", "adapters")
"""The packages with messages for users of the command."""
DOCUMENTS = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!-)")
COMMAND = re.compile(r"\bswink((?: [a-z]+)*)[^`,;:()]*$")
"""A command line that continues to the end of the text."""
CHECKED_FILES = {SOURCE / "cli" / "completion" / "scripts.py"}
"""Files with shell scripts, which use flags of other programs."""


def contexts(command: click.Command, parent: click.Context | None = None) -> Iterator[click.Context]:
    ctx = click.Context(command, parent=parent, info_name=command.name if parent else "swink")
    yield ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from contexts(inner, ctx)


def flags(ctx: click.Context) -> set[str]:
    options = [item for item in ctx.command.get_params(ctx) if isinstance(item, click.Option)]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Returns the flags of each command, by its words."""
    return {ctx.command_path: flags(ctx) for ctx in contexts(swink)}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the texts in a module that contain words; an argument for another program does not."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if "--" in source else ():
        if isinstance(node, ast.JoinedStr):
            parts = [item.value if isinstance(item, ast.Constant) else "{}" for item in node.values]
            text = "".join([part for part in parts if isinstance(part, str)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if "--" in text and " " in text.strip():
            yield node.lineno, text


def named_command(text: str, known: dict[str, set[str]]) -> str | None:
    """Returns the command at the end of the text, with as many of its words as make a command."""
    match = COMMAND.search(text)
    if match is None:
        return None
    words = match[1].split()
    while f"swink {' '.join(words)}".strip() not in known:
        words.pop()
    return f"swink {' '.join(words)}".strip()


def test_messages_name_flags_that_exist(known: dict[str, set[str]]) -> None:
    every = set().union(*known.values())
    wrong: list[str] = []
    for path in sorted(path for package in PACKAGES for path in (SOURCE / package).rglob("*.py")):
        for line, text in texts(path) if path not in CHECKED_FILES else ():
            for match in FLAG.finditer(text):
                command = named_command(text[: match.start()].rpartition("\n")[2], known)
                allowed = every if command is None else known[command]
                if match[0] not in allowed:
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: {match[0]} ({command or 'any command'})")
    assert wrong == []


def test_documents_name_flags_that_exist(known: dict[str, set[str]]) -> None:
    wrong: list[str] = []
    for path in DOCUMENTS:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for code in (
                [line] if line.startswith(("swink ", "git diff | swink")) else re.findall(r"`(swink [^`]*)`", line)
            ):
                command = named_command(code.partition("#")[0].partition(" -")[0], known)
                for flag in FLAG.findall(re.sub(r'"[^"]*"|\'[^\']*\'', "", code)):
                    if command is not None and flag not in known[command]:
                        wrong.append(f"{path.relative_to(ROOT)}:{number}: {flag} ({command})")
    assert wrong == []
