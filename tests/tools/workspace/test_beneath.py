"""Opening beneath a root: paths that lead out are refused, by the kernel and by our own walk."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.tools.workspace import beneath
from swink_agent.tools.workspace.beneath import FOLDER, KernelRoot, LeavesRoot, Root, WalkedRoot, open_root

OpenRoot = Callable[[str], Root]
READ = os.O_RDONLY | os.O_NONBLOCK
OPENS = 100_000


@pytest.fixture
def root(folder: Path, opener: OpenRoot) -> Iterator[Root]:
    found = opener(str(folder))
    yield found
    os.close(found.fd)


def read(root: Root, path: str) -> tuple[str, str]:
    """The content and the resolved path of what `path` opens."""
    opened = root.open(path, READ)
    try:
        return os.read(opened.fd, 100).decode(), "/".join(opened.parts)
    finally:
        os.close(opened.fd)


def test_linux_uses_the_kernel(folder: Path) -> None:
    root = open_root(str(folder))
    os.close(root.fd)
    assert type(root) is (KernelRoot if sys.platform.startswith("linux") else WalkedRoot)


@pytest.mark.parametrize(
    "path", ["a/b", "./a/b", "a//b", "a/../a/b", "a/c/../b", "link", "up/a/b", "absolute", "chain"]
)
def test_paths_that_stay_beneath_are_opened(root: Root, folder: Path, path: str) -> None:
    (folder / "a/c").mkdir(parents=True)
    (folder / "a/b").write_text("inside")
    (folder / "link").symlink_to("a/b")
    (folder / "up").symlink_to("a/..")
    (folder / "absolute").symlink_to(folder / "a/b")
    (folder / "chain").symlink_to("up/absolute")
    assert read(root, path) == ("inside", "a/b")


@pytest.mark.parametrize(
    "path",
    ["..", "../outside/secret", "a/../../outside/secret", "link", "folder/secret", "far", "folder/../../a", "deep/x"],
)
def test_paths_that_lead_out_are_refused(root: Root, folder: Path, outside: Path, path: str) -> None:
    (folder / "a").mkdir()
    (folder / "link").symlink_to("../outside/secret")
    (folder / "folder").symlink_to(outside)
    (folder / "far").symlink_to("/etc/passwd")
    (folder / "deep").symlink_to("a/../../outside")
    with pytest.raises(LeavesRoot):
        read(root, path)


def test_a_folder_beside_whose_name_begins_like_the_root_is_outside(root: Root, folder: Path) -> None:
    beside = folder.with_name("root-beside")
    beside.mkdir()
    (beside / "secret").write_text("outside")
    (folder / "link").symlink_to(beside / "secret")
    with pytest.raises(LeavesRoot):
        read(root, "link")


def test_links_in_a_circle_end(root: Root, folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels") as raised:
        read(root, "a")
    assert raised.value.errno == errno.ELOOP


@pytest.mark.parametrize("path", ["proc/self/root/etc/passwd", "proc/self/cwd/secret", "proc/self/fd/{fd}"])
def test_magic_links_of_proc_lead_nowhere(root: Root, folder: Path, outside: Path, path: str) -> None:
    (folder / "proc").symlink_to("/proc")
    with open(outside / "secret") as secret, pytest.raises(LeavesRoot):
        read(root, path.format(fd=secret.fileno()))


@pytest.mark.parametrize("opener", ["kernel", "walk"], indirect=True)
def test_magic_links_beneath_the_root_open_nothing(opener: OpenRoot, outside: Path) -> None:
    everything = opener("/")
    try:
        with open(outside / "secret") as secret:
            # By its text the link names a file; as magic it would be the open file itself, whatever its path is now.
            (outside / "secret").unlink()
            with pytest.raises(OSError, match=r"No such file|Too many levels"):
                read(everything, f"proc/self/fd/{secret.fileno()}")
    finally:
        os.close(everything.fd)


def test_missing_paths_are_missing(root: Root, folder: Path) -> None:
    (folder / "dangling").symlink_to("nothing")
    (folder / "file").write_text("inside")
    for path in ("nothing", "nothing/../file", "dangling"):
        with pytest.raises(FileNotFoundError):
            read(root, path)
    for path in ("file/", "file/.", "file/x", "file/.."):
        with pytest.raises(NotADirectoryError):
            read(root, path)


def test_a_folder_is_opened_by_any_of_its_names(root: Root, folder: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    for path, parts in ((".", ()), ("a/..", ()), ("a/b", ("a", "b")), ("a/b/..", ("a",)), ("a/", ("a",))):
        opened = root.open(path, FOLDER)
        os.close(opened.fd)
        assert opened.parts == parts


def test_a_moved_folder_is_found_where_it_is_or_not_at_all(root: Root, folder: Path, outside: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    opened = root.open("a/b", FOLDER)
    try:
        assert root.where(opened) == ("a", "b")
        (folder / "a/b").rename(folder / "c")
        if isinstance(root, KernelRoot):
            assert root.where(opened) == ("c",)
        else:
            with pytest.raises(FileNotFoundError):
                root.where(opened)
        (folder / "c").rename(outside / "c")
        with pytest.raises(OSError, match=r"leads out|No such file|was moved"):
            root.where(opened)
    finally:
        os.close(opened.fd)


def test_descriptors_are_not_inherited_and_none_is_left(root: Root, folder: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/c").write_text("inside")
    before = len(os.listdir("/dev/fd"))
    opened = root.open("a/b/../b/c", READ)
    assert not os.get_inheritable(opened.fd)
    os.close(opened.fd)
    for path in ("a/b/../../../x", "a/b/nothing", "a/b/c/d"):
        with pytest.raises(OSError, match=r"."):
            root.open(path, READ)
    assert len(os.listdir("/dev/fd")) == before


def test_where_the_kernel_cannot_the_walk_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    monkeypatch.setattr(beneath, "_syscall", lambda: refused)
    root = open_root(str(folder))
    os.close(root.fd)
    assert type(root) is WalkedRoot


def test_a_kernel_that_is_never_sure_leaves_it_to_the_walk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("inside")
    root = open_root(str(folder))
    calls: list[int] = []

    def unsure(*arguments: object) -> int:
        calls.append(1)
        ctypes.set_errno(errno.EAGAIN)
        return -1

    monkeypatch.setattr(beneath, "_syscall", lambda: unsure)
    try:
        assert read(KernelRoot(root.fd, root.path), "file") == ("inside", "file")
    finally:
        os.close(root.fd)
    assert 1 < len(calls) < 1000


NAMES = st.sampled_from(["..", ".", "", "a", "b", "file", "in", "out", "up", "abs", "far", "loop", "nothing", "secret"])


@given(names=st.lists(NAMES, max_size=8))
@settings(max_examples=400)
def test_no_path_opens_what_is_outside(names: list[str], root: Root, folder: Path, outside: Path) -> None:
    if not (folder / "a").exists():
        (folder / "a/b").mkdir(parents=True)
        (folder / "a/file").write_text("inside")
        (folder / "file").write_text("inside")
        for name, target in {
            "in": "a/file",
            "a/out": "../../outside",
            "out": str(outside),
            "a/b/up": "../..",
            "up": "a/b/up/..",
            "abs": str(folder / "a"),
            "a/far": "/",
            "loop": "loop",
        }.items():
            (folder / name).symlink_to(target)
    path = "/".join(names) or "."
    try:
        opened = root.open(path, READ)
    except OSError:
        return
    try:
        here = os.fstat(opened.fd)
        real = folder.joinpath(*opened.parts)
        assert os.path.samestat(here, real.stat(follow_symlinks=False))
        assert real.resolve() == real  # no link and no `..` among the parts
        assert real == folder or folder in real.parents
    finally:
        os.close(opened.fd)


# -- races ---------------------------------------------------------------------------------------------------


@contextmanager
def swapping(swaps: list[Callable[[], None]]) -> Iterator[list[int]]:
    """Swaps things in a thread of its own, all the time."""
    done: list[int] = [0]
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for one in swaps:
                one()
            done[0] += 1

    thread = threading.Thread(target=swap, name="swapper")
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


def link_swapper(folder: Path, name: str, targets: list[str]) -> Callable[[], None]:
    """Makes the name a link to each of the targets in turn; the target `-` makes it a file."""
    turn = [0]
    spare = str(folder / f"{name}.spare")

    def swap() -> None:
        target = targets[turn[0] % len(targets)]
        turn[0] += 1
        if target == "-":
            with open(spare, "w") as file:
                file.write("inside")
        else:
            os.symlink(target, spare)
        os.rename(spare, folder / name)

    return swap


def folder_swapper(folder: Path, name: str, target: str) -> Callable[[], None]:
    """Puts a link in the place of a folder, and back."""
    real, link, door = str(folder / f"{name}.real"), str(folder / f"{name}.link"), str(folder / name)
    os.symlink(target, link)

    def swap() -> None:
        os.rename(door, real)
        os.rename(link, door)
        os.rename(door, link)
        os.rename(real, door)

    return swap


@pytest.mark.sweep
def test_a_hundred_thousand_opens_while_links_are_swapped_never_leave(root: Root, folder: Path, outside: Path) -> None:
    (folder / "door").mkdir()
    (folder / "door/secret").write_text("inside")
    (folder / "deep").mkdir()
    (folder / "file").write_text("inside")
    swaps = [
        link_swapper(folder, "file", ["../outside/secret", "-", str(outside / "secret"), "door/secret"]),
        folder_swapper(folder, "door", "../outside"),
        folder_swapper(folder, "deep", str(outside)),
    ]
    paths = ["file", "door/secret", "deep/../file", "door/../door/secret"]
    outcomes = {"inside": 0, "refused": 0}
    with swapping(swaps) as done:
        for number in range(OPENS):
            path = paths[number % len(paths)]
            try:
                fd = root.open(path, READ).fd
            except OSError:
                outcomes["refused"] += 1
                continue
            content = os.read(fd, 10)
            os.close(fd)
            assert content in (b"inside", b""), f"{path} opened {content!r}"  # a file is empty before it is written
            outcomes["inside"] += 1
    assert done[0] > 100
    assert min(outcomes.values()) > 100, outcomes  # both happened: it was a race
