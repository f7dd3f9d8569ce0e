"""The search tool, with each of its engines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swink_agent import Agent, AgentToolResult, CancellationToken, ModelSpec, ToolContext, TurnEnd, extract_text
from swink_agent.core.tool import Toolbox
from swink_agent.sandbox import (
    Sandbox,
    SandboxedProcess,
    SandboxProfile,
    SandboxUnavailable,
    find_program,
    open_sandbox,
)
from swink_agent.sandbox.programs import own_interpreter
from swink_agent.testing import call, collect, scripted, text
from swink_agent.tools import SearchTool, Workspace
from swink_agent.tools.search import scan
from swink_agent.tools.search.scan import compile_pattern

MakeFn = Callable[..., SearchTool]
TRIES = 12
"""How often something may be too slow: a machine is busy now and then, what hangs does so every time."""
ENGINES = ["ripgrep", "scanner", "unconfined"]
MORE_ENGINES = [*ENGINES, *(["landlock"] if sys.platform == "linux" else [])]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeFn]:
    """Search tools in the test's folder, closed at its end. `engine` says what is behind one."""
    with contextlib.ExitStack() as opened:

        def build(engine: str = "ripgrep", root: Path | None = None, **options: Any) -> SearchTool:
            if engine == "landlock":
                options.setdefault("open_sandbox", partial(open_sandbox, backend="landlock"))
            elif engine != "ripgrep":
                options.setdefault("ripgrep", None)
            if engine == "unconfined":
                options.setdefault("sandbox", "off")
            tool = SearchTool(root or tmp_path, **options)
            opened.callback(tool.close)
            return tool

        yield build


@pytest.fixture(
    params=[
        "ripgrep",  # or our own engine where that is not installed
        pytest.param("unconfined", marks=pytest.mark.sweep),
        # The same two engines in other sandboxes.
        pytest.param("scanner", marks=pytest.mark.sweep),
        *([pytest.param("landlock", marks=pytest.mark.sweep)] if sys.platform == "linux" else []),
    ]
)
def tool(request: pytest.FixtureRequest, make: MakeFn) -> SearchTool:
    return make(request.param)


