"""The kernel interface of the Linux back ends: rulesets, filters, privileges, descriptors, memory of other processes.

Contains numbers, structure layouts and thin functions that raise `OSError`. Knows nothing of profiles or policy. The
launcher loads it too, so it imports the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import platform
import struct
from collections.abc import Iterable
from typing import Any, NoReturn

# The rights of a Landlock rule, by bit.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))
READS = EXECUTE | READ_FILE | READ_DIR
WRITES = (1 << 16) - 1 & ~READS
TCP = 0b11  # bind, connect
SCOPE_SOCKETS, SCOPE_SIGNALS = 1, 2

_RIGHTS_SINCE = ((5, 16), (3, 15), (2, 14), (1, 13))
"""Landlock's versions, and how many of the rights above each knows."""

O_PATH = 0o10000000
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x400, 0x1000
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 38, 36
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 28, 47, 4
_NO_ROOT_LOCKED = 0b1111 | 0b11 << 6  # root has no special rights and raises no ambient capabilities, irrevocably
_LAST_CAPABILITY = 63
_CAPABILITIES_V3 = 0x20080522

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_OPENAT2, _CLOSE_RANGE, _CLOSE_RANGE_CLOEXEC = 437, 436, 4
_BY_MACHINE = {"x86_64": (317, 126, 316), "aarch64": (277, 91, 276)}
"""seccomp, capset and renameat2, whose numbers depend on the machine."""

_SET_MODE_FILTER, _GET_NOTIFICATION_SIZES = 1, 3
NEW_LISTENER, WAIT_KILLABLE = 1 << 3, 1 << 5
NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # id, pid, flags; number, architecture, instruction pointer, arguments
_RESPONSE = struct.Struct("=QqiI")  # id, value, negative error, flags
_ADD_DESCRIPTOR = struct.Struct("=QIIII")  # id, flags, our descriptor, theirs, flags of theirs
_IDENTIFIER = struct.Struct("=Q")
_RECEIVE, _SEND, _IS_VALID, _ADD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_SET_FLAGS, _SYNC_WAKE_UP = 0x40082104, 1
_CONTINUE = 1
_ADD_AT, _ADD_AND_SEND = 1, 2
_LONGEST_PATH = 4096


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def numbers() -> tuple[int, int, int]:
    """The numbers of seccomp, capset and renameat2 on this machine. Raises `OSError` if it is not supported."""
    try:
        return _BY_MACHINE[platform.machine()]
    except KeyError:
        raise OSError(errno.ENOSYS, f"the system calls of {platform.machine()} are not supported") from None


def syscall(number: int, *arguments: Any) -> int:
    """Any system call; integers are passed at full register width."""
    prepared = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result: int = libc().syscall(ctypes.c_long(number), *prepared)
    if result == -1:
        fail()
    return result


def fail() -> NoReturn:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


def prctl(option: int, *arguments: int) -> None:
    prepared = [ctypes.c_ulong(item) for item in (*arguments, 0, 0, 0, 0)[:4]]
    if libc().prctl(ctypes.c_int(option), *prepared) == -1:
        fail()


# Landlock


def landlock_version() -> int:
    """The version of this kernel's Landlock. Raises `OSError` if it has none, or it is switched off."""
    return syscall(_CREATE_RULESET, None, 0, 1)


def known_rights(version: int) -> int:
    return next((1 << count) - 1 for since, count in _RIGHTS_SINCE if version >= since)


def create_ruleset(version: int, handled: int, *, tcp: bool = False, scopes: int = 0) -> int:
    """A descriptor of an empty ruleset that forbids `handled`, as far as this version can."""
    words = (handled & known_rights(version), TCP if tcp else 0, scopes)
    length = 3 if version >= 6 else 2 if version >= 4 else 1
    attributes = struct.pack(f"={length}Q", *words[:length])
    return syscall(_CREATE_RULESET, attributes, len(attributes), 0)


def add_rule(ruleset: int, descriptor: int, rights: int) -> None:
    """Allows `rights` for a file, or for everything beneath a folder."""
    syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)


def restrict_self(ruleset: int) -> None:
    syscall(_RESTRICT_SELF, ruleset, 0)


# Privileges


