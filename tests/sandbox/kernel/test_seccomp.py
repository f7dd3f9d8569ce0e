"""The system call filter: its code for both architectures, and its effect in the kernel on this one."""

from __future__ import annotations

import errno
import functools
import struct
import subprocess
import sys
from typing import Any

import pytest

from swink_agent.sandbox import SandboxError
from swink_agent.sandbox.kernel.seccomp import (
    ALLOW,
    KILL,
    NEWEST_NUMBER,
    NOTIFY,
    Condition,
    Rule,
    base_rules,
    build_filter,
    fail_with,
    filter_machine,
    syscall_numbers,
)

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = ("x86_64", "aarch64")
EPERM, ENOSYS, EAFNOSUPPORT = (fail_with(number) for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))


def judge(program: bytes, number: int, arch: int, *arguments: int) -> int:
    """What the kernel would answer: an interpreter for the few instructions that are used."""
    padded = (*arguments, *(0 for _ in range(6 - len(arguments))))
    data = struct.pack("<IIQ6Q", number, arch, 0, *(argument & (2**64 - 1) for argument in padded))
    instructions = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator = at = 0
    while True:
        code, yes, no, operand = instructions[at]
        at += 1
        match code:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, operand)[0]
            case 0x54:
                accumulator &= operand
            case 0x15:
                at += yes if accumulator == operand else no
            case 0x25:
                at += yes if accumulator > operand else no
            case 0x35:
                at += yes if accumulator >= operand else no
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def ask(
    machine: str,
    name: str,
    *arguments: int,
    network: bool = False,
    own_namespaces: bool = True,
    loopback: bool | None = None,
    proxied: bool = False,
) -> int:
    program = program_for(machine, network, own_namespaces, loopback, proxied)
    return judge(program, syscall_numbers(machine)[name], ARCH[machine], *arguments)


