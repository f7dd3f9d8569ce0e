"""Ordinary work under the same conditions as the attacks: it succeeds, without needless questions.

The setup is the same as for the attacks. `asks` is how often the user is asked; if it is 0, the user would say no.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from swink_agent import Image, ToolResultMessage
from swink_agent.testing import call
from swink_agent.testing.script import Reply
from swink_agent.tools import standard_tools

from .world import Run, World, nothing, write


@dataclass(frozen=True)
class Task:
    replies: Sequence[Reply]
    done: Callable[[World, Run], object]
    prepare: Callable[[World], object] = nothing
    asks: int = 0
    answer: Any = None


def bash(command: str, **more: Any) -> Reply:
    return call("bash", command=command, **more)


def change(command: str) -> Reply:
    """A command that says that it changes files."""
    return bash(command, write=True)


def edit(path: str, old: str, new: str, **more: Any) -> Reply:
    return call("edit_file", path=path, edits=[{"old": old, "new": new, **more}])


def says(*pieces: str) -> Callable[[World, Run], bool]:
    return lambda world, run: all(world.fill(piece) in "\n".join(run.texts) for piece in pieces)


def holds(name: str, content: str) -> Callable[[World, Run], bool]:
    return lambda world, run: (world.root / name).read_bytes() == content.encode()


def both(*checks: Callable[[World, Run], object]) -> Callable[[World, Run], bool]:
    return lambda world, run: all(check(world, run) for check in checks)


def has(name: str, content: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        path = world.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())

    return make


def png(world: World) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + chunk(b"IEND", b"")
    )
    (world.root / "dot.png").write_bytes(data)


def shows_a_picture(world: World, run: Run) -> bool:
    results = [message for message in run.result.messages if isinstance(message, ToolResultMessage)]
    pictures = [block for message in results for block in message.content if isinstance(block, Image)]
    return base64.b64decode(pictures[0].source.data) == (world.root / "dot.png").read_bytes()  # type: ignore[union-attr]


def inner_link(world: World) -> None:
    write(world.root / "docs/guide.md", "guide\n")
    (world.root / "guide").symlink_to("docs/guide.md")
    (world.root / "absolute").symlink_to(world.root / "docs")


def script(world: World) -> None:
    write(world.root / "run.sh", "#!/bin/sh\necho ran\n")
    (world.root / "run.sh").chmod(0o755)


def committed(world: World, run: Run) -> bool:
    return "second" in run.texts[-1] and (world.root / ".git/refs/heads/main").exists()


HELLO_C = '#include <stdio.h>\nint main(void) { puts("hello from c"); return 0; }\n'
TEST = """import unittest
from src.main import add


class Adds(unittest.TestCase):
    def test_it(self):
        self.assertEqual(add(2, 3), 5)
