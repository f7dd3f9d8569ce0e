"""Commands work in any folder (temporary, read-only, with an odd name), or the error gives the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import (
    BackendReport,
    Sandbox,
    SandboxProfile,
    SandboxUnavailable,
    open_sandbox,
    places,
    probe_backends,
    why_not_written,
)
from swink_agent.sandbox.bubblewrap.backend import find_bubblewrap
from swink_agent.sandbox.open import backend_names

OpenFn = Callable[[SandboxProfile], Sandbox]
INSTALLED = [name for name in backend_names() if name != "bubblewrap" or find_bubblewrap(SandboxProfile())]

is_root = os.geteuid() == 0
only_root = pytest.mark.skipif(not is_root, reason="mounts and other owners need root")
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Beneath the system's own temporary folder, whatever a test then makes of that."""
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        yield Path(made)


@pytest.fixture
def temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder for a test."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


async def said(sandbox: Sandbox, script: str, cwd: Path) -> str:
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=str(cwd))
    await process.wait()
    process.kill()
    return (await process.output.read()).decode()


def works(profile: SandboxProfile) -> bool:
    """Whether every installed back end works, whatever else is reported."""
    reports = {report.name: report for report in probe_backends(profile)}
    assert [reports[name] for name in INSTALLED] == [BackendReport(name=name, works=True) for name in INSTALLED]
    return True


def left_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- temporary folders -------------------------------------------------------------------------------------------


async def test_the_temporary_folder_itself_can_be_worked_in(temporary: Path, open_backend: OpenFn) -> None:
    profile = SandboxProfile(write=(str(temporary),))
    assert works(profile)
    sandbox = open_backend(profile)
    assert await said(sandbox, "echo x > f; cat f; echo y > $TMPDIR/g; cat $TMPDIR/g", temporary) == "x\ny\n"
    assert left_in(temporary) == ["f"]  # its own temporary files are elsewhere


async def test_tmp_itself_can_be_worked_in(open_backend: OpenFn) -> None:
    profile = SandboxProfile(write=("/tmp",))
    name = f"swink-test-{os.getpid()}"
    sandbox = open_backend(profile)
    try:
        assert await said(sandbox, f"echo x > {name}; cat /tmp/{name}; mktemp -d", Path("/tmp")) != ""
        assert name in left_in(Path("/tmp"))
    finally:
        os.unlink(f"/tmp/{name}")


async def test_tmp_itself_can_be_read(open_backend: OpenFn) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="swink-test-") as file:
        sandbox = open_backend(SandboxProfile(read=("/tmp",)))
        output = await said(sandbox, f"ls {file.name}; f=$(mktemp) && echo written > $f && cat $f", Path("/"))
    assert output == f"{file.name}\nwritten\n"


async def test_a_folder_beneath_the_temporary_one_can_be_worked_in(temporary: Path, open_backend: OpenFn) -> None:
    inner = temporary / "deep/er"
    inner.mkdir(parents=True)
    assert works(SandboxProfile(write=(str(inner),)))
    sandbox = open_backend(SandboxProfile(write=(str(inner),)))
    await said(sandbox, f"echo x > f; echo broken > {temporary}/out; echo broken > ../out", inner)
    assert left_in(inner) == ["f"]
    assert not (temporary / "out").exists()
    assert not (temporary / "deep/out").exists()


async def test_shared_memory_can_be_worked_in(open_backend: OpenFn) -> None:
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/dev/shm") as made:
        profile = SandboxProfile(write=(made,))
        assert works(profile)
        sandbox = open_backend(profile)
        script = f"echo x > {made}/f; cat f; echo broken > /dev/shm/swink-test-outside"
        assert (await said(sandbox, script, Path(made))).startswith("x\n")
        assert "swink-test-outside" not in left_in(Path("/dev/shm"))


def test_where_every_temporary_folder_can_be_written_by_commands_that_is_said(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(temporary / "home"))
    everything = ("/tmp", "/var/tmp", "/dev/shm", f"/run/user/{os.getuid()}")
    profile = SandboxProfile(write=tuple(path for path in everything if os.path.isdir(path)), hidden=())
    with pytest.raises(SandboxUnavailable, match=r"no temporary folder outside of .* set TMPDIR") as caught:
        open_sandbox(profile)
    assert {report.remedy for report in caught.value.reports if report.name in INSTALLED} == {""}


