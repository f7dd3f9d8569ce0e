"""System call filters, as classic BPF programs: calls that no sandboxed process may make.

Contains the rules that both Linux back ends share, the numbers of system calls and a small assembler. Installs nothing:
`build_filter` returns the bytes of a `struct sock_filter` array for bubblewrap's `--seccomp` or for `seccomp(2)`.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Sequence
from functools import cache

from swink_agent.core.values.value import Value

from ..errors import SandboxError

ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
KILL = 0x80000000

_ERRNO = 0x00050000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# struct seccomp_data: nr, arch, instruction pointer, six 64-bit arguments. Both architectures are little-endian.
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS = 0, 4, 16

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER, _JUMP_GREATER_OR_EQUAL = 0x15, 0x25, 0x35

NEWEST_NUMBER = 469
"""The newest call in the table (Linux 6.17, `file_setattr`), the same on both architectures."""

# name, number on x86_64, number on aarch64
_NUMBERS = """
_sysctl 156 -, accept 43 202, accept4 288 242, acct 163 89, add_key 248 217, adjtimex 159 171, bind 49 200,
bpf 321 280, chmod 90 -, chown 92 -, chroot 161 51, clock_adjtime 305 266, clock_settime 227 112, clone 56 220,
clone3 435 435, close_range 436 436, connect 42 203, creat 85 -, create_module 174 -, delete_module 176 106,
execve 59 221, execveat 322 281, fallocate 285 47, fanotify_init 300 262, fchmod 91 52, fchmodat 268 53,
fchmodat2 452 452, fcntl 72 25, fchown 93 55, fchownat 260 54, file_setattr 469 469, finit_module 313 273, fork 57 -,
fremovexattr 199 16, fsconfig 431 431, fsetxattr 190 7, fsmount 432 432, fsopen 430 430, fspick 433 433,
ftruncate 77 46, futimesat 261 -, get_kernel_syms 177 -, get_robust_list 274 100, init_module 175 105,
io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425, ioctl 16 29, ioperm 173 -,
iopl 172 -, ioprio_set 251 30, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219,
kill 62 129, landlock_add_rule 445 445, landlock_create_ruleset 444 444, landlock_restrict_self 446 446,
lchown 94 -, link 86 -, linkat 265 37, listen 50 201, listmount 458 458, lookup_dcookie 212 18,
lremovexattr 198 15, lsetxattr 189 6, memfd_create 319 279, migrate_pages 256 238, mkdir 83 -, mkdirat 258 34,
mknod 133 -, mknodat 259 33, modify_ldt 154 -, mount 165 40, mount_setattr 442 442, move_mount 429 429,
move_pages 279 239, mq_open 240 180, mq_unlink 241 181, msgctl 71 187, msgget 68 186, msgrcv 70 188,
msgsnd 69 189, name_to_handle_at 303 264, nfsservctl 180 42, open 2 -, open_by_handle_at 304 265,
open_tree 428 428, open_tree_attr 467 467, openat 257 56, openat2 437 437, perf_event_open 298 241,
personality 135 92, pidfd_getfd 438 438, pidfd_open 434 434, pidfd_send_signal 424 424, pivot_root 155 41,
prctl 157 167, prlimit64 302 261, process_madvise 440 440, process_mrelease 448 448, process_vm_readv 310 270,
process_vm_writev 311 271, ptrace 101 117, query_module 178 -, quotactl 179 60, quotactl_fd 443 443,
reboot 169 142, removexattr 197 14, removexattrat 466 466, rename 82 -, renameat 264 38, renameat2 316 276,
request_key 249 218, rmdir 84 -, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, sched_setaffinity 203 122,
sched_setattr 314 274, sched_setparam 142 118, sched_setscheduler 144 119, seccomp 317 277, semctl 66 191,
semget 64 190, semop 65 193, semtimedop 220 192, sendmmsg 307 269, sendmsg 46 211, sendto 44 206,
setdomainname 171 162, sethostname 170 161, setns 308 268, setpgid 109 154, setpriority 141 140,
setsid 112 157, settimeofday 164 170, setxattr 188 5, setxattrat 463 463, shmat 30 196, shmctl 31 195,
shmdt 67 197, shmget 29 194, socket 41 198, socketpair 53 199, statmount 457 457, swapoff 168 225,
swapon 167 224, symlink 88 -, symlinkat 266 36, sysfs 139 -, syslog 103 116, tgkill 234 131, tkill 200 130,
truncate 76 45, umask 95 166, umount2 166 39, unlink 87 -, unlinkat 263 35, unshare 272 97, uselib 134 -,
userfaultfd 323 282, ustat 136 -, utime 132 -, utimensat 280 88, utimes 235 -, vfork 58 -, vhangup 153 58
"""


@cache
def syscall_numbers(machine: str) -> dict[str, int]:
    """The numbers by name, without calls that the architecture does not have."""
    column = {"x86_64": 1, "aarch64": 2}[machine]
    rows = (row.split() for row in _NUMBERS.replace("\n", " ").split(","))
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def fail_with(number: int) -> int:
    """The action that makes a call fail with this errno."""
    return _ERRNO | number


class Condition(Value, frozen=True):
    """`(argument & mask) == value`, or `!=` if `equal` is false, on the low 32 bits of the argument.

    The kernel reads these arguments (domains, modes, flags, ioctl commands) as 32-bit numbers, so higher bits must not
    turn a rule off. `high` compares the upper half instead, for pointers.
    """

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    equal: bool = True
    high: bool = False


class Rule(Value, frozen=True):
    """The action for a call if all conditions hold. Of several rules for one call, the first that holds wins."""

    syscall: str
    action: int
    conditions: tuple[Condition, ...] = ()


def filter_machine(machine: str | None = None) -> str:
    """The architecture to build for: this machine's. Raises `SandboxError` if it is not supported."""
    machine = machine or platform.machine()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine)
    if machine not in _AUDIT_ARCH or struct.calcsize("P") != 8:
        raise SandboxError(f"there is no system call filter for {machine!r}: x86_64 and aarch64 (64-bit) have one")
    return machine


