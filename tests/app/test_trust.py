"""A folder's own files count only after the user trusted them, and only while they are unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swink_agent.app.errors import SettingsError
from swink_agent.app.trust.trust import ChangedFile, Project, TrustStore, find_project


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "config" / "trusted.json")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".swink").mkdir(parents=True)
    (folder / ".swink" / "config.toml").write_text("max_turns = 3\n")
    (folder / "AGENTS.md").write_text("Be tidy.\n")
    return folder


def found(folder: Path, store: TrustStore) -> Project:
    project = find_project(folder, store)
    assert project is not None
    return project


def test_nothing_of_a_folder_is_read_before_it_is_trusted(project: Path, store: TrustStore) -> None:
    untrusted = found(project, store)
    assert (untrusted.is_trusted, untrusted.settings, untrusted.notes_files) == (False, None, ())
    assert (untrusted.has_settings, untrusted.was_changed) == (True, False)


def test_a_trusted_folder_may_speak(project: Path, store: TrustStore) -> None:
    trusted = store.trust(project)
    assert trusted == found(project, store)
    assert trusted.settings is not None
    assert trusted.settings.values == {"max_turns": 3}
    assert trusted.notes_files == ((os.path.realpath(project / "AGENTS.md"), b"Be tidy.\n"),)
    assert store.path.stat().st_mode & 0o777 == 0o600


def test_a_change_of_its_settings_ends_the_trust(project: Path, store: TrustStore) -> None:
    store.trust(project)
    (project / ".swink" / "config.toml").write_text("max_turns = 4\n")
    changed = found(project, store)
    assert (changed.is_trusted, changed.settings, changed.was_changed) == (False, None, True)
    assert changed.notes_files == ()
    (project / ".swink" / "config.toml").unlink()
    assert not found(project, store).is_trusted


def test_changes_since_the_answer_are_noticed(project: Path, store: TrustStore) -> None:
    store.trust(project)
    assert store.changes(store.offer(project)) == ()
    (project / ".swink" / "config.toml").write_text("max_turns = 4\n")
    (project / "AGENTS.md").unlink()
    there = Path(os.path.realpath(project))
    expected = (
        ChangedFile(str(there / ".swink/config.toml"), b"max_turns = 3\n", b"max_turns = 4\n"),
        ChangedFile(str(there / "AGENTS.md"), b"Be tidy.\n", b""),
    )
    assert store.changes(store.offer(project)) == expected
    store.trust(project)
    assert store.changes(store.offer(project)) == ()
    (project / "AGENTS.md").write_bytes(b"Be \xff.\r\n")
    assert store.changes(store.offer(project)) == (ChangedFile(str(there / "AGENTS.md"), b"", b"Be \xff.\r\n"),)
    store.trust(project)
    (project / "AGENTS.md").write_text("Be tidy.\n")
    assert store.changes(store.offer(project))[0].old == b"Be \xff.\r\n"


def test_copies_of_what_was_trusted_are_private_whole_and_only_those_in_use(project: Path, store: TrustStore) -> None:
    copies = store.path.parent / "trusted"
    for turn in range(3, 6):
        (project / ".swink" / "config.toml").write_text(f"max_turns = {turn}\n")
        store.trust(project)
        assert sorted(path.read_text() for path in copies.iterdir()) == ["Be tidy.\n", f"max_turns = {turn}\n"]
    assert {path.stat().st_mode & 0o777 for path in (copies, *copies.iterdir())} == {0o700, 0o600}
    for copy in copies.iterdir():
        copy.write_text("something that was never trusted\n")
    (project / "AGENTS.md").write_text("Be evil.\n")
    assert store.changes(store.offer(project)) == ()  # nothing is said rather than something wrong
    assert found(project, store).settings is not None  # copies decide nothing
    store.distrust(project)
    assert list(copies.iterdir()) == []


def test_settings_that_appear_in_a_trusted_folder_are_not_trusted(project: Path, store: TrustStore) -> None:
    (project / ".swink" / "config.toml").unlink()
    assert store.trust(project).is_trusted
    (project / ".swink" / "config.toml").write_text("max_turns = 3\n")
    assert not found(project, store).is_trusted


def test_trust_belongs_to_the_place_and_not_to_a_link_or_a_copy(
    project: Path, store: TrustStore, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    store.trust(link)
    assert list(store.folders()) == [os.path.realpath(project)]
    copy = tmp_path / "copy"
    (copy / ".swink").mkdir(parents=True)
    (copy / ".swink" / "config.toml").write_text("max_turns = 3\n")
    assert not found(copy, store).is_trusted


def test_trust_can_be_taken_away(project: Path, store: TrustStore) -> None:
    store.trust(project)
    assert store.distrust(project)
    assert not store.distrust(project)
    assert not found(project, store).is_trusted


def test_a_repository_is_one_project_from_its_root_down_and_no_further_up(project: Path, store: TrustStore) -> None:
    inner = project / "src" / "deep"
    inner.mkdir(parents=True)
    assert find_project(inner, store) is None
    (project / ".git").mkdir()
    assert found(inner, store).folder == os.path.realpath(project)
    (inner / ".git").mkdir()
    assert find_project(inner, store) is None


def test_settings_with_a_mistake_are_not_trusted(project: Path, store: TrustStore) -> None:
    (project / ".swink" / "config.toml").write_text("max_turns = many\n")
    with pytest.raises(SettingsError, match="not valid TOML"):
        store.trust(project)
    assert store.folders() == {}


def test_a_record_that_cannot_be_read_trusts_nothing(project: Path, store: TrustStore) -> None:
    store.trust(project)
    store.path.write_text("{")
    with pytest.raises(SettingsError, match="the record of trusted folders, cannot be read"):
        find_project(project, store)


def test_a_settings_path_that_is_not_a_file_is_left_alone_and_reported(project: Path, store: TrustStore) -> None:
    path = project / ".swink" / "config.toml"
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever
    left_alone = found(project, store)
    assert (left_alone.settings, left_alone.is_trusted) == (None, False)
    assert "is a named pipe" in left_alone.what_is_unused


def test_a_folder_whose_name_is_not_text_is_not_trusted(project: Path, store: TrustStore) -> None:
    odd = project.with_name("pro\udcffject")
    try:
        project.rename(odd)
    except OSError:
        pytest.skip("the file system has no such names")
    assert found(odd, store).is_trusted is False
    with pytest.raises(SettingsError, match="cannot be trusted: its name is not UTF-8 text"):
        store.offer(odd)
    assert not store.path.exists()
