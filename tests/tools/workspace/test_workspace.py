"""The workspace: paths that models write, hidden paths, special files, and which version was seen."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from swink_agent.sandbox import SandboxProfile
from swink_agent.tools import Workspace, WorkspaceError
from swink_agent.tools.workspace.beneath import Root


def refusal(workspace: Workspace, path: str) -> str:
    with pytest.raises(WorkspaceError) as raised:
        workspace.open_file(path).close()
    return str(raised.value)


def test_absolute_paths_beneath_the_root_are_taken(workspace: Workspace, folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a/b").write_text("inside")
    for path in (str(folder / "a/b"), f"{folder}//a/b", f"{folder}/./a/../a/b"):
        with workspace.open_file(path) as file:
            assert (file.path, file.read(100)) == ("a/b", b"inside")
    with workspace.open_folder(str(folder)) as opened:
        assert opened.path == "."


def test_a_root_given_through_a_link_takes_paths_in_both_spellings(folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("inside")
    link = tmp_path / "link"
    link.symlink_to(folder)
    workspace = Workspace(link)
    assert workspace.root == folder.resolve()
    for path in ("a", str(link / "a"), str(folder / "a")):
        workspace.open_file(path).close()


def test_paths_outside_are_refused_with_the_name_of_the_root(workspace: Workspace, folder: Path, outside: Path) -> None:
    (folder / "link").symlink_to("../outside/secret")
    (folder / "far").symlink_to(outside)
    here = workspace.root
    assert refusal(workspace, "/etc/passwd") == (f"/etc/passwd is outside the workspace {here}: give a path beneath it")
    assert refusal(workspace, f"{folder}-beside/x") == (
        f"{folder}-beside/x is outside the workspace {here}: give a path beneath it"
    )
    assert refusal(workspace, "../outside/secret") == (
        f"../outside/secret leads out of the workspace {here}: give a path beneath it"
    )
    assert refusal(workspace, f"{folder}/../outside/secret") == (
        f"{folder}/../outside/secret leads out of the workspace {here}: give a path beneath it"
    )
    assert refusal(workspace, "far/secret") == (
        f"far/secret leads out of the workspace {here} through the link far: give a path beneath it"
    )
    assert "leads out" in refusal(workspace, "link")


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "a\ud800"])
def test_invalid_paths_are_refused(workspace: Workspace, path: str) -> None:
    assert "path" in refusal(workspace, path)


def test_a_missing_file_is_told_with_what_was_meant(workspace: Workspace, folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src/main.py").touch()
    here = workspace.root
    assert refusal(workspace, "src/mian.py") == (
        f"src/mian.py does not exist in the workspace {here}; did you mean src/main.py?"
    )
    assert refusal(workspace, "lib/main.py") == (
        f"lib/main.py does not exist in the workspace {here}; did you mean src/main.py?"
    )
    assert refusal(workspace, "lib/other.py") == (
        f"lib/other.py does not exist in the workspace {here}; neither does the folder lib"
    )
    assert refusal(workspace, "quite-another") == (
        f"quite-another does not exist in the workspace {here}; see with list_dir what is there"
    )
    assert "does not exist" in refusal(workspace, "/".join(["a"] * 2000))


def test_the_search_for_a_likely_path_skips_links_and_ends(
    folder: Path, outside: Path, opener: Callable[[str], Root]
) -> None:
    workspace = Workspace(folder, open_root=opener, hidden=[str(folder / "keys")])
    (folder / "keys").mkdir()
    (folder / "keys/main.py").touch()
    (outside / "main.py").touch()
    (folder / "far").symlink_to(outside)
    for number in range(600):
        (folder / f"d{number:04}").mkdir()
    (folder / "zz").mkdir()
    (folder / "zz/main.py").touch()  # beyond as many folders as are looked into
    assert refusal(workspace, "x/main.py").endswith("; neither does the folder x")


def test_special_files_are_refused_without_waiting(
    workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    (folder / "file").touch()
    monkeypatch.chdir(folder)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert refusal(workspace, "pipe") == "pipe is a named pipe: only regular files can be used"
        assert refusal(workspace, "socket") == "socket is a socket or a device: only regular files can be used"
    assert refusal(workspace, "sub") == "sub is a folder: use list_dir to see what is in it"
    assert refusal(workspace, "file/x") == "file/x uses a file as a folder: see with list_dir what is there"
    assert refusal(workspace, "x" * 300).endswith("… is longer than a file's name can be")
    with pytest.raises(WorkspaceError, match="uses a file as a folder"):
        workspace.open_folder("file")


def test_devices_and_the_systems_own_files_are_refused() -> None:
    everything = Workspace("/")
    assert refusal(everything, "/dev/null") == "/dev/null is a device: only regular files can be used"
    if os.path.isdir("/proc/self"):
        assert "made up by the system" in refusal(everything, "/proc/self/environ")
        assert "made up by the system" in refusal(everything, "/proc/version")


def test_credentials_beneath_the_root_are_hidden(folder: Path) -> None:
    (folder / ".ssh").mkdir()
    (folder / ".ssh/id_ed25519").write_text("key")
    (folder / ".ssh.txt").write_text("inside")
    (folder / "link").symlink_to(".ssh/id_ed25519")
    workspace = Workspace(folder, hidden=[str(folder / ".ssh"), "/elsewhere"])
    for path in (".ssh/id_ed25519", "link", "./.ssh/../.ssh/id_ed25519"):
        assert refusal(workspace, path) == f"{path} holds credentials and is hidden from tools"
    with pytest.raises(WorkspaceError, match="hidden"):
        workspace.open_folder(".ssh")
    with pytest.raises(WorkspaceError, match="hidden"):
        workspace.place(".ssh/authorized_keys")
    assert "id_ed25519" not in refusal(workspace, ".ssh/id_ed25518")
    workspace.open_file(".ssh.txt").close()


def test_the_home_folders_credentials_are_hidden_unless_said_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    (folder / ".aws").mkdir()
    (folder / ".aws/credentials").write_text("key")
    assert "hidden" in refusal(Workspace(folder), ".aws/credentials")
    with pytest.raises(WorkspaceError, match="protected"):
        Workspace(folder).place(".bashrc")
    Workspace(folder, hidden=()).open_file(".aws/credentials").close()
    Workspace(folder, protected=()).place(".bashrc").close()


def test_hidden_paths_add_to_the_credentials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    for name in (".aws/credentials", "private/key"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("key")
    both = Workspace(folder, hidden=["private"])
    assert "is hidden from tools" in refusal(both, ".aws/credentials")
    assert "is hidden from tools" in refusal(both, "private/key")
    only = SandboxProfile(write=(str(folder),), hidden=("private",))
    exact = Workspace(folder, profile=only)
    exact.open_file(".aws/credentials").close()
    assert "is hidden from tools" in refusal(exact, "private/key")
    with pytest.raises(ValueError, match="hidden holds the whole workspace"):
        Workspace(folder / "private", profile=only)
    with pytest.raises(TypeError, match="profile must be a SandboxProfile, or None"):
        Workspace(folder, profile="auto")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git/config",
        ".git",
        ".GIT/config",
        ".g\u200cit/config",
        "sub/.git/hooks/x",
        "new/.git/config",
        "link/pre-commit",
        "config-link",
        ".swink/settings.toml",
        ".vscode/tasks.json",
        "sub/../.git/config",
        ".exrc",
        "sub/.VIMRC",
        "sub/.vscode/x",
        "sub/.hg/hgrc",
        "sub/.jj/repo/config.toml",
    ],
)
def test_protected_names_have_no_place_to_write_to(workspace: Workspace, folder: Path, path: str) -> None:
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / "sub/.git/hooks").mkdir(parents=True)
    (folder / "link").symlink_to(".git/hooks")
    (folder / "config-link").symlink_to("sub/.git/config")
    with pytest.raises(WorkspaceError, match="is protected"):
        workspace.place(path)


@pytest.mark.parametrize("last", ["HEAD", "head", "objects/x", "refs/heads/main", "config", "hooks/pre-commit"])
def test_no_folder_becomes_a_repository_file_by_file(workspace: Workspace, folder: Path, last: str) -> None:
    for name in ("objects", "refs"):
        (folder / "bare" / name).mkdir(parents=True)
    workspace.place("bare/config").close()  # a folder with such names is none yet
    workspace.place("bare/objects/model.py").close()
    (folder / "bare/HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(WorkspaceError, match="would be part of a git repository"):
        workspace.place(f"bare/{last}")
    workspace.place("bare/README.md").close()


def test_no_folder_becomes_one_by_its_last_file(workspace: Workspace, folder: Path) -> None:
    for name in ("objects", "refs"):
        (folder / "bare" / name).mkdir(parents=True)
    (folder / "tree").mkdir()
    (folder / "tree/commondir").touch()
    for path in ("bare/HEAD", "bare/head", "tree/HEAD"):
        with pytest.raises(WorkspaceError, match="would be part of a git repository"):
            workspace.place(path)


@pytest.mark.parametrize("path", [".gitignore", ".github/x.yml", "git/config", ".hg/store", ".envrc", ".git2/a"])
def test_names_like_protected_ones_are_free(workspace: Workspace, path: str) -> None:
    with workspace.place(path) as place:
        assert "/".join(place.parts) == path


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("new", "new"),
        ("a/new", "a/new"),
        ("x/y/new", "x/y/new"),
        ("link/new", "a/new"),
        ("to-file", "a/file"),
        ("to-missing", "a/missing"),
        ("to-absolute", "a/file"),
        ("to-folderless", "p/q/r"),
        ("a/../a/./new", "a/new"),
    ],
)
def test_a_place_is_where_the_links_lead(workspace: Workspace, folder: Path, path: str, parts: str) -> None:
    (folder / "a").mkdir()
    (folder / "a/file").touch()
    (folder / "link").symlink_to("a")
    (folder / "to-file").symlink_to("link/file")
    (folder / "to-missing").symlink_to("a/missing")
    (folder / "to-absolute").symlink_to(folder / "a/file")
    (folder / "to-folderless").symlink_to("p/q/r")
    with workspace.place(path) as place:
        assert "/".join(place.parts) == "/".join(place.parts_now()) == parts


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("out", "leads out of the workspace"),
        ("out-missing", "leads out of the workspace"),
        ("far/x", "leads out of the workspace"),
        ("../x", "leads out of the workspace"),
        ("missing/../x", "does not exist"),
        (".", "is a folder"),
        ("a/", "is a folder"),
        ("a/..", "is a folder"),
        ("circle", "goes through links"),
        ("file/x", "uses a file as a folder"),
    ],
)
def test_places_outside_or_of_no_file_are_refused(
    workspace: Workspace, folder: Path, outside: Path, path: str, why: str
) -> None:
    (folder / "a").mkdir()
    (folder / "file").touch()
    (folder / "out").symlink_to("../outside/secret")
    (folder / "out-missing").symlink_to(outside / "new")
    (folder / "far").symlink_to(outside)
    (folder / "circle").symlink_to("circle")
    with pytest.raises(WorkspaceError, match=why):
        workspace.place(path)


def test_a_root_that_is_not_a_folder_is_an_error_at_once(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(NotADirectoryError):
        Workspace(folder / "file")
    with pytest.raises(FileNotFoundError):
        Workspace(folder / "missing")


def test_another_folder_at_the_roots_path_is_not_the_root(workspace: Workspace, folder: Path) -> None:
    folder.rmdir()
    folder.mkdir()
    (folder / "file").write_text("of another folder")
    assert "file does not exist" in refusal(workspace, "file")


def test_a_closed_workspace_opens_nothing_not_even_what_has_its_number_now(
    workspace: Workspace, folder: Path, outside: Path
) -> None:
    number = workspace.beneath.fd
    workspace.close()
    other = os.open(outside, os.O_RDONLY)
    try:
        assert other <= number
        for path in ("secret", "."):
            with pytest.raises(WorkspaceError, match="Bad file descriptor"):
                workspace.open_file(path)
    finally:
        os.close(other)


def test_the_root_is_let_go_with_the_workspace_and_on_demand(folder: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    first = Workspace(folder)
    first.close()
    first.close()
    second = Workspace(folder)
    del second
    assert len(os.listdir("/dev/fd")) == before
    assert repr(first) == f"Workspace({str(folder.resolve())!r})"


def test_relative_hidden_paths_count_from_the_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "private").mkdir()
    (folder / "private/key").write_text("key")
    monkeypatch.chdir(folder.parent)
    for hidden in (["private"], ["./private/"], ["other/../private"], [Path("private")], [str(folder / "private")]):
        workspace = Workspace(folder, hidden=hidden)
        assert "is hidden from tools" in refusal(workspace, "private/key")
        assert workspace.hidden == (str(folder.resolve() / "private"),)


def test_a_workspace_of_which_all_is_hidden_or_names_are_outside_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="hidden holds the whole workspace"):
        Workspace(folder, hidden=["."])
    for name in ("../beside", "/etc", ""):
        with pytest.raises(ValueError, match="stay in it"):
            Workspace(folder, protected=[name])
