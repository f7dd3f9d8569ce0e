"""The tools that an agent usually has, made for one folder.

Owns nothing but the set: each tool is in its own file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

from swink_agent import sandbox as sandboxes
from swink_agent.core.tool import AgentTool

from .edit_file import EditFileTool
from .list_dir import ListDirTool
from .read_file import ReadFileTool
from .undo import UndoStore
from .workspace import Workspace
from .write_file import WriteFileTool

__all__ = ["standard_tools"]


def standard_tools(
    root: str | os.PathLike[str] | Workspace,
    sandbox: Literal["auto", "off"] | sandboxes.SandboxProfile | sandboxes.Sandbox = "auto",
    *,
    undo: UndoStore | None = None,
) -> list[AgentTool]:
    """All built-in tools for one folder: read_file, write_file, edit_file, list_dir, search and bash.

    They share one `Workspace`, so a file that one of them read is known to the others. `sandbox` is for what runs
    commands: "auto" confines them to the folder by whatever works on this machine, a profile or an open sandbox says
    how, and "off" lets them do all that the user can. What a profile hides and
    protects, it hides and protects from the file tools too. With `undo`, copies of what the file tools replace are kept
    there, where neither they nor confined commands can get at them; a profile, a sandbox or a workspace that was made
    elsewhere must hide that folder itself, else it is a `ValueError`.
    """
    from swink_agent.sandbox import SandboxProfile

    from .search import SearchTool
    from .shell import BashTool

    if undo is not None:
        sandbox = _hiding(undo, root, sandbox)
    if not isinstance(root, Workspace):
        profile = (
            None if isinstance(sandbox, str) else sandbox if isinstance(sandbox, SandboxProfile) else sandbox.profile
        )
        root = (
            Workspace(root) if profile is None else Workspace(root, hidden=profile.hidden, protected=profile.protected)
        )
    return [
        ReadFileTool(root),
        WriteFileTool(root, undo=undo),
        EditFileTool(root, undo=undo),
        ListDirTool(root),
        SearchTool(root, sandbox),
        BashTool(root, sandbox),
    ]


def _hiding(
    undo: UndoStore,
    root: str | os.PathLike[str] | Workspace,
    sandbox: Literal["auto", "off"] | sandboxes.SandboxProfile | sandboxes.Sandbox,
) -> Literal["off"] | sandboxes.SandboxProfile | sandboxes.Sandbox:
    """The choice of walls, with the copies behind them. Raises `ValueError` if they stand open.

    The folder is made first: what does not exist yet could be made by a command, and be its own.
    """
    from swink_agent.sandbox import SandboxProfile

    with suppress(OSError):  # then nothing can be kept there, and nothing will be replaced
        undo.prepare()
    folder = os.path.realpath(undo.folder)
    if sandbox == "auto":
        path = str(root.root) if isinstance(root, Workspace) else os.path.realpath(root)
        profile = SandboxProfile(write=(path,))
        sandbox = SandboxProfile(write=(path,), hidden=(*profile.hidden, folder))
    elif not isinstance(sandbox, str):
        profile = sandbox if isinstance(sandbox, SandboxProfile) else sandbox.profile
        if not any(_is_beneath(folder, os.path.realpath(path)) for path in profile.hidden):
            raise ValueError(
                f"the folder {folder} of undo is not hidden by the sandbox: add it to the profile's hidden"
            )
    if isinstance(root, Workspace) and _is_beneath(folder, str(root.root)):
        parts = os.path.relpath(folder, root.root).split(os.sep)
        if not root.is_hidden(tuple(parts)):
            raise ValueError(f"the folder {folder} of undo is not hidden by {root!r}: give it as hidden")
    return sandbox


def _is_beneath(path: str, above: str) -> bool:
    return path == above or path.startswith(above.rstrip("/") + "/")
