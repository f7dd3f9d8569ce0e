"""A temporary folder is removed with any content, and one that cannot be removed does no harm."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swink_agent.sandbox import SandboxProfile, open_sandbox
from swink_agent.sandbox.private import PrivateFolder, remove_tree

pytestmark = pytest.mark.sweep
PYTHON = os.path.realpath(sys.executable)  # the environment may be beneath the temporary folder, which commands lack


@pytest.fixture(autouse=True)
def tidy(tmp_path: Path) -> Iterator[None]:
    yield
    remove_tree(str(tmp_path), time_limit=60)  # others who tidy up could not


def make_deep(folder: Path, levels: int, *, mode: int | None = None) -> None:
    """Folders in folders, deeper than any path can say."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        if mode is not None:
            os.fchmod(inner, mode)
        os.close(fd)
        fd = inner
    os.close(fd)


def test_any_depth(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    make_deep(folder, 10_000)
    assert remove_tree(str(folder), time_limit=60)
    assert not folder.exists()


def test_folders_without_rights(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name / "inner" / "most").mkdir(parents=True)
        (folder / name / "inner" / "file").write_text("x")
        (folder / name / "inner" / "most").chmod(0)
        (folder / name / "inner").chmod(0o500)
        (folder / name).chmod(0)
    folder.chmod(0o500)
    assert remove_tree(str(folder), time_limit=10)
    assert not folder.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for place in (folder, folder / "inner"):
        (place / "link").symlink_to(kept)
        (place / "dangling").symlink_to("nowhere")
        os.mkfifo(place / "pipe")
    (tmp_path / "way").symlink_to(kept)
    assert remove_tree(str(folder), time_limit=10)
    assert not remove_tree(str(tmp_path / "way"), time_limit=10)
    assert (kept / "file").read_text() == "x"


def test_very_many_files_and_folders_and_an_end_in_time(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for part in range(20):
        (folder / str(part)).mkdir(parents=True)
        for number in range(300):
            (folder / str(part) / f"f{number}").touch()
            (folder / str(part) / f"d{number}").mkdir()
    assert not remove_tree(str(folder), time_limit=-1)
    assert folder.exists()
    assert remove_tree(str(folder), time_limit=60)
    assert not folder.exists()
    assert remove_tree(str(folder), time_limit=1)


def test_remains_of_a_killed_session_are_removed_later_or_never_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "swink-sandbox-left"
    left.mkdir()
    make_deep(left, 1500)
    stubborn = tmp_path / "swink-sandbox-stubborn"
    stubborn.mkdir()
    (stubborn / "file").write_text("x")
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if path == "file" and dir_fd is not None and os.path.samestat(os.fstat(dir_fd), os.stat(stubborn)):
            raise PermissionError(1, "not this one")
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)  # the machine's part: a file that even its owner may not remove
    long_ago = time.time() - 3600
    for _ in range(20):  # on a slow machine it takes more than one session
        for folder in (left, stubborn):
            if folder.exists():
                os.utime(folder, (long_ago, long_ago))
        PrivateFolder(str(tmp_path)).close()
    assert sorted(os.listdir(tmp_path)) == ["swink-sandbox-stubborn"]


async def test_a_command_that_digs_deep_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    dig = (
        "import os\nos.chdir(os.environ['TMPDIR'])\nfor n in range(3000):\n"
        " os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)\nprint('deep')"
    )
    with open_sandbox(SandboxProfile(write=(str(root),))) as sandbox:
        folder = sandbox._private._folder  # type: ignore[attr-defined]
        process = await sandbox.spawn([PYTHON, "-c", dig], cwd=str(root))
        output = b""
        while data := await process.output.read(1000):
            output += data
        assert await process.wait() == 0, output
    assert b"deep" in output
    assert os.path.basename(folder) not in os.listdir(os.path.dirname(folder))