@functools.cache
def program_for(machine: str, network: bool, own_namespaces: bool, loopback: bool | None, proxied: bool) -> Any:
    rules = base_rules(network=network, own_namespaces=own_namespaces, loopback=loopback, proxied=proxied)
    return build_filter(rules, machine=machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_machine_and_other_processes_are_out_of_reach(machine: str) -> None:
    denied = "ptrace process_vm_readv process_vm_writev bpf perf_event_open userfaultfd mount umount2 pivot_root chroot"
    denied += " unshare setns open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr"
    denied += " open_by_handle_at keyctl add_key request_key kexec_load kexec_file_load init_module finit_module"
    denied += " delete_module swapon swapoff reboot quotactl settimeofday clock_settime clock_adjtime sethostname"
    denied += " setdomainname acct syslog pidfd_getfd lookup_dcookie fanotify_init process_madvise kcmp"
    for name in denied.split():
        assert ask(machine, name) == EPERM, name
    for name in ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"):
        assert ask(machine, name) == ENOSYS, name


@pytest.mark.parametrize("machine", MACHINES)
def test_ordinary_calls_are_allowed(machine: str) -> None:
    for name in ("openat", "execve", "unlinkat", "renameat2", "mkdirat", "fchmodat", "kill", "prctl", "memfd_create"):
        assert ask(machine, name) == ALLOW, name
    assert ask(machine, "clone", 0x1200011) == ALLOW  # fork, as the C library does it
    assert ask(machine, "clone", 0x3D0F00) == ALLOW  # a thread
    assert ask(machine, "ioctl", 0, 0x5401) == ALLOW
    assert ask(machine, "mknodat", 0, 0, 0o100644) == ALLOW
    assert ask(machine, "mknodat", 0, 0, 0o010644) == ALLOW  # a named pipe


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_where_a_call_has_two_sides_and_high_bits_change_nothing(machine: str) -> None:
    high = 1 << 40
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(machine, "clone", flag | 17) == EPERM
        assert ask(machine, "clone", high | flag | 17) == EPERM
    for command in (0x5412, 0x541C):
        assert ask(machine, "ioctl", 0, command) == EPERM
        assert ask(machine, "ioctl", 0, high | command) == EPERM
    for mode in (0o020644, 0o060644):
        assert ask(machine, "mknodat", 0, 0, mode) == EPERM
        assert ask(machine, "mknodat", 0, 0, high | mode) == EPERM
    assert ask(machine, "personality", 0xFFFFFFFF) == ALLOW
    assert ask(machine, "personality", 0x0400000) == EPERM


@pytest.mark.parametrize("own_namespaces", [True, False])
@pytest.mark.parametrize("machine", MACHINES)
def test_no_file_system_changes_files_through_a_descriptor_for_reading(machine: str, own_namespaces: bool) -> None:
    commands = {
        "the flags of a file on ZFS": 0x40088302,
        "a subvolume of bcachefs made": 0x4020BC10,
        "a subvolume of bcachefs removed": 0x4020BC11,
        "a file of OCFS2 copied": 0x40186F04,
        "the layout of a file on Ceph": 0x40289702,
    }
    for name, command in commands.items():
        for high in (0, 1 << 40):
            denied = ask(machine, "ioctl", 3, high | command, own_namespaces=own_namespaces)
            assert denied == fail_with(errno.ENOTTY), name


@pytest.mark.parametrize("machine", MACHINES)
def test_only_pairs_of_sockets_can_be_made_without_network(machine: str) -> None:
    for family in range(46):
        assert ask(machine, "socket", family, 1, loopback=False) == EAFNOSUPPORT
        assert ask(machine, "socket", (1 << 40) | family, 1, own_namespaces=False) == EAFNOSUPPORT
    for name in ("connect", "bind", "listen", "accept", "accept4"):
        assert ask(machine, name, loopback=False) == EPERM
    for kind in range(1, 11):
        for flags in (0, 0o2000000, 0o4000, 1 << 40):
            assert ask(machine, "socketpair", 1, kind | flags) == (ALLOW if kind in (1, 5) else EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_in_a_network_of_their_own_there_are_sockets_of_ip_alone(machine: str) -> None:
    allowed = {family for family in range(46) if ask(machine, "socket", family, 1, 1) == ALLOW}
    assert allowed == {2, 10}
    assert ask(machine, "socket", (1 << 40) | 1, 1) == EAFNOSUPPORT


@pytest.mark.parametrize("machine", MACHINES)
def test_in_front_of_a_proxy_there_is_plain_tcp_that_only_the_guardian_connects(machine: str) -> None:
    def ask_it(name: str, *arguments: int) -> int:
        return ask(machine, name, *arguments, own_namespaces=False, loopback=False, proxied=True)

    for family in range(46):
        for kind in range(1, 11):
            for protocol in (0, 6, 17, 132, 262):
                allowed = (family, kind) == (2, 1) and protocol in (0, 6)
                assert ask_it("socket", family, kind, protocol) == (ALLOW if allowed else EAFNOSUPPORT)
    assert ask_it("socket", 2, 1 | 0o2004000, 0) == ALLOW  # that closes on exec, and does not block
    assert ask_it("connect") == ALLOW  # the other filter asks about it
    for name in ("bind", "listen", "accept", "accept4"):
        assert ask_it(name) == EPERM
    for name, at in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        assert ask_it(name, *[0] * at, 0x4000) == ALLOW
        assert ask_it(name, *[0] * at, 0x20004000) == EPERM
        assert ask_it(name, *[0] * at, (1 << 40) | 0x20000000) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_with_network_there_is_the_internet_and_nothing_else(machine: str) -> None:
    allowed = {family for family in range(46) if ask(machine, "socket", family, 1, 1, network=True) == ALLOW}
    assert allowed == {2, 10}
    assert ask(machine, "socket", 16, 3, 0, network=True) == ALLOW  # routes, for looking up names
    assert ask(machine, "socket", 16, 3, 15, network=True) == EAFNOSUPPORT
    assert ask(machine, "connect", network=True) == ALLOW
    assert ask(machine, "socketpair", 1, 2, network=True) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_a_command_without_namespaces_reaches_no_memory_or_process_of_others(machine: str) -> None:
    for name in ("shmget", "shmat", "semget", "msgget", "msgsnd", "mq_open"):
        assert ask(machine, name) == ALLOW
        assert ask(machine, name, own_namespaces=False) == EPERM
    assert ask(machine, "prlimit64", 0, own_namespaces=False) == ALLOW
    assert ask(machine, "prlimit64", 123, own_namespaces=False) == EPERM
    assert ask(machine, "setpriority", 0, 0, own_namespaces=False) == ALLOW
    assert ask(machine, "setpriority", 0, 123, own_namespaces=False) == EPERM


def test_other_architectures_end_the_process_and_newer_calls_do_not_exist() -> None:
    program = build_filter(base_rules(network=False), machine="x86_64")
    assert judge(program, 1, ARCH["aarch64"]) == KILL
    assert judge(program, 1, 0x40000003) == KILL  # i386
    assert judge(program, 0x40000000 | 1, ARCH["x86_64"]) == KILL  # x32
    assert judge(program, 0x40000000, ARCH["x86_64"]) == KILL
    assert judge(program, 0xFFFFFFFF, ARCH["x86_64"]) == KILL
    for machine in MACHINES:
        program = build_filter((), machine=machine)
        assert judge(program, 1, 0x40000028) == KILL  # 32-bit ARM
        assert judge(program, NEWEST_NUMBER, ARCH[machine]) == ALLOW
        assert judge(program, NEWEST_NUMBER + 1, ARCH[machine]) == ENOSYS
        assert judge(program, 512, ARCH[machine]) == ENOSYS


def test_of_several_rules_for_one_call_the_first_that_holds_wins() -> None:
    rules = (
        Rule("openat", NOTIFY, (Condition(2, 0, 0o3, equal=False), Condition(0, 5))),
        Rule("openat", EPERM, (Condition(2, 0o100, 0o100),)),
        Rule("kill", EPERM, (Condition(4, 0, equal=False, high=True),)),
    )
    for machine in MACHINES:
        program = build_filter(rules, machine=machine)
        openat = syscall_numbers(machine)["openat"]
        assert judge(program, openat, ARCH[machine], 5, 0, 0o101) == NOTIFY
        assert judge(program, openat, ARCH[machine], 6, 0, 0o101) == EPERM
        assert judge(program, openat, ARCH[machine], 5, 0, 0o100) == EPERM
        assert judge(program, openat, ARCH[machine], 5, 0, 0) == ALLOW
        kill = syscall_numbers(machine)["kill"]
        assert judge(program, kill, ARCH[machine], 0, 0, 0, 0, 1 << 32) == EPERM
        assert judge(program, kill, ARCH[machine], 0, 0, 0, 0, 1) == ALLOW


def test_a_call_of_another_architecture_has_no_rule_and_an_unknown_one_is_an_error() -> None:
    assert build_filter((Rule("open", EPERM),), machine="aarch64") == build_filter((), machine="aarch64")
    with pytest.raises(ValueError, match="no_such_call"):
        build_filter((Rule("no_such_call", EPERM),), machine="aarch64")


def test_an_unknown_machine_has_no_filter() -> None:
    assert filter_machine("AMD64") == "x86_64"
    assert filter_machine("arm64") == "aarch64"
    with pytest.raises(SandboxError, match="riscv64"):
        build_filter((), machine="riscv64")


def test_the_numbers_are_those_of_the_kernel() -> None:
    """A sample from each end of the tables, from the kernel's own lists."""
    x86, arm = syscall_numbers("x86_64"), syscall_numbers("aarch64")
    assert {name: x86[name] for name in ("open", "socket", "ptrace", "mount", "keyctl", "openat", "bpf", "clone3")} == {
        "open": 2,
        "socket": 41,
        "ptrace": 101,
        "mount": 165,
        "keyctl": 250,
        "openat": 257,
        "bpf": 321,
        "clone3": 435,
    }
    assert {
        name: arm[name] for name in ("mount", "openat", "ptrace", "socket", "keyctl", "clone", "bpf", "clone3")
    } == {
        "mount": 40,
        "openat": 56,
        "ptrace": 117,
        "socket": 198,
        "keyctl": 219,
        "clone": 220,
        "bpf": 280,
        "clone3": 435,
    }
    assert "open" not in arm
    assert len(set(x86.values())) == len(x86)
    assert len(set(arm.values())) == len(arm)


INSTALLED = """
import ctypes, sys
program = bytes.fromhex(sys.stdin.read())
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program)), 0, 0) == 0
import os, socket
def failure(call, *arguments):
    try: call(*arguments)
    except OSError as error: return error.errno
    return 0
pair = socket.socketpair()
pair[0].send(b"x")
print(failure(socket.socket), failure(socket.socket, socket.AF_UNIX), failure(os.chroot, "/"), pair[1].recv(1))
print(failure(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM), failure(os.mkfifo, "/dev/null"))
print(libc.syscall(470), ctypes.get_errno(), libc.syscall(435, 0, 0), ctypes.get_errno())
sys.stdout.flush()
print(os.waitstatus_to_exitcode(os.system("exit 3")))
"""


def test_the_kernel_takes_it_and_does_what_it_says() -> None:
    program = build_filter(base_rules(network=False, own_namespaces=False))
    done = subprocess.run(
        [sys.executable, "-I", "-c", INSTALLED], input=program.hex(), capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["97 97 1 b'x'", "1 17", "-1 38 -1 38", "3"], done.stderr