def plant(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def git(*arguments: str, folder: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


async def search(tool: SearchTool, ctx: ToolContext | None = None, **arguments: Any) -> AgentToolResult:
    assert Toolbox([tool]).problems("search", arguments) is None
    return await tool.execute(arguments, ctx or ToolContext())


async def lines(tool: SearchTool, **arguments: Any) -> list[str]:
    result = await search(tool, **arguments)
    assert not result.is_error, extract_text(result.content)
    return extract_text(result.content).splitlines()


def said(result: AgentToolResult) -> str:
    return extract_text(result.content)


# -- contents and names --------------------------------------------------------------------------------------


async def test_a_pattern_gives_path_line_and_text_in_order(tool: SearchTool, tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "b.py": "import os\n\n    needle = 1\n",
            "a/z.py": "needle needle\nnone\nneedle",
            "a/b/deep.txt": "a needle here\n",
            "a.txt": "needle\n",
            ".hidden": "needle\n",
        },
    )
    result = await search(tool, pattern="needle")
    assert said(result).splitlines() == [
        ".hidden:1: needle",
        "a/b/deep.txt:1: a needle here",
        "a/z.py:1: needle needle",
        "a/z.py:3: needle",
        "a.txt:1: needle",
        "b.py:3:     needle = 1",
    ]
    engine = result.details.pop("engine")
    assert engine in ("ripgrep", "scanner")
    assert result.details == {"matches": 6, "files": 5, "complete": True}


async def test_a_glob_gives_names_in_order(tool: SearchTool, tmp_path: Path) -> None:
    names = [
        "x.py",
        "a/x.py",
        "a/b/y.py",
        "a/b/y.txt",
        "a.py",
        "src/main.ts",
        "src/app/view.tsx",
        ".config/z.py",
        "é.py",
    ]
    plant(tmp_path, dict.fromkeys(names, ""))
    assert await lines(tool, glob="*.py") == [".config/z.py", "a/b/y.py", "a/x.py", "a.py", "x.py", "é.py"]
    assert await lines(tool, glob="*.{ts,tsx}") == ["src/app/view.tsx", "src/main.ts"]
    assert await lines(tool, glob="a/*.py") == ["a/x.py"]
    assert await lines(tool, glob="a/**") == ["a/b/y.py", "a/b/y.txt", "a/x.py"]
    assert await lines(tool, glob="a/") == ["a/b/y.py", "a/b/y.txt", "a/x.py"]
    assert await lines(tool, glob="**/y.*") == ["a/b/y.py", "a/b/y.txt"]
    assert await lines(tool, glob="src/**/*.tsx") == ["src/app/view.tsx"]
    assert await lines(tool, glob="./src/*") == ["src/main.ts"]
    assert await lines(tool, glob="!*.py") == ["a/b/y.txt", "src/app/view.tsx", "src/main.ts"]
    assert await lines(tool, glob="[xy].py") == ["a/b/y.py", "a/x.py", "x.py"]
    assert (await lines(tool, glob="*.rs"))[0] == "[no files]"
    assert await lines(tool, glob="?.py") == [".config/z.py", "a/b/y.py", "a/x.py", "a.py", "x.py", "é.py"]


async def test_finding_nothing_says_what_was_looked_at_and_what_would_be_found(
    tool: SearchTool, tmp_path: Path
) -> None:
    plant(
        tmp_path, {"notes/a.txt": "buy Milk\n", "b.py": "milk = 1\nmilk = 2\n", "config.yml": "x\n", ".git/x": "milk"}
    )
    names = "no file has such a name; contents were not searched: for that, give a pattern"
    assert await lines(tool, glob="*milk*") == [
        "[no files]",
        f'[{names}; "milk" is in the contents of 2 files (pattern="milk"), such as b.py]',
    ]
    assert await lines(tool, glob="src/config.yaml") == [
        "[no files]",
        f'[{names}; "config" is in the name of 1 file (glob="*config*"), such as config.yml]',
    ]
    assert await lines(tool, glob="*.rs") == ["[no files]", f"[{names}]"]
    assert await lines(tool, glob="*butter*") == ["[no files]", f"[{names}]"]
    assert await lines(tool, pattern="MILK") == [
        "[no matches]",
        "[with ignore_case=true it is in 2 files, such as b.py]",
    ]
    assert await lines(tool, pattern="milk", path="notes", glob="*.py") == [
        "[no matches]",
        "[with no glob and no path and ignore_case=true it is in 2 files, such as b.py]",
    ]
    assert await lines(tool, pattern="config") == [
        "[no matches]",
        '[contents were searched; "config" is in the name of 1 file (glob="*config*"), such as config.yml]',
    ]
    assert await lines(tool, pattern="butter") == ["[no matches]"]


async def test_pattern_and_glob_narrow_each_other(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "x\n", "a.txt": "x\n", "b/c.py": "x\n", "b/d/c.py": "y\n"})
    assert await lines(tool, pattern="x", glob="*.py") == ["a.py:1: x", "b/c.py:1: x"]
    assert await lines(tool, pattern="[xy]", glob="b/**/*.py") == ["b/c.py:1: x", "b/d/c.py:1: y"]
    assert await lines(tool, pattern="x", glob="!*.py") == ["a.txt:1: x"]


async def test_a_path_narrows_the_search_and_globs_count_from_there(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"x.py": "n\n", "sub/x.py": "n\n", "sub/deep/x.py": "n\n", "sub/deep/y.txt": "n\n"})
    assert await lines(tool, pattern="n", path="sub/deep") == ["sub/deep/x.py:1: n", "sub/deep/y.txt:1: n"]
    assert await lines(tool, glob="deep/*.py", path="sub") == ["sub/deep/x.py"]
    assert await lines(tool, glob="*.py", path=str(tmp_path / "sub")) == ["sub/deep/x.py", "sub/x.py"]
    assert await lines(tool, pattern="n", path="sub/x.py") == ["sub/x.py:1: n"]
    assert await lines(tool, pattern="n", path="sub/x.py", glob="*.txt") == [
        "[no matches]",
        "[with no glob and no path and ignore_case=true it is in 4 files, such as sub/deep/x.py]",
    ]
    assert await lines(tool, glob="*", path="sub/deep/y.txt") == ["sub/deep/y.txt"]
    assert await lines(tool, pattern="n", path=".", limit=1) == [
        "sub/deep/x.py:1: n",
        "[the first 1 matches, there are more; narrow the path, the glob or the pattern, "
        "or raise limit (at most 1000)]",
    ]


async def test_case_matters_unless_told_otherwise(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"a": "Needle\nneedle\nÄrger\n"})
    assert await lines(tool, pattern="needle") == ["a:2: needle"]
    assert await lines(tool, pattern="needle", ignore_case=True) == ["a:1: Needle", "a:2: needle"]
    assert await lines(tool, pattern="ärger", ignore_case=True) == ["a:3: Ärger"]


