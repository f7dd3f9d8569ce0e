"""Code of installed packages: where it may be imported from, and why it could not be loaded.

Nothing is imported from a folder that the agent works in, as a model may have written it. A package that is installed
from there with `pip install -e .` can therefore not be loaded, and gets an explanation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swink_agent.sandbox.programs import importable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def import_nothing_from(folders: Iterable[Path]) -> None:
    """From now on the process imports nothing from these folders, except the program itself."""
    sys.path[:] = importable(sys.path, [str(folder) for folder in folders])


def import_nothing_from_here() -> None:
    """The same for the current folder, so that lists do not show packages that a run here would not load."""
    with suppress(FileNotFoundError):  # the folder was deleted
        import_nothing_from([Path.cwd()])


def why_not_loaded(point: EntryPoint, error: Exception, remedy: str) -> str:
    """The error and a remedy. A package in a folder from which nothing is imported gets its own explanation."""
    place = _lies_at(point)
    if not place or not isinstance(error, ModuleNotFoundError) or error.name != point.module.partition(".")[0]:
        return f"{repr(error)[:300]}: {remedy}"
    return (
        f"it is installed with -e from {place}, where a model may have written it, so it is not imported. Install it "
        "without -e, or start swink and work in another folder"
    )


def _lies_at(point: EntryPoint) -> str:
    """The folder of a package that was installed with `-e`; empty for any other."""
    import json  # on use: most packages can be loaded
    from urllib.parse import unquote, urlsplit

    text = None if point.dist is None else point.dist.read_text("direct_url.json")
    try:
        about: Any = json.loads(text or "{}")
        return unquote(urlsplit(str(about["url"])).path) if about["dir_info"]["editable"] else ""
    except (ValueError, KeyError, TypeError):
        return ""
