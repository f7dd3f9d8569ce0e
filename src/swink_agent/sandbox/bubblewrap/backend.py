"""The bubblewrap back end: namespaces and a system call filter.

Builds the arguments of `bwrap` and manages what it starts. `open` finds out whether it works on this machine.

    bwrap          ours; waits for the command
    └── 1          first of a process namespace: when it dies, the kernel kills all the others
        └── 2      the command

Everything is mounted anew for each command, as the disk is then. Hidden paths are covered. Protected ones that exist
are read-only. What a command makes at a missing one is judged afterwards.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import SandboxError
from ..kernel.mounts import MountList, is_in, mounted_again
from ..kernel.process_tree import Watch
from ..kernel.seccomp import base_rules, build_filter
from ..places import check_folders, exists
from ..private import PrivateFolder
from ..process import Sandbox, SandboxedProcess, SpawnRequest
from ..profile import SandboxProfile, is_beneath
from ..programs import find_program, way_to
from ..protected import Protected, Protection, protected_now, protected_paths, settings_among
from ..starting import run_program
from .command import END_DEADLINE, BubblewrapCommand
from .renames import Renames, can_ask_about_renames
from .shared_network import SharedNetwork
from .writes import VARIABLES, WriteRules, find_perl

if TYPE_CHECKING:
    from ..network.entering import NamespaceHelper

INSTALL = "apt install bubblewrap, dnf install bubblewrap or pacman -S bubblewrap"

_SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/snap"),
    *("/sys", "/var/lib/dpkg", "/run/current-system", "/run/systemd/resolve", "/run/opengl-driver"),
)
_SEARCH_AGAIN_AFTER = 30.0
_LOOK_AT_HOME_AGAIN = 2.0
_COARSE = 50_000_000
"""Nanoseconds by which the time of a folder may lag the clock. Within them, a second change may keep the same time."""
_States = tuple["tuple[int, int, int] | None", ...]
_TMP = "/tmp"


def find_bubblewrap(profile: SandboxProfile, path: str | None = None) -> str | None:
    """The first `bwrap` on the path that no sandboxed process could have put there."""
    folders = None if path is None else [*path.split(os.pathsep), "/usr/bin", "/bin"]
    return find_program("bwrap", outside=profile.write, folders=folders)


class BubblewrapSandbox(Sandbox):
    """Runs each command in its own namespaces. Raises `SandboxError` if the sandbox cannot be built."""

    backend = "bubblewrap"

    def __init__(
        self, profile: SandboxProfile, *, program: str | None = None, beside: BubblewrapSandbox | None = None
    ) -> None:
        """`beside`: a sandbox whose background commands are in the same network as those of this one."""
        super().__init__(profile)
        found = program or find_bubblewrap(profile)
        if found is None:
            raise _without_program()
        check_folders(profile)
        self._program = found
        self._perl = find_perl(profile.write)
        self._empty_folder = _empty_folder_arguments(found, profile.write)
        self._hidden = _HiddenNow(profile)
        self._asks = can_ask_about_renames(found)
        self._filter = build_filter(base_rules(network=profile.network))
        self._own = profile.protected_names()
        self._protected: dict[str, None] = {}
        self._searched = -_SEARCH_AGAIN_AFTER
        self._known_inside: tuple[Sequence[str], frozenset[str]] = [], frozenset()
        protected_now(profile.write, self._own, (), frozenset(self._own))  # raises now if something cannot be protected
        self._private = PrivateFolder(avoid=profile.write)
        # If /tmp itself may be written or read, commands see the machine's /tmp.
        is_own = _TMP not in (*profile.write, *(profile.read or ()))
        self._temporary = _TMP if is_own else self._private.path
        self._way_through_tmp = self._folders_on_the_way() if is_own else []
        self._nothing = os.path.join(self._private.own, "nothing")
        os.close(os.open(self._nothing, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
        self._running: set[BubblewrapCommand] = set()
        # Even if the sandbox is never closed, commands are killed and the folder is removed.
        self._finalizer = weakref.finalize(self, _end, self._running, self._private, os.getpid())
        self._watch = Watch()
        self._helper: NamespaceHelper | None = None
        if profile.proxied_hosts:
            from ..network.entering import NamespaceHelper

            self._helper = NamespaceHelper(profile.write)
            weakref.finalize(self, self._helper.close)
        self._has_own_network = beside is None
        self.network = SharedNetwork() if beside is None else beside.network
        self._mounts = MountList()
        weakref.finalize(self, self._mounts.close)
        self._places: tuple[object, object, list[str]] = ((), (), [])
        self._closed_homes = profile.closed_homes()
        self._at_home: Sequence[str] = ()
        self._seen_at_home: Sequence[str] = ()
        self._looked_at_home = -_LOOK_AT_HOME_AGAIN
        self._covers: tuple[object, dict[str, list[str]]] = ((), {})
        """The hidden paths of the last look, and the mounts that cover each."""

    async def _start(self, request: SpawnRequest) -> tuple[SandboxedProcess, Sequence[str]]:
        write = (*self.profile.write, self._private.path)
        command = BubblewrapCommand(self.profile.limits, self._watch, self._ended, write)
        self._running.add(command)
        try:
            with self._starting:
                self._check_open()  # from here on, closing the sandbox kills the command
                if not self.profile.network:
                    command.entrance = self.network.entrance()
                    command.keeps = self.network if request.background else None
                at_home = self._read_at_home()
                hidden = self._hidden_now(at_home)
                protected = self._protected_now(hidden)
                arguments = [*self._mounted(command, hidden, protected, at_home), "--chdir", request.cwd]
                read_only = [name.path for name in protected if name.kind is Protection.READ_ONLY]
            if self._helper is not None:
                from ..network.entering import CommandProxy

                command.proxy = CommandProxy(self._helper, self.profile.proxied_hosts, self.ways_out)
            proxy = None if command.proxy is None else command.proxy.variables
            variables = self.child_environment(self._temporary, request.environment, proxy)
            if self._perl is not None:
                command.writes = self._write_rules(self._perl, command)
                variables |= VARIABLES
            if self._asks and (settings := settings_among(read_only, self.profile)):
                command.renames = Renames(settings, self.profile.write)
            return await command.start(self._program, arguments, self._filter, variables, request), read_only
        except BaseException:
            command.abandon()
            raise

    def close(self) -> None:
        if not self._begin_to_close():
            return
        self._finalizer()
        self._watch.close()
        if self._has_own_network:
            self.network.close()
        self._mounts.close()
        if self._helper is not None:
            self._helper.close()

    def _ended(self, command: BubblewrapCommand) -> None:
        self.network.leave(command)
        self._running.discard(command)

    def _write_rules(self, perl: str, command: BubblewrapCommand) -> WriteRules:
        """The rules for what the command may write. Its folders have been opened."""
        private = os.open(self._private.path, os.O_PATH | os.O_CLOEXEC)
        try:
            return WriteRules(perl, (*map(command.mounted.descriptor, self.profile.write), private))
        finally:
            os.close(private)

    # -- what a command sees -------------------------------------------------------------------------------------

    def _hidden_now(self, at_home: Sequence[str]) -> list[str]:
        """The hidden paths to cover. `at_home`: what commands see of home folders."""
        paths, mounts = self._hidden.look(), self._mounts.now()
        if self._places[0] != paths or self._places[1] is not mounts or self._at_home != at_home:
            self._at_home = at_home
            again = [place for path in paths for place in mounted_again(path, mounts)]
            found = dict.fromkeys((*paths, *again))
            self._places = paths, mounts, [path for path in found if self._is_in_view(path) or self._is_shown(path)]
        if self._covers[0] is not paths:
            self._covers = paths, {}
        return self._places[2]

    def _inside(self, paths: Sequence[str]) -> frozenset[str]:
        """Those of the paths that are in a write root."""
        known, inside = self._known_inside
        if known != paths:
            inside = frozenset(path for path in paths if is_in(path, self.profile.write))
            self._known_inside = paths, inside
        return inside

    def _mounted(
        self, command: BubblewrapCommand, hidden: Sequence[str], protected: Iterable[Protected], at_home: Sequence[str]
    ) -> list[str]:
        """The mounts, outer before inner: a later mount covers an earlier one."""
        profile = self.profile
        mounts = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        mounts += ["--share-net"] if profile.network else []
        mounts += [] if command.entrance is None else command.entrance.arguments
        # The folders to read that are neither in a root nor in something hidden.
        others = (path for path in profile.read or () if path not in ("/dev", "/proc"))
        seen = [path for path in others if not is_in(path, (*profile.write, *hidden))]
        folders = sorted(path for path in seen if command.mounted.open(path))
        # Folders that contain /proc, /dev or /tmp are mounted before the command's own ones, all others after.
        outer = [folder for folder in folders if any(is_beneath(path, folder) for path in ("/proc", "/dev", _TMP))]
        mounts += ["--ro-bind", "/", "/"] if profile.read is None or "/" in outer else _system_folders()
        for folder in outer:
            mounts += ["--ro-bind-try", folder, folder]
        # Read-only, because root could change the kernel's settings there, even without any capability.
        mounts += ["--proc", "/proc", "--remount-ro", "/proc"]
        mounts += ["--dev", "/dev"]
        if self._temporary == _TMP:
            mounts += ["--bind", self._private.path, _TMP, *self._way_through_tmp]
        closed = [home for home in self._closed_homes if not is_in(home, ("/tmp", "/proc", "/dev"))]
        for home in closed:
            command.mounted.cover(home)
            mounts += [*self._empty_folder("0755"), home]
        for path in sorted(at_home) if closed else ():
            if not is_in(path, closed) or path in profile.write:
                continue
            if os.path.islink(path):
                mounts += ["--symlink", os.readlink(path), path]
            elif command.mounted.open(path):  # else it is gone, or leads through a link by now
                mounts += ["--ro-bind", path, path]
        for folder in folders:
            mounts += ["--ro-bind-try", folder, folder] if folder not in outer else []
        for root in sorted(profile.write):
            if not command.mounted.open(root):
                raise SandboxError(f"the write root {root!r} is missing, or leads through a link by now", remedy="")
            mounts += ["--ro-bind" if _is_sealed(root) else "--bind", root, root]
        if self._temporary != _TMP:
            mounts += ["--bind", self._private.path, self._private.path]
        for name in protected:
            # Not what is covered as a whole, or was deleted meanwhile.
            if not is_in(name.path, hidden) and command.mounted.open(name.path):
                command.keep(name.path)
                is_writable = name.kind is Protection.PINNED and not _is_sealed(name.path)
                mounts += ["--bind" if is_writable else "--ro-bind", name.path, name.path]
        covers = self._covers[1]
        for path in hidden:
            if not (cover := covers.get(path)):
                cover = covers[path] = self._cover(path)
            if cover:
                command.mounted.cover(path)
                mounts += cover
        for home in closed:
            mounts += ["--remount-ro", home]
        return mounts

    def _read_at_home(self) -> Sequence[str]:
        """What commands see of home folders, looked up again after a moment: there are more than a hundred names."""
        if self._closed_homes and time.monotonic() - self._looked_at_home > _LOOK_AT_HOME_AGAIN:
            self._seen_at_home = self.profile.read_at_home()
            self._looked_at_home = time.monotonic()
        return self._seen_at_home

    def _protected_now(self, hidden: Sequence[str]) -> tuple[Protected, ...]:
        """How the paths are protected. Those further in are searched for again after a while.

        Paths that were found once are kept: a command cannot push one out by filling a large tree.
        """
        if time.monotonic() - self._searched > _SEARCH_AGAIN_AFTER:
            self._protected.update(dict.fromkeys(protected_paths(self.profile)))
            self._searched = time.monotonic()
        known = dict.fromkeys((*self._protected, *self.profile.at_home()))
        return protected_now(self.profile.write, known, self._inside(hidden), frozenset(self._own))

    def _folders_on_the_way(self) -> list[str]:
        """Mounts of empty folders on the way to roots beneath `/tmp`.

        Commands write in the private folder, so the way to a mount point in it must not lead through a link that one of
        them made. The first folder on the way is a mount in every command, so no command can replace it.
        """
        mounts: list[str] = []
        for folder in dict.fromkeys((*self.profile.write, *(self.profile.read or ()))):
            if folder != "/tmp" and is_beneath(folder, "/tmp"):
                first = os.path.join("/tmp", os.path.relpath(folder, "/tmp").split(os.path.sep)[0])
                if first != folder and first not in mounts:
                    mounts += [*self._empty_folder("0755"), first]
        return mounts

    def _is_in_view(self, path: str) -> bool:
        """Whether the path is in a folder that the profile lets commands write or read."""
        return is_in(path, (*self.profile.write, *(self.profile.read or ())))

    def _is_shown(self, path: str) -> bool:
        """Whether commands see the path though the profile does not name its folder."""
        if is_in(path, ("/tmp", "/proc", "/dev")):
            return False  # they have their own
        if is_in(path, self._closed_homes) and not is_in(path, self._at_home):
            return False
        return self.profile.read is None or is_in(path, _SYSTEM_FOLDERS)

    def _cover(self, path: str) -> list[str]:
        """The mount that covers a hidden path with something empty; none if commands cannot read the path anyway.

        A mount is reused until something in the folder of the path changes.
        """
        try:
            state = os.lstat(path)
        except OSError:
            return []
        if stat.S_ISDIR(state.st_mode):
            return [*self._empty_folder("0000"), path]
        # Whether a process of ours without any capability can read the file, or change its mode to do so.
        may_read = state.st_uid == os.getuid() or bool(state.st_mode & 0o044)
        return ["--ro-bind", self._nothing, path] if may_read or self._is_in_view(path) else []


def _end(running: Iterable[BubblewrapCommand], private: PrivateFolder, owner: int) -> None:
    if os.getpid() == owner:  # a fork of ours that ends must not kill them
        commands = tuple(running)
        for command in commands:
            command.kill()
        deadline = time.monotonic() + END_DEADLINE
        for command in commands:
            command.abandon(deadline)
        private.close()


class _HiddenNow:
    """`look()` returns the hidden paths that exist.

    There are more than a hundred paths in a few dozen folders, and every command needs the answer. Every change in a
    folder changes its inode's time, which no command can set, so only folders are checked while they stay the same: for
    a missing folder the nearest one above it that exists, and for each all that are on the way, also through links.
    """

    def __init__(self, profile: SandboxProfile) -> None:
        self._profile = profile
        self._parents = tuple(dict.fromkeys(os.path.dirname(path) for path in profile.hidden))
        self._folders: tuple[str, ...] = ()
        self._known: tuple[_States, tuple[str, ...]] | None = None

    def look(self) -> tuple[str, ...]:
        known = self._known
        if known is not None and known[0] == tuple(map(_state, self._folders)):
            return known[1]
        began = time.time_ns()
        # The target of a link is in none of the folders that we check.
        has_links = any(map(os.path.islink, self._profile.hidden))
        self._folders = () if has_links else _on_the_way(self._parents)
        states = tuple(map(_state, self._folders))
        there = self._profile.hidden_paths()
        is_lasting = all(state is not None and state[2] < began - _COARSE for state in states)
        self._known = (states, there) if is_lasting and not has_links else None
        return there


def _on_the_way(folders: Sequence[str]) -> tuple[str, ...]:
    """The folders that exist, and those with a name on the way to one. If such a name changes, so may the real path."""
    there = dict.fromkeys(map(_nearest, folders))
    return tuple(dict.fromkeys((*there, *(os.path.dirname(place) for folder in there for place in way_to(folder)))))


def _nearest(folder: str) -> str:
    """The folder, or the nearest one above it that exists. A link that leads nowhere exists."""
    while not exists(folder):
        folder = os.path.dirname(folder)
    return folder


def _state(folder: str) -> tuple[int, int, int] | None:
    try:
        state = os.stat(folder)
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_ctime_ns


def _system_folders() -> list[str]:
    mounts: list[str] = []
    for folder in _SYSTEM_FOLDERS:
        if os.path.islink(folder):
            mounts += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            mounts += ["--ro-bind", folder, folder]
    return mounts


def _without_program() -> SandboxError:
    """Why there is no program to start: it is missing, or only where a command could have put its own."""
    inside = find_bubblewrap(SandboxProfile())
    if inside is None:
        return SandboxError("bubblewrap is not installed", remedy=INSTALL)
    return SandboxError(
        f"{inside} is in a folder that commands may write, so it is not started", remedy="work in another folder"
    )


def _empty_folder_arguments(program: str, write: Sequence[str]) -> Callable[[str], list[str]]:
    """How this version of bubblewrap mounts an empty folder with a mode."""
    try:
        said = run_program([program, "--version"], timeout=5, environ={}, outside=write).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"{program!r} does not report its version: {error}") from error
    version = tuple(map(int, re.findall(rb"\d+", said)[:2]))

    def arguments(mode: str) -> list[str]:
        size = ["--size", "4096"] if version >= (0, 6) else []
        return [*(["--perms", mode] if version >= (0, 5) else []), *size, "--tmpfs"]

    return arguments


def _is_sealed(folder: str) -> bool:
    """Whether the folder is ours but we cannot write to it. Commands get it read-only: they could change its mode."""
    try:
        return not os.access(folder, os.W_OK) and os.stat(folder).st_uid == os.geteuid()
    except OSError:  # deleted: bubblewrap will report it
        return False
