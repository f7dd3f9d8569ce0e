"""No module depends on itself through others, neither when it is loaded nor when it is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
READS_ITSELF = {("swink_agent.evals.types", "swink_agent.evals.runs.codec")}
"""A value that is read from disk on use. This is the only import that goes back."""


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    _name(path): path
    for path in SOURCE.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py", "_exports.py", "hint_types.py")  # lists of names load nothing
}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """These statements and those inside them, except those for type checkers."""
    for statement in body:
        yield statement
        is_for_checkers = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)
        for name in ("orelse",) if is_for_checkers else ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(statement, name, [])
            yield from _statements([part for part in inner if hasattr(part, "body") or isinstance(part, ast.stmt)])


def imports(module: str, path: Path) -> set[str]:
    found: set[str] = set()
    for node in _statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            around = module.split(".")[: -node.level] if node.level else []
            home = ".".join([*around, *([node.module] if node.module else [])])
            found |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
    return {name for name in found if name in MODULES and (module, name) not in READS_ITSELF}


def circle(needs: dict[str, set[str]]) -> list[str]:
    """Modules of which each needs the next, and the last one needs the first. Empty without such a cycle."""
    left = {module: set(others) for module, others in needs.items()}
    while True:
        free = {module for module, others in left.items() if not others & left.keys()}
        if not free:
            break
        for module in free:
            del left[module]
    path: list[str] = []
    module = min(left, default=None)
    while module is not None and module not in path:
        path.append(module)
        module = min(left[module] & left.keys())
    return path if module is None else path[path.index(module) :]


def test_a_cycle_of_imports_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.sweep
def test_there_are_no_cycles_of_imports() -> None:
    assert circle({module: imports(module, path) for module, path in MODULES.items()}) == []
