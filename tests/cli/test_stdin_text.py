"""Reading piped input."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator

import pytest

from swink_agent.app.errors import UsageProblem
from swink_agent.cli.prompt.inputs import read_stdin


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass


def test_all_of_a_pipe_is_read_and_decoded(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], "\ufeffcafé\n".encode())
    os.close(pipe[1])
    warnings: list[str] = []
    assert read_stdin(warnings.append, descriptor=pipe[0]) == "café\n"
    assert warnings == []


def test_too_much_is_refused(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"x" * 101)
    os.close(pipe[1])
    with pytest.raises(UsageProblem, match="save it to a file"):
        read_stdin(print, descriptor=pipe[0], most_bytes=100)


def test_an_open_stdin_is_mentioned(pipe: tuple[int, int]) -> None:
    warnings: list[str] = []

    def end_it(text: str) -> None:
        warnings.append(text)
        os.close(pipe[1])

    assert read_stdin(end_it, descriptor=pipe[0], patience=0.01) == ""
    assert warnings == ["waiting for the end of stdin; </dev/null gives an empty stdin"]


def test_a_terminal_is_not_read() -> None:
    master, slave = pty.openpty()
    assert read_stdin(print, descriptor=slave) == ""
    os.close(master)
    os.close(slave)


def test_a_terminal_is_read_up_to_ctrl_d_where_that_is_wanted() -> None:
    master, slave = pty.openpty()
    warnings: list[str] = []

    def type_it() -> None:
        os.write(master, b"One line.\nAnother.\n\x04")

    assert read_stdin(warnings.append, descriptor=slave, at_terminal=type_it) == "One line.\nAnother.\n"
    assert warnings == []
    os.close(master)
    os.close(slave)


def test_a_folder_is_nothing_and_a_closed_stdin_is_told() -> None:
    folder = os.open("/", os.O_RDONLY)
    assert read_stdin(print, descriptor=folder) == ""
    os.close(folder)
    with pytest.raises(UsageProblem, match="stdin cannot be read"):
        read_stdin(print, descriptor=folder)