CORPUS: dict[str, str | bytes] = {
    "code.py": "def main(argument: int) -> None:\n\treturn argument + 1  # TODO: ünïcode\n\nclass Main:\n    pass\n",
    "dos.txt": "first line\r\nsecond line\r\n",
    "no_end.txt": "one\ntwo",
    "bom.txt": b"\xef\xbb\xbffirst after a mark\n",
    "utf16.txt": "sechzehn\nfirst\n".encode("utf-16"),
    "latin1.txt": b"caf\xe9 first\n",
    "empty": b"",
    "binary.bin": b"first\0second\n",
    "late.bin": b"first\n" + b"filler\n" * 30_000 + b"\0\n",
    "spaces in name.txt": "first\n",
    "colon:1:name": "first\n",
    "ünï.txt": "first\n",
    "dir/.dotted/inner": "first second\n",
}


PATTERNS = [
    *("first", "^first", "first$", "^first$", "line$", r"\bfirst\b", r"(?i)FIRST", "f.rst", "fi+rst", "f[a-j]rst"),
    *("first|second", "(first|second) line", r"\w+\s+line", r"argument: \w+", r"def \w+\(", r"\d", r"TODO|class"),
    *("ünï", "[äöü]n", r"\S+ünï\S*", "^$", "^.{3}$", "e{1}", r"^\t", r"\.", "(?:one|two)", "[^a-z ]first", "x*"),
]


@pytest.mark.sweep
async def test_the_engines_agree(make: MakeFn, tmp_path: Path) -> None:
    plant(tmp_path, CORPUS)
    ripgrep, scanner = make(), make("scanner")
    for pattern in PATTERNS:
        first, second = [await search(tool, pattern=pattern, limit=1000) for tool in (ripgrep, scanner)]
        assert (first.details.pop("engine"), second.details.pop("engine")) == ("ripgrep", "scanner")
        assert first == second, pattern


async def test_text_in_other_shapes_is_found_and_binary_files_are_not(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, CORPUS)
    assert await lines(tool, pattern="^first") == [
        "bom.txt:1: first after a mark",
        "colon:1:name:1: first",
        "dir/.dotted/inner:1: first second",
        "dos.txt:1: first line",
        "spaces in name.txt:1: first",
        "utf16.txt:2: first",
        "ünï.txt:1: first",
    ]
    assert await lines(tool, pattern="line$") == ["dos.txt:1: first line", "dos.txt:2: second line"]
    assert await lines(tool, pattern="caf") == ["latin1.txt:1: caf\ufffd first"]


async def test_names_that_are_hard_to_show_are_shown_escaped(tool: SearchTool, tmp_path: Path) -> None:
    names = [b"new\nline", b"esc\x1b[31m", b"\xff\xfe.txt", "bidi\u202egnp.exe".encode()]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_text("needle\n")
    shown = ["bidi\\u202egnp.exe", "esc\\x1b[31m", "new\\nline", "\\xff\\xfe.txt"]
    assert await lines(tool, glob="*") == shown
    assert await lines(tool, pattern="needle") == [f"{name}:1: needle" for name in shown]


async def test_control_characters_are_escaped_in_a_line(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"a": "needle\t\x1b]0;title\x07\x1b[31mred\x08 \u202eback\rmac\n"})
    assert await lines(tool, pattern="needle") == ["a:1: needle\t\\x1b]0;title\\x07\\x1b[31mred\\x08 \\u202eback\\rmac"]


async def test_of_a_long_line_the_part_with_the_match_is_shown(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"min.js": "é" * 50_000 + "needle" + "z" * 50_000 + "\n", "end.js": "y" * 500 + "needle\n"})
    first, second = await lines(tool, pattern="needle")
    assert first == "end.js:1: …" + "y" * 294 + "needle"
    assert second.startswith("min.js:1: …é")
    assert second.endswith("z…")
    assert "éneedlez" in second
    assert len(second) < 330


async def test_a_line_with_very_many_matches_is_one_result(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"min.js": "ab" * 400_000 + "\n", "z.js": "ab\n"})
    started = time.monotonic()
    first, second = await lines(tool, pattern="ab|zz")
    assert time.monotonic() - started < 20
    assert (first, second) == ("min.js:1: " + "ab" * 150 + "…", "z.js:1: ab")


@pytest.mark.sweep
async def test_a_match_on_a_line_of_many_megabytes_is_not_hushed_up(tool: SearchTool, tmp_path: Path) -> None:
    """Ripgrep would print all of the line; the scanner shows what is around the match."""
    plant(tmp_path, {"huge": "x" * 9_000_000 + "needle\n", "a": "needle\n"})
    shown = "huge:1: …" + "x" * 294 + "needle"
    first, second = await lines(tool, pattern="needle")
    assert first == "a:1: needle"
    assert second in ("[1 more in lines of megabytes, which are not shown]", shown)


