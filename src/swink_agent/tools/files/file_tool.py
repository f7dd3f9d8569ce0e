"""The base of the file tools: a workspace, a thread to work in, and errors that a model can read.

Runs one call, and checks directly before a change whether it is still allowed. Each tool's work is in its own file.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from swink_agent.core.approval import RUNS, UNKEPT
from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import Text

from .._bounded import bound_text, show_name
from .._confined import in_thread
from ..checkpoints.changes import RecordedChanges
from ..workspace.place import Place, replace_file
from ..workspace.workspace import (
    WHOLE_FILE_LIMIT,
    OpenFile,
    Workspace,
    WorkspaceError,
    read_whole,
    seen_by,
    stale,
    version_of,
)
from .text import showable

VERSION = "version"  # the field of a scope with the version of the file that would be replaced
_MOST_DETAILS = 1024 * 1024


class Call:
    """One call of a tool: its arguments, its context, and whether it was cancelled."""

    def __init__(self, tool: FileTool, arguments: dict[str, Any], ctx: ToolContext) -> None:
        self.tool = tool
        self.arguments = arguments
        self.ctx = ctx
        self._is_over = False
        self._lock = threading.Lock()

    def give_up(self) -> None:
        """Cancels the call: from now on it changes nothing."""
        with self._lock:
            self._is_over = True

    @property
    def is_wanted(self) -> bool:
        return not self._is_over and not self.ctx.cancel.is_cancelled

    @property
    def granted_version(self) -> str | None:
        """The version of the file that was approved, if the approval names one."""
        grant = self.ctx.grant
        return None if grant is None else grant.scope.get(VERSION)

    @contextmanager
    def act(self, scope: dict[str, Any]) -> Generator[None]:
        """Held around a change. Raises `ToolError` if the call was cancelled, or is not what was approved.

        The approved version is not compared here: the tool has done so, and an earlier call may have changed the file.
        """
        if self.granted_version is not None:
            scope = {**scope, VERSION: self.granted_version}
        with self._lock:
            if not self.is_wanted:
                raise ToolError(f"{self.tool.name} was cancelled: nothing was changed")
            grant = self.ctx.grant
            if grant is not None and not grant.covers(self.tool.name, self.arguments, scope):
                raise ToolError(
                    f"{self.tool.name} did nothing: what would happen now is not what was approved, as the file or "
                    "folder behind the path has changed; call it again"
                )
            yield


class FileTool(ABC):
    """A tool on the files of one folder. `root` is its path, or a `Workspace` that several tools share."""

    name: ClassVar[str]
    label: ClassVar[str]
    description: ClassVar[str]
    parameters_schema: dict[str, Any]
    requires_approval: bool = False
    on_steer: Literal["cancel", "finish"] = "cancel"

    def __init__(self, root: str | os.PathLike[str] | Workspace) -> None:
        self.workspace = root if isinstance(root, Workspace) else Workspace(root)

    def __repr__(self) -> str:
        return f"<tool {self.name} in {self.workspace.root}>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Runs the call in a thread. Any problem with a file is an error result."""
        call = Call(self, arguments, ctx)
        try:
            return await in_thread(ctx, lambda: self.run(call))
        except ToolError as error:
            return AgentToolResult.error(str(error))
        except OSError as error:
            path = arguments.get("path")
            return AgentToolResult.error(str(self.workspace.explain(path if isinstance(path, str) else ".", error)))
        finally:
            call.give_up()

    @abstractmethod
    def run(self, call: Call) -> AgentToolResult:
        """Does the work, in a thread. Raises `ToolError` or `OSError`."""


