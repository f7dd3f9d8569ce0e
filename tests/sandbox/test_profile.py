"""Profiles: absolute and resolved paths, hidden and protected paths, clean environments, fingerprints."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import msgspec
import pytest

from swink_agent.sandbox import (
    BackendReport,
    ProcessLimits,
    SandboxError,
    SandboxProfile,
    SandboxUnavailable,
    clean_environment,
    default_hidden,
)
from swink_agent.sandbox.kernel.mounts import real_paths
from swink_agent.sandbox.names import PROTECTED_NAMES
from swink_agent.sandbox.profile import is_beneath
from swink_agent.tools import Workspace, WorkspaceError


def test_paths_of_roots_are_absolute_and_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    profile = SandboxProfile(write=(str(tmp_path / "link"), "real", "~/real"), read=("link/..",), hidden=("~/secret",))
    assert profile.write == (str(tmp_path / "real"),)
    assert profile.read == (str(tmp_path),)
    assert profile.hidden == (str(tmp_path / "secret"),)


def test_paths_may_be_path_objects_but_not_one_string(tmp_path: Path) -> None:
    assert SandboxProfile(write=(tmp_path,)).write == (str(tmp_path),)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not one path"):
        SandboxProfile(write=str(tmp_path))  # type: ignore[arg-type]


def test_an_empty_path_does_not_open_the_current_folder(tmp_path: Path) -> None:
    for given in ({"write": ("",)}, {"read": [""]}, {"hidden": [""], "write": [tmp_path]}):
        with pytest.raises(ValueError, match="an empty text is not a path"):
            SandboxProfile(**given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^the paths of a SandboxProfile: an int is neither a string nor"):
        SandboxProfile(read=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["no", "false", 0, None])
def test_only_true_and_false_say_whether_the_network_is_open(given: object) -> None:
    with pytest.raises(TypeError, match="network must be True or False"):
        SandboxProfile(network=given)  # type: ignore[arg-type]


def test_limits_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="whole machine"):
        SandboxProfile(write=("/",))
    (tmp_path / "keys/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "keys")
    for hidden in (tmp_path / "keys", tmp_path / "keys/inner", tmp_path / "link"):
        with pytest.raises(ValueError, match="is hidden"):
            SandboxProfile(write=(str(tmp_path / "keys/inner"),), hidden=(str(hidden),))
    for name in ("/absolute", "../up", "a/../../b", "", "."):
        with pytest.raises(ValueError, match="protected name"):
            SandboxProfile(protected=(name,))
    for variables in ({"": "x"}, {"A=B": "x"}, {"A": "x\0y"}):
        with pytest.raises(ValueError, match="variable"):
            SandboxProfile(environment=variables)


def test_hidden_paths_are_those_that_exist_where_they_lead_and_none_twice(tmp_path: Path) -> None:
    (tmp_path / "keys/inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("keys")
    (tmp_path / "broken").symlink_to("nowhere")
    names = ("keys/inner", "link", "file", "missing", "broken")
    profile = SandboxProfile(hidden=tuple(str(tmp_path / name) for name in names))
    assert profile.hidden_paths() == (str(tmp_path / "file"), str(tmp_path / "keys"))


def test_protected_names_are_beneath_every_root(tmp_path: Path) -> None:
    roots = (str(tmp_path / "a"), str(tmp_path / "b"))
    names = tuple(f"{root}/{name}" for root in roots for name in PROTECTED_NAMES)
    assert SandboxProfile(write=roots).protected_names() == names
    assert SandboxProfile(write=roots, protected=()).protected_names() == ()


def test_a_home_folder_in_a_root_keeps_what_begins_with_a_dot_but_for_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in (".bashrc", ".config/fish", ".cache/pip", ".npm/_cacache", ".npm/other", "bin", "tools/bin", "project"):
        (home / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/tools/bin:/usr/bin:bin")
    kept = {str(home / name) for name in (".bashrc", ".config", ".npm/other", "bin", "tools/bin")}
    for root in (home, tmp_path):
        assert set(SandboxProfile(write=(str(root),), hidden=()).at_home()) == kept
        assert SandboxProfile(write=(str(root),), hidden=(), protected=()).at_home() == ()
    assert SandboxProfile(write=(str(home / "project"),), hidden=()).at_home() == ()


@pytest.mark.parametrize("name", [".zshrc", ".config/nvim/init.lua", ".npm/other", "bin/tool", ".local/bin/tool"])
def test_file_tools_in_the_home_folder_do_not_write_what_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    workspace = Workspace(tmp_path, hidden=())
    with pytest.raises(WorkspaceError, match="is protected"):
        workspace.place(name)
    for other in ("notes.txt", ".cache/x", ".npm/_cacache/x"):
        workspace.place(other).close()


def test_hidden_by_default_is_where_credentials_are(tmp_path: Path) -> None:
    hidden = set(default_hidden(tmp_path, {"XDG_CONFIG_HOME": "/elsewhere"}))
    names = (".ssh", ".aws", ".azure", ".kube", ".docker", ".gnupg", ".netrc", ".npmrc", ".pypirc", ".git-credentials")
    names += (".config/gcloud", ".config/gh", ".config/op", ".password-store", ".local/share/keyrings", ".mozilla")
    names += (".config/google-chrome", ".cargo/credentials.toml", ".bash_history", ".config/swink-agent")
    assert {str(tmp_path / name) for name in names} <= hidden
    assert {"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/run/docker.sock", "/run/user"} <= hidden
    assert "/elsewhere/swink-agent" in hidden


def test_where_our_own_keys_are_is_known_without_the_library_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    hidden = default_hidden(os.path.expanduser("~"))
    for folder in (platformdirs.user_config_dir("swink-agent"), platformdirs.user_data_dir("swink-agent")):
        assert any(is_beneath(folder, path) for path in hidden)


def test_the_environment_is_an_allow_list() -> None:
    ours = {
        "PATH": "/bin",
        "HOME": "/home/u",
        "LANG": "C",
        "LC_ALL": "C",
        "TERM": "xterm",
        "VIRTUAL_ENV": "/v",
        "CI": "1",
        "OPENAI_API_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "GITHUB_TOKEN": "x",
        "SSH_AUTH_SOCK": "x",
        "LD_PRELOAD": "x",
        "BASH_ENV": "x",
        "ENV": "x",
        "PYTHONSTARTUP": "x",
        "GIT_DIR": "x",
        "NODE_OPTIONS": "x",
        "LC_API_KEY": "x",
        "LC_SECRET": "x",
        "DATABASE_URL": "x",
        "BASH_FUNC_ls%%": "x",
        "DYLD_INSERT_LIBRARIES": "x",
    }
    assert clean_environment(ours) == {
        "PATH": "/bin",
        "HOME": "/home/u",
        "LANG": "C",
        "LC_ALL": "C",
        "TERM": "xterm",
        "VIRTUAL_ENV": "/v",
        "CI": "1",
    }


def test_a_pattern_never_lets_a_key_through_and_a_name_written_out_does() -> None:
    ours = {"MY_TOKEN": "x", "MY_PASSWORD": "x", "MY_NAME": "x", "LD_LIBRARY_PATH": "x", "GIT_AUTHOR_NAME": "x"}
    assert set(clean_environment(ours, ("MY_*", "LD_*", "GIT_*"))) == {"MY_NAME", "PATH"}
    assert set(clean_environment(ours, ("*",))) == {"MY_NAME", "PATH"}
    assert set(clean_environment(ours, ("MY_TOKEN", "GIT_AUTHOR_NAME"))) == {"MY_TOKEN", "GIT_AUTHOR_NAME", "PATH"}


def test_the_fingerprint_depends_on_the_path_and_not_on_the_terminal(tmp_path: Path) -> None:
    def fingerprint(**variables: str) -> str:
        return SandboxProfile(write=(str(tmp_path),), environment={"PATH": "/bin", **variables}).fingerprint

    assert fingerprint() == fingerprint(TERM="xterm", COLUMNS="80", LANG="C", LC_ALL="C", TZ="UTC", NO_COLOR="1")
    assert len({fingerprint(), fingerprint(PATH="/usr/bin"), fingerprint(HOME="/root"), fingerprint(CI="1")}) == 4


def test_the_fingerprint_changes_with_every_field(tmp_path: Path) -> None:
    base = SandboxProfile(write=(str(tmp_path),), environment={"A": "1", "B": "2"})
    assert base.fingerprint == SandboxProfile(write=(str(tmp_path),), environment={"B": "2", "A": "1"}).fingerprint
    others = [
        msgspec.structs.replace(base, write=()),
        msgspec.structs.replace(base, read=()),
        msgspec.structs.replace(base, hidden=("/x",)),
        msgspec.structs.replace(base, protected=("x",)),
        msgspec.structs.replace(base, network=True),
        msgspec.structs.replace(base, environment={"A": "1", "B": "3"}),
        msgspec.structs.replace(base, limits=ProcessLimits(processes=3)),
    ]
    assert len({profile.fingerprint for profile in (base, *others)}) == 8


def test_a_profile_can_be_pickled_and_shows_no_environment(tmp_path: Path) -> None:
    profile = SandboxProfile(write=(str(tmp_path),), environment={"SERVICE": "value-of-a-secret"})
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert "value-of-a-secret" not in repr(profile)
    with pytest.raises(AttributeError):
        profile.network = True  # type: ignore[misc]


def test_an_unavailable_sandbox_is_explained_with_reasons_remedies_and_choice() -> None:
    report = BackendReport(
        name="bubblewrap", works=False, reason="it is not installed", remedy="apt install bubblewrap"
    )
    error = SandboxUnavailable(reports=(report,))
    assert isinstance(error, SandboxError)
    assert str(error) == (
        "no sandbox works on this machine, so nothing was run: "
        "bubblewrap: it is not installed (apt install bubblewrap). "
        'To run commands without a sandbox, the user may choose sandbox="off"'
    )
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.reports) == (str(error), (report,))
    assert "no back end" in str(SandboxUnavailable())
    assert str(BackendReport(name="landlock", works=True)) == "landlock: works"


def test_many_paths_are_resolved_as_each_by_itself(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "file").touch()
    (tmp_path / "to-real").symlink_to("real")
    (tmp_path / "real" / "to-file").symlink_to("deep/../file")
    (tmp_path / "nowhere").symlink_to("missing/there")
    (tmp_path / "round").symlink_to("round")
    paths = [
        f"{tmp_path}/{folder}{name}"
        for folder in ("", "real/", "to-real/", "to-real/deep/../", "real/deep/", "missing/", "nowhere/", "round/")
        for name in ("file", "to-file", "deep", "to-real", "nowhere", "round", "missing", ".", "..", "")
    ]
    assert list(real_paths(paths)) == [os.path.realpath(path) for path in paths]


def test_relative_hidden_paths_count_from_each_root(tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    profile = SandboxProfile(write=tuple(map(str, roots)), hidden=("private", "~/.ssh"))
    assert profile.hidden == (*[str(root.resolve() / "private") for root in roots], os.path.expanduser("~/.ssh"))


def test_a_relative_path_to_hide_needs_a_root() -> None:
    with pytest.raises(ValueError, match="'private' is a relative path to hide, and there is no write root"):
        SandboxProfile(hidden=("private",))


def test_names_that_are_not_text_have_fingerprints_of_their_own() -> None:
    """A name of other bytes (`b"\\xff"`) is a path like any other: commands run there."""
    names = ["/srv/\udcff", "/srv/\udcfe", "/srv/?", "/srv/\ufffd"]
    assert len({SandboxProfile(write=(name,)).fingerprint for name in names}) == len(names)
