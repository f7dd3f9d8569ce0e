"""Which system calls are handled on each architecture, including calls that this one does not have."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.kernel.seccomp import syscall_numbers
from swink_agent.sandbox.landlock.caller import CallServices, Umasks
from swink_agent.sandbox.landlock.filter import base_program, notify_program, served_calls
from swink_agent.sandbox.landlock.opens import Opens
from swink_agent.sandbox.landlock.paths import PathVerdicts, Resolver
from swink_agent.sandbox.landlock.supervisor import Supervisor
from swink_agent.sandbox.landlock.tree import Entry, ProcessTree
from swink_agent.sandbox.repositories.admission import Admissions


class Asked(kernel.Listener):
    """A kernel that asks once, about this very process, and keeps the answer."""

    def __init__(self) -> None:
        self.question: tuple[int, ...] | None = None
        self.answers: list[tuple[str, int]] = []

    def receive(self) -> tuple[int, ...] | None:
        return self.question

    def is_valid(self, identifier: int) -> bool:
        return True

    def answer(self, identifier: int, value: int = 0, code: int = 0) -> None:
        self.answers.append(("failed", code) if code else ("done", value))

    def let_run(self, identifier: int) -> None:
        self.answers.append(("runs", 0))

    def hand_over(self, identifier: int, descriptor: int, flags: int) -> None:
        self.answers.append(("opened", os.fstat(descriptor).st_ino))


class Childless(ProcessTree):
    """A tree without processes, whatever the process that runs the tests has started for others."""

    def descendants(self) -> list[Entry]:
        return []

    def reap(self) -> bool:
        return False


AskFn = Callable[..., tuple[str, int]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskFn]:
    """Asks the supervisor about a call of x86_64 by its name; strings and bytes become addresses of theirs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    calls = served_calls()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    umask = os.umask(0o022)
    listener = Asked()
    root = str(tmp_path.resolve())
    path_verdicts = PathVerdicts(write=[root], private=[], closed=[f"{root}/closed"], hidden_inside=[])
    resolver = Resolver()
    services = CallServices(listener, resolver, path_verdicts, kernel.ForeignMemory(), resolver.root)
    umasks = Umasks(0o022)
    tree = Childless()
    supervisor = Supervisor(
        services, calls, Opens(services, umasks, {}, judges_reads=False), umasks, tree, Admissions(())
    )
    numbers = {name: number for number, name in calls.items()}

    def ask_one(name: str, *arguments: str | bytes | int) -> tuple[str, int]:
        kept = [
            ctypes.create_string_buffer(os.fsencode(item)) if isinstance(item, (str, bytes)) else item
            for item in arguments
        ]
        registers = [
            ctypes.addressof(item) if isinstance(item, ctypes.Array) else item & (1 << 64) - 1 for item in kept
        ]
        registers += [0] * (6 - len(registers))
        listener.question = (1, os.getpid(), 0, numbers[name], 0, 0, *cast("list[int]", registers))
        supervisor.serve()
        return listener.answers.pop()

    yield ask_one
    os.close(resolver.root)
    os.umask(umask)


def test_the_calls_that_only_one_machine_has_are_served(ask: AskFn, tmp_path: Path) -> None:
    done = ("done", 0)
    assert ask("mkdir", "d", 0o777) == done
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o755
    assert ask("creat", "d/f", 0o666)[0] == "opened"
    assert ask("open", "d/f", os.O_WRONLY, 0) == ("opened", (tmp_path / "d/f").stat().st_ino)
    assert ask("mknod", "d/n", stat.S_IFIFO | 0o600, 0) == done
    assert stat.S_ISFIFO((tmp_path / "d/n").stat().st_mode)
    assert ask("symlink", "d/f", "l") == done
    assert ask("link", "d/f", "h") == done
    assert ask("rename", "h", "d/h") == done
    assert ask("chmod", "l", 0o640) == done
    assert stat.S_IMODE((tmp_path / "d/f").stat().st_mode) == 0o640
    assert ask("chown", "l", os.getuid(), -1) == done
    assert ask("lchown", "l", -1, -1) == done
    assert ask("utime", "l", struct.pack("=2q", 11, 22)) == done
    assert (tmp_path / "d/f").stat().st_mtime_ns == 22_000_000_000
    assert ask("utimes", "l", struct.pack("=4q", 1, 2, 3, 4)) == done
    assert (tmp_path / "d/f").stat().st_mtime_ns == 3_000_004_000
    assert ask("futimesat", -100, "l", struct.pack("=4q", 5, 6, 7, 8)) == done
    assert (tmp_path / "d/f").stat().st_atime_ns == 5_000_006_000
    assert ask("utimes", 0, 0) == ("failed", 14)
    assert ask("truncate", "d/f", 5) == done
    assert (tmp_path / "d/f").stat().st_size == 5
    assert ask("unlink", "d/f") == done
    assert ask("unlink", "d/f") == ("failed", 2)
    assert ask("rmdir", "d") == ("failed", 39)
    assert sorted(os.listdir(tmp_path / "d")) == ["h", "n"]