"""
FIX = edit("src/main.py", "a - b", "a + b")

READING = {
    "read a file": Task([call("read_file", path="hello.txt")], says("hello")),
    "read a part of a long file": Task(
        [call("read_file", path="long.txt", offset=500, limit=2)],
        says("line 500\nline 501", "lines 500-501 of 1000"),
        has("long.txt", "".join(f"line {n}\n" for n in range(1, 1001))),
    ),
    "read by an absolute path": Task([call("read_file", path="@ROOT@/hello.txt")], says("hello")),
    "read a file that is ignored": Task([call("read_file", path="ignored.txt")], says("ignored, but here")),
    "read a name with spaces and other letters": Task(
        [call("read_file", path="f\u00fcr dich/\u65e5\u672c \u0434\u0430.txt")],
        says("inhalt"),
        has("f\u00fcr dich/\u65e5\u672c \u0434\u0430.txt", "inhalt\n"),
    ),
    "read an empty file": Task([call("read_file", path="empty")], says("[the file is empty]"), has("empty", "")),
    "read through a link that stays inside": Task(
        [call("read_file", path="guide"), call("read_file", path="absolute/guide.md")], says("guide"), inner_link
    ),
    "see a picture": Task([call("read_file", path="dot.png")], shows_a_picture, png),
    "list the folder": Task([call("list_dir")], says("hello.txt", "src/")),
    "list deeper": Task([call("list_dir", path="src", depth=3)], says("src/main.py")),
    "find by name": Task([call("search", glob="**/*.py")], says("src/main.py")),
    "find by content": Task([call("search", pattern=r"def \w+\(")], says("src/main.py:1: def add(a, b):")),
    "find nothing": Task([call("search", pattern="no such words")], says("[no matches]")),
    "find in an ignored file that is named": Task(
        [call("search", pattern="here", path="ignored.txt")], says("ignored.txt:1:")
    ),
    "read about secrets in code": Task(
        [call("read_file", path="auth.py")], says("password = getpass()"), has("auth.py", "password = getpass()\n")
    ),
    "read the repository's configuration": Task([call("read_file", path=".git/config")], says("[core]")),
}

COMMANDS = {
    "look around": Task(
        [bash("ls -la"), bash("pwd"), bash("cat hello.txt"), bash("wc -l hello.txt src/main.py")],
        says("hello.txt", "@ROOT@", "hello"),
    ),
    "look for things": Task(
        [bash("grep -rn add src"), bash("rg add"), bash("find . -name '*.py' -not -path './vendor/*'")],
        says("src/main.py:1:def add", "./src/main.py"),
    ),
    "look at a part": Task(
        [bash("head -n 1 src/main.py"), bash("sed -n 2,2p src/main.py"), bash("tail -1 src/main.py")],
        says("return a - b"),
    ),
    "look at a file with a space in its name": Task(
        [bash("cat 'a b.txt'"), bash("cat a\\ b.txt"), bash('cat "a b.txt"')],
        says("spaced"),
        has("a b.txt", "spaced\n"),
    ),
    "ask git how things are": Task(
        [bash("git status"), bash("git status --short"), bash("git branch")], says("On branch main", "* main")
    ),
    "read the history": Task(
        [bash("git log --oneline"), bash("git log -1 --stat"), bash("git show HEAD")], says("first", "hello.txt")
    ),
    "see a difference": Task(
        [bash("git diff"), bash("git diff --stat")], says("+changed", "1 file changed"), has("hello.txt", "changed\n")
    ),
    "see who wrote it": Task([bash("git blame hello.txt")], says("Test"), asks=0),
    "ask for versions": Task(
        [bash("git --version"), bash("uname -a"), bash("python --version")], says("git version", "Python 3")
    ),
    "compare files": Task([bash("diff hello.txt other.txt")], says("> other"), has("other.txt", "other\n")),
    "count with a pipe": Task([bash("ls src | wc -l")], says("1")),
    "look around in one go": Task(
        [bash("ls -la && cat hello.txt"), bash("cd src && ls && cat ../hello.txt"), bash("cd @ROOT@ && git status -s")],
        says("hello", "main.py"),
    ),
    "look with patterns": Task(
        [bash("wc -l src/*.py"), bash("head -n 1 *.txt | grep hello"), bash("ls nowhere* 2>/dev/null || echo none")],
        says("src/main.py", "hello", "none"),
    ),
    "look through pipes": Task(
        [
            bash("git log --oneline -5 2>&1 | head -3"),
            bash("grep -rn add src | cut -d: -f1 | sort | uniq -c"),
            bash("find . -name '*.py' -not -path './vendor/*' | head -20"),
            bash('git --no-pager diff --stat; echo "exit $?"'),
        ],
        says("first", "src/main.py", "exit 0"),
    ),
    "look with small programs": Task(
        [
            bash("awk '{ print $1 }' hello.txt"),
            bash("sed -n '1,5p' hello.txt | sed 's/hello/bye/'"),
            bash("[ -f hello.txt ] && echo yes"),
            bash("sort hello.txt | uniq -c | sort -rn | head"),
        ],
        says("bye", "yes"),
    ),
    "a command that fails": Task([bash("cat nowhere.txt")], says("No such file", "[exit code 1]")),
    "much output": Task([bash("seq 1 60000")], says("1\n2\n3", "60000", "left out"), asks=0),
    "a program that wants input": Task([bash("cat")], says("[no output]")),
    "text in other scripts": Task(
        [bash("echo '\u4f60\u597d, \u043c\u0438\u0440 \U0001f600'")],
        says("\u4f60\u597d, \u043c\u0438\u0440 \U0001f600"),
    ),
    "colours": Task(
        [bash("ls --color=always")], lambda world, run: "\x1b" not in run.texts[0] and "hello.txt" in run.texts[0]
    ),
    "run a script of the project": Task([bash("./run.sh")], says("ran"), script),
    "run python": Task([bash("python -c 'print(6 * 7)'")], says("42")),
    "run the tests": Task([bash("python -m unittest -q test_main.py")], says("FAILED"), has("test_main.py", TEST)),
    "temporary files": Task(
        [bash("d=$(mktemp -d) && echo kept > $d/x && cat $d/x && echo also > /tmp/y && cat /tmp/y")],
        says("kept"),
    ),
    "a job in the background that ends": Task([bash("(sleep 0.1; echo later) & echo now; wait")], says("now", "later")),
    "several lines": Task([bash('set -e\nfor n in 1 2 3; do\n  echo "n=$n"\ndone')], says("n=1\nn=2\nn=3")),
    "compile and run": Task(
        [change("gcc -o hello hello.c && ./hello")], says("hello from c"), has("hello.c", HELLO_C), asks=1
    ),
    "make": Task([bash("make")], says("made it"), has("Makefile", "all:\n\t@echo made it\n")),
    "an archive": Task(
        [change("tar czf a.tgz src && tar tzf a.tgz && mkdir x && tar xzf a.tgz -C x && cat x/src/main.py")],
        says("src/main.py", "return a - b"),
        asks=1,
    ),
    "modes": Task([change("touch s && chmod 755 s && stat -c %a s")], says("755"), asks=1),
    "a server of its own over a pipe": Task([change("mkfifo p; (echo pong > p) & cat p")], says("pong"), asks=1),
    "calls at once": Task(
        [[bash("ls"), bash("pwd"), call("read_file", path="hello.txt"), call("search", pattern="add")]],
        says("hello.txt", "@ROOT@", "hello", "src/main.py"),
    ),
}

CHANGING = {
    "create a file": Task([call("write_file", path="new.txt", content="new\n")], holds("new.txt", "new\n"), asks=1),
    "create a file in new folders": Task(
        [call("write_file", path="a/b/c.txt", content="deep\n")], holds("a/b/c.txt", "deep\n"), asks=1
    ),
    "replace a file": Task(
        [call("read_file", path="hello.txt"), call("write_file", path="hello.txt", content="bye\n")],
        holds("hello.txt", "bye\n"),
        asks=1,
    ),
    "edit a line": Task(
        [call("read_file", path="src/main.py"), FIX], holds("src/main.py", "def add(a, b):\n    return a + b\n"), asks=1
    ),
    "edit without reading first": Task([FIX], holds("src/main.py", "def add(a, b):\n    return a + b\n"), asks=1),
    "edit twice": Task(
        [FIX, edit("src/main.py", "add", "plus")], holds("src/main.py", "def plus(a, b):\n    return a + b\n"), asks=2
    ),
    "edit everywhere": Task(
        [edit("x.txt", "a", "b", replace_all=True)], holds("x.txt", "b b b\n"), has("x.txt", "a a a\n"), asks=1
    ),
    "edit a file with other line ends": Task(
        [edit("dos.txt", "one\ntwo", "1\n2")],
        holds("dos.txt", "1\r\n2\r\nthree\r\n"),
        has("dos.txt", "one\r\ntwo\r\nthree\r\n"),
        asks=1,
    ),
    "edit several places at once": Task(
        [call("edit_file", path="x.txt", edits=[{"old": "one", "new": "1"}, {"old": "two", "new": "2"}])],
        holds("x.txt", "1\n2\n"),
        has("x.txt", "one\ntwo\n"),
        asks=1,
    ),
    "an edit that does not fit, then one that does": Task(
        [edit("src/main.py", "a -  b", "x"), FIX], says("not found", "Edited src/main.py"), asks=1
    ),
    "keep the mode of a script": Task(
        [edit("run.sh", "ran", "did run"), bash("./run.sh")], says("did run"), script, asks=1
    ),
    "write through a link inside": Task(
        [call("read_file", path="guide"), call("write_file", path="guide", content="better\n")],
        holds("docs/guide.md", "better\n"),
        inner_link,
        asks=1,
    ),
    "fix a bug and run the tests": Task(
        [
            bash("python -m unittest -q test_main.py"),
            call("read_file", path="src/main.py"),
            FIX,
            bash("python -m unittest -q test_main.py"),
        ],
        both(says("FAILED", "OK"), holds("src/main.py", "def add(a, b):\n    return a + b\n")),
        has("test_main.py", TEST),
        asks=1,
    ),
    "commit": Task(
        [
            call("write_file", path="new.txt", content="x\n"),
            change("git add -A . ':!vendor' && git commit -qm second && git log --oneline"),
        ],
        committed,
        asks=2,
    ),
    "branch and go back": Task(
        [change("git checkout -qb topic && git branch && git checkout -q main && git branch -d topic")],
        says("* topic", "Deleted branch"),
        asks=1,
    ),
    "write a .gitignore": Task(
        [call("read_file", path=".gitignore"), edit(".gitignore", "*.log", "*.log\n*.tmp")],
        holds(".gitignore", "ignored.txt\n*.log\n*.tmp\n"),
        asks=1,
    ),
    "write a workflow": Task(
        [call("write_file", path=".github/workflows/ci.yml", content="on: push\n")],
        holds(".github/workflows/ci.yml", "on: push\n"),
        asks=1,
    ),
    "write with a command": Task(
        [change("printf 'a\\nb\\n' > x.txt && sort -r x.txt > y.txt && cat y.txt")], says("b\na"), asks=1
    ),
    "move and remove": Task(
        [change("mv hello.txt moved.txt && rm moved.txt && ls")],
        lambda world, run: not (world.root / "hello.txt").exists(),
        asks=1,
    ),
    "trust a tool for the session": Task(
        [call("write_file", path=f"{n}.txt", content=f"{n}\n") for n in range(4)],
        holds("3.txt", "3\n"),
        asks=1,
        answer="session_tool",
    ),
    "trust a command for the session": Task(
        [change(f"mkdir {name}") for name in ("a", "b", "-p c/d")],
        lambda world, run: (world.root / "c/d").is_dir(),
        asks=1,
        answer="session_prefix",
    ),
    "trust commands for the session, and run tests over and over": Task(
        [change("python -m unittest -q test_main.py")] * 2 + [change("python -m unittest -v test_main.py")],
        says("FAILED"),
        has("test_main.py", TEST),
        asks=1,
        answer="session_tool",
    ),
    "run tests one by one": Task(
        [change("python -m unittest -q test_main.py")] * 2, says("FAILED"), has("test_main.py", TEST), asks=2
    ),
}

TASKS = {
    **{f"read: {name}": task for name, task in READING.items()},
    **{f"run: {name}": task for name, task in COMMANDS.items()},
    **{f"change: {name}": task for name, task in CHANGING.items()},
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", TASKS)
async def test_ordinary_work_is_done_without_extra_questions(world: World, name: str) -> None:
    task = TASKS[name]
    task.prepare(world)
    run = await world.run(*task.replies, answer=task.answer or ("once" if task.asks else "no"))
    assert task.done(world, run), run.texts
    assert len(run.questions) == task.asks, [question.display for question in run.questions]
    assert run.result.stopped_by is None
    assert run.result.text == "done"
    assert world.breaches(run) == []
    assert all(question.warnings == () for question in run.questions)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name in TASKS if name.startswith("run")])
async def test_commands_do_the_same_without_namespaces(world: World, name: str) -> None:
    if "temporary files" in name:
        return  # there, only $TMPDIR is the command's own
    task = TASKS[name]
    task.prepare(world)
    run = await world.run(*task.replies, answer=task.answer or "once", sandbox="landlock")
    assert task.done(world, run), run.texts
    assert world.breaches(run) == []


async def test_a_folder_with_a_strange_name_can_be_worked_in(world: World) -> None:
    root = world.base / "a folder; with 'quotes' $(and) \u00fc"
    root.mkdir()
    write(root / "x.txt", "inside\n")
    tools = standard_tools(root)
    run = await world.run(
        [bash("pwd; cat x.txt"), call("read_file", path=str(root / "x.txt")), call("search", pattern="inside")],
        call("write_file", path="y.txt", content="y\n"),
        tools=tools,
        policies=[],
    )
    assert [event.is_error for event in run.results] == [False] * 4
    assert (root / "y.txt").read_text() == "y\n"
    for tool in tools[-2:]:
        tool.close()  # type: ignore[attr-defined]


async def test_a_command_may_use_the_network_when_the_user_said_so(world: World) -> None:
    run = await world.run(
        change("exec 3<>/dev/tcp/127.0.0.1/@TCP@ && echo connected"), sandbox=world.profile(network=True)
    )
    assert "connected" in run.texts[0]
    world.listeners.pop("TCP").accept()[0].close()
    assert world.breaches(run) == []
