"""Files, folders and arguments that are made to be slow: the program stays responsive, and finishes.

The event loop ticks during the attack; the largest gap between two ticks shows whether it was ever blocked. An input of
twice the size takes at most about twice as long, or no longer than before if a limit cuts it off.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from swink_agent import AgentToolResult, ProposedCall, ToolContext, extract_text
from swink_agent.app.agent.system_prompt import folder_listing
from swink_agent.approvals import Approvals
from swink_agent.approvals.display import render_request, safe_display
from swink_agent.core.texts.likeness import close_names
from swink_agent.rendering.escaping import display_warnings
from swink_agent.rendering.texts.diffs import diff_lines
from swink_agent.rendering.texts.invisible import compatibility_form
from swink_agent.sandbox.private import remove_tree
from swink_agent.tools import EditFileTool, ListDirTool, ReadFileTool, SearchTool, WriteFileTool
from swink_agent.tools.files.nearest import describe_nearest
from swink_agent.tools.search.glob import NameGlob
from swink_agent.tools.search.ignore import IgnoreRules
from swink_agent.tools.search.tree import IgnoredPaths

pytestmark = pytest.mark.sweep

LONGEST_GAP = 1.5  # seconds, without the time in which the thread was ready and others had the processors
LONGEST_CALL = 12.0  # seconds of processors

MARKS = "\u0301\u0323"
"""Two accents in an unusual order: each has to be moved past all that come before it."""


@asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """The event loop beats a hundred times a second meanwhile, and no gap is long."""
    gaps: list[float] = [0.0]

    async def beat() -> None:
        while True:
            started = time.monotonic() - kept_waiting()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - kept_waiting() - started)

    task = asyncio.ensure_future(beat())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert max(gaps) < LONGEST_GAP


async def used(tool: Any, **arguments: Any) -> AgentToolResult:
    """The outcome of a call during which the loop beats, and that ends in time."""
    started = used_processors()
    async with beating():
        if (scope_of := getattr(tool, "approval_scope", None)) is not None:
            await asyncio.to_thread(_scope, scope_of, arguments)
        result = await tool.execute(arguments, ToolContext())
    assert used_processors() - started < LONGEST_CALL
    return result


def kept_waiting() -> float:
    """Seconds in which this thread was ready and others had the processors; 0 where the system does not tell."""
    with suppress(OSError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def used_processors() -> float:
    """Seconds of processors that this process used, and its children that have ended."""
    return sum(os.times()[:4])


def _scope(scope_of: Callable[[dict[str, Any]], object], arguments: dict[str, Any]) -> None:
    from swink_agent import ToolError

    try:
        scope_of(arguments)
    except ToolError:
        pass


# -- twice as much takes twice as long, or is cut ------------------------------------------------------------


def apart(size: int, letters: str) -> str:
    """A text that shares two letters of three with another of its kind, and never three in a row."""
    rng = random.Random(size)
    return "".join("ab" + rng.choice(letters) for _ in range(size // 3))


def lines_apart(size: int, letters: str) -> str:
    """Lines as `apart` has letters."""
    return "\n".join(apart(size, letters))


def nearest_names(size: int) -> Callable[[], object]:
    names = [apart(100 + number % 7, "bcdefgh") for number in range(size)]
    return lambda: close_names(apart(102, "ijklmn"), names, cutoff=0.3)


def long_names(size: int) -> Callable[[], object]:
    names = [apart(size, "bcdefgh") + str(number) for number in range(50)]
    return lambda: close_names(apart(size, "ijklmn"), names, cutoff=0.3)


def nearest_lines(size: int) -> Callable[[], object]:
    text = "\n".join(apart(200 + number % 3, "bcdefgh") for number in range(size))
    return lambda: describe_nearest(text, apart(201, "ijklmn"))


def nearest_blocks(size: int) -> Callable[[], object]:
    text = "\n".join(["same", *[apart(40, "bcdefgh") for _ in range(size)]] * 4)
    return lambda: describe_nearest(text, "\n".join(["same", *[apart(40, "ijklmn") for _ in range(size)]]))


def patterns(kind: bytes, path: bytes) -> Callable[[int], Callable[[], object]]:
    def made(size: int) -> Callable[[], object]:
        def decide() -> None:
            rules = IgnoreRules(b"\n".join(kind % number if b"%" in kind else kind for number in range(size)))
            try:
                rules.decide(path, False, time.monotonic() + 1)
            except TimeoutError:
                pass

        return decide

    return made


DEEP_PATH = b"a/" * 2000 + b"a"
DOUBLED: dict[str, tuple[int, Callable[[int], Callable[[], object]]]] = {
    "names much like another": (4_000, nearest_names),
    "long names": (5_000, long_names),
    "lines much like another": (400, nearest_lines),
    "blocks much like another": (500, nearest_blocks),
    "a diff of short texts": (90, lambda size: lambda: diff_lines(lines_apart(size, "bc"), lines_apart(size, "de"))),
    "a diff of longer texts": (900, lambda size: lambda: diff_lines(lines_apart(size, "bc"), lines_apart(size, "de"))),
    "a diff of huge texts": (
        100_000,
        lambda size: lambda: diff_lines(lines_apart(size, "bc"), lines_apart(size, "de")),
    ),
    "accents without end": (100_000, lambda size: lambda: compatibility_form(MARKS * (size // 2))),
    "accents on a letter": (100_000, lambda size: lambda: display_warnings("e" + MARKS * (size // 2))),
    "accents on show": (100_000, lambda size: lambda: safe_display("e" + MARKS * (size // 2))),
    "ignored by many names": (10_000, patterns(b"name%d", DEEP_PATH)),
    "ignored by many patterns": (5_000, patterns(b"a*b?c%d*d", DEEP_PATH)),
    "ignored by many paths": (1_000, patterns(b"**/a*/**/a*/**/?*/b%d", DEEP_PATH)),
    "ignored by steps": (500, patterns(b"**" + b"/*?" * 300 + b"/x", DEEP_PATH)),
    "ignored by one long line": (100_000, lambda size: lambda: IgnoreRules(b"a*?" * (size // 3)).decide(b"a", False)),
    "a glob of stars": (1_000, lambda size: lambda: NameGlob("*a" * (size // 2) + "b").matches(b"a" * 4000)),
    "a glob of folders": (1_000, lambda size: lambda: NameGlob("**/*a" * (size // 5) + "/b").matches(DEEP_PATH)),
}


def seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


@pytest.mark.parametrize("name", DOUBLED)
def test_twice_as_much_takes_about_twice_as_long_at_most(name: str) -> None:
    size, make = DOUBLED[name]
    once, twice = min(seconds(make(size)) for _ in range(2)), min(seconds(make(2 * size)) for _ in range(2))
    assert twice < 3 * once + 0.2
    assert twice < 5


def test_a_glob_with_very_much_in_its_braces_is_refused() -> None:
    for pattern in ("{a,b}" * 20, "{" * 3000 + "," * 900, "{" + "x" * 1000 + ",y}" * 6):
        try:
            glob = NameGlob(pattern)
        except ValueError as error:
            assert "simpler one" in str(error)  # noqa: PT017 - some are understood, and then quick
        else:
            assert seconds(lambda glob=glob: glob.matches(DEEP_PATH)) < 1


# -- the tools -----------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    yield folder
    remove_tree(str(folder), time_limit=60)  # others who tidy up could not, where it is deep


async def test_a_missing_file_among_names_that_are_nearly_its_own(root: Path) -> None:
    for number in range(1500):
        os.close(os.open(root / (apart(200, "bcdefgh") + str(number)), os.O_CREAT | os.O_WRONLY))
    result = await used(ReadFileTool(root), path=apart(202, "bcdefgh"))
    assert result.is_error


async def test_an_edit_of_what_is_nearly_there_a_thousand_times(root: Path) -> None:
    (root / "a.txt").write_text("\n".join(apart(200 + number % 3, "bcdefgh") for number in range(5000)))
    result = await used(EditFileTool(root), path="a.txt", edits=[{"old": apart(201, "ijklmn"), "new": "x"}])
    assert result.is_error
    assert "a.txt" in extract_text(result.content)


@pytest.mark.parametrize("size", [80_000, 2_000_000])
async def test_an_edit_among_accents_without_end(root: Path, size: int) -> None:
    words = " ".join(f"word{number}" for number in range(200))  # all that is compared of a line when one is looked for
    (root / "a.txt").write_text(f"begin\n{words}{MARKS * (size // 2)}\nend\n")
    old = f"begin\n{words}{MARKS[::-1] * (size // 2)}\nend\n"
    result = await used(EditFileTool(root), path="a.txt", edits=[{"old": old, "new": "x"}])
    assert result.is_error


@pytest.mark.parametrize(
    "path",
    [
        "a" * 100_000,
        "a/" * 50_000,
        "../" * 33_000,
        "e" + MARKS * 50_000,
        ("e" + MARKS * 100 + "/") * 500,
        "./" * 50_000,
    ],
    ids=["letters", "folders", "dots", "accents", "folders of accents", "here"],
)
async def test_paths_of_a_hundred_thousand_characters(root: Path, path: str) -> None:
    for tool, more in (
        (ReadFileTool(root), {}),
        (ListDirTool(root), {}),
        (WriteFileTool(root), {"content": "x"}),
        (EditFileTool(root), {"edits": [{"old": "a", "new": "b"}]}),
        (SearchTool(root, "off", ripgrep=None), {"pattern": "x"}),
    ):
        await used(tool, path=path, **more)
    async with beating():
        request = ProposedCall("1", "write_file", {"path": path, "content": "x"}, {"path": path})
        render_request(request)
        await Approvals(lambda question: "no", mode="ask")(request)
    assert os.listdir(root) == []


@pytest.mark.parametrize(
    "data", [b"a" * 16_000_000, b"\n" * 16_000_000, b"\xff" * 16_000_000, "é".encode() * 600_000 + b"\xff" * 14_000_000]
)
async def test_files_of_one_line_and_of_nothing_but_lines(root: Path, data: bytes) -> None:
    (root / "a.txt").write_bytes(data)
    await used(ReadFileTool(root), path="a.txt")
    await used(ReadFileTool(root), path="a.txt", offset=8_000_000)
    await used(EditFileTool(root), path="a.txt", edits=[{"old": "aab", "new": "x"}])
    assert (root / "a.txt").read_bytes() == data


# -- folders -------------------------------------------------------------------------------------------------


def fill(root: Path, count: int) -> None:
    for number in range(count):
        os.close(os.open(root / f"{number:06}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", os.O_CREAT | os.O_WRONLY))


async def test_a_vast_folder_is_listed_up_to_a_bound(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.tools.files.listing._MOST_SCANNED", 1000)
    monkeypatch.setattr("swink_agent.tools.files.list_dir._MOST_SCANNED", 1500)
    for number in range(4):
        (root / f"folder{number}").mkdir()
        fill(root / f"folder{number}", 700)
    fill(root, 1500)
    assert folder_listing(root).endswith(" … and more than 961 more")
    listed = extract_text((await used(ListDirTool(root), depth=5)).content)
    assert "has more than" in listed
    assert len(listed) < 110_000


HOSTILE_RULES = {
    "steps": [b"**" + b"/*?" * 200 + b"/x"] * 300,
    "stars": [b"a*a*a*a*a*a*a*a*a*a*b%d" % number for number in range(5000)],
    "one long line": [b"a*?" * 80_000],
    "folders": [b"**/**/**/**/a*/**/**/a*a*a*/%d" % number for number in range(3000)],
    "names": [b"name%d" % number for number in range(20_000)],
}


@pytest.mark.parametrize("name", HOSTILE_RULES)
async def test_hostile_rules_of_what_git_ignores_hold_nothing_up(root: Path, name: str) -> None:
    (root / ".git").mkdir()
    inner = root
    for _ in range(12):
        inner = inner / ("a" * 30)
        inner.mkdir()
        (inner / ".gitignore").write_bytes(b"\n".join(HOSTILE_RULES[name]))
    (root / ".gitignore").write_bytes(b"\n".join(HOSTILE_RULES[name]))
    fill(root, 200)
    fill(inner, 200)
    (root / "needle.txt").write_text("needle\n")
    started = used_processors()
    assert "needle.txt" in folder_listing(root, limit=1000)
    assert used_processors() - started < 6
    for tool in (SearchTool(root, time_limit=3), SearchTool(root, "off", ripgrep=None, time_limit=3)):
        result = await used(tool, glob="*.txt")
        text = extract_text(result.content)
        assert "needle.txt" in text or "were over" in text
        tool.close()


async def test_results_in_folders_of_any_depth_are_judged(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("needle.txt", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    (root / "needle.txt").write_text("needle\n")
    for tool in (SearchTool(root), SearchTool(root, "off", ripgrep=None)):
        result = await used(tool, glob="needle.txt")
        assert extract_text(result.content).splitlines()[0] == "needle.txt"
        tool.close()
    top = os.open(root, os.O_RDONLY)
    ignored = IgnoredPaths(top)
    assert ignored.covers(b"d/" * 1200 + b"needle.txt")
    assert not ignored.covers(b"d/" * 100 + b"needle.txt")
    ignored.close()
    os.close(top)


async def test_a_search_that_takes_too_long_is_ended(root: Path) -> None:
    (root / "a.txt").write_text("".join(random.Random(1).choices("ab", k=4_000_000)) + "\n")
    tool = SearchTool(root, "off", ripgrep=None, time_limit=1.5)
    result = await used(tool, pattern="[ab]*a[ab]{300}c")
    assert "were over" in extract_text(result.content)
    tool.close()
