"""Programs that this program starts itself are found and started where no command could have replaced them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swink_agent.local.weights.sources import find_pip
from swink_agent.local.worker.engine import Engine
from swink_agent.local.worker.values import EngineError, WorkerSettings
from swink_agent.sandbox.programs import importable
from swink_agent.sandbox.starting import run_program, trusted_environment, trusted_program
from swink_agent.tui.clipboard import copy_beside
from swink_agent.tui.composing.editor import EditorError, edited


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        yield Path(os.path.realpath(made))


def planted(path: Path, marker: Path) -> Path:
    """A program that tells that it ran, and where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\npwd > {marker}\ncat > /dev/null\n")
    path.chmod(0o755)
    return path


class World:
    """A working folder whose `.venv/bin` comes first on `PATH`, and a folder elsewhere with the real programs."""

    def __init__(self, folder: Path) -> None:
        self.work, self.tools, self.links = folder / "work", folder / "tools", folder / "links"
        for made in (self.work, self.tools, self.links):
            made.mkdir()
        self.evil, self.good = folder / "evil", folder / "good"

    def plant(self, *names: str) -> None:
        for name in names:
            planted(self.work / ".venv/bin" / name, self.evil)
            planted(self.tools / name, self.good)
            (self.links / name).symlink_to(self.work / ".venv/bin" / name)

    @property
    def path(self) -> str:
        return os.pathsep.join(map(str, (self.work / ".venv/bin", "", ".", self.links, self.tools, "/usr/bin", "/bin")))

    @property
    def started_in(self) -> str:
        assert not self.evil.exists()
        return self.good.read_text().strip()


@pytest.fixture
def world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(folder)
    monkeypatch.chdir(made.work)
    monkeypatch.setenv("PATH", made.path)
    return made


# -- the programs ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has one clipboard program, by its absolute path")
@pytest.mark.parametrize(("program", "variable"), [("wl-copy", "WAYLAND_DISPLAY"), ("xclip", "DISPLAY")])
def test_copying_starts_no_program_of_the_folder(world: World, program: str, variable: str) -> None:
    world.plant(program)
    copying = copy_beside("text", {"PATH": world.path, variable: "0"}, [str(world.work)])
    assert copying is not None
    copying.join(30)
    assert world.started_in == "/"


@pytest.mark.usefixtures("no_usual_programs")
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has one clipboard program, by its absolute path")
def test_copying_does_without_where_only_the_folder_has_a_program(world: World) -> None:
    world.plant("xclip")
    (world.tools / "xclip").unlink()
    path = f"{world.work}/.venv/bin:{world.links}:{world.tools}"
    copying = copy_beside("text", {"PATH": path, "DISPLAY": "0"}, [str(world.work)])
    assert copying is not None
    copying.join(30)
    assert not world.evil.exists()


@pytest.mark.parametrize("environ", [{}, {"EDITOR": "vim"}, {"VISUAL": "vim -f"}])
async def test_an_editor_is_none_of_the_folder_and_starts_elsewhere(world: World, environ: dict[str, str]) -> None:
    world.plant("vi", "vim")
    assert await edited("draft", {**environ, "PATH": world.path}, [str(world.work)]) == "draft"
    assert not world.started_in.startswith(str(world.work))


async def test_an_editor_named_by_its_path_in_the_folder_is_refused_with_the_reason(world: World) -> None:
    """The user chose the path, and a command may have chosen since what is there."""
    world.plant("ed")
    inside = world.work / ".venv/bin/ed"
    for name in (inside, world.links / "ed", "./ed", "bin/ed"):
        with pytest.raises(EditorError, match="folders that commands may write"):
            await edited("draft", {"EDITOR": str(name), "PATH": world.path}, [str(world.work)])
    with pytest.raises(EditorError, match="in a folder that commands may write, so it is not started"):
        await edited("draft", {"EDITOR": "only", "PATH": str(planted(world.work / "only", world.evil).parent)})
    assert not world.evil.exists()
    assert await edited("draft", {"EDITOR": str(world.tools / "ed"), "PATH": world.path}, [str(world.work)]) == "draft"


