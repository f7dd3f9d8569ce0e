"""No module depends on itself through others: not when it is loaded, not when it is used, not for a type checker."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
GO_BACK = {
    ("swink_agent.evals.types", "swink_agent.evals.runs.codec"),  # a value that is read from disk on use
    ("swink_agent.app.talk.approving", "swink_agent.app.talk.conversation"),
    ("swink_agent.app.talk.commands.background", "swink_agent.app.talk.conversation"),
    ("swink_agent.app.talk.commands.session_commands", "swink_agent.app.talk.conversation"),
    ("swink_agent.tui.screen_front", "swink_agent.tui.app"),
    ("swink_agent.web.routes.asking", "swink_agent.web.site"),
}
"""The only imports that go back; all but the first are for type checkers alone."""


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    _name(path): path
    for path in SOURCE.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py", "_exports.py")  # lists of names load nothing
}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """These statements and those inside them, those for type checkers included."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
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
    return {name for name in found if name in MODULES and (module, name) not in GO_BACK}


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


def test_core_imports_its_own_modules_at_the_top_of_each_file() -> None:
    late: list[str] = []
    for path in (SOURCE / "swink_agent" / "core").rglob("*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in _statements(module.body):
            if not isinstance(node, ast.ImportFrom) or node in module.body or path.name == "__init__.py":
                continue
            if node.level or (node.module or "").startswith("swink_agent"):
                late.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert late == []


def test_imports_have_no_cycles() -> None:
    assert circle({module: imports(module, path) for module, path in MODULES.items()}) == []
