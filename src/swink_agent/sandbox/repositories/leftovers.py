"""Checks files that a command left and that would run code later, when the user types `git status` or opens an editor.

The back ends keep what exists read-only. This module judges what a command made: repositories, by their content, and
the names of `names.NAMES` in any folder. What is harmless or only to be reported stays as it is, byte for byte. What
would run is renamed as a whole to a name that no program reads (`config.swink-1`), the file from before the command is
put back if there was one, and the command's result reports both. No file is ever edited.

Only files that changed are judged. Folders and files are compared by inode and time of change. No command sets these;
changes from before a command began are the user's own. Nothing is opened through a link.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress

from ..kernel.mounts import network_mounts
from ..names import FIRST_PARTS, Name, files_of, row_of
from ..profile import SandboxProfile, is_beneath
from .enclosing import is_layout
from .git_config import LARGEST, STRATEGIES, is_harmless, is_unambiguous, read_settings
from .quarantine import FileCopy, OpenFolder, is_aside

_MOST_FOLDERS = 20_000
_MOST_IN_REPOSITORY = 200
_LONGEST = 2.0
_MOST_TOLD = 20
_MOST_AT_ONCE = 100
_MOST_CHANGED = 4
_COARSE = 50_000_000
"""Nanoseconds by which the time of a file may lag the clock."""
_LARGEST_KEPT, _MOST_KEPT = 256 * 1024, 8 * 1024 * 1024
"""The size of one file, and of all files, whose content is remembered so that it can be put back."""
_BY_GIT = "your git settings make git read it as configuration"
_BY_PYTHON = "Python would run it when this program is started again"
_AT_START = re.compile(r"/(site|user)customize[^/]*(/__init__[^/]*)?$")
_LAST = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".cache"})

_STATE_FOLDERS = ("rebase-merge", "sequencer")
_FOLDERS = ("hooks", *_STATE_FOLDERS)
_FILES = (
    *("config", "config.worktree", "commondir", *_FOLDERS, "rebase-merge/git-rebase-todo", "rebase-merge/strategy"),
    *("sequencer/todo", "sequencer/opts"),
)
_TODO = re.compile(
    r"\s*(?:$|#|(?:p|pick|r|reword|e|edit|s|squash|f|fixup|d|drop|revert|l|label|t|reset|m|merge|u|update-ref)\s"
    r"|(?:b|break|noop)\s*$)"
)
_IN_CLONES = (".vscode", ".idea")
"""Names that many repositories contain: in a clone that a command made, they are only reported."""
_STARTS_BY_ITSELF = re.compile(r"runOn|\\u", re.IGNORECASE)

_Signature = tuple[int, int, int]


class Snapshot:
    """One watched command: when it began, which paths are read-only for it, and whether all of it has ended."""

    def __init__(self) -> None:
        self.since = 0
        self.protected: frozenset[str] = frozenset()
        self.is_over: Callable[[], bool] = lambda: False


class Leftovers:
    """Watches one profile's write roots. Call `begin()` before a command starts and `end()` after it.

    Both can take a while in a large tree, so do not call them in an event loop. They are safe to call from any thread.
    """

    def __init__(self, profile: SandboxProfile, exposed: Callable[[], Iterable[str]]) -> None:
        """`exposed` returns files that git or Python would run or follow but that no back end keeps read-only."""
        self._profile = profile
        roots = profile.write if profile.protected else ()  # a profile that protects nothing needs no look
        self._roots = [root for root in roots if not any(root != other and is_beneath(root, other) for other in roots)]
        added = [name for name in profile.protected if row_of(name.split("/")) is None]
        self._added = [os.path.join(root, name) for root in self._roots for name in added]
        self._exposed_now = exposed
        self._lock = threading.Lock()
        self._running: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._folders: dict[str, int] = {}
        self._repositories: dict[str, int] = {}
        self._named: dict[str, None] = {}
        """The names in folders that `NAMES` begins with."""
        self._known: dict[str, _Signature] = {}
        self._there: frozenset[str] = frozenset()
        """The paths that were there before the commands that run now."""
        self._copied: dict[str, _Signature] = {}
        self._before: dict[str, FileCopy] = {}
        """The files as they were before the commands that run now, to put them back."""
        self._exposed: frozenset[str] = frozenset()
        self._slow: frozenset[str] = frozenset()
        self._noted = 0
        self._is_settled = True
        """Whether no command can change anything during the check."""
        self._clones: set[str] = set()
        """The work trees of repositories that the commands that run now have made."""
        self._mentioned: dict[str, _Signature | None] = {}
        """Files that were reported, as they were then: while another command runs, they still count as changed."""

    @property
    def is_needed(self) -> bool:
        return bool(self._roots)

    def begin(self) -> Snapshot:
        """Notes the current state. The command is watched for as long as the caller keeps the returned object."""
        with self._lock:
            if not self._folders:
                self._slow = frozenset(network_mounts())
                self._list(self._roots, time.monotonic() + _LONGEST)
                self._exposed = frozenset(self._exposed_now())
            return self._begin()

    def try_begin(self) -> Snapshot | None:
        """Does the same as `begin()` if that is quick (a small tree on a local disk), else returns `None`."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._begin() if self._is_small() else None
        finally:
            self._lock.release()

    def is_untouched(self, snapshot: Snapshot, *, is_last: bool) -> bool:
        """Whether nothing in a small tree is to be judged, so that `end()` need not be called."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._is_settled = is_last and all(other is snapshot for other in self._running)
            changed = self._changed_in_place() if self._is_small() else None
            is_same = changed is not None and all(
                _signature_of(path) == self._known.get(path) for path in self._to_be_known()
            )
            if is_same:  # else `end()` lists them
                self._folders.update(changed or {})
            if is_same and is_last:
                self._running.discard(snapshot)
            return is_same
        finally:
            self._lock.release()

    def _changed_in_place(self) -> dict[str, int] | None:
        """The folders with changed files and their identities, or `None` if there are new folders, or too many.

        Placeholders of a back end change folders in this way.
        """
        now = {folder: _identity_of(folder) for folder in self._folders}
        changed = [folder for folder, seen in self._folders.items() if now[folder] != seen]
        if len(changed) > _MOST_CHANGED or not all(now[folder] and self._is_as_listed(folder) for folder in changed):
            return None
        return {folder: self._lasting(folder, now[folder]) for folder in changed}

    def _lasting(self, folder: str, identity: int) -> int:
        """The identity, or one that no folder has if a running command may change the folder without a new time."""
        if self._is_settled or (_signature_of(folder) or (0, 0, 0))[2] < time.time_ns() - _COARSE:
            return identity
        return -1

    def _is_as_listed(self, folder: str) -> bool:
        """Whether `_list` would find nothing new in a folder."""
        try:
            with os.scandir(folder) as entries:
                for count, entry in enumerate(entries):
                    path = entry.path
                    is_known = path in self._folders or not entry.is_dir(follow_symlinks=False)
                    if (name := entry.name.casefold()) == ".git" or name in FIRST_PARTS:
                        is_known = is_known and (path in self._repositories or path in self._named)
                    if not is_known or count >= _MOST_AT_ONCE or entry.name.lower() == "head":
                        return False
        except OSError:
            return False
        return True

    def _begin(self) -> Snapshot:
        snapshot = Snapshot()
        if len(self._running):
            for other in [other for other in self._running if other.is_over()]:
                self._running.discard(other)  # it ended without a last look
        if not len(self._running):  # else a running command may have made the changes
            self._note_known()
            self._there = frozenset(self._known)
            self._clones.clear()
            self._mentioned.clear()
        snapshot.since = time.time_ns() - _COARSE
        self._running.add(snapshot)
        return snapshot

    def _is_small(self) -> bool:
        is_near = not any(is_beneath(root, mount) for root in self._roots for mount in self._slow)
        return 0 < len(self._folders) <= _MOST_AT_ONCE and self._noted <= _MOST_AT_ONCE and is_near

    def end(self, snapshot: Snapshot, *, is_last: bool = True) -> list[str]:
        """Judges what the command left. Returns a sentence for each problem. `is_last`: all processes have ended."""
        with self._lock:
            others = [other for other in self._running if other is not snapshot]
            running = [snapshot, *others]
            self._since = min(one.since for one in running)
            self._protected = frozenset[str].intersection(*(one.protected for one in running))
            self._told: list[str] = []
            self._is_settled = is_last and not others
            changed = [folder for folder, seen in self._folders.items() if _identity_of(folder) != seen]
            deadline = time.monotonic() + _LONGEST
            new = self._list(changed, deadline, is_after=True)
            self._judge(new | self._list_roots(deadline))
            if is_last:
                self._running.discard(snapshot)
            if not others:
                self._note_known()
            if not self._running:
                self._mentioned.clear()
                self._clones.clear()
            return self._told[:_MOST_TOLD]

    # -- the walk ------------------------------------------------------------------------------------------------

    def _list_roots(self, deadline: float) -> set[str]:
        """Lists the repositories of the roots themselves, which commands may make, however large the tree is."""
        new: set[str] = set()
        for path in (os.path.join(root, ".git") for root in self._roots):
            if path not in self._repositories and os.path.lexists(path):
                self._note_repository(path, new)
                new |= self._list([path], deadline, most=len(self._folders) + _MOST_IN_REPOSITORY, is_after=True)
        return new

    def _list(
        self, folders: Sequence[str], deadline: float, *, most: int | None = None, is_after: bool = False
    ) -> set[str]:
        """Lists the folders and new ones beneath them. Returns the repositories that were not known before."""
        most = _MOST_FOLDERS if most is None else most
        new: set[str] = set()
        queue, later = deque(folders), deque[str]()
        while (queue or later) and len(self._folders) < most and time.monotonic() < deadline:
            folder = queue.popleft() if queue else later.popleft()
            identity = _identity_of(folder)
            if not identity:
                self._folders.pop(folder, None)
                if not os.path.lexists(folder):  # else a file or link is there now, which is judged as one
                    for table in (self._repositories, self._named):
                        table.pop(folder, None)
                continue
            self._folders[folder] = self._lasting(folder, identity)  # also if it cannot be listed yet
            names = self._names_in(folder, is_after=is_after)
            if names is None:
                continue
            is_git = os.path.basename(folder).lower() == ".git"
            if is_git or is_layout(names):
                self._note_repository(folder, new)
            if names.get(".git") is False:  # a file that names the repository's folder, or a link
                self._note_repository(os.path.join(folder, ".git"), new)
            for name in names:
                if name.casefold() in FIRST_PARTS:
                    self._named[os.path.join(folder, name)] = None
            for name in ("modules", "worktrees") if is_git else names:
                path = os.path.join(folder, name)
                if names.get(name) and path not in self._folders and path not in self._slow:
                    (later if name in _LAST else queue).append(path)
        return new

    def _names_in(self, folder: str, *, is_after: bool) -> dict[str, bool] | None:
        """Maps the names in a folder to whether each is a folder.

        After a command, a folder whose permissions the command took away is made readable again.
        """
        for is_last in (False, True):
            try:
                with os.scandir(folder) as entries:
                    return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except PermissionError:
                if is_last or not is_after or not self._root_of(folder):
                    return None
                with suppress(OSError), OpenFolder(self._root_of(folder), os.path.dirname(folder)) as above:
                    above.open_up(os.path.basename(folder))
            except OSError:
                return None
        return None

    def _note_repository(self, path: str, new: set[str]) -> None:
        inode = _inode_of(path)
        if self._repositories.get(path) != inode:
            self._repositories[path] = inode
            new.add(path)

    def _note_known(self) -> None:
        paths = self._to_be_known()
        self._noted = len(paths)
        for path in paths:
            signature = _signature_of(path)
            if signature is None:
                for table in (self._known, self._copied, self._before):
                    table.pop(path, None)
                continue
            if self._running and signature[2] >= time.time_ns() - _COARSE:
                self._known.pop(path, None)  # it may change again without a new time
                continue
            self._known[path] = signature
            if not self._running and signature != self._copied.get(path):  # a running command could swap the content
                self._copied[path] = signature
                self._keep_copy(path)

    def _keep_copy(self, path: str) -> None:
        self._before.pop(path, None)
        if os.path.basename(os.path.dirname(path)) in _STATE_FOLDERS:
            return  # the rebase has progressed by then: its old state would repeat finished steps
        copy = self._read(path, _LARGEST_KEPT)
        if copy is not None and len(copy[0]) + sum(len(data) for data, _ in self._before.values()) <= _MOST_KEPT:
            self._before[path] = copy

    def _to_be_known(self) -> list[str]:
        """Every path that is judged if it changes, whether it exists or not."""
        paths = [path for repository in self._repositories for path in _files_of(repository, ())]
        paths += (file for path in self._named for file in files_of(path))
        return [*paths, *self._exposed, *self._by_place()]

    def _by_place(self) -> list[str]:
        """What is protected in one place: names that the profile adds to the table, and those of a home folder."""
        return [*self._added, *self._profile.at_home()]

    # -- the judgement -------------------------------------------------------------------------------------------

    def _judge(self, new: set[str]) -> None:
        fresh = {repository for repository in new if self._is_recent(_signature_of(repository))}
        clones = self._clones
        clones.update(os.path.dirname(repository) for repository in fresh if os.path.isdir(repository))
        todo = deque(self._repositories)
        while todo:
            repository = todo.popleft()
            for path in _files_of(repository, self._protected):
                is_of_new = repository in fresh and os.path.lexists(path)
                if path in self._protected or not (is_of_new or self._is_changed(path)):
                    continue
                leads_to = self._judge_file(repository, path)
                if leads_to and self._is_recent(_signature_of(os.path.join(leads_to, "objects"))):
                    clones.add(os.path.dirname(repository))
                if leads_to and leads_to not in fresh:  # it may be old and not judged yet
                    fresh.add(leads_to)
                    self._repositories.setdefault(leads_to, _inode_of(leads_to))
                    todo.append(leads_to)
        for path in self._exposed:
            if self._is_changed(path) and not _is_folder(path):
                self._move_aside(path, _BY_PYTHON if _AT_START.search(path) else _BY_GIT)
        for path in self._by_place():
            if (
                path not in self._protected
                and self._is_changed(path)
                and (not _is_folder(path) or path not in self._there)
            ):
                self._move_aside(path, "its name is protected")
        for path in self._named:
            if not any(is_beneath(path, protected) for protected in self._protected):
                is_cloned = any(is_beneath(path, clone) for clone in clones)
                self._judge_named(path, is_cloned=is_cloned)

    def _is_recent(self, signature: _Signature | None) -> bool:
        return signature is not None and signature[2] >= self._since

    def _is_changed(self, path: str) -> bool:
        """Whether a command made or changed the file, or moved its folder there. The old content is not a change."""
        signature = _signature_of(path)
        if signature is None or signature == self._known.get(path) or self._profile.is_opened(path):
            return False
        if path in self._before and self._read(path, _LARGEST_KEPT) == self._before[path]:
            return False
        if self._is_recent(signature):
            return True
        folder = os.path.dirname(path)
        known, above = self._known.get(folder), _signature_of(folder)
        return self._is_recent(above) and (known is None or above is None or known[:2] != above[:2])

    def _judge_file(self, repository: str, path: str) -> str | None:
        """Judges one file of a repository. Returns another repository that it makes git look at, if any."""
        name = path[len(repository) + 1 :] if path != repository else ""
        if not name:
            return self._judge_git_file(path) if not os.path.isdir(path) or os.path.islink(path) else None
        if name in ("config", "config.worktree", "sequencer/opts"):
            self._judge_config(path)
        elif name in _FOLDERS:
            if os.path.islink(path):
                self._move_aside(path, "git would use what this link leads to")
        elif name.startswith("hooks/"):
            if not name.endswith(".sample") and not is_aside(name) and _may_run(path):
                self._move_aside(path, "git would run this hook")
        elif name == "commondir":
            text = self._text(path)
            place = os.path.normpath(os.path.join(repository, text or ""))
            if text is not None and place not in (repository, os.path.dirname(os.path.dirname(repository))):
                self._move_aside(path, "git would take configuration and hooks from the folder that it names")
        elif name.endswith(("git-rebase-todo", "sequencer/todo")):
            if not all(map(_TODO.match, (self._text(path, strip=False) or "").split("\n"))):
                self._report_rebase(path, "it has commands")
        elif (self._text(path) or "") not in STRATEGIES:
            self._report_rebase(path, "it names a program as merge strategy")
        return None

    def _report_rebase(self, path: str, why: str) -> None:
        if self._mentioned.get(path) != (now := _signature_of(path)) and now is not None:
            self._mentioned[path] = now
            self._told.append(f"{path!r}: {why} that git runs when you continue the rebase: look at it first")

    def _judge_git_file(self, path: str) -> str | None:
        text = None if os.path.islink(path) else self._text(path)
        if text is not None and (place := re.fullmatch(r"gitdir: ([^\n]+)", text)):
            target = os.path.realpath(os.path.join(os.path.dirname(path), place[1]))
            # A `.git` folder belongs to the work tree beside it: from here its relative paths would mean other files.
            if self._root_of(target) and os.path.basename(target).lower() != ".git":
                return target
        self._move_aside(path, "it makes git use a repository that is elsewhere")
        return None

    def _judge_config(self, path: str) -> None:
        text = self._text(path, strip=False)
        if text is None:
            return
        folder = os.path.dirname(path)

        def is_inside(place: str) -> bool:
            return bool(self._root_of(os.path.realpath(os.path.join(folder, place))))

        settings, is_whole = read_settings(text)
        users_own = Counter(read_settings(_decoded(self._before.get(path, (b"", 0))[0]))[0])
        added = Counter(settings) - users_own
        dangerous = list(dict.fromkeys(str(setting) for setting in added if not is_harmless(setting, is_inside)))
        if dangerous:
            self._move_aside(path, f"{', '.join(dangerous[:8])} can make git run programs")
        elif not is_whole:
            self._move_aside(path, "git cannot read it as a configuration")
        elif not is_unambiguous(text.removeprefix("\ufeff").replace("\r\n", "\n")):
            self._move_aside(path, "programs do not agree on what some of its lines mean")

    def _judge_named(self, path: str, *, is_cloned: bool) -> None:
        """Judges a name of `NAMES`, and the files in it."""
        for file in [file for file in files_of(path) if file not in self._protected and self._is_changed(file)]:
            row = row_of(file[len(self._root_of(file)) + 1 :].split("/"))
            is_new_folder = file == path and _is_folder(path)
            if row is None or not os.path.lexists(file) or is_aside(file):
                continue
            is_brought = is_cloned and row.name in _IN_CLONES
            if row.treatment == "protected" and row.name in self._profile.protected and not is_brought:
                if not _is_folder(file) or file not in self._there:
                    self._move_aside(file, f"{row.program} would read it {row.when}")
            elif os.path.basename(file) == "tasks.json" and _STARTS_BY_ITSELF.search(self._text(file) or ""):
                self._move_aside(file, "an editor would run its tasks when the folder is opened")
            elif not is_new_folder and not _is_folder(file):
                self._report(file, row)

    def _report(self, path: str, row: Name) -> None:
        if self._mentioned.get(path) != (now := _signature_of(path)):
            self._mentioned[path] = now
            self._told.append(f"{path!r} is new or changed: look at it, because {row.program} reads it {row.when}")

    # -- reading and moving --------------------------------------------------------------------------------------

    def _root_of(self, path: str) -> str:
        """The root that the path is beneath, or an empty text."""
        return next((root for root in self._roots if is_beneath(path, root)), "")

    def _read(self, path: str, most: int) -> FileCopy | None:
        """The content and mode of a regular file of at most that size, else `None`."""
        try:
            with OpenFolder(self._root_of(path), os.path.dirname(path)) as folder:
                return folder.read(os.path.basename(path), most)
        except OSError:
            return None

    def _text(self, path: str, *, strip: bool = True) -> str | None:
        """The file's text. `None` if it does not exist, or is not a readable file of a sane size: then it is moved."""
        copy = self._read(path, LARGEST)
        if copy is None:
            self._move_aside(path, "it is a link, or not a file that can be read")
            return None
        text = _decoded(copy[0])
        return text.strip() if strip else text

    def _move_aside(self, path: str, why: str) -> None:
        """Renames the file, puts the one from before the command back, and reports both. A missing file is ignored."""
        before = self._before.get(path)
        try:
            with OpenFolder(self._root_of(path), os.path.dirname(path)) as folder:
                kept = folder.move_aside(os.path.basename(path), before)
        except FileNotFoundError:
            return
        except OSError as error:
            self._told.append(f"{path!r}: {why}. It could not be moved aside ({error.strerror}): remove it yourself")
        else:
            back = "; the file from before the command is back" if before is not None else ""
            self._told.append(f"{path!r}: {why}. It was moved to {kept!r} in the same folder{back}")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# -- the files that can start a program, and whether they changed, by inode; no link is followed -----------------


