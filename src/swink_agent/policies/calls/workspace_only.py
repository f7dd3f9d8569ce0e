"""`WorkspaceOnly`: refuses calls with paths outside the workspace.

It guesses which arguments are paths, and checks them before the call, for tools that do not enforce the workspace
themselves. The file tools and the sandbox of this library enforce it when they open a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import unquote

from swink_agent.core.policy import PreDispatchContext, Skip
from swink_agent.core.values.several import check_path, several_paths, several_texts

from ..texts._strings import strings_in

PATH_KEYS = frozenset(
    (
        *("cwd", "dest", "destination", "dir", "directories", "directory", "dirname", "dirs", "dst", "file"),
        *("file_name", "filename", "filepath", "files", "folder", "folders", "glob", "globs", "location", "path"),
        *("pathname", "paths", "repo", "repository", "root", "src", "target", "workdir", "workspace"),
    )
)
"""Argument names that mean a path, alone or as the last word of a name: `output_file`, `configPath`."""

TEXT_KEYS = frozenset(
    (
        *("answer", "body", "cmd", "code", "command", "comment", "content", "contents", "css", "data", "description"),
        *("diff", "endpoint", "expression", "html", "input", "instructions", "json", "markdown", "message", "new"),
        *("new_string", "new_text", "note", "old", "old_string", "old_text", "patch", "pattern", "prompt", "query"),
        *("question", "reason", "regex", "regexp", "replacement", "reply", "route", "script", "search", "selector"),
        *("sql", "summary", "text", "title", "value", "xml", "xpath", "yaml"),
    )
)
"""Argument names that mean text: their values are not paths, even if they look like one."""

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SCHEME = re.compile(r"(?i)file:(?://[^/]*)?(?=/)")
_LOOKS_LIKE_PATH = re.compile(r"/|~[\w.-]*(?:/|$)|file:/|\.\.(?:[/\\]|$)|\$\{?\w|[a-z]:[\\/]|\\\\", re.IGNORECASE)
_LONGEST_PATH = 4096


class WorkspaceOnly:
    """Skips calls with a path outside `root` in their arguments. The model learns which.

    A path is any string whose argument is named like one (`keys`), and any other that looks like one: absolute, from
    `~` or a variable, or through `..`. Arguments named for text or code (`TEXT_KEYS`) are not checked. Relative paths
    start at `root`. A path must be inside as it is written, and as the symbolic links on the disk resolve now. `also`
    is one further folder that is allowed, or several. Folders in the `access` that a command asks for are not checked:
    its tool refuses some of them, and a person decides about the others.

    This is not a security boundary: it checks names before the call, a link can change before the file is opened, and
    it does not read shell commands. It is for tools that enforce nothing themselves; those of `swink_agent.tools` and
    the sandbox do. It has no state, so agents can share it.
    """

    name = "workspace_only"
    __slots__ = ("_keys", "_places", "_root")

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        keys: str | Collection[str] = PATH_KEYS,
        also: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        check_path("WorkspaceOnly(root=…)", root)
        self._root = os.path.abspath(root)
        self._keys = frozenset([key.lower() for key in several_texts(keys, "WorkspaceOnly(keys=…)")])
        places = [self._root, *map(os.path.abspath, several_paths(also, "WorkspaceOnly(also=…)"))]
        self._places = tuple(dict.fromkeys([*places, *[os.path.realpath(place) for place in places]]))

    def __repr__(self) -> str:
        return f"WorkspaceOnly({self._root!r})"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        if ctx.is_final_answer:
            return None
        for name, text in strings_in(_checked(ctx)):
            if self._is_path(name, text) and not self.contains(text):
                shown = text if len(text) <= 200 else f"{text[:200]}…"
                return Skip(f"the path {shown!r} ({name}) is outside the workspace; use a path inside {self._root}")
        return None

    def contains(self, path: str) -> bool:
        """Whether the path, as written and with symbolic links resolved, is the root or inside it."""
        if "\0" in path or len(path) > _LONGEST_PATH:
            return False
        return all(self._holds(form) for form in _forms(path))

    def _holds(self, path: str) -> bool:
        joined = os.path.join(self._root, path)
        try:
            real = os.path.realpath(joined)
        except (OSError, ValueError):
            return False
        return self._is_inside(os.path.normpath(joined)) and self._is_inside(real)

    def _is_inside(self, path: str) -> bool:
        return any(path == place or path.startswith(place.rstrip(os.sep) + os.sep) for place in self._places)

    def _is_path(self, name: str, text: str) -> bool:
        words = [word.lower() for word in _WORDS.findall(name)]
        if name.lower() in self._keys or (words and words[-1] in self._keys):
            return True
        if name.lower() in TEXT_KEYS or (words and words[-1] in TEXT_KEYS):
            return False
        looks = _LOOKS_LIKE_PATH.match(text) or "/../" in text or text.endswith("/..")
        return bool(looks) and len(text) <= _LONGEST_PATH and "\n" not in text


def _checked(ctx: PreDispatchContext) -> dict[str, Any]:
    """The arguments, without the `access` of a command: a person is asked about its folders."""
    if "access" not in ctx.arguments:
        return ctx.arguments
    from swink_agent.approvals.commands.rules import COMMAND_TOOLS  # on use: few calls ask for access

    is_command = ctx.name in COMMAND_TOOLS
    return {name: value for name, value in ctx.arguments.items() if name != "access" or not is_command}


def _forms(path: str) -> list[str]:
    """The path as written, and as a tool may understand it: a file URL, a home folder, a variable."""
    forms = [path]
    if (scheme := _SCHEME.match(path)) is not None:
        forms = [unquote(path[scheme.end() :])]
    elif path.startswith("~"):
        forms.append(os.path.expanduser(path))
        if forms[-1] == path:
            forms.append("/" + path)  # an unknown user: certainly outside
    if "$" in path:
        forms.extend([os.path.expandvars(form) for form in forms])
    return forms