def build_filter(rules: Iterable[Rule], *, machine: str | None = None) -> bytes:
    """The program for the rules, in their order. Calls without a rule are allowed.

    Calls of another architecture (i386 and x32 on x86_64, 32-bit ARM) kill the process; calls newer than the table fail
    with `ENOSYS`, as they would on an older kernel. Raises `SandboxError` on an architecture that has no table.
    """
    machine = filter_machine(machine)
    numbers = syscall_numbers(machine)
    program = [
        _statement(_LOAD, _AT_ARCH),
        _jump(_JUMP_EQUAL, _AUDIT_ARCH[machine], yes=1),
        _statement(_RETURN, KILL),
        _statement(_LOAD, _AT_NUMBER),
    ]
    if machine == "x86_64":
        program += [_jump(_JUMP_GREATER_OR_EQUAL, _X32_BIT, no=1), _statement(_RETURN, KILL)]
    program += [_jump(_JUMP_GREATER, NEWEST_NUMBER, no=1), _statement(_RETURN, fail_with(errno.ENOSYS))]
    grouped: dict[int, list[Rule]] = {}
    for rule in rules:
        if rule.syscall in numbers:
            grouped.setdefault(numbers[rule.syscall], []).append(rule)
        elif rule.syscall not in syscall_numbers("x86_64"):
            raise ValueError(f"the table of system calls has no {rule.syscall!r}")
    for number, group in sorted(grouped.items()):
        body = [statement for rule in group for statement in _assemble(rule)] + [_statement(_RETURN, ALLOW)]
        if len(body) > 255:
            raise ValueError(f"too many rules for one call: {group[0].syscall}")
        program += [_jump(_JUMP_EQUAL, number, no=len(body)), *body]
    program.append(_statement(_RETURN, ALLOW))
    if len(program) > 4096:
        raise ValueError(f"a filter has at most 4096 instructions, this one has {len(program)}")
    return b"".join(program)


