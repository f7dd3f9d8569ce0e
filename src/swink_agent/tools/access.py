"""Checks a command's request for access beyond the usual sandbox, and opens the wider sandboxes for it.

A request has a normal form: people see it, and an approval is bound to it. `approvals` decides who is asked, and which
approvals last longer. How a sandbox confines is in `sandbox`.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from swink_agent.core.approval import ACCESS, LONGEST_REASON, REASON
from swink_agent.core.errors import ToolError
from swink_agent.core.machine.files import identity_of
from swink_agent.core.values.value import Value
from swink_agent.rendering.escaping import safe_display
from swink_agent.sandbox import Sandbox, SandboxClosed, SandboxError, SandboxProfile, open_unconfined
from swink_agent.sandbox.kernel.mounts import real_paths
from swink_agent.sandbox.names import OWN_PROGRAM
from swink_agent.sandbox.process import fingerprint_of
from swink_agent.sandbox.profile import home_folders, is_beneath, own_paths, runs_as_a_whole, runs_at_home

from ._confined import OpenSandboxFn, opened_alike

_MOST_HOSTS = _MOST_FOLDERS = 20
_LONGEST_PATH = 1000
_MOST_OPEN = 8
"""Wider sandboxes that are open at once. A new one replaces the idle one that was not used for longest."""
_MOST_PROFILES = 64
_OF_THE_KERNEL = ("/proc", "/sys", "/dev")
_NAME_SOCKETS = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_TTY", "GNUPGHOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "KUBECONFIG", "PGHOST", "DISPLAY"),
    *("WAYLAND_DISPLAY", "XAUTHORITY"),
)
"""Variables that name places, and no secrets."""

ACCESS_SCHEMA: dict[str, Any] = {
    ACCESS: {
        "type": "object",
        "description": (
            "What this command needs beyond the sandbox. The user is asked each time, so ask only for what a command "
            "was refused or clearly needs, and for all of it at once."
        ),
        "properties": {
            "network": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "boolean"}],
                "description": "The hosts to reach, such as pypi.org or *.example.org:8443; true for any, unfiltered.",
            },
            "write": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Folders outside to write in, or read-only names in the workspace, such as .vscode.",
            },
            "read": {"type": "array", "items": {"type": "string"}, "description": "Folders that are hidden, to read."},
            "sandbox": {
                "type": "boolean",
                "description": "false, and nothing else: to run without the sandbox, for docker, an agent's socket or "
                "a signed commit.",
            },
        },
        "additionalProperties": False,
    },
    REASON: {
        "type": "string",
        "maxLength": LONGEST_REASON,
        "description": "Why access is needed, in one sentence, for the user who decides.",
    },
}
"""The arguments of a command that asks for access."""


class Access(Value, frozen=True, kw_only=True):
    """The access of one command beyond the usual sandbox, in its normal form.

    Hosts are in lower case, folders absolute with their links resolved.
    """

    leaves_sandbox: bool = False
    network: bool = False
    hosts: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The normal form, as it is shown to people."""
        if self.leaves_sandbox:
            return {"sandbox": False}
        network: dict[str, Any] = {"network": True} if self.network else {"network": list(self.hosts)}
        return {
            **(network if self.network or self.hosts else {}),
            **({"write": list(self.write)} if self.write else {}),
            **({"read": list(self.read)} if self.read else {}),
        }


_Opened = tuple[Access, "tuple[tuple[int, int] | None, ...]"]
"""The access that a sandbox was opened for, and the identities of its folders at that time."""


