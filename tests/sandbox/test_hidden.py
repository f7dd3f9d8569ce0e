"""Hidden paths stay hidden if a variable moves them, they are mounted twice, or they are created later."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile, default_hidden, open_unconfined, profile_with_access
from swink_agent.sandbox.credentials import CREDENTIALS, Credential
from swink_agent.sandbox.profile import is_beneath
from swink_agent.tools import Workspace, WorkspaceError

OpenFn = Callable[[SandboxProfile], Sandbox]
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")

MOVED = {
    "AWS_SHARED_CREDENTIALS_FILE": "aws",
    "AWS_CONFIG_FILE": "aws-config",
    "KUBECONFIG": "kube",
    "GOOGLE_APPLICATION_CREDENTIALS": "key.json",
    "NPM_CONFIG_USERCONFIG": "npmrc",
    "PIP_CONFIG_FILE": "pip.conf",
    "NETRC": "netrc",
    "PGPASSFILE": "pgpass",
    "BOTO_CONFIG": "boto",
    "VAULT_TOKEN_FILE": "vault",
    "HF_TOKEN_PATH": "hf",
    "KRB5CCNAME": "krb",
}
FOLDERS = {
    "XDG_CONFIG_HOME": "gh/hosts.yml",
    "XDG_DATA_HOME": "keyrings/login",
    "XDG_CACHE_HOME": "huggingface/token",
    "CLOUDSDK_CONFIG": "credentials.db",
    "DOCKER_CONFIG": "config.json",
    "GNUPGHOME": "private-keys-v1.d/key",
    "AZURE_CONFIG_DIR": "msal_token_cache.json",
    "CARGO_HOME": "credentials.toml",
    "HF_HOME": "token",
    "GH_CONFIG_DIR": "hosts.yml",
    "XDG_RUNTIME_DIR": "bus",
}


def secret(playground: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"secret {playground.canary}\n")
    return path


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("variable", [*MOVED, *FOLDERS])
async def test_credentials_are_hidden_where_a_variable_has_moved_them(
    variable: str, playground: Any, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = playground.base / "elsewhere"
    file = secret(playground, folder / (MOVED.get(variable) or FOLDERS[variable]))
    (folder / "notes.txt").write_text("ordinary\n")
    monkeypatch.setenv(variable, str(file if variable in MOVED else folder))
    script = f"cat {file}; cp {file} mine && cat mine; ls -la {folder} >/dev/null; true"
    with open_unconfined(playground.profile()) as bare:
        assert playground.canary in (await playground.run(bare, script)).output
    playground.before = {}
    outcome = await playground.run(open_backend(playground.profile()), script)
    assert playground.canary not in outcome.output


def places_of(row: Credential, folder: Path) -> list[Path]:
    """The secret files of a row that is at a folder or is a file."""
    return [Path(os.path.normpath(folder / name)) for name in row.files] or [folder]


@pytest.mark.table
@pytest.mark.parametrize("row", CREDENTIALS, ids=lambda row: row.place or row.variable)
def test_each_credential_is_hidden_by_default_and_where_its_variable_moves_it(row: Credential, tmp_path: Path) -> None:
    for environ, place in (({}, tmp_path / row.place), ({row.variable: str(tmp_path / "x/y")}, tmp_path / "x/y")):
        if place == tmp_path or environ.keys() == {""}:
            continue
        hidden = default_hidden(tmp_path, environ)
        for path in places_of(row, place):
            assert any(is_beneath(str(path), outer) for outer in hidden), path


@pytest.mark.parametrize("at_home", [False, True])
async def test_no_credential_is_read_where_it_is_by_default(
    at_home: bool, playground: Any, open_backend: OpenFn
) -> None:
    """Also with the home folder as working folder, and by file tools there."""
    home: Path = playground.home
    (home / ".azure").unlink()
    paths = [path for row in CREDENTIALS if row.place for path in places_of(row, home / row.place)]
    files = [path for path in paths if not any(path in other.parents for other in paths)]
    for path in files:
        secret(playground, path / "key" if path.is_dir() else path)
    script = " ".join(f"'{path}'" for path in files)
    root = home if at_home else playground.root
    outcome = await playground.run(open_backend(playground.profile(root=root)), f"cat {script} 2>&1; grep -rs secret ~")
    assert playground.canary not in outcome.output
    workspace = Workspace(home)
    for path in files:
        with pytest.raises(WorkspaceError, match="hidden"):
            workspace.open_file(str(path / "key" if path.is_dir() else path))


@pytest.mark.parametrize(
    ("settings", "is_secret"),
    [
        ('[user]\n\tname = A\n[url "git@host:"]\n\tinsteadOf = https://host/\n', False),
        ("[http]\n\textraHeader = Authorization: Basic x\n", True),
        ('[remote "a"]\n\turl = https://me:pass@host/x\n', True),
        ("[sendemail]\n\tsmtpPass = x\n", True),
    ],
)
def test_git_settings_are_hidden_if_they_hold_a_credential(tmp_path: Path, settings: str, is_secret: bool) -> None:
    for place in (tmp_path / ".gitconfig", tmp_path / ".config/git/config", tmp_path / "moved"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(settings)
        hidden = default_hidden(tmp_path, {"GIT_CONFIG_GLOBAL": str(tmp_path / "moved")})
        assert (str(place) in hidden) is is_secret


async def test_commands_read_a_home_folder_by_a_list(playground: Any, open_backend: OpenFn) -> None:
    home: Path = playground.home
    for name in ("diary.txt", "other/project/file", ".cache/pip/file", ".config/personal", ".nvm/file"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"in {name}\n")
    (home / "start").write_text("by a link\n")
    (home / ".zshrc").symlink_to("start")
    names = "diary.txt other/project/file .cache/pip/file .config/personal .nvm/file .zshrc .bashrc"
    sandbox = open_backend(playground.profile())
    outcome = await playground.run(sandbox, f"cd ~; cat {names} 2>/dev/null; echo x > new; git config user.name")
    lines = [line for line in outcome.output.splitlines() if "new" not in line]
    assert lines == ["in .cache/pip/file", "in .nvm/file", "by a link", "# as it was", "Test"]
    asked = open_backend(profile_with_access(playground.profile(), read=home / "other"))
    outcome = await playground.run(asked, "cat ~/other/project/file ~/diary.txt 2>/dev/null")
    assert outcome.output == "in other/project/file\n"
    whole = open_backend(playground.profile(root=home))
    assert (await playground.run(whole, "cat ~/diary.txt")).output == "in diary.txt\n"


async def test_a_list_of_files_is_hidden_one_by_one(
    playground: Any, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [secret(playground, playground.base / name) for name in ("one", "two")]
    monkeypatch.setenv("KUBECONFIG", f"{files[0]}::{files[1]}:missing")
    outcome = await playground.run(open_backend(playground.profile()), f"cat {files[0]} {files[1]}")
    assert playground.canary not in outcome.output


async def test_one_in_the_folder_that_is_worked_in_is_hidden_and_the_rest_is_not(
    playground: Any, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(playground.root)
    secret(playground, playground.root / "config.json")
    monkeypatch.setenv("KUBECONFIG", "kube.yaml")
    secret(playground, playground.root / "kube.yaml")
    monkeypatch.setenv("DOCKER_CONFIG", str(playground.root))
    outcome = await playground.run(open_backend(playground.profile()), "cat config.json kube.yaml; cat hello.txt")
    assert playground.canary not in outcome.output
    assert outcome.output.endswith("hello\n")


def test_all_files_of_our_settings_are_hidden_if_they_are_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hidden = default_hidden(tmp_path / "home", {"SWINK_CONFIG_DIR": str(tmp_path)})
    names = {"config.toml", "keys.json", "trusted.json", "trusted", "allowed.json", "folders.json"}
    assert {str(tmp_path / name) for name in names} <= set(hidden)
    assert str(tmp_path) not in hidden


def test_a_variable_that_moves_nothing_hides_nothing(tmp_path: Path) -> None:
    usual = set(default_hidden(tmp_path, {}))
    odd = {
        "GIT_CONFIG_GLOBAL": str(tmp_path / ".gitconfig"),
        "PIP_CONFIG_FILE": "/dev/null",
        "HISTFILE": "",
        "XDG_CONFIG_HOME": "relative",
        "DOCKER_CONFIG": "/",
        "KRB5CCNAME": "KEYRING:persistent:0",
        "NETRC": "~/.netrc",
    }
    more = set(default_hidden(tmp_path, odd)) - usual
    assert {path for path in more if os.path.exists(path)} == set()


# -- mounted twice -----------------------------------------------------------------------------------------------


@only_root
@pytest.mark.parametrize("when", ["before", "between"])
async def test_folders_mounted_in_a_second_place_are_hidden_there_too(
    when: str, playground: Any, open_backend: OpenFn
) -> None:
    whole, part, file = (playground.outside / name for name in ("whole", "part", "file"))
    whole.mkdir()
    part.mkdir()
    file.touch()
    sandbox = open_backend(playground.profile())
    if when == "between":
        await playground.run(sandbox, "true")
    pairs = ((playground.home, whole), (playground.home / ".ssh", part), (playground.home / ".netrc", file))
    mounted: list[Path] = []
    try:
        for source, target in pairs:
            mount(source, target)
            mounted.append(target)
        if when == "before":
            sandbox = open_backend(playground.profile())
        script = f"cat {whole}/.ssh/* {whole}/.netrc {whole}/.aws/*; cat {part}/*; cat {file}; cat {whole}/notes.txt"
        outcome = await playground.run(sandbox, script)
        assert playground.canary not in outcome.output
        assert "# as it was" in outcome.output
        with open_unconfined(playground.profile()) as bare:
            assert playground.canary in (await playground.run(bare, script)).output
    finally:
        for target in mounted:
            unmount(target)


def mount(source: Path, target: Path) -> None:
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)


def unmount(target: Path) -> None:
    subprocess.run(["umount", str(target)], check=True)


# -- made later --------------------------------------------------------------------------------------------------


async def test_files_made_between_two_commands_are_hidden(playground: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(playground.profile())
    script = "cat ~/.kube/config ~/.pgpass ~/.config/doctl/config.yaml"
    await playground.run(sandbox, script)
    for name in (".kube/config", ".pgpass", ".config/doctl/config.yaml"):
        secret(playground, playground.home / name)
    outcome = await playground.run(sandbox, script)
    assert playground.canary not in outcome.output


@pytest.fixture
def remembered(playground: Any) -> Any:
    """A playground in which a back end may remember what it found: no hidden path is a link."""
    (playground.home / ".azure").unlink()
    return playground


async def test_a_file_that_becomes_a_folder_between_two_commands_stays_hidden(
    remembered: Any, open_backend: OpenFn
) -> None:
    playground = remembered
    sandbox = open_backend(playground.profile())
    place = playground.home / ".kube"
    script = "true; cat ~/.kube ~/.kube/config"
    for path in (place, place / "config", place):
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        secret(playground, path)
        for _ in range(2):  # the second time from memory, if it is remembered by then
            await asyncio.sleep(0.06)
            outcome = await playground.run(sandbox, script)
            assert playground.canary not in outcome.output


async def test_folders_that_are_missing_at_first_are_looked_at_once_they_exist(
    remembered: Any, open_backend: OpenFn
) -> None:
    playground = remembered
    (playground.home / ".m2").symlink_to(playground.home / "elsewhere")  # leads nowhere at first
    sandbox = open_backend(playground.profile())
    script = "cat ~/.config/gcloud/access_tokens.db ~/.config/doctl/config.yaml ~/.m2/settings.xml"
    for name in ("", ".config/gcloud/access_tokens.db", ".config/doctl/config.yaml", "elsewhere/settings.xml"):
        if name:
            secret(playground, playground.home / name)
        for _ in range(2):  # the second time from memory, if it is remembered by then
            await asyncio.sleep(0.06)
            outcome = await playground.run(sandbox, script)
            assert playground.canary not in outcome.output


@pytest.mark.parametrize("link", ["above", "behind"])
async def test_a_folder_that_is_moved_and_linked_again_between_two_commands_stays_hidden(
    link: str, remembered: Any, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the hidden file stays the same, and only the way to it changes."""
    playground = remembered
    first, second, current = (playground.base / name for name in ("first", "second", "current"))
    secret(playground, first / "keys/key.json")
    if link == "behind":
        current.symlink_to("first")
    else:
        first.rename(current)
        first = current
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(current / "keys/key.json"))
    sandbox = open_backend(playground.profile())
    script = f"true; cat {current}/keys/key.json {second}/keys/key.json; echo over"
    for _ in range(2):  # the second time from memory
        await asyncio.sleep(0.06)
        assert playground.canary not in (await playground.run(sandbox, script)).output
    first.rename(second)
    current.unlink(missing_ok=True)
    current.symlink_to("second")
    outcome = await playground.run(sandbox, script)
    assert playground.canary not in outcome.output
    assert outcome.output.endswith("over\n")


async def test_a_credential_made_while_a_command_runs_ends_nothing_and_is_hidden_next(
    playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile())
    process = await sandbox.spawn(
        ["/bin/bash", "-c", "echo ready; until [ -e go ]; do sleep 0.01; done; echo on"], cwd=str(playground.root)
    )
    assert await process.output.readline() == b"ready\n"
    secret(playground, playground.home / ".kube/config")
    outcome = await playground.run(sandbox, "cat ~/.kube/config")
    assert playground.canary not in outcome.output
    (playground.root / "go").touch()
    assert await process.output.read() == b"on\n"
    assert (await process.wait(), process.ended_because) == (0, "")


async def test_ordinary_files_may_come_and_go(playground: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(playground.profile())
    process = await sandbox.spawn(["/bin/bash", "-c", "echo ready; sleep 0.4; echo over"], cwd=str(playground.root))
    assert await process.output.readline() == b"ready\n"
    for name in (".python_history", "new.txt", ".config/new/file"):
        (playground.home / name).parent.mkdir(parents=True, exist_ok=True)
        (playground.home / name).touch()
    assert await process.wait() == 0
    assert process.ended_because == ""
