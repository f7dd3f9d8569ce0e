"""The tools that an agent usually has, made for one folder.

Owns nothing but the set: each tool is in its own file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
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
    *,
    also: Iterable[str | os.PathLike[str]] = (),
) -> list[AgentTool]:
    """All built-in tools for one folder: read_file, write_file, edit_file, list_dir, search and bash.

    They share one `Workspace`, so a file that one of them read is known to the others. `sandbox` is for what runs
    commands: "auto" confines them to the folder by whatever works on this machine, a profile or an open sandbox says
    how, and "off" lets them do all that the user can. What a profile hides and
    protects, it hides and protects from the file tools too.

    `also` are further folders, which the file tools reach by absolute paths, behind walls of their own; nothing of
    git's own is written there but by commands. With "auto" commands may write there too; a profile says so itself.
    """
    from .search import SearchTool
    from .shell import BashTool

    folders = [os.path.abspath(folder) for folder in also]
    if folders and sandbox == "auto":
        main = root.root if isinstance(root, Workspace) else root
        sandbox = sandboxes.SandboxProfile(write=(str(main), *folders))
    profile = (
        None
        if isinstance(sandbox, str)
        else sandbox
        if isinstance(sandbox, sandboxes.SandboxProfile)
        else sandbox.profile
    )
    workspace = root if isinstance(root, Workspace) else _workspace(root, profile)
    tools: list[AgentTool] = [*_file_tools(workspace), SearchTool(workspace, sandbox)]
    if folders:
        tools = _for_all(tools, workspace, [_workspace(folder, profile) for folder in folders], folders, sandbox)
    return [*tools, BashTool(workspace, sandbox)]


def _workspace(root: str | os.PathLike[str], profile: sandboxes.SandboxProfile | None) -> Workspace:
    return Workspace(root) if profile is None else Workspace(root, hidden=profile.hidden, protected=profile.protected)


def _file_tools(workspace: Workspace) -> list[AgentTool]:
    return [ReadFileTool(workspace), WriteFileTool(workspace), EditFileTool(workspace), ListDirTool(workspace)]


def _for_all(
    tools: list[AgentTool],
    main: Workspace,
    others: list[Workspace],
    folders: list[str],
    sandbox: Literal["auto", "off"] | sandboxes.SandboxProfile | sandboxes.Sandbox,
) -> list[AgentTool]:
    """The tools of the main folder, each with its siblings for the other folders."""
    from ._several_folders import SeveralFoldersTool
    from .search import SearchTool

    several: list[AgentTool] = []
    siblings = [
        (folder, [*_file_tools(space), SearchTool(space, sandbox)])
        for folder, space in zip(folders, others, strict=True)
    ]
    for position, tool in enumerate(tools):
        # A repository's own folder is for git to write: a file tool could put a hook there that git would run.
        reachable = [
            (folder, own[position]) for folder, own in siblings if not (tool.requires_approval and _is_gits(folder))
        ]
        several.append(SeveralFoldersTool(tool, str(main.root), reachable) if reachable else tool)
    return several


def _is_gits(folder: str) -> bool:
    real = os.path.realpath(folder)
    names = real.casefold().split(os.sep)
    return ".git" in names or (os.path.isfile(f"{real}/HEAD") and os.path.isdir(f"{real}/objects"))