def test_the_same_calls_are_refused_where_nothing_may_change(ask: AskFn, tmp_path: Path) -> None:
    (tmp_path / "closed").write_text("kept")
    before = (tmp_path / "closed").stat()
    refused = ("failed", 30)
    for name, arguments in {
        "open": ("closed", os.O_RDWR, 0),
        "creat": ("closed", 0o777),
        "chmod": ("closed", 0o777),
        "chown": ("closed", -1, -1),
        "utime": ("closed", 0),
        "utimes": ("closed", 0),
        "truncate": ("closed", 0),
        "unlink": ("closed",),
        "rename": ("closed", "x"),
        "link": ("closed", "x"),
    }.items():
        assert ask(name, *arguments) == refused, name
    assert ask("mkdir", "closed", 0) == ("failed", 17)
    assert ask("chmod", "/etc/passwd", 0o777) == ("failed", 1)
    assert (tmp_path / "closed").read_text() == "kept"
    assert (tmp_path / "closed").stat().st_mtime_ns == before.st_mtime_ns


def test_groups_may_be_made(ask: AskFn) -> None:
    assert ask("setsid") == ask("setpgid", 0, 0) == ("runs", 0)


def test_a_strange_call_or_address_is_answered_and_harmless(ask: AskFn) -> None:
    assert ask("open", 8, os.O_WRONLY, 0) == ("failed", 14)
    assert ask("open", "x" * 5000, os.O_WRONLY, 0) == ("failed", 36)
    assert ask("open", "", os.O_WRONLY, 0) == ("failed", 2)
    assert ask("unlinkat", 9999, "x", 0) == ("failed", 9)
    assert ask("renameat2", -100, "a", -100, "b", 0xFF) == ("failed", 22)
    assert ask("setxattr", "/", "user.x", "", 1 << 40, 0) == ("failed", 7)
    assert ask("kill", 1, 9) == ("failed", 1)
    assert ask("kill", -os.getpgid(os.getpid()), 0) == ("failed", 1)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_call_that_is_asked_about_has_an_answer(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    nothing = cast("Any", None)
    Supervisor(nothing, served_calls(), nothing, nothing, nothing, nothing)  # raises for one without
    numbers = syscall_numbers(machine)
    for scopes in (True, False):
        for judges_reads in (True, False):
            program = notify_program(scopes=scopes, judges_reads=judges_reads)
            asked = {name for name, number in numbers.items() if number in _notified(program)}
            assert asked <= set(served_calls().values())
            assert ("kill" in asked) is not scopes
            assert "connect" not in asked
    proxied = _notified(notify_program(scopes=True, judges_reads=False, proxied=True))
    assert numbers["connect"] in proxied
    assert len(base_program(network=False)) % 8 == 0


def _notified(program: bytes) -> set[int]:
    """The numbers that the filter compares with and then has a notification for."""
    found: set[int] = set()
    items = list(struct.iter_unpack("<HBBI", program))
    for index, (code, _, no, operand) in enumerate(items):
        if code == 0x15 and any(
            item[0] == 0x06 and item[3] == 0x7FC00000 for item in items[index + 1 : index + 1 + no]
        ):
            found.add(operand)
    return found


def test_an_unknown_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.numbers.cache_clear()
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    try:
        with pytest.raises(OSError, match="the system calls of pdp11 are not supported"):
            kernel.numbers()
    finally:
        kernel.numbers.cache_clear()


@pytest.mark.parametrize("has_call", [True, False])
def test_a_path_is_opened_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_call: bool) -> None:
    """By one call of the kernel or, where there is none, step by step."""

    def missing(*_: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    if not has_call:
        monkeypatch.setattr(kernel.Openat2, "open", missing)
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder/last").symlink_to("inner")
    before = len(os.listdir("/proc/self/fd"))
    found = kernel.open_without_links(str(tmp_path / "folder/inner"))
    assert os.path.samestat(os.fstat(found), os.stat(tmp_path / "folder/inner"))
    os.close(found)
    for name, code in (("link/inner", errno.ELOOP), ("folder/last", errno.ELOOP), ("folder/none", errno.ENOENT)):
        with pytest.raises(OSError) as error:  # noqa: PT011 - the number is compared
            kernel.open_without_links(str(tmp_path / name))
        assert error.value.errno == code
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_that_may_not_be_read_is_still_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of other users' processes in `/proc`; also where the path is opened step by step."""

    def missing(*_: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    def unreadable(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(kernel.Openat2, "open", missing)
    monkeypatch.setattr(os, "readlink", unreadable)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError) as error:  # noqa: PT011 - the number is compared
        kernel.open_without_links(str(tmp_path))
    assert error.value.errno == errno.ELOOP
    assert len(os.listdir("/proc/self/fd")) == before
