"""A playground: a folder to work in, a home with secrets, a world outside, and everything that must not change."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from swink_agent.sandbox import ProcessLimits, Sandbox, SandboxProfile
from swink_agent.sandbox.bubblewrap.backend import find_bubblewrap
from swink_agent.sandbox.bubblewrap.writes import find_perl

from .back_ends import ALL, open_any

BACKENDS = ("bubblewrap", "landlock")
_BUBBLEWRAP = find_bubblewrap(SandboxProfile())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips only if the program is not installed: if it is installed, it has to work."""
    callspec = getattr(item, "callspec", None)
    is_for_it = item.get_closest_marker("bubblewrap") or (callspec and "bubblewrap" in callspec.params.values())
    if is_for_it and _BUBBLEWRAP is None:
        pytest.skip("bubblewrap is not installed")


@dataclass
class Outcome:
    code: int
    output: str


@dataclass
class Playground:
    """A folder with its surroundings. `check()` looks at the machine for anything that got out."""

    base: Path
    canary: str
    resources: ExitStack
    variables: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    listeners: list[socket.socket] = field(default_factory=list)
    pipes: list[int] = field(default_factory=list)
    victim: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def success(self) -> str:
        """The text that a script writes if an attempt succeeded. The script itself does not contain it."""
        return f"got-out-{self.canary[:8]}"

    def profile(self, *, root: Path | None = None, network: bool = False, **more: object) -> SandboxProfile:
        return SandboxProfile(write=(str(root or self.root),), network=network, **more)  # type: ignore[arg-type]

    def prepare(self) -> None:
        """Records the state that must not change, and opens listeners that must not be reached."""
        self.variables = {
            "OUT": str(self.outside),
            "ROOT": str(self.root),
            "PY": f"{Path(sys.executable).resolve()} -I -S",
            "AGENT": str(os.getpid()),
            "TOKEN": str(int(self.canary[:7], 16)),
            "GOT": "got-",
            "OUT_": f"out-{self.canary[:8]}",
        }
        self._listen()
        # Without Perl, bubblewrap does not keep commands from named pipes outside the home folders.
        for folder in (self.home, self.outside) if find_perl(()) else (self.home,):
            os.mkfifo(folder / "pipe")
            pipe = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
            self.resources.callback(os.close, pipe)
            self.pipes.append(pipe)
        self.victim = subprocess.Popen(["sleep", "86400"], stdin=subprocess.DEVNULL)
        self.resources.callback(end, self.victim)
        self.variables["VICTIM"] = str(self.victim.pid)
        self.before = snapshot(self.home, self.outside, *protected_in(self.root))

    def _listen(self) -> None:
        kinds: list[tuple[str, int, int, object]] = [
            ("TCP", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("UDP", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("STREAM", socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "stream.sock")),
            ("DATAGRAM", socket.AF_UNIX, socket.SOCK_DGRAM, str(self.outside / "datagram.sock")),
            ("INSIDE", socket.AF_UNIX, socket.SOCK_STREAM, str(self.root / "inside.sock")),
            ("ABSTRACT", socket.AF_UNIX, socket.SOCK_STREAM, f"\0swink-{uuid.uuid4().hex}"),
        ]
        for name, family, kind, address in kinds:
            listener = self.resources.enter_context(socket.socket(family, kind))
            listener.bind(address)  # type: ignore[arg-type]
            if kind == socket.SOCK_STREAM:
                listener.listen()
            listener.setblocking(False)
            self.listeners.append(listener)
            told = listener.getsockname()
            self.variables[name] = str(told[1]) if family == socket.AF_INET else str(address).replace("\0", "@")

    async def run(self, sandbox: Sandbox, script: str, *, within: float = 30.0) -> Outcome:
        async with asyncio.timeout(within):
            process = await sandbox.spawn(
                ["/bin/bash", "-c", script],
                cwd=sandbox.profile.write[0] if sandbox.profile.write else str(self.root),
                environment={**self.variables, "HOME": str(self.home)},
            )
            try:
                reading = asyncio.ensure_future(process.output.read())
                code = await process.wait()
                process.kill()
                return Outcome(code, (await reading).decode("utf-8", "replace"))
            finally:
                process.kill()

    def tidy(self, template: Path) -> None:
        """Restores the folder as it was at the beginning."""
        for path in [path for path in self.root.iterdir() if path.name != "inside.sock"]:
            if path.is_dir() and not path.is_symlink():
                subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=True)
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(template, self.root, symlinks=True, dirs_exist_ok=True)

    def check(self, outcome: Outcome, *, secrets: bool = True) -> list[str]:
        """Everything that got out; an empty list if the sandbox held."""
        found: list[str] = []
        after = snapshot(self.home, self.outside, *protected_in(self.root))
        for path in sorted(self.before.keys() | after.keys()):
            if self.before.get(path) != after.get(path):
                found.append(f"changed: {path}: {self.before.get(path)} -> {after.get(path)}")
        found += [f"reached: {listener.getsockname()}" for listener in self.listeners if was_reached(listener)]
        if any(os.read(pipe, 100) for pipe in self.pipes):
            found.append("something was written to a named pipe")
        if secrets and self.canary in outcome.output:
            found.append("a secret is in the output")
        if self.success in outcome.output:
            found.append("the script says that it got out")
        if self.victim is not None and self.victim.poll() is not None:
            found.append(f"a process outside was ended: {self.victim.returncode}")
        found += [f"still running: {line}" for line in running_with(self.variables["TOKEN"])]
        return found


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def was_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1024)
    except BlockingIOError:
        return False
    return True


