"""Fifty commands as coding agents write them to look around: how many of them a person is asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent.approvals.commands.rules import CommandRules

RULES = CommandRules.standard(search_path="/usr/bin:/bin")

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
# The environment may hold what the user let through; npm and pip load code and settings of the folder.
ASKED = {"env | grep PATH", "npm ls --depth=0", "pip list | grep pytest"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (
        "src/main.py",
        "src/util.py",
        "tests/test_main.py",
        "README.md",
        "package.json",
        "a.txt",
        "b.txt",
        "x.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\n")
    return tmp_path


def test_of_fifty_typical_commands_at_most_five_are_asked_about(project: Path) -> None:
    commands = [command.replace("@ROOT@", str(project)) for command in TYPICAL]
    asked = {command for command in commands if RULES.decide(command, folder=str(project)).verdict != "allow"}
    assert len(set(TYPICAL)) == 50
    assert asked == ASKED
    assert len(asked) <= 5


@pytest.mark.parametrize(
    "command",
    [
        # the same commands, with a little more than reading in them
        *["git log --oneline -5 | tee f", "ls -la && cat ../README.md", "cd src && ls > f", "cat a.txt 2>errors"],
        *['find . -name "*.py" | xargs rm', "cd .. && ls", "cd / && ls", "cd && ls", "cd - && ls", "cd ~ && ls"],
        *["wc -l $(ls)", "du -sh ~/*", "ls $HOME", "cat /etc/*", "echo $PATH", "sort -o f a.txt | head"],
        *["head -50 README.md | sh", "ls | xargs cat", "ls; npm install", "ls || rm x", "ls & ls", "ls |& cat", "(ls)"],
        *[
            "cd src && npm test",
            "cd nowhere && ls",
            "cd src | ls",
            "ls\ncat x",
            "sed -i s/a/b/ x",
            "cat <<< x",
            "cat <(ls)",
        ],
        *[
            "test -f x && rm x",
            "A=b ls | cat",
            "time ls | cat",
            "! ls | cat",
            "ls >/dev/nullx",
            "ls > /dev/null2",
            "cat <x>y",
        ],
        *[
            "git diff > /tmp/x",
            "ls 2>&3",
            "ls >&-",
            "ls 3>/dev/null",
            "ls {src,tests}",
            "ls [a-z]*",
            "cat .*",
            "ls ..*",
        ],
        *["cd src && cd ../.. && ls", "cd src; cd ..; cat ../x", "cd src || ls; cat ../a", "echo ../*", "ls -d /*/"],
        *["git --git-dir=x log | cat", "git -C .. log", "git -c a=b log | cat", "jq -n env", "jq -n '$ENV.HOME'"],
        *["sleep 1000", "tail -f x | head", "printf -v x y", "hostname evil", "date -s x", "tar xf x", "tar tf host:x"],
        *[
            "tar tf x -f host:y",
            "unzip x",
            "strings @x",
            "xxd -r x",
            "uniq a b",
            "column -t *.txt | tee x",
            "command ls",
        ],
    ],
)
def test_with_a_little_more_they_are_asked_about(project: Path, command: str) -> None:
    assert RULES.decide(command, folder=str(project)).verdict == "ask"
