"""The filters of a child: the rules that both Linux back ends share, and the calls that its guardian serves.

`landlock/supervisor` serves these calls.
"""

from __future__ import annotations

import errno
import os

from ..kernel.seccomp import (
    ALLOW,
    NOTIFY,
    Condition,
    Rule,
    base_rules,
    build_filter,
    fail_with,
    filter_machine,
    syscall_numbers,
)

_O_PATH = 0o10000000
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
_PR_SET_DUMPABLE = 4
_OF_A_USER = 2, 3  # PRIO_USER, IOPRIO_WHO_USER: every process of the user, also ours

_ALWAYS = (
    *("creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "truncate"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr"),
    *("removexattr", "lremovexattr", "fremovexattr", "setsid", "setpgid", "umask"),
)
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_WITHOUT = ("openat2", "setxattrat", "removexattrat", "file_setattr")
"""Calls whose arguments are in memory, where a filter cannot see them. Programs fall back to older calls."""

# Cloning and deduplicating have the same letter as calls of btrfs, which are denied: those make and remove folders
# through a descriptor opened for reading.
_CLONING = (0x40049409, 0x4020940D, 0xC0189436)
_LETTER = 0xFF00
# Flags, attributes, versions, encryption and freezing, which need only a descriptor opened for reading: those of ext4
# and most others, XFS, versions, FAT, F2FS, and btrfs.
_OF_FILE_SYSTEMS = (0x6600, 0x5800, 0x7600, 0x7200, 0xF500, 0x9400)
# FS_IOC_GETFLAGS in both widths, FS_IOC_GETVERSION, FS_IOC_FSGETXATTR
_READING = (0x80086601, 0x80046601, 0x80087601, 0x801C581F)
_SET_OWNER = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15


def base_program(*, network: bool, loopback: bool = False, proxied: bool = False) -> bytes:
    """The filter of the shared rules, for processes without their own process and IPC namespaces.

    `loopback`: the processes have their own network. `proxied`: they do not, and the guardian connects them to a proxy.
    """
    return build_filter(base_rules(network=network, own_namespaces=False, loopback=loopback, proxied=proxied))


def notify_program(*, scopes: bool, judges_reads: bool, proxied: bool = False) -> bytes:
    """The filter whose notifications go to the guardian.

    `scopes`: Landlock restricts signals, so they need no notification. `judges_reads`: all opens are judged.
    `proxied`: so are connections.
    """
    numbers = syscall_numbers(filter_machine())
    rules = [
        *(Rule(name, fail_with(errno.ENOSYS)) for name in _WITHOUT),
        *_open_rules("open", 1, judges_reads),
        *_open_rules("openat", 2, judges_reads),
        *(Rule(name, NOTIFY) for name in _ALWAYS if name in numbers),
        *([Rule("connect", NOTIFY)] if proxied else ()),
        # The guardian cannot serve a process that is not dumpable, so the call has no effect. No set-uid program runs
        # here that would need it.
        Rule("prctl", fail_with(0), (Condition(0, _PR_SET_DUMPABLE), Condition(1, 0))),
        Rule("setpriority", fail_with(errno.EPERM), (Condition(0, _OF_A_USER[0]),)),
        Rule("ioprio_set", fail_with(errno.EPERM), (Condition(0, _OF_A_USER[1]),)),
        *(Rule("ioctl", ALLOW, (Condition(1, command),)) for command in _CLONING),
        *(Rule("ioctl", ALLOW, (Condition(1, command),)) for command in _READING),
        *(Rule("ioctl", fail_with(errno.ENOTTY), (Condition(1, letter, _LETTER),)) for letter in _OF_FILE_SYSTEMS),
    ]
    if not scopes:
        rules += [Rule(name, NOTIFY) for name in _SIGNALS]
        rules.append(Rule("pidfd_send_signal", fail_with(errno.ENOSYS)))
        # A descriptor can be set to send any signal to any process of the user.
        rules += [Rule("ioctl", fail_with(errno.EPERM), (Condition(1, command),)) for command in _SET_OWNER]
        if "fcntl" in numbers:
            for command in (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX):
                rules.append(Rule("fcntl", fail_with(errno.EPERM), (Condition(1, command),)))
    return build_filter(rules)


def _open_rules(name: str, flags: int, judges_reads: bool) -> list[Rule]:
    rules = [Rule(name, ALLOW, (Condition(flags, _O_PATH, _O_PATH),)), Rule(name, NOTIFY)]
    if not judges_reads:
        rules.insert(1, Rule(name, ALLOW, (Condition(flags, 0, _WRITING | os.O_DIRECTORY),)))
    return rules


def served_calls() -> dict[int, str]:
    """The numbers on this machine of all calls that a guardian may serve."""
    numbers = syscall_numbers(filter_machine())
    return {numbers[name]: name for name in ("open", "openat", "connect", *_ALWAYS, *_SIGNALS) if name in numbers}