@pytest.mark.parametrize(
    "command", ["sh @WORK@/editor.sh", "sh -c '. @WORK@/editor.sh'", "env X=@WORK@/x sh @LINKS@/ed"]
)
async def test_an_editor_that_runs_a_file_of_the_folder_is_refused_too(world: World, command: str) -> None:
    world.plant("ed")
    planted(world.work / "editor.sh", world.evil)
    command = command.replace("@WORK@", str(world.work)).replace("@LINKS@", str(world.links))
    with pytest.raises(EditorError, match="in a folder that commands may write"):
        await edited("draft", {"EDITOR": command, "PATH": world.path}, [str(world.work)])
    assert not world.evil.exists()
    command = f"sh {world.tools}/ed"
    assert await edited("draft", {"EDITOR": command, "PATH": world.path}, [str(world.work)]) == "draft"


def test_a_link_that_only_passes_through_the_folder_counts_as_in_it(world: World) -> None:
    planted(world.tools / "tool", world.good)
    (world.work / "hop").symlink_to(world.tools / "tool")
    (world.links / "tool").symlink_to(world.work / "hop")
    with pytest.raises(PermissionError, match="in a folder that commands may write"):
        trusted_program(str(world.links / "tool"))
    assert trusted_program("tool") == str(world.tools / "tool")


def test_pip_is_none_of_the_folder(world: World) -> None:
    """Neither by `PATH` nor as a module: `python -m` looks in the folder that it is started in."""
    world.plant("pip", "pip3", "python", "python3")
    trap = f"open({str(world.evil)!r}, 'w').write('imported')\n"
    (world.work / "pip").mkdir()
    for name in ("pip/__init__.py", "pip/__main__.py", "sitecustomize.py", "json.py"):
        (world.work / name).write_text(trap)
    command = find_pip()
    assert command is not None
    environ = {**os.environ, "PYTHONPATH": f"{world.work}:."}
    done = run_program([*command, "--version"], timeout=60, environ=environ, outside=[str(world.work)])
    assert done.stdout.startswith(b"pip "), done.stderr
    assert not world.evil.exists()


async def test_the_local_model_s_worker_loads_nothing_of_the_folder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = f"open({str(world.evil)!r}, 'w').write('imported')\n"
    (world.work / "msgspec.py").write_text(trap)
    (world.work / "sitecustomize.py").write_text(trap)
    monkeypatch.setenv("PYTHONPATH", f"{world.work}{os.pathsep}.")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(world.work))
    engine = Engine(
        WorkerSettings(path=str(world.tools / "no-such.gguf"), context_length=512, state_dir=str(world.tools))
    )
    with pytest.raises(EngineError):
        await engine.load()
    engine.close()
    assert not world.evil.exists()


# -- variables ---------------------------------------------------------------------------------------------------


def test_variables_name_nothing_in_the_folder(world: World) -> None:
    work = str(world.work)
    given = {
        "PATH": f"{work}/bin:bin::{world.tools}",
        "LD_PRELOAD": f"/usr/lib/a.so {work}/evil.so",
        "PYTHONPYCACHEPREFIX": f"{work}/cache",
        "NODE_PATH": f"{work}/node_modules",
        "OPENSSL_CONF": f"{work}/openssl.cnf",
        "LD_LIBRARY_PATH": f"{work}:{world.tools}",
        "PYTHONPATH": f"{work}:.",
        "LANG": "C",
    }
    expected = {"PATH": str(world.tools), "LD_PRELOAD": "/usr/lib/a.so", "LANG": "C"}
    expected["LD_LIBRARY_PATH"] = str(world.tools)
    assert trusted_environment(given) == expected
    assert trusted_environment({"PATH": work})["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_a_folder_in_the_system_s_own_prefix_is_not_taken_for_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/usr/src/app`, with a Python in `/usr`: what lies there is written by commands all the same."""
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert importable(["/usr/src/app", "/usr/src/app/lib", "/usr/lib"], ["/usr/src/app"]) == ["/usr/lib"]
    with pytest.raises(PermissionError):
        trusted_program("/usr/src/app/bin/tool", outside=["/usr/src/app"])


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["sh", "-c", "exec sleep 600"], timeout=0.2, outside=[str(tmp_path)])
