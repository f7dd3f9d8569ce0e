"""The workspace: the folder that file tools work in and cannot leave.

Holds the root's descriptor, turns a model's path into an open file, and decides which paths no tool reads or writes.
`place` replaces files, `beneath` opens them, and `seen` remembers which were seen.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import unicodedata
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from swink_agent import sandbox as sandboxes
from swink_agent.core.errors import ToolError
from swink_agent.core.machine.files import files_in_use, identity_of
from swink_agent.core.tool import ToolContext
from swink_agent.core.values.checks import is_not
from swink_agent.core.values.several import several_paths, several_texts
from swink_agent.rendering.texts.invisible import compatibility_form

from .._bounded import show_name, show_size
from .beneath import LeavesRoot, Opened, Root, open_root
from .place import Place, find_place
from .seen import SeenFiles

if TYPE_CHECKING:
    from swink_agent.sandbox.names import Name

WHOLE_FILE_LIMIT = 16 * 1024 * 1024
"""The largest file that is read into memory. Larger ones are streamed, and not edited."""

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ALWAYS_PROTECTED = frozenset({".git", ".swink"})  # at any depth: a repository may be in a folder of another
_OF_REPOSITORY = frozenset({"head", "objects", "refs", "commondir", "config", "config.worktree", "hooks"})
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    **dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device"),
}
_PROBLEMS = {
    errno.ENOTDIR: "uses a file as a folder: see with list_dir what is there",
    errno.EISDIR: "is a folder: give the path of a file",
    errno.ELOOP: "goes through links that are not followed: name the file itself",
    **dict.fromkeys((errno.ENXIO, errno.ENODEV), "is a socket or a device: only regular files can be used"),
}
_Names: TypeAlias = tuple[tuple[str, ...], ...]


class WorkspaceError(ToolError):
    """A path cannot be used. The message, which the model reads, has the reason and the remedy."""


class OpenFile:
    """A regular file of the workspace, open for reading, or a folder, whose `fd` is for `dir_fd` and `os.scandir`.

    Close it, or use it as a context manager.
    """

    def __init__(self, opened: Opened) -> None:
        self.fd = opened.fd
        self.parts = opened.parts
        self.stat = os.fstat(opened.fd)

    @property
    def path(self) -> str:
        """Relative to the root, with every link resolved."""
        return "/".join(self.parts) or "."

    def read(self, most: int) -> bytes:
        """The next bytes, `most` unless the file ends before."""
        chunks: list[bytes] = []
        while most > 0 and (chunk := os.read(self.fd, min(most, 1 << 20))):
            chunks.append(chunk)
            most -= len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Workspace:
    """A folder that file tools cannot leave by any path or link, even if links are swapped meanwhile.

    Every file is opened beneath the root's descriptor. `hidden` are paths that are not opened, absolute or relative to
    the root, in addition to the credentials that sandboxes hide; an empty list hides nothing, not even these.
    `protected` are names relative to the root that are not written. One string is one path. A `profile` replaces the
    usual paths that sandboxes hide and protect. Everything hidden or protected here is so for the commands of the tools
    that share the workspace too. Tools and threads may share one workspace. Raises `OSError` if the root is not a
    folder that can be opened, and `ValueError` for a protected name that leaves it, or if all of it is hidden.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        hidden: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        protected: str | Iterable[str] | None = None,
        profile: sandboxes.SandboxProfile | None = None,
        open_root: Callable[[str], Root] = open_root,
        rename: Callable[..., None] = os.rename,
        fsync: Callable[[int], None] = os.fsync,
    ) -> None:
        from swink_agent.sandbox.names import PROTECTED_NAMES
        from swink_agent.sandbox.profile import SandboxProfile, holds_home, protected_name

        if profile is not None and not isinstance(profile, SandboxProfile):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("profile", profile, "a SandboxProfile, or None")
        given = os.path.abspath(str(Path(root)))
        paths = None if hidden is None else several_paths(hidden, "Workspace(hidden=…)")
        names = None if protected is None else several_texts(protected, "Workspace(protected=…)")
        self.beneath = open_root(given)
        self._close = weakref.finalize(self, os.close, self.beneath.fd)
        self.root = Path(self.beneath.path)
        self.rename = rename
        self.fsync = fsync
        self.writing = threading.Lock()
        """Held from reading a file to replacing it, so that two edits of one reply both count."""
        self._spellings = tuple(dict.fromkeys((self.beneath.path, given)))
        hidden_names = _hidden_in(self.beneath.path, paths, profile)
        self._hidden = _folded(hidden_names)
        self.hidden = tuple([os.path.join(self.beneath.path, *parts) for parts in hidden_names])
        """The paths beneath the root that are not opened, absolute."""
        usual = PROTECTED_NAMES if profile is None else profile.protected
        self.protected = usual if names is None else tuple(map(protected_name, names))
        """The names that are not written, relative to the root."""
        self._protected = _protected_in(self.beneath.path, self.protected)
        self._holds_home = bool(self.protected) and holds_home(self.beneath.path)
        self._pseudo = frozenset(_devices("/proc", "/sys")) - {os.fstat(self.beneath.fd).st_dev}
        self.seen = SeenFiles()
        """The files that calls without a conversation have seen."""

    def __repr__(self) -> str:
        return f"Workspace({str(self.root)!r})"

    def close(self) -> None:
        """Closes the root; nothing can be opened afterwards. Safe to call again."""
        self._close()
        self.beneath.fd = -1  # the number may soon be that of another folder

    # -- from a path to a descriptor -------------------------------------------------------------------------

    def relative(self, path: str) -> str:
        """The path relative to the root. Only the text is checked; opening it shows whether it stays inside."""
        if not path.strip():
            raise WorkspaceError("the path is empty: give one relative to the workspace, such as src/main.py")
        try:
            if "\0" in path:
                raise ValueError("a NUL character")
            os.fsencode(path)
        except ValueError as error:
            raise WorkspaceError(f"{show_name(path)} is not a path: no file name has such characters") from error
        if not path.startswith("/"):
            return path
        for root in self._spellings:
            above = root.rstrip("/") + "/"
            if path == root:
                return "."
            if path.startswith(above):
                return path[len(above) :].lstrip("/") or "."
        raise WorkspaceError(f"{show_name(path)} is outside the workspace {self.root}: give a path beneath it")

    def open_file(self, path: str) -> OpenFile:
        """Opens a regular file for reading. Raises `WorkspaceError` for anything else and everything outside."""
        self._refuse_in_use(self.relative(path))
        return self._regular(self._open(path, _READ), path)

    def open_folder(self, path: str = ".") -> OpenFile:
        """Opens a folder for listing. Raises `WorkspaceError`."""
        return OpenFile(self._open(path, _LIST))

    def is_hidden(self, parts: tuple[str, ...]) -> bool:
        """Whether the path is hidden, or in a hidden folder."""
        if not self._hidden:
            return False
        folded = tuple(map(_fold, parts))
        return any(_covers(names, folded) for names in self._hidden)

    def _refuse_in_use(self, relative: str) -> None:
        """Raises `WorkspaceError` for a file that this program uses itself, such as its database.

        The check protects that file's locks from an accident. What may be opened at all is checked with the descriptor.
        """
        if identity_of(self.root / relative) in files_in_use():
            raise WorkspaceError(
                f"{show_name(relative)} is in use by this program, such as its database: tools do not touch it"
            )

    def _open(self, path: str, flags: int) -> Opened:
        relative = self.relative(path)
        try:
            opened = self.beneath.open(relative, flags)
        except OSError as error:
            raise self.explain(path, error) from error
        if self.is_hidden(opened.parts):
            os.close(opened.fd)
            raise WorkspaceError(f"{show_name(path)} holds credentials and is hidden from tools")
        return opened

    def _regular(self, opened: Opened, path: str) -> OpenFile:
        """The opened file, if it is a regular one. Closes and refuses any other."""
        file, problem = OpenFile(opened), ""
        if stat.S_ISDIR(file.stat.st_mode):
            problem = "is a folder: use list_dir to see what is in it"
        elif not stat.S_ISREG(file.stat.st_mode):
            kind = _KINDS.get(stat.S_IFMT(file.stat.st_mode), "not a regular file")
            problem = f"is {kind}: only regular files can be used"
        elif file.stat.st_dev in self._pseudo:
            problem = "is made up by the system (/proc, /sys): such files are not read"
        if problem:
            file.close()
            raise WorkspaceError(f"{show_name(path)} {problem}")
        return file

    # -- writing ---------------------------------------------------------------------------------------------

    def place(self, path: str, *, may_ask: bool = False) -> Place:
        """Where a file of this path is, or would be, with its last link followed. Creates nothing.

        Raises `WorkspaceError` for a path that leads out, that is a folder, or that no tool may write. `may_ask`: a
        name that a person may allow is accepted.
        """
        relative = self.relative(path)
        try:
            place = find_place(self.beneath, relative)
        except OSError as error:
            raise self.explain(path, error) from error
        try:
            self.refuse_protected(place.parts, is_allowed=may_ask)
            self._refuse_in_use("/".join(place.parts))
        except BaseException:
            place.close()
            raise
        return place

    def open_existing(self, place: Place) -> OpenFile | None:
        """The file at a place, open for reading, or `None` if there is none."""
        shown = "/".join(place.parts)
        try:
            fd = place.open_name(_READ)
        except OSError as error:
            raise self.explain(shown, error) from error
        return None if fd is None else self._regular(Opened(fd, place.parts), shown)

    def is_protected(self, parts: tuple[str, ...]) -> bool:
        """Whether the name of the path is protected: no tool may write it."""
        folded = tuple(map(_fold, parts))
        if not _ALWAYS_PROTECTED.isdisjoint(folded) or any(_covers(names, folded) for names in self._protected):
            return True
        row = self.named(parts)
        if row is not None and row.treatment == "protected" and row.name in self.protected:
            return True
        if not self._holds_home:
            return False
        from swink_agent.sandbox.profile import runs_at_home

        return runs_at_home(os.path.join(self.beneath.path, *parts))

    def named(self, parts: tuple[str, ...]) -> Name | None:
        """The row of the table of names that a path is in: a program runs it, or reads it as settings, by itself."""
        from swink_agent.sandbox.names import row_of

        return row_of(tuple(map(_fold, parts)))

    def name_to_ask_for(self, parts: tuple[str, ...]) -> Name | None:
        """The row of the table that alone protects the path: a person may allow to write it. Never our own files."""
        from swink_agent.sandbox.names import OWN_PROGRAM, place_of, row_of

        folded = tuple(map(_fold, parts))
        found = place_of(folded)
        if found is None or found[1].name not in self.protected or found[1].program == OWN_PROGRAM:
            return None
        added = (tuple(map(_fold, name.split("/"))) for name in self.protected if row_of(name.split("/")) is None)
        return None if ".swink" in folded or any(_covers(name, folded) for name in added) else found[1]

    def refuse_protected(self, parts: tuple[str, ...], *, is_allowed: bool = False) -> None:
        """Raises `WorkspaceError` for names that no tool may write: repository hooks and settings, and the like.

        `is_allowed`: a person was asked, or will be, about a name that a person may allow.
        """
        folded = tuple(map(_fold, parts))
        shown = show_name("/".join(parts))
        if self.is_protected(parts) and not (is_allowed and self.name_to_ask_for(parts) is not None):
            raise WorkspaceError(
                f"{shown} is protected: it can make other programs run commands, so a tool writes it only if a person "
                "allows that"
            )
        if any(self._makes_a_repository(parts, index) for index, name in enumerate(folded) if name in _OF_REPOSITORY):
            raise WorkspaceError(
                f"{shown} would be part of a git repository without a .git folder, whose settings git would follow: "
                "choose another name, or make repositories with git"
            )
        if self.is_hidden(parts):
            raise WorkspaceError(f"{shown} holds credentials and is hidden from tools")

    def _makes_a_repository(self, parts: tuple[str, ...], index: int) -> bool:
        """Whether the folder of this part is a repository, or would become one with this part."""
        from swink_agent.sandbox.repositories.enclosing import is_layout

        folder = os.path.join(self.beneath.path, *parts[:index])
        there = [name for name in ("HEAD", "objects", "refs", "commondir") if os.path.lexists(f"{folder}/{name}")]
        return is_layout([*there, parts[index]])

    # -- errors ----------------------------------------------------------------------------------------------

    def explain(self, path: str, error: OSError) -> WorkspaceError:
        """An error of the system in words that a model can act on."""
        shown = show_name(path)
        if isinstance(error, LeavesRoot):
            link = f" through the link {show_name(error.link)}" if error.link else ""
            return WorkspaceError(f"{shown} leads out of the workspace {self.root}{link}: give a path beneath it")
        if error.errno == errno.ENOENT:
            return WorkspaceError(f"{shown} does not exist in the workspace {self.root}{self.nearest(path)}")
        if error.errno == errno.ENAMETOOLONG:
            return WorkspaceError(f"{shown[:80]}… is longer than a file's name can be")
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return WorkspaceError(f"{shown} may not be opened or changed by this user: {error.strerror}")
        problem = _PROBLEMS.get(error.errno or 0)
        return WorkspaceError(f"{shown} {problem}" if problem else f"{shown}: {error.strerror or error}")

    def nearest(self, path: str) -> str:
        """A suggestion for a path that does not exist, as the end of a sentence."""
        from .missing import describe_missing

        return describe_missing(self.beneath, self.relative(path), self.is_hidden)


