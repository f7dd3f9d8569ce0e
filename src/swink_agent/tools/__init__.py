"""Tools: a shell, files and search, for an agent that works in a folder.

The file tools cannot leave the folder, the shell is confined by `swink_agent.sandbox`. Importing this module loads none
of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .edit_file import EditFileTool
    from .list_dir import ListDirTool
    from .read_file import ReadFileTool
    from .search import SearchTool
    from .shell import BashTool
    from .standard import standard_tools
    from .undo import UndoError, UndoStore
    from .workspace import Workspace, WorkspaceError
    from .write_file import WriteFileTool

_HOMES = {
    "BashTool": "shell",
    "EditFileTool": "edit_file",
    "ListDirTool": "list_dir",
    "ReadFileTool": "read_file",
    "SearchTool": "search",
    "UndoError": "undo",
    "UndoStore": "undo",
    "Workspace": "workspace",
    "WorkspaceError": "workspace",
    "WriteFileTool": "write_file",
    "standard_tools": "standard",
}

__all__ = [
    "BashTool",
    "EditFileTool",
    "ListDirTool",
    "ReadFileTool",
    "SearchTool",
    "UndoError",
    "UndoStore",
    "Workspace",
    "WorkspaceError",
    "WriteFileTool",
    "standard_tools",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
