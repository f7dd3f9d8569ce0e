"""Finds an object in the user's own code: `module:name`, or `path/to/file.py:name`. The caller checks its type."""

from __future__ import annotations

import importlib.util
import os
import sys
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import UsageProblem


def object_named(name: str, folder: Path, noun: str, kind: str) -> Any:
    """Loads the module and returns the object. Raises `UsageProblem`, which calls the object `noun` and `kind`.

    The user names the code and wants it to run, so modules in `folder` are found too, after all other places.
    """
    module_name, colon, attribute = name.rpartition(":")
    if not colon or not module_name or not attribute:
        raise UsageProblem(f"{name!r} does not name a {noun}: write module:{kind}, or path/to/file.py:{kind}")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        found: Any = _from_file(folder / module_name) if module_name.endswith(".py") else import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise UsageProblem(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    return found


def _from_file(path: Path) -> Any:
    """The module in a file, loaded once. It has the file's name, unless another module has that name."""
    name = path.stem
    if name in sys.stdlib_module_names or not _may_hold(name, path):
        name = f"{name}_{sha256(os.fsencode(path)).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as an import would, for code that looks up its own module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _may_hold(name: str, path: Path) -> bool:
    """Whether the name is free, or is that of the module in this file."""
    if name not in sys.modules:
        return True
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and os.path.abspath(file) == os.path.abspath(path)
