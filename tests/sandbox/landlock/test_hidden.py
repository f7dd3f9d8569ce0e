"""Hidden paths cannot be read or listed; everything next to them can be read, old or new."""

# ruff: noqa: E501
from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from swink_agent.sandbox import SandboxProfile
from swink_agent.sandbox.kernel import mounts as _mounts
from swink_agent.sandbox.landlock import grants as grants
from swink_agent.sandbox.landlock.backend import LandlockSandbox

PYTHON = str(Path(sys.executable).resolve())
SECRET = "the-secret-itself"

OpenFn = Callable[..., LandlockSandbox]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in (".ssh/id", ".aws/credentials", ".config/gcloud/token"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    for name in ("notes", ".config/other/file", "work/file"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("open\n")
    return home


@pytest.fixture
def open_sandbox(home: Path) -> Iterator[OpenFn]:
    hidden = tuple(str(home / name) for name in (".ssh", ".aws", ".config/gcloud", ".netrc"))
    with ExitStack() as stack:

        def open_one(**fields: object) -> LandlockSandbox:
            profile = SandboxProfile(**{"write": (str(home / "work"),), "hidden": hidden, **fields})  # type: ignore[arg-type]
            opened = stack.enter_context(LandlockSandbox(profile))
            assert isinstance(opened, LandlockSandbox)
            return opened

        yield open_one


async def run(sandbox: LandlockSandbox, script: str) -> str:
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sandbox.profile.write[0])
    output = await process.output.read()
    await process.wait()
    return output.decode()


READERS = r"""
cat H/.ssh/id; cat H/.ssh/../.ssh/id; (cd H/.ssh && cat id; cat ./id; ls; ls .); cat /proc/self/root/H/.ssh/id; head -c 99 H/.aws/*; grep -r . H
ln -s H/.ssh l; cat l/id; ls l/; ln H/.ssh/id hard; cat hard; cp -r H/.ssh copied; cat copied/*; mv H/.ssh moved; cat moved/id
find H/.ssh H/.config/gcloud; ls H/.ssh; tar c H | strings; exec 3<H/.ssh; cat /proc/self/fd/3/id; cat H/.config/gcloud/token
P -I -c 'import os; d = os.open("H/.ssh", os.O_PATH); print(os.open("id", os.O_RDONLY, dir_fd=d))'
P -I -c 'import os; d = os.open("H/.ssh/id", os.O_PATH); print(open(f"/proc/self/fd/{d}").read())'
P -I -c 'import os; d = os.open("H/.ssh", os.O_PATH); print(os.listdir(f"/proc/self/fd/{d}"))'
P -I -c 'import os; os.chdir("H/.ssh"); print(os.listdir())'
"""


async def test_no_way_of_reading_or_listing_shows_what_is_hidden(open_sandbox: OpenFn, home: Path) -> None:
    script = READERS.replace("H/", f"{home}/").replace(" H", f" {home}").replace("P -I", f"{PYTHON} -I")
    output = await run(open_sandbox(), script)
    assert SECRET not in output
    assert not {"id", "credentials", "token"} & set(output.replace("/", "\n").split("\n"))
    assert "open" in output  # what is next to it was found by the same search
    assert (home / ".ssh" / "id").read_text() == SECRET


@pytest.mark.sweep
async def test_the_same_holds_where_the_home_folder_itself_can_be_written(open_sandbox: OpenFn, home: Path) -> None:
    script = READERS.replace("H/", f"{home}/").replace(" H", f" {home}").replace("P -I", f"{PYTHON} -I")
    sandbox = open_sandbox(write=(str(home),))
    output = await run(sandbox, script)
    assert SECRET not in output
    assert not {"id", "credentials", "token"} & set(output.replace("/", "\n").split("\n"))
    assert "open" in output
    assert (home / ".ssh" / "id").read_text() == SECRET
    # Missing ones cannot be made, and everything else is as ever: new programs run, new files are read.
    said = await run(
        sandbox,
        f"echo x > .netrc; mkdir new; printf '#!/bin/sh\\necho ran' > new/go; chmod +x new/go; new/go; cat notes; ls {home}/new",
    )
    assert said.split("\n")[1:] == ["ran", "open", "go", ""]
    assert not (home / ".netrc").exists()


async def test_pipes_with_names_work_where_every_open_is_judged(open_sandbox: OpenFn, home: Path) -> None:
    sandbox = open_sandbox(write=(str(home),))
    assert await run(sandbox, "mkfifo p; cat p & sleep 0.05; echo through > p; wait") == "through\n"
    assert await run(
        sandbox, "(sleep 0.05; cat p) & echo late > p; wait; (exec 3<>p; echo both >&3; read x <&3; echo $x)"
    ) == ("late\nboth\n")


async def test_folders_above_something_hidden_can_be_listed(open_sandbox: OpenFn, home: Path) -> None:
    sandbox = open_sandbox()
    listed = await run(
        sandbox,
        f"ls -A {home}; cd {home}; ls -A; cd .config; ls -A . ..; {PYTHON} -I -c 'import os; print(os.listdir(\"/\") != [])'",
    )
    names = [".aws", ".config", ".ssh", "notes", "work"]
    inner = [".:", "gcloud", "other", "", "..:"]
    assert listed.split("\n") == [*names, *names, *inner, *names, "True", ""]


@pytest.mark.sweep
async def test_files_that_appear_next_to_hidden_ones_can_be_read_by_the_next_command(
    open_sandbox: OpenFn, home: Path
) -> None:
    sandbox = open_sandbox()
    for number in range(3):
        (home / f"new{number}").write_text(f"{number}\n")
        assert await run(sandbox, f"cat {home}/new{number}") == f"{number}\n"
    (home / ".netrc").write_text(SECRET)
    assert SECRET not in await run(sandbox, f"cat {home}/.netrc")


async def test_a_hidden_link_hides_what_it_leads_to(open_sandbox: OpenFn, home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "key").write_text(SECRET)
    (home / ".netrc").symlink_to(tmp_path / "elsewhere")
    assert SECRET not in await run(open_sandbox(), f"cat {tmp_path}/elsewhere/key {home}/.netrc/key")


async def test_only_what_may_be_read_can_be_where_the_profile_says_so(
    open_sandbox: OpenFn, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text(SECRET)
    sandbox = open_sandbox(read=(str(home / "notes"), str(home / ".config")))
    output = await run(
        sandbox,
        f"cat {home}/notes {home}/.config/other/file file; cat {tmp_path}/other {home}/.config/gcloud/token; ls {tmp_path}",
    )
    assert output.startswith("open\nopen\nopen\n")
    assert SECRET not in output
    assert output.count("Permission denied") == 3


async def test_disks_and_the_kernels_windows_cannot_be_read(open_sandbox: OpenFn) -> None:
    script = "for f in /dev/[a-z]*; do [ -b $f -o -c $f ] && head -c 1 $f > /dev/null 2>&1 && echo $f; done; ls /sys/kernel/debug /dev/pts; true"
    readable = [line for line in (await run(open_sandbox(), script)).split("\n") if line.startswith("/dev/")]
    assert set(readable) <= set(grants.DEVICES)


def access(hidden: tuple[str, ...], write: tuple[str, ...] = (), read: tuple[str, ...] | None = None) -> grants.Access:
    return grants.Access(write=write, read=read, hidden=hidden, private=(), network=False)


def test_grants_name_every_neighbour_and_nothing_hidden(home: Path) -> None:
    found = grants.find_grants(access((str(home / ".ssh"), str(home / ".config/gcloud"), str(home / "missing/inner"))))
    inside = {path for path in found.paths if path.startswith(str(home))}
    assert inside == {str(home / name) for name in (".aws", "notes", "work", ".config/other")}
    assert {str(home), str(home / ".config"), "/"} <= set(found.listable_parents)
    assert not any(
        path == folder or path.startswith(folder + "/")
        for path in found.paths
        for folder in ("/dev", str(home / ".ssh"))
    )
    assert found.hidden_inside == ()


def test_grants_are_stale_once_a_folder_on_the_way_changed(home: Path) -> None:
    old = time.time() - 60
    os.utime(home, (old, old))
    os.utime(home.parent, (old, old))
    found = grants.find_grants(access((str(home / ".ssh"),)))
    on_the_way = found._replace(
        listable_parents={path: when for path, when in found.listable_parents.items() if path == str(home)}
    )
    assert not on_the_way.are_stale()
    (home / "new").touch()
    assert on_the_way.are_stale()


def test_hidden_files_in_a_writable_folder_are_distinguished(home: Path) -> None:
    found = grants.find_grants(access((str(home / ".ssh"), "/etc/shadow"), write=(str(home),)))
    assert found.hidden_inside == (str(home / ".ssh"),)
    assert str(home) not in found.listable_parents
    assert "/etc" in found.listable_parents


def test_a_second_mount_of_what_is_hidden_is_hidden(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 8:1 /home /mnt/all\\040homes rw - ext4 /dev/a rw\n"
        "3 1 8:1 /home/me/.ssh/deep /srv/part rw - ext4 /dev/a rw\n"
        "4 1 8:1 /var /other rw - ext4 /dev/a rw\n"
        "5 1 0:5 / /proc rw - proc proc rw\n"
        "broken\n"
    )
    mounts = _mounts.read_mounts(str(table))
    assert set(_mounts.mounted_again("/home/me/.ssh", mounts)) == {"/mnt/all homes/me/.ssh", "/srv/part"}
    assert set(_mounts.mounted_again("/mnt/all homes/me/.ssh", mounts)) == {"/home/me/.ssh", "/srv/part"}
    assert set(_mounts.mounted_again("/proc/1", mounts)) == set()
    assert _mounts.read_mounts(str(tmp_path / "missing")) == []
