"""What this program runs is nothing that a command, or a tool, could have written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import swink_agent
from swink_agent import extract_text
from swink_agent.sandbox import Sandbox, SandboxProfile, SandboxUnavailable, find_program
from swink_agent.sandbox.programs import importable, own_folders, own_interpreter
from swink_agent.tools import SearchTool, Workspace
from swink_agent.tools.workspace import WorkspaceError

OpenFn = Callable[[SandboxProfile], Sandbox]
PACKAGE = Path(swink_agent.__file__).parent
SOURCE = PACKAGE.parent


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        yield Path(made)


@pytest.fixture
def environment(folder: Path) -> Path:
    """The usual set-up: an environment in the folder that is worked in, with this program in it."""
    make_environment(folder / ".venv")
    (packages,) = (folder / ".venv/lib").glob("python3*/site-packages")
    paths = [str(SOURCE), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    (packages / "ours.pth").write_text("\n".join(paths))
    return folder / ".venv"


def program(path: Path, text: str = "#!/bin/sh\necho evil\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# -- by name -----------------------------------------------------------------------------------------------------


def test_a_program_is_not_found_in_the_folder_that_is_worked_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, tools = folder / "work", folder / "tools"
    for name in ("bin/tool", "tool"):
        program(work / name)
    program(tools / "tool")
    (folder / "links").mkdir()
    (folder / "links/tool").symlink_to(work / "tool")
    (folder / "by").symlink_to(work / "bin")
    monkeypatch.chdir(work)
    for bad in (
        str(work),
        f"{work}/bin",
        "",
        ".",
        "bin",
        str(folder / "links"),
        str(folder / "by"),
        f"{tools}/../work",
    ):
        monkeypatch.setenv("PATH", f"{bad}:{tools}")
        assert find_program("tool", outside=[str(work)]) == str(tools / "tool"), bad
        monkeypatch.setenv("PATH", bad)
        assert find_program("tool", outside=[str(work)]) is None, bad


def test_a_program_elsewhere_is_found_as_the_path_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder / "one/tool")
    program(folder / "two/tool")
    (folder / "two/no").write_text("not to be run")
    monkeypatch.setenv("PATH", f"{folder}/missing:{folder}/two:{folder}/one")
    assert find_program("tool") == str(folder / "two/tool")
    assert find_program("no") is None
    assert find_program("sh") in ("/usr/bin/sh", "/bin/sh")


# -- what is protected -------------------------------------------------------------------------------------------

ATTACKS = """
env=.venv; lib=$(echo .venv/lib/python3*/site-packages)
echo 'print("evil")' > $lib/sitecustomize.py
echo 'import os' > $lib/evil.pth
echo evil > $lib/msgspec.py
echo 'home = /evil' > .venv/pyvenv.cfg
cp /bin/true .venv/bin/python; ln -sf /bin/true .venv/bin/python; rm -f .venv/bin/python
echo evil > .venv/bin/swink
mv .venv gone; rm -rf .venv; mkdir .venv; ln -s evil .venv
chmod -R 777 .venv
echo over
"""


async def test_an_environment_that_we_run_from_stays_as_it_is(
    folder: Path, environment: Path, open_backend: OpenFn
) -> None:
    before = contents(environment)
    sandbox = open_backend(SandboxProfile(write=(str(folder),), programs=(str(environment),)))
    assert (await said(sandbox, ATTACKS, folder)).endswith("over\n")
    assert contents(environment) == before


async def test_an_environment_that_is_the_folder_itself_stays_as_it_is(
    folder: Path, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_environment(folder)
    monkeypatch.setattr(sys, "prefix", str(folder))
    sandbox = open_backend(SandboxProfile(write=(str(folder),)))
    before = contents(folder / "bin") | contents(folder / "lib") | contents(folder / "pyvenv.cfg")
    script = (
        "echo x > pyvenv.cfg; echo x > bin/activate; rm -rf lib bin; touch lib/python3*/site-packages/x.pth; echo x > f"
    )
    await said(sandbox, script, folder)
    assert contents(folder / "bin") | contents(folder / "lib") | contents(folder / "pyvenv.cfg") == before
    assert (folder / "f").read_text() == "x\n"


async def test_an_environment_that_we_do_not_run_from_is_the_command_s_own(
    folder: Path, environment: Path, open_backend: OpenFn
) -> None:
    sandbox = open_backend(SandboxProfile(write=(str(folder),)))
    script = (
        "echo x > $(echo .venv/lib/python3*/site-packages)/mine.py; .venv/bin/python -c 'import mine' || echo tried"
    )
    assert "tried\n" in await said(sandbox, script, folder)


def test_a_process_in_an_environment_protects_it_by_itself(folder: Path, environment: Path) -> None:
    """The whole way: Python of the environment, in the folder, with the profile that is given to nobody."""
    code = (
        "import asyncio\nfrom swink_agent.sandbox import SandboxProfile, open_sandbox\n"
        f"async def main():\n  with open_sandbox(SandboxProfile(write=({str(folder)!r},))) as s:\n"
        f"    p = await s.spawn(['/bin/bash', '-c', {ATTACKS!r}], cwd={str(folder)!r})\n    await p.wait()\n"
        "    print((await p.output.read()).decode()[-5:])\n"
        "asyncio.run(main())\n"
    )
    before = contents(environment)
    done = subprocess.run([environment / "bin/python", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "over\n\n", done.stderr
    assert contents(environment) == before


def test_file_tools_do_not_write_it_either(folder: Path, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(environment))
    workspace = Workspace(folder)
    for name in ("pyvenv.cfg", "bin/swink", "lib/evil.pth", "new"):
        with pytest.raises(WorkspaceError, match="is protected"):
            workspace.place(f".venv/{name}")
    workspace.place("mine.py").close()


# -- what we start -----------------------------------------------------------------------------------------------


def test_our_own_interpreter_is_not_that_of_an_environment() -> None:
    assert not (Path(own_interpreter()).parent.parent / "pyvenv.cfg").exists()
    assert str(PACKAGE) in own_folders()


async def test_no_variable_makes_the_launcher_or_bubblewrap_load_something(
    folder: Path, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment names in the folder, a confined command may load, and what we start must not."""
    marker = folder.parent / f"{folder.name}-loaded"
    code = f"open({str(marker)!r}, 'w').write('evil')"
    for name in ("sitecustomize", "usercustomize", "json", "socket", "ctypes"):
        (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(folder)
    library = folder / "libcap.so.2"
    library.write_bytes(b"not a library")
    for name, value in (("PYTHONPATH", "."), ("PYTHONHOME", ""), ("LD_LIBRARY_PATH", f"{folder}:.")):
        monkeypatch.setenv(name, value)
    profile = SandboxProfile(
        write=(str(folder),), environment={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder)}
    )
    sandbox = open_backend(profile)
    assert "not a library" not in await said(sandbox, "echo ran", folder)
    assert not marker.exists()


