"""Loads public names on first use.

The names of a package are listed once, in `_exports.py` beside its `__init__.py`, one import per line. Type checkers
read that file as it is; `dir()`, `__all__` and the lazy loading are derived from it.

    if TYPE_CHECKING:
        from ._exports import *
    else:
        __getattr__, __dir__ = lazy_names(__name__, "._exports")

Type checkers must not see the `__getattr__`: it would make them accept every misspelt name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any


def lazy_names(module: str, listing: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a module's `__getattr__` and `__dir__`, which also provide its `__all__`.

    `listing` is the module with the imports, relative to the package. Public names are those in it, and the functions
    and classes that the module itself defines. The listing is read when a missing name is first looked up.
    """
    own = sys.modules[module].__dict__
    package: str = own["__spec__"].parent
    homes: dict[str, tuple[str, str]] = {}

    def listed() -> dict[str, tuple[str, str]]:
        if not homes:
            homes.update(listed_names(package + listing))
        return homes

    def public() -> list[str]:
        defined = [name for name, value in own.items() if getattr(value, "__module__", None) == module]
        return sorted({*listed(), *(name for name in defined if name[0] != "_")})

    def load(name: str) -> Any:
        if name == "__all__":
            return public()
        if name[:2] == "__" or name not in listed():
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        home, known_as = listed()[name]
        # It is not cached here, so that a test can replace the name in its home module.
        return getattr(import_module(home, package), known_as)

    return load, lambda: sorted({*own, *public()})


def listed_names(listing: str) -> dict[str, tuple[str, str]]:
    """Returns the names that a module of imports binds, each with its home module and its name there.

    Runs the imports with an `__import__` that only notes them. That needs no source, so it also works from a zip file
    and in a frozen program.
    """
    spec = _spec_of(listing)
    find_code: Callable[[str], Any] | None = getattr(spec and spec.loader, "get_code", None)
    code = find_code and find_code(listing)
    if code is None:
        raise ImportError(f"{listing}, the list of public names, is missing: reinstall swink-agent", name=listing)

    def note(module: str, _globals: object, _locals: object, names: tuple[str, ...], level: int) -> SimpleNamespace:
        return SimpleNamespace(**{name: ("." * level + module, name) for name in names})

    bound: dict[str, Any] = {"__builtins__": {"__import__": note}}
    exec(code, bound)
    return {name: home for name, home in bound.items() if name[:2] != "__"}


def _spec_of(module: str) -> Any:
    """Finds a module of a loaded package, without the cost of importing `importlib.util`."""
    path = sys.modules[module.rpartition(".")[0]].__path__
    specs = (finder.find_spec(module, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)
