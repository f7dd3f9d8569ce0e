"""The user's rules, answers, trust, settings and keys in files that programs change at the same time."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swink_agent.app.errors import CredentialsError, SettingsError, UsageProblem
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings import paths
from swink_agent.app.settings.settings import add_hosts, read_file
from swink_agent.app.trust.folder_rules import FolderRules, WorkedFolders
from swink_agent.app.trust.trust import TrustStore
from swink_agent.core.machine.files import locked

NUMBERS = range(24)
KEY = "canary" * 5


def at_once(change: Callable[[int], object]) -> None:
    """Calls `change` with each number, in several threads, which exclude each other as processes do."""
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(change, NUMBERS))


def test_rules_that_are_added_at_once_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "config" / "allowed.json"
    at_once(lambda number: FolderRules(path).add(tmp_path, f"bash: rule {number} *"))
    assert set(FolderRules(path).rules(tmp_path)) == {f"bash: rule {number} *" for number in NUMBERS}
    at_once(lambda number: FolderRules(path).remove(tmp_path, f"bash: rule {number} *"))
    assert FolderRules(path).folders() == {}


def test_answers_for_folders_that_are_given_at_once_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "config" / "folders.json"
    at_once(lambda number: WorkedFolders(path).keep(tmp_path / str(number), True))
    assert WorkedFolders(path).folders() == {str(tmp_path / str(number)): True for number in NUMBERS}


def test_folders_that_are_trusted_at_once_are_all_stored_with_their_copies(tmp_path: Path) -> None:
    path = tmp_path / "config" / "trusted.json"
    folders = [tmp_path / str(number) for number in NUMBERS]
    for folder in folders:
        folder.mkdir()
        (folder / "AGENTS.md").write_text(f"Be {folder.name}.\n")
    at_once(lambda number: TrustStore(path).trust(folders[number]))
    assert set(TrustStore(path).folders()) == set(map(str, folders))
    copies = [copy.read_text() for copy in (tmp_path / "config" / "trusted").iterdir()]
    assert sorted(copies) == sorted(f"Be {number}.\n" for number in NUMBERS)
    at_once(lambda number: TrustStore(path).distrust(folders[number]))
    assert TrustStore(path).folders() == {}


def test_hosts_that_are_added_at_once_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "config" / "config.toml"
    at_once(lambda number: add_hosts([f"{number}.example.com"], path=path))
    file = read_file(path)
    assert file is not None
    assert set(file.values["allow_hosts"]) == {f"{number}.example.com" for number in NUMBERS}


def test_keys_that_are_set_at_once_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "config" / "keys.json"
    at_once(lambda number: Credentials(path, environ={}).set(f"mine{number}", f"{KEY}{number}", "file"))
    assert Credentials(path, environ={}).secrets() == {f"mine{number}": f"{KEY}{number}" for number in NUMBERS}
    at_once(lambda number: Credentials(path, environ={}).remove(f"mine{number}"))
    assert Credentials(path, environ={}).secrets() == {}


@pytest.mark.parametrize("folder", [paths.config_folder, paths.data_folder])
def test_a_user_without_a_home_folder_is_told_what_to_set(
    folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(user: int) -> object:
        raise KeyError(user)

    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SWINK_CONFIG_DIR", "SWINK_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)  # as in a container with a user id of its own
    with pytest.raises(UsageProblem, match=r"no home folder: set HOME to an absolute path, or SWINK_(CONFIG|DATA)_DIR"):
        folder()


def test_a_record_that_cannot_be_opened_is_told_with_its_path_once(tmp_path: Path) -> None:
    path = tmp_path / "allowed.json"
    path.mkdir()
    with pytest.raises(SettingsError) as caught:
        FolderRules(path).folders()
    assert str(caught.value) == f"{path}, the record of allowed calls, cannot be read: Is a directory"


def test_files_are_changed_also_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    rules = FolderRules(tmp_path / "allowed.json")
    rules.add(tmp_path, "bash: ls")
    assert rules.rules(tmp_path) == ("bash: ls",)


def test_a_program_that_never_ends_its_change_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_PATIENCE", 0)
    rules, keys = FolderRules(tmp_path / "allowed.json"), Credentials(tmp_path / "keys.json", environ={})
    with locked(rules.path, 0) as is_locked, locked(keys.path, 0):
        assert is_locked
        with pytest.raises(SettingsError, match=r"allowed\.json cannot be written: another program is changing it"):
            rules.add(tmp_path, "bash: ls *")
        with pytest.raises(CredentialsError, match=r"keys\.json cannot be written: another program is changing it"):
            keys.set("mistral", KEY, "file")
    rules.add(tmp_path, "bash: ls *")
    assert rules.rules(tmp_path) == ("bash: ls *",)


def test_a_file_behind_links_is_locked_for_all_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_PATIENCE", 0)
    names = [tmp_path / name / "stored" for name in ("real", "linked", "twice")]
    for name, target in zip(names[1:], names, strict=False):
        name.parent.mkdir()
        name.symlink_to(target)
    real, linked, twice = names
    rules = FolderRules(linked)
    rules.add(tmp_path, "bash: ls *")  # makes the folder that the links lead to
    for mine, theirs in ((linked, real), (real, twice), (twice, linked)):
        with locked(theirs, 0) as is_locked:
            assert is_locked
            with pytest.raises(SettingsError, match="another program is changing it"):
                FolderRules(mine).add(tmp_path, "bash: cat *")
    assert real.is_file()
    assert linked.is_symlink()
    assert twice.is_symlink()
    assert FolderRules(real).rules(tmp_path) == ("bash: ls *",)


def test_settings_and_keys_that_are_changed_under_two_names_are_all_stored(tmp_path: Path) -> None:
    folders = [tmp_path / "linked", tmp_path / "real"]
    for folder in folders:
        folder.mkdir()
    for name in ("config.toml", "keys.json"):
        (folders[0] / name).symlink_to(folders[1] / name)

    def change(number: int) -> None:
        folder = folders[number % 2]
        add_hosts([f"{number}.example.com"], path=folder / "config.toml")
        Credentials(folder / "keys.json", environ={}).set(f"mine{number}", f"{KEY}{number}", "file")

    at_once(change)
    settings = read_file(folders[1] / "config.toml")
    assert settings is not None
    assert set(settings.values["allow_hosts"]) == {f"{number}.example.com" for number in NUMBERS}
    assert set(Credentials(folders[1] / "keys.json", environ={}).secrets()) == {f"mine{one}" for one in NUMBERS}


def test_a_process_that_is_forked_during_a_change_does_not_keep_the_file_locked(tmp_path: Path) -> None:
    path, context = tmp_path / "allowed.json", multiprocessing.get_context("fork")
    end = context.Event()
    with locked(path, 0):
        child = context.Process(target=end.wait)
        child.start()
    try:
        with locked(path, 0) as is_locked:
            assert is_locked
    finally:
        end.set()
        child.join()
