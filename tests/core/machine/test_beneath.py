"""What is opened beneath a folder is beneath it, whatever is put in the way."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swink_agent.core.machine.beneath import folder_beneath, open_file_in, opened_folder, read_beneath

PlantFn = Callable[[Path, Path], object]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("secret")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "root" / "in" / "file").write_text("ours")
    return tmp_path / "root"


@pytest.fixture
def held(root: Path) -> Iterator[int]:
    with opened_folder(root) as descriptor:
        yield descriptor


def swap(folder: Path, outside: Path) -> None:
    folder.rename(folder.with_name("away"))
    folder.symlink_to(outside)


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


TRICKS: dict[str, tuple[PlantFn, list[str], int]] = {
    "a link in place of the file": (lambda root, out: (root / "x").symlink_to(out / "file"), ["x"], errno.ELOOP),
    "a link within the folder": (lambda root, out: (root / "x").symlink_to("in/file"), ["x"], errno.ELOOP),
    "a link that leads nowhere": (lambda root, out: (root / "x").symlink_to("none"), ["x"], errno.ELOOP),
    "a link to itself": (lambda root, out: (root / "x").symlink_to("x"), ["x"], errno.ELOOP),
    "a link in place of a folder": (lambda root, out: (root / "x").symlink_to(out), ["x", "file"], errno.ENOTDIR),
    "a folder swapped for a link": (lambda root, out: swap(root / "in", out), ["in", "file"], errno.ENOTDIR),
    "a pipe": (lambda root, out: os.mkfifo(root / "x"), ["x"], errno.EINVAL),
    "a pipe in place of a folder": (lambda root, out: os.mkfifo(root / "x"), ["x", "file"], errno.ENOTDIR),
    "a socket": (lambda root, out: listen(root / "x"), ["x"], errno.EINVAL),
    "a folder": (lambda root, out: None, ["in"], errno.EISDIR),
    "the folder itself": (lambda root, out: None, [], errno.EISDIR),
    "a file in place of a folder": (lambda root, out: None, ["in", "file", "file"], errno.ENOTDIR),
    "a name that is missing": (lambda root, out: None, ["in", "none"], errno.ENOENT),
    "the way up": (lambda root, out: None, ["..", "outside", "file"], errno.EINVAL),
    "the way up at the end": (lambda root, out: None, ["in", ".."], errno.EINVAL),
    "an absolute name": (lambda root, out: None, ["/etc/passwd"], errno.EINVAL),
    "a path as a name": (lambda root, out: None, ["in/../../outside/file"], errno.EINVAL),
    "an empty name": (lambda root, out: None, ["in", ""], errno.EINVAL),
    "a null character": (lambda root, out: None, ["in", "file\0"], errno.EINVAL),
    "a file that is too large": (lambda root, out: (root / "x").write_text("12345"), ["x"], errno.EFBIG),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_opens_nothing_and_leaves_nothing_open(
    trick: str, root: Path, held: int, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    plant, parts, code = TRICKS[trick]
    plant(root, outside)
    before = set(os.listdir("/dev/fd"))
    for names in (parts, [os.fsencode(part) for part in parts]):
        with pytest.raises(OSError) as raised:  # noqa: PT011 - the number is compared
            read_beneath(held, names, 4)
        assert raised.value.errno == code
    assert set(os.listdir("/dev/fd")) == before


def test_a_file_is_read_in_the_folder_that_was_opened_wherever_it_is_now(root: Path, held: int, outside: Path) -> None:
    assert read_beneath(held, ["in", "file"], 4) == b"ours"
    with folder_beneath(held, ["in"]) as inner:
        swap(root / "in", outside)
        with open(open_file_in(inner, "file"), "rb") as file:
            assert file.read() == b"ours"
    swap(root, outside)
    assert read_beneath(held, ["away", "file"], 4) == b"ours"


def test_only_the_users_own_folder_may_be_a_link(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    with opened_folder(root.parent / "link", is_followed=True) as descriptor:
        assert read_beneath(descriptor, ["in", "file"], 4) == b"ours"
    with pytest.raises(OSError), opened_folder(root.parent / "link"):  # noqa: PT011 - Linux and macOS differ
        pass
