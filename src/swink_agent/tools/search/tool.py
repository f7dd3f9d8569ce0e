"""The `search` tool: finds files in the workspace by name and content, without those that git ignores.

Decides where the search starts, which engine runs (ripgrep if it can be confined, else our own scanner) and which
matches are shown, and limits the time. The engines are in `search/engines` and `search/scan`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.sandbox import Sandbox, SandboxError, SandboxProfile, SandboxUnavailable, find_program
from swink_agent.sandbox.profile import is_beneath
from swink_agent.sandbox.programs import own_interpreter

from .._bounded import OUTPUT_LIMIT, escaped, show_name
from .._confined import OpenSandboxFn, SandboxChoice, SandboxSource, check_choice, in_thread
from ..workspace.workspace import Workspace, WorkspaceError
from .dialect import why_unsupported
from .engines import Binary, Engine, Hit, Query, Record, RipgrepEngine, ScannerEngine, read_folders
from .glob import NameGlob
from .masked_lines import MaskedLines
from .tree import IgnoredPaths
from .wider import MOST_FOUND, wider_queries

_DEFAULT_LIMIT = 100
_MOST_RESULTS = 1000
_MOST_UNSORTED = 4000
_LONGEST_PATTERN = 4000
_CHUNK = 64 * 1024
_NOTES = 1024
_LONGEST_WAIT = 2.0
_LONGEST_HINT = 2.0  # seconds for each wider search, when nothing was found
_UNSEARCHABLE = re.compile("[\0\ud800-\udfff]")  # a null character, and half of a character: no file has these
_UNSEEN = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal would obey: controls, and those that change the direction of writing."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "minLength": 1,
            "maxLength": _LONGEST_PATTERN,
            "description": "Regular expression to find in the files, line by line.",
        },
        "glob": {
            "type": "string",
            "minLength": 1,
            "maxLength": _LONGEST_PATTERN,
            "description": "Only files whose name matches, such as *.py, src/**/*.{ts,tsx} or !*.min.js.",
        },
        "path": {"type": "string", "description": "Folder or file to search in; the whole workspace unless given."},
        "ignore_case": {"type": "boolean", "description": "Whether the pattern matches in any case."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MOST_RESULTS,
            "description": f"Most results to show, at most {_MOST_RESULTS}; {_DEFAULT_LIMIT} unless given.",
        },
    },
    "additionalProperties": False,
}


class SearchTool:
    """Searches the files of a folder by name and by content.

    `root` is the folder, or the `Workspace` that other tools share. The engines run as child processes. Ripgrep runs
    only in a sandbox that can read just the folder, the engines and the system, even if `sandbox` allows commands more.
    Our own scanner opens only files beneath the root, and also runs without a sandbox ("off", or none works). Results
    are in the order of the paths. `time_limit` is in seconds; matches found until then are returned. Safe for
    concurrent calls.
    """

    name = "search"
    label = "Search"
    requires_approval = False
    description = (
        "Finds text in files (pattern, a regular expression: gives path:line: text) or finds files by name (glob "
        "alone: gives their paths). Leaves out .git and what git ignores, and binary files for a pattern."
    )
    parameters_schema = _SCHEMA

    def __init__(
        self,
        root: str | os.PathLike[str] | Workspace,
        sandbox: SandboxChoice = "auto",
        *,
        time_limit: float = 20.0,
        ripgrep: str | None = "rg",
        open_sandbox: OpenSandboxFn | None = None,
    ) -> None:
        choice = check_choice(sandbox)
        self.workspace = root if isinstance(root, Workspace) else Workspace(root)
        self._root = str(self.workspace.root)
        self._time_limit = time_limit
        given = choice.profile if isinstance(choice, Sandbox) else choice
        base, writable = (given, given.write) if isinstance(given, SandboxProfile) else (SandboxProfile(), ())
        self._ripgrep = find_program(ripgrep, outside=[self._root, *writable]) if ripgrep is not None else None
        self._interpreter = own_interpreter()
        interpreters = (self._interpreter, os.path.realpath(self._interpreter))
        self._own = (*interpreters, os.path.abspath(__file__))
        # In addition to the system's folders, an engine may read only the workspace, its own program and Python.
        read = (self._root, *read_folders(self._interpreter, [self._ripgrep] if self._ripgrep else []))
        profile = msgspec.structs.replace(base, write=(), read=read, network=False, hosts=())
        is_off = choice == "off" or (isinstance(choice, Sandbox) and choice.backend == "off")
        self._is_off = is_off
        self._confined = None if is_off else SandboxSource("auto", profile, open_sandbox)
        self._unconfined = SandboxSource("off", profile)

    def __repr__(self) -> str:
        return f"<tool search in {self._root}>"

    def close(self) -> None:
        """Ends every running search, with the sandbox that was opened for them. Idempotent."""
        self._unconfined.close()
        if self._confined is not None:
            self._confined.close()

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Searches. A pattern, glob or path that cannot be used is an error result; finding nothing is not."""
        try:
            limit = arguments.get("limit", _DEFAULT_LIMIT)
            query = await in_thread(ctx, lambda: self._query(arguments))
            found = await self._search(query, limit, ctx, self._time_limit)
            is_nothing = not (found.hits or found.stopped or found.skipped)
            hint = await self._hint(query, ctx) if is_nothing else ""
            lines = MaskedLines(self.workspace, ctx.redactor)
            return await in_thread(ctx, lambda: _result(found, hint, query, limit, lines))
        except (ToolError, SandboxError) as error:
            return AgentToolResult.error(str(error))
        except OSError as error:
            return AgentToolResult.error(f"nothing was searched: {error}")

    def _query(self, arguments: dict[str, Any]) -> Query:
        pattern, glob = arguments.get("pattern"), arguments.get("glob")
        if not pattern and not glob:
            raise ToolError("give a pattern to find in files, a glob for their names, or both")
        for name, value in (("pattern", pattern), ("glob", glob)):
            if value is not None and (_UNSEARCHABLE.search(value) or len(value) > _LONGEST_PATTERN):
                raise ToolError(f"the {name} has characters that no file has, or is too long: write a simpler one")
        if pattern and _has_line_break(pattern):
            raise ToolError("the pattern spans lines, and lines are searched one by one: look for one of them")
        if pattern and (why := why_unsupported(pattern)):
            raise ToolError(f"the pattern is not valid: {why}")
        try:
            compiled = NameGlob(glob) if glob else None
        except ValueError as error:
            raise ToolError(str(error)) from error
        if not os.path.samestat(os.stat(self._root), os.fstat(self.workspace.beneath.fd)):
            raise ToolError(f"nothing was searched: {self._root} is no longer the folder that the user gave")
        parts, is_file = self._start(arguments.get("path") or ".")
        start = tuple(os.fsencode(part) for part in parts)
        return Query(pattern or None, compiled, glob or None, arguments.get("ignore_case", False), start, is_file)

    def _start(self, path: str) -> tuple[tuple[str, ...], bool]:
        """Where to search, with every link resolved, and whether it is a file. Raises `ToolError`."""
        try:
            with self.workspace.open_folder(path) as folder:
                return folder.parts, False
        except WorkspaceError as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno == errno.ENOTDIR):
                raise
        with self.workspace.open_file(path) as file:
            return file.parts, True

    # -- engines ---------------------------------------------------------------------------------------------

    async def _hint(self, query: Query, ctx: ToolContext) -> str:
        """A hint if nothing was found: the result of a wider search, if one finds something in a short time."""
        said: list[str] = []
        if query.pattern is None:
            said.append("no file has such a name; contents were not searched: for that, give a pattern")
        time_limit = min(self._time_limit, _LONGEST_HINT)
        for wider in wider_queries(query):
            try:
                found = await self._search(wider.query, MOST_FOUND, ctx, time_limit)
            except (ToolError, SandboxError, OSError):
                break
            if found.hits:
                said.append(wider.tell(found.hits))
                break
            if found.stopped:
                break
        return "; ".join(said)

    async def _search(self, query: Query, limit: int, ctx: ToolContext, time_limit: float) -> _Found:
        """Runs ripgrep, and our own scanner if that cannot run or does not understand the pattern."""
        deadline = asyncio.get_running_loop().time() + time_limit
        confined = await in_thread(ctx, self._open_confined)
        if confined is not None and self._ripgrep is not None:
            # All cores at once first. If that finds more than can be sorted here, the first in order are found quickly.
            for is_sorted in (False, True):
                engine = RipgrepEngine(query, self._ripgrep, is_sorted=is_sorted)
                most = limit if is_sorted else max(limit, _MOST_UNSORTED)
                found = await self._run(engine, confined, most, deadline, ctx)
                if found.problem is not None:
                    break
                if is_sorted or not found.is_full:
                    return found
        if not self._interpreter:
            raise ToolError("the search could not be run: there is neither ripgrep nor a Python interpreter to start")
        if confined is None and not self._is_off and any(is_beneath(path, self._root) for path in self._own):
            raise ToolError(
                "the search was not run: no sandbox works here, and without one it would run files that tools can "
                f"write, as Python or this program is in {self._root}"
            )
        sandbox = confined or await in_thread(ctx, self._unconfined.get)
        found = await self._run(ScannerEngine(query, self._interpreter), sandbox, limit, deadline, ctx)
        if found.problem is not None:
            raise ToolError(found.problem)
        return found

    def _open_confined(self) -> Sandbox | None:
        if self._confined is None:
            return None
        try:
            return self._confined.get()
        except SandboxUnavailable:
            self._confined = None  # the scanner works without one, and need not wait for a trial each time
            return None

    async def _run(self, engine: Engine, sandbox: Sandbox, most: int, deadline: float, ctx: ToolContext) -> _Found:
        """Runs one engine until it ends, has found more than `most`, the time is over, or the call is cancelled."""
        loop = asyncio.get_running_loop()
        finds = _Finds(engine.query, self.workspace, most, time.monotonic() + max(0.0, deadline - loop.time()))
        try:
            process = await sandbox.spawn(engine.argv(), cwd=engine.folder(self._root))
        except (SandboxError, OSError) as error:
            finds.close()
            return _Found([], engine.name, problem=f"the search could not be started: {error}")

        async def read() -> int | None:
            while data := await process.output.read(_CHUNK):
                if await in_thread(ctx, lambda chunk=data: finds.take(engine.feed(chunk))):
                    return None
            return await process.wait()

        reading = loop.create_task(read())
        cancelled = loop.create_task(ctx.cancel.wait())
        try:
            left = max(0.0, deadline - loop.time())
            await asyncio.wait({reading, cancelled}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            process.kill()
            if not reading.done() or finds.is_late:
                why = "the call was cancelled" if cancelled.done() else f"its {self._time_limit:g} seconds were over"
                return _Found(await in_thread(ctx, finds.hits), engine.name, finds.is_full, stopped=why)
            try:
                code = reading.result()
                problem = engine.problem(code) if code is not None else None
            except SandboxError as error:  # the sandbox was closed before the engine began
                problem = f"the search could not be started: {error}"
            return _Found(
                await in_thread(ctx, finds.hits), engine.name, finds.is_full, problem=problem, skipped=engine.skipped
            )
        finally:
            process.kill()
            for task in (reading, cancelled):
                task.cancel()
            await asyncio.gather(reading, cancelled, return_exceptions=True)
            finds.close()


class _Found(NamedTuple):
    hits: list[Hit]
    engine: str
    is_full: bool = False  # whether there were more matches than asked for
    stopped: str = ""  # why it was stopped before its end
    problem: str | None = None
    skipped: int = 0


class _Finds:
    """The matches of an engine so far, without those that must not be shown. Used by threads, one after another.

    Matches that were not judged by `until` (`time.monotonic`) are not shown.
    """

    def __init__(self, query: Query, workspace: Workspace, most: int, until: float) -> None:
        self.is_full = False
        self.is_late = False  # whether time ran out before everything was judged
        self._until = until
        self._query = query
        self._workspace = workspace
        self._most = most
        self._count = 0
        self._ignored = IgnoredPaths(workspace.beneath.fd, query.start, until)
        self._shown: dict[bytes, list[Hit]] = {}
        self._rejected: bytes | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def take(self, records: Iterable[Record]) -> bool:
        """Takes matches. Returns whether that is more than enough."""
        with self._lock:
            try:
                self._take(records)
            except TimeoutError:
                self.is_late = True
            if self._is_closed:
                self._ignored.close()
        return self.is_full

    def _take(self, records: Iterable[Record]) -> None:
        for record in records:
            if self._is_closed:
                break
            if time.monotonic() > self._until:
                raise TimeoutError
            if isinstance(record, Binary):
                self._count -= len(self._shown.pop(record.path, ()))
                continue
            hits = self._hits_of(record.path)
            if hits is not None:
                hits.append(record)
                self._count += 1
                if self._count > self._most:
                    self.is_full = True
                    break

    def hits(self) -> list[Hit]:
        """The matches in order: folder by folder, line by line; none if a thread does not release them in time."""
        if not self._lock.acquire(timeout=_LONGEST_WAIT):
            return []
        try:
            paths = sorted(self._shown, key=lambda path: path.split(b"/"))
            return [hit for path in paths for hit in self._shown[path]]
        finally:
            self._lock.release()

    def close(self) -> None:
        """Releases the open folders. If a thread is still adding matches, that thread releases them afterwards."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._ignored.close()
            finally:
                self._lock.release()

    def _hits_of(self, path: bytes) -> list[Hit] | None:
        """The list for the matches of a file; `None` if they are not shown. The matches of a file come together."""
        hits = self._shown.get(path)
        if hits is None and path != self._rejected:
            if self._is_shown(path):
                hits = self._shown[path] = []
            else:
                self._rejected = path
        return hits

    def _is_shown(self, path: bytes) -> bool:
        query = self._query
        parts = path.split(b"/")
        beneath = parts[-1:] if query.is_file else parts[len(query.start) :]
        if query.glob is not None and not query.glob.matches(b"/".join(beneath)):
            return False
        if self._workspace.is_hidden(tuple(os.fsdecode(part) for part in parts)):
            return False
        return query.is_file or not self._ignored.covers(path)


# -- text for the model --------------------------------------------------------------------------------------


def _result(found: _Found, hint: str, query: Query, limit: int, masked: MaskedLines) -> AgentToolResult:
    """The matches as text."""
    shown = found.hits[:limit]
    lines: list[str] = []
    size = 0
    for hit in shown:
        line = show_name(os.fsdecode(hit.path))
        if hit.line:
            line += f":{hit.line}: {_UNSEEN.sub(lambda match: escaped(match[0]), masked.excerpt(hit))}"
        size += len(line.encode("utf-8", "replace")) + 1
        if size > OUTPUT_LIMIT - _NOTES:
            break
        lines.append(line)
    notes = _notes(found, len(lines), "files" if query.pattern is None else "matches", limit)
    details = {
        "matches": len(lines),
        "files": len({hit.path for hit in shown[: len(lines)]}),
        "complete": not found.stopped and not found.is_full and len(lines) == len(found.hits),
        "engine": found.engine,
    }
    said = [*lines, *notes, *([f"[{hint}]"] if hint else [])]
    return AgentToolResult("\n".join(said), details, bool(found.stopped and not lines))


def _notes(found: _Found, shown: int, kind: str, limit: int) -> list[str]:
    if found.stopped:
        until = f"{shown} {kind}" if shown else f"no {kind}"
        return [f"[stopped, as {found.stopped}, with {until} until then; narrow the path, the glob or the pattern]"]
    if shown < len(found.hits) or found.is_full:
        more = f", or raise limit (at most {_MOST_RESULTS})" if shown >= limit < _MOST_RESULTS else ""
        return [f"[the first {shown} {kind}, there are more; narrow the path, the glob or the pattern{more}]"]
    if found.skipped:
        return [f"[{found.skipped} more in lines of megabytes, which are not shown]"]
    return [] if shown else [f"[no {kind}]"]


def _has_line_break(pattern: str) -> bool:
    """Whether the expression contains a line break outside a character class."""
    in_class = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\n":
            return True
        if char == "\\":
            position += 1
            if not in_class and pattern[position : position + 1] == "n":
                return True
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            position += pattern.startswith("^", position + 1)
            position += pattern.startswith("]", position + 1)  # the first one does not close it
        position += 1
    return False