# -- what is left out ----------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git("init", "-q", folder=tmp_path)
    (tmp_path / ".git" / "info" / "exclude").write_text("excluded.txt\n")
    plant(
        tmp_path,
        {
            ".gitignore": "*.log\n!keep.log\nbuild/\n/anchored.txt\nsub/*.tmp\n**/cache/**\n\\#hash\n",
            "a.log": "n\n",
            "keep.log": "n\n",
            "build/out.txt": "n\n",
            "anchored.txt": "n\n",
            "excluded.txt": "n\n",
            "#hash": "n\n",
            "kept.txt": "n\n",
            "sub/anchored.txt": "n\n",
            "sub/x.tmp": "n\n",
            "sub/deeper/x.tmp": "n\n",
            "sub/.gitignore": "local.txt\n!a.log\n",
            "sub/local.txt": "n\n",
            "sub/a.log": "n\n",
            "sub/b.log": "n\n",
            "sub/deeper/local.txt": "n\n",
            "sub/cache/x.txt": "n\n",
            "sub/build/x.txt": "n\n",
            "build.txt": "n\n",
            ".git/notes.txt": "n\n",
        },
    )
    return tmp_path


NOT_IGNORED = ["build.txt", "keep.log", "kept.txt", "sub/a.log", "sub/anchored.txt", "sub/deeper/x.tmp"]


def test_git_itself_says_what_is_not_ignored(repository: Path) -> None:
    listed = git("-c", "core.excludesFile=/dev/null", "ls-files", "--others", "--exclude-standard", folder=repository)
    assert sorted(name for name in listed.splitlines() if not name.endswith(".gitignore")) == NOT_IGNORED


async def test_files_that_git_ignores_are_left_out(tool: SearchTool, repository: Path) -> None:
    assert await lines(tool, pattern="^n$") == [f"{name}:1: n" for name in NOT_IGNORED]
    assert await lines(tool, glob="*.{txt,log,tmp}") == NOT_IGNORED
    assert await lines(tool, glob="*.log", pattern="n") == ["keep.log:1: n", "sub/a.log:1: n"]


async def test_rules_from_above_hold_in_a_folder_that_is_searched_alone(tool: SearchTool, repository: Path) -> None:
    expected = [name for name in NOT_IGNORED if name.startswith("sub/")]
    assert await lines(tool, pattern="^n$", path="sub") == [f"{name}:1: n" for name in expected]


async def test_named_files_are_searched_even_if_ignored(tool: SearchTool, repository: Path) -> None:
    assert await lines(tool, pattern="n", path="build") == ["build/out.txt:1: n"]
    assert await lines(tool, pattern="n", path="a.log") == ["a.log:1: n"]
    assert await lines(tool, pattern="n", path=".git", glob="notes.txt") == [".git/notes.txt:1: n"]


async def test_rules_hold_without_a_repository_too(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "secret\n", "secret": "n\n", "open": "n\n", "in/.gitignore": "x\n", "in/x": "n\n"})
    assert await lines(tool, pattern="n$", glob="!.gitignore") == ["open:1: n"]


async def test_a_repository_inside_has_rules_of_its_own(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "*.x\n", "a.x": "", "a.y": "", "in/.gitignore": "*.y\n", "in/a.x": "", "in/a.y": ""})
    git("init", "-q", folder=tmp_path / "in")
    assert await lines(tool, glob="*.[xy]") == ["a.y", "in/a.x"]


