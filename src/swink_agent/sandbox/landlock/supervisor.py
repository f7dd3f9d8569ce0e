"""The guardian's work: it answers the system calls that its command's processes may not make alone.

A process that opens a file for writing, or makes, moves, removes or changes one, waits in the kernel until the guardian
has done it or refused. The guardian acts on what it judged, so a path cannot be changed between check and use. Calls
that make process groups, set the umask and, on older kernels, send signals come here too; their arguments are numbers
that cannot change, so the kernel may run the call itself. This module maps calls to handlers. The launcher loads it:
the standard library only.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.landlock.caller import Caller, CallServices, Umasks, failure, signed
from swink_agent.sandbox.landlock.connects import connect
from swink_agent.sandbox.landlock.files import AttributeCalls, Names, thing_at
from swink_agent.sandbox.landlock.opens import Opens
from swink_agent.sandbox.landlock.tree import ProcessTree, send
from swink_agent.sandbox.repositories.admission import Admissions

_HERE = kernel.AT_FDCWD & 0xFFFFFFFF
_LINK = kernel.AT_SYMLINK_NOFOLLOW
_CREATE = os.O_CREAT | os.O_WRONLY | os.O_TRUNC

Handler = Callable[[Caller, "tuple[int, ...]"], "int | None"]
"""Takes the arguments of a call and returns its result, or `None` if it was answered already. Raises `OSError`."""


class Supervisor:
    """Serves the notifications of one command, one at a time."""

    def __init__(
        self,
        services: CallServices,
        calls: Mapping[int, str],
        opens: Opens,
        umasks: Umasks,
        tree: ProcessTree,
        admissions: Admissions,
        proxy: int = 0,
    ) -> None:
        """`calls`: the numbers that may come, with their names. `proxy`: the port that children are connected to."""
        self._services = services
        self._umasks = umasks
        self._tree = tree
        names, marks = Names(umasks, admissions), AttributeCalls()
        known: dict[str, Handler] = {
            "open": lambda caller, a: opens.open(caller, _HERE, a[0], a[1], a[2]),
            "openat": lambda caller, a: opens.open(caller, a[0], a[1], a[2], a[3]),
            "creat": lambda caller, a: opens.open(caller, _HERE, a[0], _CREATE, a[1]),
            **_naming(names),
            **_marking(marks),
            # They need an answer, so that no group is made while all are being killed: see `landlock/tree`.
            **dict.fromkeys(("setsid", "setpgid"), lambda caller, _: services.listener.let_run(caller.identifier)),
            "umask": self._umask,
            "connect": lambda caller, a: connect(caller, proxy, a[0], a[1], a[2]),
            **dict.fromkeys(("kill", "tkill", "rt_sigqueueinfo"), lambda caller, a: self._signal(caller, a[0], a[1])),
            **dict.fromkeys(("tgkill", "rt_tgsigqueueinfo"), lambda caller, a: self._signal(caller, a[0], a[2])),
        }
        self._handlers = {number: known[name] for number, name in calls.items()}

    def serve(self) -> None:
        """Answers the next notification. Nothing that a child sends makes the guardian fail."""
        listener = self._services.listener
        notification = listener.receive()
        if notification is None:
            return
        identifier, task, _, number, _, _, *arguments = notification
        caller = Caller(self._services, identifier, task)
        try:
            result = self._handlers[number](caller, tuple(arguments))
        except OSError as error:
            listener.answer(identifier, code=error.errno or errno.EIO)
        except (KeyError, ValueError, OverflowError):  # nonsense from a process that ended while it was read
            listener.answer(identifier, code=errno.EINVAL)
        else:
            if result is not None:
                listener.answer(identifier, result)
        finally:
            caller.close()

    def _umask(self, caller: Caller, _: tuple[int, ...]) -> None:
        self._umasks.changed()
        self._services.listener.let_run(caller.identifier)

    def _signal(self, caller: Caller, target: int, number: int) -> int | None:
        """Allows signals within the tree only, like the scopes of newer kernels."""
        target = signed(target)
        if target == -1:
            for entry in self._tree.descendants():
                if entry.pid != caller.task:
                    send(entry.pid, signed(number) if signed(number) in signal.valid_signals() else 0)
            return 0
        if target == 0 or (self._tree.holds(target) if target > 0 else self._tree.holds_group(-target)):
            self._services.listener.let_run(caller.identifier)
            return None
        raise failure(errno.EPERM)


def _naming(names: Names) -> dict[str, Handler]:
    return {
        "mkdir": lambda caller, a: names.make_folder(caller, _HERE, a[0], a[1]),
        "mkdirat": lambda caller, a: names.make_folder(caller, a[0], a[1], a[2]),
        "mknod": lambda caller, a: names.make_node(caller, _HERE, a[0], a[1]),
        "mknodat": lambda caller, a: names.make_node(caller, a[0], a[1], a[2]),
        "symlink": lambda caller, a: names.make_link(caller, a[0], _HERE, a[1]),
        "symlinkat": lambda caller, a: names.make_link(caller, a[0], a[1], a[2]),
        "link": lambda caller, a: names.link(caller, _HERE, a[0], _HERE, a[1], 0),
        "linkat": lambda caller, a: names.link(caller, a[0], a[1], a[2], a[3], a[4] & 0xFFFFFFFF),
        "rename": lambda caller, a: names.rename(caller, _HERE, a[0], _HERE, a[1], 0),
        "renameat": lambda caller, a: names.rename(caller, a[0], a[1], a[2], a[3], 0),
        "renameat2": lambda caller, a: names.rename(caller, a[0], a[1], a[2], a[3], a[4] & 0xFFFFFFFF),
        "unlink": lambda caller, a: names.remove(caller, _HERE, a[0], 0),
        "unlinkat": lambda caller, a: names.remove(caller, a[0], a[1], a[2]),
        "rmdir": lambda caller, a: names.remove(caller, _HERE, a[0], 0x200),
    }


def _marking(marks: AttributeCalls) -> dict[str, Handler]:
    return {
        "truncate": lambda caller, a: marks.truncate(caller, a[0], a[1]),
        "chmod": lambda caller, a: marks.mode(caller, thing_at(caller, _HERE, a[0]), a[1]),
        "fchmodat": lambda caller, a: marks.mode(caller, thing_at(caller, a[0], a[1]), a[2]),
        "fchmodat2": lambda caller, a: marks.mode(caller, thing_at(caller, a[0], a[1], a[3] & 0xFFFFFFFF), a[2]),
        "fchmod": lambda caller, a: marks.mode(caller, caller.descriptor(a[0]), a[1]),
        "chown": lambda caller, a: marks.owner(caller, thing_at(caller, _HERE, a[0]), a[1], a[2]),
        "lchown": lambda caller, a: marks.owner(caller, thing_at(caller, _HERE, a[0], _LINK), a[1], a[2]),
        "fchownat": lambda caller, a: marks.owner(caller, thing_at(caller, a[0], a[1], a[4] & 0xFFFFFFFF), a[2], a[3]),
        "fchown": lambda caller, a: marks.owner(caller, caller.descriptor(a[0]), a[1], a[2]),
        "utimensat": lambda caller, a: marks.times(caller, a[0], a[1], a[2], a[3] & 0xFFFFFFFF),
        "futimesat": lambda caller, a: marks.times_in_microseconds(caller, a[0], a[1], a[2]),
        "utimes": lambda caller, a: marks.times_in_microseconds(caller, _HERE, a[0], a[1]),
        "utime": lambda caller, a: marks.times_in_seconds(caller, a[0], a[1]),
        "setxattr": lambda caller, a: marks.set_attribute(caller, thing_at(caller, _HERE, a[0]), *a[1:5]),
        "lsetxattr": lambda caller, a: marks.set_attribute(caller, thing_at(caller, _HERE, a[0], _LINK), *a[1:5]),
        "fsetxattr": lambda caller, a: marks.set_attribute(caller, caller.descriptor(a[0]), *a[1:5]),
        "removexattr": lambda caller, a: marks.remove_attribute(caller, thing_at(caller, _HERE, a[0]), a[1]),
        "lremovexattr": lambda caller, a: marks.remove_attribute(caller, thing_at(caller, _HERE, a[0], _LINK), a[1]),
        "fremovexattr": lambda caller, a: marks.remove_attribute(caller, caller.descriptor(a[0]), a[1]),
    }