def protected_in(root: Path) -> list[Path]:
    names = ["config", "hooks", "commondir", "config.worktree"]
    folders = [root / ".git", root / "vendor/lib/.git", root / ".git/modules/sub"]
    return [
        *(folder / name for folder in folders for name in names),
        *(root / name for name in (".swink", ".vscode", ".idea", ".vimrc", ".gvimrc", ".exrc", ".hg/hgrc")),
        *(root / name for name in (".hg/sharedpath", ".jj/repo/config.toml", "vendor/.vimrc", "vendor/lib/.exrc")),
        *(root / ".git/worktrees/tree" / name for name in ("commondir", "config.worktree")),
    ]


def snapshot(*paths: Path) -> dict[str, str]:
    """The files there: kinds, modes, owners, contents and link targets."""
    found: dict[str, str] = {}
    for top in paths:
        todo = [top]
        while todo:
            path = todo.pop()
            with suppress(FileNotFoundError, NotADirectoryError):
                state = path.lstat()
                if stat.S_ISDIR(state.st_mode):
                    content = "folder"
                    todo += path.iterdir() if os.access(path, os.R_OK | os.X_OK) else []
                elif stat.S_ISLNK(state.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(state.st_mode):
                    content = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if os.access(path, os.R_OK) else "?"
                else:
                    content = "special"
                found[str(path)] = f"{oct(state.st_mode)} {state.st_uid} {content}"
    return found


def running_with(token: str) -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if f"6{token}" in line:
                    found.append(f"{entry.name}: {line[:100]}")
    return found


def furnish(base: Path, canary: str, template: Path) -> None:
    """A repository with another one in it, a home folder with ordinary files, and a world outside."""
    shutil.copytree(template, base / "root", symlinks=True)
    home, outside = base / "home", base / "outside"
    secrets = [".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".config/swink-agent/keys.toml"]
    secrets += [".netrc", ".npmrc", ".mozilla/firefox/cookies.sqlite", ".bash_history", ".local/share/keyrings/login"]
    for name in secrets:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"secret {canary}\n")
    (outside / "cloud").mkdir(parents=True)
    (outside / "cloud/token").write_text(f"secret {canary}\n")
    (home / ".azure").symlink_to(outside / "cloud")  # hidden where it leads to as well
    for name in (".bashrc", ".profile", ".gitconfig", ".config/fish/config.fish", "notes.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("# as it was\n")
    (home / ".gitconfig").write_text("[user]\n\tname = Test\n\temail = test@example.org\n")
    (outside / "canary").write_text("as it was\n")
    (outside / "program").write_text("#!/bin/sh\necho as it was\n")
    (outside / "program").chmod(0o755)
    (outside / "folder").mkdir()


@pytest.fixture(scope="session")
def repository() -> Iterator[Path]:
    """A repository with a nested one, a module and a work tree; copied for every test."""
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir=temporary_parent()) as folder:
        root = Path(folder) / "root"
        for path in (root, root / "vendor/lib"):
            path.mkdir(parents=True)
            git(path, "init", "-q", "-b", "main", "--template=")
            (path / ".git/hooks").mkdir()
            (path / "hello.txt").write_text("hello\n")
            git(path, "add", "hello.txt")
            git(path, "commit", "-q", "-m", "first")
        module = root / ".git/modules/sub"
        shutil.copytree(root / "vendor/lib/.git", module)
        tree = root / ".git/worktrees/tree"
        tree.mkdir(parents=True)
        (tree / "commondir").write_text("../..\n")
        (tree / "HEAD").write_text("ref: refs/heads/tree\n")
        (tree / "gitdir").write_text("/nowhere/.git\n")
        yield root


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, env={"PATH": os.environ["PATH"], "HOME": "/"})