async def test_other_ignore_files_and_settings_of_ripgrep_are_not_obeyed(
    make: MakeFn, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path_factory.mktemp("settings") / "ripgreprc"
    settings.write_text("--glob=!*.txt\n--replace=changed\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(settings))
    plant(tmp_path, {".ignore": "a.txt\n", "a.txt": "needle\n"})
    for engine in MORE_ENGINES:
        assert await lines(make(engine), pattern="needle") == ["a.txt:1: needle"]


async def test_rules_above_the_root_are_not_read(make: MakeFn, tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "*\n", "root/sub/a.txt": "n\n"})
    for engine in MORE_ENGINES:
        assert await lines(make(engine, tmp_path / "root"), pattern="n") == ["sub/a.txt:1: n"]
        assert await lines(make(engine, tmp_path / "root"), pattern="n", path="sub") == ["sub/a.txt:1: n"]


# -- what a search may see --------------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    plant(folder, {"secret.txt": "needle outside\n"})
    return folder


async def test_links_are_not_followed(tool: SearchTool, tmp_path: Path, outside: Path) -> None:
    plant(tmp_path, {"real/a.txt": "needle\n"})
    (tmp_path / "out").symlink_to(outside)
    (tmp_path / "out.txt").symlink_to(outside / "secret.txt")
    (tmp_path / "inner").symlink_to("real")
    assert await lines(tool, pattern="needle") == ["real/a.txt:1: needle"]
    assert await lines(tool, glob="*.txt") == ["real/a.txt"]
    assert await lines(tool, pattern="needle", path="inner") == ["real/a.txt:1: needle"]


async def test_a_path_that_leads_out_is_refused(tool: SearchTool, tmp_path: Path, outside: Path) -> None:
    (tmp_path / "out").symlink_to(outside)
    (tmp_path / "out.txt").symlink_to(outside / "secret.txt")
    for path in ("..", "../", str(outside), "out", "out.txt", "/", "/proc/self/root", "out/../.."):
        result = await search(tool, pattern="needle", path=path)
        assert result.is_error
        assert "needle outside" not in said(result)
    missing = await search(tool, pattern="needle", path="missing")
    assert missing.is_error
    assert "missing does not exist in the workspace" in said(missing)


async def test_special_files_neither_block_nor_show(tool: SearchTool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    plant(tmp_path, {"a.txt": "needle\n"})
    async with asyncio.timeout(30):
        assert await lines(tool, pattern="needle") == ["a.txt:1: needle"]
        assert await lines(tool, glob="*") == ["a.txt"]


@pytest.mark.sweep
async def test_a_link_swapped_in_during_the_search_shows_nothing_outside(
    tool: SearchTool, tmp_path: Path, outside: Path
) -> None:
    plant(tmp_path, {f"{folder}/secret.txt": "inside\n" for folder in "abcdefgh"})
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for folder in "abcdefgh":
                (tmp_path / folder).rename(tmp_path / f".{folder}")
                (tmp_path / folder).symlink_to(outside)
                (tmp_path / folder).unlink()
                (tmp_path / f".{folder}").rename(tmp_path / folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(8):
            assert "outside" not in said(await search(tool, pattern="inside|outside", limit=1000))
            result = await search(tool, pattern="inside|outside", path="a/secret.txt")
            assert result.is_error or "outside" not in said(result)
    finally:
        over.set()
        swapping.join()


async def test_credentials_are_not_shown_where_the_home_folder_is_searched(
    make: MakeFn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    plant(tmp_path, {".ssh/id_ed25519": "needle\n", ".netrc": "needle\n", "notes.txt": "needle\n"})
    for engine in MORE_ENGINES:
        tool = make(engine)
        assert await lines(tool, pattern="needle") == ["notes.txt:1: needle"]
        assert ".ssh/id_ed25519" not in await lines(tool, glob="*")
        assert (await search(tool, pattern="needle", path=".ssh")).is_error


async def test_the_engine_can_only_read_whatever_the_commands_may(make: MakeFn, tmp_path: Path) -> None:
    profiles: list[SandboxProfile] = []

    def note(profile: SandboxProfile) -> Sandbox:
        profiles.append(profile)
        return open_sandbox(profile)

    generous = SandboxProfile(write=(str(tmp_path),), network=True)
    plant(tmp_path, {"a": "needle\n"})
    tool = make(sandbox=generous, open_sandbox=note)
    assert await lines(tool, pattern="needle") == ["a:1: needle"]
    (profile,) = profiles
    assert (profile.write, profile.network) == ((), False)
    assert profile.read is not None
    assert str(tool.workspace.root) in profile.read
    assert os.environ["HOME"] not in profile.read


# -- limits --------------------------------------------------------------------------------------------------


async def test_results_are_limited_to_the_first_in_order(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {f"{number:03}.txt": "needle\n" * 100 for number in range(100)})
    shown = await lines(tool, pattern="needle", limit=250)
    assert shown[:250] == [f"{number // 100:03}.txt:{number % 100 + 1}: needle" for number in range(250)]
    assert shown[250:] == [
        "[the first 250 matches, there are more; narrow the path, the glob or the pattern, "
        "or raise limit (at most 1000)]"
    ]
    assert (await lines(tool, pattern="needle"))[99] == "000.txt:100: needle"
    assert len(await lines(tool, glob="*", limit=100)) == 100


@pytest.mark.sweep
async def test_the_answer_is_bounded_in_bytes(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {f"{'long' * 40}{number}.txt": "€" * 5000 + "\n" for number in range(900)})
    result = await search(tool, pattern="€€", limit=900)
    assert len(said(result).encode()) <= 100 * 1024
    shown = result.details["matches"]
    assert 50 < shown < 900
    assert f"[the first {shown} matches, there are more; narrow the path" in said(result)
    assert result.details["complete"] is False


SLOW = "^(a+)+$"
"""Python's `re` tries each of the ways to cut the letters of `LONG` in groups, which are more than 10 to the 18."""
LONG = "a" * 60 + "!\n"


async def test_a_search_that_takes_too_long_is_stopped_and_keeps_what_was_found(make: MakeFn, tmp_path: Path) -> None:
    plant(tmp_path, {"a.txt": "aaa\n", "b.txt": LONG, "c.txt": "a\n"})
    tool = make("scanner", time_limit=3.0)
    started = time.monotonic()
    longest = 0.0
    searching = asyncio.create_task(search(tool, pattern=SLOW))
    while not searching.done():
        before = time.monotonic()
        await asyncio.sleep(0.002)
        longest = max(longest, time.monotonic() - before)
    result = await searching
    assert time.monotonic() - started < 30
    assert longest < 1.5, "the event loop went on"
    assert said(result) == (
        "a.txt:1: aaa\n[stopped, as its 3 seconds were over, with 1 matches until then; "
        "narrow the path, the glob or the pattern]"
    )
    assert (result.is_error, result.details["complete"]) == (False, False)
    assert await soon(lambda: not scanners(tmp_path))


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("engine", ["scanner", "unconfined"])
async def test_a_stopped_search_leaves_no_process(make: MakeFn, tmp_path: Path, engine: str) -> None:
    plant(tmp_path, {"b.txt": LONG})
    times: list[float] = []
    while len(times) < 3 or (min(times) >= 0.1 and len(times) < TRIES):
        cancel = CancellationToken()
        searching = asyncio.create_task(search(make(engine), ToolContext(cancel=cancel), pattern=SLOW))
        assert await soon(lambda: bool(scanners(tmp_path)))
        before = time.monotonic()
        cancel.cancel()
        result = await searching
        times.append(time.monotonic() - before)
        assert (said(result).split(",")[1], result.is_error) == (" as the call was cancelled", True)
        assert await soon(lambda: not scanners(tmp_path))
    assert min(times) < 0.1


async def test_cancelling_the_task_leaves_no_process(make: MakeFn, tmp_path: Path) -> None:
    plant(tmp_path, {"b.txt": LONG})
    searching = asyncio.create_task(search(make("scanner"), pattern=SLOW))
    assert await soon(lambda: bool(scanners(tmp_path)))
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    assert await soon(lambda: not scanners(tmp_path))


async def soon(is_so: Callable[[], bool]) -> bool:
    """Whether it comes true within half a minute; other processes cannot wake us."""
    end = time.monotonic() + 30
    while not (is_true := is_so()) and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return is_true


def scanners(folder: Path) -> list[str]:
    """The processes of scanners whose current folder is this one."""
    found: list[str] = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{entry}/cmdline").read_bytes() if entry.isdigit() else b""
            if b"scanning.scan" in arguments and os.readlink(f"/proc/{entry}/cwd") == os.path.realpath(folder):
                found.append(entry)
    return found


# -- what cannot be searched for -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "give a pattern to find in files, a glob for their names, or both"),
        ({"pattern": "(open"}, "the pattern is not valid: missing ), unterminated subpattern at position 0"),
        ({"pattern": "a\nb"}, "the pattern spans lines, and lines are searched one by one: look for one of them"),
        ({"pattern": r"a\nb"}, "the pattern spans lines, and lines are searched one by one: look for one of them"),
        ({"pattern": "a\0"}, "the pattern has characters that no file has, or is too long: write a simpler one"),
        ({"glob": "a\0"}, "the glob has characters that no file has, or is too long: write a simpler one"),
        ({"glob": "[a"}, "the glob '[a' is not valid: a [ has no ], or a \\ is at the end"),
        ({"glob": "/"}, "the glob '/' names nothing; give one such as *.py or src/**/*.ts"),
        ({"glob": "{a,b}" * 7}, "the glob has more than 64 alternatives in braces; give a simpler one"),
    ],
)
async def test_a_search_that_cannot_be_meant_is_refused(
    tool: SearchTool, arguments: dict[str, str], problem: str
) -> None:
    result = await tool.execute(arguments, ToolContext())
    assert (said(result), result.is_error) == (problem, True)


async def test_classes_and_escaped_backslashes_are_not_line_breaks(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"a": "C:\\name\nplain\n"})
    assert await lines(tool, pattern=r"\\n[^\n]+") == ["a:1: C:\\name"]
    assert await lines(tool, pattern=r"[]\n]|pl") == ["a:2: plain"]


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"foo(?=baz)", "look-around"),
        (r"(?<!x)foo", "look-around"),
        (r"^(ab)\1$", "a reference to a group"),
        (r"(?P<n>a)(?P=n)", "a reference to a group"),
        (r"(?<n>a)\k<n>", "a reference to a group"),
        ("(?>ab)", "a group that begins with (?>"),
        ("a(?#why)b", "a group that begins with (?#"),
    ],
)
async def test_patterns_that_no_engine_knows_are_refused_alike_with_advice(
    tool: SearchTool, tmp_path: Path, pattern: str, what: str
) -> None:
    plant(tmp_path, {"a": "foobar\nfoobaz\nabab\n"})
    result = await search(tool, pattern=pattern)
    assert result.is_error
    assert said(result).startswith(f"the pattern is not valid: {what}")
    assert said(result).endswith("is not supported: write the pattern without it, or run grep -P with bash")


