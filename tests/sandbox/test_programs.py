"""This program runs nothing that a command or a tool could have written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import swink_agent
from swink_agent import extract_text
from swink_agent.sandbox import Sandbox, SandboxProfile, SandboxUnavailable, find_program
from swink_agent.sandbox.programs import importable, own_folders, own_interpreter
from swink_agent.tools import SearchTool, Workspace
from swink_agent.tools.workspace.workspace import WorkspaceError

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
    script = f"#!{folder}/.venv/bin/python\nimport sys\nfrom swink_agent.cli import main\nsys.exit(main())\n"
    program(folder / ".venv/bin/swink", script)
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
    """The whole way: the environment's Python, in the folder, with the default profile."""
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


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "name", ["sitecustomize.py", "usercustomize.py", "sitecustomize/__init__.py", "sitecustomize.pyc"]
)
def test_files_that_python_would_run_before_us_are_put_away(folder: Path, environment: Path, name: str) -> None:
    """A project that is installed as it lies, with this program in its environment: its folder is on Python's path."""
    (packages,) = (folder / ".venv/lib").glob("python3*/site-packages")
    project = folder / "src"
    project.mkdir()
    (packages / "__editable__.project.pth").write_text(f"{project}\n")
    script = f"mkdir -p src/sitecustomize; echo 'print(1)' > src/{name}; echo 'x = 1' > src/mine.py; echo over"
    code = (
        "import asyncio\nfrom swink_agent.sandbox import SandboxProfile, open_sandbox\n"
        f"async def main():\n  with open_sandbox(SandboxProfile(write=({str(folder)!r},))) as s:\n"
        f"    p = await s.spawn(['/bin/bash', '-c', {script!r}], cwd={str(folder)!r})\n    await p.wait()\n"
        "    p.kill()\n    await p.look_behind()\n"
        "    print((await p.output.read()).decode()[-5:], *p.warnings)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([environment / "bin/python", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("over\n"), done.stderr
    assert "when this program is started again" in done.stdout
    assert not (project / name).exists()
    assert (project / "mine.py").exists()


def test_file_tools_do_not_write_what_python_would_run_before_us(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "src").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder / "src")])
    workspace = Workspace(folder)
    for name in ("sitecustomize.py", "usercustomize.py", "sitecustomize/__init__.py"):
        with pytest.raises(WorkspaceError, match="is protected"):
            workspace.place(f"src/{name}")
    for name in ("src/mine.py", "sitecustomize.py"):
        workspace.place(name).close()


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
    from swink_agent.tools.search import tool as search

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


PACKAGES = ["msgspec", "click", "aiohttp", "keyring", "platformdirs", "tomlkit", "jsonschema_rs", "sitecustomize"]
TRAP = "import os\nos.write(1, b'IMPORTED ' + __name__.encode() + b'\\n')\n"


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("form", [["swink"], ["python", "-P", "-m", "swink_agent"], ["python", "-PBmswink_agent"]])
def test_nothing_is_imported_from_the_working_folder(folder: Path, environment: Path, form: list[str]) -> None:
    """By name of every module that there is, those that Python loads before us and this program itself among them."""
    work = folder / "work"
    lay_traps(work, [*sys.stdlib_module_names, *PACKAGES], [*sys.stdlib_module_names, *PACKAGES, "swink_agent"])
    done = start(environment / "bin" / form[0], *form[1:], "doctor", cwd=work)
    assert "landlock" in done.stdout, done.stderr
    assert "IMPORTED" not in done.stdout
    naive = start(environment / "bin/python", "-m", "timeit", "-n1", "pass", cwd=work)
    assert "IMPORTED" in naive.stdout  # Python by itself would import them


@pytest.mark.parametrize("form", [["-m", "swink_agent"], ["-Bmswink_agent"], ["-W", "error", "-m", "swink_agent"]])
@pytest.mark.sweep
def test_nothing_is_imported_from_there_after_our_first_line_in_any_set_up(
    folder: Path, environment: Path, form: list[str]
) -> None:
    """With a plain `-m`, Python itself loads some modules from the folder before that line, and no others."""
    listing = "import runpy, sys; print(*sys.modules)"
    loaded = start(environment / "bin/python", "-c", listing, cwd=folder).stdout.split()
    names = [name for name in (*sys.stdlib_module_names, *PACKAGES) if name not in loaded]
    lay_traps(folder / "work", names, [])
    done = start(environment / "bin/python", *form, "doctor", cwd=folder / "work")
    assert "landlock" in done.stdout, done.stderr
    assert "IMPORTED" not in done.stdout


def test_a_program_that_imports_ours_keeps_its_own_modules(folder: Path, environment: Path) -> None:
    (folder / "theirs").mkdir()
    (folder / "theirs/__init__.py").write_text("import swink_agent\n")
    (folder / "theirs/__main__.py").write_text("import beside\n")
    (folder / "beside.py").write_text("print('found')\n")
    for words in (["-m", "theirs"], ["-m", "theirs", "swink_agent"]):
        assert start(environment / "bin/python", *words, cwd=folder).stdout == "found\n"


def test_a_deleted_working_folder_does_not_cause_a_failure(folder: Path, environment: Path) -> None:
    script = f'mkdir gone && cd gone && rmdir ../gone && exec "{environment}/bin/python" -m swink_agent --version'
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("swink "), done.stderr


def test_an_installation_puts_nothing_beside_the_package() -> None:
    """A `.pth` file would be run by every start of Python in the environment."""
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/swink_agent"]}
    assert list(SOURCE.rglob("*.pth")) == []


def test_files_that_a_command_could_write_are_not_imported_later(folder: Path) -> None:
    ours = os.path.dirname(os.__file__)
    path = ["", ".", str(folder), str(folder / "src"), ours, "relative", str(folder.parent)]
    assert importable(path, [str(folder)]) == [ours, str(folder.parent)]


# -- help --------------------------------------------------------------------------------------------------------


async def said(sandbox: Sandbox, script: str, cwd: Path) -> str:
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=str(cwd))
    await process.wait()
    process.kill()
    return (await process.output.read()).decode()


def lay_traps(folder: Path, modules: list[str], packages: list[str]) -> None:
    folder.mkdir()
    for name in modules:
        (folder / f"{name}.py").write_text(TRAP)
    for name in packages:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(TRAP)
        (folder / name / "__main__.py").write_text(TRAP)


def start(python: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "ANTHROPIC_API_KEY": "x"}
    return subprocess.run([python, *words], cwd=cwd, env=variables, capture_output=True, text=True, check=False)


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
