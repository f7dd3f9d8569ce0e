"""Rules and globs compared with git itself, and patterns that are meant to take forever."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.tools.search.engines import Binary, Hit, Query, Record, RipgrepEngine, ScannerEngine
from swink_agent.tools.search.glob import NameGlob, expand_braces, translate
from swink_agent.tools.search.ignore import IgnoreLevel, IgnoreRules
from swink_agent.tools.search.tree import IgnoredPaths, walk

NAMES = ["a", "b", "ab", "foo", "a.c", "b c", "é", "x-", "[a]", "a*", "foo.c", "!a", "#b", "a ", "-", "]", "\\a", "A1"]
ATOMS = [
    *("a", "b", "foo", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[^b]", "[a-c]", "\\a", "\\*", ".c", " ", "\\ "),
    *("[]a]", "[a", "{a,b}", "[[:alpha:]]", "[[:digit:]x]", "!", "#", "-", "[a-]", "[\\]]", "***", "/**/", "**/"),
    *("é", "[--0]", "\\", "[[:bad:]]", "[[:a]", "[!]a]", "A", "\\[a\\]", "\t", "[[:upper:][:digit:]]", "[a-\\c]"),
]
ROUNDS = 100


def a_pattern(chance: random.Random) -> str:
    pattern = "".join(chance.choice(ATOMS) for _ in range(chance.randint(1, 6)))
    kind = chance.random()
    pattern = "!" + pattern if kind < 0.15 else "/" + pattern if kind > 0.85 else pattern
    pattern += "/" if chance.random() < 0.2 else ""
    return pattern + chance.choice(["", "", "", "", "  ", "\r"])


def plant_tree(root: Path, chance: random.Random) -> tuple[list[bytes], list[bytes]]:
    """Folders and files of odd names, three deep: the paths of all folders, and of all."""
    folders, everything = [b""], []
    for depth in range(3):
        for above in folders[-6:]:
            for name in chance.sample(NAMES, 6):
                path = os.path.join(above, name.encode())
                full = os.path.join(os.fsencode(root), path)
                if os.path.lexists(full):
                    continue
                if depth < 2 and chance.random() < 0.5:
                    os.mkdir(full)
                    folders.append(path)
                else:
                    Path(os.fsdecode(full)).touch()
                everything.append(path)
    return folders, everything


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rules_decide_as_git_does(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folders, everything = plant_tree(tmp_path, chance)
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    ignored_in_all = 0
    try:
        for _ in range(ROUNDS):
            for folder in folders:
                rules = tmp_path / os.fsdecode(folder) / ".gitignore"
                rules.unlink(missing_ok=True)
                if not folder or chance.random() < 0.15:
                    lines = [a_pattern(chance) for _ in range(chance.randint(1, 4))]
                    rules.write_text("\n".join(lines) + chance.choice(["", "\n"]), newline="")
            exclude = "\n".join([a_pattern(chance) for _ in range(chance.randint(0, 2))])
            (tmp_path / ".git" / "info" / "exclude").write_text(exclude, newline="")
            expected = git_ignores(tmp_path, everything)
            files = {path for path in everything if path not in folders}
            found = {item.path for item in walk(root)} - {path for path in files if path.endswith(b".gitignore")}
            mine = {path for path in found if not path.endswith(b".gitignore")}
            assert mine == files - expected
            judge = IgnoredPaths(root)
            assert {path for path in files if judge.covers(path)} == files & expected
            judge.close()
            ignored_in_all += len(expected)
    finally:
        os.close(root)
    assert ignored_in_all > ROUNDS


def git_ignores(root: Path, paths: list[bytes]) -> set[bytes]:
    answer = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root,
        input=b"\0".join(paths) + b"\0",
        capture_output=True,
        check=False,
    )
    return set(answer.stdout.split(b"\0")) - {b""}


@pytest.mark.table
@pytest.mark.parametrize(
    ("rules", "path", "ignored"),
    [
        (b"\xef\xbb\xbfa\n", b"a", True),  # a byte order mark is no part of the first rule
        (b"a\r\n", b"a", True),
        (b"a \n", b"a", True),
        (b"a\\ \n", b"a ", True),
        (b"# a\n", b"# a", None),
        (b"\\#a\n", b"#a", True),
        (b"\\!a\n", b"!a", True),
        (b"a\n!a\n", b"a", False),
        (b"!a\na\n", b"a", True),
        (b"a/\n", b"a", None),
        (b"x/a\n", b"y/x/a", None),
        (b"a\n", b"x/y/a", True),
        (b"**/x/**/a\n", b"x/a", True),
        (b"\n\n  \n!\n/\n", b"a", None),
    ],
)
def test_the_letters_of_a_rule(rules: bytes, path: bytes, ignored: bool | None) -> None:
    assert IgnoreRules(rules).decide(path, False) is ignored


def test_rules_end_at_a_repository_inside() -> None:
    outer = IgnoreLevel(rules=b"*.x\n", exclude=b"*.y\n")
    assert IgnoreLevel(b"in", outer).is_ignored(b"a.x", False)
    assert IgnoreLevel(b"in", outer).is_ignored(b"a.y", False)
    inner = IgnoreLevel(b"in", outer, exclude=b"*.z\n", is_repository=True)
    assert [inner.is_ignored(name, False) for name in (b"a.x", b"a.y", b"a.z")] == [False, False, True]


@pytest.mark.parametrize(
    "pattern",
    [
        b"*a" * 100 + b"*b",
        b"**/" + b"a*" * 100 + b"b",
        b"**/a/" * 50 + b"b",
        b"**/*a*a*a*a/" * 20 + b"x",
        b"[ab]*" * 90,
    ],
)
def test_no_pattern_takes_for_ever(pattern: bytes) -> None:
    compiled = translate(pattern, is_path=True)
    assert compiled is not None
    started = time.process_time()
    for path in (b"a" * 255, b"/".join([b"a" * 60] * 60), b"a/" * 2000, b"ab" * 2000):
        compiled.match(path)
    assert time.process_time() - started < 1


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_bytes_are_a_pattern_or_none(pattern: bytes, name: bytes) -> None:
    for is_path in (False, True):
        compiled = translate(pattern, is_path=is_path)
        if compiled is not None:
            compiled.match(name)
    assert IgnoreRules(pattern).decide(name, False) in (True, False, None)


@given(st.lists(st.sampled_from(["a", "b", "*", "/", "**/", "?"]), max_size=8), st.text("ab/", max_size=8))
def test_a_glob_matches_as_a_plain_search_for_all_ways_would(pieces: list[str], text: str) -> None:
    pattern = "".join(pieces)
    while "***" in pattern:
        pattern = pattern.replace("***", "*")
    compiled = translate(pattern.encode(), is_path=True)
    assert compiled is not None
    assert bool(compiled.match(text.encode())) is try_all_ways(pattern, text, 0)


def try_all_ways(pattern: str, text: str, at: int) -> bool:
    """The meaning of a pattern, written for clarity and not for speed."""
    if at == len(pattern):
        return not text
    rest = pattern[at:]
    is_alone = at == 0 or pattern[at - 1] == "/"
    if rest.startswith("**") and is_alone and rest[2:3] in ("", "/"):
        if rest == "**":
            return True
        deeper = [text[cut + 1 :] for cut, char in enumerate(text) if char == "/"]
        return any(try_all_ways(pattern, left, at + 3) for left in [text, *deeper])
    if rest.startswith("*"):
        stars = len(rest) - len(rest.lstrip("*"))
        reach = text.find("/") if "/" in text else len(text)
        return any(try_all_ways(pattern, text[cut:], at + stars) for cut in range(reach + 1))
    if not text or (rest[0] == "?" and text[0] == "/") or (rest[0] not in ("?", text[0])):
        return False
    return try_all_ways(pattern, text[1:], at + 1)


@pytest.mark.table
@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        (b"*.py", [b"*.py"]),
        (b"*.{ts,tsx}", [b"*.ts", b"*.tsx"]),
        (b"{a,b{c,d}}", [b"a", b"bc", b"bd"]),
        (b"{a}{", [b"{a}{"]),
        (b"{,x}y", [b"y", b"xy"]),
        (b"\\{a,b}", [b"\\{a,b}"]),
    ],
)
def test_braces_are_several_patterns(pattern: bytes, expanded: list[bytes]) -> None:
    assert sorted(expand_braces(pattern)) == sorted(expanded)


def test_a_glob_with_a_slash_is_about_the_whole_path() -> None:
    assert NameGlob("src/*.py").matches(b"src/a.py")
    assert not NameGlob("src/*.py").matches(b"lib/src/a.py")
    assert NameGlob("/a.py").matches(b"a.py")
    assert not NameGlob("/a.py").matches(b"x/a.py")
    assert NameGlob("!*.py").matches(b"a.txt")


# -- the records of the engines ------------------------------------------------------------------------------

QUERY = Query("x", None, None, False, (b"sub",), False)
RIPGREP = (
    b"bwrap: a warning\n"
    b'{"type":"begin","data":{"path":{"text":"./a"}}}\n'
    b'{"type":"match","data":{"path":{"text":"./a"},"lines":{"text":"x\\r\\n"},"line_number":1,'
    b'"absolute_offset":0,"submatches":[{"match":{"text":"x"},"start":0,"end":1}]}}\n'
    b'{"type":"match","data":{"path":{"bytes":"Li//"},"lines":{"bytes":"eP8K"},"line_number":22,'
    b'"absolute_offset":0,"submatches":[]}}\n'
    b'{"type":"end","data":{"path":{"text":"./a"},"binary_offset":7,"stats":{}}}\n'
    b'{"type":"end","data":{"path":{"text":"./b"},"binary_offset":null,"stats":{}}}\n'
    b'{"type":"match","data":[]}\n[1]\n"text"\n'
    b'{"data":{},"type":"summary"}\n'
)


@given(st.lists(st.integers(1, 200)))
def test_records_are_read_however_the_stream_is_cut(sizes: list[int]) -> None:
    engine = RipgrepEngine(QUERY, "rg", is_sorted=False)
    records: list[Record] = []
    rest = RIPGREP
    for size in [*sizes, len(rest)]:
        records += engine.feed(rest[:size])
        rest = rest[size:]
    assert records == [Hit(b"sub/a", 1, "x"), Hit(b"sub/\xff", 22, "x\ufffd"), Binary(b"sub/a")]
    assert engine.problem(0) is None
    assert engine.noise.startswith(b"bwrap: a warning\n")


def test_names_are_read_with_anything_in_them_and_around_them() -> None:
    engine = RipgrepEngine(QUERY._replace(pattern=None), "rg", is_sorted=False)
    records = [*engine.feed(b"a warning\n./a\0./new\nline\0."), *engine.feed(b"/\xff\0noise")]
    assert records == [Hit(b"sub/a"), Hit(b"sub/new\nline"), Hit(b"sub/\xff")]
    assert engine.problem(0) is None
    assert engine.problem(2) == "a warning\nnoise"


def test_a_record_that_is_far_too_long_is_passed_over() -> None:
    engine = ScannerEngine(QUERY, "python")
    records: list[Record] = []
    for _ in range(50):
        records += engine.feed(b"x" * 100_000)
    records += engine.feed(b'\n{"path": "a", "line": 1, "text": "x"}\n{"finished": true}\n')
    assert records == [Hit(b"a", 1, "x")]
    assert engine.problem(0) is None


def test_an_engine_that_prints_nothing_has_not_succeeded() -> None:
    assert RipgrepEngine(QUERY, "rg", is_sorted=False).problem(1) == "ripgrep ended with 1"
    assert ScannerEngine(QUERY, "python").problem(0) == "the search failed: its process ended with 0"