async def test_escaped_brackets_are_neither_look_around_nor_references(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"a": "f(?=x)\n\\1\n"})
    assert await lines(tool, pattern=r"\(\?=x") == ["a:1: f(?=x)"]
    assert await lines(tool, pattern=r"\\1") == ["a:2: \\1"]


PIECES = [r"\w", r"\W", r"\d", r"\s", r"\S", r"\b", "a", "É", "ß", "\u0661", "_", ".", "^", "$", "x*", "b+", "c?"]
PIECES += ["[a-é]", r"[^\w]", r"[\d_]", "(?i:É)", "(?:ab|c)", "a{1,2}", r"\x41", r"\.", " "]


@pytest.mark.skipif(find_program("rg") is None, reason="ripgrep is not installed, and both engines are compared")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pattern=st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join),
    texts=st.lists(st.text("abcxAÉéß\u0661_. -K\u2003", max_size=8), min_size=1, max_size=12),
    ignore_case=st.booleans(),
)
def test_both_engines_find_the_same(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, texts: list[str], ignore_case: bool
) -> None:
    file = tmp_path_factory.mktemp("compared") / "file"
    file.write_text("".join(f"{text}\n" for text in texts))
    options = ["--ignore-case"] if ignore_case else []
    done = subprocess.run(
        ["rg", "--no-config", "--crlf", "-n", *options, "-e", pattern, file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    numbers = [int(line.split(":")[0]) for line in done.stdout.splitlines()]
    find = compile_pattern(pattern, ignore_case)
    assert [number for number, text in enumerate(texts, 1) if find.search(text)] == numbers


async def test_a_pattern_is_given_to_ripgrep_as_it_is(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"a": "foo bar\nbar\n"})
    assert await lines(tool, pattern="(?x) foo # with a comment") == ["a:1: foo bar"]
    result = await search(tool, pattern="foo)|(bar")
    assert (said(result), result.is_error) == ("the pattern is not valid: unbalanced parenthesis at position 3", True)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("[[:alpha:]]", "without ripgrep, classes in classes"),
        ("[a-z&&[^b]]", "without ripgrep, classes in classes"),
        (r"\<foo", r"without ripgrep, \< is not known: write \b"),
        (r"\p{L}", r"bad escape \p at position 0"),
    ],
)
async def test_the_scanner_refuses_what_ripgrep_reads_differently(
    make: MakeFn, tmp_path: Path, pattern: str, what: str
) -> None:
    plant(tmp_path, {"a": "foo\n"})
    result = await search(make("scanner"), pattern=pattern)
    assert result.is_error
    assert said(result).startswith(f"the pattern is not valid: {what}")