def stale(parts: tuple[str, ...]) -> WorkspaceError:
    """The refusal to overwrite a file that someone else has changed."""
    shown = show_name("/".join(parts))
    return WorkspaceError(
        f"{shown} was changed since it was read: read it again with read_file, then repeat the change"
    )


def version_of(status: os.stat_result, data: bytes | None) -> str:
    """The version of a file: the hash of its content, or, for a large one, its inode's data."""
    if data is not None:
        return hashlib.blake2b(data, digest_size=16).hexdigest()
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def read_whole(file: OpenFile) -> bytes | None:
    """All of a file, or `None` if it is too large for memory."""
    if file.stat.st_size > WHOLE_FILE_LIMIT:
        return None
    data = file.read(WHOLE_FILE_LIMIT + 1)
    return data if len(data) <= WHOLE_FILE_LIMIT else None


def too_large(file: OpenFile) -> WorkspaceError:
    """The refusal to read a large file into memory."""
    limit = show_size(WHOLE_FILE_LIMIT)
    return WorkspaceError(
        f"{show_name(file.path)} has {show_size(file.stat.st_size)}, more than the {limit} that can be edited here: "
        "change it with a command, such as sed"
    )


# -- names that are hidden or protected ----------------------------------------------------------------------


def _hidden_in(root: str, given: tuple[str, ...] | None, profile: sandboxes.SandboxProfile | None) -> _Names:
    from swink_agent.sandbox.kernel.mounts import real_paths
    from swink_agent.sandbox.profile import SandboxProfile

    paths = [os.path.normpath(os.path.join(root, os.path.expanduser(path))) for path in given or ()]
    if root in paths or (profile is not None and root in profile.hidden):
        raise ValueError(f"hidden holds the whole workspace {root}: no tool could open anything there")
    if given is None or given:
        paths += (profile or SandboxProfile()).hidden
    spelled = dict.fromkeys((*paths, *real_paths(paths)))
    return _names_beneath(root, spelled)


