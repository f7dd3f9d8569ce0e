"""WorkspaceOnly refuses paths outside the workspace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import PreDispatchContext, Skip
from swink_agent.policies import WorkspaceOnly

AskedFn = Callable[..., PreDispatchContext]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("")
    (root / "out").symlink_to(tmp_path)
    (root / "in").symlink_to(root / "src")
    (root / "loop").symlink_to(root / "loop")
    (tmp_path / "work-two").mkdir()
    (tmp_path / "secret").write_text("")
    return root


@pytest.mark.table
@pytest.mark.parametrize(
    "path",
    [
        "src/a.py",
        "new/folder/file",
        ".",
        "",
        "src/../src/a.py",
        "in/a.py",
        "*.py",
        "src/**",
        "a b",
        "x..y",
    ],
)
def test_a_path_inside_passes(asked: AskedFn, root: Path, path: str) -> None:
    assert WorkspaceOnly(root).pre_dispatch(asked("read_file", path=path)) is None


def test_an_absolute_path_inside_passes(asked: AskedFn, root: Path) -> None:
    assert WorkspaceOnly(root).pre_dispatch(asked("read_file", path=str(root / "src" / "a.py"))) is None
    assert WorkspaceOnly(root).pre_dispatch(asked("read_file", path=str(root))) is None
    assert WorkspaceOnly(root).pre_dispatch(asked("read_file", path=(root / "src").as_uri())) is None


@pytest.mark.table
@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../secret",
        "src/../../secret",
        "out/secret",
        "in/../../secret",
        "..",
        "../work-two/x",
        "~",
        "~/.ssh/id_rsa",
        "~root/.ssh",
        "~nobody-here/x",
        "$HOME/.ssh",
        "${HOME}/.ssh",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "file://localhost/etc/%70asswd",
        "src/a.py\0/etc",
        "*/../../secret",
        "x" * 5000,
    ],
)
def test_a_path_outside_is_refused(asked: AskedFn, root: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert isinstance(WorkspaceOnly(root).pre_dispatch(asked("read_file", path=path)), Skip)


def test_the_model_is_told_which_path_and_where_to_stay(asked: AskedFn, root: Path) -> None:
    verdict = WorkspaceOnly(root).pre_dispatch(asked("copy", source="a", target="/etc/x"))
    assert verdict == Skip(f"the path '/etc/x' (target) is outside the workspace; use a path inside {root}")


@pytest.mark.table
@pytest.mark.parametrize(
    "arguments",
    [
        {"output_file": "../x"},
        {"configPath": "../x"},
        {"paths": ["a", "../x"]},
        {"options": {"nested": [{"cwd": "/"}]}},
        {"anything": "/etc/passwd"},
        {"anything": "a/../../x"},
        {"anything": "~/x"},
        {"files": {"../x": "content"}},
        {"url": "file:///etc/passwd"},
    ],
)
def test_paths_are_found_by_name_and_by_look_however_deep(
    asked: AskedFn, root: Path, arguments: dict[str, Any]
) -> None:
    assert isinstance(WorkspaceOnly(root).pre_dispatch(asked("tool", **arguments)), Skip)


@pytest.mark.table
@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a.c", "content": "/* a comment */"},
        {"command": "cat /etc/hosts"},
        {"path": "a", "edits": [{"old": "/usr/bin", "new": "../lib"}]},
        {"pattern": "/etc/.*"},
        {"query": "../x"},
        {"url": "https://example.org/a/../b"},
        {"city": "Paris", "days": 3, "exact": True, "when": None},
        {"price": "$5", "about": "~5 minutes", "note": "/shrug"},
        {"prose": "a long text\n/with a line that begins so\n../and another"},
    ],
)
def test_text_is_not_taken_for_a_path(asked: AskedFn, root: Path, arguments: dict[str, Any]) -> None:
    assert WorkspaceOnly(root).pre_dispatch(asked("tool", **arguments)) is None


def test_the_access_of_a_command_is_for_a_person_to_decide(asked: AskedFn, root: Path) -> None:
    policy = WorkspaceOnly(root)
    wanted = {"write": ["/opt/tools"], "read": ["~/.aws"]}
    assert policy.pre_dispatch(asked("bash", command="make", access=wanted, reason="/opt/tools is needed")) is None
    assert isinstance(policy.pre_dispatch(asked("deploy", access=wanted)), Skip)
    assert isinstance(policy.pre_dispatch(asked("bash", command="make", access=wanted, cwd="/opt")), Skip)


def test_further_folders_and_other_names_can_be_given(asked: AskedFn, root: Path, tmp_path: Path) -> None:
    policy = WorkspaceOnly(root, also=[tmp_path / "work-two"], keys=["where"])
    assert policy.pre_dispatch(asked("tool", where=str(tmp_path / "work-two" / "x"))) is None
    assert policy.pre_dispatch(asked("tool", where="../secret")) is not None


def test_a_root_behind_a_link_holds_under_both_names(asked: AskedFn, root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    policy = WorkspaceOnly(link)
    assert policy.contains(str(link / "src" / "a.py"))
    assert policy.contains(str(root / "src" / "a.py"))
    assert not policy.contains(str(tmp_path / "secret"))


def test_links_that_lead_in_circles_do_no_harm(root: Path) -> None:
    assert isinstance(WorkspaceOnly(root).contains("loop/x"), bool)


def test_arguments_nested_without_end_do_no_harm(asked: AskedFn, root: Path) -> None:
    nested: Any = "/etc/passwd"
    for _ in range(100_000):
        nested = [nested]
    assert isinstance(WorkspaceOnly(root).pre_dispatch(asked("tool", path=nested)), Skip)
