"""The paths that the Landlock rules name, and the two rulesets made of them.

Landlock can only allow, and a rule applies to everything beneath. So a path is hidden by allowing everything beside it
and beside the folders above it (the listable parents), but not the path itself. Makes that list, knows when it is out
of date, and makes the rulesets. `landlock/supervisor` does what Landlock cannot: read-only or hidden paths beneath a
writable folder. The launcher loads this module: the standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.kernel.mounts import hidden_places, is_in

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/proc", "/sys"),
    *("/nix", "/gnu", "/snap", "/run/current-system", "/var/lib", "/var/cache"),
)
"""Folders that programs need in order to run, if the profile limits what may be read."""

_NEVER = ("/dev", "/sys/kernel/debug", "/sys/kernel/tracing")
"""Devices (except those above) and the kernel's own interfaces: a raw disk shows every hidden file."""

_MOST_GRANTS = 50_000
_SURELY_OLD = 50_000_000  # nanoseconds: a change within one step of the clock leaves a folder's time as it was
_MAKES_NO_NODES = kernel.WRITES & ~(kernel.MAKE_CHAR | kernel.MAKE_BLOCK | kernel.MAKE_SOCK | kernel.IOCTL_DEV)


class Access(NamedTuple):
    """The launcher's part of a profile. All paths are absolute and, except `hidden`, real."""

    write: tuple[str, ...]
    read: tuple[str, ...] | None
    hidden: tuple[str, ...]
    private: tuple[str, ...]
    """The sandbox's own folders for temporary files: written without further checks."""
    network: bool
    homes: tuple[str, ...] = ()
    """Home folders of which only `home` may be read. Their names may be listed."""
    home: tuple[str, ...] = ()
    scopes: bool = True
    """Whether Landlock may restrict signals. Tests set it to false, to try the behaviour of older kernels."""


class Grants(NamedTuple):
    """Every path beneath which everything may be read, and the folders that were listed to find them."""

    paths: tuple[str, ...]
    listable_parents: dict[str, int]
    """Folders above something hidden, and the time of their last change when they were listed."""
    identities: dict[str, tuple[int, int]]
    """Device and number of the same folders."""
    hidden_inside: tuple[str, ...]
    """Hidden paths in a writable folder. No rule can leave them out, so the supervisor does."""
    taken: int
    """When they were listed, in nanoseconds."""

    def are_stale(self) -> bool:
        """Whether one of the listable parents changed, or may have, so that a new neighbour could not be read."""
        for folder, changed in self.listable_parents.items():
            try:
                now = os.stat(folder).st_mtime_ns
            except OSError:
                now = 0
            if now != changed or self.taken - changed < _SURELY_OLD:
                return True
        return False


class Rulesets(NamedTuple):
    """Two rulesets, as descriptors that can restrict any number of processes.

    `guardian` restricts the process that acts for the children: no writes outside the roots and `DEVICES`, no reads of
    hidden files outside the roots. `child` restricts the children further: no listing of folders that are not granted,
    no changes and no opening for writing and, where Landlock has scopes, no signals to the outside. The guardian makes
    the allowed changes for them, so a way to write that it does not know fails.
    """

    guardian: int
    child: int

    def close(self) -> None:
        kernel.close_all(self)


def find_grants(access: Access) -> Grants:
    """Lists the folders above hidden paths, and grants everything else in them."""
    places = hidden_places(access.hidden)
    hidden_inside = tuple(sorted(path for path in places if is_in(path, access.write)))
    hidden = places.difference(hidden_inside).union(_NEVER)
    above = {folder for path in (*hidden, *access.homes) for folder in _ancestors(path)}
    # The profile's paths are real already. If one leads through a link by now, it is another folder: not followed.
    tops = ("/",) if access.read is None else tuple(dict.fromkeys((*map(os.path.realpath, SYSTEM), *access.read)))
    listable_parents: dict[str, os.stat_result] = {}
    taken = time.time_ns()
    tops = (*tops, *(path for path in map(os.path.realpath, access.home) if access.homes))
    paths = islice(_beside(tops, hidden, above, access, listable_parents), _MOST_GRANTS)  # the rest is not read: safe
    return Grants(
        paths=tuple(paths),
        listable_parents={path: status.st_mtime_ns for path, status in listable_parents.items()},
        identities={path: (status.st_dev, status.st_ino) for path, status in listable_parents.items()},
        hidden_inside=hidden_inside,
        taken=taken,
    )


def _beside(
    paths: Iterable[str], hidden: set[str], above: set[str], access: Access, listable_parents: dict[str, os.stat_result]
) -> Iterator[str]:
    for path in paths:
        if path in hidden or not hidden.isdisjoint(_ancestors(path)):
            continue
        is_closed = is_in(path, access.homes) and not is_in(path, access.home)
        if is_closed and path not in access.homes:
            continue  # what may be read in a home folder is named
        if path not in above and not is_closed:
            yield path
            continue
        try:
            listable_parents[path] = os.stat(path)
            with os.scandir(path) as entries:
                inside = [entry.path for entry in entries if not entry.is_symlink()]
        except OSError:
            continue
        yield from _beside(inside, hidden, above, access, listable_parents)


def open_roots(access: Access) -> tuple[int, ...]:
    """Descriptors of the writable folders as they are now: later, a path might lead elsewhere.

    Raises `OSError` for a root that does not exist, is not a folder or leads through a link.
    """
    roots: list[int] = []
    for path in (*access.write, *access.private):
        roots.append(kernel.open_without_links(path))
        if not stat.S_ISDIR(os.fstat(roots[-1]).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return tuple(roots)


def make_rulesets(
    version: int, access: Access, grants: Grants, roots: Iterable[int], *, tcp: bool | None = None
) -> Rulesets:
    """Both rulesets, for this version of Landlock. `tcp`: whether TCP is restricted; default: without a network."""
    every = kernel.known_rights(version)
    guardian = kernel.create_ruleset(version, every & ~kernel.READ_DIR)
    scopes = kernel.SCOPE_SOCKETS | kernel.SCOPE_SIGNALS if access.scopes else 0
    child = kernel.create_ruleset(
        version,
        every & (kernel.WRITES | kernel.READ_DIR),
        tcp=not access.network if tcp is None else tcp,
        scopes=scopes,
    )
    reads = kernel.EXECUTE | kernel.READ_FILE
    for root in roots:
        kernel.add_rule(child, root, kernel.READ_DIR)
        kernel.add_rule(guardian, root, (reads | _MAKES_NO_NODES) & every)
    devices = reads | kernel.WRITE_FILE | kernel.TRUNCATE | kernel.IOCTL_DEV
    for path, rights in (*((path, reads) for path in grants.paths), *((path, devices) for path in DEVICES)):
        try:
            descriptor = kernel.open_without_links(path)
        except OSError:  # it does not exist, or became a link
            continue
        try:
            _add_for_child(child, descriptor, rights & every & kernel.IOCTL_DEV)
            kernel.add_rule(guardian, descriptor, rights & every)
        finally:
            os.close(descriptor)
    return Rulesets(guardian, child)


def _add_for_child(ruleset: int, descriptor: int, otherwise: int) -> None:
    """Lets a folder be listed. The kernel knows whether it is a folder, even if its disk does not answer."""
    try:
        kernel.add_rule(ruleset, descriptor, kernel.READ_DIR)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        if otherwise:
            kernel.add_rule(ruleset, descriptor, otherwise)


def _ancestors(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path