def _protected_in(root: str, names: tuple[str, ...]) -> _Names:
    from swink_agent.sandbox.names import row_of
    from swink_agent.sandbox.programs import own_folders, own_names_in, run_at_start

    given = [tuple(name.split("/")) for name in names]
    # The files of this program, and those that Python runs before it.
    ours = [*own_names_in(root, own_folders()), *run_at_start([root])] if names else []
    return _folded([*(parts for parts in given if row_of(parts) is None), *_names_beneath(root, ours)])


def _names_beneath(root: str, paths: Iterable[str]) -> _Names:
    """The paths that are beneath the root, as names from there."""
    above = root.rstrip("/") + "/"
    return tuple(tuple(path[len(above) :].split("/")) for path in map(os.path.abspath, paths) if path.startswith(above))


def _folded(names: Iterable[tuple[str, ...]]) -> _Names:
    return tuple(tuple(map(_fold, parts)) for parts in names)


def _fold(name: str) -> str:
    """A name as the least strict file system compares it: without case and ignorable characters."""
    if name.isascii():
        return name.casefold()
    plain = compatibility_form(name).casefold()
    return "".join([char for char in plain if unicodedata.category(char) != "Cf"])


def _covers(names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether the parts are these names, or beneath them."""
    return parts[: len(names)] == names


def _devices(*paths: str) -> Iterable[int]:
    for path in paths:
        try:
            yield os.stat(path).st_dev
        except OSError:
            continue


def seen_by(ctx: ToolContext, workspace: Workspace) -> tuple[SeenFiles, int | None]:
    """The files of the workspace that the call's conversation has seen, and the length of that conversation."""
    conversation = ctx.conversation
    if conversation is None:
        return workspace.seen, None
    key = ("seen files", str(workspace.root))
    return conversation.memory.setdefault(key, SeenFiles()), len(conversation)
