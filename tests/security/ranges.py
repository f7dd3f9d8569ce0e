"""Places where real bash runs commands and all their effects are observed.

Owns two places: one without programs, where bash records how it would have called them, and one with real programs
among traps: links out of the folder, files named like options, repositories whose settings start a program. The tests
choose the commands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CANARY", "TRAPS", "RealRange", "ShimRange"]

CANARY = "canary-that-lies-outside-7f3a"
TRAPS = (
    *("fsmonitor", "external", "textconv", "filter", "hook", "hookspath", "include", "bare", "gitfile", "alternates"),
    *("submodule", "worktree", "worktreeconfig", "signature", "lazy", "hollow"),
)


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


class RealRange:
    """A folder between traps, in which bash runs real programs."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.folder = base / "work"
        self.outside = base / "outside"
        self.home = base / "home"
        self.record = base / "record"
        self.evil = base / "evil"
        for place in (self.folder / "src", self.folder / "traps", self.outside, self.home):
            place.mkdir(parents=True)
        self.evil.write_text(f'#!/bin/sh\necho "$0 $*" >>{self.record}\n')
        self.evil.chmod(0o755)
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self._furnish()
        self.before = self._snapshot()

    # -- furniture ---------------------------------------------------------------------------------------------

    def _furnish(self) -> None:
        self.record.write_text("")
        (self.home / ".gitconfig").write_text(
            "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n"
        )
        for name in ("canary", "secret.json", "folder/canary.txt"):
            (self.outside / name).parent.mkdir(exist_ok=True)
            (self.outside / name).write_text(f'"{CANARY}"\n')
        for name, text in {
            "a.txt": "one 1\ntwo 2\nthree 3\n",
            "b.txt": "two\nthree\n",
            "data.json": '{"name": "x", "list": [1, 2]}\n',
            "src/x.py": "import os\n\n\ndef x():\n    return 1\n",
            "src/y.py": "y = 2\n",
            "sums": f"d41d8cd98f00b204e9800998ecf8427e  {self.outside}/canary\n",
            "list": f"{self.outside}/canary\0",
            "m.jq": 'def x: "module";\n',
            "odd/-opwned": "x\n",
            "odd/n.txt": "x\n",
            "odd/--pre=evil": "x\n",
            "names/--files0-from=list": "x\n",
            "names/-delete": "x\n",
            "right/same.txt": "x\n",
        }.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        for folder in ("lib", "left", "0"):
            (self.folder / folder).mkdir()
        (self.folder / "0/ls").symlink_to(self.evil)
        (self.folder / "left/same.txt").symlink_to("../../outside/canary")
        (self.folder / "out").symlink_to("../outside")
        (self.folder / "leak.txt").symlink_to("../outside/canary")
        (self.folder / "lib/leak.py").symlink_to("../../outside/canary")
        (self.folder / "docs").symlink_to("src")
        (self.outside / "secret.jq").write_text(f'def x: "{CANARY}";\n')
        self.repository(self.folder)
        for trap in TRAPS:
            getattr(self, f"_{trap}")(self.folder / "traps" / trap)

    def git(self, folder: Path, *words: str, **variables: str) -> str:
        environment = {**self.environment, "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z", **variables}
        done = subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def repository(self, folder: Path) -> Path:
        """A repository with a commit and a change."""
        folder.mkdir(exist_ok=True, parents=True)
        self.git(folder, "init", "-q")
        (folder / "f.txt").write_text("first\n")
        self.git(folder, "add", "f.txt")
        self.git(folder, "commit", "-qm", "first")
        (folder / "f.txt").write_text("second\n")
        return folder

    def _set(self, folder: Path, text: str, attributes: str = "") -> None:
        with (folder / ".git/config").open("a") as file:
            file.write(text)
        if attributes:
            (folder / ".gitattributes").write_text(attributes)

    def _fsmonitor(self, folder: Path) -> None:
        self._set(self.repository(folder), f"[core]\n\tfsmonitor = {self.evil}\n")

    def _hollow(self, folder: Path) -> None:
        """What looks like a repository and is none, so that git looks on above it, or takes the folder itself."""
        self._fsmonitor(folder)
        (folder / "inner/.git").mkdir(parents=True)
        self._bare(folder / "other")
        (folder / "other/store/.git").mkdir()

    def _external(self, folder: Path) -> None:
        self._set(self.repository(folder), f"[diff]\n\texternal = {self.evil}\n")

    def _textconv(self, folder: Path) -> None:
        self._set(self.repository(folder), f'[diff "x"] textconv = {self.evil}\n', "* diff=x\n")

    def _filter(self, folder: Path) -> None:
        self._set(self.repository(folder), f'[filter "x"]\n\tclean = "{self.evil}"\n', "* filter=x\n")

    def _hook(self, folder: Path) -> None:
        self.repository(folder)
        (folder / ".git/hooks/post-index-change").symlink_to(self.evil)
        (folder / "f.txt").write_text("first\n")  # the same, but the index does not know

    def _hookspath(self, folder: Path) -> None:
        self._set(self.repository(folder), "[core]\n\thooksPath = .husky\n")
        (folder / ".husky").mkdir()
        (folder / ".husky/post-index-change").symlink_to(self.evil)
        (folder / "f.txt").write_text("first\n")

    def _include(self, folder: Path) -> None:
        self._set(self.repository(folder), "[include]\n\tpath = ../more\n")
        (folder / "more").write_text(f"[core]\n\tfsmonitor = {self.evil}\n")

    def _bare(self, folder: Path) -> None:
        self.repository(folder)
        (folder / ".git").rename(folder / "store")
        with (folder / "store/config").open("a") as file:
            file.write(f"[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = {self.evil}\n")

    def _gitfile(self, folder: Path) -> None:
        private = self.repository(self.outside / "private")
        (private / "f.txt").write_text(f"{CANARY}\n")
        self.git(private, "commit", "-qam", CANARY)
        folder.mkdir()
        (folder / ".git").write_text(f"gitdir: {private}/.git\n")

    def _alternates(self, folder: Path) -> None:
        self.repository(folder)
        (folder / ".git/objects/info/alternates").write_text(f"{self.outside}/private/.git/objects\n")
        head = self.git(self.outside / "private", "rev-parse", "HEAD")
        (folder / ".git/refs/heads/other").write_text(f"{head}\n")

    def _submodule(self, folder: Path) -> None:
        self.repository(folder)
        self._fsmonitor(folder / "inner")
        self.git(folder, "add", "inner")

    def _worktree(self, folder: Path) -> None:
        self.repository(folder)
        (folder / "canary").write_text("x\n")
        self.git(folder, "add", "canary")
        self._set(folder, f"[core]\n\tworktree = {self.outside}\n")

    def _worktreeconfig(self, folder: Path) -> None:
        self._set(self.repository(folder), "[extensions]\n\tworktreeConfig = true\n")
        (folder / ".git/config.worktree").write_text(f"[core]\n\tfsmonitor = {self.evil}\n")

    def _signature(self, folder: Path) -> None:
        self.repository(folder)
        commit = self.git(folder, "cat-file", "commit", "HEAD")
        head, _, message = commit.partition("\n\n")
        signed = f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n{message}\n"
        name = subprocess.run(
            ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
            cwd=folder,
            env=self.environment,
            input=signed,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self.git(folder, "update-ref", "HEAD", name)
        self._set(folder, f"[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {self.evil}\n")

    def _lazy(self, folder: Path) -> None:
        """A repository that fetches what it lacks, by a program that its settings name."""
        self.repository(folder)
        blob = self.git(folder, "rev-parse", "HEAD:f.txt")
        (folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
        self._set(
            folder,
            f"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n"
            f'[remote "origin"]\n\turl = {self.outside}/private\n\tpromisor = true\n\tuploadpack = {self.evil}\n',
        )

    # -- running -----------------------------------------------------------------------------------------------

    def run(self, command: str) -> str:
        """What the command printed."""
        words = ["/bin/bash", "--noprofile", "--norc", "-c", "--", command]
        done = subprocess.run(
            words,
            check=False,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
        )
        return (done.stdout + done.stderr).decode("utf-8", "replace")

    def breaches(self, printed: str) -> list[str]:
        """What it did beyond reading in the folder; and all of that undone."""
        found: list[str] = []
        if started := self.record.read_text():
            found.append(f"started {started!r}")
            self.record.write_text("")
        if CANARY in printed:
            found.append("showed what lies outside")
        now = self._snapshot()
        if now != self.before:
            changed = {path for path, _ in set(now.items()) ^ set(self.before.items())}
            found.append(f"wrote {sorted(changed)}")
            for path in changed - self.before.keys():
                (self.base / path).unlink(missing_ok=True)
            self.before = self._snapshot()
        return found

    def _snapshot(self) -> dict[str, tuple[int, int]]:
        """Every file but what git notes for itself about files that it looked at."""
        found: dict[str, tuple[int, int]] = {}
        for place, folders, files in os.walk(self.folder):
            if os.path.basename(place) in (".git", "store"):
                folders[:] = [name for name in folders if name != "objects"]
                files = [name for name in files if name not in ("index", "index.lock")]
            for name in files:
                path = os.path.join(place, name)
                status = os.lstat(path)
                found[os.path.relpath(path, self.base)] = (status.st_size, status.st_mtime_ns)
        return found
