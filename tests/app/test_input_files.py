"""Folders and files that a user names on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.input_files import read_input

# Root may enter every folder, so the child becomes somebody else, if it can, once all that it needs is loaded.
_LOOK = """
import os, sys
from pathlib import Path
from swink_agent.app.errors import UsageProblem
from swink_agent.app.trust.folder_rules import project_root
from swink_agent.app.runs.input_files import folder_of
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
try:
    folder_of(sys.argv[1])
except UsageProblem as problem:
    print(problem)
print(project_root(Path(sys.argv[1])))
"""


def test_a_folder_that_this_user_may_not_enter_is_named() -> None:
    closed = Path(tempfile.mkdtemp())  # not tmp_path, which lies in folders that nobody else may enter
    closed.chmod(0o600)
    try:
        command = [sys.executable, "-c", _LOOK, str(closed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        closed.rmdir()
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"this user may not enter the folder {closed}: change into another, or give one with --cwd",
        os.path.realpath(closed),
    ]


def test_only_ordinary_files_are_read_even_if_they_changed_after_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    writer = os.open(pipe, os.O_RDWR)
    try:
        os.write(writer, b"secret")
        with pytest.raises(UsageProblem, match=r"pipe is not an ordinary file \(--file\)$"):
            read_input(str(pipe), "--file", 0)
    finally:
        os.close(writer)


def test_a_file_that_makes_its_reader_wait_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, ordinary = tmp_path / "pipe", tmp_path / "ordinary"
    os.mkfifo(pipe)
    ordinary.touch()
    status = ordinary.stat()
    writer = os.open(pipe, os.O_RDWR)
    try:
        # As the files of the kernel: ordinary ones as far as the system tells, and without an end.
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", lambda _: status)
            with pytest.raises(UsageProblem, match="pipe has nothing to read yet"):
                read_input(str(pipe), "", 100)
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "an empty text names no file (--file)"),
        (".", ". is a folder (--file)"),
        ("a\0b", "a\0b is not a valid file name (--file)"),
        ("~nobody-of-this-name/x", "~nobody-of-this-name/x is not the name of a file: "),
        ("/not/there", "/not/there cannot be read: No such file or directory (--file)"),
    ],
)
def test_problems_of_a_file_are_reported(given: str, words: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        read_input(given, "--file", 100)
    assert str(caught.value).startswith(words)


def test_a_file_is_read_up_to_its_most(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1024**2)
    assert read_input(str(path), "--file", 1024**2) == path.read_bytes()
    path.write_bytes(b"x" * (1024**2 + 1))
    with pytest.raises(UsageProblem, match=r"file is larger than 1 MB \(--file\)"):
        read_input(str(path), "--file", 1024**2)
