"""The tools that an agent usually has, made for one folder.

Each tool is in its own file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from swink_agent import sandbox as sandboxes
from swink_agent.core.tool import AgentTool
from swink_agent.core.values.checks import is_not
from swink_agent.core.values.several import several_paths
from swink_agent.sandbox.kernel.mounts import real_paths
from swink_agent.sandbox.profile import is_beneath

from .checkpoints.changes import RecordedChanges
from .checkpoints.store import CheckpointStore
from .files.edit_file import EditFileTool
from .files.list_dir import ListDirTool
from .files.read_file import ReadFileTool
from .files.write_file import WriteFileTool
from .workspace.workspace import Workspace


def standard_tools(
    root: str | os.PathLike[str] | Workspace,
    sandbox: Literal["auto", "off"] | sandboxes.SandboxProfile | sandboxes.Sandbox = "auto",
    *,
    checkpoints: CheckpointStore | None = None,
    also: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    open_sandbox: Callable[[sandboxes.SandboxProfile], sandboxes.Sandbox] | None = None,
) -> list[AgentTool]:
    """All built-in tools for one folder: read_file, write_file, edit_file, list_dir, search, bash, and for its
    background commands bash_output and bash_stop.

    They share one `Workspace`, so a file that one of them read is known to the others. `sandbox` is for commands:
    "auto" confines them to the folder with the back end that works on this machine, a profile or an open sandbox gives
    other limits, and "off" lets them do all that the user can. Paths that a profile hides or protects are hidden or
    protected from the file tools too, and those of a workspace from commands; a workspace that does not hide and
    protect what a given profile does is a `ValueError`. With `checkpoints`, a checkpoint of the folder is taken before
    and after each call that may change something, and a call does nothing if none can be kept. Neither tools nor
    confined commands can reach the store; a given profile, sandbox or workspace must hide its folder itself, else it is
    a `ValueError`.

    `also` are further folders, which the file tools reach by absolute paths, each with its own confinement; only
    commands write git's own files there. With "auto" commands may write there too; a given profile must allow that
    itself. `open_sandbox` opens a profile for commands, instead of the first back end that works.
    """
    from swink_agent.sandbox import SandboxProfile

    from .commands.task_tools import BashOutputTool, BashStopTool
    from .search.tool import SearchTool
    from .shell import BashTool

    if checkpoints is not None and not isinstance(checkpoints, CheckpointStore):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("checkpoints", checkpoints, "a CheckpointStore, or None")
    if isinstance(root, Workspace) and not isinstance(sandbox, str):
        _refuse_open_workspace(root, sandbox if isinstance(sandbox, SandboxProfile) else sandbox.profile)
    folders = [os.path.abspath(folder) for folder in several_paths(also, "standard_tools(also=…)")]
    if checkpoints is not None:
        with suppress(OSError):  # then no checkpoint can be kept there, and nothing will be changed
            checkpoints.prepare()  # now: otherwise a command could create the folder, and own it
    if sandbox == "auto" and (folders or checkpoints is not None):
        sandbox = _usual_profile(root, folders, checkpoints)
    if checkpoints is not None:
        _refuse_open_store(checkpoints, root, sandbox)
    changes = None if checkpoints is None else RecordedChanges(checkpoints)
    profile = None if isinstance(sandbox, str) else sandbox if isinstance(sandbox, SandboxProfile) else sandbox.profile
    workspace = root if isinstance(root, Workspace) else Workspace(root, profile=profile)
    tools: list[AgentTool] = [*_file_tools(workspace, changes), SearchTool(workspace, sandbox)]
    if folders:
        spaces = [Workspace(folder, profile=profile) for folder in folders]
        siblings = [[*_file_tools(space, changes), SearchTool(space, sandbox)] for space in spaces]
        tools = _for_all(tools, workspace, dict(zip(folders, siblings, strict=True)))
    bash = BashTool(workspace, sandbox, changes=changes, also=folders, open_sandbox=open_sandbox)
    *others, search = tools
    return [*others, BashOutputTool(bash), BashStopTool(bash), search, bash]  # the last two are to be closed


def _refuse_open_workspace(workspace: Workspace, profile: sandboxes.SandboxProfile) -> None:
    """Raises `ValueError` if the file tools would open or write paths that are hidden or protected from commands."""
    root = str(workspace.root)
    inside = [path for path in real_paths(profile.hidden) if is_beneath(path, root) and path != root]
    for path in inside:
        if not workspace.is_hidden(tuple(os.path.relpath(path, root).split(os.sep))):
            raise ValueError(f"the sandbox hides {path}, and {workspace!r} does not: give it as hidden to both")
    for name in profile.protected:
        if not workspace.is_protected(tuple(name.split("/"))):
            raise ValueError(f"the sandbox protects {name}, and {workspace!r} does not: give it as protected to both")


def _file_tools(workspace: Workspace, changes: RecordedChanges | None) -> list[AgentTool]:
    return [
        ReadFileTool(workspace),
        WriteFileTool(workspace, changes=changes),
        EditFileTool(workspace, changes=changes),
        ListDirTool(workspace),
    ]


def _for_all(tools: list[AgentTool], main: Workspace, siblings: dict[str, list[AgentTool]]) -> list[AgentTool]:
    """The tools of the main folder, each with its siblings for the other folders."""
    from ._several_folders import SeveralFoldersTool

    several: list[AgentTool] = []
    for position, tool in enumerate(tools):
        # Only git writes in a repository's own folder: a file tool could put a hook there that git would run.
        reachable = [
            (folder, own[position])
            for folder, own in siblings.items()
            if not (tool.requires_approval and _is_gits(folder))
        ]
        several.append(SeveralFoldersTool(tool, str(main.root), reachable) if reachable else tool)
    return several


def _is_gits(folder: str) -> bool:
    real = os.path.realpath(folder)
    names = real.casefold().split(os.sep)
    return ".git" in names or (os.path.isfile(f"{real}/HEAD") and os.path.isdir(f"{real}/objects"))


def _usual_profile(
    root: str | os.PathLike[str] | Workspace, folders: Sequence[str], checkpoints: CheckpointStore | None
) -> sandboxes.SandboxProfile:
    """The profile that "auto" means, with these further folders and with the store hidden."""
    main = str(root.root) if isinstance(root, Workspace) else os.path.realpath(root)
    profile = sandboxes.SandboxProfile(write=(main, *sandboxes.repository_folders(main), *folders))
    if checkpoints is None:
        return profile
    return replace(profile, hidden=(*profile.hidden, os.path.realpath(checkpoints.folder)))


def _refuse_open_store(
    checkpoints: CheckpointStore,
    root: str | os.PathLike[str] | Workspace,
    sandbox: Literal["auto", "off"] | sandboxes.SandboxProfile | sandboxes.Sandbox,
) -> None:
    """Raises `ValueError` if commands or file tools could reach the store."""
    folder = os.path.realpath(checkpoints.folder)
    if not isinstance(sandbox, str):
        profile = sandbox if isinstance(sandbox, sandboxes.SandboxProfile) else sandbox.profile
        if not any(is_beneath(folder, os.path.realpath(path)) for path in profile.hidden):
            raise ValueError(
                f"the folder {folder} of checkpoints is not hidden by the sandbox: add it to the profile's hidden"
            )
    if isinstance(root, Workspace) and is_beneath(folder, str(root.root)):
        parts = os.path.relpath(folder, root.root).split(os.sep)
        if not root.is_hidden(tuple(parts)):
            raise ValueError(f"the folder {folder} of checkpoints is not hidden by {root!r}: give it as hidden")