async def test_a_search_runs_nothing_from_the_folder_where_no_sandbox_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swink_agent import ToolContext
    from swink_agent.tools import search

    (folder / "file").write_text("needle\n")
    evil = program(folder / ".venv/bin/python", f"#!/bin/sh\necho evil > {folder}/ran\n")

    def none_works(profile: SandboxProfile) -> Sandbox:
        raise SandboxUnavailable("none works")

    monkeypatch.setattr(search, "own_interpreter", lambda: str(evil))
    tool = SearchTool(folder, open_sandbox=none_works)
    result = await tool.execute({"pattern": "needle"}, ToolContext())
    assert result.is_error
    assert "no sandbox works here" in extract_text(result.content)
    assert not (folder / "ran").exists()
    monkeypatch.undo()
    tool = SearchTool(folder, open_sandbox=none_works)
    result = await tool.execute({"pattern": "needle"}, ToolContext())
    assert extract_text(result.content) == "file:1: needle"


# -- what is imported --------------------------------------------------------------------------------------------


def test_nothing_is_imported_from_the_working_folder(folder: Path) -> None:
    """By name of every module that there is, but those that Python itself loads before the first line of ours."""
    listing = "import runpy, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    others = ["msgspec", "click", "aiohttp", "keyring", "platformdirs", "tomlkit", "jsonschema_rs", "sitecustomize"]
    trap = "import os\nos.write(1, b'IMPORTED ' + __name__.encode() + b'\\n')\n"
    names = [name for name in (*sys.stdlib_module_names, *others) if name not in loaded]
    for name in names:
        (folder / f"{name}.py").write_text(trap)
    done = subprocess.run(
        [sys.executable, "-m", "swink_agent", "doctor"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "ANTHROPIC_API_KEY": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "landlock" in done.stdout, done.stderr
    assert "IMPORTED" not in done.stdout


def test_what_a_command_could_write_is_not_imported_later(folder: Path) -> None:
    ours = os.path.dirname(os.__file__)
    path = ["", ".", str(folder), str(folder / "src"), ours, "relative", str(folder.parent)]
    assert importable(path, [str(folder)]) == [ours, str(folder.parent)]


# -- help --------------------------------------------------------------------------------------------------------


async def said(sandbox: Sandbox, script: str, cwd: Path) -> str:
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=str(cwd))
    await process.wait()
    process.kill()
    return (await process.output.read()).decode()


def make_environment(folder: Path) -> None:
    subprocess.run([own_interpreter(), "-m", "venv", "--without-pip", str(folder)], check=True)


def contents(top: Path) -> dict[str, Any]:
    paths = [top, *top.rglob("*")] if top.is_dir() else [top]
    return {
        str(path): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "",
        )
        for path in paths
        if "__pycache__" not in path.parts
    }
