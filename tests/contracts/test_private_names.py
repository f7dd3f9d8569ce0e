"""No file uses a private name of another package or of the standard library, except one for Textual's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from .documents import ROOT

SOURCE = ROOT / "src/swink_agent"
EXCEPT = SOURCE / "tui/textual_private.py"
PUBLIC = {"_exit"}
"""Documented names that begin with an underscore."""
BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}


WORDS = re.compile(
    r"(?<!self)(?<!cls)\._(?!_|exit\b)\w|^ *(?:import|from) +(?!\.).*\b_(?!_)\w|^ +_\w+,?$|"
    rf"\b(?:{'|'.join(sorted(BY_NAME))})\([^\"'\n]*[\"']_(?!_)",
    re.MULTILINE,
)
"""Words in a file that may use such a name. Parsing is slow, so files without them are not parsed."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in PUBLIC


def is_of_others(module: str | None, level: int = 0) -> bool:
    return level == 0 and (module or "").split(".")[0] not in ("swink_agent", "__future__")


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The private names in a file that are parts of something imported from another package, with their lines."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in filter(lambda alias: is_of_others(alias.name), node.names):
                imported.add(alias.asname or alias.name.split(".")[0])
                yield from ((node.lineno, alias.name) for part in alias.name.split(".") if is_private(part))
        elif isinstance(node, ast.ImportFrom) and is_of_others(node.module, node.level):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from ((node.lineno, name) for name in names if is_private(name))
            imported.update(alias.asname or alias.name for alias in node.names)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if is_private(name) and root_of(node) in imported:
                yield node.lineno, ast.unparse(node)
            case ast.Call(ast.Name(called), [first, ast.Constant(str(name)), *_]) if called in BY_NAME:
                if is_private(name) and root_of(first) in imported:
                    yield node.lineno, ast.unparse(node)
            case _:
                pass


def root_of(node: ast.expr) -> str:
    """The first name of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_no_file_uses_private_names_of_others() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")) if path != EXCEPT}
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path, text in texts.items()
        if WORDS.search(text)
        for line, name in private_names(ast.parse(text))
    ]
    assert not found


def test_the_exception_is_needed() -> None:
    assert [name for _, name in private_names(ast.parse(EXCEPT.read_text(encoding="utf-8")))]


@pytest.mark.table
@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import sys\nsys._getframe()", ["sys._getframe"]),
        ("import sys\ngetattr(sys, '_base', None)", ["getattr(sys, '_base', None)"]),
        ("import asyncio as a\na.tasks._enter_task", ["a.tasks._enter_task"]),
        ("from asyncio import _enter_task", ["_enter_task"]),
        ("from textual._parser import Parser", ["_parser"]),
        ("import _thread", ["_thread"]),
        ("from pathlib import Path\nPath._flavour", ["Path._flavour"]),
        ("import os\nos._exit(1)", []),
        ("from swink_agent.core import _own\nfrom ._exports import x\n_own._part\nself._mine\nos.__name__", []),
    ],
)
def test_a_private_name_is_found(code: str, names: list[str]) -> None:
    assert WORDS.search(code) or not names
    assert [name for _, name in private_names(ast.parse(code))] == names