def _assemble(rule: Rule) -> list[bytes]:
    """The rule's action after its conditions, each of which jumps to the next rule if it fails."""
    remaining = 3 * len(rule.conditions) + 1
    program: list[bytes] = []
    for condition in rule.conditions:
        remaining -= 3
        offset = _AT_ARGUMENTS + 8 * condition.argument + (4 if condition.high else 0)
        program += [_statement(_LOAD, offset), _statement(_AND, condition.mask)]
        # From here on the accumulator contains an argument; the number was already matched.
        jump = {"no": remaining} if condition.equal else {"yes": remaining}
        program.append(_jump(_JUMP_EQUAL, condition.value & condition.mask, **jump))
    return [*program, _statement(_RETURN, rule.action)]


def _statement(code: int, operand: int) -> bytes:
    return struct.pack("<HBBI", code, 0, 0, operand)


def _jump(code: int, operand: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, operand)


# -- what both back ends deny ------------------------------------------------------------------------------------

_EPERM = fail_with(errno.EPERM)
_ENOSYS = fail_with(errno.ENOSYS)

_AF_INET, _AF_INET6, _AF_NETLINK, _NETLINK_ROUTE = 2, 10, 16, 0
_SOCK_TYPE_MASK, _SOCK_STREAM, _SOCK_SEQPACKET = 0xF, 1, 5
_IPPROTO_TCP, _MSG_FASTOPEN = 6, 0x20000000
_SERVING = ("bind", "listen", "accept", "accept4")
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# ZFS, bcachefs, OCFS2 and Ceph. Some of their calls change files and folders through a descriptor opened for reading,
# and ask neither Landlock nor the mount.
_LETTERS_OF_FILE_SYSTEMS, _LETTER = (0x8300, 0xBC00, 0x6F00, 0x9700), 0xFF00
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
_S_ISUID_OR_GID = 0o6000
_O_CREAT, _O_TMPFILE = 0o100, 0o20000000
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # Linux, 32-bit uname, the old uname, and the query

_DENIED = (
    # other processes, and ways around the file system's protection
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp", "userfaultfd"),
    *("bpf", "perf_event_open", "fanotify_init", "open_by_handle_at", "lookup_dcookie"),
    # mounts and namespaces
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "mount_setattr", "open_tree", "open_tree_attr"),
    *("move_mount", "fsopen", "fsconfig", "fsmount", "fspick"),
    # the machine
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module", "query_module"),
    *("get_kernel_syms", "swapon", "swapoff", "reboot", "quotactl", "quotactl_fd", "acct", "syslog", "vhangup"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm"),
    *("modify_ldt", "uselib", "ustat", "sysfs", "_sysctl", "nfsservctl"),
    # keys of the user's session
    *("keyctl", "add_key", "request_key"),
)

