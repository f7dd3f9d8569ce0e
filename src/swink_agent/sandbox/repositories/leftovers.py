"""What a command leaves behind that would run code later, when the user types `git status` or opens an editor.

Owns the look at what is new after a command, and what is done about it. What has a fixed name beneath a root is held
read-only by the back ends; here is what cannot be denied by name, as ordinary work makes it too: repositories that a
command makes, moves or changes, the state of a rebase, and editors' files in any folder. It is judged by its content;
what would start a program is taken out and kept beside, under a name that nothing reads, and told of.

Only what changed is looked at. Folders are known by their times, files by their inodes' (`st_ctime`), which no command
can set; what changed before a command began was the user's doing. Nothing is opened through a link.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ..kernel.mounts import network_mounts
from ..profile import EDITOR_PROTECTED, SandboxProfile, is_beneath
from .enclosing import is_layout
from .git_config import LARGEST, STRATEGIES, is_harmless, is_plain, read_settings, written
from .git_objects import has_held
from .left_files import (
    FOLDERS,
    Signature,
    editor_files,
    files_of,
    identity_of,
    inode_of,
    is_folder,
    may_run,
    signature_of,
)
from .quarantine import OpenFolder

__all__ = ["Leftovers", "Look"]

_MOST_FOLDERS = 20_000
_MOST_IN_REPOSITORY = 200
_LONGEST = 2.0
_MOST_TOLD = 20
_MOST_AT_ONCE = 100
_COARSE = 50_000_000
"""Nanoseconds that the time of a file may lie behind the clock."""
_LAST = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".cache"})

_TODO = re.compile(
    r"\s*(?:$|#|(?:p|pick|r|reword|e|edit|s|squash|f|fixup|d|drop|revert|l|label|t|reset|m|merge|u|update-ref)\s"
    r"|(?:b|break|noop)\s*$)"
)
_OF_OTHER_AGENTS = frozenset({".mcp.json", ".cursor", ".windsurf", ".claude", ".codex", ".gemini", ".kiro"})
"""Hooks and servers that other agents start when they are opened in the folder."""
_EDITORS = _OF_OTHER_AGENTS.union(
    EDITOR_PROTECTED, (".vscode", ".idea", ".fleet", ".devcontainer", ".devcontainer.json", ".theia")
)
_STARTS_BY_ITSELF = re.compile(r"runOn|\\u", re.IGNORECASE)


class Look:
    """A command under watch: since when, and what is read-only for it."""

    def __init__(self) -> None:
        self.since = 0
        self.held: frozenset[str] = frozenset()


class Leftovers:
    """The watch over one profile's write roots. `begin()` when a command is about to start, `end()` after it.

    Both may take a while in a large tree: not in an event loop. Any thread may call them; they wait for each other.
    """

    def __init__(
        self,
        profile: SandboxProfile,
        exposed: Callable[[], Iterable[str]],
        hooks: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`exposed`: what git reads by the user's configuration and cannot be held, as it is missing or a link.

        `hooks`: folders in a work tree, relative to it, that the user's configuration has hooks in.
        """
        roots = profile.write if profile.protected else ()  # who protects nothing wants nothing judged
        self._roots = [root for root in roots if not any(root != other and is_beneath(root, other) for other in roots)]
        self._exposed_now = exposed
        self._hooks_now = hooks
        self._lock = threading.Lock()
        self._running: weakref.WeakSet[Look] = weakref.WeakSet()
        self._folders: dict[str, int] = {}
        self._repositories: dict[str, int] = {}
        self._editors: dict[str, None] = {}
        self._known: dict[str, Signature] = {}
        self._exposed: frozenset[str] = frozenset()
        self._hooks: tuple[str, ...] = ()
        self._first = 0
        """When the first command was about to begin: what repositories held before is their own."""
        self._slow: frozenset[str] = frozenset()
        self._noted = 0

    @property
    def is_needed(self) -> bool:
        return bool(self._roots)

    def begin(self) -> Look:
        """Notes what is there. The command is under watch for as long as the answer is kept."""
        with self._lock:
            if not self._folders:
                self._slow = frozenset(network_mounts())
                self._list(self._roots, time.monotonic() + _LONGEST)
                self._exposed = frozenset(self._exposed_now())
                self._hooks = tuple(self._hooks_now())
                self._first = time.time_ns() - _COARSE
            return self._begin()

    def begin_at_once(self) -> Look | None:
        """The same where it takes no time worth speaking of: in a small tree, on a disk of this machine."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._begin() if self._is_small() else None
        finally:
            self._lock.release()

    def is_untouched(self, look: Look, *, is_last: bool) -> bool:
        """Whether a small tree is as it was, so that `end()` has nothing to say; then it need not be called."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            is_same = (
                self._is_small()
                and all(identity_of(folder) == seen for folder, seen in self._folders.items())
                and all(signature_of(path) == self._known.get(path) for path in self._to_be_known())
            )
            if is_same and is_last:
                self._running.discard(look)
            return is_same
        finally:
            self._lock.release()

    def _begin(self) -> Look:
        look = Look()
        if not self._running:  # else what has changed may be the doing of one that runs
            self._note_known()
        look.since = time.time_ns() - _COARSE
        self._running.add(look)
        return look

    def _is_small(self) -> bool:
        is_near = not any(is_beneath(root, mount) for root in self._roots for mount in self._slow)
        return 0 < len(self._folders) <= _MOST_AT_ONCE and self._noted <= _MOST_AT_ONCE and is_near

    def end(self, look: Look, *, is_last: bool = True) -> list[str]:
        """What was done about what the command left, a sentence for each; to be called when all of it has ended."""
        with self._lock:
            running = [*self._running, look]
            self._since = min(one.since for one in running)
            self._held = frozenset[str].intersection(*(one.held for one in running))
            self._told: list[str] = []
            changed = [folder for folder, seen in self._folders.items() if identity_of(folder) != seen]
            deadline = time.monotonic() + _LONGEST
            new = self._list(changed, deadline, is_after=True)
            self._judge(new | self._list_roots(deadline))
            if is_last:
                self._running.discard(look)
            if len(running) - 1 <= 1:
                self._note_known()
            return self._told[:_MOST_TOLD]

    # -- the walk ------------------------------------------------------------------------------------------------

    def _list_roots(self, deadline: float) -> set[str]:
        """The repositories of the roots themselves, which commands may make, however large the tree is."""
        new: set[str] = set()
        for path in (os.path.join(root, ".git") for root in self._roots):
            if path not in self._repositories and os.path.lexists(path):
                self._note_repository(path, new)
                new |= self._list([path], deadline, most=len(self._folders) + _MOST_IN_REPOSITORY, is_after=True)
        return new

    def _list(
        self, folders: Sequence[str], deadline: float, *, most: int | None = None, is_after: bool = False
    ) -> set[str]:
        """Lists the folders and what is new beneath them. Gives the repositories that were not known before."""
        most = _MOST_FOLDERS if most is None else most
        new: set[str] = set()
        queue, later = deque(folders), deque[str]()
        while (queue or later) and len(self._folders) < most and time.monotonic() < deadline:
            folder = queue.popleft() if queue else later.popleft()
            identity = identity_of(folder)
            names = self._names_in(folder, is_after=is_after) if identity else None
            if names is None:
                for table in (self._folders, self._repositories, self._editors):
                    table.pop(folder, None)
                continue
            self._folders[folder] = identity
            is_git = os.path.basename(folder).lower() == ".git"
            if is_git or is_layout(names):
                self._note_repository(folder, new)
            if names.get(".git") is False:  # a file that says where the repository is, or a link
                self._note_repository(os.path.join(folder, ".git"), new)
            for name in names.keys() & _EDITORS:
                self._editors[os.path.join(folder, name)] = None
            for name in ("modules", "worktrees") if is_git else names:
                path = os.path.join(folder, name)
                if names.get(name) and path not in self._folders and path not in self._slow:
                    (later if name in _LAST else queue).append(path)
        return new

    def _names_in(self, folder: str, *, is_after: bool) -> dict[str, bool] | None:
        """The names in a folder, and whether each is a folder itself. After a command one that it closed is opened."""
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
        inode = inode_of(path)
        if self._repositories.get(path) != inode:
            self._repositories[path] = inode
            new.add(path)

    def _note_known(self) -> None:
        paths = self._to_be_known()
        self._noted = len(paths)
        for path in paths:
            self._note(path)

    def _to_be_known(self) -> list[str]:
        """Whatever is judged if it changes, there or not."""
        paths = [path for repository in self._repositories for path in files_of(repository, ())]
        paths += (file for path in self._editors for file in editor_files(path))
        return [*paths, *self._exposed, *self._hooks_in_trees()]

    def _note(self, path: str) -> None:
        signature = signature_of(path)
        if signature is not None:
            self._known[path] = signature
        else:
            self._known.pop(path, None)

    # -- the judgement -------------------------------------------------------------------------------------------

    def _judge(self, new: set[str]) -> None:
        fresh = {repository for repository in new if self._is_recent(signature_of(repository))}
        clones = {os.path.dirname(repository) for repository in fresh if os.path.isdir(repository)}
        todo = deque(self._repositories)
        while todo:
            repository = todo.popleft()
            for path in files_of(repository, self._held):
                is_of_new = repository in fresh and os.path.lexists(path)
                if path in self._held or not (is_of_new or self._is_changed(path)):
                    continue
                leads_to = self._judge_file(repository, path)
                if leads_to and self._is_recent(signature_of(os.path.join(leads_to, "objects"))):
                    clones.add(os.path.dirname(repository))
                if leads_to and leads_to not in fresh:  # it may have been there for long, and nobody looked there
                    fresh.add(leads_to)
                    self._repositories.setdefault(leads_to, inode_of(leads_to))
                    todo.append(leads_to)
        for path in self._exposed:
            if self._is_changed(path) and not is_folder(path) and not self._is_of_repository(path):
                self._put_away(path, "git reads it as configuration or hooks, by settings of yours")
        for path in self._hooks_in_trees():
            if self._is_changed(path) and may_run(path) and not self._is_of_repository(path):
                self._put_away(path, "git would run this hook, by settings of yours")
        for path in self._editors:
            if not any(is_beneath(path, held) for held in self._held):
                is_cloned = any(is_beneath(path, clone) for clone in clones)
                for file in [file for file in editor_files(path) if self._is_changed(file)]:
                    self._judge_editors(path, file, is_cloned=is_cloned)

    def _is_recent(self, signature: Signature | None) -> bool:
        return signature is not None and signature[2] >= self._since

    def _is_changed(self, path: str) -> bool:
        """Whether a command made or changed it, or put the folder there that it is in."""
        signature = signature_of(path)
        if signature is None or signature == self._known.get(path):
            return False
        if self._is_recent(signature):
            return True
        folder = os.path.dirname(path)
        known, above = self._known.get(folder), signature_of(folder)
        return self._is_recent(above) and (known is None or above is None or known[:2] != above[:2])

    def _judge_file(self, repository: str, path: str) -> str | None:
        """Deals with one file of a repository. Gives another repository that it makes git look at, if any."""
        name = path[len(repository) + 1 :] if path != repository else ""
        if not name:
            return self._judge_git_file(path) if not os.path.isdir(path) or os.path.islink(path) else None
        if name in ("config", "config.worktree", "sequencer/opts"):
            self._judge_config(path)
        elif name in FOLDERS:
            if os.path.islink(path):
                self._put_away(path, "git would use what this link leads to")
        elif name.startswith("hooks/"):
            if not name.endswith(".sample") and ".swink-quarantine-" not in name and may_run(path):
                self._put_away(path, "git would run this hook")
        elif name == "commondir":
            self._judge_common(repository, path)
        elif name.endswith(("git-rebase-todo", "sequencer/todo")):
            self._judge_todo(path)
        elif (self._text(path) or "") not in STRATEGIES:
            self._put_away(path, "git would run a merge strategy of this name")
        return None

    def _judge_git_file(self, path: str) -> str | None:
        text = None if os.path.islink(path) else self._text(path)
        if text is not None and (place := re.fullmatch(r"gitdir: ([^\n]+)", text)):
            target = os.path.realpath(os.path.join(os.path.dirname(path), place[1]))
            # One that has its own work tree beside it is for that: here its relative paths would mean other files.
            if self._root_of(target) and os.path.basename(target).lower() != ".git":
                return target
        self._put_away(path, "it makes git use a repository that is elsewhere")
        return None

    def _judge_common(self, repository: str, path: str) -> None:
        text = self._text(path)
        place = os.path.normpath(os.path.join(repository, text or ""))
        if text is not None and place not in (repository, os.path.dirname(os.path.dirname(repository))):
            self._put_away(path, "git would take configuration and hooks from where it says")

    def _judge_config(self, path: str) -> None:
        text = self._text(path, strip=False)
        if text is None:
            return
        settings, is_whole = read_settings(text)
        folder = os.path.dirname(path)
        kept = [
            setting
            for setting in settings
            if is_harmless(setting, lambda place: bool(self._root_of(os.path.realpath(os.path.join(folder, place)))))
        ]
        dropped = list(dict.fromkeys(str(setting) for setting in settings if setting not in kept))
        as_text = written(kept)
        if not dropped and is_whole:
            if not is_plain(text) and text != as_text:  # the same in words that nobody can read differently
                with suppress(OSError), OpenFolder(self._root_of(path), folder) as opened:
                    opened.write(os.path.basename(path), as_text.encode("utf-8", "surrogateescape"))
            return
        what = ", ".join(dropped[:8]) or "what git cannot read"
        self._rewrite(path, as_text, f"{what} can make git run programs, and was taken out of it")

    def _judge_todo(self, path: str) -> None:
        text = self._text(path, strip=False)
        if text is None:
            return
        lines = text.split("\n")
        kept = [line if _TODO.match(line) else f"# {line}" for line in lines]
        if kept != lines:
            why = "lines of it that git would run as commands when the rebase goes on are comments now"
            self._rewrite(path, "\n".join(kept), why)

    def _judge_editors(self, path: str, file: str, *, is_cloned: bool) -> None:
        """An editor's file, or one in an editor's folder. What a repository has, such as a fresh clone, it keeps."""
        name = os.path.basename(file)
        if not os.path.lexists(file) or (file == path and os.path.isdir(path) and not os.path.islink(path)):
            return
        if os.path.basename(path) in EDITOR_PROTECTED and not is_cloned and not self._is_of_repository(file):
            self._put_away(file, "an editor would run what it says when a file in its folder is opened")
        elif name == "tasks.json" and _STARTS_BY_ITSELF.search(self._text(file) or ""):
            self._put_away(file, "an editor would run its tasks when the folder is opened")
        elif not name.startswith(".swink-quarantine-"):
            self._told.append(f"{file!r} is new or changed: look at it before you open its folder in an editor")

    def _hooks_in_trees(self) -> list[str]:
        """Hooks that lie among the files of a work tree, where a checkout puts those that the repository has."""
        folders = [path for path in self._exposed if is_folder(path)]
        for repository in self._repositories if self._hooks else ():
            if os.path.basename(repository) == ".git" and os.path.isfile(repository):
                folders += (os.path.join(os.path.dirname(repository), hooks) for hooks in self._hooks)
        found: list[str] = []
        for folder in folders:
            if os.path.islink(folder):
                found.append(folder)
                continue
            with suppress(OSError):
                found += [os.path.join(folder, name) for name in os.listdir(folder)]
        return [path for path in found if ".swink-quarantine-" not in path]

    def _is_of_repository(self, path: str) -> bool:
        """Whether a repository here has held this very content since before the first command."""
        try:
            with OpenFolder(self._root_of(path), os.path.dirname(path)) as folder:
                data = folder.read(os.path.basename(path), LARGEST)
        except OSError:
            return False
        folders = [path for path in self._repositories if os.path.isdir(path)]
        return data is not None and any(has_held(folder, data, self._first) for folder in folders)

    # -- what is done --------------------------------------------------------------------------------------------

    def _root_of(self, path: str) -> str:
        """The root that the path is beneath, or nothing."""
        return next((root for root in self._roots if is_beneath(path, root)), "")

    def _text(self, path: str, *, strip: bool = True) -> str | None:
        """The file's text; `None` if there is none, or no plain file of a sane size, which is put away."""
        try:
            with OpenFolder(self._root_of(path), os.path.dirname(path)) as folder:
                data = folder.read(os.path.basename(path), LARGEST)
        except FileNotFoundError:
            return None
        except OSError:
            data = None
        if data is None:
            self._put_away(path, "it is a link, or no file that can be read")
            return None
        text = data.decode("utf-8", "surrogateescape")
        return text.strip() if strip else text

    def _put_away(self, path: str, why: str) -> None:
        self._change(path, why, lambda folder, name: folder.put_away(name))

    def _rewrite(self, path: str, text: str, why: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        self._change(path, why, lambda folder, name: folder.replace(name, data))

    def _change(self, path: str, why: str, change: Callable[[OpenFolder, str], str]) -> None:
        try:
            with OpenFolder(self._root_of(path), os.path.dirname(path)) as folder:
                kept = change(folder, os.path.basename(path))
        except FileNotFoundError:
            return
        except OSError as error:
            self._told.append(f"{path!r}: {why}. It could not be put away ({error.strerror}): remove it yourself")
        else:
            self._told.append(f"{path!r}: {why}. What it was is now {kept!r}, in the same folder")
