"""A hundred commands as coding agents write them to look around: each runs in the sandbox that can only read."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swink_agent import ToolContext, extract_text
from swink_agent.core.approval import Grant
from swink_agent.sandbox import SandboxProfile, SandboxUnavailable, open_sandbox
from swink_agent.sandbox.open import backend_names
from swink_agent.tools import BashTool

TYPICAL = [
    "git log --oneline -5 | head",
    'grep -rn "foo" src | wc -l',
    "ls -la && cat README.md",
    'find . -name "*.py" | head -20',
    "cd src && ls",
    "cat a.txt 2>/dev/null",
    "wc -l *.py",
    "git diff HEAD~1 --stat",
    "head -50 README.md | grep install",
    "sort a.txt | uniq -c | sort -rn | head",
    "du -sh *",
    "rg foo -g '*.py'",
    "sed -n '1,20p' src/main.py",
    "awk '{print $1}' a.txt",
    "jq .name package.json",
    "python --version",
    "which git",
    "git show HEAD:src/main.py",
    "git branch -a",
    "git blame src/main.py",
    "tree -L 2",
    "stat a.txt",
    "file a.txt",
    "diff a.txt b.txt",
    "date",
    "pwd && ls",
    "env | grep PATH",
    "echo hi",
    "test -f package.json && echo yes || echo no",
    "basename src/main.py .py",
    "cut -d, -f1 a.txt | sort -u",
    "cat a.txt | tr a-z A-Z",
    "nl src/main.py | sed -n '10,20p'",
    "column -t a.txt",
    "comm -12 a.txt b.txt",
    "xxd a.txt | head -5",
    "md5sum a.txt",
    "git status --short && git diff",
    "git --no-pager log -3 --format='%h %s'",
    "cd @ROOT@ && git status",
    "grep -rn 'def main' --include='*.py' . 2>/dev/null | head -20",
    'grep -n "TODO" src/*.py || echo none',
    "ls node_modules 2>&1 | head",
    "cat package.json | jq '.dependencies | keys'",
    "find src -type f ! -name '*.pyc' | sort",
    "[ -d tests ] && ls tests",
    'ls src; echo "exit: $?"',
    "awk -F: '/main/ {print $2}' a.txt | sort | uniq",
    "npm ls --depth=0",
    "pip list | grep pytest",
]
# What agents write besides, in the course of an ordinary day.
EVERYDAY = [
    *["grep -rn TODO --include=*.py .", "grep -rn foo --include=*.py --include=*.md src", "ps aux | grep python"],
    *["find . -name '*.py' | xargs wc -l", "grep -rl main src | xargs wc -l", "grep -rl main . | sort | xargs head -5"],
    *[
        "find src -name '*.py' -print0 | xargs -0 grep -n main",
        "rg -l main | xargs wc -l",
        "find . | head | xargs ls -la",
    ],
    *[
        'for f in *.py; do wc -l "$f"; done',
        "for f in src/*.py; do echo $f; head -3 $f; done",
        "ps -ef",
        "ps -eo pid,args",
    ],
    *[
        "for i in 1 2 3; do echo round $i; done | tail -1",
        "for d in src tests; do ls $d | wc -l; done",
        "ps aux --sort=-rss",
    ],
    *['for f in *.txt; do echo "== $f"; cat "$f"; done', "pip list", "pip show pytest", "pgrep -fl python", "ss -tlnp"],
    *[
        "ls -la\ncat README.md\n",
        "# what is here?\nls # all of it\npwd",
        "git log --oneline \\\n  -5",
        "dpkg -l | head",
    ],
    *[
        "cd src\nls\ngrep -n main *.py",
        "ls |\n  wc -l",
        "echo done!",
        "grep -c '!' a.txt",
        "netstat -tln",
        "nm -C a.txt",
    ],
    *["cat <<'EOF' | wc -l\none\n$(two)\nEOF", "openssl version", "openssl x509 -in a.txt -noout -dates", "size a.txt"],
    *[
        "objdump -d a.txt | head",
        "readelf -h a.txt",
        "apt list --installed",
        "dpkg -s bash",
        "dpkg -L bash",
        "which rg",
    ],
    *[
        "wc -l src/*.py | sort -n | tail -5",
        "git status -sb",
        "git diff --stat HEAD~3",
        "du -sh src tests",
        "tail -20 a.txt",
    ],
    *["env | sort", "npm ls", "ls -lt | head -3", "git branch --list"],
]

FILES = ("src/main.py", "src/util.py", "tests/test_main.py", "README.md", "package.json", "a.txt", "b.txt", "x.py")


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        root = Path(made)
        for name in FILES:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text('{"name": "x"}\n' if name.endswith(".json") else "def main(): ...\n")
        for words in (("init",), ("add", "."), ("commit", "-m", "first"), ("commit", "-m", "second", "--allow-empty")):
            identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
            subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)
        yield root


@pytest.fixture(scope="module", params=backend_names())
def shell(request: pytest.FixtureRequest, project: Path) -> Iterator[BashTool]:
    try:
        sandbox = open_sandbox(SandboxProfile(write=(str(project),)), backend=request.param)
    except SandboxUnavailable as error:
        pytest.skip(f"{request.param} does not work here: {error}")
    tool = BashTool(project, sandbox)
    yield tool
    tool.close()
    sandbox.close()


def test_there_are_a_hundred_of_them() -> None:
    assert len({*TYPICAL, *EVERYDAY}) == 100


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("command", [*TYPICAL, *EVERYDAY])
async def test_it_runs_as_it_does_without_a_sandbox(shell: BashTool, project: Path, command: str) -> None:
    asked = {"command": command.replace("@ROOT@", str(project))}
    bash = [shutil.which("bash") or "/bin/bash", "-c", asked["command"]]
    run = subprocess.run
    plain = await asyncio.to_thread(run, bash, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    scope = shell.approval_scope(asked)
    assert scope["reads_only"] is True
    result = await shell.execute(asked, ToolContext(grant=Grant("bash", asked, scope)))
    assert result.details["exit_code"] == plain.returncode, extract_text(result.content)
    assert "limits" not in result.details, extract_text(result.content)