class CommandAccess:
    """The access that the commands of one tool may ask for. Safe for several threads.

    `base` is the usual profile. `open_sandbox` opens the wider ones. They have the back end of the usual sandbox, are
    opened when they are first needed and are kept, at most eight. `close()` ends them.
    """

    def __init__(
        self, root: str, base: SandboxProfile, *, is_confined: bool, open_sandbox: OpenSandboxFn | None
    ) -> None:
        self._root = root
        self._base = base
        self._is_confined = is_confined
        self._open = open_sandbox
        self._opening = threading.Lock()  # held while a sandbox is opened, which takes a while
        self._lock = threading.RLock()  # reentrant: a garbage collection may take it again
        self._profiles: dict[Access, SandboxProfile] = {}
        self._kept: dict[_Opened, _Kept] = {}
        self._is_closed = False

    # -- the request -------------------------------------------------------------------------------------------

    def asked(self, arguments: Mapping[str, Any]) -> Access | None:
        """The access that a call asks for, in its normal form; `None` if it asks for none.

        Raises `ToolError` for a request that is malformed, superfluous or cannot be granted.
        """
        reason = arguments.get(REASON, "")
        if not isinstance(reason, str):
            raise ToolError("reason is not a text: say in one sentence why access is needed")
        if len(reason) > LONGEST_REASON:
            raise ToolError(f"the reason has {len(reason):,} characters: give at most {LONGEST_REASON}")
        if ACCESS not in arguments:
            return None
        if not self._is_confined:
            raise ToolError("commands run without a sandbox here, so there is no access to ask for: leave access out")
        return self._normal(arguments[ACCESS], reason)

    def _normal(self, given: object, reason: str) -> Access:
        if not isinstance(given, dict) or not given:
            raise ToolError('access is an object that is not empty, such as {"network": ["example.org"]}')
        wanted = cast("dict[str, object]", given)
        unknown = sorted(wanted.keys() - {"network", "write", "read", "sandbox"})
        if unknown:
            raise ToolError(f"access has network, write, read and sandbox, and not {', '.join(map(_shown, unknown))}")
        if "sandbox" in wanted:
            if wanted != {"sandbox": False} or wanted["sandbox"] is not False:
                raise ToolError('without the sandbox nothing is left to ask for: access is {"sandbox": false} alone')
            if not reason.strip():
                raise ToolError("a command without the sandbox needs a reason: say in one sentence why")
            return Access(leaves_sandbox=True)
        hosts = self._hosts(wanted["network"]) if wanted.get("network", True) is not True else ()
        access = Access(
            network=wanted.get("network") is True,
            hosts=hosts,
            write=self._folders(wanted, "write"),
            read=self._folders(wanted, "read"),
        )
        if access.network and self._base.network:
            raise ToolError("commands have the whole network here: leave network out of access")
        if self.profile(access).read is None:  # raises for access that no profile can give
            before = set(real_paths(self._base.hidden))
            for folder in access.read:
                if folder not in before:
                    raise ToolError(f"{_shown(folder)} can be read by every command here: leave it out of access")
        return access

    def _hosts(self, given: object) -> tuple[str, ...]:
        from swink_agent.sandbox.network.hosts import covers, host_entry  # on use: few commands ask for hosts

        named = _texts(given, "network", "hosts, or true for the whole network", _MOST_HOSTS)
        if self._base.network:
            raise ToolError("commands have the whole network here: leave network out of access")
        try:
            hosts = tuple(dict.fromkeys(map(host_entry, named)))
        except (ValueError, UnicodeError) as error:
            raise ToolError(f"access: {error}") from None
        if self._base.hosts and covers(self._base.hosts, hosts):
            raise ToolError(f"{', '.join(hosts)} can be reached by every command here: leave network out of access")
        return hosts

    # -- folders -----------------------------------------------------------------------------------------------

    def _folders(self, wanted: Mapping[str, object], kind: str) -> tuple[str, ...]:
        if kind not in wanted:
            return ()
        named = _texts(wanted[kind], kind, "folders", _MOST_FOLDERS)
        return tuple(dict.fromkeys([self._folder(path, kind) for path in named]))

    def _folder(self, path: str, kind: str) -> str:
        """The folder that a path names, with every link resolved, or a protected name beneath the command's folders."""
        if not path or "\0" in path or len(path) > _LONGEST_PATH:
            raise ToolError(f"{_shown(path)} is not a path: give a folder that exists")
        real = os.path.realpath(os.path.join(self._root, os.path.expanduser(path)))
        try:
            real.encode()
        except UnicodeEncodeError:
            raise ToolError(f"{_shown(path)} has a name that is not UTF-8: it cannot be asked for") from None
        if kind == "write" and (name := self._protected_name(real)) is not None:
            return name
        if not os.path.isdir(real):
            raise ToolError(f"{_shown(path)} is not a folder that exists: name the folder that the command needs")
        self._refuse(real, kind)
        return real

    def _protected_name(self, path: str) -> str | None:
        """The name of the table that the path is, or is in, beneath a folder that commands may write, existing or not.

        Raises `ToolError` for one that is this program's own.
        """
        from swink_agent.sandbox.names import place_of  # on use: few commands ask to write

        root = next((root for root in self._base.write if path != root and is_beneath(path, root)), None)
        parts = [] if root is None else os.path.relpath(path, root).split(os.sep)
        found = place_of(parts)
        if root is None or found is None or found[1].name not in self._base.protected:
            return None
        count, row = found
        name = os.path.join(root, *parts[:count])
        place = _Place(name)
        if row.program == OWN_PROGRAM or any(place.is_in(own) or place.holds(own) for own in self._own()):
            raise ToolError(f"{_shown(name)} has settings of this program: a command cannot have them")
        if any(map(place.is_in, (*real_paths(self._base.hidden), *self._base.own_programs()))):
            raise ToolError(f"{_shown(name)} is hidden, or this program runs from there: a command cannot have it")
        return name

    def _refuse(self, folder: str, kind: str) -> None:
        """Raises `ToolError` for a folder that no command can have."""
        shown, place = _shown(folder), _Place(folder)
        if place.holds("/"):
            raise ToolError("/ is the whole machine: name the folder that the command needs")
        if any(map(place.holds, map(os.path.realpath, home_folders()))):
            raise ToolError(f"{shown} holds the whole home folder: name the folder that the command needs")
        if any(map(place.is_in, (self._root, *self._base.write))):
            raise ToolError(f"{shown} can be used by every command here: leave it out of access")
        if any(map(place.is_in, _OF_THE_KERNEL)):
            raise ToolError(f"{shown} is the kernel's: a command cannot have it")
        if any(place.is_in(own) or place.holds(own) for own in self._own()):
            raise ToolError(f"{shown} has files of this program or files that it hides: a command cannot have them")
        if kind == "write":
            self._refuse_to_write(folder, shown, place)

    def _refuse_to_write(self, folder: str, shown: str, place: _Place) -> None:
        if any(map(place.is_in, real_paths(self._base.hidden))):
            raise ToolError(f"{shown} is hidden from commands: none can write there")
        # Prefixes such as /usr have more than programs in them: they are not refused here.
        prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
        prefixes |= set(map(os.path.realpath, prefixes))
        if any(place.is_in(path) for path in self._base.programs if path not in prefixes):
            raise ToolError(f"this program runs from {shown}: commands cannot change it")
        found_by_name = filter(os.path.isabs, self._base.environment.get("PATH", "").split(os.pathsep))
        is_found = any(map(place.is_in, map(os.path.realpath, found_by_name)))
        if is_found or runs_as_a_whole(folder) or runs_at_home(folder):
            raise ToolError(f"every file in {shown} runs at login or by its name: commands cannot write there")
        from swink_agent.sandbox.protected import read_only_around  # on use: few commands ask to write

        # Otherwise a request for a folder inside a read-only path would make it writable.
        if (protected := read_only_around(folder, self._base)) is not None:
            raise ToolError(f"{_shown(protected)} is read-only for commands: none can have {shown} alone")

    def _own(self) -> Iterable[str]:
        """The real paths that stay closed: our own files, and those that the application hides beyond the usual."""
        ours = own_paths()
        usual = frozenset(SandboxProfile().hidden) - frozenset(ours)
        besides = [path for path in self._base.hidden if path not in usual]
        return dict.fromkeys(real_paths((*ours, *besides)))

    # -- the sandbox -------------------------------------------------------------------------------------------

    def profile(self, access: Access) -> SandboxProfile:
        """The wider profile. It stays the same for the life of the tool, so that an approval stays valid."""
        with self._lock:
            known = self._profiles.get(access)
        if known is not None:
            return known
        from swink_agent.sandbox import profile_with_access

        try:
            opened = tuple(path for path in access.write if any(is_beneath(path, root) for root in self._base.write))
            outside = [path for path in access.write if path not in opened]
            profile = profile_with_access(
                self._base, hosts=access.hosts, network=access.network, write=outside, read=access.read
            )
            profile = replace(profile, opened=(*profile.opened, *opened))
        except ValueError as error:
            raise ToolError(f"access: {error}") from None
        # This has resolved the paths again: the profile must open what was asked for and nothing else.
        shown = set(self._base.hidden) - set(profile.hidden)
        if not (
            set(profile.write) <= {*self._base.write, *access.write}
            and (profile.read is None or set(access.read) <= set(profile.read))
            and set(real_paths(shown)) <= set(access.read)
        ):
            raise ToolError("a folder of access became a link meanwhile: call it again")
        with self._lock:
            while len(self._profiles) >= _MOST_PROFILES:
                del self._profiles[next(iter(self._profiles))]
            return self._profiles.setdefault(access, profile)

    def scope(self, access: Access, base: Sandbox) -> dict[str, Any]:
        """The facts that an approval is bound to: the access, the usual sandbox, and the wider one. Opens neither."""
        if access.leaves_sandbox:
            wider = fingerprint_of("off", self._base)
        else:
            wider = fingerprint_of(base.backend, self.profile(access))
        return {"access": access.as_json(), "walls": base.fingerprint, "sandbox": wider}

    def hold(self, access: Access, base: Sandbox) -> HeldSandbox:
        """The wider sandbox, which stays open until it is released. Opening it blocks: do not call in an event loop.

        Raises `SandboxError` and `ToolError`.
        """
        # Some back ends hold the folder itself: if it was deleted and made again, they need a new sandbox.
        wanted = access, tuple(map(identity_of, (*access.write, *access.read)))
        with self._opening:
            with self._lock:
                kept = self._kept.pop(wanted, None)
                if kept is not None:
                    self._kept[wanted] = kept  # the last in the order of use
                    kept.users += 1
                    return HeldSandbox(kept, self._lock)
            self._make_room()
            if access.leaves_sandbox:
                sandbox = open_unconfined(self._unconfined())
            else:
                sandbox = opened_alike(base, self.profile(access), self._open)
            with self._lock:
                if not self._is_closed:
                    # Closed at the latest when the tool is garbage collected, or the program ends.
                    kept = self._kept[wanted] = _Kept(sandbox, weakref.finalize(self, sandbox.close))
                    return HeldSandbox(kept, self._lock)
        sandbox.close()
        raise SandboxClosed("the tool was closed: make a new one to run commands")

    def _unconfined(self) -> SandboxProfile:
        """What a command without a sandbox is given: also the variables that name the sockets of the user's agents."""
        named = {name: os.environ[name] for name in _NAME_SOCKETS if name in os.environ}
        return SandboxProfile(limits=self._base.limits, environment={**self._base.environment, **named})

    def _make_room(self) -> None:
        with self._lock:
            idle = [wanted for wanted, kept in self._kept.items() if not kept.users]
            surplus = len(self._kept) - _MOST_OPEN + 1
            if surplus > len(idle):
                raise SandboxError(
                    f"commands with {_MOST_OPEN} different kinds of access run at once: wait until one has ended",
                    remedy="",
                )
            closed = [self._kept.pop(wanted) for wanted in idle[: max(surplus, 0)]]
        for kept in closed:
            kept.close()

    def close(self) -> None:
        """Ends the wider sandboxes with their commands. Idempotent."""
        with self._lock:
            self._is_closed = True
            kept, self._kept = list(self._kept.values()), {}
        for each in kept:
            each.close()