def _files_of(repository: str, protected: Container[str]) -> list[str]:
    """Every path in a repository that can make git run something, existing or not. A `.git` file is its own path."""
    if os.path.islink(repository) or not os.path.isdir(repository):
        return [repository]
    hooks = os.path.join(repository, "hooks")
    inner: list[str] = []
    if hooks not in protected and not os.path.islink(hooks):
        with suppress(OSError):
            inner = [os.path.join(hooks, name) for name in os.listdir(hooks) if not name.endswith(".sample")]
    return [repository, *(f"{repository}/{name}" for name in _FILES), *inner]


def _identity_of(folder: str) -> int:
    """A number that changes when an entry is added or removed or the folder is replaced. 0 if it is not a folder."""
    try:
        state = os.lstat(folder)
    except OSError:
        return 0
    return hash((state.st_dev, state.st_ino, state.st_ctime_ns)) if stat.S_ISDIR(state.st_mode) else 0


def _signature_of(path: str) -> _Signature | None:
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_ctime_ns


def _inode_of(path: str) -> int:
    signature = _signature_of(path)
    return signature[1] if signature else 0


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _may_run(path: str) -> bool:
    """Whether git would run a hook: a file that may be executed, or a link to one."""
    return os.path.islink(path) or os.access(path, os.X_OK)