class Before:
    """The file that is about to be replaced: its content, or `None` if it is large, and its version."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.data = read_whole(file)
        self.version = version_of(file.stat, self.data)

    def is_at(self, place: Place, workspace: Workspace) -> bool:
        """Whether the same file, unchanged, is still at the place."""
        now = workspace.open_existing(place)
        if now is None:
            return False
        with now:
            if not os.path.samestat(now.stat, self.file.stat):
                return False
            # Compares the content too: two changes in one tick of the clock have the same time.
            return version_of(now.stat, None if self.data is None else read_whole(now)) == self.version


class WritingTool(FileTool):
    """A tool that replaces a file. It needs approval, and a steering message does not interrupt it once it has
    begun."""

    requires_approval = True
    on_steer = "finish"
    replaces_all: ClassVar[bool] = False
    """Whether nothing of the old content is left, so that the model knows all of the new content."""

    def __init__(self, root: str | os.PathLike[str] | Workspace, *, changes: RecordedChanges | None = None) -> None:
        super().__init__(root)
        self._changes = changes

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The file that would be written, with every link resolved. Raises `ToolError` for one that may not be."""
        with self.workspace.place(arguments["path"], may_ask=True) as place:
            scope = self.scope_of(place.parts)
        is_kept = self._changes is None or self._changes.can_be_kept([str(self.workspace.root)])
        return scope if is_kept else {**scope, UNKEPT: True}

    @contextmanager
    def opened(self, path: str) -> Generator[tuple[Place, Before | None]]:
        """The place of a path, and the file that is there, both open. Raises `WorkspaceError`."""
        with self.workspace.place(path, may_ask=True) as place:
            file = self.workspace.open_existing(place)
            if file is None:
                yield place, None
                return
            with file:
                yield place, Before(file)

    def scope_of(self, parts: tuple[str, ...]) -> dict[str, Any]:
        scope: dict[str, Any] = {"folder": as_json(str(self.workspace.root)), "path": as_json("/".join(parts))}
        row = self.workspace.name_to_ask_for(parts)
        return scope if row is None else {**scope, RUNS: {"name": row.name, "program": row.program, "when": row.when}}

    def run(self, call: Call) -> AgentToolResult:
        if self._changes is None:
            return self._run(call)
        with self._changes.during([str(self.workspace.root)], call.ctx.run_id):
            return self._run(call)

    def _run(self, call: Call) -> AgentToolResult:
        with self.workspace.writing, self.opened(call.arguments["path"]) as (place, before):
            self.workspace.refuse_protected(place.parts, is_allowed=call.ctx.grant is not None)
            return self._with_report(self.change(call, place, before), place.parts)

    def _with_report(self, result: AgentToolResult, parts: tuple[str, ...]) -> AgentToolResult:
        """The result, with a sentence if another program may run commands from the file that was written."""
        row = self.workspace.named(parts)
        if result.is_error or row is None:
            return result
        report = Text(f"[{show_name('/'.join(parts))}: {row.program} reads it {row.when}: look at it first]")
        return replace(result, content=(*result.content, report))

    @abstractmethod
    def change(self, call: Call, place: Place, before: Before | None) -> AgentToolResult:
        """Makes the new content and writes it, or refuses that."""

    def put(self, call: Call, place: Place, before: Before | None, data: bytes) -> None:
        """Replaces the file if it is unchanged and the call is the one that was approved."""
        workspace, parts = self.workspace, place.parts

        @contextmanager
        def last_check() -> Generator[None]:
            now = place.parts_now()
            workspace.refuse_protected(now, is_allowed=call.ctx.grant is not None)
            with call.act(self.scope_of(now)):
                if now != parts or (before is not None and not before.is_at(place, workspace)):
                    raise stale(parts)
                yield

        with call.act(self.scope_of(place.parts_now())):
            place.make_folders()
        try:
            status = replace_file(
                place,
                data,
                None if before is None else before.file.fd,
                last_check=last_check(),
                rename=workspace.rename,
                fsync=workspace.fsync,
            )
        except FileExistsError as error:
            raise WorkspaceError(f"{'/'.join(parts)} has appeared meanwhile: read it with read_file first") from error
        seen, now = seen_by(call.ctx, workspace)
        knew_all = before is None or self.replaces_all or seen.is_whole(parts, before.version, now)
        version = version_of(status, data if len(data) <= WHOLE_FILE_LIMIT else None)
        seen.wrote(parts, version, is_whole=knew_all)


def as_json(path: str) -> str:
    """A path that JSON can carry: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def change_details(path: str, old: str, new: str, *, is_new: bool) -> dict[str, Any]:
    """The details of a change for people and logs: both texts, up to a megabyte each, with `is_cut` beyond that."""
    before = bound_text(showable(old), _MOST_DETAILS, keep="head")
    after = bound_text(showable(new), _MOST_DETAILS, keep="head")
    details: dict[str, Any] = {"path": as_json(path), "old": before.text, "new": after.text, "is_new": is_new}
    return details | {"is_cut": True} if before.is_cut or after.is_cut else details
