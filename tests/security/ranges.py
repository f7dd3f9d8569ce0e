"""A place without programs, where real bash records how it would have called them. The tests choose the commands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path


class ShimRange:
    """A folder in which bash runs commands, and what they would start is written down."""

    def __init__(self, folder: Path, builtins: Iterable[str]) -> None:
        self.folder = folder / "work"
        self.programs = folder / "programs"
        self.record = folder / "record"
        self.output = folder / "output"
        for place in (self.folder, self.folder / "tools", self.folder / "src", self.folder / "src/deep", self.programs):
            place.mkdir()
        shim = folder / "shim"
        shim.write_text('#!/bin/sh\nprintf "%s\\0" "$#" "$PWD" "$0" "$@" >>"$RECORD"\nexit $(($# & 1))\n')
        shim.chmod(0o755)
        for name in ("evil", "ls", "tools/check"):
            (self.folder / name).symlink_to(shim)
        for name in ("a.txt", "b.txt", "src/c.py", "src/d.py", "src/deep/e.txt", "README.md"):
            (self.folder / name).write_text(name)
        start = folder / "start"
        # No program is found by its name, and bash tells this function, in a process of its own, which one it wanted.
        start.write_text(
            "command_not_found_handle() {\n"
            'enable printf; printf \'%s\\0\' $(($# - 1)) "$PWD" "$@" >>"$RECORD"; return $((($# - 1) & 1))\n}\n'
            f"enable -n {' '.join(builtins)}\n"  # so that these are looked for like the others
        )
        self.bash = shutil.which("bash") or "/bin/bash"
        self.environment = {"PATH": str(self.programs), "RECORD": str(self.record), "BASH_ENV": str(start)}
        self.files = self._files()

    def _files(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob("*"))

    def run(self, command: str) -> tuple[list[tuple[str, list[str]]], bytes]:
        """The folder, program and arguments of everything that ran, and what was printed."""
        self.record.write_bytes(b"")
        writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self.output), writing, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        arguments = [self.bash, "--noprofile", "--norc", "-c", "--", command]
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            child = os.posix_spawn(self.bash, arguments, self.environment, file_actions=actions)
        finally:
            os.chdir(before)
        os.waitpid(child, 0)
        ran: list[tuple[str, list[str]]] = []
        entries = iter(self.record.read_bytes().decode().split("\0")[:-1])
        for count in entries:
            where, program, *words = [next(entries) for _ in range(int(count) + 2)]
            ran.append((where, [program, *words]))
        return ran, self.output.read_bytes()

    def is_untouched(self) -> bool:
        return self._files() == self.files
