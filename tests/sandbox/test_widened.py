"""Profiles of commands with more access: what they gain, and what they may no longer read."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent.sandbox import SandboxProfile, profile_with_access


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in ("documents", ".aws", ".pyenv/shims", ".cache/pip", ".cache/mozilla", ".local/bin", ".local/share/x"):
        (home / name).mkdir(parents=True)
    (home / ".gitconfig").write_text("")
    (tmp_path / "work").mkdir()
    (tmp_path / "tools/bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"/usr/bin:{tmp_path}/tools/bin:{home}/.pyenv/shims:{home}/.local/bin:relative")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return home


def base(home: Path, **more: object) -> SandboxProfile:
    return SandboxProfile(write=(str(home.parent / "work"),), **more)  # type: ignore[arg-type]


def test_a_command_with_hosts_reads_its_folder_and_tools_but_not_the_home_folder(home: Path) -> None:
    work, tools = str(home.parent / "work"), str(home.parent / "tools")
    given = profile_with_access(base(home), hosts=("PyPI.org",), read=(str(home / "documents"),))
    assert given.hosts == ("pypi.org",)
    assert given.read is not None
    assert {work, tools, str(home / ".pyenv"), str(home / ".cache/pip"), str(home / ".gitconfig")} <= set(given.read)
    assert str(home / "documents") in given.read
    for path in (home, home / ".cache", home / ".cache/mozilla", home / ".local", home.parent, Path("/")):
        assert str(path) not in given.read
    assert given.fingerprint != base(home).fingerprint


def test_a_link_that_a_command_can_make_does_not_choose_what_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = home.parent / "work"
    (work / ".venv").symlink_to(home / "documents")
    (home / "documents/bin").mkdir()
    (home.parent / "other").symlink_to(work)
    (home / ".cache/uv").symlink_to(home / "documents")
    monkeypatch.setenv("VIRTUAL_ENV", str(work / ".venv"))
    monkeypatch.setenv("PATH", f"/usr/bin:{work}/.venv/bin:{home.parent}/other/.venv/bin")
    given = profile_with_access(base(home), hosts=("a.org",), write=(str(home / ".cache"),))
    assert given.read is not None
    assert [path for path in given.read if "documents" in path] == []
    # Nobody but the user can have made this one.
    monkeypatch.setenv("PATH", f"/usr/bin:{home.parent}/theirs/bin")
    (home.parent / "theirs").symlink_to(home / "documents")
    assert str(home / "documents") in (profile_with_access(base(home), hosts=("a.org",)).read or ())


def test_without_hosts_reads_stay_as_they_were(home: Path) -> None:
    (home / "out").mkdir()
    wider = profile_with_access(base(home), write=(str(home / "out"),))
    assert wider.read is None
    assert wider.write == (str(home.parent / "work"), str(home / "out"))
    narrow = profile_with_access(base(home, read=("/usr",)), hosts=("a.org",), read=(str(home / "out"),))
    assert narrow.read == ("/usr", str(home / "out"))


def test_hosts_are_added_and_the_whole_network_takes_their_place(home: Path) -> None:
    with_hosts = base(home, hosts=("a.org",))
    assert profile_with_access(with_hosts, hosts=("b.org",)).hosts == ("a.org", "b.org")
    whole = profile_with_access(with_hosts, network=True)
    assert whole.network
    assert whole.hosts == ()
    assert whole.read is not None


def test_a_hidden_folder_is_opened_if_it_is_named_itself(home: Path) -> None:
    aws = str(home / ".aws")
    assert aws in base(home).hidden
    assert aws not in profile_with_access(base(home), read=(aws,)).hidden
    assert aws in profile_with_access(base(home), read=(str(home),)).hidden
    (home / ".aws/inner").mkdir()
    with pytest.raises(ValueError, match="hidden as a whole"):
        profile_with_access(base(home), read=(aws + "/inner",))
    with pytest.raises(ValueError, match="whole machine"):
        profile_with_access(base(home), write=("/",))


def test_folders_may_be_paths(home: Path) -> None:
    profile = base(home)
    several = profile_with_access(profile, write=[Path("/srv/there")], read=[Path("/srv/more")], network=True)
    assert several.write[-1] == "/srv/there"
    assert several.read is not None
    assert several.read[-1] == "/srv/more"
    assert profile_with_access(profile, write=Path("/srv/there")).write == several.write