class _Place:
    """A folder, compared by path and by inode: a mount, or another spelling of a name, is the same folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._above = _identities(folder)

    def is_in(self, outer: str) -> bool:
        """Whether the folder is `outer`, which need not exist, or in it."""
        return is_beneath(self._folder, outer) or identity_of(outer) in self._above

    def holds(self, inner: str) -> bool:
        """Whether `inner` is the folder, or in it."""
        return is_beneath(inner, self._folder) or identity_of(self._folder) in _identities(inner)


def _identities(path: str) -> set[tuple[int, int]]:
    """The identities of the path and of the folders above it, as far as they exist."""
    found: set[tuple[int, int]] = set()
    while True:
        if (identity := identity_of(path)) is not None:
            found.add(identity)
        if (above := os.path.dirname(path)) == path:
            return found
        path = above


class _Kept:
    """An open sandbox, and how many commands use it."""

    def __init__(self, sandbox: Sandbox, close: Callable[[], object]) -> None:
        self.sandbox = sandbox
        self.close = close
        self.users = 1


class HeldSandbox:
    """A wider sandbox for one command. Call `release()` once the command has ended; deleting it does so too."""

    def __init__(self, kept: _Kept, lock: threading.RLock) -> None:
        self.sandbox = kept.sandbox
        self._kept: _Kept | None = kept
        self._lock = lock

    def release(self) -> None:
        """Lets the sandbox be closed for another one. Idempotent."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is not None:
                kept.users -= 1

    def __del__(self) -> None:
        self.release()


def _texts(given: object, kind: str, what: str, most: int) -> list[str]:
    """A list of texts, neither empty nor too long. Raises `ToolError`."""
    texts = cast("list[object]", given) if isinstance(given, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ToolError(f"access: {kind} is a list of {what}, and not empty")
    if len(texts) > most:
        raise ToolError(f"access: {kind} names {len(texts)} at once: ask for at most {most}")
    return cast("list[str]", texts)


def _shown(text: str) -> str:
    return safe_display(text, 200)
