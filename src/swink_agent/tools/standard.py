"""The tools that an agent usually has, made for one folder.

Owns nothing but the set: each tool is in its own file.
"""

from __future__ import annotations

import os
from typing import Literal

from swink_agent import sandbox as sandboxes
from swink_agent.core.tool import AgentTool

from .edit_file import EditFileTool
from .list_dir import ListDirTool
from .read_file import ReadFileTool
from .workspace import Workspace
from .write_file import WriteFileTool

__all__ = ["standard_tools"]


def standard_tools(
    root: str | os.PathLike[str] | Workspace,
    sandbox: Literal["auto", "off"] | sandboxes.SandboxProfile | sandboxes.Sandbox = "auto",
) -> list[AgentTool]:
    """All built-in tools for one folder: read_file, write_file, edit_file, list_dir, search and bash.

    They share one `Workspace`, so a file that one of them read is known to the others. `sandbox` is for what runs
    commands: "auto" confines them to the folder by whatever works on this machine, a profile or an open sandbox says
    how, and "off" lets them do all that the user can. What a profile hides and
    protects, it hides and protects from the file tools too.
    """
    from swink_agent.sandbox import SandboxProfile

    from .search import SearchTool
    from .shell import BashTool

    if not isinstance(root, Workspace):
        profile = (
            None if isinstance(sandbox, str) else sandbox if isinstance(sandbox, SandboxProfile) else sandbox.profile
        )
        root = (
            Workspace(root) if profile is None else Workspace(root, hidden=profile.hidden, protected=profile.protected)
        )
    return [
        ReadFileTool(root),
        WriteFileTool(root),
        EditFileTool(root),
        ListDirTool(root),
        SearchTool(root, sandbox),
        BashTool(root, sandbox),
    ]
