"""The back end for macOS: `sandbox-exec` with a profile in its own language.

In that language the last matching rule wins, so permissions come first and exceptions follow.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .errors import SandboxError
from .places import check_folders
from .plain import PlainSandbox
from .profile import SandboxProfile, is_beneath
from .protected import existing, protected_paths

if TYPE_CHECKING:
    from .network.serving import SharedProxy

_PROGRAM = "/usr/bin/sandbox-exec"
_BACKLOG = 128
_SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/opt", "/etc", "/private/etc", "/System", "/Library", "/Applications", "/dev"),
    *("/private/var/db", "/private/var/select", "/var/select", "/nix"),
)
_SERVICES = (
    *("com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership"),
    *("com.apple.system.notification_center", "com.apple.system.logger", "com.apple.logd", "com.apple.trustd.agent"),
    *("com.apple.bsd.dirhelper", "com.apple.SystemConfiguration.configd", "com.apple.mDNSResponder"),
)


def seatbelt_profile(
    profile: SandboxProfile, temporary: str, protected: Iterable[str] = (), proxy: int | None = None
) -> str:
    """The rules of `profile` in the language of `sandbox-exec`; `temporary` may be written too.

    `proxy`: without `profile.network`, commands may connect to this port at `localhost`, and to nothing else.
    """
    roots = (*profile.write, os.path.realpath(temporary))
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork process-exec)",
        "(allow process-info* (target same-sandbox))",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read ipc-posix-sem ipc-posix-shm pseudo-tty)",
        f"(allow mach-lookup {' '.join(f'(global-name {_quoted(name)})' for name in _SERVICES)})",
        "(allow file-read-metadata)",
        "(allow file-read*)"
        if profile.read is None
        else f'(allow file-read* (literal "/") {_subpaths((*_SYSTEM_FOLDERS, *profile.read, *roots))})',
        *_closed_homes(profile, roots),
        f"(allow file-write* {_subpaths(roots)})",
        '(allow file-write-data file-ioctl (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty")'
        ' (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))',
    ]
    read_only = tuple(protected)
    if read_only:
        lines.append(f"(deny file-write* {_subpaths(read_only)})")
    # Renaming a folder on the way would move what is protected.
    if ways := _on_the_way((*read_only, *profile.hidden_paths()), profile.write):
        lines.append(f"(deny file-write-unlink {' '.join(f'(literal {_quoted(path)})' for path in ways)})")
    hidden = tuple(dict.fromkeys(path for entry in profile.hidden for path in (entry, os.path.realpath(entry))))
    if hidden:
        lines.append(f"(deny file-read* file-write* {_subpaths(hidden)})")
    if profile.network:
        lines += ["(allow network* system-socket)", "(deny network* (remote unix-socket) (local unix-socket))"]
    elif proxy is not None:
        lines.append(f'(allow network-outbound (remote ip "localhost:{proxy}"))')
    return "\n".join(lines) + "\n"


def _closed_homes(profile: SandboxProfile, roots: Sequence[str]) -> list[str]:
    """Rules for home folders of which only a part may be read."""
    homes = profile.closed_homes()
    if not homes:
        return []
    read = (*profile.home, *map(os.path.realpath, profile.home), *roots)
    return [
        f"(deny file-read-data file-read-xattr {_subpaths(homes)})",
        f"(allow file-read* {_subpaths(dict.fromkeys(read))})",
    ]


class SeatbeltSandbox(PlainSandbox):
    """Commands under `sandbox-exec`."""

    backend = "sandbox-exec"

    def __init__(self, profile: SandboxProfile) -> None:
        if not os.access(_PROGRAM, os.X_OK):
            raise SandboxError(f"{_PROGRAM} does not exist")
        check_folders(profile)
        super().__init__(profile)
        self._protected: dict[str, None] = {}
        self._read_only: list[str] = []
        self._listener: socket.socket | None = None
        if profile.proxied_hosts:
            # In the machine's network, where other programs reach it too: only commands know the token.
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._proxy: SharedProxy | None = None

    def command_line(self, argv: Sequence[str]) -> list[str]:
        self._protected.update(dict.fromkeys(protected_paths(self.profile)))
        self._read_only = existing(self._protected)
        port = None if self._listener is None else self._listener.getsockname()[1]
        text = seatbelt_profile(self.profile, self._private.path, self._read_only, port)
        return [_PROGRAM, "-p", text, *argv]

    def read_only(self) -> Sequence[str]:
        return self._read_only

    def proxy(self) -> SharedProxy | None:
        if self._proxy is None and self._listener is not None:
            from .network.serving import SharedProxy

            token = secrets.token_urlsafe(24)
            self._proxy = SharedProxy(self.profile.proxied_hosts, self.ways_out, self._listener, token)
        return self._proxy

    def close(self) -> None:
        super().close()
        if self._listener is not None and not self._is_a_fork:
            self._listener.close()


def _on_the_way(paths: Iterable[str], roots: Sequence[str]) -> list[str]:
    """The folders between a root and each of the paths beneath it."""
    found: dict[str, None] = {}
    for path in paths:
        for root in roots:
            folder = os.path.dirname(path)
            while folder != root and is_beneath(folder, root):
                found[folder] = None
                folder = os.path.dirname(folder)
    return list(found)


def _subpaths(paths: Iterable[str]) -> str:
    return " ".join(f"(subpath {_quoted(path)})" for path in paths)


def _quoted(text: str) -> str:
    """A string in the profile language, in which only the quote and the backslash are special."""
    if "\0" in text:
        raise SandboxError("a path cannot contain a zero byte")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