# -- folders whose files all run ---------------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", [".config/autostart", ".config/systemd/user/x.wants", "Library/LaunchAgents", "bin"])
def test_a_folder_whose_files_run_by_themselves_is_not_written_by_commands(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    root = folder / name
    root.mkdir(parents=True)
    (folder / "by").symlink_to(root)
    for spelled in (root, folder / "by"):
        with pytest.raises(
            SandboxUnavailable, match=r"every file in .* runs at login or by its name, .* another folder"
        ):
            open_sandbox(SandboxProfile(write=(str(spelled),)))
    assert works(SandboxProfile(write=(str(root),), protected=()))


def test_a_project_in_a_folder_of_programs_is_worked_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    (folder / "bin/project").mkdir(parents=True)
    assert works(SandboxProfile(write=(str(folder / "bin/project"),)))


# -- odd names ---------------------------------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ["with space", "line\nbreak", "ünï ☃", "-n", "a'b\"c$(x)`y`", "back\\slash", "\udcff"])
async def test_a_folder_s_name_may_be_anything(name: str, folder: Path, open_backend: OpenFn) -> None:
    odd = folder / name
    odd.mkdir()
    sandbox = open_backend(SandboxProfile(write=(str(odd),)))
    assert works(SandboxProfile(write=(str(odd),)))
    assert await said(sandbox, "echo x > f && cat f; echo x > ../out", odd) != ""
    assert left_in(odd) == ["f"]
    assert left_in(folder) == [name]


async def test_a_link_to_a_folder_is_that_folder(folder: Path, open_backend: OpenFn) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    sandbox = open_backend(SandboxProfile(write=(str(folder / "link"),)))
    assert await said(sandbox, "echo x > f; cat f", folder / "link") == "x\n"
    assert left_in(folder / "real") == ["f"]


def test_a_folder_that_is_gone_is_named(folder: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="gone' is not a folder that exists") as caught:
        open_sandbox(SandboxProfile(write=(str(folder / "gone"),)))
    told = {report.name: (report.remedy, report.is_about_folder) for report in caught.value.reports}
    assert {name: told[name] for name in INSTALLED} == dict.fromkeys(INSTALLED, ("", True))


# -- read-only folders -------------------------------------------------------------------------------------------


def read_only_mode(folder: Path) -> Path:
    (folder / "ro").mkdir()
    (folder / "ro/file").write_text("content\n")
    (folder / "ro").chmod(0o555)
    return folder / "ro"


def read_only_mount(folder: Path) -> Path:
    (folder / "ro").mkdir()
    (folder / "ro/file").write_text("content\n")
    subprocess.run(["mount", "--bind", str(folder / "ro"), str(folder / "ro")], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder / "ro")], check=True)
    return folder / "ro"


def read_only_file_system(folder: Path) -> Path:
    (folder / "ro").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(folder / "ro")], check=True)
    (folder / "ro/file").write_text("content\n")
    subprocess.run(["mount", "-o", "remount,ro", str(folder / "ro")], check=True)
    return folder / "ro"


def of_another(folder: Path) -> Path:
    (folder / "ro").mkdir()
    (folder / "ro/file").write_text("content\n")
    os.chown(folder / "ro", NOBODY, NOBODY)
    return folder / "ro"


READ_ONLY: dict[str, Callable[[Path], Path]] = {"mode": read_only_mode}
if is_root:
    READ_ONLY |= {"mount": read_only_mount, "file system": read_only_file_system, "another's": of_another}


@pytest.fixture(params=READ_ONLY)
def read_only(request: pytest.FixtureRequest, folder: Path) -> Iterator[Path]:
    made = READ_ONLY[request.param](folder)
    yield made
    if request.param in ("mount", "file system"):
        subprocess.run(["umount", str(made)], check=True)
    made.chmod(0o755)