async def test_a_pattern_is_never_taken_for_an_option(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {"a": "--files\n-e x\n", "-x": "--files\n"})
    assert await lines(tool, pattern="--files") == ["-x:1: --files", "a:1: --files"]
    assert await lines(tool, pattern="-e x") == ["a:2: -e x"]
    assert await lines(tool, pattern="--files", path="-x") == ["-x:1: --files"]
    assert await lines(tool, glob="-*") == ["-x"]


# -- engines that fail ---------------------------------------------------------------------------------------


async def test_without_any_sandbox_the_scanner_searches(
    make: MakeFn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    def nothing_works(profile: SandboxProfile) -> Sandbox:
        nonlocal attempts
        attempts += 1
        raise SandboxUnavailable

    plant(tmp_path, {"a": "needle\n"})
    planted = tmp_path.parent / f"{tmp_path.name}-rg"  # a foreign program is not run there, wherever it is from
    planted.mkdir()
    (planted / "rg").write_text(f"#!/bin/sh\ntouch {planted}/ran\n")
    (planted / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted}:{os.environ['PATH']}")
    tool = make(open_sandbox=nothing_works)
    for _ in range(2):
        result = await search(tool, pattern="needle")
        assert (said(result), result.details["engine"]) == ("a:1: needle", "scanner")
    assert attempts == 1
    assert not (planted / "ran").exists()


def test_the_scanner_has_given_up_what_it_does_not_need(tmp_path: Path) -> None:
    """It runs where no sandbox works too, and then nothing else holds it."""
    plant(tmp_path, {"a": "needle\n"})
    wanted = {"pattern": "needle", "glob": None, "ignore_case": False, "start": []}
    request = json.dumps(wanted)
    then = (
        "; import os\nfor act in (lambda: os.write(os.open('made', os.O_CREAT | os.O_WRONLY), b'x'), os.fork):\n"
        "  try: act() or os._exit(0); print('DONE')\n  except OSError as error: print('REFUSED')"
    )
    here = str(Path(scan.__file__).parent)
    done = subprocess.run(
        [own_interpreter(), "-I", "-S", "-B", "-c", scan.BOOT + then, here, request],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found, finished, *after = done.stdout.splitlines()
    assert '"line":1' in found.replace(" ", "")
    assert "finished" in finished
    assert after == ["REFUSED", "REFUSED" if os.geteuid() else "DONE"]  # the kernel does not count root's processes
    assert (tmp_path / "made").read_bytes() == b""


@pytest.mark.parametrize("script", ["exit 0", "echo broken >&2; exit 2", "kill -9 $$", 'echo \'{"type":"match"}\''])
async def test_a_ripgrep_that_does_not_work_is_done_without(
    make: MakeFn, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "rg").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    plant(tmp_path, {"a": "needle\n"})
    result = await search(make(), pattern="needle")
    assert (said(result), result.details["engine"]) == ("a:1: needle", "scanner")


async def test_a_ripgrep_that_the_workspace_brings_along_is_not_run(
    make: MakeFn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, {"bin/rg": "#!/bin/sh\ntouch /tmp/planted\n", "a": "needle\n"})
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert await lines(make(), pattern="needle") == ["a:1: needle"]


async def test_a_sandbox_that_fails_at_the_start_is_said(tmp_path: Path) -> None:
    class Broken(Sandbox):
        backend = "landlock"

        async def spawn(self, *_: Any, **__: Any) -> SandboxedProcess:
            raise OSError(12, "Cannot allocate memory")

        def close(self) -> None: ...

    tool = SearchTool(tmp_path, open_sandbox=Broken)
    result = await search(tool, pattern="x")
    assert result.is_error
    assert said(result) == "the search could not be started: [Errno 12] Cannot allocate memory"
    tool.close()


async def test_a_closed_tool_says_so(tool: SearchTool) -> None:
    tool.close()
    result = await search(tool, pattern="x")
    assert (said(result), result.is_error) == ("the tool was closed: make a new one to run commands", True)


# -- together ------------------------------------------------------------------------------------------------


async def test_searches_at_once_do_not_mix(tool: SearchTool, tmp_path: Path) -> None:
    plant(tmp_path, {f"{number}.txt": f"needle{number}x\n" for number in range(6)})
    found = await asyncio.gather(*[lines(tool, pattern=f"needle{number}x") for number in range(6)])
    assert found == [[f"{number}.txt:1: needle{number}x"] for number in range(6)]


async def test_an_agent_searches_without_asking(make: MakeFn, tmp_path: Path) -> None:
    plant(tmp_path, {"a": "needle\n"})
    tool = make()
    script = scripted(call("search", pattern="needle"), text("ok"))
    agent = Agent(ModelSpec("test", "model"), stream_fn=script, tools=[tool])
    events = await collect(agent.prompt_stream("go"))
    (result,) = next(event.tool_results for event in events if isinstance(event, TurnEnd))
    assert extract_text(result.content) == "a:1: needle"
    assert not result.is_error


async def test_a_folder_that_was_replaced_is_not_searched(make: MakeFn, tmp_path: Path) -> None:
    root = tmp_path / "root"
    plant(root, {"a": "needle\n"})
    tool = make("unconfined", root)
    root.rename(tmp_path / "moved")
    root.symlink_to("/etc")
    result = await search(tool, pattern="root")
    assert said(result) == f"nothing was searched: {root} is no longer the folder that the user gave"
    root.unlink()
    assert (await search(tool, pattern="root")).is_error


async def test_a_workspace_can_be_shared(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "needle\n"})
    workspace = Workspace(tmp_path)
    tool = SearchTool(workspace, "off")
    assert await lines(tool, pattern="needle") == ["a:1: needle"]
    tool.close()
    workspace.close()
