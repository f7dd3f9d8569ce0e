"""A file is replaced in one step: readers see the old content or the new one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swink_agent.core.machine.files import files_in_use, identity_of, locked, make_private, replace_file, replacing


def test_a_file_is_made_and_replaced_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    replace_file(path, b"old")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"old", 0o600)
    with replacing(path, mode=0o640) as file:
        file.write(b"ne")
        assert path.read_bytes() == b"old"
        file.write(b"w")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)
    assert os.listdir(tmp_path) == ["kept"]


def test_the_old_file_stays_if_the_new_one_cannot_be_finished(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    replace_file(path, b"old")

    def broken(descriptor: int) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        replace_file(path, b"new", fsync=broken)
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", "not bytes"])  # type: ignore[list-item]
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["kept"])


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("sync_name", [True, False])
def test_the_content_and_the_name_are_synced_where_that_is_asked_for(
    tmp_path: Path, sync: bool, sync_name: bool
) -> None:
    synced: list[bool] = []
    replace_file(
        tmp_path / "kept",
        b"new",
        sync=sync,
        sync_name=sync_name,
        fsync=lambda descriptor: synced.append((tmp_path / "kept").exists()),
    )
    assert synced == [*([False] if sync else []), *([True] if sync_name else [])]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_private_file_is_empty_and_never_replaces_another(
    tmp_path: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("this file system has no links")

    if not has_links:
        monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "kept"
    assert make_private(path)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"", 0o600)
    path.write_bytes(b"old")
    assert not make_private(path)
    monkeypatch.setattr(os.path, "lexists", lambda _: False)  # another one makes it at the same time
    assert not make_private(path)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["kept"])


def test_a_lock_is_beside_the_file_itself_and_never_beside_a_device(tmp_path: Path) -> None:
    for name in ("links", "files", "devices"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "devices" / "pipe")
    for name, target in (("file", "files/kept"), ("device", "devices/pipe")):
        (tmp_path / "links" / name).symlink_to(tmp_path / target)
        with locked(tmp_path / "links" / name, 0) as is_locked:
            assert is_locked
    found = {name: sorted(os.listdir(tmp_path / name)) for name in ("links", "files", "devices")}
    assert found == {"links": [".device.lock", "device", "file"], "files": [".kept.lock"], "devices": ["pipe"]}


def test_a_file_is_in_use_while_it_is_open_for_reading_and_writing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"")
    with path.open("rb"), path.open("ab"):
        assert identity_of(path) not in files_in_use()
    with path.open("r+b"):
        assert identity_of(path) in files_in_use()
    assert identity_of(path) not in files_in_use()
