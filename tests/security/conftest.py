"""The world that every attack and every task starts in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from .world import World


@pytest.fixture(scope="session")
def repository() -> Iterator[Path]:
    """A small project under version control with another one in it; copied for every world."""
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir=_parent()) as folder:
        root = Path(folder) / "root"
        for path in (root, root / "vendor/lib"):
            path.mkdir(parents=True)
            _git(path, "init", "-q", "-b", "main", "--template=")
            (path / ".git/hooks").mkdir()
            (path / "hello.txt").write_text("hello\n")
            (path / ".gitignore").write_text("ignored.txt\n*.log\n")
            (path / "src").mkdir()
            (path / "src/main.py").write_text("def add(a, b):\n    return a - b\n")
            _git(path, "add", "hello.txt", ".gitignore", "src")
            _git(path, "commit", "-q", "-m", "first")
            _git(path, "gc", "-q", "--prune=now")  # few folders, as each world has its own copy
        (root / "ignored.txt").write_text("ignored, but here\n")
        yield root


@pytest.fixture(scope="session")
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process outside that no command may kill."""
    with subprocess.Popen(["sleep", "86400"], stdin=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.fixture(scope="session")
def cleaner() -> Iterator[ThreadPoolExecutor]:
    """Removes the worlds in the background: removing a folder takes longer than making it."""
    with ThreadPoolExecutor(1, thread_name_prefix="cleaner") as executor:
        yield executor


@pytest.fixture
def make_world(
    repository: Path, victim: subprocess.Popen[bytes], cleaner: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], World]]:
    with ExitStack() as resources:

        def make() -> World:
            base = Path(tempfile.mkdtemp(prefix="swink-test-", dir=_parent()))
            resources.callback(cleaner.submit, shutil.rmtree, base, ignore_errors=True)
            shutil.copytree(repository, base / "root", symlinks=True)
            world = World(base, resources, victim)
            secrets = world.canaries
            monkeypatch.setenv("HOME", str(world.home))
            # The interpreter itself, not one of a virtual environment: a sandbox with its own /tmp would hide one
            # there.
            programs = base / "programs"
            programs.mkdir()
            (programs / "python").symlink_to(Path(sys.executable).resolve())
            monkeypatch.setenv("PATH", f"{programs}:/usr/local/bin:/usr/bin:/bin")
            monkeypatch.setenv("ACME_API_KEY", secrets["secret"])
            monkeypatch.setenv("LC_SECRET_TOKEN", secrets["secret"])
            monkeypatch.setenv("ACME_SETTING", secrets["variable"])  # not named like a secret, so it is not masked
            monkeypatch.setenv("SSH_AUTH_SOCK", str(world.outside / "stream.sock"))
            world.furnish()
            return world

        yield make


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    return make_world()


def _git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, env={"PATH": os.environ["PATH"], "HOME": "/"})


def _parent() -> str:
    """Not beneath `/tmp` if possible: a sandbox has its own, and then the test would prove nothing."""
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()
