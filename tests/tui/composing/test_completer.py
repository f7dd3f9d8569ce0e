"""Completing commands and files: what is searched, which match comes first, and very large folders."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from swink_agent.tools.files.listing import visible_paths
from swink_agent.tui.composing.completer import Completer
from swink_agent.tui.composing.matching import fitting


class Command(NamedTuple):
    name: str
    help: str


COMMANDS = (Command("/quit", "leave"), Command("/q", "leave"), Command("/model", "another model"), Command("/help", ""))


def commands_for(text: str) -> list[str] | None:
    completer = Completer(commands=COMMANDS)
    wanted = completer.wanted(text, len(text))
    return None if wanted is None or wanted.kind != "command" else [item.label for item in completer.commands(wanted)]


def test_commands_are_completed_at_the_very_beginning_alone() -> None:
    assert commands_for("/") == ["/quit", "/q", "/model", "/help"]
    assert commands_for("/q") == ["/q", "/quit"]
    assert commands_for("/mdl") == ["/model"]
    assert commands_for("#") is None
    assert commands_for("/model gpt") is None
    assert commands_for("see /q") is None
    assert commands_for(" /q") is None
    assert commands_for("a\n/q") is None


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("@", ""),
        ("see @src/a", "src/a"),
        ("(@x", "x"),
        ('@"two wor', "two wor"),
        ("line\n@x", "x"),
        ("mail me@example", None),
        ("@done and", None),
        ('@"closed" x', None),
    ],
)
def test_a_file_is_asked_for_behind_an_at_sign_that_stands_alone(text: str, typed: str | None) -> None:
    wanted = Completer().wanted(text, len(text))
    assert (None if wanted is None else wanted.typed) == typed


def tree(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


async def files_for(folder: Path, text: str) -> list[str]:
    completer = Completer(folder=folder)
    wanted = completer.wanted(text, len(text))
    assert wanted is not None
    return [item.text for item in await completer.files(wanted)]


async def test_files_are_found_by_parts_of_their_names_the_nearest_first(tmp_path: Path) -> None:
    tree(tmp_path, "src/app/main.py", "src/app/domain.py", "main_notes.md", "docs/manual/index.md", ".github/main.yml")
    found = await files_for(tmp_path, "@main")
    assert found[:4] == ["@main_notes.md", "@.github/main.yml", "@src/app/main.py", "@src/app/domain.py"]
    assert (await files_for(tmp_path, "@sam"))[0] == "@src/app/main.py"
    assert (await files_for(tmp_path, "@src/"))[0] == "@src/"
    assert await files_for(tmp_path, "@zzz") == []


async def test_a_name_with_spaces_is_put_in_quotes(tmp_path: Path) -> None:
    tree(tmp_path, "my notes.md")
    assert await files_for(tmp_path, "@notes") == ['@"my notes.md"']
    assert await files_for(tmp_path, '@"my n') == ['@"my notes.md"']


async def test_files_that_git_ignores_are_not_offered_and_links_are_not_followed(tmp_path: Path) -> None:
    tree(tmp_path, "kept.py", "build/out.py", "src/gen/x.py", "src/y.py", ".git/config.py")
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / "src" / ".gitignore").write_text("gen\n")
    os.symlink("/", tmp_path / "root")
    found = await files_for(tmp_path, "@")
    assert found == ["@.gitignore", "@kept.py", "@root", "@src/", "@src/.gitignore", "@src/y.py"]


async def test_paths_elsewhere_are_completed_folder_by_folder(tmp_path: Path) -> None:
    tree(tmp_path, "inside/file.txt", "beside/far.txt", "beside/near.txt")
    assert await files_for(tmp_path / "inside", "@../beside/f") == ["@../beside/far.txt"]
    assert await files_for(tmp_path / "inside", f"@{tmp_path}/be") == [f"@{tmp_path}/beside/"]


async def test_a_file_that_is_new_is_found_once_the_last_look_is_old(tmp_path: Path) -> None:
    tree(tmp_path, "one.txt")
    completer = Completer(folder=tmp_path)
    wanted = completer.wanted("@o", 2)
    assert wanted is not None
    assert [item.label for item in await completer.files(wanted)] == ["one.txt"]
    tree(tmp_path, "other.txt")
    assert [item.label for item in await completer.files(wanted)] == ["one.txt"]
    completer._read_at = time.monotonic() - 60
    for _ in range(200):
        if len(found := await completer.files(wanted)) == 2:
            break
        await asyncio.sleep(0.01)
    assert [item.label for item in found] == ["one.txt", "other.txt"]


def test_a_look_at_a_tree_ends_at_its_bounds_with_what_is_near(tmp_path: Path) -> None:
    tree(tmp_path, "near.txt", *[f"deep/{number}/file" for number in range(50)])
    some = visible_paths(tmp_path, most=10)
    assert len(some.paths) == 10
    assert not some.is_all
    assert some.paths[:2] == ["deep/", "near.txt"]
    assert visible_paths(tmp_path, seconds=0) == ([], False)
    assert visible_paths(tmp_path, goes_on=lambda: False) == ([], False)
    assert visible_paths(tmp_path).is_all
    assert visible_paths(tmp_path / "none") == ([], True)


def test_very_many_names_are_compared_in_a_moment_and_bounded() -> None:
    names = [f"src/module_{number}/component_{number % 97}.py" for number in range(20_000)]
    start = time.process_time()
    found = fitting(names, "mod199comp", 50)
    assert time.process_time() - start < 2
    assert len(found) == 50
    assert all("199" in name or "1" in name for name in found)
    assert fitting(["a" * 5000] * 200, "a" * 59 + "b", 5) == []


def test_an_exact_name_is_first_however_many_have_its_letters() -> None:
    scattered = [f"m_{number}/a_x/i_x/n.py" for number in range(6000)]
    names = [*scattered, "deep/down/domain.py", "deep/the_main.py", "deep/down/main_2.py", "deep/down/here/main"]
    best = ["deep/down/here/main", "deep/down/main_2.py", "deep/the_main.py", "deep/down/domain.py"]
    assert fitting(names, "main", 6)[:4] == best
    assert fitting(names, "main", 6)[4:] == scattered[:2]
    assert fitting(names, "main", 6, goes_on=lambda: False) == []


@pytest.mark.sweep
async def test_every_file_of_a_large_tree_is_found_and_said_to_be_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swink_agent.tui.composing.completer._SOON", 0.0)  # a tree that takes longer than one waits for
    for folder in range(4):
        (tmp_path / f"part{folder}").mkdir()
        for number in range(500):
            os.close(os.open(tmp_path / f"part{folder}" / f"file{number}.txt", os.O_CREAT | os.O_WRONLY))
    tree(tmp_path, "zz/last/needle.md", *[f"flat/{number}" for number in range(4_000)])
    completer = Completer(folder=tmp_path)
    wanted = completer.wanted("@needle.md", 10)
    assert wanted is not None
    notes: list[str] = []
    async with asyncio.timeout(60):
        while not (found := await completer.files(wanted)) or completer.is_reading:
            notes.append(completer.note)
            await completer.more()
    assert [item.label for item in found] == ["zz/last/needle.md"]
    assert completer.note == ""
    assert notes
    assert all(note.startswith("still reading the folder") for note in notes)
    last = completer.wanted("@flat/3999", 10)
    assert last is not None
    assert [item.label for item in await completer.files(last)] == ["flat/3999"]


async def test_a_tree_past_the_bound_is_said_to_be_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.tui.composing.completer._MOST_PATHS", 5)
    tree(tmp_path, *[f"{number}.txt" for number in range(9)])
    completer = Completer(folder=tmp_path)
    wanted = completer.wanted("@", 1)
    assert wanted is not None
    assert len(await completer.files(wanted)) == 5
    assert completer.note == "the folder holds more than is listed: 5 were read"


def test_letters_that_mean_something_in_patterns_are_letters() -> None:
    names = ["a.b", "a]b", "a^b", "a\\b", "a-b", "axb"]
    for name in names:
        assert name in fitting(names, name, 5)[:1]


async def test_the_rules_of_the_repository_above_hold_in_its_folders(tmp_path: Path) -> None:
    tree(tmp_path, "lib/out/a.py", "lib/src/a.py", "lib/src/a.log")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("/lib/out\n*.log\n")
    assert await files_for(tmp_path / "lib", "@") == ["@src/", "@src/a.py"]
    assert await files_for(tmp_path / "lib" / "src", "@") == ["@a.py"]


@pytest.mark.sweep
def test_a_folder_of_very_many_entries_is_looked_at_in_a_moment(tmp_path: Path) -> None:
    for number in range(200_000):
        os.close(os.open(tmp_path / f"{number}.txt", os.O_CREAT | os.O_WRONLY))
    (tmp_path / "sub").mkdir()
    start = time.monotonic()
    found = visible_paths(tmp_path)
    assert time.monotonic() - start < 5
    assert not found.is_all
    assert len(found.paths) <= 20_000