_SHARED_IPC = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink"),
)
# the call, and the argument that is a mode; for calls that open, the one with their flags
_OF_MODES = (
    *(("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)),
    *(("creat", 1), ("mknod", 1), ("mknodat", 2)),
)
_F_SETLEASE, _F_SETDELEG = 1024, 1040
_OF_OPENING = (("open", 1), ("openat", 2))
# the call, and the argument that names another process; 0 means the caller
_OF_OTHER_PROCESSES = (
    *(("prlimit64", 0), ("sched_setaffinity", 0), ("sched_setscheduler", 0), ("sched_setparam", 0)),
    *(("sched_setattr", 0), ("setpriority", 1), ("ioprio_set", 1), ("migrate_pages", 0), ("move_pages", 0)),
    ("get_robust_list", 0),
)


def base_rules(
    *, network: bool, own_namespaces: bool = True, loopback: bool | None = None, proxied: bool = False
) -> tuple[Rule, ...]:
    """The calls that both back ends deny.

    `proxied`: whether a guardian answers `connect`, for processes that share the machine's network.

    `loopback`: whether the processes have their own network for IP sockets; by default they do if they have their own
    namespaces. `own_namespaces`: whether they have their own process and IPC namespaces. If not, System V IPC, message
    queues, limits and priorities of other processes are denied too, and a guardian checks the modes of files.
    """
    rules = [Rule(name, _EPERM) for name in _DENIED]
    rules += [Rule(name, _ENOSYS) for name in ("io_uring_setup", "io_uring_enter", "io_uring_register")]
    # A filter cannot see the flags of clone3. If it fails, the C library uses clone.
    rules += [Rule("clone3", _ENOSYS), Rule("clone", _EPERM, (Condition(0, 0, _NEW_NAMESPACES, equal=False),))]
    rules += [Rule("ioctl", _EPERM, (Condition(1, command),)) for command in (_TIOCSTI, _TIOCLINUX)]
    rules += [
        Rule("ioctl", fail_with(errno.ENOTTY), (Condition(1, letter, _LETTER),)) for letter in _LETTERS_OF_FILE_SYSTEMS
    ]
    # A lease on a file makes other processes that open it wait, for up to 45 seconds.
    rules += [Rule("fcntl", _EPERM, (Condition(1, command),)) for command in (_F_SETLEASE, _F_SETDELEG)]
    for kind in (_S_IFCHR, _S_IFBLK):
        rules.append(Rule("mknod", _EPERM, (Condition(1, kind, _S_IFMT),)))
        rules.append(Rule("mknodat", _EPERM, (Condition(2, kind, _S_IFMT),)))
    rules += [Rule("personality", ALLOW, (Condition(0, kind),)) for kind in _PERSONALITIES]
    rules.append(Rule("personality", _EPERM))
    rules += _socket_rules(network or (own_namespaces if loopback is None else loopback), proxied)
    rules += _mode_rules() if own_namespaces else ()
    if not own_namespaces:
        rules += [Rule(name, _EPERM) for name in _SHARED_IPC]
        rules += [Rule(name, _EPERM, (Condition(at, 0, equal=False),)) for name, at in _OF_OTHER_PROCESSES]
    return tuple(rules)


def _mode_rules() -> Sequence[Rule]:
    """Denies set-uid and set-gid modes: such a program would outlive the sandbox and give others the user's rights."""
    rules = [Rule(name, _EPERM, (Condition(at, 0, _S_ISUID_OR_GID, equal=False),)) for name, at in _OF_MODES]
    for name, flags in _OF_OPENING:
        for creates in (_O_CREAT, _O_TMPFILE):  # otherwise there is no mode, and the register has any value
            is_special = Condition(flags + 1, 0, _S_ISUID_OR_GID, equal=False)
            rules.append(Rule(name, _EPERM, (Condition(flags, creates, creates), is_special)))
    return [*rules, Rule("openat2", _ENOSYS)]  # a filter cannot see its mode


def _socket_rules(has_ip: bool, proxied: bool) -> Sequence[Rule]:
    """Denies sockets, or all but IP ones, or all but those for a proxy: Unix sockets lead to daemons with more rights.

    Netlink sockets for routes are allowed together with IP sockets. Connected pairs of sockets are always allowed,
    except pairs for datagrams.
    """
    rules: list[Rule] = []
    if has_ip:
        rules += [Rule("socket", ALLOW, (Condition(0, family),)) for family in (_AF_INET, _AF_INET6)]
        # The C library asks the kernel for the machine's addresses before it looks up a name.
        rules.append(Rule("socket", ALLOW, (Condition(0, _AF_NETLINK), Condition(2, _NETLINK_ROUTE))))
    elif proxied:
        # Plain TCP alone, because other protocols connect or send without `connect`.
        for protocol in (0, _IPPROTO_TCP):
            is_stream = Condition(1, _SOCK_STREAM, _SOCK_TYPE_MASK)
            rules.append(Rule("socket", ALLOW, (Condition(0, _AF_INET), is_stream, Condition(2, protocol))))
        rules += [Rule(name, _EPERM) for name in _SERVING]
        # With this flag, sending connects too.
        for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            rules.append(Rule(name, _EPERM, (Condition(flags, _MSG_FASTOPEN, _MSG_FASTOPEN),)))
    else:
        rules += [Rule(name, _EPERM) for name in ("connect", *_SERVING)]
    # Programs that would retry a forbidden call give up at once on an address family that is not supported.
    rules.append(Rule("socket", fail_with(errno.EAFNOSUPPORT)))
    # Socket pairs are like pipes, but datagrams can be sent from them to any Unix socket by its address.
    for kind in (_SOCK_STREAM, _SOCK_SEQPACKET):
        rules.append(Rule("socketpair", ALLOW, (Condition(1, kind, _SOCK_TYPE_MASK),)))
    rules.append(Rule("socketpair", _EPERM))
    return rules
