"""Hooks that are links into the work tree: the scripts that git runs through them stay unchanged."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile
from swink_agent.tools import Workspace
from swink_agent.tools.workspace.workspace import WorkspaceError

OpenFn = Callable[[SandboxProfile], Sandbox]

HOOK = "#!/bin/sh\necho checked\n"
ATTACK = """
echo evil > {0}; echo evil >> {0}; cp /bin/true {0}; chmod 777 {0}; rm -f {0}; mv {0} gone; ln -sf /bin/true {0}
mv $(dirname {0}) away; rm -rf $(dirname {0}); mkdir -p $(dirname {0}); echo evil > {0}
sed -i s/checked/evil/ {0}; python3 -c "open('{0}', 'r+').write('evil')"; ln {0} other && echo evil > other
echo over
"""


@pytest.fixture
def repository() -> Iterator[Path]:
    """A repository as git lays it out, without git."""
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        root = Path(os.path.realpath(made))
        make_repository(root)
        yield root


def make_repository(root: Path) -> None:
    for folder in (".git/hooks", ".git/objects", ".git/refs/heads"):
        (root / folder).mkdir(parents=True)
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git/config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HOOK)
    path.chmod(0o755)
    return path


def by_a_relative_link(root: Path) -> str:
    make(root / "scripts/pre-commit")
    (root / ".git/hooks/pre-commit").symlink_to("../../scripts/pre-commit")
    return "scripts/pre-commit"


def by_an_absolute_link(root: Path) -> str:
    (root / ".git/hooks/pre-push").symlink_to(make(root / "tools/ci/check"))
    return "tools/ci/check"


def by_a_hard_link(root: Path) -> str:
    make(root / "scripts/pre-commit")
    os.link(root / "scripts/pre-commit", root / ".git/hooks/pre-commit")
    return "scripts/pre-commit"


def by_the_configuration_and_a_link(root: Path) -> str:
    """`core.hooksPath` names a folder of the tree, and a hook in it is a link to a script elsewhere."""
    (root / ".git/config").write_text("[core]\n\thooksPath = .githooks\n")
    make(root / "scripts/check")
    (root / ".githooks").mkdir()
    (root / ".githooks/pre-commit").symlink_to("../scripts/check")
    return "scripts/check"


def by_a_chain(root: Path) -> str:
    make(root / "scripts/real")
    (root / "tools").mkdir()
    (root / "tools/hook").symlink_to("../scripts/real")
    (root / ".git/hooks/pre-commit").symlink_to("../../tools/hook")
    return "scripts/real"


def in_a_module(root: Path) -> str:
    make_repository(root / "vendor")
    (root / "vendor/.git").rename(root / "moved")
    (root / ".git/modules").mkdir()
    (root / "moved").rename(root / ".git/modules/vendor")
    make(root / "scripts/of-module")
    (root / ".git/modules/vendor/hooks/pre-commit").symlink_to(root / "scripts/of-module")
    return "scripts/of-module"


def in_another_repository(root: Path) -> str:
    make_repository(root / "inner")
    make(root / "inner/scripts/check")
    (root / "inner/.git/hooks/pre-commit").symlink_to("../../scripts/check")
    return "inner/scripts/check"


WAYS = [
    by_a_relative_link,
    by_an_absolute_link,
    by_a_hard_link,
    by_the_configuration_and_a_link,
    by_a_chain,
    in_a_module,
    in_another_repository,
]


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("way", WAYS)
async def test_a_command_does_not_change_what_a_hook_is_a_link_to(
    repository: Path, open_backend: OpenFn, way: Callable[[Path], str]
) -> None:
    target = way(repository)
    sandbox = open_backend(SandboxProfile(write=(str(repository),)))
    process = await sandbox.spawn(["/bin/sh", "-c", ATTACK.format(target)], cwd=str(repository))
    await process.wait()
    process.kill()
    assert (await process.output.read()).decode().endswith("over\n")
    assert (repository / target).read_text() == HOOK
    beside = repository / Path(target).parent / "written"
    process = await sandbox.spawn(["/bin/sh", "-c", f"echo fine > {beside}"], cwd=str(repository))
    assert await process.wait() == 0
    assert beside.read_text() == "fine\n"


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("way", WAYS)
def test_a_file_tool_does_not_write_it_either(repository: Path, way: Callable[[Path], str]) -> None:
    target = way(repository)
    workspace = Workspace(repository)
    with pytest.raises(WorkspaceError, match=r"git runs it"):
        workspace.place(target)
    workspace.place(str(Path(target).parent / "other")).close()


async def test_a_link_on_the_way_that_a_command_replaces_is_told(repository: Path, open_backend: OpenFn) -> None:
    """No back end can hold a link in its place, so what is there afterwards is put away and said."""
    make(repository / "scripts/real")
    (repository / "scripts/pre-commit").symlink_to("real")
    (repository / ".git/hooks/pre-commit").symlink_to("../../scripts/pre-commit")
    sandbox = open_backend(SandboxProfile(write=(str(repository),)))
    script = "rm scripts/pre-commit; echo evil > scripts/pre-commit; chmod +x scripts/pre-commit"
    process = await sandbox.spawn(["/bin/sh", "-c", script], cwd=str(repository))
    await process.wait()
    process.kill()
    await process.look_behind()
    hook = repository / ".git/hooks/pre-commit"
    assert not hook.exists() or hook.read_text() == HOOK
    if not hook.exists():
        assert any("scripts/pre-commit" in warning for warning in process.warnings)