@pytest.mark.rows(one_of=10)
async def test_in_a_read_only_folder_commands_that_only_read_run(read_only: Path, open_backend: OpenFn) -> None:
    profile = SandboxProfile(write=(str(read_only),))
    assert works(profile)
    sandbox = open_backend(profile)
    output = await said(sandbox, "cat file; grep -c content *; echo x > new || echo refused", read_only)
    assert output.splitlines()[:2] == ["content", "1"]
    assert output.endswith("refused\n")
    assert left_in(read_only) == ["file"]
    assert why_not_written(str(read_only)).startswith(repr(str(read_only))) or "may not write" in why_not_written(
        str(read_only)
    )


async def test_a_command_does_not_open_a_read_only_folder_to_plant_something_in_it(
    folder: Path, open_backend: OpenFn
) -> None:
    sealed = read_only_mode(folder)
    sandbox = open_backend(SandboxProfile(write=(str(sealed),)))
    await said(sandbox, "chmod 755 .; mkdir .swink .vscode; echo evil > .swink/config.toml; ln -s x .idea", sealed)
    assert not {".swink", ".vscode", ".idea"} & set(left_in(sealed))
    sealed.chmod(0o755)


async def test_folders_beneath_a_read_only_one_of_another_can_still_be_written(
    folder: Path, open_backend: OpenFn
) -> None:
    if not is_root:
        pytest.skip("another owner needs root")
    top = of_another(folder)
    (top / "mine").mkdir()
    sandbox = open_backend(SandboxProfile(write=(str(top),)))
    assert await said(sandbox, "echo x > mine/f; cat mine/f", top) == "x\n"


@only_root
def test_a_folder_that_no_command_could_enter_is_named_with_its_owner(folder: Path) -> None:
    (folder / "private/inner").mkdir(parents=True)
    os.chown(folder / "private", NOBODY, NOBODY)
    (folder / "private").chmod(0o700)
    with pytest.raises(SandboxUnavailable, match=r"has mode 0700 and belongs to .*: run as that user") as caught:
        open_sandbox(SandboxProfile(write=(str(folder / "private/inner"),)))
    told = {report.name: (report.remedy, report.is_about_folder) for report in caught.value.reports}
    assert {name: told[name] for name in INSTALLED} == dict.fromkeys(INSTALLED, ("", True))


@only_root
def test_folders_of_others_in_the_tree_are_passed_over(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder / "private/repository")], check=True)
    os.chown(folder / "private", NOBODY, NOBODY)
    (folder / "private").chmod(0o700)
    assert works(SandboxProfile(write=(str(folder),)))


@only_root
def test_a_full_disk_is_not_a_fault_of_the_sandbox(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=2", "none", str(folder)], check=True)
    try:
        (folder / "last").touch()
        assert works(SandboxProfile(write=(str(folder),), protected=()))
    finally:
        subprocess.run(["umount", str(folder)], check=True)


# -- which back end ----------------------------------------------------------------------------------------------


@pytest.mark.bubblewrap
def test_a_link_in_the_tree_does_not_silently_switch_the_back_end(playground: Any) -> None:
    (playground.root / ".vscode").symlink_to("vendor")
    with open_sandbox(playground.profile()) as sandbox:
        assert sandbox.backend == "landlock"
        (report,) = sandbox.passed_over
    assert (report.name, report.works, report.is_about_folder) == ("bubblewrap", False, True)
    assert ".vscode' is a symbolic link" in report.reason
    shutil.rmtree(playground.root)


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_name_is_taken_also_by_a_link_that_leads_nowhere(
    answer: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the system does not answer for links: an old C library says no, others do not offer it."""

    def access(path: str, mode: int, *, follow_symlinks: bool) -> bool:
        if answer is None:
            raise NotImplementedError
        return False

    if not answer:
        monkeypatch.setattr(places.os, "access", access)
    places._can_ask_about_links.cache_clear()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").touch()
    try:
        assert [places.exists(str(tmp_path / name)) for name in ("link", "file", "nothing")] == [True, True, False]
    finally:
        places._can_ask_about_links.cache_clear()