def drop_privileges() -> None:
    """Gives up every capability irrevocably, also as root, and the ways to get new ones."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for option, arguments in (
        (_PR_CAP_AMBIENT, (_PR_CAP_AMBIENT_CLEAR_ALL,)),
        (_PR_SET_SECUREBITS, (_NO_ROOT_LOCKED,)),
        *((_PR_CAPBSET_DROP, (capability,)) for capability in range(_LAST_CAPABILITY)),
    ):
        try:
            prctl(option, *arguments)
        except OSError as error:
            # A user without capabilities may not and need not change these; unknown ones do not exist.
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise
    syscall(numbers()[1], struct.pack("=Ii", _CAPABILITIES_V3, 0), bytes(24))


# Seccomp


def install_filter(program: bytes, flags: int = 0) -> int:
    """Installs a filter of `sock_filter` items for this process; with `NEW_LISTENER` the result is a descriptor."""
    items = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(items))
    return syscall(numbers()[0], _SET_MODE_FILTER, flags, header)


def install_listener(program: bytes) -> int:
    """Installs a filter and returns a descriptor from which its notifications can be read.

    Only fatal signals interrupt the caller's wait, so that it does not repeat a call that was already done for it.
    Kernels before 5.19 cannot do this.
    """
    try:
        return install_filter(program, NEW_LISTENER | WAIT_KILLABLE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return install_filter(program, NEW_LISTENER)


class Unsupported(OSError):
    """This kernel lacks something, or does not allow it. The text is a sentence."""


def check_notifications() -> None:
    """Raises `Unsupported` unless this kernel's notifications have the layout that we know."""
    sizes = ctypes.create_string_buffer(6)
    try:
        syscall(numbers()[0], _GET_NOTIFICATION_SIZES, 0, sizes)
    except OSError as error:
        raise Unsupported(f"seccomp cannot notify a supervisor here ({error.strerror})") from None
    if struct.unpack("=3H", sizes.raw) != (NOTIFICATION.size, _RESPONSE.size, 64):
        raise Unsupported("this kernel's seccomp notifications have an unknown layout")


class Listener:
    """The supervisor's end of a filter: notifications in, answers out."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._buffer = bytearray(NOTIFICATION.size)
        self._zeros = bytes(NOTIFICATION.size)
        try:
            fcntl.ioctl(descriptor, _SET_FLAGS, _SYNC_WAKE_UP)  # the two sides take turns; since kernel 6.6
        except OSError:
            pass

    def receive(self) -> tuple[int, ...] | None:
        """The fields of `NOTIFICATION`, or `None` if the caller ended before it was read."""
        buffer = self._buffer
        buffer[:] = self._zeros
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        return NOTIFICATION.unpack(buffer)

    def is_valid(self, identifier: int) -> bool:
        """Whether the caller still waits: then data that was read by its process number really came from it."""
        try:
            fcntl.ioctl(self.descriptor, _IS_VALID, _IDENTIFIER.pack(identifier))
        except OSError:
            return False
        return True

    def answer(self, identifier: int, value: int = 0, code: int = 0) -> None:
        self._send(identifier, value, -code, 0)

    def let_run(self, identifier: int) -> None:
        """Lets the kernel run the call. Only for calls that no change of memory can turn into a forbidden one."""
        self._send(identifier, 0, 0, _CONTINUE)

    def hand_over(self, identifier: int, descriptor: int, flags: int) -> None:
        """Copies our descriptor into the caller and returns its number there as the result of the call."""
        request = _ADD_DESCRIPTOR.pack(identifier, _ADD_AND_SEND, descriptor, 0, flags & os.O_CLOEXEC)
        try:
            fcntl.ioctl(self.descriptor, _ADD, request)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self.answer(identifier, code=error.errno or errno.EIO)

    def put(self, identifier: int, descriptor: int, number: int, flags: int) -> None:
        """Copies our descriptor into the caller, in place of the one with that number there. Raises `OSError`."""
        request = _ADD_DESCRIPTOR.pack(identifier, _ADD_AT, descriptor, number, flags & os.O_CLOEXEC)
        fcntl.ioctl(self.descriptor, _ADD, request)

    def _send(self, identifier: int, value: int, error: int, flags: int) -> None:
        try:
            fcntl.ioctl(self.descriptor, _SEND, _RESPONSE.pack(identifier, value, error, flags))
        except OSError as failure:
            if failure.errno != errno.ENOENT:  # the caller was killed meanwhile
                raise


# Descriptors and memory


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class ForeignMemory:
    """Reads the memory of processes that this one may trace. Each read is one copy."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_LONGEST_PATH)
        self._view = memoryview(self._buffer)
        self.address = ctypes.addressof(self._buffer)
        self._here = _Vector(self.address, _LONGEST_PATH)
        self._there = _Vector(0, 0)
        self._references = ctypes.byref(self._here), ctypes.byref(self._there)
        self._read = libc().process_vm_readv
        self._read.restype = ctypes.c_ssize_t
        one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
        self._counts = one, none

    def read(self, task: int, address: int, length: int) -> bytes:
        """Up to `length` bytes, fewer where the mapping ends. Raises `OSError` if nothing can be read."""
        self._here.length = self._there.length = length
        self._there.base = address
        here, there = self._references
        one, none = self._counts
        count = self._read(task, here, one, there, one, none)
        if count < 0:
            fail()
        return bytes(self._view[:count])

    def path(self, task: int, address: int) -> bytes:
        """A path that ends with a zero byte. Raises `OSError` if the address is wrong or the path too long."""
        # Most paths are short, and the end of a page shows in a short read.
        for length in (256, _LONGEST_PATH):
            data = self.read(task, address, length)
            end = data.find(b"\0")
            if end >= 0:
                return data[:end]
            if len(data) < length:
                raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


