"""Keeps commands under bubblewrap from opening files for writing outside their folders, also named pipes.

A read-only mount keeps files and folders from changes, but the kernel does not ask it about a named pipe. Landlock
forbids that too. Its rules must be set when everything is mounted, because nobody may mount anything afterwards, and
bubblewrap cannot set them: a few lines of Perl do, and become the command. Perl starts in a millisecond or two, which
Python does not. Without Perl, or before Linux 5.19, mounts alone keep commands from writing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..kernel.calls import REFER, WRITE_FILE, add_rule, create_ruleset, landlock_version
from ..kernel.mounts import is_in
from ..programs import find_program

_RIGHTS = WRITE_FILE | REFER
"""Without `REFER`, nothing could be renamed from one folder to another."""
_SINCE = 2
"""The first version of Landlock that has `REFER`."""
_PROGRAMS = ("/usr", "/bin")
"""Folders that every command sees."""

# Allows the devices, which bubblewrap has just made, sets the rules, and becomes the command. The variable keeps Perl
# from writing about locales that are not installed.
VARIABLES = {"PERL_BADLANG": "0"}
_SET = (
    "my $rules = shift; my $devices; delete $ENV{PERL_BADLANG};"
    'sysopen($devices, "/dev", 0)'
    f' && syscall(445, $rules + 0, 1, pack("Ql", {_RIGHTS}, fileno $devices), 0) == 0'
    ' && syscall(446, $rules + 0, 0) == 0 or die "the rules for writing cannot be set: $!\\n";'
    'open(my $file, "<&=", $rules); close $file;'
    'exec { $ARGV[0] } @ARGV or print STDERR "$ARGV[0]: $!\\n"; exit 127'
)


def find_perl(outside: Sequence[str]) -> str | None:
    """The Perl that sets the rules, if there is one and this kernel has them. `outside`: what commands may write."""
    try:
        if landlock_version() < _SINCE:
            return None
    except OSError:  # Landlock is not in this kernel, or is switched off
        return None
    found = find_program("perl", outside=outside)
    return found if found and is_in(os.path.realpath(found), _PROGRAMS) else None


class WriteRules:
    """The rules of one command. `close()` them after the start."""

    def __init__(self, perl: str, folders: Iterable[int]) -> None:
        """`folders`: descriptors of what it may write."""
        self._perl = perl
        self._rules = create_ruleset(_SINCE, _RIGHTS)
        self.descriptors: tuple[int, ...] = (self._rules,)
        for folder in folders:
            add_rule(self._rules, folder, _RIGHTS)

    def command_line(self, argv: Sequence[str]) -> list[str]:
        """The same command, started with the rules."""
        return [self._perl, "-e", _SET, str(self._rules), *argv]

    def close(self) -> None:
        if self.descriptors:
            os.close(self._rules)
        self.descriptors = ()
