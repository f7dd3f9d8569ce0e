"""Derives the profile of a command with more access from the usual one.

A command that reaches the network can send out whatever it can read. So it gets a narrower `read` than others: its
folders, the system, and the folders of programs and their caches, but not the rest of the home folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec.structs import replace

from swink_agent.core.values.several import several_paths, several_texts

from .profile import SandboxProfile, is_beneath
from .reading import tool_folders


def profile_with_access(
    base: SandboxProfile,
    *,
    hosts: str | Iterable[str] = (),
    network: bool = False,
    write: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    read: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
) -> SandboxProfile:
    """The profile of commands that may do more than those of `base`.

    `hosts` are added to those of `base`; `network` opens the whole network instead. With hosts or `network`, a `base`
    that reads everything reads only its folders, those given here, the system's and `tool_folders()`. `write` and
    `read` add folders; one that is hidden is opened if it is named itself. Raises `ValueError` for a part of a hidden
    folder, and for what a profile does not accept.
    """
    hosts = several_texts(hosts, "profile_with_access(hosts=…)")
    write = several_paths(write, "profile_with_access(write=…)")
    read = several_paths(read, "profile_with_access(read=…)")
    added = [os.path.realpath(os.path.expanduser(path)) for path in (*write, *read)]
    hidden = tuple(path for path in base.hidden if path not in added and os.path.realpath(path) not in added)
    for path in added:
        for outer in hidden:
            if is_beneath(path, os.path.realpath(outer)):
                raise ValueError(f"{path!r} is in {outer!r}, which is hidden as a whole: ask for all of it")
    reached = () if network else (*base.hosts, *hosts)
    reads = base.read
    if reads is None and (network or reached):
        reads = (*base.write, *tool_folders(base.environment, outside=(*base.write, *added)))
    return replace(
        base,
        hosts=tuple(reached),
        network=base.network or network,
        write=(*base.write, *write),
        read=None if reads is None else (*reads, *read),
        home=(*base.home, *read),
        hidden=hidden,
    )