def temporary_parent() -> str:
    """Not beneath `/tmp` if possible: a sandbox has its own, and then the test would prove nothing."""
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()


def build(patch: pytest.MonkeyPatch, resources: ExitStack, template: Path) -> Playground:
    canary = uuid.uuid4().hex
    base = Path(tempfile.mkdtemp(prefix="swink-test-", dir=temporary_parent()))
    resources.callback(shutil.rmtree, base, ignore_errors=True)
    furnish(base, canary, template)
    patch.setenv("HOME", str(base / "home"))
    patch.setenv("OPENAI_API_KEY", f"sk-{canary}")
    patch.setenv("LC_SECRET_TOKEN", canary)
    patch.setenv("SSH_AUTH_SOCK", str(base / "outside/stream.sock"))
    playground = Playground(base, canary, resources)
    playground.prepare()
    return playground


@pytest.fixture
def playground(monkeypatch: pytest.MonkeyPatch, repository: Path) -> Iterator[Playground]:
    with ExitStack() as resources:
        yield build(monkeypatch, resources, repository)


class Arena:
    """A playground and a sandbox for many attempts, one after another. After an escape, both are recreated."""

    def __init__(self, backend: str, template: Path, patch: pytest.MonkeyPatch, *, can_write: bool = True) -> None:
        self._backend = backend
        self._can_write = can_write
        self._template = template
        self._patch = patch
        self._resources = ExitStack()
        self._clean: dict[str, str] = {}
        self._sandbox: Sandbox | None = None

    async def attempt(self, script: str) -> tuple[Outcome, list[str]]:
        if self._sandbox is None:
            self.playground = build(self._patch, self._resources, self._template)
            self._clean = snapshot(self.playground.root)
            profile = self.playground.profile()
            profile = profile if self._can_write else replace(profile, write=())
            self._sandbox = self._resources.enter_context(back_end(self._backend)(profile))
        found = ["it did not come to an end"]
        try:
            outcome = await self.playground.run(self._sandbox, script)
            found = self.playground.check(outcome)
            if not found and snapshot(self.playground.root) != self._clean:
                if not self._can_write:
                    found = ["the folder was changed"]
                self._tidy()
        finally:
            if found:
                self.close()
        return outcome, found

    def _tidy(self) -> None:
        self.playground.tidy(self._template)
        self._clean = snapshot(self.playground.root)

    def close(self) -> None:
        self._resources.close()
        self._sandbox = None


# Where the guardian connects commands to a proxy, another filter is around them.
CONNECTED = "no namespaces, but hosts"


@pytest.fixture(scope="module", params=[*BACKENDS, pytest.param(CONNECTED, marks=pytest.mark.sweep)])
def arena(request: pytest.FixtureRequest, repository: Path) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        arena = Arena(request.param, repository, patch)
        yield arena
        arena.close()


@pytest.fixture(scope="module", params=BACKENDS)
def reading_arena(request: pytest.FixtureRequest, repository: Path) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        arena = Arena(request.param, repository, patch, can_write=False)
        yield arena
        arena.close()


def back_end(name: str) -> Callable[[SandboxProfile], Sandbox]:
    from swink_agent.sandbox.bubblewrap import backend as bubblewrap
    from swink_agent.sandbox.landlock import backend as landlock

    def connected(profile: SandboxProfile) -> Sandbox:
        return landlock.LandlockSandbox(replace(profile, hosts=("example.org",)), namespaces=False)

    known = {"bubblewrap": bubblewrap.BubblewrapSandbox, "landlock": landlock.LandlockSandbox, CONNECTED: connected}
    return known[name]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def open_backend(backend: str) -> Iterator[Callable[[SandboxProfile], Sandbox]]:
    """Opens the back end that the test is for. Fails if it does not work: the test is not skipped."""
    with ExitStack() as opened:
        yield lambda profile: opened.enter_context(back_end(backend)(profile))


@pytest.fixture
def small_limits() -> ProcessLimits:
    return ProcessLimits(processes=60)


@pytest.fixture
def signal_seen() -> Iterator[list[int]]:
    """The signals that reach this process from outside."""
    seen: list[int] = []
    old = signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGUSR2, old)


@pytest.fixture(params=ALL)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def sandbox(name: str, tmp_path: Path) -> Iterator[Sandbox]:
    with open_any(name, SandboxProfile(write=(str(tmp_path),))) as opened:
        yield opened