class Openat2:
    """`openat2` for `O_PATH` descriptors. Follows no magic links of `/proc`; with `links=False`, no links."""

    def __init__(self, *, links: bool = True) -> None:
        self._call = libc().syscall
        self._number = ctypes.c_long(_OPENAT2)
        self._size = ctypes.c_size_t(24)
        refused = _RESOLVE_NO_MAGICLINKS if links else _RESOLVE_NO_SYMLINKS
        self._how = {
            flags: struct.pack("=QQQ", O_PATH | os.O_CLOEXEC | flags, 0, refused)
            for flags in (0, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_DIRECTORY | os.O_NOFOLLOW)
        }

    def open(self, folder: int, path: bytes, flags: int = 0) -> int:
        """An `O_PATH` descriptor; `flags` are any of `O_DIRECTORY` and `O_NOFOLLOW`."""
        descriptor = self._call(self._number, ctypes.c_long(folder), path, self._how[flags], self._size)
        if descriptor < 0:
            fail()
        return descriptor


@functools.cache
def _without_links() -> Openat2:
    return Openat2(links=False)


def open_without_links(path: str, root: str = "/") -> int:
    """An `O_PATH` descriptor of an absolute path, beneath `root`, that does not lead through a link.

    Raises `OSError` if a part is missing, or a link.
    """
    folder = os.open(root, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = _without_links().open(folder, os.fsencode(path).strip(b"/") or b".")
        os.close(folder)
        return found
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # a kernel or container without the call: step by step
            os.close(folder)
            raise
    for part in filter(None, path.split("/")):
        try:
            inner = os.open(part, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
        if _is_link(folder):
            os.close(folder)
            raise OSError(errno.ELOOP, "it leads through a link", path)
    return folder


def _is_link(descriptor: int) -> bool:
    """Whether an `O_PATH` descriptor is of a link. Unlike `fstat`, asks no disk, which might not answer."""
    try:
        os.readlink("", dir_fd=descriptor)
    except OSError as error:  # any other error may come from a link that this user may not read
        return error.errno != errno.ENOENT
    return True


def rename(old_folder: int, old: bytes, new_folder: int, new: bytes, flags: int) -> None:
    syscall(numbers()[2], old_folder, old, new_folder, new, flags)


def set_times(path: bytes, times: bytes | None) -> None:
    """`utimensat` with the caller's own structures."""
    if libc().utimensat(ctypes.c_int(AT_FDCWD), path, times, ctypes.c_int(0)) == -1:
        fail()


def close_on_exec(lowest: int) -> None:
    """Makes every descriptor from this number on close when another program is executed.

    Kernels before 5.11 cannot do this at once. Our own descriptors close anyway, so only a second guard is missing.
    """
    try:
        syscall(_CLOSE_RANGE, lowest, 0xFFFFFFFF, _CLOSE_RANGE_CLOEXEC)
    except OSError:
        pass


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            pass
